//! Adapters with No64BitAtomics: the window of outstanding values, and words that engines write.

use covers::covers;

use crate::common::{IP, OK, World};
use d3dkmt::{
    Handle, SignalFlags, WaitOutcome,
    isa::Packet::{Busy, FenceWrite},
};
use dxgkrnl::{Config, VidSchCaps};

const REWIND: SignalFlags = SignalFlags::ALLOW_FENCE_REWIND;
const NEAR: u64 = 0x7FFF_FFFF;
const FAR: u64 = 0x8000_0000;

fn narrow() -> World {
    let mut config = Config::default();
    config.adapters[0].caps |= VidSchCaps::NO_64_BIT_ATOMICS;
    World::with_config(config)
}

fn has_note(world: &mut World, words: &str) -> bool {
    std::mem::take(&mut world.effects.notes).iter().any(|note| note.text.contains(words))
}

/// An engine writes to a fence, at once.
fn write(world: &mut World, device: Handle, gpu_address: u64, value: u64) {
    let context = world.context(device, 0);
    assert_eq!(world.submit(context, &[FenceWrite { gpu_address, value }]), OK);
}

#[test]
fn the_capability_is_inverted_and_without_it_there_is_no_window() {
    covers!("FEN-010");
    for (mut world, bits) in [(World::new(), 64), (narrow(), 32)] {
        let device = world.device();
        let fence = world.fence(device, 0);
        let status = world.signal(device, fence.object, u64::MAX);
        assert_eq!(status, if bits == 64 { OK } else { IP });
        let fence = world.fence(device, 0xFFFF_FFFF);
        write(&mut world, device, fence.gpu_address, 0x10);
        assert_eq!(world.value(fence.object), if bits == 64 { 0x10 } else { 0x1_0000_0010 });
    }
}

#[test]
fn a_signal_may_be_7fffffff_away_either_way_and_not_80000000() {
    covers!("FEN-012", "FEN-013");
    let mut world = narrow();
    let device = world.device();
    let fence = world.fence(device, 1 << 40).object;
    assert_eq!(world.signal(device, fence, (1 << 40) + FAR), IP);
    assert!(has_note(&mut world, "signal 0x10080000000 of "), "the note names the value");
    assert_eq!(world.signal(device, fence, (1 << 40) + FAR), IP);
    assert!(has_note(&mut world, "more than 0x7fffffff away from its last signaled value 0x10000000000"));
    assert_eq!(world.signal(device, fence, (1 << 40) + NEAR), OK);
    assert_eq!(world.signal_flags(device, fence, (1 << 40) + NEAR - FAR, REWIND), IP);
    assert_eq!(world.signal_flags(device, fence, 1 << 40, REWIND), OK);
    assert_eq!(world.value(fence), 1 << 40);
    // Named twice, each value is measured from the one before it.
    let call = |values: [u64; 2]| d3dkmt::Call::SignalFromCpu {
        device,
        objects: vec![fence; 2].into(),
        values: values.into(),
        flags: REWIND,
    };
    assert_eq!(world.status(call([(1 << 40) + NEAR, (1 << 40) + NEAR + 1 + NEAR])), IP);
    assert_eq!(world.status(call([(1 << 40) + NEAR, (1 << 40) + NEAR + NEAR])), OK);
}

#[test]
fn a_wait_may_be_7fffffff_ahead_and_not_80000000() {
    covers!("FEN-012");
    let mut world = narrow();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 5).object;
    assert_eq!(world.wait(device, &[(fence, 5 + FAR)], false), Err(IP));
    assert!(has_note(&mut world, "wait for 0x80000005 of "));
    assert_eq!(world.gpu_wait(context, fence, 5 + FAR), IP);
    world.pending(device, &[(fence, 5 + NEAR)], false);
    assert_eq!(world.gpu_wait(context, fence, 5 + NEAR), OK);
    let other = world.context(device, 1);
    assert_eq!(world.gpu_signal(&[other], fence, 5 + FAR), IP);
    assert_eq!(world.gpu_signal(&[other], fence, 5 + NEAR), OK);
    assert_eq!(world.woken().len(), 1);
}

#[test]
fn a_satisfied_wait_is_not_outstanding_however_old() {
    covers!("FEN-014");
    let mut world = narrow();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 1 << 40).object;
    for old in [0, (1 << 40) - FAR, (1 << 40) - NEAR] {
        assert_eq!(world.wait(device, &[(fence, old)], false).unwrap().1, WaitOutcome::Satisfied);
        assert_eq!(world.gpu_wait(context, fence, old), OK);
    }
}

#[test]
fn words_wrap_round_and_the_slot_holds_the_logical_value() {
    covers!("FEN-011");
    let mut world = narrow();
    let device = world.device();
    let fence = world.fence(device, 0xFFFF_FFF0);
    let event = world.pending(device, &[(fence.object, 0x1_0000_0010)], false);
    let not_yet = world.pending(device, &[(fence.object, 0x1_0000_0011)], false);
    world.stores();
    write(&mut world, device, fence.gpu_address, 0x0000_0010);
    assert_eq!(world.value(fence.object) - 0xFFFF_FFF0, 0x20);
    assert_eq!(world.stores(), [(fence.slot.unwrap(), 0x1_0000_0010)]);
    assert_eq!(world.woken(), [event]);
    // A full 64-bit value within the window: its low half gives the same value.
    write(&mut world, device, fence.gpu_address, 0x1_0000_0011);
    assert_eq!(world.woken(), [not_yet]);
    write(&mut world, device, fence.gpu_address, 0xFFFF_FFF0);
    assert_eq!(world.value(fence.object), 0xFFFF_FFF0, "and in the other direction");
    assert!(!has_note(&mut world, "contract violation"));
}

#[test]
fn a_write_beyond_the_window_is_reported_and_read_as_its_word() {
    covers!("FEN-012", "FEN-013");
    let mut world = narrow();
    let device = world.device();
    let fence = world.fence(device, 1 << 40);
    write(&mut world, device, fence.gpu_address, (1 << 40) + FAR);
    assert!(has_note(&mut world, "wrote 0x10080000000 over 0x10000000000"));
    assert_eq!(world.value(fence.object), (1 << 40) - FAR);
    write(&mut world, device, fence.gpu_address, (1 << 41) + FAR + 1);
    assert!(has_note(&mut world, "contract violation"));
    assert_eq!(world.value(fence.object), (1 << 40) - FAR + 1, "only the word was written");
    write(&mut world, device, fence.gpu_address, 1 << 40);
    assert!(!has_note(&mut world, "contract violation"));
}

#[test]
fn queued_values_left_outside_the_window_are_reported() {
    covers!("FEN-012");
    let mut world = narrow();
    let device = world.device();
    let (context, other) = (world.context(device, 0), world.context(device, 1));
    let fence = world.fence(device, 1 << 40).object;
    world.submit(context, &[Busy { duration_ns: 10 }]);
    assert_eq!(world.gpu_signal(&[context], fence, (1 << 40) + NEAR), OK);
    world.pending(device, &[(fence, (1 << 40) + NEAR)], false);
    assert_eq!(world.gpu_wait(other, fence, (1 << 40) + 1), OK);
    assert!(!has_note(&mut world, "contract violation"));
    assert_eq!(world.signal_flags(device, fence, (1 << 40) - 10, REWIND), OK);
    assert!(has_note(&mut world, "a wait for 0x1007fffffff is outstanding"));
    world.advance(10);
    assert!(has_note(&mut world, "from 0xfffffffff6 to 0x1007fffffff"));
    assert_eq!(world.value(fence), (1 << 40) + NEAR, "the kernel's packet has all 64 bits");
}
