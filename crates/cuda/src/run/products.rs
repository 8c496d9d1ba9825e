//! cuBLASLt of a machine: loaded when first used, with a handle for each device and every product made ready once.

use std::{
    collections::{BTreeMap, HashMap, btree_map, hash_map},
    path::PathBuf,
    sync::Arc,
};

use crate::{
    gpu::{device::Device, scratch::Scratch},
    vendor::{
        cublas_lt::{CublasError, CublasLt, Handle, Matmul},
        driver::CudaError,
    },
};
use passmuster_plan::{collective::Product, machine::MachineError, plan::MatmulCall};

#[derive(Default)]
pub(crate) struct Products {
    explicit: Option<PathBuf>,
    library: Option<Arc<CublasLt>>,
    /// By the device's number.
    handles: BTreeMap<usize, Arc<Handle>>,
    /// By the device's number and what the library gets: bytes of workspace and SMs.
    ready: HashMap<(usize, Product, u64, Option<u32>), Arc<Matmul>>,
}

impl Products {
    /// None yet. `explicit` is the library to load; without it, it is searched.
    pub(crate) fn new(explicit: Option<PathBuf>) -> Products {
        Products { explicit, ..Products::default() }
    }

    /// The library, if it was loaded.
    pub(crate) fn library(&self) -> Option<&CublasLt> {
        self.library.as_deref()
    }

    /// Loads it, once.
    ///
    /// # Errors
    /// `NotSupported` with what was searched.
    pub(crate) fn load(&mut self) -> Result<Arc<CublasLt>, MachineError> {
        if let Some(library) = &self.library {
            return Ok(library.clone());
        }
        let library = CublasLt::load(self.explicit.as_deref()).map_err(|error| MachineError::NotSupported { reason: error.to_string() })?;
        Ok(self.library.insert(Arc::new(library)).clone())
    }

    /// Makes a product ready for a rank's device, whose context is current and on which nothing runs. `a` and `b` are the addresses of operands, and
    /// `workspace` that of as many bytes as the call has.
    ///
    /// # Errors
    /// `NotSupported` where there is no library, or none that knows the product; `Fault` where the library or the driver fails.
    pub(crate) fn prepare(
        &mut self,
        rank: usize,
        device: &Device,
        call: &MatmulCall,
        (a, b, workspace): (u64, u64, u64),
    ) -> Result<Arc<Matmul>, MachineError> {
        let library = self.load()?;
        let fault = |CublasError { what, code }| MachineError::fault(rank, what, code);
        let handle = match self.handles.entry(device.ordinal) {
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
            btree_map::Entry::Vacant(entry) => entry.insert(Arc::new(Handle::new(library).map_err(fault)?)),
        };
        match self.ready.entry((device.ordinal, call.product, call.workspace.bytes, call.sms)) {
            hash_map::Entry::Occupied(entry) => Ok(entry.get().clone()),
            hash_map::Entry::Vacant(entry) => {
                let prepared = Matmul::prepare(handle.clone(), call);
                let matmul = prepared.map_err(|error| MachineError::NotSupported { reason: error.to_string() })?;
                // The library loads a kernel at its first launch, which may wait for the device: not when streams wait for each other.
                let of_driver = |CudaError { what, name, .. }| fault(CublasError { what, code: name });
                let c = Scratch::new(device.driver, call.operands.c.bytes as usize).map_err(of_driver)?;
                matmul.enqueue([a, b, c.address], (workspace, call.workspace.bytes), device.service.raw()).map_err(fault)?;
                device.service.synchronise().map_err(of_driver)?;
                Ok(entry.insert(Arc::new(matmul)).clone())
            }
        }
    }
}
