//! Buffers, arguments and numbers of a specification, and what they come to for one call.

use super::expression::{Expression, Values, Word};
use crate::plan::{Arg, BufferSpec, Call, Fill, Region, Role};

/// An expression, what it is for, and where it stands in the specification.
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
    pub(super) fn value(&self, values: &Values) -> Result<u64, String> {
        self.expression.value(values).map_err(|problem| {
            let Quantity { expression, what, line, column } = self;
            format!("specification {line}:{}: {} in {what} `{expression}`", column + problem.at, problem.what)
        })
    }

    /// Its value, in a range.
    ///
    /// # Errors
    /// As [`Quantity::value`]; a value outside the range.
    pub(super) fn within(&self, name: &str, values: &Values, least: u64, most: u64) -> Result<u64, String> {
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
    pub(super) fill: Option<Fill>,
    pub(super) bytes: Quantity,
}

impl Buffer {
    /// The buffer as machines make it.
    pub(super) fn made(&self, bytes: u64) -> BufferSpec {
        let mut made = BufferSpec::new(self.name.clone(), bytes, self.role);
        made.fill = self.fill.unwrap_or(made.fill);
        made.local = self.local;
        made
    }
}

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Input,
    Output,
    /// One of the kernel's own, by its number.
    Own(usize),
}

/// Part of a buffer, from an offset in bytes to its end.
pub(super) struct BufferPart {
    pub(super) holder: Holder,
    pub(super) offset: Quantity,
}

/// One argument, or a field of one.
pub(super) enum Argument {
    Fixed(Arg),
    Integer {
        quantity: Quantity,
        bits: u32,
        most: u64,
    },
    Float(Quantity),
    Pointer(BufferPart),
    /// Peers' addresses by value, as many as there are ranks or as is given.
    Peers(BufferPart, Option<u32>),
    PeerTable(BufferPart),
    Multicast(BufferPart),
    Struct(Vec<Argument>),
}

/// What arguments are made from.
pub(super) struct Context<'a> {
    pub(super) call: &'a Call,
    pub(super) buffers: &'a [Buffer],
    pub(super) values: Values,
}

impl Context<'_> {
    /// Bytes of one of the kernel's own buffers, for this call.
    pub(super) fn bytes(&self, index: usize) -> Result<u64, String> {
        self.buffers[index].bytes.value(&self.values)
    }

    fn region(&self, place: &BufferPart) -> Result<Region, String> {
        let whole = match place.holder {
            Holder::Input => self.call.input.clone(),
            Holder::Output => self.call.output.clone(),
            Holder::Own(index) => Region::new(self.buffers[index].name.clone(), 0, self.bytes(index)?),
        };
        let offset = place.offset.value(&self.values)?;
        match (whole.bytes.checked_sub(offset), whole.offset.checked_add(offset)) {
            (Some(bytes), Some(offset)) => Ok(Region::new(whole.buffer, offset, bytes)),
            _ => Err(format!("offset {offset} lies past {whole}")),
        }
    }
}

impl Argument {
    /// The argument of one rank's launch.
    ///
    /// # Errors
    /// A quantity without a value or one that does not fit; an offset past its buffer.
    pub(super) fn made(&self, context: &Context<'_>) -> Result<Arg, String> {
        Ok(match self {
            Argument::Fixed(arg) => arg.clone(),
            Argument::Integer { quantity, bits, most } => {
                let value = quantity.within(&quantity.what, &context.values, 0, *most)?;
                if *bits == 32 { Arg::U32(value as u32) } else { Arg::U64(value) }
            }
            Argument::Float(quantity) => Arg::U32((quantity.value(&context.values)? as f32).to_bits()),
            Argument::Pointer(place) => Arg::Address(context.region(place)?),
            Argument::Peers(place, length) => {
                Arg::PeerArray { region: context.region(place)?, length: length.unwrap_or(context.call.world()) }
            }
            Argument::PeerTable(place) => Arg::PeerTable(context.region(place)?),
            Argument::Multicast(place) => Arg::Multicast(context.region(place)?),
            Argument::Struct(fields) => Arg::Struct(fields.iter().map(|field| field.made(context)).collect::<Result<_, _>>()?),
        })
    }

    /// Whether it speaks of a word.
    pub(super) fn mentions(&self, word: Word) -> bool {
        match self {
            Argument::Fixed(_) => false,
            Argument::Integer { quantity, .. } | Argument::Float(quantity) => quantity.expression.mentions(word),
            Argument::Pointer(place) | Argument::Peers(place, _) | Argument::PeerTable(place) | Argument::Multicast(place) => {
                place.offset.expression.mentions(word)
            }
            Argument::Struct(fields) => fields.iter().any(|field| field.mentions(word)),
        }
    }
}
