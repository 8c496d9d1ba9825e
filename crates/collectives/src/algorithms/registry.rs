//! Which algorithms and kernel modules there are: passmuster's own, and those that others bring from crates of their own.

use std::sync::OnceLock;

use super::{Algorithm, built_in, by_name_only, premul_sum};
use crate::kernels::{self, Module, module};

/// Modules of this crate: those of its [algorithms](Algorithm::modules), and the others. `cargo xtask kernels` compiles them.
pub fn built_in_modules() -> Vec<&'static Module> {
    built_in().iter().flat_map(|algorithm| algorithm.modules()).chain(&OTHERS).collect()
}

/// Modules that no algorithm of a collective has: of pre-multiplied sums, of products of matrices, of timings and of the conformance harness.
static OTHERS: [Module; 10] = [
    premul_sum::MODULE,
    module!("matmul/matmul"),
    module!("all_gather_matmul/fused"),
    module!("matmul_reduce_scatter/fused"),
    module!("bench/late"),
    module!("bench/numbers"),
    module!("conformance/faults"),
    module!("conformance/fill", wide),
    module!("conformance/hold"),
    module!("conformance/orders"),
];

/// Algorithms and the kernel modules that they launch.
///
/// One is installed in the life of a process, before anything asks for algorithms: case ids, lists of cases, kernels and timings go by it. Where nobody
/// installs one, it is that of the built-in ones.
///
/// ```
/// use passmuster_collectives::{algorithms::{self, Registry}, collective::Collective};
///
/// // .algorithm(&Mine) in a crate of one's own.
/// Registry::built_in().install()?;
/// assert!(algorithms::find(Collective::AllReduce, "two_shot").is_ok());
/// # Ok::<(), String>(())
/// ```
pub struct Registry {
    algorithms: Vec<&'static dyn Algorithm>,
    modules: Vec<&'static Module>,
}

static INSTALLED: OnceLock<Registry> = OnceLock::new();

impl Registry {
    /// What passmuster brings.
    pub fn built_in() -> Registry {
        Registry { algorithms: built_in().to_vec(), modules: built_in_modules() }
    }

    /// With an algorithm beside those that are there, and its modules. [`Registry::install`] looks at their names.
    #[must_use]
    pub fn algorithm(mut self, algorithm: &'static dyn Algorithm) -> Registry {
        self.algorithms.push(algorithm);
        self.modules.extend(algorithm.modules());
        self
    }

    /// Makes it the one that this process goes by.
    ///
    /// # Errors
    /// A name that two algorithms of a collective or two modules share or that case ids cannot have, a module without an entry point, or a registry that
    /// is in use already: this comes first in `main`.
    pub fn install(self) -> Result<&'static Registry, String> {
        self.check()?;
        let mut this = Some(self);
        let installed = INSTALLED.get_or_init(|| this.take().expect("it is taken once"));
        match this {
            None => Ok(installed),
            Some(_) => Err("algorithms have been asked for already: a registry is installed once, first of all".into()),
        }
    }

    /// The one that this process goes by; the built-in one from now on where none was installed.
    pub fn installed() -> &'static Registry {
        INSTALLED.get_or_init(Registry::built_in)
    }

    /// The algorithms under test and the peers, built-in ones first.
    pub fn algorithms(&self) -> &[&'static dyn Algorithm] {
        &self.algorithms
    }

    /// The algorithms that are not built in.
    pub fn added(&self) -> &[&'static dyn Algorithm] {
        &self.algorithms[built_in().len()..]
    }

    /// The modules, built-in ones first.
    pub fn modules(&self) -> &[&'static Module] {
        &self.modules
    }

    fn check(&self) -> Result<(), String> {
        for (at, algorithm) in self.algorithms.iter().enumerate() {
            let (collective, name) = (algorithm.collective(), algorithm.name());
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                return Err(format!("algorithm `{name}` of {collective}: a name has small letters, digits and underscores only"));
            }
            let others = self.algorithms[..at].iter().chain(by_name_only());
            if others.into_iter().any(|other| (other.collective(), other.name()) == (collective, name)) {
                return Err(format!("there are two algorithms `{name}` of {collective}"));
            }
        }
        for (at, module) in self.modules.iter().enumerate() {
            if self.modules[..at].iter().any(|other| other.name == module.name) {
                return Err(format!("there are two kernel modules `{}`", module.name));
            }
            if at >= built_in_modules().len() && kernels::entries(module.release).next().is_none() {
                return Err(format!("kernel module `{}` has no entry point: is it PTX?", module.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        algorithms::{Target, all_reduce::OneShot},
        collective::{Collective, DType},
        contract::Contract,
        plan::{BufferSpec, Call, Plan},
    };

    /// An algorithm of a name, with modules.
    struct Named(&'static str, &'static [Module]);

    impl Algorithm for Named {
        fn collective(&self) -> Collective {
            Collective::AllReduce
        }

        fn name(&self) -> &'static str {
            self.0
        }

        fn modules(&self) -> Vec<&'static Module> {
            self.1.iter().collect()
        }

        fn contract(&self, call: &Call) -> Contract {
            OneShot.contract(call)
        }

        fn check_supported(&self, call: &Call) -> Result<(), String> {
            OneShot.check_supported(call)
        }

        fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
            OneShot.workspace(dtype, world, bytes)
        }

        fn plan(&self, call: &Call, target: &Target) -> Plan {
            OneShot.plan(call, target)
        }
    }

    /// If this fails, a case id may stand for two algorithms, or for none.
    #[rstest]
    #[case::built_in(&Named("two_shot", &[]), "there are two algorithms `two_shot` of all_reduce")]
    #[case::by_name(&Named("auto", &[]), "there are two algorithms `auto` of all_reduce")]
    #[case::timed(&Named("nccl_symmetric", &[]), "there are two algorithms `nccl_symmetric` of all_reduce")]
    #[case::spelling(&Named("Two-Shot", &[]), "algorithm `Two-Shot` of all_reduce: a name has small letters, digits and underscores only")]
    #[case::empty(&Named("", &[]), "algorithm `` of all_reduce: a name has small letters, digits and underscores only")]
    fn names_that_ids_cannot_tell_apart_are_refused(#[case] algorithm: &'static dyn Algorithm, #[case] refused: &str) {
        assert_eq!(Registry::built_in().algorithm(algorithm).check().unwrap_err(), refused);
    }

    static TAKEN: Named = Named("mine", &[Module::new("all_reduce/two_shot", ".visible .entry k(")]);
    static NO_PTX: Named = Named("mine", &[Module::new("all_reduce/mine", "")]);
    static MINE: Named = Named("mine", &[Module::new("all_reduce/mine", ".visible .entry k(")]);

    /// If this fails, a launch may run another kernel than the one that it names.
    #[rstest]
    #[case::taken(&TAKEN, "there are two kernel modules `all_reduce/two_shot`")]
    #[case::no_ptx(&NO_PTX, "kernel module `all_reduce/mine` has no entry point: is it PTX?")]
    fn modules_that_cannot_be_launched_are_refused(#[case] algorithm: &'static dyn Algorithm, #[case] refused: &str) {
        assert_eq!(Registry::built_in().algorithm(algorithm).check().unwrap_err(), refused);
    }

    #[test]
    fn what_is_added_stands_behind_what_is_built_in() {
        let registry = Registry::built_in().algorithm(&MINE);
        assert_eq!(registry.check(), Ok(()));
        assert_eq!(registry.added().iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>(), ["mine"]);
        assert_eq!(registry.modules().last().map(|module| module.name), Some("all_reduce/mine"));
    }
}
