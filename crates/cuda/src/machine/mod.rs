//! The machine: ranks on real GPUs behind the [`Machine`] trait. `facts` says which scripts it takes, `running` is one run, and `rank` is the machine whose other
//! ranks are in processes of their own.

pub(crate) mod facts;
mod info;
mod options;
mod rank;
mod running;

use std::{collections::BTreeMap, mem::ManuallyDrop, sync::Arc, time::Duration};

use self::facts::Facts;
use crate::{
    gpu::{
        copies::{Batches, Copy},
        device::Device,
        graphs::Graphs,
        kernel::Kernels,
        memory::{self, Arena},
        stream::{Fetch, Stream},
    },
    ranks::{fault::fault, peers::Peers},
    run::{communicators::Communicators, group::Group, products::Products, program::InMemory},
    vendor::{driver::Driver, environment, nccl_log::NcclLog, nvml::Nvml},
};
use passmuster_plan::{
    library::Library,
    machine::{CANARY, Condition, Deferred, GUARD, Machine, MachineError, MachineInfo, Pending, Run},
    plan::{BufferSpec, Fill, MAX_WORLD, Region, Script},
};

pub use self::options::{CudaOptions, OpenError, Watch};

/// Ranks on GPUs of this process.
///
/// Rank `r` runs on `gpus[r % gpus.len()]`: one rank a GPU up to as many ranks as GPUs, then several share one, in one context and with
/// memory of their own. That makes worlds larger than the machine testable; it says nothing about their speed, and NCCL refuses it.
///
/// After a hang or a fault the machine refuses everything, and frees nothing when it is dropped: the process is expected to end.
pub struct CudaMachine {
    driver: &'static Driver,
    library: Library,
    wait_limit: Duration,
    watch: Option<Watch>,
    /// Where copies are joined, and the driver has them.
    batches: Option<Arc<Batches>>,
    /// Devices of the ranks, up to [`MAX_WORLD`]: one that several share is there several times.
    of_rank: Vec<Arc<Device>>,
    /// Every device once.
    devices: Vec<Arc<Device>>,
    /// The other ranks, where they are in processes of their own: then one rank is here, and `of_rank` has its device throughout.
    peers: Option<Peers>,
    /// What it goes by when it takes a script.
    facts: Facts,
    groups: Vec<Group>,
    /// Groups that were ever opened.
    rendezvous: u64,
    /// Whether a run hung, faulted or was given up with threads in a library.
    lost: bool,
    /// What NCCL says that it chose.
    nccl_log: NcclLog,
    /// Why it is not known which path NCCL took in the last run that asked for one.
    unchecked: Option<String>,
    held: ManuallyDrop<Held>,
}

/// What is given back in this order when the machine is dropped.
struct Held {
    communicators: Communicators,
    products: Products,
    kernels: Kernels,
    made: InMemory,
    graphs: Graphs,
    streams: Vec<Vec<Arc<Stream>>>,
    arena: Arena,
}

impl CudaMachine {
    /// Opens the GPUs. It sets no variable of the environment: [`prepare_process`](crate::prepare_process) does, and is to be called before, first thing in
    /// `main`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: CudaOptions) -> Result<CudaMachine, OpenError> {
        let driver = Driver::get().map_err(OpenError::NoDriver)?;
        let count = CudaMachine::count()?;
        let gpus = options.gpus.unwrap_or_else(|| (0..count).collect());
        if gpus.is_empty() {
            return Err(OpenError::NoneAsked);
        }
        let mut opened: BTreeMap<usize, Arc<Device>> = BTreeMap::new();
        for &gpu in &gpus {
            if gpu >= count {
                return Err(OpenError::UnknownGpu { asked: gpu, count });
            }
            if opened.contains_key(&gpu) {
                continue;
            }
            let device = Device::open(driver, gpu)?;
            if !device.has_symmetric_memory()? {
                return Err(OpenError::NoSymmetricMemory { gpu, name: device.name.clone() });
            }
            opened.insert(gpu, Arc::new(device));
        }
        let facts = Facts {
            capability: opened.values().map(|device| device.capability).min().unwrap_or_default(),
            sms: opened.values().map(|device| device.sms).min().unwrap_or(1),
            connections: environment::connections(),
            gpus,
        };
        Ok(CudaMachine {
            driver,
            library: options.library,
            wait_limit: options.wait_limit,
            watch: options.watch,
            batches: options.batch_copies.then(|| Batches::of(driver)).flatten().map(Arc::new),
            of_rank: (0..MAX_WORLD).map(|rank| opened[&facts.gpu(rank)].clone()).collect(),
            devices: opened.into_values().collect(),
            peers: None,
            facts,
            groups: Vec::new(),
            rendezvous: 0,
            lost: false,
            nccl_log: NcclLog::new(),
            unchecked: None,
            held: ManuallyDrop::new(Held {
                communicators: Communicators::new(options.nccl_lib),
                products: Products::new(options.cublas_lt_lib),
                kernels: Kernels::default(),
                made: InMemory::new(),
                graphs: Graphs::default(),
                streams: vec![Vec::new(); MAX_WORLD],
                arena: Arena::default(),
            }),
        })
    }

    /// How many GPUs this process sees: at least one.
    fn count() -> Result<usize, OpenError> {
        let driver = Driver::get().map_err(OpenError::NoDriver)?;
        let count = driver.initialise().and_then(|()| driver.device_count()).map_err(|error| match error.is_no_device() {
            true => OpenError::NoGpu { reason: error.to_string() },
            false => OpenError::Cuda(error),
        })?;
        if count == 0 {
            return Err(OpenError::NoGpu { reason: "the driver counts 0".into() });
        }
        Ok(count)
    }

    /// Loads NCCL now rather than at its first call, so that [`Machine::info`] can tell its version.
    ///
    /// # Errors
    /// `NotSupported` when there is none, with what was searched.
    pub fn load_nccl(&mut self) -> Result<(), MachineError> {
        self.held.communicators.load().map(drop)
    }

    /// Loads cuBLASLt now rather than at its first product.
    ///
    /// # Errors
    /// `NotSupported` when there is none, with what was searched.
    pub fn load_cublas_lt(&mut self) -> Result<(), MachineError> {
        self.held.products.load().map(drop)
    }

    /// How many graphs it has captured so far, those of all ranks counted as one. Who captures again what was captured on the same open group gets the
    /// same graph.
    pub fn captured(&self) -> u64 {
        self.held.graphs.captured()
    }

    /// How many batches of copies it has enqueued so far; `None` where the driver has none, or the options want none.
    pub fn batches(&self) -> Option<u64> {
        self.batches.as_ref().map(|batches| batches.made())
    }

    /// Drops what was captured, but on a lost machine, whose devices may still be at it.
    fn drop_graphs(&mut self) {
        if !self.lost {
            self.held.graphs.clear();
        }
    }

    fn still_good(&self) -> Result<(), MachineError> {
        if self.lost { invalid("the machine hung, faulted or was given up before and must not be used again") } else { Ok(()) }
    }

    /// The one rank that is here; none where all are.
    fn own(&self) -> Option<usize> {
        self.peers.as_ref().map(Peers::rank)
    }

    /// Those of the first `world` ranks that are here.
    fn here(&self, world: usize) -> impl Iterator<Item = usize> + use<> {
        let own = self.own();
        (0..world).filter(move |rank| own.is_none_or(|own| own == *rank))
    }

    fn group(&self, number: usize) -> Result<&Group, MachineError> {
        let reason = || format!("group {number} is not open: there are {}", self.groups.len());
        self.groups.get(number).ok_or_else(|| MachineError::Invalid { reason: reason() })
    }

    /// The device and the address of a rank's region, the device's context current.
    fn locate(&self, group: usize, rank: usize, region: &Region) -> Result<(&Device, u64), MachineError> {
        self.still_good()?;
        let of_group = self.group(group)?;
        if rank >= of_group.world {
            return invalid(format!("rank {rank}: group {group} has {}", of_group.world));
        }
        if let Some(own) = self.own().filter(|own| *own != rank) {
            return invalid(format!("rank {rank} is in another process: rank {own} is in this one"));
        }
        let address = of_group.address(rank, region).map_err(|reason| MachineError::Invalid { reason })?;
        let device = &self.of_rank[rank];
        device.make_current().map_err(fault(rank))?;
        Ok((device, address))
    }

    /// Sets fresh buffers and what is between them.
    fn initialise(&self, group: &Group) -> Result<(), MachineError> {
        let of_rank = || self.here(group.world).map(|rank| (rank, &self.of_rank[rank], group.place.bases[rank]));
        for (rank, device, base) in of_rank() {
            let fill = || {
                device.make_current()?;
                device.service.fill(base, CANARY, group.layout.bytes())?;
                // The driver loads its own kernels on first use, which may wait for the device: not when ranks wait for each other.
                device.service.copy(base, base + GUARD / 2, GUARD / 2)?;
                let quarter = GUARD / 4;
                let two = [0, quarter].map(|at| Copy { from: base + at, to: base + GUARD / 2 + at, bytes: quarter });
                device.service.copies(&two, self.batches.as_deref())?;
                group.layout.buffers().try_for_each(|(spec, offset)| match (&spec.fill, spec.fill.contents(rank, spec.bytes)) {
                    (Fill::Byte(byte), _) => device.service.fill(base + offset, *byte, spec.bytes),
                    (_, Some(contents)) => device.service.write(&contents, base + offset),
                    (_, None) => Ok(()),
                })
            };
            fill().map_err(fault(rank))?;
        }
        of_rank().try_for_each(|(rank, device, _)| device.service.synchronise().map_err(fault(rank)))
    }

    /// Waits for what is on its way to hosts: what comes next may write to that memory, or give it back. Nothing can hold it up.
    fn settle(&self) -> Result<(), MachineError> {
        self.devices.iter().try_for_each(|device| {
            let first = || self.of_rank.iter().position(|of_rank| of_rank.ordinal == device.ordinal).unwrap_or_default();
            let rank = self.own().unwrap_or_else(first);
            device.make_current().and_then(|()| device.service.synchronise()).map_err(fault(rank))
        })
    }
}

impl Machine for CudaMachine {
    fn info(&self) -> MachineInfo {
        self.described()
    }

    fn conditions(&self) -> Vec<Condition> {
        let of = |(gpu, device): (usize, &Arc<Device>)| Nvml::get()?.gpu(&device.bus_id)?.condition(gpu);
        self.devices.iter().enumerate().filter_map(of).collect()
    }

    fn device_bytes(&self) -> Option<u64> {
        let of = |device: &Arc<Device>| device.make_current().and_then(|()| device.memory_in_use());
        self.devices.iter().map(of).sum::<Result<u64, _>>().ok()
    }

    fn max_world(&self) -> usize {
        self.facts.max_world().min(self.peers.as_ref().map_or(usize::MAX, Peers::world))
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.facts.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.rendezvous + self.held.communicators.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.open_nodes(world, 1, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.still_good()?;
        let layout = match self.peers.is_some() {
            true => self.agree_to_open(world, nodes, buffers)?,
            false if nodes > 1 => return facts::one_process_is_one_node(world, nodes),
            false => self.takes_group(world, buffers)?,
        };
        let not_supported = |reason: String| MachineError::NotSupported { reason };
        let devices = &self.of_rank[..world];
        let place = match &mut self.peers {
            None => self
                .held
                .arena
                .place(world, layout.bytes(), |bytes, ranks| memory::allocate(devices, &self.devices, bytes, ranks))
                .map_err(|error| match error.is_out_of_memory() {
                    true => not_supported(format!("{} bytes for each of {world} ranks: {error}", layout.bytes())),
                    false => fault(0)(error),
                })?,
            // All processes take part, also those that have no rank in the group.
            Some(peers) => self.held.arena.place(world, layout.bytes(), |bytes, _| peers.allocate(&self.of_rank[0], bytes))?,
        };
        let group = Group { world, nodes, layout, place };
        let initialised = self.initialise(&group);
        match &mut self.peers {
            // Nobody reads what is not there yet.
            Some(peers) => peers.agree_on(&format!("opening of group {}", self.groups.len()), initialised)?,
            None => initialised?,
        }
        self.rendezvous += 1;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    fn close_groups(&mut self) {
        self.groups.clear();
        self.held.made.clear();
        self.drop_graphs();
        self.held.arena.reset();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        let mut bytes = vec![0; region.bytes as usize];
        device.service.read(address, &mut bytes).map_err(fault(rank))?;
        Ok(bytes)
    }

    fn fetch(&mut self, group: usize, rank: usize, region: &Region) -> Result<Deferred<Vec<u8>>, MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        if region.bytes == 0 {
            return Ok(Deferred::ready(Vec::new()));
        }
        let fetch = Fetch::new(device.driver, region.bytes).and_then(|fetch| fetch.start(address, &device.service)).map_err(fault(rank))?;
        Ok(Deferred::pending(OfRank { rank, device: self.of_rank[rank].clone(), fetch }))
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        if bytes.len() as u64 != region.bytes {
            return invalid(format!("{} bytes for region {region}", bytes.len()));
        }
        device.service.write(bytes, address).map_err(fault(rank))
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.still_good()?;
        let of_group = self.group(group)?;
        for rank in self.here(of_group.world) {
            let (device, base) = (&self.of_rank[rank], of_group.place.bases[rank]);
            device.make_current().map_err(fault(rank))?;
            for (start, bytes) in of_group.layout.gaps() {
                let mut gap = vec![0; bytes as usize];
                device.service.read(base + start, &mut gap).map_err(fault(rank))?;
                if let Some(at) = gap.iter().position(|&byte| byte != CANARY) {
                    let (buffer, distance) = of_group.layout.beside(start + at as u64).unwrap_or(("", at as i64));
                    return Ok(Some((rank, buffer.to_owned(), distance)));
                }
            }
        }
        Ok(None)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        self.still_good()?;
        let needs = self.facts.takes(script, &self.groups, &self.library)?;
        let run = self.run_valid(script, &needs, deadline);
        self.lost = matches!(run, Err(MachineError::Hang { .. } | MachineError::Fault { .. } | MachineError::Inconclusive { .. }));
        if run.is_err() {
            // One that was captured on another path than was asked for is not to be replayed.
            self.drop_graphs();
        }
        run
    }
}

/// What a rank fetches. Any thread may look.
struct OfRank {
    rank: usize,
    device: Arc<Device>,
    fetch: Fetch,
}

impl Pending<Vec<u8>, MachineError> for OfRank {
    fn is_there(&self) -> Result<bool, MachineError> {
        self.device.make_current().and_then(|()| self.fetch.is_there()).map_err(fault(self.rank))
    }

    fn wait(&self) -> Result<(), MachineError> {
        self.device.make_current().and_then(|()| self.fetch.wait()).map_err(fault(self.rank))
    }

    fn take(self: Box<Self>) -> Vec<u8> {
        self.fetch.bytes()
    }
}

impl Drop for OfRank {
    fn drop(&mut self) {
        // For the fetch, which is dropped next, on whatever thread that is.
        let _ = self.device.make_current();
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        if self.peers.is_some() {
            // Others may be at its memory, and NCCL leaves a communicator with all ranks together: all of it goes with the process.
            std::mem::forget(self.devices.clone());
            return;
        }
        let settled = !self.lost && self.settle().is_ok();
        if settled {
            // NCCL does not let go of a communicator while a graph calls it.
            self.drop_graphs();
        }
        if !settled || !self.held.communicators.leave(&self.of_rank) {
            // Kernels may be running on it, and every call that frees may wait for them: the devices' streams and memory stay as well.
            std::mem::forget(self.devices.clone());
            return;
        }
        // SAFETY: `held` is not touched again.
        unsafe { ManuallyDrop::drop(&mut self.held) };
    }
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, MachineError> {
    Err(MachineError::Invalid { reason: reason.into() })
}
