//! Devices: one GPU each, with its primary context and a stream for what is no rank's own.

use std::{
    ffi::{CStr, c_char, c_int},
    ptr::null_mut,
    sync::Mutex,
};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUuuid};

use super::stream::{Pinned, Stream};
use crate::vendor::driver::{CudaError, Driver, call};

/// Bytes of pinned memory for reading stuck reports: more than the largest report of kernels/common/signals.cuh.
const PINNED_BYTES: usize = 64 << 10;

/// One GPU.
pub(crate) struct Device {
    pub(crate) driver: &'static Driver,
    /// Number of the GPU, as CUDA counts those that the process may see.
    pub(crate) ordinal: usize,
    pub(crate) raw: CUdevice,
    context: CUcontext,
    /// Whether a stream's wait for a word can flush what peers wrote before it, as devices that reorder such writes must.
    pub(crate) flushes_remote_writes: bool,
    /// The driver's name for it.
    pub(crate) name: String,
    /// What is nobody else's, whichever process asks.
    pub(crate) uuid: [u8; 16],
    /// Where on the bus it is: `0000:04:00.0`.
    pub(crate) bus_id: String,
    /// Streaming SMs.
    pub(crate) sms: u32,
    /// Compute capability.
    pub(crate) capability: (i32, i32),
    /// For setting up, reading and writing. Ranks' work never runs here, so it moves while theirs hangs.
    pub(crate) service: Stream,
    /// Where reads go that must not hold up the host. Allocated here, for allocating waits for the device.
    pub(crate) pinned: Mutex<Pinned>,
}

// SAFETY: the driver's functions may be called on a context from any thread.
unsafe impl Send for Device {}
// SAFETY: as above, and from several at once.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU number `ordinal`, which exists, and makes its primary context current. The context is never released: other libraries
    /// of the process share it.
    pub(crate) fn open(driver: &'static Driver, ordinal: usize) -> Result<Device, CudaError> {
        let mut raw: CUdevice = 0;
        // SAFETY: it writes one device number, to a local that outlives the call; an ordinal that is none is an error.
        unsafe { call!(driver, cuDeviceGet(&mut raw, ordinal as c_int)) }?;
        // SAFETY: `text` gives room for `length` bytes at `at`; `raw` is a device that the driver named.
        let name = text(|at, length| unsafe { call!(driver, cuDeviceGetName(at, length, raw)) })?;
        // SAFETY: `text` gives room for `length` bytes at `at`; `raw` is a device that the driver named.
        let bus_id = text(|at, length| unsafe { call!(driver, cuDeviceGetPCIBusId(at, length, raw)) })?;
        let uuid = uuid(driver, raw)?;
        let attribute = |which| attribute(driver, raw, which);
        let sms = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(0) as u32;
        let capability = (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let flushes_remote_writes = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)? != 0;
        let mut context: CUcontext = null_mut();
        // SAFETY: it writes one handle, to a local that outlives the call; `raw` is a device that the driver named.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut context, raw)) }.map_err(|error| error.during(format!("GPU {ordinal}")))?;
        // SAFETY: the context was retained in `open` and is never released.
        unsafe { call!(driver, cuCtxSetCurrent(context)) }?;
        let service = Stream::new(driver)?;
        let pinned = Mutex::new(Pinned::new(driver, PINNED_BYTES)?);
        Ok(Device { driver, ordinal, raw, context, flushes_remote_writes, name, uuid, bus_id, sms, capability, service, pinned })
    }

    /// Makes its context the calling thread's current one.
    pub(crate) fn make_current(&self) -> Result<(), CudaError> {
        // SAFETY: the context was retained in `open` and is never released.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.context)) }
    }

    /// Whether it has the VMM API and can share what it allocates by file descriptor.
    pub(crate) fn has_symmetric_memory(&self) -> Result<bool, CudaError> {
        let has = |which| attribute(self.driver, self.raw, which).map(|value| value != 0);
        Ok(has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?
            && has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?)
    }

    /// Bytes of its memory that are in use, by whomever. Its context is current.
    pub(crate) fn memory_in_use(&self) -> Result<u64, CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers, to locals that outlive the call.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((total - free) as u64)
    }

    /// Whether it can address memory of `peer`; always its own.
    pub(crate) fn can_access(&self, peer: &Device) -> Result<bool, CudaError> {
        self.can_access_raw(peer.raw)
    }

    /// Whether it can address memory of the GPU that has a UUID, which another process has opened: none where this process does not see that GPU.
    pub(crate) fn can_access_of(&self, peer: [u8; 16]) -> Result<Option<bool>, CudaError> {
        for ordinal in 0..self.driver.device_count()? {
            let mut raw: CUdevice = 0;
            // SAFETY: it writes one device number, to a local that outlives the call; an ordinal that is none is an error.
            unsafe { call!(self.driver, cuDeviceGet(&mut raw, ordinal as c_int)) }?;
            if uuid(self.driver, raw)? == peer {
                return self.can_access_raw(raw).map(Some);
            }
        }
        Ok(None)
    }

    fn can_access_raw(&self, peer: CUdevice) -> Result<bool, CudaError> {
        if self.raw == peer {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: it writes one number, to a local that outlives the call; both devices are the driver's own.
        unsafe { call!(self.driver, cuDeviceCanAccessPeer(&mut can, self.raw, peer)) }?;
        Ok(can != 0)
    }
}

fn uuid(driver: &Driver, device: CUdevice) -> Result<[u8; 16], CudaError> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: it writes 16 bytes, to a local of that size that outlives the call.
    unsafe { call!(driver, cuDeviceGetUuid_v2(&mut uuid, device)) }?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

impl Drop for Device {
    /// What it holds is freed in its context.
    fn drop(&mut self) {
        let _ = self.make_current();
    }
}

/// A text that the driver writes.
fn text(write: impl FnOnce(*mut c_char, c_int) -> Result<(), CudaError>) -> Result<String, CudaError> {
    let mut text: [c_char; 256] = [0; 256];
    write(text.as_mut_ptr(), text.len() as c_int - 1)?;
    // SAFETY: the last byte is zero whatever the driver wrote before it.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn attribute(driver: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<c_int, CudaError> {
    let mut value = 0;
    // SAFETY: it writes one number, to a local that outlives the call; `device` is the driver's own.
    unsafe { call!(driver, cuDeviceGetAttribute(&mut value, which, device)) }?;
    Ok(value)
}
