//! Whether a script makes sense for the groups it names: everything that can be said without asking a device.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
};

use super::{arguments::tensor_maps, layout::Layout};
use crate::{
    collective::Collective,
    device::DeviceModel,
    library::Library,
    plan::{Arg, Launch, MAX_RANKS, MAX_SIDES, NcclCall, Op, Plan, Region, Script, Step, first_of_node},
};

/// The most shared memory that a block can have on any device, in bytes.
const MOST_SHARED: u32 = DeviceModel::B200.shared_per_block;

/// The most blocks of a launch, on any device.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// The most blocks of a launch along y, and along z.
const MOST_ROWS: u32 = u16::MAX as u32;

/// More streams of a rank than any device runs at once.
const MOST_STREAMS: usize = 32;

/// What must be known of a group to say whether a script fits it.
pub trait Members {
    /// How many ranks it has.
    fn world(&self) -> usize;

    /// Its buffers.
    fn layout(&self) -> &Layout;

    /// How many nodes its ranks are on, as many on each.
    fn nodes(&self) -> usize {
        1
    }

    /// Ranks of one node: those that address each other's memory.
    fn node_world(&self) -> usize {
        self.world() / self.nodes()
    }

    /// The first rank of a rank's node.
    fn first_of_node(&self, rank: usize) -> usize {
        first_of_node(rank, self.world(), self.nodes())
    }
}

/// What a script needs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Ranks that take part: those of the largest group.
    pub world: usize,
    /// Streams of each rank that the script names.
    pub streams: usize,
    /// Side streams of each of these.
    pub sides: usize,
    /// Groups it runs on.
    pub groups: BTreeSet<usize>,
    /// Groups that NCCL is called on among all ranks, and whether with windows.
    pub nccl: BTreeMap<usize, bool>,
    /// Groups that it is called on across nodes.
    pub nccl_across_nodes: BTreeSet<usize>,
    /// Collectives that NCCL is called for with windows.
    pub windowed: BTreeSet<Collective>,
    /// Whether NCCL is to reduce 8-bit floats.
    pub nccl_of_eight_bits: bool,
    /// Whether kernels take multicast addresses.
    pub multicast: bool,
    /// Whether kernels take tensor maps.
    pub tensor_maps: bool,
    /// Whether hosts set variables of modules.
    pub variables: bool,
    /// Whether the library multiplies matrices.
    pub matmul: bool,
    /// Whether launches may start before those that they depend on are done.
    pub programmatic: bool,
}

impl Needs {
    /// Whether NCCL is called.
    pub fn calls_nccl(&self) -> bool {
        !self.nccl.is_empty() || !self.nccl_across_nodes.is_empty()
    }

    /// Streams of each rank, with those at the side.
    pub fn all_streams(&self) -> usize {
        self.streams * (1 + self.sides)
    }
}

/// The number of a side stream among all of a rank's, of which the script names the first `streams`: `side` is from 1 on.
pub fn side_stream((streams, sides): (usize, usize), stream: usize, side: usize) -> usize {
    streams + stream * sides + side - 1
}

/// Checks a script and says what it needs.
///
/// # Errors
/// The first thing that contradicts the groups, the kernels or itself.
pub fn validate<G: Members>(script: &Script, groups: &[G], library: &Library) -> Result<Needs, String> {
    let mut needs = Needs { streams: 1, ..Needs::default() };
    let mut graphs = BTreeSet::new();
    // Of a plan on a group, which steps share: nothing in here may depend on the step.
    let mut checked: BTreeMap<(usize, *const Plan), Checked> = BTreeMap::new();
    // Of each rank that there will be, in the order of enqueuing; and those that take no part any more.
    let (mut fetches, mut left) = (vec![0; largest_world(script, groups)], BTreeSet::new());
    for step in &script.steps {
        let (group, stream, plans): (_, _, &[Arc<Plan>]) = match step {
            Step::Enqueue { group, stream, plan } => (Some(*group), *stream, std::slice::from_ref(plan)),
            Step::Capture { graph, group, plans } => {
                if !graphs.insert(*graph) {
                    return Err(format!("graph {graph} is captured twice"));
                }
                (Some(*group), 0, plans)
            }
            Step::Replay { graph, stream } => {
                if !graphs.contains(graph) {
                    return Err(format!("graph {graph} is replayed before it is captured"));
                }
                (None, *stream, &[])
            }
            Step::Await { fetch } => {
                if let Some((rank, has)) = fetches.iter().enumerate().find(|&(rank, has)| !left.contains(&rank) && *fetch >= *has) {
                    return Err(format!("fetch {fetch} is awaited: rank {rank} has enqueued {has} before"));
                }
                if fetches.is_empty() {
                    return Err(format!("fetch {fetch} is awaited: none is enqueued before"));
                }
                continue;
            }
            Step::Leave { rank, .. } => {
                left.insert(*rank);
                continue;
            }
            Step::Delay { .. } | Step::Mark => continue,
        };
        if stream >= MOST_STREAMS {
            return Err(format!("stream {stream}: a rank has streams 0 to {}", MOST_STREAMS - 1));
        }
        needs.streams = needs.streams.max(stream + 1);
        let Some(number) = group else { continue };
        let group = groups.get(number).ok_or_else(|| format!("group {number} is not open: there are {}", groups.len()))?;
        needs.world = needs.world.max(group.world());
        needs.groups.insert(number);
        for plan in plans {
            let within = |why| format!("plan `{}` on group {number}: {why}", plan.name);
            let of_plan = match checked.entry((number, Arc::as_ptr(plan))) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    check_plan(plan, group, library).map_err(within)?;
                    (0..plan.world()).flat_map(|rank| plan.operations(rank)).for_each(|op| needs.add(number, op));
                    entry.insert(Checked::of(plan))
                }
            };
            if matches!(step, Step::Capture { .. })
                && let Some(why) = &of_plan.not_captured
            {
                return Err(within(why.clone()));
            }
            for (has, more) in fetches.iter_mut().zip(&of_plan.fetches) {
                *has += more;
            }
        }
    }
    if needs.all_streams() > MOST_STREAMS {
        let (streams, sides) = (needs.streams, needs.sides);
        return Err(format!("{streams} streams with {sides} side streams each: a rank has {MOST_STREAMS} at most"));
    }
    for step in &script.steps {
        if let Step::Delay { rank, .. } | Step::Leave { rank, .. } = step
            && *rank >= needs.world
        {
            return Err(format!("rank {rank} takes no part: the script's groups have ranks 0 to {}", needs.world as i64 - 1));
        }
    }
    Ok(needs)
}

/// Ranks of the largest group that a script runs on, of those that are open.
fn largest_world<G: Members>(script: &Script, groups: &[G]) -> usize {
    let group = |step: &Step| match step {
        Step::Enqueue { group, .. } | Step::Capture { group, .. } => groups.get(*group),
        _ => None,
    };
    script.steps.iter().filter_map(group).map(Members::world).max().unwrap_or(0)
}

/// What is known of a plan that was found in order, whichever step has it.
struct Checked {
    /// Why no graph can have it, if none can.
    not_captured: Option<String>,
    /// How much each rank fetches.
    fetches: Vec<usize>,
}

impl Checked {
    fn of(plan: &Plan) -> Checked {
        let why = |op: &Op| match op {
            Op::Mark => Some("a mark is captured: times are noted in what is enqueued".to_owned()),
            Op::Fetch { .. } => Some(format!("{op} is captured: each fetch brings one value")),
            _ => None,
        };
        let fetches = |rank| plan.operations(rank).filter(|op| matches!(op, Op::Fetch { .. })).count();
        Checked {
            not_captured: (0..plan.world()).flat_map(|rank| plan.operations(rank)).find_map(why),
            fetches: (0..plan.world()).map(fetches).collect(),
        }
    }
}

impl Needs {
    /// What an operation on a group needs.
    fn add(&mut self, group: usize, op: &Op) {
        match op {
            Op::Launch(launch) => {
                self.multicast |= launch.uses_multicast();
                self.programmatic |= launch.programmatic;
                self.tensor_maps |= !tensor_maps(launch.values()).is_empty();
                self.variables |= !launch.variables.is_empty();
            }
            Op::Nccl(NcclCall { call, windows, across_nodes }) => {
                if *across_nodes {
                    self.nccl_across_nodes.insert(group);
                } else {
                    *self.nccl.entry(group).or_default() |= windows;
                }
                self.windowed.extend(windows.then_some(call.collective));
                self.nccl_of_eight_bits |= call.dtype.is_float() && call.dtype.size() == 1 && call.op.reduces();
            }
            Op::Matmul(_) => self.matmul = true,
            Op::Fork { stream, .. } => self.sides = self.sides.max(*stream),
            Op::Copy { .. }
            | Op::Fill { .. }
            | Op::WriteValue { .. }
            | Op::WaitValue { .. }
            | Op::Fetch { .. }
            | Op::Join { .. }
            | Op::Mark => {}
        }
    }
}

fn check_plan(plan: &Plan, group: &impl Members, library: &Library) -> Result<(), String> {
    if plan.world() != group.world() {
        return Err(format!("it is for {} ranks, the group has {}", plan.world(), group.world()));
    }
    if plan.nodes as usize != group.nodes() && !plan.reached_by_peers().is_empty() {
        return Err(format!(
            "ranks of it reach each other's memory, as those of {} nodes can: the group has {}",
            plan.nodes,
            group.nodes()
        ));
    }
    for (rank, ops) in plan.ranks.iter().enumerate() {
        plan.operations(rank)
            .try_for_each(|op| check_op(op, rank, group, library))
            .and_then(|()| check_sides(ops))
            .map_err(|why| format!("rank {rank}: {why}"))?;
    }
    Ok(())
}

/// Whether a rank joins whatever it forks.
fn check_sides(ops: &[Op]) -> Result<(), String> {
    let mut open = BTreeSet::new();
    for op in ops {
        match op {
            Op::Fork { stream, .. } | Op::Join { stream } if !(1..=MAX_SIDES).contains(stream) => {
                return Err(format!("{op}: side streams are 1 to {MAX_SIDES}"));
            }
            Op::Fork { ops, .. } if ops.is_empty() => return Err(format!("{op}: nothing is forked")),
            Op::Fork { stream, ops } => {
                if let Some(inner) = ops.iter().find(|op| matches!(op, Op::Fork { .. } | Op::Join { .. })) {
                    return Err(format!("{op}: {inner}: a side stream neither forks nor joins"));
                }
                open.insert(*stream);
            }
            Op::Join { stream } if !open.remove(stream) => return Err(format!("{op}: nothing was forked to it since it was joined")),
            _ => {}
        }
    }
    open.first().map_or(Ok(()), |stream| Err(format!("side stream {stream} is forked to and not joined")))
}

fn check_op(op: &Op, rank: usize, group: &impl Members, library: &Library) -> Result<(), String> {
    let known = |region: &Region| group.layout().find(region).map(drop).map_err(String::from);
    match op {
        Op::Launch(launch) => {
            library.check(launch)?;
            let Launch { grid, block, cluster, entry, dynamic_shared, .. } = launch;
            let [_, rows, layers] = grid.0;
            if !(1..=MOST_BLOCKS.into()).contains(&grid.total()) || !(1..=1024).contains(&block.total()) {
                return Err(format!("launch of `{entry}` with {grid} blocks of {block} threads: 1 to {MOST_BLOCKS} of 1 to 1024"));
            }
            if rows.max(layers) > MOST_ROWS {
                return Err(format!("launch of `{entry}` with {grid} blocks: at most {MOST_ROWS} along y and z"));
            }
            if let Some(cluster) = cluster
                && (0..3).any(|axis| cluster.0[axis] == 0 || !grid.0[axis].is_multiple_of(cluster.0[axis]))
            {
                return Err(format!("launch of `{entry}` with {grid} blocks in clusters of {cluster}: a multiple on each axis is needed"));
            }
            if *dynamic_shared > MOST_SHARED {
                return Err(format!("launch of `{entry}` with {dynamic_shared} bytes of dynamic shared memory: at most {MOST_SHARED}"));
            }
            launch.values().try_for_each(|arg| check_arg(arg, rank, group, &known))
        }
        Op::Copy { from, to, to_rank } => {
            known(from)?;
            known(to)?;
            let to_peer = goes_to_peer(op, to, rank, *to_rank, group)?;
            if from.bytes != to.bytes {
                return Err(format!("copy {from} -> {to}: {} bytes to {}", from.bytes, to.bytes));
            }
            if !to_peer && from.overlaps(to) {
                return Err(format!("copy {from} -> {to}: they overlap"));
            }
            Ok(())
        }
        Op::Fill { region, .. } => known(region),
        Op::Fetch { from } if from.bytes == 0 => Err(format!("{op}: at least a byte")),
        Op::Fetch { from } => known(from),
        Op::WriteValue { to, to_rank, .. } => {
            known(to)?;
            goes_to_peer(op, to, rank, *to_rank, group)?;
            is_word(op, to)
        }
        Op::WaitValue { at, .. } => known(at).and_then(|()| is_word(op, at)),
        Op::Matmul(call) => {
            let operands = &call.operands;
            [&operands.a, &operands.b, &operands.c, &call.workspace].into_iter().try_for_each(known)?;
            call.check().map_err(|why| format!("{call}: {why}"))
        }
        Op::Fork { .. } | Op::Join { .. } | Op::Mark => Ok(()),
        Op::Nccl(NcclCall { call, windows, across_nodes }) => {
            if *windows && *across_nodes {
                return Err(format!("{op}: windows are of all ranks of a group"));
            }
            let (rank, world) = if *across_nodes { (rank / group.node_world(), group.nodes()) } else { (rank, group.world()) };
            call.check(rank, world).map_err(|error| error.to_string())?;
            let shape = call.shape(world as u32);
            for (region, elements) in [(&call.input, shape.input()), (&call.output, shape.output())] {
                known(region)?;
                let needed = elements.checked_mul(call.dtype.size()).ok_or_else(|| format!("count {} overflows", call.count))?;
                if region.bytes != needed {
                    return Err(format!("{region} has {} bytes, {elements} elements of {} need {needed}", region.bytes, call.dtype));
                }
            }
            Ok(())
        }
    }
}

/// Whether what a `rank` does goes to a peer's memory, which there must be.
fn goes_to_peer(op: &impl fmt::Display, to: &Region, rank: usize, to_rank: Option<u32>, group: &impl Members) -> Result<bool, String> {
    let Some(peer) = to_rank.map(|rank| rank as usize).filter(|&peer| peer != rank % group.node_world()) else { return Ok(false) };
    if peer >= group.node_world() {
        return Err(format!("{op}: {}", ranks_there_are(group)));
    }
    if group.layout().is_local(&to.buffer) {
        return Err(format!("{op}: the buffer is local to each rank"));
    }
    Ok(true)
}

/// Which ranks operations may name.
fn ranks_there_are(group: &impl Members) -> String {
    let of = if group.nodes() > 1 { "a node of the group" } else { "the group" };
    format!("{of} has ranks 0 to {}", group.node_world() - 1)
}

fn is_word(op: &Op, region: &Region) -> Result<(), String> {
    if region.bytes != 4 || !region.offset.is_multiple_of(4) {
        return Err(format!("{op}: a word is 4 bytes at a multiple of 4"));
    }
    Ok(())
}

fn check_arg(arg: &Arg, rank: usize, group: &impl Members, known: &impl Fn(&Region) -> Result<(), String>) -> Result<(), String> {
    match arg {
        Arg::Struct(fields) | Arg::InMemory(fields) => {
            return fields.iter().try_for_each(|field| check_arg(field, rank, group, known));
        }
        Arg::TensorMap(map) => {
            known(&map.region)?;
            map.check()?;
            return goes_to_peer(map, &map.region, rank, map.of_rank, group).map(|_| ());
        }
        _ => {}
    }
    let Some(region) = arg.region() else { return Ok(()) };
    if arg.reaches_peers() && group.layout().is_local(&region.buffer) {
        return Err(format!("peers' addresses of {region}: the buffer is local to each rank"));
    }
    match arg {
        Arg::PeerArray { length, .. } if !(1..=MAX_RANKS).contains(&(*length as usize)) => {
            Err(format!("{length} peers' addresses of {region}: 1 to {MAX_RANKS} fit"))
        }
        Arg::ShiftedStride { shift, bytes, .. } if *shift > 63 || ![4, 8].contains(bytes) => {
            Err(format!("stride of {region} >> {shift} in {bytes} bytes: at most 63, in 4 or 8"))
        }
        Arg::AddressOf { rank, .. } if *rank as usize >= group.node_world() => {
            Err(format!("address of {region} on rank {rank}: {}", ranks_there_are(group)))
        }
        _ => known(region),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        collective::{DType, ReduceOp},
        modules::Module,
        plan::{BufferSpec, Departure, Parts, RankCall, Role, TensorMap},
    };
    use rstest::rstest;

    fn library() -> Library {
        static TWO_SHOT: Module = Module::new("all_reduce/two_shot", ".visible .entry all_reduce_two_shot_f32_sum(\n");
        Library::new(vec![&TWO_SHOT])
    }

    /// Two ranks.
    struct Pair(Layout);

    impl Members for Pair {
        fn world(&self) -> usize {
            2
        }

        fn layout(&self) -> &Layout {
            &self.0
        }
    }

    fn groups() -> Vec<Pair> {
        vec![Pair(Layout::of(&[BufferSpec::new("a", 64, Role::Data), BufferSpec::new("b", 64, Role::Data)]).unwrap())]
    }

    fn enqueue(group: usize, stream: usize, world: u32, op: Op) -> Step {
        Step::Enqueue { group, stream, plan: Arc::new(Plan::per_rank("p", world, |_| vec![op.clone()])) }
    }

    fn fill() -> Op {
        Op::Fill { region: Region::new("a", 0, 64), byte: 1 }
    }

    fn copy(from: Region, to: Region) -> Op {
        Op::Copy { from, to, to_rank: None }
    }

    fn launch(entry: &str, grid: u32, args: Vec<Arg>) -> Op {
        let module = "all_reduce/two_shot".into();
        let (grid, block, dynamic_shared, waits_for_peers) = (grid.into(), 512.into(), 0, true);
        Op::Launch(Launch {
            module,
            entry: entry.into(),
            grid,
            block,
            cluster: None,
            dynamic_shared,
            waits_for_peers,
            programmatic: false,
            registers: None,
            variables: Vec::new(),
            args,
        })
    }

    fn refusal(steps: Vec<Step>) -> String {
        validate(&Script { steps }, &groups(), &library()).unwrap_err()
    }

    #[test]
    fn needs_are_the_union_of_all_steps() {
        let capture = Step::Capture { graph: 7, group: 0, plans: vec![Arc::new(Plan::per_rank("p", 2, |_| vec![fill()]))] };
        let steps = vec![
            Step::Mark,
            enqueue(0, 1, 2, fill()),
            capture,
            Step::Replay { graph: 7, stream: 2 },
            Step::Leave { rank: 1, how: Departure::Idle },
        ];
        let needs = validate(&Script { steps }, &groups(), &library()).unwrap();
        assert_eq!(
            needs,
            Needs {
                world: 2,
                streams: 3,
                sides: 0,
                groups: [0].into(),
                nccl: BTreeMap::new(),
                nccl_across_nodes: BTreeSet::new(),
                windowed: BTreeSet::new(),
                nccl_of_eight_bits: false,
                multicast: false,
                tensor_maps: false,
                matmul: false,
                programmatic: false,
                variables: false,
            }
        );
    }

    /// If this fails, a GPU that NCCL reduces no 8-bit floats on is taken for broken, or is spared copies of them.
    #[rstest]
    #[case(Collective::AllReduce, DType::E4M3, ReduceOp::Sum, true)]
    #[case(Collective::Broadcast, DType::E5M2, ReduceOp::Copy, false)]
    #[case(Collective::AllReduce, DType::I8, ReduceOp::Sum, false)]
    fn eight_bit_floats_are_a_need_where_nccl_reduces_them(
        #[case] collective: Collective,
        #[case] dtype: DType,
        #[case] op: ReduceOp,
        #[case] needed: bool,
    ) {
        let (input, output) = (Region::new("a", 0, 8), Region::new("a", 8, 8));
        let call = RankCall { collective, dtype, op, count: 8, root: 0, factor: None, parts: None, input, output };
        let script = Script { steps: vec![enqueue(0, 0, 2, Op::Nccl(NcclCall::of_all(call, false)))] };
        assert_eq!(validate(&script, &groups(), &library()).unwrap().nccl_of_eight_bits, needed);
    }

    /// Three rows of four elements of f32.
    fn tensor_map(offset: u64, bytes: u64) -> Arg {
        let (extents, tile) = (vec![4, 3], vec![4, 2]);
        Arg::TensorMap(TensorMap::packed(Region::new("a", offset, bytes), DType::F32, extents, tile, 32))
    }

    #[test]
    fn a_tensor_of_a_rank_that_there_is_not_is_refused() {
        let Arg::TensorMap(map) = tensor_map(0, 48) else { unreachable!() };
        let of_rank = |rank| {
            let arg = Arg::Struct(vec![Arg::TensorMap(TensorMap { of_rank: Some(rank), ..map.clone() })]);
            let script = Script { steps: vec![enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![arg]))] };
            validate(&script, &groups(), &library()).map(|needs| needs.tensor_maps).map_err(|error| error.to_string())
        };
        assert_eq!(of_rank(1), Ok(true));
        assert!(of_rank(2).unwrap_err().ends_with("of a[0..48] of rank 2 in boxes of 4x2 swizzled 32: the group has ranks 0 to 1"));
    }

    #[test]
    fn tensor_maps_are_a_need_wherever_they_are() {
        for arg in [tensor_map(0, 48), Arg::Struct(vec![Arg::U32(1), tensor_map(16, 48)])] {
            let script = Script { steps: vec![enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![arg]))] };
            assert!(validate(&script, &groups(), &library()).unwrap().tensor_maps);
        }
    }

    #[test]
    fn multicast_addresses_are_a_need_wherever_they_are() {
        let entry = "all_reduce_two_shot_f32_sum";
        for arg in [Arg::Multicast(Region::new("a", 0, 8)), Arg::Struct(vec![Arg::U32(1), Arg::Multicast(Region::new("a", 0, 8))])] {
            let script = Script { steps: vec![enqueue(0, 0, 2, launch(entry, 1, vec![arg]))] };
            assert!(validate(&script, &groups(), &library()).unwrap().multicast);
        }
    }

    #[rstest]
    #[case::group(enqueue(3, 0, 2, fill()), "group 3 is not open: there are 1")]
    #[case::world(enqueue(0, 0, 3, fill()), "plan `p` on group 0: it is for 3 ranks, the group has 2")]
    #[case::fetch(
        enqueue(0, 0, 2, Op::Fetch { from: Region::new("a", 60, 8) }),
        "plan `p` on group 0: rank 0: region a[60..68] ends past its buffer of 64 bytes"
    )]
    #[case::fetch_nothing(
        enqueue(0, 0, 2, Op::Fetch { from: Region::new("a", 0, 0) }),
        "plan `p` on group 0: rank 0: fetch a[0..0]: at least a byte"
    )]
    #[case::await_nothing(Step::Await { fetch: 0 }, "fetch 0 is awaited: none is enqueued before")]
    #[case::stream(enqueue(0, 32, 2, fill()), "stream 32: a rank has streams 0 to 31")]
    #[case::replay(Step::Replay { graph: 1, stream: 0 }, "graph 1 is replayed before it is captured")]
    #[case::range(
        enqueue(0, 0, 2, copy(Region::new("a", 32, 64), Region::new("b", 0, 64))),
        "plan `p` on group 0: rank 0: region a[32..96] ends past its buffer of 64 bytes"
    )]
    #[case::length(
        enqueue(0, 0, 2, copy(Region::new("a", 0, 32), Region::new("b", 0, 16))),
        "plan `p` on group 0: rank 0: copy a[0..32] -> b[0..16]: 32 bytes to 16"
    )]
    #[case::overlap(
        enqueue(0, 0, 2, copy(Region::new("a", 0, 32), Region::new("a", 16, 32))),
        "plan `p` on group 0: rank 0: copy a[0..32] -> a[16..48]: they overlap"
    )]
    #[case::word(
        enqueue(0, 0, 2, Op::WriteValue { to: Region::new("a", 2, 4), value: 1, to_rank: None }),
        "plan `p` on group 0: rank 0: write 1 -> a[2..6]: a word is 4 bytes at a multiple of 4"
    )]
    #[case::awaited_word(
        enqueue(0, 0, 2, Op::WaitValue { at: Region::new("a", 4, 8), value: 1 }),
        "plan `p` on group 0: rank 0: wait until a[4..12] is 1: a word is 4 bytes at a multiple of 4"
    )]
    #[case::written_rank(
        enqueue(0, 0, 2, Op::WriteValue { to: Region::new("a", 4, 4), value: 1, to_rank: Some(2) }),
        "plan `p` on group 0: rank 0: write 1 -> a[4..8] of rank 2: the group has ranks 0 to 1"
    )]
    #[case::copied_rank(
        enqueue(0, 0, 2, Op::Copy { from: Region::new("a", 0, 4), to: Region::new("b", 0, 4), to_rank: Some(7) }),
        "plan `p` on group 0: rank 0: copy a[0..4] -> b[0..4] of rank 7: the group has ranks 0 to 1"
    )]
    #[case::blocks(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 0, vec![])),
        "plan `p` on group 0: rank 0: launch of `all_reduce_two_shot_f32_sum` with 0 blocks of 512 threads: 1 to 2147483647 of 1 to 1024"
    )]
    #[case::too_many_blocks(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1 << 31, vec![])),
        "plan `p` on group 0: rank 0: launch of `all_reduce_two_shot_f32_sum` with 2147483648 blocks of 512 threads: 1 to 2147483647 of 1 to 1024"
    )]
    #[case::nested(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![Arg::Struct(vec![Arg::Peers(Region::new("c", 0, 1))])])),
        "plan `p` on group 0: rank 0: region c[0..1] names no buffer of the group, which has a, b"
    )]
    #[case::multicast(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![Arg::Multicast(Region::new("a", 60, 8))])),
        "plan `p` on group 0: rank 0: region a[60..68] ends past its buffer of 64 bytes"
    )]
    #[case::tensor_map(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![tensor_map(8, 48)])),
        "plan `p` on group 0: rank 0: tensor map of a[8..56]: it starts at byte 8, TMA needs a multiple of 16"
    )]
    #[case::tensor_map_of(
        enqueue(0, 0, 2, launch("all_reduce_two_shot_f32_sum", 1, vec![tensor_map(32, 48)])),
        "plan `p` on group 0: rank 0: region a[32..80] ends past its buffer of 64 bytes"
    )]
    fn contradictions_are_refused(#[case] step: Step, #[case] reason: &str) {
        assert_eq!(refusal(vec![step]), reason);
    }

    /// If this fails, a rank's thread panics in the middle of a run, or NCCL reads and writes what it must not, or it adds where it was to multiply.
    #[rstest]
    #[case::parts_missing(|call: &mut RankCall| call.parts = parts(&[4], &[4, 4]), "rank 0 passed parts = 1 sent: one for each of 2 ranks")]
    #[case::parts_too_long(|call: &mut RankCall| call.parts = parts(&[4, 4], &[4, 9]), "rank 0 passed parts = received[1] = 9: at most count = 8 elements each")]
    #[case::parts_of_others(
        |call: &mut RankCall| (call.collective, call.op, call.parts) = (Collective::AllGather, ReduceOp::Copy, parts(&[4, 4], &[4, 4])),
        "rank 0 passed parts = some: all_gather has none"
    )]
    #[case::root(
        |call: &mut RankCall| (call.collective, call.op, call.root) = (Collective::Reduce, ReduceOp::Sum, 2),
        "rank 0 passed root = 2: reduce among 2 ranks has roots 0 to 1"
    )]
    #[case::factor(
        |call: &mut RankCall| (call.collective, call.op) = (Collective::AllReduce, ReduceOp::PremulSum),
        "rank 0 passed factor = none: premul_sum of bf16 has the bits of one element, 2 bytes"
    )]
    #[case::operator(|call: &mut RankCall| call.op = ReduceOp::Sum, "op sum: all_to_all has copy")]
    fn library_calls_that_contradict_themselves_are_refused(#[case] change: fn(&mut RankCall), #[case] reason: &str) {
        let mut call = RankCall {
            collective: Collective::AllToAll,
            dtype: DType::BF16,
            op: ReduceOp::Copy,
            count: 8,
            root: 0,
            factor: None,
            parts: parts(&[8, 0], &[8, 3]),
            input: Region::new("a", 0, 32),
            output: Region::new("b", 0, 32),
        };
        let step = |call: &RankCall| enqueue(0, 0, 2, Op::Nccl(NcclCall::of_all(call.clone(), false)));
        validate(&Script { steps: vec![step(&call)] }, &groups(), &library()).unwrap();
        change(&mut call);
        assert_eq!(refusal(vec![step(&call)]), format!("plan `p` on group 0: rank 0: {reason}"));
    }

    fn parts(sent: &[u64], received: &[u64]) -> Option<Parts> {
        Some(Parts { sent: sent.to_vec(), received: received.to_vec() })
    }

    #[test]
    fn unknown_kernels_name_those_there_are() {
        let reason = refusal(vec![enqueue(0, 0, 2, launch("nothing", 1, vec![]))]);
        assert!(reason.contains("kernel `nothing` is not in the PTX of `all_reduce/two_shot`, which has all_reduce_"), "{reason}");
    }

    #[test]
    fn copies_to_peers_take_the_same_bytes_elsewhere_and_no_local_buffer() {
        let local = BufferSpec { local: true, ..BufferSpec::new("own", 64, Role::Data) };
        let groups = [Pair(Layout::of(&[BufferSpec::new("a", 64, Role::Data), local]).unwrap())];
        let to_peer = |buffer: &str| {
            let region = Region::new(buffer, 0, 16);
            let of_rank = |rank: u32| vec![Op::Copy { from: region.clone(), to: region.clone(), to_rank: Some(1 - rank) }];
            let plan = Arc::new(Plan::per_rank("p", 2, of_rank));
            let script = Script { steps: vec![Step::Enqueue { group: 0, stream: 0, plan }] };
            validate(&script, &groups, &library()).map(|_| ())
        };
        assert_eq!(to_peer("a"), Ok(()));
        let reason = "plan `p` on group 0: rank 0: copy own[0..16] -> own[0..16] of rank 1: the buffer is local to each rank";
        assert_eq!(to_peer("own"), Err(reason.into()));
    }

    #[test]
    fn only_what_every_rank_has_fetched_is_awaited() {
        let fetch = Op::Fetch { from: Region::new("a", 0, 8) };
        let of_rank_0 = Arc::new(Plan::per_rank("p", 2, |rank| vec![fetch.clone(); 1 - rank as usize]));
        let enqueue_fetch = || Step::Enqueue { group: 0, stream: 0, plan: of_rank_0.clone() };
        assert_eq!(refusal(vec![enqueue_fetch(), Step::Await { fetch: 0 }]), "fetch 0 is awaited: rank 1 has enqueued 0 before");
        let script = |steps| validate(&Script { steps }, &groups(), &library()).map(drop);
        assert_eq!(script(vec![enqueue_fetch(), Step::Leave { rank: 1, how: Departure::Idle }, Step::Await { fetch: 0 }]), Ok(()));
        assert_eq!(script(vec![enqueue(0, 0, 2, fetch.clone()), enqueue(0, 1, 2, fetch.clone()), Step::Await { fetch: 1 }]), Ok(()));
        let capture = Step::Capture { graph: 0, group: 0, plans: vec![Arc::new(Plan::per_rank("p", 2, |_| vec![fetch.clone()]))] };
        assert_eq!(refusal(vec![capture]), "plan `p` on group 0: fetch a[0..8] is captured: each fetch brings one value");
    }

    /// If this fails, what was enqueued before is captured with a mark or a fetch in it, and on GPUs every rank's thread panics.
    #[rstest]
    #[case::mark(Op::Mark, "a mark is captured: times are noted in what is enqueued")]
    #[case::fetch(Op::Fetch { from: Region::new("a", 0, 8) }, "fetch a[0..8] is captured: each fetch brings one value")]
    fn what_no_graph_can_have_is_refused_wherever_else_it_is(
        #[case] op: Op,
        #[case] why: &str,
        #[values(false, true)] forked: bool,
        #[values(0, 1)] of_rank: usize,
    ) {
        let ops = if forked { vec![Op::Fork { stream: 1, ops: vec![fill(), op] }, Op::Join { stream: 1 }] } else { vec![op] };
        let plan = Arc::new(Plan::per_rank("p", 2, |rank| if rank as usize == of_rank { ops.clone() } else { vec![fill()] }));
        let other = Arc::new(Plan::per_rank("other", 2, |_| vec![fill()]));
        let enqueued = || Step::Enqueue { group: 0, stream: 0, plan: plan.clone() };
        let captured =
            |graph, plans: &[&Arc<Plan>]| Step::Capture { graph, group: 0, plans: plans.iter().map(|&plan| plan.clone()).collect() };
        let replayed = |graph| Step::Replay { graph, stream: 0 };
        for steps in [
            vec![captured(0, &[&plan])],
            vec![captured(0, &[&plan]), enqueued()],
            vec![enqueued(), captured(0, &[&plan])],
            vec![enqueued(), enqueued(), captured(0, &[&other, &plan]), replayed(0)],
            vec![captured(0, &[&other]), replayed(0), enqueued(), captured(1, &[&plan]), replayed(1)],
        ] {
            assert_eq!(refusal(steps), format!("plan `p` on group 0: {why}"));
        }
        let around = vec![enqueued(), captured(0, &[&other]), replayed(0), enqueued(), replayed(0)];
        assert!(validate(&Script { steps: around }, &groups(), &library()).is_ok());
    }

    /// If this fails, ranks of a larger group that comes later wait for a fetch that they do not have, and on GPUs their threads panic.
    #[test]
    fn ranks_of_groups_that_come_later_have_fetched_too() {
        struct Of(usize, Layout);
        impl Members for Of {
            fn world(&self) -> usize {
                self.0
            }

            fn layout(&self) -> &Layout {
                &self.1
            }
        }
        let groups = [2, 3].map(|world| Of(world, Layout::of(&[BufferSpec::new("a", 64, Role::Data)]).unwrap()));
        let fetch = || Op::Fetch { from: Region::new("a", 0, 8) };
        let validated = |steps| validate(&Script { steps }, &groups, &library()).map(drop);
        let awaited_before = vec![enqueue(0, 0, 2, fetch()), Step::Await { fetch: 0 }, enqueue(1, 0, 3, fill())];
        assert_eq!(validated(awaited_before), Err("fetch 0 is awaited: rank 2 has enqueued 0 before".into()));
        assert_eq!(validated(vec![enqueue(0, 0, 2, fetch()), Step::Await { fetch: 0 }]), Ok(()));
    }

    #[test]
    fn graphs_are_captured_once_and_ranks_exist() {
        let capture = || Step::Capture { graph: 0, group: 0, plans: vec![] };
        assert_eq!(refusal(vec![capture(), capture()]), "graph 0 is captured twice");
        let steps = vec![Step::Delay { rank: 2, microseconds: 1 }, enqueue(0, 0, 2, fill())];
        assert_eq!(refusal(steps), "rank 2 takes no part: the script's groups have ranks 0 to 1");
    }
}
