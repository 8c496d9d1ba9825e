//! NCCL communicators of a machine: of each world size that of all its ranks and, of those on several nodes, those across nodes. Each is made when it is first asked for and
//! kept.

use std::{collections::BTreeMap, env, path::PathBuf, sync::Arc, time::Duration};

use cudarc::nccl::sys::ncclUniqueId;

use crate::{
    gpu::{device::Device, memory::Arena, scratch::Scratch},
    ranks::{peers::Peers, threads},
    vendor::{
        environment,
        nccl::{Communicator, LibraryCall, Nccl, NcclError, Window},
    },
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp},
    machine::{Blamed, How, MachineError},
    plan::MAX_WORLD,
};

/// How long all ranks may take to join a communicator or to register memory.
const JOIN_LIMIT: Duration = Duration::from_secs(120);

/// How long they may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// Something of each rank that is here.
pub(super) type OfRanks<T> = BTreeMap<usize, T>;

/// The communicators that a script calls, by the number of a group and whether they are across its nodes.
pub(crate) type OfGroups = BTreeMap<(usize, bool), OfRanks<Arc<Communicator>>>;

/// The communicators of one world size and what is registered with them, of the ranks that are here.
struct Joined {
    ranks: OfRanks<Arc<Communicator>>,
    /// For each chunk of the arena, the window of each rank.
    windows: BTreeMap<usize, OfRanks<Window>>,
}

/// NCCL, loaded when first used, and its communicators.
#[derive(Default)]
pub(crate) struct Communicators {
    explicit: Option<PathBuf>,
    nccl: Option<Arc<Nccl>>,
    /// By the number of ranks, and of nodes where there is one for the ranks of each index.
    worlds: BTreeMap<(usize, usize), Joined>,
    /// Communicators that were ever joined, and chunks that were registered.
    rendezvous: u64,
}

impl Communicators {
    /// None yet. `explicit` is the NCCL to load; without it, it is searched.
    pub(crate) fn new(explicit: Option<PathBuf>) -> Communicators {
        Communicators { explicit, ..Communicators::default() }
    }

    /// NCCL, if it was loaded.
    pub(crate) fn nccl(&self) -> Option<&Nccl> {
        self.nccl.as_deref()
    }

    /// How often ranks have met here.
    pub(crate) fn rendezvous(&self) -> u64 {
        self.rendezvous
    }

    /// The communicators of a world of `devices`, one a rank, each of which has a device of its own. With more than one of `nodes`, which ranks in one process
    /// do not have, these are of the ranks of each index on their nodes. Where the others' ranks are `peers`, all processes must call it alike, also those that
    /// have no rank in that world.
    ///
    /// # Errors
    /// `NotSupported` when there is no NCCL, `Fault` when NCCL fails, `Inconclusive` when it does not return.
    pub(crate) fn join(
        &mut self,
        nodes: usize,
        devices: &[Arc<Device>],
        peers: Option<&mut Peers>,
    ) -> Result<OfRanks<Arc<Communicator>>, MachineError> {
        let world = devices.len();
        if let Some(joined) = self.worlds.get(&(world, nodes)) {
            return Ok(joined.ranks.clone());
        }
        let loaded = self.load();
        let identify = |nccl: &Arc<Nccl>| nccl.unique_id().map_err(|error| fault(0, &error));
        let ranks = match peers {
            None => {
                let nccl = loaded?;
                let id = identify(&nccl)?;
                enter(nccl, id, devices, (0..world).collect(), Place::of_all(world))?
            }
            Some(peers) => {
                let own = peers.rank();
                let place = if nodes > 1 { Place::across(nodes, world) } else { Place::of_all(world) };
                let what = format!("NCCL's communicator of {} ranks{}", place.world, if nodes > 1 { " across nodes" } else { "" });
                // Its first rank says what a communicator is called.
                let first = own % place.apart;
                let name = |nccl| if own == first { identify(nccl).map(|id| id.internal.to_vec()) } else { Ok(Vec::new()) };
                let names = peers.agree(&what, loaded.as_ref().map_err(Clone::clone).and_then(name))?;
                let internal = names[first][..]
                    .try_into()
                    .map_err(|_| MachineError::Invalid { reason: format!("rank {first} named {what} by {} bytes", names[first].len()) })?;
                let here = if own < world { vec![own] } else { Vec::new() };
                let entered = enter(loaded?, ncclUniqueId { internal }, devices, here, place);
                peers.agree_on(&format!("{what}, joined"), entered)?
            }
        };
        self.rendezvous += 1;
        self.worlds.insert((world, nodes), Joined { ranks: ranks.clone(), windows: BTreeMap::new() });
        Ok(ranks)
    }

    /// Registers a chunk of the arena with the communicators of a world, once. All processes must call it alike.
    ///
    /// # Errors
    /// As [`Communicators::join`], and `NotSupported` with NCCL's reason when it makes no window.
    pub(crate) fn register(
        &mut self,
        devices: &[Arc<Device>],
        arena: &Arena,
        chunk: usize,
        mut peers: Option<&mut Peers>,
    ) -> Result<(), MachineError> {
        self.join(1, devices, peers.as_deref_mut())?;
        let world = devices.len();
        let joined = self.worlds.get_mut(&(world, 1)).expect("joined above");
        if joined.windows.contains_key(&chunk) {
            return Ok(());
        }
        let memory: Vec<(u64, u64)> = (0..world).map(|rank| arena.chunk(chunk, rank)).collect();
        let (of_rank, communicators, is_first) = (devices.to_vec(), joined.ranks.clone(), joined.windows.is_empty());
        let registered = on_each("ncclCommWindowRegister", joined.ranks.keys().copied().collect(), move |rank| {
            of_rank[rank].make_current()?;
            let (address, bytes) = memory[rank];
            let window = communicators[&rank].register(address, bytes)?;
            if is_first && env::var_os("NCCL_CTA_POLICY").is_some() {
                warm_up_copy_engines(&of_rank[rank], &communicators[&rank], rank, address)?;
            }
            Ok::<_, NcclError>(window)
        });
        let not_supported = |(rank, error): (usize, NcclError)| MachineError::NotSupported { reason: format!("rank {rank}: {error}") };
        let windows = registered.and_then(|windows| windows.map_err(not_supported));
        let windows = match peers {
            None => windows?,
            Some(peers) => peers.agree_on("NCCL's windows", windows)?,
        };
        joined.windows.insert(chunk, windows);
        self.rendezvous += 1;
        Ok(())
    }

    /// Leaves all communicators, in bounded time; whether all ranks did. Nothing may be running on them. `devices` has the device of
    /// every rank.
    pub(crate) fn leave(&mut self, devices: &[Arc<Device>]) -> bool {
        let mut all = true;
        for ((world, _), joined) in std::mem::take(&mut self.worlds) {
            let of_rank = devices.to_vec();
            let mut windows: Vec<Vec<Window>> = (0..world).map(|_| Vec::new()).collect();
            for of_chunk in joined.windows.into_values() {
                for (rank, window) in of_chunk {
                    windows[rank].push(window);
                }
            }
            let left = threads::on_all(world, LEAVE_LIMIT, move |rank| {
                if of_rank[rank].make_current().is_ok()
                    && let Some(communicator) = joined.ranks.get(&rank)
                {
                    communicator.leave(&windows[rank]);
                }
            });
            all &= left.iter().all(Option::is_some);
        }
        all
    }

    /// Loads NCCL, if that was not done.
    ///
    /// # Errors
    /// `NotSupported` when there is none, or it might create multicast objects.
    pub(crate) fn load(&mut self) -> Result<Arc<Nccl>, MachineError> {
        if let Some(nccl) = &self.nccl {
            return Ok(nccl.clone());
        }
        environment::multicast_is_settled().map_err(|reason| MachineError::NotSupported { reason })?;
        let nccl = Nccl::load(self.explicit.as_deref()).map_err(|error| MachineError::NotSupported { reason: error.to_string() })?;
        Ok(self.nccl.insert(Arc::new(nccl)).clone())
    }
}

/// Does one all-reduce and one all-to-all of an element for each rank. NCCL connects ranks on first use, collectives and sends each in their own
/// way, for seconds, which must count neither against a run's deadline nor in its times, and which a stream that is captured does not allow. A call that
/// it refuses here, where the environment forces it onto kernels that need windows, it may do on windows: 2.32 does so of all-reduce.
fn warm_up(device: &Device, communicator: &Communicator) -> Result<(), NcclError> {
    const HALF: usize = 4 * MAX_WORLD;
    let scratch = Scratch::new(device.driver, 2 * HALF)?;
    device.service.fill(scratch.address, 0, 2 * HALF as u64)?;
    let place = (scratch.address, scratch.address + HALF as u64);
    for (collective, op) in [(Collective::AllReduce, ReduceOp::Sum), (Collective::AllToAll, ReduceOp::Copy)] {
        let call = LibraryCall { collective, dtype: DType::F32, op, count: 1, root: 0, factor: None, parts: None, windows: false };
        match communicator.enqueue(&call, place, device.service.raw()) {
            Err(error) if error.refused => communicator.asynchronous_error()?,
            enqueued => enqueued?,
        }
    }
    if device.service.wait(JOIN_LIMIT)? {
        return Ok(());
    }
    // Freeing would wait for NCCL's kernel.
    std::mem::forget(scratch);
    Err(NcclError::new("the first ncclAllReduce and ncclSend", format!("not done after {} s", JOIN_LIMIT.as_secs())))
}

/// Does one all-gather by copy engines at the start of registered memory, which is left as it was. NCCL allocates and registers memory of its own at the first
/// of them, which a stream that is captured does not allow (2.28.9: `ce_coll.cc:35 -> 1`, operation not permitted when stream is capturing).
fn warm_up_copy_engines(device: &Device, communicator: &Communicator, rank: usize, address: u64) -> Result<(), NcclError> {
    const SLOT: u64 = 16;
    let mut kept = vec![0; MAX_WORLD * SLOT as usize];
    device.service.read(address, &mut kept)?;
    let (collective, op, count) = (Collective::AllGather, ReduceOp::Copy, SLOT / DType::F32.size());
    let call = LibraryCall { collective, dtype: DType::F32, op, count, root: 0, factor: None, parts: None, windows: true };
    communicator.enqueue(&call, (address + rank as u64 * SLOT, address), device.service.raw())?;
    if device.service.wait(JOIN_LIMIT)? {
        return Ok(device.service.write(&kept, address)?);
    }
    Err(NcclError::new("the first ncclAllGather by copy engines", format!("not done after {} s", JOIN_LIMIT.as_secs())))
}

fn fault(rank: usize, error: &NcclError) -> MachineError {
    MachineError::fault(rank, error.what.clone(), error.code.clone())
}

/// Which ranks a communicator has: how many, and how far apart they are.
#[derive(Clone, Copy)]
struct Place {
    world: usize,
    apart: usize,
}

impl Place {
    fn of_all(world: usize) -> Place {
        Place { world, apart: 1 }
    }

    /// One of each node.
    fn across(nodes: usize, world: usize) -> Place {
        Place { world: nodes, apart: world / nodes }
    }
}

/// Joins a communicator as each of the ranks that are here, all at once.
fn enter(
    nccl: Arc<Nccl>,
    id: ncclUniqueId,
    devices: &[Arc<Device>],
    here: Vec<usize>,
    place: Place,
) -> Result<OfRanks<Arc<Communicator>>, MachineError> {
    let (of_rank, Place { world, apart }) = (devices.to_vec(), place);
    let joined = on_each("ncclCommInitRankConfig", here, move |rank| {
        of_rank[rank].make_current()?;
        let communicator = Communicator::join(nccl.clone(), id, world, rank / apart)?;
        warm_up(&of_rank[rank], &communicator)?;
        Ok(Arc::new(communicator))
    });
    joined?.map_err(|(rank, error)| fault(rank, &error))
}

/// Does something as each of these ranks, in a thread of its own. What each came to, or what the first of them failed with.
///
/// # Errors
/// `Inconclusive` where one did not answer: names the first.
fn on_each<T: Send + 'static, E: Send + 'static>(
    what: &str,
    here: Vec<usize>,
    work: impl Fn(usize) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Result<OfRanks<T>, (usize, E)>, MachineError> {
    let of = here.clone();
    let answers = threads::on_all(here.len(), JOIN_LIMIT, move |at| work(of[at]));
    let mut came = BTreeMap::new();
    for (rank, answer) in here.into_iter().zip(answers) {
        match answer {
            Some(Ok(made)) => _ = came.insert(rank, made),
            Some(Err(error)) => return Ok(Err((rank, error))),
            None => {
                let reason = format!("rank {rank}: no answer of {what} in {} s", JOIN_LIMIT.as_secs());
                return Err(MachineError::Inconclusive { reason, blamed: Box::new([Blamed::new(rank, How::Unfinished)]) });
            }
        }
    }
    Ok(Ok(came))
}
