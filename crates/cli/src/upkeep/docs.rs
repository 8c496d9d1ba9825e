//! `docs`: what documents repeat of the code and of records, written between markers.

mod beside;
mod bits;
mod code;
mod collectives;
mod committed;
mod examples;
mod judge;
mod litmus;
mod museum;
mod orders;
mod scenarios;
mod verdicts;

use std::{fmt::Write, fs, path::Path, process::ExitCode};

use anyhow::{Context, bail};
use passmuster_plan::collective::Collective;
use xshell::{Shell, cmd};

use crate::{FINDING, project};
use committed::Committed;

/// Write the generated parts of README.md and docs/.
///
/// A part is between `<!-- begin NAME -->` and `<!-- end NAME -->`. Do not edit it by hand. `code PATH` is a copy of that file. A part that is made from records
/// names them, and the kernels that have changed since.
#[derive(clap::Args)]
pub(crate) struct Docs {
    /// Change nothing, and exit 1 where a document is not what would be written.
    #[arg(long)]
    pub(crate) check: bool,
}

/// What makes a part of documents.
type Make = Box<dyn Fn(&Committed) -> anyhow::Result<String>>;

/// The parts of documents, by their names in markers.
fn parts() -> Vec<(String, Make)> {
    type Fixed = (&'static str, fn(&Committed) -> anyhow::Result<String>);
    const FIXED: [Fixed; 31] = [
        ("algorithms", code::table_of_algorithms),
        ("collectives", code::table_of_collectives),
        ("exit-status", code::table_of_exit_statuses),
        ("smoke", verdicts::smoke),
        ("trust", verdicts::trust),
        ("gpus", verdicts::on_gpus),
        ("ranks-in-processes", verdicts::in_processes),
        ("emulator", verdicts::on_the_emulator),
        ("mutants-by-rule", verdicts::mutants_by_rule),
        ("mutants-of-products", verdicts::mutants_of_products),
        ("mutants-of-examples", examples::mutants),
        ("judge-mutants", judge::table),
        ("judge-mutants-missed", judge::missed),
        ("litmus", litmus::table),
        ("orders", orders::table),
        ("museum", museum::table),
        ("museum-score", museum::last_line),
        ("speed", collectives::speed),
        ("beside", beside::collectives),
        ("beside-peers", beside::peers),
        ("beside-others", beside::others),
        ("beside-newest", beside::newest),
        ("repeated", collectives::repeated),
        ("premul_sum", collectives::premultiplied),
        ("all_gather_matmul-two", |committed| scenarios::products(committed, "h100x2-bench-all_gather_matmul")),
        ("all_gather_matmul-four", |committed| scenarios::products(committed, "h100x4-bench-all_gather_matmul")),
        ("matmul_reduce_scatter-two", |committed| scenarios::products(committed, "h100x2-bench-matmul_reduce_scatter")),
        ("matmul_reduce_scatter-four", |committed| scenarios::products(committed, "h100x4-bench-matmul_reduce_scatter")),
        ("overlap", scenarios::overlapped),
        ("fsdp", scenarios::steps),
        ("all_to_all-async", scenarios::deferred),
    ];
    let fixed = FIXED.into_iter().map(|(name, make)| (name.to_owned(), Box::new(make) as Make));
    let times = |of: Collective| (format!("times-{of}"), Box::new(move |committed: &Committed| collectives::times(committed, of)) as Make);
    let floors =
        |of: Collective| (format!("floors-{of}"), Box::new(move |committed: &Committed| collectives::floors(committed, of)) as Make);
    fixed.chain(Collective::ALL.map(times)).chain(Collective::ALL.map(floors)).collect()
}

/// What the name of a part begins with that is a file of code: `code examples/own_kernel/src/lib.rs`.
const CODE: &str = "code ";

/// A file as a block of code.
fn block(root: &Path, source: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(root.join(source)).with_context(|| format!("cannot read {source}"))?;
    let language = match source.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => "rust",
        Some("cu") => "cuda",
        Some("toml") => "toml",
        _ => bail!("no language is known of {source}: .rs, .cu or .toml"),
    };
    Ok(format!("```{language}\n{text}```"))
}

impl Docs {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let committed = Committed::new(&project::enter(sh)?);
        let (mut written, mut differ) = (Vec::new(), Vec::new());
        let parts = parts();
        let mut seen = vec![false; parts.len()];
        let paths = cmd!(sh, "git ls-files --cached --others --exclude-standard -- *.md").quiet().read()?;
        for path in paths.lines() {
            let file = sh.current_dir().join(path);
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let renewed = renew(&text, |name| {
                if let Some(source) = name.strip_prefix(CODE) {
                    return block(&sh.current_dir(), source);
                }
                let index = parts.iter().position(|(known, _)| known == name);
                let known = || parts.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
                let index = index.with_context(|| format!("expected `code PATH` or one of {}", known()))?;
                seen[index] = true;
                committed.quoted(&parts[index].1)
            });
            let renewed = renewed.with_context(|| path.to_owned())?;
            differ.extend(renewed.differ.iter().map(|what| format!("{path}:{what}")));
            if renewed.text != text {
                written.push(path);
                if !self.check {
                    fs::write(&file, renewed.text).with_context(|| format!("cannot write {path}"))?;
                }
            }
        }
        if let Some(index) = seen.iter().position(|seen| !seen) {
            bail!("no document has a part `{}`", parts[index].0);
        }
        Ok(if written.is_empty() {
            println!("{} parts, all as they were", parts.len());
            ExitCode::SUCCESS
        } else if self.check {
            differ.iter().for_each(|what| println!("{what}"));
            println!("not what the code and the records say (`cargo xtask docs` writes it): {}", written.join(", "));
            ExitCode::from(FINDING)
        } else {
            println!("{} parts, written: {}", parts.len(), written.join(", "));
            ExitCode::SUCCESS
        })
    }
}

/// A document with its parts made again.
struct Renewed {
    text: String,
    /// Of each part that is not what it was, the first line that differs.
    differ: Vec<String>,
}

/// Makes the parts of a document again by `make`, which gets their names.
///
/// # Errors
/// A marker without its other, or a part that cannot be made, with its line.
fn renew(text: &str, mut make: impl FnMut(&str) -> anyhow::Result<String>) -> anyhow::Result<Renewed> {
    let marker = |line: &str, what: &str| Some(line.strip_prefix(&format!("<!-- {what} "))?.strip_suffix(" -->")?.to_owned());
    let mut renewed = Renewed { text: String::new(), differ: Vec::new() };
    // Of the part that is open, its name, the line of its marker, what it is to be, and what stands there.
    let mut open: Option<(String, usize, String, Vec<&str>)> = None;
    for (at, line) in (1..).zip(text.lines()) {
        if let Some(name) = marker(line, "begin") {
            if let Some((before, ..)) = open {
                bail!("line {at}: a part within another, `{before}`");
            }
            let made = make(&name).with_context(|| format!("line {at}: no part `{name}` can be made"))?;
            let made = made.trim_end().to_owned();
            writeln!(renewed.text, "{line}\n{made}")?;
            open = Some((name, at, made, Vec::new()));
        } else if let Some(name) = marker(line, "end") {
            match open.take() {
                Some((before, begin, made, stands)) if before == name => {
                    writeln!(renewed.text, "{line}")?;
                    renewed.differ.extend(difference(&name, begin, &made, &stands));
                }
                Some((before, begin, ..)) => bail!("line {at}: `{name}` ends where `{before}` of line {begin} is open"),
                None => bail!("line {at}: `{name}` ends and has not begun"),
            }
        } else if let Some((.., stands)) = &mut open {
            stands.push(line);
        } else {
            writeln!(renewed.text, "{line}")?;
        }
    }
    match open {
        Some((name, at, ..)) => bail!("line {at}: `{name}` has no end"),
        None => Ok(renewed),
    }
}

/// The first line in which a part is not what it is to be.
fn difference(name: &str, begin: usize, made: &str, stands: &[&str]) -> Option<String> {
    let made: Vec<&str> = made.lines().collect();
    let index = (0..made.len().max(stands.len())).find(|&index| made.get(index) != stands.get(index))?;
    let or_nothing = |line: Option<&&str>| line.map_or("nothing".to_owned(), |line| format!("`{line}`"));
    let (expected, found) = (or_nothing(made.get(index)), or_nothing(stands.get(index)));
    Some(format!("{}: part `{name}` has {found}, expected {expected}", begin + 1 + index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewed(text: &str) -> Result<Renewed, String> {
        let make = |name: &str| if name == "speed" { Ok("| a |\n| 1.25 us |\n".into()) } else { bail!("expected one of speed") };
        renew(text, make).map_err(|error| format!("{error:#}"))
    }

    /// If this fails, a figure that nobody measured passes, or text that people wrote is lost.
    #[test]
    fn a_changed_figure_is_reported_and_made_again() {
        let right = "before\n<!-- begin speed -->\n| a |\n| 1.25 us |\n<!-- end speed -->\nafter\n";
        let same = renewed(right).unwrap();
        assert_eq!((same.text.as_str(), same.differ), (right, Vec::new()));
        let changed = renewed(&right.replace("1.25", "1.20")).unwrap();
        assert_eq!(changed.differ, ["4: part `speed` has `| 1.20 us |`, expected `| 1.25 us |`"]);
        assert_eq!(changed.text, right);
        let longer = renewed(&right.replace("us |", "us |\n| 1 us |")).unwrap();
        assert_eq!((longer.differ, longer.text.as_str()), (vec!["5: part `speed` has `| 1 us |`, expected nothing".to_owned()], right));
    }

    /// If this fails, a tutorial's code is not marked as such, or is shown as something else.
    #[test]
    fn a_file_of_code_is_a_block_of_its_language() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let shown = block(root, "src/units.rs").unwrap();
        assert!(shown.starts_with("```rust\n//!") && shown.ends_with("}\n```"), "{shown}");
        assert_eq!(block(root, "README.md").unwrap_err().to_string(), "no language is known of README.md: .rs, .cu or .toml");
        assert_eq!(block(root, "src/none.rs").unwrap_err().to_string(), "cannot read src/none.rs");
    }

    #[test]
    fn markers_that_do_not_fit_say_where() {
        for (text, expected) in [
            ("a\n<!-- begin speed -->\n", "line 2: `speed` has no end"),
            ("<!-- end speed -->\n", "line 1: `speed` ends and has not begun"),
            ("<!-- begin sped -->\n", "line 1: no part `sped` can be made: expected one of speed"),
            ("<!-- begin speed -->\n<!-- end trust -->\n", "line 2: `trust` ends where `speed` of line 1 is open"),
        ] {
            let Err(error) = renewed(text) else { panic!("{text} passes") };
            assert_eq!(error, expected);
        }
    }
}
