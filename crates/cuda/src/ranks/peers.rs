//! The other ranks' processes, as one of them has them: what all agree on before anybody goes on, and memory of theirs.
//!
//! Ranks meet as often as threads of one process do: where a group is opened, where NCCL's communicators and windows are made, and where a run begins and
//! ends. What one of them could not do, all of them say.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use passmuster_bootstrap::{Bootstrap, BootstrapError, Loss};
use passmuster_plan::{
    machine::{How, MachineError},
    plan::{MAX_WORLD, first_of_node},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    board::Board,
    fault::fault,
    outcome::{Outcome, with_standing},
};
use crate::{
    gpu::{
        device::Device,
        memory::{Allocation, Physical},
    },
    vendor::driver::CudaError,
};

/// How long ranks wait for each other before a run and where memory is made: kernels are compiled meanwhile, and graphs captured.
const PREPARATION_LIMIT: Duration = Duration::from_secs(60);

/// How long after the deadline of a run ranks that are done wait for others to say how it ended: the time it takes to give a run up.
const LAST_LIMIT: Duration = Duration::from_secs(8);

/// The other ranks' processes.
pub(crate) struct Peers {
    bootstrap: Box<dyn Bootstrap>,
    board: Arc<Board>,
    /// Of each rank, what its GPU is.
    pub(crate) gpus: Vec<Gpu>,
    /// Nodes that the job says its processes are on, as many on each, in rank order.
    pub(crate) nodes: usize,
    /// The number of the last run that ranks agreed to begin.
    run: u64,
    /// Why nothing is done any more.
    broken: Option<MachineError>,
}

/// A rank's GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gpu {
    /// Its number in the rank's process.
    pub(crate) ordinal: usize,
    pub(crate) uuid: [u8; 16],
    pub(crate) name: String,
    pub(crate) capability: (i32, i32),
    pub(crate) sms: u32,
    /// Streams that make progress independently.
    pub(crate) connections: usize,
}

impl Peers {
    /// Meets the others. `gpu` is what this process has opened, or why it could not.
    ///
    /// # Errors
    /// What some rank could not; `Fault` where one is lost.
    pub(crate) fn meet(mut bootstrap: Box<dyn Bootstrap>, nodes: usize, gpu: Result<Gpu, MachineError>) -> Result<Peers, MachineError> {
        let (rank, world) = (bootstrap.rank(), bootstrap.world());
        if world > MAX_WORLD {
            return Err(MachineError::NotSupported { reason: format!("{world} processes: GPUs take at most {MAX_WORLD} ranks here") });
        }
        if nodes == 0 || !world.is_multiple_of(nodes) {
            return Err(MachineError::Invalid { reason: format!("{world} processes on {nodes} nodes: as many are on each") });
        }
        let gpus = all_of(gather(&mut *bootstrap, "GPUs of all ranks", &gpu).map_err(|error| of_exchange(rank, &error))?)?;
        let board = Board::open(&mut *bootstrap).map_err(|error| of_exchange(rank, &error))?;
        Ok(Peers { bootstrap, board: Arc::new(board), gpus, nodes, run: 0, broken: None })
    }

    /// This process's rank.
    pub(crate) fn rank(&self) -> usize {
        self.bootstrap.rank()
    }

    /// How many processes there are.
    pub(crate) fn world(&self) -> usize {
        self.bootstrap.world()
    }

    /// Whether a rank is on this one's node.
    pub(crate) fn is_near(&self, rank: usize) -> bool {
        let first = |rank| first_of_node(rank, self.world(), self.nodes);
        first(rank) == first(self.rank())
    }

    /// Words that all processes see.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// For each rank, the first one that has the same GPU.
    pub(crate) fn places(&self) -> Vec<usize> {
        places(&self.gpus)
    }

    /// Why the job has failed, if it has. Waits for nothing.
    pub(crate) fn has_failed(&mut self) -> bool {
        self.bootstrap.failure().is_some()
    }

    /// Gives every rank what all say.
    pub(crate) fn gather<T: Serialize + DeserializeOwned>(&mut self, what: &str, own: &T, limit: Duration) -> Result<Vec<T>, MachineError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let before = self.bootstrap.set_limit(limit);
        let gathered = gather(&mut *self.bootstrap, what, own);
        self.bootstrap.set_limit(before);
        gathered.map_err(|error| self.lost(&error))
    }

    /// Gives every rank what all have made: where one could not, all return why the first of them could not.
    pub(crate) fn agree<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        own: Result<T, MachineError>,
    ) -> Result<Vec<T>, MachineError> {
        all_of(self.gather(what, &own, PREPARATION_LIMIT)?)
    }

    /// The same of what stays with each rank.
    pub(crate) fn agree_on<T>(&mut self, what: &str, own: Result<T, MachineError>) -> Result<T, MachineError> {
        self.agree(what, own.as_ref().map(drop).map_err(Clone::clone))?;
        own
    }

    /// This process is not going to finish the run: the others need not wait for it.
    pub(crate) fn stop(&self) {
        self.board.stop(self.run);
    }

    /// What a record says of the processes.
    pub(crate) fn notes(&self) -> Vec<(&'static str, String)> {
        let places = self.places();
        let mut sharing: Vec<String> = Vec::new();
        for first in 0..places.len() {
            let ranks: Vec<usize> = (0..places.len()).filter(|rank| places[*rank] == first).collect();
            sharing.extend((ranks.len() > 1).then(|| format!("ranks {ranks:?} share a GPU, and take turns on it")));
        }
        let processes = format!("{} ranks, each in a process of its own", self.world());
        let by = self.bootstrap.descriptors_go_by().map(|by| format!(", sent by {by}")).unwrap_or_default();
        let memory = format!("file descriptors (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR){by}");
        let nodes = (self.nodes > 1).then(|| format!("on {} nodes, as --nodes says: all of them are on one host", self.nodes));
        let processes = vec![processes].into_iter().chain(nodes).chain(sharing).collect::<Vec<String>>();
        vec![("processes", processes.join("; ")), ("memory_shared_by", memory)]
    }

    /// GPUs of all ranks, each once.
    pub(crate) fn gpu_list(&self) -> Vec<String> {
        let firsts = self.places().into_iter().enumerate().filter(|(rank, first)| rank == first);
        firsts.map(|(rank, _)| format!("{rank} {}", self.gpus[rank].name)).collect()
    }

    /// The number of a run that all ranks are about to begin, where all can.
    pub(crate) fn begin<T>(&mut self, own: Result<T, MachineError>) -> Result<(u64, T), MachineError> {
        let number = self.run + 1;
        let own = self.agree_on(&format!("start of run {number}"), own)?;
        self.run = number;
        Ok((number, own))
    }

    /// How a run ended on all ranks.
    pub(crate) fn end(&mut self, own: &Outcome, deadline: Duration) -> Result<Vec<Outcome>, MachineError> {
        let what = format!("end of run {}", self.run);
        self.gather(&what, own, deadline.saturating_add(LAST_LIMIT)).map_err(|error| with_standing(error, own))
    }

    /// The error for an exchange that did not come to its end. Nothing is done any more after it.
    fn lost(&mut self, error: &BootstrapError) -> MachineError {
        self.broken.insert(of_exchange(self.bootstrap.rank(), error)).clone()
    }

    /// Allocates `bytes` on the GPU of every rank, and gives it an address here where the rank is on this node, in the order of the ranks. `device` is this rank's, whose context is current.
    ///
    /// # Errors
    /// What some rank could not; `NotSupported` where that is for want of memory.
    pub(crate) fn allocate(&mut self, device: &Device, bytes: u64) -> Result<Vec<Allocation>, MachineError> {
        let rank = self.rank();
        let made = Physical::allocate(device, bytes).and_then(|own| own.export().map(|descriptor| (own, descriptor)));
        let made = made.map_err(of_memory(rank, bytes));
        let sizes = self.agree("sizes of memory", made.as_ref().map(|(own, _)| own.bytes()).map_err(Clone::clone))?;
        let (own, descriptor) = made?;
        let descriptors =
            self.bootstrap.all_gather_descriptors("descriptors of memory", &[descriptor]).map_err(|error| self.lost(&error))?;
        let map = |(of, descriptors): (usize, Vec<OwnedFd>)| {
            let mapped = match &descriptors[..] {
                _ if of == rank => own.map([device]),
                _ if !self.is_near(of) => Ok(Allocation::elsewhere(device.driver)),
                [descriptor] => Physical::import(device, descriptor, sizes[of]).and_then(|memory| memory.map([device])),
                others => return Err(MachineError::Invalid { reason: format!("rank {of} sent {} descriptors: expected 1", others.len()) }),
            };
            mapped.map_err(|error| of_memory(rank, bytes)(error.during(format!("memory of rank {of}"))))
        };
        let mapped: Result<Vec<Allocation>, MachineError> = descriptors.into_iter().enumerate().map(map).collect();
        self.agree_on("memory of all ranks", mapped)
    }
}

/// The error of a rank that could not make or map memory.
fn of_memory(rank: usize, bytes: u64) -> impl Fn(CudaError) -> MachineError {
    move |error| match error.is_out_of_memory() {
        true => MachineError::NotSupported { reason: format!("{bytes} bytes of rank {rank}: {error}") },
        false => fault(rank)(error),
    }
}

fn gather<T: Serialize + DeserializeOwned>(bootstrap: &mut dyn Bootstrap, what: &str, own: &T) -> Result<Vec<T>, BootstrapError> {
    let bytes = serde_json::to_vec(own).map_err(|error| BootstrapError::SetUp(format!("{what}: {error}")))?;
    let all = bootstrap.all_gather(what, &bytes)?;
    let understood = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes).map_err(|error| BootstrapError::SetUp(format!("rank {rank} in {what}: {error}")))
    };
    all.iter().enumerate().map(understood).collect()
}

/// What all have, or why the first one of those that failed does not. That a device is at fault comes before what is not supported: the process of that rank
/// does nothing any more.
fn all_of<T>(all: Vec<Result<T, MachineError>>) -> Result<Vec<T>, MachineError> {
    let is_fault = |error: &&MachineError| matches!(error, MachineError::Fault { .. } | MachineError::Inconclusive { .. });
    let errors = || all.iter().filter_map(|made| made.as_ref().err());
    match errors().find(is_fault).or_else(|| errors().next()) {
        Some(error) => Err(error.clone()),
        None => Ok(all.into_iter().filter_map(Result::ok).collect()),
    }
}

fn places(gpus: &[Gpu]) -> Vec<usize> {
    let first = |gpu: &Gpu| gpus.iter().position(|other| other.uuid == gpu.uuid);
    gpus.iter().map(|gpu| first(gpu).unwrap_or_default()).collect()
}

/// The error for an exchange that `rank` took part in.
fn of_exchange(rank: usize, error: &BootstrapError) -> MachineError {
    let (rank, how) = error.lost().map_or((rank, How::Failed), |(rank, loss)| (rank, how_of_loss(loss)));
    MachineError::fault_of(vec![rank], how, "an exchange between the ranks' processes", error.to_string())
}

/// What a rank did that was lost so.
fn how_of_loss(loss: Loss) -> How {
    match loss {
        Loss::Killed { signal } => How::Killed { signal },
        Loss::Stopped { signal } => How::Stopped { signal },
        Loss::Exited { status } => How::Exited { status },
        Loss::Late => How::Late,
        Loss::Garbage => How::Garbage,
        Loss::Left | Loss::Disconnected => How::Lost,
        Loss::GaveUp => How::GaveUp,
        Loss::Panicked => How::Panicked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, ranks that share a GPU are taken for ranks with a GPU each, or the other way round.
    #[test]
    fn a_gpu_is_who_has_its_uuid() {
        let gpu = |ordinal, id| Gpu { ordinal, uuid: [id; 16], name: "H200".into(), capability: (9, 0), sms: 132, connections: 32 };
        // Both of the first two call theirs number 0, as processes do that see one GPU each.
        assert_eq!(places(&[gpu(0, 7), gpu(0, 8), gpu(1, 7), gpu(2, 9)]), [0, 1, 0, 3]);
    }

    /// If this fails, a rank goes on alone where another cannot.
    #[test]
    fn what_one_could_not_do_all_say() {
        let no = |reason: &str| MachineError::NotSupported { reason: reason.into() };
        let fault = MachineError::fault(2, "cuMemMap", "CUDA_ERROR_UNKNOWN");
        assert_eq!(all_of(vec![Ok(1), Ok(2)]), Ok(vec![1, 2]));
        assert_eq!(all_of(vec![Ok(1), Err(no("a")), Err(no("b"))]), Err(no("a")));
        assert_eq!(all_of::<u8>(vec![Err(no("a")), Err(fault.clone())]), Err(fault));
    }
}
