//! NCCL: its functions, communicators and errors with names.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
    path::Path,
    ptr::null_mut,
    sync::Arc,
};

use cudarc::{
    driver::sys::CUstream,
    nccl::sys::{self, cudaStream_t, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclUniqueId, ncclWindow_t},
};

use super::{
    driver::CudaError,
    loader::{self, LoadError, function_table},
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp},
    plan::Parts,
};

function_table! {
    /// What is used of libnccl. Results and reduction operators are integers: NCCL has more of both than the bindings' enums know.
    struct Functions;
    bindings sys::ncclResult_t {
        fn ncclGetVersion(*mut c_int);
        fn ncclGetUniqueId(*mut ncclUniqueId);
        fn ncclCommInitRankConfig(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t);
        fn ncclCommDestroy(ncclComm_t);
        fn ncclBroadcast(*const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t);
        fn ncclSend(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t);
        fn ncclRecv(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t);
        fn ncclGroupStart();
        fn ncclGroupEnd();
    }
    own {
        fn ncclAllReduce(*const c_void, *mut c_void, usize, ncclDataType_t, u32, ncclComm_t, cudaStream_t) -> u32;
        fn ncclAllGather(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, cudaStream_t) -> u32;
        fn ncclReduceScatter(*const c_void, *mut c_void, usize, ncclDataType_t, u32, ncclComm_t, cudaStream_t) -> u32;
        fn ncclReduce(*const c_void, *mut c_void, usize, ncclDataType_t, u32, c_int, ncclComm_t, cudaStream_t) -> u32;
        fn ncclRedOpCreatePreMulSum(*mut u32, *mut c_void, ncclDataType_t, u32, ncclComm_t) -> u32;
        fn ncclRedOpDestroy(u32, ncclComm_t) -> u32;
        fn ncclCommGetAsyncError(ncclComm_t, *mut u32) -> u32;
        fn ncclGetErrorString(u32) -> *const c_char;
        fn ncclGetLastError(ncclComm_t) -> *const c_char;
    }
    optional {
        fn ncclCommWindowRegister(ncclComm_t, *mut c_void, usize, *mut ncclWindow_t, c_int);
        fn ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
        fn ncclAlltoAll(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, cudaStream_t);
    }
}

/// `ncclScalarHostImmediate` of nccl.h: the factor is read before `ncclRedOpCreatePreMulSum` returns.
const SCALAR_HOST_IMMEDIATE: u32 = 1;

/// `NCCL_WIN_COLL_SYMMETRIC` of nccl.h.
const WIN_COLL_SYMMETRIC: c_int = 1;

/// `NCCL_CONFIG_INITIALIZER` of nccl.h 2.28.9. A library that knows fewer fields reads as many as it knows.
const CONFIG: ncclConfig_t = {
    const UNDEFINED: c_int = c_int::MIN;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22809,
        blocking: UNDEFINED,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: std::ptr::null(),
        splitShare: UNDEFINED,
        trafficClass: UNDEFINED,
        commName: std::ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
    }
};

/// A version as `ncclGetVersion` gives it: 22809 for 2.28.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Up to 2.8 the minor version had one digit less.
        let major_unit = if self.0 < 10000 { 1000 } else { 10000 };
        write!(f, "{}.{}.{}", self.0 / major_unit, self.0 % major_unit / 100, self.0 % 100)
    }
}

/// A call of NCCL that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NcclError {
    /// The function.
    pub(crate) what: String,
    /// NCCL's description, its number for the error, and what it logged last.
    pub(crate) code: String,
    /// Whether it does not do such a call, or not in the way that was asked for, rather than having failed at it.
    pub(crate) refused: bool,
}

impl NcclError {
    /// A failure.
    pub(crate) fn new(what: impl Into<String>, code: impl Into<String>) -> NcclError {
        NcclError { what: what.into(), code: code.into(), refused: false }
    }
}

/// `ncclInternalError` and `ncclInvalidUsage` of nccl.h: what NCCL says where it has nothing for a call, the latter where the environment left it nothing.
const REFUSALS: [u32; 2] = [3, 5];

/// Whether an error with these last words is a refusal: "no algorithm/protocol available for function AllReduce" (2.28), "No algorithm/protocol nor
/// symKernelId available for function AllReduce with datatype ncclFloat32. NCCL_SYM_KERNEL was set to AllReduce_AGxLL_R." (2.32).
fn is_refusal(code: u32, words: &str) -> bool {
    REFUSALS.contains(&code) && words.contains(" available for function ")
}

impl fmt::Display for NcclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.what, self.code)
    }
}

impl From<CudaError> for NcclError {
    fn from(error: CudaError) -> NcclError {
        NcclError::new(error.what, error.name)
    }
}

/// A loaded NCCL.
pub(crate) struct Nccl {
    functions: Functions,
    /// Its version.
    pub(crate) version: Version,
    /// The file it came from.
    pub(crate) path: String,
}

impl Nccl {
    /// Finds and loads NCCL.
    ///
    /// # Errors
    /// When there is none where it was searched, or what is there is no NCCL.
    pub(crate) fn load(explicit: Option<&Path>) -> Result<Nccl, LoadError> {
        let (functions, path) = loader::load_nccl(explicit, Functions::resolve)?;
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (functions.ncclGetVersion)(&mut version) };
        let nccl = Nccl { functions, version: Version(version), path };
        nccl.check("ncclGetVersion", code, null_mut()).map_err(|error| LoadError {
            library: "libnccl.so.2".into(),
            searched: vec![nccl.path.clone()],
            cause: error.to_string(),
        })?;
        Ok(nccl)
    }

    /// An identifier for a new communicator, to be given to all its ranks.
    pub(crate) fn unique_id(&self) -> Result<ncclUniqueId, NcclError> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the pointer is to a live identifier.
        let code = unsafe { (self.functions.ncclGetUniqueId)(&mut id) };
        self.check("ncclGetUniqueId", code, null_mut())?;
        Ok(id)
    }

    fn check(&self, what: &str, code: u32, communicator: ncclComm_t) -> Result<(), NcclError> {
        if code == 0 {
            return Ok(());
        }
        let text = |text: *const c_char| {
            // SAFETY: NCCL returns a string of its own that lives as long as the library, or null.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned() }
        };
        // SAFETY: any code is allowed; so is a null communicator.
        let (name, last) =
            unsafe { (text((self.functions.ncclGetErrorString)(code)), text((self.functions.ncclGetLastError)(communicator))) };
        let refused = is_refusal(code, &last);
        let last = if last.is_empty() { last } else { format!(": {last}") };
        Err(NcclError { what: what.into(), code: format!("{name} ({code}){last}"), refused })
    }
}

/// What NCCL is asked to do, apart from where.
#[derive(Clone, Debug)]
pub(crate) struct LibraryCall {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// Elements of a slot.
    pub(crate) count: u64,
    /// 0 where the collective has none.
    pub(crate) root: u32,
    /// The bits of this rank's factor, where the operator has one.
    pub(crate) factor: Option<u64>,
    /// Of an all-to-all, this rank's parts, where they are not slots.
    pub(crate) parts: Option<Parts>,
    /// Whether the regions are in symmetric windows. An all-to-all is one call then, and sends and receives without them.
    pub(crate) windows: bool,
}

/// One rank's part in a communicator.
pub(crate) struct Communicator {
    nccl: Arc<Nccl>,
    raw: ncclComm_t,
    world: usize,
}

// SAFETY: a communicator may be used from any thread, one at a time: each rank's is used by that rank's thread only while a run goes on,
// and by the machine's when none does.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

/// Memory that is registered with a communicator.
pub(crate) struct Window(ncclWindow_t);

// SAFETY: a handle that only NCCL looks into.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Communicator {
    /// Joins a communicator of `world` ranks as `rank`, on the current context's device. Waits for all other ranks to join.
    pub(crate) fn join(nccl: Arc<Nccl>, id: ncclUniqueId, world: usize, rank: usize) -> Result<Communicator, NcclError> {
        let mut config = CONFIG;
        let mut raw = null_mut();
        // SAFETY: the pointers are to live values of the types that NCCL declares.
        let code = unsafe { (nccl.functions.ncclCommInitRankConfig)(&mut raw, world as c_int, id, rank as c_int, &mut config) };
        nccl.check("ncclCommInitRankConfig", code, null_mut())?;
        Ok(Communicator { nccl, raw, world })
    }

    /// Enqueues a collective of `count` elements a slot, from one address to another.
    pub(crate) fn enqueue(&self, call: &LibraryCall, (from, to): (u64, u64), stream: CUstream) -> Result<(), NcclError> {
        let Some(factor) = call.factor else { return self.enqueue_with(call, operator(call.op), (from, to), stream) };
        let own = self.premultiplied_sum(call.dtype, factor)?;
        let enqueued = self.enqueue_with(call, own, (from, to), stream);
        // Calls that were given it keep what they need of it: it may go as soon as the last of them has returned.
        // SAFETY: the operator is this communicator's and is not used again.
        let destroyed = unsafe { (self.nccl.functions.ncclRedOpDestroy)(own, self.raw) };
        enqueued.and_then(|()| self.nccl.check("ncclRedOpDestroy", destroyed, self.raw))
    }

    /// Makes an operator of this communicator that multiplies the rank's elements by a factor, whose bits these are, and sums.
    fn premultiplied_sum(&self, dtype: DType, factor: u64) -> Result<u32, NcclError> {
        // Little endian: NCCL reads as many of the first bytes as an element has.
        let mut scalar = factor.to_le_bytes();
        let mut op = 0;
        // SAFETY: the pointers are to live values, of which the second is as long as the longest element; the communicator is alive.
        let code = unsafe {
            (self.nccl.functions.ncclRedOpCreatePreMulSum)(
                &mut op,
                scalar.as_mut_ptr().cast(),
                data_type(dtype),
                SCALAR_HOST_IMMEDIATE,
                self.raw,
            )
        };
        self.nccl.check("ncclRedOpCreatePreMulSum", code, self.raw).map(|()| op)
    }

    /// The same with an operator as NCCL numbers them.
    fn enqueue_with(&self, call: &LibraryCall, op: u32, (from, to): (u64, u64), stream: CUstream) -> Result<(), NcclError> {
        let LibraryCall { collective, dtype, count, root, .. } = *call;
        let [from, to] = [from, to].map(|address| std::ptr::without_provenance_mut::<c_void>(address as usize));
        let (count, bytes, dtype) = (count as usize, dtype.size() as usize, data_type(dtype));
        let (stream, functions) = (stream.cast(), &self.nccl.functions);
        // SAFETY: the addresses are device memory, which the host does not touch; communicator and stream are alive.
        let (what, code) = unsafe {
            match collective {
                Collective::AllReduce => ("ncclAllReduce", (functions.ncclAllReduce)(from, to, count, dtype, op, self.raw, stream)),
                Collective::AllGather => ("ncclAllGather", (functions.ncclAllGather)(from, to, count, dtype, self.raw, stream)),
                Collective::ReduceScatter => {
                    ("ncclReduceScatter", (functions.ncclReduceScatter)(from, to, count, dtype, op, self.raw, stream))
                }
                Collective::Broadcast => {
                    ("ncclBroadcast", (functions.ncclBroadcast)(from, to, count, dtype, root as c_int, self.raw, stream))
                }
                Collective::Reduce => ("ncclReduce", (functions.ncclReduce)(from, to, count, dtype, op, root as c_int, self.raw, stream)),
                Collective::AllToAll if call.windows => {
                    let (what, refused) = ("ncclAlltoAll", "this NCCL has none: it came with 2.28");
                    let all_to_all = functions.ncclAlltoAll.ok_or_else(|| NcclError::new(what, refused))?;
                    (what, all_to_all(from, to, count, dtype, self.raw, stream))
                }
                Collective::AllToAll => {
                    let slots = || vec![count; self.world];
                    let (sent, received) = match &call.parts {
                        Some(Parts { sent, received }) => (lengths(sent), lengths(received)),
                        None => (slots(), slots()),
                    };
                    return self.all_to_all((&sent, &received), (bytes, dtype), (from, to), stream);
                }
            }
        };
        self.nccl.check(what, code, self.raw)
    }

    /// Sends `sent[peer]` elements of `bytes` bytes to each rank and receives `received[peer]` from it, packed on both sides. All is in one group:
    /// ranks that did so one after the other would wait for each other. A part of no elements is a call, too, as slots of none are.
    fn all_to_all(
        &self,
        (sent, received): (&[usize], &[usize]),
        (bytes, dtype): (usize, ncclDataType_t),
        (from, to): (*const c_void, *mut c_void),
        stream: cudaStream_t,
    ) -> Result<(), NcclError> {
        let functions = &self.nccl.functions;
        let exchange = |peer: usize| {
            let rank = peer as c_int;
            let (to_it, from_it) = (&sent[..peer], &received[..peer]);
            let [from_distance, to_distance] = [to_it, from_it].map(|before| before.iter().sum::<usize>() * bytes);
            // SAFETY: the addresses are parts of device memory, which the host does not touch; communicator and stream are alive.
            let code = unsafe { (functions.ncclSend)(from.wrapping_byte_add(from_distance), sent[peer], dtype, rank, self.raw, stream) };
            self.nccl.check("ncclSend", code, self.raw)?;
            // SAFETY: as above.
            let code = unsafe { (functions.ncclRecv)(to.wrapping_byte_add(to_distance), received[peer], dtype, rank, self.raw, stream) };
            self.nccl.check("ncclRecv", code, self.raw)
        };
        // SAFETY: a group of this thread's own, which is closed below, also where a call in it fails.
        let started = unsafe { (functions.ncclGroupStart)() };
        self.nccl.check("ncclGroupStart", started, self.raw)?;
        let exchanged = (0..self.world).try_for_each(exchange);
        // SAFETY: as above.
        let ended = unsafe { (functions.ncclGroupEnd)() };
        exchanged.and_then(|()| self.nccl.check("ncclGroupEnd", ended, self.raw))
    }

    /// Registers symmetric memory, which is of the same size on all ranks. Waits for all other ranks to do so.
    pub(crate) fn register(&self, address: u64, bytes: u64) -> Result<Window, NcclError> {
        const WHAT: &str = "ncclCommWindowRegister";
        let refused = |code: &str| NcclError::new(WHAT, code);
        let register = self.nccl.functions.ncclCommWindowRegister.ok_or_else(|| refused("this NCCL has no windows"))?;
        let mut window = null_mut();
        let memory = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: the address is device memory; the pointer is to a live handle.
        let code = unsafe { register(self.raw, memory, bytes as usize, &mut window, WIN_COLL_SYMMETRIC) };
        self.nccl.check(WHAT, code, self.raw)?;
        if window.is_null() {
            return Err(refused(
                "it succeeded without a window: this communicator has no symmetric memory (NCCL_WIN_ENABLE, NCCL_CUMEM_ENABLE, \
                 or GPUs that do not reach each other)",
            ));
        }
        Ok(Window(window))
    }

    /// An error that NCCL met behind the stream's back.
    pub(crate) fn asynchronous_error(&self) -> Result<(), NcclError> {
        let mut code = 0;
        // SAFETY: the pointer is to a live integer.
        let asked = unsafe { (self.nccl.functions.ncclCommGetAsyncError)(self.raw, &mut code) };
        self.nccl.check("ncclCommGetAsyncError", asked, self.raw)?;
        self.nccl.check("NCCL, asynchronously,", code, self.raw)
    }

    /// Gives up windows and communicator. Waits for all other ranks to do so.
    pub(crate) fn leave(&self, windows: &[Window]) {
        for window in windows {
            if let Some(deregister) = self.nccl.functions.ncclCommWindowDeregister {
                // SAFETY: the window is registered with this communicator and is not used again.
                unsafe { deregister(self.raw, window.0) };
            }
        }
        // SAFETY: the communicator is not used again.
        unsafe { (self.nccl.functions.ncclCommDestroy)(self.raw) };
    }
}

fn lengths(parts: &[u64]) -> Vec<usize> {
    parts.iter().map(|&elements| elements as usize).collect()
}

/// NCCL's types, by the numbers that [`DType::nccl`] has.
const TYPES: [ncclDataType_t; 12] = [
    ncclDataType_t::ncclInt8,
    ncclDataType_t::ncclUint8,
    ncclDataType_t::ncclInt32,
    ncclDataType_t::ncclUint32,
    ncclDataType_t::ncclInt64,
    ncclDataType_t::ncclUint64,
    ncclDataType_t::ncclFloat16,
    ncclDataType_t::ncclFloat32,
    ncclDataType_t::ncclFloat64,
    ncclDataType_t::ncclBfloat16,
    ncclDataType_t::ncclFloat8e4m3,
    ncclDataType_t::ncclFloat8e5m2,
];

fn data_type(dtype: DType) -> ncclDataType_t {
    TYPES[dtype.nccl() as usize]
}

fn operator(op: ReduceOp) -> u32 {
    match op {
        // Collectives that copy take no operator; of pre-multiplied sums each call has one of its own.
        ReduceOp::Sum | ReduceOp::PremulSum | ReduceOp::Copy => sys::ncclRedOp_t::ncclSum as u32,
        ReduceOp::Min => sys::ncclRedOp_t::ncclMin as u32,
        ReduceOp::Max => sys::ncclRedOp_t::ncclMax as u32,
        ReduceOp::Avg => sys::ncclRedOp_t::ncclAvg as u32,
        ReduceOp::Prod => sys::ncclRedOp_t::ncclProd as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// If this fails, NCCL reduces elements as another type.
    #[test]
    fn types_have_nccl_s_numbers() {
        for (number, of) in TYPES.iter().enumerate() {
            assert_eq!(*of as usize, number);
        }
        for dtype in DType::ALL {
            let name = format!("{:?}", data_type(dtype)).to_lowercase();
            assert_eq!(name.contains("float"), dtype.is_float(), "{dtype}: {name}");
            assert_eq!(name.contains("uint"), !dtype.is_signed(), "{dtype}: {name}");
            assert_eq!(name.contains("bfloat"), dtype == DType::BF16, "{dtype}: {name}");
            assert!(dtype.is_float() && dtype.size() == 1 || name.ends_with(&(8 * dtype.size()).to_string()), "{dtype}: {name}");
            assert!(dtype.size() > 1 || !dtype.is_float() || name.ends_with(dtype.name()), "{dtype}: {name}");
        }
    }

    #[test]
    fn versions_read_as_nccl_writes_them() {
        assert_eq!(Version(22809).to_string(), "2.28.9");
        assert_eq!(Version(22703).to_string(), "2.27.3");
        assert_eq!(Version(2708).to_string(), "2.7.8");
    }

    /// If this fails, what a newer NCCL does not do in the way that is forced is called a crash, or a crash is called a refusal.
    #[rstest]
    #[case(
        5,
        "No algorithm/protocol nor symKernelId available for function AllReduce with datatype ncclFloat32. NCCL_SYM_KERNEL was set to X.",
        true
    )]
    #[case(3, "Error : no algorithm/protocol available for function AllReduce with datatype ncclFloat32", true)]
    #[case(5, "Error: no symmetric kernel available for function AllGather. NCCL_SYM_KERNEL was set to AllGather_ST", true)]
    #[case(5, "AllReduce : invalid root 9 (root should be in the 0..2 range)", false)]
    #[case(1, "Error : no algorithm/protocol available for function AllReduce", false)]
    #[case(3, "", false)]
    fn refusals_are_told_from_failures(#[case] code: u32, #[case] words: &str, #[case] refused: bool) {
        assert_eq!(is_refusal(code, words), refused);
    }

    /// nccl.h 2.28.9 says 80; NCCL refuses another magic number.
    #[test]
    fn the_configuration_is_as_nccl_h_initialises_it() {
        assert_eq!((CONFIG.size, CONFIG.magic), (80, 0xcafebeef));
        assert!([CONFIG.blocking, CONFIG.CTAPolicy, CONFIG.nvlinkCentricSched].iter().all(|&field| field == i32::MIN));
    }
}
