//! Symmetric memory: VMM allocations that every device of the machine can address, carved into groups.
//!
//! Allocating and mapping takes milliseconds and NCCL's windows belong to allocations, so chunks are kept and reused: a chunk is one
//! allocation of the same size for each rank, a group lies in one chunk at the same distance from its start on all ranks.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::{
    device::Device,
    driver::{CudaError, Driver, call},
};

/// Bytes of the first chunk; smaller ones are not made.
const FIRST_CHUNK: u64 = 64 << 20;

/// Above this, chunks are multiples of it; below, powers of two.
const LARGE_CHUNK: u64 = 1 << 30;

/// Groups start at multiples of this within their chunk.
const GROUP_ALIGNMENT: u64 = 4096;

/// Memory of one device, mapped for all devices that can reach it.
struct Allocation {
    driver: &'static Driver,
    address: u64,
    bytes: u64,
}

impl Allocation {
    /// Allocates `bytes`, a multiple of 2 MiB, on `device`.
    fn new(device: &Device, machine: &[Arc<Device>], bytes: u64) -> Result<Allocation, CudaError> {
        let driver = device.driver;
        let location = |device: &Device| CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device.ordinal as i32 };
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: location(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 { compressionType: 0, gpuDirectRDMACapable: 0, usage: 0, reserved: [0; 4] },
        };
        let mut granularity = 0;
        let recommended = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        call!(driver, cuMemGetAllocationGranularity(&mut granularity, &properties, recommended))?;
        let size = (bytes as usize).next_multiple_of(granularity.max(1));
        let mut reachable = Vec::new();
        for peer in machine {
            if peer.can_access(device)? {
                let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
                reachable.push(CUmemAccessDesc { location: location(peer), flags });
            }
        }

        let mut handle = 0;
        call!(driver, cuMemCreate(&mut handle, size, &properties, 0))
            .map_err(|error| error.during(format!("{size} bytes on GPU {}", device.ordinal)))?;
        let mapped = Self::map(driver, handle, size, granularity, &reachable);
        // The mapping keeps the memory; the handle is no longer needed, or was of no use.
        let _ = call!(driver, cuMemRelease(handle));
        mapped
    }

    fn map(
        driver: &'static Driver,
        handle: u64,
        size: usize,
        granularity: usize,
        access: &[CUmemAccessDesc],
    ) -> Result<Allocation, CudaError> {
        let mut address = 0;
        call!(driver, cuMemAddressReserve(&mut address, size, granularity, 0, 0))?;
        if let Err(error) = call!(driver, cuMemMap(address, size, 0, handle, 0)) {
            let _ = call!(driver, cuMemAddressFree(address, size));
            return Err(error);
        }
        let allocation = Allocation { driver, address, bytes: size as u64 };
        call!(driver, cuMemSetAccess(address, size, access.as_ptr(), access.len()))?;
        Ok(allocation)
    }
}

impl Drop for Allocation {
    /// Nothing may be using the memory.
    fn drop(&mut self) {
        let _ = call!(self.driver, cuMemUnmap(self.address, self.bytes as usize));
        let _ = call!(self.driver, cuMemAddressFree(self.address, self.bytes as usize));
    }
}

/// A little memory of the current device that is not symmetric.
pub(super) struct Scratch {
    driver: &'static Driver,
    pub(super) address: u64,
}

impl Scratch {
    /// Allocates `bytes` bytes in the current context.
    pub(super) fn new(driver: &'static Driver, bytes: usize) -> Result<Scratch, CudaError> {
        let mut address = 0;
        call!(driver, cuMemAlloc_v2(&mut address, bytes))?;
        Ok(Scratch { driver, address })
    }
}

impl Drop for Scratch {
    /// Nothing may be using the memory.
    fn drop(&mut self) {
        let _ = call!(self.driver, cuMemFree_v2(self.address));
    }
}

/// An allocation of the same size for each rank so far.
struct Chunk {
    bytes: u64,
    used: u64,
    ranks: Vec<Allocation>,
}

/// Where a group lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupPlacement {
    /// Number of the chunk.
    pub(super) chunk: usize,
    /// Address of the group's first byte on each rank.
    pub(super) bases: Vec<u64>,
}

/// All chunks of a machine.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
}

impl Arena {
    /// Finds or makes room for `bytes` bytes on each of `ranks`, the devices of a group's ranks. `machine` are all devices.
    ///
    /// # Errors
    /// When the driver has no memory left.
    pub(super) fn place(&mut self, ranks: &[Arc<Device>], machine: &[Arc<Device>], bytes: u64) -> Result<GroupPlacement, CudaError> {
        let start = |chunk: &Chunk| chunk.used.next_multiple_of(GROUP_ALIGNMENT);
        let fits = |chunk: &Chunk| start(chunk) + bytes <= chunk.bytes;
        let number = match self.chunks.iter().position(fits) {
            Some(number) => number,
            None => {
                let mut chunk = Chunk { bytes: chunk_bytes(bytes), used: 0, ranks: Vec::new() };
                chunk.extend(ranks, machine)?;
                self.chunks.push(chunk);
                self.chunks.len() - 1
            }
        };
        let chunk = &mut self.chunks[number];
        chunk.extend(ranks, machine)?;
        let offset = start(chunk);
        chunk.used = offset + bytes;
        Ok(GroupPlacement {
            chunk: number,
            bases: chunk.ranks[..ranks.len()].iter().map(|allocation| allocation.address + offset).collect(),
        })
    }

    /// Address and size in bytes of a chunk on one rank.
    pub(super) fn chunk(&self, number: usize, rank: usize) -> (u64, u64) {
        let allocation = &self.chunks[number].ranks[rank];
        (allocation.address, allocation.bytes)
    }

    /// Makes all chunks empty again. Their memory, and windows on it, stay.
    pub(super) fn reset(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.used = 0);
    }
}

impl Chunk {
    /// Allocates for the ranks that it has no memory for yet.
    fn extend(&mut self, ranks: &[Arc<Device>], machine: &[Arc<Device>]) -> Result<(), CudaError> {
        for (rank, device) in ranks.iter().enumerate().skip(self.ranks.len()) {
            device.make_current()?;
            let allocation = Allocation::new(device, machine, self.bytes).map_err(|error| error.during(format!("rank {rank}")))?;
            self.ranks.push(allocation);
        }
        Ok(())
    }
}

/// Size of a chunk that holds `bytes`: generous, so that the next group, a little larger, needs no new one.
fn chunk_bytes(bytes: u64) -> u64 {
    if bytes >= LARGE_CHUNK { bytes.next_multiple_of(LARGE_CHUNK) } else { bytes.next_power_of_two().max(FIRST_CHUNK) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_what_they_are_made_for() {
        for (bytes, chunk) in [(1, 64 << 20), (65 << 20, 128 << 20), (1 << 30, 1 << 30), ((1 << 30) + 1, 2 << 30), (5 << 29, 3 << 30)] {
            assert_eq!(chunk_bytes(bytes), chunk);
        }
    }
}
