//! The merged copies of a step's DMA operations leave the same bytes as the operations one by one.

use dxgkrnl::{ComputeOp, DmaExecutor, DmaOp, MemoryRef, ProcessId, ProcessMemory, StagingBuffer};
use proptest::prelude::*;

const KIB: u64 = 1024;
const MEMORY: u64 = 512 * KIB;
const STAGING_BUFFER: u64 = 256 * KIB;

/// Two processes' memory.
#[derive(Clone, PartialEq)]
struct Memory {
    bytes: [Vec<u8>; 2],
    copied: u64,
}

impl Memory {
    fn new() -> Memory {
        let bytes = |seed: u64| (0..MEMORY).map(|at| (at * seed + at / 253) as u8).collect();
        Memory { bytes: [bytes(7), bytes(11)], copied: 0 }
    }
}

impl ProcessMemory for Memory {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        self.copied += to.len() as u64;
        to.copy_from_slice(&self.bytes[process.0 as usize][address as usize..][..to.len()]);
        true
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        self.copied += from.len() as u64;
        self.bytes[process.0 as usize][address as usize..][..from.len()].copy_from_slice(from);
        true
    }
}

fn staging_buffer(number: u64) -> StagingBuffer {
    StagingBuffer { adapter: number as u32 % 2, number }
}

/// Addresses in coarse steps, so that ranges overlap.
fn memory_ref() -> impl Strategy<Value = MemoryRef> {
    prop_oneof![
        (0..2u32, 0..4u64).prop_map(|(process, at)| MemoryRef::Memory {
            process: ProcessId(process),
            address: at * 60 * KIB
        }),
        (0..5u64, prop_oneof![Just(0), 0..4u64]).prop_map(|(number, at)| MemoryRef::StagingBuffer {
            staging_buffer: staging_buffer(number),
            offset: at * 30 * KIB
        }),
    ]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(4), Just(40 * KIB), Just(64 * KIB), (1..20u64).prop_map(|count| count * 4 * KIB)]
}

fn dma_op() -> impl Strategy<Value = DmaOp> {
    prop_oneof![
        6 => (memory_ref(), memory_ref(), bytes()).prop_map(|(from, to, bytes)| DmaOp::Copy { from, to, bytes }),
        1 => (memory_ref(), bytes(), any::<u32>())
            .prop_map(|(to, bytes, pattern)| DmaOp::Fill { to, bytes, pattern }),
        1 => (memory_ref(), memory_ref(), bytes(), any::<u32>(), 0..4usize).prop_map(
            |(from, to, bytes, operand, kernel)| DmaOp::Compute {
                kernel: ComputeOp::ALL[kernel], from, to, bytes, operand
            }
        ),
        3 => (0..5u64).prop_map(|number| DmaOp::Release { staging_buffer: staging_buffer(number) }),
        1 => (0..2u32).prop_map(|adapter| DmaOp::ReleaseAll { adapter }),
    ]
}

/// All bytes of all staging buffers that DMA operations can read.
fn staging_buffers(dma_executor: &mut DmaExecutor, memory: &mut Memory) -> Vec<Vec<u8>> {
    let contents = |number| {
        let from = MemoryRef::StagingBuffer { staging_buffer: staging_buffer(number), offset: 0 };
        let to = MemoryRef::Memory { process: ProcessId(0), address: 0 };
        dma_executor.perform(&DmaOp::Copy { from, to, bytes: STAGING_BUFFER }, memory).unwrap();
        memory.bytes[0][..STAGING_BUFFER as usize].to_vec()
    };
    (0..5).map(contents).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn merged_and_single_dma_operations_leave_the_same_bytes(
        steps in prop::collection::vec(prop::collection::vec(dma_op(), 1..12), 1..5)
    ) {
        let (mut merged, mut single) = (DmaExecutor::default(), DmaExecutor::default());
        let (mut memory, mut expected) = (Memory::new(), Memory::new());
        for step in &steps {
            merged.perform_all(step, &mut memory, &mut |op, why| panic!("{op}: {why}"));
            step.iter().for_each(|op| single.perform(op, &mut expected).unwrap());
            for process in 0..2 {
                prop_assert!(memory.bytes[process] == expected.bytes[process], "memory of {process}");
            }
        }
        let (mut memory, mut expected) = (memory.clone(), expected.clone());
        prop_assert!(staging_buffers(&mut merged, &mut memory) == staging_buffers(&mut single, &mut expected));
    }
}

/// DMA operations of an engine that copies this many bytes through its caches within one step.
fn copy(bytes: u64) -> Vec<DmaOp> {
    let memory = |address| MemoryRef::Memory { process: ProcessId(0), address };
    let cached = |number| MemoryRef::StagingBuffer { staging_buffer: staging_buffer(number), offset: 0 };
    let copy = |from, to| DmaOp::Copy { from, to, bytes };
    let (source, target) = (memory(0), memory(MEMORY / 2));
    vec![
        copy(source, cached(0)),
        copy(cached(0), cached(1)),
        copy(cached(1), cached(2)),
        DmaOp::Release { staging_buffer: staging_buffer(1) },
        copy(cached(2), target),
        DmaOp::Release { staging_buffer: staging_buffer(0) },
        DmaOp::Release { staging_buffer: staging_buffer(2) },
    ]
}

#[test]
fn an_engines_copy_of_one_step_is_one_copy() {
    let (mut dma_executor, mut memory) = (DmaExecutor::default(), Memory::new());
    dma_executor.perform_all(&copy(STAGING_BUFFER), &mut memory, &mut |one, why| panic!("{one}: {why}"));
    let (source, target) = memory.bytes[0].split_at((MEMORY / 2) as usize);
    assert!(source == target);
    assert_eq!(
        (memory.copied, dma_executor.staging_buffers()),
        (2 * STAGING_BUFFER, 0),
        "read once and written once"
    );
}

#[test]
fn a_failed_read_of_process_memory_leaks_no_bytes_of_another_process() {
    struct Gone(Vec<u8>);
    impl ProcessMemory for Gone {
        fn read(&mut self, process: ProcessId, _address: u64, to: &mut [u8]) -> bool {
            to.fill(0x5E);
            process == ProcessId(0)
        }
        fn write(&mut self, _process: ProcessId, _address: u64, from: &[u8]) -> bool {
            self.0 = from.to_vec();
            true
        }
    }
    let (mut dma_executor, mut memory) = (DmaExecutor::default(), Gone(Vec::new()));
    let from = |process| MemoryRef::Memory { process: ProcessId(process), address: 0 };
    let (to, bytes) = (MemoryRef::StagingBuffer { staging_buffer: staging_buffer(3), offset: 0 }, 64 * KIB);
    let release = DmaOp::Release { staging_buffer: staging_buffer(3) };
    for (process, is_there) in [(0, true), (1, false)] {
        let done = dma_executor.perform(&DmaOp::Copy { from: from(process), to, bytes }, &mut memory);
        assert_eq!(done.is_ok(), is_there);
        dma_executor.perform(&DmaOp::Copy { from: to, to: from(0), bytes }, &mut memory).unwrap();
        let expected = if is_there { 0x5E } else { 0 };
        assert!(memory.0.iter().all(|byte| *byte == expected), "process {process}");
        dma_executor.perform(&release, &mut memory).unwrap();
    }
    // A new staging buffer is zero, also in reused memory.
    let fill = DmaOp::Fill {
        to: MemoryRef::StagingBuffer { staging_buffer: staging_buffer(4), offset: 60 * KIB },
        bytes: 4,
        pattern: 9,
    };
    dma_executor.perform(&DmaOp::Copy { from: from(0), to, bytes }, &mut memory).unwrap();
    dma_executor.perform(&release, &mut memory).unwrap();
    dma_executor.perform(&fill, &mut memory).unwrap();
    let from_4 = MemoryRef::StagingBuffer { staging_buffer: staging_buffer(4), offset: 0 };
    dma_executor.perform(&DmaOp::Copy { from: from_4, to: from(0), bytes: 60 * KIB }, &mut memory).unwrap();
    assert!(memory.0.iter().all(|byte| *byte == 0));
}
