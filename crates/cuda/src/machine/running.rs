//! One run of a machine: what it needs is made, programs are executed, and how they ended becomes a run or an error.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{CudaMachine, Held, facts};
use crate::{
    gpu::stream::Stream,
    ranks::{
        fault::{fault, how_of},
        outcome::{self, Ending, Outcome},
    },
    run::{
        communicators::OfGroups,
        execution::{self, Done, Elsewhere, Stopped},
        group::Group,
        hosts::Hosts,
        program::{self, Compiler, Failure, Program},
        reports::{self, Report},
        stream_memops::Waiters,
    },
    vendor::nccl_log::Choice,
};
use passmuster_plan::{
    machine::{Elapsed, MachineError, Run, intervals, validation::Needs},
    plan::{MAX_WORLD, Script},
};

/// No run takes longer, whatever its deadline.
const LONGEST_RUN: Duration = Duration::from_secs(24 * 60 * 60);

impl CudaMachine {
    /// Makes the streams that a script needs.
    fn make_streams(&mut self, needs: &Needs) -> Result<(), MachineError> {
        // Streams that exist hold a connection even where this script does not use them.
        let wanted = |rank: usize| if rank < needs.world { needs.all_streams() } else { 0 };
        let crowded = self.devices.iter().any(|device| {
            let ranks = self.here(MAX_WORLD).filter(|rank| self.of_rank[*rank].ordinal == device.ordinal);
            ranks.map(|rank| self.held.streams[rank].len().max(wanted(rank))).sum::<usize>() > self.facts.connections
        });
        if crowded {
            self.held.streams.iter_mut().for_each(Vec::clear);
        }
        for rank in self.here(needs.world) {
            let device = &self.of_rank[rank];
            let streams = &mut self.held.streams[rank];
            let missing = needs.all_streams().saturating_sub(streams.len());
            let made = device.make_current().and_then(|()| Stream::used(self.driver, missing)).map_err(fault(rank))?;
            streams.extend(made.into_iter().map(Arc::new));
        }
        Ok(())
    }

    /// Makes the communicators and windows that a script needs, of the ranks here.
    fn join(&mut self, needs: &Needs) -> Result<OfGroups, MachineError> {
        let mut of_groups = OfGroups::new();
        let Held { communicators, arena, .. } = &mut *self.held;
        for (&number, &windows) in &needs.nccl {
            let group = &self.groups[number];
            let devices = &self.of_rank[..group.world];
            of_groups.insert((number, false), communicators.join(1, devices, self.peers.as_mut())?);
            if windows {
                communicators.register(devices, arena, group.place.chunk, self.peers.as_mut())?;
            }
        }
        for &number in &needs.nccl_across_nodes {
            let Group { world, nodes, .. } = self.groups[number];
            of_groups.insert((number, true), communicators.join(nodes, &self.of_rank[..world], self.peers.as_mut())?);
        }
        Ok(of_groups)
    }

    /// Whether NCCL is there, and new enough for a script that calls it.
    fn nccl_for(&mut self, needs: &Needs) -> Result<(), MachineError> {
        if needs.calls_nccl() { facts::nccl_has(self.held.communicators.load()?.version.0, needs) } else { Ok(()) }
    }

    /// Makes all that ranks here need before they start.
    fn prepare(&mut self, script: &Script, needs: &Needs) -> Result<Arc<[Program]>, MachineError> {
        let ready = self.settle().and_then(|()| self.make_streams(needs)).and_then(|()| self.nccl_for(needs));
        match &mut self.peers {
            Some(peers) if needs.calls_nccl() => peers.agree_on("a run that calls NCCL", ready)?,
            _ => ready?,
        }
        let communicators = self.join(needs)?;
        let (devices, streams, own) = (self.of_rank[..needs.world].to_vec(), self.streams(needs), self.own());
        let Held { kernels, made, products, graphs, .. } = &mut *self.held;
        let mut compiler = Compiler {
            groups: &self.groups,
            library: &self.library,
            kernels,
            made,
            devices: &devices,
            streams: &streams,
            numbers: (needs.streams, needs.sides),
            products,
            captured: graphs,
            communicators: &communicators,
            own,
            wait_limit: u64::try_from(self.wait_limit.as_nanos()).unwrap_or(u64::MAX),
            batches: self.batches.as_ref(),
        };
        Ok(compiler.compile(script)?.into())
    }

    /// Streams of each rank that a script needs; none of those that are not here.
    fn streams(&self, needs: &Needs) -> Vec<Vec<Arc<Stream>>> {
        self.held.streams[..needs.world].iter().map(|streams| streams.iter().take(needs.all_streams()).cloned().collect()).collect()
    }

    /// Sees to it that NCCL did what it was made to do, and not silently something else: why that is not known, or what else it did.
    fn confirm_path(&mut self, needs: &Needs) -> Result<Option<String>, String> {
        // Where no rank is here NCCL may never have been loaded, and has no log.
        if needs.nccl.is_empty() || self.here(needs.world).next().is_none() {
            return Ok(None);
        }
        let unchecked = match self.nccl_log.path(&needs.windowed) {
            Choice::AsAsked => None,
            Choice::Unchecked(why) => Some(why),
            Choice::Other(line) => return Err(line),
        };
        self.unchecked.clone_from(&unchecked);
        Ok(unchecked)
    }

    /// Runs a script that was found valid, in bounded time.
    pub(super) fn run_valid(&mut self, script: &Script, needs: &Needs, deadline: Duration) -> Result<Run, MachineError> {
        let prepared = self.prepare(script, needs);
        let (number, programs) = match &mut self.peers {
            Some(peers) => peers.begin(prepared)?,
            None => (0, prepared?),
        };
        let (devices, own) = (&self.of_rank[..needs.world], self.own());
        let reports: Vec<_> = needs.groups.iter().flat_map(|&number| reports::of_group(&self.groups[number], devices, own)).collect();
        let waiters = Arc::new(Waiters::of(script, &self.groups, devices, &self.streams(needs)));
        let hosts = Arc::new(Hosts::new(needs.world));
        // What was said while communicators were joined is of their warm-up.
        self.nccl_log.skip();
        let watch = |busy| self.watch.iter().for_each(|watch| watch(busy));
        let begin = Instant::now();
        let (limit, started) = (deadline.min(LONGEST_RUN), &|| watch(true));
        let executed = match &mut self.peers {
            None => execution::execute(&programs, &hosts, limit, started, None),
            Some(peers) => {
                let (board, world) = (peers.board().clone(), needs.world);
                let is_lost = &mut || peers.has_failed();
                execution::execute(&programs, &hosts, limit, started, Some(Elsewhere { board, run: number, world, is_lost }))
            }
        };
        if !matches!(executed, Err(Stopped::Unfinished { on_devices: true, .. })) {
            watch(false);
        }
        let told = || {
            let mut standing = hosts.held(|rank, action| {
                let program = programs.iter().find(|program| program.rank == rank);
                program.map_or_else(String::new, |program| program::name(&program.actions[action]))
            });
            standing.extend(waiters.told());
            standing
        };
        let attempt = Attempt { executed, after: begin.elapsed(), reports: &reports, standing: &told };
        let ran = if self.peers.is_some() { self.end_among(needs, deadline, attempt) } else { self.end_alone(needs, attempt) };
        if matches!(ran, Err(MachineError::Hang { .. } | MachineError::Fault { .. } | MachineError::Inconclusive { .. })) {
            // Last: what is let go goes on.
            waiters.release();
        }
        ran
    }

    /// The run of ranks that are all here.
    fn end_alone(&mut self, needs: &Needs, attempt: Attempt<'_>) -> Result<Run, MachineError> {
        let Attempt { executed, after, reports, standing } = attempt;
        let hang = |after: Duration, unfinished: Vec<usize>| {
            let stuck = reports::collect(reports);
            let (after, cause, standing) = (Elapsed::WallMs(after.as_millis() as u64), String::new(), standing());
            MachineError::Hang { after, cause, stuck, unfinished: unfinished.into(), standing, blamed: Box::default() }
        };
        match executed {
            Ok(of_rank) => match reports::any(reports) {
                Ok(false) => {
                    let (marks, fetched): (Vec<_>, _) = of_rank.into_iter().map(|done| (done.marks, done.fetched)).unzip();
                    let path =
                        self.confirm_path(needs).map_err(|line| MachineError::NotSupported { reason: outcome::other_path(&line) })?;
                    Ok(Run { marks: intervals(&marks), fetched, unchecked_path: path, ..Run::default() })
                }
                Ok(true) => Err(hang(after, Vec::new())),
                Err((rank, error)) => Err(fault(rank)(error)),
            },
            Err(Stopped::Failed { ranks, failure }) => {
                Err(MachineError::fault_of(ranks, how_of(&failure.code), failure.what, failure.code))
            }
            Err(Stopped::Refused(failure)) => {
                Err(MachineError::NotSupported { reason: format!("{} refused: {}", failure.what, failure.code) })
            }
            Err(Stopped::Abandoned { .. }) => unreachable!("nobody is elsewhere"),
            Err(Stopped::Unfinished { ranks, after, on_devices }) => match hang(after, ranks) {
                MachineError::Hang { stuck, unfinished, standing, .. } if !on_devices && stuck.is_empty() => {
                    Err(outcome::not_seen_at_work(&unfinished, after.as_millis() as u64, &standing))
                }
                hang => Err(hang),
            },
        }
    }

    /// The run of ranks in processes of their own, by what became of all of them: of this one's marks and fetches.
    fn end_among(&mut self, needs: &Needs, deadline: Duration, attempt: Attempt<'_>) -> Result<Run, MachineError> {
        let Attempt { executed, after, reports, standing } = attempt;
        let (mut run, own) = (Run::default(), self.own().unwrap_or_default());
        let failed = |failure: Failure| Ending::Failed { what: failure.what, code: failure.code };
        let (ending, is_stuck) = match executed {
            Ok(of_rank) => match reports::any(reports) {
                Ok(is_stuck) => {
                    let mut marks = vec![Vec::new(); needs.world];
                    run.fetched = vec![Vec::new(); needs.world];
                    for done in of_rank {
                        (marks[own], run.fetched[own]) = (done.marks, done.fetched);
                    }
                    run.marks = intervals(&marks);
                    match self.confirm_path(needs) {
                        Ok(path) => {
                            run.unchecked_path = path;
                            (Ending::Done, is_stuck)
                        }
                        Err(line) => (Ending::OtherPath(line), is_stuck),
                    }
                }
                Err((_, error)) => (failed(error.into()), false),
            },
            Err(Stopped::Failed { failure, .. }) => (failed(failure), false),
            Err(Stopped::Refused(Failure { what, code, .. })) => (Ending::Refused { what, code }, false),
            Err(Stopped::Unfinished { on_devices, .. }) => (Ending::Late { on_devices }, true),
            Err(Stopped::Abandoned { at_rest }) => (Ending::Abandoned { at_rest }, !at_rest),
        };
        let peers = self.peers.as_mut().expect("the others are elsewhere");
        if matches!(ending, Ending::Failed { .. } | Ending::Refused { .. }) {
            peers.stop();
        }
        let (stuck, standing) = if is_stuck { (reports::collect(reports), standing()) } else { (Vec::new(), Vec::new()) };
        let outcome = Outcome { ending, after_ms: after.as_millis() as u64, stuck, standing };
        let outcomes = peers.end(&outcome, deadline)?;
        outcome::merged(&outcomes[..needs.world.min(outcomes.len())]).map_or(Ok(run), Err)
    }
}

/// How programs came to their end.
struct Attempt<'a> {
    executed: Result<Vec<Done>, Stopped>,
    after: Duration,
    reports: &'a [Report],
    /// Tells where ranks stand.
    standing: &'a dyn Fn() -> Vec<String>,
}
