//! Synchronisation mutants that are made by rule, on the emulator: a sample of those that `cargo xtask mutants` runs.

use std::time::Duration;

use passmuster::{
    conformance::{
        Case, Status, Verdict,
        mutants::{self, Derived},
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Interleaving, ptx},
    kernels::Library,
};

/// Schedules that a mutant gets: as many as `cargo xtask mutants` gives.
const SCHEDULES: u64 = 8;

/// How many mutants are tried here.
const SAMPLE: usize = 24;

/// Known misses: a fence between aliases, where profile `hopper` waives what it orders and a kernel's boundary is one in our reading; and the look
/// at the end barrier that is taken only when the first two were in vain, which few schedules come to.
fn is_missed(mutant: &Derived) -> bool {
    mutant.original.contains("fence.proxy.alias") || mutant.name == "multimem/L390 ld.acquire.sys -> ld.relaxed.sys"
}

fn emulator(library: Library) -> Emulator {
    Emulator::new(EmulatorOptions { library, ..EmulatorOptions::default() })
}

fn judge(case: &Case, machine: &mut Emulator, schedule: u64) -> Verdict {
    machine.set_interleaving(Interleaving::nth(0, schedule as usize));
    runner::judge(case, machine, &Settings { deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} })
}

fn is_caught(mutant: &Derived) -> bool {
    let mut machine = emulator(mutant.library());
    mutants::hunt(&mutant.cases(), SCHEDULES, |case, schedule| judge(case, &mut machine, schedule)).1.is_some()
}

/// If this fails, a mutant is caught for not being PTX, and its score says nothing.
#[test]
fn every_mutant_is_ptx() {
    for mutant in mutants::derived() {
        if let Err(error) = ptx::parse(&mutant.ptx) {
            panic!("{}: {error}", mutant.name);
        }
    }
}

/// If this fails, mutants are caught for what the kernels do without them.
#[test]
fn kernels_pass_the_cases_of_their_mutants() {
    let mut machine = emulator(Library::default());
    for (module, _) in mutants::subjects() {
        for case in mutants::sync_cases(module) {
            for schedule in 0..SCHEDULES {
                let verdict = judge(&case, &mut machine, schedule);
                assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
            }
        }
    }
}

/// If this fails, a bug of synchronisation goes unseen.
#[test]
fn a_sample_of_the_mutants_is_caught() {
    let equivalents = mutants::equivalents().unwrap();
    let mut all = mutants::derived();
    all.retain(|mutant| !is_missed(mutant) && !equivalents.iter().any(|known| known.name == mutant.name));
    let missed: Vec<String> =
        mutants::sample(all, SAMPLE).into_iter().filter(|mutant| !is_caught(mutant)).map(|mutant| mutant.name).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// If this fails, somebody's reason why a mutant does nothing wrong is not one.
#[test]
fn equivalent_mutants_are_not_caught() {
    let equivalents = mutants::equivalents().unwrap();
    let caught: Vec<String> = mutants::derived()
        .into_iter()
        .filter(|mutant| equivalents.iter().any(|known| known.name == mutant.name))
        .filter(is_caught)
        .map(|mutant| mutant.name)
        .collect();
    assert!(caught.is_empty(), "{caught:#?}");
}
