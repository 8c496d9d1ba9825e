//! Sentences from the records of conformance, mutants and the ledger.

use std::fmt::Write;

use anyhow::{Context, ensure};
use passmuster_harness::{
    conformance::{
        List,
        manifest::{RunsOn, required},
    },
    emulator::{Emulator, EmulatorOptions},
};
use serde_json::Value;

use super::{
    bits::{OnBoth, by_threads_and_processes, on_both},
    committed::{Committed, cases, number, paragraph},
    judge,
};

/// The merge list on two GPUs, which one process has; without the calls of 2^31 elements, which take more than half of the time.
pub(super) const ON_GPUS: &str = "h200x2-merge";

/// An earlier merge list on four GPUs, of which those of processes are parts.
pub(super) const BY_THREADS: &str = "h200x4-merge";

/// Those calls.
pub(super) const LARGE: &str = "h200x2-large";

/// The same list where each rank is a process, those calls, and who started the processes.
pub(super) const BY_PROCESSES: [([&str; 2], &str); 3] = [
    (["h200x2-processes-own", "h100x2-large-own"], "`--launcher own --processes 2`"),
    (["h200x2-processes-env", "h100x2-large-env"], "started by torchrun"),
    (["h200x2-processes-mpi", "h100x2-large-mpi"], "started by mpirun"),
];

/// The merge list on the emulator.
pub(super) const ON_THE_EMULATOR: &str = "emulator-merge";

const MUTANTS: &str = "emulator-mutants";

/// Faults, and mutants that people planted, on two GPUs.
const FAULTS: &str = "h200x2-faults";
const VALUES: &str = "h200x2-mutants-value";
const SYNCHRONISATION: &str = "h200x2-mutants-sync";

const LEDGER: &str = "ledger";

/// How many of which GPUs a record is of, with which driver and NCCL, and when it was taken.
pub(super) fn machine(record: &Value) -> String {
    let machine = &record["machine"];
    let mut notes = machine["notes"].as_array().into_iter().flatten();
    let driver = notes.find(|note| note[0] == "driver_version").and_then(|note| note[1].as_str()).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let date: String = text(&record["date"]).chars().take(10).collect();
    // None where no case needs it.
    let nccl =
        machine["nccl"].as_str().filter(|version| !version.is_empty()).map(|version| format!(", NCCL {version}")).unwrap_or_default();
    format!("{} x {}, driver {driver}{nccl}, {date}", machine["gpus"], text(&machine["gpu"]))
}

/// How many cases of a list came to something.
struct Counts {
    passed: u64,
    waived: u64,
    not_supported: u64,
    total: u64,
}

impl Counts {
    /// # Errors
    /// The record has findings: then what documents say of it is for a person to write.
    fn of(name: &str, record: &Value) -> anyhow::Result<Counts> {
        let of = |status: &str| record["summary"][status].as_u64().unwrap_or(0);
        let found = of("fail") + of("hang") + of("crash") + of("infra_error");
        ensure!(found == 0, "{name}.json has {found} findings, and documents say that it has none");
        Ok(Counts { passed: of("pass"), waived: of("waived"), not_supported: of("not_supported"), total: of("total") })
    }
}

/// A score as the notes of a record of mutants have it: `88 of 88 caught (100.0 %)`.
fn score(mutants: &Value, kind: &str) -> anyhow::Result<String> {
    let mut notes = mutants["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let score = notes.find_map(|note| note.strip_prefix(&format!("{kind}: ")));
    Ok(score.with_context(|| format!("{MUTANTS}.json has no score of {kind}"))?.to_owned())
}

/// What a list gave on GPUs, in a sentence.
fn merged(committed: &Committed, name: &str) -> anyhow::Result<String> {
    let merge = committed.value(name)?;
    let of = Counts::of(name, &merge)?;
    let nccl = merge["machine"]["nccl"].as_str().unwrap_or_default();
    Ok(format!(
        "({}): {} cases in {:.0} s; {} passed, {} are waived (bugs of NCCL {nccl}, fixtures/waivers.toml), {} not supported (multicast, NCCL has no path that \
         was asked for, or more ranks than GPUs), none failed.",
        machine(&merge),
        of.total,
        merge["seconds"].as_f64().with_context(|| format!("{name}.json does not say how long it took"))?,
        of.passed,
        of.waived,
        of.not_supported,
    ))
}

/// How `validate` ends on the smoke list, but for its time: by what the list must pass.
pub(super) fn smoke(committed: &Committed) -> anyhow::Result<String> {
    let registry = &committed.registry;
    let emulator = Emulator::new(EmulatorOptions::of(registry));
    let passed = required(registry, List::Smoke, RunsOn::Emulator(&emulator)).len();
    let all = List::Smoke.all_cases(registry, 0).len();
    Ok(format!("```\n{passed} passed, {} not supported, 0 findings\n```\n", all - passed))
}

/// Why a reader may believe a pass, in a few sentences.
pub(super) fn trust(committed: &Committed) -> anyhow::Result<String> {
    let (emulated, merge) = (committed.value(ON_THE_EMULATOR)?, committed.value(ON_GPUS)?);
    let (on_emulator, on_gpus) = (Counts::of(ON_THE_EMULATOR, &emulated)?, Counts::of(ON_GPUS, &merge)?);
    let (mutants, ledger) = (committed.value(MUTANTS)?, committed.value(LEDGER)?);
    let caught = |kind: &str| score(&mutants, kind).map(|score| score.split(" caught").next().unwrap_or_default().to_owned());
    Ok(paragraph(&format!(
        "On the emulator, {} of the {} cases of the merge list pass and none fail; {} are too large for it. On two GPUs, without the calls of 2^31 elements, {} of {} \
         pass and none fail; {} are known bugs of NCCL, and {} need something that the machine or NCCL lacks. {} deterministic cases ran on both, bit-identical. \
         Mutants: {} value mutants and {} synchronisation mutants are caught ([which are missed](docs/emulator/mutants.md#what-is-missed)). Of {} instruction forms \
         of the emulator, compared with an H200, {} differ. {}",
        on_emulator.passed,
        on_emulator.total,
        on_emulator.not_supported,
        on_gpus.passed,
        on_gpus.total,
        on_gpus.waived,
        on_gpus.not_supported,
        equal_on_both(committed)?.cases.len(),
        caught("value mutants")?,
        caught("synchronisation mutants")?,
        number(&ledger["summary"], "total")?,
        number(&ledger["summary"], "fail")?,
        judge::score(committed)?,
    )))
}

/// Cases that gave the same bits on the emulator and on GPUs.
///
/// # Errors
/// One did not.
fn equal_on_both(committed: &Committed) -> anyhow::Result<OnBoth> {
    let both = on_both(committed)?;
    ensure!(both.differ.is_empty(), "outputs of the emulator and of GPUs differ: {}", both.differ.join(", "));
    Ok(both)
}

/// What the lists gave on GPUs, in a few sentences.
pub(super) fn on_gpus(committed: &Committed) -> anyhow::Result<String> {
    let (faults, values, synchronisation) = (committed.value(FAULTS)?, committed.value(VALUES)?, committed.value(SYNCHRONISATION)?);
    let of = Counts::of(FAULTS, &faults)?;
    Ok(paragraph(&format!(
        "`test-gpu merge` without the calls of 2^31 elements {} `test-gpu faults` ({}): {} of {} faults are named correctly, {} are not supported (faults of one \
         rank's process, if one process has all ranks). Hand-written mutants (`mutants --machine cuda`, {}): {} of {} value mutants are caught, and within {} s \
         each, {} of {} synchronisation mutants.",
        merged(committed, ON_GPUS)?,
        machine(&faults),
        of.passed,
        of.total,
        of.not_supported,
        machine(&values),
        number(&values["summary"], "caught")?,
        number(&values["summary"], "total")?,
        number(&synchronisation["selection"], "budget")? / 1000,
        number(&synchronisation["summary"], "caught")?,
        number(&synchronisation["summary"], "total")?,
    )))
}

/// What the merge list gave where each rank is a process, in a few sentences.
pub(super) fn in_processes(committed: &Committed) -> anyhow::Result<String> {
    let counted = |name: &str| {
        let of = Counts::of(name, &*committed.value(name)?)?;
        anyhow::Ok(format!("{} of {} cases passed, {} not supported", of.passed, of.total, of.not_supported))
    };
    let processes: Vec<String> =
        BY_PROCESSES.into_iter().map(|([list, _], how)| Ok(format!("{how}: {}", counted(list)?))).collect::<anyhow::Result<_>>()?;
    let of_large = |name: &str| Counts::of(name, &*committed.value(name)?).map(|of| format!("{} of {}", of.passed, of.total));
    let large_in_processes: Vec<String> = BY_PROCESSES.into_iter().map(|([_, large], _)| of_large(large)).collect::<anyhow::Result<_>>()?;
    let (cases, differ) = by_threads_and_processes(committed)?;
    ensure!(differ.is_empty(), "outputs of ranks in threads and in processes differ: {}", differ.join(", "));
    Ok(paragraph(&format!(
        "`test-gpu merge` ({}), ranks in threads, several on a GPU where there are more of them than GPUs: {}. Of one and two ranks (`'*:*,*:w=1,2'`, {}), {}. None failed. \
         What processes do not support is multicast, what an algorithm does not have, or, by torchrun and mpirun, variables of NCCL that were not set. Of the \
         calls of 2^31 elements, which these lists leave out (`'*:*,*:n=1073741833,2147483657'`), passed by ranks in threads ({}) {}, and in processes, in the same \
         order ({}), {}. {cases} cases have outputs by all {}: they are equal to the bit.",
        machine(&*committed.value(BY_THREADS)?),
        counted(BY_THREADS)?,
        machine(&*committed.value(BY_PROCESSES[0].0[0])?),
        processes.join("; "),
        machine(&*committed.value(LARGE)?),
        of_large(LARGE)?,
        machine(&*committed.value(BY_PROCESSES[0].0[1])?),
        large_in_processes.join(", "),
        1 + BY_PROCESSES.len(),
    )))
}

/// What the merge list, the mutants and the ledger gave on the emulator.
pub(super) fn on_the_emulator(committed: &Committed) -> anyhow::Result<String> {
    let (mutants, ledger, emulated) = (committed.value(MUTANTS)?, committed.value(LEDGER)?, committed.value(ON_THE_EMULATOR)?);
    let (of, both) = (Counts::of(ON_THE_EMULATOR, &emulated)?, equal_on_both(committed)?);
    Ok(paragraph(&format!(
        "`validate merge` on the emulator (one schedule, profile hopper): {} of {} cases pass, {} are not supported (too large, or kernels with TMA), none fail. {} of \
         them also ran on these GPUs, bit-identical ({} more are not counted: NaNs of f64 may meet in them, and either payload may stay). `mutants`: value mutants \
         {}; synchronisation mutants {}. `ledger` ({}): {} instruction forms, {} differ.",
        of.passed,
        of.total,
        of.not_supported,
        both.cases.len(),
        both.open,
        score(&mutants, "value mutants")?,
        score(&mutants, "synchronisation mutants")?,
        ledger["machine"]["gpu"].as_str().unwrap_or_default(),
        number(&ledger["summary"], "total")?,
        number(&ledger["summary"], "fail")?,
    )))
}

/// A row for each kernel: what became of the mutants that were made of it by rule.
pub(super) fn mutants_by_rule(committed: &Committed) -> anyhow::Result<String> {
    let mutants = committed.value(MUTANTS)?;
    let made = cases(&mutants).filter(|case| case["defect"].is_string());
    let of_kernels: Vec<(&str, &Value)> = made.filter_map(|case| Some((case["mutant"].as_str()?.split_once("/L")?.0, case))).collect();
    let mut text =
        String::from("| kernel | mutants | do nothing wrong | of the others, caught | missed | not reached |\n|---|---|---|---|---|---|\n");
    for of_kernel in of_kernels.chunk_by(|(a, _), (b, _)| a == b) {
        let (all, count) = (of_kernel.len(), |is: fn(&Value) -> bool| of_kernel.iter().filter(|(_, case)| is(case)).count());
        let (caught, equivalent) = (count(|case| case["caught"] == true), count(|case| case["equivalent"].is_string()));
        let not_reached = count(|case| case["not_reached"] == true && !case["equivalent"].is_string());
        let missed = all - equivalent - caught - not_reached;
        writeln!(text, "| {} | {all} | {equivalent} | {caught} | {missed} | {not_reached} |", of_kernel[0].0)?;
    }
    Ok(text)
}

/// What two GPUs caught of bugs in the synchronisation of fused products.
pub(super) fn mutants_of_products(committed: &Committed) -> anyhow::Result<String> {
    let mutants = committed.value(SYNCHRONISATION)?;
    let of_products = cases(&mutants).filter_map(|case| Some((case["mutant"].as_str()?, case["caught"] == true)));
    let of_products: Vec<_> = of_products.filter(|(name, _)| name.starts_with("sync_product_")).collect();
    let missed: Vec<String> = of_products.iter().filter(|(_, caught)| !caught).map(|(name, _)| format!("`{name}`")).collect();
    Ok(paragraph(&format!(
        "Two GPUs caught {} of {} mutants of the fused products' own synchronisation. Missed: {}.",
        of_products.len() - missed.len(),
        of_products.len(),
        missed.join(", "),
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use passmuster_bench::Judged;

    use super::*;

    /// If this fails, the table of kernels leaves mutants out, or says of some that they are missed which the report does not.
    #[test]
    fn what_is_missed_of_kernels_is_what_the_report_has() {
        let committed = Committed::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")));
        let record = committed.value(MUTANTS).unwrap();
        let table = mutants_by_rule(&committed).unwrap();
        let of_column = |column: usize| -> usize {
            let cell = |row: &str| row.split('|').nth(column).unwrap().trim().parse::<usize>().unwrap();
            table.lines().skip(2).map(cell).sum()
        };
        let planted: Vec<&Value> = cases(&record).filter(|case| case["defect"].is_null()).collect();
        assert_eq!(of_column(2) + planted.len(), cases(&record).count());
        let missed = of_column(5) + planted.iter().filter(|case| case["caught"] != true).count();
        let report = Judged::read(&record.to_string()).unwrap().verdict;
        assert!(report.ends_with(&format!(", {missed} missed")), "{report}");
        assert_eq!((3..=6).map(of_column).sum::<usize>(), of_column(2));
    }
}
