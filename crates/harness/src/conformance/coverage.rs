//! What of kernels' code the cases of a run executed, as people and records have it ([`Coverage`] has it operation by operation).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use passmuster_emulator::execution::{Coverage, Marks, Site};
use passmuster_ptx as ptx;
use serde::{Deserialize, Serialize};

use super::report::table::aligned;

/// Stretches of code and waits that a text names of each module; a record has all.
const NAMED: usize = 5;

/// Modules up to which a text or a page names them: a record of more is of a whole list, and its file has the places.
pub const DETAILED: usize = 3;

/// What the columns of a table of modules are.
pub const HEADER: [&str; 5] = ["module", "kernels", "instructions", "branch ways", "waits, each side last"];

/// How names of the harness's own modules start.
const OWN: &str = "conformance/";

/// How many of all were covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How many were covered.
    pub covered: usize,
    /// How many there are.
    pub all: usize,
}

impl Share {
    /// How many were not covered.
    pub fn left(self) -> usize {
        self.all - self.covered
    }

    fn add(&mut self, covered: bool) {
        self.covered += usize::from(covered);
        self.all += 1;
    }

    fn merge(&mut self, other: Share) {
        self.covered += other.covered;
        self.all += other.all;
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.all {
            0 => f.write_str("-"),
            // Not rounded up: 100.0 % is all.
            all => write!(f, "{:.1} % of {all}", (1000 * self.covered / all) as f64 / 10.0),
        }
    }
}

/// A place in a module's PTX.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The module.
    pub module: String,
    /// The kernel or function.
    pub function: String,
    /// Line of the PTX, from 1.
    pub line: u32,
    /// `file:line` of the source, where the PTX tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{source} (PTX line {})", self.line),
            None => write!(f, "PTX line {} ({})", self.line, self.function),
        }
    }
}

/// Instructions one after the other that no lane executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The first of them.
    pub from: Place,
    /// Line of the last one.
    pub to_line: u32,
    /// How many there are.
    pub instructions: usize,
}

/// A branch that always went one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneWay {
    /// The branch.
    pub at: Place,
    /// Whether lanes always went where it leads; otherwise never.
    pub taken: bool,
}

/// A wait, and a write that ended it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The strong read that looks first.
    pub read: Place,
    /// The strong write by another block that ended it; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Place>,
    /// How often the word was there at the first look.
    pub reader_last: u64,
    /// How often it came after a look.
    pub writer_last: u64,
}

impl Wait {
    /// Whether each side came last at least once.
    pub fn is_covered(&self) -> bool {
        self.reader_last > 0 && self.writer_last > 0
    }
}

/// What of one module the cases executed. Entries that no case launched do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleCoverage {
    /// The module.
    pub module: String,
    /// Kernels that were launched.
    pub entries: Share,
    /// PTX instructions that some lane executed.
    pub instructions: Share,
    /// Ways of conditional branches that some lane went.
    pub ways: Share,
    /// Waits with the writes that ended them, where each side came last at least once.
    pub waits: Share,
    /// What no lane executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untouched: Vec<Stretch>,
    /// Branches that were executed, and went one way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_way: Vec<OneWay>,
    /// Every wait that was executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Wait>,
}

/// What of all modules was executed, in the order of their names.
pub fn modules(coverage: &Coverage) -> Vec<ModuleCoverage> {
    let (modules, edges, again) = (coverage.modules(), coverage.edges(), coverage.looks_again());
    let is_later: BTreeSet<Site> = again.values().flatten().copied().collect();
    let place = |site: Site| place(&modules[site.module], site.function, site.operation);
    let mut all: Vec<ModuleCoverage> = Vec::new();
    // The harness has kernels of its own: what they execute says nothing of those that are judged.
    for (number, marks) in modules.iter().enumerate().filter(|(_, marks)| !marks.name().starts_with(OWN)) {
        let mut of_module = of_marks(marks);
        for (function, operation) in reached(marks).filter(|&(function, at)| marks.was_executed(function, at)) {
            let read = Site { module: number, function, operation };
            // The loop of a wait may begin with its second look.
            let is_loop = |site: Site| site.module == number && marks.is_wait(site.function, site.operation);
            let is_wait = match again.get(&read) {
                Some(later) => is_loop(read) || later.iter().any(|&site| is_loop(site)),
                None => is_loop(read) && (!is_later.contains(&read) || edges.keys().any(|[_, by]| *by == read)),
            };
            if !is_wait {
                continue;
            }
            let ended = edges.iter().filter(|([_, by], _)| *by == read);
            let before = of_module.edges.len();
            of_module.edges.extend(ended.map(|([write, _], arrivals)| Wait {
                read: place(read),
                write: Some(place(*write)),
                reader_last: arrivals.reader_last,
                writer_last: arrivals.writer_last,
            }));
            if of_module.edges.len() == before {
                of_module.edges.push(Wait { read: place(read), write: None, reader_last: 0, writer_last: 0 });
            }
        }
        of_module.edges.iter().for_each(|wait| of_module.waits.add(wait.is_covered()));
        all.push(of_module);
    }
    all.sort_by(|a, b| a.module.cmp(&b.module));
    all
}

/// The operations that launches of the kernels that were launched may come to: function and index.
fn reached(marks: &Marks) -> impl Iterator<Item = (usize, usize)> {
    let module = marks.module();
    let functions = module.functions.iter().enumerate();
    let launched: Vec<usize> =
        functions.filter(|&(index, function)| function.entry && was_launched(marks, index)).map(|(index, _)| index).collect();
    let reachable: Vec<ptx::Reachable> = launched.into_iter().map(|entry| module.reachable(entry)).collect();
    let mut all = Vec::new();
    for (index, function) in module.functions.iter().enumerate() {
        all.extend((0..function.code.len()).filter(|&at| reachable.iter().any(|from| from.contains(index, at))).map(|at| (index, at)));
    }
    all.into_iter()
}

fn was_launched(marks: &Marks, entry: usize) -> bool {
    marks.was_executed(entry, 0) || marks.was_passed(entry, 0)
}

fn place(marks: &Marks, function: usize, operation: usize) -> Place {
    let module = marks.module();
    let function = &module.functions[function];
    let of = &function.code[operation];
    let source = of.source.and_then(|source| module.file(source.file).map(|_| module.line(source)));
    Place { module: marks.name().into(), function: function.name.clone(), line: of.at.line, source }
}

/// Whether an operation was executed, and of a conditional branch whether it was taken and whether it was passed.
fn ran(marks: &Marks, function: usize, at: usize) -> (bool, Option<[bool; 2]>) {
    let operation = &marks.module().functions[function].code[at];
    let is_branch = matches!(operation.instruction, ptx::Instruction::Branch { .. } | ptx::Instruction::BranchIndexed { .. });
    let (taken, passed) = (marks.was_executed(function, at), marks.was_passed(function, at));
    // A branch that no lane takes was executed all the same.
    (taken || is_branch && passed, (is_branch && operation.guard.is_some()).then_some([taken, passed]))
}

fn of_marks(marks: &Marks) -> ModuleCoverage {
    let mut entries = Share::default();
    for (index, _) in marks.module().functions.iter().enumerate().filter(|(_, function)| function.entry && !function.external) {
        entries.add(was_launched(marks, index));
    }
    let (mut instructions, mut ways) = (Share::default(), Share::default());
    let (mut untouched, mut one_way): (Vec<Stretch>, Vec<OneWay>) = (Vec::new(), Vec::new());
    let mut last = None;
    for (function, at) in reached(marks) {
        let operation = &marks.module().functions[function].code[at];
        let (is_executed, branch) = ran(marks, function, at);
        instructions.add(is_executed);
        if let Some([taken, passed]) = branch {
            ways.add(taken);
            ways.add(passed);
            if is_executed && taken != passed {
                one_way.push(OneWay { at: place(marks, function, at), taken });
            }
        }
        if is_executed {
            continue;
        }
        match untouched.last_mut().filter(|_| at > 0 && last == Some((function, at - 1))) {
            Some(stretch) => (stretch.to_line, stretch.instructions) = (operation.at.line, stretch.instructions + 1),
            None => untouched.push(Stretch { from: place(marks, function, at), to_line: operation.at.line, instructions: 1 }),
        }
        last = Some((function, at));
    }
    let waits = Share::default();
    ModuleCoverage { module: marks.name().into(), entries, instructions, ways, waits, untouched, one_way, edges: Vec::new() }
}

fn row(name: &str, [entries, instructions, ways, waits]: [Share; 4]) -> Vec<String> {
    vec![name.to_owned(), format!("{}/{}", entries.covered, entries.all), instructions.to_string(), ways.to_string(), waits.to_string()]
}

impl ModuleCoverage {
    fn shares(&self) -> [Share; 4] {
        [self.entries, self.instructions, self.ways, self.waits]
    }

    /// Its row of a table, under [`HEADER`].
    pub fn row(&self) -> Vec<String> {
        row(&self.module, self.shares())
    }
}

/// The table of all modules, and what of each was not covered: the longest stretches first.
pub fn text(modules: &[ModuleCoverage]) -> String {
    let mut sums = [Share::default(); 4];
    for module in modules {
        sums.iter_mut().zip(module.shares()).for_each(|(sum, share)| sum.merge(share));
    }
    let mut rows: Vec<Vec<String>> = modules.iter().map(ModuleCoverage::row).collect();
    if modules.len() > 1 {
        rows.push(row("all", sums));
    }
    let mut text = aligned(&HEADER, 1, &rows);
    if modules.len() > DETAILED {
        text += "\nwhat was not covered is in --json, and printed for up to three modules: a narrower query";
        return text;
    }
    for module in modules {
        missing(module, &mut text);
    }
    text
}

/// What of a module was not covered.
fn missing(module: &ModuleCoverage, text: &mut String) {
    let mut stretches: Vec<&Stretch> = module.untouched.iter().collect();
    stretches.sort_by_key(|stretch| std::cmp::Reverse(stretch.instructions));
    let mut lines: Vec<String> = stretches
        .iter()
        .map(|Stretch { from, to_line, instructions }| {
            let to = if *to_line == from.line { String::new() } else { format!(" to line {to_line}") };
            format!("not executed: {from}{to}, {instructions} instruction{}", if *instructions == 1 { "" } else { "s" })
        })
        .collect();
    named(&mut lines);
    let mut waits: Vec<String> = module.edges.iter().filter(|wait| !wait.is_covered()).map(wait_line).collect();
    named(&mut waits);
    for line in lines.into_iter().chain(waits) {
        let _ = write!(text, "\n{}: {line}", module.module);
    }
}

fn wait_line(wait: &Wait) -> String {
    let Wait { read, write, reader_last, .. } = wait;
    match write {
        None => format!("never ended by another block: the wait at {read}"),
        Some(write) => {
            let missing = if *reader_last == 0 { "reader" } else { "writer" };
            format!("never with the {missing} last: the wait at {read} for the write at {write}")
        }
    }
}

/// Leaves the first few lines, and how many more there are.
fn named(lines: &mut Vec<String>) {
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more, which --json lists"));
    }
}

/// Lines of a module's PTX, from 1, that some lane came to, whether or not its guard let it execute what is there.
pub fn lines_reached(coverage: &Coverage, module: &str) -> BTreeSet<u32> {
    let mut lines = BTreeSet::new();
    for marks in coverage.modules().iter().filter(|marks| marks.name() == module) {
        for (index, function) in marks.module().functions.iter().enumerate() {
            let came_to = |&(at, _): &(usize, _)| marks.was_executed(index, at) || marks.was_passed(index, at);
            lines.extend(function.code.iter().enumerate().filter(came_to).map(|(_, operation)| operation.at.line));
        }
    }
    lines
}

/// The coverage as an LCOV trace file, which genhtml, editors and CI services read. Lines are those of the source where the PTX tells them, else of
/// the PTX, whose path `path` says by the module's name. A line was hit once if some lane executed something of it.
pub fn lcov(coverage: &Coverage, path: impl Fn(&str) -> String) -> String {
    let mut files: BTreeMap<String, BTreeMap<u32, Line>> = BTreeMap::new();
    for marks in coverage.modules().into_iter().filter(|marks| !marks.name().starts_with(OWN)) {
        let module = marks.module();
        for (function, at) in reached(&marks) {
            let operation = &module.functions[function].code[at];
            let of_source = operation.source.and_then(|source| Some((module.file(source.file)?.to_owned(), source.line)));
            let (file, number) = of_source.unwrap_or_else(|| (path(marks.name()), operation.at.line));
            let line = files.entry(file).or_default().entry(number).or_default();
            let (is_executed, branch) = ran(&marks, function, at);
            line.hit |= is_executed;
            line.branches.extend(branch);
        }
    }
    let mut text = String::new();
    for (file, lines) in files {
        let _ = writeln!(text, "SF:{file}");
        for (number, Line { hit, branches }) in &lines {
            for (branch, ways) in branches.iter().enumerate() {
                for (way, went) in ways.iter().enumerate() {
                    let _ = writeln!(text, "BRDA:{number},{branch},{way},{}", if *hit { u8::from(*went).to_string() } else { "-".into() });
                }
            }
            let _ = writeln!(text, "DA:{number},{}", u8::from(*hit));
        }
        text.push_str("end_of_record\n");
    }
    text
}

#[derive(Default)]
struct Line {
    hit: bool,
    /// Of each branch, whether it was taken and whether it was passed.
    branches: Vec<[bool; 2]>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        REGISTRY,
        conformance::runner::{self, tests::settings},
        emulator::{Emulator, EmulatorOptions, Interleaving},
    };

    /// Runs each case under the first `schedules` schedules, and returns what they executed.
    fn covered(cases: &[&str], schedules: usize) -> Arc<Coverage> {
        let coverage = Arc::<Coverage>::default();
        let mut machine = Emulator::new(EmulatorOptions { coverage: Some(coverage.clone()), ..EmulatorOptions::of(&REGISTRY) });
        for case in cases {
            for schedule in 0..schedules {
                machine.set_interleaving(Interleaving::nth(0, schedule));
                let verdict = runner::judge(&case.parse().unwrap(), &mut machine, &settings());
                assert!(!verdict.status.is_finding(), "{verdict:?}");
            }
        }
        coverage
    }

    fn of<'m>(all: &'m [ModuleCoverage], module: &str) -> &'m ModuleCoverage {
        all.iter().find(|of| of.module == module).unwrap()
    }

    const ONE: &str = "all_reduce/one_shot:f32,sum:w=2:n=8";
    const MORE: [&str; 2] = [ONE, "all_reduce/one_shot:f32,sum:w=3:n=5000"];

    /// If this fails, a list of cases that leaves code out looks like one that does not.
    #[test]
    fn more_cases_cover_more() {
        let [one, more] = [modules(&covered(&[ONE], 1)), modules(&covered(&MORE, 4))];
        let [one, more] = [&one, &more].map(|all| of(all, "all_reduce/one_shot"));
        assert_eq!((one.entries.covered, one.instructions.all), (1, more.instructions.all));
        assert!(one.entries.all > 1 && one.instructions.covered > 0, "{one:?}");
        assert!(more.instructions.covered > one.instructions.covered && more.ways.covered > one.ways.covered, "{one:?} {more:?}");
        for module in [one, more] {
            let untouched: usize = module.untouched.iter().map(|stretch| stretch.instructions).sum();
            assert_eq!(untouched, module.instructions.all - module.instructions.covered);
        }
    }

    /// If this fails, data that is read is taken for a wait, or a wait for none.
    #[test]
    fn waits_have_their_writes() {
        let all = modules(&covered(&MORE, 2));
        let waits = &of(&all, "all_reduce/one_shot").edges;
        assert!(waits.iter().any(Wait::is_covered) && waits.iter().all(|wait| wait.write.is_some()), "{waits:?}");
        // The barrier before the data is read, and the one behind it.
        let places: BTreeSet<_> = waits.iter().map(|wait| (&wait.read.function, wait.read.line)).collect();
        assert_eq!(places.len(), 2 * of(&all, "all_reduce/one_shot").entries.covered, "{waits:?}");
    }

    /// If this fails, a wait that only ever found its word there counts as tested.
    #[test]
    fn each_side_must_come_last() {
        let place = |line| Place { module: "m".into(), function: "k".into(), line, source: None };
        let wait = |reader_last, writer_last| Wait { read: place(7), write: Some(place(3)), reader_last, writer_last };
        assert_eq!([wait(1, 1), wait(1, 0), wait(0, 1)].map(|wait| wait.is_covered()), [true, false, false]);
        assert_eq!(wait_line(&wait(4, 0)), "never with the writer last: the wait at PTX line 7 (k) for the write at PTX line 3 (k)");
        let alone = Wait { write: None, ..wait(0, 0) };
        assert_eq!(wait_line(&alone), "never ended by another block: the wait at PTX line 7 (k)");
    }

    #[test]
    fn texts_name_what_is_missing() {
        let text = text(&modules(&covered(&[ONE], 1)));
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("module"));
        assert!(lines.any(|line| line.starts_with("all_reduce/one_shot: not executed: PTX line ")), "{text}");
        assert!(!text.contains("conformance/"), "{text}");
        assert!(lines_reached(&covered(&[ONE], 1), "all_reduce/one_shot").len() > 20);
    }

    #[test]
    fn shares_are_not_rounded_up() {
        let share = |covered, all| Share { covered, all }.to_string();
        assert_eq!([share(0, 0), share(1999, 2000), share(7, 7)], ["-", "99.9 % of 2000", "100.0 % of 7"]);
    }

    /// If this fails, genhtml shows other lines than were executed.
    #[test]
    fn lcov_has_a_line_for_each_line_of_code() {
        let coverage = covered(&[ONE], 1);
        let text = lcov(&coverage, |module| format!("kernels/ptx/{module}.ptx"));
        assert!(text.starts_with("SF:kernels/ptx/all_reduce/one_shot.ptx\n") && text.ends_with("end_of_record\n"), "{text}");
        let lines = |hit: &str| -> BTreeSet<u32> {
            let of = |line: &str| line.strip_prefix("DA:")?.strip_suffix(hit)?.parse().ok();
            text.lines().filter_map(of).collect()
        };
        let (hit, missed) = (lines(",1"), lines(",0"));
        // Our PTX has one instruction a line.
        let all = modules(&coverage);
        let Share { covered, all } = of(&all, "all_reduce/one_shot").instructions;
        assert_eq!((hit.len(), missed.len()), (covered, all - covered));
        assert!(hit.is_subset(&lines_reached(&coverage, "all_reduce/one_shot")) && hit.is_disjoint(&missed));
        assert!(text.lines().any(|line| line.starts_with("BRDA:") && line.ends_with(",0")));
    }
}
