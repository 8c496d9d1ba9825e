//! Expressions of a specification: sizes, shapes and scalars in terms of a call.
//!
//! Unsigned 64-bit arithmetic in which every overflow is an error: integers, words, `+ - * / %`, parentheses, `ceil_div(a, b)`,
//! `min(a, b)`, `max(a, b)`. Text and nesting are bounded, so that no input takes long or exhausts the stack.

use std::fmt;

/// The longest text.
const MOST_BYTES: usize = 1024;

/// The deepest nesting of parentheses and calls.
const MOST_DEPTH: u32 = 32;

/// A value of the call that an expression may speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Count,
    World,
    ElementSize,
    Bytes,
    Rank,
    WaitingBlocks,
    Grid,
    Block,
}

impl Word {
    /// What sizes and restrictions may speak of: all that is the same for a call on every machine.
    pub(super) const OF_CALL: &'static [Word] = &[Word::Count, Word::World, Word::ElementSize, Word::Bytes];
    /// What restrictions on counts may speak of.
    pub(super) const OF_TYPES: &'static [Word] = &[Word::World, Word::ElementSize];
    /// What shapes of launches may speak of.
    pub(super) const OF_SHAPE: &'static [Word] = &[Word::Count, Word::World, Word::ElementSize, Word::Bytes, Word::WaitingBlocks];
    /// What arguments may speak of.
    pub(super) const OF_ARGUMENT: &'static [Word] =
        &[Word::Count, Word::World, Word::ElementSize, Word::Bytes, Word::Rank, Word::WaitingBlocks, Word::Grid, Word::Block];

    fn name(self) -> &'static str {
        match self {
            Word::Count => "count",
            Word::World => "world",
            Word::ElementSize => "element_size",
            Word::Bytes => "bytes",
            Word::Rank => "rank",
            Word::WaitingBlocks => "waiting_blocks",
            Word::Grid => "grid",
            Word::Block => "block",
        }
    }
}

/// What the words stand for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Values {
    pub(super) count: u64,
    pub(super) world: u64,
    pub(super) element_size: u64,
    pub(super) bytes: u64,
    pub(super) rank: u64,
    pub(super) waiting_blocks: u64,
    pub(super) grid: u64,
    pub(super) block: u64,
}

impl Values {
    fn of(&self, word: Word) -> u64 {
        match word {
            Word::Count => self.count,
            Word::World => self.world,
            Word::ElementSize => self.element_size,
            Word::Bytes => self.bytes,
            Word::Rank => self.rank,
            Word::WaitingBlocks => self.waiting_blocks,
            Word::Grid => self.grid,
            Word::Block => self.block,
        }
    }
}

/// A text that is no expression, or an expression that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where in the text, in bytes from its start.
    pub(super) at: usize,
    pub(super) what: String,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(u64),
    Word(Word),
    /// An operation, and where its sign or name stands.
    Operation(Operation, usize, Box<[Node; 2]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    CeilDiv,
    Min,
    Max,
}

impl Expression {
    /// Reads an expression that may use `words`.
    pub(super) fn read(text: &str, words: &[Word]) -> Result<Expression, Problem> {
        if text.len() > MOST_BYTES {
            return Err(Problem { at: 0, what: format!("an expression of {} bytes: at most {MOST_BYTES}", text.len()) });
        }
        let mut reader = Reader { text, at: 0, words, depth: 0 };
        let root = reader.sum()?;
        match reader.next() {
            None => Ok(Expression { text: text.to_owned(), root }),
            Some(found) => Err(reader.problem(format!("`{found}` is not expected here"))),
        }
    }

    /// A constant.
    pub(super) fn constant(value: u64) -> Expression {
        Expression { text: value.to_string(), root: Node::Number(value) }
    }

    /// Its value.
    pub(super) fn value(&self, values: &Values) -> Result<u64, Problem> {
        evaluate(&self.root, values)
    }

    /// Whether it speaks of a word.
    pub(super) fn mentions(&self, word: Word) -> bool {
        fn of(node: &Node, word: Word) -> bool {
            match node {
                Node::Number(_) => false,
                Node::Word(found) => *found == word,
                Node::Operation(_, _, sides) => sides.iter().any(|side| of(side, word)),
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

fn evaluate(node: &Node, values: &Values) -> Result<u64, Problem> {
    let (operation, at, sides) = match node {
        Node::Number(value) => return Ok(*value),
        Node::Word(word) => return Ok(values.of(*word)),
        Node::Operation(operation, at, sides) => (*operation, *at, sides),
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
        Operation::CeilDiv => divided().map(|()| left.div_ceil(right)),
        Operation::Min => Ok(left.min(right)),
        Operation::Max => Ok(left.max(right)),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    words: &'t [Word],
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
                let inner = reader.sum()?;
                reader.mark(')')?;
                Ok(inner)
            }),
            Some(digit) if digit.is_ascii_digit() => {
                let digits = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                let value = digits.replace('_', "").parse();
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
        let function = match name {
            "ceil_div" => Operation::CeilDiv,
            "min" => Operation::Min,
            "max" => Operation::Max,
            _ => {
                return self.words.iter().find(|word| word.name() == name).map(|&word| Node::Word(word)).ok_or_else(|| {
                    let known: Vec<&str> = self.words.iter().map(|word| word.name()).collect();
                    Problem { at, what: format!("unknown word `{name}`: expected one of {}, ceil_div, min, max", known.join(", ")) }
                });
            }
        };
        self.nested(|reader| {
            reader.mark('(')?;
            let left = reader.sum()?;
            reader.mark(',')?;
            let right = reader.sum()?;
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

    const VALUES: Values = Values { count: 1040, world: 8, element_size: 2, bytes: 2080, rank: 3, waiting_blocks: 4, grid: 1, block: 512 };

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
    fn values_are_those_of_arithmetic(#[case] text: &str, #[case] value: u64) {
        assert_eq!(Expression::read(text, Word::OF_ARGUMENT).and_then(|e| e.value(&VALUES)), Ok(value));
    }

    #[rstest]
    #[case("count / (world - 8)", 6, "division of 1040 by zero")]
    #[case("2 * 18446744073709551615", 2, "2 * 18446744073709551615 does not fit into 64 bits")]
    #[case("world - count", 6, "8 - 1040 is below zero")]
    #[case("18446744073709551616", 0, "`18446744073709551616` is not a number of 64 bits")]
    #[case("elements + 1", 0, "unknown word `elements`: expected one of count,")]
    #[case("1 +", 3, "the end where a number, a word or `(` is expected")]
    #[case("min(1; 2)", 5, "`;` where `,` is expected")]
    #[case("1 2", 2, "`2` is not expected here")]
    #[case("", 0, "the end where")]
    #[case("3 ü 4", 2, "`ü` is not expected here")]
    fn problems_stand_where_they_are(#[case] text: &str, #[case] at: usize, #[case] what: &str) {
        let problem = Expression::read(text, Word::OF_ARGUMENT).and_then(|e| e.value(&VALUES)).unwrap_err();
        assert!(problem.at == at && problem.what.starts_with(what), "{problem:?}");
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        assert!(Expression::read(&deep, &[]).unwrap_err().what.contains("nested"));
        assert!(Expression::read(&"1+".repeat(5000), &[]).unwrap_err().what.contains("10000 bytes"));
    }

    #[test]
    fn words_are_those_of_the_place() {
        let problem = Expression::read("rank * 4", Word::OF_CALL).unwrap_err();
        assert_eq!(problem.what, "unknown word `rank`: expected one of count, world, element_size, bytes, ceil_div, min, max");
        assert!(Expression::read("1 + min(2, grid)", Word::OF_ARGUMENT).unwrap().mentions(Word::Grid));
    }
}
