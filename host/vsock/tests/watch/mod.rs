//! Counts threads of this process by name, to check that none is left behind.

#![allow(dead_code, reason = "each test binary uses its part")]

pub fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// Waits until the count is reached, because a joined thread may be listed a moment longer.
pub fn threads_come_to(prefix: &str, count: usize) -> bool {
    let deadline = std::time::Instant::now() + front_end::PATIENCE;
    while threads_named(prefix) != count && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    threads_named(prefix) == count
}

/// How often the threads with these names went to sleep, which is also how often they woke up.
pub fn sleeps_of_threads_named(prefix: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let ours = statuses.filter(|status| status.starts_with(&format!("Name:\t{prefix}")));
    let lines = ours.filter_map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    lines.sum()
}
