//! Traces to test with: recorded from busy sessions of the real kernel.
#![allow(dead_code)]

#[path = "../../../dxgkrnl/tests/common/session.rs"]
pub mod session;

use std::io::Cursor;
use std::path::Path;

use dxgkrnl::{Config, Policy};
use trace::{Reader, Record, Recorder, Report, TraceError};

pub use session::Step;

/// A configuration that is not the default in any field.
pub fn config() -> Config {
    let mut config = Config { policy: Policy::from_bits(0b101).unwrap(), ..Config::default() };
    config.adapters[0].description = "another adapter".into();
    config.adapters[0].vendor = 7;
    config.adapters[0].nodes[2].opaque_packet_ns = 5;
    config
}

/// The bytes of a trace of these steps; with an end if there is a digest.
pub fn record(config: &Config, steps: &[Step], digest: Option<u64>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::create(file.path(), config, "test 1.0").unwrap();
    for step in steps {
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    match digest {
        Some(digest) => assert_eq!(recorder.finish(digest).unwrap(), steps.len() as u64),
        None => drop(recorder),
    }
    std::fs::read(file.path()).unwrap()
}

pub fn reader(bytes: &[u8]) -> Result<Reader, TraceError> {
    Reader::new(Cursor::new(bytes.to_vec()), bytes.len() as u64, Path::new("test.gvt"))
}

/// Every step of a trace that is whole.
pub fn steps(bytes: &[u8]) -> Vec<Step> {
    let step = |record| match record {
        Ok(Record::Step { now, input, effects, .. }) => Some(Step { now, input, effects: effects.unwrap() }),
        Ok(Record::End { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    reader(bytes).unwrap().filter_map(step).collect()
}

pub fn replay(bytes: &[u8]) -> Result<Report, TraceError> {
    trace::replay_from(reader(bytes)?, &mut |done, all| assert!(done <= all))
}
