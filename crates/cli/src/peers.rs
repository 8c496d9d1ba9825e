//! `peers`: kernels of other projects, compiled from checkouts that the user has, so that they are judged and timed beside ours.
//!
//! Nothing of theirs is in this repository. A recipe says what is needed of a checkout and which of the user's own sources include it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use passmuster_harness::conformance::report::{Record, RecordCase, Summary, table};
use passmuster_plan::{algorithms::Registry, library::Library, machine::MachineInfo, modules::fnv1a64};
use serde::{Deserialize, Serialize};
use xshell::{Shell, cmd};

use crate::{
    compiler::{self, nvrtc::Nvrtc, toolkit},
    foreign::{self, ForeignArgs},
    input, project,
    result_file::ResultFile,
    worker::MachineKind,
};

/// Compile kernels of other projects, to test and time beside ours.
///
/// You bring a checkout of the project. A recipe is a folder: recipe.toml names the files of the checkout that are needed and the sources in the folder that include
/// them; specifications say how the kernels are launched (docs/peers.md, docs/reference/specification.md). Each source becomes INTO/NAME/SOURCE.ptx, with the
/// specifications beside it. The checkout is only read. If a file is missing, or is not as the recipe knows it, nothing is compiled. The compiler is NVRTC 13.0, as
/// for `kernels`. No GPU is needed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask peers --source passmuster=.          the recipe that shows how
  cargo xtask peers --recipes ~/recipes --source engine=~/src/engine
  cargo xtask validate smoke --spec target/peers/NAME/KERNEL.toml
  cargo xtask bench all_reduce --spec target/peers/NAME/KERNEL.toml")]
pub(crate) struct Peers {
    /// A recipe and the checkout that it compiles from. Repeat for several.
    #[arg(long = "source", required = true, value_name = "NAME=DIR", value_parser = named)]
    sources: Vec<(String, PathBuf)>,
    /// Folder of the recipes.
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    recipes: PathBuf,
    /// Folder for PTX and specifications.
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    into: PathBuf,
    /// Write the table as a record (docs/reference/record-schema-commands.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where this project's own recipe is, and its specifications of other projects' kernels.
const FOLDER: &str = "peers";

/// What recipe.toml says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    /// Whose kernels they are.
    project: String,
    /// The commit or version of the checkout that it was last tried with.
    tried: String,
    /// Folders of the checkout in which headers are looked for.
    #[serde(default)]
    include: Vec<String>,
    /// A folder of the recipe that is looked in before these: headers in place of those that are for hosts.
    stand_ins: Option<String>,
    /// Options of the compiler, such as `-DNAME=1`.
    #[serde(default)]
    options: Vec<String>,
    /// What is compiled: files of the recipe, in CUDA C++.
    sources: Vec<String>,
    /// How the kernels are launched: paths from the recipe. `module` of each is one of the sources with `ptx` in place of `cu`.
    specs: Vec<PathBuf>,
    /// What is needed of the checkout.
    #[serde(default)]
    file: Vec<Needed>,
}

/// A file of the checkout.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Needed {
    path: String,
    /// Texts that are in it as long as the recipe fits.
    #[serde(default)]
    has: Vec<String>,
    /// What stands from this text on is for hosts: sources that include the file by its path in the checkout get what stands before.
    until: Option<String>,
}

/// A kernel that was compiled: a case of a record of `peers`.
#[derive(Debug, Serialize, Deserialize)]
struct Compiled {
    /// The recipe.
    peer: String,
    /// Whose kernel it is.
    project: String,
    /// Collective and name, as in ids.
    kernel: String,
    /// What the recipe was last tried with.
    tried: String,
    /// The commit of the checkout, where git knows one.
    checkout: Option<String>,
    /// The specification, beside its PTX.
    spec: PathBuf,
    /// Hash of specification and PTX, fnv1a64.
    hash: String,
    /// Why only GPUs take it; none where the emulator does, too.
    only_gpus: Option<String>,
}

impl RecordCase for Compiled {}

/// A recipe that was checked against its checkout.
struct Peer {
    name: String,
    folder: PathBuf,
    checkout: PathBuf,
    recipe: Recipe,
    /// Files of the checkout of which a part is compiled: path and text.
    parts: BTreeMap<String, String>,
}

impl Peers {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let file = ResultFile::asked(self.json.as_deref())?;
        let peers = self.sources.iter().map(|(name, checkout)| self.peer(name, checkout)).collect::<anyhow::Result<Vec<_>>>()?;
        let root = project::source_tree().map_or_else(std::env::current_dir, Ok)?;
        let toolkit = toolkit::find(sh, &root)?;
        let nvrtc = Nvrtc::open(&toolkit)?;
        // CUDA's own C++ library, which other projects' kernels include.
        let library = toolkit.include.map(|include| include.join("cccl"));
        let mut compiled = Vec::new();
        for peer in &peers {
            compiled.extend(peer.compile(sh, &nvrtc, library.as_deref(), &self.into.join(&peer.name))?);
        }
        ensure!(!compiled.is_empty(), "the recipes name no specification: nothing was compiled that could be judged");
        println!("{}\n", shown(&compiled));
        println!("{}", next(&compiled));
        let record = Record::new("peers", MachineInfo::default(), project::source(sh, &registry.library()), Summary::default(), compiled);
        file.iter().try_for_each(|file| file.write(&record.to_json()))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the recipe of a name and sees whether a checkout has what it needs.
    fn peer(&self, name: &str, checkout: &Path) -> anyhow::Result<Peer> {
        let folder = self.recipes.join(name);
        let path = folder.join("recipe.toml");
        if !path.is_file() {
            let known = recipes(&self.recipes)?;
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            bail!("--source {name}={}: no recipe {}; {} has {known}", checkout.display(), path.display(), self.recipes.display());
        }
        let text = input::text(&path, input::MOST_TOML)?;
        let recipe: Recipe = toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        ensure!(checkout.is_dir(), "--source {name}={}: there is no such folder", checkout.display());
        let mut parts = BTreeMap::new();
        for needed in &recipe.file {
            let text = needed.of(checkout).with_context(|| {
                format!(
                    "--source {name}={}: not as {} knows {}, which it was tried with at {}",
                    checkout.display(),
                    path.display(),
                    recipe.project,
                    recipe.tried
                )
            })?;
            if needed.until.is_some() {
                parts.insert(needed.path.clone(), text);
            }
        }
        Ok(Peer { name: name.to_owned(), folder, checkout: checkout.to_owned(), recipe, parts })
    }
}

impl Needed {
    /// The file of a checkout, to where the part for hosts begins.
    ///
    /// # Errors
    /// It is not there, or does not have what is looked for in it.
    fn of(&self, checkout: &Path) -> anyhow::Result<String> {
        let mut text = input::text(&checkout.join(&self.path), foreign::MOST_PTX).with_context(|| format!("cannot read {}", self.path))?;
        if let Some(has) = self.has.iter().chain(&self.until).find(|has| !text.contains(has.as_str())) {
            bail!("{} has no `{has}`", self.path);
        }
        if let Some(until) = &self.until {
            text.truncate(text.find(until.as_str()).expect("it was looked for"));
        }
        Ok(text)
    }
}

impl Peer {
    /// Compiles all sources, writes PTX and specifications, and holds them against each other.
    fn compile(&self, sh: &Shell, nvrtc: &Nvrtc, library: Option<&Path>, into: &Path) -> anyhow::Result<Vec<Compiled>> {
        let Peer { name, folder, checkout, recipe, parts } = self;
        let stand_ins = recipe.stand_ins.iter().map(|stand_ins| folder.join(stand_ins));
        let theirs = recipe.include.iter().map(|include| checkout.join(include));
        let include: Vec<PathBuf> = stand_ins.chain(theirs).chain(library.map(Path::to_owned)).collect();
        fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
        for source in &recipe.sources {
            let ptx = compiler::compiled_from(nvrtc, folder, source, &recipe.options, parts, &include)
                .with_context(|| format!("{name}, of {}, tried with {}", checkout.display(), recipe.tried))?;
            let path = into.join(Path::new(source).with_extension("ptx"));
            fs::write(&path, ptx).with_context(|| format!("cannot write {}", path.display()))?;
        }
        // Before any is checked against its PTX: a specification may name tables beside it.
        let mut specs = Vec::new();
        for spec in &recipe.specs {
            let from = folder.join(spec);
            let to = into.join(spec.file_name().with_context(|| format!("{} is no file", from.display()))?);
            fs::copy(&from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
            specs.push(to);
        }
        let commit = cmd!(sh, "git -C {checkout} rev-parse --short=10 HEAD").quiet().ignore_stderr().read().ok();
        specs.into_iter().map(|spec| self.accepted(spec, commit.clone())).collect()
    }

    /// Holds a specification against its PTX: for the emulator and, where that does not know an instruction, for GPUs.
    fn accepted(&self, spec: PathBuf, checkout: Option<String>) -> anyhow::Result<Compiled> {
        let on = |machine| ForeignArgs::default().accept(&spec, &mut Library::default(), machine);
        let (kernel, only_gpus) = match on(MachineKind::Emulator) {
            Ok(kernel) => (kernel, None),
            Err(reason) => (on(MachineKind::Cuda)?, Some(format!("{reason:#}"))),
        };
        let texts = [&spec, &kernel.ptx].map(|path| input::text(path, foreign::MOST_PTX));
        let texts = texts.into_iter().collect::<anyhow::Result<String>>()?;
        Ok(Compiled {
            peer: self.name.clone(),
            project: self.recipe.project.clone(),
            kernel: kernel.specified.does(),
            tried: self.recipe.tried.clone(),
            checkout,
            spec,
            hash: format!("{:016x}", fnv1a64(texts.as_bytes())),
            only_gpus,
        })
    }
}

/// `NAME=DIR`.
fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !name.contains(['/', '.']) && !folder.is_empty() => Ok((name.into(), folder.into())),
        _ => Err("a recipe's name and a folder are needed, as in NAME=DIR".into()),
    }
}

/// The names of the recipes of a folder.
fn recipes(folder: &Path) -> anyhow::Result<Vec<String>> {
    let listed = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if let (true, Some(name)) = (path.join("recipe.toml").is_file(), path.file_name()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn shown(compiled: &[Compiled]) -> String {
    let row = |one: &Compiled| {
        vec![
            one.peer.clone(),
            one.kernel.clone(),
            one.tried.clone(),
            one.checkout.clone().unwrap_or_else(|| "-".into()),
            if one.only_gpus.is_some() { "GPUs only" } else { "emulator, GPUs" }.to_owned(),
            one.spec.display().to_string(),
        ]
    };
    let rows: Vec<_> = compiled.iter().map(row).collect();
    let mut text = table::aligned(&["peer", "kernel", "tried with", "checkout", "runs on", "specification"], 6, &rows);
    for Compiled { spec, only_gpus, .. } in compiled {
        text.extend(only_gpus.iter().map(|reason| format!("\n{} on the emulator: not_supported: {reason}", spec.display())));
    }
    text
}

/// How to go on.
fn next(compiled: &[Compiled]) -> String {
    let run = project::invocation();
    let specs = |of: &[&Compiled]| of.iter().map(|one| format!(" \\\n    --spec {}", one.spec.display())).collect::<String>();
    let mut text = String::from("Judge them, then time them beside ours:\n");
    let emulated: Vec<&Compiled> = compiled.iter().filter(|one| one.only_gpus.is_none()).collect();
    if !emulated.is_empty() {
        text += &format!("  {run} validate smoke{}\n", specs(&emulated));
    }
    let mut by_collective: BTreeMap<&str, Vec<&Compiled>> = BTreeMap::new();
    for one in compiled {
        by_collective.entry(one.kernel.split('/').next().unwrap_or_default()).or_default().push(one);
    }
    for (collective, kernels) in by_collective {
        text += &format!("  {run} bench {collective} --bound-waits{}\n", specs(&kernels));
    }
    text.truncate(text.trim_end().len());
    text
}
