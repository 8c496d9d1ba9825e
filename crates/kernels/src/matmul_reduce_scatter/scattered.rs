//! Multiply first, then scatter: what others are compared with.

use super::{call, plan_name, products, supports};
use crate::{matmul::library_workspace, reduce_scatter};
use passmuster_plan::{
    algorithms::{Algorithm, Nccl, Target, TensorParallel, TensorParallelFusion},
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, Call, MatmulCall, Op, Operands, Plan, Region},
};

/// One product of all rows by cuBLASLt, then a reduce-scatter, whose contract is that of both.
pub struct Scattered {
    name: &'static str,
    scatter: &'static dyn Algorithm,
}

impl Scattered {
    /// By NCCL's ring.
    pub const NCCL_RING: Scattered = Scattered { name: "matmul+nccl_ring", scatter: &Nccl::REDUCE_SCATTER_RING };
    /// By NCCL's loads from symmetric windows.
    pub const NCCL_SYMMETRIC_LD: Scattered = Scattered { name: "matmul+nccl_symmetric_ld", scatter: &Nccl::REDUCE_SCATTER_SYMMETRIC_LD };
    /// By our loads.
    pub const PULL: Scattered = Scattered { name: "matmul+pull", scatter: &reduce_scatter::PULL };

    fn products(&self, product: &Product, world: u32) -> BufferSpec {
        products(self.name, product, world, false)
    }

    /// The reduce-scatter into some C.
    fn any_call(&self, product: &Product, world: u32) -> Result<Call, String> {
        let c = Region::new("c", 0, product.c(1) * product.dtype.size());
        call(product, self.products(product, world).whole(), &c, world)
    }
}

impl TensorParallel for Scattered {
    fn half(&self) -> TensorParallelFusion {
        TensorParallelFusion::Scatter
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn supports(&self, product: &Product, world: u32, _: u32) -> Result<(), String> {
        supports(product, world)?;
        self.scatter.supports(&self.any_call(product, world)?)
    }

    fn contract(&self, product: &Product, world: u32) -> Contract {
        self.scatter.contract(&self.any_call(product, world).expect("it is supported"))
    }

    fn workspace(&self, product: &Product, world: u32, _: u32) -> Vec<BufferSpec> {
        let products = self.products(product, world);
        let mut buffers = self.scatter.workspace(product.dtype, world, products.bytes);
        buffers.extend([products, library_workspace(self.name, 1)]);
        buffers
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let products = self.products(product, world).whole();
        let call = call(product, products.clone(), &operands.c, world).expect("it is supported");
        let mut plan = self.scatter.plan(&call, &Target { waiting_blocks: blocks, ..Target::default() });
        plan.name = plan_name(self.name, product, world);
        let operands = Operands { c: products, ..operands.clone() };
        let workspace = library_workspace(self.name, 1).whole();
        let multiply = Op::Matmul(MatmulCall { product: product.gathered(world), operands, workspace, sms: None });
        plan.ranks.iter_mut().for_each(|ops| ops.insert(0, multiply.clone()));
        plan
    }

    fn is_peer(&self) -> bool {
        self.scatter.is_peer()
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.scatter.environment()
    }
}
