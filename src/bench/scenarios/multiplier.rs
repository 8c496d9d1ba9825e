//! `all_gather_matmul`: ranks have parts of A, and each the product of all of A and its own B.

use std::str::FromStr;

use super::{operands, workspace};
use crate::{
    algorithms::{
        all_gather_matmul::{self, AllGatherMatmul},
        matmul,
    },
    bench::{
        MatmulWorkload,
        contender::{Devices, Environment},
        job::{Job, Promise, Rows},
    },
    plan::{MatmulCall, Op, Operands, Plan},
};

/// Who multiplies a gathered matrix.
#[derive(Clone, Copy)]
pub enum Multiplier {
    /// cuBLASLt alone, on ranks that hold all of A: what no gather can be faster than with that product.
    CublasLt,
    /// The kernel of the fused ones alone, on ranks that hold all of A.
    Matmul,
    /// On ranks that hold parts of A.
    Gathering(&'static dyn AllGatherMatmul),
}

impl Multiplier {
    /// All, the products alone first.
    pub fn all() -> Vec<Multiplier> {
        let gathering = all_gather_matmul::all().iter().copied().map(Multiplier::Gathering);
        [Multiplier::CublasLt, Multiplier::Matmul].into_iter().chain(gathering).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Multiplier::CublasLt => "cublas_lt",
            Multiplier::Matmul => "matmul",
            Multiplier::Gathering(algorithm) => algorithm.name(),
        }
    }

    pub(in crate::bench) fn environment(self) -> Environment {
        match self {
            Multiplier::CublasLt | Multiplier::Matmul => &[],
            Multiplier::Gathering(algorithm) => algorithm.environment(),
        }
    }

    pub(in crate::bench) fn job(self, of: &MatmulWorkload, copies: u32, devices: &Devices) -> Result<Job, String> {
        let part = of.product();
        if part.rows * u64::from(of.world) != of.m {
            return Err(format!("M = {} does not divide by {} ranks", of.m, of.world));
        }
        let (whole, world, blocks) = (part.gathered(of.world), of.world, devices.multiprocessors);
        let gathers = matches!(self, Multiplier::Gathering(_));
        let (mut buffers, contents, of_copy) = operands(of, if gathers { part.rows } else { of.m }, copies);
        let copies: Vec<Operands> = (0..copies).map(of_copy).collect();
        let alone = |op: &dyn Fn(&Operands) -> Op| {
            let plan = |operands| Plan::per_rank(format!("{} {whole:?}", self.name()), world, |_| vec![op(operands)]);
            copies.iter().map(plan).collect()
        };
        let plans: Vec<Plan> = match self {
            Multiplier::CublasLt => {
                let (spec, workspace) = workspace();
                buffers.push(spec);
                let call = |operands: &Operands| MatmulCall {
                    product: whole,
                    operands: operands.clone(),
                    workspace: workspace.clone(),
                    multiprocessors: None,
                };
                call(&copies[0]).check()?;
                alone(&|operands| Op::Matmul(call(operands)))
            }
            Multiplier::Matmul => {
                matmul::supports(&whole, 1)?;
                alone(&|operands| matmul::multiply(&whole, operands, blocks))
            }
            Multiplier::Gathering(algorithm) => {
                algorithm.supports(&part, world, blocks)?;
                buffers.extend(algorithm.workspace(&part, world, blocks));
                copies.iter().map(|operands| algorithm.plan(&part, operands, world, blocks)).collect()
            }
        };
        let rows = if gathers { Rows::OfRanks } else { Rows::Own };
        let promise = |Operands { a, b, c }| Promise::Product { product: whole, a: rows(a), b: Rows::Own(b), c };
        let promises = copies.into_iter().map(promise).collect();
        Ok(Job { world, buffers, contents, plans, notes_products: false, promises, verdicts: None })
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
