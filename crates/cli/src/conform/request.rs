//! What was asked for, again: as the record keeps it, as processes compare it, and as people type it.

use std::num::NonZeroUsize;

use passmuster_harness::{
    conformance::report::Selection,
    emulator::{Interleaving, MultimemReduction, Profile, TensorCores},
};
use passmuster_plan::device::DeviceModel;

use super::{Run, arguments::Cases};
use crate::{
    foreign::RegisteredKernel,
    project,
    worker::{Machine, MachineKind},
};

impl Cases {
    /// What processes that judge the cases together must have been asked for alike.
    pub(super) fn asked(&self, run: &Run, schedules: &[Interleaving]) -> String {
        let selection = serde_json::to_string(&self.selection(run, schedules.len())).expect("a selection is plain data");
        format!("{} {} of PTX {}: {selection}", run.kind, env!("CARGO_PKG_VERSION"), run.library.ptx_hash())
    }

    /// What is asked for, for the record.
    pub(super) fn selection(&self, run: &Run, schedules: usize) -> Selection {
        let of_machine = run.machine.selection(run.on);
        Selection {
            query: self.replay.as_ref().unwrap_or(&self.query).clone(),
            except: self.except.clone(),
            seed: self.seed,
            part: self.part,
            limit: self.limit.map(NonZeroUsize::get),
            schedules: (run.on == MachineKind::Emulator).then_some(schedules),
            memory: run.memory.or(of_machine.memory),
            steps: run.steps,
            deadline: self.deadline.map(|deadline| deadline.as_millis() as u64),
            processes: run.launch.of_ranks().map(|processes| processes.get() as u64),
            kernel: RegisteredKernel::noted(&run.known),
            ..of_machine
        }
    }

    /// What to type to run a case again as it ran here, before the case.
    pub(super) fn command(&self, run: &Run) -> String {
        let &Run { kind, on, memory, .. } = run;
        let machine = if kind == "validate" && on == MachineKind::Cuda { " --machine cuda" } else { "" };
        let memory = memory.map(|bytes| format!(" --memory {bytes}")).unwrap_or_default();
        let elsewhere: String = run.elsewhere.iter().map(|option| format!(" {}", project::quoted(option))).collect();
        let Machine { device, multimem: mode, tensor_cores, profile, .. } = run.machine;
        let profile = Profile::from(profile);
        let emulated = [
            (device != DeviceModel::MEASURED).then(|| format!(" --device {}", device.name)),
            (mode != MultimemReduction::default()).then(|| format!(" --multimem {}", mode.name())),
            (tensor_cores != TensorCores::default()).then(|| format!(" --tensor-cores {}", tensor_cores.name())),
            (profile != Profile::default()).then(|| format!(" --profile {profile}")),
        ];
        let emulated: String = emulated.into_iter().flatten().filter(|_| on == MachineKind::Emulator).collect();
        let ranks = run.launch.of_ranks().map(|processes| format!(" --launcher own --processes {processes}")).unwrap_or_default();
        format!("{} {kind}{machine}{elsewhere}{memory}{emulated}{ranks}", project::invocation())
    }
}
