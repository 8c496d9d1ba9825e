//! Any text, as a record that somebody sends: it is read or refused, and never panics; what was read is written and read again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use passmuster_harness::conformance::report::{Record, junit, merge};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(record) = serde_json::from_str::<Record>(&text) else { return };
    let again: Record = serde_json::from_str(&record.to_json()).expect("what is written can be read");
    assert_eq!(again.cases.len(), record.cases.len());
    junit(&record);
    let _ = merge(vec![("one".into(), record.clone()), ("two".into(), record)]);
});
