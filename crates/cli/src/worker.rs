//! `worker`: the process that cases run in. Started by the other commands, not by people.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use passmuster::{
    conformance::{
        Case, MUTANTS, Mutant, Status, Verdict,
        report::Selection,
        resources::Resources,
        runner::Settings,
        soak::{self, Round},
        worker,
    },
    emulator::{Arithmetic, Emulator, EmulatorOptions, MultimemReduction, Profile, TensorCores},
};
use passmuster_collectives::{
    algorithms::{self, Registry},
    device::DeviceModel,
    library::Library,
    machine,
};
use passmuster_cuda::{CudaMachine, CudaOptions, OpenError, Watch};

use crate::{
    CANNOT_RUN,
    foreign::{ForeignArgs, Known},
    memory, units,
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

/// Which GPUs and which libraries, and how long kernels wait.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Machine")]
pub(crate) struct Gpus {
    /// GPUs to use, by number, as in 0,1,2; ranks beyond their number share them.
    #[arg(long = "gpus", value_delimiter = ',', value_name = "LIST")]
    pub(crate) numbers: Option<Vec<usize>>,
    /// NCCL to load, instead of the one found.
    #[arg(long, value_name = "FILE")]
    pub(crate) nccl_lib: Option<PathBuf>,
    /// cuBLASLt to load, instead of the one found.
    #[arg(long, value_name = "FILE")]
    pub(crate) cublas_lt_lib: Option<PathBuf>,
    /// Enqueue copies that may be done in any order as one batch, outside graphs.
    #[arg(long)]
    pub(crate) batch_copies: bool,
    /// After how long a wait inside a kernel gives up, as in 500ms; on the emulator, of emulated time.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration_with_unit)]
    pub(crate) wait_limit: Duration,
}

/// Under which heading help has what is for the emulator.
pub(crate) const EMULATOR: &str = "Emulator";

/// What cases run on: GPUs, or the emulator and how it judges.
#[derive(clap::Args, Clone)]
pub(crate) struct Machine {
    #[command(flatten)]
    pub(crate) gpus: Gpus,
    /// The model of GPU that the emulator's ranks have: a100, h100, h200 or b200. It says how many blocks are resident, how much shared memory a block may
    /// have, and which PTX runs.
    #[arg(long, help_heading = EMULATOR, value_name = "MODEL", default_value = DeviceModel::MEASURED.name, value_parser = DeviceModel::find)]
    pub(crate) device: DeviceModel,
    /// How multimem adds on the emulator, which PTX leaves open: rank_ascending, exact_once or bound.
    #[arg(long, help_heading = EMULATOR, value_name = "MODE", default_value = MultimemReduction::RankAscending.name())]
    pub(crate) multimem: MultimemReduction,
    /// How tensor cores add on the emulator, which PTX leaves open: hopper or bound.
    #[arg(long, help_heading = EMULATOR, value_name = "MODE", default_value = TensorCores::Hopper.name())]
    pub(crate) tensor_cores: TensorCores,
    /// What the emulator's race check takes for granted.
    #[arg(long, help_heading = EMULATOR, value_enum, default_value_t = RaceProfile::Hopper)]
    pub(crate) profile: RaceProfile,
}

impl Gpus {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--wait-limit={}ms", self.wait_limit.as_secs_f64() * 1e3)];
        if let Some(numbers) = &self.numbers {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            arguments.push(format!("--gpus={}", numbers.join(",")));
        }
        if let Some(lib) = &self.nccl_lib {
            arguments.push(format!("--nccl-lib={}", lib.display()));
        }
        if let Some(lib) = &self.cublas_lt_lib {
            arguments.push(format!("--cublas-lt-lib={}", lib.display()));
        }
        arguments.extend(self.batch_copies.then(|| "--batch-copies".to_owned()));
        arguments
    }

    /// Opens them.
    ///
    /// # Errors
    /// As [`CudaMachine::open`].
    pub(crate) fn open(&self, library: Library, watch: Option<Watch>) -> Result<CudaMachine, OpenError> {
        CudaMachine::open(self.options(library, watch))
    }

    /// What they are opened with.
    pub(crate) fn options(&self, library: Library, watch: Option<Watch>) -> CudaOptions {
        CudaOptions {
            gpus: self.numbers.clone(),
            nccl_lib: self.nccl_lib.clone(),
            cublas_lt_lib: self.cublas_lt_lib.clone(),
            library,
            wait_limit: self.wait_limit,
            batch_copies: self.batch_copies,
            watch,
        }
    }

    /// The emulator in their place.
    ///
    /// # Errors
    /// Where GPUs, libraries or the way of copies are named, which the emulator does not use.
    pub(crate) fn emulator(&self, library: Library) -> anyhow::Result<EmulatorOptions> {
        if self.numbers.is_some() || self.nccl_lib.is_some() || self.cublas_lt_lib.is_some() || self.batch_copies {
            bail!("--gpus, --nccl-lib, --cublas-lt-lib and --batch-copies are for --machine cuda");
        }
        // Memory comes and goes with every case, most of it never touched: to clear two megabytes for each of its pages took a tenth of the time.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
        let usual = EmulatorOptions::default();
        let memory_budget = memory::lowered().unwrap_or(usual.memory_budget);
        Ok(EmulatorOptions { library, wait_limit: self.wait_limit, memory_budget, ..usual })
    }
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
    /// What the cases run on.
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
            Some(name) if self.all_entries => planted(name)?.library_with_all_entries(registry),
            Some(name) => planted(name)?.library(registry),
        };
        let Known { registry, library, .. } = self.elsewhere.beside_in(registry, library, self.on)?;
        match self.on {
            MachineKind::Emulator => {
                let mut machine = Emulator::new(self.machine.emulator(library, self.seed)?);
                self.serve(&registry, &mut machine);
            }
            MachineKind::Cuda => {
                let mut machine = match self.machine.gpus.open(library, Some(Arc::new(worker::busy))) {
                    Ok(machine) => machine,
                    Err(error) => {
                        eprintln!("{error}");
                        return Ok(ExitCode::from(CANNOT_RUN));
                    }
                };
                load_wanted(&registry, &mut machine);
                self.serve(&registry, &mut machine);
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
                    // What is left open after a hang is told by the verdict.
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

/// Loads NCCL where the environment is one of its cases, so that what is told of the machine has its version.
pub(crate) fn load_wanted(registry: &Registry, machine: &mut CudaMachine) {
    if wants_nccl(registry, |name| std::env::var_os(name).is_some())
        && let Err(error) = machine.load_nccl()
    {
        // The cases that need it say so, each by itself.
        eprintln!("{error}");
    }
}

/// The planted bug of this name.
///
/// # Errors
/// A name that none has.
pub(crate) fn planted(name: &str) -> anyhow::Result<&'static Mutant> {
    MUTANTS.iter().find(|mutant| mutant.name == name).ok_or_else(|| anyhow!("unknown mutant `{name}`"))
}

/// Whether the environment is one that cases of NCCL are judged in.
fn wants_nccl(registry: &Registry, is_set: impl Fn(&str) -> bool) -> bool {
    let peers = algorithms::bench_only_peers();
    registry.algorithms().iter().chain(&peers).flat_map(|a| a.environment()).any(|(name, _)| is_set(name))
}

#[cfg(test)]
mod tests {
    use passmuster::conformance::List;

    use super::*;

    /// If this fails, the worker of such cases does not say which NCCL it has.
    #[test]
    fn every_environment_of_a_case_is_one_of_nccl() {
        let registry = Registry::built_in();
        assert!(!wants_nccl(&registry, |_| false));
        for case in List::Merge.all_cases(&registry, 0) {
            let environment = case.environment(&registry);
            assert!(environment.is_empty() || wants_nccl(&registry, |name| environment.keys().any(|set| *set == name)), "{case}");
        }
    }
}
