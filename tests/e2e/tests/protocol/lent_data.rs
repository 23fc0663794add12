//! Data of escapes that stand in memory which the process has lent.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use d3dkmt::{Call, EscapeFlags, Handle, NtStatus, Reply};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use proto::attach::broker_request::{Body, Lend};
use proto::convert::{FromHost, LentData, call_into_frame};

const AT: u64 = 0x10_0000;
const PAGE: u64 = 4096;

/// Pages of the process from [`AT`] on, as it has them itself.
fn lend(client: &Client, pages: u32) -> File {
    let (reply, descriptors) = client.broker.request(Body::Lend(Lend { address: AT, pages }));
    assert_eq!(reply.refused, "");
    descriptors.into_iter().next().expect("pages").into()
}

fn bytes_of(memory: &File, at: u64, count: u32) -> Vec<u8> {
    let mut bytes = vec![0; count as usize];
    memory.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// The driver's ECHO, of lent data.
fn echo(adapter: Handle, request: u64, lent: LentData) -> proto::channel::ToHost {
    let (device, context, flags, data) = (Handle::NULL, Handle::NULL, EscapeFlags::empty(), Vec::new());
    call_into_frame(request, Call::Escape { adapter, device, context, kind: 0, flags, data }, Some(lent))
}

fn adapter_of(client: &mut Client) -> Handle {
    let (_, reply) = client.call(&Call::EnumAdapters { capacity: 1 });
    let Reply::Adapters(adapters) = reply else { panic!("no adapters: {reply:?}") };
    adapters[0].handle
}

fn answer(client: &mut Client) -> (u64, NtStatus, Reply) {
    match client.stream.read() {
        Ok(FromHost::Answer { request, status, reply }) => (request, status, reply),
        other => panic!("no answer but {other:?}"),
    }
}

#[test]
fn data_that_are_lent_are_read_and_written_where_they_are_and_nowhere_else() {
    // covers: ESC-001 ESC-022
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let adapter = adapter_of(&mut client);
    let memory = lend(&client, 32);
    let end = 32 * PAGE;
    for (request, at, bytes) in
        [(500, 0, 32), (501, 100, 64 * 1024), (502, end - 5000, 5000), (503, 7, 130_000)]
    {
        memory.write_all_at(&vec![0xA5; end as usize], 0).unwrap();
        // ECHO is command 0.
        memory.write_all_at(&[0; 4], at).unwrap();
        client.stream.send_frame(&echo(adapter, request, LentData { at: AT + at, bytes }));
        let reply = Reply::Escape(Vec::new());
        assert_eq!(answer(&mut client), (request, NtStatus::SUCCESS, reply), "no data come by the stream");
        let data = bytes_of(&memory, at, bytes);
        assert_ne!(data[4..28], [0xA5; 24], "the driver has filled its part");
        assert!(data[32..].iter().all(|byte| *byte == 0xA5));
        let around = [
            bytes_of(&memory, 0, at as u32),
            bytes_of(&memory, at + u64::from(bytes), (end - at) as u32 - bytes),
        ];
        assert!(around.iter().flatten().all(|byte| *byte == 0xA5), "nothing else is written");
    }
    // Refused: what is there stays.
    memory.write_all_at(&[0; 4], 0).unwrap();
    client.stream.send_frame(&echo(Handle(0x5000), 504, LentData { at: AT, bytes: 4096 }));
    assert_eq!(answer(&mut client), (504, NtStatus::INVALID_PARAMETER, Reply::None));
    assert_eq!(bytes_of(&memory, 0, 4), [0; 4]);
    drop((client, memory));
    daemon.end();
}

#[test]
fn what_a_process_writes_meanwhile_is_its_own_affair() {
    // The driver sees one copy, whatever becomes of the memory: no escape of either is ever half the one and half the other.
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let adapter = adapter_of(&mut client);
    let memory = lend(&client, 1);
    let other = memory.try_clone().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // ECHO and a command that there is not, in turns.
            for turn in (0..).take_while(|_| !done.load(std::sync::atomic::Ordering::Relaxed)) {
                let command: u32 = if turn % 2 == 0 { 0 } else { 0xFFFF_FFFF };
                other.write_all_at(&command.to_le_bytes(), 0).unwrap();
            }
        });
        for request in 1..500 {
            client.stream.send_frame(&echo(adapter, request, LentData { at: AT, bytes: 64 }));
            let (answered, status, reply) = answer(&mut client);
            let wanted = if status.is_success() { Reply::Escape(Vec::new()) } else { Reply::None };
            assert_eq!((answered, &reply), (request, &wanted), "{status}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop((client, memory, other));
    daemon.end();
}

#[test]
fn data_that_are_not_lent_end_the_stream_and_disturb_nobody() {
    let daemon = Embedded::start();
    let mut steady = e2e::wire::Steady::new(&daemon.broker());
    let cases = [
        (AT - 1, 64, "0xfffff is not lent"),
        (AT + PAGE - 63, 64, "0x101000 is not lent"),
        (0, 1, "0x0 is not lent"),
        (u64::MAX, 1, "is not lent"),
        (u64::MAX - 5, 64, "is not lent"),
        (AT, 131_073, "131073 bytes of data, at most 131072"),
        (AT, u32::MAX, "4294967295 bytes of data"),
    ];
    for (count, (at, bytes, wanted)) in (1..).zip(cases) {
        let mut client = Client::new(&daemon.broker());
        lend(&client, 1);
        client.stream.send_frame(&echo(Handle::NULL, 1, LentData { at, bytes }));
        let goodbye = client.stream.read_goodbye().expect("a reason");
        assert!(
            goodbye.contains("frame 1: an escape whose data are lent") && goodbye.contains(wanted),
            "{goodbye}"
        );
        steady.works();
        assert_eq!(daemon.counters().protocol_errors.count(), count);
    }
    // Taken back is not lent.
    let mut client = Client::new(&daemon.broker());
    lend(&client, 1);
    let (reply, _) = client.broker.request(Body::TakeBack(AT));
    assert_eq!(reply.refused, "");
    client.stream.send_frame(&echo(Handle::NULL, 1, LentData { at: AT, bytes: 64 }));
    assert!(client.stream.read_goodbye().expect("a reason").contains("0x100000 is not lent"));
    steady.works();
    drop((client, steady));
    daemon.end();
}
