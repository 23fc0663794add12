//! Timelines of a trace with all kinds of events, and of incomplete traces.

mod common;

use std::io::Write as _;

use d3dkmt::{Call, CreateContextFlags, Handle, Reply, SyncObjectFlags, calls};
use dxgkrnl::{EngineId, Fault, Input};
use timeline::{MarkKind, NONE, Options, Outcome, PacketKind, Timeline, TrackKind, WaitKind, WaitPart};

fn track(timeline: &Timeline, name: &str) -> u32 {
    timeline.tracks.iter().position(|track| track.name == name).unwrap_or_else(|| panic!("{name}")) as u32
}

#[test]
fn processes_queues_and_engines_have_tracks_below_their_owners() {
    let timeline = common::small_timeline();
    assert_eq!(timeline.path(track(&timeline, "p1 client")), "vm 1 red / p1 client");
    let queue = timeline.tracks.iter().find(|track| track.name.starts_with("hardware queue")).unwrap();
    assert_eq!(timeline.path(queue.parent.unwrap()), "vm 1 red / p1 client");
    assert!(matches!(queue.kind, TrackKind::Queue { .. }));
    for (at, track) in timeline.tracks.iter().enumerate() {
        assert!(track.parent.is_none_or(|parent| (parent as usize) < at), "parents come first");
    }
}

#[test]
fn work_of_paging_queues_is_in_the_lane_of_the_paging_engine() {
    let timeline = of_process(|session, client| {
        let Reply::PagingQueue { queue, .. } =
            session.call(client.process, calls::create_paging_queue(client.device))
        else {
            panic!()
        };
        let map = |base| calls::map(queue, base, Handle::NULL, 16, d3dkmt::gpu_va::protection::ZERO);
        session.call(client.process, map(0x10_0000));
        session.call(client.process, map(0x20_0000));
        session.advance(10_000_000, 0);
    });
    let lane = track(&timeline, "engine 0 paging");
    let queue =
        timeline.tracks.iter().position(|track| track.name.starts_with("paging queue")).unwrap() as u32;
    assert!(timeline.path(timeline.tracks[lane as usize].parent.unwrap()).starts_with("adapter 0"));
    let runs: Vec<_> = timeline.runs.iter().filter(|run| run.engine == lane).collect();
    assert_eq!(runs.iter().map(|run| run.queue).collect::<Vec<_>>(), [queue, queue]);
    assert_eq!(runs[0].end, runs[1].begin, "one after the other");
    let figures = timeline.stats.engines.iter().find(|figures| figures.track == lane).unwrap();
    assert_eq!((figures.runs, figures.busy_ns), (2, runs[1].end - runs[0].begin));
}

#[test]
fn one_object_is_one_fence_whatever_its_handles_are() {
    let timeline = common::small_timeline();
    let frames =
        timeline.fences.iter().position(|fence| fence.shared_as.as_deref() == Some("frames")).unwrap();
    assert_eq!(timeline.fences[frames].opens.len(), 2);
    let named = |at: usize| timeline.events[at].fence == frames as u32;
    // The waiter is in one process, the signaler in another.
    let wait = timeline.events.iter().position(|event| timeline.word(event.name) == "WaitFromCpu").unwrap();
    assert!(named(wait) && named(wait + 1));
    assert_ne!(timeline.events[wait].track, timeline.events[wait + 1].track);
    let values: Vec<u64> =
        timeline.samples.iter().filter(|one| one.fence == frames as u32).map(|one| one.value).collect();
    assert_eq!(values, [0, 1, 2, u64::MAX]);
}

#[test]
fn wait_has_its_cause_and_its_parts() {
    let timeline = common::small_timeline();
    let submissions = timeline.submissions();
    // Released by another process: the whole time is "not signaled yet".
    let by_cpu = &timeline.waits[0];
    assert_eq!((by_cpu.begin.at, by_cpu.end.at, by_cpu.outcome), (10_000, 35_000, Outcome::Done));
    let cause = by_cpu.cause.unwrap();
    assert_eq!((cause.track, cause.value, cause.submission), (track(&timeline, "p1 client"), 1, None));
    assert_eq!(timeline::parts(by_cpu, &submissions), [WaitPart { name: "not signaled yet", nanos: 25_000 }]);
    // Released by a queue after the second of two submissions, on an engine that another process uses in between.
    let by_gpu = &timeline.waits[1];
    assert_eq!((by_gpu.begin.at, by_gpu.end.at), (40_000, 130_700));
    let parts: Vec<_> =
        timeline::parts(by_gpu, &submissions).iter().map(|part| (part.name, part.nanos)).collect();
    let expected = [
        ("in its queue", 40_000),
        ("in the hardware queue", 20_000),
        ("on the engine", 30_000),
        ("daemon told late", 700),
    ];
    assert_eq!(parts, expected);
    assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), by_gpu.end.at - by_gpu.begin.at);
}

#[test]
fn packets_have_gpuviews_four_times() {
    let timeline = common::small_timeline();
    let commands: Vec<_> =
        timeline.packets.iter().filter(|packet| packet.kind == PacketKind::Command).collect();
    let times: Vec<_> =
        commands.iter().map(|one| (one.begin.at, one.submitted, one.ran, one.end.at)).take(4).collect();
    let us = |number: u64| number * 1000;
    assert_eq!(
        times,
        [
            (us(40), Some(us(40)), Some(us(40)), us(80)),
            (us(40), Some(us(80)), Some(us(100)), us(130)),
            (us(40), Some(us(40)), Some(us(80)), us(100)),
            // After a wait for the CPU's signal.
            (us(40), Some(us(150)), Some(us(150)), us(165)),
        ]
    );
    let wait = timeline.packets.iter().find(|packet| packet.kind == PacketKind::Wait).unwrap();
    assert_eq!((wait.begin.at, wait.end.at, wait.outcome), (us(40), us(150), Outcome::Done));
}

#[test]
fn lost_interrupt_keeps_the_packet_and_not_the_engine() {
    let timeline = common::small_timeline();
    let lost = timeline.packets.iter().find(|packet| packet.begin.at == 250_000).unwrap();
    assert_eq!(lost.outcome, Outcome::Done);
    // The interrupt of the next submission completes this one as well (SCH-005).
    assert_eq!((lost.end.sequence, lost.end.at), (50, 260_000));
    let ran = timeline.runs.iter().find(|run| run.begin == 250_000).unwrap();
    assert_eq!(ran.end, 260_000);
}

#[test]
fn hang_is_a_run_that_ends_with_the_reset_and_drops_its_packet() {
    let timeline = common::small_timeline();
    let run = timeline.runs.iter().find(|run| run.hung).unwrap();
    assert_eq!((run.begin, run.end, run.pending), (310_000, 2_100_310_000, false));
    let packet = timeline.packets.iter().find(|packet| packet.begin.at == 310_000).unwrap();
    assert_eq!(packet.outcome, Outcome::Dropped);
    let texts: Vec<_> = timeline.marks.iter().map(|mark| (mark.kind, timeline.word(mark.text))).collect();
    assert!(texts.contains(&(MarkKind::Fault, "engine 0.0 hangs")), "{texts:?}");
    assert!(texts.contains(&(MarkKind::Reset, "engine reset")), "{texts:?}");
    assert!(
        texts.iter().any(|(kind, text)| *kind == MarkKind::Note && text.contains("below its value")),
        "{texts:?}"
    );
    assert_eq!(timeline.stats.faults, 2);
}

#[test]
fn blocked_are_those_that_wait_at_the_end() {
    let timeline = common::small_timeline();
    let [mutex, cpu, queue] = &timeline.blocked[..] else { panic!("{:?}", timeline.blocked) };
    assert!(mutex.wants[0].contains("its key is 0, needs 1"), "{mutex:?}");
    assert_eq!((mutex.since, &*mutex.what), (Some(230_000), "event 901"));
    assert_eq!((cpu.track, &*cpu.what), (track(&timeline, "p1 client"), "event 4"));
    assert_eq!(cpu.wants, ["F1 >= 9, is 2", "1 of 2 reached"]);
    assert!(queue.what == "queue" && timeline.path(queue.track).contains("p1 client / context"));
    assert_eq!((&queue.wants[..], &queue.fences[..]), (&["F1 >= 7, is 2".to_owned()][..], &[1][..]));
    let call = |wait: &timeline::Blocked| {
        let event = timeline.events.iter().find(|event| Some(event.moment.sequence) == wait.step);
        timeline.word(event.unwrap().name)
    };
    assert_eq!([mutex, cpu, queue].map(call), ["AcquireKeyedMutex", "WaitFromCpu", "WaitFromGpu"]);
    let pending = timeline.waits.iter().filter(|wait| wait.outcome == Outcome::Pending).count();
    assert_eq!(pending, 2, "those of CPUs");
    assert!(timeline.waits.iter().any(|wait| matches!(wait.kind, WaitKind::KeyedMutex { key: 1, .. })));
}

#[test]
fn same_trace_gives_the_same_timeline_and_pictures() {
    let (one, other) = (common::small_timeline(), common::small_timeline());
    assert!(one == other);
    assert!(timeline::html::export(&one, "t") == timeline::html::export(&other, "t"));
    assert!(timeline::perfetto::export(&one) == timeline::perfetto::export(&other));
}

#[test]
fn rows_beyond_the_limit_are_counted_and_figures_are_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::small(file.path());
    let read = |options: &Options| common::timeline_with(file.path(), options);
    let all = read(&Options::default());
    let few = read(&Options { rows_max: 10, ..Options::default() });
    assert_eq!(few.events.len(), 10);
    assert_eq!(few.events[..], all.events[all.events.len() - 10..], "the latest are kept");
    assert!(few.integrity.left_out as usize >= all.events.len() - 10);
    assert_eq!(few.stats, all.stats);
    assert_eq!(few.left_out_words(), format!("{} older rows are not shown", few.integrity.left_out));
    assert_eq!(few.stats_text(), all.stats_text(), "figures cover all rows");
    // A window keeps the events in it, and the rows that overlap it.
    let part = read(&Options { window: (30, 34), ..Options::default() });
    let sequences: Vec<u64> = part.events.iter().map(|event| event.moment.sequence).collect();
    assert_eq!(sequences, [30, 31, 32, 33, 34]);
    assert_eq!(part.integrity.left_out, 0);
    assert!(part.waits.iter().all(|wait| wait.begin.sequence <= 34 && wait.end.sequence >= 30));
    assert_eq!(part.waits.len(), 1);
}

/// A value lasts until the next one, so it overlaps a part of the trace in which nothing stores another.
#[test]
fn part_of_a_trace_has_the_values_that_its_fences_have_before_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::small(file.path());
    let all = common::timeline_of(file.path());
    for window in [(36, 40), (48, 50)] {
        let part = common::timeline_with(file.path(), &Options { window, ..Options::default() });
        for fence in 0..all.fences.len() as u32 {
            let of = |timeline: &Timeline| -> Vec<_> {
                let last =
                    |sample: &&timeline::Sample| sample.fence == fence && sample.moment.sequence <= window.1;
                timeline.samples.iter().filter(last).map(|sample| (sample.moment, sample.value)).collect()
            };
            let (expected, found) = (of(&all), of(&part));
            let before = expected.iter().rposition(|(moment, _)| moment.sequence < window.0);
            assert_eq!(found, expected[before.unwrap_or(0)..], "fence {fence} in {window:?}");
        }
        assert!(!part.samples.is_empty());
    }
}

#[test]
fn damaged_trace_is_drawn_up_to_the_damage() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::long(file.path(), 40_000);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let mut damaged = tempfile::NamedTempFile::new().unwrap();
    damaged.write_all(&bytes).unwrap();
    let timeline = common::timeline_of(damaged.path());
    let (last, why) = timeline.integrity.stopped.clone().expect("it says where it stops");
    assert!(last > 0 && !why.is_empty());
    assert_eq!(timeline.events.last().unwrap().moment.sequence, last);
    assert!(timeline.integrity_words().contains(&format!("only up to step #{last}")));
}

/// A random session with valid and invalid calls of all kinds can always be drawn, and its rows are consistent.
#[test]
fn any_session_can_be_drawn() {
    for seed in 0..40 {
        let file = tempfile::NamedTempFile::new().unwrap();
        common::random(file.path(), seed, 600);
        let timeline = common::timeline_of(file.path());
        assert_eq!(timeline.integrity.stopped, None, "seed {seed}");
        assert_eq!(timeline.events.len(), 600, "seed {seed}");
        for wait in &timeline.waits {
            assert!(
                wait.begin.at <= wait.end.at && wait.begin.sequence <= wait.end.sequence,
                "seed {seed} {wait:?}"
            );
            assert!(wait.cause.is_none_or(|cause| cause.moment.at <= wait.end.at), "seed {seed} {wait:?}");
        }
        for packet in &timeline.packets {
            let times = [Some(packet.begin.at), packet.submitted, packet.ran, Some(packet.end.at)];
            let times: Vec<u64> = times.into_iter().flatten().collect();
            assert!(times.is_sorted(), "seed {seed} {packet:?}");
        }
        // An engine runs one submission at a time.
        let engines = (0..timeline.tracks.len() as u32)
            .filter(|track| timeline.runs.iter().any(|run| run.engine == *track));
        for engine in engines {
            let runs: Vec<_> = timeline.runs.iter().filter(|run| run.engine == engine).collect();
            assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].begin), "seed {seed} engine {engine}");
        }
        for event in &timeline.events {
            assert!(event.fence == NONE || (event.fence as usize) < timeline.fences.len());
        }
        let _ = (
            timeline::html::export(&timeline, "t"),
            timeline::perfetto::export(&timeline),
            timeline.stats_text(),
        );
    }
}

#[test]
fn keyed_mutex_waits_beyond_the_limit_are_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = common::Session::new(file.path());
    session.vm(1, "red");
    for process in 1..=10 {
        let client = session.guest(1, process, "client");
        let flags = d3dkmt::KeyedMutexFlags::empty();
        let create = d3dkmt::Call::CreateKeyedMutex { initial_value: 0, private_data: Vec::new(), flags };
        let d3dkmt::Reply::KeyedMutex { mutex, .. } = session.call(client.process, create) else { panic!() };
        for event in 1..=1002 {
            let event = d3dkmt::EventId(event);
            let acquire = d3dkmt::Call::AcquireKeyedMutex { mutex, key: 1, timeout: None, event };
            session.call(client.process, acquire);
        }
    }
    session.finish();
    let timeline = common::timeline_of(file.path());
    assert_eq!((timeline.blocked.len(), timeline.integrity.blocked_left_out), (4_096, 5_924));
}

/// The timeline of what a process of the host does.
fn of_process(act: impl FnOnce(&mut common::Session, common::ClientProcess)) -> Timeline {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = common::Session::new(file.path());
    let client = session.guest(0, 1, "client");
    act(&mut session, client);
    session.finish();
    common::timeline_of(file.path())
}

const NONE_SET: CreateContextFlags = CreateContextFlags::empty();
const MS: u64 = 1_000_000;

#[test]
fn preempted_work_is_one_packet_that_ends_when_the_rest_has_run() {
    let timeline = of_process(|session, client| {
        let done = session.fence(client, SyncObjectFlags::empty());
        let (low, high) = (session.context(client, 0, NONE_SET), session.context(client, 0, NONE_SET));
        for (context, priority) in [(low, -7), (high, 7)] {
            session.call(client.process, Call::SetContextPriority { context, priority, in_process: false });
        }
        let mut packets = vec![common::busy(MS); 5];
        packets.push(common::write(&done, 1));
        session.submit(client, low, &packets);
        session.wait(client, &[(done.object, 1)]);
        session.advance(3 * MS / 2, 0);
        session.submit(client, high, &[common::busy(40 * MS)]);
        session.advance(1000 * MS, 0);
    });
    let commands: Vec<_> =
        timeline.packets.iter().filter(|packet| packet.kind == PacketKind::Command).collect();
    assert_eq!(commands.len(), 2, "{commands:#?}");
    assert!(commands.iter().all(|packet| packet.outcome == Outcome::Done), "{commands:#?}");
    let low = commands.iter().find(|packet| packet.begin.at == 0).unwrap();
    assert!(low.end.at > 44 * MS, "it ends with the rest of it: {low:#?}");
    assert_eq!(timeline.runs.len(), 3, "{:#?}", timeline.runs);
    let wait = &timeline.waits[0];
    assert_eq!((wait.cause.unwrap().track, wait.end.at), (low.queue, low.end.at));
    // Pieces of one submission are one: it keeps its first number, and is counted once.
    let first_run = &timeline.runs[0];
    assert_eq!(low.submission.map(|(_, id)| id), Some(first_run.submission_fence_id));
    assert_eq!(wait.cause.unwrap().submission, low.submission);
    let runs: Vec<u64> = timeline.stats.engines.iter().map(|engine| engine.runs).collect();
    assert_eq!(runs.iter().sum::<u64>(), 2, "{runs:?}");
}

/// The timer that ends a timeout comes late, as any.
#[test]
fn effects_of_a_reset_have_its_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, server, [_, _]| {
        let (own, theirs) = session.shared_fence(client, server, "lost");
        let [context, other] = [client, server].map(|guest| session.context(guest, 0, NONE_SET));
        session.gpu_wait(server, other, theirs, 2);
        session.submit(server, other, &[common::busy(1_000)]);
        session.input(Input::Fault(Fault::Hang { engine: EngineId { adapter: 0, node: 0 } }));
        session.submit(client, context, &[common::busy(5_000)]);
        session.gpu_signal(client, context, own, 1);
        session.advance(5_000 * MS, 25 * MS);
    });
    let timeline = common::timeline_of(file.path());
    let reset = timeline.marks.iter().find(|mark| timeline.word(mark.text) == "engine reset").unwrap();
    let stored = timeline.samples.iter().find(|sample| sample.value == u64::MAX).unwrap();
    assert_eq!(stored.moment.at, reset.moment.at, "{:#?}", timeline.samples);
    let wait = timeline.packets.iter().find(|packet| packet.kind == PacketKind::Wait).unwrap();
    let run = timeline.runs.iter().find(|run| !run.hung).unwrap();
    assert_eq!((wait.end.at, wait.outcome), (reset.moment.at, Outcome::Done), "{wait:#?}");
    assert!(wait.end.at <= run.begin, "{wait:#?} {run:#?}");
}

#[test]
fn the_cause_is_the_first_signal_that_reached_the_value() {
    let timeline = of_process(|session, client| {
        let fence = |session: &mut common::Session| session.fence(client, SyncObjectFlags::empty()).object;
        let (go, done) = (fence(session), fence(session));
        for (node, value) in [(0, 1), (1, 2)] {
            let context = session.context(client, node, NONE_SET);
            session.gpu_wait(client, context, go, 1);
            session.gpu_signal(client, context, done, value);
        }
        session.wait(client, &[(done, 1)]);
        session.wait(client, &[(done, 2), (go, 1)]);
        session.advance(1000, 0);
        session.signal(client, go, 1);
    });
    let values: Vec<_> = timeline.waits.iter().map(|wait| wait.cause.unwrap().value).collect();
    assert_eq!(values, [1, 2], "{:#?}", timeline.waits);
}

#[test]
fn a_wake_up_in_a_later_step_than_the_signal_has_its_cause() {
    let timeline = of_process(|session, client| {
        let done = session.fence(client, SyncObjectFlags::empty());
        let (first, second) = (session.context(client, 2, NONE_SET), session.context(client, 2, NONE_SET));
        session.wait(client, &[(done.object, 1)]);
        session.submit(client, first, &[common::busy(MS), common::write(&done, 1)]);
        session.input(Input::Fault(Fault::LoseInterrupt { engine: EngineId { adapter: 0, node: 2 } }));
        session.advance(10 * MS, 0);
        session.submit(client, second, &[common::busy(MS)]);
        session.advance(20 * MS, 0);
    });
    let [wait] = &timeline.waits[..] else { panic!("{:#?}", timeline.waits) };
    assert_eq!(wait.outcome, Outcome::Done);
    let cause = wait.cause.expect("the engine's store released it");
    assert!(cause.value == 1 && cause.submission.is_some(), "{cause:?}");
    let parts = timeline::parts(wait, &timeline.submissions());
    assert_eq!(parts[0], WaitPart { name: "on the engine", nanos: MS }, "{parts:?}");
}

#[test]
fn time_that_a_signal_stands_behind_a_wait_is_not_on_the_engine() {
    let timeline = of_process(|session, client| {
        let fence = |session: &mut common::Session| session.fence(client, SyncObjectFlags::empty()).object;
        let (go, done) = (fence(session), fence(session));
        let context = session.context(client, 0, NONE_SET);
        session.wait(client, &[(done, 1)]);
        session.submit(client, context, &[common::busy(MS)]);
        session.gpu_wait(client, context, go, 1);
        session.gpu_signal(client, context, done, 1);
        session.advance(5000 * MS, 0);
        session.signal(client, go, 1);
    });
    let parts = timeline::parts(&timeline.waits[0], &timeline.submissions());
    let expected = [
        WaitPart { name: "on the engine", nanos: MS },
        WaitPart { name: "signal in its queue", nanos: 4999 * MS },
    ];
    assert_eq!(parts, expected);
}

#[test]
fn a_wait_that_ended_with_its_fence_has_no_signal_as_its_cause() {
    let timeline = of_process(|session, client| {
        let fence = session.fence(client, SyncObjectFlags::empty()).object;
        session.signal(client, fence, 5);
        let flags = d3dkmt::SignalFlags::ALLOW_FENCE_REWIND;
        let (objects, values) = ([fence].as_slice().into(), [0].as_slice().into());
        session.call(client.process, Call::SignalFromCpu { device: client.device, objects, values, flags });
        session.wait(client, &[(fence, 5)]);
        session.now += MS;
        session.call(client.process, Call::DestroySynchronizationObject { object: fence });
    });
    let wait = &timeline.waits[0];
    assert_eq!((wait.outcome.name(), wait.cause), ("fence destroyed", None));
    let lanes = timeline::lanes::text(&timeline, &timeline::lanes::Selection::Last(1), 120).unwrap();
    assert!(lanes.contains("fence destroyed F0 >= 5 (1.000 ms)"), "{lanes}");
}

/// Its wake-up is held until the process is thawed or the VM is resumed.
#[test]
fn a_wait_of_a_frozen_process_or_a_paused_vm_that_ended_with_its_fence_ends_as_that() {
    for (is_vm, ends) in [(false, true), (true, true), (false, false)] {
        let timeline = of_process(|session, _| {
            session.vm(1, "red");
            let client = session.guest(1, 2, "client");
            let hold = |session: &mut common::Session, is_held| {
                let process = client.process;
                session.input(match is_vm {
                    true => dxgkrnl::Input::VmPaused { vm: dxgkrnl::VmId(1), paused: is_held },
                    false => dxgkrnl::Input::ProcessFrozen { process, frozen: is_held },
                })
            };
            let fence = session.fence(client, SyncObjectFlags::empty()).object;
            session.signal(client, fence, 5);
            let flags = d3dkmt::SignalFlags::ALLOW_FENCE_REWIND;
            let (objects, values) = ([fence].as_slice().into(), [0].as_slice().into());
            let rewind = Call::SignalFromCpu { device: client.device, objects, values, flags };
            session.call(client.process, rewind);
            session.wait(client, &[(fence, 5)]);
            hold(session, true);
            session.call(client.process, Call::DestroySynchronizationObject { object: fence });
            if ends {
                session.now += MS;
                hold(session, false);
            }
        });
        let wait = &timeline.waits[0];
        let outcome = if ends { "fence destroyed" } else { "pending" };
        assert_eq!((wait.outcome.name(), wait.cause), (outcome, None));
    }
}

/// A dump of a flight recorder, or a segment of a journal.
#[test]
fn a_trace_that_begins_with_a_state_has_the_names_and_the_causes_of_the_whole_one() {
    let [whole, late] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    let mut session = common::Session::new(whole.path());
    session.vm(1, "red");
    let (client, server) = (session.guest(1, 1, "client"), session.guest(1, 2, "server"));
    let (frames, theirs) = session.shared_fence(client, server, "frames");
    let gone = session.fence(client, SyncObjectFlags::empty());
    let context = session.context(client, 0, NONE_SET);
    session.wait(server, &[(theirs, 1)]);
    session.now += 1000;
    let first_step = session.steps + 1;
    session.gpu_signal(client, context, frames, 1);
    session.call(client.process, Call::DestroySynchronizationObject { object: gone.object });
    let new = session.fence(client, SyncObjectFlags::empty());
    session.wait(client, &[(new.object, 1)]);
    session.finish();
    common::cut(whole.path(), late.path(), first_step);
    let [whole, late] = [&whole, &late].map(|file| common::timeline_of(file.path()));
    assert_eq!(late.integrity.begins_at, Some(first_step));
    assert!(late.stats_text().contains(&format!("begins with the state before step #{first_step}")));
    let [expected, found] = [&whole, &late].map(|timeline| {
        let wait = &timeline.waits[0];
        let cause = wait.cause.expect("it has a cause");
        let name = |track: u32| timeline.tracks[track as usize].name.clone();
        let parent = timeline.tracks[cause.track as usize].parent.expect("it belongs to a process");
        let opens = timeline.fences[cause.fence as usize].opens.clone();
        (name(wait.process), name(cause.track), name(parent), opens, cause.value)
    });
    assert_eq!(found, expected);
    assert_eq!(late.waits[0].begin.at, 0, "the time of the state");
    let blocked = |timeline: &Timeline| timeline.fence_words(timeline.blocked[0].fences[0]);
    assert!(blocked(&late).contains(&format!("(p1 {:#x})", new.object.0)), "{}", blocked(&late));
}

#[test]
fn a_trace_can_begin_with_any_state() {
    let [whole, late] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    common::small(whole.path());
    for first_step in 2..common::timeline_of(whole.path()).events.len() as u64 {
        common::cut(whole.path(), late.path(), first_step);
        let timeline = common::timeline_of(late.path());
        assert_eq!(timeline.integrity.stopped, None, "from step {first_step} on");
        assert!(timeline.tracks.iter().all(|track| !track.name.contains("not attached")), "{first_step}");
    }
}
