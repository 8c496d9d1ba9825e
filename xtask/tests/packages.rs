//! What crates.io and docs.rs show of each crate.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

/// The crates that can be published: what cargo says of each.
fn published() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(mut packages) = metadata["packages"].take() else { panic!("no packages") };
    // `publish = false` is an empty list of registries.
    packages.retain(|package| package["publish"].is_null());
    assert!(packages.len() > 8, "{} crates", packages.len());
    packages
}

/// If this fails, the tag of this version has no message, or its changes stand under another version.
#[test]
fn changelog_begins_with_the_version() {
    let changelog = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../CHANGELOG.md")).unwrap();
    let mut sections = changelog.split("\n## ").skip(1);
    let newest = sections.find(|section| !section.starts_with("Unreleased\n")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        newest.starts_with(&format!("{version} - 20")),
        "Cargo.toml has {version}, the changelog begins with {}",
        newest.lines().next().unwrap()
    );
    assert!(newest.lines().filter(|line| line.starts_with("- ")).count() > 3, "no changes: {newest}");
    for package in published() {
        assert_eq!(package["version"], version, "{}", package["name"]);
    }
}

fn folder(package: &Value) -> &Path {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap()
}

/// If this fails, crates.io refuses a crate, or nobody finds it there.
#[test]
fn crates_describe_themselves() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "repository", "readme"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        let keywords: Vec<&str> = package["keywords"].as_array().unwrap().iter().map(|keyword| keyword.as_str().unwrap()).collect();
        assert!((1..=5).contains(&keywords.len()) && keywords.iter().all(|keyword| keyword.len() <= 20), "{name}: keywords {keywords:?}");
        assert!((1..=5).contains(&package["categories"].as_array().unwrap().len()), "{name}: categories");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(folder(&package).join(licence).is_file(), "{name} comes without {licence}");
        }
    }
}

/// If this fails, docs.rs builds a crate for machines that it does not run on, or with features that it does not have.
#[test]
fn docs_rs_can_build_what_it_is_given() {
    for package in published() {
        let (name, metadata) = (&package["name"], &package["metadata"]["docs"]["rs"]);
        assert_eq!(metadata["targets"], serde_json::json!(["x86_64-unknown-linux-gnu"]), "{name}");
        for feature in metadata["features"].as_array().into_iter().flatten().map(|feature| feature.as_str().unwrap()) {
            assert!(package["features"].get(feature).is_some(), "{name} has no feature {feature}");
            assert_ne!(feature, "mpi", "{name}: docs.rs has no MPI");
        }
    }
}

/// If this fails, a link of a README leads nowhere on crates.io: what lies outside a crate's folder is not in its package.
#[test]
fn links_of_readmes_stay_in_their_crates() {
    for package in published() {
        let readme = fs::read_to_string(folder(&package).join("README.md")).unwrap();
        let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let leaving: Vec<&str> = targets.filter(|target| target.starts_with("..") || target.starts_with('/')).collect();
        assert!(leaving.is_empty(), "{}: {leaving:?}", package["name"]);
    }
}
