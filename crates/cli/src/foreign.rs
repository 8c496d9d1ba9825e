//! Kernels from elsewhere: the options that name one, and what becomes of them.

use std::{
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

/// Which kernel from elsewhere.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Kernel from elsewhere")]
pub(crate) struct ForeignArgs {
    /// PTX of a kernel from elsewhere; QUERY is then a list or a pattern over its cases (docs/tutorial-foreign-kernel.md).
    #[arg(long, value_name = "FILE", requires = "spec")]
    pub(crate) ptx: Option<PathBuf>,
    /// Its entry point, in place of what the specification says; {dtype} and {op} are replaced.
    #[arg(long, value_name = "NAME", requires = "ptx")]
    pub(crate) kernel: Option<String>,
    /// How it is launched and what it promises.
    #[arg(long, value_name = "SPEC.toml", requires = "ptx")]
    pub(crate) spec: Option<PathBuf>,
}

/// A kernel from elsewhere, known to case ids.
pub(crate) struct RegisteredKernel {
    pub(crate) foreign: &'static Foreign,
    /// What records say of it.
    pub(crate) note: String,
}

impl ForeignArgs {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |name: &str, path: &PathBuf| format!("--{name}={}", path.display());
        let files = [("ptx", &self.ptx), ("spec", &self.spec)];
        let files = files.into_iter().filter_map(|(name, file)| Some(path(name, file.as_ref()?)));
        files.chain(self.kernel.iter().map(|kernel| format!("--kernel={kernel}"))).collect()
    }

    /// Makes the kernel known and adds its PTX to the library; none where none is named.
    ///
    /// # Errors
    /// A file that cannot be read or is too large, a specification that contradicts itself, PTX of which the kernel
    /// may come to what the emulator does not know where it is to run it, a kernel that is not there or takes other arguments.
    pub(crate) fn register(&self, library: &mut Library, on: MachineKind) -> anyhow::Result<Option<RegisteredKernel>> {
        let (Some(ptx), Some(spec)) = (&self.ptx, &self.spec) else { return Ok(None) };
        let text = read(ptx, MOST_PTX)?;
        let described = read(spec, MOST_SPEC)?;
        let name = spec.display();
        let foreign = Foreign::read(&described, self.kernel.as_deref()).map_err(|error| anyhow::anyhow!("{name}:{error}"))?;
        let note = format!(
            "kernel from elsewhere {}: PTX fnv1a64:{:016x}, specification fnv1a64:{:016x}",
            foreign.name(),
            fnv1a64(text.as_bytes()),
            fnv1a64(described.as_bytes())
        );
        let module = ptx::parse_tolerant(&text);
        library.replace(foreign.module(), Build::Release, text);
        for launch in foreign.samples() {
            let accepted = match (&module, on) {
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
            accepted.map_err(|why| anyhow::anyhow!("{} and {name}: {why}", ptx.display()))?;
        }
        let known = algorithms::register(vec![foreign]).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
        Ok(known.first().map(|&foreign| RegisteredKernel { foreign, note }))
    }
}

/// Reads a text of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<String> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most {
        bail!("{name} is larger than the {most} bytes that are allowed");
    }
    String::from_utf8(bytes).map_err(|error| anyhow::anyhow!("{name} is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}
