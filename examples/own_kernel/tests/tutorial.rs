//! docs/tutorial-algorithm.md, followed from an empty folder: what it shows is all that a crate needs.
//!
//! cargo checks the crate that the document shows, and resolves its packages offline. What its commands would then build again has been built for these tests,
//! of the same files: `cargo run` is this crate's binary, and `cargo test` is the test target `conformance`, which runs beside this one.

#[path = "../../../tests/commands/followed/mod.rs"]
mod followed;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use followed::{Block, Shell, What, blocks};

const OWN_KERNEL: &str = env!("CARGO_BIN_EXE_own_kernel");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn document() -> Vec<Block> {
    blocks(&read("docs/tutorial-algorithm.md"))
}

/// Runs cargo offline in a folder, with the lock file and the builds of the repository.
fn cargo(folder: &Path, arguments: &[&str]) {
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    // target/debug/deps/this
    let target = env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(arguments).arg("--offline").current_dir(folder).env("CARGO_TARGET_DIR", target.join("tutorial"));
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
}

/// A dependency on this checkout in place of one by the document's path or address.
fn by_path(manifest: &str) -> String {
    let here = format!("passmuster = {{ path = \"{}\" }}", root().display());
    let lines = manifest.lines().map(|line| if line.starts_with("passmuster = {") { here.as_str() } else { line });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// A folder with the files of the crate that the document shows.
fn written(shell: &Shell) -> Vec<String> {
    let mut files = Vec::new();
    for block in document() {
        if let What::Made(name) = &block.what {
            let path = name.strip_prefix("code examples/own_kernel/").unwrap_or_else(|| panic!("line {}: {name}", block.line));
            shell.write(path, &if path == "Cargo.toml" { by_path(&block.text) } else { block.text });
            files.push(path.to_owned());
        }
    }
    files
}

/// If this fails, somebody who does what the tutorial says gets an error: a file is not shown, a command is wrong, or their kernel is another one.
#[test]
fn commands_pass_from_an_empty_folder() {
    let run = format!("\"run --\" | \"run --release\") while [[ $1 != -- ]]; do shift; done; shift; exec '{OWN_KERNEL}' \"$@\" ;;");
    let shell = Shell::new("algorithm", OWN_KERNEL, &format!("{run}\n\"test --test\") [[ $3 == conformance ]] ;;"));
    let files = written(&shell);
    assert_eq!(files, ["Cargo.toml", "kernels/mine.cu", "src/lib.rs", "src/main.rs", "tests/conformance.rs"]);
    // The compiler is installed in the checkout, if it is nowhere.
    let check =
        Command::new(OWN_KERNEL).args(["compile", "--check", "examples/own_kernel/kernels/mine.cu"]).current_dir(root()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr));
    fs::create_dir_all(shell.folder().join("target")).unwrap();
    std::os::unix::fs::symlink(root().join("target/cuda"), shell.folder().join("target/cuda")).unwrap();
    let mut done = 0;
    for block in document().iter().filter(|block| block.what == What::Plain && block.is_commands()) {
        done += shell.follow(&root(), "docs/tutorial-algorithm.md", block);
        if done == 1 {
            assert_eq!(fs::read_to_string(shell.folder().join("kernels/mine.ptx")).unwrap(), "");
        }
    }
    assert!(done >= 4, "{done} commands");
    let ptx = fs::read_to_string(shell.folder().join("kernels/mine.ptx")).unwrap();
    assert!(ptx == read("examples/own_kernel/kernels/mine.ptx"), "the kernel is another than the one that these tests run");
}

/// If this fails, the crate that the tutorial shows does not build.
#[test]
fn the_crate_that_is_shown_builds() {
    let shell = Shell::new("crate", OWN_KERNEL, "");
    written(&shell);
    shell.write("kernels/mine.ptx", "");
    cargo(shell.folder(), &["check", "--quiet", "--all-targets"]);
}

/// If this fails, cargo refuses what the tutorial has people write in a repository of their own.
#[test]
fn a_dependency_by_address_is_resolved() {
    let shell = Shell::new("address", OWN_KERNEL, "");
    written(&shell);
    let shown = document().into_iter().find(|block| block.language == "toml" && block.what == What::Plain).unwrap().text;
    assert!(shown.contains("passmuster = { git = \"https://github.com/passmuster/passmuster\" }"), "{shown}");
    let manifest = fs::read_to_string(shell.folder().join("Cargo.toml")).unwrap();
    let (before, after) = manifest.split_once("[dependencies]\n").unwrap();
    let after = after.split_once("\n\n").unwrap().1;
    shell.write("Cargo.toml", &format!("{before}{after}\n{}", by_path(&shown)));
    cargo(shell.folder(), &["metadata", "--format-version", "1", "--quiet"]);
}

/// If this fails, an algorithm that is moved into passmuster as the tutorial and CONTRIBUTING.md say does not build there.
#[test]
fn an_algorithm_moves_into_passmuster() {
    let (tutorial, contributing) = (read("docs/tutorial-algorithm.md"), read("CONTRIBUTING.md"));
    let section = |text: &str, head: &str| text.split_once(head).unwrap().1.split("\n## ").next().unwrap().to_owned();
    let tutorial = section(&tutorial, "\n## Move it into passmuster\n");
    let contributing = section(&contributing, "\n## Add an algorithm\n");
    let says = [
        "`kernels/all_reduce/`",
        "`crates/kernels/src/all_reduce/`",
        "`module!(\"all_reduce/mine\", sites)`",
        "`passmuster_plan::`",
        "`mod.rs`",
    ];
    for said in says {
        assert!(tutorial.contains(said), "the tutorial no longer says what is done here: {said}");
    }
    for said in [
        "`kernels/COLLECTIVE/NAME.cu`",
        "`NAME.rs` in `crates/kernels/src/COLLECTIVE/`",
        "`all` in the `mod.rs`",
        "empty files for its PTX",
    ] {
        assert!(contributing.contains(said), "CONTRIBUTING.md no longer says what is done here: {said}");
    }
    let shell = Shell::new("moved", OWN_KERNEL, "");
    let files = Command::new("git")
        .args(["ls-files", "-z", "Cargo.*", ".cargo", "crates/plan", "crates/kernels", "kernels", "fixtures"])
        .current_dir(root())
        .output()
        .unwrap();
    for path in String::from_utf8(files.stdout).unwrap().split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (root().join(path), shell.folder().join(path));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if from.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from).unwrap(), to).unwrap();
        } else if !path.starts_with("fixtures/records/") {
            fs::copy(from, to).unwrap();
        }
    }
    // 1 and 2: the files, and the module.
    let kernel = read("examples/own_kernel/kernels/mine.cu").replace("\"passmuster/", "\"../common/");
    shell.write("kernels/all_reduce/mine.cu", &kernel);
    let rust =
        read("examples/own_kernel/src/lib.rs").replace("#![forbid(unsafe_code)]\n", "").replace("passmuster::{", "passmuster_plan::{");
    let (before, after) = rust.split_once("/// passmuster's algorithms, and ours.").unwrap();
    let rust = format!("{before}{}", after.split_once("}\n\n").unwrap().1);
    let rust = rust.replace(
        "Module::new(\"all_reduce/mine\", include_str!(\"../kernels/mine.ptx\")).with_sites()",
        "module!(\"all_reduce/mine\", sites)",
    );
    shell.write("crates/kernels/src/all_reduce/mine.rs", &rust);
    // 3: the list of the collective.
    let list = fs::read_to_string(shell.folder().join("crates/kernels/src/all_reduce/mod.rs")).unwrap();
    let list = list.replacen("mod multimem;", "mod mine;\nmod multimem;", 1).replacen(
        "pub use multimem",
        "pub use mine::Mine;\npub use multimem",
        1,
    );
    shell.write("crates/kernels/src/all_reduce/mod.rs", &list.replacen("vec![", "vec![\n        Arc::new(Mine),", 1));
    // 4: its PTX.
    shell.write("kernels/ptx/all_reduce/mine.ptx", "");
    // The two crates alone.
    let workspace = fs::read_to_string(shell.folder().join("Cargo.toml")).unwrap();
    let (_, workspace) = workspace.split_once("\n[workspace]\n").unwrap();
    let members = "members = [\"crates/*\", \"examples/own_kernel\", \"xtask\"]";
    assert!(workspace.contains(members));
    shell.write("Cargo.toml", &format!("[workspace]\n{}", workspace.replace(members, "members = [\"crates/*\"]")));
    cargo(shell.folder(), &["check", "--quiet", "--package", "passmuster-kernels"]);
}
