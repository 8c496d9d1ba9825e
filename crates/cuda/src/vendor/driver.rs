//! The CUDA driver: its functions, checked calls, and errors with names.

use std::{
    ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void},
    fmt,
    ptr::null,
    sync::OnceLock,
};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph, CUgraphExec,
    CUjit_option, CUlaunchConfig, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemcpyAttributes, CUmodule, CUstream, CUstreamBatchMemOpParams, CUstreamCaptureMode, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle, CUuuid,
};

use super::loader::{self, LoadError, function_table};

function_table! {
    /// What is used of libcuda.
    struct Functions;
    bindings sys::CUresult {
        fn cuInit(c_uint);
        fn cuDriverGetVersion(*mut c_int);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut CUdevice, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        fn cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        fn cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        fn cuCtxSetCurrent(CUcontext);
        fn cuStreamCreate(*mut CUstream, c_uint);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamQuery(CUstream);
        fn cuStreamSynchronize(CUstream);
        fn cuStreamBatchMemOp_v2(CUstream, c_uint, *mut CUstreamBatchMemOpParams, c_uint);
        fn cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        fn cuGraphUpload(CUgraphExec, CUstream);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphDestroy(CUgraph);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuEventCreate(*mut CUevent, c_uint);
        fn cuEventDestroy_v2(CUevent);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventQuery(CUevent);
        fn cuEventSynchronize(CUevent);
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
        fn cuEventElapsedTime_v2(*mut f32, CUevent, CUevent);
        fn cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void);
        fn cuModuleUnload(CUmodule);
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        fn cuFuncLoad(CUfunction);
        fn cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
        fn cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
        fn cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);
        fn cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        fn cuMemRelease(CUmemGenericAllocationHandle);
        fn cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        fn cuMemAddressFree(CUdeviceptr, usize);
        fn cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        fn cuMemUnmap(CUdeviceptr, usize);
        fn cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, CUmemAllocationHandleType, c_ulonglong);
        fn cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, CUmemAllocationHandleType);
        fn cuTensorMapEncodeTiled(
            *mut CUtensorMap, CUtensorMapDataType, c_uint, *mut c_void, *const c_ulonglong, *const c_ulonglong, *const c_uint, *const c_uint,
            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill,
        );
        fn cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    }
    own {
        fn cuGetErrorName(u32, *mut *const c_char) -> u32;
    }
    optional {
        fn cuMemcpyBatchAsync_v2(
            *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, CUstream,
        );
    }
}

/// The driver, loaded once and for the life of the process.
pub(crate) struct Driver {
    /// For [`call`].
    pub(crate) functions: Functions,
}

/// A call of the CUDA driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// The function, and what it was called for where that helps.
    pub what: String,
    /// The driver's number for the error.
    pub code: u32,
    /// The driver's name for the error: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {} ({})", self.what, self.name, self.code)
    }
}

impl std::error::Error for CudaError {}

impl CudaError {
    /// The same error with more about what was being done.
    pub(crate) fn during(mut self, what: impl fmt::Display) -> CudaError {
        self.what = format!("{} ({what})", self.what);
        self
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }

    pub(crate) fn is_not_ready(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NOT_READY as u32
    }

    pub(crate) fn is_no_device(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NO_DEVICE as u32
    }
}

/// Calls a function of a vendor's library and turns what it returns into a `Result`.
///
/// It has no `unsafe` of its own: a use is `unsafe { call!(driver, cuName(..)) }` under a comment that says why its pointers and handles are right. Their types
/// are what the vendor declares: [`function_table`] checks them.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let library = &$library;
        let code = (library.functions.$name)($($argument),*);
        library.check(stringify!($name), code)
    }};
}
pub(crate) use call;

impl Driver {
    /// The process's driver, not yet initialised.
    ///
    /// # Errors
    /// When libcuda is missing or too old.
    pub(crate) fn get() -> Result<&'static Driver, LoadError> {
        static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
        DRIVER.get_or_init(|| loader::load_cuda(Functions::resolve).map(|functions| Driver { functions })).as_ref().map_err(Clone::clone)
    }

    /// Initialises the driver; later calls do nothing.
    pub(crate) fn initialise(&self) -> Result<(), CudaError> {
        // SAFETY: it takes a number.
        unsafe { call!(self, cuInit(0)) }
    }

    /// The newest CUDA that the driver can do, as CUDA's integer: 13000 for 13.0.
    pub(crate) fn version(&self) -> Result<i32, CudaError> {
        let mut version = 0;
        // SAFETY: it writes one number, to a local that outlives the call.
        unsafe { call!(self, cuDriverGetVersion(&mut version)) }?;
        Ok(version)
    }

    /// GPUs that this process may see.
    pub(crate) fn device_count(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one number, to a local that outlives the call.
        unsafe { call!(self, cuDeviceGetCount(&mut count)) }?;
        Ok(count.max(0) as usize)
    }

    /// What a function of the driver returned, as a result. For [`call`].
    pub(crate) fn check(&self, what: &str, code: u32) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(CudaError { what: what.into(), code, name: self.name_of(code) }) }
    }

    /// The driver's own name for an error code. Safe before initialisation and for codes it does not know.
    fn name_of(&self, code: u32) -> String {
        let mut name: *const c_char = null();
        // SAFETY: the driver sets the pointer to a string of its own that lives forever, or to null.
        let known = unsafe { (self.functions.cuGetErrorName)(code, &mut name) } == 0 && !name.is_null();
        // SAFETY: as above.
        if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { format!("CUDA error {code}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without a driver, and with one, asking never panics.
    #[test]
    fn a_missing_driver_is_an_error_that_names_the_library() {
        match Driver::get() {
            Ok(driver) => assert_eq!(driver.check("cuInit", 1).unwrap_err().name, "CUDA_ERROR_INVALID_VALUE"),
            Err(error) => assert_eq!((error.library.as_str(), &error.searched[..]), ("libcuda.so.1", &["libcuda.so.1".to_owned()][..])),
        }
    }

    #[test]
    fn errors_carry_call_and_name() {
        let error = CudaError { what: "cuMemCreate".into(), code: 2, name: "CUDA_ERROR_OUT_OF_MEMORY".into() };
        assert!(error.is_out_of_memory());
        assert_eq!(error.during("64 MiB for rank 3").to_string(), "cuMemCreate (64 MiB for rank 3) failed: CUDA_ERROR_OUT_OF_MEMORY (2)");
    }
}
