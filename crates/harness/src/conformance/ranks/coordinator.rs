//! The coordinator's side.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use passmuster_bootstrap::{BootstrapError, Event, Hub, Loss, frame::MOST_BYTES};
use passmuster_plan::{
    machine::{Blamed, Condition, How, Machine, MachineError, MachineInfo, Run, UNCHECKED_PATH},
    plan::{BufferSpec, Region, Script},
};

use super::{
    Mishap,
    messages::{Answer, PackedScript, Part, Request, decode, encode},
    of_loss,
};

/// How long ranks may take for what is no run: to come, to open memory, to read.
const LIMIT: Duration = Duration::from_secs(120);

/// How long after a run's deadline ranks are given up that have not said how it ended, unless [`Processes::set_grace`] says otherwise. They do so
/// within two seconds and name the ranks that are missing, unless the machine is busy.
const GRACE: Duration = Duration::from_secs(10);

/// How long the other ranks have to report a failure of the job.
const REPORTS: Duration = Duration::from_secs(1);

/// The same of ranks that have yet to open their devices, which on GPUs takes seconds where others open theirs: they hear of nothing before that is done.
const REPORTS_OF_OPENING: Duration = Duration::from_secs(30);

/// Bytes of a region that are read or written at once. On its way each is copied some seven times. Allocators reuse memory of this size. For larger
/// pieces they ask the system again, and clearing the pages takes longer than the copies do.
const PIECE: u64 = 2 << 20;

/// A machine whose ranks are processes. `J` has the hub that they come to. Dropping this asks them to leave.
pub struct Processes<J: AsRef<Hub>> {
    job: J,
    info: MachineInfo,
    max_world: usize,
    grace: Duration,
    /// The number of the last request.
    number: Cell<u64>,
    rendezvous: u64,
    /// Why it must not be used again.
    broken: RefCell<Option<MachineError>>,
    /// A rank that runs another script next, and which.
    misled: Option<(usize, Script)>,
}

/// What a rank answered, with the bytes behind it.
type Said = (Answer, Vec<u8>);

impl<J: AsRef<Hub>> Processes<J> {
    /// The machine of a job, once all of its ranks are there.
    ///
    /// # Errors
    /// `Fault` where one is lost or does not come, `Invalid` where one has another kind of machine.
    pub fn open(job: J) -> Result<Processes<J>, MachineError> {
        let (number, rendezvous, broken) = (Cell::new(0), 0, RefCell::new(None));
        let (info, grace) = (MachineInfo::default(), GRACE);
        let mut processes = Processes { job, info, max_world: 0, grace, number, rendezvous, broken, misled: None };
        let all: Vec<usize> = (0..processes.world()).collect();
        for (rank, (answer, _)) in processes.answers(&all, 0, LIMIT, REPORTS_OF_OPENING)?.into_iter().enumerate() {
            let (info, max_world) = match answer {
                Answer::Ready { info, max_world } => (info, max_world),
                Answer::Error(error) => return Err(error),
                _ => return Err(processes.nonsense(rank)),
            };
            if rank > 0 && info.kind != processes.info.kind {
                let reason = format!("rank {rank} has a machine of kind {}, rank 0 of {}", info.kind, processes.info.kind);
                return Err(MachineError::Invalid { reason });
            }
            if rank == 0 {
                (processes.info, processes.max_world) = (info, max_world.min(all.len()));
            }
        }
        Ok(processes)
    }

    /// Whether it must not be used again: a rank is lost, or its memory is.
    pub fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    /// Gives ranks so much longer than a run's deadline to say how it ended. Within it they prepare the run, too: on GPUs they compile kernels, and have NCCL
    /// connect.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Lets something befall a rank's process.
    ///
    /// # Errors
    /// Where it cannot, or is lost.
    pub fn befall(&mut self, rank: usize, mishap: Mishap) -> Result<(), MachineError> {
        self.ask_one(rank, &Request::Befall(mishap), &[]).map(drop)
    }

    /// Has a rank run another script than the others in the next run.
    pub fn mislead(&mut self, rank: usize, script: Script) {
        self.misled = Some((rank, script));
    }

    fn hub(&self) -> &Hub {
        self.job.as_ref()
    }

    fn world(&self) -> usize {
        self.hub().world()
    }

    fn broke(&self, error: MachineError) -> MachineError {
        self.broken.borrow_mut().get_or_insert(error).clone()
    }

    fn nonsense(&self, rank: usize) -> MachineError {
        let code = "it answered what was not asked";
        self.broke(MachineError::fault_of(vec![rank], How::Lost, "a rank's process", code))
    }

    /// Asks ranks the same, and waits for what they say.
    fn ask(&self, ranks: &[usize], request: &Request, bytes: &[u8], limit: Duration) -> Result<Vec<Said>, MachineError> {
        self.ask_each(ranks, |number, _| encode(number, request, bytes), limit)
    }

    /// Sends each of these ranks a message with this number, and waits for what they say.
    fn ask_each(&self, ranks: &[usize], message: impl Fn(u64, usize) -> Vec<u8>, limit: Duration) -> Result<Vec<Said>, MachineError> {
        if let Some(broken) = &*self.broken.borrow() {
            return Err(broken.clone());
        }
        let number = self.number.get() + 1;
        self.number.set(number);
        let messages: Vec<Vec<u8>> = ranks.iter().map(|&rank| message(number, rank)).collect();
        if let Some(long) = messages.iter().map(Vec::len).find(|&bytes| bytes > MOST_BYTES) {
            let reason = format!("{long} bytes for a rank's process: at most {MOST_BYTES}");
            return Err(MachineError::NotSupported { reason });
        }
        ranks.iter().zip(messages).for_each(|(&rank, message)| self.hub().send(rank, message));
        let said = self.answers(ranks, number, limit, REPORTS)?;
        let errors: Vec<Option<&MachineError>> =
            said.iter().map(|(answer, _)| if let Answer::Error(error) = answer { Some(error) } else { None }).collect();
        match errors.iter().find_map(|error| error.cloned()) {
            Some(error) if errors.iter().all(|other| other.is_none_or(|other| *other == error)) => Err(self.seen(error)),
            // They are to say the same of what they do together.
            Some(error) => {
                let told = |(rank, error): (&usize, &Option<&MachineError>)| error.map(|error| format!("rank {rank}: {error}"));
                let told: Vec<String> = ranks.iter().zip(&errors).filter_map(told).collect();
                let reason = format!("ranks do not say the same: {}", told.join("; "));
                self.seen(error);
                Err(MachineError::Invalid { reason })
            }
            None => Ok(said),
        }
    }

    /// After some errors a machine must not be used again.
    fn seen(&self, error: MachineError) -> MachineError {
        match error {
            MachineError::Hang { .. } | MachineError::Fault { .. } => self.broke(error),
            error => error,
        }
    }

    /// What ranks say to a request, in their order. Where the job fails, the others' reports of it are heard, too, for so long.
    fn answers(&self, ranks: &[usize], number: u64, limit: Duration, reports: Duration) -> Result<Vec<Said>, MachineError> {
        let mut deadline = Instant::now() + limit;
        let mut said: Vec<Option<Said>> = ranks.iter().map(|_| None).collect();
        let mut failure: Option<BootstrapError> = None;
        let is_of = |failure: &BootstrapError, rank| failure.lost().is_some_and(|(lost, _)| lost == rank);
        while (0..ranks.len()).any(|at| said[at].is_none() && failure.as_ref().is_none_or(|failure| !is_of(failure, ranks[at]))) {
            let event = self.hub().next(deadline);
            let lost = match event {
                Some(Event::Mail { rank, bytes }) => match (decode::<Answer>(&bytes), ranks.iter().position(|&asked| asked == rank)) {
                    (Ok((its, answer, bytes)), Some(at)) if its == number => {
                        said[at] = Some((answer, bytes.to_vec()));
                        continue;
                    }
                    // What was given up.
                    (Ok(_), _) => continue,
                    (Err(reason), _) => self.lost(rank, Loss::Disconnected, reason),
                },
                // Once it has failed, they leave.
                Some(Event::Left { .. }) if failure.is_some() => continue,
                Some(Event::Left { rank }) => self.lost(rank, Loss::Left, "it left".into()),
                // What comes of that comes next.
                Some(Event::Lost { .. } | Event::Refused { .. }) => continue,
                Some(Event::Failed(error)) => error,
                None if failure.is_some() => break,
                None => {
                    let silent: Vec<usize> = ranks.iter().zip(&said).filter(|(_, said)| said.is_none()).map(|(&rank, _)| rank).collect();
                    let reason = format!("no answer in {:.1} s; nor of others: {silent:?}", limit.as_secs_f64());
                    self.lost(silent[0], Loss::Late, reason)
                }
            };
            if failure.is_none() {
                deadline = Instant::now() + reports;
                failure = Some(lost);
            }
        }
        match failure {
            Some(failure) => Err(self.broke(with_reports(&failure, ranks, &said))),
            None => Ok(said.into_iter().flatten().collect()),
        }
    }

    /// The failure of a rank that does not answer.
    fn lost(&self, rank: usize, how: Loss, reason: String) -> BootstrapError {
        BootstrapError::Lost { rank, world: self.world(), what: "an answer".into(), how, reason }
    }

    fn ask_all(&self, request: &Request, limit: Duration) -> Result<Vec<Said>, MachineError> {
        self.ask(&(0..self.world()).collect::<Vec<usize>>(), request, &[], limit)
    }

    fn ask_one(&self, rank: usize, request: &Request, bytes: &[u8]) -> Result<Said, MachineError> {
        if rank >= self.world() {
            return Err(MachineError::Invalid { reason: format!("rank {rank}: there are {} processes", self.world()) });
        }
        let mut said = self.ask(&[rank], request, bytes, LIMIT)?;
        Ok(said.swap_remove(0))
    }

    fn number_of(&self, request: &Request) -> u32 {
        // A machine that is broken says so where it is asked for more.
        self.ask_one(0, request, &[]).ok().map_or(1, |(answer, _)| if let Answer::Number(number) = answer { number } else { 1 })
    }
}

/// The job's failure, and what the other ranks say of it.
fn with_reports(failure: &BootstrapError, ranks: &[usize], said: &[Option<Said>]) -> MachineError {
    let of_failure = of_loss(0, failure);
    let told = of_failure.blamed();
    let (mut same, mut silent, mut others, mut reports_of) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (&rank, said) in ranks.iter().zip(said).filter(|(rank, _)| failure.lost().is_none_or(|(lost, _)| lost != **rank)) {
        let how = match said {
            None => {
                silent.push(rank);
                How::Silent
            }
            Some((Answer::Error(error), _)) if told.iter().all(|blamed| error.blamed().contains(blamed)) => {
                same.push(rank);
                How::Agrees
            }
            Some((Answer::Error(error), _)) => {
                others.push(format!("rank {rank} reports: {error}"));
                How::Disagrees
            }
            Some(_) => {
                others.push(format!("rank {rank} was done"));
                How::Disagrees
            }
        };
        reports_of.push(Blamed::new(rank, how));
    }
    let mut reports = Vec::new();
    reports.extend((!same.is_empty()).then(|| format!("ranks {same:?} report the same")));
    reports.extend((!silent.is_empty()).then(|| format!("ranks {silent:?} report nothing")));
    reports.extend(others);
    match of_failure {
        MachineError::Fault { ranks, what, code, blamed } => MachineError::Fault {
            ranks,
            what,
            code: [code].into_iter().chain(reports).collect::<Vec<String>>().join("; "),
            blamed: blamed.into_iter().chain(reports_of).collect(),
        },
        error => error,
    }
}

/// Parts of a region that are moved at once.
fn pieces(region: &Region) -> impl Iterator<Item = Region> {
    let count = region.bytes.div_ceil(PIECE).max(1);
    let Region { buffer, offset, bytes } = region.clone();
    (0..count).map(move |piece| Region::new(buffer.clone(), offset + piece * PIECE, (bytes - piece * PIECE).min(PIECE)))
}

impl<J: AsRef<Hub>> Machine for Processes<J> {
    fn info(&self) -> MachineInfo {
        self.info.clone()
    }

    /// Of each rank's device, by the rank's number.
    fn conditions(&self) -> Vec<Condition> {
        // A machine that is broken says so where it is asked for more.
        let said = self.ask_all(&Request::Conditions, LIMIT).unwrap_or_default().into_iter().enumerate();
        let of_rank = |(rank, (answer, _)): (usize, Said)| match answer {
            Answer::Conditions(conditions) => conditions.into_iter().map(|condition| Condition { gpu: rank, ..condition }).collect(),
            _ => Vec::new(),
        };
        said.flat_map(of_rank).collect()
    }

    fn max_world(&self) -> usize {
        self.max_world
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.number_of(&Request::WaitingBlocks { world, groups, most: false })
    }

    fn most_waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.number_of(&Request::WaitingBlocks { world, groups, most: true })
    }

    fn rendezvous(&self) -> u64 {
        self.rendezvous
    }

    fn check_budget(&self, elements: u64) -> Result<(), MachineError> {
        self.ask_one(0, &Request::CheckBudget { elements }, &[]).map(drop)
    }

    fn check_multiplications(&self, multiplications: u64) -> Result<(), MachineError> {
        self.ask_one(0, &Request::CheckMultiplications { multiplications }, &[]).map(drop)
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.open_nodes(world, 1, buffers)
    }

    /// All processes take part, and the group has the first of them.
    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        if world > self.max_world {
            return Err(MachineError::NotSupported { reason: format!("world size {world}: there are {} processes", self.max_world) });
        }
        let said = self.ask_all(&Request::OpenGroup { world, nodes, buffers: buffers.to_vec() }, LIMIT)?;
        let groups: Vec<Option<usize>> =
            said.iter().map(|(answer, _)| if let Answer::Opened(group) = answer { Some(*group) } else { None }).collect();
        match groups[0] {
            Some(group) if groups.iter().all(|other| *other == groups[0]) => {
                self.rendezvous += 1;
                Ok(group)
            }
            _ => Err(self.nonsense(groups.iter().position(|other| *other != groups[0]).unwrap_or(0))),
        }
    }

    fn close_groups(&mut self) {
        // A machine that is broken says so where it is asked for more.
        let _ = self.ask_all(&Request::CloseGroups, LIMIT);
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        let mut bytes = Vec::with_capacity(region.bytes as usize);
        for region in pieces(region) {
            let (_, piece) = self.ask_one(rank, &Request::Read { group, region: region.clone() }, &[])?;
            if piece.len() as u64 != region.bytes {
                return Err(self.nonsense(rank));
            }
            bytes.extend(piece);
        }
        Ok(bytes)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        if bytes.len() as u64 != region.bytes {
            return Err(MachineError::Invalid { reason: format!("{} bytes for region {region}", bytes.len()) });
        }
        let mut rest = bytes;
        for region in pieces(region) {
            let (piece, after) = rest.split_at(region.bytes as usize);
            self.ask_one(rank, &Request::Write { group, region }, piece)?;
            rest = after;
        }
        Ok(())
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        let said = self.ask_all(&Request::BrokenCanary { group }, LIMIT)?;
        let broken = said.into_iter().enumerate().find_map(|(rank, (answer, _))| match answer {
            Answer::Canary(Some((buffer, distance))) => Some((rank, buffer, distance)),
            _ => None,
        });
        Ok(broken)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let limit = deadline.saturating_add(self.grace).min(Duration::from_secs(86_400));
        let run = |script: &Script| Request::Run { script: PackedScript::of(script), deadline_ms };
        let (same, misled) = (run(script), self.misled.take().map(|(rank, script)| (rank, run(&script))));
        let of = |rank: usize| misled.iter().find(|(misled, _)| *misled == rank).map_or(&same, |(_, other)| other);
        let all: Vec<usize> = (0..self.world()).collect();
        let said = self.ask_each(&all, |number, rank| encode(number, of(rank), &[]), limit)?;
        let mut parts = Vec::new();
        for (rank, (answer, bytes)) in said.into_iter().enumerate() {
            let Answer::Ran(part) = answer else { return Err(self.nonsense(rank)) };
            self.rendezvous = self.rendezvous.max(part.rendezvous);
            parts.push((part, bytes));
        }
        let run = Part::together(parts).map_err(|reason| self.broke(MachineError::Invalid { reason }))?;
        if let Some(why) = run.unchecked_path.clone().filter(|_| self.info.notes.iter().all(|(name, _)| name != UNCHECKED_PATH)) {
            self.info.notes.push((UNCHECKED_PATH.into(), why));
        }
        Ok(run)
    }
}

impl<J: AsRef<Hub>> Drop for Processes<J> {
    fn drop(&mut self) {
        (0..self.world()).for_each(|rank| self.hub().send(rank, encode(0, &Request::Leave, &[])));
    }
}
