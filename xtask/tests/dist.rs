//! The files of a release, of a program that is not built here: that takes minutes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use xshell::Shell;
use xtask::dist::{
    Options,
    pack::{Archive, checksums, pack, time},
    sbom::{Checksums, Part, document},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// An empty folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn output(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Packs a text as if it were the binary, and returns the archive's name.
fn packed(out: &Path, time: u64) -> String {
    let binary = out.join("built");
    fs::write(&binary, "a program").unwrap();
    let archive = Archive { root: &root(), binary: &binary, version: "1.2.3", target: "x86_64-unknown-linux-gnu", time, out };
    pack(&Shell::new().unwrap(), &archive).unwrap()
}

/// If this fails, who unpacks a release misses a file, or cannot start the program.
#[test]
fn archive_has_its_files() {
    let out = folder("dist-files");
    let name = packed(&out, 0);
    assert_eq!(name, "passmuster-1.2.3-x86_64-unknown-linux-gnu.tar.gz");
    let listed = output("tar", &["--list", "--verbose", "--numeric-owner", "--file", &name], &out);
    let shown = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{} {} {} {}", words[0], words[1], words[3], words[5].trim_start_matches("passmuster-1.2.3-x86_64-unknown-linux-gnu"))
    };
    let expected = [
        "drwxr-xr-x 0/0 1970-01-01 /",
        "-rw-r--r-- 0/0 1970-01-01 /CHANGELOG.md",
        "-rw-r--r-- 0/0 1970-01-01 /LICENSE-APACHE",
        "-rw-r--r-- 0/0 1970-01-01 /LICENSE-MIT",
        "-rw-r--r-- 0/0 1970-01-01 /README.md",
        "-rwxr-xr-x 0/0 1970-01-01 /passmuster",
    ];
    assert_eq!(listed.lines().map(shown).collect::<Vec<_>>(), expected);
    let left: Vec<String> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left.len(), 2, "beside the program and its archive: {left:?}");
}

/// If this fails, nobody can tell whether an archive is of the binary that they built.
#[test]
fn archive_is_reproducible() {
    let (first, second) = (folder("dist-first"), folder("dist-second"));
    let of = |out: &Path, time: u64| fs::read(out.join(packed(out, time))).unwrap();
    let bytes = of(&first, 0);
    assert_eq!(bytes, of(&second, 0));
    assert_ne!(bytes, of(&second, time(Some("86400")).unwrap()), "SOURCE_DATE_EPOCH changes nothing");
    assert!(time(Some("yesterday")).is_err());
}

/// If this fails, `sha256sum --check` refuses what a release has.
#[test]
fn checksums_are_right() {
    let out = folder("dist-sums");
    let archive = packed(&out, 0);
    fs::write(out.join("bill"), "{}").unwrap();
    assert_eq!(checksums(&out, &[archive.clone(), "bill".into()]).unwrap(), "SHA256SUMS");
    let checked = output("sha256sum", &["--check", "--strict", "SHA256SUMS"], &out);
    assert_eq!(checked, format!("bill: OK\n{archive}: OK\n"));
}

/// If this fails, the SBOM of the command lacks packages, checksums or licences, or has what only tests take.
#[test]
fn sbom_of_the_command_is_complete() {
    let sh = Shell::new().unwrap();
    sh.change_dir(root());
    sh.set_var("CARGO_NET_OFFLINE", "true");
    let parts = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].map(|target| Part::of(&sh, target).unwrap());
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let document = document(&parts, &Checksums::of(&lock).unwrap()).unwrap();
    assert_eq!(document["metadata"]["component"]["name"], "passmuster");
    let components = document["components"].as_array().unwrap();
    for component in components {
        let is_ours = component["name"].as_str().unwrap().starts_with("passmuster-");
        assert_eq!(component.get("hashes").is_none(), is_ours, "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    let scope = |name: &str| components.iter().find(|component| component["name"] == name).map(|component| component["scope"].clone());
    assert_eq!(scope("passmuster-emulator").unwrap(), "required");
    assert_eq!(scope("serde_json").unwrap(), "required");
    assert_eq!(scope("cc").unwrap(), "excluded", "it compiles the allocator and is not in the command");
    assert_eq!(scope("insta"), None, "only tests take it");
}

/// If this fails, a wrong option builds for minutes.
#[test]
fn wrong_options_are_refused() {
    let both = Options::of(&[]).unwrap().unwrap();
    assert_eq!(both.targets, ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]);
    let one = Options::of(&["--target", "aarch64-unknown-linux-gnu", "--out", "here"]).unwrap().unwrap();
    assert_eq!((one.targets, one.out), (vec!["aarch64-unknown-linux-gnu".to_owned()], PathBuf::from("here")));
    assert_eq!(Options::of(&["--help"]).unwrap(), None);
    for wrong in [&["--target"][..], &["--target", "wasm32-wasip1"], &["--out"], &["--fast"]] {
        assert!(Options::of(wrong).is_err(), "{wrong:?}");
    }
}
