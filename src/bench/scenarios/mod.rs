//! What products and collectives are timed together, and by whom.

mod fsdp;
mod multiplier;
mod overlap;
mod pipeline;
mod tables;

pub use fsdp::Fsdp;
pub use multiplier::Multiplier;
pub use overlap::{Arm, How};
pub use pipeline::Pipeline;

use super::{
    Contender, MatmulWorkload, Scenario,
    job::{Content, copied, copy},
};
use crate::plan::{BufferSpec, MatmulCall, Operands, Region, Role};

impl MatmulWorkload {
    /// The contender of a name.
    ///
    /// # Errors
    /// Names those there are.
    pub(super) fn contender(&self, name: &str) -> Result<Contender, String> {
        match self.scenario {
            Scenario::AllGatherMatmul => name.parse().map(Contender::Multiplier),
            Scenario::Overlap => name.parse().map(Contender::Arm),
        }
    }
}

/// Buffers of so many copies of a product's operands, and what they hold. A has `rows` rows.
fn operands(of: &MatmulWorkload, rows: u64, copies: u32) -> (Vec<BufferSpec>, Vec<Content>, impl Fn(u32) -> Operands + use<>) {
    let size = of.dtype.size();
    let [a, b, c] = [("a", rows * of.k), ("b", of.n * of.k), ("c", of.m * of.n)].map(|(name, elements)| (name, elements * size));
    let buffers = [a, b, c].map(|(name, bytes)| copied(name, bytes, copies)).to_vec();
    // What is not written shows: no sum is 0xffff, which is a NaN of both types.
    let mut contents = vec![Content::Byte(buffers[2].whole(), 0xff)];
    contents.extend(buffers[..2].iter().map(|buffer| Content::Numbers(vec![buffer.whole()], of.dtype)));
    let of_copy = move |number| Operands { a: copy(a.0, a.1, number), b: copy(b.0, b.1, number), c: copy(c.0, c.1, number) };
    (buffers, contents, of_copy)
}

/// Memory for the vendor's library.
fn workspace() -> (BufferSpec, Region) {
    let spec = BufferSpec { local: true, ..BufferSpec::new("workspace", MatmulCall::WORKSPACE, Role::State) };
    let region = spec.whole();
    (spec, region)
}
