//! The specification as the cause to look for first: a kernel of which nothing works more often gets wrong arguments than has a bug.

use passmuster_harness::conformance::{Case, CaseId, Finding, Status, Verdict, counted, report::Record};
use passmuster_plan::{algorithms::Target, plan::Launch};
use passmuster_ptx as ptx;

use super::Run;
use crate::{foreign::RegisteredKernel, inspect};

/// Cases that must have run. A few may fail for any reason.
const LEAST_CASES: usize = 4;

/// Of the cases that ran, the tenths that must fail so.
const TENTHS: usize = 9;

/// Arguments that are shown.
const MOST_ARGUMENTS: usize = 8;

/// Lines that say DECIDE that are shown.
const MOST_DECISIONS: usize = 3;

/// How a case fails if the kernel gets wrong arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    Hangs,
    Crashes,
    /// They use memory as they must not.
    Memory,
    /// No element of a call is right.
    AllWrong,
}

impl Failure {
    fn of(verdict: &Verdict) -> Option<Failure> {
        match verdict.status {
            Status::Hang => Some(Failure::Hangs),
            Status::Crash => Some(Failure::Crashes),
            Status::Fail if memory(verdict).is_some() => Some(Failure::Memory),
            Status::Fail => verdict.findings.iter().any(|finding| finding.all_wrong).then_some(Failure::AllWrong),
            _ => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Failure::Hangs => "hang",
            Failure::Crashes => "crash",
            Failure::Memory => "use memory as they must not",
            Failure::AllWrong => "have not one element right",
        }
    }
}

/// What was found of the use of memory.
fn memory(verdict: &Verdict) -> Option<&Finding> {
    verdict.findings.iter().find(|finding| finding.property == "memory")
}

/// Why to check the specification of a kernel from elsewhere before the kernel, and what it passes; nothing if some of its cases work.
pub(super) fn suspicion(record: &Record, run: &Run) -> Vec<String> {
    run.known.iter().flat_map(|known| of_kernel(record, run, known)).collect()
}

fn of_kernel(record: &Record, run: &Run, known: &RegisteredKernel) -> Vec<String> {
    let ran = record.cases.iter().filter(|verdict| !matches!(verdict.status, Status::NotSupported | Status::NotRun | Status::InfraError));
    let of_kernel = ran.filter_map(|verdict| Some((verdict.case.parse::<Case>().ok()?, verdict)));
    // Without elements there is nothing that a wrong argument spoils.
    let judged: Vec<(Case, &Verdict)> =
        of_kernel.filter(|(case, _)| case.head()[1] == known.of.name() && case.elements_of_calls() > 0).collect();
    let failed: Vec<(&Case, Failure, &Verdict)> =
        judged.iter().filter_map(|(case, verdict)| Some((case, Failure::of(verdict)?, *verdict))).collect();
    if judged.len() < LEAST_CASES || failed.len() * 10 < judged.len() * TENTHS {
        return Vec::new();
    }
    let mut ways: Vec<Failure> = failed.iter().map(|&(_, failure, _)| failure).collect();
    ways.sort_unstable();
    ways.dedup();
    let ways: Vec<&str> = ways.into_iter().map(Failure::words).collect();
    let how_many = if failed.len() == judged.len() { "all".into() } else { format!("{} of", failed.len()) };
    let mut lines = vec![format!(
        "CHECK THE SPECIFICATION FIRST: {how_many} {} of {} that move data {}",
        counted(judged.len(), "case"),
        known.of.name(),
        ways.join(" or ")
    )];
    let smallest = failed.iter().min_by_key(|(case, ..)| (case.elements_of_calls(), case.world()));
    lines.extend(smallest.into_iter().flat_map(|(_, _, verdict)| in_short(verdict)).map(|line| format!("  {line}")));
    lines.extend(undecided(known));
    lines.extend(smallest.into_iter().flat_map(|(case, ..)| passed(case, run, known)));
    lines.push("  inspect lists the parameters; docs/reference/specification.md has what an argument may be".into());
    lines
}

/// What was found, in short: of a hang its cycle and its first wait, without the others.
fn in_short(verdict: &Verdict) -> Vec<&str> {
    let Some(finding) = memory(verdict).or(verdict.findings.first()) else {
        return vec![&verdict.reason];
    };
    match verdict.status {
        // One line a rank that waits, after that of the cycle if there is one.
        Status::Hang if !finding.details.is_empty() => finding.details.lines().take(2).collect(),
        _ => vec![&finding.summary],
    }
}

/// What the first launch of the kernel in a case passes on rank 0, parameter by parameter.
fn passed(case: &Case, run: &Run, known: &RegisteredKernel) -> Vec<String> {
    let launches = case.launches(&run.registry, Target::default().waiting_blocks, 0);
    let Some(launch) = launches.into_iter().find(|launch| known.modules.contains_key(&launch.module)) else { return Vec::new() };
    let Some(module) = run.library.ptx(&launch.module).ok().and_then(|text| ptx::parse_tolerant(text).ok()) else { return Vec::new() };
    let Some(kernel) = module.functions.iter().find(|function| function.name == launch.entry) else { return Vec::new() };
    let Launch { entry, grid, block, dynamic_shared, args, .. } = &launch;
    let mut lines = vec![
        "  check what it passes against the kernel's parameters, and their order:".into(),
        format!("    {entry}<<<grid {grid}, block {block}, shared {dynamic_shared}>>> on rank 0 of {case}"),
    ];
    let rows: Vec<[String; 3]> = kernel
        .inputs
        .iter()
        .zip(args)
        .map(|(parameter, arg)| {
            let name = parameter.name.strip_prefix(&*kernel.name).unwrap_or(&parameter.name).trim_start_matches('_');
            [name.to_owned(), inspect::type_of(parameter), arg.to_string()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1)];
    let shown = rows.iter().take(MOST_ARGUMENTS);
    lines.extend(shown.map(|[name, ty, arg]| format!("    {name:<0$}  {ty:<1$}  {arg}", widths[0], widths[1])));
    if rows.len() > MOST_ARGUMENTS {
        lines.push(format!("    and {} (--plan shows them)", counted(rows.len() - MOST_ARGUMENTS, "more argument")));
    }
    lines
}

/// Lines of the specification that a draft left to its reader, and that still say so.
pub(super) fn undecided(known: &RegisteredKernel) -> Vec<String> {
    let of = &known.undecided;
    let mut lines: Vec<String> = of.iter().take(MOST_DECISIONS).map(|line| format!("  left to decide: {line}")).collect();
    if of.len() > MOST_DECISIONS {
        lines.push(format!("  and {} that say DECIDE", counted(of.len() - MOST_DECISIONS, "more line")));
    }
    lines
}
