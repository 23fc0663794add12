//! Tests of the tables for two replies a second apart.

use proto::control::{Counters, Vm, Wait};

use super::*;

fn process(id: u32, vm: u32, name: &str, calls: u64) -> Process {
    let (connected, fence_slots) = (true, 64);
    Process { id, vm, pid: 400 + id, name: name.into(), calls, connected, fence_slots, ..Process::default() }
}

fn fence(process: u32, handle: u32, value: u64) -> Object {
    Object { process, handle, value, r#type: "MONITORED_FENCE".into(), ..Object::default() }
}

/// The reply at this second: 100 signals a second, and 20 submissions a second.
fn at(second: u64) -> TopReply {
    let engine = |node, kind: &str| Engine { node, kind: kind.into(), ..Engine::default() };
    let state = Inspection {
        now_ns: second * 1_000_000_000,
        pid: 77,
        resident_bytes: 12 << 20,
        vms: vec![Vm { id: 1, name: "red".into(), ..Vm::default() }],
        processes: vec![process(1, 1, "idle", 5), process(2, 0, "busy", 5 + 250 * second)],
        objects: vec![fence(1, 0x40, 3), fence(2, 0x80, 100 * second), fence(2, 0xC0, 1 + second)],
        waits: vec![Wait { process: 1, since_ns: 500_000_000, ..Wait::default() }],
        engines: vec![
            engine(0, "3D"),
            Engine {
                last_completed: 20 * second,
                ready: 3,
                queued: 1,
                running: Some(20 * second + 1),
                ..engine(1, "COPY")
            },
        ],
        counters: Some(Counters { frames_received: 250 * second, wakes: second, ..Counters::default() }),
        ..Inspection::default()
    };
    let cause = WhyCause {
        verdict: "dead-end".into(),
        stuck: true,
        waiters_count: 2,
        who: "p1 \"idle\" (vm1) waits on its CPU, event 9".into(),
        sentence: "DEAD END: nobody is left".into(),
        since_ns: Some(500_000_000),
        ..WhyCause::default()
    };
    let why = WhyReply { waiting: 2, causes: vec![cause], ..WhyReply::default() };
    TopReply { state: Some(state), why: Some(why) }
}

fn texts(view: &View) -> Vec<String> {
    view.lines().into_iter().map(|line| line.text).collect()
}

#[test]
fn rates_are_between_two_looks_and_who_does_most_comes_first() {
    let (before, now) = (at(2), at(4));
    let note = Note { now_ns: 3_000_000_000, process: 2, text: "no such handle".into() };
    let notes = VecDeque::from([note]);
    let view = View::new(Some(&before), &now, &notes, 10).unwrap();
    assert_eq!(
        texts(&view),
        [
            "gpupv 77, up 4.000 s: 2 processes in 1 VM; 250 calls/s, 1 wakes/s, 0 fence stores/s, 0 refusals/s; 12 MiB",
            "PROCESS  VM     PID  CALLS/S  HANDLES  SLOTS  WAITS   OLDEST  NAME",
            "      2  host   402      250        0   0/64      0        -  busy",
            "      1  1 red  401        0        0   0/64      1  3.500 s  idle",
            "ENGINE  KIND  QUEUED  DONE/S  DONE  DOES",
            "   0.1  COPY       4      20    80  runs submission 81",
            "   0.0  3D         0       0     0  idle",
            "PROCESS  FENCE  VALUE  PER S  WAITERS  KIND",
            "      2  0x80     400    100        0  MONITORED_FENCE",
            "      2  0xc0       5      1        0  MONITORED_FENCE",
            " OLDEST  WAITS  VERDICT                   WHO",
            "3.500 s      2  DEAD END: nobody is left  p1 \"idle\" (vm1) waits on its CPU, event 9",
            "NOTES",
            "1.000 s ago  p2 no such handle",
        ]
    );
    let stuck = view.lines().into_iter().filter(|line| line.style == Style::Stuck).count();
    assert_eq!(stuck, 1);
    let json = view.json();
    assert_eq!((json["pid"].as_u64(), json["calls_per_s"].as_f64()), (Some(77), Some(250.0)));
    assert_eq!(json["processes"][0]["calls_per_s"], 250.0);
    assert_eq!((&json["fences"][0]["handle"], &json["fences"][0]["per_s"]), (&0x80.into(), &100.0.into()));
    assert_eq!((&json["causes"][0]["verdict"], &json["causes"][0]["waits"]), (&"dead-end".into(), &2.into()));
    assert_eq!(
        (&json["engines"][1]["queued"], &json["notes"][0]["text"]),
        (&4.into(), &"no such handle".into())
    );
}

#[test]
fn first_look_has_no_rates_and_lists_end_at_their_limit() {
    let now = at(4);
    let notes = VecDeque::new();
    let view = View::new(None, &now, &notes, 1).unwrap();
    let texts = texts(&view);
    assert!(texts[0].contains("- calls/s"), "{texts:?}");
    assert_eq!(
        texts[2..4],
        ["      1  1 red  401        -        0   0/64      1  3.500 s  idle", "and 1 more"]
    );
    assert!(!texts.iter().any(|line| line.contains("FENCE")), "nothing is known to move: {texts:?}");
    assert_eq!(view.json()["calls_per_s"], Value::Null);
}

#[test]
fn a_restart_gives_no_rate_and_a_lowered_fence_a_negative_one() {
    let (before, now) = (at(4), at(2));
    let notes = VecDeque::new();
    let view = View::new(Some(&before), &now, &notes, 10).unwrap();
    assert!(texts(&view)[0].contains("- calls/s"), "the daemon's clock went back: it is another daemon");
    let mut later = at(5);
    later.state.as_mut().unwrap().objects[1].value = 300;
    let view = View::new(Some(&before), &later, &notes, 10).unwrap();
    assert_eq!(view.json()["fences"][0]["per_s"], -100.0);
}
