//! The functions that the driver gives kernels (CUDA, "Writers guide to ABI", system calls): `vprintf` and `__assertfail`. A call of another function without
//! a body ends the launch.
//!
//! What is printed is kept, formatted as C does, up to [`MOST_LINES`] texts of a launch; nothing is written anywhere. A failed assertion is a fault.

use super::{
    executor::{Executor, Flow},
    fault::ExecError,
    registers::{LANES, Row, lanes_of},
};
use crate::memory;
use passmuster_ptx::{Argument, Operand};

/// Texts of a launch that are kept.
const MOST_LINES: usize = 64;

/// The most bytes of a string that is read, and characters of a text.
const MOST_BYTES: usize = 1024;

impl Executor<'_> {
    /// Calls a function that has no body.
    pub(super) fn call_system(
        &mut self,
        group: usize,
        lanes: u32,
        name: &str,
        arguments: &[Argument],
        results: &[Argument],
    ) -> Result<Flow, ExecError> {
        match (name, arguments) {
            ("vprintf", [format, values]) => {
                let (formats, values) = (self.passed(lanes, format), self.passed(lanes, values));
                for lane in lanes_of(lanes) {
                    let format = self.string(lane, formats[lane])?;
                    let (text, converted) = self.formatted(lane, &format, values[lane])?;
                    if self.printed.len() < MOST_LINES {
                        self.printed.push(text);
                    }
                    results.iter().for_each(|result| self.give_back(lane, result, converted));
                }
                let done = self.split_off(group, lanes);
                self.warp.groups[done].pc = self.pc + 1;
                Ok(Flow::Moved)
            }
            ("__assertfail", [condition, file, line, function, _]) => {
                let lane = lanes.trailing_zeros() as usize;
                let mut text = |argument| {
                    let address = self.passed(1 << lane, argument)[lane];
                    self.string(lane, address)
                };
                let (condition, file, function) = (text(condition)?, text(file)?, text(function)?);
                let line = self.passed(1 << lane, line)[lane] as u32;
                let why = format!("assertion `{condition}` failed in `{function}` ({file}:{line})");
                Err(ExecError::Assertion { lane: lane as u32, why })
            }
            _ => Err(ExecError::unsupported(format!("a call of `{name}`, which has no body,"))),
        }
    }

    /// What lanes pass, as 64 bits.
    fn passed(&mut self, lanes: u32, argument: &Argument) -> Row<u64> {
        match *argument {
            Argument::Bytes { caller, bytes, .. } => {
                let mut values = [0; LANES];
                for lane in lanes_of(lanes) {
                    for at in 0..bytes.min(8) {
                        let byte = self.parameter_byte(u64::from(caller + at), lane).unwrap_or_default();
                        values[lane] |= u64::from(byte) << (8 * at);
                    }
                }
                values
            }
            Argument::Value { caller, .. } | Argument::Register { caller, .. } => self.warp.registers.bits(caller),
        }
    }

    /// Gives a lane what a call returns.
    fn give_back(&mut self, lane: usize, result: &Argument, value: u32) {
        match *result {
            Argument::Bytes { caller, bytes, .. } => {
                let start = self.frame.parameters + caller as usize;
                for (at, byte) in value.to_le_bytes().into_iter().enumerate().take(bytes as usize) {
                    self.warp.parameters[start + at][lane] = byte;
                }
            }
            Argument::Value { caller: Operand::Register(to), .. } | Argument::Register { caller: Operand::Register(to), .. } => {
                self.warp.registers.write_bits(to, 1 << lane, &[value.into(); LANES]);
            }
            Argument::Value { .. } | Argument::Register { .. } => {}
        }
    }

    fn bytes_at<const N: usize>(&mut self, lane: usize, address: u64) -> Result<[u8; N], ExecError> {
        let loaded = self.memory.load::<N>(memory::Address(address), self.launch.program.rank);
        loaded.map_err(|error| ExecError::Access(Some(lane as u32), error))
    }

    /// The string at an address, up to its NUL.
    fn string(&mut self, lane: usize, address: u64) -> Result<String, ExecError> {
        let mut bytes = Vec::new();
        while bytes.len() < MOST_BYTES {
            let [byte] = self.bytes_at(lane, address.wrapping_add(bytes.len() as u64))?;
            if byte == 0 {
                break;
            }
            bytes.push(byte);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a lane prints, and how many values it has.
    fn formatted(&mut self, lane: usize, format: &str, values: u64) -> Result<(String, u32), ExecError> {
        let (mut text, mut at, mut converted) = (String::new(), values, 0);
        let mut rest = format;
        while let Some((before, after)) = rest.split_once('%') {
            text += before;
            let (conversion, after) = Conversion::read(after);
            rest = after;
            let Some(conversion) = conversion else {
                text.push('%');
                continue;
            };
            if conversion.letter == '%' {
                text.push('%');
                continue;
            }
            let bytes: u64 = if conversion.is_wide() { 8 } else { 4 };
            at = at.next_multiple_of(bytes);
            let value = match bytes {
                8 => u64::from_le_bytes(self.bytes_at(lane, at)?),
                _ => u32::from_le_bytes(self.bytes_at(lane, at)?).into(),
            };
            at += bytes;
            converted += 1;
            text += &match conversion.letter {
                's' => conversion.padded(self.string(lane, value)?),
                _ => conversion.shown(value),
            };
            if text.len() > MOST_BYTES {
                break;
            }
        }
        text += rest;
        Ok((text.trim_end_matches('\n').chars().take(MOST_BYTES).collect(), converted))
    }
}

/// A conversion of a format, as `%-8.3f`.
struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
    letter: char,
}

impl Conversion {
    /// Reads what follows a `%`; `None` if it is no conversion.
    fn read(after: &str) -> (Option<Conversion>, &str) {
        let flags = after.len() - after.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        let (flags, rest) = after.split_at(flags);
        let number = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (width, rest) = rest.split_at(number(rest));
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (digits, rest) = rest.split_at(number(rest));
                (Some(digits.parse().unwrap_or(0)), rest)
            }
            None => (None, rest),
        };
        let length = rest.len() - rest.trim_start_matches(['h', 'l', 'z', 'j', 't']).len();
        let (length, rest) = rest.split_at(length);
        let Some(letter) = rest.chars().next().filter(|letter| "diuoxXcspfFeEgGaA%".contains(*letter)) else { return (None, after) };
        let conversion = Conversion {
            left: flags.contains('-'),
            zeros: flags.contains('0'),
            plus: flags.contains('+'),
            alternate: flags.contains('#'),
            width: width.parse().unwrap_or(0).min(MOST_BYTES),
            precision: precision.map(|precision: usize| precision.min(MOST_BYTES)),
            long: length.contains(['l', 'z', 'j', 't']),
            letter,
        };
        (Some(conversion), &rest[letter.len_utf8()..])
    }

    /// Whether its value has eight bytes: floats are passed as doubles.
    fn is_wide(&self) -> bool {
        match self.letter {
            'd' | 'i' | 'u' | 'o' | 'x' | 'X' => self.long,
            'c' => false,
            _ => true,
        }
    }

    fn shown(&self, value: u64) -> String {
        let float = f64::from_bits(value);
        let digits = self.precision.unwrap_or(6);
        let signed = if self.long { value as i64 } else { i64::from(value as i32) };
        let text = match self.letter {
            'd' | 'i' => signed.to_string(),
            'u' => value.to_string(),
            'o' => format!("{value:o}"),
            'x' => format!("{}{value:x}", if self.alternate { "0x" } else { "" }),
            'X' => format!("{}{value:X}", if self.alternate { "0X" } else { "" }),
            'c' => char::from(value as u8).to_string(),
            'p' => format!("{value:#x}"),
            'e' | 'E' => exponential(float, digits),
            'g' | 'G' => general(float, digits.max(1)),
            _ => format!("{float:.digits$}"),
        };
        let is_upper = matches!(self.letter, 'F' | 'E' | 'G' | 'A');
        let text = if is_upper { text.to_uppercase() } else { text };
        let is_number = !matches!(self.letter, 'c' | 'p');
        self.padded(if self.plus && is_number && !text.starts_with('-') { format!("+{text}") } else { text })
    }

    /// Filled up to the width.
    fn padded(&self, text: String) -> String {
        let text = if self.letter == 's' { text.chars().take(self.precision.unwrap_or(MOST_BYTES)).collect() } else { text };
        let width = self.width;
        let fill = width.saturating_sub(text.chars().count());
        if self.left {
            return format!("{text:<width$}");
        }
        match (self.zeros && self.letter != 's', text.strip_prefix('-')) {
            (true, Some(digits)) => format!("-{}{digits}", "0".repeat(fill)),
            (true, None) => format!("{}{text}", "0".repeat(fill)),
            (false, _) => format!("{text:>width$}"),
        }
    }
}

/// `1.500000e+00`, which Rust writes as `1.500000e0`.
fn exponential(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e').map(|(mantissa, exponent)| (mantissa.to_owned(), exponent.parse::<i32>())) {
        Some((mantissa, Ok(exponent))) => format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        _ => text,
    }
}

/// The shorter of `%e` and `%f`, without the zeros at its end.
fn general(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let exponent = value.abs().log10().floor() as i32;
    let trimmed = |text: String| if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    if (-4..digits as i32).contains(&exponent) {
        return trimmed(format!("{value:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    let text = exponential(value, digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
    format!("{}e{exponent}", trimmed(mantissa.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, what a kernel prints reads otherwise than on a device.
    #[rstest]
    #[case("d", 0xffff_ffff, "-1")]
    #[case("u", 0xffff_ffff, "4294967295")]
    #[case("lld", u64::MAX, "-1")]
    #[case("05d", 0xffff_fffb, "-0005")]
    #[case("-5d|", 7, "7    ")]
    #[case("#x", 255, "0xff")]
    #[case("c", 65, "A")]
    #[case(".2f", 1.005_f64.to_bits(), "1.00")]
    #[case("f", 1.5_f64.to_bits(), "1.500000")]
    #[case("e", 1500.0_f64.to_bits(), "1.500000e+03")]
    #[case("g", 0.0001_f64.to_bits(), "0.0001")]
    #[case("g", 1e20_f64.to_bits(), "1e+20")]
    #[case("+d", 7, "+7")]
    fn values_as_c_prints(#[case] conversion: &str, #[case] value: u64, #[case] expected: &str) {
        let (read, _) = Conversion::read(conversion);
        assert_eq!(read.unwrap().shown(value), expected);
    }

    #[test]
    fn no_conversion() {
        assert!(Conversion::read("y").0.is_none() && Conversion::read("").0.is_none());
    }
}
