//! Findings as text.

use super::{
    Code, Races,
    actors::Kind,
    finding::{Class, Found, LeftOut, Side},
};
use crate::memory::Memory;
use passmuster_ptx::Operation;

/// A finding for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The assumption that waives it.
    pub assumption: Option<&'static str>,
    /// What it is, without ranks, threads, bytes and places in the PTX.
    pub what: String,
    /// The lines of both accesses, in the source if the PTX tells: `a.cu:12 and then a.cu:40`.
    pub at: String,
    /// The first pair of accesses.
    pub text: String,
    /// How many pairs there were.
    pub times: u64,
}

impl Races {
    /// What was found so far, in the order in which it was first seen; last, if so, that there was more.
    pub fn reports(&self, memory: &Memory) -> Vec<Report> {
        let LeftOut { findings, times } = self.findings.left_out;
        let more = (findings > 0).then(|| {
            let what = format!("{findings} more pairs of instructions and operations race, which are not told one by one");
            Report { assumption: None, at: String::new(), text: format!("{what}; seen {times} times"), what, times }
        });
        self.findings.found.iter().map(|found| self.report(found, memory)).chain(more).collect()
    }

    fn report(&self, found: &Found, memory: &Memory) -> Report {
        let Found { key, sides: [first, second], allocation, from, to, times } = found;
        let owner = memory.owner(*allocation);
        let kind = |side: &Side| if side.mode.writes { "write" } else { "read" };
        let direction = format!("{} after {}", kind(second), kind(first));
        let bytes = format!("rank {} {}+{from}..{to}", owner.rank, owner.name);
        let (before, after) = (self.describe(first), self.describe(second));
        let class = key.class;
        let missing = match class {
            Class::Tearing => format!("not one access, and {} is missing between", key.missing),
            _ => format!("{} is missing between", key.missing),
        };
        let buffer = match owner.name.split_once(" (") {
            Some((kind, _)) => kind,
            None => &owner.name,
        };
        Report {
            assumption: key.assumption.map(|assumption| assumption.name()),
            at: format!("{} and then {}", self.line(first), self.line(second)),
            what: format!("{class}, {direction}: {buffer}, {} and then {}; {missing}", self.actor_kind(first), self.actor_kind(second)),
            text: format!("{class}, {direction}: {bytes}, by {before} and then by {after}; {missing}; seen {times} times"),
            times: *times,
        }
    }

    /// Whose access a side is, without its place.
    fn actor_kind(&self, side: &Side) -> String {
        match self.operation_of(side.actor).kind {
            Kind::Launch(code) => format!(
                "{} of {}",
                self.instruction(code, side.point).map_or("access", |at| at.instruction.family()),
                self.codes[code as usize].name
            ),
            Kind::Copy => "a copy".into(),
            Kind::Fill => "a fill".into(),
            Kind::WriteValue => "a write of a word".into(),
            Kind::WaitValue => "a wait for a word".into(),
            Kind::LibraryCall => "a library call".into(),
        }
    }

    fn describe(&self, side: &Side) -> String {
        let operation = self.operation_of(side.actor);
        let (rank, stream, index) = (operation.rank, operation.stream, operation.place.index);
        let whose = format!("rank {rank} stream {stream} operation {index}");
        let Kind::Launch(number) = operation.kind else { return format!("{whose} ({})", self.actor_kind(side)) };
        let code = &self.codes[number as usize];
        let block = self.actors[side.actor as usize].block;
        let (warp, lane) = (side.thread / 32, side.thread % 32);
        let place = self.instruction(number, side.point).map_or_else(String::new, |at| {
            let source = code.source(at).map_or_else(String::new, |source| format!(" ({source})"));
            format!(", {}{} at PTX {}{source}", at.instruction.family(), strength(side), at.at)
        });
        format!("{whose} {}, block {block} warp {warp} lane {lane}{place}", code.entry)
    }

    /// The line of a side: of the source if the PTX tells, else of the PTX; of what is no kernel, what it is.
    pub(super) fn line(&self, side: &Side) -> String {
        let Kind::Launch(number) = self.operation_of(side.actor).kind else { return self.actor_kind(side) };
        let code = &self.codes[number as usize];
        let of_ptx = |at: &Operation| format!("{}, PTX {}", code.entry, at.at);
        self.instruction(number, side.point).map_or_else(|| self.actor_kind(side), |at| code.source(at).unwrap_or_else(|| of_ptx(at)))
    }

    fn instruction(&self, code: u32, point: u32) -> Option<&Operation> {
        let code = &self.codes[code as usize];
        let function = code.functions.partition_point(|&first| first <= point).checked_sub(1)?;
        code.module.functions[function].code.get((point - code.functions[function]) as usize)
    }
}

impl Code {
    /// The file and line that an instruction comes from, if the PTX tells.
    fn source(&self, at: &Operation) -> Option<String> {
        at.source.map(|source| self.module.line(source))
    }
}

/// How strong an access is.
fn strength(side: &Side) -> String {
    match (side.mode.strong, side.mode.non_coherent) {
        (Some(level), _) => format!(" (strong, .{})", level.scope()),
        (None, true) => " (.nc)".into(),
        (None, false) => " (weak)".into(),
    }
}
