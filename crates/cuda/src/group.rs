//! Groups: ranks and their buffers in symmetric memory.

use super::memory::GroupPlacement;
use passmuster_collectives::{
    machine::{layout::Layout, validation::Members},
    plan::{MAX_RANKS, Region},
};

/// An open group.
pub(super) struct Group {
    /// Its ranks.
    pub(super) world: usize,
    /// Where its buffers lie on every rank.
    pub(super) layout: Layout,
    /// Where the first byte of all that lies.
    pub(super) place: GroupPlacement,
}

impl Members for Group {
    fn world(&self) -> usize {
        self.world
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl Group {
    /// Address of a region on one rank.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(super) fn address(&self, rank: usize, region: &Region) -> Result<u64, String> {
        Ok(self.place.bases[rank] + self.layout.find(region)?)
    }

    /// Addresses of a region on all ranks, null past the world size.
    ///
    /// # Errors
    /// When the group has no such region.
    pub(super) fn addresses(&self, region: &Region) -> Result<[u64; MAX_RANKS], String> {
        let offset = self.layout.find(region)?;
        Ok(std::array::from_fn(|rank| self.place.bases.get(rank).map_or(0, |base| base + offset)))
    }
}
