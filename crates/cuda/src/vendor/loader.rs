//! Opening libcuda, libnccl, libcublasLt and libnvidia-ml at run time, and tables of their functions.
//!
//! cudarc's own loader panics where a library or a symbol is missing and never looks for `libnccl.so.2`, the only name in NCCL's wheel.
//! Its bindings also return closed enums, for which an error code newer than they are is undefined behaviour. The tables here are
//! resolved at once, fail with an error, and return plain integers; their signatures are checked against the bindings at compile time.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// A library that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// File name of the library: `libnccl.so.2`.
    pub library: String,
    /// Everything that was tried, in order.
    pub searched: Vec<String>,
    /// What the loader said of the last file that was there; else of the last one tried.
    pub cause: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load {}: {}; searched {}", self.library, self.cause, self.searched.join(", "))
    }
}

impl std::error::Error for LoadError {}

/// Name the file that takes the place of a search.
pub(super) const NCCL_VARIABLE: &str = "PASSMUSTER_NCCL_LIB";
pub(super) const CUBLASLT_VARIABLE: &str = "PASSMUSTER_CUBLASLT_LIB";

/// A library that comes in a wheel of Python's.
struct Wheel {
    /// Its file.
    library: &'static str,
    /// Names the file that takes the place of the search.
    variable: &'static str,
    /// Where below site-packages it is.
    folder: &'static str,
}

const NCCL: Wheel = Wheel { library: LIBNCCL, variable: NCCL_VARIABLE, folder: "nvidia/nccl/lib" };
const CUBLASLT: Wheel = Wheel { library: LIBCUBLASLT, variable: CUBLASLT_VARIABLE, folder: "nvidia/cu13/lib" };

const LIBCUDA: &str = "libcuda.so.1";
const LIBNCCL: &str = "libnccl.so.2";
const LIBCUBLASLT: &str = "libcublasLt.so.13";
const LIBNVML: &str = "libnvidia-ml.so.1";

/// Opens the CUDA driver and resolves its functions.
///
/// # Errors
/// When there is no driver, or one that lacks a function.
pub(super) fn load_cuda<T>(resolve: impl FnOnce(&Library) -> Result<T, String>) -> Result<T, LoadError> {
    load(LIBCUDA, &[PathBuf::from(LIBCUDA)], resolve).map(|(table, _)| table)
}

/// Opens NVML, which comes with the driver, and resolves its functions.
///
/// # Errors
/// As [`load_cuda`].
pub(super) fn load_nvml<T>(resolve: impl FnOnce(&Library) -> Result<T, String>) -> Result<T, LoadError> {
    load(LIBNVML, &[PathBuf::from(LIBNVML)], resolve).map(|(table, _)| table)
}

/// Opens NCCL and resolves its functions. Returns the table and the file it came from.
///
/// # Errors
/// When nothing that was searched is NCCL, or it lacks a function.
pub(crate) fn load_nccl<T>(explicit: Option<&Path>, resolve: impl FnOnce(&Library) -> Result<T, String>) -> Result<(T, String), LoadError> {
    load(LIBNCCL, &candidates(&NCCL, explicit, |name| std::env::var_os(name)), resolve)
}

/// Opens cuBLASLt and resolves its functions. Returns the table and the file it came from.
///
/// # Errors
/// When nothing that was searched is cuBLASLt, or it lacks a function.
pub(crate) fn load_cublas_lt<T>(
    explicit: Option<&Path>,
    resolve: impl FnOnce(&Library) -> Result<T, String>,
) -> Result<(T, String), LoadError> {
    load(LIBCUBLASLT, &candidates(&CUBLASLT, explicit, |name| std::env::var_os(name)), resolve)
}

/// Opens the first of `candidates` that can be opened and resolves its functions. The library is never closed: both keep threads and
/// state that live as long as the process.
fn load<T>(library: &str, candidates: &[PathBuf], resolve: impl FnOnce(&Library) -> Result<T, String>) -> Result<(T, String), LoadError> {
    let mut searched = Vec::new();
    let (mut absent, mut broken) = (String::new(), String::new());
    for candidate in candidates {
        searched.push(candidate.display().to_string());
        if candidate.components().count() > 1 && !candidate.exists() {
            absent = format!("{}: no such file", candidate.display());
            continue;
        }
        // SAFETY: loading runs the library's initialisers. These are the vendor's libraries, or a file that the user named.
        match unsafe { Library::open(Some(candidate), RTLD_NOW | RTLD_LOCAL) } {
            Ok(opened) => {
                let table = resolve(&opened);
                std::mem::forget(opened);
                let path = candidate.display().to_string();
                return table.map(|t| (t, path.clone())).map_err(|cause| LoadError {
                    library: library.into(),
                    searched,
                    cause: format!("{path}: {cause}"),
                });
            }
            Err(error) if candidate.components().count() > 1 => broken = with_source(&error),
            Err(error) => absent = with_source(&error),
        }
    }
    Err(LoadError { library: library.into(), searched, cause: if broken.is_empty() { absent } else { broken } })
}

/// libloading keeps the system's message in the source of its error.
fn with_source(error: &libloading::Error) -> String {
    let text = error.to_string();
    match std::error::Error::source(error).map(ToString::to_string) {
        Some(source) if !text.contains(&source) => format!("{text}: {source}"),
        _ => text,
    }
}

/// Where a library may be, best first. A path that was given, by argument or by environment, has no fallback: a user who named a version
/// wants that one.
fn candidates(wheel: &Wheel, explicit: Option<&Path>, environment: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(path) = explicit.map(Path::to_path_buf).or_else(|| set(wheel.variable).map(PathBuf::from)) {
        // A bare file name would be looked up on the library path: here it means a file.
        return vec![if path.components().count() == 1 { Path::new(".").join(path) } else { path }];
    }
    let mut prefixes: Vec<PathBuf> = set("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    let python = set("PATH").and_then(|path| std::env::split_paths(&path).map(|dir| dir.join("python3")).find(|file| file.is_file()));
    if let Some(python) = python {
        // A virtual environment's python3 is a symlink out of it: the link's own folder counts first.
        prefixes.extend(prefix(&python));
        prefixes.extend(python.canonicalize().ok().as_deref().and_then(prefix));
    }
    if prefixes.iter().any(|p| p == Path::new("/usr")) {
        prefixes.push("/usr/local".into());
    }
    let mut candidates = vec![PathBuf::from(wheel.library)];
    for prefix in prefixes {
        let found = wheels(&prefix, wheel);
        let none = || vec![prefix.join("lib/python3*/site-packages").join(wheel.folder).join(wheel.library)];
        candidates.extend(if found.is_empty() { none() } else { found });
    }
    candidates.extend(["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"].map(|dir| Path::new(dir).join(wheel.library)));
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.clone()));
    candidates
}

/// `/a/bin/python3` -> `/a`.
fn prefix(python: &Path) -> Option<PathBuf> {
    python.parent()?.parent().map(Path::to_path_buf)
}

/// A wheel's library below a Python prefix; Debian calls the folder `dist-packages`.
fn wheels(prefix: &Path, wheel: &Wheel) -> Vec<PathBuf> {
    let Ok(entries) = prefix.join("lib").read_dir() else { return Vec::new() };
    let mut pythons: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
        .collect();
    pythons.sort();
    pythons
        .iter()
        .flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages).join(wheel.folder).join(wheel.library)))
        .filter(|path| path.exists())
        .collect()
}

/// Declares a struct of function pointers and how it is resolved. `bindings` are functions whose signature must be the one in cudarc's
/// `sys` layer but for the result, which is a plain `u32`; `own` are declared here alone; `optional` may be missing.
macro_rules! function_table {
    (
        $(#[$meta:meta])*
        struct $table:ident;
        bindings $sys:ident::$result:ident { $( fn $name:ident($($type:ty),* $(,)?); )* }
        own { $( fn $own:ident($($own_type:ty),* $(,)?) -> $own_result:ty; )* }
        optional { $( fn $optional:ident($($optional_type:ty),* $(,)?); )* }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $( pub(crate) $name: unsafe extern "C" fn($($type),*) -> u32, )*
            $( pub(crate) $own: unsafe extern "C" fn($($own_type),*) -> $own_result, )*
            $( pub(crate) $optional: Option<unsafe extern "C" fn($($optional_type),*) -> u32>, )*
        }

        $( const _: unsafe fn($($type),*) -> $sys::$result = $sys::$name; )*
        $( const _: unsafe fn($($optional_type),*) -> $sys::$result = $sys::$optional; )*

        impl $table {
            fn resolve(library: &libloading::os::unix::Library) -> Result<$table, String> {
                Ok($table {
                    $( $name: $crate::vendor::loader::symbol(library, stringify!($name))?, )*
                    $( $own: $crate::vendor::loader::symbol(library, stringify!($own))?, )*
                    $( $optional: $crate::vendor::loader::symbol(library, stringify!($optional)).ok(), )*
                })
            }
        }
    };
}
pub(super) use function_table;

/// Looks one function up. For [`function_table`], which gives `F` the type that the vendor declares.
pub(super) fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: `F` is the type that the vendor's header gives this function, checked against the bindings.
    let found = unsafe { library.get::<F>(name) };
    found.map(|f| *f).map_err(|_| format!("it has no function {name}: another library, or too old a version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn a_missing_library_names_all_that_was_searched() {
        let candidates = [PathBuf::from("libpassmuster_none.so.2"), PathBuf::from("/nowhere/libpassmuster_none.so.2")];
        let error = load("libpassmuster_none.so.2", &candidates, |_| Ok(())).unwrap_err();
        assert_eq!(error.searched, ["libpassmuster_none.so.2", "/nowhere/libpassmuster_none.so.2"]);
        let text = error.to_string();
        assert!(text.starts_with("cannot load libpassmuster_none.so.2: /nowhere/libpassmuster_none.so.2: no such file"), "{text}");
        assert!(text.ends_with("searched libpassmuster_none.so.2, /nowhere/libpassmuster_none.so.2"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_library_is_the_cause() {
        let file = std::env::temp_dir().join(format!("passmuster-no-library-{}.so", std::process::id()));
        std::fs::write(&file, "no library").unwrap();
        let error = load_nccl(Some(&file), |_| Ok(())).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(error.searched, [file.display().to_string()]);
        assert!(error.cause.contains("file too short") || error.cause.contains("invalid ELF header"), "{}", error.cause);
    }

    #[test]
    fn a_library_without_the_function_says_which() {
        let libc = [PathBuf::from("libc.so.6")];
        let error = load("libc.so.6", &libc, |library| symbol::<extern "C" fn()>(library, "ncclGetVersion").map(|_| ())).unwrap_err();
        assert!(error.cause.contains("it has no function ncclGetVersion"), "{}", error.cause);
    }

    #[test]
    fn a_path_that_was_given_has_no_fallback() {
        let given = |name: &str| (name == NCCL_VARIABLE).then(|| OsString::from("/a/libnccl.so.2"));
        assert_eq!(candidates(&NCCL, None, given), [PathBuf::from("/a/libnccl.so.2")]);
        assert_eq!(candidates(&NCCL, Some(Path::new("/b/nccl.so")), given), [PathBuf::from("/b/nccl.so")]);
        assert_eq!(candidates(&NCCL, Some(Path::new("nccl.so")), nothing), [PathBuf::from("./nccl.so")]);
    }

    #[test]
    fn wheels_of_the_virtual_environment_come_before_the_systems_folders() {
        let root = std::env::temp_dir().join(format!("passmuster-venv-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib/python3.12/site-packages/nvidia/nccl/lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(LIBNCCL), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", bin.join("python3")).unwrap();
        let path = bin.clone().into_os_string();
        let found = candidates(&NCCL, None, |name| (name == "PATH").then(|| path.clone()));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found[0], Path::new(LIBNCCL));
        assert_eq!(found[1], lib.join(LIBNCCL));
        assert_eq!(found.last().unwrap(), Path::new("/usr/lib/x86_64-linux-gnu/libnccl.so.2"));
    }
}
