//! The Python package: its wheel is built and installed into an environment of its own, and tested there as users have it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use xshell::{Shell, cmd};

use super::{say, succeeds};

/// What the tests need, with versions.
const REQUIREMENTS: &str = "python/requirements-test.txt";

/// The oldest Python that the package is for.
const OLDEST: (u32, u32) = (3, 10);

/// The names under which a Python is installed.
const NAMES: [&str; 2] = ["python3", "python"];

/// A Python that is new enough and makes environments.
///
/// # Errors
/// What is missing, for people.
pub(super) fn find(sh: &Shell) -> Result<&'static str, String> {
    let mut too_old = None;
    for name in NAMES {
        let ask = "import sys, venv, ensurepip; print(*sys.version_info[:2])";
        let Ok(said) = cmd!(sh, "{name} -c {ask}").quiet().ignore_stderr().read() else { continue };
        let version = said.split_once(' ').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match version {
            Some(version) if version >= OLDEST => return Ok(name),
            _ => too_old = too_old.or(Some(said)),
        }
    }
    let (major, minor) = OLDEST;
    Err(match too_old {
        Some(version) => format!("Python is {}, at least {major}.{minor} is needed", version.replace(' ', ".")),
        None => format!("there is no Python with venv: {}", NAMES.join(", ")),
    })
}

/// Makes the environment, or finds it as it was made for the same requirements.
///
/// # Errors
/// Packages cannot be had.
fn environment(sh: &Shell, python: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let inside = folder.join("bin/python");
    let stamp = folder.join("requirements.txt");
    let wanted = sh.read_file(REQUIREMENTS)?;
    if sh.read_file(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(inside);
    }
    sh.remove_path(folder)?;
    cmd!(sh, "{python} -m venv {folder}").quiet().run()?;
    cmd!(sh, "{inside} -m pip install --quiet --disable-pip-version-check --requirement {REQUIREMENTS}")
        .quiet()
        .run()
        .with_context(|| format!("the packages of {REQUIREMENTS} cannot be installed"))?;
    sh.write_file(stamp, wanted)?;
    Ok(inside)
}

/// Builds the wheel, installs it, and runs all that is tested of it.
///
/// # Errors
/// Packages cannot be had, or the wheel cannot be built.
pub(super) fn passes(sh: &Shell, python: &str, target: &Path) -> anyhow::Result<bool> {
    let inside = environment(sh, python, &target.join("python"))?;
    let wheels = target.join("wheels");
    sh.remove_path(&wheels)?;
    let maturin = inside.with_file_name("maturin");
    {
        let _python = sh.push_dir("python");
        cmd!(sh, "{maturin} build --quiet --out {wheels}").run()?;
    }
    let built = sh.read_dir(&wheels)?;
    let [wheel] = &*built else { bail!("maturin made {} wheels, expected one", built.len()) };
    let size = wheel.metadata()?.len();
    say(&format!("{}: {:.1} MB", wheel.file_name().unwrap_or_default().display(), size as f64 / 1e6));
    if size > MOST_BYTES {
        say(&format!("error: the wheel may have {} MB", MOST_BYTES / 1_000_000));
        return Ok(false);
    }
    cmd!(sh, "{inside} -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall {wheel}").quiet().run()?;
    // The package that was installed, not the sources beside it. pyright is a program of its own, and does not know which Python starts it.
    let itself = inside.to_string_lossy();
    let steps: [(&str, &[&str]); 4] = [
        ("python", &["-m", "mypy"]),
        ("python", &["-m", "pyright", "--pythonpath", &itself]),
        ("python", &["-m", "pytest", "-q", "-n", "2"]),
        ("examples/python", &["-m", "pytest", "-q", "-n", "2"]),
    ];
    for (folder, arguments) in steps {
        let _folder = sh.push_dir(folder);
        if !succeeds(cmd!(sh, "{inside} {arguments...}"))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The most bytes of a wheel.
const MOST_BYTES: u64 = 25_000_000;
