//! What lanes look at that do not go on: which word, what it is now, and what it must be.
//!
//! For reports of hangs. A lane that looks is one that polls, or one that waits at a barrier or sleeps between two looks: its last looks are known, and the code
//! leads from there to where it is and back. [`walk`] finds out what would let it go on, [`wanted`] has the words for it.

#[cfg(test)]
mod tests;
mod values;
mod walk;
mod wanted;
mod way;

pub use wanted::{Step, Wanted, number};

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use passmuster_ptx::{Address, Base, Class, Instruction, Operand, Operation, Position, SourceLine, Space, Type};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    block::Block,
    grid::Grid,
    registers::{Registers, lanes_of},
    warp::{Group, Poll, Warp},
};
use crate::memory::{self, Memory};
use walk::Walk;
use way::Way;

/// Lanes of a warp that look at a word.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Linear index of the block.
    pub block: u32,
    /// Warp of the block.
    pub warp: u32,
    /// The lanes, as bits.
    pub lanes: u32,
    /// Where the word is.
    pub address: u64,
    /// Type of its elements.
    pub ty: Type,
    /// Its elements as they are now; none if they cannot be read.
    pub found: Vec<u64>,
    /// What they must be for the lanes to go on, if the code tells.
    pub wanted: Option<Wanted>,
    /// The operation that looks.
    pub at: Position,
    /// Its source line, where the PTX tells.
    pub source: Option<SourceLine>,
    around: Arc<BTreeSet<Position>>,
}

impl Look {
    /// Whether an operation lies between one look and the next: who stands there goes around with who looks.
    pub fn leads_around(&self, at: Position) -> bool {
        self.around.contains(&at)
    }

    /// The type by which to read what was found: that of the test, where the look itself has no more than a width.
    pub fn read_as(&self) -> Type {
        let of_test = self.wanted.as_ref().and_then(Wanted::ty);
        of_test.filter(|of_test| self.ty.is_untyped() && of_test.bits() == self.ty.bits()).unwrap_or(self.ty)
    }
}

/// Words of one launch that are reported, about.
const MOST_LOOKS: usize = 1024;

/// The ways around of the looks so far, by function and operation, and the places on them.
type Ways = HashMap<(usize, usize), (Way, Arc<BTreeSet<Position>>)>;

impl Grid {
    /// What the lanes look at that are left and do not go on, in the order of blocks and warps.
    pub fn looks(&self, memory: &Memory) -> Vec<Look> {
        let (mut looks, mut ways) = (Vec::new(), HashMap::new());
        for block in self.resident() {
            for (warp, of_warp) in block.warps.iter().enumerate() {
                for group in &of_warp.groups {
                    if looks.len() < MOST_LOOKS {
                        self.looks_of((block, warp, of_warp), group, memory, (&mut looks, &mut ways));
                    }
                }
            }
        }
        looks
    }

    fn looks_of(
        &self,
        (block, index, warp): (&Block, usize, &Warp),
        group: &Group,
        memory: &Memory,
        (looks, ways): (&mut Vec<Look>, &mut Ways),
    ) {
        let launch = self.launch();
        let function = &launch.program.module.functions[group.frame.function];
        let code = &function.code;
        let mut registers = warp.registers.clone();
        registers.bases = group.frame.bases;
        let of_group = warp.polls().iter().filter(|poll| poll.function == group.frame.function && poll.lanes & group.lanes != 0);
        // The look that it has just made comes before others of its loop.
        let mut of_group: Vec<&Poll> = of_group.collect();
        of_group.sort_by_key(|poll| poll.pc + 1 != group.pc);
        for poll in of_group {
            let Some((ty, space, address, parts)) = look(code.get(poll.pc)) else { continue };
            let way = ways.entry((group.frame.function, poll.pc)).or_insert_with(|| {
                let way = Way::new(code, poll.pc);
                let places = way.places(code);
                (way, places)
            });
            if !way.0.leads_around(group.pc) {
                continue;
            }
            let Some(addresses) = addresses(&registers, address, space) else { continue };
            let places: Vec<u8> = lanes_of(poll.lanes).flat_map(|lane| addresses[lane].to_le_bytes()).collect();
            if xxh3_64(&places) != poll.place {
                continue;
            }
            let reads = |space: Space, at: u64, bytes: u32| self.reads(block, memory, (space, at, bytes));
            let mut words: Vec<(u64, u32)> = Vec::new();
            for lane in lanes_of(poll.lanes & group.lanes) {
                match words.iter_mut().find(|(address, _)| *address == addresses[lane]) {
                    Some((_, lanes)) => *lanes |= 1 << lane,
                    None => words.push((addresses[lane], 1 << lane)),
                }
            }
            for (address, lanes) in words {
                let element = |part: usize| reads(space, address.wrapping_add(part as u64 * u64::from(ty.bytes())), ty.bytes());
                let found = (0..parts).map(element).collect::<Option<Vec<u64>>>().unwrap_or_default();
                let lane = lanes.trailing_zeros() as usize;
                let wanted = Walk::new(code, (poll.pc, &way.0), (&registers, lane), (&reads, launch.static_shared())).wanted();
                let Operation { at, source, .. } = code[poll.pc];
                let (block, warp, around) = (block.common.index, index as u32, way.1.clone());
                looks.push(Look { block, warp, lanes, address, ty, found, wanted, at, source, around });
            }
            return;
        }
    }

    /// Memory as a thread of a block sees it now.
    fn reads(&self, block: &Block, memory: &Memory, (space, at, bytes): (Space, u64, u32)) -> Option<u64> {
        let launch = self.launch();
        let start = match space {
            Space::Global | Space::Generic | Space::Const => 0,
            Space::Shared => block.common.shared,
            Space::Param => {
                let from = usize::try_from(at).ok()?;
                return Some(little_endian(launch.parameters.get(from..from + bytes as usize)?));
            }
            Space::Local | Space::SharedCluster => return None,
        };
        let address = memory::Address(start.wrapping_add(at));
        memory.peek_all(address, bytes.into(), launch.program.rank).ok().map(|bytes| little_endian(&bytes))
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// What an operation looks at: type, space and address, and how many elements.
fn look(operation: Option<&Operation>) -> Option<(Type, Space, &Address, usize)> {
    let (ty, access, address, parts) = match &operation?.instruction {
        Instruction::Load { ty, access, address, destinations } => (ty, access, address, destinations.len()),
        Instruction::Atomic { ty, access, address, destinations: Some(destinations), .. } => (ty, access, address, destinations.len()),
        _ => return None,
    };
    matches!(access.space, Space::Global | Space::Generic).then_some((*ty, access.space, address, parts))
}

/// The address of each lane.
fn addresses(registers: &Registers, address: &Address, space: Space) -> Option<[u64; 32]> {
    let Base::Register(base) = address.base else { return None };
    debug_assert!(base.class != Class::Predicate && matches!(space, Space::Global | Space::Generic));
    Some(registers.bits(Operand::Register(base)).map(|base| base.wrapping_add_signed(address.offset)))
}
