//! What products and collectives are timed together, and by whom.

mod fsdp;
mod multiplier;
mod overlap;
mod pipeline;
mod tables;

pub use fsdp::Fsdp;
pub use multiplier::Multiplier;
pub use overlap::{How, OverlapContender};
pub use pipeline::{Order, Pipeline};

use super::{
    MatmulWorkload,
    job::{Content, copied, copy},
};
use passmuster_plan::plan::{BufferSpec, MatmulCall, Operands, Region, Role};

/// Buffers of `copies` copies of a product's operands, and what they hold. A has `a_rows` rows, C has `c_rows`.
fn operands(
    of: &MatmulWorkload,
    [a_rows, c_rows]: [u64; 2],
    copies: u32,
) -> (Vec<BufferSpec>, Vec<Content>, impl Fn(u32) -> Operands + use<>) {
    let size = of.dtype.size();
    let [a, b, c] = [("a", a_rows * of.k), ("b", of.n * of.k), ("c", c_rows * of.n)].map(|(name, elements)| (name, elements * size));
    let buffers = [a, b, c].map(|(name, bytes)| copied(name, bytes, copies)).to_vec();
    // What is not written shows: no sum is 0xffff, which is a NaN of both types.
    let mut contents = vec![Content::Byte(buffers[2].whole(), 0xff)];
    contents.extend(buffers[..2].iter().map(|buffer| Content::Numbers(vec![buffer.whole()], of.dtype)));
    let of_copy = move |number| Operands { a: copy(a.0, a.1, number), b: copy(b.0, b.1, number), c: copy(c.0, c.1, number) };
    (buffers, contents, of_copy)
}

/// A region of every rank in equal parts.
fn slots(of: &Region, world: u32) -> Vec<Region> {
    let bytes = of.bytes / u64::from(world);
    (0..u64::from(world)).map(|rank| Region::new(of.buffer.clone(), of.offset + rank * bytes, bytes)).collect()
}

/// Memory for the vendor's library.
fn workspace() -> (BufferSpec, Region) {
    let spec = BufferSpec { local: true, ..BufferSpec::new("workspace", MatmulCall::WORKSPACE, Role::State) };
    let region = spec.whole();
    (spec, region)
}
