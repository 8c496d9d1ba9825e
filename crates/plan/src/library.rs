//! The kernels that there are, by the names that launches have for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
};

use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    modules::{FOREIGN, Module, code_hash, entries, file_name},
    plan::{Build, Launch},
};

/// The PTX that launches refer to: that of modules, of which some may be replaced, as by a mutant, and others added.
///
/// A copy shares what was found out about the modules.
#[derive(Clone, Default)]
pub struct Library {
    embedded: Arc<Embedded>,
    replaced: BTreeMap<(String, Build), Arc<Replaced>>,
}

/// Modules, and what is found out about them when first asked for.
#[derive(Default)]
struct Embedded {
    modules: Vec<&'static Module>,
    /// Entries of each module's [builds](Build::ALL): every launch of every script is held against them.
    entries: Vec<[OnceLock<HashSet<&'static str>>; Build::ALL.len()]>,
    hashes: OnceLock<BTreeMap<String, String>>,
}

/// What stands in a module's place.
struct Replaced {
    ptx: Cow<'static, str>,
    entries: HashSet<String>,
}

impl Library {
    /// Of modules whose names differ.
    pub fn new(modules: Vec<&'static Module>) -> Library {
        let entries = modules.iter().map(|_| Default::default()).collect();
        Library { embedded: Arc::new(Embedded { modules, entries, hashes: OnceLock::new() }), replaced: BTreeMap::new() }
    }

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
            None => self.embedded(module, build).map(|(_, ptx)| ptx),
        }
    }

    /// The PTX of a module that nothing stands in place of: the same text for as long as the process lives.
    pub fn unreplaced(&self, module: &str, build: Build) -> Option<&'static str> {
        if self.replaced(module, build).is_some() {
            return None;
        }
        self.embedded(module, build).ok().map(|(_, ptx)| ptx)
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
                let (index, ptx) = self.embedded(module, *build)?;
                let known = &self.embedded.entries[index][*build as usize];
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

    /// An embedded module's number, and its PTX.
    fn embedded(&self, module: &str, build: Build) -> Result<(usize, &'static str), String> {
        let modules = &self.embedded.modules;
        let index = modules.iter().position(|m| m.name == module).ok_or_else(|| {
            let names: Vec<&str> = modules.iter().map(|m| m.name).collect();
            format!("unknown kernel module `{module}`: expected one of {}", names.join(", "))
        })?;
        let ptx = modules[index].ptx(build).ok_or_else(|| {
            let which = if build == Build::Wide { "wide" } else { "checked" };
            format!("kernel module `{module}` has no {which} build")
        })?;
        Ok((index, ptx))
    }

    /// Hash of all modules, names included, whatever is replaced: `xxh3:` and 16 hexadecimal digits. They are some 26 MB, and each process of a rank asks.
    pub fn ptx_hash(&self) -> String {
        let mut all = Xxh3Default::new();
        for &&Module { name, release, checked, wide, .. } in &self.embedded.modules {
            for part in [name, release, checked.unwrap_or_default(), wide.unwrap_or_default()] {
                all.update(part.as_bytes());
                all.update(b"\0");
            }
        }
        format!("xxh3:{:016x}", all.digest())
    }

    /// Those of a record's kernels that are no longer what they were, or no longer there, by [`file_name`]. `then` has their hashes. Kernels from elsewhere are
    /// none of ours: what was judged is what the record's notes say.
    pub fn changed_since(&self, then: &BTreeMap<String, String>) -> Vec<String> {
        let now = self.embedded.hashes.get_or_init(|| {
            let hash = |module: &Module, build| Some((file_name(module.name, build), code_hash(module.ptx(build)?)));
            let of_module = |module| Build::ALL.into_iter().filter_map(move |build| hash(module, build));
            self.embedded.modules.iter().copied().flat_map(of_module).collect()
        });
        let has_changed = |(name, hash): &(&String, &String)| !name.starts_with(FOREIGN) && now.get(*name) != Some(*hash);
        then.iter().filter(has_changed).map(|(name, _)| name.clone()).collect()
    }
}
