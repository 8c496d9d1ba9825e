//! Kernel modules: PTX, and what is to be known of it.

use crate::{collective::DType, plan::Build};

/// One source file, what it compiles to, and what its kernels are for.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// What launches call it; of ours its path under kernels/ without extension.
    pub name: &'static str,
    /// PTX of the release build.
    pub release: &'static str,
    /// PTX of the checked build, where the module synchronises.
    pub checked: Option<&'static str>,
    /// PTX of the wide build, where the module is for groups of more than [`MAX_WORLD`](crate::plan::MAX_WORLD) ranks, too.
    pub wide: Option<&'static str>,
    /// Which of its algorithm's calls it is for.
    pub calls: Calls,
    /// Which reductions have entries of their own.
    pub own_entries: OwnEntries,
    /// What mutants of its synchronisation are judged on.
    pub mutants: MutantCases,
}

/// Which of its algorithm's calls a module is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that no other module of the algorithm is for.
    Any,
    /// All-to-all-v. Its one entry knows bytes only: it moves whatever it is at the width that addresses allow.
    AllToAllV,
    /// Pre-multiplied sums, of whole packs at least: an entry for each type that it has.
    PremulSum,
    /// Pre-multiplied sums of any algorithm, before whose own kernels it multiplies the inputs.
    BeforeSums,
}

/// The types and operators for which a module that reduces has entries of their own. The others are done by the entry `any`: see kernels/common/any.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEntries {
    /// [`DType::COMMON`](crate::collective::DType::COMMON) and [`ReduceOp::COMMON`](crate::collective::ReduceOp::COMMON).
    Common,
    /// What most calls are: sums of f32, f16 and bf16. The source defines FEW_ENTRIES.
    Sums,
    /// None: one entry, of the module's name, knows neither types nor operators.
    Untyped,
    /// A product of matrices: an entry for each type, layout and tile. These are the columns and the cluster of the narrowest tile, `128x2`, whose entry mutants are made of.
    Product(&'static str),
}

/// What names of modules from elsewhere begin with, and of contenders that launch them.
pub const FOREIGN: &str = "foreign/";

/// What mutants of a module's synchronisation are judged on, beside what is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutantCases {
    /// The element type whose entry is mutated, and of the cases.
    pub dtype: DType,
    /// Ranks, and so many elements of a call among them that several blocks have work, and those that go tile by tile several tiles each.
    pub several: (u32, u64),
    /// Whether there are words that its packs cannot carry, for which it has a path of its own: cases of special inputs have them.
    pub rare_words: bool,
    /// Ids of more cases: of other algorithms that launch it in a way of their own.
    pub also: &'static [&'static str],
}

impl MutantCases {
    /// Of modules that say nothing of it.
    pub const DEFAULT: MutantCases = MutantCases { dtype: DType::BF16, several: (2, 9000), rare_words: false, also: &[] };
}

impl Module {
    /// A module of one build: `all_reduce/mine` has entries whose names start with `all_reduce_mine`, if [`entry`](crate::algorithms::kit::entry) names them.
    pub const fn new(name: &'static str, ptx: &'static str) -> Module {
        Module {
            name,
            release: ptx,
            checked: None,
            wide: None,
            calls: Calls::Any,
            own_entries: OwnEntries::Common,
            mutants: MutantCases::DEFAULT,
        }
    }

    /// With a checked build, in which every wait is bounded and a rank can be held up at a site: cases with a skew at one need it.
    #[must_use]
    pub const fn checked(self, ptx: &'static str) -> Module {
        Module { checked: Some(ptx), ..self }
    }

    /// With a build for more ranks than [`MAX_WORLD`](crate::plan::MAX_WORLD): the source compiled with `PASSMUSTER_WIDE` defined.
    #[must_use]
    pub const fn wide(self, ptx: &'static str) -> Module {
        Module { wide: Some(ptx), ..self }
    }

    /// The PTX of a build; none where the module has no such build.
    pub const fn ptx(&self, build: Build) -> Option<&'static str> {
        match build {
            Build::Release => Some(self.release),
            Build::Checked => self.checked,
            Build::Wide => self.wide,
        }
    }

    /// The builds that it has.
    pub fn builds(&self) -> impl Iterator<Item = Build> {
        Build::ALL.into_iter().filter(|&build| self.ptx(build).is_some())
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
    pub const fn with_mutants(self, mutants: MutantCases) -> Module {
        Module { mutants, ..self }
    }
}

/// 64-bit FNV-1a: the hash of sources and kernels in generated files and records. It tells versions apart, not attackers.
///
/// ```
/// assert_eq!(passmuster_plan::modules::fnv1a64(b"a"), 0xaf63dc4c8601ec8c);
/// ```
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What records call a build of a module: `all_reduce/two_shot` the release build, `all_reduce/two_shot.checked` the checked one, `all_reduce/two_shot.wide`
/// the wide one, as the files under kernels/ptx.
pub fn file_name(module: &str, build: Build) -> String {
    format!("{module}{}", suffix(build))
}

/// What the name of a build ends with.
const fn suffix(build: Build) -> &'static str {
    match build {
        Build::Release => "",
        Build::Checked => ".checked",
        Build::Wide => ".wide",
    }
}

/// Hash of what a PTX text does: 16 hexadecimal digits over its lines but for comments, which name compilers and hashes of sources, and for spacing.
///
/// ```
/// use passmuster_plan::modules::code_hash;
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

/// The module that a [`file_name`] is of.
pub fn module_of(file_name: &str) -> &str {
    [Build::Checked, Build::Wide].into_iter().find_map(|build| file_name.strip_suffix(suffix(build))).unwrap_or(file_name)
}

/// Names of the entry points of a PTX text.
pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| line.split_once(".entry ").map(|(_, rest)| rest.split(['(', ' ']).next().unwrap_or(rest)))
}
