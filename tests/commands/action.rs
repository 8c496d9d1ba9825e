//! The script of action.yml, as GitHub runs it.

mod folder;

use std::{path::Path, process::Command};

use folder::Folder;

/// The script with a kernel of the museum, in a folder of its own: its exit status, what it printed, and the folder.
fn run(kernel: &str) -> (Option<i32>, String, Folder) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entry = root.join("museum/vllm_8558_two_stage_order");
    let folder = Folder::new(&format!("action-{kernel}"));
    let output = Command::new(root.join(".ci/action"))
        .env("PASSMUSTER", env!("CARGO_BIN_EXE_passmuster"))
        .env("SPEC", entry.join("spec.toml"))
        .env("PTX", entry.join(kernel))
        .env("ARGUMENTS", "--limit 2 --shrink 0")
        .env("RUNNER_TEMP", folder.file(""))
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", folder.file("output"))
        .env("GITHUB_STEP_SUMMARY", folder.file("summary"))
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), folder)
}

#[test]
fn action_reports_a_race() {
    let (status, stdout, folder) = run("kernel.bug.ptx");
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("::error title=fail "), "{stdout}");
    assert!(folder.read("summary").contains("| fail |") && folder.read("passmuster.xml").contains("<failure"));
    let output = folder.read("output");
    assert!(output.contains("junit=") && output.contains("record="), "{output}");
}

#[test]
fn action_passes_a_fixed_kernel() {
    let (status, stdout, folder) = run("kernel.ptx");
    assert_eq!(status, Some(0), "{stdout}");
    assert!(!stdout.contains("::error") && folder.read("passmuster.xml").contains("<testsuite"), "{stdout}");
}
