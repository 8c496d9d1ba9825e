//! `overlap`: a product, and an all-gather that has nothing to do with it, one after the other or at once. After PyTorch's
//! bench_overlapped_matmul_allgather, whose gather is out of place: every rank copies what it sends into its own slot, too, and a copy within a device may
//! take SMs. In place, as FSDP2 gathers parameters, there is no such copy.

use std::{fmt, str::FromStr, sync::Arc};

use super::{operands, workspace};
use crate::{
    MatmulWorkload,
    devices::{Devices, Environment},
    job::{Content, ExpectedResult, Job, Rows, copied, copy},
};
use passmuster_kernels::all_gather;
use passmuster_plan::{
    algorithms::{Algorithm, Nccl},
    collective::{Collective, ReduceOp},
    plan::{BufferSpec, Call, MatmulCall, Op, Operands, Plan, RankCall, Region, Role},
};

/// Which of the two, when, and by whom.
#[derive(Clone)]
pub struct OverlapContender {
    /// When.
    pub how: How,
    /// Who gathers; nobody in [`How::Matmul`].
    pub gather: Option<Arc<dyn Algorithm>>,
    /// How many SMs the product is planned for; all of the device by default.
    pub sms: Option<u32>,
}

/// What of product and gather is done, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The product alone.
    Matmul,
    /// The gather alone.
    Gather,
    /// The product, then the gather, on one stream.
    Sequential,
    /// The gather on a side stream, enqueued first, beside the product.
    Overlap,
}

impl How {
    const ALL: [How; 4] = [How::Matmul, How::Gather, How::Sequential, How::Overlap];

    /// For names.
    pub const fn name(self) -> &'static str {
        match self {
            How::Matmul => "matmul",
            How::Gather => "gather",
            How::Sequential => "sequential",
            How::Overlap => "overlap",
        }
    }

    const fn multiplies(self) -> bool {
        !matches!(self, How::Gather)
    }
}

/// The gathers: NCCL's kernels, its copy engines, and ours.
fn gathers() -> [Arc<dyn Algorithm>; 5] {
    [
        Arc::new(Nccl::ALL_GATHER_RING),
        Arc::new(Nccl::ALL_GATHER_SYMMETRIC_ST),
        Arc::new(Nccl::ALL_GATHER_COPY_ENGINE),
        Arc::new(all_gather::COPY_ENGINE),
        Arc::new(all_gather::Push),
    ]
}

impl OverlapContender {
    /// All arms. Products, alone and overlapped, are also planned for each number of SMs in `targets`.
    pub fn all(targets: &[u32]) -> Vec<OverlapContender> {
        let alone = |sms| OverlapContender { how: How::Matmul, gather: None, sms };
        let targets = || std::iter::once(None).chain(targets.iter().copied().map(Some));
        let mut arms: Vec<OverlapContender> = targets().map(alone).collect();
        for gather in gathers() {
            let arm = |how, sms| OverlapContender { how, gather: Some(gather.clone()), sms };
            arms.extend([How::Gather, How::Sequential].map(|how| arm(how, None)));
            arms.extend(targets().map(|sms| arm(How::Overlap, sms)));
        }
        arms
    }

    /// Its name: `overlap/copy_engine`, `overlap/nccl_ring@116`.
    pub fn name(&self) -> String {
        self.to_string()
    }

    pub(crate) fn environment(&self) -> Environment {
        self.gather.as_ref().map_or(&[], |gather| gather.environment())
    }

    pub(crate) fn job(&self, of: &MatmulWorkload, copies: u32, devices: &Devices) -> Result<Job, String> {
        let (how, gather, sms) = (self.how, self.gather.as_deref(), self.sms);
        if let Some(asked) = sms.filter(|&asked| asked > devices.sms) {
            return Err(format!("{asked} SMs to plan for: the device has {}", devices.sms));
        }
        let product = of.product();
        let (mut buffers, mut contents, of_copy) = operands(of, [of.m; 2], copies);
        let (spec, workspace) = workspace();
        buffers.push(spec);
        buffers.push(copied("gathered", of.gathered * u64::from(of.world), copies));
        buffers.extend(of.out_of_place.then(|| copied("sent", of.gathered, copies)));
        let gathers = match gather {
            Some(algorithm) => (0..copies).map(|number| call(algorithm, of, number, !of.out_of_place)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        if let Some(algorithm) = gather {
            buffers.extend(algorithm.workspace(of.dtype, of.world, of.gathered));
        }
        let (mut plans, mut promises) = (Vec::new(), Vec::new());
        for number in 0..copies {
            let operands: Operands = of_copy(number);
            let call = MatmulCall { product, operands: operands.clone(), workspace: workspace.clone(), sms };
            call.check()?;
            let gather = gather.zip(gathers.get(number as usize));
            if let Some((algorithm, call)) = gather {
                algorithm.check_target(call, &devices.target)?;
            }
            let gathering = gather.map(|(algorithm, call)| algorithm.plan(call, &devices.target));
            plans.push(Plan::per_rank(format!("{self} {of:?}"), of.world, |rank| {
                let gathering = gathering.as_ref().map_or(Vec::new(), |plan| plan.ranks[rank as usize].clone());
                let multiply = Op::Matmul(call.clone());
                match how {
                    How::Matmul => vec![multiply],
                    How::Gather => gathering,
                    How::Sequential => std::iter::once(multiply).chain(gathering).collect(),
                    How::Overlap => vec![Op::beside(1, &gathering), multiply, Op::Join { stream: 1 }],
                }
            }));
            let Operands { a, b, c } = operands;
            promises.extend(how.multiplies().then_some(ExpectedResult::Product { product, a: Rows::Own(a), b: Rows::Own(b), c }));
            if let Some((_, call)) = gather {
                let (held, promise) = gathered(call);
                contents.extend(held);
                promises.push(promise);
            }
        }
        Ok(Job { world: of.world, buffers, contents, plans, notes_products: how.multiplies(), promises, verdicts: None })
    }

    /// The gather alone, in place or out of it.
    pub(crate) fn gather(&self, of: &MatmulWorkload, in_place: bool, devices: &Devices) -> Result<Job, String> {
        let algorithm = self.gather.as_deref().ok_or("nothing is gathered")?;
        let call = call(algorithm, of, 0, in_place)?;
        let mut buffers = vec![copied("gathered", of.gathered * u64::from(of.world), 1), copied("sent", of.gathered, 1)];
        buffers.extend(algorithm.workspace(of.dtype, of.world, of.gathered));
        let (contents, promise) = gathered(&call);
        algorithm.check_target(&call, &devices.target)?;
        let plans = vec![algorithm.plan(&call, &devices.target)];
        Ok(Job {
            world: of.world,
            buffers,
            contents: contents.into(),
            plans,
            notes_products: false,
            promises: vec![promise],
            verdicts: None,
        })
    }
}

/// What a gather's buffers hold before, and what it promises.
fn gathered(call: &Call) -> ([Content; 2], ExpectedResult) {
    let (sent, all): (Vec<Region>, _) = ((0..call.world()).map(|rank| call.input_of(rank)).collect(), call.output.clone());
    ([Content::Byte(all.clone(), 0xff), Content::Numbers(sent.clone(), call.dtype)], ExpectedResult::Gathered { sent, all })
}

/// The gather on one of the copies.
fn call(algorithm: &dyn Algorithm, of: &MatmulWorkload, number: u32, in_place: bool) -> Result<Call, String> {
    let output = copy("gathered", of.gathered * u64::from(of.world), number);
    let input = if in_place { Region { bytes: of.gathered, ..output.clone() } } else { copy("sent", of.gathered, number) };
    let buffers = [&input, &output].map(|region| BufferSpec::new(region.buffer.clone(), region.offset + region.bytes, Role::Data));
    let buffers = if in_place { &buffers[1..] } else { &buffers[..] };
    let (collective, op, count) = (Collective::AllGather, ReduceOp::Copy, of.gathered / of.dtype.size());
    let first = RankCall { collective, dtype: of.dtype, op, count, root: 0, factor: None, parts: None, input, output };
    let call = Call::uniform(&first, of.world, buffers).map_err(|error| error.to_string())?;
    algorithm.supports(&call).map(|()| call)
}

impl fmt::Display for OverlapContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.how.name())?;
        self.gather.as_ref().map_or(Ok(()), |gather| write!(f, "/{}", gather.name()))?;
        self.sms.map_or(Ok(()), |count| write!(f, "@{count}"))
    }
}

impl FromStr for OverlapContender {
    type Err = String;

    fn from_str(name: &str) -> Result<OverlapContender, String> {
        let parse = || {
            let (rest, sms) = match name.split_once('@') {
                Some((rest, count)) => (rest, Some(count.parse().ok().filter(|&count| count > 0)?)),
                None => (name, None),
            };
            let (how, gather) = match rest.split_once('/') {
                Some((how, gather)) => (how, Some(gathers().into_iter().find(|known| known.name() == gather)?)),
                None => (rest, None),
            };
            let how = How::ALL.into_iter().find(|known| known.name() == how)?;
            let possible = gather.is_some() != (how == How::Matmul) && (how.multiplies() || sms.is_none());
            possible.then_some(OverlapContender { how, gather, sms })
        };
        parse().ok_or_else(|| {
            let gathers = gathers().map(|gather| gather.name().to_owned()).join(", ");
            format!(
                "unknown contender `{name}` of overlap: expected matmul, gather/NAME, sequential/NAME or overlap/NAME, with @COUNT behind for \
                 a product planned for COUNT SMs; NAME is one of {gathers}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for arm in OverlapContender::all(&[116]) {
            assert_eq!(arm.name().parse::<OverlapContender>().map(|arm| arm.name()), Ok(arm.name()));
        }
        for wrong in ["overlap", "matmul/push", "gather/push@4", "overlap/push@0", "overlap/ring", ""] {
            assert!(wrong.parse::<OverlapContender>().is_err(), "{wrong}");
        }
    }
}
