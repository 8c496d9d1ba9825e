//! A specification understood: names resolved, expressions read, contradictions refused with line and column.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{
    argument::{Argument, Buffer, BufferPart, Holder, Quantity},
    document::{self, Document, Scalar},
    expression::{Expression, Word},
};
use crate::{
    collective::{Collective, DType, ReduceOp},
    contract::Contract,
    plan::{Arg, Fill, MAX_WORLD, Role},
};

/// The largest specification, in bytes.
const MOST_TEXT: usize = 1 << 20;

/// The most arguments, fields of a struct and buffers.
const MOST_ITEMS: usize = 256;

/// The most levels of structs in structs.
const MOST_DEPTH: usize = 8;

/// How regions are aligned at most: what every machine keeps buffers to.
const MOST_ALIGNMENT: u64 = 512;

/// Why a text is no specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct SpecError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub problem: String,
}

/// What a specification says, without what the kernel is called for the user.
pub(super) struct Specification {
    pub(super) name: String,
    pub(super) collective: Collective,
    /// The kernel for each combination that there is one for.
    pub(super) entries: BTreeMap<(DType, ReduceOp), String>,
    pub(super) dtypes: Vec<DType>,
    pub(super) ops: Vec<ReduceOp>,
    pub(super) worlds: Vec<u32>,
    pub(super) count_multiple_of: Quantity,
    pub(super) least_count: Quantity,
    pub(super) most_count: Option<Quantity>,
    pub(super) alignment: u64,
    pub(super) in_place: bool,
    pub(super) out_of_place: bool,
    /// The buffer that the input is copied to before the launch.
    pub(super) copy_input_to: Option<usize>,
    pub(super) grid: Quantity,
    pub(super) block: Quantity,
    pub(super) dynamic_shared: Quantity,
    pub(super) waits_for_peers: bool,
    pub(super) contract: Contract,
    pub(super) buffers: Vec<Buffer>,
    pub(super) arguments: Vec<Argument>,
}

impl Specification {
    /// Reads a specification. `kernel` names the kernel in its place.
    pub(super) fn read(text: &str, kernel: Option<&str>) -> Result<Specification, SpecError> {
        let reader = Reader { text };
        if text.len() > MOST_TEXT {
            return Err(reader.error(0, format!("a specification of {} bytes: at most {MOST_TEXT}", text.len())));
        }
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, error.message().trim().replace('\n', ", "))
        })?;
        reader.specification(document, kernel)
    }
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn place_of(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> SpecError {
        let (line, column) = self.place_of(at);
        SpecError { line, column, problem: problem.into() }
    }

    fn refuse<T, V>(&self, value: &Spanned<V>, problem: impl Into<String>) -> Result<T, SpecError> {
        Err(self.error(value.span().start, problem))
    }

    fn specification(&self, document: Document, kernel: Option<&str>) -> Result<Specification, SpecError> {
        let Document { name, collective, dtypes, ops, worlds, call, launch, contract, .. } = &document;
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.get_ref().is_empty() || name.get_ref().len() > 64 || !name.get_ref().chars().all(letters) {
            return self.refuse(name, format!("name `{}`: 1 to 64 of a-z, 0-9 and _", name.get_ref()));
        }
        self.distinct("dtypes", dtypes)?;
        self.distinct("ops", ops)?;
        self.distinct("worlds", worlds)?;
        if *collective != Collective::AllReduce {
            return self.refuse(name, format!("collective {collective}: kernels from elsewhere are of all_reduce so far"));
        }
        if let Some(op) = ops.get_ref().iter().find(|op| !collective.operators().contains(op)) {
            return self.refuse(ops, format!("operator {op}: {collective} has none of that name"));
        }
        if ops.get_ref().contains(&ReduceOp::PremulSum) {
            return self.refuse(ops, format!("operator {}: a launch has no argument for a rank's factor", ReduceOp::PremulSum));
        }
        if let Some(world) = worlds.get_ref().iter().find(|&&world| world == 0 || world as usize > MAX_WORLD) {
            return self.refuse(worlds, format!("world size {world}: a group has 1 to {MAX_WORLD} ranks"));
        }
        let out_of_place = call.out_of_place.unwrap_or(true);
        if !call.in_place && !out_of_place {
            return self.refuse(name, "neither in_place nor out_of_place: no call is left");
        }
        let alignment = match &call.alignment {
            None => 1,
            Some(given) if given.get_ref().is_power_of_two() && *given.get_ref() <= MOST_ALIGNMENT => *given.get_ref(),
            Some(given) => {
                return self.refuse(given, format!("alignment {}: a power of two, at most {MOST_ALIGNMENT}", given.get_ref()));
            }
        };
        if document.buffers.len() > MOST_ITEMS || document.arguments.len() > MOST_ITEMS {
            return self.refuse(name, format!("more than {MOST_ITEMS} buffers or arguments"));
        }
        let buffers = self.buffers(name.get_ref(), &document.buffers)?;
        let copy_input_to = match &call.copy_input_to {
            None => None,
            Some(buffer) => match self.place(buffer, None, &buffers)?.holder {
                Holder::Own(index) => Some(index),
                Holder::Input | Holder::Output => return self.refuse(buffer, "the input is copied to a buffer of the kernel's own"),
            },
        };
        let or = |given: &Option<Spanned<Scalar>>, what: &str, words: &[Word], value| match given {
            Some(given) => self.quantity(given, what, words),
            None => Ok(Quantity::constant(value)),
        };
        let arguments = document.arguments.iter().map(|argument| self.argument(argument, &buffers, worlds.get_ref(), 0));
        Ok(Specification {
            name: name.get_ref().clone(),
            collective: *collective,
            entries: self.entries(&document, kernel)?,
            dtypes: dtypes.get_ref().clone(),
            ops: ops.get_ref().clone(),
            worlds: worlds.get_ref().clone(),
            count_multiple_of: or(&call.count_multiple_of, "count_multiple_of", Word::OF_TYPES, 1)?,
            least_count: or(&call.least_count, "least_count", Word::OF_TYPES, 0)?,
            most_count: call.most_count.as_ref().map(|most| self.quantity(most, "most_count", Word::OF_TYPES)).transpose()?,
            alignment,
            in_place: call.in_place,
            out_of_place,
            copy_input_to,
            grid: self.quantity(&launch.grid, "grid", Word::OF_SHAPE)?,
            block: self.quantity(&launch.block, "block", Word::OF_SHAPE)?,
            dynamic_shared: or(&launch.dynamic_shared, "dynamic_shared", Word::OF_SHAPE, 0)?,
            waits_for_peers: launch.waits_for_peers.unwrap_or(true),
            contract: contract.contract(),
            arguments: arguments.collect::<Result<_, _>>()?,
            buffers,
        })
    }

    fn distinct<T: PartialEq>(&self, what: &str, list: &Spanned<Vec<T>>) -> Result<(), SpecError> {
        let items = list.get_ref();
        if items.is_empty() {
            return self.refuse(list, format!("{what} is empty"));
        }
        if items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
            return self.refuse(list, format!("{what} names one twice"));
        }
        Ok(())
    }

    /// The kernel of each combination of dtype and operator.
    fn entries(&self, document: &Document, kernel: Option<&str>) -> Result<BTreeMap<(DType, ReduceOp), String>, SpecError> {
        let Document { name, entry, entries, dtypes, ops, .. } = document;
        let all: Vec<(DType, ReduceOp)> =
            dtypes.get_ref().iter().flat_map(|&dtype| ops.get_ref().iter().map(move |&op| (dtype, op))).collect();
        let (pattern, at) = match (kernel, entry) {
            (Some(kernel), _) => (kernel, name.span().start),
            (None, Some(entry)) if entries.is_empty() => (entry.get_ref().as_str(), entry.span().start),
            (None, Some(entry)) => return self.refuse(entry, "both entry and entries: one of them names the kernels"),
            (None, None) if entries.is_empty() => {
                return self.refuse(name, "no kernel: it is named by entry, by entries or on the command line");
            }
            (None, None) => {
                let mut found = BTreeMap::new();
                for (key, entry) in entries {
                    let known = all.iter().find(|(dtype, op)| format!("{dtype},{op}") == *key);
                    let Some(&combination) = known else {
                        return self.refuse(entry, format!("entries has `{key}`, which is no DTYPE,OP of dtypes and ops"));
                    };
                    found.insert(combination, entry.get_ref().clone());
                }
                return Ok(found);
            }
        };
        let plain = pattern.replace("{dtype}", "").replace("{op}", "");
        if plain.contains(['{', '}']) {
            return Err(self.error(at, format!("kernel `{pattern}`: only {{dtype}} and {{op}} are replaced")));
        }
        let named = |(dtype, op): (DType, ReduceOp)| pattern.replace("{dtype}", dtype.name()).replace("{op}", op.name());
        let found: BTreeMap<_, _> = all.iter().map(|&combination| (combination, named(combination))).collect();
        let distinct: std::collections::BTreeSet<&String> = found.values().collect();
        if distinct.len() < found.len() {
            let reason = format!(
                "one kernel `{pattern}` for several of {} combinations of dtype and op: write {{dtype}} and {{op}} in its name, or entries",
                found.len()
            );
            return Err(self.error(at, reason));
        }
        Ok(found)
    }

    fn buffers(&self, name: &str, written: &[Spanned<document::Buffer>]) -> Result<Vec<Buffer>, SpecError> {
        let mut buffers: Vec<Buffer> = Vec::new();
        for buffer in written.iter().map(Spanned::get_ref) {
            let own = buffer.name.get_ref();
            let full = format!("{name}.{own}");
            if own.is_empty() || own == "input" || own == "output" || buffers.iter().any(|known| known.name == full) {
                return self.refuse(&buffer.name, format!("a second buffer `{own}`: input and output are the call's"));
            }
            let role = match buffer.role {
                document::Purpose::Data | document::Purpose::Scratch => Role::Data,
                document::Purpose::Signals => Role::Signals,
                document::Purpose::State => Role::State,
            };
            buffers.push(Buffer {
                name: full,
                role,
                local: buffer.memory == document::Reach::Local,
                fill: buffer.fill.as_ref().map(|fill| self.fill(fill)).transpose()?,
                bytes: self.quantity(&buffer.bytes, &format!("bytes of buffer `{own}`"), Word::OF_CALL)?,
            });
        }
        Ok(buffers)
    }

    fn fill(&self, fill: &Spanned<Scalar>) -> Result<Fill, SpecError> {
        match fill.get_ref() {
            Scalar::Text(text) if text == "zero" => Ok(Fill::Byte(0)),
            Scalar::Text(text) if text == "uninitialised" => Ok(Fill::Uninitialised),
            Scalar::Integer(byte @ 0..=255) => Ok(Fill::Byte(*byte as u8)),
            _ => self.refuse(fill, "fill: expected \"zero\", \"uninitialised\" or a byte from 0 to 255"),
        }
    }

    fn quantity(&self, written: &Spanned<Scalar>, what: &str, words: &[Word]) -> Result<Quantity, SpecError> {
        let start = written.span().start;
        match written.get_ref() {
            Scalar::Integer(value) => match u64::try_from(*value) {
                Ok(value) => {
                    let (line, column) = self.place_of(start);
                    Ok(Quantity { expression: Expression::constant(value), what: what.to_owned(), line, column })
                }
                Err(_) => self.refuse(written, format!("{what} = {value}: it must not be negative")),
            },
            Scalar::Float(value) => self.refuse(written, format!("{what} = {value}: it must be an integer or an expression")),
            Scalar::Text(text) => {
                // The text starts behind its quote.
                let (line, column) = self.place_of(start + 1);
                let expression = Expression::read(text, words)
                    .map_err(|problem| self.error(start + 1 + problem.at, format!("{} in {what}", problem.what)))?;
                Ok(Quantity { expression, what: what.to_owned(), line, column })
            }
        }
    }

    fn place(&self, buffer: &Spanned<String>, offset: Option<&Spanned<Scalar>>, buffers: &[Buffer]) -> Result<BufferPart, SpecError> {
        let name = buffer.get_ref();
        let own = |buffer: &Buffer| buffer.name.split_once('.').is_some_and(|(_, own)| own == name);
        let holder = match name.as_str() {
            "input" => Holder::Input,
            "output" => Holder::Output,
            _ => Holder::Own(buffers.iter().position(own).ok_or_else(|| {
                let known = buffers.iter().filter_map(|buffer| buffer.name.split_once('.')).map(|(_, own)| own);
                let known: Vec<&str> = ["input", "output"].into_iter().chain(known).collect();
                self.error(buffer.span().start, format!("unknown buffer `{name}`: expected one of {}", known.join(", ")))
            })?),
        };
        let offset = offset.map(|offset| self.quantity(offset, "offset", Word::OF_ARGUMENT)).transpose()?;
        Ok(BufferPart { holder, offset: offset.unwrap_or(Quantity::constant(0)) })
    }

    fn argument(
        &self,
        written: &Spanned<document::Argument>,
        buffers: &[Buffer],
        worlds: &[u32],
        depth: usize,
    ) -> Result<Argument, SpecError> {
        let argument = written.get_ref();
        let document::Argument { u32, i32, u64, i64, f32, pointer, peers, peer_table, multicast, fields, offset, length } = argument;
        let given = [u32, i32, u64, i64, f32].iter().filter(|kind| kind.is_some()).count()
            + [pointer, peers, peer_table, multicast].iter().filter(|kind| kind.is_some()).count()
            + usize::from(fields.is_some());
        if given != 1 {
            let kinds = "u32, i32, u64, i64, f32, pointer, peers, peer_table, multicast, struct";
            return self.refuse(written, format!("an argument has exactly one of {kinds}: this one has {given}"));
        }
        let addressed = [pointer, peers, peer_table, multicast].into_iter().flatten().next();
        if let (Some(offset), None) = (offset, addressed) {
            return self.refuse(offset, "offset goes with a buffer");
        }
        if let (Some(length), None) = (length, peers) {
            return self.refuse(length, "length goes with peers");
        }
        let scalars: [(_, u32, bool); 4] = [(u32, 32, false), (i32, 32, true), (u64, 64, false), (i64, 64, true)];
        for (scalar, bits, signed) in scalars {
            if let Some(scalar) = scalar {
                return self.integer(scalar, bits, signed);
            }
        }
        if let Some(value) = f32 {
            return Ok(match value.get_ref() {
                Scalar::Float(float) => Argument::Fixed(Arg::U32((*float as f32).to_bits())),
                Scalar::Integer(integer) => Argument::Fixed(Arg::U32((*integer as f32).to_bits())),
                Scalar::Text(_) => Argument::Float(self.quantity(value, "f32", Word::OF_ARGUMENT)?),
            });
        }
        if let Some(fields) = fields {
            if depth == MOST_DEPTH || fields.is_empty() || fields.len() > MOST_ITEMS {
                return self.refuse(written, format!("a struct has 1 to {MOST_ITEMS} fields and at most {MOST_DEPTH} levels"));
            }
            let fields = fields.iter().map(|field| self.argument(field, buffers, worlds, depth + 1));
            return fields.collect::<Result<_, _>>().map(Argument::Struct);
        }
        let Some(buffer) = addressed else { return self.refuse(written, "an argument of no kind") };
        let place = self.place(buffer, offset.as_ref(), buffers)?;
        if pointer.is_some() {
            return Ok(Argument::Pointer(place));
        }
        if let Holder::Own(index) = place.holder
            && buffers[index].local
        {
            return self.refuse(buffer, format!("buffer `{}` is local: peers have no address of it", buffer.get_ref()));
        }
        if peer_table.is_some() {
            return Ok(Argument::PeerTable(place));
        }
        if multicast.is_some() {
            return Ok(Argument::Multicast(place));
        }
        if let Some(length) = length {
            let most = worlds.iter().copied().max().unwrap_or(1);
            if *length.get_ref() < most || *length.get_ref() as usize > MAX_WORLD {
                return self
                    .refuse(length, format!("length {}: at least the largest world, {most}, and at most {MAX_WORLD}", length.get_ref()));
            }
        }
        Ok(Argument::Peers(place, length.as_ref().map(|length| *length.get_ref())))
    }

    fn integer(&self, written: &Spanned<Scalar>, bits: u32, signed: bool) -> Result<Argument, SpecError> {
        let Scalar::Integer(value @ ..0) = written.get_ref() else {
            let what = format!("{}{bits}", if signed { 'i' } else { 'u' });
            let quantity = self.quantity(written, &what, Word::OF_ARGUMENT)?;
            let most = (u64::MAX >> (64 - bits)) >> u32::from(signed);
            return Ok(Argument::Integer { quantity, bits, most });
        };
        let fits = signed && (bits == 64 || i32::try_from(*value).is_ok());
        match (fits, bits) {
            (true, 32) => Ok(Argument::Fixed(Arg::U32(*value as u32))),
            (true, _) => Ok(Argument::Fixed(Arg::U64(*value as u64))),
            (false, _) => self.refuse(written, format!("{value} does not fit {}{bits}", if signed { 'i' } else { 'u' })),
        }
    }
}
