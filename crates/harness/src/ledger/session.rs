//! The forms' kernels on a machine, one launch a form.

use std::{sync::Arc, time::Duration};

use super::{
    forms::Form,
    generate::{launch, module_alone, module_of, register_bits},
    inputs::Inputs,
};
use passmuster_plan::{
    machine::{Machine, MachineError},
    plan::{BufferSpec, Op, Plan, Region, Role, Script, Step},
};

/// The largest number of operands or results, in words of 8 bytes.
const WORDS: u64 = 1 << 20;
/// What results hold before a launch.
const UNWRITTEN: u8 = 0xc5;

/// A group of one rank with room for a form's operands and results.
pub struct Session<'m> {
    machine: &'m mut dyn Machine,
    group: usize,
    deadline: Duration,
}

impl Session<'_> {
    /// Opens the group. The machine's library must be [`library`](super::generate::library) of the forms.
    ///
    /// # Errors
    /// As [`Machine::open_group`].
    pub fn open(machine: &mut dyn Machine, deadline: Duration) -> Result<Session<'_>, MachineError> {
        machine.close_groups();
        let buffers = ["operands", "results"].map(|name| BufferSpec::new(name, 8 * WORDS, Role::Data));
        let group = machine.open_group(1, &buffers)?;
        Ok(Session { machine, group, deadline })
    }

    /// The results of form number `index`: for each of its instructions those of all tuples.
    ///
    /// # Errors
    /// As [`Machine::run`]. `NotSupported` and `Invalid` concern this form only: where the machine refuses the module that it shares, its
    /// kernel is tried alone.
    pub fn results(&mut self, form: &Form, index: usize, inputs: &Inputs) -> Result<Vec<u64>, MachineError> {
        let count = inputs.count();
        let words = inputs.planes.iter().flatten().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let operands = Region::new("operands", 0, words.len() as u64);
        let results = Region::new("results", 0, 8 * (count * form.code.len()) as u64);
        self.machine.write(self.group, 0, &operands, &words)?;
        match self.run(form, module_of(index), &operands, &results, count) {
            Err(MachineError::NotSupported { .. }) => self.run(form, module_alone(form), &operands, &results, count)?,
            ran => ran?,
        }
        let bytes = self.machine.read(self.group, 0, &results)?;
        let mask = u64::MAX >> (64 - register_bits(form.result));
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok(bytes.chunks_exact(8).map(|bytes| word(bytes) & mask).collect())
    }

    fn run(&mut self, form: &Form, module: String, operands: &Region, results: &Region, count: usize) -> Result<(), MachineError> {
        let fill = Op::Fill { region: results.clone(), byte: UNWRITTEN };
        let launch = Op::Launch(launch(form, module, operands.clone(), results.clone(), count));
        let plan = Plan::per_rank(&form.name, 1, |_| vec![fill.clone(), launch.clone()]);
        let step = Step::Enqueue { group: self.group, stream: 0, plan: Arc::new(plan) };
        self.machine.run(&Script { steps: vec![step] }, self.deadline).map(|_| ())
    }
}
