//! The coordinator's side.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use passmuster_bootstrap::{BootstrapError, Event, Hub, frame::MOST_BYTES};
use passmuster_collectives::{
    machine::{Machine, MachineError, MachineInfo, Run},
    plan::{BufferSpec, Region, Script},
};

use super::{
    messages::{Answer, PackedScript, Part, Request, decode, encode},
    of_loss,
};

/// How long ranks may take for what is no run: to come, to open memory, to read.
const LIMIT: Duration = Duration::from_secs(120);

/// How much later than a run's deadline its ranks may say how it ended.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of a region that are read or written at once.
const PIECE: u64 = 16 << 20;

/// A machine whose ranks are processes. `J` has the hub that they come to; when this is dropped they are told to leave.
pub struct Processes<J: AsRef<Hub>> {
    job: J,
    info: MachineInfo,
    max_world: usize,
    /// The number of the last request.
    number: Cell<u64>,
    rendezvous: u64,
    /// Why it must not be used again.
    broken: RefCell<Option<MachineError>>,
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
        let mut processes = Processes { job, info: MachineInfo::default(), max_world: 0, number, rendezvous, broken };
        let all: Vec<usize> = (0..processes.world()).collect();
        for (rank, (answer, _)) in processes.answers(&all, 0, LIMIT)?.into_iter().enumerate() {
            let Answer::Ready { info, max_world } = answer else { return Err(processes.nonsense(rank)) };
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
        let code = "it answered what was not asked".into();
        self.broke(MachineError::Fault { ranks: vec![rank], what: "a rank's process".into(), code })
    }

    /// Asks ranks the same, and waits for what they say.
    fn ask(&self, ranks: &[usize], request: &Request, bytes: &[u8], limit: Duration) -> Result<Vec<Said>, MachineError> {
        if let Some(broken) = &*self.broken.borrow() {
            return Err(broken.clone());
        }
        let number = self.number.get() + 1;
        self.number.set(number);
        let message = encode(number, request, bytes);
        if message.len() > MOST_BYTES {
            let reason = format!("{} bytes for each rank's process: at most {MOST_BYTES}", message.len());
            return Err(MachineError::NotSupported { reason });
        }
        ranks.iter().for_each(|&rank| self.hub().send(rank, message.clone()));
        let said = self.answers(ranks, number, limit)?;
        match said.iter().find_map(|(answer, _)| if let Answer::Error(error) = answer { Some(error.clone()) } else { None }) {
            Some(error) => Err(self.seen(error)),
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

    /// What ranks say to a request, in their order. What one cannot do the others may wait for: the first error is kept, and the others are heard.
    fn answers(&self, ranks: &[usize], number: u64, limit: Duration) -> Result<Vec<Said>, MachineError> {
        let deadline = Instant::now() + limit;
        let mut said: Vec<Option<Said>> = ranks.iter().map(|_| None).collect();
        while said.iter().any(Option::is_none) {
            let lost = match self.hub().next(deadline) {
                Some(Event::Mail { rank, bytes }) => match (decode::<Answer>(&bytes), ranks.iter().position(|&asked| asked == rank)) {
                    (Ok((its, answer, bytes)), Some(at)) if its == number => {
                        said[at] = Some((answer, bytes.to_vec()));
                        continue;
                    }
                    // What was given up.
                    (Ok(_), _) => continue,
                    (Err(reason), _) => BootstrapError::Lost { rank, world: self.world(), what: "an answer".into(), reason },
                },
                Some(Event::Left { rank }) => {
                    BootstrapError::Lost { rank, world: self.world(), what: "an answer".into(), reason: "it left".into() }
                }
                // What comes of that comes next.
                Some(Event::Lost { .. } | Event::Refused { .. }) => continue,
                Some(Event::Failed(error)) => error,
                None => {
                    let silent: Vec<usize> = ranks.iter().zip(&said).filter(|(_, said)| said.is_none()).map(|(&rank, _)| rank).collect();
                    let reason = format!("no answer in {:.1} s; nor of others: {silent:?}", limit.as_secs_f64());
                    BootstrapError::Lost { rank: silent[0], world: self.world(), what: "an answer".into(), reason }
                }
            };
            return Err(self.broke(of_loss(0, &lost)));
        }
        Ok(said.into_iter().flatten().collect())
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

    /// All processes take part, and the group has the first of them.
    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        if world > self.max_world {
            return Err(MachineError::NotSupported { reason: format!("world size {world}: there are {} processes", self.max_world) });
        }
        let said = self.ask_all(&Request::OpenGroup { world, buffers: buffers.to_vec() }, LIMIT)?;
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
        let mut bytes = Vec::new();
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
        let limit = deadline.saturating_add(GRACE).min(Duration::from_secs(86_400));
        let said = self.ask_all(&Request::Run { script: PackedScript::of(script), deadline_ms }, limit)?;
        let mut parts = Vec::new();
        for (rank, (answer, bytes)) in said.into_iter().enumerate() {
            let Answer::Ran(part) = answer else { return Err(self.nonsense(rank)) };
            self.rendezvous = self.rendezvous.max(part.rendezvous);
            parts.push((part, bytes));
        }
        Part::together(parts).map_err(|reason| self.broke(MachineError::Invalid { reason }))
    }
}

impl<J: AsRef<Hub>> Drop for Processes<J> {
    fn drop(&mut self) {
        (0..self.world()).for_each(|rank| self.hub().send(rank, encode(0, &Request::Leave, &[])));
    }
}
