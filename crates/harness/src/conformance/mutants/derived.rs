//! Mutants made by rule: at every place where a kernel synchronises, everything that one line can get wrong.
//!
//! They are derived from the PTX that ships, for every module that synchronises, so a new kernel has its mutants without a line of code. Some
//! rules take a line or two more than the one they change, for a register of their own.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    lines::{EntryText, Instruction},
    product_cases,
    sites::{Branch, Door, Sites},
    small,
};
use crate::{
    conformance::{Case, CollectiveCase, List, ProductCase, TaskCase},
    emulator::parsed,
};
use passmuster_plan::{
    algorithms::{Algorithm, Foreign, Registry, Target, TaskAlgorithm, TensorParallelFusion, kit::entry},
    collective::{Collective, DType, ReduceOp},
    library::Library,
    modules::{Calls, Module},
    plan::{Launch, MAX_RANKS},
};

/// What a rule does to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// A barrier of the block is left out.
    Barrier,
    /// A release or an acquire is relaxed, or a fence left out.
    Order,
    /// A strong operation is weak.
    Strength,
    /// System scope is that of a GPU or of a block.
    Scope,
    /// A signal is not sent, or sent before the block's barrier.
    Signal,
    /// A wait does not wait, or waits for the opposite.
    Wait,
    /// The count of barriers is not read, not kept, or one too low.
    Epoch,
    /// A barrier is without a rank, or has one too many.
    Peers,
    /// A signal goes to another's slot, or another's is looked at.
    Slot,
    /// An mbarrier is not made, expects another number of arrivals or bytes, or is not arrived at.
    Mbarrier,
    /// Asynchronous operations are in no group, or fewer groups are waited for, or less of them.
    Group,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Defect; 11] = [
        Defect::Barrier,
        Defect::Order,
        Defect::Strength,
        Defect::Scope,
        Defect::Signal,
        Defect::Wait,
        Defect::Epoch,
        Defect::Peers,
        Defect::Slot,
        Defect::Mbarrier,
        Defect::Group,
    ];

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Defect::Barrier => "barrier",
            Defect::Order => "order",
            Defect::Strength => "strength",
            Defect::Scope => "scope",
            Defect::Signal => "signal",
            Defect::Wait => "wait",
            Defect::Epoch => "epoch",
            Defect::Peers => "peers",
            Defect::Slot => "slot",
            Defect::Mbarrier => "mbarrier",
            Defect::Group => "group",
        }
    }

    /// What to look at where a check misses it, in a sentence or two.
    pub const fn if_missed(self) -> &'static str {
        match self {
            Defect::Barrier => {
                "In no case does a thread use, behind this barrier, what another did before it. If no caller can make one, remove it. If one can, try \
                 more calls in a row, other counts and more blocks."
            }
            Defect::Order => {
                "Nothing reads what this orders within the same launch. Keep it if a peer may act on the signal while the kernel still runs; then \
                 add a case in which one does."
            }
            Defect::Strength => "No other thread looks at the word at that time. PTX wants a strong operation wherever one may.",
            Defect::Scope => {
                "No thread beyond the narrower scope depends on it here. Keep `.sys` for what another GPU reads, and `.gpu` for what another block reads."
            }
            Defect::Signal => {
                "The signal may be left out, or sent sooner: in no case was what it announces not there yet. Look at the wait that it is meant for."
            }
            Defect::Wait => {
                "What the wait guards was always ready, or another wait guards it, too. Try late ranks and more calls in a row."
            }
            Defect::Epoch => {
                "No two calls came close enough to confuse their signals. Try more calls in a row, and graphs that are replayed."
            }
            Defect::Peers => "The rank that was left out had nothing to say. Try more ranks, and a late one.",
            Defect::Slot => "The other slot held the same value. Try more blocks, and ranks that are a call apart.",
            Defect::Mbarrier | Defect::Group => "The data had arrived anyway. Try more steps than the pipeline has stages.",
        }
    }
}

/// A kernel with one place of its synchronisation changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Derived {
    /// Kernel, line from the head of its entry (1 is the line with its name), and what is changed: `two_shot/L49 st.relaxed.sys dropped`.
    pub name: String,
    /// The same without the line, which edits elsewhere move: its number among such changes of the kernel, `two_shot/st.relaxed.sys dropped (2 of 3)`.
    pub site: String,
    /// What kind of change it is.
    pub defect: Defect,
    /// The module: `all_reduce/two_shot`.
    pub module: Cow<'static, str>,
    /// The line as it was.
    pub original: String,
    /// What stands there now, some lines apart by ` `; empty where it is dropped.
    pub mutated: String,
    /// Lines of the module's text that are changed, or before which something is added, from 1. Where none of them is executed, it does what the kernel does.
    pub lines: Vec<u32>,
    /// The line of the source that the changed line comes from, if the PTX of a kernel from elsewhere says so: `signals.cuh:31`.
    pub source: Option<String>,
    /// The module, one of ours with this one entry.
    #[serde(skip)]
    pub ptx: String,
}

impl Derived {
    /// The kernels with this mutant in its module's place.
    pub fn library(&self, registry: &Registry) -> Library {
        self.among(registry.library())
    }

    /// These kernels with this mutant in its module's place.
    pub fn among(&self, mut library: Library) -> Library {
        library.replace(&self.module, self.ptx.clone());
        library
    }

    /// What it is judged on: see [`sync_cases`] and [`product_cases`].
    pub fn cases(&self, registry: &Registry) -> Vec<Case> {
        match TensorParallelFusion::of(&self.module) {
            Some(half) => cases_of_product(registry, half, &self.module).into_iter().map(Case::from).collect(),
            None => {
                let module = registry.module(&self.module).expect("it is derived from one that is there");
                sync_cases(registry, module).into_iter().map(Case::from).collect()
            }
        }
    }
}

/// Short cases of the sum, pre-multiplied sum or copy of the algorithm that a module is of, in bf16 or what the module says, in which its synchronisation matters: few elements, few ranks,
/// calls back to back on the same buffers, so that ranks come to be a launch apart; one with several blocks; one with more ranks than there are
/// loads in flight together; one without a whole pack; eager and as graphs.
pub fn sync_cases(registry: &Registry, module: &Module) -> Vec<CollectiveCase> {
    let ((collective, algorithm), op) = (of_module(registry, module), operator(registry, module));
    let in_place = if collective.has_in_place() { ".in_place" } else { "" };
    // What a barrier orders of a rooted collective is between the root and each other rank: first and last ranks take turns.
    let root = |rank: u32| if collective.has_root() { format!(".root{rank}") } else { String::new() };
    let (ranks, several) = module.mutants.several;
    let (is_of_packs, is_of_parts) = (module.calls == Calls::PremulSum, module.calls == Calls::AllToAllV);
    let [first, second, third, last] = [1, 2, 3, 8].map(root);
    let call = |count: u64| match is_of_packs {
        true => format!("{algorithm}.{}", count.next_multiple_of(8)),
        false => format!("{algorithm}.{count}"),
    };
    let off = if is_of_packs { "" } else { ".off1" };
    let [few, some, more, many, most] = [9, 33, 40, 100, several].map(call);
    let ids = [
        format!("w=3:calls={more}+{more}{second}+{}{first}{in_place}+{more}", call(17)),
        format!("w=2:calls=[{some}+{}{first}{off}]x3:seed=1", call(70)),
        format!("w=4:calls={many}{third}{in_place}+[{few}]x3+{many}:inputs=natural:seed=2"),
        format!("w={ranks}:calls={most}+{most}{first}+{most}{in_place}:seed=3"),
        format!("w=9:calls={more}+[{more}{last}]x2:seed=4"),
        format!("w=3:calls={}+[{}{second}]x3+{}{in_place}:seed=5", call(5), call(7), call(5)),
    ];
    let parts = if is_of_parts { ":counts=5" } else { "" };
    let dtype = module.mutants.dtype;
    let mut ids = ids.map(|id| format!("{collective}/{algorithm}:{dtype},{op}:{id}{parts}")).to_vec();
    if module.mutants.rare_words {
        // On two and four ranks, for which kernels have code of their own, and on others. Every type has the same number of packs. Calls repeat until rare words
        // lie where others have lain, and one of them is seen before the rest of its pack. Each root is first in a graph of its own: only in the slots of a
        // graph's first call is no kernel's boundary between a reset and what the next replay stores.
        let [once, fewer, again] = [280, 68, 132].map(|words| call(words * 4 / dtype.size()));
        ids.extend([(2, "8"), (3, "9"), (4, "b"), (6, "c")].map(|(world, seed)| {
            let turns = 4.min(world);
            let firsts = if collective.has_root() { turns } else { 1 };
            let graph = |from: u32| {
                let calls: Vec<String> = (from..from + turns).map(|turn| format!("{again}{}", root(turn % turns))).collect();
                format!("[{}]x{}", calls.join("+"), 24 / turns / firsts.min(2))
            };
            let graphs: Vec<String> = (0..firsts).map(graph).collect();
            let calls = format!("calls={once}{first}+{fewer}{in_place}+{}:inputs=special", graphs.join("+"));
            format!("{collective}/{algorithm}:{dtype},{op}:w={world}:{calls}:seed={seed}")
        }));
    }
    ids.extend(module.mutants.also.iter().map(|&id| id.to_owned()));
    if is_of_packs {
        // Enough calls, on enough ranks, for a rank to find another one at the end of a call at each of its looks, the second included.
        ids.push(format!("{collective}/{algorithm}:{dtype},{op}:w=8:calls=[{few}]x4+{many}+[{few}{in_place}]x4:seed=7"));
    }
    ids.iter().map(|id| id.parse().expect("an id of this module's own")).collect()
}

/// Every module that synchronises, and the entry that its mutants are made of.
pub fn subjects(registry: &Registry) -> impl Iterator<Item = (&'static Module, String)> {
    let synchronise = registry.modules().iter().copied().filter(|module| module.has_sites);
    synchronise.map(|module| (module, entry(module, module.mutants.dtype, operator(registry, module))))
}

/// Every module of a fused product, and the entry that its mutants are made of.
pub fn subjects_of_products(registry: &Registry) -> impl Iterator<Item = (&'static Module, String)> {
    let fused = registry.modules().iter().copied().filter(|module| TensorParallelFusion::of(module.name).is_some());
    fused.map(|module| (module, entry(module, DType::BF16, ReduceOp::Sum)))
}

/// The cases that mutants of a product's kernel are judged on: those of each algorithm that launches it.
pub fn cases_of_product(registry: &Registry, half: TensorParallelFusion, module: &str) -> Vec<ProductCase> {
    let of = |name| product_cases(registry, half, name, DType::BF16, true);
    let mut cases: Vec<ProductCase> = registry.products(half).flat_map(|algorithm| of(algorithm.name())).collect();
    let blocks = Target::default().waiting_blocks;
    cases.retain(|case| Case::from(case.clone()).modules(registry, blocks).contains(module));
    // The quick ones first, of each algorithm.
    cases.sort_by_key(|case| (case.product.depth > 1000, case.world));
    cases
}

/// The mutants of all [`subjects`], and of all [`subjects_of_products`], in the order of their modules and lines.
pub fn derived(registry: &Registry) -> Vec<Derived> {
    derived_of(registry, |_| true)
}

/// Those of the modules that a name is wanted of.
pub fn derived_of(registry: &Registry, is_wanted: impl Fn(&str) -> bool) -> Vec<Derived> {
    let wanted = subjects(registry).chain(subjects_of_products(registry)).filter(|(module, _)| is_wanted(module.name));
    wanted.flat_map(|(module, entry)| derive(module.name.into(), kernel(module.name), module.ptx, &entry)).collect()
}

/// The mutants of a kernel from elsewhere: of each entry that its launches name. `library` has its modules.
///
/// ```
/// use passmuster_harness::conformance::mutants;
/// use passmuster_plan::{algorithms::Foreign, library::Library};
/// let text = r#"
/// name = "waits"
/// collective = "all_reduce"
/// entry = "waits"
/// dtypes = ["f32"]
/// ops = ["sum"]
/// worlds = [2]
/// launch = { grid = 1, block = 1 }
/// "#;
/// let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry waits()\n{\n\tbar.sync 0;\n\tret;\n}\n";
/// let foreign = Foreign::read(text, None)?;
/// let mut library = Library::default();
/// library.replace("foreign/waits", ptx);
/// let mutants = mutants::of_launches(foreign.kernels().name(), &foreign.samples(), &library);
/// assert_eq!(mutants[0].name, "waits/L3 bar.sync dropped");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn of_launches(name: &str, launches: &[Launch], library: &Library) -> Vec<Derived> {
    let of_launch = |launch: &Launch| {
        let Ok(ptx) = library.ptx(&launch.module) else { return Vec::new() };
        let kernel = match launches {
            [_] => name.to_owned(),
            _ => format!("{name}/{}", launch.entry),
        };
        let Some(entry) = EntryText::of(ptx, &launch.entry) else { return Vec::new() };
        let mut mutants = derive(launch.module.clone().into(), &kernel, ptx, &launch.entry);
        let sources = sources(library, &launch.module);
        for mutant in &mut mutants {
            // Others of its entries may be launched in the same call.
            mutant.ptx = entry.in_place_of(ptx, &mutant.ptx);
            mutant.source = sources.get(&mutant.lines[0]).cloned();
        }
        mutants
    };
    launches.iter().flat_map(of_launch).collect()
}

/// Of each line of a module's text that holds an instruction the line of the source that it comes from, without the folder.
fn sources(library: &Library, module: &str) -> BTreeMap<u32, String> {
    let Ok(module) = parsed(library, module) else { return BTreeMap::new() };
    let operations = module.functions.iter().flat_map(|function| &function.code);
    let named = |line: String| line.rsplit('/').next().map(str::to_owned);
    operations.filter_map(|operation| Some((operation.at.line, named(module.line(operation.source?))?))).collect()
}

/// Short cases of a kernel from elsewhere: the small ones of its smoke list, sequences of calls first.
pub fn cases_of_foreign(registry: &Registry, foreign: &Foreign) -> Vec<CollectiveCase> {
    let mut cases = small(List::Smoke.cases_of(registry, foreign, 0));
    cases.sort_by_key(|case| (case.calls.is_empty(), std::cmp::Reverse(case.world), case.elements()));
    cases.truncate(MOST_CASES);
    cases
}

/// The same of an algorithm of a task.
pub fn cases_of_task(algorithm: &dyn TaskAlgorithm) -> Vec<TaskCase> {
    let mut cases = List::Smoke.tasks(algorithm, 0);
    cases.sort_by_key(|case| (case.number_of_calls() == 1, case.size(), std::cmp::Reverse(case.world)));
    cases.truncate(MOST_CASES);
    cases
}

/// Cases that a mutant of a kernel from elsewhere is judged on.
const MOST_CASES: usize = 24;

/// Bytes of a line, and of a source's lines in a tile of a pad: kernels/common/lines.cuh.
const LINE: i64 = 16;
const ROW: i64 = 32 * LINE;

/// The collective and the algorithm that a module is the kernel of.
pub(super) fn of_module(registry: &Registry, module: &Module) -> (Collective, String) {
    let has_it = |algorithm: &&Arc<dyn Algorithm>| algorithm.modules().iter().any(|of| of.name == module.name);
    let algorithm = registry.algorithms().iter().find(has_it).expect("modules that synchronise are an algorithm's");
    (algorithm.collective(), algorithm.name().to_owned())
}

/// What a module's kernels are judged with.
fn operator(registry: &Registry, module: &Module) -> ReduceOp {
    if module.calls == Calls::PremulSum { ReduceOp::PremulSum } else { of_module(registry, module).0.operators()[0] }
}

/// What mutants of a module are called after: its algorithm, with the collective where that is not all_reduce.
fn kernel(module: &str) -> &str {
    module.strip_prefix("all_reduce/").unwrap_or(module)
}

/// The module that a [`Derived`] of a name is of; none where there is none.
pub fn module_of(registry: &Registry, name: &str) -> Option<&'static str> {
    let of = |module: &&str| name.strip_prefix(kernel(module)).is_some_and(|rest| rest.starts_with("/L"));
    subjects(registry).chain(subjects_of_products(registry)).map(|(module, _)| module.name).find(of)
}

/// The mutants of one entry of a module's text.
fn derive(module: Cow<'static, str>, kernel: &str, ptx: &str, entry: &str) -> Vec<Derived> {
    let Some(entry) = EntryText::of(ptx, entry) else { return Vec::new() };
    let sites = Sites::of(&entry);
    let mut rules = Rules { module, kernel, entry: &entry, mutants: Vec::new() };
    for &(line, found) in &sites.barriers {
        rules.drop(line, Defect::Barrier, &short(&found));
    }
    for &(line, found) in &sites.fences {
        rules.drop(line, Defect::Order, found.opcode);
        rules.scopes(line, &found);
    }
    for (line, found) in &sites.asynchronous {
        rules.asynchronous(*line, found);
    }
    for &(line, found) in &sites.signals {
        rules.weaken(line, &found);
        rules.unsent(line, &found);
        rules.before_barrier(line, &found, &sites);
        rules.slots(line, &found);
    }
    for look in &sites.looks {
        rules.weaken(look.line, &look.load);
        rules.slots(look.line, &look.load);
        if let Some(branch) = &look.branch {
            rules.wait(branch, &look.load);
        }
    }
    for door in &sites.doors {
        let exit = sites.looks.iter().find(|look| look.line > door.signal).and_then(|look| look.branch.as_ref());
        rules.peers(door, exit);
    }
    rules.epoch(&sites);
    rules.mutants.sort_by_key(|(line, _)| *line);
    numbered(rules.mutants.into_iter().map(|(_, mutant)| mutant).collect())
}

/// The mutants of one kernel with their sites, which so far say what is changed.
fn numbered(mut mutants: Vec<Derived>) -> Vec<Derived> {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    mutants.iter().for_each(|mutant| *all.entry(mutant.site.clone()).or_default() += 1);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for mutant in &mut mutants {
        let number = seen.entry(mutant.site.clone()).or_default();
        *number += 1;
        mutant.site = format!("{} ({number} of {})", mutant.site, all[&mutant.site]);
    }
    mutants
}

/// An opcode without space and type. Compilers write order and scope before the space, Triton behind it.
fn short(instruction: &Instruction<'_>) -> String {
    let (before, behind) = instruction.opcode.split_once(".global").unwrap_or((instruction.opcode, ""));
    let orders = |part: &&str| ["relaxed", "release", "acquire", "acq_rel", "weak", "sys", "gpu", "cluster", "cta"].contains(part);
    std::iter::once(before).chain(behind.split('.').filter(orders)).collect::<Vec<_>>().join(".")
}

/// An opcode with one modifier replaced by others, or by none.
fn respelled(opcode: &str, modifier: &str, by: &str) -> String {
    let parts = opcode.split('.').map(|part| if part == modifier { by } else { part });
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

/// Registers of the mutants' own.
const REGISTERS: &str = "\t.reg .b32 \t%mutant_index;\n\t.reg .pred \t%mutant_takes_part;\n";

pub(super) struct Rules<'a, 't> {
    module: Cow<'static, str>,
    /// What names begin with.
    kernel: &'a str,
    pub(super) entry: &'a EntryText<'t>,
    /// With their lines.
    mutants: Vec<(usize, Derived)>,
}

impl Rules<'_, '_> {
    /// Adds the mutant with `replacement` in the place of a line, and, before other lines, what `before` says.
    pub(super) fn add(&mut self, line: usize, defect: Defect, change: &str, replacement: &str, before: &[(usize, String)]) {
        self.change(&[line], defect, change, replacement, before);
    }

    /// The same in the place of the first of some lines, without the others.
    fn change(&mut self, lines: &[usize], defect: Defect, change: &str, replacement: &str, before: &[(usize, String)]) {
        let line = lines[0];
        let own = replacement.contains("%mutant_") || before.iter().any(|(_, text)| text.contains("%mutant_"));
        let body = self.entry.lines.iter().position(|line| line.trim() == "{").filter(|_| own);
        let ptx = self.entry.with(|number, original, into| {
            before.iter().filter(|(at, _)| *at == number).for_each(|(_, text)| *into += text);
            match (lines.contains(&number), replacement) {
                (true, "") => {}
                (true, _) if number == line => *into += &format!("\t{replacement}\n"),
                (true, _) => {}
                (false, _) => {
                    into.push_str(original);
                    into.push('\n');
                }
            }
            if body == Some(number) {
                *into += REGISTERS;
            }
        });
        let name = format!("{}/L{} {change}", self.kernel, line + 1);
        let site = format!("{}/{change}", self.kernel);
        let original = self.entry.lines[line].trim().to_owned();
        let inserted = before.iter().flat_map(|(_, text)| text.lines()).chain(replacement.lines());
        let mutated = inserted.map(str::trim).collect::<Vec<_>>().join(" ");
        let changed = lines.iter().chain(before.iter().map(|(line, _)| line)).map(|line| (self.entry.before + line + 1) as u32).collect();
        self.mutants.push((
            line,
            Derived { name, site, defect, module: self.module.clone(), original, mutated, lines: changed, source: None, ptx },
        ));
    }

    pub(super) fn drop(&mut self, line: usize, defect: Defect, what: &str) {
        self.without(&[line], defect, what);
    }

    /// What some lines do together is left out.
    pub(super) fn without(&mut self, lines: &[usize], defect: Defect, what: &str) {
        self.change(lines, defect, &format!("{what} dropped"), "", &[]);
    }

    /// The same line with another opcode.
    pub(super) fn respell(&mut self, line: usize, defect: Defect, found: &Instruction<'_>, opcode: &str) {
        let now = Instruction { opcode, ..*found };
        let text = [now.guard, now.opcode, now.operands].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        self.add(line, defect, &format!("{} -> {}", short(found), short(&now)), &format!("{text};"), &[]);
    }

    /// Less order, less strength, less scope.
    fn weaken(&mut self, line: usize, found: &Instruction<'_>) {
        for semantics in ["release", "acquire", "acq_rel"].into_iter().filter(|semantics| found.has(semantics)) {
            self.respell(line, Defect::Order, found, &respelled(found.opcode, semantics, "relaxed"));
        }
        // Only loads and stores can be weak.
        if found.has("relaxed") && (found.opcode.starts_with("ld.") || found.opcode.starts_with("st.")) {
            let opcode = respelled(&respelled(found.opcode, "relaxed", "weak"), "sys", "");
            self.respell(line, Defect::Strength, found, &opcode);
        }
        self.scopes(line, found);
    }

    fn scopes(&mut self, line: usize, found: &Instruction<'_>) {
        for (scope, less) in [("sys", "gpu"), ("sys", "cta"), ("gpu", "cta")].into_iter().filter(|(scope, _)| found.has(scope)) {
            self.respell(line, Defect::Scope, found, &respelled(found.opcode, scope, less));
        }
    }

    /// A signal that is not sent. What it read is read all the same.
    fn unsent(&mut self, line: usize, found: &Instruction<'_>) {
        let change = format!("{} dropped", short(found));
        let address = found.list().find(|operand| operand.starts_with('['));
        let text = match address.filter(|_| found.opcode.starts_with("atom.")) {
            Some(address) => {
                let ty = found.opcode.rsplit('.').next().unwrap_or_default();
                format!("{} ld.relaxed.gpu.global.{ty} {}, {address};", found.guard, found.operand(0))
            }
            None => String::new(),
        };
        self.add(line, Defect::Signal, &change, text.trim(), &[]);
    }

    /// The signal, with all that leads to it, before the barrier that it comes after.
    fn before_barrier(&mut self, line: usize, found: &Instruction<'_>, sites: &Sites<'_>) {
        const LABEL: &str = "$mutant_after_signal";
        let Some(&(barrier, ref stands)) = sites.barriers.iter().rev().find(|(barrier, _)| *barrier < line) else { return };
        // Beyond a label the way to the signal is not this one alone.
        if (barrier..line).any(|between| self.entry.label_of(between).is_some()) {
            return;
        }
        let mut moved = String::new();
        for between in barrier + 1..=line {
            match self.entry.instruction(between) {
                Some(jump) if jump.opcode.starts_with("bra") => moved += &format!("\t{} {} {LABEL};\n", jump.guard, jump.opcode),
                Some(_) => moved += &format!("{}\n", self.entry.lines[between]),
                None => {}
            }
        }
        moved += &format!("{LABEL}:\n");
        self.add(line, Defect::Signal, &format!("{} before {}", short(found), short(stands)), "", &[(barrier, moved)]);
    }

    /// The slot of the next rank, and of the next block; of a line, that of the next line, and of the next rank.
    fn slots(&mut self, line: usize, found: &Instruction<'_>) {
        let Some(address) = found.list().find_map(|operand| operand.strip_prefix('[')?.strip_suffix(']')) else { return };
        let (register, offset) = match address.split_once('+') {
            None => (address, Some(0)),
            Some((register, offset)) => (register, offset.parse::<i64>().ok()),
        };
        let Some(offset) = offset else { return };
        let next = match found.has("v4") {
            true => [(LINE, "line"), (ROW, "rank")],
            false => [(4, "rank"), (4 * MAX_RANKS as i64, "block")],
        };
        for (bytes, whose) in next {
            let text = self.entry.lines[line].trim().replace(&format!("[{address}]"), &format!("[{register}+{}]", offset + bytes));
            self.add(line, Defect::Slot, &format!("{} at the next {whose}'s slot", short(found)), &text, &[]);
        }
    }

    /// A wait that is left at once, and one that is left when it should go on.
    fn wait(&mut self, branch: &Branch<'_>, look: &Instruction<'_>) {
        let Instruction { guard, opcode, operands } = branch.instruction;
        let leave = if branch.leaves_if_taken { format!("{opcode} {operands};") } else { String::new() };
        self.add(branch.line, Defect::Wait, &format!("{} not waited for", short(look)), &leave, &[]);
        let inverted = match guard.strip_prefix("@!") {
            Some(predicate) => format!("@{predicate}"),
            None => format!("@!{}", guard.trim_start_matches('@')),
        };
        self.add(
            branch.line,
            Defect::Wait,
            &format!("{} waited for in reverse", short(look)),
            &format!("{inverted} {opcode} {operands};"),
            &[],
        );
    }

    /// A barrier without the last rank, without the first, without any, with one too many, and with the last for one half of it only.
    fn peers(&mut self, door: &Door<'_>, exit: Option<&Branch<'_>>) {
        let Door { line, comparison, signal } = door;
        let (predicate, thread, world) = (comparison.operand(0), comparison.operand(1), comparison.operand(2));
        let opens = comparison.has("lt");
        let (opcode, with_last, both) = match opens {
            true => (comparison.opcode, "setp.le.u32", "setp.lt.and.u32"),
            false => (comparison.opcode, "setp.gt.u32", "setp.ge.or.u32"),
        };
        let mut add = |change: &str, text: String| self.add(*line, Defect::Peers, change, &text, &[]);
        add(
            "barrier without the last rank",
            format!("add.s32 %mutant_index, {thread}, 1;\n\t{opcode} {predicate}, %mutant_index, {world};"),
        );
        add("barrier with a rank too many", format!("{with_last} {predicate}, {thread}, {world};"));
        add("barrier without any rank", format!("{opcode} {predicate}, {thread}, 0;"));
        let first = if opens { "setp.ne.u32" } else { "setp.eq.u32" };
        add(
            "barrier without rank 0",
            format!("{first} %mutant_takes_part, {thread}, 0;\n\t{both} {predicate}, {thread}, {world}, %mutant_takes_part;"),
        );
        let last = format!("\tadd.s32 %mutant_index, {thread}, 1;\n\tsetp.ne.u32 %mutant_takes_part, %mutant_index, {world};\n");
        let sends = self.entry.lines[*signal].trim();
        if !sends.starts_with('@') {
            let guarded = format!("@%mutant_takes_part {sends}");
            self.add(*signal, Defect::Peers, "last rank not signalled", &guarded, &[(*signal, last.clone())]);
            if let Some(exit) = exit.filter(|exit| exit.leaves_if_taken) {
                let text = format!("{sends}\n\t@!%mutant_takes_part bra {};", exit.instruction.operands);
                self.add(*signal, Defect::Peers, "last rank not waited for", &text, &[(*signal, last)]);
            }
        }
    }

    fn epoch(&mut self, sites: &Sites<'_>) {
        let Some(epoch) = &sites.epoch else { return };
        let (line, load) = epoch.load;
        self.add(line, Defect::Epoch, "epoch not read", &format!("mov.u32 {}, 0;", load.operand(0)), &[]);
        for (line, sum) in &epoch.additions {
            let Ok(added) = sum.operand(2).parse::<i64>() else { continue };
            let text = format!("{} {}, {}, {};", sum.opcode, sum.operand(0), sum.operand(1), added - 1);
            self.add(*line, Defect::Epoch, &format!("epoch + {added} -> epoch + {}", added - 1), &text, &[]);
        }
        self.add(epoch.store.0, Defect::Epoch, "epoch not kept", "", &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    #[test]
    fn every_mutant_differs_from_its_kernel_in_its_line() {
        // Some of the modules have all rules.
        for (module, entry) in subjects(&REGISTRY).step_by(8).chain(subjects_of_products(&REGISTRY).take(1)) {
            let unchanged = EntryText::of(module.ptx, &entry).unwrap().with(|_, line, into| *into += &format!("{line}\n"));
            for mutant in derive(module.name.into(), module.name, module.ptx, &entry) {
                assert_ne!(mutant.ptx, unchanged, "{}", mutant.name);
                assert_ne!(mutant.original, mutant.mutated, "{}", mutant.name);
                assert!(unchanged.contains(&mutant.original), "{}", mutant.name);
            }
        }
    }

    /// If this fails, the mutants of a kernel that Triton compiled read `atom -> atom`, three of them alike.
    #[test]
    fn names_say_what_changes_wherever_order_and_scope_stand() {
        let short = |line: &str| short(&Instruction::of(line).unwrap());
        assert_eq!(short("@%p1 atom.global.sys.release.cas.b32 %r1, [%rd1], %r2, %r3;"), "atom.sys.release");
        assert_eq!(short("ld.acquire.sys.global.u32 %r1, [%rd1];"), "ld.acquire.sys");
        assert_eq!(short("bar.sync 0;"), "bar.sync");
        for example in ["all_gather_push", "all_gather_triton"] {
            let folder = format!("{}/../../examples/foreign/{example}", env!("CARGO_MANIFEST_DIR"));
            let text = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
            let foreign = Foreign::read(&text("spec.toml"), None).unwrap();
            let mut library = Library::default();
            foreign.samples().iter().for_each(|launch| library.replace(&launch.module, text("kernel.ptx")));
            let mutants = of_launches(foreign.name(), &foreign.samples(), &library);
            let names: std::collections::BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.name).collect();
            assert_eq!(names.len(), mutants.len(), "{example}: {names:#?}");
            let of_python = mutants.iter().filter(|mutant| mutant.source.as_ref().is_some_and(|source| source.contains(".py:"))).count();
            assert_eq!(of_python == mutants.len(), example.contains("triton"), "{example}: {of_python} of {}", mutants.len());
        }
    }

    /// If this fails, an edit elsewhere in a kernel makes other mutants equivalent than those that were argued to be.
    #[test]
    fn sites_are_what_they_were_after_an_edit_elsewhere() {
        let (module, entry) = subjects(&REGISTRY).next().unwrap();
        let ptx = module.ptx;
        let start = ptx.find(&format!(".entry {entry}(")).unwrap();
        let body = start + ptx[start..].find("\n{\n").unwrap() + 3;
        let edited = format!("{}mov.u32 %r1, 1;\n{}", &ptx[..body], &ptx[body..]);
        let of = |ptx: &str| {
            derive(module.name.into(), module.name, ptx, &entry)
                .into_iter()
                .map(|mutant| (mutant.site, mutant.name))
                .unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let ((sites, names), (same, moved)) = (of(ptx), of(&edited));
        assert_eq!(sites, same);
        assert!(sites.len() > 30 && names.iter().zip(&moved).all(|(name, moved)| name != moved));
    }
}
