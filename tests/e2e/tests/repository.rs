//! Rules of the repository, checked by reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use covers::covers;
use e2e::files::{files, read};
use e2e::programs::tree;
use serde_json::Value;

/// Workspace crates that each crate may use (design: "a crate boundary exists because a rule differs").
const EDGES: [(&str, &[&str]); 39] = [
    ("dist", &["gpupv"]),
    ("d3dkmt", &[]),
    ("fair_queue", &[]),
    ("fence_page", &[]),
    ("frame_ring", &[]),
    ("nt_handle", &["d3dkmt"]),
    ("covers", &[]),
    ("listening", &[]),
    ("sandbox", &[]),
    ("proto", &["d3dkmt"]),
    ("dxgkrnl", &["d3dkmt"]),
    ("barriers", &["d3dkmt"]),
    ("hazards", &["d3dkmt"]),
    ("kmd", &["barriers", "d3dkmt", "dxgkrnl", "hazards"]),
    ("vsock-device", &["frame_ring", "listening"]),
    // What a driver in C must not ask of the system.
    ("driver-host", &["sandbox"]),
    ("drivers", &["d3dkmt", "driver-host", "dxgkrnl", "kmd"]),
    ("trace", &["d3dkmt", "drivers", "dxgkrnl", "proto"]),
    ("timeline", &["d3dkmt", "drivers", "dxgkrnl", "trace"]),
    ("scenario", &["client", "d3dkmt", "drivers", "dxgkrnl", "proto"]),
    ("vm-images", &[]),
    (
        "daemon",
        &[
            "d3dkmt",
            "drivers",
            "dxgkrnl",
            "fair_queue",
            "fence_page",
            "frame_ring",
            "listening",
            "nt_handle",
            "proto",
            "sandbox",
            "timeline",
            "trace",
            "vsock-device",
        ],
    ),
    (
        "live",
        &[
            "d3dkmt",
            "daemon",
            "drivers",
            "dxgkrnl",
            "proto",
            "scenario",
            "trace",
            "vm-images",
            "vsock-device",
        ],
    ),
    (
        "gpupv",
        &[
            "d3dkmt",
            "daemon",
            "drivers",
            "dxgkrnl",
            "kmd",
            "live",
            "proto",
            "sandbox",
            "scenario",
            "timeline",
            "trace",
            "vm-images",
            "vsock-device",
        ],
    ),
    // The command line of gpupv with a `bench` that measures; guest-bench has the words that both share.
    (
        "gpupv-bench",
        &[
            "d3dkmt",
            "daemon",
            "dxgkrnl",
            "gpupv",
            "guest-bench",
            "kmd",
            "live",
            "proto",
            "trace",
            "vsock-device",
        ],
    ),
    ("client", &["d3dkmt", "fence_page", "proto"]),
    ("abi", &["d3dkmt"]),
    ("umd", &["abi", "client", "d3dkmt", "fence_page", "frame_ring", "nt_handle", "proto"]),
    // Loads libdxcore.so at run time.
    ("dev-dxg", &["abi", "d3dkmt", "nt_handle"]),
    (
        "guestd",
        &["d3dkmt", "fair_queue", "fence_page", "frame_ring", "listening", "nt_handle", "proto", "sandbox"],
    ),
    ("guest-bench", &["d3dkmt", "proto", "umd"]),
    ("scenario-client", &["abi", "d3dkmt", "proto", "umd"]),
    ("conformance", &[]),
    ("sample-kmd", &["d3dkmt", "dxgkrnl", "gpupv", "kmd", "scenario"]),
    ("sample-kmd-c", &["d3dkmt", "drivers", "dxgkrnl", "e2e", "gpupv", "proto", "scenario", "trace"]),
    // The guest-side driver of tests uses the device's packet types.
    ("front-end", &["vsock-device"]),
    (
        "e2e",
        &["d3dkmt", "drivers", "dxgkrnl", "frame_ring", "gpupv", "proto", "scenario", "trace", "vm-images"],
    ),
    // The attack suite serves as `gpupv` does, and uses the clients of the end-to-end tests and the front-end.
    ("attacks", &["d3dkmt", "drivers", "e2e", "front-end", "gpupv", "proto", "vsock-device"]),
    // Targets are on every layer that reads bytes of others.
    (
        "fuzz",
        &[
            "abi",
            "d3dkmt",
            "daemon",
            "drivers",
            "dxgkrnl",
            "frame_ring",
            "guestd",
            "kmd",
            "nt_handle",
            "proto",
            "scenario",
            "trace",
            "umd",
            "vsock-device",
        ],
    ),
];

/// Additional workspace crates that only tests may use.
const TEST_EDGES: [(&str, &str); 15] = [
    ("attacks", "fence_page"),
    ("attacks", "frame_ring"),
    ("dxgkrnl", "kmd"),
    ("dxgkrnl", "scenario"),
    ("scenario", "kmd"),
    ("trace", "kmd"),
    // Golden traces are recordings of scenarios.
    ("trace", "scenario"),
    ("timeline", "kmd"),
    ("daemon", "kmd"),
    ("timeline", "vm-images"),
    ("vsock-device", "front-end"),
    // Micro-benchmarks.
    ("gpupv-bench", "barriers"),
    ("gpupv-bench", "drivers"),
    // What a process between a VM and the kernel would cost.
    ("gpupv-bench", "frame_ring"),
    ("gpupv-bench", "hazards"),
];

/// External crates that only some workspace crates may use.
const RESERVED: [(&str, &[&str]); 3] = [
    // The control plane and the agent. In proto behind its feature `services` only.
    (
        "tokio tokio-stream tokio-vsock tonic tonic-health tonic-reflection hyper-util tower",
        &["daemon", "gpupv", "gpupv-bench", "guestd", "live", "e2e"],
    ),
    ("tonic-prost tonic-prost-build protox", &["proto"]),
    // Messages stop at proto; the trace writes its records in place, and the timeline those of Perfetto.
    ("prost", &["proto", "timeline", "trace"]),
];

/// Model crates: no operating system, no unsafe code.
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
        // Tests of every crate record which rules they cover.
        let is_record = dependency == "covers" && (kind == "dev" || package == "e2e");
        let in_tests = kind == "dev" && TEST_EDGES.contains(&(package.as_str(), dependency.as_str()));
        assert!(
            allowed.contains(&dependency.as_str()) || in_tests || is_record,
            "{package} uses {dependency} ({kind}), which EDGES does not allow"
        );
    }
}

#[test]
fn reserved_dependencies_stay_where_they_belong() {
    for (package, dependency, kind, optional) in dependencies() {
        // Tests may use gRPC and async code.
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
fn the_guest_library_links_no_async_runtime() {
    let all = cargo(&["tree", "--offline", "-p", "umd", "-e", "normal", "--prefix", "none"]);
    let heavy: Vec<&str> = all
        .lines()
        .filter(|line| ["tokio", "tonic", "hyper", "h2", "tracing"].iter().any(|name| line.starts_with(name)))
        .collect();
    assert!(heavy.is_empty(), "libdxcore.so must not load {heavy:?} into client processes");
}

#[test]
fn guest_packages_depend_on_no_kernel_and_no_driver() {
    covers!("GPV-001");
    for package in ["umd", "client", "guestd"] {
        let all = cargo(&["tree", "--offline", "-p", package, "-e", "normal", "--prefix", "none"]);
        let names: BTreeSet<&str> = all.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains("proto"), "{package} sends messages");
        for host in ["dxgkrnl", "kmd", "drivers"] {
            assert!(!names.contains(host), "{package} runs in guests and must not depend on {host}");
        }
    }
}

#[test]
fn model_crates_have_no_system_and_no_unsafe_code() {
    for (package, folder) in MODEL {
        let path = tree().join(folder).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).expect("the crate's root");
        for expected in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(
                text.lines().any(|line| line == expected),
                "{package}: {} lacks {expected}",
                path.display()
            );
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

/// Unsafe code outside of tests stands where memory is shared or mapped, C is spoken, or the system is called in a way that rustix
/// does not have. `cargo test -p e2e --test repository unsafe -- --nocapture` prints the counts.
#[test]
fn blocks_of_unsafe_code_are_listed() {
    let mut blocks = BTreeMap::<String, usize>::new();
    for file in sources().iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let path = file.strip_prefix(tree()).expect("it is in the tree").to_string_lossy().into_owned();
        let Some((package, module)) = path.split_once("/src/") else { continue };
        if package.starts_with("tests/") || module.contains("tests") {
            continue;
        }
        let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
        let count: usize = read(file)
            .lines()
            .map(|line| code(line).matches("unsafe {").count() + code(line).matches("unsafe impl").count())
            .sum();
        if count > 0 {
            *blocks.entry(package.to_owned()).or_default() += count;
        }
    }
    for (package, count) in &blocks {
        println!("{package}: {count}");
    }
    let page = read(&tree().join("docs/SAFETY.md"));
    let (_, table) = page.split_once("\n## Unsafe code\n").expect("the section");
    let mut listed = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = row.split('|').skip(1).map(|cell| cell.split(',').map(str::trim));
        let (Some(packages), Some(counts)) = (cells.next(), cells.next()) else { continue };
        let counted =
            packages.zip(counts).filter_map(|(package, count)| Some((package, count.parse().ok()?)));
        listed.extend(counted.map(|(package, count): (&str, usize)| (package.to_owned(), count)));
    }
    assert_eq!(blocks, listed, "left: blocks of unsafe code; right: docs/SAFETY.md");
}

/// A replay has the same result at any time and speed: trace and drivers use no clock, like the model.
#[test]
fn trace_and_drivers_use_no_clock() {
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

/// Names to avoid because they are not the field's, with their replacements.
const RENAMED: [(&str, &str); 45] = [
    ("Actor", "ScenarioClient"),
    ("Around", "FilterDriver"),
    ("asked_ns", "host_time_ns"),
    ("Back", "Reconnect"),
    ("bell", "event_channel or Parker"),
    ("Bell", "EventChannel or Parker"),
    ("bells", "event_channels"),
    ("Bells", "EventChannels"),
    ("Beside", "SideFile"),
    ("Brought", "CopiedPath"),
    ("companion", "paging_context"),
    ("DataMove", "DmaOp"),
    ("desk", "pending_calls"),
    ("Desk", "PendingCalls"),
    ("Dirty", "FlushList"),
    ("Edge", "HappensBefore"),
    ("foresee", "pending_writes"),
    ("give_way", "yield_to_waiters"),
    ("Heard", "TimedMessage"),
    ("Hearing", "HostTimes"),
    ("Holder", "VhostUserProxy or NtHandleOwner"),
    ("Holders", "NtHandleOwners"),
    ("KeptEvents", "RegisteredEvents"),
    ("Lasting", "Elapsed"),
    ("Ledger", "SessionCursors"),
    ("lender", "BackingProvider"),
    ("lent", "backing"),
    ("Lent", "BackingPages"),
    ("Orderer", "Agent"),
    ("Party", "Owner"),
    ("Pen", "Writer"),
    ("Performer", "DmaExecutor"),
    ("Place", "Span, MemoryRef, .. each its own"),
    ("seat", "kernel_host"),
    ("Seat", "KernelHost"),
    ("Seated", "HostState"),
    ("Shadow", "StagingBuffer"),
    ("Staged", "OpenBlock"),
    ("take_back", "detach_backing"),
    ("Thing", "Object"),
    ("Told", "InputSummary, ClientTimestamps, .. each its own"),
    ("Turns", "RoundRobin"),
    ("WentOn", "ResumeOutcome"),
    ("Whole", "Totals"),
    ("Witness", "EngineTracer"),
];

/// Identifiers of a line of code, or those between backticks in a line of a page.
fn identifiers(line: &str, is_code: bool) -> impl Iterator<Item = &str> {
    let (quote, skipped) = if is_code { ('"', 0) } else { ('`', 1) };
    let code = if is_code { line.split("//").next().unwrap_or_default() } else { line };
    let parts = code.split(quote).skip(skipped).step_by(2);
    parts.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
}

#[test]
fn replaced_names_are_not_used() {
    for file in files() {
        let extension = file.extension().unwrap_or_default();
        let is_code = extension == "rs" || extension == "proto";
        if !is_code && extension != "md" || file.ends_with("CHANGELOG.md") {
            continue;
        }
        for (line, number) in read(&file).lines().zip(1..) {
            for (name, instead) in RENAMED {
                let found = identifiers(line, is_code).any(|word| word == name);
                assert!(!found, "{}:{number}: {name} is called {instead} here", file.display());
            }
        }
    }
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    // A checkout directly below the root has too common a name to search for.
    if tree().components().count() <= 2 {
        return;
    }
    let place = format!("{}/", tree().display());
    for file in files() {
        assert!(!read(&file).contains(&place), "{} names {place}", file.display());
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let page = read(&tree().join("docs/DEPENDENCIES.md"));
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
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
        assert!(rows.iter().any(named), "{name} has no row with its reason in docs/DEPENDENCIES.md");
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
            "no crate uses {name}: remove it from Cargo.toml"
        );
    }
}

#[test]
fn the_licences_are_there() {
    for (file, expected) in
        [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Apache License")]
    {
        assert!(
            read(&tree().join(file)).contains(expected),
            "{file} is not the licence that it is named for"
        );
    }
    assert!(read(&tree().join("Cargo.toml")).contains("license = \"MIT OR Apache-2.0\""));
    let sources = files();
    let manifests =
        sources.iter().filter(|file| file.ends_with("Cargo.toml") && *file != &tree().join("Cargo.toml"));
    for manifest in manifests {
        assert!(read(manifest).contains("license.workspace = true"), "{} has no licence", manifest.display());
    }
}

/// The parts of the kernel, and the parts whose names each may use beside the [`KERNEL_WORDS`]. A part's tables are private
/// fields, which other parts cannot access in any case. ARCHITECTURE.md has the diagram.
const KERNEL_PARTS: [(&str, &[&str]); 12] = [
    ("process", &["events", "history", "sharing", "sync", "vidmm", "vidsch"]),
    ("sync", &["process", "sharing", "vidsch"]),
    ("sharing", &["process", "sync"]),
    ("vidmm", &["process", "sharing", "sync", "vidsch"]),
    ("vidsch", &["history", "native", "process", "sync", "tdr", "vidmm"]),
    ("tdr", &["history", "process", "sync", "vidsch"]),
    ("events", &[]),
    ("native", &["sharing", "sync", "tdr"]),
    ("guests", &["process"]),
    ("driver", &["sync", "vidsch"]),
    ("history", &["sync", "vidsch"]),
    ("view", &["events", "guests", "history", "process", "sharing", "sync", "tdr", "vidmm", "vidsch"]),
];

/// Modules that every part may name, and that name no part.
const KERNEL_WORDS: [&str; 14] = [
    "config", "ddi", "duration", "effects", "error", "fault", "feature", "ids", "input", "dma", "planted",
    "policy", "registry", "slab",
];

/// Dispatch modules of no part, from a call or a fault to its implementation.
const KERNEL_SWITCHBOARD: [&str; 7] =
    ["adapter_info", "dispatch", "escape", "feature_calls", "inject", "kernel", "plant"];

const KERNEL_FIELDS_MAX: usize = 16;
const KERNEL_CIRCLE_MAX: usize = 4;

/// The files of the kernel by module path, each with the files that it names.
fn kernel_imports() -> BTreeMap<String, BTreeSet<String>> {
    let root = tree().join("host/dxgkrnl/src");
    let module = |file: &Path| {
        let path = file.strip_prefix(&root).expect("it is in the folder").with_extension("");
        let words: Vec<_> = path.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join("::").trim_end_matches("mod").trim_end_matches("::").to_owned()
    };
    let texts: BTreeMap<String, String> = sources()
        .iter()
        .filter(|file| file.starts_with(&root))
        .map(|file| (module(file), without_comments(&read(file))))
        .collect();
    let owner = |path: &[&str]| {
        let lengths = (1..=path.len()).rev();
        lengths.map(|length| path[..length].join("::")).find(|path| texts.contains_key(path))
    };
    // `crate::Name` is defined in the file from which the root re-exports it.
    let exports: BTreeMap<String, String> = names_of(&texts["lib"], "lib", &[])
        .iter()
        .filter_map(|path| Some((path.last()?.clone(), owner(&words(path))?)))
        .collect();
    let imports = texts.iter().filter(|(module, _)| *module != "lib").map(|(module, text)| {
        let children: Vec<&str> =
            text.split("mod ").skip(1).filter_map(|rest| rest.split(';').next()).collect();
        let named = names_of(text, module, &children);
        let files = named.iter().filter_map(|path| match path.as_slice() {
            [name] if !texts.contains_key(name) => exports.get(name).cloned(),
            path => owner(&words(path)),
        });
        (module.clone(), files.filter(|file| file != module).collect())
    });
    imports.collect()
}

fn words(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// A source text without comments and without the tests at its end.
fn without_comments(text: &str) -> String {
    let (source, _) = text.split_once("#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths within the crate that a file names, from the crate's root.
fn names_of(text: &str, module: &str, children: &[&str]) -> BTreeSet<Vec<String>> {
    let mut paths = Vec::new();
    for statement in text.split("use ").skip(1) {
        expand("", statement.split(';').next().unwrap_or_default(), &mut paths);
    }
    for prefix in ["crate::", "super::"] {
        for (at, _) in text.match_indices(prefix) {
            let end = text[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            paths.push(text[at..end.map_or(text.len(), |end| at + end)].to_owned());
        }
    }
    let parents: Vec<&str> = if module == "lib" { Vec::new() } else { module.split("::").collect() };
    let absolute = |path: &String| {
        let mut words: Vec<&str> = path.split("::").filter(|word| !word.is_empty()).collect();
        let mut base: Vec<&str> = parents.clone();
        match *words.first()? {
            "crate" => base.clear(),
            "super" => {
                let up = words.iter().take_while(|word| **word == "super").count();
                base.truncate(base.len() - up);
                words.drain(1..up);
            }
            first if module == "lib" || children.contains(&first) => words.insert(0, "self"),
            _ => return None,
        }
        base.extend(&words[1..]);
        Some(base.into_iter().map(str::to_owned).collect())
    };
    paths.iter().filter_map(absolute).collect()
}

/// The paths of a use tree.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((stem, rest)) = tree.split_once('{') else {
        return paths.push(format!("{prefix}{}", tree.split(' ').next().unwrap_or_default()));
    };
    let prefix = format!("{prefix}{}", stem.trim());
    let rest = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut begin) = (0, 0);
    for (at, sign) in rest.char_indices().chain([(rest.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !rest[begin..at].trim().is_empty() {
                    expand(&prefix, &rest[begin..at], paths);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

#[test]
fn parts_of_the_kernel_name_only_the_parts_they_may() {
    let part = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let imports = kernel_imports();
    assert!(imports.len() > 80, "the folder is read");
    for (module, named) in &imports {
        let from = part(module);
        if KERNEL_SWITCHBOARD.contains(&from.as_str()) {
            continue;
        }
        let allowed: &[&str] = match KERNEL_PARTS.iter().find(|(name, _)| *name == from) {
            Some((_, allowed)) => allowed,
            None if KERNEL_WORDS.contains(&from.as_str()) => &[],
            None => panic!("{module} belongs to no part: add it to KERNEL_PARTS"),
        };
        let is_part = KERNEL_PARTS.iter().any(|(name, _)| *name == from);
        for to in named.iter().map(|to| part(to)).filter(|to| *to != from) {
            let is_common = KERNEL_WORDS.contains(&to.as_str()) || is_part && to == "kernel";
            assert!(
                is_common || allowed.contains(&to.as_str()),
                "{module} names {to}, which KERNEL_PARTS does not allow"
            );
        }
    }
}

#[test]
fn the_kernel_has_no_big_dependency_cycle_of_files() {
    let imports = kernel_imports();
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            next.extend(imports.get(file).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|file| (file, reach(file))).collect();
    for (file, to) in &reached {
        let circle: Vec<&String> = to.iter().filter(|other| reached[other].contains(*file)).collect();
        assert!(circle.len() <= KERNEL_CIRCLE_MAX, "these files depend on each other in a cycle: {circle:?}");
    }
}

#[test]
fn the_kernel_has_few_fields() {
    let text = without_comments(&read(&tree().join("host/dxgkrnl/src/kernel/mod.rs")));
    let (_, rest) = text.split_once("pub struct Kernel {").expect("the kernel");
    let (fields, _) = rest.split_once("\n}").expect("its end");
    let count = fields.lines().filter(|line| line.ends_with(',')).count();
    assert!((1..=KERNEL_FIELDS_MAX).contains(&count), "the kernel has {count} fields");
}

/// The scripts run as copies, without any program on their path: one that does not refuse can start nothing.
#[test]
fn scripts_of_ci_refuse_arguments_that_they_do_not_know() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["run", "book", "jobs"] {
        let copy = folder.path().join(name);
        std::fs::copy(tree().join(".ci").join(name), &copy).expect("a copy");
        for arguments in [&["--help"][..], &["all", "3"]] {
            let mut bash = Command::new("/bin/bash");
            let output = bash.arg(&copy).args(arguments).env("PATH", "").output().expect("bash starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name} {arguments:?}: {said}");
            assert!(said.starts_with(&format!("usage: .ci/{name}")), "{name} {arguments:?}: {said}");
        }
    }
}
