//! A packed trace has the same records in fewer bytes.

use crate::common;

use std::path::{Path, PathBuf};

use common::{bounds, reader, session};
use drivers::Registry;
use dxgkrnl::Config;
use proptest::prelude::*;
use trace::{Kind, Reader, Record, TraceError, pack, verify};

/// Offsets of kind, codec and content in a block.
const KIND: usize = 18;
const CODEC: usize = 19;
const CONTENT: usize = 68;

struct Folder(tempfile::TempDir);

impl Folder {
    /// A trace with a snapshot in the middle and more blocks than one index holds.
    fn new(steps: usize) -> Folder {
        let (steps, digest) = session::run(7, Config::default(), steps);
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = common::recorder(&folder.path().join("t.gvt"), &Config::default());
        for (at, step) in steps.iter().enumerate() {
            if at % 20 == 19 {
                recorder.flush().unwrap();
            }
            if at == steps.len() / 2 {
                recorder.snapshot(&vec![3; 5000], 9).unwrap();
            }
            recorder.begin(step.now, &step.input).unwrap();
            recorder.end(&step.effects).unwrap();
        }
        recorder.finish(digest).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Packs the trace and returns the copy's bytes.
    fn packed(&self) -> Vec<u8> {
        pack(&self.path("t.gvt"), &self.path("p.gvt")).unwrap();
        std::fs::read(self.path("p.gvt")).unwrap()
    }
}

fn records(path: &Path) -> Vec<Record> {
    Reader::open(path).unwrap().map(Result::unwrap).collect()
}

#[test]
fn every_record_and_every_place_is_the_same_and_the_bytes_are_fewer() {
    let folder = Folder::new(2000);
    let (unpacked, small) = (folder.path("t.gvt"), folder.path("p.gvt"));
    let packed = pack(&unpacked, &small).unwrap();
    let length = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert_eq!((packed.before, packed.after), (length(&unpacked), length(&small)));
    assert!(packed.after * 2 < packed.before, "{packed:?}");
    assert_eq!(records(&small), records(&unpacked));
    let (mut of_unpacked, mut of_small) = (Reader::open(&unpacked).unwrap(), Reader::open(&small).unwrap());
    for sequence in [1, 19, 20, 21, 999, 1000, 1001, 1999, 2000, 2001, u64::MAX] {
        of_unpacked.seek(sequence).unwrap();
        of_small.seek(sequence).unwrap();
        assert_eq!(
            of_small.next().map(Result::unwrap),
            of_unpacked.next().map(Result::unwrap),
            "#{sequence}"
        );
        assert_eq!(of_small.seek_snapshot(sequence).unwrap(), of_unpacked.seek_snapshot(sequence).unwrap());
    }
    let found = verify(Reader::open(&small).unwrap()).unwrap();
    assert!(found.is_whole() && found.ended && found.blocks[&Kind::Index] > 1, "{found}");
    // Packing the copy again changes nothing.
    let again = folder.path("again.gvt");
    assert_eq!(pack(&small, &again).unwrap().after, packed.after);
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&small).unwrap());
}

#[test]
fn an_index_says_where_blocks_are_in_the_copy() {
    let folder = Folder::new(2000);
    let bytes = folder.packed();
    let bounds = bounds(&bytes);
    let mut count = 0;
    for block in bounds.windows(2).map(|two| &bytes[two[0]..two[1]]).filter(|block| block[KIND] == 4) {
        let index: proto::trace::Index = proto::Message::decode(&block[CONTENT..]).unwrap();
        for entry in &index.entries {
            let offset = entry.offset as usize;
            assert!(bounds.contains(&offset), "{offset}");
            assert_eq!(entry.header, bytes[offset + 16..offset + CONTENT]);
            count += 1;
        }
        if index.previous_index != 0 {
            assert_eq!(bytes[index.previous_index as usize + KIND], 4);
        }
        if index.last_snapshot != 0 {
            assert_eq!(bytes[index.last_snapshot as usize + KIND], 3);
        }
    }
    assert!(count > 100, "{count} blocks");
}

#[test]
fn a_packed_trace_replays_and_so_does_one_of_a_recorder_that_was_killed() {
    let (steps, digest) = session::run(8, Config::default(), 300);
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("t.gvt"), folder.path().join("copy.gvt"));
    let mut recorder = common::recorder(&path, &Config::default());
    for step in &steps {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    pack(&path, &copy).unwrap();
    let report = trace::replay(&copy, &Registry::default(), &mut |_, _| {}).unwrap();
    assert!(report.agrees() && report.steps == 300, "the open block is in it: {report}");
    assert!(!report.ended);
    recorder.finish(digest).unwrap();
    std::fs::remove_file(&copy).unwrap();
    pack(&path, &copy).unwrap();
    let report = trace::replay(&copy, &Registry::default(), &mut |_, _| {}).unwrap();
    assert!(report.agrees() && report.ended && report.steps == 300, "{report}");
}

#[test]
fn a_trace_of_which_something_is_lost_is_not_packed_and_nothing_is_overwritten() {
    let folder = Folder::new(200);
    let (path, copy) = (folder.path("t.gvt"), folder.path("p.gvt"));
    let bytes = std::fs::read(&path).unwrap();
    let bounds = bounds(&bytes);
    let mut flipped = bytes.clone();
    flipped[bounds[3] + CONTENT + 5] ^= 1;
    let without = [&bytes[..bounds[2]], &bytes[bounds[3]..]].concat();
    for damaged in [flipped, without, bytes[..bytes.len() - 3].to_vec(), [&bytes[..], b"more"].concat()] {
        std::fs::write(&path, damaged).unwrap();
        let error = pack(&path, &copy).unwrap_err();
        assert!(matches!(error, TraceError::NotWhole { .. }), "{error}");
        assert!(!copy.exists(), "no half copy stays: {error}");
    }
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(&copy, "somebody's").unwrap();
    let error = pack(&path, &copy).unwrap_err().to_string();
    assert!(error.contains("p.gvt") && error.contains("exists"), "{error}");
    assert_eq!(std::fs::read(&copy).unwrap(), b"somebody's");
}

#[test]
fn every_flipped_byte_of_a_deflated_block_loses_that_block_and_no_other() {
    let folder = Folder::new(80);
    let bytes = folder.packed();
    let bounds = bounds(&bytes);
    let number = (0..bounds.len()).find(|number| bytes[bounds[*number] + CODEC] == 1).unwrap();
    for at in bounds[number]..bounds[number + 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let found = verify(reader(&damaged).unwrap()).unwrap();
        let [lost] = &found.lost[..] else { panic!("byte {at}: {found}") };
        assert_eq!((lost.from, lost.to), (1, Some(20)), "byte {at}: {lost}");
        assert_eq!((found.steps, found.ended), (80 - 19, true));
    }
}

/// Replaces the content of a block, with a valid checksum.
fn with_content(bytes: &[u8], (begin, end): (usize, usize), content: &[u8]) -> Vec<u8> {
    let mut block = bytes[begin..begin + CONTENT].to_vec();
    block[20..24].copy_from_slice(&(content.len() as u32).to_le_bytes());
    block[24..28].copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    let crc = crc32c::crc32c(&block[..64]);
    block[64..].copy_from_slice(&crc.to_le_bytes());
    block.extend(content);
    [&bytes[..begin], &block, &bytes[end..]].concat()
}

#[test]
fn stream_that_inflates_to_too_much_or_to_no_steps_is_reported() {
    let folder = Folder::new(80);
    let bytes = folder.packed();
    let bounds = bounds(&bytes);
    // The last data block: the next block links to it and is lost with it.
    let number = (0..bounds.len() - 1).rfind(|number| bytes[bounds[*number] + CODEC] == 1).unwrap();
    let place = (bounds[number], bounds[number + 1]);
    let too_much = miniz_oxide::deflate::compress_to_vec(&vec![0; (1 << 28) + 1], 1);
    let cases =
        [(&too_much[..], "inflates its"), (&b"no stream"[..], "cannot be inflated"), (&[3, 0], "steps more")];
    for (content, expected) in cases {
        let found = verify(reader(&with_content(&bytes, place, content)).unwrap()).unwrap();
        let lost = found.lost.first().unwrap_or_else(|| panic!("{expected}: {found}"));
        assert!(lost.to_string().contains(expected), "{lost}");
    }
}

proptest! {
    /// Wrong content with valid checksums, as from a bug or an attacker.
    #[test]
    fn random_changes_of_what_is_deflated_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        which in any::<prop::sample::Index>(),
    ) {
        static SMALL: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let bytes = SMALL.get_or_init(|| Folder::new(80).packed());
        let bounds = bounds(bytes);
        let deflated: Vec<_> =
            bounds.windows(2).filter(|two| bytes[two[0] + CODEC] == 1).map(|two| (two[0], two[1])).collect();
        let (begin, end) = deflated[which.index(deflated.len())];
        // Changes the inflated content, so that the stream stays valid.
        let mut content = miniz_oxide::inflate::decompress_to_vec(&bytes[begin + CONTENT..end]).unwrap();
        for (at, value) in changes {
            let at = at.index(content.len());
            content[at] = value;
        }
        let stored = miniz_oxide::deflate::compress_to_vec(&content, 6);
        for record in reader(&with_content(bytes, (begin, end), &stored)).unwrap() {
            let _ = record.unwrap().to_string();
        }
    }
}

/// A state, and the host's data.
type Snapshot = (Vec<u8>, Vec<u8>);

/// The only snapshot of a trace, and the number of lost steps.
fn snapshot_of(path: &Path) -> (Option<Snapshot>, Option<u64>) {
    let mut found = None;
    for record in Reader::open(path).unwrap() {
        if let Record::Snapshot { state, host, .. } = record.unwrap() {
            found = Some((state, host));
        }
    }
    (found, verify(Reader::open(path).unwrap()).unwrap().lost_steps())
}

/// A trace of two steps with a snapshot between them.
fn with_snapshot(path: &Path, one_block_bytes_max: Option<usize>, state: &[u8], host: &[u8]) {
    let recording = trace::Recording { one_block_bytes_max, ..common::RECORDING };
    let mut recorder = trace::Recorder::create_as(path, &Config::default(), "test", recording).unwrap();
    let step = |recorder: &mut trace::Recorder, now| {
        recorder.begin(now, &dxgkrnl::Input::Deadline).unwrap();
        recorder.end(&dxgkrnl::Effects::default()).unwrap();
    };
    step(&mut recorder, 1);
    recorder.snapshot_with(state, 7, host).unwrap();
    step(&mut recorder, 2);
    recorder.finish(9).unwrap();
}

#[test]
fn a_snapshot_over_the_length_of_a_block_comes_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let state: Vec<u8> = (0..300_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let host = vec![5; 20 << 20];
    with_snapshot(&path, None, &state, &host);
    let (found, lost) = snapshot_of(&path);
    assert!(found == Some((state, host)) && lost == Some(0));
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.blocks().filter(|block| block.kind == Kind::Piece).count(), 19 + 2);
    assert_eq!(reader.seek_snapshot(2).unwrap(), Some(2));
}

#[test]
fn pieces_are_packed_and_one_that_is_damaged_costs_the_snapshot_and_no_step() {
    let folder = tempfile::tempdir().unwrap();
    let (path, packed) = (folder.path().join("t.gvt"), folder.path().join("p.gvt"));
    let (state, host) = (vec![3; 5000], vec![4; 2500]);
    with_snapshot(&path, Some(1000), &state, &host);
    pack(&path, &packed).unwrap();
    let snapshot = Some((state, host));
    assert_eq!(snapshot_of(&path), (snapshot.clone(), Some(0)));
    assert_eq!(snapshot_of(&packed), (snapshot, Some(0)));
    let bytes = std::fs::read(&path).unwrap();
    for two in bounds(&bytes).windows(2) {
        if bytes[two[0] + KIND] != 6 {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[two[0] + CONTENT] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(snapshot_of(&path), (None, Some(0)), "its content");
        std::fs::write(&path, [&bytes[..two[0]], &bytes[two[1]..]].concat()).unwrap();
        assert_eq!(snapshot_of(&path), (None, Some(0)), "all of it");
        assert_eq!(Reader::open(&path).unwrap().seek_snapshot(3).unwrap(), None);
    }
}

/// Deflate makes a thousand zeros of a byte, and pieces are in memory together.
#[test]
fn a_piece_that_inflates_to_more_than_its_times_costs_the_snapshot_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    with_snapshot(&path, Some(1000), &[3; 5000], &[4; 500]);
    let mut bytes = std::fs::read(&path).unwrap();
    let bounds = bounds(&bytes);
    let first = bounds.iter().position(|begin| bytes[begin + KIND] == 6).unwrap();
    let (begin, end) = (bounds[first], bounds[first + 1]);
    bytes[begin + CODEC] = 1;
    for (count, is_read) in [(50_000, false), (1000, true)] {
        let zeros = miniz_oxide::deflate::compress_to_vec(&vec![0; count], 6);
        let found = verify(reader(&with_content(&bytes, (begin, end), &zeros)).unwrap()).unwrap();
        let named = format!("block {first} (piece) inflates its {} bytes", zeros.len());
        assert_eq!(found.to_string().contains(&named), !is_read, "{found}");
    }
}

#[test]
fn pieces_of_zeros_are_packed_so_that_they_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, packed) = (folder.path().join("t.gvt"), folder.path().join("p.gvt"));
    let (state, host) = (vec![0; 400_000], vec![0; 100_000]);
    with_snapshot(&path, Some(200_000), &state, &host);
    pack(&path, &packed).unwrap();
    assert_eq!(snapshot_of(&packed), (Some((state, host)), Some(0)));
}
