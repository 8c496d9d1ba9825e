//! Loads, stores and atomics.
//!
//! Memory here is sequentially consistent at the granularity of one instruction of one warp: scopes, semantics and fences change no value.
//! The lanes of one instruction access memory in ascending order, and a vector is accessed as one. Where other processes write memory, too
//! ([`memory::Segment`]), each lane's access and each atomic is one of the processor, and fences are.

use super::{
    executor::Executor,
    fault::ExecError,
    registers::{LANES, Row, lanes_of, row_of},
    warp::Poll,
};
use crate::{
    memory::{self, Author, Init, Owner, Reach},
    numerics::{Bf16, F16, F32, F64, Float, Mode},
    races::{Effect, Touch},
};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use passmuster_ptx::{Access, Address, AtomicOp, Base, Class, Operand, Register, Scope, Semantics, Space, Type};

/// The largest offset that is a place in a window.
const WINDOW: u64 = 1 << 35;

/// The bits of a value as a register has them, of its bytes and zeros after them.
#[inline(always)]
fn extended(ty: Type, bytes: [u8; 16]) -> u128 {
    let value = u128::from_le_bytes(bytes);
    let unused = 128 - ty.bits();
    if ty.is_signed() { ((value << unused) as i128 >> unused) as u128 } else { value }
}

impl Executor<'_> {
    pub(super) fn rank(&self) -> usize {
        self.launch.program.rank
    }

    /// An address as it is in its space.
    fn in_space(&self, space: Space, address: Address) -> Row<u64> {
        let base = match address.base {
            Base::Register(register) if register.class == Class::Long => self.warp.registers.read::<u64>(Operand::Register(register)),
            Base::Register(register) => self.warp.registers.bits(Operand::Register(register)),
            Base::Zero if space == Space::Local => [self.frame.local; LANES],
            Base::Zero => [0; LANES],
            Base::Variable(index) => [self.launch.program.variables[index as usize]; LANES],
            Base::Function(index) => [self.launch.program.functions[index as usize]; LANES],
            Base::DynamicShared { align } => [self.launch.static_shared().next_multiple_of(u64::from(align.max(1))); LANES],
        };
        row_of(|lane| base[lane].wrapping_add_signed(address.offset))
    }

    /// Where a space starts in each lane's generic addresses.
    fn start_of(&mut self, space: Space) -> Row<u64> {
        match space {
            Space::Shared | Space::SharedCluster => [self.block.shared; LANES],
            Space::Param => [self.launch.parameter_address; LANES],
            Space::Local => *self.local(),
            Space::Global | Space::Const | Space::Generic => [0; LANES],
        }
    }

    /// Generic addresses of the lanes' local memory.
    fn local(&mut self) -> &Row<u64> {
        let Executor { memory, launch, block, warp, warp_index, .. } = self;
        let live = warp.live;
        warp.local.get_or_insert_with(|| {
            let mut addresses = [0; LANES];
            for lane in lanes_of(live) {
                let thread = *warp_index * LANES + lane;
                let owner =
                    Owner::new(launch.program.rank, 0, format!("local memory ({}, block {}, thread {thread})", launch.name, block.index));
                addresses[lane] = memory.allocate(owner, launch.local_bytes, Init::Uninitialised).0;
            }
            Box::new(addresses)
        })
    }

    /// Generic addresses of an access of `bytes` bytes.
    #[inline(always)]
    pub(super) fn addresses(&mut self, space: Space, address: Address, lanes: u32, bytes: u32) -> Result<Row<u64>, ExecError> {
        let mut addresses = self.in_space(space, address);
        if !matches!(space, Space::Global | Space::Const | Space::Generic) {
            if space == Space::SharedCluster {
                addresses = addresses.map(|address| self.block.member.generic(address));
            } else {
                let starts = self.start_of(space);
                for (address, start) in addresses.iter_mut().zip(&starts) {
                    // Far offsets would reach other windows.
                    let near = (*address as i64).unsigned_abs() < WINDOW;
                    *address = start.wrapping_add(if near { *address } else { (WINDOW - 1) & !u64::from(bytes - 1) });
                }
            }
            if matches!(space, Space::Shared | Space::SharedCluster) && self.block.shared == 0 {
                let lane = lanes.trailing_zeros();
                let error = self.memory.load::<1>(memory::Address(addresses[lane as usize]), self.launch.program.rank);
                return Err(ExecError::NoShared(lane, error.err().ok_or_else(|| ExecError::unsupported("shared memory of no bytes"))?));
            }
        }
        Ok(addresses)
    }

    /// `mov` of an address.
    pub(super) fn address_of(&mut self, lanes: u32, space: Space, d: Register, address: Address) {
        let values = self.in_space(space, address);
        self.warp.registers.write_bits(d, lanes, &values);
    }

    /// `cvta`.
    pub(super) fn convert_address(&mut self, lanes: u32, space: Space, to_space: bool, d: Register, a: Operand) {
        let starts = self.start_of(space);
        let mut values = self.warp.registers.bits(a);
        let member = &self.block.member;
        for (value, start) in values.iter_mut().zip(starts) {
            *value = match (space, to_space) {
                (Space::SharedCluster, false) => member.generic(*value),
                (Space::SharedCluster, true) => match member.place(*value) {
                    Some((rank, offset)) if rank != member.rank => member.address(rank, offset),
                    _ => value.wrapping_sub(start),
                },
                (_, true) => value.wrapping_sub(start),
                (_, false) => value.wrapping_add(start),
            };
        }
        self.warp.registers.write_bits(d, lanes, &values);
    }

    /// `mapa`.
    pub(super) fn map_to_block(&mut self, lanes: u32, space: Space, d: Register, address: Address, rank: Operand) -> Result<(), ExecError> {
        let places = self.places_in_cluster(lanes, space, address)?;
        let ranks = self.warp.registers.bits(rank);
        let member = &self.block.member;
        let mut values = [0; LANES];
        for lane in lanes_of(lanes) {
            let (rank, offset) = (ranks[lane] as u32, places[lane].1);
            let Some(start) = member.shared.get(rank as usize) else {
                let why = format!("block {rank} of the cluster: it has {}", member.shared.len());
                return Err(ExecError::Cluster { lane: lane as u32, why });
            };
            values[lane] = if space == Space::Generic { start + offset } else { member.address(rank, offset) };
        }
        self.warp.registers.write_bits(d, lanes, &values);
        Ok(())
    }

    /// `getctarank`.
    pub(super) fn block_of_address(&mut self, lanes: u32, space: Space, d: Register, address: Address) -> Result<(), ExecError> {
        let places = self.places_in_cluster(lanes, space, address)?;
        self.warp.registers.write::<u32>(d, lanes, &places.map(|(rank, _)| rank));
        Ok(())
    }

    /// Rank of the block and offset in its shared memory of each lane's address.
    fn places_in_cluster(&self, lanes: u32, space: Space, address: Address) -> Result<Row<(u32, u64)>, ExecError> {
        let addresses = self.in_space(space, address);
        let member = &self.block.member;
        let mut places = [(0, 0); LANES];
        for lane in lanes_of(lanes) {
            let generic = if space == Space::Generic { addresses[lane] } else { member.generic(addresses[lane]) };
            let none = || ExecError::Cluster {
                lane: lane as u32,
                why: format!("{} is in no shared memory of the cluster", memory::Address(generic)),
            };
            places[lane] = member.place(generic).ok_or_else(none)?;
        }
        Ok(places)
    }

    /// `isspacep`.
    pub(super) fn is_space(&mut self, lanes: u32, space: Space, d: Register, a: Operand) {
        let values = self.warp.registers.bits(a);
        let (rank, window) = (self.rank(), |address: u64| address >> 36);
        let mut holds = 0;
        for lane in lanes_of(lanes) {
            let address = values[lane];
            let is = |start: u64| start != 0 && window(start) == window(address);
            let constant = || {
                let variables = self.launch.program.module.variables.iter().zip(&self.launch.program.variables);
                variables.into_iter().any(|(variable, &start)| variable.space == Space::Const && is(start))
            };
            let local = self.warp.local.as_ref().is_some_and(|local| is(local[lane]));
            let (shared, param) = (self.block.member.place(address), is(self.launch.parameter_address));
            let found = match space {
                Space::Shared => shared.is_some_and(|(rank, _)| rank == self.block.member.rank),
                Space::SharedCluster => shared.is_some(),
                Space::Param => param,
                Space::Local => local,
                Space::Const => constant(),
                Space::Global | Space::Generic => {
                    shared.is_none() && !param && !local && !constant() && self.memory.resolve(memory::Address(address), 0, rank).is_ok()
                }
            };
            holds |= u32::from(found) << lane;
        }
        self.warp.registers.set_predicate(d, lanes, holds);
    }

    /// `ld`. Returns whether it polls.
    #[inline(always)]
    pub(super) fn load(
        &mut self,
        lanes: u32,
        ty: Type,
        access: &Access,
        destinations: &[Option<Register>],
        address: Address,
    ) -> Result<bool, ExecError> {
        let bytes = ty.bytes() * destinations.len() as u32;
        if access.space == Space::Param {
            self.load_parameter(lanes, ty, destinations, address, bytes)?;
            return Ok(false);
        }
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        let strong = !matches!(access.semantics, Semantics::Weak | Semantics::NonCoherent);
        let polls = match bytes {
            1 => self.load_bytes::<1>(lanes, ty, destinations, &addresses, strong),
            2 => self.load_bytes::<2>(lanes, ty, destinations, &addresses, strong),
            4 => self.load_bytes::<4>(lanes, ty, destinations, &addresses, strong),
            8 => self.load_bytes::<8>(lanes, ty, destinations, &addresses, strong),
            16 => self.load_bytes::<16>(lanes, ty, destinations, &addresses, strong),
            32 => return self.load_wide(lanes, (ty, access), destinations, &addresses),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched(lanes, access, (ty, bytes, false), &addresses, Effect::Load);
        Ok(polls)
    }

    /// `ld` of 256 bits, which is weak.
    #[inline(never)]
    fn load_wide(
        &mut self,
        lanes: u32,
        (ty, access): (Type, &Access),
        destinations: &[Option<Register>],
        addresses: &Row<u64>,
    ) -> Result<bool, ExecError> {
        let polls = self.load_bytes::<32>(lanes, ty, destinations, addresses, false)?;
        self.touched_wide(lanes, access, ty, addresses, Effect::Load);
        Ok(polls)
    }

    /// `st` of 256 bits, which is weak.
    #[inline(never)]
    fn store_wide(
        &mut self,
        lanes: u32,
        (ty, access): (Type, &Access),
        sources: &[Operand],
        addresses: &Row<u64>,
    ) -> Result<(), ExecError> {
        let agrees = self.store_bytes::<32>(lanes, ty, sources, addresses, access)?;
        self.touched_wide(lanes, access, ty, addresses, Effect::Store { agrees });
        Ok(())
    }

    /// An access of 256 bits is two of 128 to the race check: nothing says that more than those are not torn.
    fn touched_wide(&mut self, lanes: u32, access: &Access, ty: Type, addresses: &Row<u64>, effect: Effect) {
        for half in [0, 16] {
            self.touched(lanes, access, (ty, 16, false), &addresses.map(|address| address.wrapping_add(half)), effect);
        }
    }

    /// Tells the race check of an access that memory has let through.
    #[inline(always)]
    pub(super) fn touched(
        &mut self,
        lanes: u32,
        access: &Access,
        (ty, bytes, multicast): (Type, u32, bool),
        addresses: &Row<u64>,
        effect: Effect,
    ) {
        if self.launch.program.covered.is_some() {
            self.note_signal(lanes, access, addresses, effect);
        }
        let Some(actor) = self.block.actor.filter(|_| access.space != Space::Local) else { return };
        let at = self.at(actor);
        if let Some(races) = self.races.as_deref_mut() {
            let touch = Touch { effect, access, element: ty.bytes(), bytes, multicast };
            races.access(self.memory, at, lanes, &touch, addresses);
        }
    }

    #[inline(always)]
    fn load_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        ty: Type,
        destinations: &[Option<Register>],
        addresses: &Row<u64>,
        strong: bool,
    ) -> Result<bool, ExecError> {
        let mut values = [[0; N]; LANES];
        self.memory.load_warp(addresses, lanes, self.launch.program.rank, &mut values)?;
        self.spread(lanes, ty, destinations, &values);
        Ok(strong && self.polls(lanes, addresses, &values))
    }

    /// Whether lanes read the same as last time here.
    pub(super) fn polls<const N: usize>(&mut self, lanes: u32, addresses: &Row<u64>, values: &[[u8; N]; LANES]) -> bool {
        let mut places = SmallVec::<[u8; 8 * LANES]>::new();
        let mut bytes = SmallVec::<[u8; 16 * LANES]>::new();
        for lane in lanes_of(lanes) {
            places.extend_from_slice(&addresses[lane].to_le_bytes());
            bytes.extend_from_slice(&values[lane]);
        }
        let (place, read) = (xxh3_64(&places), xxh3_64(&bytes));
        let poll = Poll { function: self.frame.function, pc: self.pc, lanes, place, read };
        let again = self.warp.read_again(poll);
        if again {
            self.polled = Some(addresses[lanes.trailing_zeros() as usize]);
        }
        again
    }

    /// Parts of what was read to the registers that they are for.
    #[inline(always)]
    pub(super) fn spread<const N: usize>(&mut self, lanes: u32, ty: Type, destinations: &[Option<Register>], values: &[[u8; N]; LANES]) {
        let width = ty.bytes() as usize;
        let registers = &mut self.warp.registers;
        for (part, destination) in destinations.iter().enumerate() {
            let Some(destination) = *destination else { continue };
            let from = part * width;
            match (destination.class, width) {
                (Class::Word, 4) if from + 4 <= N => {
                    let row = row_of(|lane| {
                        let value = &values[lane];
                        u32::from_le_bytes([value[from], value[from + 1], value[from + 2], value[from + 3]])
                    });
                    registers.write::<u32>(destination, lanes, &row);
                }
                (Class::Word, 2) if from + 2 <= N && !ty.is_signed() => {
                    let row = row_of(|lane| u32::from(u16::from_le_bytes([values[lane][from], values[lane][from + 1]])));
                    registers.write::<u32>(destination, lanes, &row);
                }
                (Class::Long, 8) if from + 8 <= N => {
                    let row = row_of(|lane| {
                        let value = &values[lane];
                        u64::from_le_bytes(std::array::from_fn(|at| value[from + at]))
                    });
                    registers.write::<u64>(destination, lanes, &row);
                }
                _ => {
                    let row = row_of(|lane| {
                        let mut bytes = [0; 16];
                        bytes[..width].copy_from_slice(&values[lane][from..from + width]);
                        extended(ty, bytes)
                    });
                    registers.write_wide_bits(destination, lanes, &row);
                }
            }
        }
    }

    /// Parts of what is to be stored, from their registers.
    #[inline(always)]
    pub(super) fn gather<const N: usize>(&self, ty: Type, sources: &[Operand]) -> [[u8; N]; LANES] {
        let width = ty.bytes() as usize;
        let mut values = [[0; N]; LANES];
        for (part, &source) in sources.iter().enumerate() {
            let from = part * width;
            let of_words = !matches!(source, Operand::Register(Register { class: Class::Long | Class::Quad, .. }));
            if width == 2 && from + 2 <= N && of_words {
                let row = self.warp.registers.read::<u32>(source);
                for (value, word) in values.iter_mut().zip(row) {
                    [value[from], value[from + 1], ..] = word.to_le_bytes();
                }
            } else if width == 4 && from + 4 <= N && of_words {
                let row = self.warp.registers.read::<u32>(source);
                for (value, word) in values.iter_mut().zip(row) {
                    let word = word.to_le_bytes();
                    (value[from], value[from + 1], value[from + 2], value[from + 3]) = (word[0], word[1], word[2], word[3]);
                }
            } else {
                let row = self.warp.registers.wide_bits(source);
                for (value, bits) in values.iter_mut().zip(row) {
                    value[from..from + width].copy_from_slice(&bits.to_le_bytes()[..width]);
                }
            }
        }
        values
    }

    /// `st`.
    #[inline(always)]
    pub(super) fn store(&mut self, lanes: u32, ty: Type, access: &Access, address: Address, sources: &[Operand]) -> Result<(), ExecError> {
        let bytes = ty.bytes() * sources.len() as u32;
        if access.space == Space::Param {
            return self.store_parameter(lanes, ty, address, sources, bytes);
        }
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        self.turn.wrote |= match access.space {
            Space::Local | Space::Shared | Space::SharedCluster => false,
            Space::Generic => lanes_of(lanes).any(|lane| self.block.member.place(addresses[lane]).is_none()),
            Space::Global | Space::Const | Space::Param => true,
        };
        let agrees = match bytes {
            1 => self.store_bytes::<1>(lanes, ty, sources, &addresses, access),
            2 => self.store_bytes::<2>(lanes, ty, sources, &addresses, access),
            4 => self.store_bytes::<4>(lanes, ty, sources, &addresses, access),
            8 => self.store_bytes::<8>(lanes, ty, sources, &addresses, access),
            16 => self.store_bytes::<16>(lanes, ty, sources, &addresses, access),
            32 => return self.store_wide(lanes, (ty, access), sources, &addresses),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched(lanes, access, (ty, bytes, false), &addresses, Effect::Store { agrees });
        Ok(())
    }

    /// Whether some lanes store to one place, and those that do store the same bytes; `false` where no race check asks.
    #[inline(always)]
    fn store_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        ty: Type,
        sources: &[Operand],
        addresses: &Row<u64>,
        access: &Access,
    ) -> Result<bool, ExecError> {
        let values = self.gather::<N>(ty, sources);
        self.store_values(lanes, &values, addresses, access)
    }

    /// The same of bytes that are there already.
    #[inline(always)]
    pub(super) fn store_values<const N: usize>(
        &mut self,
        lanes: u32,
        values: &[[u8; N]; LANES],
        addresses: &Row<u64>,
        access: &Access,
    ) -> Result<bool, ExecError> {
        let agrees = self.races.is_some() && access.semantics == Semantics::Weak && agree(lanes, addresses, values);
        if self.memory.delays_stores() {
            let is_seen_by_peers = matches!(access.space, Space::Global | Space::Generic);
            let is_late = match access.semantics {
                Semantics::Weak => is_seen_by_peers,
                Semantics::Relaxed => is_seen_by_peers && self.memory.delays_relaxed_store(),
                _ => false,
            };
            if is_late {
                self.memory.store_warp_late(addresses, lanes, self.author(), values)?;
                return Ok(agrees);
            }
            if is_seen_by_peers {
                self.publish_before(lanes, addresses, access)?;
            } else {
                // What lies in shared memory is not late, but may release what is.
                self.release(access.semantics, access.scope);
            }
        }
        self.memory.store_warp(addresses, lanes, self.launch.program.rank, values)?;
        Ok(agrees)
    }

    /// This warp, as one that stores.
    pub(super) fn author(&self) -> Author {
        Author {
            rank: self.rank(),
            launch: self.launch.parameter_address,
            block: self.block.index,
            warp: self.warp_index as u32,
            barriers: self.block.completed,
        }
    }

    /// Publishes what a strong store or an atomic is preceded by: all that it releases, and what is at its addresses.
    fn publish_before(&mut self, lanes: u32, addresses: &Row<u64>, access: &Access) -> Result<(), ExecError> {
        self.release(access.semantics, access.scope);
        for lane in lanes_of(lanes) {
            let published = self.memory.publish_at(memory::Address(addresses[lane]), self.rank());
            published.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
        }
        Ok(())
    }

    /// Where stores are delayed, publishes what an operation of these semantics releases.
    pub(super) fn release(&mut self, semantics: Semantics, scope: Option<Scope>) {
        let releases = matches!(semantics, Semantics::Release | Semantics::AcquireRelease | Semantics::SequentiallyConsistent);
        if releases && self.memory.delays_stores() {
            let to = if scope == Some(Scope::Sys) { Reach::System } else { Reach::Rank };
            self.memory.publish(self.author(), to);
        }
    }

    /// `ld.param`: of the launch, or of calls to and from this function.
    fn load_parameter(
        &mut self,
        lanes: u32,
        ty: Type,
        destinations: &[Option<Register>],
        address: Address,
        bytes: u32,
    ) -> Result<(), ExecError> {
        let width = bytes as usize;
        if address.base == Base::Zero
            && self.is_launch_parameter(address.offset as u64)
            && (address.offset as u64).is_multiple_of(bytes.into())
            && let Some(value) = self.launch.parameters[address.offset as usize..].get(..width)
        {
            // The same for all lanes.
            for (destination, part) in destinations.iter().zip(value.chunks(ty.bytes() as usize)) {
                let Some(destination) = *destination else { continue };
                let mut bytes = [0; 16];
                bytes[..part.len()].copy_from_slice(part);
                self.warp.registers.fill(destination, lanes, extended(ty, bytes));
            }
            return Ok(());
        }
        let offsets = self.in_space(Space::Param, address);
        let mut values = [[0; 16]; LANES];
        for lane in lanes_of(lanes) {
            let aligned = offsets[lane].is_multiple_of(bytes.into());
            for (at, value) in (0_u64..).zip(&mut values[lane][..width]) {
                let byte = self.parameter_byte(offsets[lane].wrapping_add(at), lane).filter(|_| aligned);
                *value = byte.ok_or_else(|| self.stray_parameter(offsets[lane], bytes, lane))?;
            }
        }
        self.spread(lanes, ty, destinations, &values);
        Ok(())
    }

    fn is_launch_parameter(&self, offset: u64) -> bool {
        self.frame.function == self.launch.entry && offset < self.launch.parameters.len() as u64
    }

    /// A byte of the current function's parameter space.
    pub(super) fn parameter_byte(&self, offset: u64, lane: usize) -> Option<u8> {
        if self.is_launch_parameter(offset) {
            return self.launch.parameters.get(offset as usize).copied();
        }
        let function = &self.launch.program.module.functions[self.frame.function];
        // An offset may be any number of 64 bits.
        let within = offset < function.param_bytes.into();
        let row = self.warp.parameters.get(self.frame.parameters + usize::try_from(offset).ok().filter(|_| within)?)?;
        Some(row[lane])
    }

    /// The error of an access outside the parameter space.
    #[cold]
    fn stray_parameter(&self, offset: u64, bytes: u32, lane: usize) -> ExecError {
        let offset = if (offset as i64).unsigned_abs() < WINDOW { offset } else { WINDOW - 1 };
        let address = memory::Address(self.launch.parameter_address.wrapping_add(offset));
        match self.memory.resolve_aligned(address, bytes.into(), self.launch.program.rank) {
            Err(error) => ExecError::Access(Some(lane as u32), error),
            Ok(_) => ExecError::unsupported("this access of a function's parameters"),
        }
    }

    fn store_parameter(&mut self, lanes: u32, ty: Type, address: Address, sources: &[Operand], bytes: u32) -> Result<(), ExecError> {
        let offsets = self.in_space(Space::Param, address);
        let values = self.gather::<16>(ty, sources);
        let limit = u64::from(self.launch.program.module.functions[self.frame.function].param_bytes);
        for lane in lanes_of(lanes) {
            if self.is_launch_parameter(offsets[lane]) {
                return Err(ExecError::unsupported("a store to a kernel's parameters"));
            }
            if offsets[lane].checked_add(bytes.into()).is_none_or(|end| end > limit) {
                return Err(self.stray_parameter(offsets[lane], bytes, lane));
            }
            for (at, &byte) in values[lane][..bytes as usize].iter().enumerate() {
                self.warp.parameters[self.frame.parameters + offsets[lane] as usize + at][lane] = byte;
            }
        }
        Ok(())
    }

    /// `discard`: 128 bytes whose value is undefined from then on.
    pub(super) fn discard(&mut self, lanes: u32, space: Space, address: Address) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 128)?;
        for lane in lanes_of(lanes) {
            let filled = self.memory.fill(memory::Address(addresses[lane]), 128, self.launch.program.rank, memory::CANARY);
            filled.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
        }
        let weak = Access { space, semantics: Semantics::Weak, scope: None, hints: Box::default() };
        self.touched(lanes, &weak, (Type::B8, 128, false), &addresses, Effect::Store { agrees: false });
        self.turn.wrote = true;
        Ok(())
    }

    /// `atom` and `red`, lane by lane. Returns whether it polls: nothing was changed, and what was read is what was read here before.
    pub(super) fn atomic(
        &mut self,
        lanes: u32,
        (op, ty): (AtomicOp, Type),
        access: &Access,
        destinations: Option<&[Option<Register>]>,
        address: Address,
        values: &[Operand],
    ) -> Result<bool, ExecError> {
        let parts = if op == AtomicOp::CompareAndSwap { 1 } else { values.len() };
        let bytes = ty.bytes() * parts as u32;
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        if self.memory.delays_stores() {
            self.publish_before(lanes, &addresses, access)?;
        }
        let (polls, wrote) = match bytes {
            2 => self.atomic_bytes::<2>(lanes, (op, ty, parts), destinations, &addresses, values),
            4 => self.atomic_bytes::<4>(lanes, (op, ty, parts), destinations, &addresses, values),
            8 => self.atomic_bytes::<8>(lanes, (op, ty, parts), destinations, &addresses, values),
            16 => self.atomic_bytes::<16>(lanes, (op, ty, parts), destinations, &addresses, values),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched(lanes, access, (ty, bytes, false), &addresses, Effect::Atomic { wrote, returns: destinations.is_some() });
        Ok(polls)
    }

    /// Returns whether it polls, and the lanes that wrote.
    fn atomic_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        (op, ty, parts): (AtomicOp, Type, usize),
        destinations: Option<&[Option<Register>]>,
        addresses: &Row<u64>,
        values: &[Operand],
    ) -> Result<(bool, u32), ExecError> {
        let operands = self.gather::<N>(ty, &values[..parts]);
        let swapped = if op == AtomicOp::CompareAndSwap { self.gather::<N>(ty, &values[1..]) } else { [[0; N]; LANES] };
        let (rank, width) = (self.rank(), ty.bytes() as usize);
        let mut old = [[0; N]; LANES];
        let (mut changed, mut wrote) = (false, 0);
        for lane in lanes_of(lanes) {
            let address = memory::Address(addresses[lane]);
            let global = self.block.member.place(addresses[lane]).is_none();
            let failed = |error| ExecError::Access(Some(lane as u32), error);
            let place = self.memory.resolve_aligned(address, N as u64, rank).map_err(failed)?;
            let new = loop {
                old[lane] = self.memory.load_at(place, rank).map_err(failed)?;
                let mut new = old[lane];
                let mut matches = false;
                for part in 0..parts {
                    let at = part * width..(part + 1) * width;
                    let number = |bytes: &[u8; N]| {
                        let mut wide = [0; 16];
                        wide[..width].copy_from_slice(&bytes[at.clone()]);
                        u128::from_le_bytes(wide)
                    };
                    let result = match op {
                        AtomicOp::CompareAndSwap if number(&old[lane]) == number(&operands[lane]) => {
                            matches = true;
                            number(&swapped[lane])
                        }
                        AtomicOp::CompareAndSwap => number(&old[lane]),
                        AtomicOp::Exchange => number(&operands[lane]),
                        _ => {
                            let (held, given) = (number(&old[lane]) as u64, number(&operands[lane]) as u64);
                            // Of two NaNs, shared memory keeps its own (H200).
                            let (a, b) = if op == AtomicOp::Add && !global { (given, held) } else { (held, given) };
                            combined(op, ty, a, b, if global { Combiner::GlobalAtomic } else { Combiner::Thread })?.into()
                        }
                    };
                    new[at].copy_from_slice(&result.to_le_bytes()[..width]);
                }
                // Where another process has written in between, all is done again.
                if op == AtomicOp::CompareAndSwap && new == old[lane] || self.memory.replace(place, old[lane], new) {
                    wrote |= u32::from(matches) << lane;
                    break new;
                }
            };
            wrote |= u32::from(op != AtomicOp::CompareAndSwap) << lane;
            changed |= new != old[lane];
            self.turn.wrote |= global && new != old[lane];
        }
        if let Some(destinations) = destinations {
            self.spread(lanes, ty, destinations, &old);
        }
        Ok((!changed && destinations.is_some() && self.polls(lanes, addresses, &old), wrote))
    }
}

/// Whether some lanes store to one place, and those that do store the same bytes. Accesses are of one size and aligned, so they are of one place or
/// of two that do not overlap.
#[inline(always)]
fn agree<const N: usize>(lanes: u32, addresses: &Row<u64>, values: &[[u8; N]; LANES]) -> bool {
    let (mut last, mut ascend) = (None, true);
    for lane in lanes_of(lanes) {
        ascend &= last.is_none_or(|last| last < addresses[lane]);
        last = Some(addresses[lane]);
    }
    !ascend && agree_anywhere(lanes, addresses, values)
}

#[inline(never)]
fn agree_anywhere<const N: usize>(lanes: u32, addresses: &Row<u64>, values: &[[u8; N]; LANES]) -> bool {
    let mut stores: SmallVec<[(u64, [u8; N]); LANES]> = lanes_of(lanes).map(|lane| (addresses[lane], values[lane])).collect();
    stores.sort_unstable();
    let mut of_one_place = stores.windows(2).filter(|pair| pair[0].0 == pair[1].0).peekable();
    of_one_place.peek().is_some() && of_one_place.all(|pair| pair[0].1 == pair[1].1)
}

/// Who puts two values together. In global memory a sum in f64 is an operand that is NaN as it stands, the second before the first (H200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combiner {
    /// A thread, or an atomic elsewhere than in global memory.
    Thread,
    /// An atomic in global memory, which flushes f32 of subnormals (PTX ISA atom).
    GlobalAtomic,
    /// A bulk reduction in global memory, which does not (H200).
    GlobalBulk,
}

/// What two values make, in the low bits.
pub(super) fn combined(op: AtomicOp, ty: Type, a: u64, b: u64, by: Combiner) -> Result<u64, ExecError> {
    let mode = Mode { ftz: by == Combiner::GlobalAtomic && ty == Type::F32, ..Mode::NEAREST };
    if by != Combiner::Thread
        && (op, ty) == (AtomicOp::Add, Type::F64)
        && let Some(nan) = [b, a].into_iter().find(|&operand| F64::is_nan(operand))
    {
        return Ok(nan);
    }
    macro_rules! float {
        ($format:ty, $a:expr, $b:expr) => {{
            let (a, b) = (<$format>::lower($a), <$format>::lower($b));
            <$format>::raise(match op {
                AtomicOp::Add => <$format>::add(a, b, mode),
                AtomicOp::Minimum => <$format>::min(a, b, false, mode),
                AtomicOp::Maximum => <$format>::max(a, b, false, mode),
                other => return Err(ExecError::unsupported(format!(".{other}.{ty}"))),
            })
        }};
    }
    macro_rules! integer {
        ($ty:ty, $unsigned:ty) => {{
            let (a, b) = (a as $ty, b as $ty);
            let result: $ty = match op {
                AtomicOp::Add => a.wrapping_add(b),
                AtomicOp::Minimum => a.min(b),
                AtomicOp::Maximum => a.max(b),
                AtomicOp::And => a & b,
                AtomicOp::Or => a | b,
                AtomicOp::Xor => a ^ b,
                AtomicOp::Increment => {
                    if a >= b {
                        0
                    } else {
                        a.wrapping_add(1)
                    }
                }
                AtomicOp::Decrement => {
                    if a == 0 || a > b {
                        b
                    } else {
                        a.wrapping_sub(1)
                    }
                }
                AtomicOp::Exchange | AtomicOp::CompareAndSwap => b,
            };
            u64::from(result as $unsigned)
        }};
    }
    Ok(match ty {
        Type::U32 | Type::B32 => integer!(u32, u32),
        Type::S32 => integer!(i32, u32),
        Type::U64 | Type::B64 => integer!(u64, u64),
        Type::S64 => integer!(i64, u64),
        Type::F32 => float!(F32, a, b),
        Type::F64 => float!(F64, a, b),
        Type::F16 => float!(F16, a, b),
        Type::Bf16 => float!(Bf16, a, b),
        Type::F16x2 => float!(F16, a, b) | float!(F16, a >> 16, b >> 16) << 16,
        Type::Bf16x2 => float!(Bf16, a, b) | float!(Bf16, a >> 16, b >> 16) << 16,
        other => return Err(ExecError::unsupported(format!("type .{other}"))),
    })
}
