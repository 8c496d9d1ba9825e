//! The packages that a binary is built from, as CycloneDX 1.5 has them (<https://cyclonedx.org/docs/1.5/json/>).
//!
//! `cargo tree` says which packages they are, for one target and the default features; `Cargo.lock` has their checksums. There is no time and no serial number
//! in the document: the same tree makes the same one.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use xshell::{Shell, cmd};

/// A package of a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    /// Its package URL, by which the document names it, too.
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

/// What `cargo tree` prints.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The package at its top.
    top: Package,
    /// The licence of each package, if it states one.
    licences: BTreeMap<Package, Option<String>>,
    /// What each package takes directly.
    edges: BTreeMap<Package, BTreeSet<Package>>,
}

/// What cargo prints of each package, behind its depth.
const FORMAT: &str = "\t{p}\t{l}";

impl Tree {
    /// Reads what `cargo tree --prefix depth` prints with format `\t{p}\t{l}`.
    ///
    /// # Errors
    /// On a line of another form, and if there is none.
    pub fn parse(text: &str) -> anyhow::Result<Tree> {
        let mut above: Vec<Package> = Vec::new();
        let (mut licences, mut edges) = (BTreeMap::new(), BTreeMap::<Package, BTreeSet<Package>>::new());
        for line in text.lines() {
            let (depth, package, licence) = read_line(line).with_context(|| format!("cannot read `{line}` of `cargo tree`"))?;
            ensure!(depth <= above.len(), "`{line}` of `cargo tree` belongs to no package");
            above.truncate(depth);
            if let Some(parent) = above.last() {
                edges.entry(parent.clone()).or_default().insert(package.clone());
            }
            licences.insert(package.clone(), licence);
            edges.entry(package.clone()).or_default();
            above.push(package);
        }
        let top = above.into_iter().next().context("`cargo tree` printed nothing")?;
        Ok(Tree { top, licences, edges })
    }

    /// What the binary is built from for a target, with these kinds of edges.
    fn of(sh: &Shell, target: &str, edges: &str) -> anyhow::Result<Tree> {
        let tree = cmd!(sh, "cargo tree --locked --package passmuster --target {target} --edges {edges} --prefix depth --format {FORMAT}");
        Tree::parse(&tree.quiet().read()?)
    }
}

/// Depth, package and licence of `2⇥anyhow v1.0.104⇥MIT OR Apache-2.0 (*)`: what stands below a package with an asterisk was printed before.
fn read_line(line: &str) -> Option<(usize, Package, Option<String>)> {
    let mut parts = line.split('\t');
    let depth = parts.next()?.parse().ok()?;
    let mut words = parts.next()?.split(' ');
    let package = Package { name: words.next()?.to_owned(), version: words.next()?.strip_prefix('v')?.to_owned() };
    let licence = parts.next()?.trim_end_matches("(*)").trim();
    // The old form, which SPDX does not have.
    let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
    Some((depth, package, (!licence.is_empty()).then_some(licence)))
}

/// What the binary of one target is built from.
#[derive(Clone, Debug)]
pub struct Part {
    /// The target.
    pub target: String,
    /// All packages.
    pub built: Tree,
    /// Those whose code is in the binary: the others are build scripts and procedural macros, and what these take.
    pub shipped: Tree,
}

impl Part {
    /// Asks cargo. `sh` is in the workspace.
    ///
    /// # Errors
    /// If cargo fails.
    pub fn of(sh: &Shell, target: &str) -> anyhow::Result<Part> {
        let (built, shipped) = (Tree::of(sh, target, "normal,build")?, Tree::of(sh, target, "normal,no-proc-macro")?);
        Ok(Part { target: target.to_owned(), built, shipped })
    }
}

/// The checksums of Cargo.lock. Packages of the workspace have none.
#[derive(Clone, Debug)]
pub struct Checksums(BTreeMap<Package, String>);

impl Checksums {
    /// Reads the text of Cargo.lock.
    ///
    /// # Errors
    /// If it is not such a file.
    pub fn of(lock: &str) -> anyhow::Result<Checksums> {
        #[derive(Deserialize)]
        struct Lock {
            package: Vec<Locked>,
        }
        #[derive(Deserialize)]
        struct Locked {
            name: String,
            version: String,
            checksum: Option<String>,
        }
        let lock: Lock = toml::from_str(lock).context("cannot read Cargo.lock")?;
        let sum = |of: Locked| Some((Package { name: of.name, version: of.version }, of.checksum?));
        Ok(Checksums(lock.package.into_iter().filter_map(sum).collect()))
    }
}

/// The document. A package that not every target takes names those that do.
///
/// # Errors
/// If there is no part.
pub fn document(parts: &[Part], checksums: &Checksums) -> anyhow::Result<Value> {
    let top = &parts.first().context("an SBOM needs a target")?.built.top;
    let packages: BTreeSet<&Package> = parts.iter().flat_map(|part| part.built.licences.keys()).collect();
    let components: Vec<Value> = packages.iter().filter(|package| **package != top).map(|of| component(of, parts, checksums)).collect();
    let dependencies: Vec<Value> = packages.iter().map(|package| dependency(package, parts)).collect();
    let mut described = described(top, parts, checksums);
    described.insert("type".into(), json!("application"));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": described, "properties": targets(parts.iter()) },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// A package below the top.
fn component(package: &Package, parts: &[Part], checksums: &Checksums) -> Value {
    let mut component = described(package, parts, checksums);
    component.insert("type".into(), json!("library"));
    let is_shipped = parts.iter().any(|part| part.shipped.licences.contains_key(package));
    component.insert("scope".into(), json!(if is_shipped { "required" } else { "excluded" }));
    let takers: Vec<&Part> = parts.iter().filter(|part| part.built.licences.contains_key(package)).collect();
    if takers.len() < parts.len() {
        component.insert("properties".into(), targets(takers.into_iter()));
    }
    Value::Object(component)
}

/// What the document says of any package.
fn described(package: &Package, parts: &[Part], checksums: &Checksums) -> Map<String, Value> {
    let purl = package.purl();
    let mut fields = Map::new();
    fields.insert("bom-ref".into(), json!(purl));
    fields.insert("name".into(), json!(package.name));
    fields.insert("version".into(), json!(package.version));
    fields.insert("purl".into(), json!(purl));
    if let Some(licence) = parts.iter().find_map(|part| part.built.licences.get(package)?.as_ref()) {
        fields.insert("licenses".into(), json!([{ "expression": licence }]));
    }
    if let Some(sum) = checksums.0.get(package) {
        fields.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": sum }]));
    }
    fields
}

/// What a package takes directly, for any target.
fn dependency(package: &Package, parts: &[Part]) -> Value {
    let taken: BTreeSet<String> = parts.iter().filter_map(|part| part.built.edges.get(package)).flatten().map(Package::purl).collect();
    json!({ "ref": package.purl(), "dependsOn": taken })
}

/// Properties that name targets.
fn targets<'a>(parts: impl Iterator<Item = &'a Part>) -> Value {
    parts.map(|part| json!({ "name": "passmuster:target", "value": part.target })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that takes a library of the workspace, whose procedural macro takes `syn`; for aarch64 also `arm`.
    fn parts() -> [Part; 2] {
        let built = "0\ttool v0.1.0 (/somewhere)\tMIT OR Apache-2.0\n\
                     1\tlibrary v0.1.0 (/somewhere/library)\tMIT OR Apache-2.0\n\
                     2\tfloats v0.2.3+llvm-1\tMIT/Zlib\n\
                     2\tderive v1.0.0 (proc-macro)\t\n\
                     3\tsyn v3.0.9\tMIT OR Apache-2.0\n\
                     1\tlibrary v0.1.0 (/somewhere/library)\tMIT OR Apache-2.0 (*)\n";
        let shipped = "0\ttool v0.1.0 (/somewhere)\tMIT OR Apache-2.0\n\
                       1\tlibrary v0.1.0 (/somewhere/library)\tMIT OR Apache-2.0\n\
                       2\tfloats v0.2.3+llvm-1\tMIT/Zlib\n";
        let arm = "1\tarm v1.2.0\tISC\n";
        let part = |target: &str, more: &str| Part {
            target: target.to_owned(),
            built: Tree::parse(&format!("{built}{more}")).unwrap(),
            shipped: Tree::parse(&format!("{shipped}{more}")).unwrap(),
        };
        [part("x86_64-unknown-linux-gnu", ""), part("aarch64-unknown-linux-gnu", arm)]
    }

    const LOCK: &str = "version = 4\n\
                        [[package]]\nname = \"tool\"\nversion = \"0.1.0\"\n\
                        [[package]]\nname = \"floats\"\nversion = \"0.2.3+llvm-1\"\nsource = \"registry\"\nchecksum = \"abc\"\n";

    /// If this fails, who reads the SBOM sees other packages than the binary is built from, or takes what only built it for what is in it.
    #[test]
    fn packages_of_a_tree_are_listed() {
        let document = document(&parts(), &Checksums::of(LOCK).unwrap()).unwrap();
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        let top = &document["metadata"]["component"];
        assert_eq!((&top["type"], &top["purl"], &top["hashes"]), (&json!("application"), &json!("pkg:cargo/tool@0.1.0"), &Value::Null));
        let components = document["components"].as_array().unwrap();
        let shown =
            |of: &Value| format!("{} {} {}", of["name"].as_str().unwrap(), of["version"].as_str().unwrap(), of["scope"].as_str().unwrap());
        let shown: Vec<String> = components.iter().map(shown).collect();
        let expected =
            ["arm 1.2.0 required", "derive 1.0.0 excluded", "floats 0.2.3+llvm-1 required", "library 0.1.0 required", "syn 3.0.9 excluded"];
        assert_eq!(shown, expected);
        let floats = json!({
            "type": "library",
            "bom-ref": "pkg:cargo/floats@0.2.3%2Bllvm-1",
            "name": "floats",
            "version": "0.2.3+llvm-1",
            "purl": "pkg:cargo/floats@0.2.3%2Bllvm-1",
            "licenses": [{ "expression": "MIT OR Zlib" }],
            "hashes": [{ "alg": "SHA-256", "content": "abc" }],
            "scope": "required",
        });
        assert_eq!(components[2], floats);
        assert_eq!(components[0]["properties"], json!([{ "name": "passmuster:target", "value": "aarch64-unknown-linux-gnu" }]));
        assert_eq!(components[1]["licenses"], Value::Null, "a package without a licence states none");
    }

    /// If this fails, the graph of the SBOM is not cargo's.
    #[test]
    fn edges_follow_depth() {
        let document = document(&parts(), &Checksums::of(LOCK).unwrap()).unwrap();
        let of = |name: &str| {
            let purl = json!(format!("pkg:cargo/{name}"));
            let found = document["dependencies"].as_array().unwrap().iter().find(|dependency| dependency["ref"] == purl).unwrap();
            found["dependsOn"].clone()
        };
        assert_eq!(of("tool@0.1.0"), json!(["pkg:cargo/arm@1.2.0", "pkg:cargo/library@0.1.0"]));
        assert_eq!(of("library@0.1.0"), json!(["pkg:cargo/derive@1.0.0", "pkg:cargo/floats@0.2.3%2Bllvm-1"]));
        assert_eq!(of("syn@3.0.9"), json!([]));
    }

    /// If this fails, a tree in another form makes an SBOM with holes.
    #[test]
    fn foreign_lines_are_refused() {
        for text in ["", "passmuster v0.1.0", "0\tpassmuster\tMIT", "1\tpassmuster v0.1.0\tMIT"] {
            assert!(Tree::parse(text).is_err(), "{text}");
        }
    }
}
