//! A machine for testing the harness itself: ranks in lockstep, kernels by what they mean, with room for a planted bug. It knows no
//! schedules and no PTX; it lets `cargo test` run whole cases on a laptop and see that checks catch what they should.

use std::time::Duration;

use super::inputs::{InputClass, Payload, Transform};
use passmuster_collectives::{
    algorithms::{premul_sum, reduction::of_argument},
    collective::{Collective, Counts, DType, ReduceOp, Shape, premultiply},
    machine::{CANARY, Machine, MachineError, MachineInfo, Run},
    plan::{Arg, BufferSpec, Fill, Launch, MAX_WORLD, NcclCall, Op, Plan, Region, Script, Step},
};

/// What a simulated kernel does to a rank's result: gets the call's number, the rank, all ranks' inputs and the right result, as bytes.
pub(super) type Bug = fn(Observed<'_>, &mut [u8]);

/// What a planted bug sees.
pub(super) struct Observed<'a> {
    pub(super) call: usize,
    pub(super) rank: usize,
    /// What each rank's launch names as its input.
    pub(super) inputs: &'a [Vec<u8>],
}

/// The buffers of a group, and for each rank the bytes of each.
struct Group {
    buffers: Vec<BufferSpec>,
    ranks: Vec<Vec<Vec<u8>>>,
}

/// A collective call under way: what it is, and each rank's input and output.
struct Collected {
    shape: Shape,
    dtype: DType,
    op: ReduceOp,
    /// What each rank multiplies its input by, if it does.
    factors: Vec<u64>,
    /// What each rank sends to each, in an all-to-all-v.
    sent: Vec<Vec<u64>>,
    ranks: Vec<(Region, Region)>,
    /// Whether each rank reduces what its input is on all ranks.
    pulls: bool,
}

/// Ranks in lockstep.
pub(super) struct Simulated {
    groups: Vec<Group>,
    bug: Bug,
    planned: fn(&mut Plan),
    calls: usize,
    rendezvous: u64,
}

impl Simulated {
    /// A machine without bugs.
    pub(super) fn correct() -> Simulated {
        Simulated::with_bug(|_, _| {})
    }

    /// A machine whose kernels have a bug.
    pub(super) fn with_bug(bug: Bug) -> Simulated {
        Simulated { groups: Vec::new(), bug, planned: |_| {}, calls: 0, rendezvous: 0 }
    }

    /// A machine without bugs, which carries out every plan as `change` leaves it.
    pub(super) fn with_plans(change: fn(&mut Plan)) -> Simulated {
        Simulated { planned: change, ..Simulated::correct() }
    }

    fn bytes(&mut self, group: usize, rank: usize, region: &Region) -> &mut [u8] {
        let Group { buffers, ranks } = &mut self.groups[group];
        let index = buffers.iter().position(|b| b.name == region.buffer).expect("a known buffer");
        &mut ranks[rank][index][region.offset as usize..(region.offset + region.bytes) as usize]
    }

    /// Runs a plan: operation by operation, all ranks together. At what they do together, those that have come wait for the others.
    fn enqueue(&mut self, group: usize, plan: &Plan, gone: &[usize]) {
        let mut plan = plan.clone();
        (self.planned)(&mut plan);
        let mut next = vec![0; plan.world()];
        loop {
            let heads: Vec<(usize, &Op)> = (0..plan.world())
                .filter(|rank| !gone.contains(rank))
                .filter_map(|rank| Some((rank, plan.ranks[rank].get(next[rank])?)))
                .collect();
            let all_have_come = heads.iter().all(|(_, op)| is_collective(op));
            if heads.is_empty() {
                return;
            }
            let mut collected: Option<Collected> = None;
            for (rank, op) in heads.into_iter().filter(|(_, op)| all_have_come || !is_collective(op)) {
                next[rank] += 1;
                match op {
                    Op::Launch(launch) if launch.module == "conformance/fill" => self.fill(group, rank, launch),
                    Op::Launch(launch) if launch.module == "all_reduce/copy_engine" => self.reduce(group, rank, launch),
                    Op::Launch(launch) if launch.module == "all_to_all/push_v" => self.push_parts(group, rank, launch),
                    Op::Launch(launch) if launch.module == premul_sum::MODULE.name => self.multiply(group, rank, launch),
                    Op::Launch(launch) => {
                        let (mut call, place) = launched(launch, plan.world() as u32);
                        let (sent, factors) = (std::mem::take(&mut call.sent), std::mem::take(&mut call.factors));
                        let collected = collected.get_or_insert(call);
                        collected.sent.extend(sent);
                        collected.factors.extend(factors);
                        collected.ranks.push(place);
                    }
                    Op::Nccl(NcclCall { call, .. }) => {
                        let shape = call.shape(plan.world() as u32);
                        let fresh = Collected {
                            shape,
                            dtype: call.dtype,
                            op: call.op,
                            factors: Vec::new(),
                            sent: Vec::new(),
                            ranks: Vec::new(),
                            pulls: false,
                        };
                        let collected = collected.get_or_insert(fresh);
                        collected.ranks.push((call.input.clone(), call.output.clone()));
                        collected.factors.extend(call.factor);
                        collected.sent.extend(call.parts.as_ref().map(|parts| parts.sent.clone()));
                    }
                    Op::Copy { from, to, to_rank } => {
                        let bytes = self.bytes(group, rank, from).to_vec();
                        self.bytes(group, target(rank, *to_rank), to).copy_from_slice(&bytes);
                    }
                    Op::Fill { region, byte } => self.bytes(group, rank, region).fill(*byte),
                    Op::WriteValue { to, value, to_rank } => {
                        self.bytes(group, target(rank, *to_rank), to).copy_from_slice(&value.to_le_bytes());
                    }
                    // In lockstep, everything that is waited for has happened.
                    Op::WaitValue { at, value } => assert_eq!(self.bytes(group, rank, at), value.to_le_bytes()),
                    Op::Matmul(_) | Op::Fork { .. } | Op::Join { .. } | Op::Fetch { .. } | Op::Mark => {
                        unreachable!("small cases have none")
                    }
                }
            }
            if let Some(collected) = collected {
                self.carry_out(group, &collected);
            }
        }
    }

    fn fill(&mut self, group: usize, rank: usize, launch: &Launch) {
        let [
            Arg::Address(region),
            Arg::U64(count),
            Arg::U64(seed),
            Arg::U32(class),
            Arg::U32(_),
            Arg::U32(world),
            Arg::U32(call),
            Arg::U32(kind),
            Arg::U64(argument),
        ] = &launch.args[..]
        else {
            panic!("the fill kernel's arguments: {:?}", launch.args)
        };
        let transform = match kind {
            0 => Transform::None,
            1 => Transform::Negate,
            2 => Transform::Scale(*argument as i64 as i32),
            3 => Transform::Plus(*argument as u32),
            _ => Transform::Flip { rank: rank as u32, index: *argument },
        };
        let dtype = launch.entry.strip_prefix("fill_").and_then(|name| name.parse().ok()).expect("fill_DTYPE");
        let payload = Payload { class: InputClass::ALL[*class as usize], dtype, world: *world, seed: *seed, call: *call, transform };
        let bytes = payload.bytes(rank as u32, 0..*count);
        self.bytes(group, rank, region).copy_from_slice(&bytes);
    }

    /// What lies in one rank's memory.
    fn reduce(&mut self, group: usize, rank: usize, launch: &Launch) {
        let [Arg::Struct(slices), Arg::U64(count), Arg::Address(output), Arg::U32(average), Arg::U32(world)] = &launch.args[..] else {
            panic!("the arguments of a reduction within one rank: {:?}", launch.args)
        };
        let regions = slices.iter().filter_map(|slice| if let Arg::Address(region) = slice { Some(region) } else { None });
        let inputs: Vec<Vec<u8>> = regions.map(|region| self.bytes(group, rank, region).to_vec()).collect();
        let (dtype, op) = reduction(launch, *average);
        let results = Shape::new(Collective::AllReduce, *world, *count).results(dtype, op, &inputs);
        self.bytes(group, rank, output).copy_from_slice(&results[0]);
    }

    /// One rank's input becomes its products.
    fn multiply(&mut self, group: usize, rank: usize, launch: &Launch) {
        let [Arg::Address(input), Arg::Address(products), Arg::U64(_), Arg::U64(factor)] = &launch.args[..] else {
            panic!("the arguments of a multiplication: {:?}", launch.args)
        };
        let dtype = launch.entry.rsplit('_').next().and_then(|dtype| dtype.parse().ok()).expect("a type");
        let multiplied = premultiply(dtype, *factor, self.bytes(group, rank, input));
        self.bytes(group, rank, products).copy_from_slice(&multiplied);
    }

    /// One rank's parts go to where the others' outputs have them.
    fn push_parts(&mut self, group: usize, rank: usize, launch: &Launch) {
        let [Arg::Address(input), Arg::Peers(output), Arg::Struct(parts), Arg::Struct(_)] = &launch.args[..] else {
            panic!("the arguments of a push of parts: {:?}", launch.args)
        };
        let field = |at: usize| if let Arg::U64(value) = parts[at] { value } else { panic!("a part: {parts:?}") };
        for peer in 0..self.groups[group].ranks.len() {
            let [bytes, from, to] = [0, MAX_WORLD, 2 * MAX_WORLD].map(|row| field(row + peer));
            let sent = self.bytes(group, rank, &Region::new(input.buffer.clone(), input.offset + from, bytes)).to_vec();
            self.bytes(group, peer, &Region::new(output.buffer.clone(), output.offset + to, bytes)).copy_from_slice(&sent);
        }
    }

    /// What is at `region` on all ranks, reduced.
    fn pulled(&mut self, group: usize, region: &Region, (dtype, op): (DType, ReduceOp)) -> Vec<u8> {
        let inputs: Vec<Vec<u8>> = (0..self.groups[group].ranks.len()).map(|rank| self.bytes(group, rank, region).to_vec()).collect();
        let shape = Shape::new(Collective::AllReduce, inputs.len() as u32, region.bytes / dtype.size());
        shape.results(dtype, op, &inputs).swap_remove(0)
    }

    fn carry_out(&mut self, group: usize, Collected { shape, dtype, op, factors, sent, ranks, pulls }: &Collected) {
        let mut inputs: Vec<Vec<u8>> = ranks.iter().enumerate().map(|(rank, (input, _))| self.bytes(group, rank, input).to_vec()).collect();
        for (input, &factor) in inputs.iter_mut().zip(factors) {
            *input = premultiply(*dtype, factor, input);
        }
        let of = |sender: u32, receiver: u32| sent[sender as usize][receiver as usize];
        let shape = shape.clone().with_counts((!sent.is_empty()).then(|| Counts::new(shape.world, of)));
        let results = match pulls {
            true => ranks.iter().map(|(input, _)| self.pulled(group, input, (*dtype, *op))).collect(),
            false => shape.results(*dtype, *op, &inputs),
        };
        for (rank, (mut result, (_, output))) in results.into_iter().zip(ranks).enumerate() {
            let before = self.bytes(group, rank, output).to_vec();
            if !shape.receivers().contains(&(rank as u32)) {
                result.clear();
            }
            // What gets no result stays.
            result.extend_from_slice(&before[result.len()..]);
            (self.bug)(Observed { call: self.calls, rank, inputs: &inputs }, &mut result);
            self.bytes(group, rank, output).copy_from_slice(&result);
        }
        self.calls += 1;
    }
}

/// Kernels that are carried out rank by rank.
const BY_RANK: [&str; 4] = ["conformance/fill", "all_reduce/copy_engine", "all_to_all/push_v", premul_sum::MODULE.name];

/// The kernel whose ranks multiply what they send, one that they carry out together.
const MULTIPLYING: &str = "premul_sum/push";

/// Kernels that reduce what their ranks' inputs are on all ranks, each rank's for itself.
const PULLS: [&str; 2] = ["all_reduce/one_shot", "all_reduce/multimem_one_shot"];

/// Whether ranks do an operation together.
fn is_collective(op: &Op) -> bool {
    matches!(op, Op::Nccl(_)) || matches!(op, Op::Launch(launch) if !BY_RANK.contains(&&*launch.module))
}

/// Whose memory an operation of `rank` goes to.
fn target(rank: usize, to_rank: Option<u32>) -> usize {
    to_rank.map_or(rank, |rank| rank as usize)
}

/// What a kernel does, by its module, its entry and its arguments, and where one rank's input and output are.
fn launched(launch: &Launch, world: u32) -> (Collected, (Region, Region)) {
    let multiplies = launch.module == MULTIPLYING;
    let (collective, _) = launch.module.split_once('/').expect("COLLECTIVE/ALGORITHM");
    let mut collective: Collective = if multiplies { Collective::AllReduce } else { collective.parse().expect("a collective") };
    let mut root = 0;
    // A multicast address comes with the ranks' own of the same region, which say as much.
    let is_multicast = |at: usize| matches!(launch.args[at], Arg::Multicast(_));
    let args: Vec<Arg> = (0..launch.args.len()).filter(|&at| !is_multicast(at)).map(|at| launch.args[at].clone()).collect();
    let mut sent = Vec::new();
    let (input, output, mut count, average) = match &args[..] {
        [Arg::Address(input) | Arg::Peers(input), Arg::Address(output) | Arg::Peers(output), Arg::U64(count), rest @ ..] => {
            let average = match (rest, collective.has_root()) {
                ([Arg::U32(of_call), ..], true) => {
                    root = *of_call;
                    0
                }
                ([Arg::U32(average), ..], false) => *average,
                _ => 0,
            };
            (input, output, *count, average)
        }
        [Arg::Address(input), Arg::Address(output), Arg::U32(count), Arg::U32(average), _] => (input, output, u64::from(*count), *average),
        [Arg::Address(input), Arg::Address(output), Arg::U32(count), Arg::Struct(_)] => (input, output, u64::from(*count), 0),
        // All that is asked of a shape in parts is what the ranks send, in elements of the entry's.
        [Arg::Address(input), Arg::Address(output), Arg::U32(_), Arg::Struct(parts), Arg::Struct(_), Arg::Struct(_)] => {
            let length = |part: &Arg| if let Arg::U64(bytes) = part { *bytes } else { panic!("a part: {parts:?}") };
            sent.push(parts[..world as usize].iter().map(length).collect());
            (input, output, 0, 0)
        }
        other => panic!("a kernel's arguments: {other:?}"),
    };
    let (dtype, op) = match launch.entry.rsplit('_').next() {
        // Of copies the width is known only: any type of it does.
        Some("b8") => (DType::U8, ReduceOp::Copy),
        Some("b16") => (DType::BF16, ReduceOp::Copy),
        Some("b32") => (DType::I32, ReduceOp::Copy),
        Some("b64") => (DType::F64, ReduceOp::Copy),
        Some(dtype) if multiplies => (dtype.parse().expect("a type"), ReduceOp::PremulSum),
        _ => reduction(launch, average),
    };
    let slices = match &*launch.module {
        "all_reduce/push" | MULTIPLYING => Some([&args[6], &args[7]]),
        "all_reduce/two_shot" => Some([&args[4], &args[5]]),
        _ => None,
    };
    if let Some([[_, owners], [receiver, receivers]]) = slices.map(|of| of.map(ranks)) {
        if owners < world {
            (collective, root) = (Collective::Reduce, receiver);
        } else if receivers == 1 {
            // The input is of all slices.
            collective = Collective::ReduceScatter;
            count /= u64::from(world);
        }
    }
    let shape = Shape::new(collective, world, count).with_root(root);
    let pulls = PULLS.contains(&&*launch.module);
    let factors = match args[..] {
        [_, _, _, Arg::U64(factor), ..] if multiplies => vec![factor],
        _ => Vec::new(),
    };
    (Collected { shape, dtype, op, factors, sent, ranks: Vec::new(), pulls }, (input.clone(), output.clone()))
}

/// The first of some ranks, and how many they are.
fn ranks(arg: &Arg) -> [u32; 2] {
    let Arg::Struct(fields) = arg else { panic!("ranks: {arg:?}") };
    let [Arg::U32(first), Arg::U32(count)] = fields[..] else { panic!("the first rank and how many: {fields:?}") };
    [first, count]
}

/// Type and operator that an entry's name ends with, or its `average` argument says.
fn reduction(Launch { module, entry, .. }: &Launch, average: u32) -> (DType, ReduceOp) {
    let mut parts = entry.rsplit('_');
    let last = parts.next().unwrap_or_default();
    if last == "any" {
        return of_argument(passmuster_collectives::library::find(module).unwrap(), average);
    }
    let op = if average == 1 { ReduceOp::Avg } else { last.parse().expect("an operator") };
    (parts.next().and_then(|dtype| dtype.parse().ok()).expect("a type"), op)
}

impl Machine for Simulated {
    fn info(&self) -> MachineInfo {
        MachineInfo { kind: "simulated".into(), ..MachineInfo::default() }
    }

    fn max_world(&self) -> usize {
        16
    }

    fn waiting_blocks(&self, _: usize, _: usize) -> u32 {
        16
    }

    fn rendezvous(&self) -> u64 {
        self.rendezvous
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        let fresh = |b: &BufferSpec| {
            let byte = if let Fill::Byte(byte) = b.fill { byte } else { CANARY };
            vec![byte; b.bytes as usize]
        };
        self.rendezvous += 1;
        self.groups.push(Group { buffers: buffers.to_vec(), ranks: vec![buffers.iter().map(fresh).collect(); world] });
        Ok(self.groups.len() - 1)
    }

    fn close_groups(&mut self) {
        self.groups.clear();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        Ok(self.bytes(group, rank, region).to_vec())
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.bytes(group, rank, region).copy_from_slice(bytes);
        Ok(())
    }

    fn broken_canary(&mut self, _: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        Ok(None)
    }

    fn run(&mut self, script: &Script, _: Duration) -> Result<Run, MachineError> {
        let mut graphs: Vec<(usize, Vec<std::sync::Arc<Plan>>)> = Vec::new();
        let mut gone = Vec::new();
        for step in &script.steps {
            match step {
                Step::Enqueue { group, plan, .. } => self.enqueue(*group, plan, &gone),
                Step::Capture { group, plans, .. } => graphs.push((*group, plans.clone())),
                Step::Replay { graph, .. } => {
                    let (group, plans) = graphs[*graph].clone();
                    plans.iter().for_each(|plan| self.enqueue(group, plan, &gone));
                }
                Step::Leave { rank } => gone.push(*rank),
                Step::Delay { .. } | Step::Await { .. } | Step::Mark => {}
            }
        }
        Ok(Run::default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::emulator::{Emulator, EmulatorOptions};
    use passmuster_collectives::plan::Role;

    /// What machines with GPUs replay from an earlier capture is what the others carry out anew: if this fails, a script's graph is that of an earlier one's
    /// plans or group.
    #[test]
    fn a_graph_is_of_its_own_plans_and_group() {
        let a = BufferSpec::new("a", 8, Role::Data);
        let fill = |byte| Arc::new(Plan::per_rank("fill", 2, |_| vec![Op::Fill { region: a.whole(), byte }]));
        let (one, two) = (fill(1), fill(2));
        let machines: [Box<dyn Machine>; 2] = [Box::new(Simulated::correct()), Box::new(Emulator::new(EmulatorOptions::default()))];
        for mut machine in machines {
            let kind = machine.info().kind;
            let replayed = |machine: &mut dyn Machine, group: usize, plan: &Arc<Plan>| {
                machine.write(group, 1, &a.whole(), &[0; 8]).unwrap();
                let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
                machine.run(&Script { steps: vec![capture, Step::Replay { graph: 0, stream: 0 }] }, Duration::from_secs(60)).unwrap();
                machine.read(group, 1, &a.whole()).unwrap()[0]
            };
            for buffers in [vec![a.clone()], vec![BufferSpec::new("pad", 4096, Role::Data), a.clone()]] {
                let group = machine.open_group(2, &buffers).unwrap();
                assert_eq!([&one, &one, &two, &one].map(|plan| replayed(&mut *machine, group, plan)), [1, 1, 2, 1], "{kind}");
                machine.close_groups();
            }
        }
    }
}
