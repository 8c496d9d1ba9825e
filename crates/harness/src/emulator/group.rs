//! Groups of the emulator: every buffer of every rank is an allocation of its own, mapped on all ranks of its node. Every rank has a
//! multicast window over each buffer of all ranks of its node, in rank order.

use super::memory::{AccessError, Address, CANARY, Init, Memory, Owner, Segment, SegmentId};
use passmuster_plan::{
    machine::{layout::Layout, validation::Members},
    plan::{BufferSpec, Fill, MAX_RANKS, Region, Role, first_of_node},
};

/// An open group.
pub(super) struct Group {
    world: usize,
    nodes: usize,
    layout: Layout,
    /// For each rank, where each buffer starts, in the layout's order.
    starts: Vec<Vec<Address>>,
    /// The same of the multicast windows.
    windows: Vec<Vec<Address>>,
}

/// Where the bytes of a group's buffers are.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'s> {
    /// In this process.
    Own,
    /// In segments, one a rank, each of which the process of its rank fills: this one's is `own`.
    Shared { segments: &'s [SegmentId], own: usize },
}

impl Bytes<'_> {
    /// Whether this process fills a rank's buffers.
    fn fills(self, rank: usize) -> bool {
        match self {
            Bytes::Own => true,
            Bytes::Shared { own, .. } => own == rank,
        }
    }
}

/// Bytes of a buffer, with those behind it that may be read.
fn allocated(spec: &BufferSpec) -> u64 {
    spec.bytes + spec.readable
}

/// Bytes that a rank's buffers take in a segment.
pub(super) fn segment_bytes(layout: &Layout) -> u64 {
    layout.buffers().map(|(spec, _)| Segment::span(allocated(spec))).fold(0, u64::saturating_add)
}

impl Group {
    /// Allocates the buffers of group number `number` on all its ranks, which are on `nodes` nodes. Each holds its fill. The ranks of its node may access
    /// it; local buffers, only their own rank.
    ///
    /// # Errors
    /// Of mapping, of filling and of windows, which fresh allocations do not have.
    pub(super) fn open(
        number: usize,
        (world, nodes): (usize, usize),
        layout: Layout,
        memory: &mut Memory,
        bytes: Bytes<'_>,
    ) -> Result<Group, AccessError> {
        let node = |rank| {
            let first = first_of_node(rank, world, nodes);
            first..first + world / nodes
        };
        let mut starts = vec![Vec::new(); world];
        for (rank, starts) in starts.iter_mut().enumerate() {
            let mut offset = 0;
            for (spec, _) in layout.buffers() {
                let init = if spec.fill == Fill::Uninitialised { Init::Uninitialised } else { Init::Zero };
                let owner = Owner::new(rank, number, spec.name.as_str());
                let start = match bytes {
                    Bytes::Own => memory.allocate(owner, allocated(spec), init),
                    Bytes::Shared { segments, own } if rank == own => memory.share(owner, allocated(spec), init, (segments[rank], offset)),
                    Bytes::Shared { segments, .. } => memory.import(owner, allocated(spec), init, (segments[rank], offset)),
                };
                offset += Segment::span(allocated(spec));
                if bytes.fills(rank) {
                    memory.write(start.plus(spec.bytes), rank, &vec![CANARY; spec.readable as usize])?;
                }
                // Zeros are there.
                let contents = match &spec.fill {
                    Fill::Byte(0) | Fill::Uninitialised => None,
                    &Fill::Byte(byte) => Some(vec![byte; spec.bytes as usize]),
                    Fill::OfRanks(ranks) => ranks.get(rank).map(|start| start[..start.len().min(spec.bytes as usize)].to_vec()),
                    Fill::Repeated(_) => spec.fill.contents(rank, spec.bytes),
                };
                if let Some(contents) = contents.filter(|_| bytes.fills(rank)) {
                    memory.write(start, rank, &contents)?;
                }
                if !spec.local {
                    node(rank).try_for_each(|peer| memory.map(start, peer, true))?;
                }
                starts.push(start);
            }
        }
        let mut windows = vec![Vec::new(); world];
        for (rank, windows) in windows.iter_mut().enumerate() {
            for (index, (spec, _)) in layout.buffers().enumerate() {
                let replicas: Vec<Address> = starts[node(rank)].iter().map(|of_rank| of_rank[index]).collect();
                windows.push(memory.multicast(Owner::new(rank, number, spec.name.as_str()), spec.bytes, &replicas)?);
            }
        }
        Ok(Group { world, nodes, layout, starts, windows })
    }

    /// Address of a region on one rank.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(super) fn address(&self, rank: usize, region: &Region) -> Result<Address, String> {
        Ok(self.starts[rank][self.index(region)?].plus(region.offset))
    }

    /// Multicast address of a region over all ranks of a rank's node, for this one to use.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(super) fn multicast(&self, rank: usize, region: &Region) -> Result<Address, String> {
        Ok(self.windows[rank][self.index(region)?].plus(region.offset))
    }

    /// Which buffer a region lies in, in the layout's order.
    fn index(&self, region: &Region) -> Result<usize, String> {
        self.layout.find(region)?;
        Ok(self.layout.buffers().position(|(spec, _)| spec.name == region.buffer).expect("the layout has just found it"))
    }

    /// Addresses of a region on all ranks of a rank's node, null past their number.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(super) fn addresses(&self, rank: usize, region: &Region) -> Result<[u64; MAX_RANKS], String> {
        let first = self.first_of_node(rank);
        let mut addresses = [0; MAX_RANKS];
        for (peer, address) in addresses.iter_mut().enumerate().take(self.node_world()) {
            *address = self.address(first + peer, region)?.0;
        }
        Ok(addresses)
    }

    /// The first byte that was written behind a buffer, where kernels may only read: its rank, buffer, and distance from the buffer's start. Of the ranks that
    /// this process has the memory of.
    ///
    /// # Errors
    /// Of reading.
    pub(super) fn broken_canary(&self, memory: &Memory) -> Result<Option<(usize, String, i64)>, AccessError> {
        for (rank, starts) in self.starts.iter().enumerate() {
            for ((spec, _), start) in self.layout.buffers().zip(starts).filter(|((spec, _), _)| spec.readable > 0) {
                let behind = memory.peek_all(start.plus(spec.bytes), spec.readable, rank)?;
                if let Some(at) = behind.iter().position(|&byte| byte != CANARY) {
                    return Ok(Some((rank, spec.name.clone(), (spec.bytes + at as u64) as i64)));
                }
            }
        }
        Ok(None)
    }

    /// Its buffers of a role.
    pub(super) fn buffers_of(&self, role: Role) -> impl Iterator<Item = &BufferSpec> {
        self.layout.buffers().map(|(spec, _)| spec).filter(move |spec| spec.role == role)
    }
}

impl Members for Group {
    fn world(&self) -> usize {
        self.world
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn nodes(&self) -> usize {
        self.nodes
    }
}
