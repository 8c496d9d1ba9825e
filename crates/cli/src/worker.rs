//! `worker`: the process that cases run in. Started by the other commands, not by people.

use std::{process::ExitCode, sync::Arc};

use anyhow::anyhow;
use passmuster_harness::{
    conformance::{
        Case, Status, Verdict,
        report::Selection,
        resources::Resources,
        runner::Settings,
        soak::{self, Round},
        worker,
    },
    emulator::{Arithmetic, Emulator, EmulatorOptions, MultimemReduction, Profile, TensorCores},
};
use passmuster_plan::{
    algorithms::{Mutant, Registry},
    device::DeviceModel,
    library::Library,
    machine,
};

use crate::{
    CANNOT_RUN,
    foreign::{ForeignArgs, Known},
    gpus::{self, Gpus},
    memory,
};

/// Which machine cases run on.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineKind {
    /// PTX on the CPU; needs no GPU.
    Emulator,
    /// This host's GPUs.
    Cuda,
}

impl MachineKind {
    /// The same as an argument.
    pub(crate) fn argument(self) -> String {
        match self {
            MachineKind::Emulator => "--machine=emulator".into(),
            MachineKind::Cuda => "--machine=cuda".into(),
        }
    }
}

/// What the emulator's race check takes for granted.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaceProfile {
    /// Nothing but the PTX memory model.
    Ptx,
    /// Also how Hopper behaves; what only that orders is listed as waived.
    Hopper,
    /// Races are not looked for.
    Off,
}

impl From<RaceProfile> for Profile {
    fn from(profile: RaceProfile) -> Profile {
        match profile {
            RaceProfile::Ptx => Profile::Ptx,
            RaceProfile::Hopper => Profile::Hopper,
            RaceProfile::Off => Profile::Off,
        }
    }
}

/// Under which heading help has what is for the emulator.
pub(crate) const EMULATOR: &str = "Emulator";

/// What cases run on: GPUs, or the emulator and how it judges.
#[derive(clap::Args, Clone)]
pub(crate) struct Machine {
    #[command(flatten)]
    pub(crate) gpus: Gpus,
    /// GPU model of the emulator: a100, h100, h200 or b200. It decides how many blocks are resident, how much shared memory a block may have, and which PTX
    /// runs.
    #[arg(long, help_heading = EMULATOR, value_name = "MODEL", default_value = DeviceModel::MEASURED.name, value_parser = DeviceModel::find)]
    pub(crate) device: DeviceModel,
    /// How multimem adds on the emulator, since PTX does not say: rank_ascending, exact_once or bound.
    #[arg(long, help_heading = EMULATOR, value_name = "MODE", default_value = MultimemReduction::RankAscending.name())]
    pub(crate) multimem: MultimemReduction,
    /// How tensor cores add on the emulator, since PTX does not say: hopper or bound.
    #[arg(long, help_heading = EMULATOR, value_name = "MODE", default_value = TensorCores::Hopper.name())]
    pub(crate) tensor_cores: TensorCores,
    /// Assumptions of the race check.
    #[arg(long, help_heading = EMULATOR, value_enum, default_value_t = RaceProfile::Hopper)]
    pub(crate) profile: RaceProfile,
}

impl Machine {
    /// What a run's record says of it, beside what was selected.
    pub(crate) fn selection(&self, on: MachineKind) -> Selection {
        let emulated = on == MachineKind::Emulator;
        Selection {
            device: (emulated && self.device != DeviceModel::MEASURED).then(|| self.device.name.into()),
            multimem: emulated.then(|| self.multimem.name().into()),
            profile: emulated.then(|| Profile::from(self.profile).to_string()),
            tensor_cores: (emulated && self.tensor_cores != TensorCores::default()).then(|| self.tensor_cores.name().into()),
            wait_limit: self.gpus.wait_limit.as_millis() as u64,
            batch_copies: self.gpus.batch_copies,
            memory: if emulated { memory::lowered() } else { None },
            ..Selection::default()
        }
    }
}

impl From<Gpus> for Machine {
    /// With an emulator that judges as it does by default.
    fn from(gpus: Gpus) -> Machine {
        let Arithmetic { multimem, tensor_cores } = Arithmetic::default();
        Machine { gpus, device: DeviceModel::MEASURED, multimem, tensor_cores, profile: RaceProfile::Hopper }
    }
}

impl Machine {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let emulated = [
            format!("--device={}", self.device.name),
            format!("--multimem={}", self.multimem.name()),
            format!("--tensor-cores={}", self.tensor_cores.name()),
            format!("--profile={}", Profile::from(self.profile)),
        ];
        self.gpus.arguments().into_iter().chain(emulated).collect()
    }

    /// The emulator.
    ///
    /// # Errors
    /// As [`Gpus::emulator`].
    pub(crate) fn emulator(&self, library: Library, seed: u64) -> anyhow::Result<EmulatorOptions> {
        let (device, profile) = (self.device, self.profile.into());
        let arithmetic = Arithmetic { multimem: self.multimem, tensor_cores: self.tensor_cores };
        Ok(EmulatorOptions { seed, device, arithmetic, profile, ..self.gpus.emulator(library)? })
    }
}

/// Judge cases from standard input (started by the other commands).
#[derive(clap::Args)]
pub(crate) struct Worker {
    /// Kernels with a planted bug in place of the real ones.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// With the other kernels of its module.
    #[arg(long, requires = "mutant")]
    all_entries: bool,
    /// A planted bug: groups of the same ranks use one signal pad.
    #[arg(long)]
    shared_pads: bool,
    /// Where the cases run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Cuda)]
    on: MachineKind,
    /// Seed of the emulator's schedules.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    machine: Machine,
}

impl Worker {
    pub(crate) fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        worker::expendable();
        let library = match &self.mutant {
            None => registry.library(),
            Some(name) if self.all_entries => planted(registry, name)?.library_with_all_entries(registry),
            Some(name) => planted(registry, name)?.library(registry),
        };
        let Known { registry, library, .. } = self.elsewhere.beside_in(registry, library, self.on)?;
        match self.on {
            MachineKind::Emulator => {
                let mut machine = Emulator::new(self.machine.emulator(library, self.seed)?);
                self.serve(&registry, &mut machine);
            }
            MachineKind::Cuda => {
                let mut machine = match gpus::open_for_cases(&registry, &self.machine.gpus, library, Some(Arc::new(worker::busy))) {
                    Ok(machine) => machine,
                    Err(error) => {
                        eprintln!("{error}");
                        return Ok(ExitCode::from(CANNOT_RUN));
                    }
                };
                self.serve(&registry, &mut *machine);
            }
        }
        // Standard input has ended. Destructors of a driver that may be wedged have nothing to add.
        std::process::exit(0)
    }
    fn serve(&self, registry: &Registry, machine: &mut dyn machine::Machine) {
        worker::serve(machine.info(), |request| {
            let settings =
                |deadline| Settings { registry, deadline, shared_pads: self.shared_pads, progress: &|line: &str| worker::progress(line) };
            let not_understood = |error: String| Verdict::without_checks(&request.case, Status::InfraError, error);
            if soak::is_round(&request.case) {
                return Round::read(registry, &request.case).map_or_else(not_understood, |round| {
                    let verdict = round.judge(machine, &settings(round.of_run(request.deadline())));
                    // After a hang, the verdict says what is left open.
                    if !verdict.voids_device() {
                        machine.close_groups();
                        Resources::now(machine).into_iter().for_each(worker::holds);
                    }
                    verdict
                });
            }
            let case = Case::resolve(&request.case, registry).map_err(|error| error.to_string());
            case.map_or_else(not_understood, |case| case.judge(machine, &settings(request.deadline())))
        });
    }
}

/// The planted bug of this name.
///
/// # Errors
/// A name that none has.
pub(crate) fn planted(registry: &Registry, name: &str) -> anyhow::Result<&'static Mutant> {
    registry.mutants().iter().find(|mutant| mutant.name == name).ok_or_else(|| anyhow!("unknown mutant `{name}`"))
}
