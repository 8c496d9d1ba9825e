//! Where NVRTC 13.0 is on this machine.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context;
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
    places.push(wheels(&installed));
    if let Some(toolkit) = first_of(&places) {
        return Ok(toolkit);
    }

    let searched: Vec<String> = places.iter().map(|(folder, _)| folder.display().to_string()).collect();
    install(sh, &installed).with_context(|| format!("no NVRTC 13.0 ({BUILTINS}) in {}, and it cannot be installed", searched.join(", ")))
}

/// Where pip leaves the libraries, and what people read of it.
fn wheels(installed: &Path) -> (PathBuf, String) {
    (installed.join("nvidia/cu13/lib"), "target/cuda".into())
}

/// Installs the pinned wheels into a folder, unless another process just did.
///
/// Commands may run at once. The first installs, the others wait for it, and nobody sees half of an installation: pip writes beside the folder, which is renamed.
fn install(sh: &Shell, installed: &Path) -> anyhow::Result<Toolkit> {
    let place = [wheels(installed)];
    let folder = installed.parent().context("the root of a file system is no place for it")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = installed.with_extension("lock");
    let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    if let Some(toolkit) = first_of(&place) {
        return Ok(toolkit);
    }

    eprintln!("installing NVRTC 13.0 and ptxas under {} (about 130 MB, once)", installed.display());
    let new = installed.with_extension("new");
    for old in [&new, installed] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    fs::create_dir(&new).with_context(|| format!("cannot make {}", new.display()))?;
    let requirements = new.join("cuda-requirements.txt");
    fs::write(&requirements, REQUIREMENTS).with_context(|| format!("cannot write {}", requirements.display()))?;
    let pip = cmd!(
        sh,
        "python3 -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --upgrade
         --target {new} -r {requirements}"
    );
    pip.env("PIP_ROOT_USER_ACTION", "ignore").quiet().run()?;
    fs::rename(&new, installed).with_context(|| format!("cannot rename {} to {}", new.display(), installed.display()))?;
    first_of(&place).with_context(|| format!("pip installed the pinned wheels, but {BUILTINS} is not under {}", installed.display()))
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

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, thread};

    use super::*;

    /// Stands for `python3 -m pip install`: counts its runs, and takes a while over two files.
    const PIP: &str = r#"#!/bin/sh
while [ "$1" != --target ]; do shift; done
echo run >> "$(dirname "$0")/runs"
mkdir -p "$2/nvidia/cu13/lib"
touch "$2/nvidia/cu13/lib/libnvrtc-builtins.so.13.0"
sleep 0.3
touch "$2/nvidia/cu13/lib/libnvrtc.so.13"
"#;

    /// If this fails, commands that run at once in a new checkout install over each other, and some of them fail.
    #[test]
    fn commands_that_run_at_once_install_once() {
        let root = env::temp_dir().join(format!("passmuster-toolkit-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        let python = root.join("bin/python3");
        fs::write(&python, PIP).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        // What an installation that was interrupted leaves.
        fs::create_dir_all(root.join("cuda/nvidia/cu13/lib")).unwrap();
        fs::create_dir_all(root.join("cuda.new/nvidia")).unwrap();
        let find = || {
            let sh = Shell::new().unwrap();
            let path = env::var("PATH").unwrap();
            sh.set_var("PATH", format!("{}:{path}", root.join("bin").display()));
            install(&sh, &root.join("cuda")).unwrap().libraries
        };
        let found: Vec<PathBuf> = thread::scope(|scope| [(); 4].map(|()| scope.spawn(find)).map(|thread| thread.join().unwrap()).to_vec());
        assert_eq!(found, vec![root.join("cuda/nvidia/cu13/lib"); 4]);
        assert_eq!(fs::read_to_string(root.join("bin/runs")).unwrap(), "run\n");
        assert!(!root.join("cuda.new").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
