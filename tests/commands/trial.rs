//! Kernels of the trials: bugs that were reported in public and mistakes that people make, each with the verdict that it has to get (trial/NAME/).

mod folder;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rstest::rstest;

use folder::Folder;

const TRIAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/trial");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.current_dir(TRIAL).env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY").args(line.split_whitespace());
    command
}

fn run(line: &str) -> (Option<i32>, String) {
    said(&command(line).output().unwrap())
}

/// Exit status, and both streams.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    (output.status.code(), text)
}

/// Copies a trial, and changes a word of a file of it.
fn changed(name: &str, folder: &Folder, file: &str, from: &str, to: &str) -> String {
    for entry in fs::read_dir(Path::new(TRIAL).join(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.file(&path.file_name().unwrap().to_string_lossy())).unwrap();
    }
    let text = folder.read(file);
    assert!(text.contains(from), "{file} has no {from}");
    folder.write(file, &text.replacen(from, to, 1));
    folder.file("spec.toml")
}

/// If this fails, nobody can judge a kernel that finds its peers in a variable of its module, or a host that forgets to set it goes unnoticed.
#[test]
fn module_state_is_set() {
    let (code, text) = run("validate --spec pytorch163915_module_state/spec.toml");
    assert!(code == Some(0) && text.contains(" 0 findings"), "{text}");
    let folder = Folder::new("module-state");
    let spec = changed("pytorch163915_module_state", &folder, "spec.toml", "[[variable]]\nname = \"nvs_heap_bases\"\nvalue =", "#");
    let (code, text) = run(&format!("validate --spec {spec} --limit 3 --shrink 0"));
    assert!(code == Some(1), "{text}");
}

/// If this fails, a variable that no module has, or that is too small, is silently not set.
#[rstest]
#[case("nvs_heap_bases", "nvs_heap_basis", "spec.toml:26:8: no module has a global or constant variable `nvs_heap_basis`")]
#[case("repeat = \"world\" }]", "repeat = \"9\" }]", "spec.toml:1:1: no call of `module_state` can be made")]
#[case(
    "repeat = \"world\" }]",
    "repeat = \"world\" }, { u64 = \"call\" }]",
    "27:66: a variable is set once for a group: `call` is a call's"
)]
#[case(
    "pointer = \"stage\", of_rank",
    "pointer = \"input\", of_rank",
    "27:10: a variable is set once for a group: input and output are a call's"
)]
#[case(
    "{ pointer = \"stage\", of_rank = \"i\", repeat = \"world\" }",
    "{ u64 = 0, repeat = 9 }",
    "variable `nvs_heap_bases` has 64 bytes, and 72 are given"
)]
fn module_variables_are_checked(#[case] from: &str, #[case] to: &str, #[case] reason: &str) {
    let folder = Folder::new(&format!("module-variable-{}", to.len()));
    let spec = changed("pytorch163915_module_state", &folder, "spec.toml", from, to);
    let (code, text) = run(&format!("validate --spec {spec} --limit 1 --shrink 0"));
    assert!(code == Some(2) && text.contains(reason), "{code:?} {text}");
}

/// If this fails, NCCL's symmetric kernels need an edited PTX.
#[test]
fn strides_come_in_units() {
    let (code, text) = run("validate --spec symmetric_stride/spec.toml");
    assert!(code == Some(0) && text.contains(" 0 findings"), "{text}");
    let (code, text) = run("validate --spec symmetric_stride/spec.toml --ptx symmetric_stride/kernel.bug.ptx --limit 2 --shrink 0");
    assert!(code == Some(1), "{text}");
    let folder = Folder::new("stride");
    let spec = changed("symmetric_stride", &folder, "spec.toml", "shift = 32", "shift = 60");
    let (code, text) = run(&format!("validate --spec {spec} --limit 2"));
    assert!(code == Some(3) && text.contains("bytes apart, which is no multiple of 2^60"), "{text}");
}

/// If this fails, a kernel that reads whole vectors past its input cannot be judged, or one may write there.
#[test]
fn bytes_behind_are_read_only() {
    let (code, text) = run("validate --spec readable_behind/spec.toml");
    assert!(code == Some(0) && text.contains(" 0 findings"), "{text}");
    let (code, text) = run("validate --spec readable_behind/spec.toml --ptx readable_behind/kernel.bug.ptx --limit 9 --shrink 0");
    assert!(code == Some(1) && text.contains("canaries"), "{text}");
    let folder = Folder::new("readable");
    let spec = changed("readable_behind", &folder, "spec.toml", "readable_behind = 16, ", "");
    let (code, text) = run(&format!("validate --spec {spec} --limit 9 --shrink 0"));
    assert!(code == Some(1) && text.contains("memory"), "{text}");
}

/// If this fails, a kernel whose grid is a part of the waiting blocks is refused for a machine that nobody has.
#[test]
fn grids_are_of_this_machine() {
    let folder = Folder::new("grid");
    let spec = changed("readable_behind", &folder, "spec.toml", "grid = 1", "grid = \"waiting_blocks / 4\"");
    let (code, text) = run(&format!("validate --spec {spec} --limit 4"));
    assert!(code == Some(0) && text.contains("4 passed"), "{text}");
    let spec = changed("readable_behind", &folder, "spec.toml", "grid = 1", "grid = \"waiting_blocks / 5\"");
    let (code, text) = run(&format!("validate --spec {spec} --limit 4"));
    assert!(code == Some(3) && text.contains("grid `waiting_blocks / 5` is 0"), "{text}");
    let spec = changed("readable_behind", &folder, "spec.toml", "grid = 1", "grid = \"waiting_blocks / 129\"");
    let (code, text) = run(&format!("validate --spec {spec} --limit 4"));
    assert!(code == Some(2) && text.contains("no call of `readable_behind` can be made"), "{text}");
}

/// If this fails, a run that judged nothing is green.
#[rstest]
#[case::count_multiple("validate --spec SPEC", Some(3), "no case could run; all_gather/readable_behind:bf16,copy:w=1:n=8000000000")]
#[case::faults_of_one_rank("validate faults --spec readable_behind/spec.toml", Some(2), "the list faults has no case of readable_behind")]
#[case::part("validate --spec readable_behind/spec.toml --limit 1 --part 999/999", Some(2), "--part 999/999: ")]
#[case::nothing_matches("validate all_gather:*:w=7 --spec readable_behind/spec.toml", Some(2), "no case has w=7")]
#[case::all_excepted("validate --except all_gather --spec readable_behind/spec.toml", Some(2), "it leaves no case")]
#[case::mutants("mutants --only zzz", Some(2), "--only zzz: no name of")]
#[case::their_mutants("mutants --only zzz --spec symmetric_stride/spec.toml", Some(2), "--only zzz: no name of")]
#[case::mutants_unsupported("mutants --spec UNSUPPORTED", Some(3), "no mutant was judged")]
#[case::museum("museum --only zzz", Some(2), "no entry's name contains `zzz`")]
#[case::order_of_nothing("reveal-order all_reduce/two_shot --count 0", Some(2), "0 is not in 1..")]
#[case::order_of_integers("reveal-order all_reduce/two_shot --dtype i32", Some(3), "sums of i32 are exact in any order")]
#[case::soak_after_the_last("soak --from 18446744073709551615 --list", Some(2), "no round is left")]
#[case::soak_of_no_time("soak --rounds 0", Some(2), "rounds")]
#[case::ledger("ledger --only zzz", Some(2), "in the name of no form")]
#[case::mutants_of_no_time("mutants --machine cuda --budget 0", Some(2), "budget")]
#[case::bench("bench all_reduce --rehearse --sizes , --worlds 2", Some(2), "")]
fn nothing_judged_is_no_pass(#[case] line: &str, #[case] status: Option<i32>, #[case] reason: &str) {
    let folder = Folder::new(&format!("nothing-{}", line.len()));
    let line = if line.contains("UNSUPPORTED") {
        // No case fits: no size is allowed that memory has room for.
        line.replace("UNSUPPORTED", &changed("symmetric_stride", &folder, "spec.toml", "shift = 32", "shift = 60"))
    } else {
        line.replace("SPEC", &changed("readable_behind", &folder, "spec.toml", "most_count = 4096", "count_multiple_of = 8_000_000_000"))
    };
    let (code, text) = run(&line);
    assert!(code == status && text.contains(reason), "{line}: {code:?} {text}");
}

/// If this fails, verdicts of another table, kernel, number of steps or way of adding are taken for those of this run.
#[rstest]
#[case::file("", "table.bin", "kernel")]
#[case::kernel("--kernel {op}gather", "", "kernel")]
#[case::steps("--steps 999999", "", "steps")]
#[case::tensor_cores("--tensor-cores bound", "", "tensor_cores")]
#[case::deadline("--deadline 77", "", "deadline")]
#[case::memory("--memory 64M", "", "memory")]
#[case::module("--ptx symmetric_stride/kernel.bug.ptx", "", "kernel")]
fn resumes_same_run_only(#[case] option: &str, #[case] file: &str, #[case] differs: &str) {
    let folder = Folder::new(&format!("resumes-{differs}-{}", option.len()));
    let flags = "bytes = \"128 * 16 * 4\"";
    let spec = changed("symmetric_stride", &folder, "spec.toml", flags, &format!("{flags}\nfill = {{ file = \"table.bin\" }}"));
    folder.write("table.bin", "\0\0\0\0");
    let json = folder.file("run.json");
    let line = format!("validate --spec {spec} --limit 2 --schedules 1 --json {json}");
    assert_eq!(run(&line).0, Some(0));
    // As an interrupted run leaves it.
    let record =
        folder.read("run.json").replacen("\"summary\"", "\"partial\":{\"judged\":2,\"of\":2,\"why\":\"SIGTERM\"},\n\"summary\"", 1);
    let partial = folder.write("run.json.partial", &record);
    let (code, text) = run(&format!("{line} --resume {partial}"));
    assert_eq!(code, Some(0), "{text}");
    let partial = folder.write("run.json.partial", &record);
    if !file.is_empty() {
        folder.write(file, "\0\0\0\0\0");
    }
    let option = option.replace("{op}", "");
    let (code, text) = run(&format!("{line} --resume {partial} {option}"));
    assert!(code == Some(2) && text.contains(&format!("other selection: {differs} ")), "{text}");
}

/// If this fails, a specification that somebody sends reads whatever its reader may read.
#[test]
fn files_outside_are_refused() {
    let folder = Folder::new("outside");
    let inside = folder.file("inside");
    fs::create_dir(&inside).unwrap();
    let flags = "bytes = \"128 * 16 * 4\"";
    let spec_of = |module: &str, file: &str| {
        let text = fs::read_to_string(Path::new(TRIAL).join("symmetric_stride/spec.toml")).unwrap();
        let text = text.replacen("kernel.ptx", module, 1).replacen(flags, &format!("{flags}\nfill = {{ file = \"{file}\" }}"), 1);
        folder.write("inside/spec.toml", &text)
    };
    fs::copy(Path::new(TRIAL).join("symmetric_stride/kernel.ptx"), folder.file("kernel.ptx")).unwrap();
    fs::copy(folder.file("kernel.ptx"), folder.file("inside/kernel.ptx")).unwrap();
    folder.write("table.bin", "\0");
    fs::copy(folder.file("table.bin"), folder.file("inside/table.bin")).unwrap();
    symlink("../table.bin", folder.file("inside/link.bin")).unwrap();
    let absolute = folder.file("kernel.ptx");
    for (module, file) in
        [("../kernel.ptx", "table.bin"), (&*absolute, "table.bin"), ("kernel.ptx", "../table.bin"), ("kernel.ptx", "link.bin")]
    {
        let line = format!("validate --limit 1 --spec {}", spec_of(module, file));
        let (code, text) = run(&line);
        assert!(code == Some(2) && text.contains("lies outside the folder of the specification"), "{module} {file}: {text}");
        assert_eq!(run(&format!("{line} --allow-outside")).0, Some(0), "{module} {file}");
    }
    // One's own folder by any name is one's own.
    let (code, text) = run(&format!("validate --limit 1 --spec {}", spec_of("../inside/kernel.ptx", "./table.bin")));
    assert_eq!(code, Some(0), "{text}");
}

/// If this fails, a name in a file moves the cursor of a terminal that shows the report, forges lines of it, or annotates a commit.
#[test]
fn control_characters_are_shown() {
    let folder = Folder::new("controls");
    let forged = "gather\\u001b[2J\\n::error::forged\\r";
    let spec = changed("symmetric_stride", &folder, "spec.toml", "entry = \"gather\"", &format!("entry = \"{forged}\""));
    let ptx = folder.read("kernel.ptx").replace("\"kernel.cu\"", "\"k\x1b[31m.cu\"");
    folder.write("kernel.ptx", &ptx);
    let module = changed("symmetric_stride", &folder, "spec.toml", "module = \"kernel.ptx\"", "module = \"k\\u009b1m.ptx\"");
    for line in [
        format!("validate --spec {spec} --limit 1"),
        format!("validate --spec {module} --limit 1"),
        format!("inspect {}", folder.file("kernel.ptx")),
    ] {
        let (_, text) = said(&command(&line).env("GITHUB_ACTIONS", "true").output().unwrap());
        assert!(!text.contains(|c: char| c.is_control() && !"\n\t".contains(c)), "{line}: {text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("::error::forged")), "{text}");
    }
    // Records say what their writer liked.
    let json = folder.file("run.json");
    let bug =
        format!("validate --spec symmetric_stride/spec.toml --ptx symmetric_stride/kernel.bug.ptx --limit 1 --shrink 0 --json {json}");
    assert_eq!(run(&bug).0, Some(1));
    let record = folder.read("run.json").replace("rank 0 gather", "\\u001b]0;t\\u0007\\n::error::forged ");
    let (_, text) =
        said(&command(&format!("report {}", folder.write("forged.json", &record))).env("GITHUB_ACTIONS", "true").output().unwrap());
    assert!(text.contains("forged") && !text.contains(|c: char| c.is_control() && !"\n\t".contains(c)), "{text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("::error::forged")), "{text}");
}

/// A pipe with a name.
fn fifo(folder: &Folder, name: &str) -> String {
    let path = folder.file(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// If this fails, a command waits for ever for a pipe that nobody writes to, or reads a device until memory is full.
#[rstest]
#[case("validate --limit 1 --json JSON --resume FIFO")]
#[case("validate --limit 1 --json JSON --resume /dev/zero")]
#[case("validate --limit 1 --spec FIFO")]
#[case("validate --limit 1 --spec symmetric_stride/spec.toml --ptx FIFO")]
#[case("validate --limit 1 --require FIFO")]
#[case("report FIFO")]
#[case("report --merge --json JSON FIFO")]
#[case("records FIFO")]
#[case("records --require /dev/zero FIFO")]
#[case("inspect FIFO")]
#[case("inspect /dev/zero")]
#[case("museum --gpus-record FIFO --only all_zero_no_such")]
#[case("bench all_reduce --baseline FIFO --rehearse")]
fn pipes_are_not_read(#[case] line: &str) {
    let folder = Folder::new(&format!("pipes-{}", line.len()));
    let line = line.replace("FIFO", &fifo(&folder, "pipe")).replace("JSON", &folder.file("run.json"));
    let mut child = command(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{line}: it waits");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let (code, text) = said(&child.wait_with_output().unwrap());
    let named = text.contains("is no regular file") || line.starts_with("museum");
    assert!(code == Some(2) && named, "{line}: {text}");
}

/// If this fails, Ctrl-C does not end a run whose record goes to a pipe that nobody reads, or leaves a file behind.
#[test]
fn unread_record_is_interruptible() {
    let folder = Folder::new("unread");
    let pipe = fifo(&folder, "pipe");
    let json = folder.file("run.json");
    let mut child = command(&format!("validate --spec readable_behind/spec.toml --limit 1 --json {json} --junit {pipe}"));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The record is written first; then it waits for a reader of the pipe.
    while !Path::new(&json).exists() {
        assert!(child.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it waits for a reader");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it waits");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let (code, text) = said(&child.wait_with_output().unwrap());
    assert!(code == Some(130) && text.contains("nobody reads the pipe"), "{code:?} {text}");
}

/// If this fails, a kernel that needs shared memory gets none, and its crash is blamed on the kernel.
#[test]
fn shared_memory_is_from_metadata() {
    let folder = Folder::new("triton");
    let example = PathBuf::from(ROOT).join("examples/foreign/one_shot_triton");
    for file in ["kernel.ptx", "spec.toml"] {
        fs::copy(example.join(file), folder.file(file)).unwrap();
    }
    let text = folder.read("spec.toml");
    let line = text.lines().find(|line| line.starts_with("dynamic_shared")).unwrap().to_owned();
    let modules: Vec<String> = fs::read_dir(&example).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    modules.iter().filter(|name| name.ends_with(".ptx")).for_each(|name| _ = fs::copy(example.join(name), folder.file(name)).unwrap());
    let validate = |instead: &str| {
        let spec = folder.write("spec.toml", &text.replacen(&line, instead, 1));
        run(&format!("validate --spec {spec} --limit 2 --schedules 1"))
    };
    for instead in ["", "dynamic_shared = 0"] {
        let (code, text) = validate(instead);
        assert!(code == Some(2) && text.contains("uses dynamic shared memory") && text.contains("NAME.json"), "{text}");
    }
    folder.write("kernel.json", "{\"name\": \"k\", \"num_warps\": 4, \"shared\": 4}");
    assert_eq!(validate("").0, Some(0));
    folder.write("kernel.json", "{\"shared\": -4}");
    let (code, text) = validate("");
    assert!(code == Some(2) && text.contains("kernel.json: shared = -4: expected a number of bytes"), "{text}");
}

/// If this fails, faults that could not be judged are taken for faults that were named.
#[test]
fn unjudged_faults_are_no_pass() {
    // It prints that a rank is late, and goes on without it: that is judged, and is no pass.
    let (code, text) = run("validate faults --spec trtllm17647_timeout_returns/spec.toml --ptx trtllm17647_timeout_returns/kernel.bug.ptx");
    assert!(code == Some(1) && text.contains("all_gather/trtllm17647:") && text.contains("fault=absent"), "{text}");
}

/// If this fails, a case that somebody types ends in a panic: the library's products have two types, and hierarchical does four collectives.
#[rstest]
#[case::product_of_f32("all_gather_matmul/nccl_ring+matmul:f32,nk:w=2:rows=8:columns=8:depth=8", 3, "not supported")]
#[case::product_of_bytes("matmul_reduce_scatter/matmul+nccl_ring:e4m3,nk:w=2:rows=8:columns=8:depth=8", 3, "not supported")]
#[case::product_of_integers("all_gather_matmul/fused:i32,nk:w=2:rows=8:columns=8:depth=8", 3, "not supported")]
#[case::fifth_collective("broadcast/hierarchical:bf16,copy:w=4:n=8:nodes=2", 2, "hierarchical")]
#[case::sixth_collective("reduce/hierarchical:bf16,sum:w=4:n=8:nodes=2", 2, "hierarchical")]
fn unknown_kinds_are_refused(#[case] id: &str, #[case] status: i32, #[case] said: &str) {
    let (code, text) = run(&format!("validate {id}"));
    assert!(code == Some(status) && text.contains(said) && !text.contains("panicked"), "{code:?} {text}");
}

/// If this fails, a command that is ended leaves a file behind that looks as if it still ran.
#[test]
fn lock_goes_with_signal() {
    let folder = Folder::new("lock");
    let json = folder.file("run.json");
    let mut child =
        command(&format!("museum --schedules 1000000 --json {json}")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while folder.names() != [".run.json.lock"] {
        assert!(begin.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "{:?}", folder.names());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
