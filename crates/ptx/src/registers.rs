//! Registers of a function: visiting them, and giving those that are never live together one slot.
//!
//! Compilers declare a register a value, hundreds of them. An executor keeps 32 lanes of each slot for every warp, so slots are what
//! memory and clearing cost.

use super::instruction::{
    Address, Argument, Base, BulkCompletion, Class, Condition, Fence, Instruction, LogicPredicate, MatrixSource, MbarrierWait, Operand,
    Operation, Register,
};

/// How registers within a field of an instruction are visited.
pub(super) trait Visited {
    /// Calls `visit` for each, with whether it is written.
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool));
}

impl Visited for Register {
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        visit(self, written);
    }
}

impl Visited for Operand {
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let Operand::Register(register) = self {
            visit(register, written);
        }
    }
}

impl Visited for Condition {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        visit(&mut self.register, false);
    }
}

impl Visited for LogicPredicate {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        self.condition.visited(false, visit);
        self.destination.visited(true, visit);
    }
}

impl Visited for Address {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let Base::Register(register) = &mut self.base {
            visit(register, false);
        }
    }
}

impl Visited for Fence {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let Fence::TensormapAcquire(_, address) = self {
            address.visited(false, visit);
        }
    }
}

impl Visited for MbarrierWait {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        let (MbarrierWait::State(phase) | MbarrierWait::Parity(phase)) = self;
        phase.visited(false, visit);
    }
}

impl Visited for BulkCompletion {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let BulkCompletion::Mbarrier(address) = self {
            address.visited(false, visit);
        }
    }
}

impl Visited for MatrixSource {
    fn visited(&mut self, _: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        match self {
            MatrixSource::Registers(registers) => registers.visited(false, visit),
            MatrixSource::Shared(descriptor) => descriptor.visited(false, visit),
        }
    }
}

impl Visited for Argument {
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let Argument::Value { caller, .. } | Argument::Register { caller, .. } = self {
            caller.visited(written, visit);
        }
    }
}

impl<T: Visited> Visited for Option<T> {
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        if let Some(inner) = self {
            inner.visited(written, visit);
        }
    }
}

impl<T: Visited> Visited for Box<[T]> {
    fn visited(&mut self, written: bool, visit: &mut dyn FnMut(&mut Register, bool)) {
        for item in self.iter_mut() {
            item.visited(written, visit);
        }
    }
}

/// How many slots of each class a frame has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisterCounts {
    /// Predicates.
    pub predicates: u16,
    /// 32-bit words.
    pub words: u16,
    /// 64-bit ones.
    pub longs: u16,
    /// 128-bit ones.
    pub quads: u16,
}

impl RegisterCounts {
    /// The count of one class.
    pub fn of(&self, class: Class) -> u16 {
        match class {
            Class::Predicate => self.predicates,
            Class::Word => self.words,
            Class::Long => self.longs,
            Class::Quad => self.quads,
        }
    }

    /// Takes a fresh slot; `None` if all are taken.
    pub(super) fn allocate(&mut self, class: Class) -> Option<Register> {
        let count = match class {
            Class::Predicate => &mut self.predicates,
            Class::Word => &mut self.words,
            Class::Long => &mut self.longs,
            Class::Quad => &mut self.quads,
        };
        let index = *count;
        *count = count.checked_add(1)?;
        Some(Register { class, index })
    }
}

/// Calls `visit` for every register of an operation, its guard's too.
fn visit(operation: &mut Operation, visit: &mut dyn FnMut(&mut Register, bool)) {
    operation.guard.visited(false, visit);
    operation.instruction.for_each_register(visit);
}

/// The operations that may come after operation `index`.
pub(super) fn successors(operation: &Operation, index: usize, each: &mut dyn FnMut(usize)) {
    let falls_through = match &operation.instruction {
        Instruction::Branch { target, .. } => {
            each(*target);
            operation.guard.is_some()
        }
        Instruction::BranchIndexed { targets, .. } => {
            targets.iter().copied().for_each(&mut *each);
            operation.guard.is_some()
        }
        Instruction::Return {} | Instruction::Exit {} => operation.guard.is_some(),
        _ => true,
    };
    if falls_through {
        each(index + 1);
    }
}

/// The most bits of liveness that one function may take; past it, its registers stay as they are.
const MAX_LIVENESS: usize = 1 << 28;

/// The most words of liveness that are computed for a module, again and again until nothing changes; past it, the same for all functions that follow.
pub(super) const MAX_LIVENESS_WORK: usize = 1 << 27;

/// Gives registers that are never live at the same operation one slot, and returns how many slots there are then.
///
/// The interval of a register goes from the first to the last operation that it is live at or named by. Sources and destinations of
/// one operation never share, so that an executor may write lane by lane. Registers of `wgmma.mma_async` share with none: they are read and written after it.
pub(super) fn compact(code: &mut [Operation], declared: RegisterCounts, left: &mut usize) -> RegisterCounts {
    let offsets = [0, declared.predicates, declared.words, declared.longs].map(usize::from);
    let first = |class: Class| offsets[..=class as usize].iter().sum::<usize>();
    let number = |register: &Register| first(register.class) + usize::from(register.index);
    let total = first(Class::Quad) + usize::from(declared.quads);
    let words = total.div_ceil(64);
    // A pass goes from each operation to those that may come after it.
    let mut edges = 0;
    code.iter().enumerate().for_each(|(at, operation)| successors(operation, at, &mut |_| edges += 1));
    let pass = words.saturating_mul(edges) + code.len();
    if words * 64 * code.len() > MAX_LIVENESS || pass > *left {
        return declared;
    }
    let mut intervals: Vec<Option<(usize, usize)>> = vec![None; total];
    let mut widen = |register: usize, at: usize| {
        let interval = intervals[register].get_or_insert((at, at));
        *interval = (interval.0.min(at), interval.1.max(at));
    };
    let last = code.len().saturating_sub(1);
    let mut reads = Vec::with_capacity(code.len());
    let mut kills = Vec::with_capacity(code.len());
    for (at, operation) in code.iter_mut().enumerate() {
        let (mut read, mut killed) = (Vec::new(), Vec::new());
        let guarded = operation.guard.is_some();
        let later = matches!(operation.instruction, Instruction::WarpgroupMultiply { .. });
        visit(operation, &mut |register, written| {
            widen(number(register), at);
            if later {
                widen(number(register), 0);
                widen(number(register), last);
            }
            match written {
                true if !guarded => killed.push(number(register)),
                true => {}
                false => read.push(number(register)),
            }
        });
        reads.push(read);
        kills.push(killed);
    }
    let mut live = vec![0_u64; words * code.len()];
    let mut row = vec![0_u64; words];
    let mut changed = true;
    let mut work = 0;
    while changed {
        changed = false;
        // A pass carries liveness over one branch backwards; code may be made of those.
        work += pass;
        if work > *left {
            *left = 0;
            return declared;
        }
        for at in (0..code.len()).rev() {
            row.fill(0);
            successors(&code[at], at, &mut |next| {
                if next < code.len() {
                    row.iter_mut().zip(&live[next * words..]).for_each(|(bits, more)| *bits |= more);
                }
            });
            kills[at].iter().for_each(|register| row[register / 64] &= !(1 << (register % 64)));
            reads[at].iter().for_each(|register| row[register / 64] |= 1 << (register % 64));
            let old = &mut live[at * words..(at + 1) * words];
            if *old != row[..] {
                old.copy_from_slice(&row);
                changed = true;
            }
        }
    }
    *left -= work;
    for at in 0..code.len() {
        for (word, &bits) in live[at * words..(at + 1) * words].iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                widen(word * 64 + bits.trailing_zeros() as usize, at);
                bits &= bits - 1;
            }
        }
    }
    let (slots, counts) = assign(&intervals, first);
    for operation in code {
        visit(operation, &mut |register, _| register.index = slots[number(register)]);
    }
    counts
}

/// A slot for each register, lowest free first, in the order in which their intervals start.
fn assign(intervals: &[Option<(usize, usize)>], first: impl Fn(Class) -> usize) -> (Vec<u16>, RegisterCounts) {
    let mut slots = vec![0; intervals.len()];
    let mut counts = RegisterCounts::default();
    let ends = [first(Class::Word), first(Class::Long), first(Class::Quad), intervals.len()];
    for (class, end) in [Class::Predicate, Class::Word, Class::Long, Class::Quad].into_iter().zip(ends) {
        let mut order: Vec<(usize, usize, usize)> =
            (first(class)..end).filter_map(|register| intervals[register].map(|(from, to)| (from, to, register))).collect();
        order.sort_unstable();
        let mut busy = std::collections::BTreeSet::new();
        let mut free = std::collections::BTreeSet::new();
        for (from, to, register) in order {
            while let Some(&(ended, slot)) = busy.first().filter(|&&(until, _)| until < from) {
                busy.remove(&(ended, slot));
                free.insert(slot);
            }
            // No more slots are ever needed than registers were declared.
            let slot = free.pop_first().or_else(|| counts.allocate(class).map(|fresh| fresh.index)).unwrap_or_default();
            busy.insert((to, slot));
            slots[register] = slot;
        }
    }
    (slots, counts)
}
