//! Cases that ran on the emulator and on GPUs: whether their outputs are equal to the bit.

use std::collections::BTreeMap;

use passmuster_harness::conformance::{
    Verdict,
    report::{Record, provenance::Freshness},
};

use super::{
    committed::Committed,
    verdicts::{BY_PROCESSES, BY_THREADS, LARGE, ON_GPUS, ON_THE_EMULATOR},
};

/// Cases that ran on both.
pub(super) struct OnBoth {
    /// Those whose outputs can be one thing only.
    pub(super) cases: Vec<String>,
    /// Those of them whose outputs differ.
    pub(super) differ: Vec<String>,
    /// How many more there are that [keep either payload](keeps_either_payload).
    pub(super) open: usize,
}

/// Whether bits of a case may be either of two: where two NaNs of f64 meet in an entry `any`, GPUs have kept the payload of the other operand than the one
/// that PTX has last: in what push, two_shot_push and Lamport packs reduce, and in a product of one_shot. Contracts promise payloads of copies only.
fn keeps_either_payload(case: &str) -> bool {
    let names = case.split([':', '+', '[', '=', '/']).map(|part| part.split('.').next().unwrap_or_default());
    let reduces = ["all_reduce/", "reduce_scatter/", "reduce/"].iter().any(|collective| case.starts_with(collective));
    reduces
        && case.contains(":f64,")
        && case.contains("inputs=special")
        && (case.contains(":f64,prod:")
            || names.into_iter().any(|name| ["push", "two_shot_push"].contains(&name) || name.ends_with("lamport")))
}

/// Cases of the merge list that ran on the emulator and on GPUs.
///
/// # Errors
/// A record is not there, or is none of verdicts.
pub(super) fn on_both(committed: &Committed) -> anyhow::Result<OnBoth> {
    let (emulated, ran) = (outputs(committed, &[ON_THE_EMULATOR])?, outputs(committed, &[ON_GPUS])?);
    let shared = emulated.keys().filter(|case| ran.contains_key(*case)).cloned();
    let (open, cases): (Vec<String>, Vec<String>) = shared.partition(|case| keeps_either_payload(case));
    let differ = cases.iter().filter(|case| emulated[*case] != ran[*case]).cloned().collect();
    Ok(OnBoth { cases, differ, open: open.len() })
}

/// Digests of outputs, by case, that some records have.
fn outputs(committed: &Committed, names: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut outputs = BTreeMap::new();
    for name in names {
        outputs.extend(of_our_inputs(committed, committed.record(name)?).filter_map(|verdict| Some((verdict.case, verdict.outputs?))));
    }
    Ok(outputs)
}

/// The cases of a record that have the inputs that they have now: since another kernel drew them on GPUs, special ones are others.
fn of_our_inputs(committed: &Committed, record: Record<Verdict>) -> impl Iterator<Item = Verdict> {
    let drew_as_now = !Freshness::of(&record.kind, &record.source, &committed.registry.library())
        .changed()
        .iter()
        .any(|module| module == "conformance/fill");
    record.cases.into_iter().filter(move |verdict| drew_as_now || !verdict.case.contains("inputs=special"))
}

/// How many cases have outputs from ranks in threads and from ranks in processes, by each launcher, and those of them whose outputs differ.
///
/// # Errors
/// A record is not there, or is none of verdicts.
pub(super) fn by_threads_and_processes(committed: &Committed) -> anyhow::Result<(usize, Vec<String>)> {
    let mut threads = outputs(committed, &[BY_THREADS, LARGE])?;
    let processes = BY_PROCESSES.map(|(records, _)| outputs(committed, &records)).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    threads.retain(|case, _| processes.iter().all(|outputs| outputs.contains_key(case)));
    let differs = |(case, digest): &(&String, &String)| processes.iter().any(|outputs| outputs[*case] != **digest);
    Ok((threads.len(), threads.iter().filter(differs).map(|(case, _)| case.clone()).collect()))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use passmuster_harness::{
        conformance::{Case, Status, runner::Settings},
        emulator::{Emulator, EmulatorOptions},
    };

    use super::*;

    fn committed() -> Committed {
        Committed::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")))
    }

    /// If this fails, the emulator computes something else than the GPUs that ran the same PTX.
    #[test]
    fn the_emulator_and_the_gpus_give_the_same_bits() {
        let OnBoth { cases, differ, .. } = on_both(&committed()).unwrap();
        assert!(differ.is_empty(), "{} of {} cases differ: {differ:#?}", differ.len(), cases.len());
        let algorithms = "all_reduce/one_shot all_reduce/two_shot all_reduce/one_shot_push all_gather/push all_gather/ll reduce_scatter/pull \
                          reduce_scatter/ll all_to_all/push all_to_all/ll broadcast/push reduce/pull";
        for algorithm in algorithms.split_whitespace() {
            for world in 1..=8 {
                for dtype in ["f32", "f16", "bf16", "f64", "i32"] {
                    let prefix = format!("{algorithm}:{dtype},");
                    let compared = cases.iter().any(|case| case.starts_with(&prefix) && case.contains(&format!(":w={world}:")));
                    assert!(compared, "no case of {algorithm} {dtype} at world {world} ran on both");
                }
            }
        }
    }

    /// If this fails, what a collective computes on GPUs depends on whether its ranks are threads or processes, or on who started them.
    #[test]
    fn ranks_in_threads_and_in_processes_gave_the_same_bits_on_gpus() {
        let (cases, differ) = by_threads_and_processes(&committed()).unwrap();
        assert!(cases >= 200 && differ.is_empty(), "{} of {cases} cases differ: {differ:#?}", differ.len());
    }

    /// Cases of a record of GPUs that the emulator runs in no time: of each algorithm and type the smallest, and those with most ranks.
    fn cheap(ran: &[(Case, String)]) -> Vec<&(Case, String)> {
        let mut of_kind: BTreeMap<String, &(Case, String)> = BTreeMap::new();
        let size = |case: &Case| (case.input_bytes().max(256), std::cmp::Reverse(case.world()));
        for one in ran {
            let id = one.0.to_string();
            let kind = id.split(',').next().unwrap_or_default().to_owned();
            let is_cheap =
                one.0.input_bytes() <= 4096 && (2..=4).contains(&one.0.world()) && !id.contains(":skew=") && !keeps_either_payload(&id);
            if is_cheap && of_kind.get(&kind).is_none_or(|known| size(&one.0) < size(&known.0)) {
                of_kind.insert(kind, one);
            }
        }
        of_kind.into_values().collect()
    }

    /// If this fails, kernels, plans, inputs or the emulator have changed so that the results are no longer those that the GPUs gave: what this build says,
    /// and not what a record says that an earlier one said.
    #[test]
    fn the_emulator_gives_the_bits_of_the_gpus_now() {
        let committed = committed();
        let passed = of_our_inputs(&committed, committed.record(ON_GPUS).unwrap()).filter(|verdict| verdict.status == Status::Pass);
        let ran: Vec<(Case, String)> = passed.filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict.outputs?))).collect();
        let sample = cheap(&ran);
        assert!(sample.len() >= 40, "{} cases", sample.len());
        let settings =
            Settings { registry: &committed.registry, deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} };
        let mut machine = Emulator::new(EmulatorOptions::of(&committed.registry));
        let differs = sample.iter().filter_map(|(case, hash)| {
            let verdict = case.judge(&mut machine, &settings);
            let is_same = verdict.status == Status::Pass && verdict.outputs.as_ref() == Some(hash);
            (!is_same).then(|| format!("{case}: {} {:?} here, {hash} on GPUs", verdict.status, verdict.outputs))
        });
        assert_eq!(differs.collect::<Vec<_>>(), Vec::<String>::new(), "of {} cases", sample.len());
    }
}
