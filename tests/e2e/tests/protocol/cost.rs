//! Cost of an idle daemon: no context switches, and little memory.

use std::time::Duration;

use d3dkmt::{NtStatus, WaitOutcome};
use e2e::embedded::lock_exclusive;
use e2e::machine::{context_switches, descriptor_room, resident_bytes};
use e2e::polling::eventually;
use e2e::served::Served;
use e2e::wire::Client;
use proto::convert::FromHost;

const KIB: u64 = 1024;

#[test]
#[expect(clippy::disallowed_methods, reason = "the daemon must stay idle for a while")]
fn a_daemon_at_rest_is_not_woken() {
    let _alone = lock_exclusive();
    let served = Served::start(&["--vms", "2"]);
    // Idle attached processes, after engine work, with a registered wait.
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&served.broker())).collect();
    for client in &mut clients {
        let device = client.open_device();
        let context = client.create_context(device);
        let fence = client.create_fence(device, 0);
        assert_eq!(client.wait(device, fence.object, 1, 1), Some(WaitOutcome::Registered));
        assert_eq!(client.submit_write(context, &fence, 1), NtStatus::SUCCESS);
        assert!(matches!(client.stream.read(), Ok(FromHost::Wake { .. })));
        assert_eq!(client.wait(device, fence.object, 2, 2), Some(WaitOutcome::Registered));
    }
    let mut before = context_switches(served.pid());
    // Wait until the daemon is idle: two equal samples in a row.
    let interval = Duration::from_millis(500);
    eventually("the daemon becomes idle", || {
        std::thread::sleep(interval);
        let last = std::mem::replace(&mut before, context_switches(served.pid()));
        if last == before { Ok(()) } else { Err(format!("{} switches", before - last)) }
    });
    std::thread::sleep(interval * 4);
    assert_eq!(context_switches(served.pid()), before, "context switches of a daemon at rest");
}

#[test]
fn an_idle_process_costs_at_most_64_kib_and_a_fence_at_most_1_kib() {
    const PROCESSES: u64 = 200;
    const FENCES: u64 = 20_000;
    let _alone = lock_exclusive();
    let served = Served::start(&[]);
    // Warm up buffers that exist once for all processes.
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(&served.broker())).collect();
    let device = clients[0].open_device();
    clients[0].create_fence(device, 0);

    let (before, room) = (resident_bytes(served.pid()), descriptor_room(served.pid()));
    for _ in 0..PROCESSES {
        let mut client = Client::new(&served.broker());
        client.open_device();
        clients.push(client);
    }
    let process = (resident_bytes(served.pid()) - before) / PROCESSES;
    println!("{process} bytes for an idle process with a device");
    assert_eq!(descriptor_room(served.pid()), room, "others wait while the table of descriptors grows");
    assert!(process <= 64 * KIB, "{process} bytes for an idle process");

    let before = resident_bytes(served.pid());
    for value in 0..FENCES {
        clients[0].create_fence(device, value);
    }
    let fence = (resident_bytes(served.pid()) - before) / FENCES;
    println!("{fence} bytes for a fence");
    assert!(fence <= KIB, "{fence} bytes for a fence");
}
