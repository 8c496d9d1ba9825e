//! What may come over a socket: files that fuzzing began with, and what it found.

use std::{collections::BTreeSet, fs, path::Path};

use passmuster_bootstrap::frame::{Decoder, Frame, FrameError};

/// If this fails, a message can end the process that it comes to, or says something else than its bytes do. `fuzz/fuzz_targets/frames.rs` looks for more.
#[test]
fn no_bytes_harm_a_decoder() {
    let (mut kinds, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for bytes in corpus() {
        let (frames, error) = decoded(&bytes);
        kinds.extend(frames.iter().map(kind));
        refused.extend(error.map(|error| error.to_string()));
    }
    assert_eq!(kinds.len(), 14, "a kind of frame has no file: {kinds:?}");
    let reasons = [
        "254 descriptors of a frame: at most 253",
        "4097 bytes of a text: at most 4096",
        "no frame: a loss is of no known kind",
        "no frame: a text is not UTF-8",
        "no frame: an error is of no known kind",
        "no frame: it ends too early",
        "no frame: it goes on after its end",
        "no frame: it is of no known kind",
    ];
    assert!(reasons.iter().all(|reason| refused.contains(*reason)), "{refused:?}");
}

/// The same of files with one byte changed.
#[test]
fn no_changed_byte_harms_a_decoder() {
    for bytes in corpus() {
        for at in 0..bytes.len().min(512) {
            for changed in [0, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
                let mut bytes = bytes.clone();
                bytes[at] = changed;
                decoded(&bytes);
            }
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames");
    fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

/// The frames that bytes are, each of which says what its bytes say, and why there are no more.
fn decoded(bytes: &[u8]) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::of_member();
    decoder.push(bytes);
    let (mut frames, mut at) = (Vec::new(), 0);
    loop {
        match decoder.next_frame() {
            Ok(Some(frame)) => {
                let again = frame.encode();
                assert_eq!(bytes[at..at + again.len()], again, "{frame:?}");
                at += again.len();
                frames.push(frame);
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// Its name, and that of what a failure is.
fn kind(frame: &Frame) -> String {
    let text = format!("{frame:?}");
    let words: Vec<&str> = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words[..if words[0] == "Failed" { 2 } else { 1 }].join(" ")
}
