//! Litmus tests on a machine: what memory holds at the end of many launches, compared with what the emulator's schedules leave there.
//!
//! A test of which nothing is found must end on a GPU as it ends on the emulator, each time. What a test may show in which something is missing, hardware
//! may or may not show: that is counted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::conformance::{Status, report::RecordCase};
use passmuster_emulator::litmus::{BYTES, Litmus, LitmusError};
use passmuster_plan::{
    collective::DType,
    library::Library,
    machine::{Machine, MachineError},
    modules::fnv1a64,
    plan::{Arg, BufferSpec, Launch, Op, Outside, Plan, Region, Role, Script, Step, TensorMap},
};

/// Launches of a test in one run of a machine, each on memory of its own.
pub const AT_ONCE: u64 = 50;

/// Schedules of the emulator whose ends are those that a test may have.
pub const SCHEDULES: u64 = 64;

/// A test with its name and its PTX.
#[derive(Clone, Debug)]
pub struct Test {
    /// The file's name without its ending.
    pub name: String,
    /// The file.
    pub text: String,
    /// What the file says of itself.
    pub litmus: Litmus,
}

/// Why a file is no litmus test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct TestError {
    /// The name of the test.
    pub name: String,
    /// Why.
    pub why: LitmusError,
}

impl Test {
    /// A test of a file.
    ///
    /// # Errors
    /// As [`Litmus::of`], with the name before it.
    pub fn new(name: &str, text: &str) -> Result<Test, TestError> {
        let litmus = Litmus::of(text).map_err(|why| TestError { name: name.to_owned(), why })?;
        Ok(Test { name: name.to_owned(), text: text.to_owned(), litmus })
    }

    /// Why a GPU by itself is not to run it, where it is not.
    pub fn excluded(&self) -> Option<&'static str> {
        match &self.litmus {
            litmus if litmus.hangs => Some("it may hang"),
            litmus if litmus.fault.is_some() => Some("it ends with a fault, and a GPU is lost to its process with that"),
            litmus if litmus.ranks() > 1 => Some("it takes several GPUs"),
            _ => None,
        }
    }

    /// Whether something is missing in it that no assumption about the hardware grants.
    pub fn is_wrong(&self) -> bool {
        self.litmus.expected.iter().any(|found| !found.starts_with('('))
    }

    /// Hash of its file.
    pub fn kernel(&self) -> String {
        format!("fnv1a64:{:016x}", fnv1a64(self.text.as_bytes()))
    }

    fn module(&self) -> String {
        format!("litmus/{}", self.name)
    }
}

/// A library of the tests' modules, their PTX as `rewrite` makes it.
pub fn library(tests: &[Test], rewrite: impl Fn(&str) -> String) -> Library {
    let mut library = Library::default();
    tests.iter().for_each(|test| library.replace(&test.module(), rewrite(&test.text)));
    library
}

/// What came of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LitmusRow {
    /// Its name.
    pub test: String,
    /// Hash of its file.
    pub kernel: String,
    /// `pass`, `fail` where memory held what it must not hold at the end; `not_supported` where it was not run, `crash` where it took the device with it.
    pub status: Status,
    /// Whether the emulator finds something in it.
    pub wrong: bool,
    /// Times that it was launched.
    pub launches: usize,
    /// Different ends of it on the machine.
    pub ends: usize,
    /// Launches that ended as no schedule of the emulator ends.
    pub unknown: usize,
    /// Different ends of it under the schedules of the emulator.
    pub emulated: usize,
    /// Why it was not run, or how it ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl RecordCase for LitmusRow {}

/// How often memory held what at the end.
pub type Ends = BTreeMap<Vec<u8>, usize>;

impl LitmusRow {
    /// The row of a test that was not run, or whose run ended so.
    pub fn ended(test: &Test, status: Status, reason: impl Into<String>) -> LitmusRow {
        LitmusRow { status, reason: reason.into(), ..LitmusRow::of(test, &Ends::new(), &Ends::new()) }
    }

    /// The row of a test, by its ends on the machine and on the emulator.
    pub fn of(test: &Test, got: &Ends, emulated: &Ends) -> LitmusRow {
        let unknown = got.iter().filter(|(end, _)| !emulated.contains_key(*end)).map(|(_, times)| times).sum();
        let wrong = test.is_wrong();
        LitmusRow {
            test: test.name.clone(),
            kernel: test.kernel(),
            status: if unknown > 0 && !wrong { Status::Fail } else { Status::Pass },
            wrong,
            launches: got.values().sum(),
            ends: got.len(),
            unknown,
            emulated: emulated.len(),
            reason: String::new(),
        }
    }
}

/// Launches a test [`AT_ONCE`] times on a machine whose library has it, and adds its ends.
///
/// # Errors
/// As [`Machine::open_group`] and [`Machine::run`].
pub fn run(machine: &mut dyn Machine, test: &Test, deadline: Duration, ends: &mut Ends) -> Result<(), MachineError> {
    machine.close_groups();
    let buffers = ["data", "flag"].map(|name| BufferSpec::new(name, BYTES * AT_ONCE, Role::Data));
    let group = machine.open_group(1, &buffers)?;
    let whole = |name: &str| Region::new(name, 0, BYTES * AT_ONCE);
    let mut ops: Vec<Op> = ["data", "flag"].map(|name| Op::Fill { region: whole(name), byte: 0 }).into();
    ops.extend((0..AT_ONCE).flat_map(|nth| launches(test, nth)).map(Op::Launch));
    let plan = Plan::per_rank(&test.name, 1, |_| ops.clone());
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }] }, deadline)?;
    let [data, flag] = ["data", "flag"].map(|name| machine.read(group, 0, &whole(name)));
    let bytes = BYTES as usize;
    for (data, flag) in data?.chunks_exact(bytes).zip(flag?.chunks_exact(bytes)) {
        // Kernels with a map leave it in `flag`, with an address that no two machines share.
        let flag = if test.litmus.map.is_some() { &[] } else { flag };
        *ends.entry([data, flag].concat()).or_default() += 1;
    }
    Ok(())
}

/// The launches of a test on the `nth` part of its buffers.
fn launches(test: &Test, nth: u64) -> impl Iterator<Item = Launch> {
    let [data, flag] = ["data", "flag"].map(|name| Region::new(name, BYTES * nth, BYTES));
    let map = test.litmus.map.map(|[columns, rows, box_columns, box_rows]| TensorMap {
        region: Region { bytes: 4 * columns * rows, ..data.clone() },
        of_rank: None,
        dtype: DType::U32,
        extents: vec![columns, rows],
        strides: Vec::new(),
        tile: vec![box_columns as u32, box_rows as u32],
        element_strides: Vec::new(),
        interleave: 0,
        swizzle: 0,
        outside: Outside::Zeros,
    });
    let mut args = vec![Arg::Address(data), Arg::Address(flag)];
    args.extend(map.map(Arg::TensorMap));
    test.litmus.launches.iter().map(move |launch| Launch {
        dynamic_shared: 0,
        module: test.module(),
        entry: launch.kernel.clone(),
        grid: launch.blocks.into(),
        block: launch.threads.into(),
        cluster: None,
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args: args.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(of: &[(u8, usize)]) -> Ends {
        of.iter().map(|&(end, times)| (vec![end], times)).collect()
    }

    fn test(expects: &str) -> Test {
        Test::new("one", &format!("// Shows.\n// launch: 1 x 32 k\n{expects}")).unwrap()
    }

    /// If this fails, a GPU may contradict the emulator and nobody learns of it; or a race that shows is called a fault of the emulator.
    #[test]
    fn what_no_schedule_ends_with_is_a_finding_only_where_nothing_is_missing() {
        let (got, emulated) = (ends(&[(1, 990), (2, 7), (3, 3)]), ends(&[(1, 60), (4, 4)]));
        let row = LitmusRow::of(&test(""), &got, &emulated);
        assert_eq!((row.status, row.launches, row.ends, row.unknown, row.emulated), (Status::Fail, 1000, 3, 10, 2));
        assert_eq!(LitmusRow::of(&test(""), &ends(&[(4, 1000)]), &emulated).status, Status::Pass);
        for (expects, status) in [("// expect: a load races\n", Status::Pass), ("// expect: (granted) a load races\n", Status::Fail)] {
            let row = LitmusRow::of(&test(expects), &got, &emulated);
            assert_eq!((row.status, row.unknown), (status, 10), "{expects}");
        }
    }

    /// If this fails, a GPU is handed what it may not survive.
    #[test]
    fn what_a_gpu_must_not_run_says_why() {
        for (said, reason) in [("// hangs\n", "hang"), ("// fault: out of bounds\n", "fault"), ("// launch: 1 1 x 32 k\n", "several GPUs")]
        {
            assert!(test(said).excluded().unwrap().contains(reason), "{said}");
        }
        assert_eq!(test("").excluded(), None);
    }
}
