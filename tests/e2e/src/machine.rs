//! Processes as `/proc` shows them: descriptors, threads, memory, context switches.

use std::fs;

fn folder(pid: u32, name: &str) -> Vec<fs::DirEntry> {
    let path = format!("/proc/{pid}/{name}");
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    entries.filter_map(Result::ok).collect()
}

/// The folder in which `covers!` of any test of the process records its rule for a moment.
const COVERED: &str = "/conformance/covered/";

/// The target of each open descriptor of a process, in order, without the one of this function and those of records.
pub fn open_files(pid: u32) -> Vec<String> {
    let own = format!("/proc/{pid}/fd");
    let mut files: Vec<String> = folder(pid, "fd")
        .iter()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| kind_of(&target.to_string_lossy()))
        .filter(|target| *target != own && !target.contains(COVERED))
        .collect();
    files.sort();
    files
}

/// Removes the inode numbers, which differ for each socket and pipe.
fn kind_of(target: &str) -> String {
    match target.split_once(":[") {
        Some((kind, _)) => kind.into(),
        None => target.into(),
    }
}

/// The names of a process's threads, in order.
pub fn threads(pid: u32) -> Vec<String> {
    let mut names: Vec<String> = folder(pid, "task")
        .iter()
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

/// The threads of a daemon and its VMs in this process, without the test's own threads.
pub fn daemon_threads() -> Vec<String> {
    let mut names = threads(std::process::id());
    names.retain(|name| name.starts_with("gpupv-") || name.starts_with("vsock-"));
    names
}

/// Mappings of this process whose file has this in its name.
pub fn mappings_of(name: &str) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("our own mappings");
    maps.lines().filter(|line| line.contains(name)).count()
}

fn status_number(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// All mappings of a process.
pub fn mapping_count(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/maps")).map_or(0, |maps| maps.lines().count())
}

fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    status_number(&status, field)
}

fn status_bytes(pid: u32, field: &str) -> u64 {
    status(pid, field) * 1024
}

/// Descriptors for which the kernel has room without a new table for the process.
pub fn descriptor_room(pid: u32) -> u64 {
    status(pid, "FDSize:")
}

/// Resident bytes of a process.
pub fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Peak resident bytes of a process, since its start or since [`forget_peak`].
pub fn peak_resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

/// Restarts the measurement of [`peak_resident_bytes`].
pub fn forget_peak(pid: u32) {
    const PEAK: &str = "5";
    fs::write(format!("/proc/{pid}/clear_refs"), PEAK).expect("the process is ours");
}

/// Number of context switches of a process's threads.
pub fn context_switches(pid: u32) -> u64 {
    folder(pid, "task")
        .iter()
        .map(|entry| fs::read_to_string(entry.path().join("status")).unwrap_or_default())
        .map(|status| {
            status_number(&status, "voluntary_ctxt_switches:")
                + status_number(&status, "nonvoluntary_ctxt_switches:")
        })
        .sum()
}
