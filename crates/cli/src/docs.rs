//! `docs`: what documents repeat of the code, written between markers.

use std::{fmt::Write, fs, process::ExitCode};

use anyhow::{Context, bail};
use passmuster_collectives::{algorithms, collective::Collective};
use xshell::{Shell, cmd};

use crate::{FINDING, project};

/// Write the parts of README.md and docs/ that repeat what the code says.
///
/// A part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is written there by hand is lost.
#[derive(clap::Args)]
pub(crate) struct Docs {
    /// Change nothing, and exit 1 where a document is not what would be written.
    #[arg(long)]
    pub(crate) check: bool,
}

/// A part of a document: its name in markers, and what makes it.
type Part = (&'static str, fn() -> anyhow::Result<String>);

const PARTS: [Part; 1] = [("algorithms", table_of_algorithms)];

impl Docs {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        project::enter(sh)?;
        let mut differ = Vec::new();
        let mut written = [false; PARTS.len()];
        for path in cmd!(sh, "git ls-files --cached --others --exclude-standard -- *.md").quiet().read()?.lines() {
            let file = sh.current_dir().join(path);
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let renewed = renew(&text, &mut written).with_context(|| path.to_owned())?;
            if renewed != text {
                differ.push(path.to_owned());
                if !self.check {
                    fs::write(&file, renewed).with_context(|| format!("cannot write {path}"))?;
                }
            }
        }
        if let Some(index) = written.iter().position(|written| !written) {
            bail!("no document has a part `{}`", PARTS[index].0);
        }
        if self.check && !differ.is_empty() {
            println!("not what the code says, `cargo xtask docs` writes it anew: {}", differ.join(", "));
            return Ok(ExitCode::from(FINDING));
        }
        println!(
            "{} parts, {}",
            PARTS.len(),
            if differ.is_empty() { "all as they were".into() } else { format!("written: {}", differ.join(", ")) }
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// A document with its parts made anew, and which parts it has.
///
/// # Errors
/// A marker without its other, or of no part there is, with its line.
fn renew(text: &str, written: &mut [bool; PARTS.len()]) -> anyhow::Result<String> {
    let marker = |line: &str, what: &str| Some(line.strip_prefix(&format!("<!-- {what} "))?.strip_suffix(" -->")?.to_owned());
    let (mut renewed, mut open) = (String::new(), None);
    for (number, line) in text.lines().enumerate() {
        let at = number + 1;
        if let Some(name) = marker(line, "begin") {
            if let Some((before, _)) = open {
                bail!("line {at}: a part within another, `{before}`");
            }
            let Some(index) = PARTS.iter().position(|(known, _)| *known == name) else {
                bail!("line {at}: no part is called `{name}`: expected one of {}", PARTS.map(|(name, _)| name).join(", "));
            };
            written[index] = true;
            writeln!(renewed, "{line}\n{}", PARTS[index].1()?.trim_end())?;
            open = Some((name, at));
        } else if let Some(name) = marker(line, "end") {
            match open.take() {
                Some((before, _)) if before == name => writeln!(renewed, "{line}")?,
                Some((before, begin)) => bail!("line {at}: `{name}` ends where `{before}` of line {begin} is open"),
                None => bail!("line {at}: `{name}` ends and has not begun"),
            }
        } else if open.is_none() {
            writeln!(renewed, "{line}")?;
        }
    }
    match open {
        Some((name, at)) => bail!("line {at}: `{name}` has no end"),
        None => Ok(renewed),
    }
}

/// The algorithms by collective.
fn table_of_algorithms() -> anyhow::Result<String> {
    let mut text = String::from("| collective | algorithms | only on the emulator (NVLink multicast) | peers |\n|---|---|---|---|\n");
    for collective in Collective::ALL {
        let named = |keep: &dyn Fn(&&&dyn algorithms::Algorithm) -> bool| {
            let of = algorithms::all().iter().filter(|algorithm| algorithm.collective() == collective).filter(keep);
            of.map(|algorithm| format!("`{}`", algorithm.name())).collect::<Vec<_>>().join(", ")
        };
        let ours = named(&|algorithm| !algorithm.is_peer() && !algorithm.uses_multicast());
        let multicast = named(&|algorithm| algorithm.uses_multicast());
        writeln!(text, "| {} | {ours} | {multicast} | {} |", collective.name(), named(&|algorithm| algorithm.is_peer()))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewed(text: &str) -> Result<String, String> {
        renew(text, &mut [false; PARTS.len()]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_stands_between_markers_is_made_anew_and_nothing_else() {
        let table = table_of_algorithms().unwrap();
        let text = "before\n<!-- begin algorithms -->\nold\n<!-- end algorithms -->\nafter\n";
        let expected = format!("before\n<!-- begin algorithms -->\n{}\n<!-- end algorithms -->\nafter\n", table.trim_end());
        assert_eq!(renewed(text).unwrap(), expected);
        assert_eq!(renewed(&expected).unwrap(), expected);
        assert!(table.contains("| all_reduce | `one_shot`, `two_shot`"), "{table}");
    }

    #[test]
    fn markers_that_do_not_fit_say_where() {
        for (text, expected) in [
            ("a\n<!-- begin algorithms -->\n", "line 2: `algorithms` has no end"),
            ("<!-- end algorithms -->\n", "line 1: `algorithms` ends and has not begun"),
            ("<!-- begin algorithm -->\n", "line 1: no part is called `algorithm`"),
        ] {
            let error = renewed(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
