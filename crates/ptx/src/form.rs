//! An instruction that is being decoded: a bag of modifiers, of which each is taken once in whatever order they stand, and a row of
//! operands. What nobody took is an error.

use std::collections::HashMap;

use super::{
    error::{Position, PtxError, shortened},
    instruction::{Access, Address, Base, Condition, Operand, Register},
    lexer::TokenKind,
    module::Function,
    names::{Declared, Names, Symbol},
    special::is_special,
    syntax::{self, Number, OperandKind},
    types::{CacheHint, Scope, Semantics, Space, Type},
};

/// What a module is for.
#[derive(Clone, Copy)]
pub(super) struct Targets<'t> {
    /// Version of the ISA: major, minor.
    pub(super) version: (u32, u32),
    pub(super) names: &'t [&'t str],
}

pub(super) struct Form<'f, 't> {
    pub(super) names: &'f mut Names<'t>,
    /// How many labels of branch tables the module may still use.
    pub(super) table_labels: &'f mut usize,
    /// Variables of the module.
    globals: &'f HashMap<&'t str, Symbol>,
    /// Its functions that are no kernels.
    pub(super) callable: &'f HashMap<&'t str, usize>,
    /// The module's functions as far as calls need them, by index.
    pub(super) functions: &'f [Function],
    /// What the module is for.
    targets: Targets<'f>,
    /// Whether it stands in a kernel.
    pub(super) in_entry: bool,
    pub(super) instruction: &'f syntax::Instruction<'t>,
    taken: u32,
    next: usize,
}

impl<'f, 't> Form<'f, 't> {
    pub(super) fn new(
        (names, table_labels): (&'f mut Names<'t>, &'f mut usize),
        (globals, callable, targets): (&'f HashMap<&'t str, Symbol>, &'f HashMap<&'t str, usize>, Targets<'f>),
        functions: &'f [Function],
        in_entry: bool,
        instruction: &'f syntax::Instruction<'t>,
    ) -> Form<'f, 't> {
        Form { names, table_labels, globals, callable, functions, targets, in_entry, instruction, taken: 0, next: 0 }
    }

    /// The opcode with all modifiers, as written.
    fn written(&self) -> String {
        let mut written = self.instruction.opcode.to_owned();
        for (modifier, _) in &self.instruction.modifiers {
            written.push('.');
            written.push_str(modifier);
        }
        shortened(&written)
    }

    pub(super) fn at(&self) -> Position {
        self.instruction.at
    }

    pub(super) fn unknown(&self) -> PtxError {
        PtxError::UnknownInstruction { place: self.at().into(), instruction: self.written() }
    }

    pub(super) fn not_modelled(&self, what: impl ToString) -> PtxError {
        PtxError::NotModelled { place: self.at().into(), what: what.to_string() }
    }

    pub(super) fn combination(&self, found: impl ToString, expected: impl ToString) -> PtxError {
        let (found, expected) = (found.to_string(), expected.to_string());
        PtxError::Combination { place: self.at().into(), instruction: self.written(), found, expected }
    }

    pub(super) fn operand_error(&self, operand: &syntax::Operand<'t>, expected: impl ToString) -> PtxError {
        let found = match &operand.kind {
            OperandKind::Name(name, None) | OperandKind::NamePlus(name, _) | OperandKind::Not(name) => format!("`{}`", shortened(name)),
            OperandKind::Name(name, element @ Some(_)) => format!("`{}`", shown((name, *element))),
            OperandKind::Number(Number::Integer { value, negative }) => {
                TokenKind::Integer(*value).described().replacen('`', if *negative { "`-" } else { "`" }, 1)
            }
            OperandKind::Number(_) => "a floating-point number".into(),
            OperandKind::Address(..) => "an address in brackets".into(),
            OperandKind::InTensor(..) => "a place in a tensor".into(),
            OperandKind::Vector(_) => "a vector".into(),
            OperandKind::List(_) => "a list".into(),
            OperandKind::Pair(a, b) => format!("`{}|{}`", shortened(a), shortened(b)),
        };
        PtxError::Operand { place: operand.at.into(), instruction: self.written(), found, expected: expected.to_string() }
    }

    /// That the module is for one of these targets. `what` needs one of them.
    pub(super) fn needs_target(&self, what: impl ToString, allowed: &[&str]) -> Result<(), PtxError> {
        if self.targets.names.iter().any(|target| allowed.contains(target)) {
            return Ok(());
        }
        let found = format!("{} for target {}", what.to_string(), shortened(&self.targets.names.join(", ")));
        Err(self.combination(found, format!("one of {}", allowed.join(", "))))
    }

    /// Whether the module's target has accesses of 256 bits: sm_100 and later, from version 8.8 of the ISA on.
    pub(super) fn has_wide_accesses(&self) -> bool {
        self.targets.version >= (8, 8) && self.is_from(100)
    }

    /// Whether the module is for a target of this number or a later one.
    fn is_from(&self, first: u32) -> bool {
        let number = |target: &str| {
            let digits = target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_lowercase());
            digits.parse::<u32>().ok()
        };
        self.targets.names.iter().any(|target| number(target).is_some_and(|number| number >= first))
    }

    /// That the module is for sm_100 or later. `what` needs that.
    pub(super) fn needs_sm_100(&self, what: &str) -> Result<(), PtxError> {
        if self.is_from(100) {
            return Ok(());
        }
        let found = format!("{what} for target {}", shortened(&self.targets.names.join(", ")));
        Err(self.combination(found, "sm_100 or later"))
    }

    /// Ends the decoding: nothing may be left.
    pub(super) fn finish(self) -> Result<(), PtxError> {
        for (index, (modifier, at)) in self.instruction.modifiers.iter().enumerate() {
            if self.taken & 1 << index == 0 {
                let place = (*at).into();
                return Err(PtxError::UnknownModifier { place, modifier: shortened(modifier), instruction: self.written() });
            }
        }
        match self.instruction.operands.get(self.next) {
            Some(operand) => Err(self.operand_error(operand, format!("no more than {} operands", self.next))),
            None => Ok(()),
        }
    }

    /// Takes a modifier if it is there.
    pub(super) fn take(&mut self, wanted: &str) -> bool {
        self.one_of(&[(wanted, ())]).is_some()
    }

    /// Takes the first modifier of a table that is there.
    pub(super) fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        self.one_that(|modifier| table.iter().find(|(text, _)| *text == modifier).map(|&(_, value)| value))
    }

    /// Takes the first modifier that means something to `read`.
    pub(super) fn one_that<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let modifiers = self.instruction.modifiers.iter().enumerate();
        let mut free = modifiers.filter(|(index, _)| self.taken & 1 << index == 0);
        let (index, value) = free.find_map(|(index, (modifier, _))| read(modifier).map(|value| (index, value)))?;
        self.taken |= 1 << index;
        Some(value)
    }

    /// Takes a modifier that must be there.
    pub(super) fn required<T: Copy>(&mut self, table: &[(&str, T)]) -> Result<T, PtxError> {
        self.one_of(table).ok_or_else(|| {
            let names: Vec<String> = table.iter().map(|(text, _)| format!(".{text}")).collect();
            self.combination("none of its modifiers", format!("one of {}", names.join(", ")))
        })
    }

    /// Takes the next type, in the order in which types stand; it must be one of those.
    pub(super) fn ty(&mut self, allowed: &[Type]) -> Result<Type, PtxError> {
        let names = || allowed.iter().map(|ty| format!(".{ty}")).collect::<Vec<_>>().join(", ");
        match self.one_of(Type::ALL) {
            Some(ty) if allowed.contains(&ty) => Ok(ty),
            Some(ty) => Err(self.combination(format!("type .{ty}"), format!("one of {}", names()))),
            None => Err(self.combination("no type", format!("one of {}", names()))),
        }
    }

    /// The space, or generic.
    pub(super) fn space(&mut self) -> Space {
        let spellings = [
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
            ("global", Space::Global),
            ("const", Space::Const),
            ("local", Space::Local),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            ("shared::cluster", Space::SharedCluster),
        ];
        self.one_of(&spellings).unwrap_or(Space::Generic)
    }

    /// Space, semantics, scope and hints of an access, which must have one of these semantics; the first is what no modifier means.
    pub(super) fn access(&mut self, allowed: &[Semantics], default_scope: Option<Scope>) -> Result<Access, PtxError> {
        let mmio = self.take("mmio");
        let stated = self.one_of(Semantics::ALL);
        let semantics = match (mmio, stated) {
            (true, Some(Semantics::Relaxed)) => Semantics::Mmio,
            (true, _) => return Err(self.combination("mmio", ".mmio.relaxed.sys")),
            (false, stated) => stated.unwrap_or(allowed[0]),
        };
        if !allowed.contains(&semantics) {
            return Err(self.combination(format!("semantics .{semantics}"), list(allowed)));
        }
        let stated_scope = self.one_of(Scope::ALL);
        let scope = match semantics {
            Semantics::Weak | Semantics::NonCoherent | Semantics::Volatile if stated_scope.is_some() => {
                return Err(self.combination(format!("a scope with .{semantics}"), "no scope"));
            }
            Semantics::Weak | Semantics::NonCoherent => None,
            Semantics::Volatile => Some(Scope::Sys),
            Semantics::Mmio if stated_scope != Some(Scope::Sys) => return Err(self.combination("mmio", ".mmio.relaxed.sys")),
            _ => Some(stated_scope.or(default_scope).ok_or_else(|| self.combination(format!(".{semantics} without scope"), "a scope"))?),
        };
        let space = self.space();
        Ok(Access { space, semantics, scope, hints: self.hints() })
    }

    /// What is said of caching.
    pub(super) fn hints(&mut self) -> Box<[CacheHint]> {
        std::iter::from_fn(|| self.one_of(CacheHint::ALL)).collect()
    }

    /// Passes over the cache policy that `.L2::cache_hint` adds as the last operand.
    pub(super) fn cache_policy(&mut self, access: &Access) -> Result<(), PtxError> {
        if access.hints.contains(&CacheHint::L2CacheHint) {
            self.source(Type::B64)?;
        }
        Ok(())
    }

    /// How many operands are left.
    pub(super) fn remaining(&self) -> usize {
        self.instruction.operands.len() - self.next
    }

    /// Whether the next operand is a predicate.
    pub(super) fn next_is_predicate(&mut self) -> bool {
        let Some(operand) = self.instruction.operands.get(self.next) else { return false };
        match operand.kind {
            OperandKind::Not(_) => true,
            OperandKind::Name(name, None) => {
                matches!(self.names.register((name, None), operand.at), Ok(Some(declared)) if declared.ty == Type::Pred)
            }
            _ => false,
        }
    }

    /// Whether the next operand is a vector.
    pub(super) fn next_is_vector(&self) -> bool {
        matches!(self.instruction.operands.get(self.next), Some(syntax::Operand { kind: OperandKind::Vector(_), .. }))
    }

    /// Whether the next operand is the constant zero.
    pub(super) fn next_is_zero(&self) -> bool {
        let zero = |number: &Number<'_>| match *number {
            Number::Integer { value, .. } => value == 0,
            Number::Single(bits) => bits == 0,
            Number::Double(bits) => bits == 0,
            Number::Decimal { .. } => false,
        };
        matches!(self.instruction.operands.get(self.next), Some(syntax::Operand { kind: OperandKind::Number(number), .. }) if zero(number))
    }

    pub(super) fn operand(&mut self, expected: &str) -> Result<&'f syntax::Operand<'t>, PtxError> {
        let index = self.next;
        let operand = self.instruction.operands.get(index);
        let operand = operand.ok_or_else(|| self.combination(format!("{index} operands"), format!("one more: {expected}")))?;
        self.next += 1;
        Ok(operand)
    }

    fn declared(&mut self, name: Name<'t>, at: Position) -> Result<Declared, PtxError> {
        if let Some(declared) = self.names.register(name, at)? {
            return Ok(declared);
        }
        if is_special(name.0, name.1) {
            let (found, expected) = (format!("`{}`", shown(name)), "a register: mov reads special registers".into());
            return Err(PtxError::Operand { place: at.into(), instruction: self.written(), found, expected });
        }
        Err(PtxError::undeclared(at, &shown(name), "register"))
    }

    /// A register that holds a `ty`: of its width, or where `wider` is set, at least of it.
    fn register_of(&mut self, operand: &syntax::Operand<'t>, name: Name<'t>, ty: Type, wider: bool) -> Result<Register, PtxError> {
        let declared = self.declared(name, operand.at)?;
        let (has, wants) = (declared.ty.bits(), ty.bits());
        let fits = has == wants || (wider && ty != Type::Pred && declared.ty != Type::Pred && has > wants && has <= 64);
        if fits {
            return Ok(declared.register);
        }
        let expected = if ty == Type::Pred { "a predicate".into() } else { format!("a register of {wants} bits") };
        let found = format!("`{}` of type .{}", shown(name), declared.ty);
        Err(PtxError::Operand { place: operand.at.into(), instruction: self.written(), found, expected })
    }

    pub(super) fn destination(&mut self, ty: Type) -> Result<Register, PtxError> {
        self.destination_or_sink(ty, false)?.ok_or_else(|| self.combination("`_` as destination", "a register"))
    }

    pub(super) fn wide_destination(&mut self, ty: Type) -> Result<Register, PtxError> {
        self.destination_or_sink(ty, true)?.ok_or_else(|| self.combination("`_` as destination", "a register"))
    }

    /// A register, or `_`.
    pub(super) fn destination_or_sink(&mut self, ty: Type, wider: bool) -> Result<Option<Register>, PtxError> {
        let operand = self.operand("a destination")?;
        self.one_destination(operand, ty, wider)
    }

    fn one_destination(&mut self, operand: &syntax::Operand<'t>, ty: Type, wider: bool) -> Result<Option<Register>, PtxError> {
        match operand.kind {
            OperandKind::Name("_", None) => Ok(None),
            OperandKind::Name(name, element) => self.register_of(operand, (name, element), ty, wider).map(Some),
            _ => Err(self.operand_error(operand, "a register")),
        }
    }

    /// `a`, or `a|p` with a predicate, either of which may be `_`.
    pub(super) fn destination_pair(&mut self, ty: Type) -> Result<(Option<Register>, Option<Register>), PtxError> {
        let operand = self.operand("a destination")?;
        let OperandKind::Pair(first, second) = operand.kind else { return Ok((self.one_destination(operand, ty, false)?, None)) };
        let mut one = |name: &'t str, ty| if name == "_" { Ok(None) } else { self.register_of(operand, (name, None), ty, false).map(Some) };
        Ok((one(first, ty)?, one(second, Type::Pred)?))
    }

    pub(super) fn source(&mut self, ty: Type) -> Result<Operand, PtxError> {
        let operand = self.operand("a source")?;
        self.one_source(operand, ty, false)
    }

    pub(super) fn wide_source(&mut self, ty: Type) -> Result<Operand, PtxError> {
        let operand = self.operand("a source")?;
        self.one_source(operand, ty, true)
    }

    pub(super) fn one_source(&mut self, operand: &syntax::Operand<'t>, ty: Type, wider: bool) -> Result<Operand, PtxError> {
        match operand.kind {
            OperandKind::Name("WARP_SZ", None) if !ty.is_float() => Ok(Operand::Immediate(32)),
            OperandKind::Name(name, element) => self.register_of(operand, (name, element), ty, wider).map(Operand::Register),
            OperandKind::Number(number) => match immediate(number, ty) {
                Some(bits) => Ok(Operand::Immediate(bits)),
                None => Err(self.operand_error(operand, format!("a register or a constant of type .{ty}"))),
            },
            _ => Err(self.operand_error(operand, "a register or a constant")),
        }
    }

    /// A predicate as a source, `!` before it or not.
    pub(super) fn condition(&mut self) -> Result<Condition, PtxError> {
        let operand = self.operand("a predicate")?;
        let (name, negated) = match operand.kind {
            OperandKind::Name(name, None) => (name, false),
            OperandKind::Not(name) => (name, true),
            _ => return Err(self.operand_error(operand, "a predicate")),
        };
        Ok(Condition { register: self.register_of(operand, (name, None), Type::Pred, false)?, negated })
    }

    /// An integer constant.
    pub(super) fn constant(&mut self, below: u64) -> Result<u64, PtxError> {
        let operand = self.operand("an integer constant")?;
        match operand.kind {
            OperandKind::Number(Number::Integer { value, negative: false }) if value < below => Ok(value),
            _ => Err(self.operand_error(operand, format!("a constant below {below}"))),
        }
    }

    /// The items of a vector of as many elements as `count` says, or of one.
    fn items(&mut self, count: usize, expected: &str) -> Result<&'f [syntax::Operand<'t>], PtxError> {
        let operand = self.operand(expected)?;
        match &operand.kind {
            OperandKind::Vector(items) if items.len() == count => Ok(items),
            OperandKind::Vector(items) => Err(self.operand_error(operand, format!("one of {count} elements, not {}", items.len()))),
            _ if count == 1 => Ok(std::slice::from_ref(operand)),
            _ => Err(self.operand_error(operand, format!("a vector of {count} elements"))),
        }
    }

    pub(super) fn destinations(&mut self, count: usize, ty: Type, wider: bool) -> Result<Box<[Option<Register>]>, PtxError> {
        let items = self.items(count, "a destination")?;
        items.iter().map(|item| self.one_destination(item, ty, wider)).collect()
    }

    pub(super) fn sources(&mut self, count: usize, ty: Type, wider: bool) -> Result<Box<[Operand]>, PtxError> {
        let items = self.items(count, "a source")?;
        items.iter().map(|item| self.one_source(item, ty, wider)).collect()
    }

    /// An address in brackets, in a space.
    pub(super) fn address(&mut self, space: Space) -> Result<Address, PtxError> {
        let operand = self.operand("an address")?;
        let OperandKind::Address(name, offset) = operand.kind else { return Err(self.operand_error(operand, "an address in brackets")) };
        let Some(name) = name else { return Ok(Address { base: Base::Zero, offset }) };
        self.address_of(operand, name, offset, space)
    }

    /// A tensor map's address and a coordinate for each of `dimensions` dimensions.
    pub(super) fn place_in_tensor(&mut self, dimensions: usize) -> Result<(Address, Box<[Operand]>), PtxError> {
        let operand = self.operand("a place in a tensor")?;
        let OperandKind::InTensor(name, coordinates) = &operand.kind else {
            return Err(self.operand_error(operand, "a tensor map and coordinates in brackets"));
        };
        if coordinates.len() != dimensions {
            return Err(self.operand_error(operand, format!("one of {dimensions} coordinates, not {}", coordinates.len())));
        }
        let map = self.address_of(operand, *name, 0, Space::Generic)?;
        let coordinates = coordinates.iter().map(|coordinate| self.one_source(coordinate, Type::S32, false));
        Ok((map, coordinates.collect::<Result<_, _>>()?))
    }

    /// What a name and an offset in brackets are the address of, in a space.
    fn address_of(&mut self, operand: &syntax::Operand<'t>, name: Name<'t>, offset: i64, space: Space) -> Result<Address, PtxError> {
        if let Some(declared) = self.names.register(name, operand.at)? {
            // A 32-bit register reaches what is small; elsewhere addresses have 64 bits.
            let bits = declared.ty.bits();
            let small = matches!(space, Space::Shared | Space::SharedCluster | Space::Local | Space::Param | Space::Const);
            if bits == 64 || (bits == 32 && small) {
                return Ok(Address { base: Base::Register(declared.register), offset });
            }
            let found = format!("`{}` of type .{}", shown(name), declared.ty);
            let expected = "a register of 64 bits".into();
            return Err(PtxError::Operand { place: operand.at.into(), instruction: self.written(), found, expected });
        }
        let symbol = self.symbol(name.0, operand.at)?;
        // What is a block's own is also of its cluster.
        let of_cluster = (symbol.space, space) == (Space::Shared, Space::SharedCluster);
        if symbol.space != space && !of_cluster {
            let found = format!("`{}` of space .{}", shown(name), symbol.space);
            let expected = format!("one of space .{space}");
            return Err(PtxError::Operand { place: operand.at.into(), instruction: self.written(), found, expected });
        }
        Ok(Address { base: symbol.base, offset: offset.wrapping_add(symbol.offset as i64) })
    }

    /// A place in shared memory, without brackets: a register of type `ty`, or a variable where `variables` says so.
    pub(super) fn place(&mut self, ty: Type, variables: bool) -> Result<Address, PtxError> {
        let operand = self.operand("an address")?;
        let (name, offset) = match operand.kind {
            OperandKind::Name(name, None) => (name, 0),
            OperandKind::NamePlus(name, offset) => (name, offset),
            _ => return Err(self.operand_error(operand, "a register or a variable in shared memory")),
        };
        if self.names.register((name, None), operand.at)?.is_some() && offset == 0 {
            return Ok(Address { base: Base::Register(self.register_of(operand, (name, None), ty, false)?), offset: 0 });
        }
        let symbol = self.symbol(name, operand.at)?;
        if symbol.space != Space::Shared || !variables {
            return Err(
                self.operand_error(operand, format!("a register{}", if variables { " or a variable in shared memory" } else { "" }))
            );
        }
        Ok(Address { base: symbol.base, offset: offset.wrapping_add(symbol.offset as i64) })
    }

    /// What a name of memory means, in the function or the module.
    pub(super) fn symbol(&self, name: &str, at: Position) -> Result<Symbol, PtxError> {
        let found = self.names.symbol(name).or_else(|| self.globals.get(name).copied());
        found.ok_or_else(|| PtxError::undeclared(at, name, "register, special register or variable"))
    }

    /// The predicate under which the instruction is executed.
    pub(super) fn guard(&mut self) -> Result<Option<Condition>, PtxError> {
        let Some((name, negated, at)) = self.instruction.guard else { return Ok(None) };
        let declared = self.declared((name, None), at)?;
        if declared.ty != Type::Pred {
            let found = format!("`{}` of type .{}", shortened(name), declared.ty);
            return Err(PtxError::Operand { place: at.into(), instruction: self.written(), found, expected: "a predicate".into() });
        }
        Ok(Some(Condition { register: declared.register, negated }))
    }
}

/// The name of a register, and the element where it is a vector.
pub(super) type Name<'t> = (&'t str, Option<&'t str>);

/// A name as messages quote it.
fn shown((name, element): Name<'_>) -> String {
    format!("{}{}", shortened(name), element.map_or(String::new(), |element| format!(".{}", shortened(element))))
}

/// Names of modifiers for a message.
fn list(allowed: &[Semantics]) -> String {
    allowed.iter().map(|semantics| format!(".{semantics}")).collect::<Vec<_>>().join(", ")
}

/// The bits of a constant as a value of `ty`; `None` where it cannot be one.
pub(super) fn immediate(number: Number<'_>, ty: Type) -> Option<u64> {
    let mask = if ty.bits() >= 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
    match number {
        Number::Integer { value, .. } if ty == Type::Pred => Some(u64::from(value != 0)),
        _ if ty.bits() == 128 => None,
        Number::Integer { value, negative } if !ty.is_float() => Some(if negative { value.wrapping_neg() } else { value } & mask),
        Number::Single(bits) if matches!(ty, Type::F32 | Type::B32) => Some(bits.into()),
        Number::Double(bits) if matches!(ty, Type::F64 | Type::B64) => Some(bits),
        Number::Decimal { digits, negative } => {
            let sign = if negative { -1.0 } else { 1.0 };
            match ty {
                Type::F32 => digits.parse::<f32>().ok().map(|value| u64::from((sign as f32 * value).to_bits())),
                Type::F64 => digits.parse::<f64>().ok().map(|value| (sign * value).to_bits()),
                _ => None,
            }
        }
        _ => None,
    }
}
