//! The regions that a plan speaks of, to be moved elsewhere.

use super::{Arg, MatmulCall, NcclCall, Op, Operands, Plan, Region};

impl Plan {
    /// Every region of every rank's operations.
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.ranks.iter_mut().flatten().flat_map(of_op)
    }
}

fn of_op(op: &mut Op) -> Vec<&mut Region> {
    match op {
        Op::Launch(launch) => launch.args.iter_mut().flat_map(of_argument).collect(),
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
        Arg::Address(region) | Arg::Peers(region) | Arg::PeerTable(region) | Arg::PeerArray { region, .. } | Arg::Multicast(region) => {
            vec![region]
        }
        Arg::TensorMap(map) => vec![&mut map.region],
        Arg::Struct(fields) => fields.iter_mut().flat_map(of_argument).collect(),
        Arg::U32(_) | Arg::U64(_) | Arg::WaitLimit => Vec::new(),
    }
}
