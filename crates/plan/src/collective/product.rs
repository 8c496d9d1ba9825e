//! Products of matrices.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{DType, Element, dtype::from_name};
use crate::words::UnknownName;

/// How the second operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Columns x depth, depth contiguous: as weights lie in torch.
    Nk,
    /// Depth x columns, columns contiguous.
    Kn,
}

impl Layout {
    /// Both.
    pub const ALL: [Layout; 2] = [Layout::Nk, Layout::Kn];

    /// The name in ids and entries: `nk`.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Nk => "nk",
            Layout::Kn => "kn",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Layout, UnknownName> {
        from_name(&Layout::ALL, name, "layout", |layout| layout.name())
    }
}

/// A product of matrices: of each rank's rows of A, one rank's below the other's, times the rank's own B.
///
/// All are row-major and contiguous. Sums are made in f32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Product {
    /// Type of the elements: bf16 or f16.
    pub dtype: DType,
    /// Rows of each rank's part of A.
    pub rows: u64,
    /// Columns of B and C.
    pub columns: u64,
    /// Columns of A, rows of B: terms of a sum.
    pub depth: u64,
    /// How B lies.
    pub layout: Layout,
}

impl Product {
    /// Elements of one rank's part of A.
    pub fn a(&self) -> u64 {
        self.rows * self.depth
    }

    /// Elements of B.
    pub fn b(&self) -> u64 {
        self.columns * self.depth
    }

    /// Elements of C among `world` ranks.
    pub fn c(&self, world: u32) -> u64 {
        u64::from(world) * self.rows * self.columns
    }

    /// Floating-point operations of one rank among `world`: a multiplication and an addition for each term.
    pub fn flop(&self, world: u32) -> f64 {
        2.0 * self.c(world) as f64 * self.depth as f64
    }

    /// The same product of all ranks' rows as one rank has it that holds them all.
    pub fn gathered(&self, world: u32) -> Product {
        Product { rows: u64::from(world) * self.rows, ..*self }
    }

    /// C, of as many rows as `a` holds: terms are added in f32 from the first on, the sum is rounded once. The order of a library, or of tensor cores, is
    /// another.
    ///
    /// # Panics
    /// When `b` does not hold B, or the type is neither bf16 nor f16.
    pub fn reference(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        match self.dtype {
            DType::BF16 => self.multiply::<half::bf16>(a, b),
            DType::F16 => self.multiply::<half::f16>(a, b),
            other => panic!("products have bf16 and f16, not {other}"),
        }
    }

    fn multiply<E: Element<Acc = f32>>(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        let (columns, depth) = (self.columns as usize, self.depth as usize);
        let widened = |bytes: &[u8]| -> Vec<f32> { bytes.chunks_exact(2).map(|bytes| E::from_bytes(bytes).widen()).collect() };
        let (a, b) = (widened(a), widened(b));
        assert_eq!(b.len(), columns * depth, "elements of B");
        let b = self.rows_of_b(b);
        let mut c = Vec::with_capacity(a.len() / depth.max(1) * columns * 2);
        for row in a.chunks_exact(depth.max(1)) {
            let mut sums = vec![0.0; columns];
            for (&a, b) in row.iter().zip(b.chunks_exact(columns)) {
                sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
            }
            c.extend(sums.into_iter().flat_map(|sum| (E::narrow(sum).bits() as u16).to_le_bytes()));
        }
        c
    }

    /// B as depth x columns, columns contiguous: code that adds terms of many columns at once reads it in order.
    pub fn rows_of_b<T: Copy>(&self, b: Vec<T>) -> Vec<T> {
        let (columns, depth) = (self.columns as usize, self.depth as usize);
        match self.layout {
            Layout::Nk => (0..depth).flat_map(|k| (0..columns).map(move |column| column * depth + k)).map(|at| b[at]).collect(),
            Layout::Kn => b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|&value| bf16::from_f32(value).to_bits().to_le_bytes()).collect()
    }

    #[test]
    fn both_layouts_are_the_same_product() {
        let product = Product { dtype: DType::BF16, rows: 2, columns: 3, depth: 2, layout: Layout::Nk };
        let a = bytes(&[1.0, 2.0, 3.0, 4.0]);
        let c = bytes(&[5.0, 11.0, 17.0, 11.0, 25.0, 39.0]);
        assert_eq!(product.reference(&a, &bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])), c);
        let other = Product { layout: Layout::Kn, ..product };
        assert_eq!(other.reference(&a, &bytes(&[1.0, 3.0, 5.0, 2.0, 4.0, 6.0])), c);
        assert_eq!((product.a(), product.b(), product.c(4), product.gathered(4).rows), (4, 6, 24, 8));
        assert_eq!(product.flop(4), 96.0);
    }

    #[test]
    fn a_sum_is_rounded_once() {
        let product = Product { dtype: DType::F16, rows: 1, columns: 1, depth: 3, layout: Layout::Nk };
        let bytes = |values: [f32; 3]| values.iter().flat_map(|&value| f16::from_f32(value).to_bits().to_le_bytes()).collect::<Vec<u8>>();
        // 2048 + 1 is no f16, and rounding after each term would lose both ones.
        let c = product.reference(&bytes([2048.0, 1.0, 1.0]), &bytes([1.0, 1.0, 1.0]));
        assert_eq!(c, f16::from_f32(2050.0).to_bits().to_le_bytes());
    }
}
