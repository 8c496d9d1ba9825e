//! Gather first, then multiply: what fused algorithms are compared with.

use super::{gathered, plan_name};
use crate::{
    all_gather,
    matmul::{self, library_workspace},
};
use passmuster_plan::{
    algorithms::{Algorithm, Nccl, Target, TensorParallel, TensorParallelFusion},
    collective::{Collective, Product, ReduceOp, Shape},
    contract::Contract,
    plan::{BufferSpec, Call, MatmulCall, Op, Operands, Plan, Region},
};

/// An all-gather of A, then one product by cuBLASLt.
pub struct Gathered {
    name: &'static str,
    gather: &'static dyn Algorithm,
}

impl Gathered {
    /// By NCCL's ring.
    pub const NCCL_RING: Gathered = Gathered { name: "nccl_ring+matmul", gather: &Nccl::ALL_GATHER_RING };
    /// By NCCL's stores to symmetric windows.
    pub const NCCL_SYMMETRIC_ST: Gathered = Gathered { name: "nccl_symmetric_st+matmul", gather: &Nccl::ALL_GATHER_SYMMETRIC_ST };
    /// By our stores.
    pub const PUSH: Gathered = Gathered { name: "push+matmul", gather: &all_gather::Push };
    /// By copy engines.
    pub const COPY_ENGINE: Gathered = Gathered { name: "copy_engine+matmul", gather: &all_gather::COPY_ENGINE };

    /// The all-gather of A.
    fn call(&self, product: &Product, a: &Region, into: Region, world: u32) -> Result<Call, String> {
        let shape = Shape::new(Collective::AllGather, world, product.a());
        Call::on_regions(shape, product.dtype, ReduceOp::Copy, a.clone(), into).map_err(|error| error.to_string())
    }

    fn gathered(&self, product: &Product, world: u32) -> BufferSpec {
        gathered(self.name, product, world, false)
    }
}

impl TensorParallel for Gathered {
    fn half(&self) -> TensorParallelFusion {
        TensorParallelFusion::Gather
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn supports(&self, product: &Product, world: u32, _: u32) -> Result<(), String> {
        matmul::supports(product, world)?;
        let a = Region::new("a", 0, product.a() * product.dtype.size());
        self.gather.supports(&self.call(product, &a, self.gathered(product, world).whole(), world)?)
    }

    fn contract(&self, _: &Product, _: u32) -> Contract {
        Contract::COPIED
    }

    fn workspace(&self, product: &Product, world: u32, _: u32) -> Vec<BufferSpec> {
        let mut buffers = self.gather.workspace(product.dtype, world, product.a() * product.dtype.size());
        buffers.extend([self.gathered(product, world), library_workspace(self.name, 1)]);
        buffers
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let gathered = self.gathered(product, world).whole();
        let call = self.call(product, &operands.a, gathered.clone(), world).expect("it is supported");
        let mut plan = self.gather.plan(&call, &Target { waiting_blocks: blocks, ..Target::default() });
        plan.name = plan_name(self.name, product, world);
        let operands = Operands { a: gathered, ..operands.clone() };
        let workspace = library_workspace(self.name, 1).whole();
        let multiply = Op::Matmul(MatmulCall { product: product.gathered(world), operands, workspace, sms: None });
        plan.ranks.iter_mut().for_each(|ops| ops.push(multiply.clone()));
        plan
    }

    fn is_peer(&self) -> bool {
        self.gather.is_peer()
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.gather.environment()
    }
}
