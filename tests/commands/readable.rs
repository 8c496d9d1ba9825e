//! What people read of a mistake or a bug: the whole output of a command on each wrong input of `fixtures/readable/`.
//!
//! Each is at most a page, and names the true cause within its first lines. The sentence that it has to say stands in the input, and the whole output in a snapshot.

mod folder;

use std::{fs, path::Path, process::Command};

use insta::{Settings, assert_snapshot};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

use folder::Folder;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Lines of a page.
const MOST_LINES: usize = 40;

/// Lines within which the cause is named.
const CAUSE: usize = 5;

/// One wrong input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrong {
    /// What is wrong, for who reads the snapshot.
    what: String,
    /// The folder whose files are copied, from the root.
    copies: String,
    /// The command, run in that copy.
    run: String,
    /// Its exit status.
    status: i32,
    /// What its first lines have to say.
    says: String,
    /// What is changed in the copies, where it stands first.
    #[serde(default)]
    edit: Vec<Edit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    find: String,
    put: String,
}

impl Wrong {
    /// A folder with the copies, changed.
    fn copied(&self, name: &str) -> Folder {
        let folder = Folder::new(&format!("readable-{name}"));
        for entry in fs::read_dir(Path::new(ROOT).join(&self.copies)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.file(&path.file_name().unwrap().to_string_lossy())).unwrap();
        }
        for Edit { file, find, put } in &self.edit {
            let text = folder.read(file);
            assert!(text.contains(find.as_str()), "{file} has no {find}");
            folder.write(file, &text.replacen(find, put, 1));
        }
        folder
    }

    fn is_readable(&self, name: &str) {
        assert!(!self.says.is_empty(), "the input does not say what its first lines have to say");
        let folder = self.copied(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
        let words = shell_words(&self.run);
        for variable in ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CARGO", "FORCE_COLOR"] {
            command.env_remove(variable);
        }
        let output = command.current_dir(folder.path()).args(&words).output().unwrap();
        let [findings, notes] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        // How often progress is said depends on the machine.
        let is_progress =
            |line: &&str| line.contains(" of ") && line.contains(" after ") && line.starts_with(|first: char| first.is_ascii_digit());
        let notes: String = notes.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect();
        assert_eq!(output.status.code(), Some(self.status), "{findings}{notes}");
        let lines = findings.lines().count() + notes.lines().count();
        assert!(lines <= MOST_LINES, "{lines} lines:\n{findings}{notes}");
        // Of wrong usage there is nothing but notes.
        let read = if findings.is_empty() { &notes } else { &findings };
        let first: Vec<&str> = read.lines().take(CAUSE).collect();
        assert!(first.join("\n").contains(&self.says), "`{}` is not in the first {CAUSE} lines:\n{findings}{notes}", self.says);
        let mut settings = Settings::clone_current();
        settings.set_snapshot_path("../../fixtures/readable");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_description(&self.what);
        let text = format!("$ passmuster {}\n{findings}{notes}", self.run).replace(env!("CARGO_BIN_EXE_passmuster"), "passmuster");
        settings.bind(|| assert_snapshot!(name, timeless(&text)));
    }
}

/// The same without times, which differ from run to run.
fn timeless(text: &str) -> String {
    let of_line = |line: &str| {
        // How long it may take depends on how many processors there are.
        if let Some((cases, _)) = line.split_once(" cases on the emulator") {
            return format!("{cases} cases on the emulator: ?");
        }
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            let is_unit = ["s", "min"].contains(&words[at].trim_end_matches([',', ')', ':']));
            let number = words[at - 1].trim_start_matches('(');
            if is_unit && number.parse::<f64>().is_ok() {
                words[at - 1] = words[at - 1].replace(number, "?");
            }
        }
        words.join(" ")
    };
    text.lines().map(|line| of_line(line) + "\n").collect()
}

/// The words of a command, of which those in single quotes are one.
fn shell_words(line: &str) -> Vec<String> {
    let words = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

fn main() {
    let mut trials = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join("fixtures/readable")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        trials.push(Trial::test(name.clone(), move || {
            let text = fs::read_to_string(&path)?;
            let wrong: Wrong = toml::from_str(&text).map_err(|error| Failed::from(error.to_string()))?;
            wrong.is_readable(&name);
            Ok(())
        }));
    }
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
