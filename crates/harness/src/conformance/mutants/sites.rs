//! Where a kernel synchronises, read off the text of its entry.
//!
//! Signals and looks at them are the strong operations of the scope of a system or a device: integers of one word (kernels/common/signals.cuh), or vectors that carry
//! their flag beside the data (kernels/common/lines.cuh). Other data goes weakly or by `volatile`. The epoch is the word that is loaded, added to
//! and stored back without any strength.
//!
//! Many looks at lines decide one branch together, and it leads into another round of looks either way. So they have no branch of their own here: what
//! waits for lines can get wrong is planted by people (fixtures/mutants/sync_push_*.toml).

use std::collections::BTreeSet;

use super::lines::{EntryText, Instruction};

/// How far from an instruction, in lines, those that belong to it are looked for.
const NEAR: usize = 64;

/// A load that polls, and the branch that decides by what it saw.
pub(super) struct Look<'t> {
    pub(super) line: usize,
    pub(super) load: Instruction<'t>,
    /// The branch, where one side of it leaves the wait and the other looks again.
    pub(super) branch: Option<Branch<'t>>,
}

/// The branch after a look.
pub(super) struct Branch<'t> {
    pub(super) line: usize,
    pub(super) instruction: Instruction<'t>,
    /// Whether the wait is over where the branch is taken.
    pub(super) leaves_if_taken: bool,
}

/// A block's count of barriers: read, added to, kept.
pub(super) struct Epoch<'t> {
    pub(super) load: (usize, Instruction<'t>),
    pub(super) store: (usize, Instruction<'t>),
    /// The additions whose sums are signalled or kept.
    pub(super) additions: Vec<(usize, Instruction<'t>)>,
}

/// The comparison of a thread's index with the world size that lets it take part in a barrier.
pub(super) struct Door<'t> {
    pub(super) line: usize,
    pub(super) comparison: Instruction<'t>,
    /// The signal behind it.
    pub(super) signal: usize,
}

/// Every place of one entry.
pub(super) struct Sites<'t> {
    pub(super) barriers: Vec<(usize, Instruction<'t>)>,
    pub(super) fences: Vec<(usize, Instruction<'t>)>,
    pub(super) signals: Vec<(usize, Instruction<'t>)>,
    pub(super) looks: Vec<Look<'t>>,
    pub(super) epoch: Option<Epoch<'t>>,
    pub(super) doors: Vec<Door<'t>>,
    /// What starts asynchronous operations, counts them or waits for them, other than the copies themselves.
    pub(super) asynchronous: Vec<(usize, Instruction<'t>)>,
}

impl<'t> Sites<'t> {
    pub(super) fn of(entry: &EntryText<'t>) -> Sites<'t> {
        let those = |wanted: fn(&Instruction<'_>) -> bool| entry.instructions().filter(|(_, found)| wanted(found)).collect::<Vec<_>>();
        let signals = those(is_signal);
        let looks = those(is_look);
        let lines: BTreeSet<usize> = looks.iter().map(|&(line, _)| line).collect();
        Sites {
            barriers: those(is_barrier),
            fences: those(|found| found.opcode.starts_with("fence.") || found.opcode.starts_with("membar.")),
            looks: looks.into_iter().map(|(line, load)| Look { line, load, branch: branch(entry, line, &load, &lines) }).collect(),
            epoch: epoch(entry, &signals),
            doors: doors(entry, &signals),
            asynchronous: those(is_asynchronous),
            signals,
        }
    }
}

pub(super) fn is_barrier(instruction: &Instruction<'_>) -> bool {
    ["bar.sync", "barrier.sync", "barrier.cta.sync", "bar.warp.sync"].iter().any(|barrier| instruction.opcode.starts_with(barrier))
}

fn is_asynchronous(instruction: &Instruction<'_>) -> bool {
    let starts = [
        "mbarrier.",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.wait_group",
        "cp.async.commit_group",
        "cp.async.wait_",
        "griddepcontrol.wait",
    ];
    let of_products = ["wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "barrier.cluster."];
    starts.iter().chain(&of_products).any(|start| instruction.opcode.starts_with(start))
}

/// Whether it is a strong operation on integers that other blocks learn something from. Within a device, a word is compared and exchanged only to claim
/// an entry of a report.
fn is_strong_for_others(instruction: &Instruction<'_>) -> bool {
    let strong = ["relaxed", "acquire", "release", "acq_rel"].iter().any(|semantics| instruction.has(semantics));
    let integer = ["u32", "s32", "b32", "u64", "s64", "b64"].iter().any(|ty| instruction.has(ty));
    let far = instruction.has("sys") || instruction.has("gpu") && !instruction.has("cas");
    strong && far && integer
}

fn is_signal(instruction: &Instruction<'_>) -> bool {
    let writes = ["st.", "red.", "atom.", "multimem.st.", "multimem.red."].iter().any(|start| instruction.opcode.starts_with(start));
    writes && is_strong_for_others(instruction)
}

fn is_look(instruction: &Instruction<'_>) -> bool {
    instruction.opcode.starts_with("ld.") && is_strong_for_others(instruction)
}

/// The branch that decides by what a look saw: the first guarded by what is computed from it.
fn branch<'t>(entry: &EntryText<'t>, look: usize, load: &Instruction<'t>, looks: &BTreeSet<usize>) -> Option<Branch<'t>> {
    let mut computed = vec![load.operand(0)];
    for line in look + 1..look + NEAR {
        if entry.label_of(line).is_some() {
            return None;
        }
        let Some(instruction) = entry.instruction(line) else { continue };
        if instruction.opcode.starts_with("bra") {
            let guard = instruction.guard.trim_start_matches(['@', '!']);
            if !computed.contains(&guard) {
                return None;
            }
            let looks_again = |from| entry.reachable(from, is_barrier).intersection(looks).next().is_some();
            let taken = looks_again(entry.target(&instruction)?);
            let otherwise = looks_again(line + 1);
            return (taken != otherwise).then_some(Branch { line, instruction, leaves_if_taken: otherwise });
        }
        if instruction.list().skip(1).any(|operand| computed.contains(&operand)) {
            computed.push(instruction.operand(0));
        }
    }
    None
}

fn epoch<'t>(entry: &EntryText<'t>, signals: &[(usize, Instruction<'t>)]) -> Option<Epoch<'t>> {
    let stores = entry.instructions().filter(|(_, found)| found.opcode == "st.global.u32");
    let kept = stores.filter_map(|(line, store)| {
        let (load, counts) = count(entry, store.operand(1), line)?;
        (!counts.is_empty()).then_some((load, (line, store), counts))
    });
    let (load, store, counts) = kept.last()?;
    let used: BTreeSet<usize> = signals
        .iter()
        .chain([&store])
        .filter_map(|(line, found)| entry.definition(found.operand(1), *line).map(|(at, _)| at))
        .filter(|&at| entry.instruction(at).is_some_and(|sum| sum.opcode == "add.s32" && counts.contains(&sum.operand(1))))
        .collect();
    let additions = used.into_iter().filter_map(|line| Some((line, entry.instruction(line)?))).collect();
    Some(Epoch { load, store, additions })
}

/// The load that a register's value begins with, and the registers from it on that are copied or added to. Where it depends on how often a loop went round,
/// sums are of sums; where it is known in front of the loop, the other summand is the number of turns.
fn count<'t>(entry: &EntryText<'t>, register: &'t str, line: usize) -> Option<((usize, Instruction<'t>), Vec<&'t str>)> {
    let (at, found) = entry.definition(register, line)?;
    let summands = match found.opcode {
        "ld.global.u32" => return Some(((at, found), Vec::new())),
        "add.s32" => 1..=2,
        "mov.u32" => 1..=1,
        _ => return None,
    };
    summands.map(|index| found.operand(index)).find_map(|summand| {
        let (load, counts) = count(entry, summand, at)?;
        Some((load, [vec![summand], counts].concat()))
    })
}

fn doors<'t>(entry: &EntryText<'t>, signals: &[(usize, Instruction<'t>)]) -> Vec<Door<'t>> {
    let door = |&(signal, _): &(usize, Instruction<'t>)| {
        let (line, comparison) = (signal.saturating_sub(NEAR)..signal).rev().find_map(|line| {
            let found = entry.instruction(line).filter(|found| matches!(found.opcode, "setp.lt.u32" | "setp.ge.u32"))?;
            let (_, index) = entry.definition(found.operand(1), line)?;
            // A number is no world size, nor is how many threads there are: it parts the warps of a block.
            let bound = found.operand(2);
            let of_world = bound.starts_with('%') && !counts_threads(entry, bound, line);
            (index.operand(1) == "%tid.x" && of_world).then_some((line, found))
        })?;
        Some(Door { line, comparison, signal })
    };
    signals.iter().filter_map(door).collect()
}

/// Whether a register has the number of a block's threads, or what is left of it without some known number.
fn counts_threads(entry: &EntryText<'_>, register: &str, line: usize) -> bool {
    let Some((at, found)) = entry.definition(register, line) else { return false };
    let is_arithmetic = ["mov.", "add.", "sub.", "shr.", "shl."].iter().any(|kind| found.opcode.starts_with(kind));
    is_arithmetic && (found.operand(1) == "%ntid.x" || counts_threads(entry, found.operand(1), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors_of(bound: &str) -> usize {
        let text = format!(
            ".visible .entry mine(.param .u32 world)\n{{\n\t.reg .pred %p<2>;\n\tmov.u32 %r1, %tid.x;\n{bound}\tsetp.lt.u32 %p1, %r1, %r3;\n\t@!%p1 bra $L_1;\n\
             \tst.release.sys.global.u32 [%rd1], %r4;\n$L_1:\n\tret;\n}}\n"
        );
        Sites::of(&EntryText::of(&text, "mine").unwrap()).doors.len()
    }

    /// If this fails, a warp that signals for its block is taken for a rank, and mutants are made that leave out one rank of a barrier that there is not.
    #[test]
    fn a_thread_that_is_compared_with_the_number_of_threads_is_no_rank() {
        assert_eq!(doors_of("\tld.param.u32 %r3, [world];\n"), 1);
        assert_eq!(doors_of("\tmov.u32 %r2, %ntid.x;\n\tadd.s32 %r3, %r2, -32;\n"), 0);
        assert_eq!(doors_of("\tmov.u32 %r3, %ntid.x;\n"), 0);
    }
}
