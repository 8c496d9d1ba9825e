//! NVML: what the GPUs' clocks, power, temperature and links are. It changes nothing, and a machine without it only knows less.

use std::{ffi::CString, os::raw::c_char, ptr::null_mut, sync::OnceLock};

use super::loader::{self, LoadError, function_table};
use passmuster_plan::machine::Condition;

/// `nvmlDevice_t`.
type Handle = *mut std::ffi::c_void;

function_table! {
    /// What is used of libnvidia-ml. The throttle reasons have their older name, which new libraries still have.
    struct Functions;
    bindings sys::CUresult {}
    own {
        fn nvmlInit_v2() -> u32;
        fn nvmlDeviceGetHandleByPciBusId_v2(*const c_char, *mut Handle) -> u32;
        fn nvmlDeviceGetClockInfo(Handle, u32, *mut u32) -> u32;
        fn nvmlDeviceGetPowerUsage(Handle, *mut u32) -> u32;
        fn nvmlDeviceGetEnforcedPowerLimit(Handle, *mut u32) -> u32;
        fn nvmlDeviceGetTemperature(Handle, u32, *mut u32) -> u32;
        fn nvmlDeviceGetCurrentClocksThrottleReasons(Handle, *mut u64) -> u32;
        fn nvmlDeviceGetFieldValues(Handle, i32, *mut FieldValue) -> u32;
    }
    optional {}
}

/// `nvmlFieldValue_t`.
#[repr(C)]
pub(crate) struct FieldValue {
    field: u32,
    scope: u32,
    timestamp: i64,
    latency: i64,
    kind: u32,
    result: u32,
    /// A union: the first four bytes where the kind is `NVML_VALUE_TYPE_UNSIGNED_INT`.
    value: [u32; 2],
}

/// `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const SM: u32 = 1;
const MEMORY: u32 = 2;

/// `NVML_TEMPERATURE_GPU`.
const GPU_SENSOR: u32 = 0;

/// `NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON`: megabytes per second of one link in one direction. `NVML_FI_DEV_NVLINK_LINK_COUNT`.
const LINK_SPEED: u32 = 90;
const LINK_COUNT: u32 = 91;

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED: u32 = 1;

/// Bits of `nvmlClocksThrottleReason*` that say that clocks are held down: being idle, and clocks that somebody asked for, do not.
const REASONS: [(u64, &str); 6] = [
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
];

/// The library, loaded once and for the life of the process.
pub(crate) struct Nvml {
    functions: Functions,
}

/// One GPU as NVML knows it.
pub(crate) struct Gpu {
    nvml: &'static Nvml,
    handle: Handle,
}

impl Nvml {
    /// NVML, initialised; none where there is no such library or it does not start.
    pub(crate) fn get() -> Option<&'static Nvml> {
        static NVML: OnceLock<Result<Nvml, LoadError>> = OnceLock::new();
        let loaded = NVML.get_or_init(|| loader::load_nvml(Functions::resolve).map(|functions| Nvml { functions }));
        // SAFETY: it takes no arguments; it may be called any number of times.
        loaded.as_ref().ok().filter(|nvml| unsafe { (nvml.functions.nvmlInit_v2)() } == 0)
    }

    /// The GPU at this address of the bus: `0000:04:00.0`.
    pub(crate) fn gpu(&'static self, bus_id: &str) -> Option<Gpu> {
        let (id, mut handle) = (CString::new(bus_id).ok()?, null_mut());
        // SAFETY: a string that ends in a zero, and room for a handle.
        let code = unsafe { (self.functions.nvmlDeviceGetHandleByPciBusId_v2)(id.as_ptr(), &mut handle) };
        (code == 0).then_some(Gpu { nvml: self, handle })
    }
}

impl Gpu {
    /// How it fares, as number `gpu` of the machine.
    pub(crate) fn condition(&self, gpu: usize) -> Option<Condition> {
        let Functions {
            nvmlDeviceGetClockInfo,
            nvmlDeviceGetPowerUsage,
            nvmlDeviceGetTemperature,
            nvmlDeviceGetCurrentClocksThrottleReasons,
            ..
        } = &self.nvml.functions;
        // SAFETY: the handle is NVML's own and lives as long as it; each call has room for its answer. So below.
        let clock = |which| answer(|value| unsafe { nvmlDeviceGetClockInfo(self.handle, which, value) });
        let mut bits = 0u64;
        // SAFETY: as above.
        let known = unsafe { nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, &mut bits) } == 0;
        Some(Condition {
            gpu,
            sm_mhz: clock(SM)?,
            memory_mhz: clock(MEMORY)?,
            // SAFETY: as above.
            watts: f64::from(answer(|value| unsafe { nvmlDeviceGetPowerUsage(self.handle, value) })?) / 1e3,
            // SAFETY: as above.
            celsius: answer(|value| unsafe { nvmlDeviceGetTemperature(self.handle, GPU_SENSOR, value) })?,
            throttled: if known { reasons(bits) } else { vec!["unknown".into()] },
        })
    }

    /// The most that it may draw, in watts.
    pub(crate) fn power_limit(&self) -> Option<f64> {
        // SAFETY: as in `condition`.
        let milliwatts = answer(|value| unsafe { (self.nvml.functions.nvmlDeviceGetEnforcedPowerLimit)(self.handle, value) });
        milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3)
    }

    /// Its NVLinks: how many, and GB/s of each in one direction.
    pub(crate) fn links(&self) -> Option<(u32, f64)> {
        let field = |field| FieldValue { field, scope: 0, timestamp: 0, latency: 0, kind: u32::MAX, result: u32::MAX, value: [0; 2] };
        let mut values = [field(LINK_COUNT), field(LINK_SPEED)];
        // SAFETY: as in `condition`; the call says how many there are.
        let code = unsafe { (self.nvml.functions.nvmlDeviceGetFieldValues)(self.handle, values.len() as i32, values.as_mut_ptr()) };
        let [count, speed] = values.map(|value| (value.result == 0 && value.kind == UNSIGNED).then_some(value.value[0]).filter(|&v| v > 0));
        (code == 0).then_some((count?, f64::from(speed?) / 1e3))
    }
}

fn answer(ask: impl FnOnce(*mut u32) -> u32) -> Option<u32> {
    let mut value = 0;
    (ask(&mut value) == 0).then_some(value)
}

/// The names of the bits that hold clocks down.
fn reasons(bits: u64) -> Vec<String> {
    REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_that_hold_clocks_down() {
        assert!(reasons(0x1 | 0x2).is_empty(), "idle, or clocks that somebody asked for");
        assert_eq!(reasons(0x4 | 0x40), ["sw_power_cap", "hw_thermal_slowdown"]);
    }

    /// If this fails, NVML writes past our values, or reads another field.
    #[test]
    fn field_values_are_laid_out_as_in_nvml_h() {
        assert_eq!((size_of::<FieldValue>(), std::mem::offset_of!(FieldValue, value)), (40, 32));
    }

    /// On a machine without NVML, and with one, asking never panics.
    #[test]
    fn a_machine_without_nvml_only_knows_less() {
        assert!(Nvml::get().and_then(|nvml| nvml.gpu("ffff:ff:ff.0")).is_none());
    }
}
