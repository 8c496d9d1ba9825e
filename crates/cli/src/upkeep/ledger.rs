//! `ledger`: every arithmetic and conversion form of the emulator, compared with a GPU.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster_emulator::Profile;
use passmuster_harness::{
    conformance::{
        Status,
        report::{Record, Summary, table},
    },
    emulator::{Emulator, EmulatorOptions},
    ledger::{self, Difference, Form, Inputs, Row, Session},
};
use passmuster_plan::{
    algorithms::Registry,
    library::Library,
    machine::{Machine, MachineError, MachineInfo},
};
use xshell::Shell;

use super::{litmus, orders};
use crate::{CANNOT_RUN, FINDING, USAGE, gpus::Gpus, progress::progress_bar, project, result_file::ResultFile, worker::MachineKind};

/// Compare the emulator's arithmetic with a GPU's, bit for bit.
///
/// Each form is a kernel of one instruction. It runs over edge values and random bits on the machine and on the emulator. `.approx` forms must be within their
/// documented bound. Any other difference is a mismatch, unless the ISA leaves the result open. Without a GPU the command exits 3. docs/emulator/ledger.md explains
/// the columns.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Ledger {
    /// What to compare the emulator with. `emulator` compares it with another schedule of itself, which only shows that the kernels run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Cuda)]
    on: MachineKind,
    /// Run only forms whose name contains TEXT, or the one of exactly this name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the forms and stop.
    #[arg(long)]
    list: bool,
    /// Print every form, not only those that differ.
    #[arg(long)]
    all: bool,
    /// Differences to print for each form and kind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    examples: usize,
    /// Run the litmus tests in this folder instead (docs/emulator/litmus.md): does memory end as the emulator allows? Only those for one GPU run.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = litmus::FOLDER, conflicts_with_all = ["list", "ptx", "all"])]
    litmus: Option<PathBuf>,
    /// Litmus tests to skip, by name (they crash the GPU).
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "litmus")]
    skip: Vec<String>,
    /// Instead, count words that arrive too late at other ranks: what the end of a kernel and griddepcontrol.wait order. Needs several GPUs.
    #[arg(long, conflicts_with_all = ["list", "ptx", "all", "litmus"])]
    orders: bool,
    /// World sizes for --orders, with a GPU for each rank.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2", requires = "orders", value_parser = clap::value_parser!(u32).range(2..=16))]
    worlds: Vec<u32>,
    /// Repetitions of each row of --orders. Each writes and reads 245,760 words for each other rank.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "orders", value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// The fewest launches of each litmus test.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "litmus", value_parser = clap::value_parser!(u64).range(1..))]
    launches: u64,
    /// Write the kernels' PTX into this folder and stop.
    #[arg(long, value_name = "DIR")]
    ptx: Option<PathBuf>,
    /// Write the record of the run (docs/reference/record-schema-commands.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    gpus: Gpus,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask ledger --json ledger.json        all forms, on the first GPU
  cargo xtask ledger --only cvt. --all         all conversions
  cargo xtask ledger --only add.rn.ftz.f32     one form
  cargo xtask ledger --machine emulator        do the kernels run? No GPU needed
  cargo xtask ledger --litmus                  the litmus tests
  cargo xtask ledger --orders --worlds 2,4     order towards other ranks
  cargo xtask ledger --only lop3 --ptx kernels their PTX, to look at";

/// The time that one kernel may take, the driver's compilation of its module included.
const DEADLINE: Duration = Duration::from_secs(60);
/// Seed of the emulator's schedule where it is compared with itself.
const OTHER_SEED: u64 = 1;

/// What the emulator is compared with: GPUs, or the emulator under another schedule.
pub(crate) fn open(on: MachineKind, gpus: &Gpus, library: Library, seed: u64) -> Result<Box<dyn Machine>, String> {
    Ok(match on {
        MachineKind::Cuda => crate::gpus::open(gpus, library, None)?,
        MachineKind::Emulator => Box::new(emulator(library, seed)),
    })
}

/// The emulator under a schedule. What races is judged elsewhere.
pub(crate) fn emulator(library: Library, seed: u64) -> Emulator {
    Emulator::new(EmulatorOptions { library, seed, profile: Profile::Off, ..EmulatorOptions::default() })
}

/// Says that there is nothing to compare with, and why.
pub(crate) fn cannot_run(error: &str) -> ExitCode {
    eprintln!("ledger cannot run on this machine: {error}");
    ExitCode::from(CANNOT_RUN)
}

impl Ledger {
    pub(crate) fn run(mut self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let only = self.only.clone().unwrap_or_default();
        if let Some(folder) = &self.litmus {
            let tests = litmus::tests(folder, &only)?;
            let file = ResultFile::asked(self.json.as_deref())?;
            self.gpus.numbers.get_or_insert_with(|| vec![0]);
            return litmus::held_against(registry, self.on, (&tests, &self.skip), self.launches, &self.gpus, file.as_ref(), sh);
        }
        if self.orders {
            let file = ResultFile::asked(self.json.as_deref())?;
            return orders::measure(registry, self.on, (&only, &self.worlds, self.turns), &self.gpus, file.as_ref(), sh);
        }
        let mut forms: Vec<Form> = ledger::forms::all().into_iter().filter(|form| form.name.contains(&only)).collect();
        if forms.iter().any(|form| form.name == only) {
            forms.retain(|form| form.name == only);
        }
        if forms.is_empty() {
            bail!("`{only}` is in the name of no form: `{} ledger --list` prints them", project::invocation());
        }
        if self.list {
            forms.iter().for_each(|form| println!("{}", form.name));
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(folder) = &self.ptx {
            return write_ptx(&forms, folder);
        }
        let file = ResultFile::asked(self.json.as_deref())?;
        let library = ledger::generate::library(&forms);
        // One rank: the first of the GPUs, unless told.
        self.gpus.numbers.get_or_insert_with(|| vec![0]);
        let mut expecting = emulator(library.clone(), 0);
        let start = Instant::now();
        let mut machine = match open(self.on, &self.gpus, library, OTHER_SEED) {
            Ok(machine) => machine,
            Err(error) => return Ok(cannot_run(&error)),
        };
        let rows = self.compare(&forms, &mut *machine, &mut expecting)?;
        self.report(registry, machine.info(), rows, start.elapsed().as_secs_f64(), file.as_ref(), sh)
    }

    /// A row for each form.
    fn compare(&self, forms: &[Form], machine: &mut dyn Machine, expecting: &mut Emulator) -> anyhow::Result<Vec<Row>> {
        let mut machine = Session::open(machine, DEADLINE).context("the group of one rank")?;
        let mut expecting = Session::open(expecting, DEADLINE).context("the emulator's group of one rank")?;
        let bar = progress_bar(forms.len());
        let mut rows = Vec::new();
        for (index, form) in forms.iter().enumerate() {
            let inputs = Inputs::of(form);
            let expected = expecting.results(form, index, &inputs).with_context(|| format!("`{}` on the emulator", form.name))?;
            rows.push(match machine.results(form, index, &inputs) {
                Ok(got) => Row::compare(form, &inputs, &expected, &got, self.examples),
                Err(error @ (MachineError::NotSupported { .. } | MachineError::Invalid { .. })) => Row::refused(form, error.to_string()),
                Err(error @ MachineError::Fault { .. }) => {
                    // The device is lost to this process: what was compared before is still reported.
                    rows.push(Row::crashed(form, error.to_string()));
                    eprintln!("`{}`: {error}; {} forms after it were not tried", form.name, forms.len() - rows.len());
                    break;
                }
                Err(error) => bail!("`{}`: {error}", form.name),
            });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    fn report(
        &self,
        registry: &Registry,
        machine: MachineInfo,
        rows: Vec<Row>,
        seconds: f64,
        file: Option<&ResultFile>,
        sh: &Shell,
    ) -> anyhow::Result<ExitCode> {
        println!("{}", table_of(&rows, self.all));
        refusals(&rows);
        let summary = Summary::of(rows.iter().map(|row| row.status));
        let sum = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
        let totals = format!(
            "{} forms in {seconds:.1} s: {} tuples, {} mismatches ({} of them NaNs), {} differences where the ISA leaves the result open",
            rows.len(),
            sum(|row| row.tuples),
            sum(|row| row.mismatches),
            sum(|row| row.nan_mismatches),
            sum(|row| row.open)
        );
        println!("{totals}; {summary}");
        let findings = summary.has_findings();
        let refused = summary.by_status.get(&Status::NotSupported).copied().unwrap_or(0);
        let mut record = Record::new("ledger", machine, project::source(sh, &registry.library()), summary, rows);
        record.notes.push(totals);
        if let Some(only) = &self.only {
            record.notes.push(format!("only forms whose name contains `{only}`"));
        }
        if let Some(file) = file {
            file.write(&record.to_json())?;
        }
        Ok(match (findings, refused) {
            (true, _) => ExitCode::from(FINDING),
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitCode::from(USAGE),
        })
    }
}

/// A difference on one line.
fn shown(difference: &Difference) -> String {
    format!("{} -> {}, got {}  {}", difference.operands, difference.expected, difference.got, difference.instruction)
}

/// The forms with a mismatch, an open difference or a bound; or all.
fn table_of(rows: &[Row], all: bool) -> String {
    let speaks = |row: &&Row| all || row.mismatches + row.open > 0 || row.bound.is_some();
    let lines: Vec<Vec<String>> = rows
        .iter()
        .filter(|row| row.reason.is_empty())
        .filter(speaks)
        .flat_map(|row| {
            let first = row.first.as_ref().or(row.first_open.as_ref());
            let line = vec![
                row.form.clone(),
                first.map(shown).unwrap_or_default(),
                row.bound.clone().unwrap_or_default(),
                row.max_ulps.map(|ulps| ulps.to_string()).unwrap_or_default(),
                row.tuples.to_string(),
                row.mismatches.to_string(),
                row.nan_mismatches.to_string(),
                row.open.to_string(),
            ];
            // Below it what there is besides.
            let others = row.examples.iter().chain(&row.open_examples).filter(|example| Some(*example) != first);
            let below = others.map(|example| vec![String::new(), shown(example)]);
            std::iter::once(line).chain(below).collect::<Vec<Vec<String>>>()
        })
        .collect();
    if lines.is_empty() {
        return "every form agrees to the bit".into();
    }
    table::aligned(&["form", "first difference", "bound", "max ulp", "tuples", "mismatches", "of NaNs", "open"], 3, &lines)
}

/// Prints why forms were refused or crashed, each reason once.
fn refusals(rows: &[Row]) {
    let refused = rows.iter().filter(|row| !row.reason.is_empty());
    let mut seen = BTreeSet::new();
    for row in refused {
        if seen.insert(&row.reason) {
            eprintln!("{}: {}", row.form, row.reason);
        }
    }
}

fn write_ptx(forms: &[Form], folder: &Path) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for form in forms {
        let path = folder.join(format!("{}.ptx", form.name));
        fs::write(&path, ledger::generate::module(std::slice::from_ref(form)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{} modules in {}", forms.len(), folder.display());
    Ok(ExitCode::SUCCESS)
}
