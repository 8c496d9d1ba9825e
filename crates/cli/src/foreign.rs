//! Kernels from elsewhere: the options that name one, and what becomes of them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use passmuster::emulator;
use passmuster_collectives::{
    algorithms::{self, Algorithm, Foreign},
    kernels::fnv1a64,
    library::Library,
    plan::Build,
};
use passmuster_ptx as ptx;

use crate::worker::MachineKind;

/// The largest PTX, in bytes.
pub(crate) const MOST_PTX: u64 = 64 << 20;

/// The largest specification, in bytes.
const MOST_SPEC: u64 = 1 << 20;

/// Which kernels from elsewhere.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Kernel from elsewhere")]
pub(crate) struct ForeignArgs {
    /// How a kernel from elsewhere is launched and what it promises; again for each of several. QUERY is then a list or a pattern over their cases
    /// (docs/tutorial-foreign-kernel.md).
    #[arg(long = "spec", value_name = "SPEC.toml")]
    pub(crate) specs: Vec<PathBuf>,
    /// Its PTX, in place of the module that the specification names.
    #[arg(long, value_name = "FILE", requires = "specs")]
    pub(crate) ptx: Option<PathBuf>,
    /// Its entry point, in place of what the specification says; {dtype}, {op}, {world} and {rank} are replaced.
    #[arg(long, value_name = "NAME", requires = "specs")]
    pub(crate) kernel: Option<String>,
    /// On GPUs, give every loop of the kernel that polls an end: a thread that has looked 2^23 times in one launch traps. For GPUs that others share; what hangs
    /// is a crash then.
    #[arg(long, requires = "specs")]
    pub(crate) bound_waits: bool,
}

/// Looks of one thread in one launch after which a bounded kernel traps: seconds, of a few hundred nanoseconds each.
const MOST_LOOKS: u32 = 1 << 23;

/// A kernel from elsewhere, known to case ids.
pub(crate) struct RegisteredKernel {
    pub(crate) foreign: &'static Foreign,
    /// The first of its PTX.
    pub(crate) ptx: PathBuf,
    /// What records say of it.
    pub(crate) note: String,
}

impl RegisteredKernel {
    /// What a record's selection says of them; nothing where there are none.
    pub(crate) fn noted(known: &[RegisteredKernel]) -> Option<String> {
        (!known.is_empty()).then(|| known.iter().map(|known| &*known.note).collect::<Vec<_>>().join("; "))
    }
}

/// One that was read and held against its PTX.
pub(crate) struct Accepted {
    pub(crate) foreign: Foreign,
    /// The first of its PTX.
    pub(crate) ptx: PathBuf,
    note: String,
}

impl ForeignArgs {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |name: &str, path: &PathBuf| format!("--{name}={}", path.display());
        let specs = self.specs.iter().map(|spec| path("spec", spec));
        let ptx = self.ptx.iter().map(|ptx| path("ptx", ptx));
        let kernel = self.kernel.iter().map(|kernel| format!("--kernel={kernel}"));
        specs.chain(ptx).chain(kernel).chain(self.bound_waits.then(|| "--bound-waits".to_owned())).collect()
    }

    /// Whether any is named.
    pub(crate) fn any(&self) -> bool {
        !self.specs.is_empty()
    }

    /// Makes the kernels known and adds their PTX to the library.
    ///
    /// # Errors
    /// A file that cannot be read or is too large, a specification that contradicts itself, PTX of which a kernel
    /// may come to what the emulator does not know where it is to run it, a kernel that is not there or takes other arguments.
    pub(crate) fn register(&self, library: &mut Library, on: MachineKind) -> anyhow::Result<Vec<RegisteredKernel>> {
        if self.specs.len() > 1
            && let Some(option) =
                [self.ptx.is_some().then_some("--ptx"), self.kernel.is_some().then_some("--kernel")].into_iter().flatten().next()
        {
            bail!("{option} is for one --spec, {} are given: each may name its own in `module` and `entry`", self.specs.len());
        }
        if self.specs.is_empty() {
            return Ok(Vec::new());
        }
        let accepted = self.specs.iter().map(|spec| self.accept(spec, library, on)).collect::<anyhow::Result<Vec<_>>>()?;
        let (foreigns, of_each): (Vec<_>, Vec<_>) =
            accepted.into_iter().map(|Accepted { foreign, ptx, note }| (foreign, (ptx, note))).unzip();
        let known = algorithms::register(foreigns).map_err(|why| anyhow::anyhow!("{}: {why}", self.specs[0].display()))?;
        Ok(known.into_iter().zip(of_each).map(|(foreign, (ptx, note))| RegisteredKernel { foreign, ptx, note }).collect())
    }

    /// Reads a specification and the PTX of its modules, and holds them against each other.
    ///
    /// # Errors
    /// As [`ForeignArgs::register`].
    pub(crate) fn accept(&self, spec: &Path, library: &mut Library, on: MachineKind) -> anyhow::Result<Accepted> {
        let described = read(spec, MOST_SPEC)?;
        let name = spec.display();
        let beside = |file: &str| spec.parent().unwrap_or(Path::new("")).join(file);
        let contents = |file: &str| bytes(&beside(file), MOST_PTX).map_err(|error| format!("{error:#}"));
        let foreign =
            Foreign::with_files(&described, self.kernel.as_deref(), &contents).map_err(|error| anyhow::anyhow!("{name}:{error}"))?;
        let modules = foreign.foreign_modules();
        if let (Some(ptx), 2..) = (&self.ptx, modules.len()) {
            bail!("--ptx={} is one file, and {name} has {} modules", ptx.display(), modules.len());
        }
        let mut texts = Vec::new();
        for module in modules {
            let (path, text) = match (&self.ptx, &module.file) {
                (Some(ptx), _) => (ptx.clone(), read(ptx, MOST_PTX)?),
                (None, Some(file)) => {
                    let text = read(&beside(file), MOST_PTX);
                    let misnamed = |why| anyhow::anyhow!("{name}:{}", foreign.error_of_module(&module, format!("module: {why:#}")));
                    (beside(file), text.map_err(misnamed)?)
                }
                (None, None) => bail!("{name} names no `module`, and there is no --ptx: one of them says where the kernel's PTX is"),
            };
            texts.push((module.name, text, path));
        }
        let hashes: Vec<String> = texts.iter().map(|(_, text, _)| format!("fnv1a64:{:016x}", fnv1a64(text.as_bytes()))).collect();
        let described = fnv1a64(described.as_bytes());
        let bounded = if self.bound_waits { ", waits bounded" } else { "" };
        let note =
            format!("kernel from elsewhere {}: PTX {}, specification fnv1a64:{described:016x}{bounded}", foreign.name(), hashes.join(" "));
        let parsed: BTreeMap<&str, _> = texts.iter().map(|(module, text, path)| (&**module, (ptx::parse_tolerant(text), path))).collect();
        for (module, text, _) in &texts {
            let bounded = self.bound_waits && on == MachineKind::Cuda;
            library.replace(module, Build::Release, if bounded { ptx::bound_waits(text, MOST_LOOKS) } else { text.clone() });
        }
        for launch in foreign.samples() {
            let Some((module, ptx)) = parsed.get(&*launch.module) else { bail!("{name}: no module `{}`", launch.module) };
            let accepted = match (module, on) {
                (Ok(module), _) => {
                    if on == MachineKind::Emulator
                        && let Err(error) = module.launchable(&launch.entry)
                    {
                        bail!("{}:{error}", ptx.display());
                    }
                    emulator::accepts(module, &launch)
                }
                (Err(error), MachineKind::Emulator) => bail!("{}:{error}", ptx.display()),
                // The driver may know what the emulator does not, and checks arguments itself.
                (Err(_), MachineKind::Cuda) => library.check(&launch),
            };
            let argument = module.as_ref().ok().and_then(|module| emulator::misfit(module, &launch));
            let misfit = |why| foreign.error_of_launch(&launch, argument, format!("{why}; the PTX is {}", ptx.display()));
            accepted.map_err(|why| anyhow::anyhow!("{name}:{}", misfit(why)))?;
        }
        drop(parsed);
        let ptx = texts.into_iter().next().map(|(_, _, path)| path).unwrap_or_default();
        Ok(Accepted { foreign, ptx, note })
    }
}

/// Reads a text of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<String> {
    let name = path.display();
    String::from_utf8(bytes(path, most)?)
        .map_err(|error| anyhow::anyhow!("{name} is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

/// Reads a file of at most `most` bytes.
fn bytes(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most {
        bail!("{name} is larger than the {most} bytes that are allowed");
    }
    Ok(bytes)
}
