//! Rules of the repository, checked by reading it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::programs::tree;
use serde_json::Value;

/// Which of our crates each of our crates may use (design: "a crate boundary exists because a rule differs").
const EDGES: [(&str, &[&str]); 23] = [
    ("d3dkmt", &[]),
    ("fence_page", &[]),
    ("nt_handle", &["d3dkmt"]),
    ("proto", &["d3dkmt"]),
    ("dxgkrnl", &["d3dkmt"]),
    ("barriers", &["d3dkmt"]),
    ("hazards", &["d3dkmt"]),
    ("kmd", &["barriers", "d3dkmt", "dxgkrnl", "hazards"]),
    ("vsock-device", &[]),
    ("drivers", &["d3dkmt", "dxgkrnl", "kmd"]),
    ("trace", &["d3dkmt", "drivers", "dxgkrnl", "proto"]),
    ("timeline", &["d3dkmt", "drivers", "dxgkrnl", "trace"]),
    ("scenario", &["client", "d3dkmt", "drivers", "dxgkrnl", "proto"]),
    ("vm-images", &[]),
    (
        "gpupv",
        &[
            "d3dkmt",
            "drivers",
            "dxgkrnl",
            "fence_page",
            "kmd",
            "nt_handle",
            "proto",
            "scenario",
            "timeline",
            "trace",
            "vm-images",
            "vsock-device",
        ],
    ),
    ("client", &["d3dkmt", "fence_page", "proto"]),
    ("umd", &["client", "d3dkmt", "fence_page", "nt_handle", "proto"]),
    ("guestd", &["d3dkmt", "fence_page", "nt_handle", "proto"]),
    ("guest-bench", &["d3dkmt", "proto", "umd"]),
    ("actor", &["d3dkmt", "proto", "umd"]),
    ("conformance", &[]),
    ("sample-kmd", &["d3dkmt", "dxgkrnl", "gpupv", "kmd", "scenario"]),
    ("e2e", &["d3dkmt", "drivers", "dxgkrnl", "gpupv", "proto", "scenario", "trace", "vm-images"]),
];

/// More of our crates that tests alone may use.
const TEST_EDGES: [(&str, &str); 7] = [
    ("dxgkrnl", "kmd"),
    ("dxgkrnl", "scenario"),
    ("scenario", "kmd"),
    ("trace", "kmd"),
    // Golden traces are recordings of scenarios.
    ("trace", "scenario"),
    ("timeline", "kmd"),
    ("timeline", "vm-images"),
];

/// Crates of others that only some of ours may use.
const RESERVED: [(&str, &[&str]); 3] = [
    // The control plane and the agent. In proto behind its feature `services` only.
    (
        "tokio tokio-stream tokio-vsock tonic tonic-health tonic-reflection hyper-util tower",
        &["gpupv", "guestd", "e2e"],
    ),
    ("tonic-prost tonic-prost-build protox", &["proto"]),
    // Messages stop at proto; the trace writes its records in place, and the timeline those of Perfetto.
    ("prost", &["proto", "timeline", "trace"]),
];

/// Crates that are values: no operating system, no unsafe code.
const MODEL: [(&str, &str); 6] = [
    ("d3dkmt", "shared/d3dkmt"),
    ("fence_page", "shared/fence_page"),
    ("dxgkrnl", "host/dxgkrnl"),
    ("kmd", "host/kmd"),
    ("barriers", "host/barriers"),
    ("hazards", "host/hazards"),
];

const FILE_LINES_MAX: usize = 800;

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).current_dir(tree()).args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// Every dependency that a manifest names: package, dependency, kind, optional.
fn dependencies() -> Vec<(String, String, String, bool)> {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let mut dependencies = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        assert!(EDGES.iter().any(|(known, _)| *known == name), "crate {name} is not in EDGES");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            dependencies.push((
                name.to_owned(),
                dependency["name"].as_str().expect("a name").to_owned(),
                dependency["kind"].as_str().unwrap_or("normal").to_owned(),
                dependency["optional"].as_bool().unwrap_or(false),
            ));
        }
    }
    dependencies
}

#[test]
fn crates_use_only_the_crates_they_may() {
    let ours: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    for (package, dependency, kind, _) in dependencies() {
        if !ours.contains(dependency.as_str()) {
            continue;
        }
        let (_, allowed) = EDGES.iter().find(|(name, _)| *name == package).expect("it is in the list");
        let in_tests = kind == "dev" && TEST_EDGES.contains(&(package.as_str(), dependency.as_str()));
        assert!(
            allowed.contains(&dependency.as_str()) || in_tests,
            "{package} uses {dependency} ({kind}): no such edge is allowed"
        );
    }
}

#[test]
fn reserved_dependencies_stay_where_they_belong() {
    for (package, dependency, kind, optional) in dependencies() {
        // Tests speak gRPC and async as they need.
        if kind == "dev" {
            continue;
        }
        for (names, allowed) in RESERVED {
            if !names.split(' ').any(|name| name == dependency) {
                continue;
            }
            let behind_feature = package == "proto" && optional;
            assert!(
                allowed.contains(&package.as_str()) || behind_feature,
                "{package} uses {dependency}, which only {allowed:?} may"
            );
        }
    }
}

#[test]
fn the_guest_library_has_no_runtime_in_it() {
    let all = cargo(&["tree", "--offline", "-p", "umd", "-e", "normal", "--prefix", "none"]);
    let heavy: Vec<&str> = all
        .lines()
        .filter(|line| ["tokio", "tonic", "hyper", "h2", "tracing"].iter().any(|name| line.starts_with(name)))
        .collect();
    assert!(heavy.is_empty(), "libdxcore.so would bring {heavy:?} into other people's processes");
}

// covers: GPV-001
#[test]
fn what_runs_in_a_guest_has_no_kernel_and_no_driver_in_it() {
    for package in ["umd", "client", "guestd"] {
        let all = cargo(&["tree", "--offline", "-p", package, "-e", "normal", "--prefix", "none"]);
        let names: BTreeSet<&str> = all.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains("proto"), "{package} sends messages");
        for host in ["dxgkrnl", "kmd", "drivers"] {
            assert!(!names.contains(host), "{package} brings {host} into guests");
        }
    }
}

#[test]
fn model_crates_have_no_system_and_no_unsafe_code() {
    for (package, folder) in MODEL {
        let path = tree().join(folder).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).expect("the crate's root");
        for wanted in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(text.lines().any(|line| line == wanted), "{package}: {} lacks {wanted}", path.display());
        }
        for file in files().iter().filter(|file| file.starts_with(tree().join(folder).join("src"))) {
            let text = read(file);
            for word in ["extern crate std", "std::time", "HashMap", "HashSet"] {
                let in_tests = file.ends_with("tests.rs");
                assert!(in_tests || !text.contains(word), "{}: {word} in a model", file.display());
            }
        }
    }
}

/// A replay comes to the same at any time and speed: besides the model, which has none, nobody who takes part has a clock.
#[test]
fn who_replays_has_no_clock() {
    let folders = ["host/trace/src", "host/drivers/src"].map(|folder| tree().join(folder));
    let of_them = |file: &&PathBuf| folders.iter().any(|folder| file.starts_with(folder));
    let sources = sources();
    let files: Vec<&PathBuf> = sources.iter().filter(of_them).collect();
    assert!(files.len() > 20, "the folders are read");
    for file in files {
        let text = read(file);
        for word in ["std::time", "rustix::time", "clock_gettime"] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

/// Every file of the tree that is ours: not what was built, not git's own.
fn files() -> Vec<PathBuf> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let built = path.join("CACHEDIR.TAG").is_file() || name == "target" || name == ".git";
                if !built && !path.is_symlink() {
                    walk(&path, files);
                }
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(tree(), &mut files);
    files
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).expect("a file of the tree")).into_owned()
}

fn sources() -> Vec<PathBuf> {
    let mut files = files();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs" || extension == "c"));
    assert!(files.len() > 100, "the tree is read");
    files
}

#[test]
fn no_source_file_is_too_long() {
    for file in sources() {
        let lines = read(&file).lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines, at most {FILE_LINES_MAX}", file.display());
    }
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    // A checkout directly below the root has a name too common to look for.
    if tree().components().count() <= 2 {
        return;
    }
    let place = format!("{}/", tree().display());
    for file in files() {
        assert!(!read(&file).contains(&place), "{} names {place}", file.display());
    }
}

#[test]
fn every_dependency_has_its_reason_in_the_architecture() {
    let architecture = read(&tree().join("ARCHITECTURE.md"));
    let rows: Vec<&str> = architecture.lines().filter(|line| line.starts_with('|')).collect();
    let manifest = read(&tree().join("Cargo.toml"));
    let ours: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let mut listed = 0;
    let dependencies = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    for line in dependencies.take_while(|line| !line.starts_with('[')) {
        let Some((name, _)) = line.split_once(" = ") else { continue };
        if ours.contains(name) || line.starts_with('#') {
            continue;
        }
        listed += 1;
        let named = |row: &&str| {
            let mut cells = row.split('|').skip(1);
            let names = cells.next().unwrap_or_default();
            let reason = cells.next().unwrap_or_default().trim();
            names.split([',', ' ', '`']).any(|word| word == name) && !reason.is_empty()
        };
        assert!(rows.iter().any(named), "{name} has no row with its reason in ARCHITECTURE.md");
    }
    assert!(listed > 30, "the manifest is read");
}

#[test]
fn every_listed_dependency_is_used() {
    let used: BTreeSet<String> = dependencies().into_iter().map(|(_, dependency, ..)| dependency).collect();
    let manifest = read(&tree().join("Cargo.toml"));
    let dependencies = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    for line in dependencies.take_while(|line| !line.starts_with('[')) {
        let Some((name, _)) = line.split_once(" = ") else { continue };
        assert!(
            line.starts_with('#') || used.contains(name),
            "nobody uses {name}: take it out of Cargo.toml"
        );
    }
}

#[test]
fn the_licences_are_there() {
    for (file, wanted) in
        [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Apache License")]
    {
        assert!(read(&tree().join(file)).contains(wanted), "{file} is not the licence that it is named for");
    }
    assert!(read(&tree().join("Cargo.toml")).contains("license = \"MIT OR Apache-2.0\""));
    let sources = files();
    let manifests =
        sources.iter().filter(|file| file.ends_with("Cargo.toml") && *file != &tree().join("Cargo.toml"));
    for manifest in manifests {
        assert!(read(manifest).contains("license.workspace = true"), "{} has no licence", manifest.display());
    }
}
