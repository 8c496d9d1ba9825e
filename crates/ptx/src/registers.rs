//! Registers of a function: visiting them, and giving those that are never live together one slot.
//!
//! Compilers declare a register a value, hundreds of them. An executor keeps 32 lanes of each slot for every warp, so slots are what
//! memory and clearing cost.

use std::ops::Range;

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

/// The operations that may come after operation `index` of a function, those of a function that it calls aside.
pub fn successors(operation: &Operation, index: usize, each: &mut dyn FnMut(usize)) {
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
/// A register has its slot where it is live, which may be several stretches of operations, and where it is named. Sources and destinations of
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
    let mut everywhere = vec![false; total];
    let mut reads = Vec::with_capacity(code.len());
    let mut writes = Vec::with_capacity(code.len());
    for operation in code.iter_mut() {
        let (mut read, mut written) = (Vec::new(), Vec::new());
        let later = matches!(operation.instruction, Instruction::WarpgroupMultiply { .. });
        visit(operation, &mut |register, writes| {
            everywhere[number(register)] |= later;
            (if writes { &mut written } else { &mut read }).push(number(register));
        });
        reads.push(read);
        writes.push(written);
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
            if code[at].guard.is_none() {
                writes[at].iter().for_each(|register| row[register / 64] &= !(1 << (register % 64)));
            }
            reads[at].iter().for_each(|register| row[register / 64] |= 1 << (register % 64));
            let old = &mut live[at * words..(at + 1) * words];
            if *old != row[..] {
                old.copy_from_slice(&row);
                changed = true;
            }
        }
    }
    *left -= work;
    let mut stretches: Vec<Stretches> = vec![Stretches::new(); total];
    let mut extend = |register: usize, at: usize| match stretches[register].last_mut() {
        Some(last) if last.end >= at => last.end = at + 1,
        _ => stretches[register].push(at..at + 1),
    };
    for at in 0..code.len() {
        for (word, &bits) in live[at * words..(at + 1) * words].iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                extend(word * 64 + bits.trailing_zeros() as usize, at);
                bits &= bits - 1;
            }
        }
        writes[at].iter().for_each(|&register| extend(register, at));
    }
    for (stretches, _) in stretches.iter_mut().zip(everywhere).filter(|(_, everywhere)| *everywhere) {
        *stretches = std::iter::once(0..code.len()).collect();
    }
    let (slots, counts) = assign(&stretches, code.len(), first);
    for operation in code {
        visit(operation, &mut |register, _| register.index = slots[number(register)]);
    }
    counts
}

/// Operations at which a register has its slot: ascending, apart from one another. Of one that is never named, none.
type Stretches = Vec<Range<usize>>;

/// A slot for each register of a function of `operations` operations: the lowest that is free where it is needed, in the order in which they are first needed.
fn assign(stretches: &[Stretches], operations: usize, first: impl Fn(Class) -> usize) -> (Vec<u16>, RegisterCounts) {
    let mut slots = vec![0; stretches.len()];
    let mut counts = RegisterCounts::default();
    let ends = [first(Class::Word), first(Class::Long), first(Class::Quad), stretches.len()];
    for (class, end) in [Class::Predicate, Class::Word, Class::Long, Class::Quad].into_iter().zip(ends) {
        let mut order: Vec<usize> = (first(class)..end).filter(|&register| !stretches[register].is_empty()).collect();
        order.sort_by_key(|&register| stretches[register][0].start);
        // Of each slot, a bit for each operation at which some register has it.
        let mut taken: Vec<Vec<u64>> = Vec::new();
        for register in order {
            let needed = || stretches[register].iter().flat_map(masks);
            let free = taken.iter().position(|taken| needed().all(|(word, mask)| taken[word] & mask == 0));
            // No more slots are ever needed than registers were declared.
            let slot = free.or_else(|| counts.allocate(class).map(|fresh| usize::from(fresh.index))).unwrap_or_default();
            if slot == taken.len() {
                taken.push(vec![0; operations.div_ceil(64)]);
            }
            needed().for_each(|(word, mask)| taken[slot][word] |= mask);
            slots[register] = slot as u16;
        }
    }
    (slots, counts)
}

/// The words of a set of bits that have some of a range, and which of their bits those are.
fn masks(range: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (range.start, range.end);
    (start / 64..end.div_ceil(64)).map(move |word| {
        let (from, to) = (start.max(word * 64) - word * 64, end.min(word * 64 + 64) - word * 64);
        (word, u64::MAX >> (64 - (to - from)) << from)
    })
}
