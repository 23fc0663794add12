//! Killed recorders: all recorded data is available at any time, in the file or in the open block.

use crate::common;

use std::path::{Path, PathBuf};

use common::{record, session};
use dxgkrnl::{Config, Input};
use session::Step;
use trace::{Findings, Reader, Record, Recorder, verify};

fn open_block(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".open");
    name.into()
}

/// A trace and its open block as a killed recorder leaves them: a copy.
struct KilledTrace {
    folder: tempfile::TempDir,
}

impl KilledTrace {
    fn of(trace: &Path) -> KilledTrace {
        let killed = KilledTrace { folder: tempfile::tempdir().unwrap() };
        std::fs::copy(trace, killed.trace()).unwrap();
        if let Ok(bytes) = std::fs::read(open_block(trace)) {
            killed.open_is(&bytes);
        }
        killed
    }

    /// Replaces the open block with these bytes.
    fn open_is(&self, bytes: &[u8]) {
        let length = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
        std::fs::write(open_block(&self.trace()), &bytes[..64 + length]).unwrap();
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("left.gvt")
    }

    fn findings(&self) -> Findings {
        verify(Reader::open(&self.trace()).unwrap()).unwrap()
    }

    fn steps(&self) -> Vec<(Input, bool)> {
        let records = Reader::open(&self.trace()).unwrap().map(Result::unwrap);
        let step = |record| match record {
            Record::Step { input, effects, .. } => Some((input, effects.is_some())),
            _ => None,
        };
        records.filter_map(step).collect()
    }

    fn cut(&self, length: u64) {
        std::fs::File::options().write(true).open(self.trace()).unwrap().set_len(length).unwrap();
    }
}

#[test]
fn each_half_of_a_step_is_readable_once_recorded() {
    let (steps, _) = session::run(31, Config::default(), 120);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    for (at, step) in steps.iter().enumerate() {
        recorder.begin(step.now, &step.input).unwrap();
        let killed = KilledTrace::of(&path);
        let found = killed.steps();
        assert_eq!(found.len(), at + 1);
        assert_eq!(found[at], (step.input.clone(), false));
        assert_eq!(killed.findings().unfinished, Some(at as u64 + 1));
        recorder.end(&step.effects).unwrap();
        let found = KilledTrace::of(&path).findings();
        assert!(found.is_whole() && !found.ended && found.unfinished.is_none(), "{found}");
        assert_eq!(found.steps, at as u64 + 1);
        if at % 50 == 49 {
            recorder.flush().unwrap();
            assert_eq!(KilledTrace::of(&path).findings().steps, at as u64 + 1);
        }
    }
    // The trace of a running recorder can be read as well.
    assert_eq!(verify(Reader::open(&path).unwrap()).unwrap().steps, 120);
    recorder.finish(0).unwrap();
    assert!(!open_block(&path).exists());
}

/// The recorder is killed while it writes a block, of which any part is in the file.
#[test]
fn a_block_that_was_being_written_is_read_from_the_open_block() {
    let (steps, _) = session::run(32, Config::default(), 60);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    let mut record_steps = |steps: &[Step]| {
        for step in steps {
            recorder.begin(step.now, &step.input).unwrap();
            recorder.end(&step.effects).unwrap();
        }
        let open = std::fs::read(open_block(&path)).unwrap();
        recorder.flush().unwrap();
        open
    };
    record_steps(&steps[..30]);
    let before = std::fs::metadata(&path).unwrap().len();
    let open = record_steps(&steps[30..]);
    let after = std::fs::metadata(&path).unwrap().len();
    let killed = KilledTrace::of(&path);
    killed.open_is(&open);
    for length in (before..=after).rev() {
        killed.cut(length);
        let found = killed.findings();
        assert!(found.is_whole() && found.steps == 60, "cut at {length}: {found}");
    }
    // The file has the block, and a part of the index behind it.
    let bytes = std::fs::read(&path).unwrap();
    for length in 1..100 {
        std::fs::write(killed.trace(), [&bytes[..], &bytes[before as usize..][..length]].concat()).unwrap();
        let found = killed.findings();
        assert_eq!((found.steps, killed.steps().len()), (60, 60), "{length} bytes behind it: {found}");
    }
}

/// A power failure may lose blocks of the file but not the open block.
#[test]
fn open_block_shows_how_much_is_lost_before_it() {
    let (steps, _) = session::run(33, Config::default(), 60);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    for (at, step) in steps.iter().enumerate() {
        if [20, 40].contains(&at) {
            recorder.flush().unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    let bounds = common::bounds(&bytes);
    let killed = KilledTrace::of(&path);
    for length in (bounds[1]..bounds[3]).rev() {
        killed.cut(length as u64);
        let found = killed.findings();
        let lost = if length < bounds[2] { 40 } else { 20 };
        assert_eq!((found.steps, found.lost_steps()), (60 - lost, Some(lost)), "cut at {length}: {found}");
    }
}

#[test]
fn damaged_open_block_is_reported_and_one_of_another_trace_ignored() {
    let (steps, _) = session::run(34, Config::default(), 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    for (at, step) in steps.iter().enumerate() {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
        if at == 9 {
            recorder.flush().unwrap();
        }
    }
    let content = std::fs::read(open_block(&path)).unwrap();
    let length = u32::from_le_bytes(content[16..20].try_into().unwrap()) as usize;
    let killed = KilledTrace::of(&path);
    for at in (0..24).chain(32..60).chain(64..64 + length) {
        let mut open = content[..64 + length].to_vec();
        open[at] ^= 0x21;
        std::fs::write(open_block(&killed.trace()), &open).unwrap();
        let found = killed.findings();
        let of_another = (8..16).contains(&at);
        assert_eq!((found.steps, found.is_whole()), (10, of_another), "byte {at}: {found}");
    }
    for cut in [0, 10, 15, 16, 63, 64, 64 + length - 1] {
        std::fs::write(open_block(&killed.trace()), &content[..cut]).unwrap();
        let found = killed.findings();
        assert_eq!((found.steps, found.is_whole()), (10, cut < 16), "cut at {cut}: {found}");
    }
    // An open block of an earlier version.
    std::fs::write(open_block(&killed.trace()), [b"GPVTOPEN", &content[8..]].concat()).unwrap();
    let found = killed.findings().to_string();
    assert!(found.contains("#11") && found.contains("another version of gpupv"), "{found}");
    // The file already has this block, so nothing is lost.
    let mut old = content.clone();
    old[32..36].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32c::crc32c(&old[32..56]);
    old[56..60].copy_from_slice(&crc.to_le_bytes());
    old[64] ^= 1;
    std::fs::write(open_block(&killed.trace()), &old).unwrap();
    assert!(killed.findings().is_whole(), "{}", killed.findings());
}

#[test]
fn steps_of_any_size_fit_the_open_block() {
    let note = |bytes: usize| dxgkrnl::Note { process: None, text: "n".repeat(bytes) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    for (step, bytes) in [10, 60_000, 300_000, 5, 3_000_000, 7].into_iter().enumerate() {
        let mut effects = dxgkrnl::Effects::default();
        effects.notes.push(note(bytes));
        recorder.begin(step as u64, &Input::Deadline).unwrap();
        recorder.end(&effects).unwrap();
        let found = KilledTrace::of(&path).findings();
        assert!(found.is_whole() && found.steps == step as u64 + 1, "{found}");
    }
}

#[test]
fn a_trace_without_its_open_block_is_as_whole_as_its_file() {
    let (steps, _) = session::run(35, Config::default(), 20);
    let bytes = record(&Config::default(), &steps, None);
    let found = verify(common::reader(&bytes).unwrap()).unwrap();
    assert!(found.is_whole() && !found.ended && found.steps == 20, "{found}");
}

/// A recorder, and its trace as a kill leaves it: the first 30 steps are in a data block, the others in the open one.
fn recorded_and_killed(path: &Path, steps: &[Step]) -> (Recorder, KilledTrace) {
    let mut recorder = common::recorder(path, &Config::default());
    for (at, step) in steps.iter().enumerate() {
        if at == 30 {
            recorder.flush().unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    (recorder, KilledTrace::of(path))
}

#[test]
fn a_time_in_the_open_block_is_found() {
    let (steps, _) = session::run(32, Config::default(), 90);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let (_recorder, killed) = recorded_and_killed(&path, &steps);
    let mut reader = Reader::open(&killed.trace()).unwrap();
    for step in &steps {
        reader.seek_time(step.now).unwrap();
        let Some(Ok(Record::Step { now, .. })) = reader.next() else { panic!("nothing at {}", step.now) };
        assert_eq!(now, step.now);
    }
    let (first, last) = (steps[30].now, steps[89].now);
    let block = reader.blocks().last().unwrap();
    assert_eq!((block.first_ns, block.last_ns), (first, last));
}

#[test]
fn a_killed_trace_without_its_open_block_is_not_called_whole_and_its_packed_copy_is() {
    let (steps, _) = session::run(37, Config::default(), 40);
    let folder = tempfile::tempdir().unwrap();
    let (path, packed) = (folder.path().join("t.gvt"), folder.path().join("packed.gvt"));
    let (_recorder, killed) = recorded_and_killed(&path, &steps);
    trace::pack(&killed.trace(), &packed).unwrap();
    std::fs::remove_file(open_block(&killed.trace())).unwrap();
    let found = killed.findings();
    assert!(found.is_whole() && found.steps == 30, "{found}");
    let text = found.to_string();
    let missing = "the last steps may be missing: ";
    assert!(text.starts_with("perhaps incomplete: 30 steps") && text.contains(missing), "{text}");
    let replayed = trace::replay(&killed.trace(), &common::drivers(), &mut |_, _| {}).unwrap().to_string();
    assert!(replayed.starts_with("identical: 30 steps") && replayed.contains(missing), "{replayed}");
    // The copy has the open block's steps, and is marked as complete.
    let found = verify(Reader::open(&packed).unwrap()).unwrap();
    assert!(found.to_string().starts_with("whole: 40 steps") && !found.ended, "{found}");
    assert_eq!(found.skipped, 0);
    // The copy of an incomplete trace is not.
    let partial = folder.path().join("partial.gvt");
    trace::pack(&killed.trace(), &partial).unwrap();
    assert!(verify(Reader::open(&partial).unwrap()).unwrap().to_string().contains(missing));
}

#[test]
fn a_killed_trace_with_a_useless_open_block_is_not_called_whole() {
    let (steps, _) = session::run(37, Config::default(), 40);
    let folder = tempfile::tempdir().unwrap();
    let (_recorder, killed) = recorded_and_killed(&folder.path().join("t.gvt"), &steps);
    let block = open_block(&killed.trace());
    let own = std::fs::read(&block).unwrap();
    let mut of_other = own.clone();
    // The number of its trace.
    of_other[8] ^= 1;
    let useless = [
        (vec![], "is cut off"),
        (own[..12].to_vec(), "is cut off"),
        (of_other, "belongs to another recording"),
        (vec![0; own.len()], "belongs to another recording"),
    ];
    for (bytes, why) in useless {
        std::fs::write(&block, bytes).unwrap();
        let text = killed.findings().to_string();
        let expected = format!("the last steps may be missing: {} beside it {why}", block.display());
        assert!(text.starts_with("perhaps incomplete: 30 steps") && text.contains(&expected), "{text}");
        let packed = folder.path().join("packed.gvt");
        trace::pack(&killed.trace(), &packed).unwrap();
        let found = verify(Reader::open(&packed).unwrap()).unwrap();
        assert!(found.to_string().starts_with("perhaps incomplete"), "the copy does not say so: {found}");
        std::fs::remove_file(&packed).unwrap();
    }
}

#[test]
fn a_recording_refuses_a_path_beside_which_a_killed_recording_left_steps() {
    let (steps, _) = session::run(36, Config::default(), 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = common::recorder(&path, &Config::default());
    for step in &steps {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    let killed = KilledTrace::of(&path);
    let (left, saved) = (killed.trace(), killed.folder.path().join("saved.gvt"));
    std::fs::rename(&left, &saved).unwrap();
    let record_again = || Recorder::create(&left, &Config::default(), "a test");
    let error = record_again().err().unwrap().to_string();
    assert!(error.contains("left.gvt.open has steps of a recording that is no longer "), "{error}");
    assert!(open_block(&left).exists() && !left.exists());
    let found = verify(Reader::open(&saved).unwrap()).unwrap().to_string();
    assert!(found.contains("saved.gvt.open is not beside it"), "{found}");
    let replayed = trace::replay(&saved, &drivers::Registry::default(), &mut |_, _| {}).unwrap().to_string();
    assert!(replayed.contains("saved.gvt.open is not beside it"), "{replayed}");
    std::fs::rename(open_block(&left), open_block(&saved)).unwrap();
    assert!(verify(Reader::open(&saved).unwrap()).unwrap().to_string().starts_with("whole: 20 steps"));
    assert_eq!(verify(Reader::open(&saved).unwrap()).unwrap().steps, 20);
    record_again().unwrap();
}
