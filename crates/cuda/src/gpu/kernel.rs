//! Kernels: PTX compiled by the driver, and the functions in it, kept for as long as the machine lives.

use std::{
    collections::BTreeMap,
    ffi::{CString, c_void},
    ptr::null_mut,
    sync::Arc,
};

use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute, CUjit_option, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1, CUlaunchConfig, CUmodule,
};

use super::{device::Device, stream::Stream};
use crate::vendor::driver::{CudaError, Driver, call};
use passmuster_plan::{
    library::Library,
    machine::arguments::Arguments,
    plan::{Dim3, Launch},
};

/// Bytes of shared memory that a block may have without the kernel's saying so.
const UNASKED_SHARED: u32 = 48 << 10;

/// Bytes for what the driver's compiler has to say.
const LOG_BYTES: usize = 16 << 10;

/// A module in a device's context.
struct Module {
    device: Arc<Device>,
    raw: CUmodule,
}

// SAFETY: the driver's functions may be called on a module from any thread.
unsafe impl Send for Module {}
// SAFETY: as above, and from several at once.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles PTX for a device, whose context is current. The error carries the compiler's log.
    fn load(device: &Arc<Device>, name: &str, ptx: &str) -> Result<Module, CudaError> {
        let driver = device.driver;
        let invalid = |why: &str| CudaError { what: format!("loading {name}"), code: 1, name: why.into() };
        let image = CString::new(ptx).map_err(|_| invalid("PTX with a NUL byte"))?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes the size by value in the pointer's place.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut raw = null_mut();
        // SAFETY: `image` ends with a zero byte; options and values are as many as it says, and the log has the size that it says. All outlive the call.
        unsafe {
            call!(
                driver,
                cuModuleLoadDataEx(&mut raw, image.as_ptr().cast(), options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr())
            )
        }
        .map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            error.during(format!("{name}: {}", String::from_utf8_lossy(&log[..end]).trim()))
        })?;
        Ok(Module { device: device.clone(), raw })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.make_current().is_ok() {
            // SAFETY: `self` loaded it in this context and unloads it once: each kernel of it keeps it.
            let _ = unsafe { call!(self.device.driver, cuModuleUnload(self.raw)) };
        }
    }
}

/// How many blocks a launch has, and what each of them has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory of each block.
    pub(crate) dynamic_shared: u32,
    pub(crate) programmatic: bool,
}

/// A function of a module, ready to be launched.
#[derive(Clone)]
pub(crate) struct Kernel {
    driver: &'static Driver,
    raw: CUfunction,
    entry: Arc<str>,
    /// Bytes of each parameter.
    parameters: Arc<[usize]>,
    /// Keeps the function loaded.
    _module: Arc<Module>,
}

// SAFETY: the driver's functions may be called on a function from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above, and from several at once.
unsafe impl Sync for Kernel {}

impl Kernel {
    fn find(module: &Arc<Module>, entry: &str) -> Result<Kernel, CudaError> {
        let driver = module.device.driver;
        let name = CString::new(entry).map_err(|_| CudaError { what: entry.into(), code: 1, name: "NUL byte in a name".into() })?;
        let mut raw = null_mut();
        // SAFETY: the module is loaded, the name ends with a zero byte, and one handle is written to a local.
        unsafe { call!(driver, cuModuleGetFunction(&mut raw, module.raw, name.as_ptr())) }.map_err(|error| error.during(entry))?;
        // Loading on the first launch may wait for the device, on which kernels may be waiting for this one.
        // SAFETY: the function was found above, in a module that is loaded.
        unsafe { call!(driver, cuFuncLoad(raw)) }.map_err(|error| error.during(entry))?;
        let (mut offset, mut size) = (0, 0);
        let mut parameters = Vec::new();
        // SAFETY: the function was found above; it writes two numbers, to locals that outlive the call, and beyond the last parameter none.
        while unsafe { call!(driver, cuFuncGetParamInfo(raw, parameters.len(), &mut offset, &mut size)) }.is_ok() {
            parameters.push(size);
        }
        Ok(Kernel { driver, raw, entry: entry.into(), parameters: parameters.into(), _module: module.clone() })
    }

    pub(crate) fn entry(&self) -> &str {
        &self.entry
    }

    /// How many blocks of `threads` threads and `dynamic_shared` bytes of dynamic shared memory one SM holds at once, in the current
    /// context. A kernel may be launched with that much afterwards.
    pub(crate) fn blocks_per_sm(&self, threads: u32, dynamic_shared: u32) -> Result<u32, CudaError> {
        if dynamic_shared > UNASKED_SHARED {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: `self` keeps the function loaded.
            unsafe { call!(self.driver, cuFuncSetAttribute(self.raw, attribute, dynamic_shared as i32)) }
                .map_err(|error| error.during(format!("{}: {dynamic_shared} bytes of dynamic shared memory", self.entry)))?;
        }
        let mut blocks = 0;
        // SAFETY: `self` keeps the function loaded; one number is written, to a local that outlives the call.
        unsafe {
            call!(self.driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw, threads as i32, dynamic_shared as usize))
        }
        .map_err(|error| error.during(&self.entry))?;
        Ok(blocks.max(0) as u32)
    }

    /// Checks arguments against the kernel's parameters: the driver would read past what is too short.
    ///
    /// # Errors
    /// Says which argument has which size.
    pub(crate) fn check(&self, arguments: &Arguments) -> Result<(), String> {
        let sizes: Vec<usize> = arguments.sizes().collect();
        if sizes[..] == self.parameters[..] {
            return Ok(());
        }
        let entry = &self.entry;
        if sizes.len() != self.parameters.len() {
            return Err(format!("kernel `{entry}` takes {} arguments, the launch has {}", self.parameters.len(), sizes.len()));
        }
        let (at, (got, want)) =
            sizes.iter().zip(self.parameters.iter()).enumerate().find(|(_, (got, want))| got != want).expect("sizes differ");
        Err(format!("argument {at} of kernel `{entry}` has {got} bytes, its parameter {want}"))
    }

    /// Launches it on a stream. `arguments` have the sizes that [`Kernel::check`] accepted.
    pub(crate) fn launch(&self, stream: &Stream, shape: &Shape, arguments: &Arguments) -> Result<(), CudaError> {
        let mut pointers = arguments.pointers();
        let Shape { grid: Dim3([x, y, z]), block: Dim3([threads, rows, layers]), cluster, dynamic_shared, programmatic } = *shape;
        let mut attributes: Vec<CUlaunchAttribute> = Vec::new();
        let mut attribute = |id: CUlaunchAttributeID, value: CUlaunchAttributeValue| {
            // SAFETY: the structure is plain numbers, of which none is invalid.
            let mut attribute: CUlaunchAttribute = unsafe { std::mem::zeroed() };
            (attribute.id, attribute.value) = (id, value);
            attributes.push(attribute);
        };
        if let Some(Dim3([width, height, depth])) = cluster {
            let clusters = CUlaunchAttributeValue_union__bindgen_ty_1 { x: width, y: height, z: depth };
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CUlaunchAttributeValue { clusterDim: clusters });
        }
        if programmatic {
            let allowed = CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, allowed);
        }
        let config = CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: threads,
            blockDimY: rows,
            blockDimZ: layers,
            sharedMemBytes: dynamic_shared,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        // SAFETY: configuration and arguments are read during the call. The pointers are as many, and to as many bytes, as the kernel has parameters: see above.
        unsafe { call!(self.driver, cuLaunchKernelEx(&config, self.raw, pointers.as_mut_ptr(), null_mut::<*mut c_void>())) }
    }
}

/// The kernels of all devices that were asked for so far.
#[derive(Default)]
pub(crate) struct Kernels {
    modules: BTreeMap<(usize, String), Arc<Module>>,
    kernels: BTreeMap<(usize, String, String), Kernel>,
}

impl Kernels {
    /// The kernel of a launch on a device, whose context is current.
    ///
    /// # Errors
    /// When the driver does not compile the module or the module has no such kernel.
    pub(crate) fn get(&mut self, device: &Arc<Device>, library: &Library, launch: &Launch) -> Result<Kernel, String> {
        let Launch { module, entry, .. } = launch;
        let key = (device.ordinal, module.clone(), entry.clone());
        if let Some(kernel) = self.kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let of_module = (device.ordinal, module.clone());
        let loaded = match self.modules.get(&of_module) {
            Some(loaded) => loaded.clone(),
            None => {
                let loaded = Module::load(device, module, library.ptx(module)?).map_err(|error| error.to_string())?;
                self.modules.entry(of_module).or_insert(Arc::new(loaded)).clone()
            }
        };
        let kernel = Kernel::find(&loaded, entry).map_err(|error| error.to_string())?;
        self.kernels.insert(key, kernel.clone());
        Ok(kernel)
    }
}
