//! Tests of the view of two states, with 100 signals and 20 submissions a second.

use std::collections::VecDeque;

use d3dkmt::text::is_printable;
use proto::control::{Counters, Engine, Inspection, Note, Object, Process, Vm, Wait, WhyCause};

use super::changes::Changes;
use super::watch::screen;

fn process(id: u32, vm: u32, name: &str, calls: u64) -> Process {
    let (connected, fence_slots) = (true, 64);
    Process { id, vm, pid: 400 + id, name: name.into(), calls, connected, fence_slots, ..Process::default() }
}

fn fence(process: u32, handle: u32, value: u64) -> Object {
    Object { process, handle, value, r#type: "MONITORED_FENCE".into(), ..Object::default() }
}

fn engine(node: u32, kind: &str, state: &str) -> Engine {
    Engine { node, kind: kind.into(), state: state.into(), ..Engine::default() }
}

/// The state at this second.
fn at(second: u64) -> Inspection {
    let copies = Engine {
        last_completed: 20 * second,
        ready: 3,
        queued: 1,
        running: Some(20 * second + 1),
        ..engine(1, "COPY", "running")
    };
    let cause = WhyCause {
        verdict: "dead-end".into(),
        waiters_count: 2,
        who: "p1 \"idle\" (vm1) waits on its CPU, event 9, for 3.5 s".into(),
        sentence: "DEAD END: nobody is left".into(),
        ..WhyCause::default()
    };
    Inspection {
        now_ns: second * 1_000_000_000,
        up_ns: second * 1_000_000_000,
        pid: 77,
        threads: 9,
        resident_bytes: 12 << 20,
        vms: vec![Vm { id: 1, name: "red".into(), ..Vm::default() }],
        processes: vec![process(1, 1, "idle", 5), process(2, 0, "busy", 5 + 250 * second)],
        objects: vec![fence(1, 0x40, 3), fence(2, 0x80, 100 * second), fence(2, 0xC0, 1 + second)],
        waits: vec![Wait { process: 1, since_ns: 500_000_000, ..Wait::default() }],
        engines: vec![engine(0, "3D", "idle"), copies],
        counters: Some(Counters { frames_received: 250 * second, wakes: second, ..Counters::default() }),
        waiting: Some(2),
        causes: vec![cause],
        ..Inspection::default()
    }
}

fn changes<'a>(
    before: Option<&'a Inspection>,
    now: &'a Inspection,
    notes: &'a VecDeque<Note>,
) -> Changes<'a> {
    Changes { before, now, notes, rows: 10 }
}

#[test]
fn rates_are_between_two_states_and_the_most_active_come_first() {
    let (before, now) = (at(2), at(4));
    let note = Note { now_ns: 3_000_000_000, process: 2, text: "no such handle".into() };
    let notes = VecDeque::from([note]);
    let changes = changes(Some(&before), &now, &notes);
    assert_eq!(
        changes.lines(),
        [
            "daemon 77: 9 threads, 12288 KiB resident, up 4.000 s",
            "250 calls/s, 1 wakes/s, 0 fence stores/s, 0 refusals/s; 2 waits",
            "PROCESS     VM  PID  CALLS/S  HANDLES  SLOTS  WAITS   OLDEST  NAME",
            "      2   host  402      250        0   0/64      0        -  busy",
            "      1  1 red  401        0        0   0/64      1  3.500 s  idle",
            "ENGINE  QUEUED  DONE/S  DONE  KIND AND STATE",
            "   0.1       4      20    80  COPY: running",
            "   0.0       0       0     0  3D: idle",
            "PROCESS  FENCE  VALUE  PER S  WAITERS  KIND",
            "      2   0x80    400    100        0  MONITORED_FENCE",
            "      2   0xc0      5      1        0  MONITORED_FENCE",
            "WAITS  WHO AND WHY",
            "    2  p1 \"idle\" (vm1) waits on its CPU, event 9, for 3.5 s: DEAD END: nobody is left",
            "NOTES",
            "1.000 s ago  p2 no such handle",
        ]
    );
    let json = changes.json();
    assert_eq!((json["pid"].as_u64(), json["calls_per_s"].as_f64()), (Some(77), Some(250.0)));
    assert_eq!((&json["moving"][0]["handle"], &json["moving"][0]["per_s"]), (&0x80.into(), &100.0.into()));
    assert_eq!(
        (&json["causes"][0]["verdict"], &json["notes"][0]["text"]),
        (&"dead-end".into(), &"no such handle".into())
    );
}

#[test]
fn a_daemon_that_continues_a_journal_shows_its_own_time_and_the_kernels() {
    let older = super::state_text::render_daemon(&Inspection { up_ns: 0, ..at(4) });
    assert!(older.contains("up 4.000 s") && !older.contains("kernel time"), "{older}");
    let text = super::state_text::render_daemon(&Inspection { up_ns: 1_500_000_000, ..at(4) });
    assert!(text.ends_with("up 1.500 s, kernel time 4.000 s\n"), "{text}");
}

#[test]
fn first_state_has_no_rates_and_tables_end_at_their_limit() {
    let (now, notes) = (Inspection { late_ns: 40_000_000, ..at(4) }, VecDeque::new());
    let changes = Changes { rows: 1, ..changes(None, &now, &notes) };
    let mut lines = changes.lines();
    assert!(lines.remove(1).starts_with("engines are 40.000 ms behind"), "{lines:?}");
    assert!(lines[1].starts_with("- calls/s"), "{lines:?}");
    assert_eq!(
        lines[3..5],
        ["      1  1 red  401        -        0   0/64      1  3.500 s  idle", "and 1 more"]
    );
    assert!(!lines.iter().any(|line| line.contains("FENCE")), "nothing is known to move: {lines:?}");
    assert!(changes.json()["calls_per_s"].is_null());
}

#[test]
fn names_of_guests_command_no_terminal() {
    let mut now = at(4);
    now.processes[0].name = "\u{1b}]0;title\u{7}\u{1b}[2J\u{202e}name\r".into();
    now.vms[0].name = "red\u{9b}31m".into();
    let notes = VecDeque::from([Note { text: "a\u{1b}c\nb".into(), ..Note::default() }]);
    let screen = screen(&changes(None, &now, &notes).lines(), 200, 60);
    // What the view itself writes: to the corner, erase each line, erase the rest, headings in bold.
    for heading in ["PROCESS", "ENGINE", "NOTES"] {
        assert!(screen.contains(&format!("\u{1b}[K\u{1b}[1m{heading}")), "{heading}: {screen:?}");
    }
    let own = ["[K", "[H", "[J", "[1m", "[m"]
        .iter()
        .fold(screen, |text, order| text.replace(&format!("\u{1b}{order}"), ""));
    assert!(own.contains("]0;title") && own.contains("red\u{fffd}31m"), "{own:?}");
    let bad: Vec<char> = own.chars().filter(|one| *one != '\n' && !is_printable(*one)).collect();
    assert!(bad.is_empty(), "{bad:?} in {own:?}");
    assert!(own.contains("a\u{fffd}c\u{fffd}b"), "a note stays one line: {own:?}");
}

/// A letter with accents takes one cell, an East Asian one two.
#[test]
fn columns_are_aligned_and_lines_are_cut_by_cells() {
    let mut now = at(4);
    now.vms[0].name = "re\u{301}\u{302}d".into();
    now.vms.push(Vm { id: 2, name: "\u{8d64}".into(), ..Vm::default() });
    now.processes[1].vm = 2;
    let notes = VecDeque::new();
    let lines = changes(None, &now, &notes).lines();
    assert_eq!(
        lines[2..5],
        [
            "PROCESS     VM  PID  CALLS/S  HANDLES  SLOTS  WAITS   OLDEST  NAME",
            "      1  1 re\u{301}\u{302}d  401        -        0   0/64      1  3.500 s  idle",
            "      2   2 \u{8d64}  402        -        0   0/64      0        -  busy",
        ]
    );
    let screen = screen(&lines[3..5], 13, 3);
    assert!(screen.contains("\u{1b}[K      1  1 re\u{301}\u{302}\n"), "{screen:?}");
    assert!(screen.contains("\u{1b}[K      2   2 \n"), "a letter of two cells does not fit: {screen:?}");
}

#[test]
fn a_restart_gives_no_rate_and_a_lowered_fence_a_negative_one() {
    let (before, now, notes) = (at(4), at(2), VecDeque::new());
    let lines = changes(Some(&before), &now, &notes).lines();
    assert!(lines[1].starts_with("- calls/s"), "the clock went back, so it is another daemon: {lines:?}");
    let mut later = at(5);
    later.objects[1].value = 300;
    assert_eq!(changes(Some(&before), &later, &notes).json()["moving"][0]["per_s"], -100.0);
}
