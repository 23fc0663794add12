//! Reads figures of a process from /proc.

use std::path::Path;

use anyhow::Context as _;

fn field(status: &str, name: &str) -> anyhow::Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).with_context(|| format!("/proc/PID/status has no {name}"))
}

/// A field of /proc/PID/status that is in KiB, returned in bytes.
pub fn memory_bytes(process: u32, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(field(&status, name)? * 1024.0)
}

/// Number of context switches to those threads of a process whose names are wanted.
pub fn switches(process: u32, is_selected: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
    let mut switches = 0.0;
    for task in std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
        let folder = task?.path();
        let read = |file| std::fs::read_to_string(folder.join(file));
        // A thread may have exited meanwhile.
        let (Ok(name), Ok(status)) = (read("comm"), read("status")) else { continue };
        if is_selected(name.trim()) {
            switches += field(&status, "voluntary_ctxt_switches:")?;
            switches += field(&status, "nonvoluntary_ctxt_switches:")?;
        }
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_was_switched_to() {
        let process = std::process::id();
        assert!(memory_bytes(process, "VmRSS:").unwrap() > 4096.0);
        assert!(switches(process, |_| true).unwrap() >= 0.0);
        assert_eq!(switches(process, |_| false).unwrap(), 0.0);
        assert!(memory_bytes(process, "NoSuchLine:").is_err());
    }
}
