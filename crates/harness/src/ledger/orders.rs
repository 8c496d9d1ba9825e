//! What the ends of kernels and `griddepcontrol.wait` order towards other ranks: each [`Row`] has words written and read so often that a device which did
//! not order them would show some that came too late.
//!
//! PTX says nothing of either. The race check takes some of it for granted in its profile `hopper`, as assumptions with names (docs/emulator/races.md). Here
//! the same kernels run on the emulator, which says on which assumption a row rests, and on GPUs, which count late words. A row without an order is a
//! control: if no word of it is late, the row next to it shows nothing.
//!
//! kernels/conformance/orders.cu has the kernels.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::conformance::{Status, report::RecordCase};
use passmuster_plan::{
    abi::structure,
    algorithms::Catalogue,
    machine::{Machine, MachineError, Waived},
    modules::code_hash,
    plan::{Arg, BufferSpec, Launch, Op, Plan, Region, Role, Script, Step},
};

/// The kernels' module.
pub const MODULE: &str = "conformance/orders";

/// Where the words of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// In the memory of the rank that writes them.
    Writer,
    /// In the memory of the ranks that read them.
    Reader,
}

/// How the second kernel of a turn follows the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// As an ordinary launch.
    Ordinary,
    /// As a dependent launch, which the first lets start at once (`early`) or by its end, and which waits for it or not.
    Dependent { early: bool, waits: bool },
    /// As part of the first.
    Fused,
}

/// How words are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// By relaxed loads of system scope, in one kernel for all turns.
    Relaxed,
    /// By weak loads, in a kernel of its own for each turn.
    WeakOnce,
    /// By weak loads, in one kernel for all turns: it has read the same words before, and its SMs may have kept them.
    WeakAgain,
}

/// What a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Rank 0 writes words, then stores a flag by the kernel that follows.
    Published { home: Home, follows: Follows, release: bool, reads: Reads },
    /// Rank 0 polls flags without acquiring, then reads words by the kernel that follows, which has read them before if it `touches` them.
    Taken { follows: Follows, touches: bool },
}

/// One row: what is done, and what orders it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it is called.
    pub name: &'static str,
    /// The assumption of profile `hopper` that orders its words; none if nothing does, so that late words may show.
    pub assumption: Option<&'static str>,
    kind: Kind,
}

const EARLY: Follows = Follows::Dependent { early: true, waits: true };
const LATE: Follows = Follows::Dependent { early: false, waits: true };
const UNWAITED: Follows = Follows::Dependent { early: true, waits: false };

const fn published(name: &'static str, assumption: Option<&'static str>, home: Home, follows: Follows, reads: Reads) -> Row {
    Row { name, assumption, kind: Kind::Published { home, follows, release: false, reads } }
}

const fn taken(name: &'static str, assumption: Option<&'static str>, follows: Follows, touches: bool) -> Row {
    Row { name, assumption, kind: Kind::Taken { follows, touches } }
}

const BOUNDARY: Option<&str> = Some("boundary");
const DEPENDENCY: Option<&str> = Some("dependency");

/// All rows.
pub static ROWS: [Row; 18] = [
    published("end of a kernel, words at the writer", BOUNDARY, Home::Writer, Follows::Ordinary, Reads::Relaxed),
    published("end of a kernel, words at the readers", BOUNDARY, Home::Reader, Follows::Ordinary, Reads::Relaxed),
    published("end of a kernel, words at the writer, weak reads", BOUNDARY, Home::Writer, Follows::Ordinary, Reads::WeakOnce),
    published("end of a kernel, words at the readers, weak reads", BOUNDARY, Home::Reader, Follows::Ordinary, Reads::WeakOnce),
    published(
        "control: the reading kernel has read the words before, at the writer",
        None,
        Home::Writer,
        Follows::Ordinary,
        Reads::WeakAgain,
    ),
    published(
        "control: the reading kernel has read the words before, at the readers",
        None,
        Home::Reader,
        Follows::Ordinary,
        Reads::WeakAgain,
    ),
    published("griddepcontrol.wait, words at the writer", DEPENDENCY, Home::Writer, EARLY, Reads::Relaxed),
    published("griddepcontrol.wait, words at the readers", DEPENDENCY, Home::Reader, EARLY, Reads::Relaxed),
    published("griddepcontrol.wait, words at the writer, weak reads", DEPENDENCY, Home::Writer, EARLY, Reads::WeakOnce),
    published("griddepcontrol.wait, words at the readers, weak reads", DEPENDENCY, Home::Reader, EARLY, Reads::WeakOnce),
    published("griddepcontrol.wait, implicit trigger, words at the readers", BOUNDARY, Home::Reader, LATE, Reads::Relaxed),
    published("control: no griddepcontrol.wait, words at the writer", None, Home::Writer, UNWAITED, Reads::Relaxed),
    published("control: no griddepcontrol.wait, words at the readers", None, Home::Reader, UNWAITED, Reads::Relaxed),
    taken("flags polled, then the end of the kernel", BOUNDARY, Follows::Ordinary, false),
    taken("flags polled, then griddepcontrol.wait", BOUNDARY, EARLY, false),
    taken("flags polled, then griddepcontrol.wait, words read before", BOUNDARY, EARLY, true),
    taken("control: flags polled, no griddepcontrol.wait", None, UNWAITED, false),
    taken("control: flags polled, and words read before, in one kernel", None, Follows::Fused, true),
];

/// How much a row does.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Ranks: rank 0 and those that it sends to or takes from.
    pub world: u32,
    /// Turns. Each writes all words again.
    pub turns: u32,
    /// Words of each rank's part.
    pub words: u32,
    /// Blocks and threads of the kernels that move words.
    pub grid: (u32, u32),
    /// Nanoseconds that each writing thread loses at most between its words.
    pub lose: u32,
    /// Turns of one captured graph, or 0 to capture none.
    pub captured: u32,
}

impl Extent {
    /// What shows late words on GPUs.
    pub fn of_gpus(world: u32, turns: u32) -> Extent {
        Extent { world, turns, words: 120 * 256 * 8, grid: (120, 256), lose: 2000, captured: 50 }
    }

    /// What the emulator does in a moment.
    pub fn of_emulator(world: u32) -> Extent {
        Extent { world, turns: 2, words: 128, grid: (2, 32), lose: 0, captured: 0 }
    }

    /// Threads of one reading or polling kernel: what is waited for must fit beside what waits.
    fn readers(self) -> (u32, u32) {
        (self.grid.0.min(16), self.grid.1)
    }
}

/// What came of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRow {
    /// Its name.
    pub row: String,
    /// The assumption that it rests on; none for a control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumption: Option<String>,
    /// Ranks.
    pub world: u32,
    /// Hash of the kernels' PTX.
    pub kernel: String,
    /// `fail` if an assumption does not hold, `inconclusive` if a control shows nothing, `hang` if a wait gave up.
    pub status: Status,
    /// Words read.
    pub reads: u64,
    /// Words that were older than their turn.
    pub stale: u64,
    /// The turn in which a wait gave up, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gave_up: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RecordCase for OrderRow {}

/// What a run of a row counted, and what the machine waived.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Words read.
    pub reads: u64,
    /// Words that were older than their turn.
    pub stale: u64,
    /// The turn in which a wait gave up, or 0.
    pub gave_up: u32,
    /// What the race check waived.
    pub waived: Vec<Waived>,
}

/// What the kernels leave, as C++ declares it, and its bytes.
const RESULT_FIELDS: [(&str, &str); 3] =
    [("u64 stale", "words that were older than their turn"), ("u64 reads", ""), ("u32 gave_up", "the turn in which a wait gave up")];
const RESULT_BYTES: u64 = 24;

/// The part of kernels/conformance/abi.cuh that is about orders.
pub(crate) fn header() -> String {
    structure("What kernels of orders leave.", "Result", &RESULT_FIELDS)
}

/// Bytes of flags: a word for each block of each rank.
const FLAG_BYTES: u64 = 4 * 16 * 128;

/// Bytes of a kernel's state: a word for each block.
const STATE_BYTES: u64 = 4 * 128;

/// Nanoseconds after which a wait of these kernels gives up.
const LIMIT: u64 = 3_000_000_000;

impl Row {
    /// Runs it on a machine whose library has the module of the kernels.
    ///
    /// # Errors
    /// As [`Machine::open_group`] and [`Machine::run`].
    pub fn run(&self, machine: &mut dyn Machine, extent: Extent, deadline: Duration) -> Result<Counted, MachineError> {
        machine.close_groups();
        let group = machine.open_group(extent.world as usize, &buffers(extent))?;
        let run = machine.run(&self.script(group, extent), deadline)?;
        let mut counted = Counted { waived: run.waived, ..Counted::default() };
        for rank in 0..extent.world as usize {
            let result = machine.read(group, rank, &whole("result", RESULT_BYTES))?;
            let number =
                |at: usize, bytes: usize| result[at..at + bytes].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
            counted.stale += number(0, 8);
            counted.reads += number(8, 8);
            counted.gave_up = counted.gave_up.max(number(16, 4) as u32);
        }
        Ok(counted)
    }

    /// What was counted, as a row of a record.
    pub fn judged(&self, world: u32, counted: &Counted) -> OrderRow {
        let status = match (counted.gave_up, counted.stale, self.assumption) {
            (1.., ..) => Status::Hang,
            (0, 1.., Some(_)) => Status::Fail,
            (0, 0, None) => Status::Inconclusive,
            _ => Status::Pass,
        };
        OrderRow {
            row: self.name.into(),
            assumption: self.assumption.map(str::to_owned),
            world,
            kernel: crate::registry(Catalogue::default()).module(MODULE).map(|module| code_hash(module.ptx)).unwrap_or_default(),
            status,
            reads: counted.reads,
            stale: counted.stale,
            gave_up: counted.gave_up,
        }
    }

    fn script(&self, group: usize, extent: Extent) -> Script {
        let per_rank = |name: &str, ops: &dyn Fn(u32) -> Vec<Op>| Arc::new(Plan::per_rank(name, extent.world, ops));
        let enqueue = |plan: Arc<Plan>| Step::Enqueue { group, stream: 0, plan };
        let (all_turns, of_a_turn) = match self.kind {
            Kind::Published { home, follows, release, reads } => {
                let all = per_rank("read", &|rank| {
                    let once = reads == Reads::WeakOnce;
                    if rank == 0 || once { vec![] } else { vec![read(extent, home, rank, extent.turns, reads)] }
                });
                let turn = per_rank("turn", &|rank| match rank {
                    0 => publish(extent, home, follows, release).into(),
                    _ if reads == Reads::WeakOnce => vec![read(extent, home, rank, 1, reads)],
                    _ => vec![],
                });
                (all, turn)
            }
            Kind::Taken { follows, touches } => {
                let all = per_rank("push", &|rank| if rank == 0 { vec![] } else { vec![push(extent, rank)] });
                let turn = per_rank("turn", &|rank| if rank == 0 { take(extent, follows, touches) } else { vec![] });
                (all, turn)
            }
        };
        let mut steps = vec![enqueue(all_turns)];
        match extent.captured {
            0 => steps.extend((0..extent.turns).map(|_| enqueue(of_a_turn.clone()))),
            captured => {
                steps.push(Step::Capture { graph: 0, group, plans: vec![of_a_turn; captured as usize] });
                steps.extend((0..extent.turns.div_ceil(captured)).map(|_| Step::Replay { graph: 0, stream: 0 }));
            }
        }
        Script { steps }
    }
}

fn whole(name: &str, bytes: u64) -> Region {
    Region::new(name, 0, bytes)
}

fn word_bytes(extent: Extent) -> u64 {
    4 * u64::from(extent.words)
}

/// Rank 0's words have a part for each other rank.
fn all_words(extent: Extent) -> Region {
    whole("words", word_bytes(extent) * u64::from(extent.world - 1))
}

fn buffers(extent: Extent) -> Vec<BufferSpec> {
    let words = BufferSpec::new("words", all_words(extent).bytes, Role::State);
    let signals = ["flags", "acks"].map(|name| BufferSpec::new(name, FLAG_BYTES, Role::Signals));
    let state = ["first", "second", "read"].map(|name| BufferSpec::new(format!("state.{name}"), STATE_BYTES, Role::State));
    let result = BufferSpec::new("result", RESULT_BYTES, Role::State);
    [words, result].into_iter().chain(signals).chain(state).collect()
}

fn launch(entry: &str, (grid, block): (u32, u32), waits_for_peers: bool, programmatic: bool, args: Vec<Arg>) -> Op {
    Op::Launch(Launch {
        module: MODULE.into(),
        entry: entry.into(),
        grid: grid.into(),
        block: block.into(),
        cluster: None,
        dynamic_shared: 0,
        waits_for_peers,
        programmatic,
        registers: None,
        variables: Vec::new(),
        args,
    })
}

fn state(name: &str) -> Arg {
    Arg::Address(whole(&format!("state.{name}"), STATE_BYTES))
}

fn result() -> Arg {
    Arg::Address(whole("result", RESULT_BYTES))
}

/// Words of the blocks of a reader, the `nth` of them.
fn of_blocks(name: &str, extent: Extent, nth: u32) -> Region {
    let bytes = 4 * u64::from(extent.readers().0);
    Region::new(name, bytes * u64::from(nth), bytes)
}

fn follows_as(follows: Follows) -> (bool, bool, bool) {
    match follows {
        Follows::Ordinary | Follows::Fused => (false, false, false),
        Follows::Dependent { early, waits } => (early, true, waits),
    }
}

/// Rank 0 of a turn in which words are published.
fn publish(extent: Extent, home: Home, follows: Follows, release: bool) -> [Op; 2] {
    let (early, programmatic, waits) = follows_as(follows);
    let produce = vec![
        Arg::Peers(whole("words", word_bytes(extent))),
        Arg::U32(extent.words),
        Arg::U32((home == Home::Reader).into()),
        Arg::Address(whole("acks", FLAG_BYTES)),
        Arg::U32(extent.readers().0 * (extent.world - 1)),
        state("first"),
        result(),
        Arg::U32(extent.world),
        Arg::U32(early.into()),
        Arg::U32(extent.lose),
        Arg::U64(LIMIT),
    ];
    let tell = vec![
        Arg::Peers(whole("flags", FLAG_BYTES)),
        state("second"),
        Arg::U32(extent.world),
        Arg::U32(waits.into()),
        Arg::U32(release.into()),
    ];
    [launch("produce", extent.grid, true, false, produce), launch("tell", (1, 32), false, programmatic, tell)]
}

fn read(extent: Extent, home: Home, rank: u32, turns: u32, reads: Reads) -> Op {
    let words = whole("words", word_bytes(extent));
    let args = vec![
        match home {
            Home::Writer => Arg::AddressOf { region: words, rank: 0 },
            Home::Reader => Arg::Address(words),
        },
        Arg::U32(extent.words),
        Arg::Address(whole("flags", FLAG_BYTES)),
        Arg::AddressOf { region: of_blocks("acks", extent, rank - 1), rank: 0 },
        state("read"),
        result(),
        Arg::U32(turns),
        Arg::U32((reads != Reads::Relaxed).into()),
        Arg::U64(LIMIT),
    ];
    launch("read", extent.readers(), true, false, args)
}

fn push(extent: Extent, rank: u32) -> Op {
    let part = word_bytes(extent);
    let args = vec![
        Arg::AddressOf { region: Region::new("words", part * u64::from(rank - 1), part), rank: 0 },
        Arg::U32(extent.words),
        Arg::AddressOf { region: of_blocks("flags", extent, rank - 1), rank: 0 },
        Arg::Address(whole("acks", FLAG_BYTES)),
        Arg::U32(extent.readers().0),
        result(),
        Arg::U32(extent.turns),
        Arg::U64(LIMIT),
    ];
    launch("push", extent.readers(), true, false, args)
}

/// Rank 0 of a turn in which words are taken.
fn take(extent: Extent, follows: Follows, touches: bool) -> Vec<Op> {
    let (early, programmatic, waits) = follows_as(follows);
    let (fused, others) = (follows == Follows::Fused, extent.world - 1);
    let taking = Arg::Struct(vec![
        Arg::Address(all_words(extent)),
        Arg::U32(extent.words * others),
        Arg::U32(extent.readers().0 * others),
        Arg::Address(whole("flags", FLAG_BYTES)),
        Arg::Peers(whole("acks", FLAG_BYTES)),
        state("second"),
        result(),
        Arg::U64(LIMIT),
        Arg::U32(extent.world),
    ]);
    let poll = vec![taking.clone(), Arg::U32(early.into()), Arg::U32(fused.into())];
    let mut ops = vec![launch("poll", extent.readers(), true, false, poll)];
    if !fused {
        let check = vec![taking, Arg::U32(touches.into()), Arg::U32(waits.into())];
        ops.push(launch("check", extent.readers(), false, programmatic, check));
    }
    ops
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;
    use crate::{
        REGISTRY,
        emulator::{Emulator, EmulatorOptions},
    };

    /// What the emulator says of a row: the assumptions that it waives with, and whether it races.
    fn said_of(row: &Row, world: u32, seed: u64) -> (BTreeSet<String>, bool) {
        let mut machine = Emulator::new(EmulatorOptions { seed, ..EmulatorOptions::of(&REGISTRY) });
        match row.run(&mut machine, Extent::of_emulator(world), Duration::from_secs(60)) {
            Ok(counted) => {
                assert_eq!((counted.stale, counted.gave_up), (0, 0), "{}", row.name);
                (counted.waived.into_iter().map(|waived| waived.assumption).collect(), false)
            }
            Err(MachineError::Races { .. }) => (BTreeSet::new(), true),
            Err(error) => panic!("{}: {error}", row.name),
        }
    }

    /// If this fails, a row is measured for an assumption that the race check does not use on it.
    #[rstest]
    fn rests_on_its_assumption(#[values(2, 3)] world: u32) {
        for row in &ROWS {
            let said: Vec<_> = (0..3).map(|seed| said_of(row, world, seed)).collect();
            // What reads words before they are written again races by itself, whatever orders them later.
            let reads_too_early = matches!(row.kind, Kind::Taken { touches: true, .. });
            match row.assumption.filter(|_| !reads_too_early) {
                None => assert!(said.iter().any(|(_, races)| *races), "{} does not race", row.name),
                Some(assumption) => {
                    for (waived, races) in said {
                        assert!(!races && waived.contains(assumption), "{}: races {races}, waived {waived:?}", row.name);
                    }
                }
            }
        }
    }

    #[test]
    fn late_words_are_findings() {
        let counted = |stale, gave_up| Counted { reads: 9, stale, gave_up, waived: Vec::new() };
        let status = |row: &Row, stale, gave_up| row.judged(2, &counted(stale, gave_up)).status;
        let control = ROWS.iter().find(|row| row.assumption.is_none()).unwrap();
        assert_eq!([0, 1].map(|stale| status(&ROWS[0], stale, 0)), [Status::Pass, Status::Fail]);
        assert_eq!([0, 1].map(|stale| status(control, stale, 0)), [Status::Inconclusive, Status::Pass]);
        assert_eq!([status(&ROWS[0], 0, 3), status(control, 1, 3)], [Status::Hang, Status::Hang]);
    }
}
