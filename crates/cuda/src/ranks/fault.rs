//! What the errors of the driver say of a rank.

use crate::vendor::driver::CudaError;
use passmuster_plan::machine::{How, MachineError};

/// The fault of a rank whose call failed.
pub(crate) fn fault(rank: usize) -> impl Fn(CudaError) -> MachineError {
    move |error| MachineError::fault_of(vec![rank], how_of(&error.name), error.what, error.name)
}

/// What a rank did whose calls return this error, by the driver's name for it.
pub(crate) fn how_of(error: &str) -> How {
    match error {
        "CUDA_ERROR_ILLEGAL_ADDRESS" => How::IllegalAddress { kernel: None },
        "CUDA_ERROR_LAUNCH_FAILED" => How::Trapped,
        _ => How::Failed,
    }
}
