//! Manifests: what a run must have passed, so that cases which no longer run are noticed (fixtures/manifests/, `--require FILE`).
//!
//! ```toml
//! [[require]]
//! query = "all_reduce/multimem"
//! machine = "emulator"          # only there: left out, everywhere
//! passed = 60                   # at least this many cases of the query
//! worlds = { 2 = 10, 8 = 10 }   # at least this many of them at these world sizes
//!
//! [[require]]
//! query = "*:*,*:w=4"
//! machine = "cuda"
//! gpus = 4                      # only if the machine has this many
//! passed = 900
//! collectives = { all_gather = 100 }
//!
//! [[untouched]]
//! module = "all_gather/ll"
//! instructions = 12             # the most of its PTX that no case executes; 0 for a module without an entry
//! ```
//!
//! What is untouched is looked at where coverage was asked for (`--coverage`), and then every module of the run needs an entry, or has all of its code executed.
//!
//! Those of the lists are written by [`of_list`] and checked in: a case that a list loses is then missed here.

use std::{collections::BTreeMap, fmt::Write};

use serde::Deserialize;
use toml::Spanned;

use super::{Case, CaseId, List, Query, Status, coverage::ModuleCoverage, products::of_kernels, waivers};
use passmuster_plan::{
    algorithms::{Registry, Target},
    machine::{Machine, MachineInfo},
    modules::name_without_stalls,
    plan::{MAX_WORLD, Op, Script, Step},
};

/// What a run must have passed.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// What messages call it: the path of its file.
    name: String,
    requirements: Vec<Requirement>,
    /// Instructions at most, by module, that no case executes; none where the manifest has no such entry.
    untouched: Option<BTreeMap<String, usize>>,
}

/// A number of cases of a query, on some machines.
#[derive(Clone, Debug)]
struct Requirement {
    line: usize,
    text: String,
    query: Query,
    machine: Option<String>,
    gpus: usize,
    passed: usize,
    worlds: BTreeMap<u32, usize>,
    collectives: BTreeMap<String, usize>,
}

/// What is wrong with a manifest, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}:{column}: {problem}")]
pub struct ManifestError {
    name: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    require: Spanned<Vec<Spanned<Written>>>,
    untouched: Option<Vec<Untouched>>,
}

/// How many instructions of a module no case executes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Untouched {
    module: Spanned<String>,
    instructions: Spanned<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    query: Spanned<String>,
    machine: Option<Spanned<String>>,
    gpus: Option<Spanned<usize>>,
    passed: Spanned<usize>,
    #[serde(default)]
    worlds: BTreeMap<Spanned<String>, Spanned<usize>>,
    #[serde(default)]
    collectives: BTreeMap<Spanned<String>, Spanned<usize>>,
}

/// One case of a run, and what became of it.
pub struct Outcome<'a> {
    /// The case.
    pub case: &'a dyn CaseId,
    /// What reports call it.
    pub name: &'a str,
    /// What became of it.
    pub status: Status,
    /// Why it did not pass.
    pub reason: &'a str,
}

/// The kinds of machines.
const MACHINES: [&str; 2] = ["emulator", "cuda"];

impl Manifest {
    /// Reads a manifest, which messages call `name`.
    ///
    /// # Errors
    /// The first thing that is wrong with the text, with its line and column.
    pub fn read(name: &str, text: &str) -> Result<Manifest, ManifestError> {
        let refused = |at: usize, problem: String| {
            let before = text.get(..at).unwrap_or(text);
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            ManifestError { name: name.into(), line: before.matches('\n').count() + 1, column, problem }
        };
        let document: Document = toml::from_str(text).map_err(|error| {
            let problem = error.message().trim().replace('\n', ", ");
            refused(error.span().map_or(0, |span| span.start), problem)
        })?;
        if document.require.get_ref().is_empty() {
            return Err(refused(document.require.span().start, "nothing is required: expected a [[require]]".into()));
        }
        let mut requirements = Vec::new();
        for written in document.require.into_inner() {
            let line = refused(written.span().start, String::new()).line;
            let Written { query, machine, gpus, passed, worlds, collectives } = written.into_inner();
            let at_least_one = |count: &Spanned<usize>, what: &str| match *count.get_ref() {
                0 => Err(refused(count.span().start, format!("{what} = 0: at least 0 always holds, expected 1 or more"))),
                count => Ok(count),
            };
            if let Some(machine) = machine.as_ref().filter(|machine| !MACHINES.contains(&machine.get_ref().as_str())) {
                let problem = format!("unknown machine `{}`: expected one of {}", machine.get_ref(), MACHINES.join(", "));
                return Err(refused(machine.span().start, problem));
            }
            let of_machine = machine.as_ref().map(|machine| machine.get_ref().as_str());
            if let Some(gpus) = gpus.as_ref().filter(|_| of_machine != Some("cuda")) {
                return Err(refused(gpus.span().start, "gpus: only where machine is \"cuda\"".into()));
            }
            let world = |(key, count): (&Spanned<String>, &Spanned<usize>)| match key.get_ref().parse::<u32>() {
                Ok(world) => Ok((world, at_least_one(count, key.get_ref())?)),
                Err(_) => Err(refused(key.span().start, format!("worlds: `{}` is not a number of ranks", key.get_ref()))),
            };
            requirements.push(Requirement {
                line,
                query: Query::new(query.get_ref()).map_err(|problem| refused(query.span().start, problem))?,
                text: query.into_inner(),
                gpus: gpus.as_ref().map_or(Ok(0), |gpus| at_least_one(gpus, "gpus"))?,
                machine: machine.map(Spanned::into_inner),
                passed: at_least_one(&passed, "passed")?,
                worlds: worlds.iter().map(world).collect::<Result<_, _>>()?,
                collectives: collectives
                    .iter()
                    .map(|(key, count)| Ok((key.get_ref().clone(), at_least_one(count, key.get_ref())?)))
                    .collect::<Result<_, _>>()?,
            });
        }
        let mut untouched = BTreeMap::new();
        for Untouched { module, instructions } in document.untouched.iter().flatten() {
            if *instructions.get_ref() == 0 {
                return Err(refused(instructions.span().start, "instructions = 0: leave the entry out".into()));
            }
            if untouched.insert(module.get_ref().clone(), *instructions.get_ref()).is_some() {
                return Err(refused(module.span().start, format!("module `{}` is there twice", module.get_ref())));
            }
        }
        Ok(Manifest { name: name.into(), requirements, untouched: document.untouched.map(|_| untouched) })
    }

    /// What a run on a machine lacks: a line for each count that was not reached, with what became of the cases instead. None where it lacks nothing.
    ///
    /// # Errors
    /// Where the manifest requires nothing of such a machine: what cannot fail has not been checked.
    pub fn unmet(&self, machine: &MachineInfo, run: &[Outcome<'_>]) -> Result<Vec<String>, String> {
        let of_machine = |requirement: &&Requirement| {
            requirement.machine.as_ref().is_none_or(|kind| *kind == machine.kind) && requirement.gpus <= machine.gpus
        };
        let requirements: Vec<&Requirement> = self.requirements.iter().filter(of_machine).collect();
        if requirements.is_empty() {
            return Err(format!("{} requires nothing of this machine ({}, {} devices)", self.name, machine.kind, machine.gpus));
        }
        Ok(requirements.into_iter().flat_map(|requirement| self.lacking(requirement, run)).collect())
    }

    /// The modules of which a run executed less than the manifest says, a line for each; none if the manifest says nothing of that.
    pub fn untouched(&self, coverage: &[ModuleCoverage]) -> Vec<String> {
        let Some(known) = &self.untouched else { return Vec::new() };
        let lacks = |module: &ModuleCoverage| {
            let (left, most) = (module.instructions.left(), known.get(&module.module).copied().unwrap_or(0));
            let first = || module.untouched.first().map(|stretch| format!(", the first at PTX {}", stretch.from.line)).unwrap_or_default();
            (left > most).then(|| {
                format!("{}: no case executes {left} instructions of {}, and {most} are allowed{}", self.name, module.module, first())
            })
        };
        own(coverage).filter_map(lacks).collect()
    }

    fn lacking(
        &self,
        Requirement { line, text, query, passed, worlds, collectives, .. }: &Requirement,
        run: &[Outcome<'_>],
    ) -> Vec<String> {
        let all: Vec<&Outcome<'_>> = run.iter().filter(|outcome| query.matches(outcome.case)).collect();
        let lacks = |of: String, least: usize, part: Vec<&Outcome<'_>>| {
            let passed = part.iter().filter(|outcome| outcome.status == Status::Pass).count();
            (passed < least).then(|| format!("{}:{line}: `{text}`{of}: {passed} passed, {least} must; {}", self.name, instead(&part)))
        };
        let world = |outcome: &Outcome<'_>| outcome.case.fields().into_iter().find(|(key, _)| *key == "w").map(|(_, world)| world);
        let in_world = |of: u32| all.iter().copied().filter(|outcome| world(outcome) == Some(of.to_string())).collect();
        let of_collective = |of: &str| all.iter().copied().filter(|outcome| outcome.case.head()[0] == of).collect();
        let by_world = worlds.iter().filter_map(|(&of, &least)| lacks(format!(" at w={of}"), least, in_world(of)));
        let by_collective = collectives.iter().filter_map(|(of, &least)| lacks(format!(" of {of}"), least, of_collective(of)));
        lacks(String::new(), *passed, all.clone()).into_iter().chain(by_world).chain(by_collective).collect()
    }
}

/// What was executed of modules as they are stored: those with stalls are launched by few cases, and have the same code beside them.
fn own(coverage: &[ModuleCoverage]) -> impl Iterator<Item = &ModuleCoverage> {
    coverage.iter().filter(|module| name_without_stalls(&module.module) == module.module)
}

/// What became of the cases that did not pass: of each status how many, and the first.
fn instead(part: &[&Outcome<'_>]) -> String {
    let others = |status: Status| part.iter().filter(move |outcome| outcome.status == status);
    let statuses = Status::ALL.into_iter().filter(|&status| status != Status::Pass && others(status).count() > 0);
    let told: Vec<String> = statuses
        .map(|status| {
            let first = others(status).next().map(|outcome| format!("{}: {}", outcome.name, outcome.reason)).unwrap_or_default();
            format!("{} {status}, as {}", others(status).count(), first.trim_end_matches(": "))
        })
        .collect();
    if told.is_empty() { format!("the run had {} such cases", part.len()) } else { format!("of {}: {}", part.len(), told.join("; ")) }
}

/// Where a list is to run.
#[derive(Clone, Copy)]
pub enum RunsOn<'m> {
    /// On the emulator.
    Emulator(&'m dyn Machine),
    /// On a machine with this many GPUs, all of which reach each other.
    Gpus(usize),
}

/// The cases of a list that must pass where it runs.
pub fn required(registry: &Registry, list: List, place: RunsOn<'_>) -> Vec<Case> {
    let waived: Vec<Query> = waivers::built_in().iter().filter_map(|waiver| Query::new(&waiver.query).ok()).collect();
    list.all_cases(registry, 0).into_iter().filter(|case| place.runs(registry, case, &waived)).collect()
}

/// The manifest of a list: for each algorithm as many cases as must pass where the list runs, also by world size. What depends on more than the number of
/// GPUs is not required: multicast, NCCL's own decision for or against its symmetric kernels, what is waived, and products whose ranks share a GPU.
///
/// `coverage` is what a run of the list executed: no later one may execute less.
pub fn of_list(registry: &Registry, list: List, place: RunsOn<'_>, coverage: &[ModuleCoverage]) -> String {
    let mut algorithms: BTreeMap<String, BTreeMap<u32, usize>> = BTreeMap::new();
    for case in required(registry, list, place) {
        let [of, algorithm, ..] = case.head();
        *algorithms.entry(format!("{of}/{algorithm}")).or_default().entry(case.world()).or_default() += 1;
    }
    let (machine, gpus, on) = match place {
        RunsOn::Emulator(_) => ("emulator", String::new(), "the emulator".to_owned()),
        RunsOn::Gpus(gpus) => ("cuda", format!("gpus = {gpus}\n"), format!("{gpus} GPUs")),
    };
    let mut text = format!("# What the {} list must have passed on {on}. Written by `cargo xtask records --manifests`.\n", list.name());
    for (query, worlds) in algorithms {
        let passed: usize = worlds.values().sum();
        let worlds: Vec<String> = worlds.iter().map(|(world, count)| format!("{world} = {count}")).collect();
        let worlds = worlds.join(", ");
        write!(text, "\n[[require]]\nquery = \"{query}\"\nmachine = \"{machine}\"\n{gpus}passed = {passed}\nworlds = {{ {worlds} }}\n")
            .expect("a string takes any text");
    }
    for module in own(coverage).filter(|module| module.instructions.left() > 0) {
        write!(text, "\n[[untouched]]\nmodule = \"{}\"\ninstructions = {}\n", module.module, module.instructions.left())
            .expect("a string takes any text");
    }
    text
}

/// Of ranks that share a GPU, the most on one, and the most streams of theirs: what crates/cuda/src/machine/facts.rs lets make progress together.
const MOST_SHARING: usize = 8;

impl RunsOn<'_> {
    fn runs(self, registry: &Registry, case: &Case, waived: &[Query]) -> bool {
        let Ok((_, script)) = case.prepared(registry, Target::default().waiting_blocks) else { return false };
        match self {
            RunsOn::Emulator(machine) => {
                let multiplications = if let Case::Product(product) = case { of_kernels(product, &script) } else { 0 };
                machine.check_multiplications(multiplications).is_ok()
                    && case.elements().is_none_or(|elements| machine.check_budget(elements).is_ok())
            }
            RunsOn::Gpus(gpus) => {
                let needs = Needs::of(&script);
                let sharing = (case.world() as usize).div_ceil(gpus);
                // Each node is at least a process.
                let on_nodes = case.fields().iter().any(|(key, _)| *key == "nodes");
                let may_share = !needs.nccl && matches!(case, Case::Collective(_)) && sharing * needs.streams <= MOST_SHARING;
                !needs.multicast
                    && case.world() as usize <= MAX_WORLD
                    && !on_nodes
                    && (sharing == 1 || may_share)
                    && !case.fields().iter().any(|(key, value)| *key == "peer" && value.starts_with("nccl_symmetric"))
                    && !case.head()[1].contains("nccl_symmetric")
                    && !waived.iter().any(|query| query.matches(case))
            }
        }
    }
}

/// What a script needs of a machine.
struct Needs {
    multicast: bool,
    nccl: bool,
    /// Of each rank.
    streams: usize,
}

impl Needs {
    fn of(script: &Script) -> Needs {
        let ops = || script.plans().flat_map(|plan| (0..plan.world()).flat_map(|rank| plan.operations(rank)));
        let stream = |step: &Step| if let Step::Enqueue { stream, .. } | Step::Replay { stream, .. } = step { Some(*stream) } else { None };
        let last = script.steps.iter().filter_map(stream).max().unwrap_or(0);
        let sides = ops().filter_map(|op| if let Op::Fork { stream, .. } = op { Some(*stream) } else { None }).max().unwrap_or(0);
        Needs {
            multicast: ops().any(|op| matches!(op, Op::Launch(launch) if launch.uses_multicast())),
            nccl: ops().any(|op| matches!(op, Op::Nccl(_))),
            streams: (last + 1) * (1 + sides),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::coverage::{Place, Share, Stretch};
    use rstest::rstest;

    const TEXT: &str = "[[require]]\nquery = \"all_reduce/multimem\"\nmachine = \"emulator\"\npassed = 2\nworlds = { 2 = 1, 4 = 1 }\n\n\
                        [[require]]\nquery = \"*:*,*:w=4\"\nmachine = \"cuda\"\ngpus = 4\npassed = 3\ncollectives = { reduce = 1 }\n";

    fn unmet(kind: &str, gpus: usize, run: &[(&str, Status, &str)]) -> Result<Vec<String>, String> {
        let cases: Vec<Case> = run.iter().map(|(id, ..)| id.parse().unwrap()).collect();
        let outcome = |(case, &(name, status, reason))| Outcome { case, name, status, reason };
        let outcomes: Vec<Outcome<'_>> = cases.iter().map(|case| case as &dyn CaseId).zip(run).map(outcome).collect();
        Manifest::read("m.toml", TEXT).unwrap().unmet(&MachineInfo { kind: kind.into(), gpus, ..MachineInfo::default() }, &outcomes)
    }

    /// If this fails, a run passes in which what had to run was skipped, or nobody learns why.
    #[test]
    fn too_few_that_passed_are_named_with_what_became_of_them() {
        let (two, four) = ("all_reduce/multimem:bf16,sum:w=2:n=8", "all_reduce/multimem:bf16,sum:w=4:n=8");
        let other = "all_reduce/push:bf16,sum:w=4:n=8";
        assert_eq!(unmet("emulator", 0, &[(two, Status::Pass, ""), (four, Status::Pass, "")]), Ok(vec![]));
        let skipped =
            unmet("emulator", 0, &[(two, Status::Pass, ""), (four, Status::NotSupported, "too large"), (other, Status::Pass, "")]);
        let instead = format!("1 not_supported, as {four}: too large");
        assert_eq!(
            skipped,
            Ok(vec![
                format!("m.toml:1: `all_reduce/multimem`: 1 passed, 2 must; of 2: {instead}"),
                format!("m.toml:1: `all_reduce/multimem` at w=4: 0 passed, 1 must; of 1: {instead}"),
            ])
        );
        let gone = unmet("emulator", 0, &[(two, Status::Pass, "")]).unwrap();
        assert_eq!(gone[1], "m.toml:1: `all_reduce/multimem` at w=4: 0 passed, 1 must; the run had 0 such cases");
        let on_gpus = unmet("cuda", 8, &[(other, Status::Pass, ""), (four, Status::Hang, "late"), (four, Status::Inconclusive, "")]);
        assert_eq!(
            on_gpus,
            Ok(vec![
                format!("m.toml:7: `*:*,*:w=4`: 1 passed, 3 must; of 3: 1 hang, as {four}: late; 1 inconclusive, as {four}"),
                "m.toml:7: `*:*,*:w=4` of reduce: 0 passed, 1 must; the run had 0 such cases".into(),
            ])
        );
    }

    fn executed(module: &str, covered: usize) -> ModuleCoverage {
        let place = |line| Place { module: module.into(), function: "f".into(), line, source: None };
        ModuleCoverage {
            module: module.into(),
            entries: Share::default(),
            instructions: Share { covered, all: 10 },
            ways: Share::default(),
            waits: Share::default(),
            untouched: vec![Stretch { from: place(31), to_line: 33, instructions: 10 - covered }],
            one_way: Vec::new(),
            edges: Vec::new(),
        }
    }

    /// If this fails, code that no case executes comes into a kernel and nobody sees it.
    #[test]
    fn code_that_no_case_executes_is_named() {
        let text = format!("{TEXT}\n[[untouched]]\nmodule = \"a/known\"\ninstructions = 3\n");
        let manifest = Manifest::read("m.toml", &text).unwrap();
        assert_eq!(manifest.untouched(&[executed("a/known", 7), executed("a/whole", 10), executed("a/known.stalls", 1)]), [""; 0]);
        assert_eq!(
            manifest.untouched(&[executed("a/known", 6), executed("a/new", 8)]),
            [
                "m.toml: no case executes 4 instructions of a/known, and 3 are allowed, the first at PTX 31",
                "m.toml: no case executes 2 instructions of a/new, and 0 are allowed, the first at PTX 31",
            ]
        );
        assert_eq!(Manifest::read("m.toml", TEXT).unwrap().untouched(&[executed("a/new", 8)]), [""; 0]);
    }

    #[test]
    fn a_manifest_that_requires_nothing_of_a_machine_is_refused() {
        assert_eq!(unmet("cuda", 2, &[]), Err("m.toml requires nothing of this machine (cuda, 2 devices)".into()));
    }

    #[rstest]
    #[case("", "m.toml:1:1: missing field `require`")]
    #[case("require = []", "m.toml:1:11: nothing is required: expected a [[require]]")]
    #[case("[[require]]\nquery = \"*\"\npassed = 0", "m.toml:3:10: passed = 0: at least 0 always holds, expected 1 or more")]
    #[case("[[require]]\nquery = \"*:*,*:v=3\"\npassed = 1", "m.toml:2:9: unknown key `v` in query `*:*,*:v=3`: expected one of w, n, ")]
    #[case(
        "[[require]]\nquery = \"*\"\nmachine = \"gpu\"\npassed = 1",
        "m.toml:3:11: unknown machine `gpu`: expected one of emulator, cuda"
    )]
    #[case("[[require]]\nquery = \"*\"\ngpus = 2\npassed = 1", "m.toml:3:8: gpus: only where machine is \"cuda\"")]
    #[case("[[require]]\nquery = \"*\"\npassed = 1\nworlds = { x = 1 }", "m.toml:4:12: worlds: `x` is not a number of ranks")]
    #[case("[[require]]\nquery = \"*\"\npassed = 1\nskipped = 1", "m.toml:4:1: unknown field `skipped`")]
    #[case(
        "[[require]]\nquery = \"*\"\npassed = 1\n[[untouched]]\nmodule = \"a\"\ninstructions = 0",
        "m.toml:6:16: instructions = 0: leave the entry out"
    )]
    #[case("[[require]]\nquery = 3\npassed = 1", "m.toml:2:9: invalid type: integer `3`, expected a string")]
    fn errors_say_where(#[case] text: &str, #[case] start: &str) {
        let error = Manifest::read("m.toml", text).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
}
