//! The tree with mutants: written under target/, compiled, without those that do not compile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{
    sample::{self, Candidate},
    schemata::{self, Rendered},
    targets::{PACKAGES, Suite},
};

/// Rounds of compiling after which what is left must compile.
const ROUNDS: usize = 12;

/// Where everything lies.
pub(super) struct Workshop {
    root: PathBuf,
    /// `target/judge-mutants`.
    pub(super) folder: PathBuf,
}

/// A binary of tests.
#[derive(Clone, Debug)]
pub(super) struct Binary {
    /// The package and the file, as nextest has them: `passmuster::emulator`; the package alone, if they are its unit tests.
    pub(super) name: String,
    pub(super) executable: PathBuf,
    /// Where its tests run.
    pub(super) folder: PathBuf,
}

/// The mutants of some sources that do not compile.
#[derive(Serialize, Deserialize)]
struct Broken {
    /// A hash.
    sources: String,
    mutants: BTreeSet<u32>,
}

/// What cargo prints with `--message-format=json`.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-message")]
    Diagnosed { message: Diagnostic },
    #[serde(rename = "compiler-artifact")]
    Built { manifest_path: PathBuf, target: Artifact, executable: Option<PathBuf>, profile: Profile },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Artifact {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Clone, Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Diagnostic>,
}

#[derive(Clone, Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Clone, Deserialize)]
struct Expansion {
    span: Span,
}

/// What cargo said.
struct Said {
    succeeded: bool,
    errors: Vec<Diagnostic>,
    binaries: Vec<Binary>,
}

impl Workshop {
    pub(super) fn new(root: &Path) -> Workshop {
        Workshop { root: root.to_owned(), folder: root.join("target/judge-mutants") }
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Writes the tree with the mutants that are wanted and compile, and returns them.
    ///
    /// # Errors
    /// The tree does not compile, and no mutant is to blame.
    pub(super) fn prepare<'c>(
        &self,
        tracked: &[String],
        files: &BTreeMap<String, String>,
        candidates: &'c [Candidate],
        quotas: &BTreeMap<&str, usize>,
        sources: &str,
    ) -> anyhow::Result<Vec<&'c Candidate>> {
        self.copy(tracked, files)?;
        // What did not compile does not compile now: without it, nothing is written or built again.
        let memory = self.folder.join("broken.json");
        let before = fs::read_to_string(&memory).ok().and_then(|text| serde_json::from_str::<Broken>(&text).ok());
        let mut broken = before.filter(|before| before.sources == sources).map(|before| before.mutants).unwrap_or_default();
        for round in 1..=ROUNDS {
            let taken = sample::take(candidates, quotas, &broken);
            let rendered = self.write(files, &taken)?;
            println!("checking {} mutants, round {round}", taken.len());
            let packages = PACKAGES.iter().flat_map(|(package, _)| ["--package", package]);
            let said = self.cargo(["check", "--lib", "--keep-going"].into_iter().chain(packages))?;
            if said.succeeded {
                println!("{} more do not compile", broken.len());
                fs::write(&memory, serde_json::to_string(&Broken { sources: sources.to_owned(), mutants: broken })?)?;
                return Ok(taken);
            }
            let blamed = blame(&said.errors, &rendered)?;
            ensure!(blamed.iter().any(|number| broken.insert(*number)), "nothing that did not compile was left out");
        }
        bail!("after {ROUNDS} rounds there are mutants that do not compile")
    }

    /// Builds test binaries of the tree with mutants.
    ///
    /// # Errors
    /// They do not build.
    pub(super) fn build(&self, suites: &BTreeSet<Suite>) -> anyhow::Result<Vec<Binary>> {
        let packages: BTreeSet<&str> = suites.iter().map(|suite| suite.package).collect();
        let mut arguments = vec!["test", "--no-run"];
        packages.iter().for_each(|package| arguments.extend(["--package", package]));
        if suites.iter().any(|suite| suite.test.is_none()) {
            arguments.push("--lib");
        }
        suites.iter().filter_map(|suite| suite.test).for_each(|test| arguments.extend(["--test", test]));
        println!("building {} binaries of tests", suites.len());
        let said = self.cargo(arguments)?;
        if !said.succeeded {
            let text: Vec<String> = said.errors.into_iter().filter_map(|error| error.rendered).collect();
            bail!("the tree with mutants does not build:\n{}", text.join("\n"));
        }
        let wanted: Vec<String> = suites.iter().map(name).collect();
        Ok(said.binaries.into_iter().filter(|binary| wanted.contains(&binary.name)).collect())
    }

    /// Copies tracked files. Cargo's settings are those of the folder around it: merged, their lists would be twice as long.
    fn copy(&self, tracked: &[String], files: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let tree = self.tree();
        let is_there = |path: &&String| !path.starts_with(".cargo/") && self.root.join(path).symlink_metadata().is_ok();
        let tracked: Vec<&String> = tracked.iter().filter(is_there).collect();
        remove_others(&tree, &tracked.iter().map(|path| tree.join(path)).collect())?;
        for path in tracked {
            // Files with mutants, and the roots of their crates, are written by themselves.
            let is_root = PACKAGES.iter().any(|(_, folder)| path.strip_prefix(folder) == Some("src/lib.rs"));
            if !is_root && !files.contains_key(path) {
                let (from, to) = (self.root.join(path), tree.join(path));
                copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
        Ok(())
    }

    /// Writes files with mutants, and the modules that choose.
    fn write(&self, files: &BTreeMap<String, String>, taken: &[&Candidate]) -> anyhow::Result<BTreeMap<String, Rendered>> {
        let tree = self.tree();
        let mut all = BTreeMap::new();
        for (file, text) in files {
            let own: Vec<_> = taken.iter().filter(|of| of.file == *file).map(|of| (of.number, &of.mutation)).collect();
            let rendered = schemata::render(text, &own);
            write_if_other(&tree.join(file), rendered.text.as_bytes())?;
            all.insert(file.clone(), rendered);
        }
        for (_, folder) in PACKAGES {
            let root =
                fs::read_to_string(self.root.join(folder).join("src/lib.rs")).with_context(|| format!("cannot read {folder}src/lib.rs"))?;
            write_if_other(&tree.join(folder).join("src/lib.rs"), format!("{root}\nmod mutant;\n").as_bytes())?;
            write_if_other(&tree.join(folder).join("src/mutant.rs"), schemata::CHOOSER.as_bytes())?;
        }
        Ok(all)
    }

    fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Said> {
        let output = Command::new("cargo")
            .args(arguments)
            .args(["--message-format=json", "--target-dir"])
            .arg(self.folder.join("target"))
            .current_dir(self.tree())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("cannot start cargo")?;
        let mut said = Said { succeeded: output.status.success(), errors: Vec::new(), binaries: Vec::new() };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match serde_json::from_str(line) {
                Ok(Message::Diagnosed { message }) if message.level == "error" && !message.spans.is_empty() => said.errors.push(message),
                Ok(Message::Built { manifest_path, target, executable: Some(executable), profile }) if profile.test => {
                    let folder = manifest_path.parent().context("a manifest lies in a folder")?.to_owned();
                    let own = format!("{}/", folder.strip_prefix(self.tree()).unwrap_or(&folder).display());
                    let package =
                        PACKAGES.iter().find(|(_, folder)| *folder == own).map_or(own.as_str(), |(package, _)| package).to_owned();
                    let name = if target.kind.iter().any(|kind| kind == "test") { format!("{package}::{}", target.name) } else { package };
                    said.binaries.push(Binary { name, executable, folder });
                }
                _ => {}
            }
        }
        if !said.succeeded && said.errors.is_empty() {
            bail!("cargo failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(said)
    }
}

/// What nextest calls a binary.
pub(super) fn name(suite: &Suite) -> String {
    match suite.test {
        Some(test) => format!("{}::{test}", suite.package),
        None => suite.package.to_owned(),
    }
}

/// The mutants that errors come from.
fn blame(errors: &[Diagnostic], rendered: &BTreeMap<String, Rendered>) -> anyhow::Result<BTreeSet<u32>> {
    let mut blamed = BTreeSet::new();
    for error in errors {
        // First where the compiler points, then where else it looks, then the lines around.
        let at = |span: &Span| rendered.get(&span.file_name).map(|of| of.at(span.byte_start..span.byte_end)).unwrap_or_default();
        let spans: Vec<&Span> =
            error.spans.iter().chain(error.children.iter().flat_map(|child| &child.spans)).flat_map(with_expansions).collect();
        let mut own: Vec<u32> = spans.iter().filter(|span| span.is_primary).flat_map(|span| at(span)).collect();
        if own.is_empty() {
            own = spans.iter().flat_map(|span| at(span)).collect();
        }
        if own.is_empty() {
            let near = |span: &&Span| {
                let around = span.byte_start.saturating_sub(400)..span.byte_end + 400;
                rendered.get(&span.file_name).map(|of| of.touching(around)).unwrap_or_default()
            };
            own = spans.iter().flat_map(near).collect();
        }
        if own.is_empty() {
            bail!("no mutant is to blame for:\n{}", error.rendered.as_deref().unwrap_or_default());
        }
        blamed.extend(own);
    }
    Ok(blamed)
}

fn with_expansions(span: &Span) -> Vec<&Span> {
    let outer = span.expansion.as_ref().map(|expansion| with_expansions(&expansion.span)).unwrap_or_default();
    [span].into_iter().chain(outer).collect()
}

/// Copies a file or a symbolic link, unless it is there.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_symlink() {
        let target = fs::read_link(from)?;
        if !fs::read_link(to).is_ok_and(|before| before == target) {
            fs::create_dir_all(to.parent().context("it lies in a folder")?)?;
            std::os::unix::fs::symlink(target, to)?;
        }
        return Ok(());
    }
    write_if_other(to, &fs::read(from)?)?;
    Ok(fs::set_permissions(to, fs::metadata(from)?.permissions())?)
}

fn write_if_other(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes the files of a folder that are not wanted, and folders that are empty then: cargo takes any folder under crates/ for a crate.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list {}", folder.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, wanted)?;
            // One that is not empty stays.
            let _ = fs::remove_dir(&path);
        } else if !wanted.contains(&path) && !path.ends_with("src/mutant.rs") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::mutate, *};

    fn span(text: &str, what: &str, is_primary: bool) -> Span {
        let at = text.find(what).unwrap();
        Span { file_name: "a.rs".into(), byte_start: at, byte_end: at + what.len(), is_primary, expansion: None }
    }

    /// If this fails, a crate that is gone keeps the tree with mutants from being built.
    #[test]
    fn gone_crates_leave_no_folder() {
        let tree = std::env::temp_dir().join(format!("passmuster-tree-{}", std::process::id()));
        let (kept, gone) = (tree.join("a/src/lib.rs"), tree.join("b/src/lib.rs"));
        for file in [&kept, &gone] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        remove_others(&tree, &[kept.clone()].into()).unwrap();
        assert!(kept.is_file() && !tree.join("b").exists());
        fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn errors_blame_one_mutant() {
        let text = "fn f() -> u8 { g(a & b, c + d) }";
        let all = mutate::mutations(text).unwrap();
        let numbered: Vec<_> = (1..).zip(&all).collect();
        let of = schemata::render(text, &numbered);
        let error = |spans| Diagnostic { level: "error".into(), rendered: None, spans, children: Vec::new() };
        let errors = [
            error(vec![span(&of.text, "(c) - (d)", true), span(&of.text, "(a) | (b)", false)]),
            error(vec![span(&of.text, "g(", true), span(&of.text, "(a) | (b)", false)]),
        ];
        let rendered = [("a.rs".to_owned(), of)].into();
        let blamed = |errors| blame(errors, &rendered).unwrap().into_iter().map(|n| &*all[n as usize - 1].change).collect::<Vec<_>>();
        assert_eq!(blamed(&errors[..1]), ["`+` to `-`"]);
        assert_eq!(blamed(&errors[1..]), ["`&` to `|`"]);
    }
}
