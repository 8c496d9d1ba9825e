//! Jobs: what a machine is given to time, whatever the scenario.

use std::sync::Arc;

use super::{CollectiveWorkload, verdicts::HostChecks};
use passmuster_plan::{
    algorithms::{Algorithm, Target},
    collective::{DType, Product},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan, Region, Role},
};

/// What one contender does for one workload.
pub(super) struct Job {
    /// Ranks.
    pub world: u32,
    /// All that the plans use.
    pub buffers: Vec<BufferSpec>,
    /// What data buffers hold before the first call. Calls leave it as it is but for what they promise.
    pub contents: Vec<Content>,
    /// A call on each copy of the buffers: the calls of a sample go round them.
    pub plans: Vec<Plan>,
    /// Whether the times of products within a call are of interest.
    pub notes_products: bool,
    /// What a call of each copy leaves, as far as that is judged here. That of collectives is judged by conformance.
    pub promises: Vec<ExpectedResult>,
    /// The verdicts that hosts get while the plans are carried out, which are then parts of one call. Inputs are integers, also when it is timed.
    pub verdicts: Option<HostChecks>,
}

/// What a region holds on every rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// This byte throughout.
    Byte(Region, u8),
    /// Numbers of a type, other ones in each region and on each rank. A rank's region may be its own.
    Numbers(Vec<Region>, DType),
}

/// What a call leaves.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpectedResult {
    /// C is the product of A and B, all of which the rank has or the ranks have together.
    Product {
        /// The product.
        product: Product,
        /// A.
        a: Rows,
        /// B.
        b: Rows,
        /// C, all of it on every rank.
        c: Region,
    },
    /// Each rank holds its part of the rows of the sum of all ranks' products, each of which was rounded.
    Scattered {
        /// The product of each rank.
        product: Product,
        /// Its A.
        a: Region,
        /// Its B.
        b: Region,
        /// Its part of the sum.
        c: Region,
        /// How the ranks' products are added.
        contract: Contract,
    },
    /// Every rank holds what each has sent, in the order of ranks.
    Gathered {
        /// Where each rank has what it sends.
        sent: Vec<Region>,
        /// Where all of it arrives.
        all: Region,
    },
}

/// Where the rows of a matrix are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rows {
    /// On the rank itself.
    Own(Region),
    /// A part on each rank, here, one rank's below the other's.
    OfRanks(Region),
}

impl Rows {
    /// Where a rank has all of them, or its part.
    pub(super) fn region(&self) -> &Region {
        match self {
            Rows::Own(region) | Rows::OfRanks(region) => region,
        }
    }
}

/// Which numbers data buffers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// About N(0, 1): what an SM draws depends on the bits that toggle.
    Normal,
    /// From -4 to 4: any order of additions gives exactly what they come to.
    Integers,
}

/// Byte of which inputs of collectives consist: of floats of every type a small number, no sum or product of which overflows. Integers wrap.
const SOME_NUMBER: u8 = 0x3c;

/// Threads of a block of `bench/numbers`.
const THREADS: u32 = 256;

/// Bytes between the starts of copies: each starts where an allocation could.
const fn stride(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

/// A buffer that holds `copies` copies of `bytes` bytes.
pub(super) fn copied(name: &str, bytes: u64, copies: u32) -> BufferSpec {
    BufferSpec::new(name, u64::from(copies) * stride(bytes), Role::Data)
}

/// One of the copies.
pub(super) fn copy(name: &str, bytes: u64, number: u32) -> Region {
    Region::new(name, u64::from(number) * stride(bytes), bytes)
}

impl Job {
    /// A call of a collective.
    ///
    /// # Errors
    /// Why the algorithm cannot do it, or what is wrong with the call.
    pub(super) fn of_collective(
        algorithm: &Arc<dyn Algorithm>,
        workload: &CollectiveWorkload,
        copies: u32,
        target: &Target,
    ) -> Result<Job, String> {
        let CollectiveWorkload { dtype, op, world, in_place, .. } = *workload;
        let shape = workload.shape();
        let sizes = [("input", shape.input()), ("output", shape.output())].map(|(name, elements)| (name, elements * dtype.size()));
        let algorithm = passmuster_kernels::with_premul(algorithm, op);
        if algorithm.numbers_calls() {
            return Err("hosts pass it the number of the call, which captured calls would repeat".into());
        }
        let local = algorithm.accepts_unregistered();
        let buffer = |(name, bytes)| BufferSpec { local, ..copied(name, bytes, copies) };
        let most = sizes[0].1.max(sizes[1].1);
        let mut buffers = if in_place { vec![buffer(("in_place", most))] } else { sizes.map(buffer).to_vec() };
        let call = |number| {
            let [input, output] = sizes.map(|(name, bytes)| match in_place {
                true => Region { bytes, ..copy("in_place", most, number) },
                false => copy(name, bytes, number),
            });
            let call = Call::on_regions(shape.clone(), dtype, op, input, output).map_err(|error| error.to_string())?;
            algorithm.supports(&call)?;
            algorithm.check_target(&call, target).map(|()| call)
        };
        let calls = (0..copies).map(call).collect::<Result<Vec<_>, _>>()?;
        let contents = vec![Content::Byte(buffers[0].whole(), SOME_NUMBER)];
        buffers.extend(algorithm.workspace(dtype, world, calls[0].bytes()));
        let plans = calls.iter().map(|call| algorithm.plan(call, target)).collect();
        Ok(Job { world, buffers, contents, plans, notes_products: false, promises: Vec::new(), verdicts: None })
    }

    /// The plan by which all contents are written.
    pub(super) fn fill(&self, numbers: Numbers) -> Plan {
        Plan::per_rank("contents", self.world, |rank| {
            let of = |(number, content): (usize, &Content)| match content {
                Content::Byte(region, byte) => Op::Fill { region: region.clone(), byte: *byte },
                Content::Numbers(regions, dtype) => {
                    let region = regions[rank as usize % regions.len()].clone();
                    let count = region.bytes / dtype.size();
                    let seed = number as u64 * u64::from(self.world) + u64::from(rank);
                    Op::Launch(Launch {
                        module: "bench/numbers".into(),
                        entry: format!("numbers_{dtype}"),
                        grid: (count.div_ceil(u64::from(THREADS)).clamp(1, 1024) as u32).into(),
                        block: THREADS.into(),
                        cluster: None,
                        dynamic_shared: 0,
                        waits_for_peers: false,
                        programmatic: false,
                        registers: None,
                        variables: Vec::new(),
                        args: vec![Arg::Address(region), Arg::U64(count), Arg::U64(seed), Arg::U32((numbers == Numbers::Integers).into())],
                    })
                }
            };
            self.contents.iter().enumerate().map(of).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use half::bf16;

    use super::*;
    use passmuster_harness::emulator::{Emulator, EmulatorOptions};
    use passmuster_plan::{
        collective::Collective,
        machine::Machine,
        plan::{Script, Step},
    };

    /// What each of two ranks gets.
    fn drawn(numbers: Numbers) -> Vec<Vec<f64>> {
        let buffer = copied("a", 8192, 1);
        let contents = vec![Content::Numbers(vec![buffer.whole()], DType::BF16)];
        let job = Job {
            world: 2,
            buffers: vec![buffer.clone()],
            contents,
            plans: Vec::new(),
            notes_products: false,
            promises: Vec::new(),
            verdicts: None,
        };
        let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
        let group = machine.open_group(2, &job.buffers).unwrap();
        let fill = Step::Enqueue { group, stream: 0, plan: Arc::new(job.fill(numbers)) };
        machine.run(&Script { steps: vec![fill] }, Duration::from_secs(60)).unwrap();
        let values = |bytes: Vec<u8>| bytes.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f64()).collect();
        (0..2).map(|rank| values(machine.read(group, rank, &buffer.whole()).unwrap())).collect()
    }

    /// If this fails, calls out of place are timed as those in place: each is judged by a case of its own, which would not show it.
    #[test]
    fn calls_in_place_have_one_buffer() {
        let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
        for (collective, name) in
            [(Collective::AllReduce, "two_shot"), (Collective::AllGather, "push"), (Collective::ReduceScatter, "pull")]
        {
            let algorithm = registry.find(collective, name).unwrap();
            for in_place in [false, true] {
                let workload =
                    CollectiveWorkload { collective, dtype: DType::BF16, op: collective.operators()[0], world: 2, bytes: 1024, in_place };
                let job = Job::of_collective(&algorithm, &workload, 2, &Target::default()).unwrap();
                let data: Vec<&str> = job
                    .buffers
                    .iter()
                    .filter(|buffer| buffer.role == Role::Data && !buffer.name.contains('.'))
                    .map(|buffer| &*buffer.name)
                    .collect();
                assert_eq!(data, if in_place { vec!["in_place"] } else { vec!["input", "output"] }, "{collective}/{name}");
                assert!(job.plans.iter().all(|plan| plan.name.contains("in place") == in_place), "{}", job.plans[0].name);
            }
        }
    }

    /// If this fails, products are timed on numbers that draw less power, or judged on numbers of which a wrong one is like a right one.
    #[test]
    fn numbers_are_normal_or_small_integers_and_other_ones_on_each_rank() {
        let ranks = drawn(Numbers::Normal);
        assert!(ranks[0] != ranks[1]);
        for values in &ranks {
            let mean = |of: &dyn Fn(f64) -> f64| values.iter().map(|&value| of(value)).sum::<f64>() / values.len() as f64;
            let (first, second) = (mean(&|value| value), mean(&|value| value * value));
            assert!(first.abs() < 0.06 && (second - 1.0).abs() < 0.08, "mean {first}, of squares {second}");
            let within = mean(&|value| f64::from(u8::from(value.abs() < 1.0)));
            assert!((within - 0.68).abs() < 0.03, "{within} within one standard deviation");
        }
        let ranks = drawn(Numbers::Integers);
        assert!(ranks[0] != ranks[1]);
        for wanted in -4..=4 {
            let count = ranks.concat().iter().filter(|&&value| value == f64::from(wanted)).count();
            assert!((800..1030).contains(&count), "{count} of 8192 are {wanted}");
        }
    }
}
