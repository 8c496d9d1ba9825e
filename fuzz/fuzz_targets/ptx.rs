//! Any text: `parse` returns a module or an error that names a place within the text, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use passmuster_ptx as ptx;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = ptx::parse(&text) {
        let position = error.place().position;
        let line = text.split('\n').nth(position.line as usize - 1).expect("the line is one of the text's");
        assert!(position.column as usize <= line.chars().count() + 1, "{error}");
    }
});
