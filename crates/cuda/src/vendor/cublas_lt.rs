//! cuBLASLt: products of matrices by the algorithm that its heuristic names first.
//!
//! It has column-major matrices. A row-major C = A x B is the column-major product of B's transpose and A's transpose, which are the same bytes: the
//! library's first operand is B and its second A.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
    path::Path,
    ptr::null_mut,
    sync::Arc,
};

use cudarc::{
    cublaslt::sys::{
        self, cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
        cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t,
        cudaDataType, cudaStream_t,
    },
    driver::sys::CUstream,
};

use super::{
    driver::call,
    loader::{self, LoadError, function_table},
};
use passmuster_plan::{
    collective::{DType, Layout, Product},
    plan::MatmulCall,
};

function_table! {
    /// What is used of libcublasLt.
    struct Functions;
    bindings sys::cublasStatus_t {
        fn cublasLtCreate(*mut cublasLtHandle_t);
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType);
        fn cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize);
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64);
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize);
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int, *mut cublasLtMatmulHeuristicResult_t, *mut c_int
        );
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t, *mut c_void, usize, cudaStream_t
        );
    }
    own {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusName(u32) -> *const c_char;
    }
    optional {}
}

/// `cublasOperation_t` of cublas_api.h.
const AS_IT_IS: i32 = 0;
const TRANSPOSED: i32 = 1;

/// A call of cuBLASLt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CublasError {
    /// The function.
    pub(crate) what: String,
    /// The library's name for the error.
    pub(crate) code: String,
}

impl fmt::Display for CublasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.what, self.code)
    }
}

/// A loaded cuBLASLt.
pub(crate) struct CublasLt {
    functions: Functions,
    /// `13.1.0` and the like.
    pub(crate) version: String,
    /// The file it came from.
    pub(crate) path: String,
}

impl CublasLt {
    /// Finds and loads it.
    ///
    /// # Errors
    /// When there is none where it was searched.
    pub(crate) fn load(explicit: Option<&Path>) -> Result<CublasLt, LoadError> {
        let (functions, path) = loader::load_cublas_lt(explicit, Functions::resolve)?;
        // SAFETY: it takes nothing.
        let version = unsafe { (functions.cublasLtGetVersion)() };
        // 130100 is 13.1.0; before 12 a digit less for the minor version, which are too old for this driver anyway.
        let version = format!("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
        Ok(CublasLt { functions, version, path })
    }

    fn check(&self, what: &str, code: u32) -> Result<(), CublasError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any code is allowed; the string lives as long as the library.
        let name = unsafe {
            let name = (self.functions.cublasLtGetStatusName)(code);
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
        };
        Err(CublasError { what: what.into(), code: format!("{name} ({code})") })
    }
}

/// The library on one device. It lives as long as the process.
pub(crate) struct Handle {
    library: Arc<CublasLt>,
    raw: cublasLtHandle_t,
}

// SAFETY: a handle may be used from several threads at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// On the device whose context is current.
    pub(crate) fn new(library: Arc<CublasLt>) -> Result<Handle, CublasError> {
        let mut raw = null_mut();
        // SAFETY: it writes one handle, to a local that outlives the call.
        unsafe { call!(library, cublasLtCreate(&mut raw)) }?;
        Ok(Handle { library, raw })
    }
}

/// What a `cublasLt...Destroy` frees.
struct Owned<T: Copy> {
    raw: T,
    destroy: unsafe extern "C" fn(T) -> u32,
}

impl<T: Copy> Owned<T> {
    fn new(
        destroy: unsafe extern "C" fn(T) -> u32,
        null: T,
        make: impl FnOnce(&mut T) -> Result<(), CublasError>,
    ) -> Result<Self, CublasError> {
        let mut raw = null;
        make(&mut raw)?;
        Ok(Owned { raw, destroy })
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: it was made by this library and is destroyed once. Kernels under way do not use it.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// A product made ready for a device.
pub(crate) struct Matmul {
    handle: Arc<Handle>,
    description: Owned<cublasLtMatmulDesc_t>,
    /// Of B, A and C, in the library's order.
    layouts: [Owned<cublasLtMatrixLayout_t>; 3],
    algorithm: cublasLtMatmulAlgo_t,
}

// SAFETY: it is read only once it is made.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

impl Matmul {
    /// Asks the heuristic for the best algorithm with this workspace.
    ///
    /// # Errors
    /// Those of the library; one that names the product where it knows no algorithm.
    pub(crate) fn prepare(handle: Arc<Handle>, call: &MatmulCall) -> Result<Matmul, CublasError> {
        let library = handle.library.clone();
        let functions = &library.functions;
        let Product { dtype, rows, columns, depth, layout } = call.product;
        let dtype = if dtype == DType::BF16 { cudaDataType::CUDA_R_16BF } else { cudaDataType::CUDA_R_16F };
        let description = Owned::new(functions.cublasLtMatmulDescDestroy, null_mut(), |raw| {
            // SAFETY: it writes one handle, to `raw`.
            unsafe { call!(library, cublasLtMatmulDescCreate(raw, cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F)) }
        })?;
        let describe = |attribute, value: i32| {
            let at = (&raw const value).cast::<c_void>();
            // SAFETY: it reads as many bytes as it says of `value`, which is of the type of these attributes; `description` owns the handle.
            unsafe { call!(library, cublasLtMatmulDescSetAttribute(description.raw, attribute, at, size_of::<i32>())) }
        };
        let transposed = if layout == Layout::Nk { TRANSPOSED } else { AS_IT_IS };
        describe(cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, transposed)?;
        if let Some(sms) = call.sms {
            // A target: more than any device has is all of it.
            let target = i32::try_from(sms).unwrap_or(i32::MAX);
            describe(cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target)?;
        }
        let layout_of = |rows, columns| {
            Owned::new(functions.cublasLtMatrixLayoutDestroy, null_mut(), |raw| {
                // SAFETY: it writes one handle, to `raw`.
                unsafe { call!(library, cublasLtMatrixLayoutCreate(raw, dtype, rows, columns, rows as i64)) }
            })
        };
        let b = if layout == Layout::Nk { layout_of(depth, columns)? } else { layout_of(columns, depth)? };
        let layouts = [b, layout_of(depth, rows)?, layout_of(columns, rows)?];
        let preference =
            // SAFETY: it writes one handle, to `raw`.
            Owned::new(functions.cublasLtMatmulPreferenceDestroy, null_mut(), |raw| unsafe { call!(library, cublasLtMatmulPreferenceCreate(raw)) })?;
        let (attribute, bytes) = (cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, call.workspace.bytes);
        // SAFETY: it reads as many bytes as it says of `bytes`, which is of the type of this attribute; `preference` owns the handle.
        unsafe {
            call!(library, cublasLtMatmulPreferenceSetAttribute(preference.raw, attribute, (&raw const bytes).cast(), size_of::<u64>()))
        }?;
        // SAFETY: plain numbers, of which zero is one of each.
        let mut best: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = 0;
        let [b, a, c] = layouts.each_ref().map(|layout| layout.raw);
        // SAFETY: all handles are owned by what lives here; it writes one result and one number, as it is asked for at most one.
        unsafe {
            call!(
                library,
                cublasLtMatmulAlgoGetHeuristic(handle.raw, description.raw, b, a, c, c, preference.raw, 1, &mut best, &mut found)
            )
        }?;
        if found == 0 {
            let code = format!("no algorithm for {call} with {bytes} bytes of workspace");
            return Err(CublasError { what: "cublasLtMatmulAlgoGetHeuristic".into(), code });
        }
        Ok(Matmul { handle, description, layouts, algorithm: best.algo })
    }

    /// Enqueues it. `a`, `b`, `c` and `workspace` with its bytes are in the memory of the device.
    pub(crate) fn enqueue(&self, [a, b, c]: [u64; 3], workspace: (u64, u64), stream: CUstream) -> Result<(), CublasError> {
        let library = &self.handle.library;
        let (one, zero) = (1.0f32, 0.0f32);
        let [of_b, of_a, of_c] = self.layouts.each_ref().map(|layout| layout.raw);
        // SAFETY: `self` owns the handles; the factors are read during the call, as descriptions say that they lie on the host. The host follows no device address.
        unsafe {
            call!(
                library,
                cublasLtMatmul(
                    self.handle.raw,
                    self.description.raw,
                    (&raw const one).cast(),
                    b as *const c_void,
                    of_b,
                    a as *const c_void,
                    of_a,
                    (&raw const zero).cast(),
                    c as *const c_void,
                    of_c,
                    c as *mut c_void,
                    of_c,
                    &self.algorithm,
                    workspace.0 as *mut c_void,
                    workspace.1 as usize,
                    stream.cast(),
                )
            )
        }
    }
}
