//! What a process sets in its environment before CUDA and NCCL read theirs, which they do once.

use std::{env, ffi::OsString};

use super::nccl_log;

/// Keeps NCCL from creating multicast objects, which can harm machines that are shared.
pub(super) const NO_MULTICAST: (&str, &str) = ("NCCL_NVLS_ENABLE", "0");

/// How many streams of one GPU make progress independently, at most: those that share a connection wait for each other.
pub(crate) const MOST_CONNECTIONS: usize = 32;

/// How many the driver makes where nobody says.
const CONNECTIONS_BY_DEFAULT: usize = 8;

/// The variable that says how many there are.
pub(crate) const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Sets what a [`CudaMachine`](crate::CudaMachine) wants of the process, as far as the user has not said otherwise: `NCCL_NVLS_ENABLE=0`, for multicast can
/// harm machines that are shared; `CUDA_DEVICE_MAX_CONNECTIONS=32`, for streams that share a connection wait for each other; and `NCCL_DEBUG`,
/// `NCCL_DEBUG_SUBSYS` and `NCCL_DEBUG_FILE` so that NCCL writes down which way it goes, beside what the user has it write. Done once: further calls do
/// nothing.
///
/// A machine that is opened without it calls NCCL only where the user has set `NCCL_NVLS_ENABLE`, and cannot tell whether NCCL took the path that was
/// asked for.
///
/// # Safety
/// No other thread may read or write environment variables meanwhile. Call it first thing in `main`, before any other thread is started.
pub unsafe fn prepare_process() {
    let mut set = Vec::new();
    for (name, value) in [(NO_MULTICAST.0, NO_MULTICAST.1.to_owned()), (CONNECTIONS, MOST_CONNECTIONS.to_string())] {
        if env::var_os(name).is_none() {
            set.push((name, OsString::from(value)));
        }
    }
    set.extend(nccl_log::prepare().unwrap_or_default());
    for (name, value) in set {
        // SAFETY: this function's documentation asks for no other thread that uses the environment.
        unsafe { env::set_var(name, value) };
    }
}

/// Connections of each GPU, as the driver reads them from the environment.
pub(crate) fn connections() -> usize {
    let set = env::var(CONNECTIONS).ok().and_then(|value| value.trim().parse::<usize>().ok());
    set.unwrap_or(CONNECTIONS_BY_DEFAULT).clamp(1, MOST_CONNECTIONS)
}

/// Whether NCCL may be loaded: it is known whether it creates multicast objects.
///
/// # Errors
/// Says what is to be set.
pub(crate) fn multicast_is_settled() -> Result<(), String> {
    let (name, value) = NO_MULTICAST;
    if env::var_os(name).is_some() {
        return Ok(());
    }
    Err(format!(
        "NCCL might create multicast objects, which can harm machines that are shared: {name} is not set, and {name}={value} keeps it from that"
    ))
}
