//! The judge judged: what is planted into the memory of one rank, of one call, of one group, is found there, under every property that must see it.
//!
//! The emulator carries a case out; then one element is changed where a call's output was kept, where an input lies, or around a group's buffers.
//! What must be found follows from the case alone, and nothing else may be. A check that looks at one rank, at one call or at one group only fails here.

use std::collections::BTreeSet;

use super::{check, scenario, tests::settings};
use crate::{
    REGISTRY,
    conformance::{
        CollectiveCase, Relation, Status, Verdict,
        planted_machine::PlantedMachine,
        scenario::{Options, Recorded, Scenario},
    },
};
use passmuster_plan::{contract::Order, machine::Machine, plan::Region};
use rstest::rstest;

fn prepared(id: &str) -> (CollectiveCase, Scenario) {
    let case: CollectiveCase = id.parse().unwrap();
    let waiting_blocks = PlantedMachine::correct().waiting_blocks(case.world as usize, case.groups() as usize);
    let scenario = scenario::build(&case, &Options { registry: &REGISTRY, waiting_blocks, shared_pads: false }).unwrap();
    (case, scenario)
}

/// A case that was carried out, and whose memory is looked at.
struct CarriedOut<'a> {
    case: &'a CollectiveCase,
    scenario: &'a Scenario,
    machine: PlantedMachine,
}

impl<'a> CarriedOut<'a> {
    fn new((case, scenario): &'a (CollectiveCase, Scenario)) -> CarriedOut<'a> {
        let mut machine = PlantedMachine::correct();
        for buffers in &scenario.groups {
            machine.open_nodes(case.world as usize, case.nodes as usize, buffers).unwrap();
        }
        machine.run(&scenario.script, settings().deadline).unwrap();
        CarriedOut { case, scenario, machine }
    }

    fn judged(&mut self) -> Verdict {
        check(self.case, self.scenario, &mut self.machine, 0).unwrap()
    }

    /// What is said while a byte of a region of a rank of a group is another.
    fn struck(&mut self, group: usize, rank: usize, region: &Region, at: u64) -> Verdict {
        // The highest bits but the sign: far beyond every bound, and no zero of the other sign.
        self.changed(group, rank, region, &|bytes| bytes[at as usize] ^= 0x60)
    }

    /// What is said while the bytes of a region of a rank of a group are others.
    fn changed(&mut self, group: usize, rank: usize, region: &Region, change: &dyn Fn(&mut [u8])) -> Verdict {
        let before = self.machine.read(group, rank, region).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        assert_ne!(bytes, before, "nothing was changed");
        self.machine.write(group, rank, region, &bytes).unwrap();
        let verdict = self.judged();
        self.machine.write(group, rank, region, &before).unwrap();
        verdict
    }
}

/// What was found: of each finding the property and the call.
fn found(verdict: &Verdict) -> BTreeSet<(String, Option<usize>)> {
    verdict.findings.iter().map(|finding| (finding.property.clone(), finding.call)).collect()
}

/// What must be found where element `index` of what `rank` kept of call `number` is changed.
fn expected(case: &CollectiveCase, scenario: &Scenario, number: usize, rank: u32, index: u64) -> BTreeSet<(String, Option<usize>)> {
    let Recorded { call, contract, by_peer, .. } = &scenario.calls[number];
    let shape = call.shape();
    let mut due = BTreeSet::new();
    if !shape.receivers().contains(&rank) || index >= shape.received(rank) {
        // Peers promise nothing of what gets no result.
        due.extend((!by_peer).then(|| ("untouched".to_owned(), Some(number))));
        return due;
    }
    due.insert((if *by_peer { "peer_reference" } else { "reference" }.to_owned(), Some(number)));
    if contract.equal_across_ranks && case.collective.gives_all_ranks_the_same() && case.world > 1 {
        due.insert((if *by_peer { "peer_ranks_agree" } else { "ranks_agree" }.to_owned(), Some(number)));
    }
    for related in &scenario.relations {
        let is_third = matches!(related.relation, Relation::Plus(third) if third == number);
        let is_free =
            matches!(related.relation, Relation::EqualBut(free) if free.index == index && free.rank.is_none_or(|only| only == rank));
        if (related.base == number || related.other == number || is_third) && !is_free {
            due.insert((related.property.to_owned(), Some(related.other)));
        }
    }
    due
}

/// Cases of every collective, contract and way of the script; together they have every property.
const CASES: [&str; 16] = [
    "all_reduce/two_shot:bf16,sum:w=3:n=20:peer=nccl_ring:seed=5",
    "all_reduce/one_shot:i32,sum:w=3:n=9:peer=nccl_tree:off=1",
    "all_reduce/push:f32,max:w=2:n=11:peer=nccl_ring:graph=2x2",
    "all_reduce/two_shot:f32,avg:w=4:n=21:in_place:inputs=natural",
    "all_reduce/two_shot:f32,premul_sum:w=3:n=20",
    "all_reduce/one_shot:bf16,sum:w=4:calls=one_shot.7+[two_shot.9+one_shot.33.in_place]x2+two_shot.5.off3.g1",
    "all_gather/push:bf16,copy:w=3:n=5:peer=nccl_ring",
    "all_gather/push:f32,copy:w=3:n=5:in_place",
    "reduce_scatter/pull:bf16,sum:w=3:n=7:peer=nccl_ring",
    "reduce_scatter/push:f32,sum:w=3:n=7:in_place",
    "all_to_all/push:f64,copy:w=3:n=4:peer=nccl_send_recv",
    "all_to_all/push:f32,copy:w=3:n=40:counts=7:peer=nccl_send_recv",
    "broadcast/push:bf16,copy:w=3:n=12:root=1:peer=nccl_ring",
    "reduce/pull:bf16,sum:w=3:n=12:root=1:peer=nccl_ring",
    "reduce/pull:f32,sum:w=3:n=12:root=2:in_place",
    "reduce/pull:bf16,sum:w=3:calls=pull.10+[pull.5.root1+pull.7]x3",
];

/// Where the highest byte of an element lies in the bytes of a region.
fn top_byte(case: &CollectiveCase, index: u64) -> u64 {
    (index + 1) * case.dtype.size() - 1
}

/// If this fails, what is wrong with a result goes unseen on some rank, in some call or at some place; or one mistake is reported as another.
#[rstest]
fn what_is_wrong_with_an_output_is_found_on_every_rank_of_every_call(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)] number: usize,
) {
    let prepared = prepared(CASES[number]);
    let mut carried_out = CarriedOut::new(&prepared);
    let (case, scenario) = &prepared;
    let right = carried_out.judged();
    assert_eq!(right.status, Status::Pass, "{right:#?}");
    for (number, recorded) in scenario.calls.iter().enumerate() {
        let elements = recorded.call.shape().output();
        for rank in 0..case.world {
            for index in BTreeSet::from([0, elements / 2, elements - 1]) {
                let region = &recorded.outputs[rank as usize];
                let verdict = carried_out.struck(recorded.group, rank as usize, region, top_byte(case, index));
                let due = expected(case, scenario, number, rank, index);
                assert_eq!(found(&verdict), due, "element {index} of rank {rank} after call {number} of {case}: {verdict:#?}");
                assert!(verdict.findings.iter().all(|finding| !finding.all_wrong), "one element of many: {verdict:#?}");
                let status = if due.is_empty() { Status::Pass } else { Status::Fail };
                assert_eq!(verdict.status, status);
                for (property, _) in &due {
                    assert!(right.held.contains(property) && !verdict.held.contains(property), "{property}: {verdict:#?}");
                }
                // Records of two machines are compared by the digest.
                let declared = !recorded.by_peer && matches!(recorded.contract.order, Order::RankAscending | Order::Copied);
                let counts = recorded.call.shape().counts.is_none() || index < recorded.call.shape().received(rank);
                assert_eq!(verdict.outputs != right.outputs, declared && counts, "digest of {case}, call {number}, rank {rank}");
            }
        }
    }
}

/// If this fails, a kernel may write to the inputs of some rank, and nothing would say so.
#[rstest]
fn what_is_written_to_an_input_is_found_on_every_rank(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)] number: usize) {
    let prepared = prepared(CASES[number]);
    let mut carried_out = CarriedOut::new(&prepared);
    let (case, scenario) = &prepared;
    // The input buffers of all calls out of place, each once, with the region of the last call that used it.
    let mut inputs: Vec<(usize, Region)> = Vec::new();
    for Recorded { group, call, .. } in scenario.calls.iter().filter(|recorded| !recorded.call.in_place()) {
        inputs.retain(|(known, region)| (known, &region.buffer) != (group, &call.input.buffer));
        inputs.push((*group, call.input.clone()));
    }
    assert!(inputs.iter().all(|(_, region)| region.bytes > 0));
    for (group, region) in inputs {
        for rank in 0..case.world as usize {
            for at in [0, region.bytes - 1] {
                let verdict = carried_out.struck(group, rank, &region, at);
                assert_eq!(
                    found(&verdict),
                    [("input_unchanged".to_owned(), None)].into(),
                    "byte {at} of {region} on rank {rank} of {case}"
                );
                assert!(verdict.reason.starts_with(&format!("rank {rank}: input {region} ")), "{}", verdict.reason);
            }
        }
    }
}

/// If this fails, a kernel may write a NaN over another one in an input, or a zero of the other sign, and nothing would say so.
#[rstest]
#[case::payload("all_reduce/two_shot:f32,sum:w=3:n=40:inputs=special", f32::is_nan, 0x0000_0001)]
#[case::sign_of_nan("all_gather/push:f32,copy:w=3:n=40:inputs=special", f32::is_nan, 0x8000_0000)]
#[case::sign_of_zero("all_reduce/one_shot:f32,max:w=2:n=40:inputs=special", |value: f32| value == 0.0, 0x8000_0000)]
fn input_is_compared_by_bytes(#[case] id: &str, #[case] is_meant: fn(f32) -> bool, #[case] flipped: u32) {
    let prepared = prepared(id);
    let mut carried_out = CarriedOut::new(&prepared);
    let (case, scenario) = &prepared;
    let right = carried_out.judged();
    assert!(right.status == Status::Pass && right.held.contains(&"input_unchanged".to_owned()), "{right:#?}");
    let (group, region, payload) = scenario.inputs.first().unwrap();
    for rank in 0..case.world {
        let inputs = (0..region.bytes / 4).map(|index| f32::from_bits(payload.element::<f32>(rank, index).to_bits()));
        let index = inputs.clone().position(is_meant).expect("special inputs have some");
        let change = |bytes: &mut [u8]| {
            let word = &mut bytes[4 * index..4 * index + 4];
            let bits = u32::from_le_bytes(word.try_into().unwrap()) ^ flipped;
            word.copy_from_slice(&bits.to_le_bytes());
        };
        let verdict = carried_out.changed(*group, rank as usize, region, &change);
        assert_eq!(found(&verdict), [("input_unchanged".to_owned(), None)].into(), "{verdict:#?}");
        let place = verdict.findings[0].place.unwrap();
        assert_eq!((place.rank, place.element, place.bit), (rank, index as u64, Some(flipped.trailing_zeros())));
    }
}

/// If this fails, writes beyond the buffers of some group go unseen.
#[test]
fn what_is_written_beyond_a_buffer_is_found_in_every_group() {
    for id in CASES {
        let prepared = prepared(id);
        let mut carried_out = CarriedOut::new(&prepared);
        for group in 0..prepared.1.groups.len() {
            carried_out.machine.break_canary(group);
            assert_eq!(found(&carried_out.judged()), [("canaries".to_owned(), None)].into(), "group {group} of {id}");
        }
    }
}

/// If this fails, a property that docs/reference/checks.md has is looked at in none of the cases above.
#[test]
fn the_cases_have_every_property() {
    let mut held: BTreeSet<String> = BTreeSet::new();
    CASES.iter().for_each(|id| held.extend(CarriedOut::new(&prepared(id)).judged().held));
    let document = include_str!("../../../docs/reference/checks.md");
    let (_, section) = document.split_once("\n## Properties\n").unwrap();
    let (table, _) = section.split_once("\nA relation is reported").unwrap();
    let mut rows: BTreeSet<String> =
        table.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect();
    // Which path a library took is said by its own log, which only GPUs have.
    assert!(rows.remove("peer_path"));
    assert_eq!(held, rows);
}
