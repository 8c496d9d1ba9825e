//! Steps of a specification: what each rank does in a call, in the order of its streams.

use super::{
    argument::{self, Argument, BufferPart, Context, Quantity},
    names::Names,
};
use crate::{
    expression::Word,
    plan::{Dim3, Launch, Op, Region},
};

/// The most blocks of a launch along x, as on any device.
const MOST_GRID: u64 = (1 << 31) - 1;

/// The most bytes of dynamic shared memory.
const MOST_SHARED: u64 = 227 * 1024;

/// The most along y and z.
const MOST_ROWS: u64 = (1 << 16) - 1;

/// One step, made where it applies, as often as it is repeated.
pub(super) struct Step {
    pub(super) kind: Kind,
    /// 0 is the call's own stream.
    pub(super) stream: usize,
    pub(super) when: Option<Quantity>,
    pub(super) repeat: Option<Quantity>,
}

/// What a step does.
pub(super) enum Kind {
    Launch(Box<LaunchSpec>),
    Copy {
        from: BufferPart,
        to: BufferPart,
        /// All from the offset on where none is given.
        bytes: Option<Quantity>,
        to_rank: Option<Quantity>,
    },
    Fill {
        part: BufferPart,
        bytes: Option<Quantity>,
        byte: Quantity,
    },
    Write {
        part: BufferPart,
        value: Quantity,
        to_rank: Option<Quantity>,
    },
    Wait {
        part: BufferPart,
        value: Quantity,
    },
    Join(usize),
}

/// Lines and columns of what a launch names.
pub(super) struct Places {
    pub(super) module: (usize, usize),
    pub(super) entry: (usize, usize),
}

/// A launch as it is specified.
pub(super) struct LaunchSpec {
    pub(super) names: Names,
    pub(super) places: Places,
    pub(super) grid: Extent,
    pub(super) block: Extent,
    pub(super) cluster: Option<Extent>,
    /// What the compiler says of the module where it is left out, else none.
    pub(super) dynamic_shared: Option<Quantity>,
    pub(super) waits_for_peers: bool,
    pub(super) programmatic: bool,
    pub(super) registers: Option<u32>,
    pub(super) arguments: Vec<Argument>,
}

/// Sizes along up to three axes.
#[derive(Clone)]
pub(super) struct Extent(pub(super) Vec<Quantity>);

impl Extent {
    fn made(&self, what: &str, context: &Context<'_>, most: [u64; 3]) -> Result<Dim3, String> {
        let mut sizes = [1; 3];
        for ((size, quantity), most) in sizes.iter_mut().zip(&self.0).zip(most) {
            *size = quantity.within(what, &context.values, 1, most)? as u32;
        }
        Ok(Dim3(sizes))
    }
}

impl LaunchSpec {
    /// One rank's launch.
    fn made(&self, context: &Context<'_>) -> Result<Launch, String> {
        let (module, entry) = self.names.of(context.call.dtype(), context.call.op(), context.call.world(), context.rank())?;
        let grid = self.grid.made("grid", context, [MOST_GRID, MOST_ROWS, MOST_ROWS])?;
        let block = self.block.made("block", context, [1024, 1024, 64])?;
        if block.total() > 1024 {
            return Err(format!("block {block} has {} threads: expected 1 to 1024", block.total()));
        }
        let cluster = self.cluster.as_ref().map(|cluster| cluster.made("cluster", context, [16; 3])).transpose()?;
        if let Some(cluster) = cluster
            && (0..3).any(|axis| !grid.0[axis].is_multiple_of(cluster.0[axis]))
        {
            return Err(format!("grid {grid} in clusters of {cluster}: a multiple on each axis is needed"));
        }
        let dynamic_shared = match (&self.dynamic_shared, context.shared.get(&module)) {
            (Some(given), _) => given.within("dynamic_shared", &context.values, 0, MOST_SHARED)? as u32,
            (None, Some(&shared)) if u64::from(shared) > MOST_SHARED => {
                return Err(format!("shared memory of {shared} bytes, as the module's metadata says: expected at most {MOST_SHARED}"));
            }
            (None, shared) => shared.copied().unwrap_or(0),
        };
        let values = context.values.with(Word::Grid, grid.total()).with(Word::Block, block.total());
        let arguments = argument::made(&self.arguments, &Context { values, ..*context })?;
        let variables = context.variables.iter().map(|variable| variable.made(context)).collect::<Result<_, _>>()?;
        let LaunchSpec { waits_for_peers, programmatic, registers, .. } = *self;
        Ok(Launch {
            module,
            entry,
            grid,
            block,
            cluster,
            dynamic_shared,
            waits_for_peers,
            programmatic,
            registers,
            variables,
            args: arguments,
        })
    }
}

impl Step {
    /// What it comes to on a rank, for one turn of its repetition.
    fn made(&self, context: &Context<'_>) -> Result<Option<Op>, String> {
        let shortened = |region: Region, bytes: &Option<Quantity>| match bytes {
            None => Ok(region),
            Some(bytes) => {
                let bytes = bytes.within(&bytes.what, &context.values, 0, region.bytes)?;
                Ok::<Region, String>(Region { bytes, ..region })
            }
        };
        let word = |region: Region| match region.bytes >= 4 {
            true => Ok(Region { bytes: 4, ..region }),
            false => Err(format!("a word of 4 bytes in {region}")),
        };
        let word_value = |value: &Quantity| value.within("value", &context.values, 0, u32::MAX.into()).map(|value| value as u32);
        let peer = |rank: &Option<Quantity>| rank.as_ref().map(|rank| context.peer(rank)).transpose();
        Ok(Some(match &self.kind {
            Kind::Launch(launch) => Op::Launch(launch.made(context)?),
            Kind::Copy { from, to, bytes, to_rank } => {
                let from = shortened(context.region(from)?, bytes)?;
                let to_rank = peer(to_rank)?;
                let to = context.region_of(to, to_rank.unwrap_or(context.rank()))?;
                if to.bytes < from.bytes {
                    return Err(format!("a copy of {} bytes to {to}, which has {}", from.bytes, to.bytes));
                }
                if from.bytes == 0 {
                    return Ok(None);
                }
                let to = Region { bytes: from.bytes, ..to };
                Op::Copy { from, to, to_rank }
            }
            Kind::Fill { part, bytes, byte } => {
                let region = shortened(context.region(part)?, bytes)?;
                Op::Fill { region, byte: byte.within("byte", &context.values, 0, 255)? as u8 }
            }
            Kind::Write { part, value, to_rank } => {
                let to_rank = peer(to_rank)?;
                let to = word(context.region_of(part, to_rank.unwrap_or(context.rank()))?)?;
                Op::WriteValue { to, value: word_value(value)?, to_rank }
            }
            Kind::Wait { part, value } => Op::WaitValue { at: word(context.region(part)?)?, value: word_value(value)? },
            Kind::Join(stream) => Op::Join { stream: *stream },
        }))
    }

    /// Shows every expression that it is made from.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Quantity)) {
        self.when.iter().chain(&self.repeat).for_each(&mut *see);
        match &self.kind {
            Kind::Launch(launch) => {
                let LaunchSpec { grid, block, cluster, dynamic_shared, arguments, .. } = &**launch;
                [Some(grid), Some(block), cluster.as_ref()].into_iter().flatten().flat_map(|extent| &extent.0).for_each(&mut *see);
                dynamic_shared.iter().for_each(&mut *see);
                arguments.iter().for_each(|argument| argument.visit(see));
            }
            Kind::Copy { from, to, bytes, to_rank } => {
                [&from.offset, &to.offset].into_iter().chain(bytes).chain(to_rank).for_each(see);
            }
            Kind::Fill { part, bytes, byte } => [&part.offset, byte].into_iter().chain(bytes).for_each(see),
            Kind::Write { part, value, to_rank } => [&part.offset, value].into_iter().chain(to_rank).for_each(see),
            Kind::Wait { part, value } => [&part.offset, value].into_iter().for_each(see),
            Kind::Join(_) => {}
        }
    }
}

/// All that a rank does for a call.
///
/// # Errors
/// The first quantity without a value, or that does not fit.
pub(super) fn operations(steps: &[Step], context: &Context<'_>) -> Result<Vec<Op>, String> {
    let mut operations: Vec<Op> = Vec::new();
    let mut forked = std::collections::BTreeSet::new();
    for step in steps {
        let times = step.repeat.as_ref().map_or(Ok(1), |repeat| context.times(repeat))?;
        for i in 0..times {
            let context = context.turn(i);
            if let Some(when) = &step.when
                && when.value(&context.values)? == 0
            {
                continue;
            }
            let Some(op) = step.made(&context)? else { continue };
            if let Op::Join { stream } = op {
                // A step that forks may not have applied.
                if forked.remove(&stream) {
                    operations.push(op);
                }
                continue;
            }
            match operations.last_mut() {
                _ if step.stream == 0 => operations.push(op),
                // What follows on the same side stream is handed to it together.
                Some(Op::Fork { stream, ops }) if *stream == step.stream => ops.push(op),
                _ => {
                    forked.insert(step.stream);
                    operations.push(Op::Fork { stream: step.stream, ops: vec![op] });
                }
            }
        }
    }
    operations.extend(forked.into_iter().map(|stream| Op::Join { stream }));
    Ok(operations)
}
