//! Accesses of the 32 lanes of a warp at once.

use super::{AccessError, Address, GlobalAddr, LaneError, Memory};

/// Lanes of a warp.
pub const WARP: usize = 32;

impl Memory {
    /// Reads `N` bytes (4, 8, 16 or 32) for each lane of `lanes`, a set of bits; values of other lanes stay as they are.
    ///
    /// Lanes that read one contiguous stretch in order, as most kernels do, are served by one check and one copy. Not so
    /// where other processes may write: each lane's access is one of its own.
    ///
    /// # Errors
    /// The lowest lane whose [`Memory::load`] fails; lanes below it have their values.
    #[inline]
    pub fn load_warp<const N: usize>(
        &self,
        addresses: &[u64; WARP],
        lanes: u32,
        rank: usize,
        values: &mut [[u8; N]; WARP],
    ) -> Result<(), LaneError> {
        if !self.delays_stores()
            && let Some(place) = self.contiguous::<N>(addresses, lanes, rank)
        {
            let allocation = &self.allocations[place.allocation.index()];
            let from = place.offset as usize;
            if let Some(bytes) = allocation.bytes.get(from..from + N * WARP)
                && allocation.written.as_ref().is_none_or(|written| written.first_missing(place.offset, bytes.len() as u64).is_none())
            {
                values.as_flattened_mut().copy_from_slice(bytes);
                return Ok(());
            }
        }
        for_each_lane(lanes, |lane| {
            values[lane] = self.load(Address(addresses[lane]), rank)?;
            Ok(())
        })
    }

    /// Writes `N` bytes (4, 8, 16 or 32) for each lane of `lanes`, a set of bits, in ascending order where lanes overlap.
    ///
    /// # Errors
    /// The lowest lane whose [`Memory::store`] fails; lanes below it have stored.
    #[inline]
    pub fn store_warp<const N: usize>(
        &mut self,
        addresses: &[u64; WARP],
        lanes: u32,
        rank: usize,
        values: &[[u8; N]; WARP],
    ) -> Result<(), LaneError> {
        if let Some(place) = self.contiguous::<N>(addresses, lanes, rank) {
            let allocation = &mut self.allocations[place.allocation.index()];
            let from = place.offset as usize;
            if let Some(bytes) = allocation.bytes.get_mut(from..from + N * WARP) {
                bytes.copy_from_slice(values.as_flattened());
                if let Some(written) = &mut allocation.written {
                    written.set_all(place.offset, (N * WARP) as u64);
                }
                return Ok(());
            }
        }
        for_each_lane(lanes, |lane| self.store(Address(addresses[lane]), rank, values[lane]))
    }

    /// Where all lanes access one aligned stretch that `rank` may access, the place of lane 0; also for a race check of the whole stretch.
    #[inline]
    pub fn contiguous<const N: usize>(&self, addresses: &[u64; WARP], lanes: u32, rank: usize) -> Option<GlobalAddr> {
        let first = addresses[0];
        let in_order = lanes == u32::MAX
            && first.is_multiple_of(N as u64)
            && addresses
                .iter()
                .enumerate()
                .fold(true, |so_far, (lane, &address)| so_far & (address == first.wrapping_add((lane * N) as u64)));
        if in_order { self.resolve(Address(first), (N * WARP) as u64, rank).ok() } else { None }
    }
}

/// Calls `access` for the lanes of a set in ascending order, up to the first error.
#[inline]
fn for_each_lane(lanes: u32, mut access: impl FnMut(usize) -> Result<(), AccessError>) -> Result<(), LaneError> {
    let mut rest = lanes;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        access(lane).map_err(|error| LaneError { lane, error })?;
        rest &= rest - 1;
    }
    Ok(())
}
