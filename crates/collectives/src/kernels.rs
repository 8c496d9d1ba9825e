//! The compiled kernels, embedded: what is validated is what ships. `cargo xtask kernels` writes them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, LazyLock, OnceLock},
};

use crate::{
    algorithms::{self, premul_sum},
    plan::{Build, Launch},
    registry::Registry,
};

/// Modules that launches may name: those of the [installed registry](Registry::installed), built-in ones first.
pub fn modules() -> &'static [&'static Module] {
    Registry::installed().modules()
}

/// A module of this crate by its path under kernels/ without extension; `checked` where the module synchronises. A new one starts with empty files under
/// kernels/ptx/, so that the command that fills them can be built.
macro_rules! module {
    ($name:literal) => {
        $crate::kernels::Module::new($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx/", $name, ".ptx")))
    };
    ($name:literal, checked) => {
        module!($name).checked(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx/", $name, ".checked.ptx")))
    };
}
pub(crate) use module;

/// Modules of this crate: those of its [algorithms](algorithms::Algorithm::modules), and the others. `cargo xtask kernels` compiles them.
pub fn built_in() -> Vec<&'static Module> {
    algorithms::built_in().iter().flat_map(|algorithm| algorithm.modules()).chain(&OTHERS).collect()
}

/// Modules that no algorithm of a collective has: of pre-multiplied sums, of products of matrices, of timings and of the conformance harness.
static OTHERS: [Module; 9] = [
    premul_sum::MODULE,
    module!("matmul/matmul").for_gpus(),
    module!("all_gather_matmul/fused").for_gpus(),
    module!("matmul_reduce_scatter/fused").for_gpus(),
    module!("bench/late"),
    module!("bench/numbers"),
    module!("conformance/faults"),
    module!("conformance/fill"),
    module!("conformance/hold"),
];

/// Headers of the kernels, by name: `reduce.cuh`. `passmuster compile` gives them to kernels of other crates as `passmuster/reduce.cuh`.
pub static HEADERS: &[(&str, &str)] = &[
    ("any.cuh", include_str!("../kernels/common/any.cuh")),
    ("copies.cuh", include_str!("../kernels/common/copies.cuh")),
    ("copy_entries.cuh", include_str!("../kernels/common/copy_entries.cuh")),
    ("dtype.cuh", include_str!("../kernels/common/dtype.cuh")),
    ("dtypes.cuh", include_str!("../kernels/common/dtypes.cuh")),
    ("entries.cuh", include_str!("../kernels/common/entries.cuh")),
    ("lines.cuh", include_str!("../kernels/common/lines.cuh")),
    ("multimem.cuh", include_str!("../kernels/common/multimem.cuh")),
    ("multimem_entries.cuh", include_str!("../kernels/common/multimem_entries.cuh")),
    ("reduce.cuh", include_str!("../kernels/common/reduce.cuh")),
    ("signals.cuh", include_str!("../kernels/common/signals.cuh")),
    ("slices.cuh", include_str!("../kernels/common/slices.cuh")),
    ("types.cuh", include_str!("../kernels/common/types.cuh")),
];

/// One source file, what it compiles to, and what its kernels are for.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// What launches call it; of a built-in one its path under kernels/ without extension.
    pub name: &'static str,
    /// PTX of the release build.
    pub release: &'static str,
    /// PTX of the checked build, where the module synchronises.
    pub checked: Option<&'static str>,
    /// Whether the emulator knows its instructions: it knows neither TMA nor wgmma.
    pub emulated: bool,
    /// Which of its algorithm's calls it is for.
    pub calls: Calls,
    /// Which reductions have entries of their own.
    pub own_entries: OwnEntries,
    /// What mutants of its synchronisation are judged on.
    pub mutants: SyncSizes,
}

/// Which of its algorithm's calls a module is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that no other module of the algorithm is for.
    Any,
    /// All-to-all-v. Its one entry knows bytes only: it moves whatever it is at the width that addresses allow.
    AllToAllV,
    /// Pre-multiplied sums of whole packs: an entry for each type that it has.
    PremulSum,
}

/// The types and operators for which a module that reduces has entries of their own. The others are done by the entry `any`: see kernels/common/any.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEntries {
    /// [`DType::COMMON`](crate::collective::DType::COMMON) and [`ReduceOp::COMMON`](crate::collective::ReduceOp::COMMON).
    Common,
    /// What most calls are: sums of f32, f16 and bf16. The source defines FEW_ENTRIES.
    Sums,
}

/// What mutants of a module's synchronisation are judged on, beside what is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSizes {
    /// Ranks, and so many bf16 elements of a call among them that several blocks have work, and those that go tile by tile several tiles each.
    pub several: (u32, u64),
    /// Ids of more cases, of other algorithms that launch it in a way of their own.
    pub also: &'static [&'static str],
}

impl SyncSizes {
    /// Of modules that say nothing of it.
    pub const DEFAULT: SyncSizes = SyncSizes { several: (2, 9000), also: &[] };
}

impl Module {
    /// A module of one build: `all_reduce/mine` has entries whose names start with `all_reduce_mine`, if [`entry`](crate::algorithms::entry) names them.
    pub const fn new(name: &'static str, ptx: &'static str) -> Module {
        Module {
            name,
            release: ptx,
            checked: None,
            emulated: true,
            calls: Calls::Any,
            own_entries: OwnEntries::Common,
            mutants: SyncSizes::DEFAULT,
        }
    }

    /// With a checked build, in which every wait is bounded and a rank can be held up at a site: cases with a skew at one need it.
    #[must_use]
    pub const fn checked(self, ptx: &'static str) -> Module {
        Module { checked: Some(ptx), ..self }
    }

    /// For some calls of its algorithm only.
    #[must_use]
    pub const fn of_calls(self, calls: Calls) -> Module {
        Module { calls, ..self }
    }

    /// With entries of their own for so many reductions.
    #[must_use]
    pub const fn with_entries(self, own_entries: OwnEntries) -> Module {
        Module { own_entries, ..self }
    }

    /// With other cases for mutants of its synchronisation.
    #[must_use]
    pub const fn with_mutants(self, mutants: SyncSizes) -> Module {
        Module { mutants, ..self }
    }

    const fn for_gpus(self) -> Module {
        Module { emulated: false, ..self }
    }
}

/// The module that launches call so; none where there is none.
pub fn find(name: &str) -> Option<&'static Module> {
    modules().iter().copied().find(|module| module.name == name)
}

/// Entries of each embedded module's release and checked build, found when first asked for: every launch of every script is held against them.
static ENTRIES: LazyLock<Vec<[OnceLock<HashSet<&'static str>>; 2]>> =
    LazyLock::new(|| modules().iter().map(|_| Default::default()).collect());

/// The PTX that launches refer to: the embedded modules, of which some may be replaced, as by a mutant, and others added.
#[derive(Clone, Default)]
pub struct Library {
    replaced: BTreeMap<(String, Build), Arc<Replaced>>,
}

/// What stands in a module's place.
struct Replaced {
    ptx: Cow<'static, str>,
    entries: HashSet<String>,
}

impl Library {
    /// Replaces one module's PTX, or adds a module where there is none of that name.
    pub fn replace(&mut self, module: &str, build: Build, ptx: impl Into<Cow<'static, str>>) {
        let ptx = ptx.into();
        let entries = entries(&ptx).map(str::to_owned).collect();
        self.replaced.insert((module.into(), build), Arc::new(Replaced { ptx, entries }));
    }

    /// The PTX of a module.
    ///
    /// # Errors
    /// Names the modules there are.
    pub fn ptx(&self, module: &str, build: Build) -> Result<&str, String> {
        match self.replaced(module, build) {
            Some(replaced) => Ok(&replaced.ptx),
            None => embedded(module, build).map(|(_, ptx)| ptx),
        }
    }

    /// Checks that a launch's entry is in its module.
    ///
    /// # Errors
    /// Names the module and the entries it has.
    pub fn check(&self, launch: &Launch) -> Result<(), String> {
        let Launch { module, build, entry, .. } = launch;
        let is_there = match self.replaced(module, *build) {
            Some(replaced) => replaced.entries.contains(entry),
            None => {
                let (index, ptx) = embedded(module, *build)?;
                let known = &ENTRIES[index][usize::from(*build == Build::Checked)];
                known.get_or_init(|| entries(ptx).collect()).contains(entry.as_str())
            }
        };
        if is_there {
            return Ok(());
        }
        let known: Vec<&str> = entries(self.ptx(module, *build)?).collect();
        Err(format!("kernel `{entry}` is not in the PTX of `{module}`, which has {}", known.join(", ")))
    }

    /// What records say of these kernels: [file name](file_name) and [hash](code_hash) of each. What this library does not have is left out.
    pub fn hashes(&self, modules: &BTreeSet<(String, Build)>) -> BTreeMap<String, String> {
        let hash = |(module, build): &(String, Build)| Some((file_name(module, *build), code_hash(self.ptx(module, *build).ok()?)));
        modules.iter().filter_map(hash).collect()
    }

    fn replaced(&self, module: &str, build: Build) -> Option<&Replaced> {
        // Most libraries replace nothing.
        let replaced = if self.replaced.is_empty() { None } else { self.replaced.get(&(module.to_owned(), build)) };
        replaced.map(Arc::as_ref)
    }
}

/// An embedded module's place in [`modules`], and its PTX.
fn embedded(module: &str, build: Build) -> Result<(usize, &'static str), String> {
    let index = modules().iter().position(|m| m.name == module).ok_or_else(|| {
        let names: Vec<&str> = modules().iter().map(|m| m.name).collect();
        format!("unknown kernel module `{module}`: expected one of {}", names.join(", "))
    })?;
    let &Module { release, checked, .. } = modules()[index];
    match build {
        Build::Release => Ok((index, release)),
        Build::Checked => checked.map(|ptx| (index, ptx)).ok_or_else(|| format!("kernel module `{module}` has no checked build")),
    }
}

/// 64-bit FNV-1a: the hash of sources and kernels in generated files and records. It tells versions apart, not attackers.
///
/// ```
/// assert_eq!(passmuster_collectives::kernels::fnv1a64(b"a"), 0xaf63dc4c8601ec8c);
/// ```
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Hash of all embedded kernels, names included: `fnv1a64:` and 16 hexadecimal digits.
pub fn ptx_hash() -> String {
    let mut all = String::new();
    for &&Module { name, release, checked, .. } in modules() {
        for part in [name, release, checked.unwrap_or_default()] {
            all.push_str(part);
            all.push('\0');
        }
    }
    format!("fnv1a64:{:016x}", fnv1a64(all.as_bytes()))
}

/// What records call a build of a module: `all_reduce/two_shot` the release build, `all_reduce/two_shot.checked` the checked one, as the files under kernels/ptx.
pub fn file_name(module: &str, build: Build) -> String {
    match build {
        Build::Release => module.to_owned(),
        Build::Checked => format!("{module}{CHECKED}"),
    }
}

/// What the name of a checked build ends with.
const CHECKED: &str = ".checked";

/// Hash of what a PTX text does: 16 hexadecimal digits over its lines but for comments, which name compilers and hashes of sources, and for spacing.
///
/// ```
/// use passmuster_collectives::kernels::code_hash;
/// assert_eq!(code_hash("// source: fnv1a64:0123\n.version 9.0\n"), code_hash("\n.version  9.0\n  // by hand\n"));
/// assert_ne!(code_hash(".version 9.0\n"), code_hash(".version 9.1\n"));
/// ```
pub fn code_hash(ptx: &str) -> String {
    let mut code = String::with_capacity(ptx.len());
    for line in ptx.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        for (index, word) in line.split_whitespace().enumerate() {
            let joined = if index == 0 || word == ";" { "" } else { " " };
            code.push_str(joined);
            code.push_str(word);
        }
        code.push('\n');
    }
    format!("{:016x}", fnv1a64(code.as_bytes()))
}

/// Those of a record's kernels that are no longer what they were, or no longer there, by [`file_name`]. `then` has their hashes.
pub fn changed_since(then: &BTreeMap<String, String>) -> Vec<String> {
    static NOW: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let builds = |module: &&Module| {
            let checked = module.checked.map(|ptx| (file_name(module.name, Build::Checked), code_hash(ptx)));
            [(file_name(module.name, Build::Release), code_hash(module.release))].into_iter().chain(checked)
        };
        modules().iter().flat_map(builds).collect()
    });
    then.iter().filter(|(name, hash)| NOW.get(*name) != Some(*hash)).map(|(name, _)| name.clone()).collect()
}

/// The module that a [`file_name`] is of.
pub fn module_of(file_name: &str) -> &str {
    file_name.strip_suffix(CHECKED).unwrap_or(file_name)
}

/// Names of the entry points of a PTX text.
pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| line.split_once(".entry ").map(|(_, rest)| rest.split(['(', ' ']).next().unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a kernel of another crate cannot include a header that the kernels here have.
    #[test]
    fn every_header_is_there_for_kernels_of_other_crates() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/common")).unwrap();
        let mut names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(HEADERS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }
}
