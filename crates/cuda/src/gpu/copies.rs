//! Copies from device memory to device memory. Several that may be done in any order are one call of the driver where it has one for that: a batch.
//!
//! Of a batch the driver says that it comes in stream order as a whole, and nothing of the order within. So a batch holds only copies of which none
//! touches what another writes. A graph takes no batch: what is captured is enqueued one by one.

use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{
    CUdeviceptr, CUmemLocation, CUmemLocationType, CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder, CUstream,
};

use crate::vendor::driver::{CudaError, Driver};

/// A copy, also to a peer's memory. An address means the same memory on all ranks: each has its own range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Address of the source.
    pub(crate) from: u64,
    /// Address of the destination.
    pub(crate) to: u64,
    /// Bytes.
    pub(crate) bytes: u64,
}

impl Copy {
    /// Whether both may be under way at once.
    fn is_independent_of(&self, other: &Copy) -> bool {
        let apart = |a: u64, b: u64| a.saturating_add(self.bytes) <= b || b.saturating_add(other.bytes) <= a;
        apart(self.to, other.to) && apart(self.to, other.from) && apart(self.from, other.to)
    }
}

/// Whether copies, each of which may be done at any time among its own, may be done in any order all together.
pub(crate) fn may_join(copies: &[Copy], more: &[Copy]) -> bool {
    more.iter().all(|copy| copies.iter().all(|other| copy.is_independent_of(other)))
}

/// cuMemcpyBatchAsync as it is since CUDA 13.0: the one of 12.8, without `_v2`, takes another argument.
type BatchAsync = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    CUstream,
) -> u32;

/// The driver's batches.
pub(crate) struct Batches {
    driver: &'static Driver,
    function: BatchAsync,
    made: AtomicU64,
}

impl Batches {
    /// `None` where the driver is older than they are.
    pub(crate) fn of(driver: &'static Driver) -> Option<Batches> {
        Some(Batches { driver, function: driver.functions.cuMemcpyBatchAsync_v2?, made: AtomicU64::new(0) })
    }

    /// How many were enqueued so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Enqueues copies that [`may_join`], none of them empty, on a stream that is not being captured.
    pub(crate) fn enqueue(&self, copies: &[Copy], stream: CUstream) -> Result<(), CudaError> {
        let mut to: Vec<CUdeviceptr> = copies.iter().map(|copy| copy.to).collect();
        let mut from: Vec<CUdeviceptr> = copies.iter().map(|copy| copy.from).collect();
        let mut bytes: Vec<usize> = copies.iter().map(|copy| copy.bytes as usize).collect();
        // One set of attributes, from copy 0 on.
        let (mut attributes, mut since) = (attributes(), 0);
        // SAFETY: the function has the signature that the bindings give it, which the table's declaration checks; the arrays have as many entries as the
        // call says, and it reads them before it returns.
        let code = unsafe {
            (self.function)(to.as_mut_ptr(), from.as_mut_ptr(), bytes.as_mut_ptr(), copies.len(), &mut attributes, &mut since, 1, stream)
        };
        self.driver.check("cuMemcpyBatchAsync", code).map_err(|error| error.during(format!("{} copies", copies.len())))?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What holds of all copies: sources are what the stream has left there, and SMs are for what runs beside. Hints of places are for managed
/// memory and the host's.
fn attributes() -> CUmemcpyAttributes {
    let nowhere = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
    CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        srcLocHint: nowhere,
        dstLocHint: nowhere,
        flags: CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    fn joined(copies: &[(u64, u64, u64)]) -> bool {
        let copies: Vec<Copy> = copies.iter().map(|&(from, to, bytes)| Copy { from, to, bytes }).collect();
        (1..copies.len()).all(|at| may_join(&copies[..at], &copies[at..=at]))
    }

    /// If this fails, copies are done at once of which one reads or overwrites what another writes.
    #[test]
    fn only_independent_copies_are_joined() {
        let first = (1000, 2000, 100);
        assert!(joined(&[first, (1000, 3000, 100), (1050, 2100, 100), (900, 1900, 100)]), "sources may be shared, and regions may touch");
        assert!(!joined(&[first, (5000, 2099, 10)]), "both write a byte");
        assert!(!joined(&[first, (2099, 5000, 10)]), "the second reads what the first writes");
        assert!(!joined(&[first, (5000, 991, 10)]), "the second writes what the first reads");
        assert!(!joined(&[first, (5000, 6000, 10), (7000, 2050, 1)]), "not only neighbours count");
        assert!(!joined(&[(0, 10, u64::MAX), (5, 6, 1)]));
    }

    /// As cuda.h of CUDA 13.0 has them.
    #[test]
    fn attributes_are_laid_out_as_the_driver_reads_them() {
        assert_eq!(size_of::<CUmemcpyAttributes>(), 24);
        let offsets = [
            offset_of!(CUmemcpyAttributes, srcAccessOrder),
            offset_of!(CUmemcpyAttributes, srcLocHint),
            offset_of!(CUmemcpyAttributes, dstLocHint),
            offset_of!(CUmemcpyAttributes, flags),
        ];
        assert_eq!(offsets, [0, 4, 12, 20]);
        assert_eq!((attributes().srcAccessOrder as u32, attributes().flags), (1, 1));
    }
}
