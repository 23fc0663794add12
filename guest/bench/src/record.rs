//! The output: one JSON object a line.
//!
//! ```text
//!   {"figure": "sync_call", "round": 3, "series": {"ours": {"p50": .., "p99": .., "count": ..}, "peer": ..}}
//!   {"figure": "satisfied_wait", "fact": "messages", "value": 0}
//!   {"ask": "small"}
//! ```
//! Times are nanoseconds, rates are bytes per second.

use std::time::Instant;

use anyhow::ensure;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

/// Samples of one series in one round.
#[derive(Default, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn one(sample: f64) -> Samples {
        Samples(vec![sample])
    }

    pub fn add(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Measures the time of `operation`, `count` times.
    pub fn time(
        &mut self,
        count: usize,
        mut operation: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for _ in 0..count {
            let begun = Instant::now();
            operation()?;
            self.add(begun.elapsed().as_nanos() as f64);
        }
        Ok(())
    }

    /// Bytes per second of `count` operations with `bytes` bytes each, as one sample.
    pub fn rate(
        &mut self,
        count: usize,
        bytes: usize,
        mut operation: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        for _ in 0..count {
            operation()?;
        }
        self.add((count * bytes) as f64 / begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn quantile(&self, quantile: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0[(last as f64 * quantile).round() as usize]
    }
}

/// Prints one round.
pub fn round(figure: &str, round: u32, series: &mut [(&str, Samples)]) -> anyhow::Result<()> {
    let mut shown = Map::new();
    for (name, samples) in series {
        ensure!(!samples.0.is_empty(), "nothing was measured of {name}");
        samples.0.sort_by(f64::total_cmp);
        let series = json!({
            "p50": samples.quantile(0.5), "p99": samples.quantile(0.99), "count": samples.0.len()
        });
        shown.insert((*name).into(), series);
    }
    line(&json!({ "figure": figure, "round": round, "series": Value::Object(shown) }));
    Ok(())
}

/// Asks `gpupv bench` for something, in one word.
pub fn ask(word: &str) {
    line(&json!({ "ask": word }));
}

/// Prints a count.
pub fn fact(figure: &str, name: &str, value: u64) {
    line(&json!({ "figure": figure, "fact": name, "value": value }));
}

fn line(value: &Value) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // The reader is gone: then this process has nothing left to do.
    if writeln!(out, "{value}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// The resources that this process has used so far: user and system time in microseconds, and the number of context
/// switches.
///
/// `unsafe` here: C fills in a struct of numbers.
pub fn used() -> [(&'static str, u64); 3] {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a struct of that type; all zeroes are a value of it if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    [
        ("user_us", micros(usage.ru_utime)),
        ("system_us", micros(usage.ru_stime)),
        ("switches", (usage.ru_nvcsw + usage.ru_nivcsw) as u64),
    ]
}

/// CLOCK_MONOTONIC, the same for all processes of a machine.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
