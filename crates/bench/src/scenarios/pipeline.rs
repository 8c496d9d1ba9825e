//! `all_to_all --async`: batches that are exchanged on a stream of their own, looked at on the device, and told of to the host.
//!
//! The all-to-all of a batch is on a side stream, beside the look at what the batch before brought; two outputs take turns. What was seen, two words, is
//! fetched without anybody waiting. The devices do the same in both variants, and only the hosts differ: either they wait for what was seen of a batch
//! before they enqueue the next, or they enqueue all and then wait.
//!
//! # Controls
//! A host that waits gives the exchange a head start: it is enqueued into an empty stream, and the look behind it. Where nobody waits, both become ready
//! at once, and the look is on the stream that is at it. It has blocks on every SM (24 registers of 256 threads or 512), beside which a block of
//! NCCL's (96 of up to 640 threads, of 64 Ki registers) does not fit: that may have to wait for the look to end. Two controls tell this from what the two
//! do to each other's memory traffic. [`Order::Apart`] has them one after the other: if deferred takes as long, nothing was beside anything.
//! [`Order::Behind`] gives the exchange its head start back: if it takes less than deferred, it was who came first, and not the traffic.

use std::{fmt, sync::Arc};

use crate::{
    Late, PipelineWorkload,
    devices::{Devices, Environment},
    job::{Content, Job, copied, copy},
    method::delay,
    verdicts::HostChecks,
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry},
    collective::{Collective, DType, ReduceOp},
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan, RankCall, Region, Role},
};

/// Who exchanges batches, and when hosts wait.
#[derive(Clone)]
pub struct Pipeline {
    /// When hosts wait, and what devices do beside an exchange.
    pub order: Order,
    /// Who exchanges.
    pub exchange: Arc<dyn Algorithm>,
}

/// When hosts wait, and what devices do beside an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Hosts wait for each verdict before they enqueue the next batch.
    Blocking,
    /// Hosts wait when all is enqueued.
    Deferred,
    /// The same on one stream: no batch is looked at beside an exchange.
    Apart,
    /// As deferred, each look behind the start of the exchange that it is beside.
    Behind,
}

impl Order {
    const ALL: [Order; 4] = [Order::Blocking, Order::Deferred, Order::Apart, Order::Behind];

    /// For names.
    const fn name(self) -> &'static str {
        match self {
            Order::Blocking => "blocking",
            Order::Deferred => "deferred",
            Order::Apart => "apart",
            Order::Behind => "behind",
        }
    }
}

/// Microseconds by which looks are behind: within them every block of an exchange has started.
const HEAD_START: u64 = 20;

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
    pub fn all(registry: &Registry) -> Vec<Pipeline> {
        let of =
            |exchange: &Arc<dyn Algorithm>| [Order::Blocking, Order::Deferred].map(|order| Pipeline { order, exchange: exchange.clone() });
        exchanges(registry).flat_map(of).collect()
    }

    /// What tells why deferring takes as long as it does.
    pub fn controls(&self) -> [Pipeline; 2] {
        [Order::Apart, Order::Behind].map(|order| Pipeline { order, exchange: self.exchange.clone() })
    }

    /// Its name: `blocking/push`, `deferred/nccl_send_recv`.
    pub fn name(&self) -> String {
        self.to_string()
    }

    pub(crate) fn environment(&self) -> Environment {
        self.exchange.environment()
    }

    pub(crate) fn job(&self, of: &PipelineWorkload, devices: &Devices) -> Result<Job, String> {
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
            let call = Call::uniform(&first, world, &buffers[..2]).map_err(|error| error.to_string())?;
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
                grid: blocks.into(),
                block: THREADS.into(),
                cluster: None,
                dynamic_shared: 0,
                waits_for_peers: false,
                programmatic: false,
                registers: None,
                variables: Vec::new(),
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
        let exchange = |batch: u32, rank: u32| self.exchange.plan(&calls[batch as usize], &devices.target).ranks[rank as usize].clone();
        let plan = |batch: u32| {
            Plan::per_rank(format!("{self} batch {batch}"), world, |rank| {
                let verdict = Region::new("verdicts", u64::from(batch) * VERDICT, VERDICT);
                let seen = [Op::Fill { region: verdict.clone(), byte: 0 }, look(batch, rank, &verdict), Op::Fetch { from: verdict }];
                if self.order == Order::Apart {
                    return exchange(batch, rank).into_iter().chain(seen).collect();
                }
                let beside = |batch| Op::beside(EXCHANGES, &exchange(batch, rank));
                let next = (batch + 1 < batches).then(|| beside(batch + 1));
                let head_start = (next.is_some() && self.order == Order::Behind).then(|| delay(Late { rank, microseconds: HEAD_START }));
                let join = next.is_some().then_some(Op::Join { stream: EXCHANGES });
                let first = (batch == 0).then(|| [beside(0), Op::Join { stream: EXCHANGES }]);
                first.into_iter().flatten().chain(next).chain(head_start).chain(seen).chain(join).collect()
            })
        };
        let contents = (0..batches).map(|batch| Content::Numbers(vec![copy("input", whole, batch)], dtype)).collect();
        let verdicts = HostChecks { defers: self.order != Order::Blocking, good: [0, blocks] };
        let plans = (0..batches).map(plan).collect();
        Ok(Job { world, buffers, contents, plans, notes_products: false, promises: Vec::new(), verdicts: Some(verdicts) })
    }
}

/// All-to-alls that need no multicast.
fn exchanges(registry: &Registry) -> impl Iterator<Item = &Arc<dyn Algorithm>> {
    registry.of(Collective::AllToAll).filter(|algorithm| !algorithm.uses_multicast())
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.order.name(), self.exchange.name())
    }
}

impl Pipeline {
    /// The one of a name, whose exchange is in a registry.
    ///
    /// # Errors
    /// Names those there are.
    pub fn find(registry: &Registry, name: &str) -> Result<Pipeline, String> {
        let of = |exchange: &Arc<dyn Algorithm>| Order::ALL.map(|order| Pipeline { order, exchange: exchange.clone() });
        let all = || exchanges(registry).flat_map(of);
        all().find(|known| known.name() == name).ok_or_else(|| {
            let names: Vec<&str> = exchanges(registry).map(|exchange| exchange.name()).collect();
            format!(
                "unknown contender `{name}` of all_to_all --async: expected blocking/NAME, deferred/NAME, or as controls apart/NAME, behind/NAME; NAME is \
                 one of {}",
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::job::Numbers;
    use passmuster_harness::emulator::{Emulator, EmulatorOptions};
    use passmuster_plan::{
        machine::Machine,
        plan::{Script, Step},
    };

    /// If this fails, the device calls right what did not arrive, or what of the batch before lies there still, or the host does not hear of it.
    #[test]
    fn a_batch_that_was_not_exchanged_is_told_of() {
        let of = PipelineWorkload { batches: 5, world: 3, bytes: 600 };
        for pipeline in with_controls() {
            let told = |left_out: Option<usize>| {
                let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
                let mut job = pipeline.job(&of, &Devices::of(&machine, 3)).unwrap();
                let group = machine.open_group(3, &job.buffers).unwrap();
                // On all ranks, or they would wait for each other.
                match left_out {
                    Some(batch) if pipeline.order == Order::Apart => {
                        job.plans[batch].ranks.iter_mut().for_each(|ops| drop(ops.drain(..ops.len() - 3)));
                    }
                    Some(batch) => {
                        let ranks = &mut job.plans[batch - 1].ranks;
                        ranks.iter_mut().for_each(|ops| ops.retain(|op| !matches!(op, Op::Fork { .. } | Op::Join { .. })));
                    }
                    None => {}
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

    fn with_controls() -> Vec<Pipeline> {
        let deferred = Pipeline::all(&passmuster_harness::registry(passmuster_kernels::catalogue()))
            .into_iter()
            .filter(|pipeline| pipeline.order == Order::Deferred);
        Pipeline::all(&passmuster_harness::registry(passmuster_kernels::catalogue()))
            .into_iter()
            .chain(deferred.flat_map(|pipeline| pipeline.controls()))
            .collect()
    }

    /// If this fails, a control is not what tells the explanations apart: no look is beside an exchange, or each is, behind it.
    #[test]
    fn looks_are_where_the_order_has_them() {
        let machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
        let of = PipelineWorkload { batches: 3, world: 2, bytes: 600 };
        for pipeline in with_controls() {
            let job = pipeline.job(&of, &Devices::of(&machine, 2)).unwrap();
            let entry = |op: &Op| match op {
                Op::Launch(launch) => Some(launch.entry.clone()),
                Op::Fork { .. } => Some("fork".into()),
                Op::Join { .. } => Some("join".into()),
                _ => None,
            };
            let ops: Vec<String> = job.plans[1].ranks[0].iter().filter_map(entry).collect();
            let expected: &[&str] = match pipeline.order {
                Order::Blocking | Order::Deferred => &["fork", "arrived_bf16", "join"],
                Order::Behind => &["fork", "late", "arrived_bf16", "join"],
                Order::Apart => {
                    assert!(!ops.contains(&"fork".into()) && ops.last().unwrap() == "arrived_bf16", "{pipeline}: {ops:?}");
                    continue;
                }
            };
            assert_eq!(ops, expected, "{pipeline}");
        }
    }

    #[test]
    fn names_read_back() {
        for pipeline in with_controls() {
            assert_eq!(
                Pipeline::find(&passmuster_harness::registry(passmuster_kernels::catalogue()), &pipeline.name()).map(|read| read.name()),
                Ok(pipeline.name())
            );
        }
        assert!(
            ["deferred", "blocking/ring"].iter().all(|name| Pipeline::find(
                &passmuster_harness::registry(passmuster_kernels::catalogue()),
                name
            )
            .is_err())
        );
    }
}
