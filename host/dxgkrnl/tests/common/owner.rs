//! A kernel with the simulated driver, and a process that owns many objects of one kind.
#![allow(dead_code)]

use d3dkmt::isa::{self, Packet};
use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, EventId, Handle, HwQueueFlags, Luid, Reply, ShareToken,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, calls,
};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmConfig, VmId};
use kmd::SimulatedMiniport;

pub struct World {
    pub kernel: Kernel,
    pub request: u64,
}

impl World {
    /// No memory limit for VMs.
    pub fn new() -> Self {
        let vm = |name: &str| VmConfig { name: name.into(), memory_bytes: 1 << 40, ..VmConfig::default() };
        let config = Config { vms: vec![vm("owner"), vm("strangers")], ..Config::default() };
        World { kernel: Kernel::new(config, SimulatedMiniport::default()), request: 1 << 32 }
    }

    pub fn ok(&mut self, process: ProcessId, call: Call) -> Reply {
        self.request += 1;
        let (request, mut effects) = (self.request, Effects::default());
        self.kernel.handle(0, Input::Call { process, request, call: call.clone() }, &mut effects);
        while effects.answers.is_empty() && self.kernel.has_backlog() {
            self.kernel.handle(0, Input::Deadline, &mut effects);
        }
        let answer = effects.answers.pop().expect("the call has an answer");
        assert!(answer.status.is_success(), "{call:?}: {:?} {:?}", answer.status, effects.notes);
        answer.reply
    }
}

pub fn first_luid() -> Luid {
    Config::default().adapters[0].luid
}

/// A process that owns many objects.
pub struct Owner {
    pub world: World,
    pub process: ProcessId,
    pub adapter: Handle,
    pub device: Handle,
    pub fence: Handle,
    pub context: Handle,
    /// A paging queue, if the case has one.
    pub queue: Handle,
    pub event: u64,
    /// Handles of the objects that a case is about.
    pub objects: Vec<Handle>,
    /// When the case ends.
    pub now: u64,
}

pub const OWNER: ProcessId = ProcessId(1);

impl Owner {
    pub fn ok(&mut self, call: Call) -> Reply {
        self.world.ok(self.process, call)
    }

    pub fn call(&self, call: Call) -> Input {
        Input::Call { process: self.process, request: 1, call }
    }

    pub fn new(count: u32) -> Owner {
        Self::attach(World::new(), OWNER, VmId(1), count + 64)
    }

    /// Attaches a process of a VM that is new, with as many fence slots.
    pub fn attach(mut world: World, process: ProcessId, vm: VmId, slots: u32) -> Owner {
        let name = || "owner".to_owned();
        let mut input = |input| world.kernel.handle(0, input, &mut Effects::default());
        input(Input::VmAttached { vm, name: name() });
        input(Input::ProcessAttached { process, vm, pid: process.0, name: name() });
        input(Input::FenceMemoryAdded { process, slots });
        Self::of(world, process)
    }

    /// The objects that the cases need, of a process that is attached.
    pub fn of(mut world: World, process: ProcessId) -> Owner {
        let Reply::Adapter(adapter) = world.ok(process, Call::OpenAdapterFromLuid { luid: first_luid() })
        else {
            panic!("no adapter")
        };
        let mut owner = Owner {
            world,
            process,
            adapter,
            device: Handle::NULL,
            fence: Handle::NULL,
            context: Handle::NULL,
            queue: Handle::NULL,
            event: 0,
            objects: Vec::new(),
            now: 0,
        };
        owner.device = owner.new_device();
        owner.fence = owner.new_fence(owner.device);
        owner.context = owner.new_context();
        owner
    }

    pub fn new_device(&mut self) -> Handle {
        let adapter = self.adapter;
        let Reply::Device(device) = self.ok(Call::CreateDevice { adapter, flags: 0 }) else {
            panic!("no device")
        };
        device
    }

    pub fn new_fence(&mut self, device: Handle) -> Handle {
        let create = calls::create_fence(device, 0, SyncObjectFlags::empty());
        let Reply::SyncObject(created) = self.ok(create) else { panic!("no fence") };
        created.object
    }

    pub fn new_context(&mut self) -> Handle {
        let create = calls::create_context(self.device, 0, CreateContextFlags::empty());
        let Reply::Context(context) = self.ok(create) else { panic!("no context") };
        context
    }

    pub fn wait(&mut self, value: u64) {
        self.event += 1;
        self.ok(calls::wait(self.device, self.fence, value, EventId(self.event)));
    }

    pub fn waits(&mut self, count: u32) {
        (0..count).for_each(|at| self.wait(u64::from(at % 3) + 1));
    }

    pub fn signal(&self, value: u64) -> Input {
        self.call(calls::signal(self.device, self.fence, value))
    }

    /// Signals queued behind a wait for the fence.
    pub fn packets(&mut self, count: u32) {
        self.ok(calls::gpu_wait(self.context, self.fence, 1));
        let other = self.new_fence(self.device);
        for value in 1..=u64::from(count) {
            self.ok(calls::gpu_signal(self.context, other, value));
        }
    }

    pub fn devices(&mut self, count: u32) {
        (0..count).for_each(|_| _ = self.new_device());
    }

    pub fn fences(&mut self, count: u32) {
        (0..count).for_each(|_| _ = self.new_fence(self.device));
    }

    pub fn contexts(&mut self, count: u32) {
        (0..count).for_each(|_| _ = self.new_context());
    }

    pub fn queue_waits(&mut self, count: u32) {
        for _ in 0..count {
            let context = self.new_context();
            self.ok(calls::gpu_wait(context, self.fence, 1));
        }
    }

    /// Queues that wait for two semaphores, both at zero. `fence` is the first.
    pub fn line(&mut self, count: u32) {
        let device = self.device;
        let mut semaphore = || {
            let object_type = SyncObjectType::SEMAPHORE;
            let info = SyncObjectInfo { object_type, max_count: 9, ..SyncObjectInfo::default() };
            let create = calls::create_object(device, info);
            let Reply::SyncObject(created) = self.ok(create) else { panic!("no semaphore") };
            created.object
        };
        let objects = [semaphore(), semaphore()];
        self.fence = objects[0];
        for _ in 0..count {
            let context = self.new_context();
            self.ok(calls::acquire(context, &objects));
        }
    }

    /// Command buffers with the engine, one after the other.
    /// Contexts whose destruction waits for a signal.
    pub fn ending_contexts(&mut self, count: u32) {
        for _ in 0..count {
            let context = self.new_context();
            self.ok(calls::gpu_wait(context, self.fence, 1));
            let input = self.call(Call::DestroyContext { context });
            let mut effects = Effects::default();
            self.world.kernel.handle(0, input, &mut effects);
            assert!(effects.answers.is_empty(), "the call waits");
        }
    }

    pub fn hw_buffers(&mut self, count: u32) {
        let create = calls::create_context(self.device, 2, CreateContextFlags::HW_QUEUE_SUPPORTED);
        let Reply::Context(context) = self.ok(create) else { panic!("no context") };
        let create = calls::create_hw_queue(context, HwQueueFlags::empty());
        let Reply::HwQueue { queue, .. } = self.ok(create) else { panic!("no hardware queue") };
        for progress_fence_id in 1..=u64::from(count) {
            self.ok(calls::submit_to_hw_queue(queue, progress_fence_id, vec![0xEE; 8]));
        }
        self.context = context;
    }

    pub fn native_fences(&mut self, count: u32) {
        for _ in 0..count {
            self.ok(calls::create_native_fence(self.device, SyncObjectFlags::empty()));
        }
    }

    /// Fences with an NT handle each and no other handle.
    pub fn nt_handles(&mut self, count: u32) {
        for number in 0..count {
            let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
            let object = self.create_fence(flags).object;
            let mut token = ShareToken([0; 16]);
            token.0[..4].copy_from_slice(&number.to_le_bytes());
            self.ok(calls::share(object, token, None));
            self.ok(Call::DestroySynchronizationObject { object });
        }
    }

    pub fn create_fence(&mut self, flags: SyncObjectFlags) -> CreatedSyncObject {
        let create = calls::create_fence(self.device, 0, flags);
        let Reply::SyncObject(created) = self.ok(create) else { panic!("no fence") };
        created
    }

    /// Shared fences that an engine of the basic kind writes twice, in one buffer. It completes at `now`, and has to
    /// have their waits evaluated then.
    pub fn written_fences(&mut self, count: u32) {
        const VIDEO_DECODE: u32 = 3;
        let duration_ns = 10_000_000;
        let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let fences: Vec<u64> = (0..count).map(|_| self.create_fence(shared).gpu_address).collect();
        let writes = |value| {
            fences.iter().map(move |gpu_address| Packet::FenceWrite { gpu_address: *gpu_address, value })
        };
        let packets: Vec<Packet> = writes(1).chain(writes(2)).chain([Packet::Busy { duration_ns }]).collect();
        self.submit(VIDEO_DECODE, &packets);
        let kernel = &mut self.world.kernel;
        loop {
            self.now = kernel.next_deadline().expect("a buffer runs");
            if self.now >= duration_ns {
                return;
            }
            kernel.handle(self.now, Input::Deadline, &mut Effects::default());
        }
    }

    /// Submits a buffer to a context of its own on this node.
    pub fn submit(&mut self, node_ordinal: u32, packets: &[Packet]) {
        let create = calls::create_context(self.device, node_ordinal, CreateContextFlags::empty());
        let Reply::Context(context) = self.ok(create) else { panic!("no context") };
        self.ok(calls::submit(context, isa::encode(packets)));
    }

    pub fn process_gone(&self) -> Input {
        Input::ProcessGone { process: self.process }
    }
}
