//! Synchronisation mutants that are made by rule, on the emulator: a sample of those that `cargo xtask mutants` runs.

use std::time::Duration;

use passmuster::{
    conformance::{
        Case, Status, Verdict,
        mutants::{self, Defect, Derived},
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Interleaving, ptx},
    kernels::Library,
};

/// Schedules that a mutant gets: as many as `cargo xtask mutants` gives.
const SCHEDULES: u64 = 8;

/// How many mutants are tried here.
const SAMPLE: usize = 24;

/// Whether what goes wrong is order between memory operations alone. Memory is sequentially consistent on the emulator until races are
/// checked, so these are missed.
fn is_seen_by_races_only(defect: Defect) -> bool {
    matches!(defect, Defect::Order | Defect::Strength | Defect::Scope)
}

/// Known misses: one_shot's and pull's end barriers keep reads of a rank's input before what overwrites it, and it takes a rarer schedule than
/// these to see a read that comes too late.
fn is_a_late_read(mutant: &Derived) -> bool {
    const PLACES: [&str; 7] = [
        "one_shot/L825 ",
        "one_shot/L844 ",
        "one_shot/L853 ",
        "one_shot/L863 ",
        "reduce_scatter/pull/L863 ",
        "reduce_scatter/pull/L891 ",
        "reduce_scatter/pull/L901 ",
    ];
    PLACES.iter().any(|place| mutant.name.starts_with(place)) && matches!(mutant.defect, Defect::Barrier | Defect::Signal | Defect::Slot)
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

/// If this fails, a bug of synchronisation that is no mere race goes unseen.
#[test]
fn a_sample_of_the_mutants_is_caught() {
    let equivalents = mutants::equivalents().unwrap();
    let mut all = mutants::derived();
    all.retain(|mutant| {
        let is_equivalent = equivalents.iter().any(|known| known.name == mutant.name);
        !is_equivalent && !is_seen_by_races_only(mutant.defect) && !is_a_late_read(mutant)
    });
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
