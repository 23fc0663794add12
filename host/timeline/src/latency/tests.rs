use dxgkrnl::ProcessId;
use proptest::prelude::*;
use trace::{Times, Woken};

use super::words::length_words;
use super::{Collector, Latency, Length, PARTS, Split, Wake};

/// A machine whose clock is `behind` nanoseconds behind the host's. Clock 0 is the host's.
#[derive(Clone, Copy, Debug)]
struct Machine {
    clock: u32,
    behind: u64,
}

impl Machine {
    fn shows(self, host: u64) -> u64 {
        host - self.behind
    }
}

const HOST: Machine = Machine { clock: 0, behind: 0 };

fn wake(step: u64, process: u32, event: u64) -> Wake {
    let (by, call, track) = (0, 0, process);
    Wake { step, by, call, named: None, signal: None, process: ProcessId(process), track, event }
}

/// The true times, by the host's clock: when process 1 called, and how long each part took.
#[derive(Clone, Debug)]
struct Planted {
    called: u64,
    parts: [u64; PARTS],
}

/// Adds the times that a daemon would record: process 1 of one machine signals in this step, process 2 of another
/// waits.
fn add_planted(collector: &mut Collector, step: u64, planted: &Planted, from: Machine, to: Machine) {
    let mut at = [planted.called; PARTS + 1];
    for part in 0..PARTS {
        at[part + 1] = at[part] + planted.parts[part];
    }
    let [called, sent, read_ns, recorded_ns, handled_ns, stored_ns, read, ran] = at;
    collector.wake(wake(step, 2, step));
    let (called_ns, sent_ns) = (from.shows(called), from.shows(sent));
    let times = Times {
        step,
        process: 1,
        clock: from.clock,
        called_ns,
        sent_ns,
        read_ns,
        recorded_ns,
        handled_ns,
        stored_ns,
        ..Times::default()
    };
    collector.times(times);
    // Both processes report their timestamps later; those reports are messages as well.
    let received = Some((stored_ns, from.shows(stored_ns + 25_000)));
    let later = ran + 1_000_000;
    let says = |machine: Machine, process| Times {
        process,
        clock: machine.clock,
        sent_ns: machine.shows(later),
        read_ns: later + 30_000,
        ..Times::default()
    };
    collector.times(Times { received, ..says(from, 1) });
    let woken = Woken { event: step, host_ns: stored_ns, read_ns: to.shows(read), ran_ns: to.shows(ran) };
    collector.times(Times { woken: vec![woken], ..says(to, 2) });
}

fn latency(collector: Collector) -> Latency {
    collector.finish().expect("it has times")
}

fn lengths(split: &Split) -> ([Length; PARTS], Length) {
    (split.parts.map(|part| part.expect("it is known")), split.total.expect("it is known"))
}

fn planted() -> impl Strategy<Value = Planted> {
    let parts = proptest::array::uniform7(100u64..2_000_000);
    (20_000_000_000u64..30_000_000_000, parts).prop_map(|(called, parts)| Planted { called, parts })
}

proptest! {
    #[test]
    fn parts_add_up_and_are_true_within_their_error(
        planted in proptest::collection::vec(planted(), 1..20),
        behind in (0u64..10_000_000_000, 0u64..10_000_000_000),
        same in any::<bool>(),
    ) {
        let from = Machine { clock: 1, behind: behind.0 };
        let to = if same { from } else { Machine { clock: 2, behind: behind.1 } };
        let mut collector = Collector::default();
        for (step, one) in (1..).zip(&planted) {
            add_planted(&mut collector, step, one, from, to);
        }
        let latency = latency(collector);
        prop_assert_eq!(latency.wakes.len(), planted.len());
        for (split, planted) in latency.wakes.iter().zip(&planted) {
            let (parts, total) = lengths(split);
            prop_assert_eq!(parts.iter().map(|part| part.nanos).sum::<i64>(), total.nanos);
            for (part, (length, truth)) in parts.iter().zip(planted.parts).enumerate() {
                let off = length.nanos.abs_diff(truth as i64);
                prop_assert!(off <= length.error, "part {part}: {length:?}, it was {truth}");
                // Only parts between two clocks have an error.
                prop_assert_eq!(length.error == 0, ![1, 5].contains(&part));
            }
            let off = total.nanos.abs_diff(planted.parts.iter().sum::<u64>() as i64);
            prop_assert!(off <= total.error, "{total:?} is {off} ns off");
            prop_assert_eq!(total.error == 0, same, "by one guest's clock nothing is unknown");
        }
    }

    #[test]
    fn any_guest_timestamps_are_handled(
        times in proptest::collection::vec(any::<[u64; 12]>(), 0..20),
        clocks in proptest::collection::vec(0u32..3, 20),
    ) {
        let mut collector = Collector::default();
        for (step, (numbers, clock)) in (1..).zip(times.iter().zip(clocks)) {
            let [called_ns, sent_ns, awake_ns, read_ns, recorded_ns, handled_ns, stored_ns, h, g, read, ran, host] = *numbers;
            collector.wake(wake(step, 2, 7));
            let woken = vec![
                Woken { event: 7, host_ns: stored_ns, read_ns: read, ran_ns: ran },
                Woken { event: 7, host_ns: host, read_ns: read, ran_ns: ran },
            ];
            let received = Some((h, g));
            collector.times(Times {
                step, process: 2, clock, called_ns, sent_ns, awake_ns, read_ns, recorded_ns, handled_ns, stored_ns, received, woken,
            });
        }
        if let Some(latency) = collector.finish() {
            for split in &latency.wakes {
                let sum = split.parts.iter().flatten().fold(0i64, |sum, part| sum.saturating_add(part.nanos));
                prop_assert!(split.total.is_none_or(|total| total.nanos == sum));
            }
        }
    }
}

const SECOND: u64 = 1_000_000_000;

fn split_of(planted: &Planted, from: Machine, to: Machine) -> Split {
    let mut collector = Collector::default();
    add_planted(&mut collector, 1, planted, from, to);
    latency(collector).wakes.remove(0)
}

#[test]
fn local_processes_have_the_hosts_clock_and_no_error() {
    let planted = Planted { called: SECOND, parts: [1, 2, 3, 4, 5, 6, 7] };
    let (parts, total) = lengths(&split_of(&planted, HOST, HOST));
    assert_eq!(parts.map(|part| (part.nanos as u64, part.error)), planted.parts.map(|part| (part, 0)));
    assert_eq!(total, Length { nanos: 28, error: 0 });
}

#[test]
fn local_process_with_another_clock_is_reported_without_figures() {
    // In a time namespace: its message is read before its send time.
    let ahead = Machine { clock: 0, behind: 0 };
    let mut collector = Collector::default();
    let planted = Planted { called: SECOND, parts: [1000; PARTS] };
    add_planted(&mut collector, 1, &planted, ahead, HOST);
    let sent_ns = 5 * SECOND;
    collector.times(Times { process: 1, sent_ns, read_ns: SECOND, ..Times::default() });
    let latency = latency(collector);
    assert_eq!(latency.unsteady, ["p1 does not use its host's clock"]);
    let split = &latency.wakes[0];
    assert_eq!((split.parts[1], split.total), (None, None));
    assert_eq!(split.parts[5], Some(Length { nanos: 1000, error: 0 }), "the other process has its host's");
}

/// If the daemon's thread is busy when a call is sent, the call waits in its queue. If it sleeps, the call wakes it,
/// which counts as link time.
#[test]
fn call_to_a_busy_thread_counts_as_queue_time() {
    for (awake_ns, link, queue) in [(SECOND - 500, 0, 900), (SECOND + 300, 300, 600), (0, 700, 200)] {
        let mut collector = Collector::default();
        collector.wake(wake(1, 1, 1));
        let (called_ns, sent_ns, read_ns, recorded_ns) = (SECOND, SECOND, SECOND + 700, SECOND + 900);
        let (handled_ns, stored_ns) = (recorded_ns, recorded_ns);
        let times = Times {
            step: 1,
            process: 1,
            called_ns,
            sent_ns,
            awake_ns,
            read_ns,
            recorded_ns,
            ..Times::default()
        };
        collector.times(Times { handled_ns, stored_ns, ..times });
        let split = latency(collector).wakes.remove(0);
        let nanos = |part: usize| split.parts[part].map(|part| part.nanos);
        assert_eq!((nanos(1), nanos(2)), (Some(link), Some(queue)), "awake since {awake_ns}");
    }
}

#[test]
fn unknown_parts_are_none() {
    let mut collector = Collector::default();
    // Engine work completed; the waiting process was killed.
    collector.wake(wake(1, 1, 1));
    let (read_ns, recorded_ns, handled_ns, stored_ns) = (100, 150, 250, 260);
    collector.times(Times { step: 1, read_ns, recorded_ns, handled_ns, stored_ns, ..Times::default() });
    // A step without times.
    collector.wake(wake(2, 1, 2));
    let latency = latency(collector);
    let nanos = latency.wakes[0].parts.map(|part| part.map(|part| part.nanos));
    assert_eq!(nanos, [None, None, Some(50), Some(100), Some(10), None, None]);
    assert_eq!((latency.wakes[0].total, latency.wakes[1].total), (None, None));
    assert_eq!(latency.wakes[1].parts, [None; PARTS]);
    assert_eq!(Collector::default().finish(), None);
}

#[test]
fn a_wake_that_no_call_caused_begins_in_the_daemon() {
    let mut collector = Collector::default();
    collector.wake(wake(1, 1, 1));
    let (read_ns, recorded_ns, handled_ns, stored_ns) = (100, 150, 250, 260);
    collector.times(Times { step: 1, read_ns, recorded_ns, handled_ns, stored_ns, ..Times::default() });
    let woken = vec![Woken { event: 1, host_ns: 260, read_ns: 300, ran_ns: 310 }];
    collector.times(Times { process: 1, woken, ..Times::default() });
    let split = latency(collector).wakes.remove(0);
    assert_eq!(split.total, Some(Length { nanos: 210, error: 0 }));
}

#[test]
fn length_below_its_error_is_shown_as_an_upper_bound() {
    let words = |nanos, error| length_words(Length { nanos, error });
    assert_eq!(words(180_200, 0), "180.200 us");
    assert_eq!(words(180_200, 40_000), "180.200 us");
    assert_eq!(words(30_000, 40_000), "< 70.000 us");
    assert_eq!(words(-30_000, 40_000), "< 10.000 us");
    assert_eq!(words(0, 0), "0 ns");
    // With a single clock there is no error, so a clock that went backwards is visible.
    assert_eq!(words(-5, 0), "-5 ns");
}
