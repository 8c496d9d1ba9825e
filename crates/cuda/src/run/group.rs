//! Groups: ranks and their buffers in symmetric memory.

use crate::gpu::memory::GroupPlacement;
use passmuster_plan::{
    machine::{layout::Layout, validation::Members},
    plan::{MAX_RANKS, Region},
};

/// An open group.
pub(crate) struct Group {
    /// Its ranks.
    pub(crate) world: usize,
    /// How many nodes they are on.
    pub(crate) nodes: usize,
    /// Where its buffers lie on every rank.
    pub(crate) layout: Layout,
    /// Where the first byte of all that lies, of ranks whose memory is mapped here.
    pub(crate) place: GroupPlacement,
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

impl Group {
    /// Address of a region on one rank.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(crate) fn address(&self, rank: usize, region: &Region) -> Result<u64, String> {
        Ok(self.place.bases[rank] + self.layout.find(region)?)
    }

    /// Addresses of a region on all ranks of a rank's node, null past their number.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(crate) fn addresses(&self, rank: usize, region: &Region) -> Result<[u64; MAX_RANKS], String> {
        let offset = self.layout.find(region)?;
        let bases = &self.place.bases[self.first_of_node(rank)..][..self.node_world()];
        Ok(std::array::from_fn(|peer| bases.get(peer).map_or(0, |base| base + offset)))
    }
}
