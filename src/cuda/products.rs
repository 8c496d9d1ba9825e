//! cuBLASLt of a machine: loaded when first used, with a handle for each device.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
    sync::Arc,
};

use super::{
    cublas_lt::{CublasError, CublasLt, Handle, Matmul},
    device::Device,
};
use crate::{machine::MachineError, plan::MatmulCall};

#[derive(Default)]
pub(super) struct Products {
    explicit: Option<PathBuf>,
    library: Option<Arc<CublasLt>>,
    /// By the device's number.
    handles: BTreeMap<usize, Arc<Handle>>,
}

impl Products {
    /// None yet. `explicit` is the library to load; without it, it is searched.
    pub(super) fn new(explicit: Option<PathBuf>) -> Products {
        Products { explicit, ..Products::default() }
    }

    /// The library, if it was loaded.
    pub(super) fn library(&self) -> Option<&CublasLt> {
        self.library.as_deref()
    }

    /// Loads it, once.
    ///
    /// # Errors
    /// `NotSupported` with what was searched.
    pub(super) fn load(&mut self) -> Result<Arc<CublasLt>, MachineError> {
        if let Some(library) = &self.library {
            return Ok(library.clone());
        }
        let library = CublasLt::load(self.explicit.as_deref()).map_err(|error| MachineError::NotSupported { reason: error.to_string() })?;
        Ok(self.library.insert(Arc::new(library)).clone())
    }

    /// Makes a product ready for a rank's device, whose context is current.
    ///
    /// # Errors
    /// `NotSupported` where there is no library, or none that knows the product; `Fault` where the library fails.
    pub(super) fn prepare(&mut self, rank: usize, device: &Device, call: &MatmulCall) -> Result<Matmul, MachineError> {
        let library = self.load()?;
        let fault = |CublasError { what, code }| MachineError::Fault { ranks: vec![rank], what, code };
        let handle = match self.handles.entry(device.ordinal) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Arc::new(Handle::new(library).map_err(fault)?)),
        };
        Matmul::prepare(handle.clone(), call).map_err(|error| MachineError::NotSupported { reason: error.to_string() })
    }
}
