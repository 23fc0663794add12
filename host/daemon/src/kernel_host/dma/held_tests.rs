//! What engines do to the memory of a guest that QEMU has stopped, of one that goes on, and of one whose driver is gone.

use std::sync::Arc;

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use dxgkrnl::{ComputeOp, DmaOp, MemoryRef, ProcessId, SharedMemory, StagingBuffer, VmId};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};
use vsock_device::direct::{DirectDevice, RingAddresses};

use super::BackingAccess;
use crate::backing::{BackingPages, GuestPages, GuestSession, LocalPages};
use crate::broker::first_memory;
use crate::kernel_host::{HostState, KernelHost};
use crate::peer::Peer;
use crate::test_guest::{Ignored, TestGuest};
use crate::vm::VmShared;
use crate::{Clock, Options};

const HEAP: u64 = 0x7F00_0000_0000;
const PAGE: u64 = 4096;
/// Guest-physical address of the process's pages, and their number.
const PAGES: u64 = 0x10_0000;
const COUNT: u64 = 1024;
const TRANSMIT: usize = 1;
const RING: RingAddresses = RingAddresses { descriptors: 0x1000, available: 0x2000, used: 0x3000 };
const STAGED: StagingBuffer = StagingBuffer { adapter: 0, number: 7 };

/// A process in a guest, and one of the host.
struct Stopping {
    kernel_host: Arc<KernelHost>,
    vm: Arc<VmShared>,
    memory: GuestMemoryMmap,
    device: DirectDevice,
    guest: ProcessId,
    host: ProcessId,
}

impl Stopping {
    fn new() -> Stopping {
        let options = Options { clock: Clock::Virtual, ..Options::default() };
        let kernel_host = KernelHost::new(&options).unwrap();
        let vm = VmShared::new(VmId(1), "vm1", &kernel_host, None);
        let bytes = (PAGES + COUNT * PAGE) as usize;
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm.sock");
        let device = DirectDevice::new(3, vm.services(), memory.clone(), socket).unwrap();
        device.start_ring(TRANSMIT, 16, 0, RING);
        let attach = |vm| {
            let (memory, _) = first_memory(&kernel_host.budgets, Peer::Uid(0)).unwrap();
            kernel_host.sessions().attach(vm, 1, String::new(), memory).unwrap().0.id
        };
        let (guest, host) = (attach(VmId(1)), attach(VmId::HOST));
        let session = GuestSession { memory: vm.memory().unwrap(), release: None, quota: Arc::default() };
        let pages = (0..COUNT).map(|page| PAGES + page * PAGE).collect();
        let pages = BackingPages::Guest(GuestPages::of(&Arc::new(session), pages).unwrap());
        kernel_host.sessions().attach_backing(guest, HEAP, COUNT as u32, pages).unwrap();
        let pages = BackingPages::Local(LocalPages::create(1).unwrap().0);
        kernel_host.sessions().attach_backing(host, HEAP, 1, pages).unwrap();
        Stopping { kernel_host, vm, memory, device, guest, host }
    }

    fn at(&self, page: u64) -> MemoryRef {
        MemoryRef::Memory { process: self.guest, address: HEAP + page * PAGE }
    }

    fn fill(&self, page: u64, pattern: u32) -> DmaOp {
        DmaOp::Fill { to: self.at(page), bytes: PAGE, pattern }
    }

    fn copy(&self, from: MemoryRef, to: MemoryRef) -> DmaOp {
        DmaOp::Copy { from, to, bytes: PAGE }
    }

    fn perform(&self, moves: &[DmaOp]) {
        self.kernel_host.lock().perform_moves(moves);
    }

    /// The first word of each of the guest's first pages.
    fn words(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|page| self.memory.read_obj(GuestAddress(PAGES + page * PAGE)).unwrap())
    }

    fn word_of_host(&self) -> u32 {
        let mut word = [0; 4];
        let host_state = self.kernel_host.lock();
        host_state.process_table.backing(self.host).unwrap().read(HEAP, &mut word).unwrap();
        u32::from_le_bytes(word)
    }

    fn stop(&self) -> u16 {
        self.device.stop_ring(TRANSMIT)
    }

    /// QEMU starts the ring; at another position than that at which it stopped, the guest's driver has restarted.
    fn start(&mut self, position: u16) {
        self.device.start_ring(TRANSMIT, 16, position, RING);
    }

    fn driver_runs(&self) -> bool {
        self.vm.memory().unwrap().running().is_some()
    }

    fn holds_nothing(&self) -> bool {
        self.kernel_host.lock().held_moves.is_empty()
    }
}

fn staged(staging_buffer: StagingBuffer) -> MemoryRef {
    MemoryRef::StagingBuffer { staging_buffer, offset: 0 }
}

#[test]
fn engines_write_no_memory_of_a_stopped_guest_and_all_of_it_in_order_before_it_goes_on() {
    let mut vm = Stopping::new();
    vm.perform(&[vm.fill(0, 1)]);
    let position = vm.stop();
    let accumulate = DmaOp::Compute {
        kernel: ComputeOp::Accumulate,
        from: vm.at(0),
        to: vm.at(1),
        bytes: PAGE,
        operand: 0,
    };
    vm.perform(&[accumulate, vm.fill(0, 5), accumulate]);
    vm.perform(&[vm.copy(vm.at(0), staged(STAGED)), vm.fill(0, 6)]);
    vm.perform(&[vm.copy(staged(STAGED), vm.at(2)), DmaOp::Release { staging_buffer: STAGED }]);
    assert_eq!((vm.words(), vm.driver_runs()), ([1, 0, 0, 0], false));
    vm.start(position);
    assert_eq!(vm.words(), [1, 0, 0, 0], "its thread has had no turn yet");
    vm.device.kick();
    assert_eq!((vm.words(), vm.driver_runs(), vm.holds_nothing()), ([6, 6, 5, 0], true, true));
    vm.perform(&[vm.fill(3, 9)]);
    assert_eq!(vm.words(), [6, 6, 5, 9]);
    assert_eq!(vm.kernel_host.lock().dma_executor.staging_buffers(), 0);
}

/// A staging buffer that the engine had filled before the stop keeps its bytes for the guest, although its number is
/// another buffer's by then.
#[test]
fn a_stopped_guest_keeps_its_staging_buffers_and_disturbs_nobody_else() {
    let mut vm = Stopping::new();
    vm.perform(&[vm.fill(0, 1), vm.copy(vm.at(0), staged(STAGED)), vm.fill(0, 2)]);
    let position = vm.stop();
    vm.perform(&[vm.copy(staged(STAGED), vm.at(1)), DmaOp::ReleaseAll { adapter: 0 }]);
    let host = MemoryRef::Memory { process: vm.host, address: HEAP };
    let fill = DmaOp::Fill { to: staged(STAGED), bytes: PAGE, pattern: 8 };
    vm.perform(&[fill, vm.copy(staged(STAGED), host)]);
    assert_eq!((vm.word_of_host(), vm.words()), (8, [2, 0, 0, 0]));
    vm.start(position);
    vm.device.kick();
    assert_eq!((vm.words(), vm.holds_nothing()), ([2, 1, 0, 0], true));
    vm.perform(&[vm.copy(staged(STAGED), vm.at(2)), DmaOp::Release { staging_buffer: STAGED }]);
    assert_eq!(vm.words(), [2, 1, 8, 0]);
}

#[test]
fn what_is_held_for_a_driver_that_is_gone_is_dropped() {
    let mut vm = Stopping::new();
    let position = vm.stop();
    vm.perform(&[vm.fill(0, 1)]);
    vm.start(position.wrapping_add(1));
    vm.device.kick();
    assert_eq!((vm.words(), vm.holds_nothing()), ([0; 4], true));
    vm.perform(&[vm.fill(0, 1)]);
    assert_eq!(
        (vm.words(), vm.holds_nothing()),
        ([0; 4], true),
        "its pages belonged to the driver's former life"
    );

    let vm = Stopping::new();
    vm.stop();
    vm.perform(&[vm.fill(0, 1)]);
    assert!(!vm.holds_nothing());
    let Stopping { kernel_host, device, .. } = vm;
    drop(device);
    assert!(kernel_host.lock().held_moves.is_empty());
}

/// More than is kept of one VM: it does not go on with wrong bytes behind its fences.
#[test]
fn a_guest_for_which_too_much_is_held_loses_its_processes() {
    let mut vm = Stopping::new();
    let position = vm.stop();
    for at in 0..100 {
        vm.perform(&[vm.fill(at % 2, at as u32)]);
    }
    let processes = |vm: &Stopping| vm.kernel_host.sessions().clients_of(VmId(1)).len();
    assert_eq!(processes(&vm), 1);
    vm.start(position);
    vm.device.kick();
    assert_eq!((processes(&vm), vm.words(), vm.holds_nothing()), (0, [0; 4], true));
    assert!(vm.driver_runs());
}

/// An upload buffer, for example, is destroyed behind its copy.
#[test]
fn memory_that_ends_while_a_copy_of_it_is_held_is_released_behind_the_copy() {
    for goes_on in [true, false] {
        let mut vm = Stopping::new();
        let ended = SharedMemory { owner: vm.guest, address: HEAP, bytes: PAGE };
        let hold_ended = |vm: &Stopping| vm.kernel_host.lock().held_moves.hold_ended(VmId(1), &ended);
        let take_ended = |vm: &Stopping| vm.kernel_host.lock().held_moves.take_ended();
        assert!(!hold_ended(&vm), "nothing names it");
        let position = vm.stop();
        vm.perform(&[vm.copy(vm.at(0), vm.at(1))]);
        assert!(hold_ended(&vm) && take_ended(&vm).is_empty());
        vm.start(if goes_on { position } else { position + 1 });
        let mut host_state = vm.kernel_host.lock();
        let HostState { dma_executor, process_table, held_moves, .. } = &mut *host_state;
        assert!(held_moves.perform_some(VmId(1), &mut BackingAccess(process_table), dma_executor));
        drop(host_state);
        assert_eq!(take_ended(&vm), [ended]);
    }
}

/// They may be wakes for what is held.
#[test]
fn packets_to_a_guest_come_behind_what_was_held_for_it() {
    let options = Options { clock: Clock::Virtual, ..Options::default() };
    let vm = VmShared::new(VmId(1), "vm1", &KernelHost::new(&options).unwrap(), None);
    let (mut guest, connection) = TestGuest::connected(&vm, Box::new(Ignored), 1 << 16);
    guest.offer(4, 4096);
    let position = guest.device.stop_ring(TRANSMIT);
    connection.send(b"wake").unwrap();
    assert_eq!(guest.take_received(), b"", "the guest is stopped");
    guest.start_transmit(position);
    assert_eq!(guest.take_received(), b"", "what is held comes first");
    guest.device.kick();
    assert_eq!(guest.take_received(), b"wake");
}

/// However much engines did meanwhile, one turn of the VM's thread performs about as much as a step, and QEMU may stop the
/// guest again between two turns.
#[test]
fn what_was_held_is_performed_a_step_at_a_time() {
    let mut vm = Stopping::new();
    let position = vm.stop();
    let all = COUNT * PAGE;
    for at in (0..all).step_by(MOVED_BYTES_PER_STEP as usize) {
        vm.perform(&[DmaOp::Fill { to: vm.at(0).ahead(at), bytes: MOVED_BYTES_PER_STEP, pattern: 3 }]);
    }
    let turns = all / MOVED_BYTES_PER_STEP;
    let goes_on = |vm: &Stopping| vm.kernel_host.vm_goes_on(VmId(1), &|| ());
    let last = |vm: &Stopping| vm.memory.read_obj::<u32>(GuestAddress(PAGES + all - 4)).unwrap();
    for turn in 1..turns {
        assert!(!goes_on(&vm) && last(&vm) == 0, "turn {turn} of {turns}");
    }
    vm.start(position);
    let position = vm.stop();
    vm.device.kick();
    assert_eq!((last(&vm), vm.driver_runs()), (0, false));
    vm.start(position);
    vm.device.kick();
    assert_eq!((last(&vm), vm.driver_runs()), (3, true));
}
