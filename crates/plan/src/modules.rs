//! Kernel modules: PTX, and what is to be known of it.

use crate::collective::DType;

/// One source file, what it compiles to, and what its kernels are for.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// What launches call it; of ours its path under kernels/ without extension.
    pub name: &'static str,
    /// What it compiles to.
    pub ptx: &'static str,
    /// Whether its kernels synchronise ranks by kernels/common/signals.cuh, so that a rank can be late at their [sites](crate::machine::Site).
    pub has_sites: bool,
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
    /// Ranks, and elements of a call among them: enough that several blocks have work, and that blocks that go tile by tile have several tiles each.
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
    /// A module that does not synchronise ranks by our headers: `all_reduce/mine` has entries whose names start with `all_reduce_mine`, if [`entry`](crate::algorithms::kit::entry) names them.
    pub const fn new(name: &'static str, ptx: &'static str) -> Module {
        Module { name, ptx, has_sites: false, calls: Calls::Any, own_entries: OwnEntries::Common, mutants: MutantCases::DEFAULT }
    }

    /// With sites at which a rank can be late: its kernels synchronise by kernels/common/signals.cuh.
    #[must_use]
    pub const fn with_sites(self) -> Module {
        Module { has_sites: true, ..self }
    }

    /// What launches call its text [with stalls](with_stalls): its own name if it has no sites.
    pub fn name_with_stalls(&self) -> String {
        format!("{}{}", self.name, if self.has_sites { STALLS } else { "" })
    }

    /// For some calls of its algorithm only.
    #[must_use]
    pub const fn of_calls(self, calls: Calls) -> Module {
        Module { calls, ..self }
    }

    /// With entries of their own for these reductions.
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

/// What the name of a module ends with where its text [with stalls](with_stalls) is meant.
pub const STALLS: &str = ".stalls";

/// The name of a module, whether its text with stalls is meant or not.
pub fn name_without_stalls(name: &str) -> &str {
    name.strip_suffix(STALLS).unwrap_or(name)
}

/// The text of a module with code in place of the comments that mark its [sites](crate::machine::Site): it looks up how many nanoseconds to lose there, and
/// spins. `stall` of kernels/common/signals.cuh writes the comments. Lines keep their numbers.
///
/// ```
/// use passmuster_plan::modules::with_stalls;
///
/// let text = with_stalls("ret;\n// passmuster: stall 3 %rd7\n");
/// assert!(text.starts_with("ret;\n{ ") && text.contains("cvta.to.global.u64 %times, %rd7; ld.volatile.global.u32 %lose, [%times+12];"));
/// ```
pub fn with_stalls(ptx: &str) -> String {
    let site = |line: &str| {
        let (site, times) = line.trim().strip_prefix("// passmuster: stall ")?.split_once(' ')?;
        Some((site.parse::<u32>().ok()?, times.to_owned()))
    };
    let mut text = String::with_capacity(ptx.len() + ptx.len() / 8);
    for (number, line) in ptx.lines().enumerate() {
        match site(line) {
            None => text.push_str(line),
            Some((site, times)) => {
                let label = format!("STALL_{number}");
                text.push_str(&format!(
                    "{{ .reg .pred %early; .reg .b32 %lose; .reg .b64 %times, %begin, %end, %now; cvta.to.global.u64 %times, {times}; \
                     ld.volatile.global.u32 %lose, [%times+{}]; mov.u64 %begin, %globaltimer; cvt.u64.u32 %end, %lose; add.s64 %end, %end, %begin; \
                     {label}: mov.u64 %now, %globaltimer; setp.lt.u64 %early, %now, %end; @%early bra {label}; }}",
                    4 * site
                ));
            }
        }
        text.push('\n');
    }
    text
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

/// Names of the entry points of a PTX text.
pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| line.split_once(".entry ").map(|(_, rest)| rest.split(['(', ' ']).next().unwrap_or(rest)))
}
