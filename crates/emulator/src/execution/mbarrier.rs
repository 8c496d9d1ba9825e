//! Mbarriers: what they count, phase by phase (PTX ISA 9.7.13.15).
//!
//! A phase is complete when all arrivals that it expects have come and as many bytes as are expected. What memory holds of an mbarrier is the state that an
//! arrival would give; nobody but its operations may write there.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use super::fault::ExecError;
use crate::memory::{Address, Memory};

/// The most arrivals of a phase.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

/// The most bytes that are expected and have not come, or the other way round.
const MOST_BYTES: i64 = (1 << 20) - 1;

/// Phases that states tell apart.
const PHASES: u64 = 1 << 20;

fn wrong(why: impl Into<String>) -> ExecError {
    ExecError::Asynchronous { lane: None, why: why.into() }
}

fn store(memory: &mut Memory, rank: usize, address: u64, mbarrier: &Mbarrier) -> Result<(), ExecError> {
    memory.store(Address(address), rank, mbarrier.state().to_le_bytes()).map_err(|error| ExecError::Access(None, error))
}

/// One mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mbarrier {
    phase: u64,
    pending: u32,
    expected: u32,
    /// Expected, less those that have come.
    bytes: i64,
}

impl Mbarrier {
    /// One of `count` arrivals a phase.
    pub(super) fn new(count: u32) -> Result<Mbarrier, String> {
        match count {
            1..=MOST_ARRIVALS => Ok(Mbarrier { phase: 0, pending: count, expected: count, bytes: 0 }),
            _ => Err(format!("mbarrier.init for {count} arrivals: expected 1 to {MOST_ARRIVALS}")),
        }
    }

    /// What an arrival gives, and what memory holds.
    pub(super) fn state(&self) -> u64 {
        u64::from(self.pending) | u64::from(self.expected) << 20 | (self.phase % PHASES) << 40
    }

    /// The arrivals that were missing in a state.
    pub(super) fn pending_of(state: u64) -> u32 {
        state as u32 & MOST_ARRIVALS
    }

    /// Threads arrive; those that drop out are not expected in later phases. Returns whether the phase is complete with it.
    pub(super) fn arrive(&mut self, count: u32, drops: bool) -> Result<bool, String> {
        if count == 0 || count > self.pending {
            let (pending, expected) = (self.pending, self.expected);
            return Err(format!("{count} arrivals: {pending} of {expected} are missing in this phase of the mbarrier"));
        }
        self.pending -= count;
        self.expected -= if drops { count } else { 0 };
        Ok(self.turn())
    }

    /// One more arrival is expected in this phase.
    pub(super) fn expect_arrival(&mut self) -> Result<(), String> {
        if self.pending == MOST_ARRIVALS {
            return Err(format!("more than {MOST_ARRIVALS} arrivals are expected at the mbarrier"));
        }
        self.pending += 1;
        Ok(())
    }

    /// Expects `bytes` more bytes; if negative, as many have come. Returns whether the phase is complete with it.
    pub(super) fn count_bytes(&mut self, bytes: i64) -> Result<bool, String> {
        let sum = self.bytes + bytes;
        if sum.abs() > MOST_BYTES {
            return Err(format!("{sum} bytes are expected and have not come at the mbarrier: the limit is {MOST_BYTES} either way"));
        }
        self.bytes = sum;
        Ok(self.turn())
    }

    fn turn(&mut self) -> bool {
        let complete = self.pending == 0 && self.bytes == 0;
        if complete {
            self.phase += 1;
            self.pending = self.expected;
        }
        complete
    }

    /// Whether the phase of a state, which must be the current one or the one before, is complete.
    pub(super) fn has_left(&self, state: u64) -> Result<bool, String> {
        match (self.phase % PHASES).wrapping_sub(state >> 40) % PHASES {
            0 => Ok(false),
            1 => Ok(true),
            late => Err(format!("a state of {late} phases ago: it must be of the current phase or the one before")),
        }
    }

    /// Whether the phase of a parity is complete.
    pub(super) fn has_left_parity(&self, parity: u32) -> bool {
        self.phase % 2 != u64::from(parity) % 2
    }
}

/// The mbarriers of a launch, by generic address.
#[derive(Debug, Default)]
pub(super) struct Mbarriers(BTreeMap<u64, Mbarrier>);

impl Mbarriers {
    /// Makes one of `count` arrivals a phase.
    pub(super) fn init(&mut self, memory: &mut Memory, rank: usize, address: u64, count: u32) -> Result<(), ExecError> {
        if self.0.contains_key(&address) {
            return Err(wrong("mbarrier.init where there is an mbarrier: mbarrier.inval must come before"));
        }
        let mbarrier = Mbarrier::new(count).map_err(wrong)?;
        store(memory, rank, address, &mbarrier)?;
        self.0.insert(address, mbarrier);
        Ok(())
    }

    /// The one at an address.
    pub(super) fn get(&self, memory: &Memory, rank: usize, address: u64) -> Result<&Mbarrier, ExecError> {
        let place = memory.resolve_aligned(Address(address), 8, rank).map_err(|error| ExecError::Access(None, error))?;
        let none = || wrong("there is no mbarrier: no mbarrier.init has been executed for it, or mbarrier.inval since");
        let mbarrier = self.0.get(&address).ok_or_else(none)?;
        if memory.peek::<8>(place) != mbarrier.state().to_le_bytes() {
            return Err(wrong("the mbarrier was overwritten: something else than its operations wrote there"));
        }
        Ok(mbarrier)
    }

    /// Changes the one at an address; what the change gives.
    pub(super) fn change<T>(
        &mut self,
        memory: &mut Memory,
        rank: usize,
        address: u64,
        change: impl FnOnce(&mut Mbarrier) -> Result<T, String>,
    ) -> Result<T, ExecError> {
        let mut changed = *self.get(memory, rank, address)?;
        let result = change(&mut changed).map_err(wrong)?;
        store(memory, rank, address, &changed)?;
        self.0.insert(address, changed);
        Ok(result)
    }

    /// Makes its bytes ordinary ones.
    pub(super) fn remove(&mut self, memory: &Memory, rank: usize, address: u64) -> Result<(), ExecError> {
        self.get(memory, rank, address)?;
        self.0.remove(&address);
        Ok(())
    }

    /// Forgets those of `bytes` bytes from an address on, and returns where they were.
    pub(super) fn forget(&mut self, from: u64, bytes: u64) -> Vec<u64> {
        let gone: Vec<u64> = self.0.range(from..from + bytes).map(|(&address, _)| address).collect();
        for address in &gone {
            self.0.remove(address);
        }
        gone
    }

    /// What is to come of those of `bytes` bytes from an address on.
    pub(super) fn hash_state(&self, from: u64, bytes: u64, hasher: &mut impl Hasher) {
        self.0.range(from..from + bytes).for_each(|(address, mbarrier)| (address - from, mbarrier).hash(hasher));
    }
}
