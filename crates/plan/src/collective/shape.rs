//! Shapes: how many elements the ranks of one call pass and get, which of them belong together, and the result.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::{
    Collective, Counts,
    dtype::DType,
    element::Element,
    reduction::{ReduceOp, reduce_in_order},
};
use crate::with_element;

/// What one call is about, in elements: `count` elements a slot, and one slot or one for each rank in inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// The operation.
    pub collective: Collective,
    /// Ranks of the group.
    pub world: u32,
    /// Elements of a slot: what NCCL calls the count of the call.
    pub count: u64,
    /// The root of a collective that has one; 0 otherwise.
    pub root: u32,
    /// Of an all-to-all, the elements of each part, where they are not `count` each. None is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// The elements that one element of an output is made of: the same element of each of these ranks' inputs. Of no rank's, where it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Whose.
    pub ranks: Range<u32>,
    /// Index in their inputs.
    pub index: u64,
}

/// Where an element of an input ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// In whose output; in every rank's where it is none's in particular.
    pub rank: Option<u32>,
    /// Index in that output.
    pub index: u64,
}

impl Shape {
    /// A call of `count` elements a slot among `world` ranks, of which rank 0 is the root.
    pub const fn new(collective: Collective, world: u32, count: u64) -> Shape {
        Shape { collective, world, count, root: 0, counts: None }
    }

    /// The same with another root.
    pub fn with_root(self, root: u32) -> Shape {
        Shape { root, ..self }
    }

    /// The same with parts of these lengths.
    pub fn with_counts(self, counts: Option<Counts>) -> Shape {
        Shape { counts, ..self }
    }

    /// Slots of each rank's input and of each rank's output: 1, or one for each rank.
    pub const fn slots(&self) -> (u64, u64) {
        self.collective.slots(self.world)
    }

    /// Elements of each rank's input. As many as 64 bits have where there are more.
    pub const fn input(&self) -> u64 {
        self.count.saturating_mul(self.slots().0)
    }

    /// Elements of each rank's output. As many as 64 bits have where there are more.
    pub const fn output(&self) -> u64 {
        self.count.saturating_mul(self.slots().1)
    }

    /// Elements of the larger of input and output. As many as 64 bits have where there are more.
    pub fn larger(&self) -> u64 {
        self.input().max(self.output())
    }

    /// The ranks that get a result. What lies in the outputs of others stays.
    pub const fn receivers(&self) -> Range<u32> {
        match self.collective {
            Collective::Reduce => self.root..self.root + 1,
            _ => 0..self.world,
        }
    }

    /// Elements of a receiver's output that get a result: from the start, all but where parts leave some.
    pub fn received(&self, rank: u32) -> u64 {
        self.counts.as_ref().map_or(self.output(), |counts| counts.received(rank).sum())
    }

    /// What element `index` of `rank`'s output is made of, if it is one of the [receivers](Shape::receivers).
    pub fn sources(&self, rank: u32, index: u64) -> Sources {
        if let Some(counts) = &self.counts {
            let part = Counts::part(counts.received(rank), index);
            let of = |(from, at)| Sources { ranks: from..from + 1, index: counts.sent_at(from, rank) + at };
            return part.map_or(Sources { ranks: 0..0, index }, of);
        }
        match self.collective {
            Collective::AllReduce | Collective::Reduce => Sources { ranks: 0..self.world, index },
            Collective::Broadcast => Sources { ranks: self.root..self.root + 1, index },
            Collective::AllGather => {
                let from = (index / self.count) as u32;
                Sources { ranks: from..from + 1, index: index % self.count }
            }
            Collective::ReduceScatter => Sources { ranks: 0..self.world, index: rank as u64 * self.count + index },
            Collective::AllToAll => {
                let from = (index / self.count) as u32;
                Sources { ranks: from..from + 1, index: rank as u64 * self.count + index % self.count }
            }
        }
    }

    /// Where element `index` of `rank`'s input ends up, if anywhere.
    pub fn destination(&self, rank: u32, index: u64) -> Option<Destination> {
        if let Some(counts) = &self.counts {
            let (to, at) = Counts::part(counts.sent(rank), index)?;
            return Some(Destination { rank: Some(to), index: counts.received_at(rank, to) + at });
        }
        Some(match self.collective {
            Collective::AllReduce => Destination { rank: None, index },
            Collective::AllGather => Destination { rank: None, index: rank as u64 * self.count + index },
            Collective::ReduceScatter => Destination { rank: Some((index / self.count) as u32), index: index % self.count },
            Collective::AllToAll => {
                Destination { rank: Some((index / self.count) as u32), index: rank as u64 * self.count + index % self.count }
            }
            Collective::Broadcast if rank != self.root => return None,
            Collective::Broadcast => Destination { rank: None, index },
            Collective::Reduce => Destination { rank: Some(self.root), index },
        })
    }

    /// The reference: the bytes of each rank's output, elements of several ranks reduced in rank order and rounded once; none for a rank that
    /// gets no result, and as many as [it gets](Shape::received) where parts leave some.
    ///
    /// # Panics
    /// If there is not one input of [`Shape::input`] elements for each rank.
    pub fn results(&self, dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        assert_eq!(inputs.len(), self.world as usize, "one input a rank");
        if self.collective.gives_all_ranks_the_same() {
            return vec![self.result(dtype, op, inputs, 0); inputs.len()];
        }
        let receivers = self.receivers();
        (0..self.world).map(|rank| if receivers.contains(&rank) { self.result(dtype, op, inputs, rank) } else { Vec::new() }).collect()
    }

    fn result(&self, dtype: DType, op: ReduceOp, inputs: &[Vec<u8>], rank: u32) -> Vec<u8> {
        let size = dtype.size() as usize;
        let mut output = Vec::with_capacity(self.output() as usize * size);
        with_element!(dtype, T => {
            let mut values: Vec<T> = Vec::with_capacity(inputs.len());
            for index in 0..self.received(rank) {
                let Sources { ranks, index } = self.sources(rank, index);
                let at = index as usize * size..(index as usize + 1) * size;
                values.clear();
                values.extend(ranks.map(|from| T::from_bytes(&inputs[from as usize][at.clone()])));
                output.extend_from_slice(&reduce_in_order(op, &values).bits().to_le_bytes()[..size]);
            }
        });
        output
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements among {} ranks", self.collective, self.count, self.world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The results on two ranks whose inputs are 1, 2, ... and 10, 20, ...
    #[rstest]
    #[case(Collective::AllReduce, ReduceOp::Sum, 2, [&[11, 22][..], &[11, 22]])]
    #[case(Collective::AllGather, ReduceOp::Copy, 2, [&[1, 2, 10, 20][..], &[1, 2, 10, 20]])]
    #[case(Collective::ReduceScatter, ReduceOp::Sum, 2, [&[11, 22][..], &[33, 44]])]
    #[case(Collective::ReduceScatter, ReduceOp::Max, 1, [&[10][..], &[20]])]
    #[case(Collective::AllToAll, ReduceOp::Copy, 2, [&[1, 2, 10, 20][..], &[3, 4, 30, 40]])]
    fn results_are_those_of_the_definition(
        #[case] collective: Collective,
        #[case] op: ReduceOp,
        #[case] count: u64,
        #[case] expected: [&[i32]; 2],
    ) {
        let shape = Shape::new(collective, 2, count);
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let input = |step: i32| bytes(&(1..=shape.input() as i32).map(|i| i * step).collect::<Vec<_>>());
        assert_eq!(shape.results(DType::I32, op, &[input(1), input(10)]), expected.map(bytes));
    }

    #[test]
    fn the_root_sends_in_a_broadcast_and_gets_in_a_reduce() {
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let inputs = [bytes(&[1, 2]), bytes(&[10, 20]), bytes(&[100, 200])];
        let of = |collective, op| Shape::new(collective, 3, 2).with_root(1).results(DType::I32, op, &inputs);
        assert_eq!(of(Collective::Broadcast, ReduceOp::Copy), vec![bytes(&[10, 20]); 3]);
        assert_eq!(of(Collective::Reduce, ReduceOp::Sum), [Vec::new(), bytes(&[111, 222]), Vec::new()]);
    }

    /// Of three ranks, the first sends nothing to itself, the second nothing at all.
    #[test]
    fn parts_are_packed_on_both_sides() {
        let counts = Counts::new(3, |sender, receiver| [[0, 1, 2], [0, 0, 0], [1, 2, 1]][sender as usize][receiver as usize]);
        let shape = Shape::new(Collective::AllToAll, 3, 2).with_counts(Some(counts));
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let inputs = [bytes(&[1, 2, 3, 4, 5, 6]), bytes(&[0; 6]), bytes(&[10, 20, 30, 40, 50, 60])];
        let results = shape.results(DType::I32, ReduceOp::Copy, &inputs);
        assert_eq!(results, [bytes(&[10]), bytes(&[1, 20, 30]), bytes(&[2, 3, 40])]);
        assert_eq!((shape.sources(1, 3).ranks, shape.destination(0, 3)), (0..0, None), "what is left of output and input");
        for rank in 0..3 {
            for index in 0..shape.received(rank) {
                let Sources { ranks, index: at } = shape.sources(rank, index);
                assert_eq!(shape.destination(ranks.start, at), Some(Destination { rank: Some(rank), index }));
            }
        }
    }

    /// A NaN loses its payload in arithmetic, not in a copy.
    #[test]
    fn copies_keep_every_bit() {
        let signalling = 0x7f80_0001u32.to_le_bytes().to_vec();
        let results = Shape::new(Collective::AllGather, 1, 1).results(DType::F32, ReduceOp::Copy, std::slice::from_ref(&signalling));
        assert_eq!(results, [signalling]);
    }

    #[rstest]
    fn sources_and_destinations_are_each_others_inverse(
        #[values(
            Collective::AllReduce,
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::AllToAll,
            Collective::Broadcast,
            Collective::Reduce
        )]
        collective: Collective,
        #[values(1, 3)] world: u32,
    ) {
        let shape = Shape::new(collective, world, 5).with_root(world - 1);
        let mut used = 0;
        for rank in shape.receivers() {
            for index in 0..shape.output() {
                let sources = shape.sources(rank, index);
                assert!(sources.index < shape.input() && sources.ranks.end <= world, "{shape}: {sources:?}");
                for from in sources.ranks {
                    let destination = shape.destination(from, sources.index).expect("it is used");
                    assert_eq!(destination.index, index, "{shape}");
                    assert!(destination.rank.is_none_or(|to| to == rank), "{shape}");
                    used += u64::from(destination.rank.is_some() || rank == shape.receivers().start);
                }
            }
        }
        let shape = &shape;
        let somewhere = |rank: u32| (0..shape.input()).filter(move |&index| shape.destination(rank, index).is_some()).count() as u64;
        assert_eq!(used, (0..world).map(somewhere).sum::<u64>(), "{shape}");
    }
}
