//! Stuck reports of groups: read after every run, and from under kernels that hang.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::group::Group;
use crate::{gpu::device::Device, ranks::threads, vendor::driver::CudaError};
use passmuster_plan::{
    machine::{Stuck, decode_stuck_report},
    plan::Role,
};

/// How long one report may take to be read while kernels hang, of which some may be those of other processes.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// A stuck report of one rank.
#[derive(Clone)]
pub(crate) struct Report {
    name: String,
    rank: usize,
    /// Ranks of its group, and the nodes that they are on.
    group: (usize, usize),
    device: Arc<Device>,
    address: u64,
    bytes: usize,
}

/// The reports of a group on those of its ranks that are here. `devices` has the device of every rank.
pub(crate) fn of_group(group: &Group, devices: &[Arc<Device>], own: Option<usize>) -> Vec<Report> {
    let of_role = group.layout.buffers().filter(|(spec, _)| spec.role == Role::StuckReport && spec.bytes >= 4);
    of_role
        .flat_map(|(spec, offset)| {
            let here = group.place.bases.iter().enumerate().filter(move |(rank, _)| own.is_none_or(|own| own == *rank));
            here.map(move |(rank, base)| Report {
                name: spec.name.clone(),
                rank,
                group: (group.world, group.nodes),
                device: devices[rank].clone(),
                address: base + offset,
                bytes: spec.bytes as usize,
            })
        })
        .collect()
}

/// Whether a wait was given up in any of the reports: their first words. Nothing is running.
pub(crate) fn any(reports: &[Report]) -> Result<bool, (usize, CudaError)> {
    for report in reports {
        let mut word = [0; 4];
        let read = report.device.make_current().and_then(|()| report.device.service.read(report.address, &mut word));
        read.map_err(|error| (report.rank, error))?;
        if word != [0; 4] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All waits that were given up, as far as they can be read in bounded time: kernels may be running, and the driver may not answer.
pub(crate) fn collect(reports: &[Report]) -> Vec<Stuck> {
    let mut of_device: BTreeMap<usize, Vec<Report>> = BTreeMap::new();
    for report in reports {
        of_device.entry(report.device.ordinal).or_default().push(report.clone());
    }
    let most = of_device.values().map(Vec::len).max().unwrap_or(0) as u32;
    let of_device: Vec<Vec<Report>> = of_device.into_values().collect();
    let read = threads::on_all(of_device.len(), READ_LIMIT * (most + 1), move |at| read_all(&of_device[at]));
    let mut stuck: Vec<Stuck> = read.into_iter().flatten().flatten().collect();
    stuck.sort_by_key(|entry| (entry.rank, entry.block, entry.peer));
    stuck
}

/// The reports of one device; stops at the first that does not come.
fn read_all(reports: &[Report]) -> Vec<Stuck> {
    let mut stuck = Vec::new();
    for report in reports {
        let device = &report.device;
        let Ok(mut pinned) = device.pinned.lock() else { break };
        let read = device.make_current().and_then(|()| device.service.read_pinned(report.address, &mut pinned, report.bytes, READ_LIMIT));
        if !read.unwrap_or(false) {
            break;
        }
        let bytes = pinned.bytes();
        stuck.extend(decode_stuck_report(&report.name, report.rank, report.group, &bytes[..report.bytes.min(bytes.len())]));
    }
    stuck
}
