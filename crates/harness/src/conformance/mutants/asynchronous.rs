//! Mutants of what orders asynchronous operations: mbarriers, groups, and the barriers of clusters.

use super::{
    derived::{Defect, Rules},
    lines::Instruction,
};

impl Rules<'_, '_> {
    /// What one line can get wrong there.
    pub(super) fn asynchronous(&mut self, line: usize, found: &Instruction<'_>) {
        let opcode = found.opcode;
        let starts = |start: &str| opcode.starts_with(start);
        if starts("mbarrier.init") {
            self.drop(line, Defect::Mbarrier, "mbarrier.init");
            self.changed_operand(line, found, 1, "add.s32", "1", "mbarrier of one arrival more");
            self.changed_operand(line, found, 1, "sub.s32", "1", "mbarrier of one arrival less");
        } else if starts("mbarrier.arrive.expect_tx") || starts("mbarrier.expect_tx") {
            let bytes = found.list().count() - 1;
            self.drop(line, Defect::Mbarrier, "mbarrier.expect_tx");
            self.changed_operand(line, found, bytes, "add.s32", "16", "mbarrier.expect_tx of 16 bytes more");
            self.changed_operand(line, found, bytes, "shr.u32", "1", "mbarrier.expect_tx of half the bytes");
        } else if starts("mbarrier.arrive") {
            self.drop(line, Defect::Mbarrier, "mbarrier.arrive");
        } else if starts("mbarrier.try_wait") || starts("mbarrier.test_wait") {
            let done = found.operand(0);
            self.in_place(line, found, Defect::Wait, "mbarrier not waited for", &format!("setp.eq.u32 {done}, 0, 0;"));
            if found.has("parity") {
                self.changed_operand(line, found, 2, "xor.b32", "1", "mbarrier waited for in the other phase");
            }
        } else if starts("barrier.cluster.arrive") {
            self.cluster(line, found);
        } else if opcode.contains("wait_group") {
            self.groups(line, found);
        } else if starts("wgmma.fence") {
            self.drop(line, Defect::Order, "wgmma.fence");
        } else if !starts("mbarrier.") && !starts("barrier.cluster.wait") {
            // What commits a group, and waits that know no groups.
            self.drop(line, if opcode.contains("wait") { Defect::Wait } else { Defect::Group }, opcode);
        }
    }

    /// The arrival at a cluster's barrier with the wait behind it.
    fn cluster(&mut self, line: usize, found: &Instruction<'_>) {
        let behind = (line + 1..self.entry.lines.len()).find_map(|at| Some((at, self.entry.instruction(at)?)));
        if let Some((wait, _)) = behind.filter(|(_, next)| next.opcode.starts_with("barrier.cluster.wait")) {
            self.without(&[line, wait], Defect::Barrier, "barrier.cluster");
        }
        if !found.has("relaxed") {
            let relaxed = found.opcode.replace(".release", "").replace(".arrive", ".arrive.relaxed");
            self.respell(line, Defect::Order, found, &relaxed);
        }
    }

    /// A wait for groups that is left out, is for one group less, or for reads only.
    fn groups(&mut self, line: usize, found: &Instruction<'_>) {
        let Instruction { guard, opcode, operands } = *found;
        let what = format!("{} {operands}", opcode.split(".sync").next().unwrap_or(opcode));
        self.drop(line, Defect::Wait, &what);
        if let Ok(number) = operands.trim().parse::<u32>() {
            let text = format!("{guard} {opcode} {};", number + 1);
            self.add(line, Defect::Group, &format!("{what} -> {}", number + 1), text.trim(), &[]);
        }
        if opcode.starts_with("cp.async.bulk.") && !found.has("read") {
            let text = format!("{guard} {opcode}.read {operands};");
            self.add(line, Defect::Group, &format!("{what} -> read"), text.trim(), &[]);
        }
    }

    /// The same line with one operand by way of an instruction.
    fn changed_operand(&mut self, line: usize, found: &Instruction<'_>, index: usize, by: &str, amount: &str, change: &str) {
        let operand = found.operand(index);
        let operands: Vec<&str> = found.list().enumerate().map(|(at, own)| if at == index { "%mutant_index" } else { own }).collect();
        let text = format!("{by} %mutant_index, {operand}, {amount};\n\t{} {} {};", found.guard, found.opcode, operands.join(", "));
        let defect = if change.contains("waited") { Defect::Wait } else { Defect::Mbarrier };
        self.add(line, defect, change, &text, &[]);
    }

    /// Another instruction under the same guard.
    fn in_place(&mut self, line: usize, found: &Instruction<'_>, defect: Defect, change: &str, text: &str) {
        self.add(line, defect, change, format!("{} {text}", found.guard).trim(), &[]);
    }
}
