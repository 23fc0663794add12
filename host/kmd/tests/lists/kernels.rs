//! The effect of each kernel on bytes.

use d3dkmt::isa::{
    BarrierAccess, HeapType, Kernel, Packet, ResourceDesc, ResourceFlags, ResourceKind, Use, WorkKind,
};
use d3dkmt::{NtStatus, limits};
use dxgkrnl::ddi::{KmdDevice, Miniport, PageTableEntry};

use crate::gpu::{CPU, DEVICE, GPU, Gpu, P, PAGE, copy, fill, full, work};

const UAV: BarrierAccess = BarrierAccess::UNORDERED_ACCESS;
const SRV: BarrierAccess = BarrierAccess::SHADER_RESOURCE;

fn dispatch(kernel: Kernel, operand: u32, uses: &[Use]) -> Packet {
    work(WorkKind::Dispatch, kernel, operand, 10, uses)
}

#[test]
fn kernels_are_arithmetic_on_whole_words() {
    let mut gpu = Gpu::new(1);
    let all = gpu.buffer(0, 64);
    for at in 0..6 {
        gpu.set_word(at * 4, 10 + at as u32);
    }
    let source = |bytes| Use::range(all, SRV, 0, bytes);
    let to = |offset, bytes| Use::range(all, UAV, offset, bytes);
    gpu.run(&[
        dispatch(Kernel::Copy, 9, &[source(11), to(24, 8)]),
        dispatch(Kernel::Add, u32::MAX, &[to(32, 7), source(8)]),
        dispatch(Kernel::Xor, 0xF0, &[source(4), to(36, 8)]),
        dispatch(Kernel::Sum, 1, &[source(24), to(44, 8)]),
        dispatch(Kernel::Fill, 5, &[source(4), to(52, 6)]),
        dispatch(Kernel::None, 5, &[source(4), to(60, 4)]),
    ]);
    let words: Vec<u32> = (6..16).map(|at| gpu.word(at * 4)).collect();
    let sum = 10 + 11 + 12 + 13 + 14 + 15 + 1;
    assert_eq!(words, [10, 11, 9, 10 ^ 0xF0, 0, sum, 0, 5, 0, 0]);
}

#[test]
fn without_a_source_a_destination_is_its_own() {
    let mut gpu = Gpu::new(1);
    let all = gpu.buffer(0, 64);
    (0..16).for_each(|at| gpu.set_word(at * 4, at as u32));
    let to = |offset, bytes| Use::range(all, UAV, offset, bytes);
    gpu.run(&[
        dispatch(Kernel::Add, 100, &[to(4, 8), to(16, 4)]),
        dispatch(Kernel::Sum, 0, &[to(24, 12)]),
        dispatch(Kernel::Xor, 0xFF, &[to(40, 0)]),
    ]);
    let words: Vec<u32> = (0..11).map(|at| gpu.word(at * 4)).collect();
    assert_eq!(words, [0, 101, 102, 3, 104, 5, 6 + 7 + 8, 7, 8, 9, 10]);
}

/// Ranges larger than the cached part, at odd offsets, over pages in mixed order.
#[test]
fn bypassed_bytes_get_the_same_arithmetic() {
    const PAGES: u64 = 1600;
    let mut gpu = Gpu::new(PAGES);
    // Pages of the first half are swapped: page n of the GPU is at page n ^ 1 of the memory.
    for page in 0..PAGES {
        let entry = PageTableEntry::Memory { owner: P, address: CPU + (page ^ 1) * PAGE, writable: true };
        gpu.entry(page, 1, entry);
    }
    let physical = |offset: u64| ((offset / PAGE) ^ 1) * PAGE + offset % PAGE;
    let (bytes, far) = (2_500_002u64, 3_000_000u64);
    let byte = |at: u64| (at * 31 + at / 251) as u8;
    for at in 0..bytes {
        gpu.memory.0[physical(6 + at) as usize] = byte(at);
    }
    let from = gpu.buffer(6, bytes);
    let to = gpu.buffer(far + 3, bytes);
    let uses = [Use::whole(from, SRV), Use::whole(to, UAV)];
    let word = |at: u64| u32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
    type Expected = fn(u32) -> u32;
    let cases: [(Kernel, Expected); 4] = [
        (Kernel::Copy, |word| word),
        (Kernel::Add, |word| word.wrapping_add(7)),
        (Kernel::Xor, |word| word ^ 7),
        (Kernel::Fill, |_| 7),
    ];
    for (kernel, expected) in cases {
        gpu.run(&[dispatch(kernel, 7, &uses)]);
        for at in (0..bytes - 3).step_by(4).take((bytes / 4) as usize) {
            let got: Vec<u8> = (0..4).map(|i| gpu.memory.0[physical(far + 3 + at + i) as usize]).collect();
            assert_eq!(got, expected(word(at)).to_le_bytes(), "{kernel:?} at {at}");
        }
        let behind: Vec<u8> =
            (bytes & !3..bytes).map(|at| gpu.memory.0[physical(far + 3 + at) as usize]).collect();
        assert_eq!(behind, [0, 0], "half a word is no word");
    }
    let result = gpu.buffer(far + 8, 4);
    gpu.run(&[dispatch(Kernel::Sum, 7, &[Use::whole(from, SRV), Use::whole(result, UAV)])]);
    let sum = (0..bytes / 4).fold(7u32, |sum, at| sum.wrapping_add(word(at * 4)));
    let got: Vec<u8> = (0..4).map(|i| gpu.memory.0[physical(far + 8 + i) as usize]).collect();
    assert_eq!(got, sum.to_le_bytes());
}

#[test]
fn much_data_takes_time_and_few_moves() {
    let mut gpu = Gpu::new(514);
    let (from, to) = (gpu.buffer(PAGE, 1 << 20), gpu.buffer(257 * PAGE, 1 << 20));
    gpu.memory.0[PAGE as usize..PAGE as usize + (1 << 20)].fill(0xAB);
    gpu.submit(crate::gpu::ENGINE, 1, &[copy(from, to, 0)]);
    assert_eq!(gpu.miniport.next_deadline(), Some(limits::MOVED_BYTES_PER_STEP / 16), "the first piece");
    let end = ((1 << 20) - limits::CACHED_BYTES_PER_USE_MAX) / 16;
    gpu.advance(end - 1);
    assert_eq!((gpu.interrupts.len(), gpu.word(257 * PAGE)), (0, 0));
    gpu.advance(1);
    assert_eq!(gpu.interrupts.len(), 1);
    assert!(gpu.memory.0[257 * PAGE as usize..].iter().take(1 << 20).all(|byte| *byte == 0xAB));
    assert!(gpu.moves < 12, "{} moves", gpu.moves);
}

#[test]
fn the_zero_page_reads_as_zeros_and_keeps_nothing() {
    let mut gpu = Gpu::new(2);
    gpu.memory.0.fill(0xFF);
    gpu.entry(1, 1, PageTableEntry::Zero);
    let (real, zero) = (gpu.buffer(0, 16), gpu.buffer(PAGE, 16));
    gpu.run(&[fill(zero, 9, 0), full(), copy(zero, real, 0)]);
    assert_eq!(gpu.memory.0[..17], [[0; 16].as_slice(), &[0xFF]].concat());
    assert!(gpu.memory.0[PAGE as usize..].iter().all(|byte| *byte == 0xFF));
}

#[test]
fn a_subresource_is_where_the_description_places_it() {
    let mut gpu = Gpu::new(1);
    let desc = ResourceDesc {
        kind: ResourceKind::Texture2D,
        heap: HeapType::Default,
        flags: ResourceFlags::ALLOW_UNORDERED_ACCESS,
        mips: 2,
        array_size: 2,
        width: 4,
        height: 2,
        ..ResourceDesc::texture("t", GPU + 16, (4, 2))
    };
    let texture = gpu.resource(&desc.with_packed_bytes());
    // 32 bytes of mip 0, 8 of mip 1, twice.
    let sub = |index| Use::subresource(texture, UAV, index);
    gpu.run(&[
        dispatch(Kernel::Fill, 1, &[sub(1)]),
        dispatch(Kernel::Fill, 2, &[sub(2)]),
        dispatch(Kernel::Fill, 3, &[Use { offset: 4, bytes: 4, ..sub(3) }]),
    ]);
    let words: Vec<u32> = (0..26).map(|at| gpu.word(at * 4)).collect();
    let expected = [vec![0; 12], vec![1; 2], vec![2; 8], vec![0, 3, 0, 0]].concat();
    assert_eq!(words, expected);
    gpu.run(&[dispatch(
        Kernel::Fill,
        4,
        &[Use { first_subresource: 1, count: 2, ..Use::whole(texture, UAV) }],
    )]);
    let words = [44, 48, 84, 88, 92].map(|offset| gpu.word(offset));
    assert_eq!(words, [0, 4, 4, 0, 3]);
}

#[test]
fn resources_have_numbers_and_end_with_their_device() {
    let mut gpu = Gpu::new(1);
    let desc = ResourceDesc::buffer("b", GPU, 64).encode();
    assert_eq!((gpu.try_create(&desc), gpu.try_create(&desc)), (Ok(1), Ok(2)));
    let mut bad = desc.clone();
    bad[0] = 9;
    assert_eq!(gpu.try_create(&bad), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(gpu.notes.pop().unwrap(), "the resource's kind is 0x9; it must be 1 to 4");
    assert_eq!(gpu.try_create(&desc[..95]), Err(NtStatus::BUFFER_TOO_SMALL));
    let destroy = |number: u32| [6u32.to_le_bytes(), number.to_le_bytes()].concat();
    assert_eq!(gpu.escape(None, &mut destroy(1)), NtStatus::INVALID_PARAMETER);
    assert_eq!(gpu.escape(Some(KmdDevice(77)), &mut destroy(1)), NtStatus::INVALID_PARAMETER);
    assert_eq!(gpu.escape(Some(DEVICE), &mut vec![6, 0, 0, 0]), NtStatus::BUFFER_TOO_SMALL);
    assert_eq!(gpu.escape(Some(DEVICE), &mut destroy(1)), NtStatus::SUCCESS);
    assert_eq!(gpu.escape(Some(DEVICE), &mut destroy(1)), NtStatus::INVALID_PARAMETER);
    assert_eq!(gpu.notes.pop().unwrap(), "1 is no resource of this device");
    assert_eq!(gpu.try_create(&desc), Ok(3), "not used again");
    while gpu.try_create(&desc).is_ok() {}
    assert_eq!(gpu.try_create(&desc), Err(NtStatus::NO_MEMORY));
    assert_eq!(gpu.escape(Some(DEVICE), &mut destroy(3)), NtStatus::SUCCESS);
    let last = limits::RESOURCES_PER_PROCESS_MAX as u32 + 2;
    assert_eq!(gpu.try_create(&desc), Ok(last));
    gpu.miniport.destroy_device(0, DEVICE, &mut Vec::new());
    assert_eq!(gpu.try_create(&desc), Err(NtStatus::INVALID_PARAMETER), "no such device");
}
