//! Memory of one device that is not symmetric.

use crate::vendor::driver::{CudaError, Driver, call};

/// A little memory of the current device that is not symmetric.
pub(crate) struct Scratch {
    driver: &'static Driver,
    pub(crate) address: u64,
}

impl Scratch {
    /// Allocates `bytes` bytes in the current context.
    pub(crate) fn new(driver: &'static Driver, bytes: usize) -> Result<Scratch, CudaError> {
        let mut address = 0;
        // SAFETY: it writes one address, to a local that outlives the call.
        unsafe { call!(driver, cuMemAlloc_v2(&mut address, bytes)) }?;
        Ok(Scratch { driver, address })
    }
}

impl Drop for Scratch {
    /// Nothing may be using the memory.
    fn drop(&mut self) {
        // SAFETY: `self` allocated it and frees it once. Nothing uses it: see above.
        let _ = unsafe { call!(self.driver, cuMemFree_v2(self.address)) };
    }
}
