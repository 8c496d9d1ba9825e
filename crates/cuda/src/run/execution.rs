//! Execution: programs carried out on all ranks at once, until they are done or the deadline passes.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::{Duration, Instant},
};

use super::{
    hosts::Hosts,
    program::{Action, Captured, Events, Failure, Program},
};
use crate::{
    gpu::stream::Stream,
    ranks::{board::Board, threads},
    vendor::driver::CudaError,
};
use passmuster_plan::machine::{Awaited, Fetched, depart};

/// How long all ranks may take to capture their graphs.
const PREPARATION_LIMIT: Duration = Duration::from_secs(60);

/// How long after the deadline a thread may still answer before it counts as held by a library.
const GRACE: Duration = Duration::from_secs(1);

/// How long after one rank's failure that of another counts as the same.
const ECHO: Duration = Duration::from_millis(100);

/// How long after another process has stopped the devices here may take to come to rest, for the machine to be as good as before.
const REST: Duration = Duration::from_millis(500);

/// How long a thread asks its streams without pause; after that it sleeps in between.
const EAGER: Duration = Duration::from_micros(200);

/// Delays up to this are spun: a sleep is late by tens of microseconds.
const SPUN_DELAY: Duration = Duration::from_millis(2);

/// Why programs did not get to their end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// A call failed: the ranks that saw it, in the order in which they did, and what the first of them saw.
    Failed { ranks: Vec<usize>, failure: Failure },
    /// A library does not do a call: what it said. Every rank has come to an end.
    Refused(Failure),
    /// Ranks were not done by the deadline.
    Unfinished {
        ranks: Vec<usize>,
        after: Duration,
        /// Whether work on a device was seen not to be done, as opposed to hosts that did not get that far.
        on_devices: bool,
    },
    /// Ranks of other processes are not going to finish: whether no device here has work left.
    Abandoned { at_rest: bool },
}

/// Ranks in other processes, which start when these do, and stop these when they stop.
pub(crate) struct Elsewhere<'a> {
    pub(crate) board: Arc<Board>,
    /// The number of the run.
    pub(crate) run: u64,
    /// How many ranks take part in it, of all processes.
    pub(crate) world: usize,
    /// Whether a process is lost, which writes no words any more.
    pub(crate) is_lost: &'a mut dyn FnMut() -> bool,
}

/// How one rank ended.
enum Outcome {
    Done(Done),
    Failed(Failure),
    Unfinished,
    /// It stopped because another one failed.
    Abandoned,
}

/// What a rank's program gave.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Microseconds between its marks.
    pub(crate) marks: Vec<f64>,
    /// In the order of enqueuing.
    pub(crate) fetched: Vec<Fetched>,
}

/// Where ranks meet before they start, and hear that they may stop waiting.
struct Start {
    world: usize,
    arrived: AtomicUsize,
    released: OnceLock<Instant>,
    abandoned: AtomicBool,
    /// Of ranks in other processes: where they arrive, the number of the run, and how many ranks take part.
    elsewhere: Option<(Arc<Board>, u64, usize)>,
}

impl Start {
    /// Of `world` ranks here.
    fn new(world: usize, elsewhere: Option<(Arc<Board>, u64, usize)>) -> Start {
        Start { world, arrived: AtomicUsize::new(0), released: OnceLock::new(), abandoned: AtomicBool::new(false), elsewhere }
    }

    /// Waits for all ranks; the time at which the last arrived, or `None` when one will not. Spins: waking up sleepers takes longer than
    /// many a collective.
    fn meet(&self) -> Option<Instant> {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.world {
            match &self.elsewhere {
                None => _ = self.released.set(Instant::now()),
                Some((board, run, world)) => {
                    board.arrive(*run);
                    while !board.have_arrived(*run, *world) {
                        if self.is_abandoned() {
                            return None;
                        }
                        std::thread::yield_now();
                    }
                    let _ = self.released.set(Instant::now());
                }
            }
        }
        loop {
            match self.released.get() {
                Some(at) => return Some(*at),
                None if self.is_abandoned() => return None,
                None => std::thread::yield_now(),
            }
        }
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }
}

/// Carries out the programs of the ranks here and returns what each gave, in their order. `hosts` notes what they enqueue.
///
/// # Errors
/// The failure that was seen first, else who was not done `deadline` after the start. `started` is called when ranks have started on their devices, unless
/// they are done before anybody looks.
pub(crate) fn execute(
    programs: &Arc<[Program]>,
    hosts: &Arc<Hosts>,
    deadline: Duration,
    started: &dyn Fn(),
    mut elsewhere: Option<Elsewhere<'_>>,
) -> Result<Vec<Done>, Stopped> {
    let world = programs.len();
    let begin = Instant::now();
    let start = Arc::new(Start::new(world, elsewhere.as_ref().map(|elsewhere| (elsewhere.board.clone(), elsewhere.run, elsewhere.world))));
    let answers = {
        let (start, programs, hosts) = (start.clone(), programs.clone(), hosts.clone());
        threads::spawn(world, move |at| {
            let outcome = carry_out(&programs[at], &start, &hosts, deadline);
            if matches!(outcome, Outcome::Failed(_)) {
                // Ranks that have not started need not. Ranks that wait for this one would do so until the deadline.
                start.abandon();
            }
            outcome
        })
    };
    let mut done: Vec<Option<Done>> = vec![None; world];
    let (mut unfinished, mut on_devices) = (false, false);
    // A rank that is abandoned may say so before the one that was refused does.
    let (mut refused, mut abandoned) = (None, false);
    let mut started = Some(started);
    let mut lost = false;
    let mut open = world;
    while open > 0 {
        if let Some(Elsewhere { board, run, is_lost, .. }) = &mut elsewhere
            && !start.is_abandoned()
        {
            lost = is_lost();
            if lost || board.has_stopped(*run) {
                start.abandon();
            }
        }
        if start.released.get().is_some()
            && let Some(started) = started.take()
        {
            started();
        }
        let limit = start.released.get().map_or(begin + PREPARATION_LIMIT, |at| *at + deadline + GRACE);
        let patience = limit.saturating_duration_since(Instant::now()).min(Duration::from_millis(20));
        match answers.recv_timeout(patience) {
            // Each rank is refused by itself, at the same call.
            Ok((at, Outcome::Failed(failure))) if failure.refused => {
                refused.get_or_insert((programs[at].rank, failure));
            }
            Ok((at, Outcome::Failed(failure))) => {
                let mut ranks = vec![programs[at].rank];
                while open > 1
                    && let Ok((at, outcome)) = answers.recv_timeout(ECHO)
                {
                    open -= 1;
                    ranks.extend(matches!(outcome, Outcome::Failed(_)).then_some(programs[at].rank));
                }
                return Err(Stopped::Failed { ranks, failure });
            }
            Ok((at, Outcome::Done(of_rank))) => done[at] = Some(of_rank),
            Ok((_, Outcome::Unfinished)) => (unfinished, on_devices) = (true, true),
            Ok((_, Outcome::Abandoned)) => abandoned = true,
            Err(RecvTimeoutError::Timeout) if Instant::now() < limit => continue,
            // It says why itself, and the others are to hear it.
            Err(RecvTimeoutError::Disconnected) if elsewhere.is_some() => panic!("the thread of this process's rank panicked"),
            Err(_) => {
                unfinished = true;
                on_devices |= are_busy(programs);
                break;
            }
        }
        open -= 1;
    }
    match refused {
        Some((_, failure)) if !unfinished && come_to_rest(programs, deadline) => return Err(Stopped::Refused(failure)),
        Some((rank, failure)) => return Err(Stopped::Failed { ranks: vec![rank], failure }),
        None => {}
    }
    if abandoned && !unfinished && elsewhere.is_some() {
        // Where a process is lost, none of them goes on.
        return Err(Stopped::Abandoned { at_rest: !lost && come_to_rest(programs, REST) });
    }
    if unfinished || abandoned {
        let ranks = programs.iter().zip(&done).filter(|(_, done)| done.is_none()).map(|(program, _)| program.rank).collect();
        return Err(Stopped::Unfinished { ranks, after: begin.elapsed(), on_devices });
    }
    Ok(done.into_iter().flatten().collect())
}

/// Whether any rank's device is seen to have work. Threads that the driver holds up are not asked, and it may hold up who asks.
fn are_busy(programs: &Arc<[Program]>) -> bool {
    let programs = programs.clone();
    let busy = threads::on_all(programs.len(), GRACE, move |rank| {
        let program = &programs[rank];
        program.device.make_current().is_ok() && program.streams.iter().any(|stream| matches!(stream.is_done(), Ok(false)))
    });
    busy.contains(&Some(true))
}

/// Waits until all that was enqueued is done: whether that is so at `limit`, without an error.
fn come_to_rest(programs: &Arc<[Program]>, limit: Duration) -> bool {
    let programs = programs.clone();
    let rested = threads::on_all(programs.len(), limit + GRACE, move |rank| {
        let program = &programs[rank];
        let until = Instant::now() + limit;
        let rested = || {
            program.device.make_current()?;
            for stream in &program.streams {
                while !stream.is_done()? {
                    if Instant::now() > until {
                        return Ok(false);
                    }
                    std::thread::sleep(EAGER);
                }
            }
            program.communicators.iter().try_for_each(|communicator| communicator.asynchronous_error())?;
            Ok::<_, Failure>(true)
        };
        rested().unwrap_or(false)
    });
    rested.into_iter().all(|rested| rested == Some(true))
}

/// One rank's thread.
fn carry_out(program: &Program, start: &Start, hosts: &Hosts, deadline: Duration) -> Outcome {
    let mut events = match prepare(program) {
        Ok(events) => events,
        Err(failure) => return Outcome::Failed(failure),
    };
    let outcome = match start.meet() {
        Some(at) => enqueue(program, &mut events, hosts, (start, at + deadline))
            .and_then(|ended| if ended.is_some() { Ok(ended) } else { wait(program, start, at + deadline) })
            .and_then(|ended| match ended {
                Some(outcome) => Ok(outcome),
                None => finish(program, &mut events).map(Outcome::Done),
            })
            .unwrap_or_else(Outcome::Failed),
        None => Outcome::Abandoned,
    };
    if !matches!(outcome, Outcome::Done(_)) {
        // Destroying what a device still uses may wait for it. The process is about to end anyway.
        std::mem::forget(events);
    }
    outcome
}

/// Captures the graphs that there are not yet, and makes the events.
fn prepare(program: &Program) -> Result<Events, Failure> {
    program.device.make_current()?;
    let mut events = Events::of(program)?;
    let Some(stream) = program.streams.first() else { return Ok(events) };
    for Captured { kept, graph: captured } in &program.graphs {
        let mut graph = kept.graph();
        if graph.is_none() {
            // On a stream of the rank's: one of its own would take one of the device's few connections.
            let enqueue = || captured.plans.iter().try_for_each(|commands| program.enqueue(0, commands, &mut events, None));
            *graph = Some(stream.capture::<Failure>(enqueue)?);
        }
    }
    Ok(events)
}

/// Goes through the actions without waiting for any other rank, but where the script has the host wait for what it fetches: `None`, or how it ended
/// there.
fn enqueue(program: &Program, events: &mut Events, hosts: &Hosts, (start, until): (&Start, Instant)) -> Result<Option<Outcome>, Failure> {
    let rank = program.rank;
    for (at, action) in program.actions.iter().enumerate() {
        match action {
            Action::Enqueue { stream, commands, .. } => {
                hosts.during(rank, at, || program.enqueue(*stream, commands, events, program.batches.as_deref()))?
            }
            Action::Replay { stream, graph } => {
                let graph = program.graphs[graph.index].kept.graph();
                let graph = graph.as_ref().expect("it was captured before the ranks started");
                hosts.during(rank, at, || program.streams[*stream].replay(graph))?;
            }
            Action::Sleep(time) if *time > SPUN_DELAY => std::thread::sleep(*time),
            Action::Sleep(time) => {
                let begin = Instant::now();
                while begin.elapsed() < *time {
                    std::hint::spin_loop();
                }
            }
            Action::Await(number) => {
                let begin = Instant::now();
                let (fetch, awaited) = &mut events.fetched[*number];
                let was_there = fetch.peek()?.is_some();
                while fetch.peek()?.is_none() {
                    if let Some(ended) = gives_up(program, start, until)? {
                        return Ok(Some(ended));
                    }
                    std::thread::yield_now();
                }
                let blocked = if was_there { 0.0 } else { begin.elapsed().as_secs_f64() * 1e6 };
                awaited.get_or_insert(Awaited { was_there, blocked });
            }
            Action::Mark => hosts.during(rank, at, || events.mark(&program.streams[0]))?,
            Action::Depart(how) => depart(*how),
        }
    }
    Ok(None)
}

/// How a wait of the host's ends before what it is for.
fn gives_up(program: &Program, start: &Start, until: Instant) -> Result<Option<Outcome>, Failure> {
    if Instant::now() > until {
        program.communicators.iter().try_for_each(|communicator| communicator.asynchronous_error())?;
        return Ok(Some(Outcome::Unfinished));
    }
    Ok(start.is_abandoned().then_some(Outcome::Abandoned))
}

/// Waits until all streams are done: `None`, or how it ended instead.
fn wait(program: &Program, start: &Start, until: Instant) -> Result<Option<Outcome>, Failure> {
    let begin = Instant::now();
    let mut pending: Vec<&Arc<Stream>> = program.streams.iter().collect();
    loop {
        let mut still = Vec::new();
        for stream in pending {
            if !stream.is_done()? {
                still.push(stream);
            }
        }
        pending = still;
        if pending.is_empty() {
            return Ok(None);
        }
        if let Some(ended) = gives_up(program, start, until)? {
            return Ok(Some(ended));
        }
        if begin.elapsed() < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Errors that streams do not show, the times between marks, and what was fetched.
fn finish(program: &Program, events: &mut Events) -> Result<Done, Failure> {
    program.communicators.iter().try_for_each(|communicator| communicator.asynchronous_error())?;
    let fetched = events.fetched.iter_mut().map(|(fetch, awaited)| Ok(Fetched { bytes: fetch.get()?.clone(), awaited: *awaited }));
    Ok(Done { fetched: fetched.collect::<Result<_, CudaError>>()?, marks: events.intervals()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_start_when_the_last_has_arrived() {
        let start = Arc::new(Start::new(3, None));
        let begin = Instant::now();
        let late = Duration::from_millis(30);
        let met = threads::on_all(3, Duration::from_secs(10), move |rank| {
            if rank == 2 {
                std::thread::sleep(late);
            }
            start.meet()
        });
        assert!(met.iter().flatten().flatten().all(|at| *at >= begin + late), "{met:?}");
        assert_eq!(met.iter().flatten().flatten().count(), 3);
    }

    #[test]
    fn nobody_waits_for_a_rank_that_failed() {
        let start = Arc::new(Start::new(2, None));
        let met = threads::on_all(2, Duration::from_secs(10), move |rank| {
            if rank == 1 {
                start.abandon();
                return None;
            }
            start.meet()
        });
        assert_eq!(met, [Some(None), Some(None)]);
    }

    /// If this fails, ranks of different processes do not start together, or one waits for a process that is not going to come.
    #[test]
    fn ranks_of_other_processes_are_waited_for() {
        let boards: Vec<Arc<Board>> = crate::ranks::board::boards(2).into_iter().map(Arc::new).collect();
        let starts: Vec<Start> = boards.iter().map(|board| Start::new(1, Some((board.clone(), 1, 2)))).collect();
        let (begin, late) = (Instant::now(), Duration::from_millis(30));
        let met = threads::on_all(2, Duration::from_secs(10), move |rank| {
            if rank == 1 {
                std::thread::sleep(late);
            }
            starts[rank].meet()
        });
        assert!(met.iter().flatten().flatten().all(|at| *at >= begin + late), "{met:?}");
        assert_eq!(met.iter().flatten().flatten().count(), 2);

        let alone = Arc::new(Start::new(1, Some((boards[0].clone(), 2, 2))));
        let met = threads::on_all(2, Duration::from_secs(10), move |thread| {
            if thread == 1 {
                std::thread::sleep(late);
                alone.abandon();
                return None;
            }
            alone.meet()
        });
        assert_eq!(met, [Some(None), Some(None)]);
    }
}
