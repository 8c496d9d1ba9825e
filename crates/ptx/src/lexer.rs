//! PTX text to tokens.
//!
//! A dot and what follows it are one token (`.param`, `.L2::128B`, `.1d`), so that an opcode is a word followed by dotted ones. `.loc`
//! and `.file` have no semicolon and end with their line; they are one token each, and `.local` is neither.

use super::error::{Position, PtxError, shortened};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TokenKind<'t> {
    /// A name: identifiers, opcodes, registers with their `%`.
    Word(&'t str),
    /// A dot and what follows it, without the dot.
    Dotted(&'t str),
    /// An integer.
    Integer(u64),
    /// `0f` and eight hexadecimal digits.
    Single(u32),
    /// `0d` and sixteen hexadecimal digits.
    Double(u64),
    /// A decimal number with a point or an exponent, as written.
    Decimal(&'t str),
    /// A string, without its quotes.
    Text(&'t str),
    /// One character of punctuation.
    Mark(char),
    /// `.loc`: file, line, column.
    Loc([u32; 3]),
    /// `.file`: index and path.
    File(u32, &'t str),
    /// The end of the text.
    End,
}

/// A token and where it starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind<'t>,
    pub(super) at: Position,
}

impl TokenKind<'_> {
    /// The token as messages name it.
    pub(super) fn described(&self) -> String {
        match self {
            TokenKind::Word(word) => format!("`{}`", shortened(word)),
            TokenKind::Dotted(word) => format!("`.{}`", shortened(word)),
            TokenKind::Integer(value) => format!("`{value}`"),
            TokenKind::Single(bits) => format!("`0f{bits:08X}`"),
            TokenKind::Double(bits) => format!("`0d{bits:016X}`"),
            TokenKind::Decimal(digits) => format!("`{}`", shortened(digits)),
            TokenKind::Text(_) => "a string".into(),
            TokenKind::Mark(mark) => format!("`{mark}`"),
            TokenKind::Loc(_) => "`.loc`".into(),
            TokenKind::File(..) => "`.file`".into(),
            TokenKind::End => "the end of the text".into(),
        }
    }
}

/// The longest text that is taken, in bytes.
const MAX_TEXT: usize = 64 << 20;

/// Where a text is being read. A copy is a place to come back to.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    offset: usize,
    at: Position,
}

impl<'t> Lexer<'t> {
    /// The start of a text.
    ///
    /// # Errors
    /// Where the text is too long.
    pub(super) fn new(text: &'t str) -> Result<Lexer<'t>, PtxError> {
        let at = Position { line: 1, column: 1 };
        if text.len() > MAX_TEXT {
            return Err(PtxError::limit(at, format!("a text of {} bytes", text.len()), MAX_TEXT as u64));
        }
        Ok(Lexer { text, offset: 0, at })
    }

    /// The next token; at the end, [`TokenKind::End`] again and again.
    ///
    /// # Errors
    /// Where a character, a number, a string or a comment is not one of PTX's.
    pub(super) fn next(&mut self) -> Result<Token<'t>, PtxError> {
        self.skip_blanks()?;
        let at = self.at;
        Ok(Token { kind: self.token()?, at })
    }

    fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.offset + ahead).copied().unwrap_or(0)
    }

    /// Passes over `bytes` bytes, which must end at a character's end.
    fn advance(&mut self, bytes: usize) -> &'t str {
        let passed = &self.text[self.offset..self.offset + bytes];
        for byte in passed.bytes() {
            if byte == b'\n' {
                self.at = Position { line: self.at.line + 1, column: 1 };
            } else if byte & 0xc0 != 0x80 {
                self.at.column += 1;
            }
        }
        self.offset += bytes;
        passed
    }

    fn advance_while(&mut self, skip: usize, is_part: impl Fn(u8) -> bool) -> &'t str {
        let bytes = self.rest().bytes().skip(skip).take_while(|&byte| byte.is_ascii() && is_part(byte)).count();
        self.advance(skip + bytes)
    }

    fn skip_blanks(&mut self) -> Result<(), PtxError> {
        loop {
            self.advance_while(0, |byte| byte.is_ascii_whitespace() || byte == 0x0b);
            if self.rest().starts_with("//") {
                let bytes = self.rest().find('\n').unwrap_or(self.rest().len());
                self.advance(bytes);
            } else if self.rest().starts_with("/*") {
                let at = self.at;
                let Some(bytes) = self.rest()[2..].find("*/") else {
                    return Err(PtxError::syntax(at, "a comment without end", "`*/`"));
                };
                self.advance(bytes + 4);
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<TokenKind<'t>, PtxError> {
        let at = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(TokenKind::End) };
        match first {
            'a'..='z' | 'A'..='Z' | '_' | '$' | '%' => Ok(TokenKind::Word(self.advance_while(1, is_name))),
            '0'..='9' => self.number(),
            '.' => self.dotted(),
            '"' => {
                let Some(bytes) = self.rest()[1..].find(['"', '\n']).filter(|&end| self.rest()[1 + end..].starts_with('"')) else {
                    return Err(PtxError::syntax(at, "a string without end", "`\"` on the same line"));
                };
                Ok(TokenKind::Text(&self.advance(bytes + 2)[1..=bytes]))
            }
            ',' | ';' | ':' | '{' | '}' | '[' | ']' | '(' | ')' | '<' | '>' | '@' | '!' | '+' | '-' | '|' | '=' => {
                self.advance(1);
                Ok(TokenKind::Mark(first))
            }
            other => Err(PtxError::syntax(at, format!("character {other:?}"), "PTX")),
        }
    }

    fn dotted(&mut self) -> Result<TokenKind<'t>, PtxError> {
        let at = self.at;
        // `::` joins the parts of one modifier: `.L2::cache_hint`.
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        loop {
            end += bytes[end..].iter().take_while(|&&byte| is_name(byte)).count();
            if bytes[end..].starts_with(b"::") && bytes.get(end + 2).copied().is_some_and(is_name) {
                end += 2;
            } else {
                break;
            }
        }
        let word = &self.advance(end)[1..];
        match word {
            "" => Err(PtxError::syntax(at, "`.` and no name", "a directive or a modifier")),
            "loc" => self.loc(at),
            "file" => self.file(at),
            _ => Ok(TokenKind::Dotted(word)),
        }
    }

    /// The rest of a line that belongs to a directive without semicolon, without its comment.
    fn line(&mut self) -> &'t str {
        let bytes = self.rest().find('\n').unwrap_or(self.rest().len());
        let line = self.advance(bytes);
        // Paths hold `//` only within quotes, and only `.file` has those.
        if line.contains('"') { line } else { line.split("//").next().unwrap_or(line) }
    }

    fn loc(&mut self, at: Position) -> Result<TokenKind<'t>, PtxError> {
        let line = self.line();
        let mut numbers = line.split([' ', '\t', '\r', ',']).filter(|word| !word.is_empty()).map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(file)), Some(Ok(line)), Some(Ok(column))) => Ok(TokenKind::Loc([file, line, column])),
            _ => Err(PtxError::syntax(at, format!("`.loc{}`", shortened(line)), "`.loc` with a file, a line and a column")),
        }
    }

    fn file(&mut self, at: Position) -> Result<TokenKind<'t>, PtxError> {
        let line = self.line();
        let mut parts = line.splitn(3, '"');
        let index = parts.next().map(str::trim).and_then(|index| index.parse().ok());
        match (index, parts.next(), parts.next()) {
            (Some(index), Some(path), Some(_)) => Ok(TokenKind::File(index, path)),
            _ => Err(PtxError::syntax(at, format!("`.file{}`", shortened(line)), "`.file` with an index and a quoted path")),
        }
    }

    fn number(&mut self) -> Result<TokenKind<'t>, PtxError> {
        let at = self.at;
        let prefix = self.byte(1).to_ascii_lowercase();
        if self.byte(0) == b'0' && matches!(prefix, b'f' | b'd') {
            let digits = &self.advance_while(2, |byte| byte.is_ascii_alphanumeric())[2..];
            let (wanted, name) = if prefix == b'f' { (8, "`0f` and 8") } else { (16, "`0d` and 16") };
            let bits = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == wanted);
            let bits = bits.ok_or_else(|| {
                PtxError::syntax(at, format!("`0{}{}`", prefix as char, shortened(digits)), format!("{name} hexadecimal digits"))
            })?;
            return Ok(if prefix == b'f' { TokenKind::Single(bits as u32) } else { TokenKind::Double(bits) });
        }
        let digits = self.advance_while(0, |byte| byte.is_ascii_digit());
        let point = self.byte(0) == b'.' && self.byte(1).is_ascii_digit();
        let exponent = matches!(self.byte(0), b'e' | b'E') && digits != "0x";
        if point || exponent {
            return self.decimal(at, digits.len());
        }
        self.integer(at, digits)
    }

    /// A decimal fraction of which `passed` bytes are passed over already.
    fn decimal(&mut self, at: Position, passed: usize) -> Result<TokenKind<'t>, PtxError> {
        let start = self.offset - passed;
        if self.byte(0) == b'.' {
            self.advance_while(1, |byte| byte.is_ascii_digit());
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            self.advance_while(1 + sign, |byte| byte.is_ascii_digit());
        }
        self.advance_while(0, is_name);
        let written = &self.text[start..self.offset];
        match written.parse::<f64>() {
            Ok(_) => Ok(TokenKind::Decimal(written)),
            Err(_) => Err(PtxError::syntax(at, format!("`{}`", shortened(written)), "a number")),
        }
    }

    fn integer(&mut self, at: Position, digits: &str) -> Result<TokenKind<'t>, PtxError> {
        let rest = self.advance_while(0, is_name);
        let written = format!("{digits}{rest}");
        let number = written.strip_suffix(['U', 'u']).unwrap_or(&written);
        let parsed = match number.as_bytes() {
            [b'0', b'x' | b'X', ..] => u64::from_str_radix(&number[2..], 16),
            [b'0', b'b' | b'B', ..] => u64::from_str_radix(&number[2..], 2),
            [b'0', _, ..] => u64::from_str_radix(&number[1..], 8),
            _ => number.parse(),
        };
        parsed.map(TokenKind::Integer).map_err(|_| PtxError::syntax(at, format!("`{}`", shortened(&written)), "an integer of 64 bits"))
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}
