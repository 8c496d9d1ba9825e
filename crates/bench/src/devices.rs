//! What plans are made for, and what a process must have been started with.

use passmuster_plan::{algorithms::Target, device::DeviceModel, machine::Machine};

/// Environment variables that a process must have been started with.
pub type Environment = &'static [(&'static str, &'static str)];

/// What plans are made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Devices {
    pub(super) target: Target,
    /// Multiprocessors of each.
    pub(super) sms: u32,
}

/// Multiprocessors of a machine that does not tell: a product's plan has as many blocks.
const SOME_SMS: u32 = DeviceModel::MEASURED.sms;

impl Devices {
    /// What plans are made for if `plans` of them are carried out at a time.
    pub(super) fn at_once(&self, plans: u32) -> Target {
        Target { waiting_blocks: (self.target.waiting_blocks / plans).max(1), ..self.target }
    }

    /// Those that plans are looked at for where there is no machine.
    pub(super) fn of_nobody(target: Target) -> Devices {
        Devices { target, sms: SOME_SMS }
    }

    /// Those of a machine on which a world of ranks runs.
    pub(super) fn of(machine: &dyn Machine, world: u32) -> Devices {
        let target = Target { waiting_blocks: machine.waiting_blocks(world as usize, 1), ..Target::default() };
        let notes = machine.info().notes;
        let told = notes.iter().find(|(name, _)| name == "multiprocessors").and_then(|(_, value)| value.parse().ok());
        Devices { target, sms: told.unwrap_or(SOME_SMS) }
    }
}
