//! Tests multi-GPU kernels before they are merged.
//!
//! passmuster runs the PTX of all ranks on an emulator, on the CPU, and reports wrong results, races, hangs and bad memory accesses. On GPUs it compares the
//! same kernels with NCCL, and times them. This crate is the front door: it re-exports the crates that do the work.
//!
//! Judge one case of one algorithm, without a GPU:
//!
//! ```
//! # #[cfg(feature = "kernels")] {
//! let registry = passmuster::registry();
//! let case = passmuster::conformance::Case::resolve("all_reduce/two_shot:bf16,sum:w=2:n=33", &registry)?;
//! passmuster::cargo_test::judge(&registry, &case)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start
//!
//! | You have | Look at |
//! |---|---|
//! | a kernel of your own, as PTX | the command: `passmuster validate --spec SPEC.toml` |
//! | an algorithm in Rust | [`algorithms::Algorithm`], then [`registry`] and [`cargo_test`] |
//! | a property to test | [`strategies`], for proptest |
//! | a machine to add | [`machine::Machine`] |
//!
//! # Features
//!
//! | Feature | Brings |
//! |---|---|
//! | `cli` | the command, also as a library: `passmuster::cli::main` |
//! | `kernels` | passmuster's own collectives: `passmuster::kernels` |
//! | `gpu` | conformance on GPUs |
//! | `bench` | timing, tables, plots and pages |
//! | `mpi` | ranks that MPI starts |
//! | `upkeep` | the upkeep of passmuster's repository, for `cargo xtask` |
//! | `cargo-test` | each case of a list as a test: `cargo_test::conformance` |
//! | `proptest` | calls to draw in property tests: `strategies` |
//!
//! All but `mpi` and `upkeep` are on by default. Without `kernels` nothing of ours is compiled: what you judge are kernels by their specifications, and your own algorithms.

#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub use passmuster_cli as cli;
#[cfg(feature = "proptest")]
pub use passmuster_harness::strategies;
pub use passmuster_harness::{cargo_test, conformance, emulator, ledger};
#[cfg(feature = "kernels")]
pub use passmuster_kernels as kernels;
pub use passmuster_plan::{algorithms, collective, contract, device, library, machine, modules, plan, pool, task, with_element};

/// The registry to begin with: what judges cases, and passmuster's own algorithms if the feature `kernels` is on.
///
/// ```
/// use passmuster::{algorithms::Algorithm, collective::Collective};
///
/// let registry = passmuster::registry();
/// // .algorithm(Mine) adds one of yours.
/// let has_ours = registry.find(Collective::AllReduce, "two_shot").is_ok();
/// assert_eq!(has_ours, cfg!(feature = "kernels"));
/// ```
pub fn registry() -> algorithms::Registry {
    #[cfg(feature = "kernels")]
    let catalogue = passmuster_kernels::catalogue();
    #[cfg(not(feature = "kernels"))]
    let catalogue = algorithms::Catalogue::peers();
    passmuster_harness::registry(catalogue)
}
