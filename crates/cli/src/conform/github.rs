//! What GitHub Actions shows of a run: an annotation for each finding, and the summary of a step.
//! See "Workflow commands for GitHub Actions" in GitHub's documentation.

use std::{
    env,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use passmuster_harness::conformance::{Case, CaseId, Verdict};
use passmuster_plan::{
    algorithms::{Registry, Target},
    modules::name_without_stalls,
};

use crate::{print, project};

/// The most annotations: GitHub shows ten errors of a step.
const MOST: usize = 10;

/// Where under the root of the sources an algorithm's plan is, as COLLECTIVE/NAME.rs.
const PLANS: &str = "crates/kernels/src";

/// Whether a run's output is read by GitHub Actions.
pub(super) fn listens() -> bool {
    print::is_read_by_github()
}

/// A workflow command for each of the findings, with the line that reproduces it. `ptx` is that of a kernel from elsewhere.
pub(super) fn annotations(registry: &Registry, command: &str, found: &[(&Case, &Verdict)], ptx: Option<&Path>) -> Vec<String> {
    let root = project::source_tree().unwrap_or_default();
    let annotation = |&(case, verdict): &(&Case, &Verdict)| {
        let file =
            source(registry, &root, case, ptx).map(|path| format!(",file={}", property(&path.display().to_string()))).unwrap_or_default();
        let title = property(&format!("{} {}", verdict.status.name().replace('_', " "), verdict.case));
        format!("::error title={title}{file}::{}", data(&format!("{}\n{}", said(verdict), verdict.repro(command))))
    };
    let more = found.len().saturating_sub(MOST);
    let and_more = (more > 0).then(|| format!("::error title=passmuster::and {more} more findings"));
    found.iter().take(MOST).map(annotation).chain(and_more).collect()
}

/// Appends to the summary of the step, where GitHub has named a file for it, the verdict and a table of the findings.
pub(super) fn summarise(kind: &str, concluded: &str, command: &str, found: &[(&Case, &Verdict)]) {
    let Some(path) = env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else { return };
    let text = summary(kind, concluded, command, found);
    let written = OpenOptions::new().create(true).append(true).open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = written {
        eprintln!("cannot write {}: {error}", Path::new(&path).display());
    }
}

/// Markdown.
fn summary(kind: &str, concluded: &str, command: &str, found: &[(&Case, &Verdict)]) -> String {
    let mut text = format!("### passmuster {kind}\n\n{}\n\n", cell(concluded));
    if !found.is_empty() {
        text += "| status | case | finding | repro |\n|---|---|---|---|\n";
    }
    for (_, verdict) in found.iter().take(MOST) {
        let [case, repro] = [&verdict.case, &verdict.repro(command)].map(|code| format!("<code>{}</code>", cell(code)));
        text += &format!("| {} | {case} | {} | {repro} |\n", verdict.status, cell(&said(verdict)));
    }
    if found.len() > MOST {
        text += &format!("\nand {} more findings\n", found.len() - MOST);
    }
    text + "\n"
}

/// What a verdict says, in a line.
fn said(verdict: &Verdict) -> String {
    let first = verdict.findings.first().map(|finding| format!("{}: {}", finding.property, finding.summary));
    first.unwrap_or_else(|| verdict.reason.clone())
}

/// The file under the root of the sources that a case tests: the kernel, or else how its algorithm plans.
fn source(registry: &Registry, root: &Path, case: &Case, ptx: Option<&Path>) -> Option<PathBuf> {
    if let Some(ptx) = ptx {
        let kernel = ptx.with_extension("cu");
        return Some(if kernel.exists() { kernel } else { ptx.to_owned() });
    }
    let modules = case.modules(registry, Target::default().waiting_blocks);
    let kernels = modules.into_iter().map(|module| PathBuf::from(format!("kernels/{}.cu", name_without_stalls(&module))));
    let [collective, algorithm, ..] = case.head();
    let own = Path::new(collective).join(algorithm);
    // What the harness itself launches comes after the algorithm's own.
    let (of_algorithm, others): (Vec<_>, Vec<_>) = kernels.partition(|kernel| kernel.with_extension("") == Path::new("kernels").join(&own));
    let plan = Path::new(PLANS).join(&own).with_extension("rs");
    let of_collective = others.into_iter().filter(|kernel| kernel.starts_with(Path::new("kernels").join(collective)));
    of_algorithm.into_iter().chain([plan]).chain(of_collective).find(|path| root.join(path).exists())
}

/// Text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command, which a comma or a colon would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Text in a cell of a Markdown table.
fn cell(text: &str) -> String {
    let text = print::visible(text);
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped
        .replace('|', "&#124;")
        .replace('`', "&#96;")
        .replace('*', "&#42;")
        .replace('_', "&#95;")
        .replace('[', "&#91;")
        .replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use passmuster_harness::conformance::{Finding, Status};

    use super::*;

    fn found() -> (Case, Verdict) {
        let case: Case = "all_reduce/two_shot:bf16,sum:w=2:n=8".parse().unwrap();
        let mut verdict = Verdict::without_checks(case.to_string(), Status::Fail, "");
        verdict.schedule = Some("random-5f".into());
        let summary = "100 % of 8 | `wrong` <b>\nlate".to_owned();
        verdict.findings.push(Finding { property: "reference".into(), call: None, summary, details: String::new(), ..Finding::default() });
        (case, verdict)
    }

    #[test]
    fn an_annotation_is_one_command_that_names_the_kernel() {
        let (case, verdict) = found();
        let lines = annotations(&crate::built_in(), "cargo xtask validate", &[(&case, &verdict)], None);
        assert_eq!(
            lines,
            ["::error title=fail all_reduce/two_shot%3Abf16%2Csum%3Aw=2%3An=8,file=kernels/all_reduce/two_shot.cu::\
              reference: 100 %25 of 8 | `wrong` <b>%0Alate%0A\
              cargo xtask validate --replay 'all_reduce/two_shot:bf16,sum:w=2:n=8@random-5f'"]
        );
    }

    /// If this fails, a finding of a rank that is late inside a kernel points at no file.
    #[test]
    fn stalls_are_of_the_same_kernel() {
        let case = "all_reduce/two_shot:bf16,sum:w=2:n=8:skew=r1+20us@end".parse().unwrap();
        let root = project::source_tree().unwrap();
        assert_eq!(source(&crate::built_in(), &root, &case, None).unwrap(), Path::new("kernels/all_reduce/two_shot.cu"));
    }

    #[test]
    fn an_algorithm_without_a_kernel_is_its_plan() {
        let case = "all_gather/copy_engine:bf16,copy:w=2:n=8".parse().unwrap();
        let root = project::source_tree().unwrap();
        assert!(root.join(source(&crate::built_in(), &root, &case, None).unwrap()).ends_with("kernels/src/all_gather/copy_engine.rs"));
    }

    #[test]
    fn annotations_end_where_github_stops_to_show_them() {
        let (case, verdict) = found();
        let lines = annotations(&crate::built_in(), "x", &vec![(&case, &verdict); 14], None);
        assert_eq!((lines.len(), lines[10].as_str()), (11, "::error title=passmuster::and 4 more findings"));
    }

    #[test]
    fn no_text_leaves_its_cell() {
        let (case, verdict) = found();
        let text = summary("validate", "0 passed, 1 finding (1 fail) in 1 s", "cargo xtask validate", &[(&case, &verdict)]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows.iter().all(|row| row.matches('|').count() == 5) && !text.contains("<b>"), "{text}");
        assert!(
            text.contains("1 finding (1 fail)") && text.contains("--replay 'all&#95;reduce/two&#95;shot:bf16,sum:w=2:n=8@random-5f'"),
            "{text}"
        );
    }
}
