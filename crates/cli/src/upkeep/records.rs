//! `records`: which committed records rest on kernels that have changed since, and which parts of documents rest on those.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use passmuster_bench::Timing;
use passmuster_harness::{
    conformance::{
        List, Status,
        manifest::{Manifest, RunsOn, of_list},
        report::{
            Record, Source, packed,
            provenance::{self, Freshness},
            table,
        },
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::Registry,
    modules::{FOREIGN, code_hash},
};
use serde::Serialize;
use serde_json::Value;
use xshell::Shell;

use crate::{
    FINDING, input,
    modules::{SHARED_PADS, of_mutant, of_timing, of_verdict},
    museum, project, require,
};

/// List the committed records whose kernels have changed since.
///
/// A record names each kernel that it ran, with a hash (docs/reference/record-schema.md). It is fresh if our kernels are unchanged, stale if one has changed, and
/// unknown if it does not name them. Documents name the records behind each part (`<!-- records: NAME -->`). If one of those is stale, the document must say so.
/// A record of the emulator must be fresh, since anybody can make it again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask records              which records are fresh, stale, unknown
  cargo xtask records --check      exit 1 if a document quotes a stale record
                                   and does not say so, or if a record of the
                                   emulator is stale
  cargo xtask records --mark       has the documents say what is stale
  cargo xtask records --manifests  writes fixtures/manifests/ from the lists
  cargo xtask records --require fixtures/manifests/gpus2-merge.toml merge.json
  cargo xtask records --same threads.json processes.json    the same bits?")]
pub(crate) struct Records {
    /// Records to check. The default is all in fixtures/records.
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Exit 1 if a document quotes a stale record and does not say so, or if a record of the emulator rests on a kernel that has changed.
    #[arg(long, conflicts_with = "records")]
    check: bool,
    /// Write the marks that documents lack, and remove those that no longer hold.
    #[arg(long, conflicts_with_all = ["records", "check"])]
    mark: bool,
    /// Write the manifests of the lists (fixtures/manifests/).
    #[arg(long, conflicts_with_all = ["records", "check", "mark"])]
    manifests: bool,
    /// Exit 1 if one of the records lacks what this manifest requires.
    #[arg(long, value_name = "FILE", requires = "records", value_parser = require::manifest)]
    require: Option<Manifest>,
    /// Compare output bits: exit 1 if a case differs from the first record, or if no case has outputs in all of them.
    #[arg(long, requires = "records", conflicts_with_all = ["require", "json"])]
    same: bool,
    /// Write what was found.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The manifest that says what of each kernel cases execute, and the record that knows.
const EXECUTED: &str = "emulator-merge";

/// Where committed records lie.
pub(crate) const FOLDER: &str = "fixtures/records";

/// One record, and what has changed since.
#[derive(Serialize)]
struct Looked {
    record: String,
    kind: String,
    freshness: Freshness,
    cases: usize,
    /// Of a stale one, the cases that rest on a kernel that has changed, or that no longer exist.
    resting: usize,
}

/// A part of a document that was made from records.
#[derive(Serialize)]
struct Quoted {
    document: String,
    line: usize,
    records: Vec<String>,
    changed: BTreeSet<String>,
    /// Whether it says so.
    marked: bool,
}

#[derive(Serialize)]
struct Found {
    records: Vec<Looked>,
    quotes: Vec<Quoted>,
    /// What is wrong with the documents.
    complaints: Vec<String>,
}

impl Records {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let given: Vec<PathBuf> = self.records.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
        let json = self.json.as_ref().map(std::path::absolute).transpose()?;
        let root = project::enter(sh)?;
        if self.manifests {
            return write_manifests(registry, &root);
        }
        let paths = if given.is_empty() { committed(&root)? } else { given };
        let records: Vec<(PathBuf, Value)> =
            paths.into_iter().map(|path| Ok((path.clone(), read(&path)?))).collect::<anyhow::Result<_>>()?;
        if let Some(manifest) = &self.require {
            return required(manifest, &records);
        }
        if self.same {
            return same(&records);
        }
        let looked = records.iter().map(|(path, record)| look(registry, path, record)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut found = Found { records: looked, quotes: Vec::new(), complaints: Vec::new() };
        if self.records.is_empty() {
            quotes(&root, self.mark, &mut found)?;
            for (path, record) in &records {
                found.complaints.extend(stale_on_emulator(registry, &root, path, record)?);
            }
        }
        show(&found);
        if let Some(path) = json {
            fs::write(&path, serde_json::to_string_pretty(&found)?).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(if self.check && !found.complaints.is_empty() { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
    }
}

fn committed(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot list {FOLDER}"))?;
    let mut paths: Vec<PathBuf> = folder.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| packed::name_of(path).is_some());
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = input::record(path)?;
    serde_json::from_str(&text).with_context(|| format!("{} is no record", path.display()))
}

/// The name that documents know a record by.
fn name(path: &Path) -> String {
    packed::name_of(path).map_or_else(|| path.display().to_string(), str::to_owned)
}

fn look(registry: &Registry, path: &Path, record: &Value) -> anyhow::Result<Looked> {
    let unreadable = || format!("{} is no record that this version reads", path.display());
    let kind = record["kind"].as_str().with_context(unreadable)?.to_owned();
    let source: Source = serde_json::from_value(record["source"].clone()).with_context(unreadable)?;
    let freshness = Freshness::of(&kind, &source, &registry.library());
    let changed: BTreeSet<&String> = freshness.changed().iter().collect();
    let rests = |modules: &BTreeSet<String>| modules.iter().any(|module| changed.contains(module));
    let mut resting = 0;
    if !changed.is_empty() {
        // What no longer exists rests on what has gone.
        resting = match &*kind {
            "bench" => {
                let timings = serde_json::from_value::<Record<Timing>>(record.clone()).with_context(unreadable)?.cases;
                timings.iter().filter(|timing| of_timing(registry, timing).is_none_or(|modules| rests(&modules))).count()
            }
            "mutants" => {
                let names = record["cases"].as_array().into_iter().flatten().filter_map(|case| case["mutant"].as_str());
                names.filter(|&name| name != SHARED_PADS && of_mutant(registry, name).is_none_or(|module| rests(&[module].into()))).count()
            }
            // A round may call whatever its record names, and a row launches all of it.
            "soak" | "orders" => record["cases"].as_array().map_or(0, Vec::len),
            _ => {
                let verdicts = serde_json::from_value::<Record>(record.clone()).with_context(unreadable)?.cases;
                verdicts.iter().filter(|verdict| of_verdict(registry, verdict).is_none_or(|modules| rests(&modules))).count()
            }
        };
    }
    let cases = record["summary"]["total"].as_u64().unwrap_or(0) as usize;
    Ok(Looked { record: name(path), kind, freshness, cases, resting })
}

/// What is wrong with a committed record that was made on the emulator, which anybody can make again: it must rest on our kernels, and on those from elsewhere, as
/// they are in this tree. None of a record of GPUs.
fn stale_on_emulator(registry: &Registry, root: &Path, path: &Path, record: &Value) -> anyhow::Result<Option<String>> {
    if record["machine"]["kind"] != "emulator" {
        return Ok(None);
    }
    let looked = look(registry, path, record)?;
    let mut changed: BTreeSet<String> = looked.freshness.changed().iter().cloned().collect();
    // Kernels from elsewhere: those that the documents show, and those of the museum.
    for (name, then) in record["source"]["modules"].as_object().into_iter().flatten() {
        let Some(file) = name.strip_prefix(FOREIGN) else { continue };
        let file = format!("examples/foreign/{file}");
        let now = fs::read_to_string(root.join(&file)).ok().map(|text| code_hash(&text));
        if now.as_deref() != then.as_str() {
            changed.insert(file);
        }
    }
    if looked.kind == "museum" {
        let then: BTreeMap<&str, &str> = record["cases"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|outcome| Some((outcome["entry"].as_str()?, outcome["kernels"].as_str()?)))
            .collect();
        let entries = museum::entries(root)?;
        let now =
            entries.keys().map(|name| Ok((name.as_str(), museum::kernels(root, name)?))).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let differs = |name: &&&str| then.get(**name).copied() != now.get(**name).map(String::as_str);
        changed.extend(now.keys().chain(then.keys()).filter(differs).map(|name| format!("museum/{name}")));
    }
    let name = looked.record;
    Ok(match (looked.freshness, changed.is_empty()) {
        (Freshness::Unknown, _) => Some(format!("{name}.json was made on the emulator, and does not say which kernels it rests on")),
        (_, true) => None,
        (_, false) => {
            let these = changed.into_iter().collect::<Vec<_>>().join(", ");
            Some(format!("{name}.json was made on the emulator, and these kernels have changed since, so make it again: {these}"))
        }
    })
}

/// What the documents quote, and what is wrong with that; with `mark`, the documents are made right.
fn quotes(root: &Path, mark: bool, found: &mut Found) -> anyhow::Result<()> {
    let changed: BTreeMap<String, Vec<String>> =
        found.records.iter().map(|looked| (looked.record.clone(), looked.freshness.changed().to_vec())).collect();
    for document in documents(root)? {
        let path = root.join(&document);
        let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {document}"))?;
        if mark {
            let now = provenance::marked(&text, &changed);
            if now != text {
                fs::write(&path, &now).with_context(|| format!("cannot write {document}"))?;
                println!("wrote  {document}");
                text = now;
            }
        }
        for quote in provenance::quotes(&text) {
            let line = quote.line;
            let known = |name: &&String| !changed.contains_key(*name);
            found.complaints.extend(quote.records.iter().filter(known).map(|name| format!("{document}:{line}: there is no record {name}")));
            let since = quote.changed(&changed);
            let marked = quote.says(&since);
            if !marked {
                let these = since.iter().cloned().collect::<Vec<_>>().join(", ");
                let what = if since.is_empty() {
                    "says that kernels have changed, and none has".into()
                } else {
                    format!("rests on kernels that have changed, and does not say so: {these}")
                };
                found.complaints.push(format!("{document}:{line}: {what} (cargo xtask records --mark)"));
            }
            found.quotes.push(Quoted { document: document.clone(), line, records: quote.records, changed: since, marked });
        }
        let stale: Vec<&String> = changed.iter().filter(|(_, changed)| !changed.is_empty()).map(|(name, _)| name).collect();
        for (line, name) in provenance::mentioned(&text, stale.iter().copied()) {
            found
                .complaints
                .push(format!("{document}:{line}: names {name}.json, which is stale, without `<!-- records: {name} -->` before it"));
        }
    }
    Ok(())
}

/// README.md and what lies under docs/, as paths under the root.
fn documents(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("cannot list {folder}"))? {
            let entry = entry?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn show(found: &Found) {
    let row = |looked: &Looked| {
        let (state, resting, changed) = match &looked.freshness {
            Freshness::Fresh => ("fresh", String::new(), String::new()),
            Freshness::Unknown => ("unknown", String::new(), String::new()),
            Freshness::Stale(changed) => ("stale", format!("{} of {}", looked.resting, looked.cases), changed.join(" ")),
        };
        vec![looked.record.clone(), state.into(), resting, changed]
    };
    let rows: Vec<Vec<String>> = found.records.iter().map(row).collect();
    println!("{}", table::aligned(&["record", "kernels", "cases that rest on them", "changed since"], 4, &rows));
    let quoted = |quote: &Quoted| {
        let place = format!("{}:{}", quote.document, quote.line);
        let changed = quote.changed.iter().cloned().collect::<Vec<_>>().join(" ");
        let state = match (quote.changed.is_empty(), quote.marked) {
            (true, true) => "",
            (false, true) => "says so",
            (_, false) => "WRONG",
        };
        vec![place, state.into(), quote.records.join(" "), changed]
    };
    let rows: Vec<Vec<String>> = found.quotes.iter().map(quoted).collect();
    if !rows.is_empty() {
        println!("\n{}", table::aligned(&["part of a document", "", "made from", "changed since"], 4, &rows));
    }
    let of = |wanted: fn(&Freshness) -> bool| found.records.iter().filter(|looked| wanted(&looked.freshness)).count();
    found.complaints.iter().for_each(|complaint| println!("{complaint}"));
    println!(
        "\n{} records: {} fresh, {} stale, {} unknown; {} complaints",
        found.records.len(),
        of(|freshness| *freshness == Freshness::Fresh),
        of(|freshness| !freshness.changed().is_empty()),
        of(|freshness| *freshness == Freshness::Unknown),
        found.complaints.len()
    );
}

/// Whether all records have the same outputs, of the cases that have any in all of them.
fn same(records: &[(PathBuf, Value)]) -> anyhow::Result<ExitCode> {
    let outputs = |(path, record): &(PathBuf, Value)| -> anyhow::Result<BTreeMap<String, String>> {
        let Ok(record) = serde_json::from_value::<Record>(record.clone()) else { bail!("{} is no record of verdicts", path.display()) };
        Ok(record.cases.into_iter().filter_map(|verdict| Some((verdict.case, verdict.outputs?))).collect())
    };
    let all = records.iter().map(outputs).collect::<anyhow::Result<Vec<_>>>()?;
    let [first, others @ ..] = &all[..] else { bail!("--same: two records at least") };
    if others.is_empty() {
        bail!("--same: two records at least");
    }
    let shared: Vec<&String> = first.keys().filter(|case| others.iter().all(|other| other.contains_key(*case))).collect();
    let differ: Vec<&&String> = shared.iter().filter(|case| others.iter().any(|other| other[**case] != first[**case])).collect();
    for ((path, _), outputs) in records.iter().zip(&all) {
        println!("{}: {} cases with outputs, of {} in all records", path.display(), outputs.len(), shared.len());
    }
    for case in &differ {
        println!("differs: {case}");
    }
    println!("{} of {} cases have the same bits", shared.len() - differ.len(), shared.len());
    Ok(if shared.is_empty() || !differ.is_empty() { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
}

fn required(manifest: &Manifest, records: &[(PathBuf, Value)]) -> anyhow::Result<ExitCode> {
    let mut worst = None;
    for (path, record) in records {
        let Ok(record) = serde_json::from_value::<Record>(record.clone()) else { bail!("{} is no record of verdicts", path.display()) };
        let passed = record.cases.iter().filter(|verdict| verdict.status == Status::Pass).count();
        println!("{}: {passed} of {} cases passed", path.display(), record.cases.len());
        worst = worst.max(require::unmet_by_record(manifest, &record));
    }
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn write_manifests(registry: &Registry, root: &Path) -> anyhow::Result<ExitCode> {
    let emulator = Emulator::new(EmulatorOptions::of(registry));
    let manifests = [
        ("emulator-smoke", List::Smoke, RunsOn::Emulator(&emulator)),
        ("emulator-merge", List::Merge, RunsOn::Emulator(&emulator)),
        ("gpus2-merge", List::Merge, RunsOn::Gpus(2)),
        ("gpus4-merge", List::Merge, RunsOn::Gpus(4)),
    ];
    let folder = root.join("fixtures/manifests");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let merge: Record = serde_json::from_str(&packed::committed(&root.join(FOLDER), EXECUTED)?)?;
    for (name, list, place) in manifests {
        let path = folder.join(format!("{name}.toml"));
        let coverage = if name == EXECUTED { &merge.coverage[..] } else { &[] };
        fs::write(&path, of_list(registry, list, place, coverage)).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote  {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use passmuster_harness::conformance::mutants;

    use super::*;

    /// If this fails, a record of mutants does not name what was mutated.
    #[test]
    fn mutants_are_of_modules() {
        let registry = crate::built_in();
        let of_mutant = |name: &str| of_mutant(&registry, name);
        assert_eq!(of_mutant("two_shot/L49 st.relaxed.sys dropped"), Some("all_reduce/two_shot".into()));
        assert_eq!(of_mutant("premul_sum/push/L9 bar.sync dropped"), Some("premul_sum/push".into()));
        assert_eq!(of_mutant(SHARED_PADS), None);
        let lost: Vec<String> =
            mutants::derived(&registry).into_iter().map(|mutant| mutant.name).filter(|name| of_mutant(name).is_none()).collect();
        assert_eq!(lost, Vec::<String>::new());
        assert!(registry.mutants().iter().all(|mutant| of_mutant(mutant.name).is_some_and(|module| registry.module(&module).is_some())));
    }

    /// If this fails, a figure of the emulator outlives the kernels that it is of, though anybody could make it again.
    #[test]
    fn stale_emulator_records_are_complaints() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let complaint = |name: &str, change: &dyn Fn(&mut Value)| {
            let path = root.join(FOLDER).join(name);
            let mut record = read(&path).unwrap();
            change(&mut record);
            stale_on_emulator(&crate::built_in(), &root, &path, &record).unwrap()
        };
        let module = |name: &'static str| move |record: &mut Value| record["source"]["modules"][name] = "0".into();
        let ours = complaint("emulator-mutants.json", &module("all_gather/ll")).unwrap();
        assert!(ours.contains("emulator-mutants.json") && ours.contains("all_gather/ll"), "{ours}");
        assert_eq!(complaint("emulator-mutants.json", &|_| {}), None);
        let theirs = complaint("emulator-mutants-foreign.json", &module("foreign/reduce_pull/kernel.ptx")).unwrap();
        assert!(theirs.contains("examples/foreign/reduce_pull/kernel.ptx"), "{theirs}");
        let entry = complaint("emulator-museum.json", &|record| record["cases"][0]["kernels"] = "0".into()).unwrap();
        assert!(entry.contains("museum/aiter_3514_no_exit_barrier"), "{entry}");
        let lacks = complaint("emulator-museum.json", &|record| drop(record["cases"].as_array_mut().unwrap().pop())).unwrap();
        assert!(lacks.contains("museum/"), "{lacks}");
        let unknown = complaint("emulator-mutants.json", &|record| record["source"]["modules"] = serde_json::json!({})).unwrap();
        assert!(unknown.contains("does not say"), "{unknown}");
        // Nobody here can make those of GPUs again.
        assert_eq!(complaint("h200x2-mutants-value.json", &module("all_gather/ll")), None);
    }

    /// If this fails, a committed record cannot be read any more once its kernels change.
    #[test]
    fn records_of_all_kinds_may_be_stale() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut kinds = BTreeSet::new();
        for path in committed(&root).unwrap() {
            let mut record = read(&path).unwrap();
            // One of each kind: there are many, and large ones.
            if kinds.contains(record["kind"].as_str().unwrap()) {
                continue;
            }
            let modules = record.pointer_mut("/source/modules").and_then(Value::as_object_mut).into_iter().flatten();
            let ours = modules.filter(|(name, _)| !name.starts_with(FOREIGN));
            let changed = ours.map(|(_, hash)| *hash = "0".into()).count();
            let looked = look(&crate::built_in(), &path, &record).unwrap();
            if changed > 0 && kinds.insert(looked.kind.clone()) {
                assert!(looked.resting > 0, "{}", path.display());
            }
        }
        assert!(["bench", "mutants", "soak", "test-gpu", "validate"].iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
    }
}
