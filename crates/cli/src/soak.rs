//! `soak`: rounds of random scripts on one machine, until time is up or something diverges.

mod rounds;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use passmuster_harness::{
    conformance::{
        Case, Status, Verdict,
        report::{Record, RecordCase, Source, Summary},
        resources::{Resources, left_behind},
        soak::{Calls, Round, Soak as Drawn, Token, worlds_of},
        supervisor::StartError,
    },
    emulator::Interleaving,
};
use passmuster_plan::{
    algorithms::{Registry, Target},
    machine::MachineInfo,
};
use serde::{Deserialize, Serialize};
use xshell::Shell;

use self::rounds::Rounds;
use crate::{
    CANNOT_RUN, FINDING, exit,
    journal::{self, EVERY, Journal},
    progress::progress_bar,
    project,
    result_file::ResultFile,
    units,
    worker::{Machine, MachineKind},
};

/// Run random scripts for minutes, and stop at the first wrong result.
///
/// A round opens one to six groups of random sizes that share ranks, runs one or two scripts on them and closes them. A script has sequences of calls of several
/// collectives at once. Algorithms, types, operators, counts, roots, offsets, graphs, late ranks, streams and the order of the sequences are random. Every call is
/// checked as by `validate`. The first divergence ends the soak; it is printed with rank, call, element and bit, and a line that runs the round again. A round
/// depends on the seed and its number alone. At the end the first rounds run again, and the process must not hold more descriptors, threads, shared memory or
/// device memory than before.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask soak                          five minutes, on the CPU
  cargo xtask soak --minutes 60 --seed 7 --json soak.json
  cargo xtask soak --machine cuda --minutes 5     on this machine's GPUs
  cargo xtask soak --worlds 2-4,8 --bytes 1M      other groups and payloads
  cargo xtask soak --rounds 3 --list        what would be run, and stop
  cargo xtask soak --mutant value_01_rank_dropped
                                            would a soak find a planted bug?

A finding again: the token of its report is one round, --from the rounds from
one on, which may need what came before them:
  cargo xtask soak --replay 'soak:seed=7:round=41:worlds=2,3,4:bytes=16384'
  cargo xtask soak --seed 7 --from 40 --rounds 2")]
pub(crate) struct Soak {
    /// How long to run, in minutes, as in 0.5. The last round is finished.
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = minutes)]
    minutes: f64,
    /// Run at most N rounds.
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroU64>,
    /// Seed of all random choices. Another seed gives other rounds and schedules.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of the first round.
    #[arg(long, value_name = "K", default_value_t = 0)]
    from: u64,
    /// Sizes of groups, as in 2,4 or 2-8. The default is 1-8 on the emulator; on GPUs it is their number, or 1-4 if there is one.
    #[arg(long, value_name = "LIST", value_parser = Worlds::read)]
    worlds: Option<Worlds>,
    /// The largest input or output of a rank, in bytes, as in 64K. The default is 16K on the emulator and 4M on GPUs.
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    bytes: Option<u64>,
    /// Run exactly this round; a report prints its token.
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["rounds", "seed", "from", "worlds", "bytes", "minutes"])]
    replay: Option<Token>,
    /// Print the rounds (of --rounds, or one) and stop.
    #[arg(long)]
    list: bool,
    /// Plant this bug in the kernels (`cargo xtask mutants` lists the names).
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// How long a script may take: seconds, or with a unit, as in 2min. The default is 10 s on GPUs. On the emulator it is 10 min; then the round is
    /// inconclusive.
    #[arg(long, value_name = "TIME", value_parser = units::duration_above_zero)]
    deadline: Option<Duration>,
    /// Write the record of the run (docs/reference/record-schema-commands.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the scripts run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    #[command(flatten)]
    machine: Machine,
}

/// Numbers of ranks.
#[derive(Clone, Debug)]
struct Worlds(Vec<u32>);

impl Worlds {
    fn read(text: &str) -> Result<Worlds, String> {
        worlds_of(text).map(Worlds)
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| minutes.is_finite() && *minutes > 0.0 && *minutes < 1e6);
    minutes.ok_or_else(|| format!("`{text}`: expected minutes above 0, as in 5 or 0.5"))
}

/// Rounds at the beginning that are run again at the end, to see whether the process then holds more.
const LAP: u64 = 8;

/// How often at most, as long as it holds more each time.
const MOST_LAPS: usize = 5;

/// The case of a record of `soak`: all of its rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Soaked {
    /// The seed.
    pub(crate) seed: u64,
    /// Number of the first round.
    pub(crate) from: u64,
    /// Rounds that were run, without those that were run again at the end.
    pub(crate) rounds: u64,
    /// Ranks that groups had.
    pub(crate) worlds: Vec<u32>,
    /// The largest input or output of a rank, in bytes, as in 64K. The default is 16K on the emulator and 4M on GPUs.
    pub(crate) most_bytes: u64,
    /// The planted bug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mutant: Option<String>,
    /// Groups that were opened, of rounds that ran.
    pub(crate) groups: u64,
    /// Calls of these rounds, and bytes.
    #[serde(flatten)]
    pub(crate) all: Calls,
    /// The same by `COLLECTIVE/ALGORITHM`.
    pub(crate) of_algorithm: BTreeMap<String, Calls>,
    /// A hash of the outputs of all rounds that passed: the same for the same rounds, on every machine.
    pub(crate) outputs: String,
    /// What the process held after the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_first: Option<Resources>,
    /// What it held at the end, after the first rounds were run again once, twice, and as long as it was more each time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held_last: Vec<Resources>,
    /// What it held more the last time than the time before, and shared memory that nobody has mapped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leaks: Vec<String>,
    /// The verdict of the round that ended it, or of one that did not come to its end; `case` is the round's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
}

impl RecordCase for Soaked {}

/// A soak that runs.
struct Running<'a> {
    registry: &'a Registry,
    asked: &'a Soak,
    drawn: Drawn,
    rounds: Rounds,
    journal: &'a Journal<Soaked>,
    so_far: Soaked,
    statuses: Vec<Status>,
    /// The kernels that were launched.
    modules: BTreeSet<String>,
}

impl Soak {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        if self.on == MachineKind::Cuda && self.list && self.replay.is_none() && self.worlds.is_none() {
            bail!("--list of --machine cuda needs --worlds: how many GPUs there are is not looked at");
        }
        if self.first() == u64::MAX {
            bail!("--from {}: no round is left from there on", u64::MAX);
        }
        if self.list {
            self.rounds_asked(registry, &self.drawn(0)).for_each(|round| print!("{}", told::round(&round)));
            return Ok(ExitCode::SUCCESS);
        }
        let file = ResultFile::asked(self.json.as_deref())?;
        let mut rounds = Rounds::new(registry, &self)?;
        let machine = match rounds.machine() {
            Ok(machine) => machine,
            Err(StartError::CannotRun { reason }) => {
                eprintln!("soak cannot run on this machine: {reason}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
            Err(error) => bail!(error),
        };
        let (source, known) = (project::source(sh, &registry.library()), machine.clone());
        let kept = file.as_ref().map(|file| journal::kept_in(file, None)).transpose()?.flatten();
        let partial = source.clone();
        let journal = Journal::open(kept, Duration::from_secs(EVERY), vec![None], move |cases| {
            Record::new("soak", known.clone(), partial.clone(), Summary::of([]), cases)
        })?;
        let drawn = self.drawn(machine.gpus);
        let so_far = Soaked {
            seed: drawn.seed,
            from: self.first(),
            worlds: drawn.worlds.clone(),
            most_bytes: drawn.bytes,
            mutant: self.mutant.clone(),
            ..Soaked::default()
        };
        let mut running =
            Running { registry, asked: &self, drawn, rounds, journal: &journal, so_far, statuses: Vec::new(), modules: BTreeSet::new() };
        let begin = Instant::now();
        running.soak()?;
        let seconds = begin.elapsed().as_secs_f64();
        let alone = running.alone();
        let Running { so_far, statuses, modules, mut rounds, .. } = running;
        let mut machine = rounds.machine().unwrap_or(machine);
        if self.on == MachineKind::Cuda {
            machine.notes.extend(project::gpu_settings(sh));
        }
        let record = record(registry, machine, source, (so_far, statuses), (seconds, rounds.notes()), &modules);
        let written = journal.end(|| file.iter().try_for_each(|file| file.write(&record.to_json())));
        print!("{}", told::soaked(&record, &self.command(), alone.as_deref()));
        written?;
        Ok(exit_status(&record).into())
    }

    /// What rounds are drawn from, on a machine with `gpus` GPUs.
    fn drawn(&self, gpus: usize) -> Drawn {
        if let Some(round) = &self.replay {
            return round.soak.clone();
        }
        let emulated = self.on == MachineKind::Emulator;
        let worlds = match (&self.worlds, emulated, gpus as u32) {
            (Some(Worlds(worlds)), ..) => worlds.clone(),
            (None, true, _) => (1..=8).collect(),
            // Ranks share it.
            (None, false, 0 | 1) => (1..=4).collect(),
            (None, false, gpus) => (1..=gpus).collect(),
        };
        let bytes = self.bytes.unwrap_or(if emulated { 16 << 10 } else { 4 << 20 });
        Drawn { seed: self.seed, worlds, bytes, multicast: emulated }
    }

    /// Number of the first round.
    fn first(&self) -> u64 {
        self.replay.as_ref().map_or(self.from, |round| round.number)
    }

    /// The rounds to list.
    fn rounds_asked(&self, registry: &Registry, drawn: &Drawn) -> impl Iterator<Item = Round> {
        let first = self.first();
        (first..first.saturating_add(self.rounds.map_or(1, NonZeroU64::get))).map(|number| Round::draw(registry, drawn.clone(), number))
    }

    /// What to type before the token of a round.
    fn command(&self) -> String {
        let machine = if self.on == MachineKind::Cuda { " --machine cuda" } else { "" };
        let mutant = self.mutant.as_ref().map(|name| format!(" --mutant {name}")).unwrap_or_default();
        format!("{} soak{machine}{mutant}", project::invocation())
    }

    /// The emulator's schedule of a round.
    fn schedule(round: &Round) -> Interleaving {
        Interleaving::nth(round.soak.seed, round.number as usize)
    }
}

impl Running<'_> {
    /// Runs rounds until time is up, or one is not to be gone on from; then the first ones again.
    fn soak(&mut self) -> anyhow::Result<()> {
        let known = left_behind(&BTreeSet::new());
        let begin = Instant::now();
        let limit = Duration::from_secs_f64(60.0 * self.asked.minutes);
        let bar = progress_bar(limit.as_secs().max(1) as usize);
        let most = if self.asked.replay.is_some() { 1 } else { self.asked.rounds.map_or(u64::MAX, NonZeroU64::get) };
        let first = self.asked.first();
        while self.so_far.rounds < most && (self.so_far.rounds == 0 || begin.elapsed() < limit) {
            let Some(number) = first.checked_add(self.so_far.rounds) else { break };
            let round = Round::draw(self.registry, self.drawn.clone(), number);
            let verdict = self.rounds.judge(&round)?;
            self.enter(&round, &verdict);
            bar.set_position(begin.elapsed().as_secs().min(limit.as_secs()));
            bar.set_message(format!("{} rounds, {} calls", self.so_far.rounds, self.so_far.all.calls));
            if verdict.status.is_finding() || verdict.status == Status::InfraError {
                bar.finish_and_clear();
                return Ok(());
            }
        }
        bar.finish_and_clear();
        self.look_for_leaks(first, &known)
    }

    /// Enters what became of a round.
    fn enter(&mut self, round: &Round, verdict: &Verdict) {
        let so_far = &mut self.so_far;
        so_far.rounds += 1;
        self.statuses.push(verdict.status);
        if !matches!(verdict.status, Status::NotSupported | Status::NotRun) {
            so_far.groups += round.groups() as u64;
            for (algorithm, calls) in round.calls() {
                let of = so_far.of_algorithm.entry(algorithm).or_default();
                for all in [of, &mut so_far.all] {
                    *all = Calls { calls: all.calls + calls.calls, bytes: all.bytes + calls.bytes };
                }
            }
            for part in &round.parts {
                self.modules.extend(Case::from(part.case.clone()).modules(self.registry, Target::default().waiting_blocks));
            }
        }
        if verdict.status == Status::Pass {
            let both = format!("{}{}", so_far.outputs, verdict.outputs.as_deref().unwrap_or_default());
            so_far.outputs = format!("{:016x}", passmuster_plan::modules::fnv1a64(both.as_bytes()));
        } else if verdict.status != Status::NotSupported || so_far.verdict.is_none() {
            so_far.verdict = Some(verdict.clone());
        }
        if so_far.held_first.is_none() {
            so_far.held_first = self.rounds.holds();
        }
        self.journal.put(0, so_far.clone());
    }

    /// Runs the first rounds twice more. What they need was loaded and allocated the first time, at the latest; but a driver takes memory in pieces, so that it
    /// is a leak only where every time more is held than the time before.
    fn look_for_leaks(&mut self, first: u64, known: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
        let mut more = Vec::new();
        while self.so_far.held_last.len() < 2 || (!more.is_empty() && self.so_far.held_last.len() < MOST_LAPS) {
            for number in first..first.saturating_add(self.so_far.rounds.min(LAP)) {
                let round = Round::draw(self.registry, self.drawn.clone(), number);
                let verdict = self.rounds.judge(&round)?;
                if verdict.status.is_finding() || verdict.status == Status::InfraError {
                    self.statuses.push(verdict.status);
                    self.so_far.verdict = Some(verdict);
                    return Ok(());
                }
            }
            let Some(held) = self.rounds.holds() else { break };
            // A process that was started since has nothing to be compared with.
            let before = self.so_far.held_last.last().filter(|before| before.process == held.process);
            more = before.map(|before| held.more_than(before)).unwrap_or_default();
            self.so_far.held_last.push(held);
        }
        self.so_far.leaks.append(&mut more);
        if let (MachineKind::Emulator, Some(first), Some(last)) = (self.asked.on, &self.so_far.held_first, self.so_far.held_last.last()) {
            // It keeps nothing from one round to the next.
            self.so_far.leaks.extend(last.more_than(first));
        }
        self.so_far.leaks.extend(left_behind(known).into_iter().map(|path| format!("{} is there, and no process has it", path.display())));
        Ok(())
    }

    /// What becomes of the sequence that a finding is about where it runs by itself, in a line.
    fn alone(&mut self) -> Option<String> {
        let verdict = self.so_far.verdict.as_ref().filter(|verdict| verdict.status == Status::Fail)?;
        let case = verdict.findings.iter().find_map(|finding| finding.case.clone())?;
        let round = Round::read(self.registry, &verdict.case).ok()?;
        let alone = self.rounds.alone(&case, &round).ok()?;
        Some(match alone.status.is_finding() {
            // No other command runs a case with the planted bug.
            true if self.asked.mutant.is_some() => "it fails by itself, too".into(),
            true => format!("it fails by itself, too: {}", alone.repro(&self.asked.command_of_cases())),
            false => format!("by itself it comes to {}: it takes what ran beside it", alone.status),
        })
    }
}

impl Soak {
    /// What to type before the token of a case.
    fn command_of_cases(&self) -> String {
        format!("{} {}", project::invocation(), if self.on == MachineKind::Cuda { "test-gpu" } else { "validate" })
    }
}

/// The record of a soak, of what was found, and of the time it took with what happened beside it.
fn record(
    registry: &Registry,
    machine: MachineInfo,
    source: Source,
    (so_far, statuses): (Soaked, Vec<Status>),
    (seconds, notes): (f64, Vec<String>),
    modules: &BTreeSet<String>,
) -> Record<Soaked> {
    let mut record = Record::new("soak", machine, source, Summary::of(statuses), vec![so_far]);
    record.seconds = Some(seconds);
    record.source.modules = registry.library().hashes(modules);
    record.notes = notes;
    record
}

/// A leak is a finding, too.
fn exit_status(record: &Record<Soaked>) -> u8 {
    if record.cases.iter().any(|soaked| !soaked.leaks.is_empty()) {
        return FINDING;
    }
    exit::status(|status| record.summary.by_status.get(&status).is_some_and(|&rounds| rounds > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INCONCLUSIVE;
    use std::collections::BTreeMap;

    /// If this fails, a soak that did not come to its end, or that leaks, exits as one that passed.
    #[test]
    fn exit_status_knows_rounds_and_leaks() {
        let of = |statuses: &[Status], leaks: &[&str]| {
            let soaked = Soaked { leaks: leaks.iter().map(|&leak| leak.to_owned()).collect(), ..Soaked::default() };
            let source = Source { commit: String::new(), dirty: false, ptx_hash: String::new(), modules: BTreeMap::new(), binary: None };
            exit_status(&record(
                &crate::built_in(),
                MachineInfo::default(),
                source,
                (soaked, statuses.to_vec()),
                (1.0, Vec::new()),
                &BTreeSet::new(),
            ))
        };
        assert_eq!(of(&[Status::Pass, Status::Pass], &[]), 0);
        assert_eq!(of(&[Status::Pass, Status::Inconclusive], &[]), INCONCLUSIVE);
        assert_eq!(of(&[Status::Pass, Status::Inconclusive], &["a file"]), FINDING);
        assert_eq!(of(&[Status::Pass], &["a file"]), FINDING);
        assert_eq!(of(&[Status::Pass, Status::Hang, Status::Inconclusive], &[]), FINDING);
        assert_eq!(of(&[Status::NotSupported], &[]), CANNOT_RUN);
    }
}
