//! What `cargo xtask test` selects, in repositories made for it and of this one's files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use xshell::{Shell, cmd};
use xtask::test::{
    affected::{Selection, select},
    changes::{base, changed},
};

/// A repository with a branch `work` that began at `main`.
struct Repository {
    path: PathBuf,
    sh: Shell,
}

impl Repository {
    fn new(name: &str) -> Repository {
        let path = std::env::temp_dir().join(format!("passmuster-selection-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let sh = Shell::new().unwrap();
        sh.change_dir(&path);
        // Nobody's configuration is read.
        for (variable, value) in [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")] {
            sh.set_var(variable, value);
        }
        for who in ["AUTHOR", "COMMITTER"] {
            sh.set_var(format!("GIT_{who}_NAME"), "tester");
            sh.set_var(format!("GIT_{who}_EMAIL"), "tester@example.org");
        }
        let repository = Repository { path, sh };
        repository.git("init --quiet --initial-branch main");
        repository.write("README.md", "first");
        repository.write("crates/emulator/src/lib.rs", "first");
        repository.commit("first");
        repository.git("checkout --quiet -b work");
        repository
    }

    fn git(&self, arguments: &str) {
        let arguments = arguments.split(' ');
        cmd!(self.sh, "git {arguments...}").quiet().ignore_stdout().run().unwrap();
    }

    fn write(&self, file: &str, text: &str) {
        self.sh.write_file(file, text).unwrap();
    }

    fn commit(&self, message: &str) {
        self.git("add --all");
        cmd!(self.sh, "git commit --quiet --message {message}").quiet().run().unwrap();
    }

    fn changed(&self) -> Vec<String> {
        changed(&self.sh, &base(&self.sh, None).unwrap().unwrap()).unwrap()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// If this fails, somebody can make a test run or not by amending a message.
#[test]
fn messages_change_no_selection() {
    let repository = Repository::new("messages");
    repository.write("kernels/all_reduce/push.cu", "a kernel");
    repository.write("docs/soak.md", "text");
    repository.commit("a change");
    let mut commits = BTreeSet::new();
    let mut selections: Vec<Selection> = Vec::new();
    for message in 0..10 {
        let message = format!("message {message}");
        cmd!(repository.sh, "git commit --quiet --amend --message {message}").quiet().run().unwrap();
        commits.insert(cmd!(repository.sh, "git rev-parse HEAD").quiet().read().unwrap());
        selections.push(select(&repository.changed()));
    }
    assert_eq!(commits.len(), 10);
    assert!(selections.iter().all(|selection| *selection == selections[0] && selection.everything.is_none()), "{selections:#?}");
}

/// If this fails, something that was changed is not tested.
#[test]
fn every_kind_of_change_counts() {
    let repository = Repository::new("kinds");
    repository.write("committed.md", "text");
    repository.commit("a change");
    repository.write("staged.md", "text");
    repository.git("add staged.md");
    repository.write("docs/new.txt", "text");
    repository.write("README.md", "another text");
    repository.git("mv crates/emulator/src/lib.rs crates/emulator/src/moved.rs");
    let expected = ["README.md", "committed.md", "crates/emulator/src/lib.rs", "crates/emulator/src/moved.rs", "docs/new.txt", "staged.md"];
    assert_eq!(repository.changed(), expected);
}

/// If this fails, what others merged since the branch began counts as its change.
#[test]
fn changes_of_main_do_not_count() {
    let repository = Repository::new("main");
    repository.write("docs/own.txt", "text");
    repository.commit("own");
    repository.git("checkout --quiet main");
    repository.write("docs/of_others.txt", "text");
    repository.commit("of others");
    repository.git("checkout --quiet work");
    assert_eq!(repository.changed(), ["docs/own.txt"]);
}

#[test]
fn unknown_bases_are_refused() {
    let repository = Repository::new("unknown");
    assert!(base(&repository.sh, Some("no_such_branch")).is_err());
    repository.git("branch --quiet -D main");
    assert_eq!(base(&repository.sh, None).unwrap(), None);
}

/// If this fails, the map does not know a file of this tree, and a change of it runs everything for no better reason.
#[test]
fn every_tracked_file_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let unknown = |file: &&str| select(&[file.to_string()]).everything.is_some_and(|why| why.contains("does not know"));
    let unknown: Vec<&str> = files.split('\0').filter(|file| !file.is_empty()).filter(unknown).collect();
    assert!(output.status.success() && files.len() > 1000);
    assert!(unknown.is_empty(), "{unknown:#?}");
}
