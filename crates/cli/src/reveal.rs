//! `reveal-order`: the summation tree of an algorithm, from probes.

use std::{
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use passmuster_harness::{
    conformance::{
        order::{Orders, Revealed, Run, reveal},
        report::table,
    },
    emulator::Emulator,
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry},
    collective::{Collective, DType},
    machine::{self, MachineError},
};

use crate::{
    CANNOT_RUN, FINDING,
    foreign::{ForeignArgs, Known},
    worker::{Machine, MachineKind},
};

/// Print the order in which a kernel adds its ranks' elements.
///
/// For each pair of ranks it makes one call in which one holds M, the other -M, and all others a unit that is lost beside M. The result tells how many ranks are
/// added after the two have met (FPRev, arXiv 2411.00442). Exits 1 if the order is not the one that the contract promises.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask reveal-order all_reduce/two_shot --worlds 8
  cargo xtask reveal-order all_reduce/two_shot --dtype bf16 --count 4096
  cargo xtask reveal-order all_reduce/nccl_ring --worlds 2,4 --machine cuda
  cargo xtask reveal-order --spec mine.toml --worlds 4")]
pub(crate) struct Reveal {
    /// COLLECTIVE/ALGORITHM. Leave it out with --spec.
    #[arg(value_name = "ALGORITHM", required_unless_present = "specs", conflicts_with = "specs")]
    algorithm: Option<String>,
    /// World sizes, with a table for each.
    #[arg(long, alias = "world", value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u32).range(1..))]
    worlds: Vec<u32>,
    /// Type of the elements.
    #[arg(long, default_value_t = DType::F32)]
    dtype: DType,
    /// Elements of a slot. Each is probed by itself.
    #[arg(long, default_value_t = 1040, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Where it runs.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    machine: Machine,
}

/// How long one call may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs of one order that are printed.
const PRINTED: usize = 4;

impl Reveal {
    pub(crate) fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let Known { registry, library, foreign: known } = self.elsewhere.beside(registry, self.on)?;
        let algorithm: Arc<dyn Algorithm> = match (&self.algorithm, &known[..]) {
            (None, [known]) => known.of.collective("reveal-order")?.clone(),
            (None, known) => bail!("--spec is given {} times: the order of one algorithm is printed", known.len()),
            (Some(name), _) => {
                let (collective, name) = name.split_once('/').context("expected COLLECTIVE/ALGORITHM, as in all_reduce/two_shot")?;
                let collective: Collective = collective.parse().map_err(anyhow::Error::msg)?;
                registry.find(collective, name)?
            }
        };
        match self.on {
            MachineKind::Emulator if algorithm.is_peer() => {
                bail!(
                    "the emulator does what the reference does in place of {}: its order shows on GPUs only (--machine cuda)",
                    algorithm.name()
                )
            }
            MachineKind::Emulator => {
                let mut emulator = Emulator::new(self.machine.emulator(library, 0)?);
                self.print(&mut emulator, &*algorithm)
            }
            MachineKind::Cuda => {
                let missing = |&&(name, value): &&(&str, &str)| std::env::var(name).ok().as_deref() != Some(value);
                if algorithm.environment().iter().any(|variable| missing(&variable)) {
                    // NCCL reads its environment once, at its start.
                    let again = Command::new(std::env::current_exe()?)
                        .args(std::env::args_os().skip(1))
                        .envs(algorithm.environment().iter().copied())
                        .status()?;
                    return Ok(again.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)));
                }
                // SAFETY: this command has started no thread yet.
                unsafe { crate::gpus::prepare_process() };
                match crate::gpus::open(&self.machine.gpus, library, None) {
                    Ok(mut machine) => self.print(&mut *machine, &*algorithm),
                    Err(error) => {
                        eprintln!("{error}");
                        Ok(ExitCode::from(CANNOT_RUN))
                    }
                }
            }
        }
    }

    fn print(&self, machine: &mut dyn machine::Machine, algorithm: &dyn Algorithm) -> anyhow::Result<ExitCode> {
        let mut kept = Vec::new();
        for &world in &self.worlds {
            kept.extend(self.print_world(machine, algorithm, world)?);
        }
        Ok(match &kept[..] {
            [] => ExitCode::from(CANNOT_RUN),
            kept if kept.contains(&false) => ExitCode::from(FINDING),
            _ => ExitCode::SUCCESS,
        })
    }

    /// Prints the order in one world, and returns whether it is the one that was promised; none where there is none to see, and says why.
    fn print_world(&self, machine: &mut dyn machine::Machine, algorithm: &dyn Algorithm, world: u32) -> anyhow::Result<Option<bool>> {
        let revealed = reveal(machine, algorithm, (self.dtype, world, self.count), DEADLINE);
        let Orders { promised, ranks: revealed } = match revealed {
            Err(MachineError::NotSupported { reason }) => {
                eprintln!("w={world}: not supported: {reason}");
                return Ok(None);
            }
            revealed => revealed?,
        };
        let name = format!("{}/{}", algorithm.collective(), algorithm.name());
        println!("{name} {} sum, w={world}, n={}; its contract says {promised}", self.dtype, self.count);
        let same = revealed.len() > 1 && revealed.iter().all(|(_, of_rank)| *of_rank == revealed[0].1);
        let ranks = if same { 1 } else { revealed.len() };
        let mut rows = Vec::new();
        let mut kept = true;
        for (rank, of_rank) in revealed.iter().take(ranks) {
            let mut orders: Vec<(&Revealed, Vec<&Run>)> = Vec::new();
            for run in of_rank {
                match orders.iter_mut().find(|(order, _)| **order == run.revealed) {
                    Some((_, runs)) => runs.push(run),
                    None => orders.push((&run.revealed, vec![run])),
                }
            }
            for (found, runs) in orders {
                let keeps = found.keeps(promised, world);
                kept &= keeps;
                let total: u64 = runs.iter().map(|run| run.elements.end - run.elements.start).sum();
                let mut at: Vec<String> =
                    runs.iter().take(PRINTED).map(|run| format!("{}-{}", run.elements.start, run.elements.end - 1)).collect();
                at.extend((runs.len() > PRINTED).then(|| "...".to_owned()));
                let rank = if same { "every".to_owned() } else { rank.to_string() };
                let verdict = if keeps { "" } else { "not as promised" };
                rows.push(vec![rank, at.join(" "), total.to_string(), found.to_string(), verdict.to_owned()]);
            }
        }
        ensure!(!rows.is_empty(), "{name} gives no rank an element of {} on {world} ranks: there is no order", self.count);
        println!("{}", table::aligned(&["rank", "elements of its output", "number", "order", ""], 5, &rows));
        Ok(Some(kept))
    }
}
