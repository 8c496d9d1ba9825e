//! Any text, as a specification that somebody sends: it is read, or refused at a place within the text, and never panics; nor do plans of what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use passmuster_plan::{algorithms::{Algorithm, Foreign, Target}, collective::Shape, plan::Call};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let foreign = match Foreign::with_files(&text, None, &|_| Ok(vec![1, 2, 3])) {
        Ok(foreign) => foreign,
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1).expect("the line is one of the text's");
            assert!(error.column <= line.chars().count() + 1, "{error}");
            return;
        }
    };
    let target = Target { waiting_blocks: 4, ..Target::default() };
    for (&dtype, &op) in foreign.dtypes().iter().flat_map(|dtype| foreign.ops().iter().map(move |op| (dtype, op))) {
        for &world in foreign.worlds().iter().filter(|&&world| world <= 4) {
            let count = foreign.least_count(dtype, world).unwrap_or(1).min(1 << 20);
            let Ok((call, _)) = Call::standalone(Shape::new(foreign.collective(), world, count), dtype, op) else { continue };
            if foreign.supports(&call).is_ok() && foreign.check_target(&call, &target).is_ok() {
                foreign.plan(&call, &target);
            }
        }
    }
});
