//! What a machine goes by when it takes a script, or says why it cannot, before any device is asked.

use std::{collections::BTreeSet, time::Duration};

use crate::vendor::{
    environment::{self, MOST_CONNECTIONS},
    nccl,
};
use passmuster_plan::{
    collective::Collective,
    device::DeviceModel,
    library::Library,
    machine::{
        Deferred, Machine, MachineError, MachineInfo, Run,
        layout::Layout,
        validation::{self, Members, Needs},
    },
    plan::{BufferSpec, MAX_WORLD, Region, Script},
};

/// The most blocks that a rank's kernels are ever laid out for.
const MOST_BLOCKS: u32 = 128;

/// The most ranks that share one GPU, and the most streams of ranks that do: docs/performance/sharing.md says what was seen with more.
const MOST_RANKS_ON_A_GPU: usize = 8;
const MOST_STREAMS_OF_SHARING_RANKS: usize = 8;

/// The least compute capability on which NCCL reduces 8-bit floats.
const NCCL_REDUCES_EIGHT_BITS_SINCE: (i32, i32) = (9, 0);

/// The oldest NCCL with symmetric windows, as `ncclGetVersion` gives it, and the oldest with `ncclAlltoAll`.
const WINDOWS_SINCE: i32 = 22700;
const ALL_TO_ALL_SINCE: i32 = 22800;

/// What a [`CudaMachine`](crate::CudaMachine) goes by when it takes a group or a script, or refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The GPUs in use, by CUDA's numbers, at least one: rank `r` runs on `gpus[r % gpus.len()]`.
    pub gpus: Vec<usize>,
    /// Compute capability of the oldest of them.
    pub capability: (i32, i32),
    /// Multiprocessors of the smallest of them.
    pub sms: u32,
    /// Streams of one GPU that make progress independently.
    pub connections: usize,
}

impl Facts {
    /// Ranks on the GPU that has most of them in a world of `world`.
    pub(super) fn ranks_on_busiest(&self, world: usize) -> usize {
        // Of each GPU, those at every place where it is named: one place unless a caller wants it to have more ranks than others.
        let at = |place| world.saturating_sub(place).div_ceil(self.gpus.len());
        let ranks_on = |gpu| self.gpus.iter().enumerate().filter(|&(_, named)| *named == gpu).map(|(place, _)| at(place)).sum();
        self.gpus.iter().map(|&gpu| ranks_on(gpu)).max().unwrap_or(0)
    }

    /// The GPU of a rank.
    pub(crate) fn gpu(&self, rank: usize) -> usize {
        self.gpus[rank % self.gpus.len()]
    }

    /// Eight ranks on each GPU, up to [`MAX_WORLD`].
    pub(super) fn max_world(&self) -> usize {
        let fits = |world: &usize| self.ranks_on_busiest(*world) <= MOST_RANKS_ON_A_GPU;
        (1..=MAX_WORLD).take_while(fits).last().unwrap_or(0)
    }

    /// One block an SM: kernels of 512 threads that want all registers are not resident twice.
    pub(super) fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        let sharing = u32::try_from(self.ranks_on_busiest(world).saturating_mul(groups)).unwrap_or(u32::MAX);
        (self.sms / sharing.max(1)).clamp(1, MOST_BLOCKS)
    }

    /// Where the buffers of a group of `world` ranks lie.
    ///
    /// # Errors
    /// `NotSupported` where the GPUs have no place for `world` ranks, `Invalid` for none and for buffers that contradict each other.
    pub(super) fn takes_group(&self, world: usize, buffers: &[BufferSpec]) -> Result<Layout, MachineError> {
        if world == 0 {
            return Err(MachineError::Invalid { reason: "world size 0: a group has at least 1 rank".into() });
        }
        let sharing = self.ranks_on_busiest(world);
        if sharing > MOST_RANKS_ON_A_GPU {
            return not_supported(format!("world {world} puts {sharing} ranks on one GPU: at most {MOST_RANKS_ON_A_GPU} share one"));
        }
        if world > MAX_WORLD {
            return not_supported(format!("world {world}: GPUs take groups of at most {MAX_WORLD} ranks here"));
        }
        Layout::of(buffers).map_err(|error| MachineError::Invalid { reason: error.into() })
    }

    /// What a script needs on groups that are open.
    ///
    /// # Errors
    /// `Invalid` where it contradicts itself, its groups or its kernels; `NotSupported` where the GPUs do not have what it needs.
    pub(crate) fn takes<G: Members>(&self, script: &Script, groups: &[G], library: &Library) -> Result<Needs, MachineError> {
        let needs = validation::validate(script, groups, library).map_err(|reason| MachineError::Invalid { reason })?;
        if needs.multicast {
            let reason =
                "kernels take multicast addresses, and this version creates no multicast objects: multimem runs on the emulator only";
            return not_supported(reason);
        }
        if needs.variables {
            return not_supported("hosts set variables of the kernels' modules: on the emulator only");
        }
        if needs.nccl_of_eight_bits && self.capability < NCCL_REDUCES_EIGHT_BITS_SINCE {
            return not_supported("NCCL reduces 8-bit floats on GPUs of compute capability 9.0 and newer");
        }
        self.takes_streams(&needs)?;
        needs.nccl.keys().try_for_each(|&group| self.takes_nccl(&groups[group]))?;
        Ok(needs)
    }

    /// Whether the streams that a script needs make progress together.
    fn takes_streams(&self, needs: &Needs) -> Result<(), MachineError> {
        let (connections, sharing, streams) = (self.connections, self.ranks_on_busiest(needs.world), needs.all_streams());
        if sharing * streams > connections {
            return not_supported(format!(
                "{sharing} ranks with {streams} streams each on one GPU need as many connections, {} allows {connections}",
                environment::CONNECTIONS
            ));
        }
        if sharing > 1 && sharing * streams > MOST_STREAMS_OF_SHARING_RANKS {
            return not_supported(format!(
                "{sharing} ranks with {streams} streams each share one GPU: at most {MOST_STREAMS_OF_SHARING_RANKS} such streams make progress together"
            ));
        }
        Ok(())
    }

    /// Whether NCCL takes the ranks of a group: on each node they must have a GPU each. Those that a job says are on other nodes NCCL takes for elsewhere.
    pub(super) fn takes_nccl(&self, group: &impl Members) -> Result<(), MachineError> {
        let world = group.node_world();
        for first in (0..group.world()).step_by(world) {
            let distinct = (first..first + world).map(|rank| self.gpu(rank)).collect::<BTreeSet<usize>>().len();
            if distinct < world {
                return not_supported(format!("world {world} needs {world} GPUs for NCCL, {distinct} given"));
            }
        }
        Ok(())
    }
}

/// Whether an NCCL of a version (22809 is 2.28.9) has the functions that a script calls.
///
/// # Errors
/// `NotSupported`: names the version there is and the one that is needed.
pub(super) fn nccl_has(version: i32, needs: &Needs) -> Result<(), MachineError> {
    let windows = needs.nccl.values().any(|windows| *windows);
    let since = [
        (windows, WINDOWS_SINCE, "symmetric windows need NCCL 2.27"),
        (needs.windowed.contains(&Collective::AllToAll), ALL_TO_ALL_SINCE, "ncclAlltoAll needs NCCL 2.28"),
    ];
    match since.into_iter().find(|(needed, since, _)| *needed && version < *since) {
        Some((_, _, what)) => not_supported(format!("{what} or newer, this is {}", nccl::Version(version))),
        None => Ok(()),
    }
}

/// The refusal of ranks on several nodes where all of them are in one process.
pub(super) fn one_process_is_one_node<T>(world: usize, nodes: usize) -> Result<T, MachineError> {
    not_supported(format!("{nodes} nodes: a process is on one, to NCCL too (--launcher own --processes {world} --nodes {nodes})"))
}

fn not_supported<T>(reason: impl Into<String>) -> Result<T, MachineError> {
    Err(MachineError::NotSupported { reason: reason.into() })
}

/// A machine without devices: it refuses what a [`CudaMachine`](crate::CudaMachine) of the same facts would refuse, by the same code and in the same words,
/// and says of everything else that it was not run. It serves users who have no GPU and want to know what one would make of a case.
///
/// What only a device knows it does not look at: how much memory there is, how many blocks of a kernel are resident at once, and whether the
/// driver takes the kernel.
pub struct Rehearsal {
    facts: Facts,
    /// The version of NCCL, as `ncclGetVersion` gives it; none where there is no NCCL.
    nccl: Option<i32>,
    library: Library,
    groups: Vec<OnPaper>,
}

/// A group that has no memory.
struct OnPaper {
    world: usize,
    nodes: usize,
    layout: Layout,
}

impl Members for OnPaper {
    fn world(&self) -> usize {
        self.world
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Rehearsal {
    /// A machine of `gpus` H200, with all connections that there can be, and NCCL of a version such as 22809, if there is any.
    pub fn of_h200(gpus: usize, nccl: Option<i32>, library: Library) -> Rehearsal {
        let facts = Facts { gpus: (0..gpus).collect(), capability: (9, 0), sms: DeviceModel::MEASURED.sms, connections: MOST_CONNECTIONS };
        Rehearsal::new(facts, nccl, library)
    }

    /// A machine of which this is known.
    ///
    /// # Panics
    /// Where it has no GPU.
    pub fn new(facts: Facts, nccl: Option<i32>, library: Library) -> Rehearsal {
        assert!(!facts.gpus.is_empty(), "a machine has at least one GPU");
        Rehearsal { facts, nccl, library, groups: Vec::new() }
    }

    fn nothing_there<T>(&self) -> Result<T, MachineError> {
        Err(MachineError::inconclusive("a rehearsal has no memory"))
    }
}

impl Machine for Rehearsal {
    fn info(&self) -> MachineInfo {
        MachineInfo { kind: "cuda rehearsal".into(), gpus: self.facts.gpus.len(), ..MachineInfo::default() }
    }

    fn max_world(&self) -> usize {
        self.facts.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.facts.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        0
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        let layout = self.facts.takes_group(world, buffers)?;
        self.groups.push(OnPaper { world, nodes: 1, layout });
        Ok(self.groups.len() - 1)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        if nodes == 1 { self.open_group(world, buffers) } else { one_process_is_one_node(world, nodes) }
    }

    fn close_groups(&mut self) {
        self.groups.clear();
    }

    fn read(&mut self, _: usize, _: usize, _: &Region) -> Result<Vec<u8>, MachineError> {
        self.nothing_there()
    }

    fn fetch(&mut self, _: usize, _: usize, _: &Region) -> Result<Deferred<Vec<u8>>, MachineError> {
        self.nothing_there()
    }

    fn write(&mut self, _: usize, _: usize, _: &Region, _: &[u8]) -> Result<(), MachineError> {
        Ok(())
    }

    fn broken_canary(&mut self, _: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.nothing_there()
    }

    /// # Errors
    /// Always: `Inconclusive` where a machine with devices would run the script.
    fn run(&mut self, script: &Script, _: Duration) -> Result<Run, MachineError> {
        let needs = self.facts.takes(script, &self.groups, &self.library)?;
        if needs.calls_nccl() {
            let Some(version) = self.nccl else { return not_supported("there is no NCCL") };
            nccl_has(version, &needs)?;
        }
        Err(MachineError::inconclusive(format!("{} GPUs take it; a rehearsal runs nothing", self.facts.gpus.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn facts(gpus: &[usize]) -> Facts {
        Facts { gpus: gpus.to_vec(), capability: (9, 0), sms: DeviceModel::MEASURED.sms, connections: MOST_CONNECTIONS }
    }

    /// If this fails, a world that the GPUs have no place for is called an error of the harness.
    #[rstest]
    #[case(&[0], 8, None)]
    #[case(&[0], 9, Some("world 9 puts 9 ranks on one GPU: at most 8 share one"))]
    #[case(&[0, 1], 16, None)]
    #[case(&[0, 1], 17, Some("world 17 puts 9 ranks on one GPU: at most 8 share one"))]
    #[case(&[0, 1, 2, 3], 16, None)]
    #[case(&[0, 1, 2, 3], 64, Some("world 64 puts 16 ranks on one GPU: at most 8 share one"))]
    #[case(&[0, 1, 2, 3, 4, 5, 6, 7], 17, Some("world 17: GPUs take groups of at most 16 ranks here"))]
    #[case(&[0, 0, 1], 12, None)]
    #[case(&[0, 0, 1], 13, Some("world 13 puts 9 ranks on one GPU: at most 8 share one"))]
    fn worlds_that_have_no_place_are_not_supported(#[case] gpus: &[usize], #[case] world: usize, #[case] reason: Option<&str>) {
        let taken = facts(gpus).takes_group(world, &[]).map(drop);
        assert_eq!(taken, reason.map_or(Ok(()), not_supported));
        assert_eq!(world <= facts(gpus).max_world(), reason.is_none());
    }

    /// If this fails, asking about more groups or ranks than there can be panics, or takes for ever.
    #[test]
    fn a_share_of_very_many_is_one_block() {
        let facts = facts(&[0, 1]);
        assert_eq!(facts.waiting_blocks(4, 2), DeviceModel::MEASURED.sms / 4);
        for (world, groups) in [(1, 1 << 32), (1 << 40, 1), (usize::MAX, usize::MAX)] {
            assert_eq!(facts.waiting_blocks(world, groups), 1);
        }
        assert!(matches!(facts.takes_group(usize::MAX, &[]), Err(MachineError::NotSupported { .. })));
    }

    #[test]
    fn a_group_of_none_is_a_mistake() {
        assert!(matches!(facts(&[0]).takes_group(0, &[]), Err(MachineError::Invalid { .. })));
    }

    #[rstest]
    #[case(22900, true, Ok(()))]
    #[case(22703, false, Ok(()))]
    #[case(22703, true, Err("ncclAlltoAll needs NCCL 2.28 or newer, this is 2.27.3"))]
    #[case(22601, false, Err("symmetric windows need NCCL 2.27 or newer, this is 2.26.1"))]
    fn functions_that_an_nccl_lacks_are_not_supported(#[case] version: i32, #[case] exchanges: bool, #[case] expected: Result<(), &str>) {
        let collective = if exchanges { Collective::AllToAll } else { Collective::AllGather };
        let needs = Needs { nccl: [(0, true)].into(), windowed: [collective].into(), ..Needs::default() };
        assert_eq!(nccl_has(version, &needs), expected.or_else(not_supported));
        assert_eq!(nccl_has(22000, &Needs { nccl: [(0, false)].into(), ..Needs::default() }), Ok(()));
    }

    #[test]
    fn nccl_wants_a_gpu_for_each_rank() {
        let takes = |gpus: &[usize], world, nodes| {
            let layout = Layout::of(&[]).unwrap();
            facts(gpus).takes_nccl(&OnPaper { world, nodes, layout })
        };
        assert_eq!(takes(&[0, 1], 2, 1), Ok(()));
        assert_eq!(takes(&[0, 1], 3, 1), not_supported("world 3 needs 3 GPUs for NCCL, 2 given"));
        assert_eq!(takes(&[0, 0], 2, 1), not_supported("world 2 needs 2 GPUs for NCCL, 1 given"));
        // Two nodes of two ranks each, and of one.
        assert_eq!((takes(&[0, 1], 4, 2), takes(&[0], 2, 2)), (Ok(()), Ok(())));
        assert_eq!(takes(&[0], 4, 2), not_supported("world 2 needs 2 GPUs for NCCL, 1 given"));
    }
}
