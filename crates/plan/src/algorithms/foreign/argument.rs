//! Buffers, arguments and numbers of a specification, and what they come to for one call.

use std::collections::BTreeMap;

use super::contents::Contents;
use crate::{
    collective::{DType, ReduceOp},
    expression::{Expression, Values, Word},
    plan::{Arg, BufferSpec, Call, MAX_RANKS, MAX_WORLD, ModuleVariable, Outside, Region, Role, TensorMap},
    task::TaskCall,
};

/// The most values that one repetition stands for: arguments of a launch, steps of a call.
const MOST_REPEATED: u64 = 4096;

/// An expression, what it is for, and where it stands in the specification.
#[derive(Clone)]
pub(super) struct Quantity {
    pub(super) expression: Expression,
    pub(super) what: String,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Quantity {
    /// A number, which has no place that a report would name.
    pub(super) fn constant(value: u64) -> Quantity {
        Quantity { expression: Expression::constant(value), what: String::new(), line: 0, column: 0 }
    }

    /// Its value.
    ///
    /// # Errors
    /// Where in the specification there is none, and why.
    pub(super) fn value(&self, values: &Values<'_>) -> Result<u64, String> {
        self.expression.value(values).map_err(|problem| {
            let Quantity { expression, what, line, column } = self;
            format!("specification {line}:{}: {} in {what} `{expression}`", column + problem.at, problem.what)
        })
    }

    /// Its value, in a range.
    ///
    /// # Errors
    /// As [`Quantity::value`]; a value outside the range.
    pub(super) fn within(&self, name: &str, values: &Values<'_>, least: u64, most: u64) -> Result<u64, String> {
        let value = self.value(values)?;
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(format!("{name} `{}` is {value}: expected {least} to {most}", self.expression))
    }
}

/// A buffer that the kernel needs beside the call's own.
pub(super) struct Buffer {
    /// With the algorithm's name before it.
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) local: bool,
    /// What it starts with, if not what its role says.
    pub(super) contents: Option<Contents>,
    pub(super) bytes: Quantity,
}

impl Buffer {
    /// The buffer as machines make it.
    ///
    /// # Errors
    /// When its size or its contents have no value for calls like these, which `values` are of.
    pub(super) fn made(&self, values: &Values<'_>) -> Result<BufferSpec, String> {
        let mut made = BufferSpec::new(self.name.clone(), self.bytes.value(values)?, self.role);
        made.local = self.local;
        if let Some(contents) = &self.contents {
            made.fill = contents.fill(values, made.bytes).map_err(|why| format!("buffer `{}`: {why}", self.name))?;
        }
        Ok(made)
    }
}

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Of a call of a collective.
    Input,
    /// Of a call of a collective.
    Output,
    /// One of a task's, by its number.
    Tensor(usize),
    /// One of the kernel's own, by its number.
    Own(usize),
}

/// Part of a buffer, from an offset in bytes to its end.
#[derive(Clone)]
pub(super) struct BufferPart {
    pub(super) holder: Holder,
    pub(super) offset: Quantity,
}

/// One argument or a field of one, as often as it is repeated.
#[derive(Clone)]
pub(super) struct Argument {
    /// Line and column in the specification.
    pub(super) place: (usize, usize),
    pub(super) kind: Kind,
    pub(super) repeat: Option<Quantity>,
}

/// What an argument passes.
#[derive(Clone)]
pub(super) enum Kind {
    Fixed(Arg),
    Integer {
        quantity: Quantity,
        bits: u32,
        most: u64,
    },
    Float(Quantity),
    /// The address on this rank, or on another.
    Pointer(BufferPart, Option<Quantity>),
    /// Peers' addresses by value, as many as there are ranks or as is given.
    Peers(BufferPart, Option<u32>),
    PeerTable(BufferPart),
    Multicast(BufferPart),
    Stride(BufferPart),
    /// The same in units of 2^`shift` bytes.
    ShiftedStride {
        part: BufferPart,
        shift: u32,
        bytes: u32,
    },
    TensorMap(Box<Tensor>),
    Struct(Vec<Argument>),
    /// The address of memory that holds these.
    Memory(Vec<Argument>),
}

/// A tensor map of part of a buffer, of this rank or another.
#[derive(Clone)]
pub(super) struct Tensor {
    pub(super) part: BufferPart,
    pub(super) of_rank: Option<Quantity>,
    /// The call's where it is not told.
    pub(super) dtype: Option<DType>,
    pub(super) extents: Vec<Quantity>,
    pub(super) strides: Vec<Quantity>,
    pub(super) tile: Vec<Quantity>,
    pub(super) element_strides: Vec<Quantity>,
    pub(super) interleave: u32,
    pub(super) swizzle: u32,
    pub(super) outside: Outside,
}

impl Tensor {
    fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        let lists = [&self.extents, &self.strides, &self.tile, &self.element_strides];
        std::iter::once(&self.part.offset).chain(&self.of_rank).chain(lists.into_iter().flatten())
    }

    /// The map of one rank's launch.
    ///
    /// # Errors
    /// What has no value, lies past the buffer, or is beyond what TMA can address.
    fn made(&self, context: &Context<'_>) -> Result<TensorMap, String> {
        let rank = self.of_rank.as_ref().map_or(Ok(context.rank()), |rank| context.peer(rank))?;
        let values = |all: &[Quantity]| all.iter().map(|quantity| quantity.value(&context.values)).collect::<Result<Vec<u64>, String>>();
        let side = |side: &Quantity| side.within(&side.what, &context.values, 0, 256).map(|side| side as u32);
        let sides = |all: &[Quantity]| all.iter().map(side).collect::<Result<Vec<u32>, String>>();
        let mut map = TensorMap {
            region: context.region_of(&self.part, rank)?,
            of_rank: (rank != context.rank()).then_some(rank),
            dtype: self.dtype.unwrap_or(context.call.dtype()),
            extents: values(&self.extents)?,
            strides: values(&self.strides)?,
            tile: sides(&self.tile)?,
            element_strides: sides(&self.element_strides)?,
            interleave: self.interleave,
            swizzle: self.swizzle,
            outside: self.outside,
        };
        // Of what is left of the buffer, as much as the tensor has.
        if let Some(bytes) = map.bytes().filter(|bytes| *bytes <= map.region.bytes) {
            map.region.bytes = bytes;
        }
        Ok(map.check().map(|()| map)?)
    }
}

/// A variable of modules, which the host of each rank sets once for a group.
pub(super) struct Variable {
    /// As the PTX has it.
    pub(super) name: String,
    /// Line and column in the specification.
    pub(super) place: (usize, usize),
    /// What its first bytes are, as fields of a struct.
    pub(super) value: Vec<Argument>,
}

impl Variable {
    /// What it is on a rank, for the group's largest call.
    ///
    /// # Errors
    /// As [`made`].
    pub(super) fn made(&self, context: &Context<'_>) -> Result<ModuleVariable, String> {
        let values = context.largest.with(Word::Rank, context.rank().into());
        let value = made(&self.value, &Context { values, ..*context }).map_err(|why| format!("variable `{}`: {why}", self.name))?;
        Ok(ModuleVariable { name: self.name.clone(), value })
    }
}

/// A call, of whichever kind.
#[derive(Clone, Copy)]
pub(super) enum CallOf<'a> {
    Collective(&'a Call),
    Task(&'a TaskCall),
}

impl CallOf<'_> {
    pub(super) fn world(self) -> u32 {
        match self {
            CallOf::Collective(call) => call.world(),
            CallOf::Task(call) => call.world(),
        }
    }

    pub(super) fn dtype(self) -> DType {
        match self {
            CallOf::Collective(call) => call.dtype,
            CallOf::Task(call) => call.dtype,
        }
    }

    /// The operator that kernels are named by; tasks have none.
    pub(super) fn op(self) -> ReduceOp {
        match self {
            CallOf::Collective(call) => call.op,
            CallOf::Task(_) => ReduceOp::Copy,
        }
    }

    /// All of a buffer of the call's own on a rank.
    fn region(self, holder: Holder, rank: u32) -> Option<Region> {
        match (self, holder) {
            (CallOf::Collective(call), Holder::Input) => Some(call.input_of(rank)),
            (CallOf::Collective(call), Holder::Output) => Some(call.output_of(rank)),
            (CallOf::Task(call), Holder::Tensor(number)) => Some(call.region(number, rank)),
            _ => None,
        }
    }
}

/// What a rank's part of a call is made from.
pub(super) struct Context<'a> {
    pub(super) call: CallOf<'a>,
    pub(super) buffers: &'a [Buffer],
    pub(super) variables: &'a [Variable],
    /// Bytes of dynamic shared memory that modules' compilers say.
    pub(super) shared: &'a BTreeMap<String, u32>,
    /// Of this call on this rank.
    pub(super) values: Values<'a>,
    /// Of the group's largest call, which the kernel's own buffers are made for.
    pub(super) largest: Values<'a>,
}

impl Context<'_> {
    /// All of a buffer on a rank.
    pub(super) fn whole(&self, holder: Holder, rank: u32) -> Result<Region, String> {
        match holder {
            Holder::Own(index) => {
                let Buffer { name, bytes, .. } = &self.buffers[index];
                Ok(Region::new(name.clone(), 0, bytes.value(&self.largest)?))
            }
            other => self.call.region(other, rank).ok_or_else(|| "a buffer that calls of this kind do not have".to_owned()),
        }
    }

    pub(super) fn rank(&self) -> u32 {
        self.values.of(Word::Rank) as u32
    }

    /// Part of a buffer on a rank.
    pub(super) fn region_of(&self, part: &BufferPart, rank: u32) -> Result<Region, String> {
        let whole = self.whole(part.holder, rank)?;
        let offset = part.offset.value(&self.values)?;
        match (whole.bytes.checked_sub(offset), whole.offset.checked_add(offset)) {
            (Some(bytes), Some(offset)) => Ok(Region::new(whole.buffer, offset, bytes)),
            _ => Err(format!("offset {offset} lies past {whole}")),
        }
    }

    /// Part of a buffer on this rank.
    pub(super) fn region(&self, part: &BufferPart) -> Result<Region, String> {
        self.region_of(part, self.rank())
    }

    /// The number of a rank.
    pub(super) fn peer(&self, rank: &Quantity) -> Result<u32, String> {
        rank.within(&rank.what, &self.values, 0, u64::from(self.call.world()) - 1).map(|rank| rank as u32)
    }

    /// The same with the number of a repetition.
    pub(super) fn turn(&self, i: u64) -> Context<'_> {
        Context { values: self.values.with(Word::I, i), ..*self }
    }

    /// How often what is repeated so comes.
    pub(super) fn times(&self, repeat: &Quantity) -> Result<u64, String> {
        repeat.within(&repeat.what, &self.values, 0, MOST_REPEATED)
    }

    /// Addresses of a part on all ranks: where it is the rank's own slot, each rank's.
    fn peers(&self, part: &BufferPart, length: u32) -> Result<Arg, String> {
        let regions: Vec<Region> = (0..self.call.world()).map(|rank| self.region_of(part, rank)).collect::<Result<_, _>>()?;
        if regions.iter().all(|region| region == &regions[0]) {
            return Ok(Arg::PeerArray { region: regions[0].clone(), length });
        }
        let addresses = regions.into_iter().zip(0..).map(|(region, rank)| Arg::AddressOf { region, rank });
        Ok(Arg::Struct(addresses.chain(std::iter::repeat(Arg::U64(0))).take(length as usize).collect()))
    }
}

/// The arguments of one rank's launch, or fields of one.
///
/// # Errors
/// As [`Argument::made`].
pub(super) fn made(arguments: &[Argument], context: &Context<'_>) -> Result<Vec<Arg>, String> {
    let mut made = Vec::new();
    for Argument { kind, repeat, .. } in arguments {
        match repeat {
            None => made.push(kind.made(context)?),
            Some(repeat) => {
                for i in 0..context.times(repeat)? {
                    made.push(kind.made(&context.turn(i))?);
                }
            }
        }
    }
    Ok(made)
}

impl Argument {
    /// Whether it leads to a call's own input or output.
    pub(super) fn is_of_call(&self) -> bool {
        let of_call = |part: &BufferPart| !matches!(part.holder, Holder::Own(_));
        match &self.kind {
            Kind::Fixed(_) | Kind::Integer { .. } | Kind::Float(_) => false,
            Kind::Pointer(part, _) | Kind::Peers(part, _) | Kind::PeerTable(part) | Kind::Multicast(part) => of_call(part),
            Kind::Stride(part) | Kind::ShiftedStride { part, .. } => of_call(part),
            Kind::TensorMap(tensor) => of_call(&tensor.part),
            Kind::Struct(fields) | Kind::Memory(fields) => fields.iter().any(Argument::is_of_call),
        }
    }

    /// Shows every expression that it is made from.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Quantity)) {
        self.repeat.iter().for_each(&mut *see);
        match &self.kind {
            Kind::Fixed(_) => {}
            Kind::Integer { quantity, .. } | Kind::Float(quantity) => see(quantity),
            Kind::Pointer(part, of_rank) => {
                see(&part.offset);
                of_rank.iter().for_each(see);
            }
            Kind::Peers(part, _) | Kind::PeerTable(part) | Kind::Multicast(part) => see(&part.offset),
            Kind::Stride(part) | Kind::ShiftedStride { part, .. } => see(&part.offset),
            Kind::TensorMap(tensor) => tensor.quantities().for_each(see),
            Kind::Struct(fields) | Kind::Memory(fields) => fields.iter().for_each(|field| field.visit(see)),
        }
    }
}

impl Kind {
    /// The argument of one rank's launch.
    ///
    /// # Errors
    /// A quantity without a value or one that does not fit; an offset past its buffer; a rank that there is not.
    fn made(&self, context: &Context<'_>) -> Result<Arg, String> {
        Ok(match self {
            Kind::Fixed(arg) => arg.clone(),
            Kind::Integer { quantity, bits, most } => {
                let value = quantity.within(&quantity.what, &context.values, 0, *most)?;
                match bits {
                    8 => Arg::U8(value as u8),
                    16 => Arg::U16(value as u16),
                    32 => Arg::U32(value as u32),
                    _ => Arg::U64(value),
                }
            }
            Kind::Float(quantity) => Arg::U32((quantity.value(&context.values)? as f32).to_bits()),
            Kind::Pointer(part, None) => Arg::Address(context.region(part)?),
            Kind::Pointer(part, Some(of_rank)) => {
                let rank = context.peer(of_rank)?;
                Arg::AddressOf { region: context.region_of(part, rank)?, rank }
            }
            Kind::Peers(part, length) => context.peers(part, length.unwrap_or(context.call.world()))?,
            // A table that is longer than it has to be hides reads past the ranks.
            Kind::PeerTable(part) => {
                let room = if context.call.world() as usize <= MAX_WORLD { MAX_WORLD } else { MAX_RANKS };
                Arg::InMemory(vec![context.peers(part, room as u32)?])
            }
            Kind::Multicast(part) => Arg::Multicast(context.region(part)?),
            Kind::Stride(part) => Arg::Stride(context.region(part)?),
            &Kind::ShiftedStride { ref part, shift, bytes } => Arg::ShiftedStride { region: context.region(part)?, shift, bytes },
            Kind::TensorMap(tensor) => Arg::TensorMap(tensor.made(context)?),
            Kind::Struct(fields) => Arg::Struct(made(fields, context)?),
            Kind::Memory(fields) => Arg::InMemory(made(fields, context)?),
        })
    }
}
