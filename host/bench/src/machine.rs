//! Describes the machine that was measured.

use std::process::Command;

use serde_json::{Value, json};

use crate::placement::Cores;

/// Properties of the machine that are read first: later this process may be pinned to one core.
pub struct Baseline {
    cores: usize,
    load_average: f64,
}

impl Baseline {
    pub fn measure() -> Baseline {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Baseline { cores, load_average: load_average() }
    }
}

/// The load average over a minute. Other work on the machine makes figures worse.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

fn qemu() -> Option<String> {
    let output = Command::new("qemu-system-x86_64").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned)
}

/// The build profile. Figures of a debug build are meaningless.
pub fn profile() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

/// The machine and the build.
pub fn describe(before: &Baseline, cores: Cores) -> Value {
    let kernel = rustix::system::uname();
    json!({
        "processor": processor(),
        "cores": before.cores,
        "kernel": kernel.release().to_string_lossy(),
        "qemu": qemu(),
        "profile": profile(),
        "version": env!("CARGO_PKG_VERSION"),
        "placement": { "host_core": cores.host, "guest_core": cores.guest },
        "load_average": { "before": before.load_average, "after": load_average() },
    })
}
