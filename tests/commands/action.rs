//! The script of action.yml, as GitHub runs it.

use std::{fs, path::Path, process::Command};

/// The script with a kernel of the museum, in a folder of its own: its exit status, and what it wrote there.
fn run(kernel: &str) -> (Option<i32>, String, impl Fn(&str) -> String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entry = root.join("museum/vllm_8558_two_stage_order");
    let folder = std::env::temp_dir().join(format!("passmuster-action-{kernel}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new(root.join(".ci/action"))
        .env("PASSMUSTER", env!("CARGO_BIN_EXE_passmuster"))
        .env("SPEC", entry.join("spec.toml"))
        .env("PTX", entry.join(kernel))
        .env("ARGUMENTS", "--limit 2 --shrink 0")
        .env("RUNNER_TEMP", &folder)
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", folder.join("output"))
        .env("GITHUB_STEP_SUMMARY", folder.join("summary"))
        .output()
        .unwrap();
    let read = move |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), read)
}

#[test]
fn action_reports_a_race() {
    let (status, stdout, read) = run("kernel.bug.ptx");
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("::error title=fail "), "{stdout}");
    assert!(read("summary").contains("| fail |") && read("passmuster.xml").contains("<failure"));
    let output = read("output");
    assert!(output.contains("junit=") && output.contains("record="), "{output}");
}

#[test]
fn action_passes_a_fixed_kernel() {
    let (status, stdout, read) = run("kernel.ptx");
    assert_eq!(status, Some(0), "{stdout}");
    assert!(!stdout.contains("::error") && read("passmuster.xml").contains("<testsuite"), "{stdout}");
}
