//! `all_gather_matmul` and `matmul_reduce_scatter`: products of matrices that ranks have parts of.

use std::sync::Arc;

use super::{operands, workspace};
use crate::{
    MatmulWorkload, Scenario,
    devices::{Devices, Environment},
    job::{Content, ExpectedResult, Job, Rows, copied, copy},
};
use passmuster_kernels::{
    all_gather_matmul::{self, Control},
    matmul,
};
use passmuster_plan::{
    algorithms::{Registry, TensorParallel, TensorParallelFusion},
    plan::{MatmulCall, Op, Operands, Plan, Region},
};

/// Who multiplies matrices that ranks have parts of.
#[derive(Clone)]
pub enum Multiplier {
    /// cuBLASLt alone, with all rows on every rank: what nothing that needs a collective besides can be faster than with that product.
    CublasLt,
    /// The kernel of the fused ones alone, on the same.
    Matmul,
    /// Product and collective, on ranks that have parts.
    Parallel(Arc<dyn TensorParallel>),
    /// A part of `all_gather_matmul/fused`.
    Control(Control),
}

impl Multiplier {
    /// All of a scenario but for [controls](Multiplier::controls), the products alone first.
    pub fn all(registry: &Registry, scenario: Scenario) -> Vec<Multiplier> {
        let half = match scenario {
            Scenario::AllGatherMatmul => TensorParallelFusion::Gather,
            Scenario::MatmulReduceScatter => TensorParallelFusion::Scatter,
            Scenario::Overlap => return Vec::new(),
        };
        let parallel = registry.products(half).cloned().map(Multiplier::Parallel);
        [Multiplier::CublasLt, Multiplier::Matmul].into_iter().chain(parallel).collect()
    }

    /// What explains how much longer `all_gather_matmul/fused` takes than the product alone: both, and what is between them.
    pub fn controls() -> Vec<Multiplier> {
        let fused = Multiplier::Parallel(Arc::new(all_gather_matmul::Fused::COPY_ENGINE));
        [Multiplier::Matmul, fused].into_iter().chain(Control::ALL.map(Multiplier::Control)).collect()
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Names those there are.
    pub fn find(registry: &Registry, scenario: Scenario, name: &str) -> Result<Multiplier, String> {
        let mut known = Multiplier::all(registry, scenario);
        if scenario == Scenario::AllGatherMatmul {
            known.extend(Control::ALL.map(Multiplier::Control));
        }
        known.iter().find(|multiplier| multiplier.name() == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|multiplier| multiplier.name()).collect();
            format!("unknown contender `{name}` of {}: expected one of {}", scenario.name(), names.join(", "))
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Multiplier::CublasLt => "cublas_lt",
            Multiplier::Matmul => "matmul",
            Multiplier::Parallel(algorithm) => algorithm.name(),
            Multiplier::Control(control) => control.name(),
        }
    }

    pub(crate) fn environment(&self) -> Environment {
        match self {
            Multiplier::Parallel(algorithm) => algorithm.environment(),
            Multiplier::CublasLt | Multiplier::Matmul | Multiplier::Control(_) => &[],
        }
    }

    pub(crate) fn job(&self, of: &MatmulWorkload, copies: u32, devices: &Devices) -> Result<Job, String> {
        let part = of.product();
        if part.rows * u64::from(of.world) != of.m {
            return Err(format!("M = {} does not divide by {} ranks", of.m, of.world));
        }
        let (whole, world, blocks) = (part.gathered(of.world), of.world, devices.sms);
        // Rows of a rank's A and C.
        let rows = match (self, of.scenario) {
            (Multiplier::Parallel(_), Scenario::MatmulReduceScatter) => [of.m, part.rows],
            (Multiplier::Parallel(_), _) => [part.rows, of.m],
            _ => [of.m, of.m],
        };
        let (mut buffers, mut contents, of_copy) = operands(of, rows, copies);
        let copies: Vec<Operands> = (0..copies).map(of_copy).collect();
        let alone = |op: &dyn Fn(&Operands) -> Op| -> Vec<Plan> {
            let plan = |operands| Plan::per_rank(format!("{} {whole:?}", self.name()), world, |_| vec![op(operands)]);
            copies.iter().map(plan).collect()
        };
        let product = |rows: fn(Region) -> Rows| {
            move |Operands { a, b, c }| ExpectedResult::Product { product: whole, a: rows(a), b: Rows::Own(b), c }
        };
        let (plans, promises): (Vec<Plan>, Vec<ExpectedResult>) = match self {
            Multiplier::CublasLt => {
                let (spec, workspace) = workspace();
                buffers.push(spec);
                let call = |operands: &Operands| MatmulCall {
                    product: whole,
                    operands: operands.clone(),
                    workspace: workspace.clone(),
                    sms: None,
                };
                call(&copies[0]).check()?;
                (alone(&|operands| Op::Matmul(call(operands))), copies.into_iter().map(product(Rows::Own)).collect())
            }
            Multiplier::Matmul => {
                matmul::supports(&whole, 1)?;
                (alone(&|operands| matmul::multiply(&whole, operands, blocks)), copies.into_iter().map(product(Rows::Own)).collect())
            }
            Multiplier::Parallel(algorithm) => {
                algorithm.supports(&part, world, blocks)?;
                buffers.extend(algorithm.workspace(&part, world, blocks));
                let plans = copies.iter().map(|operands| algorithm.plan(&part, operands, world, blocks)).collect();
                let contract = algorithm.contract(&part, world);
                let scattered = |Operands { a, b, c }| ExpectedResult::Scattered { product: whole, a, b, c, contract };
                let promise = |operands| match of.scenario {
                    Scenario::MatmulReduceScatter => scattered(operands),
                    _ => product(Rows::OfRanks)(operands),
                };
                (plans, copies.into_iter().map(promise).collect())
            }
            Multiplier::Control(control) => {
                control.supports(&part, world, blocks)?;
                buffers.extend(control.workspace(&part, world, blocks));
                // Words that are not 0.
                contents.push(Content::Byte(Control::flags(), 1));
                let bytes = whole.a() * of.dtype.size();
                buffers.push(copied("elsewhere", bytes, copies.len() as u32));
                let (mut plans, mut promises) = (Vec::new(), Vec::new());
                for (number, operands) in (0..).zip(copies) {
                    let elsewhere = copy("elsewhere", bytes, number);
                    plans.push(control.plan(&part, &operands, &elsewhere, world, blocks));
                    promises.extend(control.multiplies().then(|| product(Rows::Own)(operands)));
                    let sent = super::slots(&elsewhere, world);
                    contents.extend([Content::Byte(elsewhere.clone(), 0xff), Content::Numbers(sent.clone(), of.dtype)]);
                    promises.extend(control.copies().then_some(ExpectedResult::Gathered { sent, all: elsewhere }));
                }
                (plans, promises)
            }
        };
        Ok(Job { world, buffers, contents, plans, notes_products: false, promises, verdicts: None })
    }
}
