//! What of kernels' code has run, and which side of a wait came last.
//!
//! Machines and threads share a [`Coverage`]; each machine writes to it through a [`Recorder`]. It keeps two things:
//!
//! - For each operation, whether a lane executed it, and whether its guard kept a lane from it. For a branch these are its two ways.
//! - For each wait, the write that ended it, and which side came last. If the reader comes last, the word is there at its first look; if the writer does,
//!   the reader polls. These are two paths through a kernel, and a test that has seen one has not seen the other.
//!
//! A wait goes from a lane's first strong read of a word to its next access to data, its next barrier, or its end. Looks at other words, fences and sleeps
//! belong to it. Schedules with late stores record no waits, since a store has no one time there.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use super::{Program, executor::Executor, registers::lanes_of};
use crate::races::Effect;
use passmuster_ptx::{Access, Base, Function, Instruction, Module, Operation, Register, Semantics, Space, successors};
use smallvec::SmallVec;

/// Some lane executed it; of a branch: went where it leads.
const EXECUTED: u8 = 1;
/// Its guard kept some lane from it.
const PASSED: u8 = 2;

/// An operation of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The module, as [`Coverage::modules`] numbers them.
    pub module: usize,
    /// Index of the function.
    pub function: usize,
    /// Index of the operation.
    pub operation: usize,
}

/// How often each side came last where a write ended a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// The word was there when it was first looked at.
    pub reader_last: u64,
    /// The word was looked at before it came.
    pub writer_last: u64,
}

/// What of one module has run.
#[derive(Debug)]
pub struct Marks {
    number: usize,
    name: String,
    module: Arc<Module>,
    functions: Vec<Box<[AtomicU8]>>,
    /// Operations that end a wait.
    ends: Vec<Box<[bool]>>,
}

/// What of some modules has run.
#[derive(Debug, Default)]
pub struct Coverage {
    modules: Mutex<Vec<Arc<Marks>>>,
    waits: Mutex<Waits>,
}

/// What waits there were.
#[derive(Debug, Default)]
struct Waits {
    /// By the write that ended it and its first look.
    edges: BTreeMap<[Site; 2], Arrivals>,
    /// Later looks of a wait that are no first ones of it: compilers take the first look out of a loop.
    again: BTreeMap<Site, BTreeSet<Site>>,
}

/// What one machine tells a [`Coverage`].
#[derive(Debug)]
pub struct Recorder {
    coverage: Arc<Coverage>,
    signals: Arc<Mutex<Signals>>,
}

/// What a program tells.
#[derive(Clone, Debug)]
pub(super) struct Covered {
    pub(super) marks: Arc<Marks>,
    coverage: Arc<Coverage>,
    signals: Arc<Mutex<Signals>>,
}

/// Who wrote words last, by address.
#[derive(Debug, Default)]
struct Signals {
    writes: HashMap<u64, Write>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// From 1.
    number: u64,
    by: Site,
    /// The launch, by the address of its parameters, and the block.
    who: (u64, u32),
}

/// What a lane has looked at since its last access that was no look, by lane and address.
pub(super) type Looks = HashMap<(usize, u64), Look>;

/// A lane's looks at a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The write that was there at first; 0 for none.
    first: u64,
    last: Option<Write>,
    /// The first look, and the last one.
    from: Site,
    at: Site,
}

impl Coverage {
    /// The modules that were loaded.
    pub fn modules(&self) -> Vec<Arc<Marks>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Which writes ended which waits: the strong write, and the strong read that looked first.
    pub fn edges(&self) -> BTreeMap<[Site; 2], Arrivals> {
        self.waits().edges.clone()
    }

    /// Other strong reads of waits, by the one that looked first.
    pub fn looks_again(&self) -> BTreeMap<Site, BTreeSet<Site>> {
        self.waits().again.clone()
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks(&self, name: &str, module: &Arc<Module>) -> Arc<Marks> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        // Machines that run one text may each have parsed it.
        if let Some(known) = modules.iter().find(|known| known.name == name && is_same_code(&known.module, module)) {
            return known.clone();
        }
        let marks = Arc::new(Marks::new(modules.len(), name, module));
        modules.push(marks.clone());
        marks
    }
}

impl Marks {
    fn new(number: usize, name: &str, module: &Arc<Module>) -> Marks {
        let functions = module.functions.iter().map(|function| function.code.iter().map(|_| AtomicU8::new(0)).collect()).collect();
        let ends = module.functions.iter().map(|function| function.code.iter().map(ends_wait).collect()).collect();
        Marks { number, name: name.to_owned(), module: module.clone(), functions, ends }
    }

    /// What the module was loaded as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    fn has(&self, function: usize, operation: usize, bit: u8) -> bool {
        self.functions.get(function).and_then(|marks| marks.get(operation)).is_some_and(|mark| mark.load(Relaxed) & bit != 0)
    }

    /// Whether some lane executed an operation: of a branch, went where it leads.
    pub fn was_executed(&self, function: usize, operation: usize) -> bool {
        self.has(function, operation, EXECUTED)
    }

    /// Whether a guard kept some lane from an operation: of a branch, whether it went on behind it.
    pub fn was_passed(&self, function: usize, operation: usize) -> bool {
        self.has(function, operation, PASSED)
    }

    /// Whether an operation is a strong read that is made again and again until the same word reads otherwise: the code leads back to it with the same
    /// address, and nothing but reads of that kind and what has to do with registers is on the way.
    pub fn is_wait(&self, function: usize, operation: usize) -> bool {
        let code = &self.module.functions[function].code;
        let (Instruction::Load { address, .. } | Instruction::Atomic { address, .. }) = &code[operation].instruction else { return false };
        if !is_look(&code[operation].instruction) {
            return false;
        }
        // The shortest way around is that of the innermost loop.
        let Some(around) = self.way_around(function, operation) else { return false };
        match address.base {
            Base::Register(base) => !varying(code, &around).contains(&base),
            _ => true,
        }
    }

    /// The operations from one, with it, up to where it comes next, if nothing on the way ends a wait.
    fn way_around(&self, function: usize, from: usize) -> Option<Vec<usize>> {
        let (code, ends) = (&self.module.functions[function].code, &self.ends[function]);
        let mut before: Vec<Option<usize>> = vec![None; code.len()];
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            let mut after = SmallVec::<[usize; 2]>::new();
            successors(&code[at], at, &mut |to| after.push(to));
            for to in after.into_iter().filter(|&to| to < code.len() && !ends[to]) {
                if to == from {
                    let mut way: Vec<usize> = std::iter::successors(Some(at), |&at| if at == from { None } else { before[at] }).collect();
                    way.reverse();
                    return Some(way);
                }
                if before[to].is_none() {
                    before[to] = Some(at);
                    next.push_back(to);
                }
            }
        }
        None
    }

    pub(super) fn of(&self, function: usize) -> &[AtomicU8] {
        &self.functions[function]
    }

    /// Whether lanes that execute this have waited long enough.
    pub(super) fn ends_wait(&self, function: usize, operation: usize) -> bool {
        self.ends[function][operation]
    }
}

/// Whether two modules of one name come from one text.
fn is_same_code(one: &Arc<Module>, other: &Arc<Module>) -> bool {
    let is_same = |(a, b): (&Function, &Function)| a.name == b.name && a.code.len() == b.code.len();
    Arc::ptr_eq(one, other) || one.functions.len() == other.functions.len() && one.functions.iter().zip(&other.functions).all(is_same)
}

/// Notes that some lanes of those that came to an operation executed it, or that its guard kept some from it.
#[inline]
pub(super) fn note(mark: &AtomicU8, lanes: u32, all: u32) {
    let bits = if lanes != 0 { EXECUTED } else { 0 } | if lanes != all { PASSED } else { 0 };
    // Most of them are known: a line of memory that nobody writes is shared by all threads.
    if mark.load(Relaxed) & bits != bits {
        mark.fetch_or(bits, Relaxed);
    }
}

/// Registers that may hold something else at the end of a way around a loop than at the end of the next one.
fn varying(code: &[Operation], around: &[usize]) -> HashSet<Register> {
    let registers = |at: usize| {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        reads.extend(code[at].guard.map(|guard| guard.register));
        let mut note = |register: &mut Register, is_written| if is_written { writes.push(*register) } else { reads.push(*register) };
        code[at].instruction.clone().for_each_register(&mut note);
        (reads, writes)
    };
    let mut varying: HashSet<Register> = around.iter().flat_map(|&at| registers(at).1).collect();
    for &at in around {
        let (reads, writes) = registers(at);
        // What is computed from nothing that varies is the same each time, and so are parameters.
        let is_same = code[at].guard.is_none() && is_function(&code[at].instruction) && reads.iter().all(|of| !varying.contains(of));
        for register in writes {
            if is_same {
                varying.remove(&register);
            } else {
                varying.insert(register);
            }
        }
    }
    varying
}

/// Whether what an instruction writes follows from the registers that it reads.
fn is_function(instruction: &Instruction) -> bool {
    use Instruction as I;
    match instruction {
        I::Load { access, .. } => matches!(access.space, Space::Param | Space::Const),
        I::Atomic { .. } | I::MultimemLoadReduce { .. } | I::ReadSpecial { .. } | I::ActiveMask { .. } | I::Elect { .. } => false,
        I::Shuffle { .. } | I::Vote { .. } | I::Match { .. } | I::WarpReduce { .. } | I::BarrierReduce { .. } => false,
        I::Call { .. } | I::CallIndirect { .. } | I::MbarrierArrive { .. } | I::MbarrierTest { .. } => false,
        _ => true,
    }
}

/// Whether an access is strong, and of memory that other blocks see.
fn is_signal(access: &Access) -> bool {
    !matches!(access.semantics, Semantics::Weak | Semantics::NonCoherent) && is_seen(access.space)
}

fn is_seen(space: Space) -> bool {
    matches!(space, Space::Global | Space::Generic)
}

/// Whether an instruction reads what other blocks may signal with.
fn is_look(instruction: &Instruction) -> bool {
    match instruction {
        Instruction::Load { access, .. } => is_signal(access),
        Instruction::Atomic { access, destinations, .. } => destinations.is_some() && is_signal(access),
        _ => false,
    }
}

/// Whether who does this waits no more: it accesses memory that others see, meets others or ends.
pub(super) fn ends_wait(operation: &Operation) -> bool {
    use Instruction as I;
    match &operation.instruction {
        instruction if is_look(instruction) => false,
        I::Load { access, .. } | I::Store { access, .. } | I::Atomic { access, .. } => is_seen(access.space),
        I::MultimemLoadReduce { .. } | I::MultimemStore { .. } | I::MultimemReduce { .. } | I::Discard { .. } => true,
        I::BarrierSync { .. } | I::BarrierArrive { .. } | I::BarrierReduce { .. } | I::BarrierCluster { .. } => true,
        I::Copy { .. } | I::BulkCopy { .. } | I::TensorCopy { .. } | I::BulkFill { .. } | I::StoreAsync { .. } => true,
        I::GridDependency { .. } | I::Return {} | I::Exit {} | I::Trap {} => true,
        _ => false,
    }
}

impl Recorder {
    /// One for a machine.
    pub fn new(coverage: Arc<Coverage>) -> Recorder {
        Recorder { coverage, signals: Arc::default() }
    }

    /// The program, which from now on tells what of it runs. `name` is the module's.
    pub fn record(&self, program: Program, name: &str) -> Program {
        let marks = self.coverage.marks(name, program.shared_module());
        Program { covered: Some(Covered { marks, coverage: self.coverage.clone(), signals: self.signals.clone() }), ..program }
    }

    /// A run begins: nobody waits for what was written before it.
    pub fn begin_run(&self) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).writes.clear();
    }
}

impl Executor<'_> {
    /// Notes an access of words that blocks may wait for: its strong reads are looks, and its strong writes may be what others wait for.
    #[cold]
    pub(super) fn note_signal(&mut self, lanes: u32, access: &Access, addresses: &[u64; 32], effect: Effect) {
        let Some(covered) = self.launch.program.covered.clone() else { return };
        if !is_signal(access) || self.memory.delays_stores() {
            return;
        }
        let (reads, wrote) = match effect {
            Effect::Load => (lanes, 0),
            Effect::Store { .. } => (0, lanes),
            Effect::Atomic { wrote, returns } => (if returns { lanes } else { 0 }, wrote & lanes),
        };
        let at = Site { module: covered.marks.number, function: self.frame.function, operation: self.pc };
        let who = (self.launch.parameter_address, self.block.index);
        let mut signals = covered.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let Signals { writes, count } = &mut *signals;
        for lane in lanes_of(lanes).filter(|&lane| self.block.member.place(addresses[lane]).is_none()) {
            let address = addresses[lane];
            if reads >> lane & 1 == 1 {
                let last = writes.get(&address).copied();
                let number = last.map_or(0, |write| write.number);
                let look = self.warp.looks.entry((lane, address)).or_insert(Look { first: number, last, from: at, at });
                (look.last, look.at) = (last, at);
            }
            if wrote >> lane & 1 == 1 {
                *count += 1;
                writes.insert(address, Write { number: *count, by: at, who });
            }
        }
        drop(signals);
        self.end_waits(wrote);
    }

    /// Notes what ended the waits of lanes that go on.
    pub(super) fn end_waits(&mut self, lanes: u32) {
        if lanes == 0 || self.warp.looks.is_empty() {
            return;
        }
        let Some(covered) = self.launch.program.covered.clone() else { return };
        let who = (self.launch.parameter_address, self.block.index);
        let mut waits = covered.coverage.waits();
        let Waits { edges, again } = &mut *waits;
        self.warp.looks.retain(|(lane, _), look| {
            let ended = lanes >> lane & 1 == 1;
            if ended && look.at != look.from {
                again.entry(look.from).or_default().insert(look.at);
            }
            if let Some(write) = look.last.filter(|write| ended && write.who != who) {
                let arrivals = edges.entry([write.by, look.from]).or_default();
                if look.first == write.number { arrivals.reader_last += 1 } else { arrivals.writer_last += 1 }
            }
            !ended
        });
    }
}
