//! Files that commands read: regular files of bounded size. A pipe or a device could hold a command up for ever, or never end.

use std::{fs, fs::File, io::Read, path::Path};

use anyhow::{Context, bail};
use passmuster_harness::conformance::report::packed;

/// The largest record, in bytes: fifty times the largest that there is.
const MOST_RECORD: u64 = 512 << 20;

/// The largest manifest, recipe or description that a person writes, in bytes.
pub(crate) const MOST_TOML: u64 = 4 << 20;

/// Reads a text of at most `most` bytes.
///
/// # Errors
/// A file that is not there, is not regular, is larger or no UTF-8; with its name.
pub(crate) fn text(path: &Path, most: u64) -> anyhow::Result<String> {
    let name = path.display();
    String::from_utf8(bytes(path, most)?)
        .map_err(|error| anyhow::anyhow!("{name} is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

/// Reads a record; one whose name ends in `.gz` is unpacked, and `FILE.gz` stands in for a file that is not there.
///
/// # Errors
/// As [`text`], and what cannot be unpacked.
pub(crate) fn record(path: &Path) -> anyhow::Result<String> {
    let instead = packed::beside(path);
    let path = if path.exists() || !instead.exists() { path } else { &instead };
    if !packed::is_packed(path) {
        return text(path, MOST_RECORD);
    }
    let unpacked = packed::unpack(&bytes(path, MOST_RECORD)?, MOST_RECORD).with_context(|| format!("cannot unpack {}", path.display()))?;
    String::from_utf8(unpacked).with_context(|| format!("{} is no text", path.display()))
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// As [`text`].
pub(crate) fn bytes(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    // Before it is opened: opening a pipe blocks until something writes to it.
    let there = fs::metadata(path).with_context(|| format!("cannot open {name}"))?;
    if there.is_dir() {
        bail!("{name} is a folder: expected a file");
    }
    if !there.is_file() {
        bail!("{name} is no regular file: pipes and devices are not read");
    }
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most {
        bail!("{name} is larger than the {most} bytes that are allowed");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// If this fails, a command waits for ever for a pipe, or reads a device until memory is full.
    #[test]
    fn only_regular_files_are_read() {
        let said = |path: &str| text(Path::new(path), 10).unwrap_err().to_string();
        assert_eq!(said("/dev/zero"), "/dev/zero is no regular file: pipes and devices are not read");
        assert_eq!(said("/"), "/ is a folder: expected a file");
        assert_eq!(said("/no/such"), "cannot open /no/such");
        let large = env::temp_dir().join(format!("passmuster-input-{}", std::process::id()));
        fs::write(&large, "0123456789").unwrap();
        assert_eq!(text(&large, 10).unwrap(), "0123456789");
        assert!(text(&large, 9).unwrap_err().to_string().contains("is larger than the 9 bytes that are allowed"));
        fs::write(&large, [b'a', 0xff]).unwrap();
        assert!(text(&large, 9).unwrap_err().to_string().contains("is no text: byte 1 is not UTF-8"));
        fs::remove_file(large).unwrap();
    }

    /// If this fails, a packed record cannot be read by its name, or a kernel that is not there is taken from a packed file.
    #[test]
    fn records_alone_are_unpacked() {
        let plain = env::temp_dir().join(format!("passmuster-record-{}.json", std::process::id()));
        let packed = packed::beside(&plain);
        fs::write(&packed, packed::pack("{}")).unwrap();
        assert_eq!([record(&plain).unwrap(), record(&packed).unwrap()], ["{}", "{}"]);
        assert!(text(&plain, 9).unwrap_err().to_string().starts_with("cannot open "));
        fs::write(&packed, "{}").unwrap();
        assert!(record(&plain).unwrap_err().to_string().starts_with("cannot unpack "));
        fs::write(&plain, "[]").unwrap();
        assert_eq!(record(&plain).unwrap(), "[]");
        fs::remove_file(plain).unwrap();
        fs::remove_file(packed).unwrap();
    }
}
