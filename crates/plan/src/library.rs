//! The kernels that there are, by the names that launches have for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
};

use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    modules::{FOREIGN, Module, code_hash, entries, name_without_stalls, with_stalls},
    plan::Launch,
    words::UnknownName,
};

/// The PTX that launches refer to: that of modules, of which some may be replaced, as by a mutant, and others added.
///
/// A copy shares what was found out about the modules.
#[derive(Clone, Default)]
pub struct Library {
    embedded: Arc<Embedded>,
    replaced: BTreeMap<String, Arc<Replaced>>,
}

/// Modules, and what is found out about them when first asked for.
#[derive(Default)]
struct Embedded {
    modules: Vec<&'static Module>,
    /// Entries of each module: every launch of every script is checked against them.
    entries: Vec<OnceLock<HashSet<&'static str>>>,
    /// Texts with stalls.
    stalled: Vec<OnceLock<String>>,
    hashes: OnceLock<BTreeMap<String, String>>,
}

/// What stands in a module's place.
struct Replaced {
    ptx: Cow<'static, str>,
    stalled: OnceLock<String>,
    entries: HashSet<String>,
}

/// Why a library does not have a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// There is no such module.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The module has no such entry.
    #[error("kernel `{entry}` is not in the PTX of `{module}`, which has {}", known.join(", "))]
    NoEntry {
        /// The module.
        module: String,
        /// The entry.
        entry: String,
        /// Those that it has.
        known: Vec<String>,
    },
}

impl From<LibraryError> for String {
    fn from(error: LibraryError) -> String {
        error.to_string()
    }
}

impl Library {
    /// Of modules whose names differ.
    pub fn new(modules: Vec<&'static Module>) -> Library {
        let entries = modules.iter().map(|_| OnceLock::new()).collect();
        let stalled = modules.iter().map(|_| OnceLock::new()).collect();
        Library { embedded: Arc::new(Embedded { modules, entries, stalled, hashes: OnceLock::new() }), replaced: BTreeMap::new() }
    }

    /// Replaces one module's PTX, or adds a module where there is none of that name.
    pub fn replace(&mut self, module: &str, ptx: impl Into<Cow<'static, str>>) {
        let ptx = ptx.into();
        let entries = entries(&ptx).map(str::to_owned).collect();
        self.replaced.insert(module.into(), Arc::new(Replaced { ptx, stalled: OnceLock::new(), entries }));
    }

    /// The PTX of a module; that with [stalls](crate::modules::with_stalls), if the name ends with [`STALLS`](crate::modules::STALLS).
    ///
    /// # Errors
    /// Names the modules there are.
    pub fn ptx(&self, module: &str) -> Result<&str, UnknownName> {
        let name = self.without_stalls(module);
        let (ptx, stalled): (&str, _) = match self.replaced(name) {
            Some(replaced) => (&replaced.ptx, &replaced.stalled),
            None => self.embedded(name).map(|(index, ptx)| (ptx, &self.embedded.stalled[index]))?,
        };
        Ok(if name == module { ptx } else { stalled.get_or_init(|| with_stalls(ptx)) })
    }

    /// The PTX of a module that nothing stands in place of, without stalls: the same text for as long as the process lives.
    pub fn unreplaced(&self, module: &str) -> Option<&'static str> {
        if self.replaced(module).is_some() {
            return None;
        }
        self.embedded(module).ok().map(|(_, ptx)| ptx)
    }

    /// Checks that a launch's entry is in its module.
    ///
    /// # Errors
    /// Names the module and the entries it has.
    pub fn check(&self, launch: &Launch) -> Result<(), LibraryError> {
        let Launch { module, entry, .. } = launch;
        let name = self.without_stalls(module);
        let is_there = match self.replaced(name) {
            Some(replaced) => replaced.entries.contains(entry),
            None => {
                let (index, ptx) = self.embedded(name)?;
                let known = &self.embedded.entries[index];
                known.get_or_init(|| entries(ptx).collect()).contains(entry.as_str())
            }
        };
        if is_there {
            return Ok(());
        }
        let known = entries(self.ptx(module)?).map(str::to_owned).collect();
        Err(LibraryError::NoEntry { module: module.clone(), entry: entry.clone(), known })
    }

    /// What records say of these kernels: name and [hash](code_hash) of each. What this library does not have is left out.
    pub fn hashes(&self, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
        let hash = |module: &String| Some((module.clone(), code_hash(self.ptx(module).ok()?)));
        modules.iter().filter_map(hash).collect()
    }

    /// The module whose text, with stalls or without, has this name. A kernel from elsewhere may itself be called so.
    fn without_stalls<'n>(&self, name: &'n str) -> &'n str {
        if self.replaced(name).is_some() { name } else { name_without_stalls(name) }
    }

    fn replaced(&self, module: &str) -> Option<&Replaced> {
        // Most libraries replace nothing.
        let replaced = if self.replaced.is_empty() { None } else { self.replaced.get(module) };
        replaced.map(Arc::as_ref)
    }

    /// An embedded module's number, and its PTX.
    fn embedded(&self, module: &str) -> Result<(usize, &'static str), UnknownName> {
        let modules = &self.embedded.modules;
        let index = modules.iter().position(|m| m.name == module);
        let index = index.ok_or_else(|| UnknownName::new("kernel module", module, modules.iter().map(|m| m.name)))?;
        Ok((index, modules[index].ptx))
    }

    /// Hash of all modules, names included, whatever is replaced: `xxh3:` and 16 hexadecimal digits. They are some 10 MB, and each process of a rank asks.
    pub fn ptx_hash(&self) -> String {
        let mut all = Xxh3Default::new();
        for &&Module { name, ptx, .. } in &self.embedded.modules {
            for part in [name, ptx] {
                all.update(part.as_bytes());
                all.update(b"\0");
            }
        }
        format!("xxh3:{:016x}", all.digest())
    }

    /// Those of a record's kernels that are no longer what they were, or no longer there. `then` has their hashes. Kernels from elsewhere are
    /// none of ours: what was judged is what the record's notes say.
    pub fn changed_since(&self, then: &BTreeMap<String, String>) -> Vec<String> {
        let now = self.embedded.hashes.get_or_init(|| {
            let shipped = self.embedded.modules.iter().map(|module| (module.name.to_owned(), code_hash(module.ptx)));
            let stalled = self.embedded.modules.iter().filter(|module| module.has_sites);
            shipped.chain(stalled.map(|module| (module.name_with_stalls(), code_hash(&with_stalls(module.ptx))))).collect()
        });
        let has_changed = |(name, hash): &(&String, &String)| !name.starts_with(FOREIGN) && now.get(*name) != Some(*hash);
        then.iter().filter(has_changed).map(|(name, _)| name.clone()).collect()
    }
}
