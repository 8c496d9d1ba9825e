//! What a machine says of itself for a record: its GPUs, links, driver and libraries.

use super::CudaMachine;
use crate::{ranks::peers::Peers, vendor::nvml::Nvml};
use passmuster_plan::machine::{MachineInfo, UNCHECKED_PATH};

/// Variables of the environment that change what NCCL does and therefore belong to a record.
const RECORDED_VARIABLES: [&str; 4] = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_SYM_KERNEL", "NCCL_NVLS_ENABLE"];

impl CudaMachine {
    /// What a record says of the machine.
    pub(super) fn described(&self) -> MachineInfo {
        let mut notes = Vec::new();
        let mut note = |name: &str, value: String| notes.push((name.to_owned(), value));
        let device = &self.of_rank[0];
        if let Some(peers) = &self.peers {
            peers.notes().into_iter().for_each(|(name, value)| note(name, value));
        }
        note("compute_capability", format!("{}.{}", device.capability.0, device.capability.1));
        note("multiprocessors", device.sms.to_string());
        let here = || self.devices.iter().map(|device| format!("{} {}", device.ordinal, device.name)).collect();
        let gpus: Vec<String> = self.peers.as_ref().map_or_else(here, Peers::gpu_list);
        note("gpu_list", gpus.join(", "));
        let nvml = Nvml::get().and_then(|nvml| nvml.gpu(&device.bus_id));
        let links = nvml.as_ref().and_then(|gpu| gpu.links());
        if let Some((links, gbps)) = links {
            note("nvlink", format!("{links} x {gbps:.3} GB/s in each direction"));
        }
        if let Some(watts) = nvml.and_then(|gpu| gpu.power_limit()) {
            note("power_limit", format!("{watts:.0} W"));
        }
        if let Some(version) = kernel_driver_version() {
            note("driver_version", version);
        }
        let nccl = self.held.communicators.nccl();
        if let Some(nccl) = nccl {
            note("nccl_library", installed(&nccl.path).to_owned());
        }
        if let Some(library) = self.held.products.library() {
            note("cublas_lt", library.version.clone());
            note("cublas_lt_library", installed(&library.path).to_owned());
        }
        if let Some(why) = self.unchecked.as_deref().or_else(|| self.nccl_log.unchecked()) {
            note(UNCHECKED_PATH, why.to_owned());
        }
        for name in RECORDED_VARIABLES {
            if let Ok(value) = std::env::var(name) {
                note(name, value);
            }
        }
        MachineInfo {
            kind: "cuda".into(),
            gpu: device.name.clone(),
            gpus: gpus.len(),
            driver: self.driver.version().map(|version| version.to_string()).unwrap_or_default(),
            nccl: nccl.map(|nccl| nccl.version.to_string()).unwrap_or_default(),
            link_gbps: links.map(|(links, gbps)| f64::from(links) * gbps),
            notes,
        }
    }
}

/// Which of the installed libraries it is, without the host's folders: records are published.
fn installed(path: &str) -> &str {
    path.find("/nvidia/").map_or_else(|| path.rsplit('/').next().unwrap_or_default(), |at| &path[at + 1..])
}

/// The kernel driver's version, `580.65.06`, where the system tells it.
fn kernel_driver_version() -> Option<String> {
    if let Ok(version) = std::fs::read_to_string("/sys/module/nvidia/version") {
        return Some(version.trim().to_owned());
    }
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version).map(str::to_owned)
}
