//! Symmetric memory: VMM allocations that every device of the machine can address, carved into groups. Between processes they travel as file descriptors.
//!
//! Allocating and mapping takes milliseconds and NCCL's windows belong to allocations, so chunks are kept and reused: a chunk is one
//! allocation of the same size for each rank, a group lies in one chunk at the same distance from its start on all ranks.

use std::{
    ffi::c_int,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::device::Device;
use crate::vendor::driver::{CudaError, Driver, call};

/// Bytes of the first chunk; smaller ones are not made.
const FIRST_CHUNK: u64 = 64 << 20;

/// Above this, chunks are multiples of it; below, powers of two.
const LARGE_CHUNK: u64 = 1 << 30;

/// Groups start at multiples of this within their chunk.
const GROUP_ALIGNMENT: u64 = 4096;

/// Memory of a device that has no address yet, or whose mappings keep it: given back when this is dropped and it is mapped nowhere.
pub(crate) struct Physical {
    driver: &'static Driver,
    raw: CUmemGenericAllocationHandle,
    bytes: usize,
    /// What sizes and addresses are multiples of.
    granularity: usize,
}

/// By which kind of handle other processes are given memory.
const SHARED_BY: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn location(device: &Device) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device.ordinal as i32 }
}

fn properties(device: &Device) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: SHARED_BY,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 { compressionType: 0, gpuDirectRDMACapable: 0, usage: 0, reserved: [0; 4] },
    }
}

fn granularity(device: &Device) -> Result<usize, CudaError> {
    let (mut granularity, recommended) = (0, CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    // SAFETY: it reads the properties and writes one number; both outlive the call.
    unsafe { call!(device.driver, cuMemGetAllocationGranularity(&mut granularity, &properties(device), recommended)) }?;
    Ok(granularity.max(1))
}

impl Physical {
    /// Allocates at least `bytes` on a device.
    pub(crate) fn allocate(device: &Device, bytes: u64) -> Result<Physical, CudaError> {
        let (driver, granularity) = (device.driver, granularity(device)?);
        let bytes = (bytes as usize).next_multiple_of(granularity);
        let mut raw = 0;
        // SAFETY: it reads the properties and writes one handle; both outlive the call.
        unsafe { call!(driver, cuMemCreate(&mut raw, bytes, &properties(device), 0)) }
            .map_err(|error| error.during(format!("{bytes} bytes on GPU {}", device.ordinal)))?;
        Ok(Physical { driver, raw, bytes, granularity })
    }

    /// A descriptor by which another process imports it.
    pub(crate) fn export(&self) -> Result<OwnedFd, CudaError> {
        let mut descriptor: c_int = -1;
        // SAFETY: of memory with a file descriptor it writes one, to a local of that type; `self` owns the memory.
        unsafe { call!(self.driver, cuMemExportToShareableHandle((&raw mut descriptor).cast(), self.raw, SHARED_BY, 0)) }?;
        // SAFETY: the driver has just made it, for its caller to close.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// What another process has exported, of `bytes` bytes, for a device of this one.
    pub(crate) fn import(device: &Device, descriptor: &OwnedFd, bytes: usize) -> Result<Physical, CudaError> {
        let (driver, granularity, mut raw) = (device.driver, granularity(device)?, 0);
        // The driver takes the number in the pointer's place, and the descriptor stays its owner's.
        let number = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: of this kind the pointer is a descriptor's number, never followed; `descriptor` is open. It writes one handle, to a local.
        unsafe { call!(driver, cuMemImportFromShareableHandle(&mut raw, number, SHARED_BY)) }?;
        Ok(Physical { driver, raw, bytes, granularity })
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives it an address, at which these devices may read and write it.
    pub(crate) fn map<'d>(&self, devices: impl IntoIterator<Item = &'d Device>) -> Result<Allocation, CudaError> {
        let Physical { driver, raw, bytes, granularity } = *self;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access: Vec<CUmemAccessDesc> =
            devices.into_iter().map(|device| CUmemAccessDesc { location: location(device), flags }).collect();
        let mut address = 0;
        // SAFETY: it writes one address, to a local that outlives the call.
        unsafe { call!(driver, cuMemAddressReserve(&mut address, bytes, granularity, 0, 0)) }?;
        // SAFETY: the addresses were reserved above and nothing else is mapped there; `self` owns the memory.
        if let Err(error) = unsafe { call!(driver, cuMemMap(address, bytes, 0, raw, 0)) } {
            // SAFETY: the addresses were reserved with this size, nothing is mapped there any more, and they are freed once.
            let _ = unsafe { call!(driver, cuMemAddressFree(address, bytes)) };
            return Err(error);
        }
        let allocation = Allocation { driver, address, bytes: bytes as u64 };
        // SAFETY: `access` has as many entries as it says, and outlives the call; the addresses were mapped above.
        unsafe { call!(driver, cuMemSetAccess(address, bytes, access.as_ptr(), access.len())) }?;
        Ok(allocation)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: `self` owns the handle and releases it once; mappings keep the memory.
        let _ = unsafe { call!(self.driver, cuMemRelease(self.raw)) };
    }
}

/// Memory of one device, mapped for devices that can reach it.
pub(crate) struct Allocation {
    driver: &'static Driver,
    address: u64,
    bytes: u64,
}

impl Allocation {
    /// That of a rank whose memory this one cannot address: none.
    pub(crate) fn elsewhere(driver: &'static Driver) -> Allocation {
        Allocation { driver, address: 0, bytes: 0 }
    }

    /// The address at this distance from its start; null of memory elsewhere.
    fn at(&self, offset: u64) -> u64 {
        if self.address == 0 { 0 } else { self.address + offset }
    }

    /// Allocates `bytes`, a multiple of 2 MiB, on `device`, for all of a machine's devices that can reach it.
    fn new(device: &Device, machine: &[Arc<Device>], bytes: u64) -> Result<Allocation, CudaError> {
        let mut reachable = Vec::new();
        for peer in machine {
            if peer.can_access(device)? {
                reachable.push(&**peer);
            }
        }
        Physical::allocate(device, bytes)?.map(reachable)
    }
}

impl Drop for Allocation {
    /// Nothing may be using the memory.
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        // SAFETY: `self` mapped these addresses with this size, and unmaps them once. Nothing uses them: see above.
        let _ = unsafe { call!(self.driver, cuMemUnmap(self.address, self.bytes as usize)) };
        // SAFETY: the addresses were reserved with this size, nothing is mapped there any more, and they are freed once.
        let _ = unsafe { call!(self.driver, cuMemAddressFree(self.address, self.bytes as usize)) };
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
pub(crate) struct GroupPlacement {
    /// Number of the chunk.
    pub(crate) chunk: usize,
    /// Address of the group's first byte on each rank; null of ranks elsewhere.
    pub(crate) bases: Vec<u64>,
}

/// All chunks of a machine.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
}

impl Arena {
    /// Finds or makes room for `bytes` bytes on each of `world` ranks. `allocate` gets bytes and ranks; it allocates for each of these, or for more, in order.
    ///
    /// # Errors
    /// What `allocate` says.
    pub(crate) fn place<E>(
        &mut self,
        world: usize,
        bytes: u64,
        mut allocate: impl FnMut(u64, Range<usize>) -> Result<Vec<Allocation>, E>,
    ) -> Result<GroupPlacement, E> {
        let start = |chunk: &Chunk| chunk.used.next_multiple_of(GROUP_ALIGNMENT);
        let fits = |chunk: &Chunk| start(chunk) + bytes <= chunk.bytes;
        let mut extend = |chunk: &mut Chunk| {
            if chunk.ranks.len() < world {
                chunk.ranks.extend(allocate(chunk.bytes, chunk.ranks.len()..world)?);
            }
            Ok(())
        };
        let number = match self.chunks.iter().position(fits) {
            Some(number) => number,
            None => {
                let mut chunk = Chunk { bytes: chunk_bytes(bytes), used: 0, ranks: Vec::new() };
                extend(&mut chunk)?;
                self.chunks.push(chunk);
                self.chunks.len() - 1
            }
        };
        let chunk = &mut self.chunks[number];
        extend(chunk)?;
        let offset = start(chunk);
        chunk.used = offset + bytes;
        Ok(GroupPlacement { chunk: number, bases: chunk.ranks[..world].iter().map(|allocation| allocation.at(offset)).collect() })
    }

    /// Address and size in bytes of a chunk on one rank.
    pub(crate) fn chunk(&self, number: usize, rank: usize) -> (u64, u64) {
        let allocation = &self.chunks[number].ranks[rank];
        (allocation.address, allocation.bytes)
    }

    /// Makes all chunks empty again. Their memory, and windows on it, stay.
    pub(crate) fn reset(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.used = 0);
    }
}

/// Allocates `bytes` for each of some ranks of this process, which have these devices. `machine` are all devices.
///
/// # Errors
/// When the driver has no memory left.
pub(crate) fn allocate(
    devices: &[Arc<Device>],
    machine: &[Arc<Device>],
    bytes: u64,
    ranks: Range<usize>,
) -> Result<Vec<Allocation>, CudaError> {
    let of_rank = |rank: usize| {
        let device = &devices[rank];
        device.make_current()?;
        Allocation::new(device, machine, bytes).map_err(|error| error.during(format!("rank {rank}")))
    };
    ranks.map(of_rank).collect()
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
