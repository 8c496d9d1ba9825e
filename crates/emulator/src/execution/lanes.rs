//! What lanes of a warp do with one another, and what they are: shuffles, votes, special registers (PTX ISA 9.7.9, 10).

use super::{
    access::{Combiner, combined},
    executor::{Executor, place},
    fault::{ExecError, FaultSite, UndefinedValue},
    registers::{LANES, Row, lanes_of},
};
use crate::memory::CANARY;
use passmuster_ptx::{Axis, Instruction, MatchMode, Operand, Register, ShuffleMode, Special, VoteMode};

/// What a shuffle gives of a lane that does not take part, where the ISA leaves it open.
const UNSHUFFLED: u32 = u32::from_ne_bytes([CANARY; 4]);

/// Instructions of a launch whose undefined values are noted.
const MOST_UNDEFINED: usize = 4;

fn all_if(holds: bool) -> u32 {
    if holds { u32::MAX } else { 0 }
}

impl Executor<'_> {
    /// An operation of lanes of which all are here.
    pub(super) fn of_lanes(&mut self, lanes: u32, instruction: &Instruction) -> Result<(), ExecError> {
        let registers = &mut self.warp.registers;
        match *instruction {
            Instruction::Shuffle { mode, destination, predicate, a, lane, clamp, .. } => {
                self.shuffle(lanes, mode, (destination, predicate), [a, lane, clamp]);
            }
            Instruction::Vote { mode, destination, condition, .. } => {
                let holds = registers.condition(condition) & lanes;
                match mode {
                    VoteMode::All => registers.set_predicate(destination, lanes, all_if(holds == lanes)),
                    VoteMode::Any => registers.set_predicate(destination, lanes, all_if(holds != 0)),
                    VoteMode::Uniform => registers.set_predicate(destination, lanes, all_if(holds == lanes || holds == 0)),
                    VoteMode::Ballot => registers.write::<u32>(destination, lanes, &[holds; LANES]),
                }
            }
            Instruction::Match { mode, destination, predicate, a, .. } => {
                let values = registers.bits(a);
                let same = |value: u64| lanes_of(lanes).filter(|&lane| values[lane] == value).fold(0, |bits, lane| bits | 1 << lane);
                let uniform = same(values[lanes.trailing_zeros() as usize]) == lanes;
                let result: Row<u32> = match mode {
                    MatchMode::Any => values.map(same),
                    MatchMode::All => [if uniform { lanes } else { 0 }; LANES],
                };
                if let Some(destination) = destination {
                    registers.write(destination, lanes, &result);
                }
                if let Some(predicate) = predicate {
                    registers.set_predicate(predicate, lanes, all_if(uniform));
                }
            }
            Instruction::Elect { destination, predicate, .. } => {
                let leader = lanes.trailing_zeros();
                if let Some(destination) = destination {
                    registers.write(destination, lanes, &[leader; LANES]);
                }
                if let Some(predicate) = predicate {
                    registers.set_predicate(predicate, lanes, 1 << leader);
                }
            }
            Instruction::WarpReduce { op, ty, destination, a, .. } => {
                let values = registers.bits(a);
                let reduced = lanes_of(lanes).map(|lane| Ok(values[lane])).reduce(|a, b| combined(op, ty, a?, b?, Combiner::Thread));
                let reduced = reduced.unwrap_or(Ok(0))?;
                registers.write_bits(destination, lanes, &[reduced; LANES]);
            }
            // A barrier of the warp has no result.
            Instruction::WarpSync { .. } => {}
            _ => return self.of_matrices(lanes, instruction),
        }
        Ok(())
    }

    fn shuffle(
        &mut self,
        lanes: u32,
        mode: ShuffleMode,
        (destination, predicate): (Option<Register>, Option<Register>),
        operands: [Operand; 3],
    ) {
        let registers = &mut self.warp.registers;
        let [values, b, c] = operands.map(|operand| registers.read::<u32>(operand));
        let (mut result, mut in_range) = ([0; LANES], 0);
        let mut missing = None;
        for lane in lanes_of(lanes) {
            let (own, b, clamp, segment) = (lane as i32, (b[lane] & 31) as i32, (c[lane] & 31) as i32, (c[lane] >> 8 & 31) as i32);
            let (highest, lowest) = ((own & segment) | (clamp & !segment), own & segment);
            let (from, fits) = match mode {
                ShuffleMode::Up => (own - b, own - b >= highest),
                ShuffleMode::Down => (own + b, own + b <= highest),
                ShuffleMode::Butterfly => (own ^ b, own ^ b <= highest),
                ShuffleMode::Index => (lowest | (b & !segment), lowest | (b & !segment) <= highest),
            };
            let from = if fits { from as usize & 31 } else { lane };
            let takes_part = lanes >> from & 1 == 1;
            result[lane] = if takes_part { values[from] } else { UNSHUFFLED };
            missing = missing.or((!takes_part).then_some((lane as u32, from as u32)));
            in_range |= u32::from(fits) << lane;
        }
        if let Some(destination) = destination {
            registers.write(destination, lanes, &result);
        }
        if let Some(predicate) = predicate {
            registers.set_predicate(predicate, lanes, in_range);
        }
        if let Some((lane, from)) = missing {
            self.note_undefined(lane, from);
        }
    }

    /// Notes that a lane got an undefined value, the first time that an instruction gives one. It may be one that nobody uses, as the upper lanes of a
    /// reduction over a part of the warp have.
    #[cold]
    fn note_undefined(&mut self, lane: u32, from: u32) {
        let launch = self.launch;
        let operation = &launch.program.module.functions[self.frame.function].code[self.pc];
        if self.undefined.len() >= MOST_UNDEFINED || self.undefined.iter().any(|known| known.place.at == operation.at) {
            return;
        }
        let place = FaultSite { lane: Some(lane), ..place(launch, self.block.index, self.warp_index, operation) };
        let threads = launch.threads();
        let exists = self.warp_index as u32 * LANES as u32 + from < threads;
        self.undefined.push(UndefinedValue { place, from, threads: (!exists).then_some(threads) });
    }

    /// `mov` from a special register. Clocks count nanoseconds.
    pub(super) fn read_special(&mut self, lanes: u32, d: Register, special: Special) -> Result<(), ExecError> {
        let (shape, cluster) = (&self.launch.shape, self.launch.cluster);
        let linear = |lane: usize| (self.warp_index * LANES + lane) as u32;
        let axis = |axis: Axis| axis as usize;
        let [width, height, _] = shape.block;
        let thread = |lane: usize| [linear(lane) % width, linear(lane) / width % height, linear(lane) / (width * height)];
        let threads: u32 = shape.block.iter().product();
        let mut clock = false;
        let mut time = |value: u64| {
            clock = true;
            [value; LANES]
        };
        let of_lane = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        let values: Row<u64> = match special {
            Special::ThreadId(of) => std::array::from_fn(|lane| thread(lane)[axis(of)].into()),
            Special::BlockSize(of) => [shape.block[axis(of)].into(); LANES],
            Special::BlockId(of) => [self.block.at[axis(of)].into(); LANES],
            Special::GridSize(of) => [shape.grid[axis(of)].into(); LANES],
            Special::ClusterId(of) => [(self.block.at[axis(of)] / cluster[axis(of)]).into(); LANES],
            Special::ClusterCount(of) => [(shape.grid[axis(of)] / cluster[axis(of)]).into(); LANES],
            Special::ClusterBlockId(of) => [(self.block.at[axis(of)] % cluster[axis(of)]).into(); LANES],
            Special::ClusterBlockRank => [self.block.member.rank.into(); LANES],
            Special::ClusterSize(of) => [cluster[axis(of)].into(); LANES],
            Special::ClusterBlockCount => [self.block.member.shared.len() as u64; LANES],
            Special::IsExplicitCluster => [self.launch.is_explicit_cluster().into(); LANES],
            Special::LaneId => of_lane(|lane| lane),
            Special::WarpId => [self.warp_index as u64; LANES],
            Special::WarpCount => [threads.div_ceil(32).into(); LANES],
            Special::WarpSize => [32; LANES],
            Special::SmId => [(self.block.index % self.launch.program.limits.sms).into(); LANES],
            Special::SmCount => [self.launch.program.limits.sms.into(); LANES],
            Special::GridId => [1; LANES],
            Special::LaneMaskEqual => of_lane(|lane| 1 << lane),
            Special::LaneMaskLess => of_lane(|lane| (1 << lane) - 1),
            Special::LaneMaskLessEqual => of_lane(|lane| u32::MAX >> (31 - lane)),
            Special::LaneMaskGreater => of_lane(|lane| !(u32::MAX >> (31 - lane))),
            Special::LaneMaskGreaterEqual => of_lane(|lane| u32::MAX << lane),
            Special::Clock | Special::GlobalTimerLow => time(self.now & 0xffff_ffff),
            Special::ClockHigh | Special::GlobalTimerHigh => time(self.now >> 32),
            Special::Clock64 | Special::GlobalTimer => time(self.now),
            Special::DynamicSharedSize => [shape.dynamic_shared.into(); LANES],
            Special::TotalSharedSize => [self.launch.shared_bytes; LANES],
            Special::EnvironmentRegister | Special::PerformanceCounter | Special::CurrentGraph => [0; LANES],
        };
        self.turn.read_clock |= clock;
        self.warp.registers.write_bits(d, lanes, &values);
        Ok(())
    }
}
