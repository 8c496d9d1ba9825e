//! What becomes of timings: tables for people, files for programs, and the comparison with a baseline.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use passmuster_bench::{
    Contents, Inks, Judged, Method, Table, Timing, ahead, baseline, contests, csv, kind_of, nccl_tests, page, plots, sections, tables,
};
use passmuster_harness::conformance::report::Record;
use passmuster_plan::machine::MachineInfo;

use crate::{
    input, journal,
    result_file::{ResultFile, all_of, folder},
};

/// Where timings go besides the terminal.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Write the record of the run (docs/reference/record-schema-commands.md).
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

/// The files of that, which can be written.
pub(super) struct Files {
    pub(super) json: Option<ResultFile>,
    markdown: Option<ResultFile>,
    csv: Option<ResultFile>,
    html: Option<ResultFile>,
}

impl Files {
    /// Where what was timed so far is kept.
    ///
    /// # Errors
    /// As [`journal::kept_in`].
    pub(super) fn kept(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(self.json.as_ref().map(|json| journal::kept_in(json, None)).transpose()?.flatten())
    }
}

/// A record as it is shown.
pub(super) struct Shown {
    tables: Vec<Table>,
    /// With the baseline; also the last of the tables.
    comparison: Option<Table>,
    /// An algorithm of ours is slower than in the baseline.
    pub(super) regressed: bool,
    /// There is a baseline, and nothing in it to compare with.
    pub(super) uncompared: bool,
}

impl Shown {
    /// Prints the methods, and the tables.
    pub(super) fn print(&self, record: &Record<Timing>) {
        print(record, &self.tables);
        if self.uncompared {
            eprintln!("nothing was compared: the baseline has none of what was timed, by the same method");
        }
    }
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

    /// Sees whether all files that were asked for can be written. Folders are made.
    ///
    /// # Errors
    /// As [`ResultFile::open`].
    pub(super) fn files(&self) -> anyhow::Result<Files> {
        [&self.nccl_tests, &self.plot].into_iter().flatten().try_for_each(|path| folder(path))?;
        Ok(Files {
            json: ResultFile::asked(self.json.as_deref())?,
            markdown: ResultFile::asked(self.markdown.as_deref())?,
            csv: ResultFile::asked(self.csv.as_deref())?,
            html: ResultFile::asked(self.html.as_deref())?,
        })
    }

    /// The tables of a record, compared with the baseline where there is one.
    pub(super) fn compare(&self, record: &Record<Timing>, hidden: Option<u64>, baseline: Option<&Record<Timing>>) -> Shown {
        let tables = tables(&record.cases, &record.machine, hidden);
        let mut shown = Shown { tables, comparison: None, regressed: false, uncompared: false };
        if let Some(earlier) = baseline {
            let (changes, alone) = baseline::compare(&record.cases, &earlier.cases, self.threshold / 100.0);
            shown.regressed = baseline::has_regressed(&changes);
            shown.uncompared = changes.is_empty();
            let mut table = baseline::changed(&changes);
            if alone > 0 {
                table.title += &format!("; {alone} figures are not in the baseline, or by another method");
            }
            shown.tables.push(table.clone());
            shown.comparison = Some(table);
        }
        shown
    }

    /// Writes what was asked for; records of other commands are on the page and in the Markdown only. Where a file cannot be written, the others are all
    /// the same.
    ///
    /// # Errors
    /// Of all that cannot be written, with their paths.
    pub(super) fn write(
        &self,
        files: &Files,
        record: &Record<Timing>,
        judged: &[Judged],
        hidden: Option<u64>,
        shown: &Shown,
    ) -> anyhow::Result<()> {
        let contents = Contents { timed: std::slice::from_ref(record), judged, against: shown.comparison.as_slice(), hidden };
        let mut written = vec![
            write(&files.json, || record.to_json()),
            write(&files.markdown, || markdown(shown.tables.iter().chain(of_judged(judged)))),
            write(&files.csv, || csv(&record.cases)),
            write(&files.html, || page(&contents)),
        ];
        if let Some(dir) = &self.nccl_tests {
            let write = |(name, document): (String, _)| ResultFile::open(&dir.join(name))?.write(&serde_json::to_string_pretty(&document)?);
            written.extend(nccl_tests(record).into_iter().map(write));
        }
        if let Some(dir) = &self.plot {
            let sections = sections(&record.cases);
            let inks = Inks::of(&sections);
            let of_sections = sections.iter().flat_map(|section| plots(section, &record.machine, &inks));
            for plot in of_sections.chain(contests(&record.cases).iter().filter_map(ahead)) {
                let file = |kind| ResultFile::open(&dir.join(format!("{}.{kind}", plot.name)));
                written.push(file("svg").and_then(|file| file.write(&plot.svg()?)));
                written.push(file("png").and_then(|file| file.write_by(|path| Ok(plot.write_png(path)?))));
            }
        }
        all_of(written)
    }

    /// Shows several records, each by itself, as far as they go together, and writes what was asked for.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(super) fn show_separately(
        &self,
        files: &Files,
        timed: &[Record<Timing>],
        judged: &[Judged],
        hidden: Option<u64>,
    ) -> anyhow::Result<()> {
        let each: Vec<Vec<Table>> = timed.iter().map(|record| tables(&record.cases, &record.machine, hidden)).collect();
        let written = [
            write(&files.markdown, || markdown(each.iter().flatten().chain(of_judged(judged)))),
            write(&files.html, || page(&Contents { timed, judged, against: &[], hidden })),
        ];
        for (record, tables) in timed.iter().zip(&each) {
            println!("{} x {}, {}", record.machine.gpus, record.machine.gpu, record.date);
            print(record, tables);
        }
        all_of(written)
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

/// Writes a file that was asked for.
fn write(file: &Option<ResultFile>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    file.as_ref().map_or(Ok(()), |file| file.write(&text()))
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
    let text = input::record(path)?;
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
pub(crate) fn read(path: &Path) -> anyhow::Result<Record<Timing>> {
    match read_any(path)? {
        AnyRecord::Timed(record) => Ok(*record),
        AnyRecord::Judged(record) => bail!("{} is a record of {}, not of bench", path.display(), record.kind),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records").join(name);
        assert!(matches!(read_any(&fixture("h200x2-bench-fsdp.json")), Ok(AnyRecord::Timed(_))));
        for name in ["h200x2-faults.json", "h200x2-mutants-sync.json", "ledger.json"] {
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
