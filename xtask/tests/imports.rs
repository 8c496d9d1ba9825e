//! No circle of imports between folders: what imports each other stands together.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Item, ItemMod, ItemUse, UseTree,
    visit::{self, Visit},
};

/// A module, by the names on the way from the root of its crate.
type Module = Vec<String>;

/// The paths that a file names, tests left out.
#[derive(Default)]
struct Named(Vec<Vec<String>>);

impl Named {
    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(before, item)),
            UseTree::Name(name) => self.0.push(with(&name.ident)),
            UseTree::Rename(rename) => self.0.push(with(&rename.ident)),
            UseTree::Glob(_) => self.0.push(before.to_vec()),
        }
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is = |attribute: &Attribute| attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|of| of == "test");
    attributes.iter().any(is)
}

impl<'f> Visit<'f> for Named {
    fn visit_item(&mut self, item: &'f Item) {
        let attributes = match item {
            Item::Fn(of) => &of.attrs,
            Item::Impl(of) => &of.attrs,
            Item::Mod(of) => &of.attrs,
            Item::Use(of) => &of.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'f ItemMod) {
        // Its names start one level further down than the file's.
        assert!(item.content.is_none(), "mod {} within a file: it is not looked at", item.ident);
    }

    fn visit_item_use(&mut self, item: &'f ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'f syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The files of a crate, by module.
fn modules(root: &Path) -> BTreeMap<Module, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().with_extension("");
                let mut module: Module = name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                    module.pop();
                }
                found.insert(module, path);
            }
        }
    }
    found
}

/// The module that a name of `from` is in, or is.
fn resolved(named: &[String], from: &Module, modules: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let ups = named.iter().take_while(|name| *name == "super").count();
    let mut at = match named.first().map(String::as_str) {
        Some("crate") => named[1..].to_vec(),
        Some("super") => from[..from.len() - ups].iter().chain(&named[ups..]).cloned().collect(),
        // What a module shows of its parts.
        Some("self") => from.iter().chain(&named[1..]).cloned().collect(),
        Some(part) if modules.contains_key(&[&from[..], &[part.to_owned()]].concat()) => from.iter().chain(named).cloned().collect(),
        _ => return None,
    };
    while !modules.contains_key(&at) {
        at.pop()?;
    }
    Some(at)
}

/// What each module imports, but for the modules that it is in: a folder's parts may use what stands above them.
fn imports(root: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules(root);
    let is_of_tests = |module: &Module| module.iter().any(|name| name == "tests");
    let of_file = |(module, path): (&Module, &PathBuf)| {
        let mut named = Named::default();
        named.visit_file(&syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap());
        let taken = named.0.iter().filter_map(|name| resolved(name, module, &modules));
        (module.clone(), taken.filter(|other| !module.starts_with(other)).collect())
    };
    modules.iter().filter(|(module, _)| !is_of_tests(module)).map(of_file).collect()
}

/// Everything that a module imports, directly or through others.
fn reached(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = open.pop() {
        let further = imports.get(&module).into_iter().flatten();
        open.extend(further.filter(|next| reached.insert((*next).clone())).cloned().collect::<Vec<_>>());
    }
    reached
}

/// If this fails, two folders can only be read, and changed, together.
#[test]
fn no_imports_between_folders_go_round() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut looked_at = 0;
    for folder in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        let imports = imports(&folder.join("src"));
        let has_parts = |module: &Module| imports.keys().any(|other| other.len() > module.len() && other.starts_with(module));
        let home = |module: &Module| if has_parts(module) { module.clone() } else { module[..module.len().saturating_sub(1)].to_vec() };
        let reach: BTreeMap<&Module, BTreeSet<Module>> = imports.keys().map(|module| (module, reached(module, &imports))).collect();
        for (module, others) in &reach {
            let back = |other: &&Module| reach.get(other).is_some_and(|reached| reached.contains(*module)) && home(other) != home(module);
            let circle: Vec<String> = others.iter().filter(back).map(|other| other.join("::")).collect();
            assert!(circle.is_empty(), "{}: {} and {} import each other", folder.display(), module.join("::"), circle.join(", "));
            looked_at += others.len();
        }
    }
    assert!(looked_at > 1000, "{looked_at} imports: names are no longer understood");
}
