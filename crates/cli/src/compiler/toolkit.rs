//! Where NVRTC 13.0 is on this machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use xshell::{Shell, cmd};

/// The file that only NVRTC 13.0 brings; `libnvrtc.so.13` is any 13.x.
const BUILTINS: &str = "libnvrtc-builtins.so.13.0";

/// The pinned wheels with the hashes of them, as pip takes it.
const REQUIREMENTS: &str = include_str!("../../cuda-requirements.txt");

/// What of CUDA's toolkit is needed.
#[derive(Debug)]
pub(crate) struct Toolkit {
    /// The folder with libnvrtc.
    pub(crate) libraries: PathBuf,
    /// CUDA's own headers, where they are there.
    pub(crate) include: Option<PathBuf>,
    /// The assembler, where it is there: it knows registers and spills.
    pub(crate) ptxas: Option<PathBuf>,
    /// Which of the places it is, for people.
    pub(crate) origin: String,
}

/// Finds NVRTC 13.0, or installs the pinned wheels under target/cuda.
///
/// # Errors
/// Names what was searched, and what pip said.
pub(crate) fn find(sh: &Shell, root: &Path) -> anyhow::Result<Toolkit> {
    let installed = root.join("target/cuda");
    let mut places: Vec<(PathBuf, String)> = Vec::new();
    if let Some(home) = env::var_os("CUDA_HOME") {
        places.push((Path::new(&home).join("lib64"), "CUDA_HOME".into()));
    }
    for folder in python_path(sh) {
        places.push((folder.join("nvidia/cu13/lib"), "the Python environment".into()));
    }
    places.push((installed.join("nvidia/cu13/lib"), "target/cuda".into()));
    if let Some(toolkit) = first_of(&places) {
        return Ok(toolkit);
    }

    let requirements = installed.join("cuda-requirements.txt");
    eprintln!("installing NVRTC 13.0 and ptxas under {} (about 130 MB, once)", installed.display());
    fs::create_dir_all(&installed).with_context(|| format!("cannot make {}", installed.display()))?;
    fs::write(&requirements, REQUIREMENTS).with_context(|| format!("cannot write {}", requirements.display()))?;
    let pip = cmd!(
        sh,
        "python3 -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --upgrade
         --target {installed} -r {requirements}"
    );
    pip.env("PIP_ROOT_USER_ACTION", "ignore").quiet().run().with_context(|| {
        let searched: Vec<String> = places.iter().map(|(folder, _)| folder.display().to_string()).collect();
        format!("no NVRTC 13.0 ({BUILTINS}) in {}, and pip could not install it", searched.join(", "))
    })?;
    match first_of(&places) {
        Some(toolkit) => Ok(toolkit),
        None => bail!("pip installed the pinned wheels, but {BUILTINS} is not under {}", installed.display()),
    }
}

fn first_of(places: &[(PathBuf, String)]) -> Option<Toolkit> {
    let (libraries, origin) =
        places.iter().find(|(folder, _)| folder.join(BUILTINS).is_file() && folder.join("libnvrtc.so.13").exists())?;
    let home = libraries.parent().expect("a folder of libraries lies in a toolkit");
    let on_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let ptxas = std::iter::once(home.join("bin")).chain(on_path).map(|folder| folder.join("ptxas")).find(|ptxas| ptxas.is_file());
    let include = Some(home.join("include")).filter(|folder| folder.is_dir());
    Some(Toolkit { libraries: libraries.clone(), include, ptxas, origin: origin.clone() })
}

/// Where Python looks for packages: the active environment's, the user's, and PYTHONPATH.
fn python_path(sh: &Shell) -> Vec<PathBuf> {
    let program = "import sys; print('\\n'.join(filter(None, sys.path)))";
    let listed = cmd!(sh, "python3 -c {program}").quiet().ignore_stderr().read().unwrap_or_default();
    listed.lines().map(PathBuf::from).collect()
}
