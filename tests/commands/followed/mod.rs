//! What documents show between fences, and a shell that does it.
//!
//! A block is one of:
//! - a part that `docs` makes, between `<!-- begin NAME -->` and `<!-- end NAME -->`; of `code PATH` it is that file;
//! - below `<!-- not run: REASON -->`, something that is not done;
//! - below `<!-- printed by: COMMAND -->`, a part of what that prints, with line breaks of the document's own;
//! - in no language, or `sh`: commands. After `$ ` stands a command, and below it what it prints: a line `...` stands for any lines. Without `$` each line is a command.
//! - in another language: part of a file, which a test of its own reads.
#![allow(dead_code, reason = "no test needs all of it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// One block of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line of its fence, counted from 1.
    pub line: usize,
    pub language: String,
    pub text: String,
    pub what: What,
}

/// What a document says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It is made by `docs`: the part's name.
    Made(String),
    /// It is not done: the reason.
    NotRun(String),
    /// This command prints it.
    PrintedBy(String),
    /// Nothing.
    Plain,
}

/// A command, and what the document says that it prints, if it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub line: String,
    pub prints: Option<Vec<String>>,
}

/// The blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let (mut blocks, mut part, mut marker, mut open) = (Vec::new(), None, None, None::<Block>);
    for (number, line) in (1..).zip(document.lines()) {
        let comment = |start: &str| Some(line.trim_start().strip_prefix(start)?.strip_suffix(" -->")?.to_owned());
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, Some(language)) => {
                let what = match (&part, marker.take()) {
                    (Some(name), _) => What::Made(String::clone(name)),
                    (None, marker) => marker.unwrap_or(What::Plain),
                };
                open = Some(Block { line: number, language: language.to_owned(), text: String::new(), what });
            }
            (None, None) => {
                if let Some(name) = comment("<!-- begin ") {
                    part = Some(name);
                } else if comment("<!-- end ").is_some() {
                    part = None;
                }
                marker = comment("<!-- not run: ").map(What::NotRun).or_else(|| comment("<!-- printed by: ").map(What::PrintedBy));
            }
        }
    }
    assert!(open.is_none(), "a fence has no end: {open:?}");
    blocks
}

impl Block {
    pub(crate) fn is_commands(&self) -> bool {
        ["", "sh"].contains(&&*self.language) && matches!(self.what, What::Plain | What::NotRun(_))
    }

    /// Its commands, without the comments behind them.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let quotes = self.text.lines().any(|line| line.starts_with("$ "));
        let mut steps: Vec<Step> = Vec::new();
        for line in self.text.lines() {
            let command = if quotes { line.strip_prefix("$ ") } else { Some(line.trim_start()) };
            let step = |command: &str| Step { line: without_comment(command), prints: None };
            match (command, steps.last_mut()) {
                (Some(command), _) => steps.extend((!command.is_empty()).then(|| step(command))),
                (None, Some(last)) => last.prints.get_or_insert_default().push(line.to_owned()),
                (None, None) => panic!("line {}: output without a command: {line}", self.line),
            }
        }
        steps
    }
}

/// A command without `  # ...`.
fn without_comment(line: &str) -> String {
    line.split("  #").next().unwrap_or_default().trim_end().to_owned()
}

/// Whether this was printed. Seconds of wall time may differ, and so may the name under which the command was called.
pub(crate) fn matches(expected: &[String], printed: &str) -> bool {
    let expected: Vec<String> = expected.iter().map(|line| normal(line)).collect();
    let printed: Vec<String> = printed.lines().map(normal).collect();
    lines_match(&expected, &printed)
}

fn lines_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.iter().all(|line| line.is_empty()),
        Some((line, rest)) if line == "..." => (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..])),
        Some((line, rest)) => printed.first() == Some(line) && lines_match(rest, &printed[1..]),
    }
}

/// A line with N in place of seconds, and one name of the command.
fn normal(line: &str) -> String {
    let line = line.trim_end().replace("cargo xtask ", "passmuster ");
    let words = line.split(' ').collect::<Vec<_>>();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let has_unit = |index: usize, unit: &str| {
        let next = words.get(index + 1).map(|next| next.trim_end_matches([')', ',', ';', '.', ':']));
        is_number(words[index]) && next == Some(unit)
    };
    let (mut kept, mut index) = (Vec::new(), 0);
    while index < words.len() {
        if has_unit(index, "min") {
            index += 2;
        } else {
            kept.push(if has_unit(index, "s") { "N" } else { words[index] });
            index += 1;
        }
    }
    kept.join(" ")
}

/// An empty folder in which a document is followed, and the programs that its commands get.
pub(crate) struct Shell {
    folder: PathBuf,
    programs: PathBuf,
}

impl Shell {
    /// `passmuster` and `cargo xtask` start that binary; what else cargo is asked for is what these lines of a `case` have, or fails.
    pub(crate) fn new(name: &str, passmuster: &str, of_cargo: &str) -> Shell {
        let place = std::env::temp_dir().join(format!("passmuster-followed-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let (folder, programs) = (place.join("folder"), place.join("programs"));
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&programs).unwrap();
        let script = |name: &str, text: String| {
            let path = programs.join(name);
            fs::write(&path, format!("#!/usr/bin/env bash\nset -eu\n{text}")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let start = format!("exec -a passmuster '{passmuster}' \"$@\"");
        script("passmuster", format!("{start}\n"));
        let other = "*) echo \"nothing stands for: cargo $*\" >&2; exit 97 ;;";
        script("cargo", format!("case \"$1 ${{2:-}}\" in\n\"xtask \"*) shift; {start} ;;\n{of_cargo}\n{other}\nesac\n"));
        Shell { folder, programs }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file, and the folders that it is in.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Copies what a command names of a checkout, if the folder does not have it: a file, and of a specification the PTX beside it.
    pub(crate) fn bring(&self, root: &Path, command: &str) {
        for word in command.split(' ').map(|word| word.trim_matches('\'')) {
            let from = root.join(word);
            if word.contains('/') && from.is_file() {
                let folder = Path::new(word).parent().unwrap();
                let beside = fs::read_dir(from.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
                let ptx = beside.filter(|path| word.ends_with(".toml") && path.extension().is_some_and(|kind| kind == "ptx"));
                for file in ptx.chain([from.clone()]) {
                    let to = self.folder.join(folder).join(file.file_name().unwrap());
                    fs::create_dir_all(to.parent().unwrap()).unwrap();
                    if !to.exists() {
                        fs::copy(file, to).unwrap();
                    }
                }
            }
        }
    }

    /// Does it.
    pub(crate) fn run(&self, command: &str) -> Output {
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        bash.args(["-c", command]).current_dir(&self.folder).env("PATH", path);
        // As at a desk, and not in a test.
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CI", "GITHUB_ACTIONS"] {
            bash.env_remove(name);
        }
        bash.output().unwrap()
    }

    /// Does the commands of a block, and returns how many. Each must exit 0, or 1 if the document shows a finding, and print what the document says.
    pub(crate) fn follow(&self, root: &Path, document: &str, block: &Block) -> usize {
        let steps = block.steps();
        for step in &steps {
            self.bring(root, &step.line);
            let output = self.run(&step.line);
            let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let place = format!("{document}:{}: {}", block.line, step.line);
            // A finding, if the document shows one.
            let finds = step.prints.iter().flatten().any(|line| line.starts_with("FAIL "));
            assert_eq!(output.status.code(), Some(i32::from(finds)), "{place}\n{printed}{errors}");
            if let Some(expected) = &step.prints {
                assert!(matches(expected, &printed), "{place}\nprints\n{printed}and the document says\n{}", expected.join("\n"));
            }
        }
        steps.len()
    }
}

impl Shell {
    /// Has the command print what the block has, whatever else it prints.
    pub(crate) fn prints(&self, root: &Path, document: &str, block: &Block, command: &str) {
        self.bring(root, command);
        let printed = self.run(command);
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_there = one_line(&printed).contains(&one_line(&block.text));
        assert!(is_there, "{document}:{}: {command}\nprints\n{printed}", block.line);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.folder.parent().unwrap());
    }
}
