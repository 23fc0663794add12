//! Frames of the calls that are made most: what encoding and decoding take on each side.

use std::hint::black_box;

use d3dkmt::{Call, Handle, NtStatus, Reply, calls};
use divan::Bencher;
use proto::channel::{ToGuest, ToHost};
use proto::convert::{answer_into_frame, call_from_body, call_to_frame, from_host};
use proto::frame::{append, decode};

fn signal() -> Call {
    calls::signal(Handle(0x4000_00C0), Handle(0x4000_0100), 1_000_000)
}

/// The bytes of a frame, without its length.
fn body(frame: impl proto::Message) -> Vec<u8> {
    frame.encode_to_vec()
}

#[divan::bench]
fn call_encoded(bencher: Bencher<'_, '_>) {
    let (call, mut bytes) = (signal(), Vec::new());
    bencher.bench_local(|| {
        bytes.clear();
        append(&call_to_frame(black_box(1_000_000), black_box(&call)), &mut bytes);
        bytes.len()
    });
}

#[divan::bench]
fn call_decoded(bencher: Bencher<'_, '_>) {
    let bytes = body(call_to_frame(1_000_000, &signal()));
    bencher.bench_local(|| {
        let frame = decode::<ToHost>(black_box(&bytes)).expect("a frame");
        call_from_body(frame.body.expect("a body")).expect("a call")
    });
}

#[divan::bench]
fn success_encoded(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    bencher.bench_local(|| {
        bytes.clear();
        append(&answer_into_frame(black_box(1_000_000), NtStatus::SUCCESS, Reply::None), &mut bytes);
        bytes.len()
    });
}

#[divan::bench]
fn success_decoded(bencher: Bencher<'_, '_>) {
    let bytes = body(answer_into_frame(1_000_000, NtStatus::SUCCESS, Reply::None));
    bencher.bench_local(|| {
        from_host(decode::<ToGuest>(black_box(&bytes)).expect("a frame")).expect("a message")
    });
}

/// What no form of an answer can be below: a copy of as many bytes.
#[divan::bench]
fn success_copied(bencher: Bencher<'_, '_>) {
    let bytes = body(answer_into_frame(1_000_000, NtStatus::SUCCESS, Reply::None));
    let mut copy = Vec::new();
    bencher.bench_local(|| {
        copy.clear();
        copy.extend_from_slice(black_box(&bytes));
        copy.len()
    });
}
