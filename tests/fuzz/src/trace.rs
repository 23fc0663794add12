//! Traces and journals: read, verified, packed and replayed. A journal's segments are traces.

use std::io::Cursor;
use std::path::Path;

use drivers::Registry;
use trace::{Reader, Record, replay_from, verify};

const MAGIC: &[u8; 8] = b"GPVTRACE";
const HEADER_BYTES: usize = 68;
/// Flags of the first byte: what is mended, so that the input gets beyond checksums.
const MENDS_SUMS: u8 = 1;
const MENDS_NUMBERS: u8 = 2;
const REPLAYS: u8 = 4;
/// Steps of a trace that is replayed: longer ones are only read.
const STEPS_MAX: usize = 200;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().copied().map_or(0, u32::from_le_bytes)
}

fn set(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// The version of the model in a file's first block: a field of one byte, which is the first of its message.
const VERSION_TAG: u8 = 2 << 3;
const _: () = assert!(dxgkrnl::SEMANTIC_VERSION < 128);

/// Makes the version that of this model, so that a change of the model leaves the corpus of use. Makes each block's
/// checksums right, and with [`MENDS_NUMBERS`] its number and its link to the block before.
fn mend(bytes: &mut [u8], flags: u8) {
    let (mut at, mut number, mut link, mut trace) = (0, 0, 0, None::<[u8; 8]>);
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= HEADER_BYTES) {
        if !rest.starts_with(MAGIC) {
            at += 1;
            continue;
        }
        let end = HEADER_BYTES.saturating_add(word(rest, 20) as usize).min(rest.len());
        if let (0, [VERSION_TAG, version, ..]) = (number, &mut rest[HEADER_BYTES..end]) {
            *version = dxgkrnl::SEMANTIC_VERSION as u8;
        }
        let content = crc32c::crc32c(&rest[HEADER_BYTES..end]);
        set(rest, 24, content);
        if flags & MENDS_NUMBERS != 0 {
            let trace = trace.get_or_insert_with(|| rest[8..].first_chunk().copied().unwrap_or_default());
            rest[8..16].copy_from_slice(trace);
            set(rest, 56, number);
            set(rest, 60, link);
        }
        link = crc32c::crc32c(&rest[..HEADER_BYTES - 4]);
        set(rest, HEADER_BYTES - 4, link);
        number += 1;
        at += end;
    }
}

fn reader(bytes: &[u8]) -> Option<Reader> {
    match Reader::new(Cursor::new(bytes.to_vec()), Path::new("fuzz.gvt")) {
        Ok(reader) => Some(reader),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// The file of an input, and its flags.
fn file(data: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (&flags, data) = data.split_first()?;
    let mut bytes = data.to_vec();
    if flags & MENDS_SUMS != 0 {
        mend(&mut bytes, flags);
    }
    Some((flags, bytes))
}

/// Whether an input is a trace that has a step.
pub fn is_trace(data: &[u8]) -> bool {
    let records = file(data).and_then(|(_, bytes)| reader(&bytes));
    records.is_some_and(|mut records| records.any(|record| matches!(record, Ok(Record::Step { .. }))))
}

/// One input: flags, and a file.
pub fn trace(data: &[u8]) {
    let Some((flags, bytes)) = file(data) else { return };
    let Some(mut records) = reader(&bytes).map(Reader::with_times) else { return };
    let (mut steps, mut next) = (0, 0);
    for record in &mut records {
        let Ok(record) = record else { break };
        assert!(!record.to_string().is_empty());
        if let Record::Step { sequence, .. } = record {
            assert!(sequence >= next, "step {sequence} is read after step {next}");
            (next, steps) = (sequence, steps + 1);
        }
    }
    let Some(Ok(found)) = reader(&bytes).map(verify) else { return };
    assert_eq!(found.steps, steps as u64);
    if flags & REPLAYS != 0
        && steps <= STEPS_MAX
        && let Some(reader) = reader(&bytes)
        && let Ok(report) = replay_from(reader, &Registry::default(), &mut |_, _| ())
    {
        assert!(report.to_string().len() > 1);
    }
}
