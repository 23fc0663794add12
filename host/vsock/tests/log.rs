//! What the log says about a QEMU whose setup the device cannot use. Each test has a guest's CID of its own, because tests
//! share a log.

mod services;

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, Once};
use std::time::Instant;

use front_end::{FREE_AREA, GuestVm, MEMORY_BYTES, MEMORY_START, PATIENCE};
use rustix::fs::{SealFlags, symlink};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use services::{ECHO, Rig};
use tracing::field::{Field, Visit};
use tracing::span;
use vhost::VhostBackend as _;
use vhost::vhost_user::Frontend;
use vm_memory::{Bytes as _, GuestAddress};
use vsock_device::VhostUserProxy;
use vsock_device::limits::COMPLAINTS_PER_PERIOD_MAX;

/// Warnings of this process: the guest's CID and the text.
static WARNINGS: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

struct Log;

#[derive(Default)]
struct Warning(u64, String);

impl Visit for Warning {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "cid" {
            self.0 = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.1 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut warning = Warning::default();
        event.record(&mut warning);
        WARNINGS.lock().unwrap().push((warning.0, warning.1));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn begin_log() {
    static LOG: Once = Once::new();
    LOG.call_once(|| tracing::subscriber::set_global_default(Log).unwrap());
}

fn logged_rig(cid: u64) -> Rig {
    begin_log();
    Rig::with_cid(cid)
}

fn warnings(cid: u64) -> Vec<String> {
    let warnings = WARNINGS.lock().unwrap();
    warnings.iter().filter(|(of, _)| *of == cid).map(|(_, text)| text.clone()).collect()
}

/// Waits for the first warning about this guest.
fn wait_for_warning(cid: u64) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    while warnings(cid).is_empty() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    warnings(cid)
}

#[test]
fn a_dimm_of_memory_that_is_refused_is_left_out_and_the_guest_goes_on() {
    let rig = logged_rig(701);
    let mut guest = GuestVm::boot_as(&rig.socket, 701);
    guest.connect(1, ECHO);
    let memory = rig.device.memory().unwrap();
    // Behind the guest's memory, so that QEMU lists it last.
    let start = MEMORY_START + 2 * MEMORY_BYTES as u64;
    let dimm = front_end::memory_sealed(start, 1 << 20, SealFlags::GROW);
    let dimm = dimm.remove_region(GuestAddress(start), 1 << 20).unwrap().1;
    guest.memory = guest.memory.insert_region(dimm).unwrap();
    guest.send_memory_table();
    guest.send_payload(1, ECHO, b"still here");
    assert_eq!(guest.receive().1, b"still here");
    assert_eq!(memory.store_u64(FREE_AREA, 1), Ok(()));
    assert!(memory.store_u64(start, 1).is_err(), "a store there could end the daemon");
    let warnings = warnings(701);
    assert!(
        matches!(&warnings[..], [one] if one.contains("cannot be used") && one.contains("F_SEAL_SHRINK"))
    );
}

#[test]
fn memory_that_is_refused_again_and_again_fills_no_log() {
    let rig = logged_rig(702);
    for _ in 0..3 * COMPLAINTS_PER_PERIOD_MAX {
        let mut guest = GuestVm::boot_as(&rig.socket, 702);
        guest.memory = front_end::memory_sealed(MEMORY_START, MEMORY_BYTES, SealFlags::GROW);
        assert!(guest.try_memory_table().is_err());
        // The next one comes when the device has closed this session.
        drop(guest);
    }
    let warnings = warnings(702);
    assert_eq!(warnings.len(), COMPLAINTS_PER_PERIOD_MAX as usize, "{warnings:#?}");
    assert!(warnings.iter().all(|warning| warning.contains("F_SEAL_SHRINK")), "{warnings:#?}");
}

#[test]
fn a_feature_that_the_device_does_not_offer_is_named() {
    let rig = logged_rig(703);
    let frontend = Frontend::connect(&rig.socket, 3).unwrap();
    let packed = 1 << 34;
    frontend.set_features(front_end::FEATURES | packed).unwrap();
    let warnings = wait_for_warning(703);
    assert!(matches!(&warnings[..], [one] if one.contains("packed=on")), "{warnings:#?}");
}

#[test]
fn a_ring_that_cannot_run_is_named() {
    let rig = logged_rig(704);
    let mut guest = GuestVm::boot_as(&rig.socket, 704);
    let positions = guest.stop();
    guest.frontend.set_vring_num(1, 100).unwrap();
    guest.frontend.set_vring_base(1, positions[1] as u16).unwrap();
    assert_eq!(warnings(704), Vec::<String>::new());
    guest.frontend.set_vring_kick(1, &guest.tx.kick).unwrap();
    let warnings = warnings(704);
    assert!(matches!(&warnings[..], [one] if one.contains("queue 1") && one.contains("power of two")));
}

#[test]
fn a_ring_without_kicks_is_named() {
    let rig = logged_rig(705);
    let mut front_end = UnixStream::connect(&rig.socket).unwrap();
    let (set_vring_kick, get_features, version, no_descriptor) = (12u32, 1u32, 1u32, 1u64 << 8);
    for number in [set_vring_kick, version, 8] {
        front_end.write_all(&number.to_le_bytes()).unwrap();
    }
    front_end.write_all(&no_descriptor.to_le_bytes()).unwrap();
    for number in [get_features, version, 0] {
        front_end.write_all(&number.to_le_bytes()).unwrap();
    }
    // The answer follows the execution of the first request.
    front_end.read_exact(&mut [0; 20]).unwrap();
    let warnings = warnings(705);
    assert!(
        matches!(&warnings[..], [one] if one.contains("queue 0") && one.contains("eventfd")),
        "{warnings:#?}"
    );
}

#[test]
fn the_kick_that_qemu_starts_a_ring_with_causes_no_warning_before_the_driver_has_filled_it() {
    let rig = logged_rig(709);
    let mut guest = GuestVm::boot_as(&rig.socket, 709);
    for _ in 0..3 {
        guest.stop();
        guest.reset_driver();
        for queue in [&guest.rx, &guest.tx] {
            guest.memory.write_slice(&[0; 4], GuestAddress(queue.available())).unwrap();
        }
        let taken = rig.device.stats().wakeups;
        guest.start_at([0; 3]);
        let deadline = Instant::now() + PATIENCE;
        while rig.device.stats().wakeups == taken && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
    assert_eq!(warnings(709), Vec::<String>::new());
}

#[test]
fn memory_that_qemu_does_not_share_is_named_once() {
    let rig = logged_rig(708);
    let mut guest = GuestVm::boot_as(&rig.socket, 708);
    guest.stop();
    // The device has this memory, and the guest's driver writes into its own.
    let own = std::mem::replace(&mut guest.memory, front_end::memory(MEMORY_START, MEMORY_BYTES));
    guest.send_memory_table();
    guest.start_at([0; 3]);
    guest.memory = own;
    // Two at once are one.
    let deadline = Instant::now() + PATIENCE;
    while warnings(708).is_empty() && Instant::now() < deadline {
        guest.tx.kick.write(1).unwrap();
        std::thread::yield_now();
    }
    let warnings = warnings(708);
    assert!(matches!(&warnings[..], [one] if one.contains("share=on")), "{warnings:#?}");
}

#[test]
fn a_guest_that_boots_pauses_and_disconnects_causes_no_warning() {
    let rig = logged_rig(706);
    for _ in 0..2 {
        let mut guest = GuestVm::boot_as(&rig.socket, 706);
        let positions = guest.stop();
        guest.start_at(positions);
        guest.connect(1, ECHO);
        guest.stop();
    }
    rig.device.shutdown();
    assert_eq!(warnings(706), Vec::<String>::new());
}

#[test]
fn second_qemus_that_connect_again_and_again_fill_no_log() {
    let rig = logged_rig(707);
    let mut guest = GuestVm::boot_as(&rig.socket, 707);
    for _ in 0..2 * COMPLAINTS_PER_PERIOD_MAX {
        let second = Frontend::connect(&rig.socket, 3).unwrap();
        assert!(second.get_features().is_err());
    }
    guest.connect(1, ECHO);
    let warnings = warnings(707);
    assert_eq!(warnings.len(), COMPLAINTS_PER_PERIOD_MAX as usize, "{warnings:#?}");
    assert!(warnings.iter().all(|warning| warning.contains("a second QEMU")), "{warnings:#?}");
}

/// A QEMU connects to a proxy of this socket; returns the one warning about it.
#[track_caller]
fn warning_of_a_proxy(daemon: &Path) -> String {
    begin_log();
    let held = daemon.with_extension("held");
    let _proxy = VhostUserProxy::serve(&held, daemon).unwrap();
    let _qemu = UnixStream::connect(&held).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A proxy does not know the guest's CID.
        let named = format!("{}", daemon.display());
        let found: Vec<_> = warnings(0).into_iter().filter(|text| text.contains(&named)).collect();
        match &found[..] {
            [] if Instant::now() < deadline => std::thread::yield_now(),
            [one] => return one.clone(),
            all => panic!("{all:#?}"),
        }
    }
}

#[test]
fn a_proxy_says_why_it_has_no_device_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let absent = warning_of_a_proxy(&path("absent.sock"));
    assert!(absent.contains("nobody listens") && absent.contains("gpupv serve"), "{absent}");

    let closing = UnixListener::bind(path("closing.sock")).unwrap();
    std::thread::spawn(move || closing.incoming().for_each(drop));
    let closing = warning_of_a_proxy(&path("closing.sock"));
    assert!(closing.contains("ends the connection") && closing.contains("vm1.sock"), "{closing}");

    let talking = UnixListener::bind(path("talking.sock")).unwrap();
    std::thread::spawn(move || {
        talking.incoming().map_while(Result::ok).for_each(|mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut [0]);
        });
    });
    let talking = warning_of_a_proxy(&path("talking.sock"));
    assert!(talking.contains("not speak vhost-user") && talking.contains("vm1.sock"), "{talking}");

    // As the daemon's broker.sock.
    let packets =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&packets, &SocketAddrUnix::new(path("packets.sock")).unwrap()).unwrap();
    listen(&packets, 1).unwrap();
    let packets = warning_of_a_proxy(&path("packets.sock"));
    assert!(packets.contains("not speak vhost-user") && packets.contains("vm1.sock"), "{packets}");

    symlink("loop.sock", path("loop.sock")).unwrap();
    let unreachable = warning_of_a_proxy(&path("loop.sock"));
    assert!(unreachable.contains("cannot connect: Too many levels of symbolic links"), "{unreachable}");

    let _silent = UnixListener::bind(path("silent.sock")).unwrap();
    let silent = warning_of_a_proxy(&path("silent.sock"));
    assert!(silent.contains("no answer") && silent.contains("vm1.sock"), "{silent}");
}
