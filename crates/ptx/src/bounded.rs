//! Waits with an end: the same kernels, with a trap in every loop that polls.

use std::collections::HashMap;

/// Registers of the bound's own. No compiler writes such names.
const LOOKS: &str = "%passmuster_looks";
const OVER: &str = "%passmuster_over";

/// Rewrites a module so that no wait in it lasts for ever: a thread that has gone round loops that poll `looks` times in one launch traps. A loop polls
/// if it has an atomic operation, a load that is strong or volatile, or a look at an mbarrier. What ends by itself before does what it did.
///
/// For kernels on GPUs that others share, where one that waits in vain would hold the device. It goes by lines, as compilers write PTX: one instruction a line, labels on lines of
/// their own.
///
/// ```
/// let kernel = ".visible .entry waits(.param .u64 p)\n{\n\t.reg .b32 %r<2>;\n$again:\n\tld.acquire.sys.u32 %r1, [p];\n\t@%q bra $again;\n\tret;\n}\n";
/// let bounded = passmuster_ptx::bound_waits(kernel, 1000);
/// assert!(bounded.contains("setp.gt.u32 %passmuster_over, %passmuster_looks, 1000;\n\t@%passmuster_over trap;\n\t@%q bra $again;"));
/// assert_eq!(passmuster_ptx::bound_waits("// no loop\n", 1000), "// no loop\n");
/// ```
pub fn bound_waits(text: &str, looks: u32) -> String {
    let lines: Vec<&str> = text.lines().map(code).collect();
    let mut labels: HashMap<&str, usize> = HashMap::new();
    let mut polled: Vec<usize> = Vec::new();
    // Lines before which a bound stands, and those after which a body begins.
    let (mut bounds, mut bodies) = (vec![false; lines.len()], vec![false; lines.len()]);
    let mut depth = 0_usize;
    for (number, line) in lines.iter().copied().enumerate() {
        if line == "{" {
            bodies[number] = depth == 0;
            depth += 1;
        } else if line == "}" {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                labels.clear();
                polled.clear();
            }
        } else if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, number);
        } else if polls(line) {
            polled.push(number);
        } else if let Some(target) = branch(line).and_then(|label| labels.get(label)) {
            // Backwards, for the label has been passed.
            bounds[number] = polled.last().is_some_and(|last| last >= target);
        }
    }
    let mut bounded = String::with_capacity(text.len());
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if bounds[number] {
            bounded += &format!("\tadd.u32 {LOOKS}, {LOOKS}, 1;\n\tsetp.gt.u32 {OVER}, {LOOKS}, {looks};\n\t@{OVER} trap;\n");
        }
        bounded += line;
        if bodies[number] && bounds.iter().any(|bound| *bound) {
            bounded += &format!("\t.reg .b32 {LOOKS};\n\t.reg .pred {OVER};\n\tmov.u32 {LOOKS}, 0;\n");
        }
    }
    bounded
}

/// A line without its comment and the space around it.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim()
}

/// Whether an instruction reads what others may write while it is read again and again.
fn polls(line: &str) -> bool {
    let opcode = instruction(line);
    let is_strong = ["acquire", "relaxed", "volatile", "mmio"].iter().any(|how| opcode.split('.').any(|part| part == *how));
    let looks_at_mbarrier = opcode.starts_with("mbarrier.try_wait") || opcode.starts_with("mbarrier.test_wait");
    looks_at_mbarrier || opcode.starts_with("atom.") || (opcode.starts_with("ld.") || opcode.starts_with("multimem.ld")) && is_strong
}

/// Where a branch leads.
fn branch(line: &str) -> Option<&str> {
    let opcode = instruction(line);
    (opcode == "bra" || opcode == "bra.uni").then(|| line.rsplit(char::is_whitespace).next())?.map(|label| label.trim_end_matches(';'))
}

/// The opcode behind a guard.
fn instruction(line: &str) -> &str {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first.starts_with('@') { words.next().unwrap_or_default() } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.visible .entry k()
{
\t.reg .b32 \t%r<4>;
$sums:                       // no wait
\tadd.u32 %r1, %r1, 1;
\t@%p1 bra \t$sums;
$tests:                      // a wait for an mbarrier
\tmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0;
\t@!%p3 bra \t$tests;
$waits:                      // a wait
\tld.relaxed.sys.global.u32 %r2, [%rd1];
\t@%p2 bra \t$on;
\tbra.uni \t$waits;
$on:
\tatom.acquire.sys.global.cas.b32 %r3, [%rd1], 0, 1;
\tret;
}
.func f()
{
\t{
again:
\tld.volatile.global.u32 %r2, [%rd1];
\t@!%p2 bra again;
\t}
\tret;
}
";

    #[test]
    fn loops_that_poll_have_an_end_and_others_are_as_they_were() {
        let bounded = bound_waits(TEXT, 77);
        assert_eq!(bounded.matches("%passmuster_over trap;").count(), 3, "{bounded}");
        assert!(bounded.contains("\t@%passmuster_over trap;\n\tbra.uni \t$waits;\n"), "{bounded}");
        assert!(bounded.contains("\t@%passmuster_over trap;\n\t@!%p2 bra again;\n"), "{bounded}");
        assert_eq!(bounded.matches("mov.u32 %passmuster_looks, 0;").count(), 2, "once for each body");
        let ours = |line: &&str| !line.contains("%passmuster_");
        assert!(bounded.lines().filter(ours).eq(TEXT.lines()));
    }

    #[test]
    fn what_is_no_kernel_stays_as_it_is() {
        for text in ["", "}", "{\n{\n{", "bra", "@ bra x;\nx:", "\u{0}"] {
            assert_eq!(bound_waits(text, 1), text);
        }
    }
}
