//! Streams, events and graphs of a device.

use std::{
    ffi::c_void,
    mem::ManuallyDrop,
    ptr::null_mut,
    time::{Duration, Instant},
};

use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUgraph, CUgraphExec, CUstream, CUstream_flags, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as WaitValueParameters,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 as WaitValue,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st as WriteValueParameters,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 as WriteValue, CUstreamBatchMemOpType,
    CUstreamCaptureMode, CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};

use super::{
    copies::{Batches, Copy},
    scratch::Scratch,
};
use crate::vendor::driver::{CudaError, Driver, call};
use passmuster_plan::machine::Pending;

/// The driver takes fewer than 256 operations on words in one call.
const MOST_WORDS: usize = 255;

/// An operation on a 32-bit word of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Sets it.
    Write { at: u64, value: u32 },
    /// Holds the stream until it has the value.
    Wait {
        at: u64,
        value: u32,
        /// Whether what peers wrote before it is flushed, so that it is visible to what follows: only some devices can, and need to.
        flush: bool,
    },
}

impl Word {
    /// What the driver calls it. All of the union is set.
    fn parameters(&self) -> CUstreamBatchMemOpParams {
        let mut parameters = CUstreamBatchMemOpParams { pad: [0; 6] };
        match *self {
            Word::Write { at, value } => {
                parameters.writeValue = WriteValueParameters {
                    operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32,
                    address: at,
                    __bindgen_anon_1: WriteValue { value64: value.into() },
                    flags: CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as u32,
                    alias: 0,
                };
            }
            Word::Wait { at, value, flush } => {
                let flush = if flush { CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH as u32 } else { 0 };
                parameters.waitValue = WaitValueParameters {
                    operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
                    address: at,
                    __bindgen_anon_1: WaitValue { value64: value.into() },
                    flags: CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32 | flush,
                    alias: 0,
                };
            }
        }
        parameters
    }
}

/// A stream that does not wait for the legacy default stream.
pub(crate) struct Stream {
    driver: &'static Driver,
    raw: CUstream,
}

// SAFETY: the driver's functions may be called on a stream from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above, and from several at once.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the current context.
    pub(crate) fn new(driver: &'static Driver) -> Result<Stream, CudaError> {
        let mut raw = null_mut();
        // SAFETY: it writes one handle, to a local that outlives the call.
        unsafe { call!(driver, cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32)) }?;
        Ok(Stream { driver, raw })
    }

    /// `count` streams of the current context that have each done one operation of every kind.
    ///
    /// What a stream does first may wait on the device until other streams' kernels have ended, though the driver takes it at once: where those kernels wait
    /// for it, both wait in vain. Seen of H200s with driver 580, where three and more such kernels share a GPU; docs/performance/sharing.md.
    pub(crate) fn used(driver: &'static Driver, count: usize) -> Result<Vec<Stream>, CudaError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let scratch = Scratch::new(driver, 64)?;
        let streams: Vec<Stream> = (0..count).map(|_| Stream::new(driver)).collect::<Result<_, _>>()?;
        for stream in &streams {
            stream.fill(scratch.address, 0, 32)?;
            stream.copy(scratch.address, scratch.address + 32, 32)?;
            stream.words(&[Word::Write { at: scratch.address, value: 1 }, Word::Wait { at: scratch.address, value: 1, flush: false }])?;
            stream.synchronise()?;
        }
        Ok(streams)
    }

    /// The handle, for NCCL.
    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Whether all that was enqueued is done.
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: `self` owns the stream.
        match unsafe { call!(self.driver, cuStreamQuery(self.raw)) } {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_ready() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for all that was enqueued, at most for `limit`; whether it got done.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool, CudaError> {
        let start = Instant::now();
        while !self.is_done()? {
            if start.elapsed() > limit {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }

    /// Waits without limit: only for work that nothing can hold up.
    pub(crate) fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: `self` owns the stream.
        unsafe { call!(self.driver, cuStreamSynchronize(self.raw)) }
    }

    /// Sets `bytes` bytes.
    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `self` owns the stream; the host follows no device address, and a wrong one is a fault of the device.
        unsafe { call!(self.driver, cuMemsetD8Async(address, byte, bytes as usize, self.raw)) }
    }

    /// Copies from device memory to device memory, a peer's too.
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `self` owns the stream; the host follows no device address, and a wrong one is a fault of the device.
        unsafe { call!(self.driver, cuMemcpyDtoDAsync_v2(to, from, bytes as usize, self.raw)) }
    }

    /// Does copies that may be done in any order: as a batch where there are batches, else one after the other.
    pub(crate) fn copies(&self, copies: &[Copy], batches: Option<&Batches>) -> Result<(), CudaError> {
        match batches {
            Some(batches) if copies.len() > 1 => batches.enqueue(copies, self.raw),
            _ => copies.iter().try_for_each(|copy| self.copy(copy.from, copy.to, copy.bytes)),
        }
    }

    /// Copies device memory to the host and waits for it, without limit.
    pub(crate) fn read(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError> {
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: `to` has that many bytes and is borrowed until the stream is done, below.
        unsafe { call!(self.driver, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.raw)) }?;
        self.synchronise()
    }

    /// Copies device memory into pinned host memory, waiting at most for `limit`; whether it got done. If not, `to` must not be used again.
    pub(crate) fn read_pinned(&self, from: u64, to: &mut Pinned, bytes: usize, limit: Duration) -> Result<bool, CudaError> {
        // SAFETY: `to` is the host's memory of at least that many bytes. A caller that learns that the copy is not done leaves it: see above.
        unsafe { call!(self.driver, cuMemcpyDtoHAsync_v2(to.raw, from, bytes.min(to.bytes), self.raw)) }?;
        self.wait(limit)
    }

    /// Copies host memory to the device and waits until it is there: a copy from pageable memory may otherwise return before, and other
    /// streams would read what was there.
    pub(crate) fn write(&self, from: &[u8], to: u64) -> Result<(), CudaError> {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: it reads `from`, which is borrowed until the stream is done, below; the host follows no device address.
        unsafe { call!(self.driver, cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.raw)) }?;
        self.synchronise()
    }

    /// Writes 32-bit words and waits for them, in this order. Writes before a word are visible when it is.
    pub(crate) fn words(&self, words: &[Word]) -> Result<(), CudaError> {
        for some in words.chunks(MOST_WORDS) {
            let mut operations: Vec<CUstreamBatchMemOpParams> = some.iter().map(Word::parameters).collect();
            // SAFETY: it reads as many operations as it says, during the call; `self` owns the stream.
            unsafe { call!(self.driver, cuStreamBatchMemOp_v2(self.raw, operations.len() as u32, operations.as_mut_ptr(), 0)) }?;
        }
        Ok(())
    }

    /// Notes the time when all before it is done.
    pub(crate) fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: `self` owns the stream, and `event` its event.
        unsafe { call!(self.driver, cuEventRecord(event.raw, self.raw)) }
    }

    /// What is enqueued here from now on waits for all that was enqueued on another stream of the device so far. `event` may be used again at once.
    pub(crate) fn follow(&self, other: &Stream, event: &Event) -> Result<(), CudaError> {
        other.record(event)?;
        // SAFETY: `self` owns the stream, and `event` its event.
        unsafe { call!(self.driver, cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }

    /// Captures what `enqueue` enqueues on this stream, and makes it ready to be launched.
    ///
    /// # Errors
    /// What `enqueue` returned; else what the capture did.
    pub(crate) fn capture<E: From<CudaError>>(&self, enqueue: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        // Other ranks' threads may allocate meanwhile: only this thread is held to what a capture allows.
        // SAFETY: `self` owns the stream.
        unsafe { call!(self.driver, cuStreamBeginCapture_v2(self.raw, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) }?;
        let enqueued = enqueue();
        let mut graph: CUgraph = null_mut();
        // SAFETY: `self` owns the stream; one handle is written, to a local that outlives the call.
        let ended = unsafe { call!(self.driver, cuStreamEndCapture(self.raw, &mut graph)) };
        let mut raw: CUgraphExec = null_mut();
        let made = enqueued.and_then(|()| {
            ended?;
            // SAFETY: the capture ended well, so `graph` is one; one handle is written, to a local that outlives the call.
            unsafe { call!(self.driver, cuGraphInstantiateWithFlags(&mut raw, graph, 0)) }?;
            Ok(Graph { driver: self.driver, raw })
        });
        if !graph.is_null() {
            // SAFETY: the capture made it, and it is destroyed once; what was instantiated does not need it.
            let _ = unsafe { call!(self.driver, cuGraphDestroy(graph)) };
        }
        let made = made?;
        // The first launch would otherwise allocate, which may wait for kernels that wait for this rank.
        // SAFETY: `made` owns the graph, and `self` the stream.
        unsafe { call!(self.driver, cuGraphUpload(made.raw, self.raw)) }?;
        self.synchronise()?;
        Ok(made)
    }

    /// Launches a captured graph.
    pub(crate) fn replay(&self, graph: &Graph) -> Result<(), CudaError> {
        // SAFETY: `graph` and `self` own what they name; the memory of its operations is their plans' to keep.
        unsafe { call!(self.driver, cuGraphLaunch(graph.raw, self.raw)) }
    }
}

impl Drop for Stream {
    /// Returns at once; work that is still under way goes on.
    fn drop(&mut self) {
        // SAFETY: `self` owns the stream and destroys it once.
        let _ = unsafe { call!(self.driver, cuStreamDestroy_v2(self.raw)) };
    }
}

/// A point in a stream whose time is noted.
pub(crate) struct Event {
    driver: &'static Driver,
    raw: CUevent,
}

// SAFETY: the driver's functions may be called on an event from any thread.
unsafe impl Send for Event {}

impl Event {
    /// An event of the current context.
    pub(crate) fn new(driver: &'static Driver) -> Result<Event, CudaError> {
        Event::with(driver, CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// One that orders streams only, which costs less.
    pub(crate) fn without_time(driver: &'static Driver) -> Result<Event, CudaError> {
        Event::with(driver, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn with(driver: &'static Driver, flags: CUevent_flags) -> Result<Event, CudaError> {
        let mut raw = null_mut();
        // SAFETY: it writes one handle, to a local that outlives the call.
        unsafe { call!(driver, cuEventCreate(&mut raw, flags as u32)) }?;
        Ok(Event { driver, raw })
    }

    /// Whether the device has come to where it was recorded.
    pub(super) fn is_reached(&self) -> Result<bool, CudaError> {
        // SAFETY: `self` owns the event.
        match unsafe { call!(self.driver, cuEventQuery(self.raw)) } {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_ready() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until the device has come there, without limit.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: `self` owns the event.
        unsafe { call!(self.driver, cuEventSynchronize(self.raw)) }
    }

    /// Microseconds from `self` to `later`, both of which the device has reached.
    pub(crate) fn microseconds_until(&self, later: &Event) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0f32;
        // SAFETY: both events are owned; one number is written, to a local that outlives the call.
        unsafe { call!(self.driver, cuEventElapsedTime_v2(&mut milliseconds, self.raw, later.raw)) }?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `self` owns the event and destroys it once.
        let _ = unsafe { call!(self.driver, cuEventDestroy_v2(self.raw)) };
    }
}

/// A captured graph, ready to be launched.
pub(crate) struct Graph {
    driver: &'static Driver,
    raw: CUgraphExec,
}

// SAFETY: the driver's functions may be called on a graph from any thread, one at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    /// A launch that is under way goes on.
    fn drop(&mut self) {
        // SAFETY: `self` owns the graph and destroys it once.
        let _ = unsafe { call!(self.driver, cuGraphExecDestroy(self.raw)) };
    }
}

/// Page-locked host memory: copies into it do not hold up the thread that asks for them.
pub(crate) struct Pinned {
    driver: &'static Driver,
    raw: *mut c_void,
    bytes: usize,
}

// SAFETY: it is plain host memory that belongs to this value.
unsafe impl Send for Pinned {}

impl Pinned {
    /// `bytes` bytes, zeroed.
    pub(crate) fn new(driver: &'static Driver, bytes: usize) -> Result<Pinned, CudaError> {
        let mut raw = null_mut();
        // SAFETY: it writes one pointer, to a local that outlives the call.
        unsafe { call!(driver, cuMemHostAlloc(&mut raw, bytes, 0)) }?;
        // SAFETY: the driver has just allocated this many bytes for us.
        unsafe { raw.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { driver, raw, bytes })
    }

    /// Its contents, when no copy into it is under way.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and initialised in `new`.
        unsafe { std::slice::from_raw_parts(self.raw.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: `self` allocated it and frees it once. Memory that the device may still write is never dropped: see `Fetch`.
        let _ = unsafe { call!(self.driver, cuMemFreeHost(self.raw)) };
    }
}

/// A copy of device memory to pinned memory of the host, for which nobody need wait. All of it is made beforehand, for allocating may wait for the device.
pub(crate) struct Fetch {
    /// Left to the device where it may still write there.
    to: ManuallyDrop<Pinned>,
    done: Event,
    /// Whether the copy was enqueued.
    started: bool,
}

impl Fetch {
    /// For `bytes` bytes, of the current context.
    pub(crate) fn new(driver: &'static Driver, bytes: u64) -> Result<Fetch, CudaError> {
        let (to, done) = (Pinned::new(driver, bytes as usize)?, Event::without_time(driver)?);
        Ok(Fetch { to: ManuallyDrop::new(to), done, started: false })
    }

    /// What was copied, when it is there.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.to.bytes().to_vec()
    }

    /// Enqueues the copy.
    pub(crate) fn start(mut self, from: u64, stream: &Stream) -> Result<Fetch, CudaError> {
        self.started = true;
        // SAFETY: the memory has that many bytes, and `self` frees it only once the copy is done: see its `Drop`.
        unsafe { call!(stream.driver, cuMemcpyDtoHAsync_v2(self.to.raw, from, self.to.bytes, stream.raw)) }?;
        stream.record(&self.done)?;
        Ok(self)
    }
}

impl Pending<Vec<u8>, CudaError> for Fetch {
    fn is_there(&self) -> Result<bool, CudaError> {
        self.done.is_reached()
    }

    fn wait(&self) -> Result<(), CudaError> {
        self.done.wait()
    }

    fn take(self: Box<Self>) -> Vec<u8> {
        self.bytes()
    }
}

impl Drop for Fetch {
    /// Returns at once. Freeing what the device still writes to would wait for it, so that memory is never freed; it is as much as a host asks for that
    /// then does not look.
    fn drop(&mut self) {
        // An event that was never recorded counts as reached, also where the copy was enqueued and the recording failed: that is a fault, and its process ends.
        if !self.started || matches!(self.done.is_reached(), Ok(true)) {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.to) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a stream goes on at the wrong value, or sees less than what its peers wrote before the word.
    #[test]
    fn waits_are_for_equality_and_flush_where_the_device_can() {
        for (flush, flags) in [(false, 1), (true, 1 | 1 << 30)] {
            let parameters = Word::Wait { at: 0x1000, value: 7, flush }.parameters();
            // SAFETY: all of the union was set, and this is what a wait is.
            let wait = unsafe { parameters.waitValue };
            assert_eq!((wait.operation as u32, wait.address, wait.flags), (1, 0x1000, flags));
            // SAFETY: as above.
            assert_eq!(unsafe { wait.__bindgen_anon_1.value }, 7);
        }
    }
}
