//! What `torchrun` shows of a rank that failed: the file that `TORCHELASTIC_ERROR_FILE` names.

use std::{
    env, fs, io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// Environment variable with the file's path.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// Writes why this process failed to where `torchrun` looks for it, if it does. Where that is not possible it is said on standard error.
pub fn report_failure(message: &str) {
    let Some(path) = env::var_os(ERROR_FILE).filter(|path| !path.is_empty()) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    if let Err(error) = write(Path::new(&path), message, now) {
        eprintln!("cannot write {}: {error}", Path::new(&path).display());
    }
}

/// Writes the file whole or not at all: its reader may not wait.
fn write(path: &Path, message: &str, seconds: u64) -> io::Result<()> {
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    fs::write(&new, text(message, seconds))?;
    fs::rename(&new, path)
}

fn text(message: &str, seconds: u64) -> String {
    let message = quoted(message);
    format!("{{\"message\": {{\"message\": {message}, \"extraInfo\": {{\"py_callstack\": {message}, \"timestamp\": \"{seconds}\"}}}}}}\n")
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let escaped = |character: char| match character {
        '"' | '\\' => format!("\\{character}"),
        character if character < ' ' => format!("\\u{:04x}", u32::from(character)),
        character => character.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, torchrun says `Signal 1 received` or nothing of a rank that knew why it failed.
    #[test]
    fn the_file_is_what_torchrun_reads() {
        let expected = r#"{"message": {"message": "rank 2 \"gone\"\u000a\\", "extraInfo": {"py_callstack": "rank 2 \"gone\"\u000a\\", "timestamp": "7"}}}"#;
        assert_eq!(text("rank 2 \"gone\"\n\\", 7).trim_end(), expected);
    }
}
