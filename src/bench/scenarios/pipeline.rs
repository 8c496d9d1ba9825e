//! `all_to_all --async`: batches that are exchanged on a stream of their own, looked at on the device, and told of to the host.
//!
//! The all-to-all of a batch is on a side stream, beside the look at what the batch before brought; two outputs take turns. What was seen, two words, is
//! fetched without anybody waiting. The devices do the same in both variants, and only the hosts differ: either they wait for what was seen of a batch
//! before they enqueue the next, or they enqueue all and then wait.

use std::{fmt, str::FromStr};

use crate::{
    algorithms::{self, Algorithm},
    bench::{
        PipelineWorkload,
        contender::{Devices, Environment},
        job::{Content, Job, copied, copy},
        verdicts::Verdicts,
    },
    collective::{Collective, DType, ReduceOp},
    plan::{Arg, BufferSpec, Build, Call, Launch, Op, Plan, RankCall, Region, Role},
};

/// Who exchanges batches, and when hosts wait.
#[derive(Clone, Copy)]
pub struct Pipeline {
    /// Whether hosts wait for all verdicts at the end, and not for each before they enqueue the next batch.
    pub defers: bool,
    /// Who exchanges.
    pub exchange: &'static dyn Algorithm,
}

/// The side stream of all-to-alls.
const EXCHANGES: usize = 1;

/// Outputs, which take turns.
const TURNS: u32 = 2;

/// Threads of a block of `bench/numbers`, and blocks of it that look at most.
const THREADS: u32 = 256;
const MOST_BLOCKS: u64 = 256;

/// Bytes of a verdict: elements that are wrong, and blocks that have looked.
const VERDICT: u64 = 8;

/// The largest number of batches: each has an input of its own.
const MOST_BATCHES: u32 = 256;

impl Pipeline {
    /// Everyone, waiting for each verdict and for all.
    pub fn all() -> Vec<Pipeline> {
        let both = |exchange| [false, true].map(|defers| Pipeline { defers, exchange });
        exchanges().flat_map(both).collect()
    }

    /// Its name: `blocking/push`, `deferred/nccl_send_recv`.
    pub fn name(&self) -> String {
        self.to_string()
    }

    pub(in crate::bench) fn environment(&self) -> Environment {
        self.exchange.environment()
    }

    pub(in crate::bench) fn job(&self, of: &PipelineWorkload, devices: &Devices) -> Result<Job, String> {
        let PipelineWorkload { batches, world, bytes } = *of;
        if !(1..=MOST_BATCHES).contains(&batches) {
            return Err(format!("{batches} batches: 1 to {MOST_BATCHES}"));
        }
        let (dtype, count) = (DType::BF16, of.slot());
        if count == 0 {
            return Err(format!("{bytes} bytes are no element for each of {world} ranks"));
        }
        let whole = u64::from(world) * count * dtype.size();
        let verdicts = BufferSpec { local: true, ..BufferSpec::new("verdicts", u64::from(batches) * VERDICT, Role::State) };
        let mut buffers = vec![copied("input", whole, batches), copied("output", whole, TURNS), verdicts];
        let output = |batch: u32| copy("output", whole, batch % TURNS);
        let call = |batch| {
            let (collective, op, input) = (Collective::AllToAll, ReduceOp::Copy, copy("input", whole, batch));
            let first = RankCall { collective, dtype, op, count, root: 0, factor: None, parts: None, input, output: output(batch) };
            let call = Call::of_all_ranks(&first, world, &buffers[..2]).map_err(|error| error.to_string())?;
            self.exchange.supports(&call).map(|()| call)
        };
        let calls = (0..batches).map(call).collect::<Result<Vec<_>, _>>()?;
        buffers.extend(self.exchange.workspace(dtype, world, whole));
        let blocks = (u64::from(world) * count).div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
        let look = |batch: u32, rank: u32, verdict: &Region| {
            // As contents are drawn: one seed for each rank of each of them.
            let seed = u64::from(batch) * u64::from(world);
            Op::Launch(Launch {
                module: "bench/numbers".into(),
                entry: format!("arrived_{dtype}"),
                build: Build::Release,
                grid: blocks,
                block: THREADS,
                dynamic_shared: 0,
                waits_for_peers: false,
                args: vec![
                    Arg::Address(output(batch)),
                    Arg::U64(count),
                    Arg::U32(world),
                    Arg::U32(rank),
                    Arg::U64(seed),
                    Arg::Address(verdict.clone()),
                ],
            })
        };
        let exchange = |batch: usize, rank: usize| {
            let plan = self.exchange.plan(&calls[batch], &devices.target);
            Op::beside(EXCHANGES, &plan.ranks[rank])
        };
        let plan = |batch: u32| {
            Plan::per_rank(format!("{self} batch {batch}"), world, |rank| {
                let verdict = Region::new("verdicts", u64::from(batch) * VERDICT, VERDICT);
                let next = (batch + 1 < batches).then(|| exchange(batch as usize + 1, rank as usize));
                let join = next.is_some().then_some(Op::Join { stream: EXCHANGES });
                let first = (batch == 0).then(|| [exchange(0, rank as usize), Op::Join { stream: EXCHANGES }]);
                let seen = [Op::Fill { region: verdict.clone(), byte: 0 }, look(batch, rank, &verdict), Op::Fetch { from: verdict }];
                first.into_iter().flatten().chain(next).chain(seen).chain(join).collect()
            })
        };
        let contents = (0..batches).map(|batch| Content::Numbers(vec![copy("input", whole, batch)], dtype)).collect();
        let verdicts = Verdicts { defers: self.defers, good: [0, blocks] };
        let plans = (0..batches).map(plan).collect();
        Ok(Job { world, buffers, contents, plans, notes_products: false, promises: Vec::new(), verdicts: Some(verdicts) })
    }
}

/// All-to-alls that need no multicast.
fn exchanges() -> impl Iterator<Item = &'static dyn Algorithm> {
    let all = algorithms::all().iter().copied();
    all.filter(|algorithm| algorithm.collective() == Collective::AllToAll && !algorithm.uses_multicast())
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", if self.defers { "deferred" } else { "blocking" }, self.exchange.name())
    }
}

impl FromStr for Pipeline {
    type Err = String;

    fn from_str(name: &str) -> Result<Pipeline, String> {
        Pipeline::all().into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let names: Vec<&str> = exchanges().map(|exchange| exchange.name()).collect();
            format!(
                "unknown contender `{name}` of all_to_all --async: expected blocking/NAME or deferred/NAME; NAME is one of {}",
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        bench::job::Numbers,
        emulator::{Emulator, EmulatorOptions},
        machine::Machine,
        plan::{Script, Step},
    };

    /// If this fails, the device calls right what did not arrive, or what of the batch before lies there still, or the host does not hear of it.
    #[test]
    fn a_batch_that_was_not_exchanged_is_told_of() {
        let of = PipelineWorkload { batches: 5, world: 3, bytes: 600 };
        for pipeline in Pipeline::all() {
            let told = |left_out: Option<usize>| {
                let mut machine = Emulator::new(EmulatorOptions::default());
                let mut job = pipeline.job(&of, &Devices::of(&machine, 3)).unwrap();
                let group = machine.open_group(3, &job.buffers).unwrap();
                if let Some(plan) = left_out.map(|batch| &mut job.plans[batch - 1]) {
                    // On all ranks, or they would wait for each other.
                    plan.ranks.iter_mut().for_each(|ops| ops.retain(|op| !matches!(op, Op::Fork { .. } | Op::Join { .. })));
                }
                let fill = Step::Enqueue { group, stream: 0, plan: Arc::new(job.fill(Numbers::Integers)) };
                let verdicts = job.verdicts.unwrap();
                let plans: Vec<Arc<Plan>> = job.plans.into_iter().map(Arc::new).collect();
                let steps = [vec![fill], verdicts.steps(group, &plans)].concat();
                let run = machine.run(&Script { steps }, Duration::from_secs(60)).unwrap_or_else(|error| panic!("{pipeline}: {error}"));
                assert!(run.fetched.iter().flatten().all(|fetched| fetched.awaited.is_some()), "{pipeline}");
                verdicts.wrong(&run.fetched)
            };
            assert_eq!(told(None), None, "{pipeline}");
            let wrong = told(Some(3)).unwrap_or_else(|| panic!("{pipeline}: nothing is wrong"));
            assert!(wrong.starts_with("rank 0: batch 3: ") && wrong.ends_with(" elements are wrong, as 2 of 2 blocks tell"), "{wrong}");
        }
    }

    #[test]
    fn names_read_back() {
        for pipeline in Pipeline::all() {
            assert_eq!(pipeline.name().parse::<Pipeline>().map(|read| read.name()), Ok(pipeline.name()));
        }
        assert!("deferred".parse::<Pipeline>().is_err() && "blocking/ring".parse::<Pipeline>().is_err());
    }
}
