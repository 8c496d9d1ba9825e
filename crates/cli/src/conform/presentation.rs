//! What people see of a run: progress, findings, what was waived.

use std::{collections::BTreeMap, thread, time::Duration};

use passmuster_harness::{
    conformance::{
        Case, Cause, Status, Verdict, counted,
        report::{Assumed, Record, Summary},
    },
    emulator::Interleaving,
};
use passmuster_plan::machine::Needed;

use crate::{
    foreign::RegisteredKernel,
    progress::{rounded, taken},
    worker::MachineKind,
};

/// Schedules, for people.
pub(super) fn named_schedules(schedules: &[Interleaving]) -> String {
    match schedules {
        [only] => format!("one schedule, {only}"),
        [first, .., last] => format!("{} schedules, {first} to {last}", schedules.len()),
        [] => "no schedule".into(),
    }
}

/// Lines of all that was found, unless all is asked for: with the table of a kernel and the verdict, a page.
const MOST_LINES: usize = 26;

/// Lines of the first cause, whatever else is on the page.
const LEAST_LINES: usize = 10;

/// Causes that are named in a line each, where there is no room for more.
const MOST_NAMED: usize = 5;

/// What was found, by cause: the smallest case of each in full while there is room, then a line for each. `above` lines are on the page already.
pub(super) fn by_cause<'v>(causes: &[Cause<'v>], command: &str, above: usize, smaller: impl Fn(&'v Verdict) -> Option<&'v str>) -> String {
    let (mut text, mut room, mut shown) = (String::new(), MOST_LINES.saturating_sub(above).max(LEAST_LINES), 0);
    for cause in causes {
        let told = cause.shown.explained(command, cause.elsewhere().as_deref(), smaller(cause.shown));
        let told = if shown == 0 { within(&told, room) } else { told };
        let lines = told.lines().count();
        if lines > room {
            break;
        }
        text += &told;
        (room, shown) = (room - lines, shown + 1);
    }
    let rest = &causes[shown..];
    for Cause { shown: verdict, also } in rest.iter().take(MOST_NAMED) {
        let said = verdict.findings.first().map_or(&verdict.reason, |finding| &finding.summary);
        let others = if also.is_empty() { String::new() } else { format!(" (also in {})", counted(also.len(), "case")) };
        text += &format!("{} {}: {said}{others}\n", verdict.status.name().to_uppercase(), verdict.case);
    }
    if rest.len() > MOST_NAMED {
        text += &format!("and {} more causes: --verbose shows every case\n", rest.len() - MOST_NAMED);
    }
    if !rest.is_empty() {
        text.push('\n');
    }
    text
}

/// A text of at most `most` lines: what is left out is in the middle, before the lines that say what to do.
fn within(text: &str, most: usize) -> String {
    const LAST: usize = 4;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.len() <= most {
        return text.to_owned();
    }
    let first = most - LAST - 1;
    let out = lines.len() - first - LAST;
    let left = format!("    and {out} more lines: --verbose shows them\n");
    [&lines[..first], &[&left], &lines[lines.len() - LAST..]].concat().concat()
}

/// Of an assumption, the places that are named unless all are asked for.
pub(super) const MOST_PLACES: usize = 3;

/// What the verdict of a run rests on besides the PTX ISA, in its last lines: each assumption about the hardware and each waiver, with how often it was needed and,
/// of assumptions, the source lines of the `most` accesses that need it most often.
pub(super) fn rests_on(record: &Record, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let is_foreign = record.selection.as_ref().is_some_and(|selection| selection.kernel.is_some());
    for Assumed { assumption, declared, times, cases, places, .. } in Assumed::by_assumption(&record.assumed) {
        let mut line = format!("rests on `{assumption}`, {} in {}", counted(times as usize, "time"), counted(cases, "case"));
        match declared {
            Some(reason) => line += &format!(" (declared: {reason})"),
            None if is_foreign => line += " (not declared)",
            None => {}
        }
        lines.push(line);
        for Needed { at, times } in places.iter().take(most) {
            lines.push(format!("  {at}: {}", counted(*times as usize, "time")));
        }
        if places.len() > most {
            lines.push(format!("  and {} (--list-waived names all)", counted(places.len() - most, "more place")));
        }
    }
    if record.assumed.iter().any(|assumed| assumed.declared.is_none()) {
        lines.push(
            "by the PTX ISA these are races, and Hopper is assumed to order them: `--profile ptx` reports them, `--fail-on-waived` exits 1"
                .into(),
        );
    }
    let mut waivers: BTreeMap<&str, usize> = BTreeMap::new();
    for waiver in record.cases.iter().filter_map(|verdict| verdict.waiver.as_deref()) {
        *waivers.entry(waiver).or_default() += 1;
    }
    lines.extend(waivers.iter().map(|(name, cases)| format!("waived by `{name}`: {} (--list-waived names all)", counted(*cases, "case"))));
    lines
}

/// What a case takes of one core on the emulator under one schedule, and on GPUs: near the means of the merge list's records. On the emulator it was 54 ms on
/// one machine of two cores and three times that on another.
const ON_EMULATOR: Duration = Duration::from_millis(95);
/// Without those of [`large_elements`].
const ON_GPUS: Duration = Duration::from_millis(16);

/// A case with this many elements in the calls of all its ranks takes longer on GPUs than others do. Below: seconds for one of them, by h200x2-large.
const LARGE: u64 = 1 << 32;
const OF_A_LARGE_ELEMENT: f64 = 0.5e-9;

/// Elements in the calls of all ranks of cases of 2^31 elements, which take 10 to 25 s each on GPUs.
fn large_elements(cases: &[Case]) -> u64 {
    cases.iter().map(Case::elements_of_calls).filter(|&elements| elements >= LARGE).sum()
}

/// What an element of a rank takes of one core there in a call of a kernel from elsewhere: the examples take half to twice of it, those that read all
/// ranks' inputs by every thread several times.
const OF_AN_ELEMENT: Duration = Duration::from_micros(1);
const LEAST_AND_MOST: [f64; 2] = [0.5, 3.0];

/// What is about to be judged of kernels from elsewhere, and about how long that takes on the emulator: what their cases take differs too much for a mean.
pub(super) fn announced_foreign(cases: &[Case], schedules: usize) -> String {
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get()).min(cases.len().max(1)) as f64;
    let elements = cases.iter().map(|case| case.elements_of_calls() as f64).sum::<f64>();
    let seconds = elements * OF_AN_ELEMENT.as_secs_f64() * schedules as f64 / threads;
    let [least, most] = LEAST_AND_MOST.map(|part| rounded(seconds * part));
    let time = if seconds * LEAST_AND_MOST[1] < 10.0 { "a few seconds".into() } else { format!("{least} to {most}") };
    format!("{} on the emulator{}: {time}", counted(cases.len(), "case"), under(schedules))
}

/// How the note starts that registers do not bound how many blocks are resident at once.
pub(super) const UNCOUNTED: &str = "registers not counted";

/// That note, if a launch of these kernels does not say how many registers its threads have.
pub(super) fn uncounted(known: &[RegisteredKernel]) -> Option<String> {
    let unknown: Vec<&str> = known
        .iter()
        .filter(|known| known.of.samples().iter().any(|launch| launch.registers.is_none()))
        .map(|known| known.of.name())
        .collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "{UNCOUNTED} for how many blocks of {} fit at once: give `registers` in the launch of the specification",
            unknown.join(", ")
        )
    })
}

/// How many schedules, where there are several.
fn under(schedules: usize) -> String {
    if schedules == 1 { String::new() } else { format!(" under {schedules} schedules each") }
}

/// What is about to be judged, and about how long that takes.
pub(super) fn announced(cases: &[Case], schedules: usize, on: MachineKind) -> String {
    let count = cases.len();
    let (under, machine) = match on {
        MachineKind::Cuda => (String::new(), "GPUs"),
        MachineKind::Emulator => (under(schedules), "the emulator"),
    };
    let seconds = match on {
        MachineKind::Cuda => count as f64 * ON_GPUS.as_secs_f64() + large_elements(cases) as f64 * OF_A_LARGE_ELEMENT,
        MachineKind::Emulator => {
            let threads = thread::available_parallelism().map_or(1, |threads| threads.get()).min(count.max(1));
            (count * schedules) as f64 * ON_EMULATOR.as_secs_f64() / threads as f64
        }
    };
    let time = if seconds < 10.0 { "a few seconds".into() } else { format!("about {}", rounded(seconds)) };
    format!("{} on {machine}{under}: {time}", counted(count, "case"))
}

/// The last line of a run, its verdict: `528 passed, 12 not supported, 0 findings in 28 s`.
pub(super) fn concluded(summary: &Summary, seconds: f64) -> String {
    let of = |status| summary.by_status.get(&status).copied().unwrap_or(0);
    let mut parts = vec![format!("{} passed", of(Status::Pass))];
    for (status, words) in [
        (Status::Waived, "waived"),
        (Status::NotSupported, "not supported"),
        (Status::NotRun, "not run"),
        (Status::Inconclusive, "inconclusive"),
    ] {
        parts.extend((of(status) > 0).then(|| format!("{} {words}", of(status))));
    }
    parts.extend((of(Status::InfraError) > 0).then(|| counted(of(Status::InfraError), "infrastructure error")));
    let found: Vec<String> = Status::ALL
        .into_iter()
        .filter(|&status| status.is_finding() && of(status) > 0)
        .map(|status| format!("{} {}", of(status), status.name().replace('_', " ")))
        .collect();
    let findings = counted(Status::ALL.into_iter().filter(|status| status.is_finding()).map(of).sum(), "finding");
    parts.push(if found.is_empty() { findings } else { format!("{findings} ({})", found.join(", ")) });
    format!("{} in {}", parts.join(", "), taken(seconds))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use passmuster_harness::conformance::{
        Finding, causes,
        report::{Source, packed},
    };
    use passmuster_plan::machine::MachineInfo;

    use super::*;

    #[test]
    fn the_last_line_is_the_verdict() {
        let of = |counts: &[(Status, usize)], seconds| {
            concluded(&Summary::of(counts.iter().flat_map(|&(status, count)| vec![status; count])), seconds)
        };
        assert_eq!(of(&[(Status::Pass, 528), (Status::NotSupported, 12)], 28.3), "528 passed, 12 not supported, 0 findings in 28 s");
        assert_eq!(of(&[(Status::Pass, 1), (Status::Fail, 1)], 0.42), "1 passed, 1 finding (1 fail) in 0.4 s");
        let all = [(Status::Waived, 2), (Status::Inconclusive, 3), (Status::InfraError, 1), (Status::Hang, 2), (Status::UnexpectedPass, 1)];
        assert_eq!(
            of(&all, 343.0),
            "0 passed, 2 waived, 3 inconclusive, 1 infrastructure error, 3 findings (2 hang, 1 unexpected pass) in 5 min 43 s"
        );
    }

    /// Cases of a committed record, and milliseconds that they took.
    fn taken_by(record: &str) -> (Vec<Case>, f64) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records");
        let record: Record = serde_json::from_str(&packed::committed(Path::new(folder), record).unwrap()).unwrap();
        let cases = record.cases.iter().map(|verdict| verdict.case.parse().unwrap()).collect();
        (cases, record.cases.iter().map(|verdict| verdict.milliseconds).sum())
    }

    /// If this fails, records have been taken afresh and what a run says about its time is far from what it takes.
    #[test]
    fn the_pace_is_that_of_the_records() {
        for (record, pace) in [("emulator-merge", ON_EMULATOR), ("h200x2-merge", ON_GPUS)] {
            let (cases, taken) = taken_by(record);
            let mean = taken / cases.len() as f64;
            let ratio = mean / (pace.as_secs_f64() * 1e3);
            // That of the emulator had coverage, and two threads a core.
            assert!((0.4..2.5).contains(&ratio), "{record}: {mean} ms a case");
        }
        let (cases, taken) = taken_by("h200x2-large");
        assert!(cases.iter().all(|case| large_elements(std::slice::from_ref(case)) > 0));
        let each = taken * 1e-3 / large_elements(&cases) as f64;
        assert!((0.6..1.67).contains(&(each / OF_A_LARGE_ELEMENT)), "{each} s an element");
    }

    /// If this fails, many causes or a long one fill more than a page, or what is left out goes unnoticed.
    #[test]
    fn causes_fit_on_a_page() {
        let verdict = |number: usize, lines: usize| {
            let finding = Finding {
                property: "reference".into(),
                summary: format!("{} wrong", ["a", "b", "c", "d", "e", "f", "g", "h", "i"][number]),
                details: "details\n".repeat(lines),
                ..Finding::default()
            };
            let mut verdict = Verdict::without_checks(format!("all_reduce/push:f32,sum:w=2:n={number}"), Status::Fail, "");
            verdict.findings = vec![finding];
            verdict
        };
        let long = [verdict(0, 100)];
        let text = by_cause(&causes(&long), "validate", 0, |_| None);
        assert_eq!(text.lines().count(), MOST_LINES, "{text}");
        assert!(text.contains(" more lines: --verbose shows them\n") && text.contains("  repro      validate --replay "), "{text}");
        let many: Vec<Verdict> = (0..9).map(|number| verdict(number, 9)).collect();
        let text = by_cause(&causes(&many), "validate", 0, |_| None);
        assert!(text.lines().count() <= MOST_LINES + MOST_NAMED + 2, "{text}");
        assert_eq!((text.matches("  repro ").count(), text.matches("FAIL ").count()), (2, 2 + MOST_NAMED), "{text}");
        assert!(text.contains("and 2 more causes: --verbose shows every case\n"), "{text}");
    }

    /// If this fails, a run passes and does not say that it does so by assumption, or does not say of which lines.
    #[test]
    fn verdict_names_what_it_rests_on() {
        let source = Source { commit: String::new(), dirty: false, ptx_hash: String::new(), modules: BTreeMap::new(), binary: None };
        let mut waived = Verdict::without_checks("c", Status::Waived, "nccl-bug: 3 of 4 elements wrong");
        waived.waiver = Some("nccl-bug".into());
        let mut record = Record::of_verdicts("validate", MachineInfo::default(), source, vec![waived]);
        let places = |count| (0..count).map(|line| Needed { at: format!("a.cu:{line}"), times: 9 - line }).collect();
        let assumed = |assumption: &str, declared: Option<&str>, count| Assumed {
            assumption: assumption.into(),
            declared: declared.map(str::to_owned),
            modules: Vec::new(),
            times: 12,
            cases: 2,
            places: places(count),
            races: Vec::new(),
        };
        record.assumed = vec![assumed("boundary", None, 4), assumed("vector", Some("16 bytes are written at once"), 1)];
        let lines = rests_on(&record, 2);
        let expected = [
            "rests on `boundary`, 12 times in 2 cases",
            "  a.cu:0: 9 times",
            "  a.cu:1: 8 times",
            "  and 2 more places (--list-waived names all)",
            "rests on `vector`, 12 times in 2 cases (declared: 16 bytes are written at once)",
            "  a.cu:0: 9 times",
            "by the PTX ISA these are races, and Hopper is assumed to order them: `--profile ptx` reports them, `--fail-on-waived` exits 1",
            "waived by `nccl-bug`: 1 case (--list-waived names all)",
        ];
        assert_eq!(lines, expected);
        assert_eq!(rests_on(&record, usize::MAX).len(), 9);
    }

    #[test]
    fn what_is_announced_is_a_number_and_a_size_of_time() {
        let [case, large] = ["all_reduce/two_shot:bf16,sum:w=2:n=1000", "all_reduce/two_shot:bf16,sum:w=2:n=2147483657"]
            .map(|id| id.parse::<Case>().unwrap());
        let mut cases = vec![case.clone(); 7000];
        assert_eq!(announced(&cases, 1, MachineKind::Cuda), "7000 cases on GPUs: about 2 min");
        cases.extend(vec![large; 15]);
        assert_eq!(announced(&cases, 1, MachineKind::Cuda), "7015 cases on GPUs: about 7 min");
        assert_eq!(announced(&[case], 6, MachineKind::Emulator), "1 case on the emulator under 6 schedules each: a few seconds");
    }

    /// If this fails, people who wait half a minute for the smoke list of their kernel were told that it takes a few seconds.
    #[test]
    fn what_is_announced_of_kernels_from_elsewhere_goes_by_what_they_move() {
        let announced = |ids: &[&str], schedules| {
            let cases: Vec<Case> = ids.iter().map(|id| id.parse().unwrap()).collect();
            announced_foreign(&cases, schedules)
        };
        // Any algorithm will do: 2^20 elements of two ranks once, and 1000 of eight in eight calls.
        let (large, small) = ("all_reduce/two_shot:f32,sum:w=2:calls=two_shot.1048576", "all_reduce/two_shot:f32,sum:w=8:n=1000");
        assert_eq!(announced(&[large], 1), "1 case on the emulator: a few seconds");
        assert_eq!(announced(&[large], 10), "1 case on the emulator under 10 schedules each: 15 s to 65 s");
        assert_eq!(announced(&[small], 4), "1 case on the emulator under 4 schedules each: a few seconds");
    }
}
