//! Damaged files: intact parts are read, losses are reported exactly, and nothing panics.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::common;

use common::{RECORDING, bounds, reader, record, record_in_blocks, replay, session};
use drivers::Registry;
use dxgkrnl::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use session::Step;
use trace::{
    Findings, Kind, Lost, Player, Reader, Record, Recorder, Recording, Stop, TraceError, Verdict, verify,
};

/// A trace with steps in four blocks: its blocks are header, 1 to 15, 16 to 30, 31 to 45, 46 to 60, index, end.
struct Small {
    steps: Vec<Step>,
    bytes: Vec<u8>,
    /// Offsets of the blocks, and the end of the last one.
    bounds: Vec<usize>,
}

const BEFORE: [usize; 3] = [15, 30, 45];
/// First step of each block, and of the next one.
const STEPS: [(u64, u64); 7] = [(1, 1), (1, 16), (16, 31), (31, 46), (46, 61), (61, 61), (61, 61)];
const LAST: usize = 6;

impl Small {
    fn new() -> Small {
        let (steps, digest) = session::run(11, Config::default(), 60);
        let bytes = record_in_blocks(&Config::default(), &steps, &BEFORE, Some(digest));
        let bounds = bounds(&bytes);
        assert_eq!(bounds.len(), STEPS.len() + 1);
        Small { steps, bytes, bounds }
    }

    fn block(&self, number: usize) -> &[u8] {
        &self.bytes[self.bounds[number]..self.bounds[number + 1]]
    }

    /// The bytes of these blocks, in this order.
    fn of(&self, numbers: &[usize]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.block(*number)).copied().collect()
    }

    /// Reads a damaged copy. Asserts that each step is unchanged, and that read and lost steps together are all steps.
    /// Returns the losses.
    fn check(&self, bytes: &[u8]) -> (Vec<Lost>, bool) {
        let mut next = 1;
        let mut lost = Vec::new();
        let mut reader = reader(bytes).unwrap();
        for record in &mut reader {
            match record.unwrap() {
                Record::Step { sequence, now, input, effects } => {
                    assert_eq!(sequence, next);
                    let read = Step { now, input, effects: effects.unwrap() };
                    assert_eq!(read, self.steps[sequence as usize - 1]);
                    next += 1;
                }
                Record::Lost(one) => {
                    assert_eq!(one.from, next, "{one}");
                    next = one.to.unwrap_or(61);
                    lost.push(one);
                }
                Record::End { sequence, steps, .. } => assert_eq!((sequence, steps), (61, 60)),
                other => panic!("{other}"),
            }
        }
        assert!(next == 61 || !reader.ended());
        assert_eq!(reader.progress(), (bytes.len() as u64, bytes.len() as u64));
        (lost, reader.ended())
    }
}

fn lost(of: &Lost) -> (u64, Option<u64>, u64, u64) {
    (of.from, of.to, of.offset, of.bytes)
}

#[test]
fn every_flipped_byte_of_a_block_loses_that_block_and_no_other() {
    let small = Small::new();
    assert_eq!(small.check(&small.bytes), (vec![], true));
    for (number, (from, to)) in STEPS.into_iter().enumerate().skip(1) {
        let (begin, end) = (small.bounds[number], small.bounds[number + 1]);
        for at in begin..end {
            for flip in [1 << (at % 8), 0xFF] {
                let mut damaged = small.bytes.clone();
                damaged[at] ^= flip;
                let (found, ended) = small.check(&damaged);
                let [one] = &found[..] else { panic!("byte {at}: {found:?}") };
                // After the last block, nothing shows that no step followed.
                let cut_off = number == LAST && at < begin + 68;
                let to = if cut_off { None } else { Some(to) };
                let expected = (from, to, begin as u64, (end - begin) as u64);
                assert_eq!(lost(one), expected, "byte {at}: {one}");
                assert_eq!(ended, number != LAST);
            }
        }
    }
}

#[test]
fn every_cut_of_the_last_three_blocks_loses_what_is_behind_it() {
    let small = Small::new();
    for length in small.bounds[LAST - 2]..small.bytes.len() {
        let (found, ended) = small.check(&small.bytes[..length]);
        assert!(!ended);
        let number = small.bounds.iter().rposition(|begin| *begin <= length).unwrap();
        let (begin, (from, to)) = (small.bounds[number], STEPS[number]);
        let into = length - begin;
        if into == 0 {
            // The state after the recorder is killed.
            assert_eq!(found, []);
            continue;
        }
        let [one] = &found[..] else { panic!("cut at {length}: {found:?}") };
        // An intact header gives the steps of its block.
        let to = (into >= 68).then_some(to);
        assert_eq!(lost(one), (from, to, begin as u64, into as u64), "cut at {length}: {one}");
    }
}

#[test]
fn every_cut_of_the_first_blocks_is_found() {
    let small = Small::new();
    for length in 0..small.bounds[2] {
        match reader(&small.bytes[..length]) {
            Err(TraceError::NotATrace { .. }) => assert_eq!(length, 0),
            Err(TraceError::Damaged { lost, .. }) => {
                assert!(length < small.bounds[1]);
                assert_eq!((lost.from, lost.to, lost.bytes), (1, None, length as u64));
            }
            other => {
                assert!(length >= small.bounds[1]);
                let findings = verify(other.unwrap()).unwrap();
                assert_eq!(findings.lost.len(), usize::from(length != small.bounds[1]));
                assert_eq!((findings.steps, findings.ended), (0, false));
            }
        }
    }
}

#[test]
fn a_lost_header_is_read_from_its_copy() {
    let (steps, digest) = session::run(21, Config::default(), 40);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &common::config());
    for (at, step) in steps.iter().enumerate() {
        if at == 25 {
            recorder.snapshot(b"a state", 7).unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    recorder.finish(digest).unwrap();
    let content = std::fs::read(file.path()).unwrap();
    let first = bounds(&content)[1];
    for at in 0..first {
        let mut damaged = content.clone();
        damaged[at] ^= 0x10;
        let reader = reader(&damaged).unwrap();
        assert_eq!(reader.header().config, common::config());
        let found = verify(reader).unwrap();
        let [one] = &found.lost[..] else { panic!("byte {at}: {found}") };
        assert_eq!(lost(one), (1, Some(1), 0, first as u64), "{one}");
        assert_eq!((found.steps, found.snapshots, found.ended), (40, 1, true));
    }
}

#[test]
fn blocks_that_are_missing_are_counted_with_their_steps() {
    let small = Small::new();
    /// Remaining blocks, the lost steps, and the reason.
    type Case<'a> = (&'a [usize], &'a [(u64, u64)], &'a str);
    let cases: [Case; 5] = [
        (&[0, 2, 3, 4, 5, 6], &[(1, 16)], "block 1 missing"),
        (&[0, 1, 4, 5, 6], &[(16, 46)], "blocks 2 to 3 missing"),
        (&[0, 2, 4, 5, 6], &[(1, 16), (31, 46)], "block 1 missing"),
        (&[0, 6], &[(1, 61)], "blocks 1 to 5 missing"),
        (&[0, 1, 2, 3, 4, 6], &[(61, 61)], "block 5 missing"),
    ];
    for (numbers, expected, why) in cases {
        let (found, ended) = small.check(&small.of(numbers));
        let ranges: Vec<_> = found.iter().map(|one| (one.from, one.to.unwrap())).collect();
        assert_eq!(ranges, expected);
        assert_eq!((&*found[0].why, found[0].bytes, ended), (why, 0, true));
    }
    // Without later blocks, nothing shows that these existed.
    assert_eq!(small.check(&small.of(&[0, 1, 2])), (vec![], false));
}

#[test]
fn blocks_in_the_wrong_place_lose_nothing() {
    let small = Small::new();
    for numbers in
        [[0, 2, 1, 3, 4, 5, 6], [0, 4, 3, 2, 1, 5, 6], [1, 0, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]
    {
        let bytes = small.of(&numbers);
        assert_eq!(small.check(&bytes), (vec![], true));
        let found = verify(reader(&bytes).unwrap()).unwrap();
        assert!(found.out_of_place > 0 && !found.is_whole());
        assert!(found.to_string().contains("out of order in the file"), "{found}");
    }
}

#[test]
fn blocks_that_are_there_twice_count_once() {
    let small = Small::new();
    let (found, ended) = small.check(&small.of(&[0, 1, 2, 2, 3, 4, 5, 6]));
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!((one.steps(), one.bytes, ended), (Some(0), small.block(2).len() as u64, true));
}

#[test]
fn a_block_of_another_trace_is_no_part_of_this_one() {
    let small = Small::new();
    let other = tempfile::NamedTempFile::new().unwrap();
    let recording = trace::Recording { trace: Some(9), ..RECORDING };
    let mut recorder = Recorder::create_as(other.path(), &Config::default(), "test 1.0", recording).unwrap();
    for step in &small.steps {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    recorder.finish(0).unwrap();
    let other = std::fs::read(other.path()).unwrap();
    let foreign = &other[bounds(&other)[1]..bounds(&other)[2]];
    let bytes = [&small.of(&[0, 1]), foreign, &small.of(&[2, 3, 4, 5, 6])].concat();
    let (found, ended) = small.check(&bytes);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!(lost(one), (16, Some(16), small.bounds[2] as u64, foreign.len() as u64));
    assert!(ended);
    // Nor is a block of the same number from another run, to which no link leads.
    let run = record_in_blocks(&Config::default(), &small.steps[..59], &[20, 40], Some(0));
    let bounds = bounds(&run);
    let foreign = &run[bounds[2]..bounds[3]];
    let bytes = [&small.of(&[0, 1]), foreign, &small.of(&[3, 4, 5, 6])].concat();
    let (found, ended) = small.check(&bytes);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!(lost(one), (16, Some(31), small.bounds[2] as u64, foreign.len() as u64));
    assert!(ended);
}

#[test]
fn bytes_that_were_put_in_lose_nothing() {
    let small = Small::new();
    let garbage: &[&[u8]] = &[b"x", &[0; 24], &[0; 5000], b"GPVTRACE", &small.bytes[..60]];
    for garbage in garbage {
        for number in 1..=LAST + 1 {
            let at = small.bounds[number];
            let bytes = [&small.bytes[..at], garbage, &small.bytes[at..]].concat();
            let (found, ended) = small.check(&bytes);
            let [one] = &found[..] else { panic!("{found:?}") };
            let from = STEPS.get(number).map_or(61, |steps| steps.0);
            assert_eq!(lost(one), (from, Some(from), at as u64, garbage.len() as u64), "{one}");
            assert!(ended);
        }
    }
}

#[test]
fn bytes_that_were_taken_out_of_a_block_lose_that_block() {
    let small = Small::new();
    for (begin, end) in [(70, 80), (0, 30), (10, 100), (68, 69)] {
        let at = small.bounds[2];
        let bytes = [&small.bytes[..at + begin], &small.bytes[at + end..]].concat();
        let (found, ended) = small.check(&bytes);
        let [one] = &found[..] else { panic!("{found:?}") };
        let remaining = small.block(2).len() - (end - begin);
        assert_eq!(lost(one), (16, Some(31), at as u64, remaining as u64), "{one}");
        assert!(ended);
    }
}

#[test]
fn a_replay_ends_where_steps_are_lost_and_says_what_to_do() {
    let small = Small::new();
    let mut damaged = small.bytes.clone();
    damaged[small.bounds[3] + 80] ^= 4;
    let report = replay(&damaged).unwrap();
    let Verdict::Damaged { lost } = &report.verdict else { panic!("{report}") };
    assert_eq!((report.steps, lost.from, lost.to), (30, 31, Some(46)));
    let text = report.to_string();
    assert!(
        text.starts_with("identical: 30 steps, then the trace is damaged: 15 steps are lost, #31 to #45")
    );
    assert!(text.contains("block 3 (data)") && text.contains("record again"), "{text}");
    // A loss without lost steps is reported, and the trace is replayed.
    let mut damaged = small.bytes.clone();
    damaged[small.bounds[5] + 10] ^= 4;
    let report = replay(&damaged).unwrap();
    assert!(!report.agrees() && report.ended && report.steps == 60, "{report}");
    assert!(report.to_string().contains("no step is lost: block 5 damaged"), "{report}");
}

#[test]
fn findings_are_the_loss_report() {
    let small = Small::new();
    let findings = verify(reader(&small.bytes).unwrap()).unwrap();
    assert!(findings.is_whole() && findings.ended, "{findings}");
    let blocks = [(Kind::Header, 1), (Kind::Data, 4), (Kind::Index, 1), (Kind::End, 1)];
    assert_eq!(findings.blocks, blocks.into());
    assert_eq!((findings.steps, findings.range, findings.lost_steps()), (60, Some((1, 60)), Some(0)));
    let expected =
        format!("whole: 60 steps, #1 to #60, 0 snapshots, {} bytes, recorded by test 1.0", small.bytes.len());
    assert_eq!(findings.to_string(), expected);
    let mut damaged = small.of(&[0, 1, 3, 4]);
    damaged.extend(&small.block(5)[..20]);
    let found = verify(reader(&damaged).unwrap()).unwrap();
    assert_eq!((found.steps, found.lost.len(), found.lost_steps(), found.ended), (45, 2, None, false));
    let text = found.to_string();
    assert!(text.contains("15 steps are lost, #16 to #30: block 2 missing"), "{text}");
    assert!(text.contains("every step from #61 on is lost") && text.contains("not ended"), "{text}");
    assert!(!found.is_whole() && Findings::default().is_whole());
}

#[test]
fn a_full_block_is_written_and_each_step_is_in_one_block() {
    let (steps, digest) = session::run(12, Config::default(), 12_000);
    let bytes = record(&Config::default(), &steps, Some(digest));
    let reader = reader(&bytes).unwrap();
    let data: Vec<_> = reader.blocks().filter(|block| block.kind == Kind::Data).collect();
    assert!(data.len() > 4, "{} blocks", data.len());
    let full = &data[..data.len() - 1];
    assert!(full.iter().all(|block| (64 << 10..80 << 10).contains(&block.bytes)), "{full:?}");
    let mut next = 1;
    for block in &data {
        assert_eq!(block.first_step, next);
        assert!(block.first_ns <= block.last_ns);
        next += u64::from(block.steps);
    }
    assert_eq!(next, 12_001);
    assert_eq!(common::steps(&bytes), steps);
}

#[test]
fn a_file_that_is_no_trace_is_refused_and_never_overwritten() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "somebody's thesis, somebody's thesis").unwrap();
    let error = Recorder::create(file.path(), &Config::default(), "test").map(drop).unwrap_err();
    assert!(error.to_string().contains("is not overwritten"), "{error}");
    assert_eq!(std::fs::read(file.path()).unwrap(), b"somebody's thesis, somebody's thesis");
    let error = trace::replay(file.path(), &drivers::Registry::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&error, TraceError::NotATrace { why, .. } if why.contains("GPVTRACE")), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let error = trace::replay(directory.path(), &drivers::Registry::default(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("it is not a regular file"), "{error}");
    let missing = directory.path().join("missing/t.gvt");
    let error = Recorder::create(&missing, &Config::default(), "test").map(drop).unwrap_err();
    assert!(error.to_string().contains("cannot create the trace"), "{error}");
    // A trace may be overwritten, but not while it is recorded.
    let again = directory.path().join("again.gvt");
    std::fs::write(&again, Small::new().bytes).unwrap();
    let everybodys = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&again, everybodys).unwrap();
    let recorder = Recorder::create(&again, &Config::default(), "test").unwrap();
    assert_eq!(std::fs::metadata(&again).unwrap().mode() & 0o777, 0o600, "it is the owner's from now on");
    let error = Recorder::create(&again, &Config::default(), "test").map(drop).unwrap_err();
    assert!(matches!(error, TraceError::Busy(_)), "{error}");
    recorder.finish(0).unwrap();
    assert_eq!(verify(Reader::open(&again).unwrap()).unwrap().steps, 0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the open block is gone");
}

/// Reads any bytes as a trace, in all ways.
fn read_everything(bytes: &[u8]) {
    let Ok(mut reader) = reader(bytes) else { return };
    let mut next = reader.header().first_step;
    for record in &mut reader {
        let record = record.unwrap();
        assert!(record.sequence() >= next.min(record.sequence()), "{record}");
        next = record.sequence();
        let _ = record.to_string();
    }
    assert_eq!(reader.progress().0, bytes.len() as u64);
    for step in [0, 1, 30, u64::MAX] {
        reader.seek(step).unwrap();
        let _ = reader.next();
        reader.seek_time(step).unwrap();
        let _ = reader.next();
        reader.seek_snapshot(step).unwrap();
        let _ = reader.next();
    }
}

/// Replays any bytes as far as possible, to the end and to several stops.
fn replay_everything(bytes: &[u8]) {
    let Ok(reader) = reader(bytes) else { return };
    let Ok(player) = Player::new(reader, &Registry::default()) else { return };
    let mut player = player.that_goes_back();
    for step in [u64::MAX, 30, 1, 0, u64::MAX - 1] {
        let _ = player.go_to(step).unwrap();
        let _ = player.begin_at(&Stop::Sequence(step)).unwrap();
    }
}

/// Numbers that can overflow additions and subtractions.
const EDGES: [u64; 8] = [0, 1, 60, 61, 62, u32::MAX as u64, u64::MAX - 1, u64::MAX];

#[test]
fn every_number_of_a_header_may_be_any_behind_right_checksums() {
    let small = Small::new();
    for number in 0..small.bounds.len() - 1 {
        // Kind and codec, lengths, counts and times; checksums and links are fixed afterwards.
        for (at, bytes) in [(18, 1), (19, 1), (28, 4), (32, 8), (40, 8), (48, 8), (56, 4)] {
            for edge in EDGES {
                let mut damaged = small.bytes.clone();
                let at = small.bounds[number] + at;
                damaged[at..at + bytes].copy_from_slice(&edge.to_le_bytes()[..bytes]);
                mend(&mut damaged, &small.bounds);
                read_everything(&damaged);
                replay_everything(&damaged);
            }
        }
    }
}

#[test]
fn trace_may_begin_anywhere_but_not_after_its_end() {
    let small = Small::new();
    for edge in EDGES {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recording = Recording { first_step: Some(edge), ..RECORDING };
        Recorder::create_as(file.path(), &Config::default(), "test 1.0", recording)
            .unwrap()
            .finish(0)
            .unwrap();
        let header = std::fs::read(file.path()).unwrap();
        let end = bounds(&header)[1];
        let mut bytes = header[..end].to_vec();
        // The block stays at its offset; only its fields change.
        bytes[32..40].copy_from_slice(&1u64.to_le_bytes());
        bytes.extend(&small.bytes[small.bounds[1]..]);
        let behind = small.bounds[1..].iter().map(|at| at + end - small.bounds[1]);
        let bounds: Vec<_> = std::iter::once(0).chain(behind).collect();
        mend(&mut bytes, &bounds);
        read_everything(&bytes);
        replay_everything(&bytes);
        let found = verify(reader(&bytes).unwrap()).unwrap();
        assert_eq!(found.is_whole() && found.ended, edge == 1, "{edge}: {found}");
        let expected = format!("block 6 (end) counts 60 steps, the trace begins after it, at step #{edge}");
        assert_eq!(found.to_string().contains(&expected), edge > 61, "{edge}: {found}");
    }
}

/// Fixes the checksums of all blocks at these offsets, and their links.
fn mend(bytes: &mut [u8], bounds: &[usize]) {
    let mut link = 0;
    for two in bounds.windows(2) {
        let block = &mut bytes[two[0]..two[1]];
        let crc = crc32c::crc32c(&block[68..]);
        block[24..28].copy_from_slice(&crc.to_le_bytes());
        block[60..64].copy_from_slice(&u32::to_le_bytes(link));
        link = crc32c::crc32c(&block[..64]);
        block[64..68].copy_from_slice(&link.to_le_bytes());
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), prefix in 0..40usize) {
        let small = Small::new();
        let is_whole = |bytes: &[u8]| {
            reader(bytes).is_ok_and(|reader| verify(reader).is_ok_and(|found| found.is_whole() && found.ended))
        };
        read_everything(&bytes);
        prop_assert!(!is_whole(&bytes));
        let middle = prefix * small.bytes.len() / 40;
        let mixed = [&small.bytes[..middle], &bytes, &small.bytes[middle..]].concat();
        read_everything(&mixed);
        prop_assert!(!is_whole(&mixed) || bytes.is_empty());
    }

    /// Wrong content with valid checksums, as from a bug or an attacker.
    #[test]
    fn random_changes_behind_right_checksums_never_panic(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let small = Small::new();
        let mut bytes = small.bytes.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        mend(&mut bytes, &small.bounds);
        read_everything(&bytes);
        replay_everything(&bytes);
    }
}
