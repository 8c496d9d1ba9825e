//! The emulator alone: one kernel, launched once on each rank, with the race check.

use std::sync::Arc;

use passmuster_ptx::Module;

use crate::{
    choice::Choice,
    execution::{DeviceLimits, Fault, Grid, Program, Shape},
    memory::{AccessError, Address, Init, Memory, Owner},
    races::{Profile, Races, Report},
};

/// A kernel that every rank launches once, at the same time.
///
/// Two ranks exchange a word and do not synchronise. Rank 1 may store before or after rank 0 loads:
///
/// ```
/// use passmuster_emulator::{Profile, emulation::{Argument, Emulation}};
///
/// let text = ".version 9.0 .target sm_80 .address_size 64
/// .visible .entry exchange(.param .u64 own, .param .u64 next) {
///     .reg .b64 %own, %next;
///     .reg .b32 %word;
///     ld.param.u64 %own, [own];
///     ld.param.u64 %next, [next];
///     st.global.u32 [%next], 1;
///     ld.global.u32 %word, [%own];
///     ret;
/// }";
/// let emulation = Emulation::new(passmuster_ptx::parse(text)?, "exchange")
///     .ranks(2)
///     .buffer("data", 4)
///     .arguments([Argument::Own("data"), Argument::Next("data")])
///     .profile(Profile::Hopper);
/// let outcome = emulation.run(0)?;
/// assert!(outcome.races[0].text.starts_with("race, "), "{:?}", outcome.races);
/// assert!(outcome.stopped.is_none());
/// assert_eq!(outcome.read("data", 0)?, [1, 0, 0, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A run depends on the seed alone. The crates above put collectives, streams and hosts on top of the same parts ([`Grid`], [`Memory`], [`Races`]).
#[derive(Clone, Debug)]
pub struct Emulation {
    module: Arc<Module>,
    kernel: String,
    ranks: usize,
    shape: Shape,
    buffers: Vec<(Arc<str>, u64)>,
    arguments: Vec<Argument>,
    profile: Profile,
    most_turns: u64,
}

/// An argument of the kernel, at its natural alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// The address of the rank's own buffer of this name.
    Own(&'static str),
    /// The address of the next rank's buffer; the last rank's next is rank 0.
    Next(&'static str),
    /// The addresses of all ranks' buffers, rank by rank.
    All(&'static str),
    /// The rank, 32 bits.
    Rank,
    /// The number of ranks, 32 bits.
    Ranks,
    /// A number of 32 bits.
    U32(u32),
}

/// What became of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Races, in the order in which they were first seen. Those with an assumption are waived by the profile.
    pub races: Vec<Report>,
    /// Why it did not get to its end; none if it did.
    pub stopped: Option<Stopped>,
    memory: Memory,
    /// Of each buffer, on each rank.
    buffers: Vec<(Arc<str>, Vec<Address>)>,
}

/// Why a run did not get to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// A bad access, a trap, or an instruction that cannot be executed.
    Fault(Fault),
    /// It took as many [turns](Emulation::turns) as it may: it hangs, or is long.
    Turns,
}

impl Emulation {
    /// A kernel of a module: on one rank, with one block of one thread, under profile `hopper`.
    pub fn new(module: Module, kernel: &str) -> Emulation {
        Emulation {
            module: Arc::new(module),
            kernel: kernel.into(),
            ranks: 1,
            shape: Shape { grid: [1; 3], block: [1; 3], cluster: None, dynamic_shared: 0, registers: None },
            buffers: Vec::new(),
            arguments: Vec::new(),
            profile: Profile::Hopper,
            most_turns: 100_000,
        }
    }

    /// On this many ranks.
    #[must_use]
    pub fn ranks(self, ranks: usize) -> Emulation {
        Emulation { ranks, ..self }
    }

    /// With a launch of this shape on each rank.
    #[must_use]
    pub fn shape(self, shape: Shape) -> Emulation {
        Emulation { shape, ..self }
    }

    /// With a buffer of zeros on each rank. Every rank may access all of them.
    #[must_use]
    pub fn buffer(mut self, name: &str, bytes: u64) -> Emulation {
        self.buffers.push((name.into(), bytes));
        self
    }

    /// With these arguments, in the order of the kernel's parameters.
    #[must_use]
    pub fn arguments(self, arguments: impl IntoIterator<Item = Argument>) -> Emulation {
        Emulation { arguments: arguments.into_iter().collect(), ..self }
    }

    /// With a race check that makes these assumptions, or none.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Emulation {
        Emulation { profile, ..self }
    }

    /// With at most this many turns of all ranks together. In a turn, a warp executes up to 16 instructions.
    #[must_use]
    pub fn turns(self, most_turns: u64) -> Emulation {
        Emulation { most_turns, ..self }
    }

    /// Runs it under the schedule of a seed.
    ///
    /// # Errors
    /// If the launch itself is impossible: no such kernel, a shape that the device does not take, arguments that do not fit the parameters.
    ///
    /// # Panics
    /// If an argument names no buffer.
    pub fn run(&self, seed: u64) -> Result<Outcome, Fault> {
        let mut memory = Memory::new();
        let mut buffers = Vec::new();
        for (name, bytes) in &self.buffers {
            let of_rank = |rank| memory.allocate(Owner::new(rank, 0, name.clone()), *bytes, Init::Zero);
            let addresses: Vec<Address> = (0..self.ranks).map(of_rank).collect();
            for &address in &addresses {
                (0..self.ranks).for_each(|rank| memory.map(address, rank, true).expect("it was just allocated"));
            }
            buffers.push((name.clone(), addresses));
        }
        let mut races = Races::new(self.profile, self.ranks, 1, Vec::new());
        let mut grids = Vec::new();
        for rank in 0..self.ranks {
            let limits = DeviceLimits::by_threads(132, 2048, 227 << 10);
            let program = Arc::new(Program::load(self.module.clone(), rank, limits, &mut memory)?);
            let mut grid = Grid::new(program, &self.kernel, self.shape, &self.parameters(rank, &buffers), &mut memory)?;
            let launch = races.as_mut().map(|races| races.begin_launch(rank, 0, &self.module, "emulation", &self.kernel));
            launch.into_iter().for_each(|launch| grid.watch_as(launch));
            grids.push((launch, Some(grid)));
        }
        let mut choice = Choice::of_seed(seed);
        let mut stopped = None;
        for turn in 0.. {
            let running: Vec<usize> = (0..self.ranks).filter(|&rank| grids[rank].1.is_some()).collect();
            if running.is_empty() {
                break;
            }
            if turn == self.most_turns {
                stopped = Some(Stopped::Turns);
                break;
            }
            let (launch, grid) = &mut grids[choice.of(&running)];
            let quantum = 1 + choice.below(16) as u32;
            let running = grid.as_mut().expect("it runs");
            if let Err(fault) = running.watched_turn(&mut memory, races.as_mut(), turn, quantum, &mut |warps| choice.below(warps)) {
                stopped = Some(Stopped::Fault(fault));
                break;
            }
            if running.is_done() {
                if let (Some(races), Some(launch)) = (&mut races, *launch) {
                    races.end_launch(launch);
                }
                grid.take().into_iter().for_each(|grid| grid.finish(&mut memory));
            }
        }
        Ok(Outcome { races: races.map_or_else(Vec::new, |races| races.reports(&memory)), stopped, memory, buffers })
    }

    /// The bytes of a rank's parameters.
    fn parameters(&self, rank: usize, buffers: &[(Arc<str>, Vec<Address>)]) -> Vec<u8> {
        let of = |name: &str| &buffers.iter().find(|(known, _)| **known == *name).unwrap_or_else(|| panic!("no buffer `{name}`")).1;
        let mut bytes: Vec<u8> = Vec::new();
        let mut add = |value: &[u8]| {
            bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
            bytes.extend(value);
        };
        for argument in &self.arguments {
            match *argument {
                Argument::Own(name) => add(&of(name)[rank].0.to_le_bytes()),
                Argument::Next(name) => add(&of(name)[(rank + 1) % self.ranks].0.to_le_bytes()),
                Argument::All(name) => of(name).iter().for_each(|address| add(&address.0.to_le_bytes())),
                Argument::Rank => add(&(rank as u32).to_le_bytes()),
                Argument::Ranks => add(&(self.ranks as u32).to_le_bytes()),
                Argument::U32(value) => add(&value.to_le_bytes()),
            }
        }
        bytes
    }
}

impl Outcome {
    /// What a rank's buffer holds.
    ///
    /// # Errors
    /// Never, since buffers start as zeros and are not freed.
    ///
    /// # Panics
    /// If there is no such buffer or rank.
    pub fn read(&self, buffer: &str, rank: usize) -> Result<Vec<u8>, AccessError> {
        let (_, addresses) = self.buffers.iter().find(|(name, _)| **name == *buffer).unwrap_or_else(|| panic!("no buffer `{buffer}`"));
        let address = addresses[rank];
        let bytes = self.memory.find(address).map_or(0, |id| self.memory.size(id));
        Ok(self.memory.read(address, bytes, rank)?.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank raises its flag at the next one and waits for its own; the word that it stores before is read after.
    fn message(store: &str, load: &str) -> Emulation {
        let text = format!(
            ".version 9.0 .target sm_80 .address_size 64
             .visible .entry message(.param .u64 own, .param .u64 next, .param .u64 flag, .param .u64 next_flag) {{
                 .reg .b64 %own, %next, %flag, %next_flag;
                 .reg .b32 %word;
                 .reg .pred %p;
                 ld.param.u64 %own, [own];
                 ld.param.u64 %next, [next];
                 ld.param.u64 %flag, [flag];
                 ld.param.u64 %next_flag, [next_flag];
                 st.global.u32 [%next], 7;
                 {store}.global.u32 [%next_flag], 1;
             LOOK:
                 {load}.global.u32 %word, [%flag];
                 setp.eq.u32 %p, %word, 0;
                 @%p bra LOOK;
                 ld.global.u32 %word, [%own];
                 st.global.u32 [%own+4], %word;
                 ret;
             }}"
        );
        let arguments = [Argument::Own("data"), Argument::Next("data"), Argument::Own("flag"), Argument::Next("flag")];
        let module = passmuster_ptx::parse(&text).unwrap();
        Emulation::new(module, "message").ranks(3).buffer("data", 8).buffer("flag", 4).arguments(arguments)
    }

    #[test]
    fn released_message_does_not_race() {
        for seed in 0..20 {
            let outcome = message("st.release.sys", "ld.acquire.sys").run(seed).unwrap();
            assert!(outcome.races.is_empty() && outcome.stopped.is_none(), "{outcome:?}");
            assert_eq!(outcome.read("data", 2).unwrap(), [7, 0, 0, 0, 7, 0, 0, 0]);
        }
    }

    #[test]
    fn relaxed_message_races() {
        let outcome = message("st.relaxed.sys", "ld.relaxed.sys").run(0).unwrap();
        assert!(outcome.races.iter().any(|race| race.text.contains("race, read after write")), "{:?}", outcome.races);
    }

    #[test]
    fn lone_rank_waits_for_ever() {
        let outcome = message("st.release.sys", "ld.acquire.sys").buffer("other", 4);
        let arguments = [Argument::Own("data"), Argument::Next("data"), Argument::Own("flag"), Argument::Own("other")];
        let outcome = outcome.arguments(arguments).ranks(1).turns(500).run(0).unwrap();
        assert!(matches!(outcome.stopped, Some(Stopped::Turns)), "{outcome:?}");
    }
}
