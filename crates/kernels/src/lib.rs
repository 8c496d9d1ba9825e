//! passmuster's own collectives over symmetric memory: algorithms, and their kernels as embedded PTX.
//!
//! [`catalogue`] is all of it, for a [`Registry`](passmuster_plan::algorithms::Registry). The crates of plans and of the harness know nothing of what is in it: a kernel of ours is judged
//! as anybody's is.
//!
//! ```
//! use passmuster_plan::{algorithms::{Registry, Target}, collective::{Collective, DType, ReduceOp, Shape}, plan::Call};
//!
//! let registry = Registry::new(passmuster_kernels::catalogue());
//! let two_shot = registry.find(Collective::AllReduce, "two_shot")?;
//! let (call, _) = Call::standalone(Shape::new(Collective::AllReduce, 4, 1040), DType::BF16, ReduceOp::Sum)?;
//! println!("{}", two_shot.plan(&call, &Target::default()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

/// A module of this crate by its path under kernels/ without extension; `checked` where the module synchronises, `wide` where it addresses peers. A new one starts with empty files under
/// kernels/ptx/, so that the command that fills them can be built.
macro_rules! module {
    ($name:literal) => {
        passmuster_plan::modules::Module::new($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx/", $name, ".ptx")))
    };
    ($name:literal, sites) => {
        module!($name).with_sites()
    };
}

pub mod abi;
pub mod all_gather;
pub mod all_gather_matmul;
pub mod all_reduce;
pub mod all_to_all;
pub mod auto;
pub mod broadcast;
mod copy_engine;
mod exchange;
mod headers;
pub mod hierarchical;
mod hold;
mod lamport;
mod lines;
pub mod matmul;
pub mod matmul_reduce_scatter;
mod multimem;
mod mutants;
mod premul_sum;
mod pull;
pub mod reduce;
pub mod reduce_scatter;
pub mod tuning;
pub mod unregistered;

use std::sync::Arc;

pub use auto::Auto;
pub use copy_engine::gate;
pub use exchange::Exchange;
pub use headers::HEADERS;
pub use hierarchical::Hierarchical;
pub use hold::Holders;
pub use lamport::Lamport;
pub use lines::Lines;
pub use multimem::Multimem;
pub use premul_sum::with_premul;
pub use pull::Pull;
pub use unregistered::Unregistered;

use passmuster_plan::{
    algorithms::{Algorithm, Catalogue, Nccl},
    collective::Collective,
    modules::{Module, OwnEntries},
};

/// Modules that no algorithm of a collective has: of pre-multiplied sums, of products of matrices and of timings.
static OTHERS: [Module; 7] = [
    premul_sum::MODULE,
    module!("matmul/matmul"),
    module!("all_gather_matmul/fused").with_entries(OwnEntries::Product("128x2")),
    module!("matmul_reduce_scatter/fused").with_entries(OwnEntries::Product("128x2")),
    module!("bench/late"),
    module!("bench/numbers"),
    module!("conformance/hold"),
];

/// All that there is.
pub fn catalogue() -> Catalogue {
    let algorithms: Vec<Arc<dyn Algorithm>> = Collective::ALL.into_iter().flat_map(|of| [own(of), Nccl::of(of)].concat()).collect();
    let autos: Vec<Arc<dyn Algorithm>> = Collective::ALL.map(|collective| Arc::new(Auto::new(collective, algorithms.clone())) as _).into();
    let unregistered = autos.iter().map(|auto| Arc::new(Unregistered::new(auto.clone())) as _).collect();
    let hierarchical = Hierarchical::COLLECTIVES.map(|collective| Arc::new(Hierarchical::new(collective, autos.clone())) as _).into();
    Catalogue {
        algorithms,
        by_name: [bench_only(), Nccl::bench_only(), autos, unregistered, hierarchical].concat(),
        products: [all_gather_matmul::all(), matmul_reduce_scatter::all()].concat(),
        modules: &OTHERS,
        premul: Some(with_premul),
        mutants: mutants::MUTANTS,
        equivalents: include_str!("../fixtures/mutants/equivalent.toml"),
    }
}

/// Algorithms of ours that lists of cases take.
fn own(collective: Collective) -> Vec<Arc<dyn Algorithm>> {
    match collective {
        Collective::AllReduce => all_reduce::all(),
        Collective::AllGather => all_gather::all(),
        Collective::ReduceScatter => reduce_scatter::all(),
        Collective::AllToAll => all_to_all::all(),
        Collective::Broadcast => broadcast::all(),
        Collective::Reduce => reduce::all(),
    }
}

/// The module of an algorithm, unless another algorithm brings it: a module has the name of the one that does.
fn brought(module: &'static Module, collective: Collective, name: &str) -> Vec<&'static Module> {
    if module.name == format!("{collective}/{name}") { vec![module] } else { Vec::new() }
}

/// Algorithms of ours as they do not ship, for what they are timed beside: without dependent launches.
pub fn bench_only() -> Vec<Arc<dyn Algorithm>> {
    vec![
        Arc::new(all_reduce::LAMPORT_SERIAL),
        Arc::new(all_reduce::TWO_SHOT_LAMPORT_SERIAL),
        Arc::new(all_gather::LAMPORT_SERIAL),
        Arc::new(reduce_scatter::LAMPORT_SERIAL),
        Arc::new(all_to_all::LAMPORT_SERIAL),
        Arc::new(broadcast::LAMPORT_SERIAL),
        Arc::new(reduce::LAMPORT_SERIAL),
    ]
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
