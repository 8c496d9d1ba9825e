//! What becomes of timings: tables for people, files for programs, and the comparison with a baseline.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use passmuster::{
    bench::{
        Contents, Inks, Judged, Method, Table, Timing, ahead, baseline, contests, csv, kind_of, nccl_tests, page, plots, sections, tables,
    },
    conformance::report::Record,
    machine::MachineInfo,
};

/// Where timings go besides the terminal.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Write the record of the run (docs/record-schema.md).
    #[arg(long, value_name = "FILE", visible_alias = "save")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a line for each contender, size and way of launching.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write what nccl-tests' -J does, a file for each contender and world size.
    #[arg(long, value_name = "DIR")]
    nccl_tests: Option<PathBuf>,
    /// Write plots of time, bus bandwidth and how far ours is ahead over size, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Write one page with verdicts, tables, plots, machine and method, which opens without a network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Compare with an earlier record: exit 1 where an algorithm of ours is slower beyond the noise and --threshold.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Per cent by which times may change from one run to another without meaning anything.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    threshold: f64,
    /// Compare with a baseline of another machine, too.
    #[arg(long)]
    force: bool,
}

/// What showing came to.
pub(super) struct Shown {
    /// An algorithm of ours is slower than in the baseline.
    pub(super) regressed: bool,
    /// A file could not be written.
    pub(super) unwritten: bool,
    /// There is a baseline, and nothing in it to compare with.
    pub(super) uncompared: bool,
}

impl Output {
    /// The baseline that was asked for.
    ///
    /// # Errors
    /// Where it cannot be read, before anything is timed.
    pub(super) fn baseline(&self) -> anyhow::Result<Option<Record<Timing>>> {
        self.baseline.as_deref().map(read).transpose()
    }

    /// Refuses a baseline of another machine, unless it is forced.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn comparable(&self, machine: &MachineInfo, baseline: &Record<Timing>) -> anyhow::Result<()> {
        match baseline::same_machine(machine, &baseline.machine) {
            Err(differs) if !self.force => bail!("{differs}; --force compares all the same"),
            Err(differs) => eprintln!("{differs}"),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Prints the tables, then writes what was asked for; records of other commands are on the page and in the Markdown only. A file that cannot be written takes nothing back: it is said, and the rest is done.
    ///
    /// # Errors
    /// A baseline of another machine.
    pub(super) fn show(
        &self,
        record: &Record<Timing>,
        judged: &[Judged],
        hidden: Option<u64>,
        baseline: Option<&Record<Timing>>,
    ) -> anyhow::Result<Shown> {
        let mut tables = tables(&record.cases, &record.machine, hidden);
        let mut comparison = None;
        let (mut regressed, mut uncompared) = (false, false);
        if let Some(earlier) = baseline {
            let (changes, alone) = baseline::compare(&record.cases, &earlier.cases, self.threshold / 100.0);
            regressed = baseline::has_regressed(&changes);
            uncompared = changes.is_empty();
            let mut table = baseline::changed(&changes);
            if alone > 0 {
                table.title += &format!("; {alone} figures are not in the baseline, or by another method");
            }
            tables.push(table.clone());
            comparison = Some(table);
        }
        print(record, &tables);
        if uncompared {
            eprintln!("nothing was compared: the baseline has none of what was timed, by the same method");
        }
        let mut files = vec![
            written(self.json.as_deref(), || Ok(serde_json::to_string(record)?)),
            written(self.markdown.as_deref(), || Ok(markdown(tables.iter().chain(of_judged(judged))))),
            written(self.csv.as_deref(), || Ok(csv(&record.cases))),
            written(self.html.as_deref(), || {
                Ok(page(&Contents { timed: std::slice::from_ref(record), judged, against: comparison.as_slice(), hidden }))
            }),
        ];
        if let Some(dir) = &self.nccl_tests {
            let write = |(name, document)| written(Some(&dir.join::<String>(name)), || Ok(serde_json::to_string_pretty(&document)?));
            files.extend(nccl_tests(record).into_iter().map(write));
        }
        if let Some(dir) = &self.plot {
            let sections = sections(&record.cases);
            let inks = Inks::of(&sections);
            let of_sections = sections.iter().flat_map(|section| plots(section, &record.machine, &inks));
            for plot in of_sections.chain(contests(&record.cases).iter().filter_map(ahead)) {
                files.push(written(Some(&dir.join(format!("{}.svg", plot.name))), || Ok(plot.svg()?)));
                files.push(said(plot.write_png(&dir.join(format!("{}.png", plot.name)))));
            }
        }
        let unwritten = files.contains(&false);
        Ok(Shown { regressed, unwritten, uncompared })
    }

    /// The same of several records, each by itself, as far as they go together. Whether all files could be written.
    pub(super) fn show_separately(&self, timed: &[Record<Timing>], judged: &[Judged], hidden: Option<u64>) -> bool {
        let each: Vec<Vec<Table>> = timed.iter().map(|record| tables(&record.cases, &record.machine, hidden)).collect();
        for (record, tables) in timed.iter().zip(&each) {
            println!("{} x {}, {}", record.machine.gpus, record.machine.gpu, record.date);
            print(record, tables);
        }
        let markdown = written(self.markdown.as_deref(), || Ok(markdown(each.iter().flatten().chain(of_judged(judged)))));
        written(self.html.as_deref(), || Ok(page(&Contents { timed, judged, against: &[], hidden }))) && markdown
    }

    /// Refuses options that are for timings.
    ///
    /// # Errors
    /// Which was given.
    pub(super) fn without_timings(&self) -> anyhow::Result<()> {
        let given = [
            ("--json", &self.json),
            ("--csv", &self.csv),
            ("--nccl-tests", &self.nccl_tests),
            ("--plot", &self.plot),
            ("--baseline", &self.baseline),
        ];
        match given.into_iter().find(|(_, path)| path.is_some()) {
            Some((option, _)) => bail!("{option} is for records of bench, and there is none"),
            None => Ok(()),
        }
    }
}

/// The tables of records of other commands.
fn of_judged(judged: &[Judged]) -> impl Iterator<Item = &Table> {
    judged.iter().flat_map(|record| &record.tables)
}

/// The methods of a record, and tables.
fn print(record: &Record<Timing>, tables: &[Table]) {
    let mut methods: Vec<Method> = Vec::new();
    for timing in &record.cases {
        if !methods.contains(&timing.method) {
            println!("{}", timing.method);
            methods.push(timing.method);
        }
    }
    for table in tables {
        println!("\n{}", table.aligned());
    }
}

fn markdown<'a>(tables: impl Iterator<Item = &'a Table>) -> String {
    tables.map(Table::markdown).collect::<Vec<_>>().join("\n")
}

/// Writes a file that was asked for, into a folder that is made if need be. Where it cannot be, says so and returns false.
pub(super) fn written(path: Option<&Path>, text: impl FnOnce() -> anyhow::Result<String>) -> bool {
    let Some(path) = path else { return true };
    let write = |text| {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    said(text().and_then(|text| write(text).with_context(|| format!("cannot write {}", path.display()))))
}

/// Whether it went well; says what did not.
fn said(result: Result<(), impl std::fmt::Display>) -> bool {
    result.map_err(|error| eprintln!("{error:#}")).is_ok()
}

/// A record of some command.
pub(super) enum AnyRecord {
    Timed(Box<Record<Timing>>),
    Judged(Box<Judged>),
}

/// Reads a record of any command that can be shown. What it is of is looked at first.
///
/// # Errors
/// Where it cannot be read, is none, or is of another command.
pub(super) fn read_any(path: &Path) -> anyhow::Result<AnyRecord> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.display();
    let kind = kind_of(&text).with_context(|| format!("{name} is no record"))?;
    Ok(match kind.as_str() {
        "bench" => AnyRecord::Timed(Box::new(serde_json::from_str(&text).with_context(|| format!("{name} is no whole record of bench"))?)),
        _ => AnyRecord::Judged(Box::new(Judged::read(&text).with_context(|| format!("cannot show {name}"))?)),
    })
}

/// Reads a record of `bench`.
///
/// # Errors
/// Where it cannot be read, or is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Record<Timing>> {
    match read_any(path)? {
        AnyRecord::Timed(record) => Ok(*record),
        AnyRecord::Judged(record) => bail!("{} is a record of {}, not of bench", path.display(), record.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("passmuster-{name}-{}.json", std::process::id()));
        fs::write(&path, text).unwrap();
        let read = read_any(&path);
        fs::remove_file(&path).unwrap();
        let Err(error) = read else { panic!("{name} was read") };
        format!("{error:#}").replace(&path.display().to_string(), "FILE")
    }

    /// If this fails, a record of another command fails somewhere inside serde, and not by what it is.
    #[test]
    fn a_record_is_read_by_what_it_is_of() {
        let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/records").join(name);
        assert!(matches!(read_any(&fixture("h200x2-bench-fsdp.json")), Ok(AnyRecord::Timed(_))));
        for name in ["h200x2-faults.json", "h200x2-mutants-products.json", "ledger.json"] {
            assert!(matches!(read_any(&fixture(name)), Ok(AnyRecord::Judged(_))), "{name}");
            assert!(read(&fixture(name)).is_err_and(|error| error.to_string().ends_with("not of bench")), "{name} as a baseline");
        }
        assert_eq!(
            refused("tune", r#"{"kind": "tune", "cases": [1]}"#),
            "cannot show FILE: a record of `tune`, and report renders those of bench, validate, test-gpu, mutants, ledger"
        );
        assert!(refused("no-kind", r#"{"cases": []}"#).starts_with("FILE is no record: missing field `kind`"));
        assert!(refused("cut", r#"{"kind": "bench", "cases": ["#).starts_with("FILE is no record: EOF"));
        assert!(refused("half", r#"{"kind": "bench", "cases": []}"#).starts_with("FILE is no whole record of bench: missing field"));
    }
}
