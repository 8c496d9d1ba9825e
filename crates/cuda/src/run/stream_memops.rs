//! Words that streams write and wait for, and how streams that wait for them are let go.
//!
//! A stream's wait has no limit of its own, and the host cannot take it back. So when a run is given up, the words that its plans wait
//! for are written from here, again and again, until all streams have come to their end: what they then do is of no use to anybody, but no
//! GPU is left waiting.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::group::Group;
use crate::{
    gpu::{
        device::Device,
        stream::{Stream, Word},
    },
    ranks::threads,
    vendor::driver::CudaError,
};
use passmuster_plan::plan::{Op, Plan, Region, Script, Step};

/// How long streams are let go.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// How long the read of one word may take.
const READ_LIMIT: Duration = Duration::from_millis(100);

/// A word of a rank that its streams wait for.
#[derive(Clone)]
struct Awaited {
    rank: usize,
    region: Region,
    address: u64,
    value: u32,
    /// The ranks whose plan has them write it.
    writers: Vec<usize>,
}

/// Streams that may wait for words, and these words. Of the ranks that are here.
pub(crate) struct Waiters {
    awaited: Vec<Awaited>,
    devices: Vec<Arc<Device>>,
    streams: Vec<Vec<Arc<Stream>>>,
}

impl Waiters {
    /// Those of a script. `devices` and `streams` are those of the ranks; a rank that is not here has no streams.
    pub(crate) fn of(script: &Script, groups: &[Group], devices: &[Arc<Device>], streams: &[Vec<Arc<Stream>>]) -> Waiters {
        let mut awaited = awaited(script, groups);
        awaited.retain(|word| streams.get(word.rank).is_some_and(|streams| !streams.is_empty()));
        Waiters { awaited, devices: devices.to_vec(), streams: streams.to_vec() }
    }

    /// What streams may wait for: each word that does not have its value, in the order of the plan, of ranks that are not done.
    pub(crate) fn told(self: &Arc<Self>) -> Vec<String> {
        self.do_in_time(|waiters| waiting(&waiters.awaited, &waiters.devices, &waiters.streams)).unwrap_or_default()
    }

    /// Lets the streams go.
    pub(crate) fn release(self: &Arc<Self>) {
        // Where it fails, the process's end does.
        let _ = self.do_in_time(|waiters| release(&waiters.awaited, &waiters.devices, &waiters.streams));
    }

    /// The driver may hold up its caller while ranks hang.
    fn do_in_time<T: Send + 'static>(self: &Arc<Self>, work: impl Fn(&Waiters) -> T + Send + Sync + 'static) -> Option<T> {
        if self.awaited.is_empty() {
            return None;
        }
        let waiters = self.clone();
        threads::on_all(1, 2 * RELEASE_LIMIT, move |_| work(&waiters)).into_iter().flatten().next()
    }
}

/// Every word that a script waits for, once.
fn awaited(script: &Script, groups: &[Group]) -> Vec<Awaited> {
    let mut all: Vec<Awaited> = Vec::new();
    let plans = script.steps.iter().flat_map(|step| match step {
        Step::Enqueue { group, plan, .. } => vec![(*group, plan)],
        Step::Capture { group, plans, .. } => plans.iter().map(|plan| (*group, plan)).collect(),
        _ => Vec::new(),
    });
    for (group, plan) in plans {
        let writers = plan.writers();
        for (rank, region, value) in waits(plan) {
            let Ok(address) = groups[group].address(rank, region) else { continue };
            if !all.iter().any(|known| (known.address, known.value) == (address, value)) {
                all.push(Awaited { rank, region: region.clone(), address, value, writers: writers.of(rank, region, value).to_vec() });
            }
        }
    }
    all
}

/// The waits of a plan: rank, word and value.
fn waits(plan: &Plan) -> impl Iterator<Item = (usize, &Region, u32)> {
    (0..plan.world()).flat_map(|rank| {
        plan.operations(rank).filter_map(move |op| match op {
            Op::WaitValue { at, value } => Some((rank, at, *value)),
            _ => None,
        })
    })
}

/// Whether all of a rank's streams are at their end. One that failed is.
fn is_done(streams: &[Arc<Stream>]) -> bool {
    streams.iter().all(|stream| stream.is_done().unwrap_or(true))
}

fn waiting(awaited: &[Awaited], devices: &[Arc<Device>], streams: &[Vec<Arc<Stream>>]) -> Vec<String> {
    let mut lines = Vec::new();
    for Awaited { rank, region, address, value, writers } in awaited.iter().filter(|word| !is_done(&streams[word.rank])) {
        let Some(word) = read(&devices[*rank], *address) else { continue };
        if word != *value {
            lines.push(format!("rank {rank} may wait until {region} is {value}: it is {word}, and ranks {writers:?} write {value}"));
        }
    }
    lines
}

fn read(device: &Device, address: u64) -> Option<u32> {
    let mut pinned = device.pinned.lock().ok()?;
    let read = device.make_current().and_then(|()| device.service.read_pinned(address, &mut pinned, 4, READ_LIMIT));
    read.unwrap_or(false).then(|| u32::from_le_bytes(pinned.bytes()[..4].try_into().expect("four bytes")))
}

fn release(awaited: &[Awaited], devices: &[Arc<Device>], streams: &[Vec<Arc<Stream>>]) -> Result<(), CudaError> {
    let begin = Instant::now();
    while begin.elapsed() < RELEASE_LIMIT && !streams.iter().all(|streams| is_done(streams)) {
        for Awaited { rank, address, value, .. } in awaited {
            let device = &devices[*rank];
            device.make_current()?;
            device.service.words(&[Word::Write { at: *address, value: *value }])?;
        }
        for device in devices {
            device.service.wait(READ_LIMIT)?;
        }
    }
    Ok(())
}
