//! Expressions of a specification: sizes, shapes and scalars in terms of a call.
//!
//! Unsigned 64-bit arithmetic in which every overflow is an error: integers, words, `+ - * / %`, `<< >> & ^ |`, comparisons and `! && ||`, which are
//! 1 or 0, `c ? a : b`, parentheses and functions of two values. `<< >> & ^ |` bind tighter than comparisons, as in Rust and Python. Text and nesting are bounded, so that no input takes long or exhausts the stack.

use std::fmt;

use crate::{collective::Counts, words::expected};

/// The longest text.
const MOST_BYTES: usize = 1024;

/// The deepest nesting of parentheses and calls.
const MOST_DEPTH: u32 = 32;

/// A value of the call that an expression may speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Count,
    World,
    ElementSize,
    Bytes,
    SlotBytes,
    OutputBytes,
    Root,
    Rank,
    Call,
    MostCount,
    MostBytes,
    WaitingBlocks,
    I,
    Index,
    Grid,
    Block,
    /// A parameter of a task, by its number.
    Parameter0,
    Parameter1,
    Parameter2,
    Parameter3,
    Parameter4,
    Parameter5,
    Parameter6,
    Parameter7,
}

/// Names of the words, in their order. The specification names parameters.
const NAMES: [&str; 16] = [
    "count",
    "world",
    "element_size",
    "bytes",
    "slot_bytes",
    "output_bytes",
    "root",
    "rank",
    "call",
    "most_count",
    "most_bytes",
    "waiting_blocks",
    "i",
    "index",
    "grid",
    "block",
];

/// All words.
const WORDS: usize = NAMES.len() + Word::PARAMETERS.len();

use Word::{
    Block, Bytes, Call, Count, ElementSize, Grid, I, Index, MostBytes, MostCount, OutputBytes, Rank, Root, SlotBytes, WaitingBlocks, World,
};

impl Word {
    /// What restrictions on counts may speak of.
    pub(crate) const OF_TYPES: &'static [Word] = &[World, ElementSize];
    /// What sizes may speak of: all that is the same for a call on every machine and every rank.
    pub(crate) const OF_CALL: &'static [Word] = &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes];
    /// What decides whether a call can be made.
    pub(crate) const OF_CONDITION: &'static [Word] = &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes, Root];
    /// What initial contents may speak of.
    pub(crate) const OF_CONTENTS: &'static [Word] = &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes, Rank, Index];
    /// What variables of modules may speak of, as of the group's largest call.
    pub(crate) const OF_VARIABLE: &'static [Word] =
        &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes, Rank, MostCount, MostBytes, I];
    /// What shapes of launches and steps may speak of.
    pub(crate) const OF_STEP: &'static [Word] =
        &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes, Root, Rank, Call, MostCount, MostBytes, WaitingBlocks, I];
    /// What arguments may speak of.
    pub(crate) const OF_ARGUMENT: &'static [Word] =
        &[Count, World, ElementSize, Bytes, SlotBytes, OutputBytes, Root, Rank, Call, MostCount, MostBytes, WaitingBlocks, I, Grid, Block];

    /// What shapes of a task's tensors may speak of, beside parameters.
    pub(crate) const OF_TENSOR: &'static [Word] = &[World, Rank];
    /// What no task has: its calls have no count and no root.
    pub(crate) const OF_COLLECTIVE: &'static [Word] = &[Count, ElementSize, Bytes, SlotBytes, OutputBytes, Root, MostCount, MostBytes];
    /// The parameters of a task, by their numbers.
    pub(crate) const PARAMETERS: [Word; 8] = [
        Word::Parameter0,
        Word::Parameter1,
        Word::Parameter2,
        Word::Parameter3,
        Word::Parameter4,
        Word::Parameter5,
        Word::Parameter6,
        Word::Parameter7,
    ];

    pub(crate) fn name(self) -> &'static str {
        NAMES.get(self as usize).copied().unwrap_or("a parameter")
    }
}

/// What the words stand for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'c> {
    words: [u64; WORDS],
    /// Of an all-to-all whose parts differ.
    counts: Option<&'c Counts>,
}

impl<'c> Values<'c> {
    /// These, and zero for all others.
    pub(crate) fn new(words: &[(Word, u64)]) -> Values<'c> {
        words.iter().fold(Values::default(), |values, &(word, value)| values.with(word, value))
    }

    /// With another value for a word.
    pub(crate) fn with(mut self, word: Word, value: u64) -> Values<'c> {
        self.words[word as usize] = value;
        self
    }

    /// With the lengths of parts.
    pub(crate) fn with_counts(self, counts: Option<&'c Counts>) -> Values<'c> {
        Values { counts, ..self }
    }

    pub(crate) fn of(&self, word: Word) -> u64 {
        self.words[word as usize]
    }

    /// What a rank sends another; `at`, what stands before that part at the sender or at the receiver.
    fn part(&self, operation: Operation, from: u64, to: u64) -> Result<u64, String> {
        let world = self.of(World);
        if from.max(to) >= world {
            return Err(format!("from rank {from} to rank {to}: there are ranks 0 to {}", world.saturating_sub(1)));
        }
        let (sender, receiver) = (from as u32, to as u32);
        let slots = |slots: u64| slots.checked_mul(self.of(Count)).ok_or_else(|| "elements do not fit into 64 bits".to_owned());
        match (operation, self.counts) {
            (Operation::Sent, None) => Ok(self.of(Count)),
            (Operation::SentAt, None) => slots(to),
            (_, None) => slots(from),
            (Operation::Sent, Some(counts)) => Ok(counts.of(sender, receiver)),
            (Operation::SentAt, Some(counts)) => Ok(counts.sent_at(sender, receiver)),
            (_, Some(counts)) => Ok(counts.received_at(sender, receiver)),
        }
    }
}

/// A text that is no expression, or an expression that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where in the text, in bytes from its start.
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(u64),
    Word(Word),
    /// An operation, and where its sign or name stands.
    Operation(Operation, usize, Box<[Node; 2]>),
    /// A condition, and what is chosen where it holds and where it does not. The other is not looked at.
    Choice(Box<[Node; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    And,
    Xor,
    Or,
    CeilDiv,
    Min,
    Max,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Sent,
    SentAt,
    ReceivedAt,
}

/// The functions, each of two values. The last three are of collectives, where ranks are spoken of.
const FUNCTIONS: [(&str, Operation); 6] = [
    ("ceil_div", Operation::CeilDiv),
    ("min", Operation::Min),
    ("max", Operation::Max),
    ("sent", Operation::Sent),
    ("sent_at", Operation::SentAt),
    ("received_at", Operation::ReceivedAt),
];

/// Whether a parameter of a task may have a name: it is no word and no function.
pub(crate) fn is_free(name: &str) -> bool {
    !NAMES.contains(&name) && FUNCTIONS.iter().all(|(function, _)| *function != name)
}

/// The functions that expressions with these words may have.
fn functions(words: &[Word]) -> &'static [(&'static str, Operation)] {
    if words.contains(&Rank) && words.contains(&Count) { &FUNCTIONS } else { &FUNCTIONS[..3] }
}

impl Expression {
    /// Reads an expression that may use `words`.
    #[cfg(test)]
    pub(crate) fn read(text: &str, words: &[Word]) -> Result<Expression, Problem> {
        Expression::read_with(text, words, &[])
    }

    /// The same, which may use the parameters of a task, too: those of [`Word::PARAMETERS`], under these names.
    pub(crate) fn read_with(text: &str, words: &[Word], parameters: &[String]) -> Result<Expression, Problem> {
        if text.len() > MOST_BYTES {
            return Err(Problem { at: 0, what: format!("an expression of {} bytes: at most {MOST_BYTES}", text.len()) });
        }
        let mut reader = Reader { text, at: 0, words, parameters, depth: 0 };
        let root = reader.choice()?;
        match reader.next() {
            None => Ok(Expression { text: text.to_owned(), root }),
            Some(found) => Err(reader.problem(format!("`{found}` is not expected here"))),
        }
    }

    /// A constant.
    pub(crate) fn constant(value: u64) -> Expression {
        Expression { text: value.to_string(), root: Node::Number(value) }
    }

    /// Its value.
    pub(crate) fn value(&self, values: &Values<'_>) -> Result<u64, Problem> {
        evaluate(&self.root, values)
    }

    /// Whether it speaks of a word.
    pub(crate) fn mentions(&self, word: Word) -> bool {
        fn of(node: &Node, word: Word) -> bool {
            match node {
                Node::Number(_) => false,
                Node::Word(found) => *found == word,
                Node::Operation(_, _, sides) => sides.iter().any(|side| of(side, word)),
                Node::Choice(parts) => parts.iter().any(|part| of(part, word)),
            }
        }
        of(&self.root, word)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn evaluate(node: &Node, values: &Values<'_>) -> Result<u64, Problem> {
    let (operation, at, sides) = match node {
        Node::Number(value) => return Ok(*value),
        Node::Word(word) => return Ok(values.of(*word)),
        Node::Operation(operation, at, sides) => (*operation, *at, sides),
        Node::Choice(parts) => {
            let [condition, then, otherwise] = &**parts;
            return evaluate(if evaluate(condition, values)? != 0 { then } else { otherwise }, values);
        }
    };
    let (left, right) = (evaluate(&sides[0], values)?, evaluate(&sides[1], values)?);
    let problem = |what: String| Problem { at, what };
    let divided = || if right == 0 { Err(problem(format!("division of {left} by zero"))) } else { Ok(()) };
    let overflow = |sign: &str| problem(format!("{left} {sign} {right} does not fit into 64 bits"));
    match operation {
        Operation::Add => left.checked_add(right).ok_or_else(|| overflow("+")),
        Operation::Subtract => left.checked_sub(right).ok_or_else(|| problem(format!("{left} - {right} is below zero"))),
        Operation::Multiply => left.checked_mul(right).ok_or_else(|| overflow("*")),
        Operation::Divide => divided().map(|()| left / right),
        Operation::Remainder => divided().map(|()| left % right),
        Operation::ShiftLeft if left == 0 || right <= left.leading_zeros().into() => Ok(left.checked_shl(right as u32).unwrap_or(0)),
        Operation::ShiftLeft => Err(overflow("<<")),
        Operation::ShiftRight => Ok(u32::try_from(right).ok().and_then(|right| left.checked_shr(right)).unwrap_or(0)),
        Operation::And => Ok(left & right),
        Operation::Xor => Ok(left ^ right),
        Operation::Or => Ok(left | right),
        Operation::CeilDiv => divided().map(|()| left.div_ceil(right)),
        Operation::Min => Ok(left.min(right)),
        Operation::Max => Ok(left.max(right)),
        Operation::Equal => Ok((left == right).into()),
        Operation::NotEqual => Ok((left != right).into()),
        Operation::Less => Ok((left < right).into()),
        Operation::LessOrEqual => Ok((left <= right).into()),
        Operation::Greater => Ok((left > right).into()),
        Operation::GreaterOrEqual => Ok((left >= right).into()),
        Operation::Sent | Operation::SentAt | Operation::ReceivedAt => values.part(operation, left, right).map_err(problem),
    }
}

/// Operations on bits, from those that bind loosest.
const BITS: [&[(&str, Operation)]; 4] = [
    &[("|", Operation::Or)],
    &[("^", Operation::Xor)],
    &[("&", Operation::And)],
    &[("<<", Operation::ShiftLeft), (">>", Operation::ShiftRight)],
];

/// 1 where it is not 0.
fn is_true(node: Node, at: usize) -> Node {
    Node::Operation(Operation::NotEqual, at, Box::new([node, Node::Number(0)]))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    words: &'t [Word],
    parameters: &'t [String],
    depth: u32,
}

impl<'t> Reader<'t> {
    fn problem(&self, what: String) -> Problem {
        Problem { at: self.at, what }
    }

    /// The next character that is no space, not taken.
    fn next(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    /// Takes one of these signs and returns it and where it stands.
    fn sign(&mut self, signs: &[(char, Operation)]) -> Option<(Operation, usize)> {
        let next = self.next()?;
        let &(_, operation) = signs.iter().find(|(sign, _)| *sign == next)?;
        self.at += 1;
        Some((operation, self.at - 1))
    }

    fn mark(&mut self, mark: char) -> Result<(), Problem> {
        match self.next() {
            Some(next) if next == mark => {
                self.at += 1;
                Ok(())
            }
            Some(next) => Err(self.problem(format!("`{next}` where `{mark}` is expected"))),
            None => Err(self.problem(format!("the end where `{mark}` is expected"))),
        }
    }

    /// Takes one of these signs of one or two characters, the longer ones first.
    fn long_sign(&mut self, signs: &[(&str, Operation)]) -> Option<(Operation, usize)> {
        self.next()?;
        let rest = &self.text[self.at..];
        let &(sign, operation) = signs.iter().find(|(sign, _)| rest.starts_with(sign))?;
        self.at += sign.len();
        Some((operation, self.at - sign.len()))
    }

    /// `condition ? then : otherwise`, or what binds tighter.
    fn choice(&mut self) -> Result<Node, Problem> {
        let condition = self.either()?;
        if self.next() != Some('?') {
            return Ok(condition);
        }
        self.nested(|reader| {
            reader.mark('?')?;
            let then = reader.choice()?;
            reader.mark(':')?;
            Ok(Node::Choice(Box::new([condition, then, reader.choice()?])))
        })
    }

    fn either(&mut self) -> Result<Node, Problem> {
        let mut left = self.both()?;
        while let Some((_, at)) = self.long_sign(&[("||", Operation::NotEqual)]) {
            left = Node::Choice(Box::new([left, Node::Number(1), is_true(self.both()?, at)]));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Node, Problem> {
        let mut left = self.comparison()?;
        while let Some((_, at)) = self.long_sign(&[("&&", Operation::NotEqual)]) {
            left = Node::Choice(Box::new([left, is_true(self.comparison()?, at), Node::Number(0)]));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Node, Problem> {
        const SIGNS: [(&str, Operation); 6] = [
            ("==", Operation::Equal),
            ("!=", Operation::NotEqual),
            ("<=", Operation::LessOrEqual),
            (">=", Operation::GreaterOrEqual),
            ("<", Operation::Less),
            (">", Operation::Greater),
        ];
        let left = self.bits(&BITS)?;
        match self.long_sign(&SIGNS) {
            Some((operation, at)) => Ok(Node::Operation(operation, at, Box::new([left, self.bits(&BITS)?]))),
            None => Ok(left),
        }
    }

    /// Operations on bits, those of the first level binding loosest.
    fn bits(&mut self, levels: &[&[(&str, Operation)]]) -> Result<Node, Problem> {
        let Some((signs, tighter)) = levels.split_first() else { return self.sum() };
        let mut left = self.bits(tighter)?;
        while !["&&", "||"].into_iter().any(|logical| self.is_ahead(logical))
            && let Some((operation, at)) = self.long_sign(signs)
        {
            left = Node::Operation(operation, at, Box::new([left, self.bits(tighter)?]));
        }
        Ok(left)
    }

    /// Whether this comes next.
    fn is_ahead(&mut self, sign: &str) -> bool {
        self.next().is_some() && self.text[self.at..].starts_with(sign)
    }

    fn sum(&mut self) -> Result<Node, Problem> {
        let mut left = self.product()?;
        while let Some((operation, at)) = self.sign(&[('+', Operation::Add), ('-', Operation::Subtract)]) {
            left = Node::Operation(operation, at, Box::new([left, self.product()?]));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, Problem> {
        let signs = [('*', Operation::Multiply), ('/', Operation::Divide), ('%', Operation::Remainder)];
        let mut left = self.factor()?;
        while let Some((operation, at)) = self.sign(&signs) {
            left = Node::Operation(operation, at, Box::new([left, self.factor()?]));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Node, Problem> {
        let start = self.next();
        let at = self.at;
        match start {
            Some('(') => self.nested(|reader| {
                reader.mark('(')?;
                let inner = reader.choice()?;
                reader.mark(')')?;
                Ok(inner)
            }),
            Some('!') => self.nested(|reader| {
                reader.mark('!')?;
                Ok(Node::Operation(Operation::Equal, at, Box::new([reader.factor()?, Node::Number(0)])))
            }),
            Some(digit) if digit.is_ascii_digit() => {
                let digits = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                let plain = digits.replace('_', "");
                let value = match plain.strip_prefix("0x") {
                    Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
                    None => plain.parse(),
                };
                value.map(Node::Number).map_err(|_| Problem { at, what: format!("`{digits}` is not a number of 64 bits") })
            }
            Some(letter) if letter.is_ascii_alphabetic() => {
                let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                self.named(name, at)
            }
            Some(other) => Err(self.problem(format!("`{other}` where a number, a word or `(` is expected"))),
            None => Err(self.problem("the end where a number, a word or `(` is expected".into())),
        }
    }

    fn named(&mut self, name: &str, at: usize) -> Result<Node, Problem> {
        let functions = functions(self.words);
        let Some(&(_, function)) = functions.iter().find(|(known, _)| *known == name) else {
            let parameter = self.parameters.iter().position(|parameter| parameter == name).map(|number| Word::PARAMETERS[number]);
            let word = parameter.or_else(|| self.words.iter().copied().find(|word| word.name() == name));
            return word.map(Node::Word).ok_or_else(|| {
                let known = self.parameters.iter().map(String::as_str).chain(self.words.iter().map(|word| word.name()));
                let known: Vec<&str> = known.chain(functions.iter().map(|(name, _)| *name)).collect();
                Problem { at, what: format!("unknown word `{name}`: {}", expected(name, &known)) }
            });
        };
        self.nested(|reader| {
            reader.mark('(')?;
            let left = reader.choice()?;
            reader.mark(',')?;
            let right = reader.choice()?;
            reader.mark(')')?;
            Ok(Node::Operation(function, at, Box::new([left, right])))
        })
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<Node, Problem>) -> Result<Node, Problem> {
        if self.depth == MOST_DEPTH {
            return Err(self.problem(format!("more than {MOST_DEPTH} nested parentheses")));
        }
        self.depth += 1;
        let node = inner(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn values() -> Values<'static> {
        let words = [(Count, 1040), (World, 8), (ElementSize, 2), (Bytes, 2080), (Rank, 3), (WaitingBlocks, 4), (Grid, 1), (Block, 512)];
        Values::new(&words)
    }

    #[rstest]
    #[case("7", 7)]
    #[case(" 1 + 2 * 3 - 4 ", 3)]
    #[case("(1 + 2) * 3 % 5", 4)]
    #[case("100 - 10 - 1", 89)]
    #[case("64 / 4 / 2", 8)]
    #[case("ceil_div(bytes, 16 * 512)", 1)]
    #[case("min(waiting_blocks, max(1, count / world))", 4)]
    #[case("rank * world + element_size", 26)]
    #[case("1_000_000", 1_000_000)]
    #[case("18446744073709551615", u64::MAX)]
    #[case("0xff_ff + 0x1", 65536)]
    #[case("rank == 3", 1)]
    #[case("rank + 1 <= 4 || count / 0", 1)]
    #[case("rank < 3 && count / 0", 0)]
    #[case("!(rank != 3) && world >= 8", 1)]
    #[case("rank > 3 ? count / 0 : rank == 3 ? 7 : 9", 7)]
    #[case("sent(0, 1) + sent_at(0, 2) + received_at(3, 1)", 6 * 1040)]
    #[case("3 << 32 >> 31", 6)]
    #[case("1 + 1 << 2 + 1", 16)]
    #[case("1 << 63 >> 64", 0)]
    #[case("0 << 900", 0)]
    #[case("6 & 3 == 2 && 6 | 1 == 7", 1)]
    #[case("1 | 6 ^ 3 & 2 << 0", 5)]
    #[case("0x8000_0000_0000_0000 >> 18446744073709551615", 0)]
    fn values_are_those_of_arithmetic(#[case] text: &str, #[case] value: u64) {
        assert_eq!(Expression::read(text, Word::OF_ARGUMENT).and_then(|e| e.value(&values())), Ok(value));
    }

    #[rstest]
    #[case("count / (world - 8)", 6, "division of 1040 by zero")]
    #[case("2 * 18446744073709551615", 2, "2 * 18446744073709551615 does not fit into 64 bits")]
    #[case("world - count", 6, "8 - 1040 is below zero")]
    #[case("18446744073709551616", 0, "`18446744073709551616` is not a number of 64 bits")]
    #[case("elements + 1", 0, "unknown word `elements`: did you mean `element_size`? expected one of count,")]
    #[case("1 +", 3, "the end where a number, a word or `(` is expected")]
    #[case("min(1; 2)", 5, "`;` where `,` is expected")]
    #[case("1 2", 2, "`2` is not expected here")]
    #[case("", 0, "the end where")]
    #[case("3 ü 4", 2, "`ü` is not expected here")]
    #[case("1 < 2 < 3", 6, "`<` is not expected here")]
    #[case("rank ? 1", 8, "the end where `:` is expected")]
    #[case("0x", 0, "`0x` is not a number of 64 bits")]
    #[case("3 << 63", 2, "3 << 63 does not fit into 64 bits")]
    #[case("1 << 64", 2, "1 << 64 does not fit into 64 bits")]
    #[case("1 < < 2", 4, "`<` where a number")]
    #[case("1 & & 2", 4, "`&` where a number")]
    #[case("sent(0, 8)", 0, "from rank 0 to rank 8: there are ranks 0 to 7")]
    fn problems_stand_where_they_are(#[case] text: &str, #[case] at: usize, #[case] what: &str) {
        let problem = Expression::read(text, Word::OF_ARGUMENT).and_then(|e| e.value(&values())).unwrap_err();
        assert!(problem.at == at && problem.what.starts_with(what), "{problem:?}");
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        assert!(Expression::read(&deep, &[]).unwrap_err().what.contains("nested"));
        assert!(Expression::read(&"!".repeat(500), &[]).unwrap_err().what.contains("nested"));
        assert!(Expression::read(&"1?".repeat(500), &[]).unwrap_err().what.contains("nested"));
        assert!(Expression::read(&"1+".repeat(5000), &[]).unwrap_err().what.contains("10000 bytes"));
    }

    #[test]
    fn words_are_those_of_the_place() {
        let problem = Expression::read("rank * 4", Word::OF_CALL).unwrap_err();
        let known = "count, world, element_size, bytes, slot_bytes, output_bytes, ceil_div, min, max";
        assert_eq!(problem.what, format!("unknown word `rank`: expected one of {known}"));
        let read = |text| Expression::read_with(text, Word::OF_TENSOR, &["tokens".into(), "hidden".into()]);
        let values = Values::new(&[(World, 4), (Word::Parameter0, 3), (Word::Parameter1, 5)]);
        assert_eq!(read("tokens * hidden + world").unwrap().value(&values), Ok(19));
        assert_eq!(
            read("token").unwrap_err().what,
            "unknown word `token`: did you mean `tokens`? expected one of tokens, hidden, world, rank, ceil_div, min, max"
        );
        assert!(Expression::read("1 + min(2, grid)", Word::OF_ARGUMENT).unwrap().mentions(Word::Grid));
    }
}
