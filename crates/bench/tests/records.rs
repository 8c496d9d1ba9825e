//! The README quotes records: every figure under "Measured" is made here from fixtures/records/, and must stand there to the letter, after a comment that
//! names the records. Where their kernels have changed since, a mark says so: `cargo xtask records --mark`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
    time::Duration,
};

use passmuster::{
    conformance::{
        AnyCase, Status,
        report::{
            Record, Source,
            provenance::{Freshness, comment, marked, mentioned, quotes},
        },
        runner::Settings,
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_bench::{
    Inks, Launching, Timing, Winner,
    baseline::{self, Drift},
    contests, plots, sections,
};
use passmuster_collectives::collective::ReduceOp;
use serde_json::Value;

thread_local! {
    /// Names of the records that were read, without `.json`.
    static READ: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// What is made of records, after the names of these.
fn made<T>(make: impl FnOnce() -> T) -> (BTreeSet<String>, T) {
    READ.take();
    let made = make();
    (READ.take(), made)
}

/// Whether a document has this text in a part that says that it was made from these records, and from no others.
fn is_quoted(document: &str, records: &BTreeSet<String>, text: &str) -> bool {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = |named: &[String]| named.iter().cloned().collect::<BTreeSet<_>>() == *records;
    quotes(document).iter().any(|quote| says(&quote.records) && one_line(&quote.text).contains(&one_line(text)))
}

/// Asserts that a document has all these texts, each with its records.
#[track_caller]
fn assert_quoted(path: &str, all: &[(BTreeSet<String>, String)]) {
    let document = fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)).unwrap();
    let lacking: Vec<String> = all
        .iter()
        .filter(|(records, text)| !is_quoted(&document, records, text))
        .map(|(records, text)| format!("{}\n{text}", comment(records)))
        .collect();
    assert!(lacking.is_empty(), "{path} should say:\n{}", lacking.join("\n\n"));
}

fn record(name: &str) -> Value {
    READ.with_borrow_mut(|read| read.insert(name.trim_end_matches(".json").to_owned()));
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fixtures/records").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn machine(record: &Value) -> String {
    let machine = &record["machine"];
    let note = |name: &str| {
        let notes = machine["notes"].as_array().into_iter().flatten();
        notes.filter(|note| note[0] == name).map(|note| note[1].as_str().unwrap_or_default().to_owned()).next().unwrap_or_default()
    };
    format!(
        "{} x {}, driver {}, NCCL {}, {}",
        machine["gpus"],
        machine["gpu"].as_str().unwrap_or_default(),
        note("driver_version"),
        machine["nccl"].as_str().unwrap_or_default(),
        &record["date"].as_str().unwrap_or_default()[..10]
    )
}

/// The merge list on two GPUs but for products of matrices.
const ON_TWO: &str = "h200x2-merge.json";

/// An earlier list on four.
const ON_FOUR: &str = "h200x4-merge.json";

/// The merge list on the emulator.
const ON_THE_EMULATOR: &str = "emulator-merge.json";

/// How many cases came to something. A record with findings is not for the README.
fn counts(record: &Value) -> impl Fn(&str) -> u64 {
    let of = |status: &str| record["summary"][status].as_u64().unwrap_or(0);
    assert_eq!(of("fail") + of("hang") + of("crash") + of("infra_error"), 0, "a record with findings is not for the README");
    of
}

/// What a list gave on GPUs, in a sentence.
fn merged(name: &str) -> String {
    let merge = record(name);
    let of = counts(&merge);
    format!(
        "({}): {} cases in {:.0} s; {} passed, {} are waived (bugs of NCCL {}, fixtures/waivers.toml), {} not supported \
         (multicast, NCCL has no path that was asked for, or more ranks than GPUs), none failed.",
        machine(&merge),
        of("total"),
        merge["seconds"].as_f64().expect("the record has the time"),
        of("pass"),
        of("waived"),
        merge["machine"]["nccl"].as_str().unwrap_or_default(),
        of("not_supported"),
    )
}

/// What the lists gave on two GPUs, in a few sentences.
fn conformance() -> String {
    let (faults, values, planted) = (record("h200x2-faults.json"), record("h200x2-mutants-value.json"), record("h200x2-mutants.json"));
    let of_sync = |caught: bool| {
        let all = planted["cases"].as_array().into_iter().flatten().filter(|case| case["kind"] == "sync");
        all.filter(|case| !caught || case["caught"] == true).count()
    };
    format!(
        "`test-gpu merge` {} `test-gpu faults`: {} of {} named as they should be. `mutants`: of those in values {} of {} \
         caught, of those in synchronisation {} of {} on an earlier day.",
        merged(ON_TWO),
        faults["summary"]["pass"],
        faults["summary"]["total"],
        values["summary"]["caught"],
        values["summary"]["total"],
        of_sync(true),
        of_sync(false),
    )
}

/// What the merge list gave on the emulator, in a sentence.
fn emulated() -> String {
    let (mutants, ledger) = (record("emulator-mutants.json"), record("ledger.json"));
    let score = |kind: &str| {
        let notes = mutants["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        notes.filter_map(|note| note.strip_prefix(&format!("{kind}: "))).map(|score| format!("{kind} {score}")).next().unwrap_or_default()
    };
    let emulated = record(ON_THE_EMULATOR);
    let of = counts(&emulated);
    let (both, _, open) = on_both();
    format!(
        "`validate merge` on the emulator, every rank's PTX on the CPU under one schedule, races judged in profile hopper: {} of {} cases passed, \
         {} are not supported (too large for it, or kernels with TMA), none failed. Of them {} also ran on these GPUs: their outputs are equal to the bit ({} more, in which NaNs of f64 may meet and either payload may stay, are not counted). `mutants`: {}; {}. \
         `ledger` ({}): {} instruction forms, {} differ.",
        of("pass"),
        of("total"),
        of("not_supported"),
        both.len(),
        open,
        score("value mutants"),
        score("synchronisation mutants"),
        ledger["machine"]["gpu"].as_str().unwrap_or_default(),
        ledger["summary"]["total"],
        ledger["summary"]["fail"],
    )
}

/// Whether bits of a case may be either of two: where two NaNs of f64 meet in an entry `any`, GPUs have kept the payload of the other operand than the one
/// that PTX has last: in sums of push and two_shot_push, and in a product of one_shot. Contracts promise payloads of copies only.
fn keeps_either_payload(case: &str) -> bool {
    let names = case.split([':', '+', '[', '=', '/']).map(|part| part.split('.').next().unwrap_or_default());
    let reduces = ["all_reduce/", "reduce_scatter/", "reduce/"].iter().any(|collective| case.starts_with(collective));
    reduces
        && case.contains(":f64,")
        && case.contains("inputs=special")
        && (case.contains(":f64,prod:") || names.into_iter().any(|name| ["push", "two_shot_push"].contains(&name)))
}

/// Cases that ran on the emulator and on GPUs, those of them whose outputs differ, and how many more [keep either payload](keeps_either_payload).
fn on_both() -> (Vec<String>, Vec<String>, usize) {
    let outputs = |names: &[&str]| -> BTreeMap<String, String> {
        let cases = names.iter().flat_map(|name| serde_json::from_value::<Record>(record(name)).unwrap().cases);
        cases.filter_map(|verdict| Some((verdict.case, verdict.outputs?))).collect()
    };
    let on_gpus: Vec<&str> = [ON_FOUR].into_iter().chain(SINCE_ON_FOUR.map(|(name, _)| name)).chain([ON_TWO]).collect();
    let (emulated, ran) = (outputs(&[ON_THE_EMULATOR]), outputs(&on_gpus));
    let shared = emulated.keys().filter(|case| ran.contains_key(*case)).cloned();
    let (open, both): (Vec<String>, Vec<String>) = shared.partition(|case| keeps_either_payload(case));
    let differ = both.iter().filter(|case| emulated[*case] != ran[*case]).cloned().collect();
    (both, differ, open.len())
}

/// What came after the list on four GPUs: its parts whose kernels have changed since, one record each.
const SINCE_ON_FOUR: [(&str, &str); 8] = [
    ("h200x4-push.json", "`all_reduce|reduce_scatter/push`"),
    ("h200x4-two_shot.json", "`all_reduce/two_shot`"),
    ("h200x4-two_shot_push.json", "`all_reduce/two_shot_push`"),
    ("h200x4-broadcast-push.json", "`broadcast/push`"),
    ("h200x4-reduce-two_shot.json", "`reduce/two_shot`"),
    ("h200x4-reduce-push.json", "`reduce/push`"),
    ("h200x4-auto.json", "`*/auto|plain`"),
    ("h200x4-products.json", "`all_gather_matmul|matmul_reduce_scatter`"),
];

/// What four gave, in a sentence for the list and one for what came later.
fn four() -> String {
    let sentence = |(name, query): &(&str, &str)| {
        let record = record(name);
        let of = counts(&record);
        format!("{query}: {} of {} passed, {} not supported", of("pass"), of("total"), of("not_supported"))
    };
    let later: Vec<String> = SINCE_ON_FOUR.iter().map(sentence).collect();
    format!("On four, the list of an earlier day {} Of what came later: {}; none failed.", merged(ON_FOUR), later.join("; "))
}

/// Median microseconds of contenders, by world and bytes.
type Times = BTreeMap<(u64, u64), Vec<(String, f64)>>;

/// The times of a collective on two and four GPUs, as a table: our best and the best peer in the same run, which they were, and by how much we are ahead.
fn times(collective: &str) -> String {
    let mut cells = Times::new();
    for case in timed(collective)["cases"].as_array().into_iter().flatten() {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let workload = &case["workload"];
        assert_eq!((&workload["collective"], &case["check"]["status"]), (&collective.into(), &"pass".into()));
        let key = (workload["world"].as_u64().unwrap_or(0), workload["bytes"].as_u64().unwrap_or(0));
        cells.entry(key).or_default().push((case["contender"].as_str().unwrap_or_default().into(), median));
    }
    let worlds: BTreeSet<u64> = cells.keys().map(|(world, _)| *world).collect();
    let sizes: BTreeSet<u64> = cells.keys().map(|(_, bytes)| *bytes).collect();
    let mut table = format!("| {collective} |");
    worlds.iter().for_each(|world| _ = write!(table, " ours, w={world} | best peer | ahead |"));
    let _ = write!(table, "\n|---|{}\n", "---|".repeat(3 * worlds.len()));
    let mut ahead: Vec<f64> = Vec::new();
    for bytes in sizes {
        let _ = write!(table, "| {} |", size(bytes));
        for &world in &worlds {
            let least = |peers: bool| {
                let side = cells[&(world, bytes)].iter().filter(|(contender, _)| is_peer(contender) == peers);
                side.min_by(|a, b| a.1.total_cmp(&b.1)).cloned().unwrap_or_default()
            };
            let ((own, ours), (peer, theirs)) = (least(false), least(true));
            ahead.push(theirs / ours);
            let _ = write!(table, " {ours:.2} ({own}) | {theirs:.2} ({peer}) | {:.2}x |", theirs / ours);
        }
        table.push('\n');
    }
    let mean = (ahead.iter().map(|ratio| ratio.ln()).sum::<f64>() / ahead.len() as f64).exp();
    let least = ahead.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{table}\nGeometric mean {mean:.2}x, least {least:.2}x.")
}

/// The collectives that were timed among two and four of four GPUs, each in one run beside NCCL and PyTorch.
const COLLECTIVES: [&str; 6] = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"];

fn timed(collective: &str) -> Value {
    record(&format!("h200x4-bench-{collective}.json"))
}

/// One contender's call: its name, its microseconds in a graph, and what it takes over the links, where it says.
type Timed = (String, f64, Option<f64>);

/// What was timed of a collective between two GPUs, by bytes.
fn paired(collective: &str) -> BTreeMap<u64, Vec<Timed>> {
    let mut sizes: BTreeMap<u64, Vec<Timed>> = BTreeMap::new();
    for case in timed(collective)["cases"].as_array().into_iter().flatten().filter(|case| case["workload"]["world"] == 2) {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let name = case["contender"].as_str().unwrap_or_default().to_owned();
        sizes.entry(case["workload"]["bytes"].as_u64().unwrap()).or_default().push((name, median, case["wire"]["bytes"].as_f64()));
    }
    sizes
}

fn is_peer(name: &str) -> bool {
    name.starts_with("nccl_") || name.starts_with("torch_")
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// GB/s that a copy engine moves between two of these GPUs.
const LINK: f64 = 394.0;

/// What each of our algorithms took on two GPUs, and how much of it its bytes over the link take at least.
fn floors(collective: &str) -> String {
    let sizes = paired(collective);
    let names: Vec<&String> = sizes.values().next().unwrap().iter().map(|(name, ..)| name).filter(|name| !is_peer(name)).collect();
    let mut table = format!("| {collective} |");
    names.iter().for_each(|name| _ = write!(table, " {name} |"));
    _ = write!(table, "\n|---|{}\n", "---|".repeat(names.len()));
    for (bytes, times) in &sizes {
        _ = write!(table, "| {} |", size(*bytes));
        for name in &names {
            let timed = times.iter().find(|(known, ..)| known == *name);
            match timed {
                Some((_, median, Some(wire))) => _ = write!(table, " {median:.2} ({:.2}) |", wire / LINK / 1e3),
                _ => table.push_str(" - |"),
            }
        }
        table.push('\n');
    }
    let rates = names.iter().filter_map(|name| {
        let of = |bytes| sizes[&bytes].iter().find(|(known, ..)| known == *name).and_then(|(_, median, wire)| Some((*median, (*wire)?)));
        let ((less, few), (more, many)) = (of(64 << 20)?, of(256 << 20)?);
        Some(format!("{name} {:.0}", (many - few) / (more - less) / 1e3))
    });
    _ = writeln!(table, "\nGB/s of what is more from 64 to 256 MiB: {}.", rates.collect::<Vec<_>>().join(", "));
    table
}

/// The times of products with the all-gather of A, as a table: cuBLASLt alone on the gathered A, our plain product, the best of NCCL's all-gathers before
/// cuBLASLt, PyTorch's `fused_all_gather_matmul` and our best, in one run. Ahead is that over the better of the two.
fn products(name: &str) -> String {
    let bench = record(name);
    let mut shapes: BTreeMap<(u64, u64, u64), Vec<(String, f64)>> = BTreeMap::new();
    for case in bench["cases"].as_array().into_iter().flatten() {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let [n, k, m] = ["n", "k", "m"].map(|key| case["workload"][key].as_u64().unwrap());
        shapes.entry((n, k, m)).or_default().push((case["contender"].as_str().unwrap_or_default().into(), median));
    }
    let mut table = String::from(
        "| N, K | M | cuBLASLt alone | our product alone | NCCL, then cuBLASLt | PyTorch | ours | ahead | over cuBLASLt alone |\n",
    );
    table.push_str("|---|---|---|---|---|---|---|---|---|\n");
    let (mut ahead, mut plain) = (Vec::new(), Vec::new());
    for ((n, k, m), times) in shapes {
        let of = |name: &str| times.iter().find(|(contender, _)| contender == name).expect("it was timed").1;
        let least = |is: &dyn Fn(&str) -> bool| {
            times.iter().filter(|(contender, _)| is(contender)).min_by(|a, b| a.1.total_cmp(&b.1)).cloned().unwrap_or_default()
        };
        let (library, own) = (of("cublas_lt"), of("matmul"));
        let (_, theirs) = least(&|name| name.starts_with("nccl_"));
        let torch = of("torch_fused");
        let (name, ours) = least(&|name| !name.starts_with("nccl_") && !["cublas_lt", "matmul", "torch_fused"].contains(&name));
        let best = theirs.min(torch);
        ahead.push(best / ours);
        plain.push(library / own);
        let _ = writeln!(
            table,
            "| {n}, {k} | {m} | {library:.0} | {own:.0} | {theirs:.0} | {torch:.0} | {ours:.0} ({name}) | {:.2}x | {:.2} |",
            best / ours,
            ours / library
        );
    }
    let mean = |ratios: &[f64]| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let least = |ratios: &[f64]| ratios.iter().copied().fold(f64::INFINITY, f64::min);
    format!(
        "{table}\nAhead: geometric mean {:.2}x, least {:.2}x. Our product alone is {:.2}x as fast as cuBLASLt's as a geometric mean, {:.2}x at least.",
        mean(&ahead),
        least(&ahead),
        mean(&plain),
        least(&plain)
    )
}

/// What became of one contender: its name, and its microseconds.
type Took = (String, f64);

/// Median microseconds of the contenders of a record of a scenario, by a number that `key` takes from the workload.
fn took<K: Ord>(name: &str, times: &str, key: impl Fn(&Value) -> K) -> BTreeMap<K, Vec<Took>> {
    let mut all: BTreeMap<K, Vec<Took>> = BTreeMap::new();
    for case in record(name)["cases"].as_array().into_iter().flatten() {
        let Some(median) = case[times]["median"].as_f64() else { continue };
        assert_eq!(case["check"]["status"], "pass", "what was not judged is not for the README");
        all.entry(key(&case["workload"])).or_default().push((case["contender"].as_str().unwrap_or_default().into(), median));
    }
    all
}

/// The fastest of those that are asked for.
fn fastest(times: &[Took], is: impl Fn(&str) -> bool) -> Took {
    times.iter().filter(|(name, _)| is(name)).min_by(|a, b| a.1.total_cmp(&b.1)).cloned().expect("one was timed")
}

/// Products whose sums are scattered: our best and the better of NCCL's and PyTorch's, by weights and rows.
fn scattered(name: &str) -> String {
    let number = |workload: &Value, key: &str| workload[key].as_u64().unwrap();
    let of = |workload: &Value| (number(workload, "n"), number(workload, "k"), number(workload, "m"));
    let shapes = took(name, "microseconds", of);
    let mut table = String::from("| N, K |");
    let rows: BTreeSet<u64> = shapes.keys().map(|(_, _, m)| *m).collect();
    rows.iter().for_each(|m| _ = write!(table, " M = {m} |"));
    _ = write!(table, "\n|---|{}", "---|".repeat(rows.len()));
    let (mut ahead, mut before) = (Vec::new(), (0, 0));
    for ((n, k, _), times) in &shapes {
        let peer = |name: &str| name.split('+').any(is_peer);
        let (theirs, (name, ours)) =
            (fastest(times, peer).1, fastest(times, |name| !peer(name) && !["cublas_lt", "matmul"].contains(&name)));
        if before != (*n, *k) {
            before = (*n, *k);
            _ = write!(table, "\n| {n}, {k} |");
        }
        ahead.push(theirs / ours);
        _ = write!(table, " {ours:.0} ({name}), {theirs:.0}: {:.2}x |", theirs / ours);
    }
    let mean = (ahead.iter().map(|ratio| ratio.ln()).sum::<f64>() / ahead.len() as f64).exp();
    let least = ahead.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{table}\n\nGeometric mean {mean:.2}x, least {least:.2}x.")
}

/// A product and a gather at once: microseconds among two and among four GPUs, and by how much that is more than the longer of the two alone.
fn overlapped() -> String {
    let mut table = String::from("| gather | w=2, at once | over ideal | w=4, at once | over ideal |\n|---|---|---|---|---|\n");
    let sides =
        ["h200x2-bench-overlap.json", "h200x4-bench-overlap.json"].map(|name| took(name, "microseconds", |_| ()).remove(&()).unwrap());
    for gather in ["copy_engine", "push", "nccl_copy_engine", "nccl_symmetric_st", "nccl_ring"] {
        _ = write!(table, "| {gather} |");
        for times in &sides {
            let of = |wanted: String| fastest(times, |name| name == wanted).1;
            let (at_once, ideal) = (of(format!("overlap/{gather}")), of(format!("gather/{gather}")).max(of("matmul".into())));
            _ = write!(table, " {at_once:.0} | {:+.1} % |", 100.0 * (at_once / ideal - 1.0));
        }
        table.push('\n');
    }
    table
}

/// Training steps: the products alone, the fastest of NCCL's beside them and of ours, between them and beside them.
fn steps() -> String {
    let mut table = String::from(
        "| M | products alone | NCCL beside them | ours between them | ours beside them | ahead |\n|---|---|---|---|---|---|\n",
    );
    for (m, times) in took("h200x2-bench-fsdp.json", "microseconds", |workload| workload["m"].as_u64().unwrap()) {
        let by = |how: &str, peers: bool| {
            fastest(&times, |name| {
                name.strip_prefix(how).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| is_peer(name) == peers)
            })
        };
        let short = |(name, time): &Took| format!("{time:.0} ({})", name.rsplit('/').next().unwrap_or_default());
        let [theirs, apart, ours] = [("overlap", true), ("sequential", false), ("overlap", false)].map(|(how, peers)| by(how, peers));
        let alone = fastest(&times, |name| name == "matmul").1;
        let ahead = theirs.1 / ours.1;
        _ = writeln!(table, "| {m} | {alone:.0} | {} | {} | {} | {ahead:.2}x |", short(&theirs), short(&apart), short(&ours));
    }
    table
}

/// Batches of all-to-alls: hosts that wait for each verdict, hosts that wait at the end, and how many times as fast these are.
fn deferred() -> String {
    let exchanges = ["push", "copy_engine", "nccl_send_recv"];
    let mut table = format!("| a batch | {} |\n|---|---|---|---|\n", exchanges.join(" | "));
    let sizes = took("h200x2-bench-all_to_all-async.json", "eager", |workload| workload["bytes"].as_u64().unwrap());
    for (bytes, times) in sizes.into_iter().filter(|(bytes, _)| [8 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20].contains(bytes)) {
        _ = write!(table, "| {} |", size(bytes));
        for exchange in exchanges {
            let [each, end] = ["blocking", "deferred"].map(|order| fastest(&times, |name| name == format!("{order}/{exchange}")).1);
            _ = write!(table, " {each:.0}, {end:.0}: {:.2}x |", each / end);
        }
        table.push('\n');
    }
    table
}

/// The records that the report is made of, in its order.
const REPORTED: [&str; 12] = [
    "h200x4-bench-all_reduce",
    "h200x4-bench-all_gather",
    "h200x4-bench-reduce_scatter",
    "h200x4-bench-all_to_all",
    "h200x4-bench-broadcast",
    "h200x4-bench-reduce",
    "h200x2-bench-types-reduce_scatter",
    "h200x4-bench-all_gather_matmul",
    "h200x4-bench-matmul_reduce_scatter",
    "h200x4-bench-overlap",
    "h200x2-bench-fsdp",
    "h200x2-bench-all_to_all-async",
];

/// If this fails, the report that the README refers to is not of the records, or too large to be read.
#[test]
fn the_report_is_of_the_records() {
    let path = "docs/report-h200.html";
    assert!(include_str!("../../../README.md").contains(path));
    let records = REPORTED.map(|name| serde_json::from_value::<Record<Timing>>(record(&format!("{name}.json"))).unwrap());
    let committed = fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)).unwrap_or_default();
    let again = format!("cargo xtask report --separately fixtures/records/{{{}}}.json --html {path}", REPORTED.join(","));
    assert!(committed.len() < 3 << 19, "{} bytes", committed.len());
    let fetches = ["<script", "https://", "<link", "<img", "url(", "@import"].into_iter().find(|what| committed.contains(what));
    assert_eq!(fetches, None, "it opens without a network");
    let (mut ours, mut rows) = (0, 0);
    for record in &records {
        let lacking = record.notes.iter().find(|line| !committed.contains(line.as_str()));
        assert!(!record.notes.is_empty() && lacking.is_none(), "{path} does not say how to do it again: {lacking:?}: {again}");
        for contest in contests(&record.cases) {
            for (section, standings) in contest.worlds().into_iter().flat_map(|world| contest.of_world(world)) {
                assert!(
                    committed.contains(&format!("{}</h3>", section.name())) || committed.contains(&format!("{} (", section.name())),
                    "{again}"
                );
                for standing in standings {
                    let Some((timing, times)) = standing.ours else { continue };
                    // The time and, below it, whose it is, as tables have them.
                    let name = timing.contender.replace('_', "_<wbr>");
                    let cell = |open: &str, close: &str| format!("{open}{:.2}{close}<small>{name}</small>", times.median);
                    let stands = match standing.winner() {
                        Some(Winner::Ours) => cell("<strong>", "</strong>"),
                        _ => cell("<td>", ""),
                    };
                    ours += usize::from(standing.winner() == Some(Winner::Ours));
                    rows += 1;
                    assert!(committed.contains(&stands), "{}: {stands} is not in {path}: {again}", section.name());
                }
            }
        }
    }
    assert!(rows > 150 && ours > rows / 2, "{ours} of {rows}");
}

/// How a list agrees with itself an hour later, in a sentence.
fn repeated() -> String {
    let [then, now] =
        ["", "-again"].map(|run| serde_json::from_value::<Record<Timing>>(record(&format!("h200x4-bench-broadcast{run}.json"))).unwrap());
    let (changes, alone) = baseline::compare(&now.cases, &then.cases, 0.05);
    assert_eq!(alone, 0);
    let of = |launching| {
        let of_launching: Vec<_> = changes.iter().filter(|change| change.launching == launching).collect();
        let same = of_launching.iter().filter(|change| change.verdict == Drift::Same).count();
        format!("{same} of {}", of_launching.len())
    };
    let ours = changes.iter().filter(|change| ["push", "pull"].contains(&change.contender));
    assert!(ours.clone().count() > 0 && ours.clone().all(|change| change.verdict == Drift::Same));
    format!(
        "`bench broadcast --worlds 2,4` was run twice, within an hour ({}, {}): in a graph, {} times are the same by their noise and the 5 % that \
         `--baseline` allows, and {} as the host launches them; of ours all are.",
        &then.date[..16],
        &now.date[..16],
        of(Launching::Graph),
        of(Launching::Eager),
    )
}

/// If this fails, the plot in the README is not of the record. `cargo xtask report fixtures/records/h200x4-bench-all_reduce.json --plot DIR` draws it again.
#[test]
fn the_readme_s_plot_is_of_the_record() {
    let path = "docs/plots/all_reduce-w4-busbw.svg";
    assert!(include_str!("../../../README.md").contains(path));
    let record: Record<Timing> = serde_json::from_value(timed("all_reduce")).unwrap();
    let sections = sections(&record.cases);
    let all = sections.iter().flat_map(|section| plots(section, &record.machine, &Inks::of(&sections)));
    let drawn = all.into_iter().find(|plot| path.ends_with(&format!("/{}.svg", plot.name))).unwrap().svg().unwrap();
    let committed = fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)).unwrap_or_default();
    // The same contenders, the same values at both ends of their lines, and as many points.
    let said = |svg: &str| -> Vec<String> {
        let of = |begin: &str| svg.split(begin).skip(1).filter_map(|rest| Some(rest.split('<').next()?.to_owned())).collect::<Vec<_>>();
        [of("<title>"), of("<desc>")].concat()
    };
    let marks =
        |svg: &str| svg.split("class=\"m\" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default().matches('M').count()).sum();
    let (of_record, of_file): (usize, usize) = (marks(&drawn), marks(&committed));
    assert!(said(&drawn).len() > 10 && of_record > 60, "{drawn}");
    assert_eq!((said(&drawn), of_record), (said(&committed), of_file), "{path} is not what the record gives");
}

#[test]
fn the_readme_quotes_the_records() {
    let all = [made(conformance), made(four), made(emulated)].into_iter().chain(COLLECTIVES.map(|of| made(|| times(of)))).chain([
        made(|| products("h200x4-bench-all_gather_matmul.json")),
        made(|| scattered("h200x2-bench-matmul_reduce_scatter.json")),
        made(|| scattered("h200x4-bench-matmul_reduce_scatter.json")),
        made(repeated),
        made(overlapped),
        made(steps),
        made(deferred),
    ]);
    assert_quoted("README.md", &all.collect::<Vec<_>>());
}

/// If this fails, a document has figures of kernels that are no longer these, and does not say so: `cargo xtask records --mark`.
#[test]
fn figures_of_stale_records_are_marked() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let names = fs::read_dir(root.join("fixtures/records")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let changed = |name: String| {
        let record = record(&name);
        let source: Source = serde_json::from_value(record["source"].clone()).unwrap();
        let changed = Freshness::of(record["kind"].as_str().unwrap(), &source).changed().to_vec();
        (name.trim_end_matches(".json").to_owned(), changed)
    };
    let changed: BTreeMap<String, Vec<String>> = names.filter(|name| name.ends_with(".json")).map(changed).collect();
    let stale: Vec<&String> = changed.iter().filter(|(_, changed)| !changed.is_empty()).map(|(name, _)| name).collect();
    for path in ["README.md", "docs/floors.md"] {
        let document = fs::read_to_string(root.join(path)).unwrap();
        let of = |text: &str| quotes(text).len();
        assert!(of(&document) > 3, "{path} has {} parts that say what they were made from", of(&document));
        assert!(document == marked(&document, &changed), "{path} lacks a mark, or has one too many: cargo xtask records --mark");
        assert_eq!(
            mentioned(&document, stale.iter().copied()),
            [],
            "{path} names stale records in parts that do not say that they were made from them"
        );
    }
}

/// What pre-multiplied sums take beside sums, as a table: our best of each, and NCCL's.
fn premultiplied() -> String {
    const SIZES: [u64; 5] = [64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
    let mut text = format!("| |{}\n|---|{}\n", SIZES.map(|bytes| format!(" {} |", size(bytes))).concat(), "---|".repeat(SIZES.len()));
    for collective in ["all_reduce", "reduce_scatter", "reduce"] {
        let timings = serde_json::from_value::<Record<Timing>>(record(&format!("h200x2-bench-types-{collective}.json"))).unwrap().cases;
        let dtypes: BTreeSet<_> = timings.iter().map(|timing| timing.workload.dtype()).collect();
        for dtype in dtypes {
            let least = |bytes: u64, op: ReduceOp, is_peer: bool| {
                let of = |timing: &&Timing| {
                    let workload = timing.workload.collective().unwrap();
                    (workload.dtype, workload.bytes, workload.op, timing.is_peer()) == (dtype, bytes, op, is_peer) && timing.is_judged()
                };
                timings.iter().filter(of).map(|timing| timing.microseconds.as_ref().unwrap().median).fold(f64::INFINITY, f64::min)
            };
            let cell = |bytes| {
                let [sum, ours, theirs] = [(ReduceOp::Sum, false), (ReduceOp::PremulSum, false), (ReduceOp::PremulSum, true)]
                    .map(|(op, is)| least(bytes, op, is));
                format!(" {sum:.1}, {ours:.1}, {theirs:.1} |")
            };
            writeln!(text, "| {collective} {dtype} |{}", SIZES.map(cell).concat()).unwrap();
        }
    }
    text
}

#[test]
fn the_floors_are_of_the_records() {
    let all = COLLECTIVES.map(|of| made(|| floors(of))).into_iter().chain([made(premultiplied)]);
    assert_quoted("docs/floors.md", &all.collect::<Vec<_>>());
}

/// If this fails, the emulator computes something else than the GPUs that ran the same PTX.
#[test]
fn the_emulator_and_the_gpus_give_the_same_bits() {
    let (both, differ, _) = on_both();
    assert!(differ.is_empty(), "{} of {} cases differ: {differ:#?}", differ.len(), both.len());
    let algorithms = "all_reduce/one_shot all_reduce/two_shot all_reduce/one_shot_push all_gather/push all_gather/ll reduce_scatter/pull \
                      reduce_scatter/ll all_to_all/push all_to_all/ll broadcast/push reduce/pull";
    for algorithm in algorithms.split_whitespace() {
        for world in 1..=8 {
            for dtype in ["f32", "f16", "bf16", "f64", "i32"] {
                let prefix = format!("{algorithm}:{dtype},");
                let compared = both.iter().any(|case| case.starts_with(&prefix) && case.contains(&format!(":w={world}:")));
                assert!(compared, "no case of {algorithm} {dtype} at world {world} ran on both");
            }
        }
    }
}

/// Cases of a record of GPUs that the emulator runs in no time: of each algorithm and type the smallest, and those with most ranks.
fn cheap(ran: &[(AnyCase, String)]) -> Vec<&(AnyCase, String)> {
    let mut of_kind: BTreeMap<String, &(AnyCase, String)> = BTreeMap::new();
    let size = |case: &AnyCase| (case.input_bytes().max(256), std::cmp::Reverse(case.world()));
    for one in ran {
        let id = one.0.to_string();
        let kind = id.split(',').next().unwrap_or_default().to_owned();
        let is_cheap =
            one.0.input_bytes() <= 4096 && (2..=4).contains(&one.0.world()) && !id.contains(":skew=") && !keeps_either_payload(&id);
        if is_cheap && of_kind.get(&kind).is_none_or(|known| size(&one.0) < size(&known.0)) {
            of_kind.insert(kind, one);
        }
    }
    of_kind.into_values().collect()
}

/// If this fails, kernels, plans, inputs or the emulator have changed so that the results are no longer those that the GPUs gave: what this build says, and not
/// what a record says that an earlier one said.
#[test]
fn the_emulator_gives_the_bits_of_the_gpus_now() {
    let passed =
        serde_json::from_value::<Record>(record(ON_TWO)).unwrap().cases.into_iter().filter(|verdict| verdict.status == Status::Pass);
    let ran: Vec<(AnyCase, String)> = passed.filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict.outputs?))).collect();
    let sample = cheap(&ran);
    assert!(sample.len() >= 40, "{} cases", sample.len());
    let settings = Settings { deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} };
    let mut machine = Emulator::new(EmulatorOptions::default());
    let differs = sample.iter().filter_map(|(case, hash)| {
        let verdict = case.judge(&mut machine, &settings);
        let is_same = verdict.status == Status::Pass && verdict.outputs.as_ref() == Some(hash);
        (!is_same).then(|| format!("{case}: {} {:?} here, {hash} on GPUs", verdict.status, verdict.outputs))
    });
    assert_eq!(differs.collect::<Vec<_>>(), Vec::<String>::new(), "of {} cases", sample.len());
}
