//! One entry of a PTX text, line by line: enough of it to find where a kernel synchronises. Compilers write one instruction a line.

use std::collections::BTreeSet;

/// The text of one entry with what stands before the first one, so that it is a module by itself.
pub(super) struct EntryText<'t> {
    /// Before the first entry of the module.
    preamble: &'t str,
    /// From the line with the entry's name to that of its closing brace.
    pub(super) lines: Vec<&'t str>,
    /// Lines of the text before them.
    pub(super) before: usize,
}

/// A line that holds an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction<'t> {
    /// The guard with its `@`, or nothing.
    pub(super) guard: &'t str,
    /// The opcode with all modifiers.
    pub(super) opcode: &'t str,
    /// What follows, without the semicolon.
    pub(super) operands: &'t str,
}

impl<'t> Instruction<'t> {
    /// The instruction of a line, where it has one.
    pub(super) fn of(line: &'t str) -> Option<Instruction<'t>> {
        let text = line.trim().strip_suffix(';')?.trim_end();
        let (guard, rest) = match text.starts_with('@') {
            true => text.split_once(char::is_whitespace)?,
            false => ("", text),
        };
        let rest = rest.trim_start();
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        opcode.starts_with(|c: char| c.is_ascii_lowercase()).then(|| Instruction { guard, opcode, operands: operands.trim_start() })
    }

    /// Whether the opcode has a modifier.
    pub(super) fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').skip(1).any(|part| part == modifier)
    }

    /// The operands, one by one. Those of a vector in braces are operands of their own.
    pub(super) fn list(&self) -> impl Iterator<Item = &'t str> {
        self.operands.split(',').map(|operand| operand.trim_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '}')))
    }

    /// The operand at an index, or nothing.
    pub(super) fn operand(&self, index: usize) -> &'t str {
        self.list().nth(index).unwrap_or_default()
    }

    /// Whether it writes a register: its first operand, or all of a vector there.
    fn defines(&self, register: &str) -> bool {
        let base = self.opcode.split('.').next().unwrap_or_default();
        if matches!(base, "st" | "red" | "bra" | "bar" | "barrier" | "ret" | "fence") {
            return false;
        }
        match self.operands.strip_prefix('{') {
            Some(vector) => vector.split('}').next().unwrap_or_default().split(',').any(|part| part.trim() == register),
            None => self.operand(0) == register,
        }
    }
}

/// Where the entry that starts at `start` ends: behind the brace that closes its body. There are others within it: vectors, and the scopes of inline assembly.
fn end_of(ptx: &str, start: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, brace) in ptx[start..].match_indices(['{', '}']) {
        depth += if brace == "{" { 1 } else { -1 };
        if depth == 0 {
            return Some(start + at + 1);
        }
    }
    None
}

impl<'t> EntryText<'t> {
    /// The entry of this name, where the text has it.
    pub(super) fn of(ptx: &'t str, entry: &str) -> Option<EntryText<'t>> {
        let start_of_line = |at: usize| ptx[..at].rfind('\n').map_or(0, |end| end + 1);
        let preamble = &ptx[..start_of_line(ptx.find(".entry ")?)];
        let start = start_of_line(ptx.find(&format!(".entry {entry}("))?);
        let end = end_of(ptx, start)?;
        Some(EntryText { preamble, lines: ptx[start..end].lines().collect(), before: ptx[..start].matches('\n').count() })
    }

    /// The instruction of a line, where it has one.
    pub(super) fn instruction(&self, line: usize) -> Option<Instruction<'t>> {
        self.lines.get(line).and_then(|text| Instruction::of(text))
    }

    /// All instructions with their lines.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (usize, Instruction<'t>)> {
        (0..self.lines.len()).filter_map(|line| Some((line, self.instruction(line)?)))
    }

    /// The last line before `line`, in the order of the text, that writes a register.
    pub(super) fn definition(&self, register: &str, line: usize) -> Option<(usize, Instruction<'t>)> {
        (0..line).rev().filter_map(|at| Some((at, self.instruction(at)?))).find(|(_, instruction)| instruction.defines(register))
    }

    /// The line of a label.
    fn label(&self, name: &str) -> Option<usize> {
        self.lines.iter().position(|line| line.trim().strip_suffix(':') == Some(name))
    }

    /// The label that a line is, where it is one.
    pub(super) fn label_of(&self, line: usize) -> Option<&'t str> {
        self.lines.get(line)?.trim().strip_suffix(':')
    }

    /// The lines that can be reached from the start of a line without passing one where `stop` holds; those where it does are left out.
    pub(super) fn reachable(&self, from: usize, stop: impl Fn(&Instruction<'_>) -> bool) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut todo = vec![from];
        while let Some(line) = todo.pop() {
            if line >= self.lines.len() || reached.contains(&line) {
                continue;
            }
            let instruction = self.instruction(line);
            if instruction.is_some_and(|instruction| stop(&instruction)) {
                continue;
            }
            reached.insert(line);
            let falls_through = match instruction {
                Some(jump) if jump.opcode.starts_with("bra") => {
                    todo.extend(self.label(jump.operands));
                    !jump.guard.is_empty()
                }
                Some(end) => !(end.guard.is_empty() && matches!(end.opcode, "ret" | "exit")),
                None => true,
            };
            if falls_through {
                todo.push(line + 1);
            }
        }
        reached
    }

    /// Where a branch leads to.
    pub(super) fn target(&self, branch: &Instruction<'_>) -> Option<usize> {
        self.label(branch.operands)
    }

    /// A module's text with this entry as it is in `alone`, which is of [`EntryText::with`].
    pub(super) fn in_place_of(&self, ptx: &str, alone: &str) -> String {
        let (Some(first), Some(entry)) = (self.lines.first(), alone.strip_prefix(self.preamble)) else { return alone.to_owned() };
        // Lines are parts of the module's text.
        let start = first.as_ptr() as usize - ptx.as_ptr() as usize;
        let end = end_of(ptx, start).unwrap_or(ptx.len());
        format!("{}{entry}{}", &ptx[..start], &ptx[end..])
    }

    /// The module of this entry alone, with each line as `line` gives it.
    pub(super) fn with(&self, mut line: impl FnMut(usize, &str, &mut String)) -> String {
        let mut text = self.preamble.to_owned();
        for (number, original) in self.lines.iter().enumerate() {
            line(number, original, &mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.version 9.0
.target sm_80
.address_size 64
.visible .entry other()
{
ret;
}
.visible .entry mine(
)
{
	mov.u32 	%r1, %tid.x;
	@!%p1 bra 	$L_2;
	bar.sync 	0;
$L_1:
	st.relaxed.sys.global.u32 [%rd1+4], %r1;
	bra.uni $L_1;
$L_2:
	ld.param.v2.u32 	{%r2, %r3}, [%rd2];
	{
.reg .b32 remote;
mov.b32 remote, %r2;
}
	ret;
}
";

    #[test]
    fn an_entry_is_cut_out_and_is_a_module_by_itself() {
        let entry = EntryText::of(TEXT, "mine").unwrap();
        let text = entry.with(|_, line, into| *into += &format!("{line}\n"));
        assert_eq!(text, TEXT.replace(".visible .entry other()\n{\nret;\n}\n", ""));
        assert!(EntryText::of(TEXT, "min").is_none());
    }

    #[test]
    fn instructions_are_read() {
        let store = Instruction::of("	st.relaxed.sys.global.u32 [%rd1+4], %r1;").unwrap();
        assert_eq!(store, Instruction { guard: "", opcode: "st.relaxed.sys.global.u32", operands: "[%rd1+4], %r1" });
        assert!(store.has("sys") && !store.has("st") && !store.has("gpu"));
        assert_eq!(store.list().collect::<Vec<_>>(), ["[%rd1+4]", "%r1"]);
        let branch = Instruction::of("	@!%p1 bra 	$L_2;").unwrap();
        assert_eq!((branch.guard, branch.opcode, branch.operand(0)), ("@!%p1", "bra", "$L_2"));
        for none in ["$L_1:", "	// begin inline asm", "	.reg .pred 	%p<3>;", "{", ""] {
            assert_eq!(Instruction::of(none), None, "{none}");
        }
    }

    #[test]
    fn definitions_and_ways_are_found() {
        let entry = EntryText::of(TEXT, "mine").unwrap();
        let at = |text: &str| entry.lines.iter().position(|line| line.contains(text)).unwrap();
        let (line, _) = entry.definition("%r1", at("st.relaxed")).unwrap();
        assert_eq!(line, at("mov.u32"), "a store writes no register");
        assert_eq!(entry.definition("%r3", entry.lines.len()).unwrap().0, at("ld.param"));
        let ways = entry.reachable(at("mov.u32"), |instruction| instruction.opcode == "bar.sync");
        assert!(ways.contains(&at("ld.param")) && !ways.contains(&at("st.relaxed")) && !ways.contains(&(entry.lines.len() - 1)));
        assert!(entry.reachable(at("bar.sync"), |_| false).contains(&at("bra.uni")));
    }
}
