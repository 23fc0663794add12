//! Many CPU events of one process over the daemon's sockets: every signal arrives, checked by counts.

use std::collections::BTreeMap;

use covers::covers;
use d3dkmt::{
    Call, CpuEventUsage, EscapeFlags, EventId, Handle, NtStatus, Reply, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType,
};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use proto::convert::FromHost;

const EVENTS: u64 = 10_000;
const USAGE: u32 = 7;
/// Commands of the simulated driver's escapes (`gpupv_escape.h`).
const SIGNAL_EVENT: u32 = 1;
const OBJECT_BAD: u32 = 3;

struct Driver {
    client: Client,
    adapter: Handle,
    device: Handle,
}

impl Driver {
    fn escape(&mut self, flags: EscapeFlags, data: Vec<u8>) -> Vec<u8> {
        let context = Handle::NULL;
        let call = Call::Escape { adapter: self.adapter, device: self.device, context, kind: 0, flags, data };
        match self.client.call(&call) {
            (NtStatus::SUCCESS, Reply::Escape(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    /// Creates and registers a CPU event with this id; returns the driver's name for it.
    fn create(&mut self, name: u64) -> u64 {
        let info = SyncObjectInfo {
            object_type: SyncObjectType::CPU_NOTIFICATION,
            flags: SyncObjectFlags::SIGNAL_BY_KMD,
            event: Some(EventId(name)),
            ..SyncObjectInfo::default()
        };
        let create = Call::CreateSynchronizationObject { device: self.device, info, legacy: false };
        let (status, Reply::SyncObject(created)) = self.client.call(&create) else { panic!("no object") };
        assert_eq!(status, NtStatus::SUCCESS);
        let usage = [USAGE, 0, 0, 0, 0, 0, 0, 0];
        let known = CpuEventUsage { object: created.object, kmd_cpu_event: 0, usage };
        let flags = EscapeFlags::DRIVER_KNOWN_ESCAPE | EscapeFlags::NO_ADAPTER_SYNCHRONIZATION;
        let data = self.escape(flags, known.encode());
        CpuEventUsage::decode(&data).expect("the escape returns the usage").kmd_cpu_event
    }

    fn signals(&mut self, kmd: u64, times: u32) {
        let command = [SIGNAL_EVENT, times].map(u32::to_le_bytes).concat();
        self.escape(EscapeFlags::empty(), [command, kmd.to_le_bytes().to_vec()].concat());
    }

    /// Reads this many messages; returns the number of wakes of each id.
    fn wakes(&mut self, count: u64) -> BTreeMap<u64, u64> {
        let mut wakes = BTreeMap::new();
        for _ in 0..count {
            match self.client.stream.read() {
                Ok(FromHost::Wake { event, status: NtStatus::SUCCESS }) => {
                    *wakes.entry(event.0).or_default() += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        wakes
    }
}

#[test]
fn ten_thousand_cpu_events_of_one_process_lose_no_signal_and_each_is_one_frame() {
    covers!("EVT-007", "EVT-025", "EVT-026", "EVT-027");
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let (_, reply) = client.call(&Call::EnumAdapters { capacity: 1 });
    let Reply::Adapters(adapters) = reply else { panic!("{reply:?}") };
    let device = client.open_device();
    let mut driver = Driver { client, adapter: adapters[0].handle, device };
    let kmd: Vec<u64> = (1..=EVENTS).map(|name| driver.create(name)).collect();
    assert_eq!(daemon.kernel_host().views().snapshot().cpu_events.len() as u64, EVENTS);

    // An object of their common usage goes bad: each event is set, by one frame each.
    let sent = daemon.counters().frames_sent.count();
    let data = driver.escape(EscapeFlags::empty(), [OBJECT_BAD, USAGE].map(u32::to_le_bytes).concat());
    assert_eq!(data[4..], (EVENTS as u32).to_le_bytes());
    let all: BTreeMap<u64, u64> = (1..=EVENTS).map(|name| (name, 1)).collect();
    assert_eq!(driver.wakes(EVENTS), all);
    assert_eq!(daemon.counters().frames_sent.count(), sent + 1 + EVENTS);

    // A thousand signals in one step collapse into one wake; in a thousand steps they do not.
    driver.signals(kmd[4_999], 1_000);
    assert_eq!(driver.wakes(1), BTreeMap::from([(5_000, 1)]));
    let (wakes, sent) = (daemon.counters().wakes.count(), daemon.counters().frames_sent.count());
    let (mut each, mut expected) = (BTreeMap::new(), BTreeMap::new());
    for at in 0..1_000u64 {
        // Some of them twice, in different steps.
        let place = at * 7 % 900;
        driver.signals(kmd[place as usize], 1);
        *expected.entry(place + 1).or_insert(0) += 1;
        driver.wakes(1).into_iter().for_each(|(name, times)| *each.entry(name).or_insert(0) += times);
    }
    assert_eq!(each, expected);
    assert!(each.values().any(|times| *times > 1));
    assert_eq!(daemon.counters().wakes.count(), wakes + 1_000);
    assert_eq!(daemon.counters().frames_sent.count(), sent + 2_000, "an answer and a wake each");

    let snapshot = daemon.kernel_host().views().snapshot();
    assert_eq!(snapshot.contract_violations, 0);
    assert_eq!(snapshot.cpu_events.iter().map(|one| one.signals).sum::<u64>(), EVENTS + 2_000);
    drop(driver);
    daemon.end();
}
