//! Tokens to a module as written.
//!
//! It has no recursion but for operands, which nest at most twice, and it goes forward with each token but for operands that it cannot
//! read, which it reads a second time, so that its time is linear in the text and no input exhausts the stack. Tokens are read as they
//! are needed, and what is kept of them is counted, so that no input exhausts the memory either.

use super::{
    error::{MAX_UNKNOWN, Position, PtxError},
    lexer::{Lexer, Token, TokenKind},
    syntax::{Function, Initial, Instruction, Module, Number, Operand, OperandKind, Prototype, Statement, Storage, Variable},
    types::{Space, Type},
};

/// The most scopes that stand within one another: what a name means is looked for in each of them.
const MAX_DEPTH: usize = 64;

/// The most operands, vector elements, parameters or modifiers that one list may have.
const MAX_LIST: usize = 4096;

/// The most kernels and functions of a module.
const MAX_FUNCTIONS: usize = 1 << 16;

/// The most bytes that a module as written takes. A text of the largest size has less of it where it is a compiler's.
const MAX_WRITTEN: usize = 1 << 30;

/// Reads a module.
///
/// # Errors
/// At the first token that PTX does not have there. Operands that are none are the instruction's own error.
pub(super) fn module(text: &str) -> Result<Module<'_>, PtxError> {
    let mut parser = Parser::new(text)?;
    let read = parser.module();
    // What follows from a text that ends where it cannot be read says less than why it cannot.
    parser.unreadable.map_or(read, Err)
}

/// Whether a word after `.target` is an architecture, two or three digits of it, or one of the platform's options (PTX ISA 11.1.2).
fn is_target(name: &str) -> bool {
    let is_architecture = |name: &str| {
        let digits = name.strip_suffix(['a', 'f']).unwrap_or(name);
        (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.strip_prefix("sm_").is_some_and(is_architecture)
        || matches!(name, "texmode_unified" | "texmode_independent" | "debug" | "map_f64_to_f32")
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The token that was taken last.
    taken: Token<'t>,
    /// The next one and the one after it.
    next: [Token<'t>; 2],
    /// Why there are no tokens after those.
    unreadable: Option<PtxError>,
    /// Bytes of what was kept.
    written: usize,
    /// Instructions with operands that are none.
    unknown: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>, PtxError> {
        let none = Token { kind: TokenKind::End, at: Position { line: 1, column: 1 } };
        let mut parser = Parser { lexer: Lexer::new(text)?, taken: none, next: [none; 2], unreadable: None, written: 0, unknown: 0 };
        parser.advance();
        parser.advance();
        Ok(parser)
    }

    fn module(&mut self) -> Result<Module<'t>, PtxError> {
        let mut module = Module { address_size: 64, ..Module::default() };
        self.exact("version")?;
        let at = self.at();
        let TokenKind::Decimal(version) = self.take() else { return Err(self.refused("a version such as 9.0")) };
        let parsed = version.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        module.version = parsed.ok_or_else(|| PtxError::syntax(at, format!("`{version}`"), "a version such as 9.0"))?;
        loop {
            let token = *self.peek();
            match token {
                TokenKind::End => return Ok(module),
                TokenKind::File(index, path) => {
                    self.take();
                    self.keep::<(u32, &str)>(1)?;
                    module.files.push((index, path));
                }
                TokenKind::Mark(';') | TokenKind::Loc(_) => {
                    self.take();
                }
                TokenKind::Dotted("target") => {
                    self.take();
                    self.list(|p| {
                        let name = p.word("a target")?;
                        module.targets.push(name);
                        if is_target(name) { Ok(()) } else { Err(p.refused("a target such as sm_90a")) }
                    })?;
                }
                TokenKind::Dotted("address_size") => {
                    let at = self.at();
                    self.take();
                    module.address_size = self.integer("an address size")? as u32;
                    if module.address_size != 64 {
                        return Err(PtxError::syntax(at, format!("address size {}", module.address_size), "64"));
                    }
                }
                TokenKind::Dotted("pragma") => self.pragma()?,
                TokenKind::Dotted("section") => self.section()?,
                TokenKind::Dotted(_) => self.declaration(&mut module)?,
                _ => return Err(self.expected("a directive")),
            }
        }
    }

    /// Passes over a token.
    fn advance(&mut self) {
        let after = match self.unreadable {
            Some(_) => self.next[1],
            None => self.lexer.next().unwrap_or_else(|error| {
                let at = error.place().position;
                self.unreadable = Some(error);
                Token { kind: TokenKind::End, at }
            }),
        };
        self.taken = self.next[0];
        self.next = [self.next[1], after];
    }

    /// Counts `items` things of a type that are kept, with what holds them in a list.
    fn keep<T>(&mut self, items: usize) -> Result<(), PtxError> {
        self.written = self.written.saturating_add(items.saturating_mul(size_of::<T>()));
        if self.written <= MAX_WRITTEN {
            return Ok(());
        }
        Err(PtxError::limit(self.at(), "a module too large, in bytes that it takes once it is read", MAX_WRITTEN as u64))
    }

    fn at(&self) -> Position {
        self.next[0].at
    }

    fn peek(&self) -> &TokenKind<'t> {
        &self.next[0].kind
    }

    fn ahead(&self) -> &TokenKind<'t> {
        &self.next[1].kind
    }

    fn take(&mut self) -> TokenKind<'t> {
        self.advance();
        self.taken.kind
    }

    /// The error that the next token is not what was expected.
    fn expected(&self, expected: &str) -> PtxError {
        PtxError::syntax(self.at(), self.peek().described(), expected)
    }

    /// The error that the token just taken is not what was expected.
    fn refused(&self, expected: &str) -> PtxError {
        PtxError::syntax(self.taken.at, self.taken.kind.described(), expected)
    }

    fn accept(&mut self, mark: char) -> bool {
        let found = *self.peek() == TokenKind::Mark(mark);
        if found {
            self.advance();
        }
        found
    }

    fn mark(&mut self, mark: char) -> Result<(), PtxError> {
        if self.accept(mark) { Ok(()) } else { Err(self.expected(&format!("`{mark}`"))) }
    }

    fn exact(&mut self, directive: &str) -> Result<(), PtxError> {
        if *self.peek() != TokenKind::Dotted(directive) {
            return Err(self.expected(&format!("`.{directive}`")));
        }
        self.take();
        Ok(())
    }

    fn word(&mut self, expected: &str) -> Result<&'t str, PtxError> {
        let TokenKind::Word(word) = *self.peek() else { return Err(self.expected(expected)) };
        self.take();
        Ok(word)
    }

    fn integer(&mut self, expected: &str) -> Result<u64, PtxError> {
        let TokenKind::Integer(value) = *self.peek() else { return Err(self.expected(expected)) };
        self.take();
        Ok(value)
    }

    /// One or more items between commas.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), PtxError>) -> Result<(), PtxError> {
        for _ in 0..MAX_LIST {
            item(self)?;
            if !self.accept(',') {
                return Ok(());
            }
        }
        Err(PtxError::limit(self.at(), format!("a list of more than {MAX_LIST} items"), MAX_LIST as u64))
    }

    fn pragma(&mut self) -> Result<(), PtxError> {
        self.take();
        self.list(|p| match p.take() {
            TokenKind::Text(_) => Ok(()),
            _ => Err(p.refused("a string")),
        })?;
        self.mark(';')
    }

    /// Debug information, which says nothing about what is executed.
    fn section(&mut self) -> Result<(), PtxError> {
        while *self.peek() != TokenKind::Mark('{') {
            if self.take() == TokenKind::End {
                return Err(self.expected("`{`"));
            }
        }
        loop {
            match self.take() {
                TokenKind::Mark('}') => return Ok(()),
                TokenKind::End => return Err(self.expected("`}` of a section")),
                _ => {}
            }
        }
    }

    fn declaration(&mut self, module: &mut Module<'t>) -> Result<(), PtxError> {
        let mut external = false;
        while let TokenKind::Dotted(linkage @ ("visible" | "extern" | "weak" | "common")) = *self.peek() {
            external |= linkage == "extern";
            self.take();
        }
        match *self.peek() {
            TokenKind::Dotted("entry" | "func") => {
                let function = self.function()?;
                if module.functions.len() == MAX_FUNCTIONS {
                    return Err(PtxError::limit(function.at, "a function too many", MAX_FUNCTIONS as u64));
                }
                self.keep::<Function<'t>>(1)?;
                module.functions.push(function);
                Ok(())
            }
            TokenKind::Dotted("global" | "const" | "shared") => self.variables(external, |variable| module.variables.push(variable)),
            _ => Err(self.expected("`.entry`, `.func`, `.global`, `.const` or `.shared`")),
        }
    }

    fn function(&mut self) -> Result<Function<'t>, PtxError> {
        let entry = self.take() == TokenKind::Dotted("entry");
        let mut bounds = Vec::new();
        self.attributes(&mut bounds)?;
        let returns = if entry { Vec::new() } else { self.parameters()? };
        let at = self.at();
        let name = self.word("a function's name")?;
        let inputs = self.parameters()?;
        self.attributes(&mut bounds)?;
        let mut function = Function { at, entry, name, returns, inputs, bounds, body: None, end: at };
        if self.accept(';') {
            return Ok(function);
        }
        self.mark('{')?;
        let mut body = Vec::new();
        let mut depth = 0_usize;
        let mut kept = 0;
        loop {
            function.end = self.at();
            if self.accept('}') {
                if depth == 0 {
                    break;
                }
                depth -= 1;
                body.push(Statement::Close);
            } else {
                depth += usize::from(*self.peek() == TokenKind::Mark('{'));
                if depth > MAX_DEPTH {
                    return Err(PtxError::limit(self.at(), "a scope too deep", MAX_DEPTH as u64));
                }
                self.statement(&mut body)?;
            }
            self.keep::<Statement<'t>>(body.len() - kept)?;
            kept = body.len();
        }
        function.body = Some(body);
        Ok(function)
    }

    fn attributes(&mut self, bounds: &mut Vec<(&'t str, Vec<u64>, Position)>) -> Result<(), PtxError> {
        loop {
            let at = self.at();
            match *self.peek() {
                TokenKind::Dotted("pragma") => self.pragma()?,
                TokenKind::Dotted("noreturn") => {
                    self.take();
                }
                TokenKind::Dotted(name @ ("explicitcluster" | "blocksareclusters")) => {
                    self.take();
                    bounds.push((name, Vec::new(), at));
                }
                TokenKind::Dotted(
                    name @ ("maxntid" | "reqntid" | "minnctapersm" | "maxnctapersm" | "maxnreg" | "reqnctapercluster" | "maxclusterrank"),
                ) => {
                    self.take();
                    let mut values = Vec::new();
                    self.list(|p| p.integer("a number").map(|value| values.push(value)))?;
                    bounds.push((name, values, at));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Parameters between parentheses, which may be missing altogether.
    fn parameters(&mut self) -> Result<Vec<Variable<'t>>, PtxError> {
        let mut parameters = Vec::new();
        if !self.accept('(') || self.accept(')') {
            return Ok(parameters);
        }
        self.list(|p| {
            let base = p.variable_type(false)?;
            let parameter = p.declarator(&base)?;
            p.keep::<Variable<'t>>(1)?;
            parameters.push(parameter);
            Ok(())
        })?;
        self.mark(')')?;
        Ok(parameters)
    }

    fn variables(&mut self, external: bool, mut found: impl FnMut(Variable<'t>)) -> Result<(), PtxError> {
        let base = self.variable_type(external)?;
        self.list(|p| {
            let mut variable = p.declarator(&base)?;
            if p.accept('=') {
                p.initialiser(&mut variable.initial)?;
            }
            p.keep::<Variable<'t>>(1)?;
            found(variable);
            Ok(())
        })?;
        self.mark(';')
    }

    /// Space, alignment and type, up to the name.
    fn variable_type(&mut self, external: bool) -> Result<Variable<'t>, PtxError> {
        let (at, mut storage, mut ty) = (self.at(), None, None);
        let (mut vector, mut align, mut pointer) = (1, None, None);
        while let TokenKind::Dotted(word) = *self.peek() {
            let space = Space::ALL.iter().find(|(text, space)| *text == word && *space != Space::Generic).map(|&(_, space)| space);
            let found = Type::ALL.iter().find(|(text, _)| *text == word).map(|&(_, ty)| ty);
            match word {
                "reg" if storage.is_none() => storage = Some(Storage::Register),
                "align" => {
                    self.take();
                    let value = self.integer("an alignment")?;
                    if !value.is_power_of_two() || value > 1 << 16 {
                        return Err(self.refused("an alignment that is a power of two, at most 65536"));
                    }
                    // A `.ptr`'s alignment is that of what it points to.
                    match &mut pointer {
                        Some((_, of)) => *of = value,
                        None => align = Some(value),
                    }
                    continue;
                }
                // What it points to is aligned to four bytes where nothing is said (PTX ISA 5.1.6.2).
                "ptr" => pointer = Some((Space::Generic, 4)),
                "v2" => vector = 2,
                "v4" => vector = 4,
                _ if pointer.is_some() && space.is_some() => pointer = pointer.zip(space).map(|((_, align), space)| (space, align)),
                _ if space.is_some() && storage.is_none() => storage = space.map(Storage::Memory),
                _ if found.is_some() && ty.is_none() => ty = found,
                _ => return Err(self.expected("a space, a type, `.align`, `.v2`, `.v4` or `.ptr`")),
            }
            self.take();
        }
        let (Some(storage), Some(ty)) = (storage, ty) else { return Err(self.expected("a space and a type")) };
        let initial = Vec::new();
        Ok(Variable { at, external, storage, ty, vector, align, pointer, name: "", range: None, elements: None, initial })
    }

    fn declarator(&mut self, base: &Variable<'t>) -> Result<Variable<'t>, PtxError> {
        let mut variable = Variable { at: self.at(), ..base.clone() };
        variable.name = self.word("a name")?;
        if self.accept('<') {
            variable.range = Some(self.integer("a number of registers")?);
            self.mark('>')?;
        }
        while self.accept('[') {
            let size = if *self.peek() == TokenKind::Mark(']') { None } else { Some(self.integer("a number of elements")?) };
            variable.elements = Some(match (variable.elements, size) {
                (None, size) => size,
                (Some(Some(outer)), Some(inner)) => Some(outer.saturating_mul(inner)),
                _ => return Err(self.refused("a number of elements")),
            });
            self.mark(']')?;
        }
        Ok(variable)
    }

    fn initialiser(&mut self, into: &mut Vec<(Initial<'t>, Position)>) -> Result<(), PtxError> {
        if !self.accept('{') {
            into.push(self.initial()?);
            return Ok(());
        }
        loop {
            self.keep::<(Initial<'t>, Position)>(1)?;
            into.push(self.initial()?);
            if !self.accept(',') {
                return self.mark('}');
            }
        }
    }

    fn initial(&mut self) -> Result<(Initial<'t>, Position), PtxError> {
        let at = self.at();
        let TokenKind::Word(word) = *self.peek() else { return Ok((Initial::Number(self.number()?), at)) };
        self.take();
        let generic = word == "generic" && self.accept('(');
        let name = if generic { self.word("a variable")? } else { word };
        if generic {
            self.mark(')')?;
        }
        let offset = self.offset()?;
        Ok((Initial::Address { name, generic, offset }, at))
    }

    fn number(&mut self) -> Result<Number<'t>, PtxError> {
        let negative = self.accept('-');
        let number = match *self.peek() {
            TokenKind::Integer(value) => Number::Integer { value, negative },
            TokenKind::Decimal(digits) => Number::Decimal { digits, negative },
            TokenKind::Single(bits) => Number::Single(bits ^ u32::from(negative) << 31),
            TokenKind::Double(bits) => Number::Double(bits ^ u64::from(negative) << 63),
            _ => return Err(self.expected("a number")),
        };
        self.take();
        Ok(number)
    }

    /// `+4`, `-4`, `+-4`, or nothing, which is 0.
    fn offset(&mut self) -> Result<i64, PtxError> {
        let plus = self.accept('+');
        let minus = self.accept('-');
        if !plus && !minus {
            return Ok(0);
        }
        let value = self.integer("an offset in bytes")?;
        let value = i64::try_from(value).map_err(|_| self.refused("an offset below 2^63"))?;
        Ok(if minus { -value } else { value })
    }

    fn statement(&mut self, body: &mut Vec<Statement<'t>>) -> Result<(), PtxError> {
        let at = self.at();
        match *self.peek() {
            TokenKind::Mark('{') => {
                self.take();
                body.push(Statement::Open);
                Ok(())
            }
            TokenKind::Mark(';') | TokenKind::File(..) => {
                self.take();
                Ok(())
            }
            TokenKind::Loc(loc) => {
                self.take();
                body.push(Statement::Loc(loc));
                Ok(())
            }
            TokenKind::Dotted("pragma") => self.pragma(),
            TokenKind::Dotted("reg" | "local" | "shared" | "param" | "global" | "const") => {
                self.variables(false, |variable| body.push(Statement::Variable(variable)))
            }
            TokenKind::Dotted("extern") => {
                self.take();
                self.variables(true, |variable| body.push(Statement::Variable(variable)))
            }
            TokenKind::Word(label) if *self.ahead() == TokenKind::Mark(':') => {
                self.take();
                self.take();
                self.label(label, at, body)
            }
            TokenKind::Word(_) | TokenKind::Mark('@') => {
                body.push(Statement::Instruction(self.instruction()?));
                Ok(())
            }
            _ => Err(self.expected("an instruction, a label, a declaration, `{` or `}`")),
        }
    }

    fn label(&mut self, label: &'t str, at: Position, body: &mut Vec<Statement<'t>>) -> Result<(), PtxError> {
        match *self.peek() {
            TokenKind::Dotted("branchtargets") => {
                self.take();
                let mut targets = Vec::new();
                self.list(|p| {
                    let at = p.at();
                    p.word("a label").map(|target| targets.push((target, at)))
                })?;
                self.keep::<(&str, Position)>(targets.capacity())?;
                body.push(Statement::BranchTargets(label, targets));
                self.mark(';')
            }
            TokenKind::Dotted("calltargets") => {
                self.take();
                let mut targets = Vec::new();
                self.list(|p| {
                    let at = p.at();
                    p.word("a function's name").map(|target| targets.push((target, at)))
                })?;
                self.keep::<(&str, Position)>(targets.capacity())?;
                body.push(Statement::CallTargets(label, at, targets));
                self.mark(';')
            }
            TokenKind::Dotted("callprototype") => {
                self.take();
                let returns = self.parameters()?;
                self.word("`_`, where a function has its name")?;
                let inputs = self.parameters()?;
                while matches!(*self.peek(), TokenKind::Dotted("noreturn" | "abi_preserve" | "abi_preserve_control")) {
                    self.take();
                    if matches!(self.peek(), TokenKind::Integer(_)) {
                        self.take();
                    }
                }
                body.push(Statement::Prototype(label, at, Box::new(Prototype { returns, inputs })));
                self.mark(';')
            }
            _ => {
                // A label is found by its name, which takes as much again.
                self.keep::<Statement<'t>>(1)?;
                body.push(Statement::Label(label, at));
                Ok(())
            }
        }
    }

    fn instruction(&mut self) -> Result<Instruction<'t>, PtxError> {
        let mut guard = None;
        if self.accept('@') {
            let negated = self.accept('!');
            let at = self.at();
            guard = Some((self.word("a predicate")?, negated, at));
        }
        let at = self.at();
        let opcode = self.word("an instruction")?;
        let mut modifiers = Vec::new();
        while let TokenKind::Dotted(modifier) = *self.peek() {
            modifiers.push((modifier, self.at()));
            self.take();
            if modifiers.len() > 32 {
                return Err(PtxError::limit(at, "an instruction of more than 32 modifiers", 32));
            }
        }
        let start = (self.lexer, self.taken, self.next);
        let mut operands = Vec::new();
        let read = match self.peek() {
            TokenKind::Mark(';') => Ok(()),
            _ => self.list(|p| p.operand(2).map(|operand| operands.push(operand))),
        };
        let unreadable = match read {
            // A semicolon that is missing is not a matter of this instruction alone.
            Ok(()) if !self.accept(';') => return Err(self.expected("`,` or `;`")),
            Ok(()) => None,
            Err(error @ PtxError::Syntax { .. }) if self.unreadable.is_none() => {
                (self.lexer, self.taken, self.next) = start;
                self.unknown += 1;
                if !self.skip_operands() || self.unknown > MAX_UNKNOWN {
                    return Err(error);
                }
                operands = Vec::new();
                Some(Box::new(error))
            }
            Err(error) => return Err(error),
        };
        self.keep::<Operand<'t>>(operands.capacity())?;
        self.keep::<(&str, Position)>(modifiers.capacity())?;
        Ok(Instruction { at, guard, opcode, modifiers, operands, unreadable })
    }

    /// Passes over operands that are of no known shape, with their semicolon. Whether they end with one, their brackets are closed and nothing else
    /// began before.
    fn skip_operands(&mut self) -> bool {
        let mut open = Vec::new();
        loop {
            match self.take() {
                TokenKind::Mark(';') => return open.is_empty(),
                TokenKind::Mark('{') => open.push('}'),
                TokenKind::Mark('[') => open.push(']'),
                TokenKind::Mark('(') => open.push(')'),
                TokenKind::Mark(close @ ('}' | ']' | ')')) if open.pop() != Some(close) => return false,
                TokenKind::Mark(':') | TokenKind::Loc(_) | TokenKind::File(..) | TokenKind::End => return false,
                _ if open.len() > MAX_DEPTH => return false,
                _ => {}
            }
        }
    }

    /// An operand in which lists and vectors nest at most `depth` deep.
    fn operand(&mut self, depth: u32) -> Result<Operand<'t>, PtxError> {
        let at = self.at();
        let kind = match *self.peek() {
            TokenKind::Word(name) => {
                self.take();
                match *self.peek() {
                    TokenKind::Dotted(element) => {
                        self.take();
                        OperandKind::Name(name, Some(element))
                    }
                    TokenKind::Mark('|') => {
                        self.take();
                        OperandKind::Pair(name, self.word("a predicate")?)
                    }
                    TokenKind::Mark('+' | '-') => OperandKind::NamePlus(name, self.offset()?),
                    _ => OperandKind::Name(name, None),
                }
            }
            TokenKind::Mark('!') => {
                self.take();
                OperandKind::Not(self.word("a predicate")?)
            }
            TokenKind::Mark('[') => {
                self.take();
                let address = self.address()?;
                let kind = match address {
                    OperandKind::Address(Some(name), 0) if depth > 0 && self.accept(',') => {
                        OperandKind::InTensor(name, self.items('{', '}', depth)?)
                    }
                    address => address,
                };
                self.mark(']')?;
                kind
            }
            TokenKind::Mark('{') if depth > 0 => OperandKind::Vector(self.items('{', '}', depth)?),
            TokenKind::Mark('(') if depth > 0 => OperandKind::List(self.items('(', ')', depth)?),
            TokenKind::Mark('-') | TokenKind::Integer(_) | TokenKind::Single(_) | TokenKind::Double(_) | TokenKind::Decimal(_) => {
                OperandKind::Number(self.number()?)
            }
            _ => return Err(self.expected("an operand")),
        };
        Ok(Operand { at, kind })
    }

    /// Operands in brackets, in which lists and vectors nest less deep.
    fn items(&mut self, open: char, close: char, depth: u32) -> Result<Vec<Operand<'t>>, PtxError> {
        self.mark(open)?;
        let mut items = Vec::new();
        if *self.peek() != TokenKind::Mark(close) {
            self.list(|p| p.operand(depth - 1).map(|item| items.push(item)))?;
        }
        self.mark(close)?;
        self.keep::<Operand<'t>>(items.capacity())?;
        Ok(items)
    }

    fn address(&mut self) -> Result<OperandKind<'t>, PtxError> {
        if let TokenKind::Word(name) = *self.peek() {
            self.take();
            let mut element = None;
            if let TokenKind::Dotted(after) = *self.peek() {
                self.take();
                element = Some(after);
            }
            return Ok(OperandKind::Address(Some((name, element)), self.offset()?));
        }
        let negative = self.accept('-');
        let value = self.integer("a name or an address")? as i64;
        Ok(OperandKind::Address(None, if negative { value.wrapping_neg() } else { value }))
    }
}
