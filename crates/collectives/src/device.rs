//! GPUs by their models: what plans, the emulator and timings go by where no device says it.

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
    /// Bytes of shared memory that a block may have, static and dynamic.
    pub shared_per_block: u32,
    /// The tuning table that was measured on it, or on one that differs from it in memory alone, as `cargo xtask tune` writes it: each row says where.
    pub tuning: Option<&'static str>,
}

/// Of H100 and H200, which have the same multiprocessors and links.
const HOPPER: &str = include_str!("../tuning/hopper.json");

impl DeviceModel {
    /// A100 with SXM.
    pub const A100: DeviceModel =
        DeviceModel { name: "a100", capability: (8, 0), sms: 108, threads_per_sm: 2048, shared_per_block: 163 << 10, tuning: None };
    /// H100 with SXM.
    pub const H100: DeviceModel =
        DeviceModel { name: "h100", capability: (9, 0), sms: 132, threads_per_sm: 2048, shared_per_block: 227 << 10, tuning: Some(HOPPER) };
    /// H200.
    pub const H200: DeviceModel = DeviceModel { name: "h200", ..DeviceModel::H100 };
    /// B200.
    pub const B200: DeviceModel =
        DeviceModel { name: "b200", capability: (10, 0), sms: 148, threads_per_sm: 2048, shared_per_block: 227 << 10, tuning: None };

    /// All that are known.
    pub const ALL: [DeviceModel; 4] = [DeviceModel::A100, DeviceModel::H100, DeviceModel::H200, DeviceModel::B200];

    /// The one that was measured, which everything goes by where nobody names another.
    pub const MEASURED: DeviceModel = DeviceModel::H200;

    /// The model of a name.
    ///
    /// # Errors
    /// Names those that are known.
    pub fn find(name: &str) -> Result<DeviceModel, String> {
        DeviceModel::ALL.into_iter().find(|model| model.name == name).ok_or_else(|| {
            let names = DeviceModel::ALL.map(|model| model.name).join(", ");
            format!("unknown device `{name}`: expected one of {names}")
        })
    }

    /// Whether it runs PTX that is for a target, as `.target` names it: `sm_90`, and later devices too; `sm_90a`, and no other device.
    ///
    /// # Errors
    /// Says for what the PTX is.
    pub fn takes(&self, target: &str) -> Result<(), String> {
        let (major, minor) = self.capability;
        let digits: String = target.chars().filter(char::is_ascii_digit).collect();
        let own = major * 10 + minor;
        let is_for = digits.parse().unwrap_or(0_u32);
        // Features of a family (`f`) are there in later members of it, those of one architecture (`a`) nowhere else.
        let fits = match target.chars().last() {
            Some('a') => is_for == own,
            Some('f') => is_for <= own && is_for / 10 == own / 10,
            _ => is_for <= own,
        };
        if fits { Ok(()) } else { Err(format!("it is for {target}, and {} is sm_{own}", self.name)) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, PTX runs on a device that has not its instructions, or is refused where it would.
    #[rstest]
    #[case(DeviceModel::A100, "sm_80", Ok(()))]
    #[case(DeviceModel::A100, "sm_90", Err("it is for sm_90, and a100 is sm_80"))]
    #[case(DeviceModel::H200, "sm_80", Ok(()))]
    #[case(DeviceModel::H200, "sm_90a", Ok(()))]
    #[case(DeviceModel::B200, "sm_90", Ok(()))]
    #[case(DeviceModel::B200, "sm_90a", Err("it is for sm_90a, and b200 is sm_100"))]
    #[case(DeviceModel::B200, "sm_100f", Ok(()))]
    #[case(DeviceModel::H100, "sm_100f", Err("it is for sm_100f, and h100 is sm_90"))]
    fn ptx_is_for_its_target_and_later(#[case] model: DeviceModel, #[case] target: &str, #[case] expected: Result<(), &str>) {
        assert_eq!(model.takes(target), expected.map_err(str::to_owned));
    }

    #[test]
    fn models_are_found_by_name() {
        assert_eq!(DeviceModel::find("h200"), Ok(DeviceModel::H200));
        assert_eq!(DeviceModel::find("h20").unwrap_err(), "unknown device `h20`: expected one of a100, h100, h200, b200");
    }
}
