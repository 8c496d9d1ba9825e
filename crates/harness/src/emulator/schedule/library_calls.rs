//! Library calls: the ranks of a group meet, and what the library does is what the reference does.
//!
//! Ranks in one process meet here, and the last one to come carries the call out for all; each gets its result, and goes on, when the schedule says. Ranks in processes
//! of their own go through three steps together, by the words of the [board](super::super::board): all have come; each has read all inputs, which are in memory that it
//! maps; each has written its output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Schedule, Stopped};
use crate::emulator::{
    actions::{Action, Among, Command},
    memory::Address,
    streams::{Head, Meeting},
};
use passmuster_plan::{
    collective::{Counts, Shape, premultiply},
    plan::{Parts, RankCall},
};

/// Steps of a call between processes.
const CAME: u64 = 1;
const READ: u64 = 2;
const WRITTEN: u64 = 3;

/// What a rank passes to a library call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::emulator) struct LibraryCall {
    /// Among whom, and the number of the call among these.
    pub(super) meeting: Meeting,
    call: RankCall,
    input: u64,
    output: u64,
}

impl LibraryCall {
    /// Those that a rank's host will enqueue, in that order.
    pub(in crate::emulator) fn of(actions: &[Action]) -> Vec<LibraryCall> {
        #[derive(Default)]
        struct Calls {
            made: BTreeMap<Among, usize>,
            calls: Vec<LibraryCall>,
        }
        impl Calls {
            fn add(&mut self, commands: &[Command]) {
                for command in commands {
                    match command {
                        Command::Reduce { among, call, input, output } => {
                            let number = self.made.entry(*among).or_default();
                            let meeting = Meeting { among: *among, number: *number };
                            *number += 1;
                            self.calls.push(LibraryCall { meeting, call: call.clone(), input: input.0, output: output.0 });
                        }
                        Command::Fork { commands, .. } => self.add(commands),
                        _ => {}
                    }
                }
            }
        }
        let mut calls = Calls::default();
        for action in actions {
            match action {
                Action::Enqueue { commands, .. } => calls.add(commands),
                Action::Replay { graph, .. } => graph.plans.iter().for_each(|commands| calls.add(commands)),
                _ => {}
            }
        }
        calls.calls
    }
}

impl Schedule<'_> {
    /// A rank comes to a library call; the last one to come carries it out for all.
    pub(super) fn arrive(&mut self, rank: usize, stream: usize, meeting: Meeting) -> Result<(), Stopped> {
        self.ranks[rank].streams[stream].head = Head::Meeting(meeting);
        if let Some(peers) = &mut self.peers {
            peers.enter_phase(meeting, CAME);
            return Ok(());
        }
        self.meetings.entry(meeting).or_default().insert(rank, stream);
        if !self.absent(meeting).is_empty() {
            return Ok(());
        }
        let callers: Vec<(usize, usize)> = self.meetings.remove(&meeting).into_iter().flatten().collect();
        self.carry_out(&callers)
    }

    /// A rank's stream goes on after a call, with the result where there is one to be written.
    pub(super) fn end_call(&mut self, rank: usize, stream: usize) -> Result<(), Stopped> {
        if let Head::Returning(output, result) = std::mem::take(&mut self.ranks[rank].streams[stream].head) {
            self.memory.write(output, rank, &result).map_err(|error| misuse(rank, error))?;
        }
        let at = self.microseconds();
        self.trace.iter_mut().for_each(|trace| trace.end(rank, stream, at));
        self.ranks[rank].streams[stream].finish();
        Ok(())
    }

    /// The ranks that take part in a call, ascending.
    pub(super) fn members(&self, meeting: Meeting) -> impl Iterator<Item = usize> + Clone + use<> {
        let Among { group, index } = meeting.among;
        let (world, of_node) = self.worlds[group];
        (index.unwrap_or(0)..world).step_by(if index.is_some() { of_node } else { 1 })
    }

    /// The ranks that have not come to a call.
    pub(super) fn absent(&self, meeting: Meeting) -> Vec<usize> {
        match &self.peers {
            Some(peers) => peers.behind(meeting, self.members(meeting)),
            None => {
                let present = &self.meetings[&meeting];
                self.members(meeting).filter(|rank| !present.contains_key(rank)).collect()
            }
        }
    }

    /// The next step of a call, where every rank's process is as far as this one.
    pub(super) fn go_on_with_call(&mut self, rank: usize, stream: usize, meeting: Meeting) -> Result<(), Stopped> {
        let members = self.members(meeting);
        let Some(peers) = &mut self.peers else { unreachable!("ranks of one process carry calls out where they meet") };
        match peers.phase(meeting) {
            CAME => {
                let calls = peers.passed(meeting, members.clone());
                let inputs = members.clone().zip(&calls).map(|(rank, call)| self.input(rank, &call.call, Address(call.input)));
                let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
                let passed: Vec<&RankCall> = calls.iter().map(|call| &call.call).collect();
                let place = members.clone().position(|member| member == rank).unwrap_or_default();
                let result = results(&passed, inputs).map_err(Stopped::Disagreement)?.into_iter().nth(place).unwrap_or_default();
                let output = Address(calls[place].output);
                let Some(peers) = &mut self.peers else { return Ok(()) };
                peers.keep_result(meeting, output, result);
                peers.enter_phase(meeting, READ);
            }
            READ => {
                let (output, result) = peers.take_result(meeting);
                self.memory.write(output, rank, &result).map_err(|error| misuse(rank, error))?;
                let Some(peers) = &mut self.peers else { return Ok(()) };
                peers.enter_phase(meeting, WRITTEN);
            }
            _ => return self.end_call(rank, stream),
        }
        Ok(())
    }

    /// What a rank puts in, multiplied where it says so.
    fn input(&self, rank: usize, call: &RankCall, input: Address) -> Result<Vec<u8>, Stopped> {
        let bytes = self.memory.read_seen(input, call.input.bytes, rank).map_err(|error| misuse(rank, error))?;
        Ok(match call.factor {
            Some(factor) => premultiply(call.dtype, factor, &bytes),
            None => bytes,
        })
    }

    /// Carries a call out for all ranks that take part, each with its stream. Results are on their way then: a rank has its own when it goes on, others may have
    /// theirs long before or after.
    fn carry_out(&mut self, callers: &[(usize, usize)]) -> Result<(), Stopped> {
        let first = |&(rank, stream): &(usize, usize)| {
            let (commands, index, _) = self.ranks[rank].streams[stream].first();
            let Command::Reduce { call, input, output, .. } = &commands[index] else { unreachable!("ranks meet in library calls") };
            (call.clone(), *input, *output)
        };
        let calls: Vec<(RankCall, Address, Address)> = callers.iter().map(first).collect();
        let place = |rank, address, bytes: u64| {
            self.memory.resolve(address, bytes, rank).map(|place| (place, bytes)).map_err(|error| misuse(rank, error))
        };
        let ranks = || callers.iter().map(|&(rank, _)| rank);
        let of_rank = |(rank, (call, input, _)): (usize, &(RankCall, Address, Address))| {
            Ok((place(rank, *input, call.input.bytes)?, self.input(rank, call, *input)?))
        };
        let (read, inputs): (Vec<_>, Vec<_>) = ranks().zip(&calls).map(of_rank).collect::<Result<Vec<_>, Stopped>>()?.into_iter().unzip();
        let passed: Vec<&RankCall> = calls.iter().map(|(call, ..)| call).collect();
        let results = results(&passed, inputs).map_err(Stopped::Disagreement)?;
        let written =
            ranks().zip(calls.iter().zip(&results)).map(|(rank, ((.., output), result))| place(rank, *output, result.len() as u64));
        let written = written.collect::<Result<Vec<_>, Stopped>>()?;
        if let Some(races) = &mut self.races {
            races.library_call(callers, &read, &written);
        }
        for (&(rank, stream), ((.., output), result)) in callers.iter().zip(calls.iter().zip(results)) {
            self.ranks[rank].streams[stream].head = Head::Returning(*output, result);
        }
        Ok(())
    }
}

fn misuse(rank: usize, error: crate::emulator::memory::AccessError) -> Stopped {
    Stopped::Misuse { rank, what: "library call".into(), error }
}

/// What each rank gets that gets something, by what each passes and puts in.
///
/// # Errors
/// The first rank that passes something else than rank 0.
fn results(passed: &[&RankCall], inputs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    let arguments = |call: &RankCall| (call.collective, call.dtype, call.op, call.count, call.root);
    let Some(expected) = passed.first().map(|call| arguments(call)) else { return Ok(Vec::new()) };
    if let Some((rank, call)) = passed.iter().enumerate().find(|(_, call)| arguments(call) != expected) {
        let passes = arguments(call);
        return Err(format!("rank {rank} passes {passes:?} to a library call, rank 0 {expected:?}: all ranks must pass the same"));
    }
    let parts: Vec<Parts> = passed.iter().filter_map(|call| call.parts.clone()).collect();
    let (collective, dtype, op, count, root) = expected;
    let shape = Shape::new(collective, passed.len() as u32, count).with_root(root).with_counts(counts(&parts)?);
    Ok(shape.results(dtype, op, &inputs))
}

/// What ranks send to each other in a library call, in an all-to-all-v.
///
/// # Errors
/// A rank that expects what it is not sent: the library would wait, or write past the part.
fn counts(parts: &[Parts]) -> Result<Option<Counts>, String> {
    let pairs = || {
        parts
            .iter()
            .enumerate()
            .flat_map(|(receiver, own)| own.received.iter().enumerate().map(move |(sender, got)| (receiver, sender, *got)))
    };
    let expected = |receiver: usize, sender: usize| parts[sender].sent[receiver];
    if let Some((receiver, sender, got)) = pairs().find(|&(receiver, sender, got)| got != expected(receiver, sender)) {
        let sent = expected(receiver, sender);
        return Err(format!("rank {receiver} expects {got} elements of rank {sender} in a library call, which sends {sent}"));
    }
    let of = |sender: u32, receiver: u32| parts[sender as usize].sent[receiver as usize];
    Ok((!parts.is_empty()).then(|| Counts::new(parts.len() as u32, of)))
}
