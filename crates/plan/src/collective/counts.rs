//! Counts of an all-to-all-v.

use serde::{Deserialize, Serialize};

/// Elements that each rank sends to each rank, zeros included. Parts lie packed: in an input in the order of the ranks that they go to, in an output of
/// those that they come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counts {
    world: u32,
    /// A row a sender.
    elements: Vec<u64>,
}

impl Counts {
    /// `elements(sender, receiver)` of each pair of `world` ranks.
    pub fn new(world: u32, elements: impl Fn(u32, u32) -> u64) -> Counts {
        let elements = &elements;
        Counts { world, elements: (0..world).flat_map(|sender| (0..world).map(move |receiver| elements(sender, receiver))).collect() }
    }

    /// Elements from one rank to another.
    pub fn of(&self, sender: u32, receiver: u32) -> u64 {
        self.elements[(sender * self.world + receiver) as usize]
    }

    /// Elements from any rank to any at most.
    pub fn longest(&self) -> u64 {
        self.elements.iter().copied().max().unwrap_or(0)
    }

    /// What a rank sends to each, in rank order.
    pub fn sent(&self, sender: u32) -> impl Iterator<Item = u64> {
        (0..self.world).map(move |receiver| self.of(sender, receiver))
    }

    /// What a rank gets from each, in rank order.
    pub fn received(&self, receiver: u32) -> impl Iterator<Item = u64> {
        (0..self.world).map(move |sender| self.of(sender, receiver))
    }

    /// Where in the sender's input its part for a rank starts.
    pub fn sent_at(&self, sender: u32, receiver: u32) -> u64 {
        self.sent(sender).take(receiver as usize).sum()
    }

    /// Where in the receiver's output the part of a rank starts.
    pub fn received_at(&self, sender: u32, receiver: u32) -> u64 {
        self.received(receiver).take(sender as usize).sum()
    }

    /// In which of the packed parts of these lengths an element is, and which of it; none past the last.
    pub(super) fn part(lengths: impl Iterator<Item = u64>, mut index: u64) -> Option<(u32, u64)> {
        for (part, length) in (0..).zip(lengths) {
            if index < length {
                return Some((part, index));
            }
            index -= length;
        }
        None
    }
}
