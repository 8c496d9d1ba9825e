//! A machine that has one rank: the others are in processes of their own, which do the same at the same time.

use std::hash::{DefaultHasher, Hasher};

use super::{CudaMachine, CudaOptions, OpenError, facts::Facts};
use crate::{
    ranks::{
        fault::fault,
        peers::{Gpu, Peers},
    },
    vendor::environment,
};
use passmuster_bootstrap::Bootstrap;
use passmuster_plan::{
    machine::{MachineError, layout::Layout},
    plan::BufferSpec,
};

impl CudaMachine {
    /// Opens the GPU of one rank, and meets the processes of the others, which must all call it. Of the GPUs that options name, or this process sees, it is the
    /// one at the place `local_rank`, counted round. Ranks are taken to be on `nodes` nodes, as many on each, in rank order: they map memory of their node's
    /// ranks alone. NCCL goes by `NCCL_HOSTID`: set it if you pass more than one node.
    ///
    /// All processes then call [`open_group`](passmuster_plan::machine::Machine::open_group), `close_groups` and `run` alike, with the same arguments and in
    /// the same order; a group of fewer ranks than there are processes has the first of them. A process reads and writes buffers of its own rank, and has
    /// marks and fetches of that alone. An error of a run is the same on all ranks.
    ///
    /// Ranks that share a GPU take turns on it, some thousandths of a second each. When the machine is dropped it frees nothing: its process is expected to end.
    ///
    /// # Errors
    /// `NotSupported` where a rank has no GPU, with its rank; `Fault` where a process is lost or a driver fails.
    pub fn open_rank(
        options: CudaOptions,
        bootstrap: Box<dyn Bootstrap>,
        local_rank: usize,
        nodes: usize,
    ) -> Result<CudaMachine, MachineError> {
        let rank = bootstrap.rank();
        let opened = open_one(options, local_rank).map_err(|error| match error {
            OpenError::Cuda(error) => fault(rank)(error),
            error => MachineError::NotSupported { reason: format!("rank {rank}: {error}") },
        });
        let peers = Peers::meet(bootstrap, nodes, opened.as_ref().map(gpu_of).map_err(Clone::clone))?;
        let mut machine = opened?;
        machine.facts = facts_of(&peers);
        machine.peers = Some(peers);
        Ok(machine)
    }

    /// Where the buffers of a group lie, where its ranks reach each other.
    ///
    /// # Errors
    /// `NotSupported` where they do not, or the GPUs do not take `world` ranks.
    pub(super) fn takes_group(&self, world: usize, buffers: &[BufferSpec]) -> Result<Layout, MachineError> {
        let layout = self.facts.takes_group(world, buffers)?;
        let unreachable =
            |own: usize, peer: usize| MachineError::NotSupported { reason: format!("GPU {own} cannot address memory of GPU {peer}") };
        let devices = &self.of_rank[..world];
        for (rank, device) in devices.iter().enumerate() {
            for peer in devices {
                let can = device.can_access(peer);
                if !can.map_err(fault(rank))? {
                    return Err(unreachable(device.ordinal, peer.ordinal));
                }
            }
        }
        Ok(layout)
    }

    /// The same of ranks in processes of their own, which all ask for the same.
    ///
    /// # Errors
    /// As [`CudaMachine::takes_group`]; `Invalid` where one asks for something else.
    pub(super) fn agree_to_open(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<Layout, MachineError> {
        let fits = self.has_nodes(world, nodes).and_then(|()| self.facts.takes_group(world, buffers));
        let layout = fits.and_then(|layout| self.reaches(world).map(|()| layout));
        let asked = digest(&(world, nodes, buffers));
        let peers = self.peers.as_mut().expect("the others are elsewhere");
        let all = peers.agree("what a group has", layout.as_ref().map(|_| asked).map_err(Clone::clone))?;
        match all.iter().position(|other| *other != all[0]) {
            Some(other) => Err(MachineError::Invalid {
                reason: format!("rank {other} asks for other buffers or another world size than rank 0: all must ask for the same"),
            }),
            None => layout,
        }
    }

    /// Whether the first `world` ranks are on `nodes` nodes.
    fn has_nodes(&self, world: usize, nodes: usize) -> Result<(), MachineError> {
        let (processes, on) = self.peers.as_ref().map_or((world, 1), |peers| (peers.world(), peers.nodes));
        let of_node = processes / on;
        if if nodes == 1 { world <= of_node } else { world == nodes * of_node } {
            return Ok(());
        }
        let reason = format!("{world} ranks on {nodes} nodes: the first of {processes} processes on {on} nodes are not (--nodes)");
        Err(MachineError::NotSupported { reason })
    }

    /// Whether this process's GPU can address those of the first `world` ranks, as far as it sees them.
    fn reaches(&self, world: usize) -> Result<(), MachineError> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let (own, processes) = (peers.rank(), peers.world());
        if world > processes {
            return Err(MachineError::NotSupported { reason: format!("world size {world}: there are {processes} processes") });
        }
        for (peer, gpu) in peers.gpus.iter().enumerate().take(if own < world { world } else { 0 }).filter(|(peer, _)| peers.is_near(*peer))
        {
            let can = self.of_rank[own].can_access_of(gpu.uuid);
            let can = can.map_err(fault(own))?;
            if can == Some(false) {
                let reason = format!("the GPU of rank {own} cannot address memory of the GPU of rank {peer}");
                return Err(MachineError::NotSupported { reason });
            }
        }
        Ok(())
    }
}

/// Opens the one GPU that is this rank's.
fn open_one(options: CudaOptions, local_rank: usize) -> Result<CudaMachine, OpenError> {
    let gpus = match options.gpus {
        Some(gpus) => gpus,
        None => (0..CudaMachine::count()?).collect(),
    };
    let gpu = *gpus.get(local_rank % gpus.len().max(1)).ok_or(OpenError::NoneAsked)?;
    CudaMachine::open(CudaOptions { gpus: Some(vec![gpu]), ..options })
}

fn gpu_of(machine: &CudaMachine) -> Gpu {
    let device = &machine.of_rank[0];
    let (name, capability, sms) = (device.name.clone(), device.capability, device.sms);
    Gpu { ordinal: device.ordinal, uuid: device.uuid, name, capability, sms, connections: environment::connections() }
}

/// What all ranks' GPUs have together, the same in all processes. A GPU goes by the first rank that has it.
fn facts_of(peers: &Peers) -> Facts {
    let gpus = || peers.gpus.iter();
    Facts {
        gpus: peers.places(),
        capability: gpus().map(|gpu| gpu.capability).min().unwrap_or_default(),
        sms: gpus().map(|gpu| gpu.sms).min().unwrap_or(1),
        connections: gpus().map(|gpu| gpu.connections).min().unwrap_or(1),
    }
}

/// A digest of what is asked of a machine.
fn digest(asked: &impl serde::Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&serde_json::to_vec(asked).unwrap_or_default());
    hasher.finish()
}
