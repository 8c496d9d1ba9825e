//! `all_gather_matmul`: ranks have parts of A, and each the product of all of A and its own B.

use std::str::FromStr;

use super::{operands, workspace};
use crate::{
    bench::{
        MatmulWorkload,
        contender::{Devices, Environment},
        job::{Job, Promise},
    },
    collective::Product,
    plan::{MatmulCall, Op, Operands, Plan},
};

/// Who multiplies a gathered matrix.
#[derive(Clone, Copy)]
pub enum Multiplier {
    /// cuBLASLt alone, on ranks that hold all of A: what no gather can be faster than with that product.
    CublasLt,
    /// The kernel of the fused ones alone, on ranks that hold all of A.
    Matmul,
}

impl Multiplier {
    /// All, the products alone first.
    pub fn all() -> Vec<Multiplier> {
        vec![Multiplier::CublasLt, Multiplier::Matmul]
    }

    pub(super) fn find(name: &str) -> Result<Multiplier, String> {
        name.parse()
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Multiplier::CublasLt => "cublas_lt",
            Multiplier::Matmul => "matmul",
        }
    }

    pub(in crate::bench) fn environment(self) -> Environment {
        &[]
    }

    pub(in crate::bench) fn job(self, of: &MatmulWorkload, copies: u32, devices: &Devices) -> Result<Job, String> {
        let part = of.product();
        if part.rows * u64::from(of.world) != of.m {
            return Err(format!("M = {} does not divide by {} ranks", of.m, of.world));
        }
        let whole = Product { rows: of.m, ..part };
        let (mut buffers, contents, of_copy) = operands(of, of.m, copies);
        let (spec, workspace) = workspace();
        buffers.push(spec);
        let plan = |operands: &Operands| -> Result<Plan, String> {
            Ok(match self {
                Multiplier::CublasLt => {
                    let call =
                        MatmulCall { product: whole, operands: operands.clone(), workspace: workspace.clone(), multiprocessors: None };
                    call.check()?;
                    Plan::per_rank(format!("{} {}", self.name(), of.m), of.world, |_| vec![Op::Matmul(call.clone())])
                }
                Multiplier::Matmul => {
                    let plan = whole.plan(operands, devices.multiprocessors)?;
                    Plan::per_rank(plan.name.clone(), of.world, |_| plan.ranks[0].clone())
                }
            })
        };
        let copies: Vec<Operands> = (0..copies).map(of_copy).collect();
        let promise = |operands: &Operands| Promise::Product { product: whole, operands: operands.clone(), gathers: false };
        Ok(Job {
            world: of.world,
            buffers,
            contents,
            plans: copies.iter().map(plan).collect::<Result<_, _>>()?,
            notes_products: false,
            promises: copies.iter().map(promise).collect(),
        })
    }
}

impl FromStr for Multiplier {
    type Err = String;

    fn from_str(name: &str) -> Result<Multiplier, String> {
        let all = Multiplier::all();
        all.iter().copied().find(|multiplier| multiplier.name() == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|multiplier| multiplier.name()).collect();
            format!("unknown contender `{name}` of all_gather_matmul: expected one of {}", names.join(", "))
        })
    }
}
