//! The regions that a plan speaks of: to be moved elsewhere, and those that peers reach.

use std::collections::BTreeSet;

use super::{Arg, MatmulCall, NcclCall, Op, Operands, Plan, Region};

impl Plan {
    /// Every region of every rank's operations.
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.ranks.iter_mut().flatten().flat_map(of_op)
    }

    /// The buffers that some rank reads or writes, or could, in another rank's memory. All others may be local to their rank.
    pub fn reached_by_peers(&self) -> BTreeSet<&str> {
        (0..self.world()).flat_map(|rank| self.operations(rank)).flat_map(reached_by_op).collect()
    }
}

fn reached_by_op(op: &Op) -> Vec<&str> {
    match op {
        Op::Launch(launch) => {
            let reached = launch.values().flat_map(Arg::leaves).filter(|arg| arg.reaches_peers());
            reached.filter_map(|arg| Some(arg.region()?.buffer.as_str())).collect()
        }
        Op::Copy { to: region, to_rank: Some(_), .. } | Op::WriteValue { to: region, to_rank: Some(_), .. } => vec![&region.buffer],
        _ => Vec::new(),
    }
}

fn of_op(op: &mut Op) -> Vec<&mut Region> {
    match op {
        Op::Launch(launch) => launch.values_mut().flat_map(of_argument).collect(),
        Op::Copy { from, to, .. } => vec![from, to],
        Op::Fill { region, .. } => vec![region],
        Op::WriteValue { to, .. } => vec![to],
        Op::WaitValue { at, .. } => vec![at],
        Op::Fetch { from } => vec![from],
        Op::Nccl(NcclCall { call, .. }) => vec![&mut call.input, &mut call.output],
        Op::Matmul(MatmulCall { operands: Operands { a, b, c }, workspace, .. }) => vec![a, b, c, workspace],
        Op::Fork { ops, .. } => ops.iter_mut().flat_map(of_op).collect(),
        Op::Join { .. } | Op::Mark => Vec::new(),
    }
}

fn of_argument(arg: &mut Arg) -> Vec<&mut Region> {
    match arg {
        Arg::Address(region)
        | Arg::AddressOf { region, .. }
        | Arg::Stride(region)
        | Arg::ShiftedStride { region, .. }
        | Arg::Peers(region)
        | Arg::PeerArray { region, .. }
        | Arg::Multicast(region) => vec![region],
        Arg::TensorMap(map) => vec![&mut map.region],
        Arg::Struct(fields) | Arg::InMemory(fields) => fields.iter_mut().flat_map(of_argument).collect(),
        Arg::U8(_) | Arg::U16(_) | Arg::U32(_) | Arg::U64(_) | Arg::WaitLimit => Vec::new(),
    }
}
