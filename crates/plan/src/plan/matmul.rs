//! Products by the vendor's library.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Region;
use crate::collective::Product;

/// Where the operands of a product are on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operands {
    /// The rank's part of A: rows x depth.
    pub a: Region,
    /// B.
    pub b: Region,
    /// C: of as many rows as the product has.
    pub c: Region,
}

/// C = A x B by the vendor's library, whose order of additions nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatmulCall {
    /// What is multiplied, by one rank alone.
    pub product: Product,
    /// Where it is.
    #[serde(flatten)]
    pub operands: Operands,
    /// Memory that the library may use meanwhile. Products that may run at the same time have one each.
    pub workspace: Region,
    /// How many SMs the library is to plan for; all of the device by default. It is a target, not a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
}

impl MatmulCall {
    /// Bytes of workspace that a product on Hopper is at its best with: what cuBLAS takes by default there.
    pub const WORKSPACE: u64 = 32 << 20;

    /// Whether the regions hold what the product says.
    ///
    /// # Errors
    /// The operand, its bytes and what it needs.
    pub fn check(&self) -> Result<(), String> {
        let (product, operands) = (&self.product, &self.operands);
        let size = product.dtype.size();
        if !product.dtype.is_float() || size != 2 {
            return Err(format!("dtype {}: products have bf16 and f16", product.dtype));
        }
        let sizes = [
            ("a", &operands.a, product.rows, product.depth),
            ("b", &operands.b, product.columns, product.depth),
            ("c", &operands.c, product.rows, product.columns),
        ];
        for (name, region, rows, columns) in sizes {
            let (bytes, dtype) = (region.bytes, product.dtype);
            match rows.checked_mul(columns).and_then(|elements| elements.checked_mul(size)) {
                None | Some(0) => {
                    return Err(format!("{rows} x {columns} elements of {name}: at least one, and no more than memory holds"));
                }
                Some(needed) if needed != bytes => {
                    return Err(format!("{name} {region} has {bytes} bytes, {rows} x {columns} elements of {dtype} need {needed}"));
                }
                Some(_) => {}
            }
            if !region.offset.is_multiple_of(16) {
                return Err(format!("{name} {region} starts at byte {}, products need a multiple of 16", region.offset));
            }
        }
        if [&operands.a, &operands.b, &self.workspace].into_iter().any(|other| operands.c.overlaps(other)) {
            return Err(format!("c {} overlaps another operand or the workspace", operands.c));
        }
        if self.sms == Some(0) {
            return Err("SMs = 0: at least 1".into());
        }
        Ok(())
    }
}

impl fmt::Display for MatmulCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatmulCall { product: Product { dtype, rows, columns, depth, layout }, operands: Operands { a, b, c }, sms, .. } = self;
        write!(f, "matmul {dtype} {layout} {rows}x{columns}x{depth} {a} x {b} -> {c}")?;
        sms.map_or(Ok(()), |count| write!(f, " on {count} SMs"))
    }
}
