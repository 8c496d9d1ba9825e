//! `fsdp`: a training step of layers whose weights are sharded over the ranks, as PyTorch's FSDP takes it. A weight is gathered under the products
//! of the layer before; the gradient of a weight is reduced and scattered under those of the layer after.
//!
//! # The step
//! Weights are n x k, as torch.nn.Linear has them, and rank r holds the r-th part of the rows of each. Forward, from the first layer to the last:
//! Y = X x W^T. Backward, from the last to the first: the gradient of X is dY x W, that of W is dY^T x X, of which each rank gets its part of the rows
//! of the sum over all ranks. The weight of the last layer stays for the backward pass, which begins with it; all others are gathered again.
//!
//! # Streams
//! Products are on the rank's stream, gathers on one side stream, reduce-scatters on another. A gather starts with the products of the layer before
//! it, and ends before its own; a reduce-scatter starts behind its products, and ends before the next one starts. One after the other, the same
//! operations in the same order are on one stream.
//!
//! # Memory
//! All of it is of one pool, for which ranks meet once. Shards and their gradients stay. A whole weight is given back behind its last product, a whole
//! gradient when it is scattered: there is room for two of each, which take turns.
//!
//! # What is simpler than in training
//! Layers do not feed each other: all take the same X and dY, for integers would outgrow their type on the way. dY^T lies in memory, and is each
//! layer's own, so that no two gradients are the same. Weights are gathered in the type that is multiplied. There are no activations and no optimizer.

use std::{fmt, str::FromStr, sync::Arc};

use super::workspace;
use crate::{
    FsdpWorkload,
    devices::{Devices, Environment},
    job::{Content, ExpectedResult, Job, Rows, copied, copy},
};
use passmuster_kernels::{all_gather, reduce_scatter};
use passmuster_plan::{
    algorithms::{Algorithm, Nccl, Target},
    collective::{Product, ReduceOp},
    plan::{Call, MatmulCall, Op, Operands, Plan, RankCall, Region},
    pool::{Channels, InFlight, PoolError, SymmetricPool},
};

/// Who communicates in a training step, and when.
#[derive(Clone, Copy)]
pub struct Fsdp {
    /// Whether beside the products, or between them.
    pub overlaps: bool,
    /// Who; nobody where the products alone are timed, on weights that are there.
    by: Option<&'static Family>,
}

/// Collectives of one make.
struct Family {
    name: &'static str,
    gather: fn() -> Arc<dyn Algorithm>,
    scatter: fn() -> Arc<dyn Algorithm>,
}

/// Copy engines do not add: who gathers by them scatters by a kernel.
const FAMILIES: [Family; 5] = [
    Family { name: "nccl_ring", gather: || Arc::new(Nccl::ALL_GATHER_RING), scatter: || Arc::new(Nccl::REDUCE_SCATTER_RING) },
    Family {
        name: "nccl_symmetric",
        gather: || Arc::new(Nccl::ALL_GATHER_SYMMETRIC),
        scatter: || Arc::new(Nccl::REDUCE_SCATTER_SYMMETRIC),
    },
    Family { name: "nccl_copy_engine", gather: || Arc::new(Nccl::ALL_GATHER_COPY_ENGINE), scatter: || Arc::new(Nccl::REDUCE_SCATTER_RING) },
    Family { name: "copy_engine", gather: || Arc::new(all_gather::COPY_ENGINE), scatter: || Arc::new(reduce_scatter::PULL) },
    Family { name: "push", gather: || Arc::new(all_gather::Push), scatter: || Arc::new(reduce_scatter::PULL) },
];

/// Side streams.
const GATHERS: usize = 1;
const SCATTERS: usize = 2;

/// Whole weights that there is room for, and whole gradients.
const TURNS: u64 = 2;

/// The largest number of layers: each has matrices of its own.
const MOST_LAYERS: u32 = 128;

impl Fsdp {
    /// The products alone.
    pub const PRODUCTS: Fsdp = Fsdp { overlaps: false, by: None };

    /// The products alone, and everyone between them and beside them.
    pub fn all() -> Vec<Fsdp> {
        let both = |by| [false, true].map(|overlaps| Fsdp { overlaps, by: Some(by) });
        std::iter::once(Fsdp::PRODUCTS).chain(FAMILIES.iter().flat_map(both)).collect()
    }

    /// Its name: `matmul`, `sequential/push`, `overlap/nccl_ring`.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Who gathers.
    pub fn gather(&self) -> Option<Arc<dyn Algorithm>> {
        self.by.map(|family| (family.gather)())
    }

    pub(crate) fn environment(&self) -> Environment {
        self.gather().map_or(&[], |gather| gather.environment())
    }

    pub(crate) fn job(&self, of: &FsdpWorkload, devices: &Devices) -> Result<Job, String> {
        if !(1..=MOST_LAYERS).contains(&of.layers) {
            return Err(format!("{} layers: 1 to {MOST_LAYERS}", of.layers));
        }
        if !of.n.is_multiple_of(of.world.into()) {
            return Err(format!("N = {} does not divide by {} ranks", of.n, of.world));
        }
        Step::new(*self, of, devices)?.taken()
    }
}

/// A step while it is put together.
struct Step<'a> {
    how: Fsdp,
    of: &'a FsdpWorkload,
    target: Target,
    pool: SymmetricPool,
    /// For each layer, where a rank's part of the weight is, and where its part of the gradient goes.
    shards: Vec<(Region, Region)>,
    /// The whole weights of a rank for which nobody gathers, which layers use by turns.
    weights: Vec<Region>,
    /// What each rank does.
    ranks: Vec<Vec<Op>>,
    promises: Vec<ExpectedResult>,
}

/// A matrix that a call in flight brings, or takes; without one it is there.
struct Moved {
    matrix: Region,
    call: Option<InFlight>,
}

fn text(error: PoolError) -> String {
    error.to_string()
}

impl<'a> Step<'a> {
    fn new(how: Fsdp, of: &'a FsdpWorkload, devices: &Devices) -> Result<Step<'a>, String> {
        let [shard, whole] = [of.shard(), of.n * of.k].map(|elements| elements * of.dtype.size());
        // Whatever its allocations are rounded to.
        let room = |bytes: u64| bytes.next_multiple_of(512);
        let bytes = 2 * u64::from(of.layers) * room(shard) + 2 * TURNS * room(whole);
        let channels = |algorithm, bytes| Channels { algorithm, world: of.world, dtype: of.dtype, bytes, count: 1 };
        let channels = how.by.map(|by| vec![channels((by.gather)(), shard), channels((by.scatter)(), whole)]).unwrap_or_default();
        let mut pool = SymmetricPool::laid_out(of.world, bytes, &channels).map_err(|error| error.to_string())?;
        let mut both = || Ok((pool.allocate(shard)?, pool.allocate(shard)?));
        let shards = (0..of.layers).map(|_| both()).collect::<Result<_, _>>().map_err(text)?;
        let weights =
            (0..if how.by.is_none() { TURNS } else { 0 }).map(|_| pool.allocate(whole)).collect::<Result<_, _>>().map_err(text)?;
        // A gather and a reduce-scatter may be in flight at once.
        let (target, ranks) = (devices.at_once(2), vec![Vec::new(); of.world as usize]);
        Ok(Step { how, of, target, pool, shards, weights, ranks, promises: Vec::new() })
    }

    fn taken(mut self) -> Result<Job, String> {
        let FsdpWorkload { layers, dtype, world, m, n, k } = *self.of;
        let size = dtype.size();
        // What whole weights and gradients take turns in, before any of it is taken.
        let turns = self.pool.allocate(self.pool.free_bytes().1).map_err(text)?;
        self.pool.free(&turns).map_err(text)?;

        let x = Region::new("x", 0, m * k * size);
        let dy = Region::new("dy", 0, m * n * size);
        let each =
            |name: &'static str, elements: u64| (copied(name, elements * size, layers), move |layer| copy(name, elements * size, layer));
        let (transposed, dy_t_of) = each("dy_t", n * m);
        let (outputs, y_of) = each("y", m * n);
        let (gradients, dx_of) = each("dx", m * k);
        let (scratch, workspace) = workspace();
        let [forward, of_input, of_weight] = self.of.products();

        let mut weight = self.gather(0)?;
        self.wait(GATHERS, &mut weight);
        for layer in 0..layers {
            let next = if layer + 1 < layers { Some(self.gather(layer + 1)?) } else { None };
            let b = self.weight(layer, &weight.matrix);
            self.multiply(forward, Operands { a: x.clone(), b: weight.matrix.clone(), c: y_of(layer) }, &workspace)?;
            self.promises.push(ExpectedResult::Product { product: forward, a: Rows::Own(x.clone()), b, c: y_of(layer) });
            if let Some(mut next) = next {
                self.wait(GATHERS, &mut next);
                self.over(weight)?;
                weight = next;
            }
        }
        let mut scattering: Option<Moved> = None;
        for layer in (0..layers).rev() {
            let next = if layer > 0 { Some(self.gather(layer - 1)?) } else { None };
            let b = self.weight(layer, &weight.matrix);
            self.multiply(of_input, Operands { a: dy.clone(), b: weight.matrix.clone(), c: dx_of(layer) }, &workspace)?;
            self.promises.push(ExpectedResult::Product { product: of_input, a: Rows::Own(dy.clone()), b, c: dx_of(layer) });
            let gradient = self.pool.allocate(n * k * size).map_err(text)?;
            self.multiply(of_weight, Operands { a: dy_t_of(layer), b: x.clone(), c: gradient.clone() }, &workspace)?;
            if let Some(mut next) = next {
                self.wait(GATHERS, &mut next);
                self.over(weight)?;
                weight = next;
            }
            if let Some(before) = scattering {
                self.scattered(before)?;
            }
            scattering = Some(self.scatter(layer, gradient, (dy_t_of(layer), x.clone()))?);
        }
        self.scattered(scattering.expect("there is a layer"))?;

        let mut buffers = vec![scratch, transposed, outputs, gradients];
        buffers.extend([&x, &dy].map(|region| copied(&region.buffer, region.bytes, 1)));
        // What is not written shows.
        let mut contents: Vec<Content> = buffers[2..4].iter().map(|buffer| Content::Byte(buffer.whole(), 0xff)).collect();
        contents.extend([x, dy].map(|region| Content::Numbers(vec![region], dtype)));
        contents.extend((0..layers).map(|layer| Content::Numbers(vec![dy_t_of(layer)], dtype)));
        for (shard, gradient) in self.shards {
            contents.extend([Content::Numbers(vec![shard], dtype), Content::Byte(gradient, 0xff)]);
        }
        contents.extend(self.weights.into_iter().map(|weight| Content::Numbers(vec![weight], dtype)));
        contents.push(Content::Byte(turns, 0xff));
        buffers.extend(self.pool.buffers().iter().cloned());
        let plan = Plan { name: format!("{} {:?}", self.how, self.of), nodes: 1, of_caller: false, ranks: self.ranks };
        Ok(Job { world, buffers, contents, plans: vec![plan], notes_products: true, promises: self.promises, verdicts: None })
    }

    /// Who holds the weight of a layer: the ranks together, or the rank that has it all.
    fn weight(&self, layer: u32, whole: &Region) -> Rows {
        match self.how.by {
            Some(_) => Rows::OfRanks(self.shards[layer as usize].0.clone()),
            None => Rows::Own(whole.clone()),
        }
    }

    fn multiply(&mut self, product: Product, operands: Operands, workspace: &Region) -> Result<(), String> {
        let call = MatmulCall { product, operands, workspace: workspace.clone(), sms: None };
        call.check()?;
        self.ranks.iter_mut().for_each(|ops| ops.push(Op::Matmul(call.clone())));
        Ok(())
    }

    /// Starts to gather the weight of a layer.
    fn gather(&mut self, layer: u32) -> Result<Moved, String> {
        let Some(by) = self.how.by else {
            return Ok(Moved { matrix: self.weights[layer as usize % self.weights.len()].clone(), call: None });
        };
        let matrix = self.pool.allocate(self.of.n * self.of.k * self.of.dtype.size()).map_err(text)?;
        let shard = self.shards[layer as usize].0.clone();
        let call = self.start(GATHERS, &(by.gather)(), shard, matrix.clone())?;
        Ok(Moved { matrix, call: Some(call) })
    }

    /// Gives the memory of a weight back, behind its last product.
    fn over(&mut self, weight: Moved) -> Result<(), String> {
        if self.weights.is_empty() { self.pool.free(&weight.matrix).map_err(text) } else { Ok(()) }
    }

    /// Starts to reduce and scatter the gradient of a layer, a product of these.
    fn scatter(&mut self, layer: u32, matrix: Region, (a, b): (Region, Region)) -> Result<Moved, String> {
        let [_, _, product] = self.of.products();
        let Some(by) = self.how.by else {
            // Layers before used the same memory.
            let c = matrix.clone();
            self.promises.extend(((layer as u64) < TURNS).then_some(ExpectedResult::Product {
                product,
                a: Rows::Own(a),
                b: Rows::Own(b),
                c,
            }));
            return Ok(Moved { matrix, call: None });
        };
        let c = self.shards[layer as usize].1.clone();
        let scatter = (by.scatter)();
        let call = self.start(SCATTERS, &scatter, matrix.clone(), c.clone())?;
        let agreed = Call::uniform(&self.passed(&*scatter, &matrix, &c), self.of.world, self.pool.buffers());
        let contract = scatter.contract(&agreed.map_err(|error| error.to_string())?);
        self.promises.push(ExpectedResult::Scattered { product, a, b, c, contract });
        Ok(Moved { matrix, call: Some(call) })
    }

    /// What rank 0 passes to a collective.
    fn passed(&self, algorithm: &dyn Algorithm, input: &Region, output: &Region) -> RankCall {
        let collective = algorithm.collective();
        let op = if collective.operators().contains(&ReduceOp::Sum) { ReduceOp::Sum } else { ReduceOp::Copy };
        RankCall {
            collective,
            dtype: self.of.dtype,
            op,
            count: self.of.shard(),
            root: 0,
            factor: None,
            parts: None,
            input: input.clone(),
            output: output.clone(),
        }
    }

    fn start(&mut self, side: usize, algorithm: &Arc<dyn Algorithm>, input: Region, output: Region) -> Result<InFlight, String> {
        let passed = self.passed(&**algorithm, &input, &output);
        let call = self.pool.start(algorithm, &passed, self.of.world, &self.target).map_err(text)?;
        for (ops, of_rank) in self.ranks.iter_mut().zip(&call.plan().ranks) {
            match self.how.overlaps {
                true => ops.push(Op::beside(side, of_rank)),
                false => ops.extend(of_rank.iter().cloned()),
            }
        }
        Ok(call)
    }

    /// Waits for what was started on a side stream.
    fn wait(&mut self, side: usize, moved: &mut Moved) {
        if moved.call.take().is_some() && self.how.overlaps {
            self.ranks.iter_mut().for_each(|ops| ops.push(Op::Join { stream: side }));
        }
    }

    /// Waits for a gradient to be scattered, whose memory is then free.
    fn scattered(&mut self, mut gradient: Moved) -> Result<(), String> {
        self.wait(SCATTERS, &mut gradient);
        self.pool.free(&gradient.matrix).map_err(text)
    }
}

impl fmt::Display for Fsdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            None => f.write_str("matmul"),
            Some(family) => write!(f, "{}/{}", if self.overlaps { "overlap" } else { "sequential" }, family.name),
        }
    }
}

impl FromStr for Fsdp {
    type Err = String;

    fn from_str(name: &str) -> Result<Fsdp, String> {
        Fsdp::all().into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let families = FAMILIES.map(|family| family.name).join(", ");
            format!("unknown contender `{name}` of fsdp: expected matmul, sequential/NAME or overlap/NAME; NAME is one of {families}")
        })
    }
}
