//! Which algorithms and kernel modules there are: passmuster's own, and those that others bring.

use std::{fmt, sync::Arc};

use super::{
    Algorithm, Auto, Foreign, Hierarchical, Unregistered, all_gather, all_reduce, all_to_all, broadcast, nccl, premul_sum, reduce,
    reduce_scatter, renamed, with_premul,
};
use crate::{
    collective::{Collective, ReduceOp},
    kernels::{self, Module, module},
    library::Library,
};

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

/// Algorithms, and the kernel modules that they launch: what case ids, lists of cases, kernels and timings are resolved against.
///
/// It is a value. A process may have several, which know nothing of each other; a copy shares the algorithms.
///
/// ```
/// use passmuster_collectives::{algorithms::Registry, collective::Collective};
///
/// // .algorithm(Mine) adds one of your own.
/// let registry = Registry::built_in();
/// assert!(registry.find(Collective::AllReduce, "two_shot").is_ok());
/// ```
#[derive(Clone)]
pub struct Registry {
    /// The algorithms under test and the peers.
    listed: Vec<Arc<dyn Algorithm>>,
    /// How many of them are built in: they come first.
    built_in: usize,
    /// Those that lists of cases do not take as they take all others.
    by_name: Vec<Arc<dyn Algorithm>>,
    foreign: Vec<Arc<Foreign>>,
    modules: Vec<&'static Module>,
    /// How many of the modules are built in.
    built_in_modules: usize,
    library: Library,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.every().map(|algorithm| format!("{}/{}", algorithm.collective(), algorithm.name()));
        f.debug_struct("Registry").field("algorithms", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Registry {
    /// What passmuster brings.
    pub fn built_in() -> Registry {
        let listed =
            [all_reduce::all(), all_gather::all(), reduce_scatter::all(), all_to_all::all(), broadcast::all(), reduce::all()].concat();
        let autos: Vec<Arc<dyn Algorithm>> = Collective::ALL.map(|collective| Arc::new(Auto::new(collective, listed.clone())) as _).into();
        let unregistered = autos.iter().map(|auto| Arc::new(Unregistered::new(auto.clone())) as _);
        let hierarchical = Hierarchical::COLLECTIVES.map(|collective| Arc::new(Hierarchical::new(collective, autos.clone())) as _);
        let by_name = [bench_only(), nccl::bench_only(), autos.clone(), unregistered.collect(), hierarchical.into()].concat();
        let modules: Vec<&'static Module> = listed.iter().flat_map(|algorithm| algorithm.modules()).chain(&OTHERS).collect();
        Registry {
            built_in: listed.len(),
            built_in_modules: modules.len(),
            library: Library::new(modules.clone()),
            foreign: Vec::new(),
            listed,
            by_name,
            modules,
        }
    }

    /// With an algorithm beside those that are there, and its modules. [`Registry::check`] looks at their names.
    #[must_use]
    pub fn algorithm(mut self, algorithm: impl Algorithm + 'static) -> Registry {
        self.modules.extend(algorithm.modules());
        self.listed.push(Arc::new(algorithm));
        self.library = Library::new(self.modules.clone());
        self
    }

    /// With kernels from elsewhere, which no list of cases takes as it takes the others.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn with_foreign(mut self, foreign: impl IntoIterator<Item = Foreign>) -> Result<Registry, String> {
        for new in foreign {
            let (collective, name) = (new.collective(), new.name());
            if self.every().any(|known| (known.collective(), known.name()) == (collective, name)) {
                return Err(format!("there is an algorithm `{name}` of {collective} already"));
            }
            self.foreign.push(Arc::new(new));
        }
        Ok(self)
    }

    /// The algorithms under test and the peers, built-in ones first. [`Auto`], which is one of them by turns, and [`Unregistered`] around it are
    /// [found](Registry::find) by name only.
    pub fn algorithms(&self) -> &[Arc<dyn Algorithm>] {
        &self.listed
    }

    /// Those of a collective.
    pub fn of(&self, collective: Collective) -> impl Iterator<Item = &Arc<dyn Algorithm>> {
        self.listed.iter().filter(move |algorithm| algorithm.collective() == collective)
    }

    /// The algorithms that are not built in.
    pub fn added(&self) -> &[Arc<dyn Algorithm>] {
        &self.listed[self.built_in..]
    }

    /// Kernels from elsewhere.
    pub fn foreign(&self) -> &[Arc<Foreign>] {
        &self.foreign
    }

    /// The algorithm called `name` for a collective.
    ///
    /// # Errors
    /// Names the algorithms there are, or what the one is called now that had this name.
    pub fn find(&self, collective: Collective, name: &str) -> Result<Arc<dyn Algorithm>, String> {
        let of_collective = || self.every().filter(|algorithm| algorithm.collective() == collective);
        of_collective().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            if let Some(now) = renamed(name) {
                return format!("algorithm `{name}` of {collective} is called `{now}` now");
            }
            let names: Vec<String> = of_collective().map(|algorithm| algorithm.name().to_owned()).collect();
            format!("unknown algorithm `{name}` of {collective}: expected one of {}", names.join(", "))
        })
    }

    /// The same as it does calls with an operator: see [`with_premul`].
    ///
    /// # Errors
    /// As [`Registry::find`].
    pub fn find_for(&self, collective: Collective, name: &str, op: ReduceOp) -> Result<Arc<dyn Algorithm>, String> {
        Ok(with_premul(&self.find(collective, name)?, op))
    }

    /// Every algorithm, whether lists take it or not.
    fn every(&self) -> impl Iterator<Item = Arc<dyn Algorithm>> {
        let foreign = self.foreign.iter().map(|foreign| foreign.clone() as Arc<dyn Algorithm>);
        self.listed.iter().chain(&self.by_name).cloned().chain(foreign)
    }

    /// The modules, built-in ones first.
    pub fn modules(&self) -> &[&'static Module] {
        &self.modules
    }

    /// The module that launches call so; none where there is none.
    pub fn module(&self, name: &str) -> Option<&'static Module> {
        self.modules.iter().copied().find(|module| module.name == name)
    }

    /// The PTX of its modules.
    pub fn library(&self) -> Library {
        self.library.clone()
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// A name that two algorithms of a collective or two modules share or that case ids cannot have, a module without an entry point.
    pub fn check(&self) -> Result<(), String> {
        for (at, algorithm) in self.listed.iter().enumerate() {
            let (collective, name) = (algorithm.collective(), algorithm.name());
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                return Err(format!("algorithm `{name}` of {collective}: a name has small letters, digits and underscores only"));
            }
            let mut others = self.listed[..at].iter().chain(&self.by_name);
            if others.any(|other| (other.collective(), other.name()) == (collective, name)) {
                return Err(format!("there are two algorithms `{name}` of {collective}"));
            }
        }
        for (at, module) in self.modules.iter().enumerate() {
            if self.modules[..at].iter().any(|other| other.name == module.name) {
                return Err(format!("there are two kernel modules `{}`", module.name));
            }
            if at >= self.built_in_modules && kernels::entries(module.release).next().is_none() {
                return Err(format!("kernel module `{}` has no entry point: is it PTX?", module.name));
            }
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        algorithms::{Target, all_reduce::OneShot},
        collective::{Collective, DType},
        contract::Contract,
        plan::{BufferSpec, Build, Call, Plan},
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
    #[case::built_in(Named("two_shot", &[]), "there are two algorithms `two_shot` of all_reduce")]
    #[case::by_name(Named("auto", &[]), "there are two algorithms `auto` of all_reduce")]
    #[case::timed(Named("nccl_symmetric", &[]), "there are two algorithms `nccl_symmetric` of all_reduce")]
    #[case::spelling(Named("Two-Shot", &[]), "algorithm `Two-Shot` of all_reduce: a name has small letters, digits and underscores only")]
    #[case::empty(Named("", &[]), "algorithm `` of all_reduce: a name has small letters, digits and underscores only")]
    fn names_that_ids_cannot_tell_apart_are_refused(#[case] algorithm: Named, #[case] refused: &str) {
        assert_eq!(Registry::built_in().algorithm(algorithm).check().unwrap_err(), refused);
    }

    const TAKEN: Named = Named("mine", &[Module::new("all_reduce/two_shot", ".visible .entry k(")]);
    const NO_PTX: Named = Named("mine", &[Module::new("all_reduce/mine", "")]);
    const MINE: Named = Named("mine", &[Module::new("all_reduce/mine", ".visible .entry k(")]);

    /// If this fails, a launch may run another kernel than the one that it names.
    #[rstest]
    #[case::taken(TAKEN, "there are two kernel modules `all_reduce/two_shot`")]
    #[case::no_ptx(NO_PTX, "kernel module `all_reduce/mine` has no entry point: is it PTX?")]
    fn modules_that_cannot_be_launched_are_refused(#[case] algorithm: Named, #[case] refused: &str) {
        assert_eq!(Registry::built_in().algorithm(algorithm).check().unwrap_err(), refused);
    }

    #[test]
    fn what_is_added_stands_behind_what_is_built_in() {
        let registry = Registry::built_in().algorithm(MINE);
        assert_eq!(registry.check(), Ok(()));
        assert_eq!(registry.added().iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>(), ["mine"]);
        assert_eq!(registry.modules().last().map(|module| module.name), Some("all_reduce/mine"));
    }

    /// If this fails, what one part of a process adds is found by another, or not by the part that added it.
    #[test]
    fn registries_of_one_process_know_nothing_of_each_other() {
        let (with_mine, without) = (Registry::built_in().algorithm(MINE), Registry::built_in());
        assert_eq!(with_mine.find(Collective::AllReduce, "mine").map(|algorithm| algorithm.name().to_owned()), Ok("mine".into()));
        let refused = without.find(Collective::AllReduce, "mine").map(drop).unwrap_err();
        assert!(refused.starts_with("unknown algorithm `mine` of all_reduce: expected one of one_shot, two_shot, "), "{refused}");
        assert!(with_mine.module("all_reduce/mine").is_some() && without.module("all_reduce/mine").is_none());
        let entry = |registry: &Registry| registry.library().ptx("all_reduce/mine", Build::Release).is_ok();
        assert_eq!([&with_mine, &without].map(entry), [true, false]);
    }
}
