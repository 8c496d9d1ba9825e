//! What documents show is done: commands, what they print, and parts of specifications.

mod followed;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use followed::{Block, Shell, What, blocks};
use passmuster::algorithms::Foreign;
use rstest::rstest;
use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PASSMUSTER: &str = env!("CARGO_BIN_EXE_passmuster");

/// Documents whose commands are done, here or in examples/own_kernel/tests/tutorial.rs.
const FOLLOWED: [&str; 5] =
    ["README.md", "docs/emulator/races.md", "docs/reference/tasks.md", "docs/tutorial-algorithm.md", "docs/tutorial-foreign-kernel.md"];

/// Commands of the repository's upkeep, which `passmuster` does not have.
const OF_XTASK: [&str; 3] = ["test", "judge-mutants", "dist"];

fn read(document: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(document)).unwrap()
}

/// Every document, and its text.
fn documents() -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "-z", "*.md"]).current_dir(ROOT).output().unwrap();
    let paths = String::from_utf8(output.stdout).unwrap();
    let paths: Vec<(String, String)> =
        paths.split('\0').filter(|path| !path.is_empty()).map(|path| (path.to_owned(), read(path))).collect();
    assert!(paths.len() > 30, "{} documents", paths.len());
    paths
}

/// What reads a block that no command runs.
fn reader(document: &str, block: &Block) -> Option<&'static str> {
    match &*block.language {
        "rust" if document.starts_with("crates/") => Some("rustdoc: it is the head of a crate"),
        "python" if ["README.md", "python/README.md"].contains(&document) => Some("tests of the package"),
        "toml" if ["docs/reference/specification.md", "docs/reference/tasks.md"].contains(&document) => Some("the tests below"),
        "toml" if document == "docs/tutorial-algorithm.md" => Some("examples/own_kernel/tests/tutorial.rs"),
        "json" if document == "docs/reference/tasks.md" => Some("a test below"),
        "" if document == "docs/reference/tasks.md" && !block.text.contains("cargo ") => Some("a test below"),
        "" if document == "docs/emulator/hangs.md" => Some("crates/harness/tests/hangs.rs"),
        "" if document == "docs/reference/case-ids.md" => Some("unit tests of the harness, which read ids and queries"),
        _ => None,
    }
}

/// If this fails, a document shows something that nobody tries, and does not say so.
#[test]
fn blocks_are_run_or_say_why_not() {
    let (mut run, mut wrong) = (0, Vec::new());
    for (document, text) in documents() {
        for block in blocks(&text) {
            let place = format!("{document}:{}", block.line);
            match &block.what {
                What::Made(_) => run += 1,
                What::PrintedBy(_) if FOLLOWED.contains(&&*document) => run += 1,
                What::PrintedBy(_) => wrong.push(format!("{place}: no test has it printed")),
                What::NotRun(reason) if reason.split_whitespace().count() < 3 => wrong.push(format!("{place}: `{reason}` is no reason")),
                What::NotRun(reason) => println!("{place} is not run: {reason}"),
                What::Plain if reader(&document, &block).is_some() => run += 1,
                What::Plain if block.is_commands() && FOLLOWED.contains(&&*document) => run += 1,
                What::Plain => wrong.push(format!("{place}: put `<!-- not run: REASON -->` above it, or have a test run it")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run > 30, "{run}");
}

/// The words of a command as a shell has them, up to what follows it. Brackets of a synopsis are left out, and values stand for their names.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), false);
    for c in format!("{line} ").chars() {
        match c {
            '\'' => quote = !quote,
            ' ' if !quote => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            _ => word.push(c),
        }
    }
    let ends = |word: &String| [">", "|", "&&", "#"].contains(&&**word) || word.ends_with(';');
    let end = words.iter().position(ends).map_or(words.len(), |end| if words[end].ends_with(';') { end + 1 } else { end });
    let plain = |word: &String| match word.trim_matches(['[', ']', ';']) {
        "N" => "1".to_owned(),
        "K/N" | "$SLURM_ARRAY_TASK_ID/16" => "1/2".to_owned(),
        "SIZE" => "1G".to_owned(),
        "COLLECTIVE" => "all_reduce".to_owned(),
        word => word.to_owned(),
    };
    words[..end].iter().map(plain).filter(|word| !word.is_empty()).collect()
}

/// The arguments of passmuster's commands in a document, in blocks and in sentences, each with its line.
fn commands(document: &str) -> Vec<(usize, Vec<String>)> {
    let (mut commands, mut fenced, mut is_python) = (Vec::new(), false, false);
    for (number, line) in (1..).zip(document.lines()) {
        fenced ^= line.trim_start().starts_with("```");
        is_python = fenced && (is_python || line.trim_start().starts_with("```python"));
        // There it is the name of a package.
        if is_python {
            continue;
        }
        let spans: Vec<&str> = if fenced { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
        for span in spans {
            for start in ["cargo xtask ", "passmuster "] {
                // In a sentence a command is all of a span; a path that ends so is none.
                let at = span.find(start).filter(|&at| if fenced { at == 0 || span[..at].ends_with([' ', '\'', '(']) } else { at == 0 });
                if let Some(at) = at {
                    let mut rest = &span[at + start.len()..];
                    if span[..at].ends_with('\'') {
                        rest = rest.split('\'').next().unwrap();
                    }
                    commands.push((number, words(rest)));
                }
            }
        }
    }
    commands
}

/// If this fails, a document has a command or an option that there is not, or that wants another value.
#[test]
fn commands_have_known_options() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (document, text) in documents() {
        // What a changelog says was true of its version.
        for (line, words) in commands(&text).into_iter().filter(|_| document != "CHANGELOG.md") {
            let is_command = |word: &String| word.starts_with(|c: char| c.is_ascii_lowercase());
            if !words.first().is_some_and(is_command) || OF_XTASK.contains(&&*words[0]) {
                continue;
            }
            let help = Command::new(PASSMUSTER).args(&words).arg("--help").stdout(Stdio::null()).output().unwrap();
            tried += 1;
            if !help.status.success() {
                let why = String::from_utf8_lossy(&help.stderr).lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{document}:{line}: passmuster {}: {why}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 80, "{tried} commands");
}

/// If this fails, a reader who does what a document says sees something else, or an error.
#[rstest]
#[case::readme("README.md", 1)]
#[case::foreign_kernel("docs/tutorial-foreign-kernel.md", 8)]
#[case::races("docs/emulator/races.md", 1)]
#[case::tasks("docs/reference/tasks.md", 1)]
fn commands_print_what_documents_say(#[case] document: &str, #[case] at_least: usize) {
    let shell = Shell::new(&document.replace(['/', '.'], "-"), PASSMUSTER, "");
    let mut done = 0;
    for block in blocks(&read(document)) {
        match &block.what {
            What::Made(name) => {
                // From an empty folder: a specification is the one that the document shows.
                if let Some(path) = name.strip_prefix("code ") {
                    shell.write(path, &block.text);
                }
            }
            What::PrintedBy(command) => {
                shell.prints(Path::new(ROOT), document, &block, command);
                done += 1;
            }
            What::Plain if block.is_commands() && reader(document, &block).is_none() => {
                done += shell.follow(Path::new(ROOT), document, &block)
            }
            What::Plain | What::NotRun(_) => {}
        }
    }
    assert!(done >= at_least, "{done} commands");
}

/// A specification with tables that a document shows: one of a list replaces that of the same name. In both an empty line is between tables.
fn with_tables(specification: &str, shown: &str) -> String {
    let head = |table: &str| -> String {
        let lines = table.lines().filter(|line| line.starts_with('[') || line.starts_with("name = "));
        lines.take(2).map(|line| line.split('#').next().unwrap_or_default().trim_end().to_owned() + "\n").collect()
    };
    let mut tables: Vec<&str> = specification.split("\n\n").collect();
    for table in shown.split("\n\n") {
        match tables.iter_mut().find(|known| head(known) == head(table) && head(table).contains("name = ")) {
            Some(known) => *known = table,
            None => tables.push(table),
        }
    }
    tables.join("\n\n")
}

/// The blocks of TOML that a document shows and nothing else makes.
fn parts(document: &str) -> Vec<Block> {
    blocks(&read(document)).into_iter().filter(|block| block.language == "toml" && block.what == What::Plain).collect()
}

/// A broadcast of which those parts may be.
const BROADCAST: &str = r#"
name = "mine"
collective = "broadcast"
entry = "mine"
dtypes = ["bf16"]
worlds = [2]
launch = { grid = 1, block = 32 }

[call]
count_multiple_of = 64

[[buffer]]
name = "heap"
role = "signals"
bytes = "4096"

[[argument]]
pointer = "input""#;

/// If this fails, the reference of specifications shows a key that there is not, or leaves out one that must be given.
#[test]
fn parts_of_specifications_are_read() {
    let parts = parts("docs/reference/specification.md");
    assert!(parts.len() >= 3, "{parts:?}");
    for Block { line, text, .. } in parts {
        let all = with_tables(BROADCAST, &text);
        if let Err(error) = Foreign::read(&all, None) {
            panic!("docs/reference/specification.md:{line}: {error}\n{all}");
        }
        assert!(Foreign::read(&all.replacen("rank", "rink", 1), None).is_err(), "line {line}: a typo passes");
    }
}

const TASK: &str = "examples/tasks/one_shot_norm";

/// A folder with the example's task, its specification changed.
fn changed_task(name: &str, change: impl FnOnce(String) -> String) -> Shell {
    let shell = Shell::new(name, PASSMUSTER, "");
    shell.bring(Path::new(ROOT), &format!("{TASK}/spec.toml"));
    shell.write(&format!("{TASK}/spec.toml"), &change(read(&format!("{TASK}/spec.toml"))));
    shell
}

/// The ids of that task's cases, or what is wrong with it.
fn listed(name: &str, change: impl FnOnce(String) -> String) -> Result<String, String> {
    let output = changed_task(name, change).run(&format!("passmuster validate --list --spec {TASK}/spec.toml"));
    let [printed, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() { Ok(printed) } else { Err(errors) }
}

/// If this fails, the page of tasks shows a declaration or a contract that is refused.
#[test]
fn parts_of_tasks_are_read() {
    let document = "docs/reference/tasks.md";
    let parts = parts(document);
    assert!(!parts.is_empty());
    for Block { line, text, .. } in parts {
        let list = listed("task", |all| with_tables(&all, &text)).unwrap_or_else(|error| panic!("{document}:{line}: {error}"));
        assert!(list.contains(":tokens=9:"), "{document}:{line}: {list}");
        assert!(listed("task", |all| with_tables(&all, &text.replace("role", "rule"))).is_err(), "line {line}: a typo passes");
    }
    let text = read(document);
    let contracts: Vec<&str> = text.split('`').filter(|span| span.starts_with("{ kind = ")).collect();
    assert_eq!(contracts.len(), 4, "{contracts:?}");
    for contract in contracts {
        let set = |all: String| {
            let (before, after) = all.rsplit_once("\ncontract = ").unwrap();
            format!("{before}\ncontract = {contract}\n{}", after.split_once('\n').unwrap().1)
        };
        listed("contract", set).unwrap_or_else(|error| panic!("{contract}: {error}"));
    }
}

/// If this fails, a program that computes a reference as the page of tasks says gets another question, or its answer is refused.
#[test]
fn questions_and_answers_are_as_shown() {
    let blocks: Vec<Block> = blocks(&read("docs/reference/tasks.md")).into_iter().filter(|block| block.language == "json").collect();
    let [question, answer] = &blocks[..] else { panic!("{blocks:?}") };
    let shown: Value = serde_json::from_str(&question.text).unwrap();
    let elements = |answer: &Value| answer["outputs"][0]["elements"].as_u64().unwrap();
    let bytes = 16 * elements(&serde_json::from_str(&answer.text).unwrap());
    // It keeps the question, and gives the answer, with zeros for the elements and their magnitudes.
    let program = format!("head -n 1 <&3 >question.json; {{ printf '%s' '{}'; echo; head -c {bytes} /dev/zero; }} >&4", answer.text.trim());
    let program = program.replace('\\', "\\\\").replace('"', "\\\"");
    let reference = format!("reference = [\"sh\", \"-c\", \"{program}\"]");
    let shell = changed_task("program", |all| all.replacen("reference = \"all_reduce_rms_norm\"", &reference, 1));
    let case = "all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=3:hidden=64";
    let output = shell.run(&format!("passmuster validate '{case}' --spec {TASK}/spec.toml --allow-program --verbose"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    // The page shows one of the outputs. That it was read is seen by what is said to be missing.
    assert!(text.contains("it gives no residual_out of rank 0"), "{text}");
    let asked: Value = serde_json::from_str(&fs::read_to_string(shell.folder().join(TASK).join("question.json")).unwrap()).unwrap();
    for field in ["task", "dtype", "world", "parameters"] {
        assert_eq!(asked[field], shown[field], "{field}");
    }
    for field in ["inputs", "outputs"] {
        let (asked, shown) = (asked[field].as_array().unwrap(), shown[field].as_array().unwrap());
        assert!(!shown.is_empty() && shown.iter().all(|tensor| asked.contains(tensor)), "{field}: {asked:?}");
    }
    assert_eq!(asked.as_object().unwrap().len(), shown.as_object().unwrap().len());
}

/// If this fails, the page of tasks shows an id that is none.
#[test]
fn ids_of_tasks_are_ids() {
    let text = read("docs/reference/tasks.md");
    let ids: Vec<&str> = text.lines().filter(|line| line.starts_with("all_reduce_rms_norm/")).collect();
    assert!(!ids.is_empty());
    for id in ids {
        let arguments = ["validate", id, "--list", "--spec", "examples/tasks/one_shot_norm/spec.toml"];
        let output = Command::new(PASSMUSTER).args(arguments).current_dir(ROOT).output().unwrap();
        assert!(output.status.success(), "{id}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), id);
    }
}

/// If this fails, README says that passmuster needs or takes something else than it does.
#[test]
fn versions_in_readme_are_those_of_the_code() {
    let (readme, workspace, config) = (read("README.md"), read("Cargo.toml"), read(".cargo/config.toml"));
    let rust = workspace.split_once("rust-version = \"").unwrap().1.split('"').next().unwrap();
    let nccl = workspace.split_once("\"nccl-0").unwrap().1.split('"').next().unwrap();
    let processor = config.split_once("target-cpu=").unwrap().1.split('"').next().unwrap();
    let ranks = passmuster::plan::MAX_RANKS;
    for said in [
        format!("| Rust | {rust} or newer |"),
        format!("| {}.{}, opened at run time |", &nccl[..1], nccl[1..].trim_start_matches('0')),
        format!("(`{processor}`)"),
        format!("The emulator takes up to {ranks} ranks"),
    ] {
        assert!(readme.contains(&said), "README does not say: {said}");
    }
}

/// If this fails, a figure in a sentence of README is another one than in the table that it is from.
#[test]
fn figures_in_sentences_are_those_of_tables() {
    let results = read("docs/performance/results-products.md");
    let (_, table) = results.split_once("<!-- begin all_gather_matmul-two -->").unwrap();
    let rows = table.split("<!-- end").next().unwrap().lines().filter(|line| line.starts_with("| ") && line.ends_with(" |"));
    let last = |row: &str| row.trim_end_matches(" |").rsplit(" | ").next()?.parse::<f64>().ok();
    let times: Vec<f64> = rows.filter_map(last).collect();
    assert_eq!(times.len(), 9, "{times:?}");
    let (least, most) = times.iter().fold((f64::MAX, 0.0f64), |(least, most), &time| (least.min(time), most.max(time)));
    let said = format!("Fused all-gather + matmul takes {least:.2} to {most:.2} times the matmul alone on two H100.");
    assert!(read("README.md").contains(&said), "README does not say: {said}");
}

/// If these fail, the tests above see less than documents show, or take anything for what was printed.
#[test]
fn blocks_and_outputs_are_told_apart() {
    let document = "a\n```\n$ cargo xtask x  # why\nFAIL b (12 tried in 1.3 s): c\n...\nd\n```\n<!-- not run: it takes hours -->\n```sh\ne --f\n```\n\
                    <!-- begin code g.toml -->\n```toml\nh = 1\n```\n<!-- end code g.toml -->\n";
    let found = blocks(document);
    let whats: Vec<&What> = found.iter().map(|block| &block.what).collect();
    assert_eq!(whats, [&What::Plain, &What::NotRun("it takes hours".into()), &What::Made("code g.toml".into())]);
    assert_eq!(blocks("<!-- printed by: a b -->\n```\nc\n```\n")[0].what, What::PrintedBy("a b".into()));
    let steps = found[0].steps();
    let prints = steps[0].prints.clone().unwrap();
    assert_eq!((steps.len(), &*steps[0].line, prints.len()), (1, "cargo xtask x", 3));
    assert!(followed::matches(&prints, "FAIL b (12 tried in 7.25 s): c\n1\n2\nd\n"));
    assert!(followed::matches(&prints, "FAIL b (12 tried in 2 min 7 s): c\nd\n"));
    for other in ["FAIL b (13 tried in 1.3 s): c\nd\n", "FAIL b (12 tried in 1.3 s): c\n", "FAIL b (12 tried in 1.3 s): c\nd\ne\n"] {
        assert!(!followed::matches(&prints, other), "{other}");
    }
    assert_eq!(words("peers [--recipes DIR] --part K/N 'a b' > x"), ["peers", "--recipes", "DIR", "--part", "1/2", "a b"]);
    assert_eq!(commands("see `passmuster x --y` and `a/passmuster z`").len(), 1);
}
