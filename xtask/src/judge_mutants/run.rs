//! Tests, with a mutant on or with none, each in a process of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    build::{self, Binary},
    journal::{Entry, Journal, Outcome},
    sample::Candidate,
    targets,
};

/// A mutant may fill memory without end: pages that a test may have resident, 4 GiB. What it asks for and leaves empty is more in some tests.
const MOST_PAGES: u64 = 1 << 20;

/// Between looks at a test that runs.
const PAUSE: Duration = Duration::from_millis(3);

/// Looks at a test for each look at its memory.
const LOOKS: u32 = 16;

/// What a run may take.
pub(super) struct Limits {
    /// Tests at the same time.
    pub(super) jobs: usize,
    /// Seconds: tests that take longer with no mutant are left out.
    pub(super) longest: f64,
    /// Seconds of tests, as they take with no mutant, after which a mutant has survived.
    pub(super) budget: f64,
}

/// A test.
#[derive(Clone, Debug)]
struct Test {
    binary: Binary,
    name: String,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    TimedOut,
}

/// A test with no mutant on.
#[derive(Clone, Debug)]
struct Known {
    test: Test,
    seconds: f64,
    reached: BTreeSet<u32>,
}

impl Test {
    fn full_name(&self) -> String {
        format!("{} {}", self.binary.name, self.name)
    }

    /// Runs it with a mutant on, 0 for none.
    fn run(&self, mutant: u32, trace: Option<&Path>, scratch: &Path, limit: Duration) -> anyhow::Result<Ended> {
        let mut command = Command::new("sh");
        let limits = format!("ulimit -c 0 && ulimit -t {} && exec \"$@\"", 16 * (limit.as_secs() + 1));
        command
            .args(["-c", &limits, "sh"])
            .arg(&self.binary.executable)
            .args(["--exact", &self.name])
            .current_dir(&self.binary.folder)
            .env("CARGO_MANIFEST_DIR", &self.binary.folder)
            .env("PASSMUSTER_MUTANT", mutant.to_string())
            .env("TMPDIR", scratch)
            // The same cases each time, and no files beside snapshots.
            .env("PROPTEST_RNG_SEED", "1")
            .env("INSTA_UPDATE", "no")
            .env("RUST_BACKTRACE", "0")
            .env_remove("PASSMUSTER_MUTANT_TRACE")
            .env_remove("PASSMUSTER_TURN")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(trace) = trace {
            command.env("PASSMUSTER_MUTANT_TRACE", trace);
        }
        let mut child = command.spawn().context("cannot start a test")?;
        let group = Pid::from_child(&child);
        let start = Instant::now();
        let mut looks = 0_u32;
        let ended = loop {
            looks = looks.wrapping_add(1);
            match child.try_wait()? {
                Some(status) => break if status.success() { Ended::Passed } else { Ended::Failed },
                None if start.elapsed() > limit => break Ended::TimedOut,
                None if looks.is_multiple_of(LOOKS) && resident_pages(child.id()) > MOST_PAGES => break Ended::Failed,
                None => thread::sleep(PAUSE),
            }
        };
        // With what it has started. Where all have ended there is no group.
        let _ = kill_process_group(group, Signal::KILL);
        child.wait()?;
        Ok(ended)
    }
}

/// Pages that a process has in memory; 0, if it has ended.
fn resident_pages(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// The tests of binaries that are not ignored.
fn tests(binaries: &[Binary]) -> anyhow::Result<Vec<Test>> {
    let list = |binary: &Binary, ignored: bool| -> anyhow::Result<BTreeSet<String>> {
        let arguments: &[&str] = if ignored { &["--list", "--format", "terse", "--ignored"] } else { &["--list", "--format", "terse"] };
        let output = Command::new(&binary.executable)
            .args(arguments)
            .current_dir(&binary.folder)
            .output()
            .with_context(|| format!("cannot start {}", binary.executable.display()))?;
        ensure!(output.status.success(), "{} does not list its tests", binary.name);
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    };
    let mut all = Vec::new();
    for binary in binaries {
        let ignored = list(binary, true)?;
        let names = list(binary, false)?.into_iter().filter(|name| !ignored.contains(name));
        all.extend(names.map(|name| Test { binary: binary.clone(), name }));
    }
    Ok(all)
}

/// Calls `work` on all items, some at a time, and `done` on this thread with what comes of each.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
    mut done: impl FnMut(&T, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let sender = Mutex::new(sender);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.lock().expect("nobody panics with it").clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some((at, item)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, items.get(at)?))) {
                    if sender.send((at, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        let handled = (0..items.len()).try_for_each(|_| {
            let (at, result) = results.recv().context("a thread has ended")?;
            done(&items[at], result?)
        });
        // The others end after what they are at.
        next.store(items.len(), Relaxed);
        handled
    })
}

/// A folder for what tests write, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        // Short: sockets lie in it.
        let path = std::env::temp_dir().join(format!("judge-{}-{}", std::process::id(), SERIAL.fetch_add(1, Relaxed)));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs what tests come to each mutant, and returns what became of them, by number. `before` is what an earlier run has found.
///
/// # Errors
/// A test fails with no mutant on.
pub(super) fn run(
    binaries: &[Binary],
    mutants: &[&Candidate],
    limits: &Limits,
    before: &[Entry],
    journal: &mut Journal,
) -> anyhow::Result<BTreeMap<u32, Outcome>> {
    let scratch = Scratch::new()?;
    let known = baseline(binaries, limits, before, journal, &scratch.0)?;
    let mut outcomes: BTreeMap<u32, Outcome> = BTreeMap::new();
    for entry in before {
        if let Entry::Mutant { number, outcome } = entry {
            outcomes.insert(*number, outcome.clone());
        }
    }
    let left: Vec<&Candidate> = mutants.iter().filter(|mutant| !outcomes.contains_key(&mutant.number)).copied().collect();
    let (mut count, all) = (mutants.len() - left.len(), mutants.len());
    let judged = |mutant: &&Candidate| {
        let start = Instant::now();
        judge(mutant, &known, limits, &scratch.0).map(|outcome| (outcome, start.elapsed().as_secs_f64()))
    };
    in_parallel(&left, limits.jobs, judged, |mutant, (outcome, seconds)| {
        count += 1;
        let what = match &outcome {
            Outcome::Caught(by) => format!("caught by {by}"),
            Outcome::TimedOut(by) => format!("caught by {by}, which takes too long"),
            Outcome::Survived(tests) => format!("SURVIVED {tests} tests"),
            Outcome::NotReached => "NOT REACHED".into(),
        };
        println!("[{count}/{all}] {}: {what} ({seconds:.1} s)", super::shown(mutant));
        journal.add(&Entry::Mutant { number: mutant.number, outcome: outcome.clone() })?;
        outcomes.insert(mutant.number, outcome);
        Ok(())
    })?;
    Ok(outcomes)
}

/// Runs all tests with no mutant on: how long each takes, and which mutants it comes to.
fn baseline(binaries: &[Binary], limits: &Limits, before: &[Entry], journal: &mut Journal, scratch: &Path) -> anyhow::Result<Vec<Known>> {
    let mut earlier: BTreeMap<&str, (f64, &Option<Vec<u32>>)> = BTreeMap::new();
    for entry in before {
        if let Entry::Test { name, seconds, reached } = entry {
            earlier.insert(name, (*seconds, reached));
        }
    }
    let all = tests(binaries)?;
    let (mut known, mut left, mut slow, mut failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for test in all {
        match earlier.get(&*test.full_name()) {
            Some((seconds, Some(reached))) => known.push(Known { test, seconds: *seconds, reached: reached.iter().copied().collect() }),
            Some((_, None)) => slow.push(test.full_name()),
            None => left.push(test),
        }
    }
    println!("running {} tests with no mutant", left.len());
    let serial = AtomicUsize::new(0);
    let work = |test: &Test| {
        let trace = scratch.join(format!("trace-{}", serial.fetch_add(1, Relaxed)));
        let limit = Duration::from_secs_f64(limits.longest);
        let mut ended = Ended::Failed;
        let mut seconds = 0.0;
        // What waits for others may fail where they have no time.
        for _ in 0..2 {
            let start = Instant::now();
            ended = test.run(0, Some(&trace), scratch, limit)?;
            seconds = start.elapsed().as_secs_f64();
            if ended != Ended::Failed {
                break;
            }
        }
        let text = fs::read_to_string(&trace).unwrap_or_default();
        let _ = fs::remove_file(&trace);
        let reached: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        Ok((ended, seconds, reached))
    };
    in_parallel(&left, limits.jobs, work, |test, (ended, seconds, reached)| {
        let name = test.full_name();
        let reached = match ended {
            Ended::Failed => {
                failed.push(name);
                return Ok(());
            }
            Ended::TimedOut => None,
            Ended::Passed => Some(reached.iter().copied().collect()),
        };
        journal.add(&Entry::Test { name: name.clone(), seconds, reached: reached.clone() })?;
        match reached {
            Some(reached) => known.push(Known { test: test.clone(), seconds, reached: reached.into_iter().collect() }),
            None => slow.push(name),
        }
        Ok(())
    })?;
    if !failed.is_empty() {
        bail!("with no mutant on, these tests fail:\n{}", failed.join("\n"));
    }
    if !slow.is_empty() {
        println!("left out, for they take longer than {} s: {}", limits.longest, slow.join(", "));
    }
    Ok(known)
}

/// Runs the tests that come to a mutant, until one fails.
fn judge(mutant: &Candidate, known: &[Known], limits: &Limits, scratch: &Path) -> anyhow::Result<Outcome> {
    let mut reaching: Vec<(f64, &Known)> = known
        .iter()
        .filter(|of| of.reached.contains(&mutant.number))
        .map(|of| (of.seconds * distance(&mutant.file, &of.test), of))
        .collect();
    if reaching.is_empty() {
        return Ok(Outcome::NotReached);
    }
    reaching.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut spent, mut count) = (0.0, 0);
    for (_, Known { test, seconds, .. }) in reaching {
        if count > 0 && spent + seconds > limits.budget {
            continue;
        }
        (spent, count) = (spent + seconds, count + 1);
        let limit = Duration::from_secs_f64(3.0 * seconds + 10.0);
        let ended = test.run(mutant.number, None, scratch, limit)?;
        // A test that now fails without the mutant, too, says nothing.
        if ended != Ended::Passed && test.run(0, None, scratch, limit)? == Ended::Passed {
            let by = test.full_name();
            return Ok(if ended == Ended::Failed { Outcome::Caught(by) } else { Outcome::TimedOut(by) });
        }
    }
    Ok(Outcome::Survived(count))
}

/// A file's own tests are the likeliest to catch its mutants: their seconds count less.
fn distance(file: &str, test: &Test) -> f64 {
    let (package, module) = targets::module_of(file);
    let own = build::name(&targets::Suite { package, test: None }) == test.binary.name;
    let (folder, _) = module.rsplit_once("::").unwrap_or((&module, ""));
    match own {
        true if test.name.starts_with(&format!("{module}::")) => 0.1,
        true if test.name.starts_with(&format!("{folder}::")) => 0.5,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    /// A binary of tests that is a script: its tests pass or not as the number of the mutant says.
    fn binary(name: &str, body: &str) -> (Binary, Scratch) {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("passmuster-judge-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let executable = folder.join("tests");
        fs::write(&executable, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        (Binary { name: "passmuster::emulator".into(), executable, folder: folder.clone() }, Scratch(folder))
    }

    fn outcome(name: &str, body: &str) -> anyhow::Result<Outcome> {
        let (binary, scratch) = binary(name, body);
        let files = [("crates/harness/src/conformance/oracle.rs".to_owned(), "fn f() { a.b(); }".to_owned())].into();
        let all = sample::candidates(&files)?;
        let limits = Limits { jobs: 2, longest: 2.0, budget: 60.0 };
        let (mut journal, _) = Journal::open(&scratch.0.join("journal"), "a run", false)?;
        let outcomes = run(&[binary], &all.iter().collect::<Vec<_>>(), &limits, &[], &mut journal)?;
        Ok(outcomes[&2].clone())
    }

    /// The list of two tests, `a::first` and `a::second`, and what every test of them writes where it is traced: that it comes to mutant 2.
    const TWO: &str = "case \"$*\" in *--ignored*) exit;; *--list*) echo 'a::first: test'; echo 'a::second: test'; exit;; esac
        if [ -n \"$PASSMUSTER_MUTANT_TRACE\" ]; then echo 2 >>\"$PASSMUSTER_MUTANT_TRACE\"; fi";

    #[test]
    fn failing_test_catches() {
        let body = format!("{TWO}\nif [ $PASSMUSTER_MUTANT = 2 ] && [ $2 = a::second ]; then exit 101; fi");
        assert_eq!(outcome("caught", &body).unwrap(), Outcome::Caught("passmuster::emulator a::second".into()));
    }

    #[test]
    fn passing_tests_let_survive() {
        assert_eq!(outcome("survived", TWO).unwrap(), Outcome::Survived(2));
    }

    #[test]
    fn unreached_mutants_run_nothing() {
        let body = TWO.replace("echo 2", "echo 1") + "\nif [ $PASSMUSTER_MUTANT = 2 ]; then exit 101; fi";
        assert_eq!(outcome("unreached", &body).unwrap(), Outcome::NotReached);
    }

    /// If this fails, a test that fails by itself counts for every mutant.
    #[test]
    fn baseline_must_pass() {
        let error = outcome("baseline", &format!("{TWO}\nif [ $2 = a::first ]; then exit 101; fi")).unwrap_err();
        assert!(error.to_string().ends_with("fail:\npassmuster::emulator a::first"), "{error}");
    }

    /// If this fails, a test that breaks by itself in the middle of a run catches whatever mutant is on.
    #[test]
    fn broken_test_catches_nothing() {
        let body = format!("{TWO}\nif [ -z \"$PASSMUSTER_MUTANT_TRACE\" ]; then exit 101; fi");
        assert_eq!(outcome("broken", &body).unwrap(), Outcome::Survived(2));
    }

    #[test]
    fn slow_tests_are_left_out() {
        let body = format!("{TWO}\nif [ $2 = a::first ]; then sleep 30; fi");
        assert_eq!(outcome("slow", &body).unwrap(), Outcome::Survived(1));
    }

    #[test]
    fn hangs_are_caught() {
        let (binary, scratch) = binary("hang", "if [ $PASSMUSTER_MUTANT = 2 ]; then sleep 30; fi");
        let test = Test { binary, name: "a::first".into() };
        let run = |mutant| test.run(mutant, None, &scratch.0, Duration::from_millis(300)).unwrap();
        assert_eq!([run(0), run(2)], [Ended::Passed, Ended::TimedOut]);
    }
}
