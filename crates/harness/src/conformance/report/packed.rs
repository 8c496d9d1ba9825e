//! Records as files: JSON, packed by gzip where the name ends in `.gz`. A record of the merge list is 3 MB, and a sixth of that packed.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

/// Whether what is written under this name is packed.
pub fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Packs a text: the same bytes for the same text.
pub fn pack(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).and_then(|()| packed.finish()).expect("memory takes all that is written")
}

/// Unpacks what [`pack`] or gzip made, up to `most` bytes.
///
/// # Errors
/// What is no gzip, or has more than `most` bytes.
pub fn unpack(packed: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(packed).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} bytes when unpacked")));
    }
    Ok(bytes)
}

/// The packed file of the same name: `FILE.gz`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// The name of a record's file without `.json` or `.json.gz`; none if it ends in neither.
pub fn name_of(path: &Path) -> Option<&str> {
    let file = path.file_name()?.to_str()?;
    file.strip_suffix(".json.gz").or_else(|| file.strip_suffix(".json"))
}

/// The text of a committed record: `NAME.json` in its folder, or `NAME.json.gz`.
///
/// # Errors
/// There is no such record, or it is not readable.
pub fn committed(folder: &Path, name: &str) -> io::Result<String> {
    let plain = folder.join(format!("{name}.json"));
    let bytes = if plain.exists() { fs::read(plain)? } else { unpack(&fs::read(beside(&plain))?, u64::MAX)? };
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_whole_or_not_at_all() {
        let text = "{\"cases\": []}\n".repeat(1000);
        let packed = pack(&text);
        assert!(packed.len() < text.len() / 10 && packed == pack(&text));
        assert_eq!(unpack(&packed, text.len() as u64).unwrap(), text.as_bytes());
        assert_eq!(unpack(&packed, 100).unwrap_err().to_string(), "more than 100 bytes when unpacked");
        unpack(&packed[..packed.len() / 2], u64::MAX).unwrap_err();
        unpack(b"{}", u64::MAX).unwrap_err();
    }

    #[test]
    fn records_are_known_by_the_start_of_their_names() {
        let name = |path: &'static str| name_of(Path::new(path));
        assert_eq!((name("a/emulator-merge.json.gz"), name("gpus.json")), (Some("emulator-merge"), Some("gpus")));
        assert_eq!((name("a.json.partial"), name("merge.gz")), (None, None));
    }
}
