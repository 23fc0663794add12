//! Fence barriers in a live system: the debug layer tracks native fences, their descriptions by the process, and every
//! store.

use covers::covers;
use d3dkmt::NtStatus;
use d3dkmt::isa::{FenceValue, Packet};
use d3dkmt::list_escape::{self, FenceFlags};
use dxgkrnl::ddi::{
    CurrentValueUpdate, LocalNativeFenceId, Miniport, NativeFenceId, NativeFenceStorage, NewNativeFence,
    OpenedNativeFence,
};
use dxgkrnl::{Config, VidSchCaps};

use crate::gpu::{COPY_ENGINE, DEVICE, ENGINE, Gpu, P};

const OUT: u64 = 0x5000;
const BACK: u64 = 0x5040;
const LISTS: FenceFlags = FenceFlags::ALLOW_COMMAND_LIST_BARRIERS;
const BOTH: FenceFlags = LISTS.union(FenceFlags::ALLOW_QUEUE_AND_CPU_SYNC);

/// Adds a native fence at this address, of value 0.
pub fn add(gpu: &mut Gpu, gpu_address: u64) {
    let fence = NativeFenceId(gpu_address);
    let new = NewNativeFence {
        fence,
        adapter: 0,
        native_type: 0,
        current_value: 0,
        monitored_value: u64::MAX,
        storage: NativeFenceStorage { page: 0, offset_bytes: gpu_address as u32 },
        number: gpu_address,
    };
    gpu.miniport.create_native_fence(&new).unwrap();
    open(gpu, gpu_address);
}

fn open(gpu: &mut Gpu, gpu_address: u64) {
    let (local, fence) = (LocalNativeFenceId(gpu_address), NativeFenceId(gpu_address));
    gpu.miniport.open_native_fence(&OpenedNativeFence {
        local,
        fence,
        process: P,
        gpu_address,
        writable: true,
    });
}

fn describe(gpu: &mut Gpu, gpu_address: u64, flags: FenceFlags) -> NtStatus {
    gpu.escape(Some(DEVICE), &mut list_escape::describe_fence(gpu_address, flags, "handshake"))
}

fn debug(gpu: &mut Gpu) {
    let mut data = list_escape::command(list_escape::SET_DEBUG, 2);
    assert_eq!(gpu.escape(Some(DEVICE), &mut data), NtStatus::SUCCESS);
}

/// Rule numbers and texts of the messages.
fn messages(gpu: &mut Gpu) -> Vec<(u32, String)> {
    let mut data = list_escape::read_messages(1 << 14);
    assert_eq!(gpu.escape(Some(DEVICE), &mut data), NtStatus::SUCCESS);
    list_escape::messages(&data).into_iter().map(|message| (message.rule, message.text)).collect()
}

fn rules(gpu: &mut Gpu) -> Vec<u32> {
    messages(gpu).into_iter().map(|(rule, _)| rule).collect()
}

fn signal(gpu_address: u64, value: u64) -> Packet {
    Packet::SignalBarrier { fence: FenceValue { gpu_address, value }, groups: vec![] }
}

fn wait(gpu_address: u64, value: u64) -> Packet {
    Packet::WaitBarrier { fences: vec![FenceValue { gpu_address, value }], groups: vec![] }
}

#[test]
fn unsignaled_wait_for_a_command_list_fence_is_reported() {
    covers!("BAR-119");
    for is_described_first in [true, false] {
        let mut gpu = Gpu::new(1);
        add(&mut gpu, OUT);
        if is_described_first {
            assert_eq!(describe(&mut gpu, OUT, LISTS), NtStatus::SUCCESS);
            debug(&mut gpu);
        } else {
            debug(&mut gpu);
            assert_eq!(describe(&mut gpu, OUT, LISTS), NtStatus::SUCCESS);
        }
        gpu.submit(ENGINE, 1, &[signal(OUT, 1), wait(OUT, 1)]);
        assert_eq!(rules(&mut gpu), []);
        gpu.submit(ENGINE, 1, &[wait(OUT, 2)]);
        let messages = messages(&mut gpu);
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].0 == 102 && messages[0].1.contains("fence \"handshake\", which stands at 1"),
            "{messages:?}"
        );
    }
}

#[test]
fn cpu_stores_are_tracked_and_a_reopened_fence_is_the_same() {
    covers!("BAR-119");
    let mut gpu = Gpu::new(1);
    add(&mut gpu, OUT);
    assert_eq!(describe(&mut gpu, OUT, LISTS), NtStatus::SUCCESS);
    debug(&mut gpu);
    gpu.miniport.close_native_fence(LocalNativeFenceId(OUT));
    open(&mut gpu, OUT);
    let update = CurrentValueUpdate {
        fence: NativeFenceId(OUT),
        value: 5,
        always_signaled: false,
        notification_only: true,
    };
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.update_current_values_from_cpu(now, &[update], callbacks);
    });
    gpu.submit(ENGINE, 1, &[wait(OUT, 5)]);
    assert_eq!(rules(&mut gpu), []);
    gpu.submit(ENGINE, 1, &[wait(OUT, 6)]);
    assert_eq!(rules(&mut gpu), [102]);
}

#[test]
fn the_tier_is_what_the_hardware_can_do() {
    covers!("BAR-113", "BAR-114");
    let found = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        let mut gpu = Gpu::with(1, &config);
        [OUT, BACK].into_iter().for_each(|address| add(&mut gpu, address));
        assert_eq!(describe(&mut gpu, OUT, LISTS), NtStatus::SUCCESS);
        debug(&mut gpu);
        gpu.submit(ENGINE, 1, &[signal(OUT, 1), wait(OUT, 1), signal(BACK, 1), wait(BACK, 1)]);
        rules(&mut gpu)
    };
    assert_eq!(found(&|_| {}), [], "tier 2");
    let rings = |config: &mut Config| {
        config.adapters[0].nodes.iter_mut().for_each(|node| node.user_mode_submission = false);
    };
    assert_eq!(found(&rings), [97], "tier 1: BACK may be signaled by queues too");
    let native = |config: &mut Config| config.adapters[0].caps.remove(VidSchCaps::NATIVE_GPU_FENCE);
    assert_eq!(found(&native), [96; 4]);
}

#[test]
fn a_chain_that_comes_back_is_found_while_both_run() {
    covers!("BAR-123");
    let mut gpu = Gpu::new(1);
    [OUT, BACK].into_iter().for_each(|address| add(&mut gpu, address));
    debug(&mut gpu);
    // The first one has signaled when the second starts, and waits for it.
    gpu.submit(ENGINE, 1, &[signal(OUT, 1), wait(BACK, 1)]);
    assert_eq!((rules(&mut gpu), gpu.stores.len()), (vec![], 1));
    gpu.submit(COPY_ENGINE, 2, &[wait(OUT, 1), signal(BACK, 1)]);
    assert_eq!(rules(&mut gpu), [106]);
    gpu.advance(1 << 40);
    // Run one after the other, they are no round trip.
    gpu.submit(ENGINE, 1, &[signal(OUT, 2)]);
    gpu.submit(COPY_ENGINE, 2, &[wait(OUT, 2), signal(BACK, 2)]);
    gpu.submit(ENGINE, 1, &[wait(BACK, 2)]);
    assert_eq!(rules(&mut gpu), []);
}

/// Flags of `D3D12_FENCE_FLAGS`, by their published values.
#[test]
fn a_flag_that_fences_do_not_have_is_an_error() {
    covers!("FEN-131");
    let mut gpu = Gpu::new(1);
    add(&mut gpu, OUT);
    let previews = (LISTS | BOTH).bits();
    for bit in (0..32).map(|bit| 1u32 << bit) {
        gpu.notes.clear();
        let alone = describe(&mut gpu, OUT, FenceFlags::from_bits_retain(bit));
        let beside = describe(&mut gpu, OUT, FenceFlags::from_bits_retain(1 | bit));
        match bit {
            1 | 2 | 4 => assert_eq!((alone, beside), (NtStatus::SUCCESS, NtStatus::SUCCESS), "{bit:#x}"),
            bit if bit & previews != 0 => {}
            bit => {
                assert_eq!((alone, beside), (NtStatus::INVALID_PARAMETER, NtStatus::INVALID_PARAMETER));
                let words = format!("R-107 error #1007: list 0 command 0: a fence has flags {bit:#x}");
                assert!(gpu.notes.iter().all(|note| note.contains(&words)), "{:?}", gpu.notes);
                assert_eq!(gpu.notes.len(), 2);
            }
        }
    }
    // Both sharing flags count as shared.
    for shared in [FenceFlags::SHARED, FenceFlags::SHARED_CROSS_ADAPTER] {
        gpu.notes.clear();
        assert_eq!(describe(&mut gpu, OUT, LISTS | shared), NtStatus::INVALID_PARAMETER);
        assert!(gpu.notes[0].contains("R-099"), "{:?}", gpu.notes);
    }
}

#[test]
fn a_wait_for_zero_is_worth_a_warning() {
    covers!("FEN-132");
    let mut gpu = Gpu::new(1);
    [OUT, BACK].into_iter().for_each(|address| add(&mut gpu, address));
    debug(&mut gpu);
    let waits = |value| [wait(OUT, value), Packet::FenceWait { gpu_address: BACK, value }];
    gpu.submit(ENGINE, 1, &waits(0));
    let messages = messages(&mut gpu);
    assert_eq!(messages.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), [108, 108], "{messages:?}");
    assert!(gpu.notes[0].contains("R-108 warning #1424"), "{:?}", gpu.notes);
    gpu.submit(ENGINE, 1, &[signal(OUT, 1), signal(BACK, 1)]);
    gpu.submit(ENGINE, 1, &waits(1));
    assert_eq!(rules(&mut gpu), []);
}

#[test]
fn invalid_fence_description_is_refused_with_a_note() {
    covers!("BAR-115", "BAR-116");
    let mut gpu = Gpu::new(1);
    add(&mut gpu, OUT);
    let wrong = [
        (OUT, FenceFlags::ALLOW_QUEUE_AND_CPU_SYNC, "R-098 error #1007"),
        (OUT, LISTS | FenceFlags::SHARED, "R-099 error #1007"),
        (BACK, BOTH, "no native fence of the process is mapped at 0x5040"),
    ];
    for (address, flags, words) in wrong {
        gpu.notes.clear();
        assert_eq!(describe(&mut gpu, address, flags), NtStatus::INVALID_PARAMETER);
        assert!(gpu.notes[0].contains(words), "{:?}", gpu.notes);
    }
    let mut short = list_escape::describe_fence(OUT, BOTH, "");
    short.pop();
    assert_eq!(gpu.escape(Some(DEVICE), &mut short), NtStatus::BUFFER_TOO_SMALL);
    // The description ends with the fence: a new fence at the address has none.
    assert_eq!(describe(&mut gpu, OUT, LISTS), NtStatus::SUCCESS);
    gpu.miniport.close_native_fence(LocalNativeFenceId(OUT));
    gpu.miniport.destroy_native_fence(NativeFenceId(OUT));
    add(&mut gpu, OUT);
    debug(&mut gpu);
    gpu.submit(ENGINE, 1, &[wait(OUT, 1)]);
    assert_eq!(rules(&mut gpu), [], "another process may signal this one");
}
