//! What can be wrong with a PTX text.

use std::fmt;

/// The most instructions of a module that may be unknown: what is wrong with each is kept.
pub(super) const MAX_UNKNOWN: usize = 1 << 14;

/// A line and a column of the PTX text, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where an error is, with the text of that line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePos {
    /// Line and column.
    pub position: Position,
    /// The line, tabs as spaces, cut after 160 characters.
    pub excerpt: String,
}

impl SourcePos {
    fn quoted(&self) -> String {
        let Position { line, column } = self.position;
        if self.excerpt.is_empty() {
            return String::new();
        }
        let caret = " ".repeat((column as usize).saturating_sub(1).min(self.excerpt.chars().count()));
        format!("\n{line:>6} | {}\n       | {caret}^", self.excerpt)
    }
}

impl From<Position> for SourcePos {
    fn from(position: Position) -> SourcePos {
        SourcePos { position, excerpt: String::new() }
    }
}

/// Why a PTX text was refused. It prints with line, column and the line itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text is not PTX there.
    #[error("{}: found {found}, expected {expected}{}", place.position, place.quoted())]
    Syntax {
        /// Where.
        place: SourcePos,
        /// What stands there.
        found: String,
        /// What could stand there.
        expected: String,
    },
    /// The instruction is not known at all.
    #[error("{}: unknown instruction `{instruction}`{}", place.position, place.quoted())]
    UnknownInstruction {
        /// Where.
        place: SourcePos,
        /// Its opcode with all modifiers.
        instruction: String,
    },
    /// The instruction is known, a modifier of it is not, is there twice, or does not go with the others.
    #[error("{}: modifier `.{modifier}` is unknown, repeated or out of place in `{instruction}`{}", place.position, place.quoted())]
    UnknownModifier {
        /// Where.
        place: SourcePos,
        /// The modifier, without its dot.
        modifier: String,
        /// The opcode with all modifiers.
        instruction: String,
    },
    /// A modifier that the instruction must have is missing, or has a value that the instruction does not take.
    #[error("{}: `{instruction}` has {found}, expected {expected}{}", place.position, place.quoted())]
    Combination {
        /// Where.
        place: SourcePos,
        /// The opcode with all modifiers.
        instruction: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// An operand does not go with the instruction.
    #[error("{}: operand {found} of `{instruction}`, expected {expected}{}", place.position, place.quoted())]
    Operand {
        /// Where.
        place: SourcePos,
        /// The opcode with all modifiers.
        instruction: String,
        /// The operand.
        found: String,
        /// What could stand there.
        expected: String,
    },
    /// A register, label, variable or function that is not declared.
    #[error("{}: `{name}` is not declared, expected a {expected}{}", place.position, place.quoted())]
    Undeclared {
        /// Where.
        place: SourcePos,
        /// The name.
        name: String,
        /// What it should be the name of.
        expected: &'static str,
    },
    /// A name that is declared twice in one scope.
    #[error("{}: `{name}` is already declared in this scope{}", place.position, place.quoted())]
    Redeclared {
        /// Where the second declaration is.
        place: SourcePos,
        /// The name.
        name: String,
    },
    /// It is PTX, and nothing here says what it does.
    #[error("{}: {what} is not modelled{}", place.position, place.quoted())]
    NotModelled {
        /// Where.
        place: SourcePos,
        /// What it is.
        what: String,
    },
    /// More of something than this front end takes.
    #[error("{}: {what}, more than the {limit} that are allowed{}", place.position, place.quoted())]
    Limit {
        /// Where.
        place: SourcePos,
        /// What there is too much of, and how much.
        what: String,
        /// How much there may be.
        limit: u64,
    },
}

impl PtxError {
    /// Where the error is.
    pub fn place(&self) -> &SourcePos {
        match self {
            PtxError::Syntax { place, .. }
            | PtxError::UnknownInstruction { place, .. }
            | PtxError::UnknownModifier { place, .. }
            | PtxError::Combination { place, .. }
            | PtxError::Operand { place, .. }
            | PtxError::Undeclared { place, .. }
            | PtxError::Redeclared { place, .. }
            | PtxError::NotModelled { place, .. }
            | PtxError::Limit { place, .. } => place,
        }
    }

    /// Whether it is wrong with one instruction, so that the rest of the module means what it would without it. Names that are not declared, and
    /// more than this front end takes, are not.
    pub(super) fn is_of_one_instruction(&self) -> bool {
        use PtxError::*;
        match self {
            Syntax { .. }
            | UnknownInstruction { .. }
            | UnknownModifier { .. }
            | Combination { .. }
            | Operand { .. }
            | NotModelled { .. } => true,
            Undeclared { .. } | Redeclared { .. } | Limit { .. } => false,
        }
    }

    pub(super) fn syntax(at: Position, found: impl fmt::Display, expected: impl fmt::Display) -> PtxError {
        PtxError::Syntax { place: at.into(), found: found.to_string(), expected: expected.to_string() }
    }

    pub(super) fn undeclared(at: Position, name: &str, expected: &'static str) -> PtxError {
        PtxError::Undeclared { place: at.into(), name: shortened(name), expected }
    }

    pub(super) fn redeclared(at: Position, name: &str) -> PtxError {
        PtxError::Redeclared { place: at.into(), name: shortened(name) }
    }

    pub(super) fn limit(at: Position, what: impl fmt::Display, limit: u64) -> PtxError {
        PtxError::Limit { place: at.into(), what: what.to_string(), limit }
    }

    /// Adds the line of `text` that the error is on.
    pub(super) fn with_excerpt(mut self, text: &str) -> PtxError {
        add_excerpts(vec![&mut self], text);
        self
    }

    fn place_mut(&mut self) -> &mut SourcePos {
        match self {
            PtxError::Syntax { place, .. }
            | PtxError::UnknownInstruction { place, .. }
            | PtxError::UnknownModifier { place, .. }
            | PtxError::Combination { place, .. }
            | PtxError::Operand { place, .. }
            | PtxError::Undeclared { place, .. }
            | PtxError::Redeclared { place, .. }
            | PtxError::NotModelled { place, .. }
            | PtxError::Limit { place, .. } => place,
        }
    }
}

/// Adds to errors the lines of `text` that they are on. The text is gone through once.
pub(super) fn add_excerpts(mut errors: Vec<&mut PtxError>, text: &str) {
    errors.sort_by_key(|error| error.place().position);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index as u32 + 1, line));
    let mut current = lines.next();
    for error in errors {
        let place = error.place_mut();
        while current.is_some_and(|(number, _)| number < place.position.line) {
            current = lines.next();
        }
        let line = current.filter(|(number, _)| *number == place.position.line).map_or("", |(_, line)| line);
        place.excerpt = line.chars().take(160).map(|c| if c.is_control() { ' ' } else { c }).collect();
    }
}

/// A name as messages quote it: at most 80 characters.
pub(super) fn shortened(name: &str) -> String {
    if name.chars().count() <= 80 { name.to_owned() } else { name.chars().take(77).chain("...".chars()).collect() }
}
