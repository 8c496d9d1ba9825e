//! One warp, executed until it must be looked at from outside: its turn is over, a barrier may be complete, lanes have ended.

use super::{
    arithmetic::Adder,
    asynchronous::Bulk,
    block::Common,
    coverage,
    fault::{ExecError, Fault, FaultSite, UndefinedValue},
    flight::Beside,
    float::{Binary, Conversion, direction},
    grid::{Launch, Turn},
    registers::{LANES, lanes_of, row_of},
    tensor::TensorCopy,
    warp::{CUTS, Caller, Frame, Waiting, Warp},
    wgmma::Products,
};
use crate::{
    memory::Memory,
    numerics::Mode,
    races::{ActorId, At, Races},
};
use passmuster_ptx::{Argument, ClusterBarrier, Fence, Instruction, Operand, Operation, Register, Scope, Semantics, Signature, Type};

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its turn is over.
    Spent,
    /// No group can run: they wait, or poll.
    Idle,
    /// Lanes have arrived at a barrier.
    Barrier(u32),
    /// Lanes have arrived at the barrier of the cluster.
    Cluster,
    /// Lanes have ended.
    Ended,
}

/// The member mask of a whole warp.
const ALL: Operand = Operand::Immediate(u32::MAX as u64);

/// What an operation does to its group.
pub(super) enum Flow {
    /// All lanes go on.
    Next,
    /// All lanes jump.
    Jump(usize),
    /// The group has been dealt with, and another may be next.
    Moved,
    /// The same, and the block must look.
    Stop(Event),
}

/// What executes a warp.
pub(super) struct Executor<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) races: Option<&'a mut Races>,
    pub(super) launch: &'a Launch,
    pub(super) block: &'a mut Common,
    pub(super) adder: &'a mut Adder,
    pub(super) beside: &'a mut Beside,
    /// The block's.
    pub(super) slot: usize,
    pub(super) warp: &'a mut Warp,
    pub(super) warp_index: usize,
    pub(super) now: u64,
    pub(super) turn: &'a mut Turn,
    /// Frame and operation of the group that runs.
    pub(super) frame: Frame,
    pub(super) pc: usize,
    /// The address that was found to be polled.
    pub(super) polled: Option<u64>,
    /// Undefined values that the launch has met.
    pub(super) undefined: &'a mut Vec<UndefinedValue>,
    /// What the launch has printed.
    pub(super) printed: &'a mut Vec<String>,
}

/// The place of an operation in a launch.
pub(super) fn place(launch: &Launch, block: u32, warp: usize, operation: &Operation) -> FaultSite {
    FaultSite {
        rank: launch.program.rank,
        entry: launch.name.clone(),
        block,
        warp: warp as u32,
        lane: None,
        at: operation.at,
        source: operation.source.map(|source| (launch.program.file(source.file), source.line)),
        family: operation.instruction.family(),
    }
}

impl Executor<'_> {
    /// Runs up to `left` operations, which it counts down.
    pub(super) fn run(&mut self, left: &mut u32) -> Result<Event, Fault> {
        let launch = self.launch;
        loop {
            let Some(group) = self.warp.next() else { return Ok(Event::Idle) };
            let until = if self.warp.groups.len() == 1 { usize::MAX } else { self.warp.until(group) };
            let all = self.warp.groups[group].lanes;
            self.frame = self.warp.groups[group].frame;
            self.pc = self.warp.groups[group].pc;
            self.warp.registers.bases = self.frame.bases;
            let code = &launch.program.module.functions[self.frame.function].code;
            let marks = launch.program.covered.as_ref().map(|covered| &*covered.marks);
            let watches = self.warp.products.as_deref().is_some_and(Products::watches);
            loop {
                if *left == 0 {
                    self.warp.groups[group].pc = self.pc;
                    self.cut_short(group);
                    return Ok(Event::Spent);
                }
                let operation = &code[self.pc];
                let lanes = match operation.guard {
                    None => all,
                    Some(guard) => all & self.warp.registers.condition(guard),
                };
                *left -= 1;
                if let Some(marks) = marks {
                    coverage::note(&marks.of(self.frame.function)[self.pc], lanes, all);
                    if marks.ends_wait(self.frame.function, self.pc) {
                        self.end_waits(lanes);
                    }
                }
                self.turn.instructions += u64::from(lanes.count_ones());
                if watches && lanes != 0 {
                    let seen = self.watch_registers();
                    seen.map_err(|trouble| trouble.at(place(launch, self.block.index, self.warp_index, operation)))?;
                }
                let flow = match lanes {
                    0 => Ok(Flow::Next),
                    _ => self.execute(group, all, lanes, operation),
                };
                match flow {
                    Ok(Flow::Next) => self.pc += 1,
                    Ok(Flow::Jump(target)) => {
                        let back = target <= self.pc;
                        self.pc = target;
                        if back && self.warp.groups.len() > 1 {
                            // There may be others between here and where this group was.
                            self.warp.groups[group].pc = self.pc;
                            break;
                        }
                    }
                    Ok(Flow::Moved) => break,
                    Ok(Flow::Stop(event)) => return Ok(event),
                    Err(trouble) => return Err(trouble.at(place(launch, self.block.index, self.warp_index, operation))),
                }
                if self.pc >= until {
                    self.warp.groups[group].pc = self.pc;
                    break;
                }
            }
        }
    }

    /// The race check and who this block is to it.
    #[inline(always)]
    pub(super) fn watch(&mut self) -> Option<(&mut Races, ActorId)> {
        self.races.as_deref_mut().zip(self.block.actor)
    }

    /// The operation that runs, for the race check.
    #[inline(always)]
    pub(super) fn at(&self, actor: ActorId) -> At {
        At { actor, warp: self.warp_index, function: self.frame.function, pc: self.pc }
    }

    pub(super) fn fence(&mut self, lanes: u32, fence: Fence) -> Result<(), ExecError> {
        if let Fence::TensormapAcquire(scope, address) = fence {
            self.acquire_maps(lanes, scope, address)?;
        }
        if let Fence::Memory(semantics, scope) = fence {
            self.release(semantics, Some(scope));
            self.memory.fence();
        }
        if let Some(actor) = self.block.actor {
            let at = self.at(actor);
            if let Some(races) = self.races.as_deref_mut() {
                races.fence(at, lanes, fence);
            }
        }
        Ok(())
    }

    /// Notes that a turn ends in the middle of a group; where that happens again and again, other groups go first.
    fn cut_short(&mut self, group: usize) {
        if self.warp.groups.len() > 1 {
            self.warp.cut_short += 1;
            if self.warp.cut_short.is_multiple_of(CUTS) {
                self.warp.groups[group].held_back = true;
            }
        }
    }

    /// Executes one operation for `lanes` of the group's `all`.
    #[inline(always)]
    fn execute(&mut self, group: usize, all: u32, lanes: u32, operation: &Operation) -> Result<Flow, ExecError> {
        use Instruction as I;
        let registers = &mut self.warp.registers;
        match operation.instruction {
            I::Move { ty, destination: d, source } => match ty.bits() {
                64 => registers.map(lanes, d, source, |a: u64| a),
                1 => {
                    let holds = registers.truth(source);
                    registers.set_predicate(d, lanes, holds);
                }
                128 => {
                    let values = registers.wide_bits(source);
                    registers.write_wide_bits(d, lanes, &values);
                }
                _ => registers.map(lanes, d, source, |a: u32| a),
            },
            I::Load { ty, ref access, ref destinations, address } => {
                if self.load(lanes, ty, access, destinations, address)? {
                    return Ok(self.hold_back(group));
                }
            }
            I::Store { ty, ref access, address, ref values } => self.store(lanes, ty, access, address, values)?,
            I::Integer { op, ty, saturate, relu, destination, a, b } => {
                registers.integer(lanes, op, ty, (saturate, relu), destination, [a, b])?;
            }
            I::IntegerMultiplyAdd { op, ty, saturate, destination, a, b, c } => {
                registers.integer_multiply_add(lanes, op, ty, saturate, destination, [a, b, c])?;
            }
            I::Float { op, ty, precision, ftz, saturate, nan, xorsign_abs, destination, a, b } => {
                registers.float(lanes, &Binary { op, ty, precision, ftz, saturate, nan, xorsign_abs }, destination, [a, b])?;
            }
            I::FusedMultiplyAdd { ty, rounding, ftz, saturate, relu, destination, a, b, c } => {
                let mode = Mode { rounding: direction(rounding)?, ftz, sat: saturate, relu, satfinite: false };
                registers.fused_multiply_add(lanes, ty, mode, destination, [a, b, c])?;
            }
            I::Logic { op, ty, destination, a, b } => registers.logic(lanes, op, ty, destination, [a, b]),
            I::Shift { left, ty, destination, a, amount } => registers.shift(lanes, left, ty, destination, [a, amount]),
            I::SetPredicate { comparison, ty, ftz, destination, second, a, b, op, combined } => {
                registers.set_predicates(lanes, (comparison, ty, ftz), (destination, second), [a, b], op.zip(combined))?;
            }
            I::Select { ty, destination, a, b, condition } => registers.select(lanes, ty, destination, [a, b], condition),
            I::Convert { to, from, rounding, integer_rounding, ftz, saturate, saturate_finite, relu, destination, source } => {
                let form = Conversion { to, from, rounding, integer_rounding, ftz, saturate, saturate_finite, relu };
                registers.convert(lanes, &form, destination, source)?;
            }
            I::Pack { ty, part, destination, ref parts } => self.pack(lanes, ty, part, destination, parts),
            I::Unpack { part, ref destinations, source, .. } => self.unpack(lanes, part, destinations, source),
            I::Branch { target, .. } if lanes == all => return Ok(Flow::Jump(target)),
            I::Branch { target, .. } => {
                self.warp.groups[group].pc = self.pc + 1;
                let taken = self.warp.split(group, lanes);
                self.warp.groups[taken].pc = target;
                return Ok(Flow::Moved);
            }
            ref other => return self.execute_rarer(group, lanes, other),
        }
        Ok(Flow::Next)
    }

    /// What is executed less often.
    #[inline(never)]
    fn execute_rarer(&mut self, group: usize, lanes: u32, instruction: &Instruction) -> Result<Flow, ExecError> {
        use Instruction as I;
        let registers = &mut self.warp.registers;
        match *instruction {
            I::MoveVector { ref destinations, ref sources, .. } => {
                let values: Vec<_> = sources.iter().map(|&source| registers.wide_bits(source)).collect();
                for (destination, values) in destinations.iter().zip(&values) {
                    destination.iter().for_each(|&destination| registers.write_wide_bits(destination, lanes, values));
                }
            }
            I::ReadSpecial { destination, special } => self.read_special(lanes, destination, special)?,
            I::AddressOf { space, destination, address } => self.address_of(lanes, space, destination, address),
            I::ConvertAddress { space, to_space, destination, source, .. } => {
                self.convert_address(lanes, space, to_space, destination, source);
            }
            I::IsSpace { space, destination, source } => self.is_space(lanes, space, destination, source),
            I::MapToBlock { space, destination, address, rank } => self.map_to_block(lanes, space, destination, address, rank)?,
            I::BlockOfAddress { space, destination, address } => self.block_of_address(lanes, space, destination, address)?,
            I::IntegerUnary { op, ty, destination, a } => registers.integer_unary(lanes, op, ty, destination, a)?,
            I::FloatUnary { op, ty, precision, ftz, destination, a } => {
                registers.float_unary(lanes, (op, ty, precision, ftz), destination, a)?;
            }
            I::TestNumber { test, ty, destination, a } => registers.test_number(lanes, test, ty, destination, a),
            I::LogicTable { table, destination, predicate, a, b, c } => {
                registers.logic_table(lanes, table, destination, predicate, [a, b, c]);
            }
            I::Bits { op, ty, destination, a } => registers.bit_function(lanes, op, ty, destination, a),
            I::FindLeading { ty, shift_amount, destination, a } => registers.find_leading(lanes, ty, shift_amount, destination, a),
            I::FunnelShift { left, clamp, destination, low, high, amount } => {
                registers.funnel_shift(lanes, left, clamp, destination, [low, high, amount]);
            }
            I::BitFieldInsert { ty, destination, a, b, position, length } => {
                registers.bit_field_insert(lanes, ty, destination, [a, b, position, length]);
            }
            I::BitFieldExtract { ty, destination, a, position, length } => {
                registers.bit_field_extract(lanes, ty, destination, [a, position, length]);
            }
            I::Permute { mode, destination, a, b, selector } => registers.permute(lanes, mode, destination, [a, b, selector]),
            I::Set { comparison, to, ty, ftz, destination, a, b, op, combined } => {
                registers.set(lanes, (comparison, ty, ftz, to), destination, [a, b], op.zip(combined))?;
            }
            I::SelectBySign { ty, by, ftz, destination, a, b, c } => {
                registers.select_by_sign(lanes, (ty, by, ftz), destination, [a, b, c]);
            }
            I::ConvertPair { to, rounding, saturate_finite, relu, destination, high, low } => {
                registers.convert_pair(lanes, (to, rounding, saturate_finite, relu), destination, [high, low])?;
            }
            I::BranchIndexed { ref targets, index, .. } => return self.branch_indexed(group, lanes, targets, index),
            I::Call { function, ref arguments, ref results, .. } => {
                let callee = &self.launch.program.module.functions[function as usize];
                if callee.external {
                    return self.call_system(group, lanes, &callee.name, arguments, results);
                }
                let own = self.split_off(group, lanes);
                return self.enter(own, lanes, function as usize, arguments);
            }
            I::CallIndirect { target, ref signature, ref arguments, .. } => {
                return self.call_indirect(group, lanes, target, signature, arguments);
            }
            I::Return {} => return self.leave(group, lanes),
            I::Exit {} => return Ok(self.end(group, lanes)),
            I::Trap {} => return Err(ExecError::Trap(lanes.trailing_zeros())),
            I::BarrierSync { barrier, threads, .. } => return self.barrier(group, lanes, 0, barrier, threads, true),
            I::BarrierReduce { barrier, threads, condition, .. } => {
                let holding = registers.condition(condition);
                return self.barrier(group, lanes, holding, barrier, threads, true);
            }
            I::BarrierArrive { barrier, threads, .. } => return self.barrier(group, lanes, 0, barrier, Some(threads), false),
            I::BarrierCluster { kind: ClusterBarrier::Arrive(semantics), .. } => {
                self.release(semantics, Some(Scope::Cluster));
                self.block.arrive_at_cluster(self.warp_index, lanes)?;
                let warp = self.warp_index;
                if let Some((races, actor)) = self.watch() {
                    races.arrive_at_cluster(actor, warp, lanes, semantics == Semantics::Release);
                }
                self.warp.groups[group].pc = self.pc + 1;
                return Ok(Flow::Stop(Event::Cluster));
            }
            I::BarrierCluster { kind: ClusterBarrier::Wait, .. } => {
                if !self.block.pass_cluster(self.warp_index, lanes) {
                    let waiting = self.split_off(group, lanes);
                    self.warp.groups[waiting].waiting = Waiting::Cluster;
                    return Ok(Flow::Moved);
                }
                let warp = self.warp_index;
                if let Some((races, actor)) = self.watch() {
                    races.pass_cluster(actor, warp, lanes);
                }
            }
            I::Fence { fence } => self.fence(lanes, fence)?,
            I::GridDependency { wait: true } => {
                if self.launch.prerequisite_runs {
                    return Ok(self.wait(group, lanes));
                }
                let at = self.block.actor.map(|actor| self.at(actor));
                if let (Some(at), Some(races)) = (at, self.races.as_deref_mut()) {
                    races.learn_prerequisite(at, lanes);
                }
            }
            I::GridDependency { wait: false } => {
                self.turn.wrote |= !self.block.lets_dependents_start;
                self.block.lets_dependents_start = true;
            }
            I::Prefetch { .. } => {}
            I::Discard { space, address } => self.discard(lanes, space, address)?,
            I::Atomic { op, ty, ref access, ref destinations, address, ref values } => {
                if self.atomic(lanes, (op, ty), access, destinations.as_deref(), address, values)? {
                    return Ok(self.hold_back(group));
                }
            }
            I::ActiveMask { destination } => registers.write::<u32>(destination, lanes, &[lanes; LANES]),
            I::Sleep { .. } => return Ok(self.hold_back(group)),
            I::WarpSync { mask }
            | I::Shuffle { mask, .. }
            | I::Vote { mask, .. }
            | I::Match { mask, .. }
            | I::Elect { mask, .. }
            | I::WarpReduce { mask, .. } => return self.together(group, lanes, mask, instruction),
            I::MatrixMultiply { .. } | I::LoadMatrix { .. } | I::StoreMatrix { .. } | I::MoveMatrix { .. } => {
                return self.together(group, lanes, ALL, instruction);
            }
            I::WarpgroupMultiply { .. } | I::WarpgroupFence {} | I::WarpgroupCommit {} | I::WarpgroupWait { .. } => {
                if let I::WarpgroupWait { groups } = *instruction
                    && !self.products_are_done(groups)
                {
                    return Ok(self.wait(group, lanes));
                }
                let flow = self.together(group, lanes, ALL, instruction)?;
                // Asks again whether registers are to be looked at.
                return Ok(match flow {
                    Flow::Next => {
                        self.warp.groups[group].pc = self.pc + 1;
                        Flow::Moved
                    }
                    other => other,
                });
            }
            I::MultimemLoadReduce { op, ty, wide, ref access, ref destinations, address } => {
                if self.multimem_load_reduce(lanes, (op, ty, wide), access, destinations, address)? {
                    return Ok(self.hold_back(group));
                }
            }
            I::MultimemStore { ty, ref access, address, ref values } => self.multimem_store(lanes, ty, access, address, values)?,
            I::MultimemReduce { op, ty, ref access, address, ref values } => {
                self.multimem_reduce(lanes, (op, ty), access, address, values)?;
            }
            I::Copy { bytes, destination, source, source_bytes, ignored } => {
                self.copy_later(lanes, (destination, source, bytes), source_bytes, ignored)?;
            }
            I::BulkCopy { to, from, reduction, destination, source, bytes, completion, blocks, mask } => {
                self.copy_in_bulk(lanes, &Bulk { to, from, reduction, destination, source, bytes, completion, blocks, mask })?;
            }
            I::TensorCopy { to, from, reduction, map, ref coordinates, shared, completion, blocks } => {
                self.copy_box(lanes, &TensorCopy { to, from, reduction, map, coordinates, shared, completion, blocks })?;
            }
            I::TensorPrefetch { map, ref coordinates } => self.prefetch_box(lanes, map, coordinates.len())?,
            I::TensorMapReplace { field, dimension, space, address, value } => {
                self.replace_in_map(lanes, (field, dimension), space, address, value)?;
            }
            I::TensorMapPublish { scope, destination, source } => self.publish_map(lanes, scope, destination, source)?,
            I::StoreAsync { op, ty, space, address, ref values, mbarrier } => {
                self.store_later(lanes, (op, ty), (space, address, mbarrier), values)?;
            }
            I::BulkFill { space, address, bytes } => self.fill_in_bulk(lanes, space, address, bytes)?,
            I::CopyCommit {} => self.commit_groups(lanes, false),
            I::BulkCommit {} => self.commit_groups(lanes, true),
            I::CopyWait { groups } => {
                if !self.groups_are_done(lanes, false, groups, false) {
                    return Ok(self.wait(group, lanes));
                }
            }
            I::BulkWait { reads, groups } => {
                if !self.groups_are_done(lanes, true, Some(groups), reads) {
                    return Ok(self.wait(group, lanes));
                }
            }
            I::CopyArrive { space, counted, address } => self.arrive_after_copies(lanes, space, counted, address)?,
            I::MbarrierInit { space, address, count } => self.init_mbarriers(lanes, space, address, count)?,
            I::MbarrierInvalidate { space, address } => self.invalidate_mbarriers(lanes, space, address)?,
            I::MbarrierBytes { space, completes, address, bytes } => self.count_bytes(lanes, space, completes, address, bytes)?,
            I::MbarrierArrive { access, drops, completes, state, address, count, bytes } => {
                self.arrive_at_mbarriers(lanes, access, (drops, completes), state, address, (count, bytes))?;
            }
            I::MbarrierTest { access, complete, address, phase } => {
                if self.test_mbarriers(lanes, access, complete, address, phase)? {
                    return Ok(self.hold_back(group));
                }
            }
            I::MbarrierPending { count, state } => self.pending_count(lanes, count, state),
            I::SetRegisters { count, .. } => self.block.set_registers(self.warp_index, count, self.launch.threads())?,
            I::CreatePolicy { destination } => registers.write::<u64>(destination, lanes, &[0; LANES]),
            // What is executed often has been, and a launch comes to nothing that is unknown.
            I::Move { .. }
            | I::Pack { .. }
            | I::Unpack { .. }
            | I::Load { .. }
            | I::Store { .. }
            | I::Integer { .. }
            | I::IntegerMultiplyAdd { .. }
            | I::Float { .. }
            | I::FusedMultiplyAdd { .. }
            | I::Logic { .. }
            | I::Shift { .. }
            | I::SetPredicate { .. }
            | I::Select { .. }
            | I::Convert { .. }
            | I::Branch { .. }
            | I::Unknown { .. } => return Err(ExecError::unsupported(instruction.family())),
        }
        Ok(Flow::Next)
    }

    /// Lanes come to this operation again, after what goes on beside them and others have had their turn.
    fn wait(&mut self, group: usize, lanes: u32) -> Flow {
        let waiting = self.split_off(group, lanes);
        self.warp.groups[waiting].held_back = true;
        self.turn.polled = true;
        Flow::Moved
    }

    /// After a load, an atomic or a sleep: others go first.
    fn hold_back(&mut self, group: usize) -> Flow {
        let group = &mut self.warp.groups[group];
        group.pc = self.pc + 1;
        group.held_back = true;
        group.polled = self.polled.take();
        self.turn.polled = true;
        Flow::Moved
    }

    /// The lanes of a group that execute an operation which others of it pass by; those go on. Returns the index of the former.
    pub(super) fn split_off(&mut self, group: usize, lanes: u32) -> usize {
        self.warp.groups[group].pc = self.pc + 1;
        let own = self.warp.split(group, lanes);
        self.warp.groups[own].pc = self.pc;
        own
    }

    fn pack(&mut self, lanes: u32, ty: Type, part: Type, d: Register, parts: &[Operand]) {
        let mask = (1_u128 << part.bits()) - 1;
        let mut values = [0_u128; LANES];
        for (index, &source) in parts.iter().enumerate() {
            let row = self.warp.registers.bits(source);
            let shift = index as u32 * part.bits();
            values.iter_mut().zip(row).for_each(|(value, bits)| *value |= (u128::from(bits) & mask) << shift);
        }
        debug_assert!(part.bits() * parts.len() as u32 == ty.bits());
        self.warp.registers.write_wide_bits(d, lanes, &values);
    }

    fn unpack(&mut self, lanes: u32, part: Type, destinations: &[Option<Register>], source: Operand) {
        let values = self.warp.registers.wide_bits(source);
        for (index, destination) in destinations.iter().enumerate() {
            let shift = index as u32 * part.bits();
            let unused = 128 - part.bits();
            if let Some(destination) = *destination {
                self.warp.registers.write_wide_bits(destination, lanes, &row_of(|lane| values[lane] >> shift << unused >> unused));
            }
        }
    }

    fn branch_indexed(&mut self, group: usize, lanes: u32, targets: &[usize], index: Operand) -> Result<Flow, ExecError> {
        let indices = self.warp.registers.bits(index);
        let group = self.split_off(group, lanes);
        let mut rest = lanes;
        while rest != 0 {
            let lane = rest.trailing_zeros();
            let first = indices[lane as usize] as u32;
            let target = targets.get(first as usize).copied();
            let target = target.ok_or(ExecError::BranchIndex { lane, index: first, targets: targets.len() })?;
            let same = lanes_of(rest).filter(|&lane| indices[lane] as u32 == first).fold(0, |bits, lane| bits | 1 << lane);
            // The last lanes are the group itself.
            let own = self.warp.split(group, same);
            self.warp.groups[own].pc = target;
            rest &= !same;
        }
        Ok(Flow::Moved)
    }

    /// Arrives at a barrier, and waits there if `waits`.
    fn barrier(
        &mut self,
        group: usize,
        lanes: u32,
        holding: u32,
        barrier: Operand,
        threads: Option<Operand>,
        waits: bool,
    ) -> Result<Flow, ExecError> {
        let registers = &self.warp.registers;
        let first = lanes.trailing_zeros() as usize;
        let ids = registers.bits(barrier);
        let counts = threads.map(|threads| registers.bits(threads));
        let count = |lane: usize| counts.map(|counts| counts[lane] as u32);
        // Lanes of another barrier come to this operation again, by themselves.
        let same =
            lanes_of(lanes).filter(|&lane| ids[lane] == ids[first] && count(lane) == count(first)).fold(0, |bits, lane| bits | 1 << lane);
        let id = ids[first] as u32;
        self.block.arrive(id, self.warp_index, same, holding, count(first))?;
        let warp = self.warp_index;
        if let Some((races, actor)) = self.watch().filter(|_| !waits) {
            races.arrive(actor, id, warp, same);
        }
        let here = self.split_off(group, lanes);
        let own = self.warp.split(here, same);
        match waits {
            true => self.warp.groups[own].waiting = Waiting::Barrier(id),
            false => self.warp.groups[own].pc = self.pc + 1,
        }
        Ok(Flow::Stop(Event::Barrier(id)))
    }

    /// An operation of the lanes of a mask: for those whose masks are complete here. The others wait for the rest.
    fn together(&mut self, group: usize, lanes: u32, mask: Operand, instruction: &Instruction) -> Result<Flow, ExecError> {
        let masks = self.warp.registers.bits(mask);
        let mut complete = 0;
        let mut rest = lanes;
        while rest != 0 {
            let lane = rest.trailing_zeros();
            let mask = masks[lane as usize] as u32;
            let same = lanes_of(rest).filter(|&other| masks[other] as u32 == mask).fold(0, |bits, lane| bits | 1 << lane);
            rest &= !same;
            if same & !mask != 0 {
                return Err(ExecError::NotInMask { lane: (same & !mask).trailing_zeros(), mask });
            }
            if mask & self.warp.live & !same == 0 {
                self.of_lanes(same, instruction)?;
                let warp = self.warp_index;
                if let (Instruction::WarpSync { .. }, Some((races, actor))) = (instruction, self.watch()) {
                    races.meet_in_warp(actor, warp, same);
                }
                complete |= same;
            }
        }
        if complete == lanes {
            return Ok(Flow::Next);
        }
        let waiting = self.split_off(group, lanes);
        let done = if complete == 0 { None } else { Some(self.warp.split(waiting, complete)) };
        self.warp.groups[waiting].waiting = Waiting::Lanes;
        if let Some(done) = done {
            self.warp.groups[done].pc = self.pc + 1;
        }
        Ok(Flow::Moved)
    }

    fn end(&mut self, group: usize, lanes: u32) -> Flow {
        self.warp.groups[group].pc = self.pc + 1;
        self.warp.end(group, lanes);
        Flow::Stop(Event::Ended)
    }

    /// Calls the function of the lowest lane's address, for the lanes that call the same one. Others come to this operation again.
    fn call_indirect(
        &mut self,
        group: usize,
        lanes: u32,
        target: Operand,
        signature: &Signature,
        arguments: &[Argument],
    ) -> Result<Flow, ExecError> {
        let targets = self.warp.registers.bits(target);
        let lane = lanes.trailing_zeros();
        let first = targets[lane as usize];
        let callee = self.launch.program.callee(first, signature).map_err(|why| ExecError::CallTarget { lane, why })?;
        let same = lanes_of(lanes).filter(|&lane| targets[lane] == first).fold(0, |bits, lane| bits | 1 << lane);
        let here = self.split_off(group, lanes);
        let own = self.warp.split(here, same);
        self.enter(own, same, callee, arguments)
    }

    /// Has a group, which is these lanes, go into a function.
    fn enter(&mut self, group: usize, lanes: u32, callee: usize, arguments: &[Argument]) -> Result<Flow, ExecError> {
        let functions = &self.launch.program.module.functions;
        let (caller, function) = (&functions[self.frame.function], &functions[callee]);
        if function.external {
            return Err(ExecError::unsupported(format!("a call of `{}`, which has no body,", function.name)));
        }
        if self.warp.groups[group].callers.len() + 1 >= super::MOST_FRAMES {
            return Err(ExecError::StackOverflow);
        }
        let frame = Frame {
            function: callee,
            bases: self.frame.bases.above(caller.registers),
            parameters: self.frame.parameters + caller.param_bytes as usize,
            local: self.frame.local + u64::from(caller.local_bytes.next_multiple_of(16)),
        };
        let Warp { registers, parameters, .. } = &mut *self.warp;
        registers.reserve(frame.bases, function.registers);
        parameters.resize(parameters.len().max(frame.parameters + function.param_bytes as usize), [0; LANES]);
        for argument in arguments {
            match *argument {
                Argument::Bytes { caller, callee, bytes } => {
                    for at in 0..bytes {
                        for lane in lanes_of(lanes) {
                            let byte = self.parameter_byte(u64::from(caller + at), lane).unwrap_or_default();
                            self.warp.parameters[frame.parameters + (callee + at) as usize][lane] = byte;
                        }
                    }
                }
                Argument::Value { caller, callee, ty } => {
                    let values = self.warp.registers.wide_bits(caller);
                    for at in 0..ty.bytes() {
                        let row = &mut self.warp.parameters[frame.parameters + (callee + at) as usize];
                        lanes_of(lanes).for_each(|lane| row[lane] = (values[lane] >> (8 * at)) as u8);
                    }
                }
                Argument::Register { caller, callee, .. } => {
                    let registers = &mut self.warp.registers;
                    let values = registers.wide_bits(caller);
                    registers.bases = frame.bases;
                    registers.write_wide_bits(callee, lanes, &values);
                    registers.bases = self.frame.bases;
                }
            }
        }
        let group = &mut self.warp.groups[group];
        group.callers.push(Caller { frame: self.frame, pc: self.pc });
        (group.frame, group.pc) = (frame, 0);
        Ok(Flow::Moved)
    }

    /// Returns from a function, or ends in a kernel.
    fn leave(&mut self, group: usize, lanes: u32) -> Result<Flow, ExecError> {
        let Some(&Caller { frame, pc }) = self.warp.groups[group].callers.last() else { return Ok(self.end(group, lanes)) };
        let group = self.split_off(group, lanes);
        let callee = self.frame;
        let launch = self.launch;
        let call = &launch.program.module.functions[frame.function].code[pc].instruction;
        let (Instruction::Call { results, .. } | Instruction::CallIndirect { results, .. }) = call else {
            return Err(ExecError::unsupported("a return to no call"));
        };
        for result in results {
            match *result {
                Argument::Bytes { caller, callee: from, bytes } => {
                    for at in 0..bytes as usize {
                        let row = self.warp.parameters[callee.parameters + from as usize + at];
                        let to = &mut self.warp.parameters[frame.parameters + caller as usize + at];
                        lanes_of(lanes).for_each(|lane| to[lane] = row[lane]);
                    }
                }
                Argument::Value { caller: Operand::Register(to), callee: from, ty } => {
                    let mut values = [0_u128; LANES];
                    for at in 0..ty.bytes() {
                        let row = &self.warp.parameters[callee.parameters + (from + at) as usize];
                        values.iter_mut().zip(row).for_each(|(value, byte)| *value |= u128::from(*byte) << (8 * at));
                    }
                    self.warp.registers.bases = frame.bases;
                    self.warp.registers.write_wide_bits(to, lanes, &values);
                }
                Argument::Register { caller: Operand::Register(to), callee: from, .. } => {
                    self.warp.registers.bases = callee.bases;
                    let values = self.warp.registers.wide_bits(Operand::Register(from));
                    self.warp.registers.bases = frame.bases;
                    self.warp.registers.write_wide_bits(to, lanes, &values);
                }
                // Results go to registers: the front end takes nothing else.
                Argument::Value { .. } | Argument::Register { .. } => {}
            }
        }
        let group = &mut self.warp.groups[group];
        group.callers.pop();
        (group.frame, group.pc) = (frame, pc + 1);
        Ok(Flow::Moved)
    }
}
