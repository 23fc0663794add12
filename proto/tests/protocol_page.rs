//! docs/PROTOCOL.md shows the bytes of a session's first messages: they are those that this crate makes.

use std::path::Path;

use d3dkmt::{Call, EventId, Handle, NtStatus, Reply, WaitOutcome, calls};
use proto::attach::broker_request::{Attach, Body};
use proto::attach::{BrokerReply, BrokerRequest};
use proto::channel::{Hello, ToGuest, ToHost, Welcome, to_guest, to_host};
use proto::convert::{answer_to_frame, call_to_frame, wake_to_frame};
use proto::{Message, PROTOCOL_VERSION, Versions};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// A message with its length before it.
fn framed(message: &impl Message) -> String {
    hex(&message.encode_length_delimited_to_vec())
}

#[test]
fn the_page_of_the_protocol_shows_the_bytes_of_this_version() {
    let (version, version_min) = (PROTOCOL_VERSION, Versions::OURS.oldest());
    let token: Vec<u8> = (0..16).collect();
    let attach = Body::Attach(Attach { version, version_min, name: "demo".into(), rings: false });
    let reply = BrokerReply { token: token.clone(), process: 1, slots: 64, ..BrokerReply::default() };
    let hello = Hello { version, version_min, token, ..Hello::default() };
    let hello = ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) };
    let of_host = |body| ToGuest { request: 0, status: 0, body: Some(body) };
    let welcome = Welcome { version, process: 1, status_slot_plus_one: 1, ..Welcome::default() };
    let (device, fence) = (Handle(0x40), Handle(0x80));
    let wait = calls::wait(device, fence, 7, EventId(9));
    let messages = [
        ("Attach", hex(&BrokerRequest { body: Some(attach) }.encode_to_vec())),
        ("reply to it", hex(&reply.encode_to_vec())),
        ("Hello", framed(&hello)),
        ("Welcome", framed(&of_host(to_guest::Body::Welcome(welcome)))),
        ("call 1: EnumAdapters", framed(&call_to_frame(1, &Call::EnumAdapters { capacity: 0 }))),
        ("call 2: WaitFromCpu", framed(&call_to_frame(2, &wait))),
        (
            "answer 2: registered",
            framed(&answer_to_frame(2, NtStatus::SUCCESS, &Reply::Wait(WaitOutcome::Registered))),
        ),
        ("wake of event 9", framed(&wake_to_frame(EventId(9), NtStatus::SUCCESS))),
        ("answer 3: a refusal", framed(&answer_to_frame(3, NtStatus::INVALID_HANDLE, &Reply::None))),
        ("Goodbye", framed(&of_host(to_guest::Body::Goodbye("why".into())))),
    ];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/PROTOCOL.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let lines: Vec<String> = messages.iter().map(|(name, bytes)| format!("{name:<22}{bytes}")).collect();
    let missing = lines.iter().filter(|line| !page.lines().any(|shown| shown == **line)).count();
    assert_eq!(missing, 0, "the page has these lines:\n{}", lines.join("\n"));
    let limits = [proto::limits::FRAME_BYTES_MAX, proto::limits::BROKER_PACKET_BYTES_MAX];
    assert!(limits.iter().all(|limit| page.contains(&limit.to_string())), "{limits:?}");
}
