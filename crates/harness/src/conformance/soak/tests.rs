use super::*;
use crate::{
    REGISTRY,
    conformance::Case,
    emulator::{Emulator, EmulatorOptions, Interleaving},
};
use rstest::rstest;
use std::collections::BTreeSet;

fn soak() -> Soak {
    Soak { seed: 11, worlds: vec![1, 2, 3, 4], bytes: 2048, multicast: true }
}

fn judged(round: &Round, options: EmulatorOptions) -> Verdict {
    let mut machine = Emulator::new(options.with(Interleaving::nth(round.soak.seed, round.number as usize)));
    round.judge(&mut machine, &Settings { registry: &REGISTRY, deadline: Duration::from_secs(300), shared_pads: false, progress: &|_| {} })
}

/// If this fails, the line of a report runs another round than the one that failed.
#[test]
fn a_round_is_a_function_of_its_token() {
    for number in 0..40 {
        let round = Round::draw(&REGISTRY, soak(), number);
        assert_eq!(Round::read(&REGISTRY, &round.to_string()).as_ref(), Ok(&round));
        for part in &round.parts {
            assert_eq!(Case::resolve(&part.case.to_string(), &REGISTRY), Ok(part.case.clone().into()), "{round}: the part is no case");
        }
    }
    assert_ne!(Round::draw(&REGISTRY, soak(), 3).parts, Round::draw(&REGISTRY, Soak { seed: 12, ..soak() }, 3).parts);
}

/// If this fails, a soak does the same over and over: some collective, world, or way to meet never comes.
#[test]
fn rounds_have_everything() {
    let rounds: Vec<Round> = (0..120).map(|number| Round::draw(&REGISTRY, soak(), number)).collect();
    let parts = || rounds.iter().flat_map(|round| &round.parts);
    let collectives: BTreeSet<&str> = parts().map(|part| part.case.collective.name()).collect();
    let worlds: BTreeSet<u32> = parts().map(|part| part.case.world).collect();
    assert_eq!((collectives.len(), worlds.len()), (6, 4), "{collectives:?} {worlds:?}");
    let overlapping = |round: &Round| round.parts.iter().any(|part| part.case.world != round.parts[0].case.world);
    let shares_a_stream = |round: &Round| {
        let streams: Vec<usize> = round.parts.iter().flat_map(|part| part.streams.clone()).collect();
        streams.iter().collect::<BTreeSet<_>>().len() < streams.len()
    };
    let opens_later = |round: &Round| round.runs[0].len() < round.parts.len();
    let captures = |round: &Round| round.parts.iter().any(|part| part.case.calls.iter().any(|item| matches!(item, Item::Graph { .. })));
    for (what, of) in [
        ("groups of different sizes", &overlapping as &dyn Fn(&Round) -> bool),
        ("groups on one stream", &shares_a_stream),
        ("groups that are opened while others are", &opens_later),
        ("two scripts on the same groups", &|round| round.runs.len() > 1),
        ("graphs", &captures),
        ("late ranks", &|round| round.parts.iter().any(|part| part.case.skew.is_some())),
        ("parts of an all-to-all-v", &|round| round.parts.iter().any(|part| part.case.counts.is_some())),
        ("pre-multiplied sums", &|round| round.parts.iter().any(|part| part.case.op.name() == "premul_sum")),
    ] {
        assert!(rounds.iter().any(of), "no round has {what}");
    }
    let most =
        |round: &Round| round.parts.iter().all(|part| part.case.shape(part.case.largest_count()).larger() * part.case.dtype.size() <= 2048);
    assert!(rounds.iter().all(most), "a payload is larger than was asked for");
}

/// If this fails, a soak without a bug is a finding, or the same round is not the same twice.
#[test]
fn rounds_pass_and_are_the_same_again() {
    for number in 0..6 {
        let round = Round::draw(&REGISTRY, soak(), number);
        let [first, again] = [(); 2].map(|()| judged(&round, EmulatorOptions::of(&REGISTRY)));
        assert_eq!(first.status, Status::Pass, "{round}: {first:#?}");
        assert_eq!((again.status, again.outputs), (Status::Pass, first.outputs), "{round}");
    }
}

/// Whether a round has a sum of bf16 by two_shot.
fn calls_it(round: &Round) -> bool {
    let is_sum = |part: &Part| part.case.dtype.name() == "bf16" && part.case.op.name() == "sum";
    let by_two_shot =
        |part: &Part| part.case.collective.name() == "all_reduce" && part.case.shots().any(|shot| shot.algorithm == "two_shot");
    round.parts.iter().any(|part| is_sum(part) && by_two_shot(part))
}

/// If this fails, soaks do not find what a kernel gets wrong, or do not say where.
#[test]
fn a_planted_bug_is_found_with_its_place() {
    let mutant = REGISTRY.mutants().iter().find(|mutant| mutant.module == "all_reduce/two_shot" && mutant.kind.name() == "value").unwrap();
    let options = EmulatorOptions { library: mutant.library_with_all_entries(&REGISTRY), ..EmulatorOptions::of(&REGISTRY) };
    let soak = Soak { worlds: vec![4], bytes: 512, ..soak() };
    let found = (0..200).map(|number| Round::draw(&REGISTRY, soak.clone(), number)).filter(calls_it).find_map(|round| {
        let verdict = judged(&round, options.clone());
        (verdict.status != Status::Pass).then_some((round, verdict))
    });
    let (round, verdict) = found.expect("two hundred rounds have sums of bf16 by two_shot");
    assert_eq!(verdict.status, Status::Fail, "{verdict:#?}");
    let finding = verdict.findings.iter().find(|finding| finding.property == "reference").expect("a value is wrong");
    let (case, place) = (finding.case.as_ref().unwrap(), finding.place.unwrap());
    let part = round.parts.iter().find(|part| part.case.to_string() == *case).expect("the finding names its part");
    assert!(place.rank < part.case.world && finding.call.is_some(), "{finding:?}");
    assert!(place.element < part.case.largest_count() * u64::from(part.case.world), "{finding:?}");
}

#[rstest]
#[case("2,4", &[2, 4])]
#[case("2-4,8", &[2, 3, 4, 8])]
fn numbers_of_ranks_are_read(#[case] text: &str, #[case] worlds: &[u32]) {
    assert_eq!(worlds_of(text).as_deref(), Ok(worlds));
}

#[rstest]
#[case("0")]
#[case("73")]
#[case("4-2")]
#[case("2,")]
fn what_is_no_number_of_ranks_is_refused(#[case] text: &str) {
    assert_eq!(worlds_of(text), Err(format!("`{text}`: expected numbers of ranks from 1 to 72, as in 2,4 or 2-8")));
}

#[rstest]
#[case("soak:seed=1:round=2:worlds=2")]
#[case("soak:seed=x:round=2:worlds=2:bytes=1")]
#[case("soak:round=2:seed=1:worlds=2:bytes=1")]
#[case("soak:seed=1:round=2:worlds=2:bytes=1:multimem")]
fn what_is_no_round_is_refused(#[case] text: &str) {
    assert!(is_round(text));
    assert!(Round::read(&REGISTRY, text).unwrap_err().starts_with(&format!("`{text}` is no round: expected soak:seed=HEX")));
}
