//! Products by the vendor's library.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Region;
use crate::collective::{DType, Product};

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

/// Why no product can be made of a [`MatmulCall`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatmulError {
    /// Products do not have the type.
    #[error("dtype {0}: products have bf16 and f16")]
    Type(DType),
    /// An operand has no elements, or too many.
    #[error("{rows} x {columns} elements of {name}: at least one, and no more than memory holds")]
    Elements {
        /// The operand.
        name: &'static str,
        /// Its rows.
        rows: u64,
        /// Its columns.
        columns: u64,
    },
    /// An operand's region has another size than its elements.
    #[error("{name} {region} has {} bytes, {rows} x {columns} elements of {dtype} need {needed}", region.bytes)]
    Bytes {
        /// The operand.
        name: &'static str,
        /// Its region.
        region: Region,
        /// Its rows.
        rows: u64,
        /// Its columns.
        columns: u64,
        /// The type of its elements.
        dtype: DType,
        /// The bytes of its elements.
        needed: u64,
    },
    /// An operand starts where products cannot read it.
    #[error("{name} {region} starts at byte {}, products need a multiple of 16", region.offset)]
    Misaligned {
        /// The operand.
        name: &'static str,
        /// Its region.
        region: Region,
    },
    /// The result would overwrite what is read.
    #[error("c {c} overlaps another operand or the workspace")]
    Overlaps {
        /// Where the result goes.
        c: Region,
    },
    /// The library is to plan for no SM.
    #[error("SMs = 0: at least 1")]
    NoSms,
}

impl From<MatmulError> for String {
    fn from(error: MatmulError) -> String {
        error.to_string()
    }
}

impl MatmulCall {
    /// Bytes of workspace that a product on Hopper is at its best with: what cuBLAS takes by default there.
    pub const WORKSPACE: u64 = 32 << 20;

    /// Whether the regions hold what the product says.
    ///
    /// # Errors
    /// The operand, its bytes and what it needs.
    pub fn check(&self) -> Result<(), MatmulError> {
        let (product, operands) = (&self.product, &self.operands);
        let size = product.dtype.size();
        if !product.dtype.is_float() || size != 2 {
            return Err(MatmulError::Type(product.dtype));
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
                    return Err(MatmulError::Elements { name, rows, columns });
                }
                Some(needed) if needed != bytes => {
                    return Err(MatmulError::Bytes { name, region: region.clone(), rows, columns, dtype, needed });
                }
                Some(_) => {}
            }
            if !region.offset.is_multiple_of(16) {
                return Err(MatmulError::Misaligned { name, region: region.clone() });
            }
        }
        if [&operands.a, &operands.b, &self.workspace].into_iter().any(|other| operands.c.overlaps(other)) {
            return Err(MatmulError::Overlaps { c: operands.c.clone() });
        }
        if self.sms == Some(0) {
            return Err(MatmulError::NoSms);
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
