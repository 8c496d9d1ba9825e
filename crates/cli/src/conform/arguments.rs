//! The arguments of `validate` and `test-gpu`, and which of them go together.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use passmuster_harness::{
    conformance::report::Part,
    emulator::{Coverage, Strategy},
};
use passmuster_plan::algorithms::Registry;
use xshell::Shell;

use super::{
    Run,
    waivers::{Waivers, own_waivers},
};
use crate::{
    foreign::ForeignArgs,
    gpus::Gpus,
    journal::EVERY,
    launch::LaunchArgs,
    require::Require,
    units,
    worker::{EMULATOR, Machine, MachineKind, RaceProfile},
};

/// Test kernels on this machine's GPUs, against their contracts and NCCL.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list. In a pattern, any part may be `*`, a list or left out:
/// 'all_reduce/*:bf16,*:w=3,5,7'. Each case runs a script of calls back to back, and checks every property that applies to the results. Without a GPU the command
/// exits 3 and says what it looked for.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TestGpu {
    #[command(flatten)]
    cases: Cases,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    gpus: Gpus,
    #[command(flatten)]
    launch: LaunchArgs,
}

/// Test kernels on the emulator; no GPU is needed.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list. In a pattern, any part may be `*`, a list or left out:
/// 'all_reduce/*:bf16,*:w=3,5'. The emulator runs the kernels' PTX on the CPU, under a schedule that the seed decides. In place of NCCL it computes the reference.
/// It reports races on the paths that the schedule takes, by the PTX memory model and the assumptions of the profile, and lists what those assumptions waive.
#[derive(clap::Args)]
#[command(after_long_help = VALIDATE_EXAMPLES)]
pub(crate) struct Validate {
    #[command(flatten)]
    cases: Cases,
    /// Where the cases run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    /// Run each case under N schedules, until one finds something. Kinds take turns: random turns, one slow rank, changing priorities, late stores. The
    /// default is 1, and 4 with --spec.
    #[arg(long, help_heading = EMULATOR, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    schedules: Option<u32>,
    /// Thread instructions after which a run is inconclusive. The default is 2^34.
    #[arg(long, help_heading = EMULATOR, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Write what ranks, streams, blocks and waits of one case did, for ui.perfetto.dev or chrome://tracing. Times are emulated. With several schedules, it is
    /// the last one: the one that found something.
    #[arg(long, help_heading = EMULATOR, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    /// Show what the cases executed of each kernel: instructions, both sides of branches, and waits with each side last. Names what was not executed; --json has
    /// all of it.
    #[arg(long, help_heading = EMULATOR)]
    coverage: bool,
    /// Write the coverage as an LCOV file, for genhtml, editors and CI services. Lines are source lines, or lines of PTX if it has no .loc.
    #[arg(long, help_heading = EMULATOR, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// Memory for the buffers of all ranks together, as in 512M. The default is 8G, or less if the machine has less.
    #[arg(long, help_heading = EMULATOR, value_name = "SIZE", value_parser = units::size)]
    memory: Option<u64>,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    launch: LaunchArgs,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  cargo xtask validate                  the smoke list, on the CPU
  cargo xtask validate 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask validate --seed 7         other inputs, sequences and schedules
  cargo xtask validate --schedules 20   each case under twenty schedules
  cargo xtask validate --profile ptx    by the PTX ISA alone, nothing assumed
  cargo xtask validate --coverage       and what of the kernels they executed
  cargo xtask validate --machine cuda   on this machine's GPUs
  cargo xtask validate merge --stale --json merge.json    what has changed since

Your own kernel, its PTX and a page of TOML (docs/tutorial-foreign-kernel.md):
  cargo xtask validate --ptx mine.ptx --spec mine.toml
  cargo xtask validate faults --spec mine.toml   a rank that stays away

A finding again, as its report says; and what its ranks did, as a picture:
  cargo xtask validate --replay 'all_reduce/two_shot:f32,sum:w=8:n=9@stalled-5f'
  cargo xtask validate 'all_reduce/two_shot:bf16,sum:w=4:n=9' --trace trace.json";

const EXAMPLES: &str = "\
Examples:
  cargo xtask test-gpu                            the smoke list
  cargo xtask test-gpu merge --json merge.json    before a merge
  cargo xtask test-gpu faults                     is each planted fault named?
  cargo xtask test-gpu faults --spec mine.toml --bound-waits
  cargo xtask test-gpu 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask test-gpu --replay 'all_reduce/two_shot:bf16,sum:w=8:n=1040'
  cargo xtask test-gpu --plan 'all_reduce/two_shot:bf16,sum:w=2:n=1040'";

#[derive(clap::Args)]
pub(super) struct Cases {
    /// A list, a case id or a pattern.
    #[arg(default_value = "smoke")]
    pub(super) query: String,
    /// Run exactly this case, in a list or not. On the emulator, ID@SCHEDULE repeats exactly one run; reports print it.
    #[arg(long, value_name = "TOKEN", conflicts_with = "query")]
    pub(super) replay: Option<String>,
    /// Leave out the cases that this pattern selects, as in '*:*,*:n=2147483657'.
    #[arg(long, value_name = "PATTERN", conflicts_with = "replay")]
    pub(super) except: Option<String>,
    /// Seed of the lists and of the emulator's schedules. Another seed draws other inputs and sequences.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Print the ids of the selected cases and stop.
    #[arg(long)]
    pub(super) list: bool,
    /// Print what the selected cases do (buffers, steps, plans) and stop.
    #[arg(long)]
    pub(super) plan: bool,
    /// Run at most N of the selected cases.
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<NonZeroUsize>,
    /// Run one part of the selected cases: 2/3 runs the second of every three.
    #[arg(long, value_name = "K/N")]
    pub(super) part: Option<Part>,
    /// How long a case may run: seconds, or with a unit, as in 2min. The default is 10 s on GPUs. On the emulator it is 10 min a schedule; then the case is
    /// inconclusive.
    #[arg(long, value_name = "TIME", value_parser = units::duration_above_zero)]
    pub(super) deadline: Option<Duration>,
    /// How long to look for a smaller case, for each of the first three causes of findings. 0 turns it off.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = units::duration)]
    pub(super) shrink: Duration,
    /// Show every case that failed, in full. Without it, cases that fail of one cause are shown once: the smallest of them, and how many others there are.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// List everything that was waived, not only the most frequent places.
    #[arg(long)]
    pub(super) list_waived: bool,
    /// Your known findings (TOML, as fixtures/waivers.toml), in addition to the known bugs of NCCL. A waiver has a reason, an owner and a last day. It covers a
    /// failure if it names all of its findings.
    #[arg(long, value_name = "FILE", value_parser = own_waivers)]
    pub(super) waivers: Option<Waivers>,
    /// Exit 1 if a case passed only because of a hardware assumption or a waiver.
    #[arg(long)]
    pub(super) fail_on_waived: bool,
    /// Write the record of the run (docs/reference/record-schema.md). An interrupted run leaves FILE.partial.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Continue an interrupted run: keep the verdicts of its record and run the rest. Sources, machine and options must be the same.
    #[arg(long, value_name = "RECORD", requires = "json")]
    pub(super) resume: Option<PathBuf>,
    /// Judge only cases of modules that have changed since the record at --json, and cases that it lacks. Keeps its other verdicts, and writes it again. If it
    /// is interrupted, the record stays as it is.
    #[arg(long, requires = "json", conflicts_with_all = ["resume", "part", "replay"])]
    pub(super) stale: bool,
    /// Seconds between two writes of FILE.partial, beside the file of --json.
    #[arg(long, value_name = "SECONDS", default_value_t = EVERY)]
    pub(super) keep_every: u64,
    /// Write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    #[command(flatten)]
    pub(super) require: Require,
}

impl TestGpu {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let TestGpu { cases, elsewhere, gpus, launch } = self;
        let run = Run { launch: launch.on_gpus(), ..Run::plain("test-gpu", registry, MachineKind::Cuda, gpus.into()) };
        cases.run(&run.with(&elsewhere)?, sh)
    }

    /// Whether this process may open GPUs itself, as that of a rank does.
    pub(crate) fn opens_gpus(&self) -> bool {
        self.launch.clone().on_gpus().is_of_a_rank()
    }
}

impl Validate {
    /// As [`TestGpu::opens_gpus`].
    pub(crate) fn opens_gpus(&self) -> bool {
        self.on == MachineKind::Cuda && self.launch.clone().on_gpus().is_of_a_rank()
    }

    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Validate { cases, on, schedules, steps, trace, coverage, lcov, elsewhere, memory, mut machine, launch } = self;
        let launch = if on == MachineKind::Cuda { launch.on_gpus() } else { launch };
        if launch.has_ranks() {
            // Processes that share memory do not see each other's accesses.
            machine.profile = RaceProfile::Off;
        }
        if (memory.is_some() || trace.is_some() || steps.is_some()) && on == MachineKind::Cuda {
            bail!("--memory, --steps and --trace are for --machine emulator");
        }
        let coverage = (coverage || lcov.is_some()).then(Arc::<Coverage>::default);
        if coverage.is_some() {
            cases.can_cover(on, &launch)?;
        }
        // A kernel that nobody here has run before gets one schedule of each kind.
        let several = elsewhere.any() && on == MachineKind::Emulator && !launch.has_ranks();
        let default = if several { Strategy::ALL.len() as u32 } else { 1 };
        let schedules = schedules.unwrap_or(default);
        let run = Run { memory, schedules, steps, trace, coverage, lcov, launch, ..Run::plain("validate", registry, on, machine) };
        cases.run(&run.with(&elsewhere)?, sh)
    }
}

impl Cases {
    /// Whether what is executed can be told of all the cases.
    fn can_cover(&self, on: MachineKind, launch: &LaunchArgs) -> anyhow::Result<()> {
        if on == MachineKind::Cuda || launch.is_asked_for() || launch.has_ranks() {
            bail!("--coverage and --lcov are for --machine emulator in one process, without --launcher");
        }
        if self.part.is_some() || self.resume.is_some() {
            bail!("--coverage and --lcov are of all cases in one run: without --part and --resume");
        }
        Ok(())
    }
}
