//! `cargo xtask kernels`: CUDA C++ to the PTX that is checked in, validated and shipped.

mod mutants;
mod registers;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use passmuster_plan::collective::header;
use xshell::Shell;

use crate::{
    compiler::{
        COMPILE, generated, heading,
        nvrtc::Nvrtc,
        toolkit::{self, Toolkit},
        unit::{Origin, Unit},
    },
    emulated::in_parallel,
    project,
};

/// Compile passmuster's kernels to the PTX that is checked in.
///
/// Compiles each module kernels/NAME.cu to kernels/ptx/NAME.ptx, the hand-written mutants in
/// fixtures/mutants/*.toml, and the kernels in examples/foreign, examples/tasks, examples/own_kernel and museum. Prints registers and spills. A file that would not change is not written.
///
/// The compiler is NVRTC 13.0 and no other, so that the PTX is the same on every machine. It is looked for in $CUDA_HOME/lib64, in the Python environment (a PyTorch
/// for CUDA 13.0 brings it), and in target/cuda. If it is nowhere, pip installs it there from hash-pinned wheels (crates/cli/cuda-requirements.txt). No GPU is
/// needed.
///
/// A kernel is compiled for compute_80, unless it has a line `// target: compute_90a`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Kernels {
    /// Those alone that are compiled from files under this path, as in museum/.
    #[arg(long, value_name = "PATH", conflicts_with = "check")]
    only: Option<String>,
    /// Writes nothing; exits 1 if a checked-in file is not what its source compiles to.
    ///
    /// Where NVRTC cannot be had, the sources' hashes are still compared with those that the PTX names, and the rest is reported as
    /// not run; with CI set in the environment that is a failure.
    #[arg(long)]
    pub(crate) check: bool,
    /// Compiles only what is made from this file, or from files under this path; of the rest the sources' hashes are compared. May be given several times.
    #[arg(long, value_name = "PATH", requires = "check")]
    made_from: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask kernels                     after an edit of a .cu, .cuh or mutant
  cargo xtask kernels --check             before a commit, as CI does
  cargo xtask kernels --only museum/      what is under a path
  CUDA_HOME=/usr/local/cuda-13.0 cargo xtask kernels

A new kernel: write kernels/all_reduce/mine.cu, give its algorithm the module
(static MODULE: Module = module!(\"all_reduce/mine\", sites)), then
  touch kernels/ptx/all_reduce/mine.ptx
  cargo xtask kernels
(the library embeds the PTX: for this command to be built at all, the file must
be there, empty).";

/// Kernels that come with a specification: those that the documents show and those of real bugs, each compiled as it is and with its bug.
const SPECIFIED: [&str; 3] = ["examples/foreign", "examples/tasks", "museum"];

/// The kernels of a crate that stands for those of users.
const OWN_KERNEL: &str = "examples/own_kernel/kernels";

/// What wrote the PTX, as its heading names it.
const COMMAND: &str = "cargo xtask kernels";

/// The headers that are made of tables and constants, and their texts.
fn headers() -> [(&'static str, String); 3] {
    [
        ("kernels/common/dtypes.cuh", header()),
        ("kernels/common/abi.cuh", passmuster_kernels::abi::header()),
        ("kernels/conformance/abi.cuh", passmuster_harness::abi::header()),
    ]
}

/// One PTX file and what it is made from.
struct Product {
    /// Path under the root: `kernels/ptx/all_reduce/two_shot.ptx`.
    path: String,
    /// What people edit: `kernels/all_reduce/two_shot.cu`, or a mutant's description.
    source: String,
    /// What wrote it, and what it calls the source.
    heading: (&'static str, String),
    /// What the compiler gets.
    unit: Unit,
}

impl Product {
    /// One that this command alone writes.
    fn ours(path: String, source: String, unit: Unit) -> Product {
        Product { path, heading: (COMMAND, source.clone()), source, unit }
    }

    /// Whether it is this file, or made from it or from files under this path.
    fn is_made_from(&self, path: &str) -> bool {
        let parts = self.unit.headers.keys().chain([&self.unit.name, &self.source, &self.path]);
        parts
            .into_iter()
            .any(|part| part.strip_prefix(path).is_some_and(|rest| rest.is_empty() || path.ends_with('/') || rest.starts_with('/')))
    }
}

impl Kernels {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let root = project::enter(sh)?;
        check_that_every_kernel_is_listed(&root)?;
        if !self.check {
            // Units are read after it.
            for (path, text) in headers() {
                write_if_changed(&root.join(path), &text)?;
            }
        }
        let mutants = mutants::load(&root)?;
        let mut products = products(&root, &mutants)?;
        if let Some(only) = &self.only {
            products.retain(|product| product.source.starts_with(only.as_str()));
            if products.is_empty() {
                bail!("--only {only}: no kernel is compiled from there");
            }
            return compile_all(sh, &root, &products).map(|_| ExitCode::SUCCESS);
        }
        let index = mutants::index(&mutants);
        if self.check { check(sh, &root, &products, &index, &self.made_from) } else { write(sh, &root, &products, &index) }
    }
}

/// Compiles and writes the PTX of these.
fn compile_all(sh: &Shell, root: &Path, products: &[Product]) -> anyhow::Result<Toolkit> {
    let toolkit = toolkit::find(sh, root)?;
    let nvrtc = Nvrtc::open(&toolkit)?;
    println!("NVRTC {} of {}", nvrtc.version(), toolkit.origin);
    for product in products {
        let ptx = compile(&nvrtc, product)?;
        write_if_changed(&root.join(&product.path), &ptx)?;
    }
    Ok(toolkit)
}

fn write(sh: &Shell, root: &Path, products: &[Product], index: &str) -> anyhow::Result<ExitCode> {
    let toolkit = compile_all(sh, root, products)?;
    write_if_changed(&root.join(mutants::INDEX), index)?;
    for path in strays(root, products)? {
        fs::remove_file(root.join(&path)).with_context(|| format!("cannot remove {path}"))?;
        println!("removed  {path}: no source compiles to it");
    }
    match &toolkit.ptxas {
        Some(ptxas) => registers::print(sh, root, ptxas, products),
        None => {
            println!("NotRun: registers and spills: no ptxas beside NVRTC ({}) nor on PATH", toolkit.origin);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(sh: &Shell, root: &Path, products: &[Product], index: &str, made_from: &[String]) -> anyhow::Result<ExitCode> {
    let compiler = toolkit::find(sh, root).and_then(|toolkit| Nvrtc::open(&toolkit));
    let compiled = |product: &Product| made_from.is_empty() || made_from.iter().any(|path| product.is_made_from(path));
    let drift = |product: &&Product| {
        let found = fs::read_to_string(root.join(&product.path)).unwrap_or_default();
        let drift = match &compiler {
            Ok(nvrtc) if compiled(product) => differs(&found, &compile(nvrtc, product)?),
            _ => (!found.starts_with(&heading(product.heading.0, &product.heading.1, &product.unit)))
                .then(|| "is not of these sources".to_owned()),
        };
        anyhow::Ok(drift.map(|how| format!("{} {how} ({})", product.path, product.source)))
    };
    let all: Vec<&Product> = products.iter().collect();
    let drifts = in_parallel(&all, || (), |(), product, _| drift(product));
    let mut drifted: Vec<String> = drifts.into_iter().filter_map(anyhow::Result::transpose).collect::<anyhow::Result<_>>()?;
    for (path, text) in headers() {
        if fs::read_to_string(root.join(path)).unwrap_or_default() != text {
            drifted.push(format!("{path} is not what the tables and constants of the crates say"));
        }
    }
    if fs::read_to_string(root.join(mutants::INDEX)).unwrap_or_default() != index {
        drifted.push(format!("{} is not what fixtures/mutants/*.toml say", mutants::INDEX));
    }
    drifted.extend(strays(root, products)?.into_iter().map(|path| format!("{path} has no source")));
    for line in &drifted {
        println!("drift: {line}");
    }
    if !drifted.is_empty() {
        println!("{} of {} files drifted: run `cargo xtask kernels` and commit what it writes", drifted.len(), products.len() + 1);
        return Ok(ExitCode::from(crate::FINDING));
    }
    match compiler {
        Ok(nvrtc) => {
            let count = products.iter().filter(|product| compiled(product)).count();
            println!("{count} files are what NVRTC {} makes of their sources", nvrtc.version());
            if count < products.len() {
                println!("{} others name the hash of their sources and were not compiled", products.len() - count);
            }
        }
        Err(reason) => {
            println!("{} files name the hash of their sources", products.len());
            println!("NotRun: whether NVRTC 13.0 makes the same PTX of them: {reason:#}");
            if env::var_os("CI").is_some() {
                println!("CI is set, so that is a failure");
                return Ok(ExitCode::from(crate::FINDING));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How a checked-in file differs from what was compiled; none when it is the same.
fn differs(found: &str, compiled: &str) -> Option<String> {
    if found == compiled {
        return None;
    }
    let compiler = |ptx: &str| ptx.lines().find_map(|line| line.strip_prefix("// Cuda compilation tools, ").map(str::to_owned));
    Some(match (compiler(found), compiler(compiled)) {
        (None, _) => "was never generated".into(),
        (Some(then), Some(now)) if then != now => format!("was made by {then}, this is {now}"),
        _ => "is not what its source compiles to".into(),
    })
}

fn compile(nvrtc: &Nvrtc, product: &Product) -> anyhow::Result<String> {
    generated(product.heading.0, nvrtc, &product.heading.1, &product.unit)
}

fn products(root: &Path, mutants: &[mutants::Described]) -> anyhow::Result<Vec<Product>> {
    let mut products = Vec::new();
    for module in crate::built_in().modules() {
        let source = format!("kernels/{}.cu", module.name);
        let unit = Unit::read(root, &source, &[], Vec::new())?;
        products.push(Product::ours(ptx_path(module.name), source, unit));
    }
    for mutant in mutants {
        products.push(mutant.product(root)?);
    }
    for source in SPECIFIED.into_iter().map(|folder| files(root, folder, "cu")).collect::<Result<Vec<_>, _>>()?.concat() {
        for (extension, defines) in [("ptx", vec![]), ("bug.ptx", vec!["-DPLANTED_BUG".into()])] {
            let path = Path::new(&source).with_extension(extension).to_string_lossy().into_owned();
            products.push(Product::ours(path, source.clone(), Unit::read(root, &source, &[], defines)?));
        }
    }
    // As the crate's own command compiles it, with the headers of the tree: those of this binary may be older.
    let folder = root.join(OWN_KERNEL);
    for name in files(&folder, "", "cu")? {
        let unit = Unit::read_with(Origin { root: &folder, headers: Some(&root.join("kernels/common")) }, &name, &[], Vec::new())?;
        let source = format!("{OWN_KERNEL}/{name}");
        let path = Path::new(&source).with_extension("ptx").to_string_lossy().into_owned();
        products.push(Product { path, source, heading: (COMPILE, name), unit });
    }
    Ok(products)
}

fn ptx_path(module: &str) -> String {
    format!("kernels/ptx/{module}.ptx")
}

/// A kernel that is in no module would never be compiled, and nobody would notice.
fn check_that_every_kernel_is_listed(root: &Path) -> anyhow::Result<()> {
    let registry = crate::built_in();
    for path in files(root, "kernels", "cu")? {
        let name = path.trim_start_matches("kernels/").trim_end_matches(".cu");
        if registry.module(name).is_none() {
            let ptx = ptx_path(name);
            bail!(
                "{path} is no module: give one to its algorithm, or to OTHERS in crates/kernels/src/lib.rs, `touch {ptx}`, and run this again"
            );
        }
    }
    Ok(())
}

/// Generated files that nothing generates any more.
fn strays(root: &Path, products: &[Product]) -> anyhow::Result<Vec<String>> {
    let known: BTreeSet<&str> = products.iter().map(|product| product.path.as_str()).collect();
    let mut found = files(root, "kernels/ptx", "ptx")?;
    found.extend(files(root, "fixtures/mutants/ptx", "ptx")?);
    found.retain(|path| !known.contains(path.as_str()));
    Ok(found)
}

/// Files under `folder` with an extension, as sorted paths under the root. None where there is no such folder.
fn files(root: &Path, folder: &str, extension: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path.strip_prefix(root).expect("listed under the root").to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Leaves a file that is as it should be alone: cargo rebuilds what embeds it whenever it is written.
fn write_if_changed(path: &Path, text: &str) -> anyhow::Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let folder = path.parent().expect("a file has a folder");
    fs::create_dir_all(folder).and_then(|()| fs::write(path, text)).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote  {}", path.display());
    Ok(())
}
