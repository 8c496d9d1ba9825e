//! Which algorithms and kernel modules there are: those of a library of kernels, and those that others bring.

use std::{fmt, sync::Arc};

use super::{Algorithm, Foreign, Mutant, Nccl, TaskAlgorithm, TensorParallel, TensorParallelFusion, renamed};
use crate::{
    collective::{Collective, ReduceOp},
    library::Library,
    modules::{self, Module},
    words::expected,
};

/// What a library of kernels has: passmuster's own is `passmuster_kernels::catalogue()`.
#[derive(Clone, Default)]
pub struct Catalogue {
    /// The algorithms that lists of cases take, and the peers that they are compared with.
    pub algorithms: Vec<Arc<dyn Algorithm>>,
    /// Those that lists do not take as they take all others: what chooses among, stages for or spans the others, and what is timed only.
    pub by_name: Vec<Arc<dyn Algorithm>>,
    /// Ways to multiply matrices that ranks have parts of, the peers first.
    pub products: Vec<Arc<dyn TensorParallel>>,
    /// Modules that no algorithm of a collective has.
    pub modules: &'static [Module],
    /// How the algorithms do pre-multiplied sums.
    pub premul: Option<Premul>,
    /// Its kernels with planted bugs.
    pub mutants: &'static [Mutant],
    /// Which mutants made by rule do nothing wrong: the text of fixtures/mutants/equivalent.toml.
    pub equivalents: &'static str,
}

impl Catalogue {
    /// NCCL alone, to compare kernels from elsewhere with.
    pub fn peers() -> Catalogue {
        Catalogue { algorithms: Nccl::listed(), by_name: Nccl::bench_only(), ..Catalogue::default() }
    }
}

/// An algorithm as it does calls with an operator: of pre-multiplied sums, what multiplies and then has it sum the products.
pub type Premul = fn(&Arc<dyn Algorithm>, ReduceOp) -> Arc<dyn Algorithm>;

/// Algorithms, and the kernel modules that they launch: what case ids, lists of cases, kernels and timings are resolved against.
///
/// It is a value. A process may have several, which know nothing of each other; a copy shares the algorithms.
///
/// ```
/// use passmuster_plan::{algorithms::{Catalogue, Registry}, collective::Collective};
///
/// // .algorithm(Mine) adds one of your own.
/// let registry = Registry::new(Catalogue::default());
/// assert!(registry.find(Collective::AllReduce, "two_shot").is_err());
/// ```
#[derive(Clone)]
pub struct Registry {
    catalogue: Catalogue,
    /// How many algorithms are the catalogue's own: they come first.
    own: usize,
    foreign: Vec<Arc<Foreign>>,
    tasks: Vec<Arc<dyn TaskAlgorithm>>,
    modules: Vec<&'static Module>,
    library: Library,
}

/// Why a [`Registry`] does not have what was asked for, or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is no such algorithm.
    #[error("unknown algorithm `{name}` of {collective}: {}", expected(.name, .known))]
    Unknown {
        /// What it should do.
        collective: Collective,
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The algorithm has another name now.
    #[error("algorithm `{name}` of {collective} is called `{now}` now")]
    Renamed {
        /// What it does.
        collective: Collective,
        /// The name that was asked for.
        name: String,
        /// Its name.
        now: &'static str,
    },
    /// There is no such way to multiply.
    #[error("unknown algorithm `{name}` of {half}: {}", expected(.name, .known))]
    UnknownProduct {
        /// What it should do.
        half: TensorParallelFusion,
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// There is no such way to do a task, or no such task.
    #[error("unknown algorithm `{name}` of the task {task}: {}", expected(.name, .known))]
    UnknownTask {
        /// What it should do.
        task: String,
        /// The name that was asked for.
        name: String,
        /// Those that there are, with their tasks.
        known: Vec<String>,
    },
    /// An algorithm has the name of one that does the same task.
    #[error("there is an algorithm `{name}` of the task {task} already")]
    TakenTask {
        /// What both do.
        task: String,
        /// The name of both.
        name: String,
    },
    /// A kernel from elsewhere has the name of an algorithm that is there.
    #[error("there is an algorithm `{name}` of {collective} already")]
    Taken {
        /// What both do.
        collective: Collective,
        /// The name of both.
        name: String,
    },
    /// Case ids cannot have this name.
    #[error("algorithm `{name}` of {collective}: a name has small letters, digits and underscores only")]
    Name {
        /// What the algorithm does.
        collective: Collective,
        /// Its name.
        name: String,
    },
    /// Two algorithms of a collective share a name.
    #[error("there are two algorithms `{name}` of {collective}")]
    TwoAlgorithms {
        /// What both do.
        collective: Collective,
        /// The name of both.
        name: String,
    },
    /// Two modules share a name.
    #[error("there are two kernel modules `{module}`")]
    TwoModules {
        /// The name of both.
        module: &'static str,
    },
    /// Nothing in a module can be launched.
    #[error("kernel module `{module}` has no entry point: is it PTX?")]
    NoEntry {
        /// Its name.
        module: &'static str,
    },
}

impl From<RegistryError> for String {
    fn from(error: RegistryError) -> String {
        error.to_string()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.every().map(|algorithm| format!("{}/{}", algorithm.collective(), algorithm.name()));
        f.debug_struct("Registry").field("algorithms", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Registry {
    /// What a library of kernels has.
    pub fn new(catalogue: Catalogue) -> Registry {
        let of_algorithms = catalogue.algorithms.iter().flat_map(|algorithm| algorithm.modules());
        let modules: Vec<&'static Module> = of_algorithms.chain(catalogue.modules).collect();
        Registry {
            own: catalogue.algorithms.len(),
            library: Library::new(modules.clone()),
            foreign: Vec::new(),
            tasks: Vec::new(),
            modules,
            catalogue,
        }
    }

    /// With an algorithm beside those that are there, and its modules. [`Registry::check`] looks at their names.
    #[must_use]
    pub fn algorithm(mut self, algorithm: impl Algorithm + 'static) -> Registry {
        let modules = algorithm.modules();
        self.catalogue.algorithms.push(Arc::new(algorithm));
        self.with_modules(modules)
    }

    /// With modules of no algorithm beside those that are there.
    #[must_use]
    pub fn with_modules(mut self, modules: impl IntoIterator<Item = &'static Module>) -> Registry {
        self.modules.extend(modules);
        self.library = Library::new(self.modules.clone());
        self
    }

    /// With kernels from elsewhere, which no list of cases takes as it takes the others.
    ///
    /// # Errors
    /// [`RegistryError::Taken`].
    pub fn with_foreign(mut self, foreign: impl IntoIterator<Item = Foreign>) -> Result<Registry, RegistryError> {
        for new in foreign {
            let (collective, name) = (new.collective(), new.name());
            if self.every().any(|known| (known.collective(), known.name()) == (collective, name)) {
                return Err(RegistryError::Taken { collective, name: name.to_owned() });
            }
            self.foreign.push(Arc::new(new));
        }
        Ok(self)
    }

    /// With an algorithm of a task.
    ///
    /// # Errors
    /// [`RegistryError::TakenTask`].
    pub fn with_task(mut self, algorithm: Arc<dyn TaskAlgorithm>) -> Result<Registry, RegistryError> {
        let (task, name) = (algorithm.task().name(), algorithm.name());
        if self.tasks.iter().any(|known| (known.task().name(), known.name()) == (task, name)) {
            return Err(RegistryError::TakenTask { task: task.to_owned(), name: name.to_owned() });
        }
        self.tasks.push(algorithm);
        Ok(self)
    }

    /// The algorithms of tasks.
    pub fn tasks(&self) -> &[Arc<dyn TaskAlgorithm>] {
        &self.tasks
    }

    /// The algorithm called `name` of a task.
    ///
    /// # Errors
    /// [`RegistryError::UnknownTask`].
    pub fn task(&self, task: &str, name: &str) -> Result<&Arc<dyn TaskAlgorithm>, RegistryError> {
        self.tasks.iter().find(|known| (known.task().name(), known.name()) == (task, name)).ok_or_else(|| {
            let known = self.tasks.iter().map(|known| format!("{}/{}", known.task().name(), known.name())).collect();
            RegistryError::UnknownTask { task: task.to_owned(), name: name.to_owned(), known }
        })
    }

    /// The algorithms under test and the peers, the catalogue's first. Others of it are [found](Registry::find) by name only.
    pub fn algorithms(&self) -> &[Arc<dyn Algorithm>] {
        &self.catalogue.algorithms
    }

    /// Those of a collective that lists do not take as they take all others, but for peers.
    pub fn apart(&self, collective: Collective) -> impl Iterator<Item = &Arc<dyn Algorithm>> {
        self.catalogue.by_name.iter().filter(move |algorithm| algorithm.collective() == collective && !algorithm.is_peer())
    }

    /// Those of a collective.
    pub fn of(&self, collective: Collective) -> impl Iterator<Item = &Arc<dyn Algorithm>> {
        self.catalogue.algorithms.iter().filter(move |algorithm| algorithm.collective() == collective)
    }

    /// The algorithms that are not the catalogue's.
    pub fn added(&self) -> &[Arc<dyn Algorithm>] {
        &self.catalogue.algorithms[self.own..]
    }

    /// Kernels from elsewhere.
    pub fn foreign(&self) -> &[Arc<Foreign>] {
        &self.foreign
    }

    /// The algorithm called `name` for a collective.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`], or [`RegistryError::Renamed`] if an algorithm had this name.
    pub fn find(&self, collective: Collective, name: &str) -> Result<Arc<dyn Algorithm>, RegistryError> {
        let of_collective = || self.every().filter(|algorithm| algorithm.collective() == collective);
        of_collective().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            if let Some(now) = renamed(name) {
                return RegistryError::Renamed { collective, name: name.to_owned(), now };
            }
            let known = of_collective().map(|algorithm| algorithm.name().to_owned()).collect();
            RegistryError::Unknown { collective, name: name.to_owned(), known }
        })
    }

    /// The same as it does calls with an operator: see [`Registry::for_operator`].
    ///
    /// # Errors
    /// The message of the error of [`Registry::find`].
    pub fn find_for(&self, collective: Collective, name: &str, op: ReduceOp) -> Result<Arc<dyn Algorithm>, String> {
        Ok(self.for_operator(&self.find(collective, name)?, op))
    }

    /// An algorithm as it does calls with this operator. Of pre-multiplied sums it gets the products, where the catalogue has a kernel that multiplies and it
    /// cannot itself. NCCL can, and kernels from elsewhere do as they say.
    pub fn for_operator(&self, algorithm: &Arc<dyn Algorithm>, op: ReduceOp) -> Arc<dyn Algorithm> {
        self.catalogue.premul.map_or_else(|| algorithm.clone(), |premul| premul(algorithm, op))
    }

    /// The ways to do one half of tensor parallelism, the peers first.
    pub fn products(&self, half: TensorParallelFusion) -> impl Iterator<Item = &Arc<dyn TensorParallel>> {
        self.catalogue.products.iter().filter(move |product| product.half() == half)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`RegistryError::UnknownProduct`].
    pub fn product(&self, half: TensorParallelFusion, name: &str) -> Result<&Arc<dyn TensorParallel>, RegistryError> {
        self.products(half).find(|product| product.name() == name).ok_or_else(|| {
            let known = self.products(half).map(|product| product.name().to_owned()).collect();
            RegistryError::UnknownProduct { half, name: name.to_owned(), known }
        })
    }

    /// The kernels with planted bugs, by name.
    pub fn mutants(&self) -> &'static [Mutant] {
        self.catalogue.mutants
    }

    /// Which mutants made by rule do nothing wrong, as TOML.
    pub fn equivalents(&self) -> &'static str {
        self.catalogue.equivalents
    }

    /// Every algorithm, whether lists take it or not.
    fn every(&self) -> impl Iterator<Item = Arc<dyn Algorithm>> {
        let foreign = self.foreign.iter().map(|foreign| foreign.clone() as Arc<dyn Algorithm>);
        self.catalogue.algorithms.iter().chain(&self.catalogue.by_name).cloned().chain(foreign)
    }

    /// The modules, those of algorithms first.
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
    pub fn check(&self) -> Result<(), RegistryError> {
        for (at, algorithm) in self.catalogue.algorithms.iter().enumerate() {
            let (collective, name) = (algorithm.collective(), algorithm.name());
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                return Err(RegistryError::Name { collective, name: name.to_owned() });
            }
            let mut others = self.catalogue.algorithms[..at].iter().chain(&self.catalogue.by_name);
            if others.any(|other| (other.collective(), other.name()) == (collective, name)) {
                return Err(RegistryError::TwoAlgorithms { collective, name: name.to_owned() });
            }
        }
        for (at, module) in self.modules.iter().enumerate() {
            if self.modules[..at].iter().any(|other| other.name == module.name) {
                return Err(RegistryError::TwoModules { module: module.name });
            }
            if modules::entries(module.ptx).next().is_none() {
                return Err(RegistryError::NoEntry { module: module.name });
            }
        }
        Ok(())
    }
}
