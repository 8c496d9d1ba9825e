//! GPUs by their models: what plans, the emulator and timings go by where no device says it.

use crate::words::UnknownName;

/// A model of GPU. Multiprocessors and shared memory: NVIDIA's white papers of each, and the CUDA programming guide's table of compute capabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceModel {
    /// What commands call it: `h200`.
    pub name: &'static str,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Threads that are resident on one of them at once.
    pub threads_per_sm: u32,
    /// Blocks that are resident on one of them at once.
    pub blocks_per_sm: u32,
    /// Bytes of shared memory of one of them.
    pub shared_per_sm: u32,
    /// Bytes of shared memory that a block may have, static and dynamic.
    pub shared_per_block: u32,
}

/// Why a device does not run a PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Its target is no architecture.
    #[error("{target} is no target of a device")]
    Unknown {
        /// What `.target` says.
        target: String,
    },
    /// No model has the architecture.
    #[error(
        "it is for {target}, of which no device is modelled: there are {}",
        DeviceModel::ALL.map(|model| format!("{} (sm_{})", model.name, model.architecture())).join(", ")
    )]
    NotModelled {
        /// What `.target` says.
        target: String,
    },
    /// Other models run it.
    #[error("it is for {target}, and {device} is sm_{architecture}: {} would run it", others.join(" or "))]
    Another {
        /// What `.target` says.
        target: String,
        /// The model that was asked.
        device: &'static str,
        /// Its architecture: 90 for compute capability 9.0.
        architecture: u32,
        /// Those that run it.
        others: Vec<&'static str>,
    },
}

impl From<TargetError> for String {
    fn from(error: TargetError) -> String {
        error.to_string()
    }
}

impl DeviceModel {
    /// A100 with SXM.
    pub const A100: DeviceModel = DeviceModel {
        name: "a100",
        capability: (8, 0),
        sms: 108,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        shared_per_sm: 164 << 10,
        shared_per_block: 163 << 10,
    };
    /// H100 with SXM.
    pub const H100: DeviceModel = DeviceModel {
        name: "h100",
        capability: (9, 0),
        sms: 132,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        shared_per_sm: 228 << 10,
        shared_per_block: 227 << 10,
    };
    /// H200.
    pub const H200: DeviceModel = DeviceModel { name: "h200", ..DeviceModel::H100 };
    /// B200.
    pub const B200: DeviceModel = DeviceModel { name: "b200", capability: (10, 0), sms: 148, ..DeviceModel::H100 };

    /// All that are known.
    pub const ALL: [DeviceModel; 4] = [DeviceModel::A100, DeviceModel::H100, DeviceModel::H200, DeviceModel::B200];

    /// The one that was measured, which everything goes by where nobody names another.
    pub const MEASURED: DeviceModel = DeviceModel::H200;

    /// The model of a name.
    ///
    /// # Errors
    /// Names those that are known.
    pub fn find(name: &str) -> Result<DeviceModel, UnknownName> {
        let found = DeviceModel::ALL.into_iter().find(|model| model.name == name);
        found.ok_or_else(|| UnknownName::new("device", name, DeviceModel::ALL.map(|model| model.name)))
    }

    /// Whether it runs PTX that is for a target, as `.target` names it: `sm_90`, and later devices too; `sm_90a`, and no other device.
    ///
    /// # Errors
    /// Says for what the PTX is, and which models run it.
    pub fn takes(&self, target: &str) -> Result<(), TargetError> {
        let Some((is_for, only)) = architecture(target) else { return Err(TargetError::Unknown { target: target.to_owned() }) };
        if self.runs(is_for, only) {
            return Ok(());
        }
        let others: Vec<&'static str> = DeviceModel::ALL.iter().filter(|other| other.runs(is_for, only)).map(|other| other.name).collect();
        if others.is_empty() {
            return Err(TargetError::NotModelled { target: target.to_owned() });
        }
        Err(TargetError::Another { target: target.to_owned(), device: self.name, architecture: self.architecture(), others })
    }

    /// 90 for compute capability 9.0.
    fn architecture(&self) -> u32 {
        let (major, minor) = self.capability;
        major * 10 + minor
    }

    /// Whether it runs what is for an architecture. Features of a family (`f`) are there in later members of it, those of one architecture (`a`) nowhere else.
    fn runs(&self, is_for: u32, only: Option<char>) -> bool {
        let own = self.architecture();
        match only {
            Some('a') => is_for == own,
            Some(_) => is_for <= own && is_for / 10 == own / 10,
            None => is_for <= own,
        }
    }

    /// How many blocks of a launch it holds at once: the only arithmetic of that kind here. What is not in the table is left out, so that the device may
    /// hold fewer and never more: registers that nobody knows, and how SMs are spread over GPCs, within which a cluster must lie.
    ///
    /// ```
    /// use passmuster_plan::device::{DeviceModel, Footprint, Resource};
    ///
    /// let launch = Footprint { threads: 64, shared: 200_000, cluster: 1, registers: None };
    /// let held = DeviceModel::H200.occupancy(&launch);
    /// assert_eq!((held.blocks_per_sm, held.blocks, held.bounded_by), (1, 132, Resource::Shared));
    /// ```
    pub fn occupancy(&self, launch: &Footprint) -> Occupancy {
        let warps = launch.threads.div_ceil(WARP).max(1);
        let warps_per_sm = self.threads_per_sm / WARP;
        let shared = (launch.shared + RESERVED_SHARED).next_multiple_of(SHARED_UNIT);
        let by_registers = launch.registers.map(|registers| {
            let of_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
            (REGISTERS_PER_SM / PARTITIONS / of_warp * PARTITIONS) / warps
        });
        let bounds = [
            (Resource::Threads, warps_per_sm / warps),
            (Resource::Blocks, self.blocks_per_sm),
            (Resource::Shared, self.shared_per_sm / shared),
            (Resource::Registers, by_registers.unwrap_or(u32::MAX)),
        ];
        let (bounded_by, blocks_per_sm) = bounds.into_iter().min_by_key(|&(_, blocks)| blocks).unwrap_or((Resource::Blocks, 0));
        let cluster = u64::from(launch.cluster.max(1));
        let blocks = u64::from(self.sms) * u64::from(blocks_per_sm) / cluster * cluster;
        Occupancy { blocks_per_sm, blocks, bounded_by, registers_counted: by_registers.is_some() }
    }
}

/// Threads of a warp.
const WARP: u32 = 32;

/// Bytes of shared memory that the driver takes for itself of each block, from compute capability 8.0 on (Ampere and Hopper tuning guides).
const RESERVED_SHARED: u32 = 1 << 10;

/// Bytes in which shared memory is given to blocks, registers of 32 bits in which they are given to warps, such registers of an SM, and its parts over
/// which warps are spread: from compute capability 8.0 to 10.0 (CUDA programming guide, "Compute Capabilities"; cuda_occupancy.h).
const SHARED_UNIT: u32 = 128;
const REGISTER_UNIT: u32 = 256;
const REGISTERS_PER_SM: u32 = 64 << 10;
const PARTITIONS: u32 = 4;

/// What a launch takes of a device, as far as it decides how many of its blocks are resident at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
    /// Blocks of a cluster; 1 without clusters.
    pub cluster: u32,
    /// Registers of a thread, if somebody knows: ptxas chooses them.
    pub registers: Option<u32>,
}

/// How much of a launch is resident at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks on one SM; 0 if not one fits.
    pub blocks_per_sm: u32,
    /// Blocks on the device, whole clusters of them.
    pub blocks: u64,
    /// What there is too little of for more.
    pub bounded_by: Resource,
    /// Whether registers are counted.
    pub registers_counted: bool,
}

/// What blocks on an SM share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// Threads, in warps.
    Threads,
    /// Blocks.
    Blocks,
    /// Shared memory.
    Shared,
    /// Registers.
    Registers,
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Resource::Threads => "threads",
            Resource::Blocks => "blocks",
            Resource::Shared => "shared memory",
            Resource::Registers => "registers",
        })
    }
}

/// The number of `sm_90a`, and its letter. `None` if it is no architecture.
fn architecture(target: &str) -> Option<(u32, Option<char>)> {
    let name = target.strip_prefix("sm_")?;
    let letter = name.chars().last().filter(|letter| matches!(letter, 'a' | 'f'));
    let digits = name.strip_suffix(['a', 'f']).unwrap_or(name);
    let is_number = (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten().map(|number| (number, letter))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, PTX runs on a device that has not its instructions, or is refused where it would.
    #[rstest]
    #[case(DeviceModel::A100, "sm_80", Ok(()))]
    #[case(DeviceModel::A100, "sm_90", Err("it is for sm_90, and a100 is sm_80: h100 or h200 or b200 would run it"))]
    #[case(DeviceModel::H200, "sm_80", Ok(()))]
    #[case(DeviceModel::H200, "sm_90a", Ok(()))]
    #[case(DeviceModel::B200, "sm_90", Ok(()))]
    #[case(DeviceModel::B200, "sm_90a", Err("it is for sm_90a, and b200 is sm_100: h100 or h200 would run it"))]
    #[case(DeviceModel::B200, "sm_100f", Ok(()))]
    #[case(DeviceModel::H100, "sm_100f", Err("it is for sm_100f, and h100 is sm_90: b200 would run it"))]
    #[case(
        DeviceModel::H200,
        "sm_103a",
        Err("it is for sm_103a, of which no device is modelled: there are a100 (sm_80), h100 (sm_90), h200 (sm_90), b200 (sm_100)")
    )]
    #[case(
        DeviceModel::B200,
        "sm_120",
        Err("it is for sm_120, of which no device is modelled: there are a100 (sm_80), h100 (sm_90), h200 (sm_90), b200 (sm_100)")
    )]
    #[case(DeviceModel::H200, "sm_999999999999", Err("sm_999999999999 is no target of a device"))]
    #[case(DeviceModel::H200, "compute_90", Err("compute_90 is no target of a device"))]
    fn ptx_is_for_its_target_and_later(#[case] model: DeviceModel, #[case] target: &str, #[case] expected: Result<(), &str>) {
        assert_eq!(model.takes(target).map_err(String::from), expected.map_err(str::to_owned));
    }

    #[test]
    fn models_are_found_by_name() {
        assert_eq!(DeviceModel::find("h200"), Ok(DeviceModel::H200));
        assert_eq!(
            DeviceModel::find("h20").unwrap_err().to_string(),
            "unknown device `h20`: did you mean `h200`? expected one of a100, h100, h200, b200"
        );
    }

    /// If this fails, blocks that a device cannot hold together are run together, and a hang is missed, or a false one reported. The numbers are those of
    /// cudaOccupancyMaxActiveBlocksPerMultiprocessor.
    #[rstest]
    #[case::threads(DeviceModel::H200, (1024, 0, None), (2, Resource::Threads))]
    #[case::part_of_a_warp(DeviceModel::H200, (1000, 0, None), (2, Resource::Threads))]
    #[case::threads_of_an_sm(DeviceModel::H200, (768, 0, None), (2, Resource::Threads))]
    #[case::blocks(DeviceModel::H200, (32, 0, None), (32, Resource::Blocks))]
    #[case::shared(DeviceModel::H200, (64, 227 << 10, None), (1, Resource::Shared))]
    #[case::with_what_is_reserved(DeviceModel::H200, (64, 113 << 10, None), (2, Resource::Shared))]
    #[case::without_what_is_reserved(DeviceModel::H200, (64, 114 << 10, None), (1, Resource::Shared))]
    #[case::of_ampere(DeviceModel::A100, (64, 81 << 10, None), (2, Resource::Shared))]
    #[case::registers(DeviceModel::H200, (512, 0, Some(128)), (1, Resource::Registers))]
    #[case::registers_in_units(DeviceModel::H200, (256, 0, Some(65)), (3, Resource::Registers))]
    #[case::few_registers(DeviceModel::H200, (512, 0, Some(32)), (4, Resource::Threads))]
    #[case::too_many_registers(DeviceModel::H200, (1024, 0, Some(128)), (0, Resource::Registers))]
    fn blocks_that_fit(
        #[case] model: DeviceModel,
        #[case] (threads, shared, registers): (u32, u32, Option<u32>),
        #[case] expected: (u32, Resource),
    ) {
        let held = model.occupancy(&Footprint { threads, shared, cluster: 1, registers });
        assert_eq!((held.blocks_per_sm, held.bounded_by), expected);
        assert_eq!((held.blocks, held.registers_counted), (u64::from(model.sms * expected.0), registers.is_some()));
    }

    #[test]
    fn clusters_fit_whole() {
        let held = DeviceModel::H200.occupancy(&Footprint { threads: 1024, shared: 200 << 10, cluster: 8, registers: None });
        assert_eq!((held.blocks_per_sm, held.blocks), (1, 128));
    }
}
