//! Damaged files: every changed byte and every cut is found, nothing panics, and the error names the place.

mod common;

use common::{record, replay, session};
use dxgkrnl::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use trace::{Damage, Recorder, Report, TraceError, Verdict};

/// A small trace of three blocks and an end, and where its blocks begin.
fn small() -> (Vec<u8>, Vec<usize>) {
    let (steps, digest) = session::run(11, Config::default(), 40);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::create(file.path(), &Config::default(), "test").unwrap();
    for (at, step) in steps.iter().enumerate() {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
        if at == 15 {
            recorder.flush().unwrap();
        }
    }
    recorder.finish(digest).unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    let starts = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"GPVTRACE")).collect::<Vec<_>>();
    assert_eq!(starts.len(), 3);
    (bytes, starts)
}

fn is_whole(result: &Result<Report, TraceError>) -> bool {
    result.as_ref().is_ok_and(|report| report.agrees() && report.ended)
}

/// The damage, whether it stood in the header or after it.
fn damage(result: Result<Report, TraceError>) -> Damage {
    match result {
        Err(TraceError::Damaged { damage, .. }) => damage,
        Ok(Report { verdict: Verdict::Damaged { damage }, .. }) => damage,
        other => panic!("not damaged: {other:?}"),
    }
}

/// Block and last good record that damage at this byte must name.
fn expected_place(starts: &[usize], at: usize) -> (u32, u64, Option<u64>) {
    let block = starts.iter().rposition(|start| *start <= at).unwrap();
    let last_good = [None, Some(0), Some(16)][block];
    (block as u32, starts[block] as u64, last_good)
}

#[test]
fn every_flipped_byte_is_found_where_it_is() {
    let (bytes, starts) = small();
    assert!(is_whole(&replay(&bytes)));
    for at in 0..bytes.len() {
        for flip in [1 << (at % 8), 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let found = damage(replay(&damaged));
            let place = (found.block, found.offset, found.last_good);
            assert_eq!(place, expected_place(&starts, at), "byte {at}: {found}");
        }
    }
}

#[test]
fn every_cut_is_found() {
    let (bytes, starts) = small();
    for length in 0..bytes.len() {
        let result = replay(&bytes[..length]);
        if length == 0 {
            assert!(matches!(result, Err(TraceError::NotATrace { .. })));
        } else if starts.contains(&length) {
            // A killed daemon leaves this: whole, but not ended.
            let report = result.unwrap();
            assert!(report.agrees() && !report.ended, "cut at {length}: {report}");
            assert_eq!(report.steps, expected_place(&starts, length).2.unwrap());
        } else {
            let found = damage(result);
            assert_eq!(found.offset, expected_place(&starts, length).1, "cut at {length}: {found}");
            assert_eq!(found.last_good, expected_place(&starts, length).2);
        }
    }
}

#[test]
fn bytes_after_the_end_are_found() {
    let (bytes, starts) = small();
    for tail in [&b"x"[..], &[0; 24], &[0; 5000], &bytes[..starts[1]], &bytes[starts[2]..]] {
        let found = damage(replay(&[&bytes, tail].concat()));
        assert_eq!((found.block, found.offset), (3, bytes.len() as u64));
        assert!(found.why.contains("after the end"), "{found}");
    }
}

#[test]
fn blocks_that_are_missing_doubled_or_swapped_are_found() {
    let (bytes, starts) = small();
    let (header, first, second) = (&bytes[..starts[1]], &bytes[starts[1]..starts[2]], &bytes[starts[2]..]);
    for wrong in
        [[header, second, &[]], [header, second, first], [header, first, first], [first, header, second]]
    {
        let found = damage(replay(&wrong.concat()));
        assert!(found.why.contains("it is numbered"), "{found}");
    }
}

#[test]
fn damage_tells_what_to_do() {
    let (mut bytes, starts) = small();
    let at = starts[2] + 30;
    bytes[at] ^= 4;
    let text = replay(&bytes).unwrap().to_string();
    let place = format!("16 steps are identical, then block 2 at byte {} is damaged", starts[2]);
    assert!(text.starts_with(&place), "{text}");
    assert!(text.contains("the last good record is #16") && text.contains("record again"), "{text}");
}

#[test]
fn a_full_block_is_written_and_each_step_is_in_one_block() {
    let (steps, digest) = session::run(12, Config::default(), 4000);
    let bytes = record(&Config::default(), &steps, Some(digest));
    let blocks = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"GPVTRACE")).count();
    assert!(blocks > 4, "{blocks} blocks");
    assert!(is_whole(&replay(&bytes)));
}

#[test]
fn a_file_that_is_no_trace_is_refused_and_never_overwritten() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "somebody's thesis, somebody's thesis").unwrap();
    let error = Recorder::create(file.path(), &Config::default(), "test").map(drop).unwrap_err();
    assert!(error.to_string().contains("is not overwritten"), "{error}");
    let error = trace::replay(file.path(), &drivers::Registry::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&error, TraceError::NotATrace { why, .. } if why.contains("GPVTRACE")), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let error = trace::replay(directory.path(), &drivers::Registry::default(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("it is no file"), "{error}");
    let missing = directory.path().join("missing/t.gvt");
    let error = Recorder::create(&missing, &Config::default(), "test").map(drop).unwrap_err();
    assert!(error.to_string().contains("cannot create the trace"), "{error}");
    // A trace may be recorded over.
    let again = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(again.path(), small().0).unwrap();
    Recorder::create(again.path(), &Config::default(), "test").unwrap().finish(0).unwrap();
    assert!(std::fs::read(again.path()).unwrap().len() < small().0.len());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), prefix in 0..40usize) {
        let (whole, _) = small();
        prop_assert!(!is_whole(&replay(&bytes)));
        prop_assert!(!is_whole(&replay(&[&whole[..prefix], &bytes].concat())));
        let middle = prefix * whole.len() / 40;
        prop_assert!(!is_whole(&replay(&[&whole[..middle], &bytes, &whole[middle..]].concat())) || bytes.is_empty());
    }
}
