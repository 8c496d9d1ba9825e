//! Kernels that the harness itself launches: they fill inputs, go wrong when they are meant to, and show in which order a device adds.

use passmuster_plan::{
    algorithms::{Catalogue, Registry},
    modules::Module,
};

macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!("../kernels/ptx/conformance/", $name, ".ptx"))
    };
}

/// The modules.
static MODULES: [Module; 3] = [
    Module::new("conformance/faults", ptx!("faults")),
    Module::new("conformance/fill", ptx!("fill")),
    Module::new("conformance/orders", ptx!("orders")),
];

/// The registry by which cases are resolved and judged: the algorithms of a catalogue, and the kernels that the harness itself launches.
///
/// ```
/// use passmuster_harness::{algorithms::Catalogue, conformance::List, registry};
///
/// // passmuster_kernels::catalogue() has passmuster's own; .algorithm(Mine) adds one of yours.
/// let registry = registry(Catalogue::default());
/// assert!(List::Merge.all_cases(&registry, 0).is_empty());
/// ```
pub fn registry(catalogue: Catalogue) -> Registry {
    Registry::new(catalogue).with_modules(&MODULES)
}
