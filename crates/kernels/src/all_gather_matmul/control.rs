//! Parts of what [`Fused::COPY_ENGINE`] does: how long they take explains how much longer it takes than its product alone.

use super::{ARRIVED, Fused, copies, fused::COPIES, plan_name, words};
use crate::copy_engine::{self, part};
use passmuster_plan::{
    algorithms::TensorParallel,
    collective::Product,
    plan::{BufferSpec, Op, Operands, Plan, Region, Role},
};

/// One part. Ranks hold all of A, and each a memory elsewhere, as large, into which copies go that have nothing to do with the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The kernel, for which all parts are there: beside the plain product, what its order of tiles and its looking at words cost.
    FlagsSet,
    /// The same while copy engines gather elsewhere: beside that, what the copies cost the product.
    CopiesElsewhere,
    /// The gather elsewhere alone.
    CopiesAlone,
}

const NAME: &str = "control";

impl Control {
    /// All.
    pub const ALL: [Control; 3] = [Control::FlagsSet, Control::CopiesElsewhere, Control::CopiesAlone];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Control::FlagsSet => "control/flags_set",
            Control::CopiesElsewhere => "control/copies_elsewhere",
            Control::CopiesAlone => "control/copies_alone",
        }
    }

    /// Whether it multiplies.
    pub const fn multiplies(self) -> bool {
        !matches!(self, Control::CopiesAlone)
    }

    /// Whether it gathers elsewhere.
    pub const fn copies(self) -> bool {
        !matches!(self, Control::FlagsSet)
    }

    /// Whether it can do a product at all.
    ///
    /// # Errors
    /// The argument, its value and what is allowed.
    pub fn supports(self, product: &Product, world: u32, blocks: u32) -> Result<(), String> {
        Fused::COPY_ENGINE.supports(product, world, blocks)
    }

    /// Buffers that it needs beside the operands and the memory elsewhere.
    pub fn workspace(self, product: &Product, world: u32, blocks: u32) -> Vec<BufferSpec> {
        // What the kernel waits for and counts with, not the memory that parts arrive in.
        let mut buffers = Fused::COPY_ENGINE.workspace(product, world, blocks);
        buffers.retain(|buffer| buffer.role != Role::Data);
        buffers.push(words(NAME));
        buffers
    }

    /// The words that say to the kernel that parts are there, which no call sets back: they must be other than 0 before the first.
    pub fn flags() -> Region {
        copy_engine::words_of(Fused::COPY_ENGINE.name(), ARRIVED)
    }

    /// What all ranks do. A of the operands is the gathered one; each rank has its own part of the memory `elsewhere`, too.
    pub fn plan(self, product: &Product, operands: &Operands, elsewhere: &Region, world: u32, blocks: u32) -> Plan {
        Plan::per_rank(plan_name(self.name(), product, world), world, |rank| {
            let mut ops = Vec::new();
            let copied = self.copies() && world > 1;
            if copied {
                let copies = copies(NAME, &part(elsewhere, rank, world), elsewhere, rank, world);
                ops.push(Op::Fork { stream: COPIES, ops: copies });
            }
            if self.multiplies() {
                let own = Operands { a: part(&operands.a, rank, world), ..operands.clone() };
                ops.push(Fused::COPY_ENGINE.launch(product, &own, &operands.a, (rank, world), blocks));
            }
            if copied {
                ops.extend(copy_engine::peers(rank, world).flat_map(|peer| copy_engine::hear(NAME, ARRIVED, peer)));
                ops.push(Op::Join { stream: COPIES });
            }
            ops
        })
    }
}
