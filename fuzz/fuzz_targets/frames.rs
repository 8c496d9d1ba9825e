//! Any bytes, as ranks and strangers may send them: a decoder gives frames or says why there are none, and never panics. A frame says what its bytes said.
#![no_main]

use libfuzzer_sys::fuzz_target;
use passmuster_bootstrap::frame::Decoder;

fuzz_target!(|bytes: &[u8]| {
    for mut decoder in [Decoder::of_stranger(), Decoder::of_member()] {
        decoder.push(bytes);
        let mut at = 0;
        while let Ok(Some(frame)) = decoder.next_frame() {
            let again = frame.encode();
            assert_eq!(bytes[at..at + again.len()], again);
            at += again.len();
        }
    }
});
