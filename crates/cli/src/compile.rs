//! `compile`: a kernel of somebody's own crate to the PTX that it embeds.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use xshell::Shell;

use crate::{
    FINDING,
    compiler::{self, nvrtc::Nvrtc, toolkit},
    project,
};

/// Compile the kernels of your own crate to PTX, which the crate embeds.
///
/// FILE.cu becomes FILE.ptx beside it. Include passmuster's headers as "passmuster/reduce.cuh"; other files are included from where they are.
///
/// The compiler is NVRTC 13.0 and no other, so that the PTX is the same on every machine. It is looked for in $CUDA_HOME/lib64, in the Python environment, and in
/// target/cuda, where pip installs it from hash-pinned wheels. No GPU is needed.
///
/// A kernel is compiled for compute_80, unless it has a line `// target: compute_90a`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo run -- compile kernels/mine.cu            in a crate of your own
  cargo run -- compile kernels/mine.cu --check    as its CI does")]
pub(crate) struct Compile {
    /// CUDA C++ files.
    #[arg(required = true, value_name = "FILE.cu")]
    files: Vec<PathBuf>,
    /// Write nothing, and exit 1 if the PTX is not what its source compiles to.
    #[arg(long)]
    check: bool,
}

impl Compile {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let toolkit = toolkit::find(sh, &env::current_dir()?)?;
        let nvrtc = Nvrtc::open(&toolkit)?;
        let mut drifted = false;
        for file in &self.files {
            let path = ptx_of(file)?;
            let ptx = compiled(&nvrtc, file)?;
            if fs::read_to_string(&path).is_ok_and(|found| found == ptx) {
                println!("{} is what {} compiles to", path.display(), file.display());
            } else if self.check {
                let command = project::invocation();
                println!("drift: {} is not what {} compiles to: `{command} compile` writes it", path.display(), file.display());
                drifted = true;
            } else {
                fs::write(&path, ptx).with_context(|| format!("cannot write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
        }
        Ok(if drifted { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
    }
}

/// Where the PTX of a source goes.
fn ptx_of(file: &Path) -> anyhow::Result<PathBuf> {
    if file.extension().is_none_or(|extension| extension != "cu") {
        bail!("{} is no kernel: its name has to end in .cu", file.display());
    }
    Ok(file.with_extension("ptx"))
}

fn compiled(nvrtc: &Nvrtc, file: &Path) -> anyhow::Result<String> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?.to_string_lossy();
    let folder = file.parent().unwrap_or(Path::new(""));
    compiler::compiled(nvrtc, folder, &name).with_context(|| format!("in {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_lies_beside_its_source() {
        assert_eq!(ptx_of(Path::new("kernels/mine.cu")).unwrap(), Path::new("kernels/mine.ptx"));
        let error = ptx_of(Path::new("kernels/mine.cpp")).unwrap_err().to_string();
        assert_eq!(error, "kernels/mine.cpp is no kernel: its name has to end in .cu");
    }
}
