//! Cost of recording, reading and replaying on this machine, compared with reference loops of the same run: `cargo
//! bench -p trace --bench recording`.

#[path = "../tests/hot/mod.rs"]
mod hot;
#[path = "../tests/common/traffic.rs"]
mod traffic;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel};
use hot::{KINDS, StepHook, spread, time};
use rustix::time::{ClockId, clock_gettime};
use trace::{Next, Player, Reader, Record, Recorder, Step};
use traffic::{Rounds, Traffic};

const STEPS: u64 = 1_000_000;
const ROUNDS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("figures.gvt");
    // `-- KIND STEPS` only records that, for counting instructions.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    if let (Some(wanted), Some(steps)) = (arguments.next(), arguments.next()) {
        let wanted = KINDS.iter().find(|(name, _)| *name == wanted).ok_or("no kind has this name")?;
        let mut recorder = Recorder::create(&path, &Config::default(), "figures")?;
        return record_steps(&mut recorder, steps.parse()?, wanted.1);
    }
    append_peer();
    for (name, told) in KINDS {
        record(&path, name, told)?;
        read(&path)?;
    }
    let snapshot = vec![7; 100_000];
    with_snapshots(&path, &snapshot)?;
    open_and_seek(&path)?;
    replay(&path)
}

/// The smallest of several measurements, because other load only adds time.
fn best(mut round: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(round()?);
    }
    Ok(best)
}

/// CPU time of this thread in nanoseconds, without other load.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn per_step(begun: u64) -> f64 {
    (thread_ns() - begun) as f64 / STEPS as f64
}

/// The reference for recording: appends 40 bytes for each step.
fn append_peer() {
    let mut out: Vec<u8> = Vec::with_capacity(64 << 10);
    let one = [7u8; 40];
    let nanos = best(|| {
        let begun = thread_ns();
        for _ in 0..STEPS {
            if out.len() + one.len() > out.capacity() {
                out.clear();
            }
            out.extend_from_slice(black_box(&one));
        }
        Ok(per_step(begun))
    });
    println!("peer: a copy of 40 bytes appended: {:.1} ns", nanos.unwrap_or(f64::NAN));
}

fn record(path: &Path, name: &str, told: StepHook) -> Result<()> {
    let mut input = Input::Deadline;
    let mut effects = Effects::default();
    let mut bytes = 0;
    let made = best(|| {
        let begun = thread_ns();
        for step in 1..=STEPS {
            told(step, &mut input, &mut effects);
            black_box((&input, &effects));
        }
        Ok(per_step(begun))
    })?;
    let recorded = best(|| {
        let mut recorder = Recorder::create(path, &Config::default(), "figures")?;
        let begun = thread_ns();
        record_steps(&mut recorder, STEPS, told)?;
        let nanos = per_step(begun);
        recorder.finish(0)?;
        bytes = std::fs::metadata(path)?.len();
        Ok(nanos)
    })?;
    let (nanos, bytes) = (recorded - made, bytes as f64 / STEPS as f64);
    println!("{name}: recorded at {nanos:.1} ns and {bytes:.2} bytes a step");
    Ok(())
}

fn record_steps(recorder: &mut Recorder, steps: u64, told: StepHook) -> Result<()> {
    let (mut input, mut effects) = (Input::Deadline, Effects::default());
    for step in 1..=steps {
        told(step, &mut input, &mut effects);
        recorder.begin(time(step), black_box(&input))?;
        recorder.end(black_box(&effects))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<()> {
    let nanos = best(|| {
        let begun = thread_ns();
        let mut reader = Reader::open(path)?;
        let steps = reader.by_ref().filter(|record| matches!(record, Ok(Record::Step { .. }))).count();
        assert!(steps as u64 == STEPS && reader.ended());
        Ok(per_step(begun))
    })?;
    println!("    read at {nanos:.1} ns a step: {:.1} million steps a second", 1e3 / nanos);
    let nanos = best(|| read_into(path))?;
    println!("    into one place: {nanos:.1} ns a step: {:.1} million steps a second", 1e3 / nanos);
    Ok(())
}

/// Nanoseconds per step.
fn read_into(path: &Path) -> Result<f64> {
    let begun = thread_ns();
    let (mut reader, mut step, mut steps) = (Reader::open(path)?, Step::default(), 0);
    loop {
        match reader.next_into(&mut step)? {
            Next::Step => steps += u64::from(black_box(&step).finished),
            Next::Other(_) => {}
            Next::End => break,
        }
    }
    assert!(steps >= STEPS && reader.ended());
    Ok((thread_ns() - begun) as f64 / steps as f64)
}

fn with_snapshots(path: &Path, state: &[u8]) -> Result<()> {
    let mut input = Input::Deadline;
    let mut effects = Effects::default();
    let mut recorder = Recorder::create(path, &Config::default(), "figures")?;
    for step in 1..=STEPS {
        if recorder.snapshot_is_due() {
            recorder.snapshot(state, step)?;
        }
        spread(step, &mut input, &mut effects);
        recorder.begin(time(step), &input)?;
        recorder.end(&effects)?;
    }
    recorder.finish(0)?;
    Ok(())
}

fn open_and_seek(path: &Path) -> Result<()> {
    let mut worst = 0f64;
    let open = best(|| {
        let begun = Instant::now();
        Reader::open(path)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    })?;
    let mut reader = Reader::open(path)?;
    for part in 0..100 {
        let wanted = 1 + part * (STEPS / 100);
        let begun = thread_ns();
        reader.seek(wanted)?;
        let Some(Ok(Record::Step { sequence, .. })) = reader.next() else { panic!("no step #{wanted}") };
        worst = worst.max((thread_ns() - begun) as f64 / 1e6);
        assert_eq!(sequence, wanted);
        reader.seek_snapshot(wanted)?;
    }
    println!("a trace of {STEPS} steps: opened in {open:.2} ms, the slowest of 100 seeks {worst:.2} ms");
    Ok(())
}

/// Records a kernel's steps and replays them; compares with reading alone and the kernel alone.
fn replay(path: &Path) -> Result<()> {
    let kinds: [(&str, u32, u64, Rounds); 3] = [
        ("signals of one fence", 1, STEPS, Traffic::signals),
        ("signals of 500 fences", 500, STEPS, Traffic::signals),
        ("waits, and the signals that end them", 8, STEPS / 2, Traffic::waits),
    ];
    for (name, fences, count, told) in kinds {
        let mut recorder = Recorder::create(path, &Config::default(), "figures")?;
        let mut traffic = Traffic::new(&mut recorder, fences);
        told(&mut traffic, &mut recorder, 0..count);
        let steps = traffic.finish(recorder);
        let read = best(|| read_into(path))?;
        let kernel = best(|| kernel_alone(path))?;
        let replayed = best(|| {
            let begun = thread_ns();
            let report = trace::replay(path, &Registry::default(), &mut |_, _| {})?;
            assert!(report.agrees() && report.steps == steps, "{report}");
            Ok((thread_ns() - begun) as f64 / steps as f64)
        })?;
        println!(
            "{name}: replayed at {replayed:.1} ns a step, {:.2} million steps a second; reading alone {read:.1} ns, the \
             kernel alone {kernel:.1} ns",
            1e3 / replayed
        );
        go_anywhere(path, steps)?;
    }
    Ok(())
}

/// Time that the kernel takes for the steps of a trace, which were read before.
fn kernel_alone(path: &Path) -> Result<f64> {
    const AT_A_TIME: usize = 10_000;
    let mut reader = Reader::open(path)?;
    let config = reader.header().config.clone();
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), &config));
    let (mut step, mut effects) = (Step::default(), Effects::default());
    let (mut nanos, mut count, mut read) = (0, 0, Vec::with_capacity(AT_A_TIME));
    let mut over = false;
    while !over {
        while read.len() < AT_A_TIME && !over {
            match reader.next_into(&mut step)? {
                Next::Step => read.push((step.now, std::mem::replace(&mut step.input, Input::Deadline))),
                Next::Other(_) => {}
                Next::End => over = true,
            }
        }
        count += read.len();
        let begun = thread_ns();
        for (now, input) in read.drain(..) {
            effects.clear();
            kernel.handle(now, input, &mut effects);
            black_box(&effects);
        }
        nanos += thread_ns() - begun;
    }
    Ok(nanos as f64 / count as f64)
}

/// Opens the trace and goes somewhere in it, as `gpupv replay --step` and `gpupv why --at` do.
fn go_anywhere(path: &Path, steps: u64) -> Result<()> {
    const PLACES: u64 = 23;
    let (mut worst, mut all) = (0f64, 0f64);
    for place in 1..=PLACES {
        let wanted = place * steps / PLACES;
        let millis = best(|| {
            let begun = Instant::now();
            let mut player = Player::new(Reader::open(path)?, &Registry::default())?;
            let in_the_way = player.go_to(wanted)?;
            assert!(in_the_way.is_none() && player.next() == wanted);
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        })?;
        worst = worst.max(millis);
        all += millis;
    }
    let mean = all / PLACES as f64;
    println!(
        "    opened, and its state at a step: {mean:.1} ms, the slowest of {PLACES} places {worst:.1} ms"
    );
    Ok(())
}
