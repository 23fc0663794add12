use covers::covers;

use crate::isa::{self, CommandBuffer, IsaError, Packet};
use crate::{Handle, HandleKind, NtStatus, SyncObjectFlags, text};
use alloc::format;

#[test]
fn local_handles_step_by_0x40_and_have_a_top_bit() {
    covers!("W-001", "W-003", "W-005");
    let first = Handle::local(2, 1);
    assert_eq!(first.0, 0x4000_0080);
    assert_eq!(Handle::local(3, 1).0 - first.0, 0x40);
    assert_eq!(first.kind(), HandleKind::Local);
    assert_eq!((first.index(), first.unique()), (2, 1));
}

#[test]
fn global_handles_end_in_two() {
    covers!("W-004");
    let handle = Handle::global(7, 1);
    assert_eq!(handle.0 & 0x3F, 2);
    assert_eq!(handle.kind(), HandleKind::Global);
    assert_eq!(Handle(0x80).kind(), HandleKind::Malformed);
    assert_eq!(Handle::NULL.kind(), HandleKind::Null);
}

#[test]
fn statuses_print_their_name_and_unknown_ones_their_number() {
    assert_eq!(format!("{}", NtStatus::INVALID_PARAMETER), "STATUS_INVALID_PARAMETER");
    assert_eq!(format!("{}", NtStatus(0xC000_9999)), "0xC0009999");
    assert!(NtStatus::TIMEOUT.is_success() && !NtStatus::NOT_SUPPORTED.is_success());
}

#[test]
fn unprintable_characters_of_a_text_are_shown_and_json_stays_the_same_data() {
    let hostile = "a\u{1b}[2J\r\u{9b}\u{202e}b\u{e0041}\n\t\u{65e5}\u{672c}";
    assert_eq!(
        text::printable_lines(hostile),
        "a\\u001b[2J\\u000d\\u009b\\u202eb\\udb40\\udc41\n\t\u{65e5}\u{672c}"
    );
    let plain = "frames of vm1\n\u{e9}";
    assert!(matches!(text::printable_lines(plain), alloc::borrow::Cow::Borrowed(_)));
    assert_eq!(text::printable("a\u{1b}\n\u{202e}b"), "a\u{fffd}\u{fffd}\u{fffd}b");
}

#[test]
fn unknown_flag_bits_are_kept_and_reported() {
    let flags = SyncObjectFlags::from_bits_retain(0x1 | 0x8000_0000);
    assert_eq!(flags.unknown(), 0x8000_0000);
    assert!(flags.contains(SyncObjectFlags::SHARED));
}

#[test]
fn command_buffers_survive_a_round_trip() {
    let packets = [
        Packet::Busy { duration_ns: 5 },
        Packet::FenceWrite { gpu_address: 0x1000, value: u64::MAX },
        Packet::Hang,
        Packet::FenceWait { gpu_address: 0x1040, value: 7 },
        Packet::MarkerIn { gpu_address: 0x1080, value: 8 },
        Packet::MarkerOut { gpu_address: 0x10C0, value: 9 },
    ];
    assert_eq!(isa::decode(&isa::encode(&packets)), Ok(CommandBuffer::Packets(packets.to_vec())));
    assert_eq!(isa::decode(b"vendor bytes"), Ok(CommandBuffer::Opaque(12)));
    assert_eq!(isa::decode(&[]), Ok(CommandBuffer::Opaque(0)));
}

#[test]
fn damaged_command_buffers_are_refused_with_their_place() {
    let mut bytes = isa::encode(&[Packet::Hang, Packet::Busy { duration_ns: 1 }]);
    let whole = bytes.len();
    for cut in 8..whole {
        assert!(isa::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    bytes[16] = 99;
    assert_eq!(isa::decode(&bytes), Err(IsaError::UnknownOpcode { offset: 16, opcode: 99 }));
}
