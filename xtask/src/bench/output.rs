//! What becomes of timings: tables for people, files for programs, and the comparison with a baseline.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use passmuster::conformance::report::Record;
use passmuster_bench::{Method, Table, Timing, baseline, csv, nccl_tests, page, pages, plots, sections, tables};
use passmuster_collectives::machine::MachineInfo;

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
    /// Write plots of time and bus bandwidth over size, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Write one page with tables, plots, machine and method, which opens without a network.
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

    /// Prints the tables, then writes what was asked for. A file that cannot be written takes nothing back: it is said, and the rest is done.
    ///
    /// # Errors
    /// A baseline of another machine.
    pub(super) fn show(&self, record: &Record<Timing>, hidden: Option<u64>, baseline: Option<&Record<Timing>>) -> anyhow::Result<Shown> {
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
            written(self.markdown.as_deref(), || Ok(markdown(&tables))),
            written(self.csv.as_deref(), || Ok(csv(&record.cases))),
            written(self.html.as_deref(), || Ok(page(record, hidden, comparison.as_slice()))),
        ];
        if let Some(dir) = &self.nccl_tests {
            let write = |(name, document)| written(Some(&dir.join::<String>(name)), || Ok(serde_json::to_string_pretty(&document)?));
            files.extend(nccl_tests(record).into_iter().map(write));
        }
        if let Some(dir) = &self.plot {
            for plot in sections(&record.cases).iter().flat_map(|section| plots(section, &record.machine)) {
                files.push(written(Some(&dir.join(format!("{}.svg", plot.name))), || Ok(plot.svg()?)));
                files.push(said(plot.write_png(&dir.join(format!("{}.png", plot.name)))));
            }
        }
        let unwritten = files.contains(&false);
        Ok(Shown { regressed, unwritten, uncompared })
    }

    /// The same of several records, each by itself, as far as they go together. Whether all files could be written.
    pub(super) fn show_separately(&self, records: &[Record<Timing>], hidden: Option<u64>) -> bool {
        let each: Vec<Vec<Table>> = records.iter().map(|record| tables(&record.cases, &record.machine, hidden)).collect();
        for (record, tables) in records.iter().zip(&each) {
            println!("{} x {}, {}", record.machine.gpus, record.machine.gpu, record.date);
            print(record, tables);
        }
        let markdown = written(self.markdown.as_deref(), || Ok(markdown(&each.concat())));
        written(self.html.as_deref(), || Ok(pages(records, hidden))) && markdown
    }
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

fn markdown(tables: &[Table]) -> String {
    tables.iter().map(|table| table.markdown()).collect::<Vec<_>>().join("\n")
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

/// Reads a record of `bench`.
///
/// # Errors
/// Where it cannot be read, or is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Record<Timing>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let record: Record<Timing> = serde_json::from_str(&text).with_context(|| format!("{} is no record of bench", path.display()))?;
    if record.kind != "bench" {
        bail!("{} is a record of {}, not of bench", path.display(), record.kind);
    }
    Ok(record)
}
