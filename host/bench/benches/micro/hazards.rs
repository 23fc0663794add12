//! The race detector alone.

use d3dkmt::isa::{Barrier, BarrierAccess, BarrierSync};
use divan::Bencher;
use divan::counter::ItemsCount;
use hazards::{Access, Checker, CommandId, Range};

const COMMANDS: u32 = 1000;

/// Submissions of a thousand commands, each with two ranges and a barrier after it.
#[divan::bench]
fn commands_checked(bencher: Bencher) {
    let barrier = Barrier {
        sync_before: BarrierSync::COMPUTE_SHADING,
        sync_after: BarrierSync::COMPUTE_SHADING,
        access_before: BarrierAccess::UNORDERED_ACCESS,
        access_after: BarrierAccess::SHADER_RESOURCE | BarrierAccess::UNORDERED_ACCESS,
    };
    let buffer = |number: u32| {
        let start = u64::from(number % 512) * 0x10000;
        Range { space: 1, start, end: start + 0x10000 }
    };
    let access = |number, access, writes| Access {
        range: buffer(number),
        scopes: BarrierSync::COMPUTE_SHADING,
        others: BarrierSync::NONE,
        access,
        writes,
    };
    let mut checker = Checker::default();
    let mut submission = 0;
    bencher.counter(ItemsCount::new(COMMANDS)).bench_local(|| {
        submission += 1;
        checker.begin(1, submission);
        for packet in 0..COMMANDS {
            let accesses = [
                access(packet, BarrierAccess::SHADER_RESOURCE, false),
                access(packet + 1, BarrierAccess::UNORDERED_ACCESS, true),
            ];
            checker.command(1, CommandId { submission, packet }, accesses);
            let named = buffer(packet + 1);
            checker.barrier(1, &barrier, Some(named), [named]);
        }
    });
    let (reports, _) = checker.take_reports();
    assert!(reports.is_empty(), "{}", reports[0]);
}
