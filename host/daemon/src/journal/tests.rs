//! Folders, locks and segments.

use d3dkmt::Call;
use drivers::Drivers;
use dxgkrnl::{DmaOp, Effects, Input, VmId};
use trace::state_path;

use super::*;

const P: ProcessId = ProcessId(1);

fn open(folder: &Path) -> anyhow::Result<(Journal, Option<Replayed>)> {
    Journal::open(folder, Durable::No, "test", &Config::default(), &Registry::default())
}

fn refusal(folder: &Path) -> String {
    format!("{:#}", open(folder).map(|_| ()).expect_err("it is refused"))
}

/// A kernel and its journal.
struct Recorded {
    journal: Journal,
    recorder: Recorder,
    kernel: Kernel,
    session_cursors: SessionCursors,
}

impl Recorded {
    fn new(folder: &Path) -> Recorded {
        let (mut journal, replayed) = open(folder).unwrap();
        assert!(replayed.is_none());
        let config = Config::default();
        let drivers = Drivers::new(&Registry::default(), &config);
        let (kernel, session_cursors) = (Kernel::new(config, drivers), SessionCursors::default());
        let recorder = journal.begin(&kernel, &session_cursors, 1).unwrap();
        Recorded { journal, recorder, kernel, session_cursors }
    }

    fn step(&mut self, now: u64, input: Input) {
        let mut effects = Effects::default();
        self.recorder.begin(now, &input).unwrap();
        self.session_cursors.record_input(&input);
        self.kernel.handle(now, input, &mut effects);
        self.session_cursors.record_effects(&effects);
        self.recorder.end(&effects).unwrap();
    }

    fn attach(&mut self, now: u64) {
        self.step(now, Input::ProcessAttached { process: P, vm: VmId::HOST, pid: 77, name: "one".into() });
        self.step(now + 1, Input::FenceMemoryAdded { process: P, slots: 64 });
    }

    /// Begins the next segment, as when a snapshot is due.
    fn begin_next_segment(&mut self) {
        let next_step = self.recorder.next_step();
        self.recorder.flush().unwrap();
        self.recorder = self
            .journal
            .begin_without_snapshot(self.kernel.config(), &self.session_cursors, next_step)
            .unwrap();
    }

    fn call(&mut self, now: u64, request: u64) {
        self.step(now, Input::Call { process: P, request, call: Call::EnumAdapters { capacity: 8 } });
    }

    /// Leaves the journal as SIGKILL does: unfinished.
    fn killed(self) {
        std::mem::forget(self.recorder);
        drop(self.journal);
    }
}

#[test]
fn a_killed_daemon_is_resumed_from_one_segment_or_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(1000);
    let token = recorded.journal.resume_token(P);
    let digest = recorded.kernel.snapshot().digest();
    recorded.killed();
    let (mut journal, replayed) = open(folder.path()).unwrap();
    let Replayed { kernel, session_cursors, now, next_step, .. } = replayed.expect("there is something");
    assert_eq!((kernel.snapshot().digest(), now, next_step), (digest, 1001, 3));
    assert_eq!((journal.resume_token(P), session_cursors.processes_begun), (token, 1));
    assert_ne!(journal.resume_token(ProcessId(2)), token);
    let processes: Vec<_> = kernel
        .attached_processes()
        .map(|attached| (attached.process, attached.pid, attached.slots))
        .collect();
    assert_eq!(processes, [(P, 77, 64)]);
    // The next segment has the whole state without the first.
    std::mem::forget(journal.begin(&kernel, &session_cursors, next_step).unwrap());
    drop(journal);
    assert_eq!(segments(folder.path()).unwrap(), [2]);
    let (_, replayed) = open(folder.path()).unwrap();
    let replayed = replayed.expect("there is something");
    assert_eq!(replayed.kernel.snapshot().digest(), digest);
    assert_eq!((replayed.now, replayed.next_step, replayed.session_cursors), (1001, 3, session_cursors));
}

/// A user who reads the secret can take over sessions; one who reads a segment sees every call.
#[test]
fn a_journal_is_readable_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("journal");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    Recorded::new(&folder).killed();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for name in ["lock", "secret", "performed"] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_segment_that_was_about_to_begin_has_nothing_that_the_one_before_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    recorded.killed();
    for content in [&b""[..], b"GPVT"] {
        std::fs::write(segment_path(folder.path(), 2), content).unwrap();
        let (journal, replayed) = open(folder.path()).unwrap();
        assert_eq!((replayed.expect("there is something").next_step, journal.segment), (3, 2));
    }
    // The only segment: a daemon was killed at its first start.
    std::fs::remove_file(segment_path(folder.path(), 1)).unwrap();
    assert!(refusal(folder.path()).contains("cannot be resumed"));
    std::fs::write(segment_path(folder.path(), 2), b"").unwrap();
    let (journal, replayed) = open(folder.path()).unwrap();
    assert!(replayed.is_none() && journal.segment == 2);
    drop(journal);
    // The very first: no client had attached.
    std::fs::remove_file(segment_path(folder.path(), 2)).unwrap();
    std::fs::write(segment_path(folder.path(), 1), b"GPVT").unwrap();
    let (mut journal, replayed) = open(folder.path()).unwrap();
    assert!(replayed.is_none() && journal.segment == 1);
    // What a daemon could not begin for want of room does not stay.
    std::fs::write(segment_path(folder.path(), 2), b"half").unwrap();
    let kernel = Kernel::new(Config::default(), Drivers::new(&Registry::default(), &Config::default()));
    std::mem::forget(journal.begin(&kernel, &SessionCursors::default(), 1).unwrap());
}

/// Whether a state that is not complete takes room in the folder.
fn has_part(folder: &Path) -> bool {
    names(folder).unwrap().iter().any(|name| name.contains(".part"))
}

#[test]
fn a_state_that_cannot_be_written_leaves_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let step = recorded.recorder.next_step();
    recorded.killed();
    let (config, drivers) = (Config::default(), Registry::default());
    let replays = Replays { folder: folder.path().to_owned(), config, drivers, program: "test" };
    // The last of its writes fails.
    let state = state_path(&segment_path(folder.path(), 2));
    std::fs::create_dir(&state).unwrap();
    assert!(replays.write_state(2, step, &[]).is_err());
    assert!(!has_part(folder.path()), "{:?}", names(folder.path()));
    std::fs::remove_dir(&state).unwrap();
    assert!(replays.write_state(2, step, &[]).is_ok_and(|bytes| bytes > 0));
    assert!(state.exists() && !has_part(folder.path()));
}

#[test]
fn states_that_a_killed_daemon_left_half_written_are_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    Recorded::new(folder.path()).killed();
    for suffix in PART_SUFFIXES {
        std::fs::write(folder.path().join(format!("{PREFIX}00000009{suffix}")), b"half").unwrap();
    }
    let (journal, replayed) = open(folder.path()).unwrap();
    assert!(!has_part(folder.path()), "{:?}", names(folder.path()));
    assert!(replayed.is_some() && journal.segment == 1);
}

fn wait_for_state_of(folder: &Path, segment: u32) {
    while segments(folder).unwrap() != [segment] {
        std::thread::yield_now();
    }
}

#[test]
fn a_segment_continues_the_one_before_it_and_its_state_is_computed_beside_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    recorded.call(7, 1);
    recorded.recorder.flush().unwrap();
    let [first, second] = [1, 2].map(|segment| segment_path(folder.path(), segment));
    let too_short = std::fs::read(&first).unwrap();
    recorded.call(8, 2);
    recorded.recorder.flush().unwrap();
    let content = std::fs::read(&first).unwrap();
    recorded.session_cursors.read(P, 1);
    recorded.begin_next_segment();
    recorded.call(9, 3);
    wait_for_state_of(folder.path(), 2);
    let (digest, session_cursors) = (recorded.kernel.snapshot().digest(), recorded.session_cursors.clone());
    recorded.killed();
    let replayed = || open(folder.path()).map(|(_, replayed)| replayed.expect("there is something"));
    let resumed = replayed().unwrap();
    assert_eq!((resumed.kernel.snapshot().digest(), resumed.now, resumed.next_step), (digest, 9, 6));
    assert_eq!(resumed.session_cursors, session_cursors, "acknowledged messages are dropped");
    let found = trace::verify(trace::Reader::open(&second).unwrap()).unwrap();
    assert!(found.is_whole() && found.snapshots == 1, "{found:?}");

    // A daemon was killed before the state was on the disk.
    std::fs::rename(state_path(&second), folder.path().join("segment-00000002.gvt.state.part")).unwrap();
    std::fs::write(&first, content).unwrap();
    let resumed = replayed().unwrap();
    assert_eq!((resumed.kernel.snapshot().digest(), resumed.next_step), (digest, 6));
    assert!(
        resumed.session_cursors.clone().resume_after(P, 0).is_ok(),
        "acknowledgments are not in the journal"
    );

    std::fs::write(&first, too_short).unwrap();
    let words = refusal(folder.path());
    assert!(words.contains("step #5 comes behind step #3: those between are missing"), "{words}");
    std::fs::remove_file(&first).unwrap();
    let words = refusal(folder.path());
    assert!(words.contains("without a state before it"), "{words}");
}

#[test]
fn a_journal_whose_replay_differs_from_its_daemons_state_needs_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    // A step that is in no journal.
    let mut effects = Effects::default();
    recorded.kernel.handle(
        6,
        Input::Call { process: P, request: 1, call: Call::EnumAdapters { capacity: 8 } },
        &mut effects,
    );
    recorded.recorder.begin(7, &Input::ProcessGone { process: P }).unwrap();
    recorded.recorder.end(&effects).unwrap();
    recorded.begin_next_segment();
    while !recorded.journal.needs_snapshot() {
        std::thread::yield_now();
    }
    assert_eq!(segments(folder.path()).unwrap(), [1, 2], "nothing is lost");
    let Recorded { journal, kernel, session_cursors, .. } = &mut recorded;
    std::mem::forget(journal.begin(kernel, session_cursors, 4).unwrap());
    assert!(!journal.needs_snapshot());
    wait_for_state_of(folder.path(), 3);
    recorded.killed();
}

/// Number of DMA operations that a daemon which resumes now has to perform.
fn moves_left(folder: &Path) -> usize {
    open(folder).unwrap().1.expect("there is something").session_cursors.moves.len()
}

#[test]
fn moves_that_are_done_are_not_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let (journal, kernel) = (&mut recorded.journal, &recorded.kernel);
    // As if the last step had requested three.
    let mut session_cursors = recorded.session_cursors.clone();
    session_cursors.moves = (0..3).map(|adapter| DmaOp::ReleaseAll { adapter }).collect();
    std::mem::forget(journal.begin(kernel, &session_cursors, 3).unwrap());
    recorded.killed();
    // A daemon that is killed before its clients are back leaves them to the next one, however often.
    for _ in 0..2 {
        let (mut journal, replayed) = open(folder.path()).unwrap();
        let Replayed { kernel, session_cursors, next_step, .. } = replayed.expect("there is something");
        assert_eq!(session_cursors.moves.len(), 3);
        std::mem::forget(journal.begin(&kernel, &session_cursors, next_step).unwrap());
    }
    let (mut journal, _) = open(folder.path()).unwrap();
    journal.performed(2, 1);
    drop(journal);
    assert_eq!(moves_left(folder.path()), 3, "that one was of the last step, which is not in the segment");
    let (mut journal, replayed) = open(folder.path()).unwrap();
    journal.performed_earlier(2);
    // A later step hides none of them, should the next segment not begin.
    journal.performed(3, 1);
    drop(journal);
    assert_eq!(moves_left(folder.path()), 1);
    // What the next daemon begins with is counted anew.
    let (mut journal, _) = open(folder.path()).unwrap();
    let Replayed { kernel, session_cursors, next_step, .. } = replayed.expect("there is something");
    std::mem::forget(journal.begin(&kernel, &session_cursors, next_step).unwrap());
    drop(journal);
    assert_eq!(moves_left(folder.path()), 3);
}

/// Their adapter is stopped: its engines would read zeros.
#[test]
fn staging_buffers_that_moves_left_to_do_need_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let memory = dxgkrnl::MemoryRef::Memory { process: P, address: 0x1000 };
    let line = |adapter| {
        let staging_buffer = dxgkrnl::StagingBuffer { adapter, number: 1 };
        dxgkrnl::MemoryRef::StagingBuffer { staging_buffer, offset: 0 }
    };
    let copy = |from, to| DmaOp::Copy { from, to, bytes: 64 };
    let mut session_cursors = recorded.session_cursors.clone();
    session_cursors.moves =
        vec![copy(memory, line(3)), copy(memory, line(4)), copy(line(3), memory), copy(line(4), memory)];
    std::mem::forget(recorded.journal.begin(&recorded.kernel, &session_cursors, 3).unwrap());
    for (done, left, lost) in [(0, 4, vec![]), (1, 2, vec![3]), (2, 0, vec![3, 4]), (4, 0, vec![])] {
        recorded.journal.performed_earlier(done);
        // As the next daemon reads them.
        let replayed = replay_last(folder.path(), &[2], &Config::default(), &Registry::default());
        let mut replayed = replayed.unwrap().expect("there is something");
        replayed.leave_out_done([0, Moves::OfSegment(2).word(done)]);
        let cursors = replayed.session_cursors;
        let adapters: Vec<u32> = cursors.adapters_with_staging_buffers().into_iter().collect();
        assert_eq!((cursors.moves.len(), adapters), (left, lost), "{done} are done");
    }
    recorded.killed();
}

#[test]
fn a_segment_that_cannot_begin_is_tried_again_with_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    wait_for_state_of(folder.path(), 1);
    assert!(!recorded.journal.needs_snapshot());
    let in_the_way = segment_path(folder.path(), 2);
    std::fs::create_dir(&in_the_way).unwrap();
    let next_step = recorded.recorder.next_step();
    assert!(recorded.journal.begin(&recorded.kernel, &recorded.session_cursors, next_step).is_err());
    assert!(recorded.journal.needs_snapshot());
    std::fs::remove_dir(&in_the_way).unwrap();
    std::mem::forget(recorded.journal.begin(&recorded.kernel, &recorded.session_cursors, next_step).unwrap());
    recorded.killed();
}

#[test]
fn a_journal_that_another_process_locks_is_not_said_to_be_in_use_by_a_dead_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    std::fs::write(folder.path().join("lock"), ended.id().to_string()).unwrap();
    let locked = std::fs::File::open(folder.path().join("lock")).unwrap();
    locked.lock_shared().unwrap();
    let refused = refusal(folder.path());
    assert!(refused.contains("is locked, though not by the daemon that had it last"), "{refused}");
}

/// After an upgrade, or with another configuration: nobody is left to be resumed.
#[test]
fn a_journal_that_ended_in_order_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let Recorded { mut journal, recorder, kernel, .. } = recorded;
    let token = journal.resume_token(P);
    journal.performed(2, 1);
    journal.performed_earlier(1);
    recorder.finish(kernel.snapshot().digest()).unwrap();
    drop(journal);
    let mut changed = Config::default();
    changed.tdr.delay_ns += 1;
    for config in [changed, Config::default()] {
        let opened = Journal::open(folder.path(), Durable::No, "test", &config, &Registry::default());
        let (journal, replayed) = opened.unwrap();
        assert!(replayed.is_none() && journal.segment == 1);
        assert_ne!(journal.resume_token(P), token, "a process of the earlier daemon has the old one");
        let performed = std::fs::read(folder.path().join("performed")).unwrap();
        assert_eq!(performed, [0; size_of::<PerformedWords>()], "steps and segments are counted anew");
    }
}

/// The first segment of the next daemon has a header, and the one before it is not removed yet.
#[test]
fn a_journal_that_ended_in_order_begins_anew_also_after_a_kill_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let Recorded { journal, recorder, kernel, .. } = recorded;
    recorder.finish(kernel.snapshot().digest()).unwrap();
    let mut changed = Config::default();
    changed.tdr.delay_ns += 1;
    std::mem::forget(journal.create_next(&changed, 1).unwrap());
    drop(journal);
    for config in [changed, Config::default()] {
        let opened = Journal::open(folder.path(), Durable::No, "test", &config, &Registry::default());
        let (journal, replayed) = opened.unwrap();
        assert!(replayed.is_none() && journal.segment == 2);
    }
}

/// By a signal, or because what `gpupv serve` does next has failed: its own socket is in use, say.
#[test]
fn a_daemon_that_stops_while_it_waits_for_clients_leaves_them_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(&folder.path().join("journal"));
    let pid = std::process::id();
    recorded.step(5, Input::ProcessAttached { process: P, vm: VmId::HOST, pid, name: "one".into() });
    // Without a call it had no session.
    recorded.call(6, 1);
    recorded.killed();
    for _ in 0..2 {
        let options = crate::Options::with_journal(folder.path());
        let daemon =
            crate::Daemon::start(crate::Options { directory: folder.path().into(), ..options }).unwrap();
        assert_eq!(daemon.resumed.expect("a client is awaited").processes, 1);
        daemon.stop().unwrap();
    }
}

#[test]
fn a_journal_that_cannot_be_resumed_is_refused_with_the_reason_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let busy = refusal(folder.path());
    assert!(busy.contains(&format!("in use by process {}", std::process::id())), "{busy}");
    recorded.killed();

    let mut changed = Config::default();
    changed.tdr.delay_ns += 1;
    let refused = Journal::open(folder.path(), Durable::No, "test", &changed, &Registry::default());
    let words = format!("{:#}", refused.map(|_| ()).expect_err("it is refused"));
    assert!(words.contains("another configuration") && words.contains("--config"), "{words}");

    let path = segment_path(folder.path(), 1);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let words = refusal(folder.path());
    assert!(words.contains("gpupv trace verify") && words.contains("another folder"), "{words}");

    std::fs::write(folder.path().join("letter.txt"), "mine").unwrap();
    let words = refusal(folder.path());
    assert!(words.contains("is no journal: \"letter.txt\" is in it"), "{words}");
}

/// The folder of a VM's socket may end with the daemon.
#[test]
fn the_journal_has_a_copy_of_the_connections_of_each_guest() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let options =
        || crate::Options { directory: folder.path().into(), ..crate::Options::with_journal(folder.path()) };
    let daemon = crate::Daemon::start(options()).unwrap();
    daemon.vms.add("one", &folder.path().join("vm1.sock")).unwrap();
    assert!(journal.join("vm1.connections").exists());
    drop(daemon);
    // One with rows stays.
    std::fs::write(journal.join("vm1.connections"), [1; 8]).unwrap();
    let daemon = crate::Daemon::start(options()).unwrap();
    daemon.vms.add("one", &folder.path().join("vm1.sock")).unwrap();
    assert_eq!(std::fs::read(folder.path().join("vm1.sock.connections")).unwrap(), [1; 8]);
}

#[test]
fn a_state_in_pieces_is_resumed_and_an_incomplete_one_is_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new(folder.path());
    recorded.attach(5);
    let Recorded { journal, kernel, session_cursors, .. } = &mut recorded;
    // Far less than the state's size.
    journal.one_block_bytes_max = Some(40);
    let digest = kernel.snapshot().digest();
    std::mem::forget(journal.begin(kernel, session_cursors, 3).unwrap());
    let session_cursors = session_cursors.clone();
    recorded.killed();
    assert_eq!(segments(folder.path()).unwrap(), [2]);
    let path = segment_path(folder.path(), 2);
    let found = trace::verify(trace::Reader::open(&path).unwrap()).unwrap();
    assert!(found.is_whole() && found.snapshots == 1 && found.blocks[&trace::Kind::Piece] > 10, "{found:?}");
    let (journal, replayed) = open(folder.path()).unwrap();
    let replayed = replayed.expect("there is something");
    assert_eq!(
        (replayed.kernel.snapshot().digest(), replayed.next_step, replayed.session_cursors),
        (digest, 3, session_cursors)
    );
    drop(journal);
    // A daemon was killed while it wrote the next one, at any byte.
    let bytes = std::fs::read(&path).unwrap();
    let next = segment_path(folder.path(), 3);
    for cut in (1..bytes.len()).step_by(37).chain([bytes.len() - 1]) {
        std::fs::write(&next, &bytes[..cut]).unwrap();
        let (_, replayed) = open(folder.path()).unwrap_or_else(|error| panic!("cut at {cut}: {error:#}"));
        let replayed = replayed.unwrap_or_else(|| panic!("cut at {cut}: nothing"));
        assert_eq!((replayed.kernel.snapshot().digest(), replayed.next_step), (digest, 3), "cut at {cut}");
    }
    // The only segment must be complete.
    std::fs::rename(&next, &path).unwrap();
    let words = refusal(folder.path());
    assert!(words.contains("its snapshot is not whole") && words.contains("another folder"), "{words}");
}
