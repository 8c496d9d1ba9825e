//! Copies of boxes of tensors, and the maps that they take (PTX ISA 9.7.9.27, 9.7.9.28).
//!
//! A map is read where a copy starts. The copy is a flight as bulk copies are; each piece of it is some rows of the box.

use passmuster_ptx::{Address, AtomicOp, BulkCompletion, Operand, Scope, Semantics, Space, TensorMapField, Type};

use super::{
    asynchronous::{MOST_PIECES, wrong},
    executor::Executor,
    fault::ExecError,
    flight::{Flight, FlightKind, Piece, Started},
    registers::{LANES, Row, lanes_of},
};
use crate::{
    memory::{self, Memory, Taken},
    races::{Effect, Proxy},
    tensor_map::{BYTES, ElementType, Field, TensorMap},
};

/// What a map must be aligned to, in bytes.
const MAP_ALIGNMENT: u64 = 64;

/// A copy of a box, as its instruction says.
pub(super) struct TensorCopy<'i> {
    pub(super) to: Space,
    pub(super) from: Space,
    pub(super) reduction: Option<AtomicOp>,
    pub(super) map: Address,
    pub(super) coordinates: &'i [Operand],
    pub(super) shared: Address,
    pub(super) completion: BulkCompletion,
    pub(super) blocks: Option<Operand>,
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// Bytes of what is read that go to some of what is written, both one after the other.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    bytes: usize,
}

/// Some rows of a box: where they are read, where they are written, and which bytes go where.
#[derive(Clone, Debug)]
pub(super) struct PartOfBox {
    pub(super) reads: Vec<Stretch>,
    pub(super) writes: Vec<Stretch>,
    moves: Vec<Move>,
    /// What nothing goes to, over and over in bytes of an element.
    fill: u64,
    element: ElementType,
    loads: bool,
}

impl PartOfBox {
    /// What is to be written.
    pub(super) fn take(&self, memory: &Memory, rank: usize) -> Result<Taken, ExecError> {
        let mut read = Taken::default();
        for stretch in &self.reads {
            let taken = memory.take(memory::Address(stretch.at), stretch.bytes, rank);
            let taken = taken.map_err(|error| ExecError::Access(None, error))?;
            let before = read.bytes.len() as u64;
            read.missing.extend(taken.missing.iter().map(|byte| before + byte));
            read.bytes.extend(taken.bytes);
        }
        let written = self.writes.iter().map(|stretch| stretch.bytes as usize).sum::<usize>();
        let fill = &self.fill.to_le_bytes()[..self.element.bytes() as usize];
        let mut bytes: Vec<u8> = fill.iter().copied().cycle().take(written).collect();
        let mut missing = Vec::new();
        for &Move { from, to, bytes: count } in &self.moves {
            bytes[to..to + count].copy_from_slice(&read.bytes[from..from + count]);
            if self.loads {
                self.element.load(&mut bytes[to..to + count]);
            }
            let of_move = read.missing.iter().filter(|&&byte| (from..from + count).contains(&(byte as usize)));
            missing.extend(of_move.map(|byte| byte - from as u64 + to as u64));
        }
        missing.sort_unstable();
        Ok(Taken { bytes, missing })
    }

    /// What of what was taken is for each stretch.
    pub(super) fn split<'t>(&'t self, taken: &'t Taken) -> impl Iterator<Item = (Stretch, Taken)> + 't {
        self.writes.iter().scan(0_u64, |at, &stretch| {
            let within = *at..*at + stretch.bytes;
            let bytes = taken.bytes[within.start as usize..within.end as usize].to_vec();
            let missing = taken.missing.iter().filter(|byte| within.contains(byte)).map(|byte| byte - within.start).collect();
            *at = within.end;
            Some((stretch, Taken { bytes, missing }))
        })
    }
}

/// A stretch of one side of a box, in the order of the box: its address, and where in the other side's it goes.
fn gathered(mut stretches: Vec<Stretch>) -> (Vec<Stretch>, impl Fn(u64) -> usize) {
    stretches.sort_unstable_by_key(|stretch| stretch.at);
    let mut merged: Vec<Stretch> = Vec::new();
    for stretch in stretches {
        match merged.last_mut() {
            Some(last) if last.at + last.bytes >= stretch.at => last.bytes = last.bytes.max(stretch.at + stretch.bytes - last.at),
            _ => merged.push(stretch),
        }
    }
    let starts: Vec<(u64, u64)> = merged
        .iter()
        .scan(0, |before, stretch| {
            let start = (stretch.at, *before);
            *before += stretch.bytes;
            Some(start)
        })
        .collect();
    let place = move |address: u64| {
        let (at, before) = starts[starts.partition_point(|&(at, _)| at <= address) - 1];
        (before + address - at) as usize
    };
    (merged, place)
}

/// The parts in which a box goes between a tensor and shared memory, where it starts at `shared`; with how many bytes of the box each is.
fn parts(map: &TensorMap, coordinates: &[i32], shared: u64, loads: bool) -> Vec<(PartOfBox, u32)> {
    let runs = map.runs(coordinates, loads);
    let total = map.box_bytes();
    // Chunks of the box: whole rows where there are enough of them.
    let row = map.row_bytes();
    let unit = if total / row >= u64::from(MOST_PIECES) { row } else { 16 };
    let units = total / unit;
    let count = units.min(MOST_PIECES.into());
    let mut parts = Vec::new();
    for number in 0..count {
        let (start, end) = (units * number / count * unit, units * (number + 1) / count * unit);
        // Each chunk: address in shared memory, address in the tensor, bytes.
        let mut chunks: Vec<(u64, Option<u64>, u64)> = Vec::new();
        for run in &runs {
            let (mut at, end) = (run.offset.max(start), (run.offset + run.bytes).min(end));
            while at < end {
                let straight = shared + at / row * map.pitch() + at % row;
                let bytes = (end - at).min(16 - straight % 16);
                chunks.push((map.swizzle.applied(straight), run.address.map(|address| address + (at - run.offset)), bytes));
                at += bytes;
            }
        }
        let in_shared = chunks.iter().filter(|(_, address, _)| loads || address.is_some());
        let (in_shared, shared_place) = gathered(in_shared.map(|&(at, _, bytes)| Stretch { at, bytes }).collect());
        let in_tensor = chunks.iter().filter_map(|&(_, address, bytes)| address.map(|at| Stretch { at, bytes }));
        let (in_tensor, tensor_place) = gathered(in_tensor.collect());
        let moves = chunks.iter().filter_map(|&(shared, address, bytes)| {
            let tensor = tensor_place(address?);
            let shared = shared_place(shared);
            let (from, to) = if loads { (tensor, shared) } else { (shared, tensor) };
            Some(Move { from, to, bytes: bytes as usize })
        });
        let moves = moves.collect();
        let (reads, writes) = if loads { (in_tensor, in_shared) } else { (in_shared, in_tensor) };
        parts.push((PartOfBox { reads, writes, moves, fill: map.fill(), element: map.element, loads }, (end - start) as u32));
    }
    parts
}

/// The type that a reduction of elements is of (PTX ISA 9.7.9.27.1.3).
fn reduced(op: AtomicOp, element: ElementType) -> Option<Type> {
    use ElementType as E;
    let bitwise = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
    let ty = match element {
        E::U32 => Type::U32,
        E::S32 if bitwise => Type::U32,
        E::S32 => Type::S32,
        E::U64 => Type::U64,
        // Illegal instructions on H200, which has them of s32.
        E::S64 if bitwise => return None,
        E::S64 => Type::S64,
        E::F16 => Type::F16,
        E::Bf16 => Type::Bf16,
        E::F32 => Type::F32,
        E::F64 => Type::F64,
        _ => return None,
    };
    let takes = match op {
        AtomicOp::Add => !matches!(ty, Type::S64),
        AtomicOp::Minimum | AtomicOp::Maximum => !matches!(ty, Type::F32 | Type::F64),
        AtomicOp::Increment | AtomicOp::Decrement => ty == Type::U32,
        _ => !ty.is_float(),
    };
    takes.then_some(ty)
}

impl Executor<'_> {
    /// The map at an address, which may be used.
    fn map(&self, lane: usize, address: u64) -> Result<TensorMap, ExecError> {
        let map = self.bytes_of_map(lane, address)?;
        let map = TensorMap::of_bytes(&map).map_err(|why| wrong(lane, self.no_map(address, why)))?;
        map.check().map_err(|why| wrong(lane, self.no_map(address, &why.to_string())))?;
        if self.block.member.place(address).is_some() {
            return Err(wrong(lane, self.no_map(address, "it must be in global, constant or parameter memory")));
        }
        Ok(map)
    }

    fn no_map(&self, address: u64, why: &str) -> String {
        format!("no tensor map at {}: {why}", self.memory.describe(memory::Address(address)))
    }

    fn bytes_of_map(&self, lane: usize, address: u64) -> Result<[u8; BYTES], ExecError> {
        self.aligned_map(lane, address)?;
        let failed = |error| ExecError::Access(Some(lane as u32), error);
        let bytes = self.memory.read_seen(memory::Address(address), BYTES as u64, self.rank()).map_err(failed)?;
        bytes.try_into().map_err(|_| ExecError::unsupported("a tensor map of another size"))
    }

    fn aligned_map(&self, lane: usize, address: u64) -> Result<(), ExecError> {
        if address.is_multiple_of(MAP_ALIGNMENT) {
            return Ok(());
        }
        Err(wrong(lane, self.no_map(address, &format!("it must be at a multiple of {MAP_ALIGNMENT} bytes"))))
    }

    /// Whether an address is of the launch's parameters, which nobody writes.
    fn is_parameter(&self, address: u64) -> bool {
        address >> 36 == self.launch.parameter_address >> 36
    }

    /// A lane's coordinates.
    fn coordinates(&self, coordinates: &[Operand]) -> Vec<Row<u32>> {
        coordinates.iter().map(|&operand| self.warp.registers.read::<u32>(operand)).collect()
    }

    /// That a map has as many dimensions as an instruction.
    fn fits(&self, lane: usize, map: &TensorMap, coordinates: usize) -> Result<(), ExecError> {
        if map.dimensions == coordinates {
            return Ok(());
        }
        Err(wrong(lane, format!("a tensor map of {} dimensions, and {coordinates} coordinates", map.dimensions)))
    }

    /// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`
    pub(super) fn copy_box(&mut self, lanes: u32, copy: &TensorCopy<'_>) -> Result<(), ExecError> {
        let loads = copy.from == Space::Global;
        let space = if loads { copy.to } else { copy.from };
        let maps = self.addresses(Space::Generic, copy.map, lanes, 1)?;
        let shared = self.addresses(space, copy.shared, lanes, 1)?;
        let mbarriers = match copy.completion {
            BulkCompletion::Mbarrier(address) => Some(self.addresses(space, address, lanes, 8)?),
            BulkCompletion::Group => None,
        };
        let blocks = copy.blocks.map(|operand| self.warp.registers.bits(operand));
        let coordinates = self.coordinates(copy.coordinates);
        let rank = self.rank();
        for lane in lanes_of(lanes) {
            let map = self.map(lane, maps[lane])?;
            self.fits(lane, &map, coordinates.len())?;
            let coordinates: Vec<i32> = coordinates.iter().map(|row| row[lane] as i32).collect();
            map.check_place(&coordinates, loads).map_err(|why| wrong(lane, why.into()))?;
            let reduction = match copy.reduction {
                None => None,
                Some(op) => {
                    let ty = reduced(op, map.element).ok_or_else(|| ExecError::unsupported(format!(".{op} of {:?}", map.element)))?;
                    Some((op, ty))
                }
            };
            let destinations = self.in_blocks(lane, shared[lane], mbarriers.map(|row| row[lane]), blocks.map(|row| row[lane]))?;
            for &(at, mbarrier) in &destinations {
                let place = self.memory.resolve(memory::Address(at), map.box_bytes(), rank);
                place.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
                if !at.is_multiple_of(map.box_alignment()) {
                    let at = self.memory.describe(memory::Address(at));
                    return Err(wrong(lane, format!("a box at {at}: it must be at a multiple of {} bytes", map.box_alignment())));
                }
                if let Some(mbarrier) = mbarrier {
                    self.hand_over(lane, mbarrier)?;
                }
            }
            let race = self.begin_flight(lane, Proxy::Async);
            self.look_at_map(race, maps[lane]);
            let serial = self.beside.next_serial();
            let mut pieces = Vec::new();
            for &(at, mbarrier) in &destinations {
                pieces.extend(parts(&map, &coordinates, at, loads).into_iter().map(|(part, bytes)| Piece {
                    from: 0,
                    read: 0,
                    to: 0,
                    bytes,
                    taken: None,
                    mbarrier,
                    race,
                    part: Some(Box::new(part)),
                }));
            }
            let course = self.beside.course(pieces);
            let flight = self.take_off(lane, serial, FlightKind::Bulk { mask: u16::MAX }, course);
            let threads = if mbarriers.is_none() {
                vec![self.in_bulk_group(lane, Started { serial, race, read: false, done: false })]
            } else {
                Vec::new()
            };
            self.beside.start(Flight { threads, reduction, ..flight });
        }
        Ok(())
    }

    /// What a flight knows of a map that it goes by.
    fn look_at_map(&mut self, race: Option<crate::races::FlightId>, address: u64) {
        if self.is_parameter(address) {
            return;
        }
        let place = self.memory.resolve(memory::Address(address), BYTES as u64, self.rank());
        if let (Some(race), Ok(place), Some(races)) = (race, place, self.races.as_deref_mut()) {
            races.look_at_map(race, place, address, BYTES as u64);
        }
    }

    /// `cp.async.bulk.prefetch.tensor`: moves nothing that a program sees, but goes by a map.
    pub(super) fn prefetch_box(&mut self, lanes: u32, map: Address, coordinates: usize) -> Result<(), ExecError> {
        let maps = self.addresses(Space::Generic, map, lanes, 1)?;
        for lane in lanes_of(lanes) {
            let map = self.map(lane, maps[lane])?;
            self.fits(lane, &map, coordinates)?;
        }
        Ok(())
    }

    /// `tensormap.replace`
    pub(super) fn replace_in_map(
        &mut self,
        lanes: u32,
        (field, dimension): (TensorMapField, u32),
        space: Space,
        address: Address,
        value: Operand,
    ) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, BYTES as u32)?;
        let values = self.warp.registers.bits(value);
        let dimension = dimension as usize;
        let field = match field {
            TensorMapField::GlobalAddress => Field::Address,
            TensorMapField::Rank => Field::Dimensions,
            TensorMapField::BoxExtent => Field::BoxExtent(dimension),
            TensorMapField::Extent => Field::Extent(dimension),
            TensorMapField::Stride => Field::Stride(dimension),
            TensorMapField::ElementStride => Field::ElementStride(dimension),
            TensorMapField::ElementType => Field::Element,
            TensorMapField::Interleave => Field::Interleave,
            TensorMapField::Swizzle => Field::Swizzle,
            TensorMapField::Fill => Field::Fill,
        };
        for lane in lanes_of(lanes) {
            let bytes = self.bytes_of_map(lane, addresses[lane])?;
            let mut map = match bytes.iter().all(|&byte| byte == 0) {
                true => TensorMap { dimensions: 1, ..TensorMap::default() },
                false => TensorMap::of_bytes(&bytes).map_err(|why| wrong(lane, self.no_map(addresses[lane], why)))?,
            };
            map.replace(field, values[lane]).map_err(|why| wrong(lane, format!("tensormap.replace by {why}")))?;
            self.put_map(lane, addresses[lane], &map.to_bytes(), true)?;
        }
        Ok(())
    }

    /// Writes the bytes of a map, weakly and by the generic proxy, as `tensormap.replace` does, which `reads` them before.
    fn put_map(&mut self, lane: usize, address: u64, bytes: &[u8; BYTES], reads: bool) -> Result<(), ExecError> {
        let failed = |error| ExecError::Access(Some(lane as u32), error);
        for (offset, part) in (0_u64..).step_by(16).zip(bytes.chunks_exact(16)) {
            let mut value = [0; 16];
            value.copy_from_slice(part);
            let at = memory::Address(address.wrapping_add(offset));
            if self.memory.delays_stores() {
                self.memory.publish_at(at, self.rank()).map_err(failed)?;
            }
            self.memory.store(at, self.rank(), value).map_err(failed)?;
            if reads {
                self.touched_map(lane, at.0, Effect::Load);
            }
            self.touched_map(lane, at.0, Effect::Store { agrees: false });
        }
        self.turn.wrote |= self.block.member.place(address).is_none();
        Ok(())
    }

    /// Tells the race check of 16 bytes of a map.
    fn touched_map(&mut self, lane: usize, address: u64, effect: Effect) {
        let weak = passmuster_ptx::Access { space: Space::Generic, semantics: Semantics::Weak, scope: None, hints: Box::default() };
        self.touched(1 << lane, &weak, (Type::B128, 16, false), &[address; LANES], effect);
    }

    /// `tensormap.cp_fenceproxy`: a warp copies one map.
    pub(super) fn publish_map(&mut self, lanes: u32, scope: Scope, destination: Address, source: Address) -> Result<(), ExecError> {
        let to = self.addresses(Space::Global, destination, lanes, BYTES as u32)?;
        let from = self.addresses(Space::Shared, source, lanes, BYTES as u32)?;
        let first = lanes.trailing_zeros() as usize;
        if let Some(lane) = lanes_of(lanes).find(|&lane| (to[lane], from[lane]) != (to[first], from[first])) {
            return Err(wrong(lane, format!("other addresses than those of lane {first}: a warp copies one tensor map")));
        }
        let bytes = self.bytes_of_map(first, from[first])?;
        let of_map = bytes.iter().all(|&byte| byte == 0) || TensorMap::of_bytes(&bytes).is_ok();
        if !of_map {
            return Err(wrong(first, self.no_map(from[first], "tensormap.cp_fenceproxy copies nothing else")));
        }
        self.aligned_map(first, to[first])?;
        for offset in (0..BYTES as u64).step_by(16) {
            self.touched_map(first, from[first] + offset, Effect::Load);
        }
        self.put_map(first, to[first], &bytes, false)?;
        self.fence(lanes, passmuster_ptx::Fence::TensormapRelease(scope))
    }

    /// `fence.proxy.tensormap::generic.acquire`, each lane of the map at its address.
    pub(super) fn acquire_maps(&mut self, lanes: u32, scope: Scope, address: Address) -> Result<(), ExecError> {
        let addresses = self.addresses(Space::Generic, address, lanes, 1)?;
        for lane in lanes_of(lanes) {
            self.aligned_map(lane, addresses[lane])?;
            if let Some((at, races, _)) = self.watched() {
                races.acquire_map(at, lane, scope, addresses[lane]);
            }
        }
        Ok(())
    }
}
