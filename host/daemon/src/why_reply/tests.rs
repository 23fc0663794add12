//! A planted state in every form. Its text and picture are those of docs/WHY.md: `GPUPV_BLESS=1` writes them.

use std::path::{Path, PathBuf};

use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, Reply, ShareToken, SyncObjectFlags, access, calls, isa,
};
use dxgkrnl::why::{Question, Why};
use dxgkrnl::{Config, Effects, Grant, Input, Kernel, ProcessId, TdrConfig, VmId};
use kmd::SimulatedMiniport;

use timeline::why_picture::to_svg;

use super::{json::to_json, to_reply};

struct Planted {
    kernel: Kernel,
    now: u64,
}

impl Planted {
    fn input(&mut self, input: Input) -> Reply {
        let mut effects = Effects::default();
        self.kernel.handle(self.now, input, &mut effects);
        for answer in &effects.answers {
            assert!(answer.status.is_success(), "{answer}: {:?}", effects.notes);
        }
        effects.answers.into_iter().next().map_or(Reply::None, |answer| answer.reply)
    }

    fn call(&mut self, process: u32, call: Call) -> Reply {
        self.input(Input::Call { process: ProcessId(process), request: 1, call })
    }

    fn process(&mut self, process: u32, vm: u32, name: &str) -> Handle {
        let id = ProcessId(process);
        self.input(Input::ProcessAttached {
            process: id,
            vm: VmId(vm),
            pid: 400 + process,
            name: name.into(),
        });
        self.input(Input::FenceMemoryAdded { process: id, slots: 64 });
        let Reply::Adapters(list) = self.call(process, Call::EnumAdapters { capacity: 1 }) else { panic!() };
        let create = Call::CreateDevice { adapter: list[0].handle, flags: 0 };
        let Reply::Device(device) = self.call(process, create) else { panic!() };
        device
    }

    fn context(&mut self, process: u32, device: Handle, node_ordinal: u32) -> Handle {
        let create = calls::create_context(device, node_ordinal, CreateContextFlags::empty());
        let Reply::Context(context) = self.call(process, create) else { panic!() };
        context
    }

    fn fence(&mut self, process: u32, device: Handle, flags: SyncObjectFlags) -> Handle {
        let create = calls::create_fence(device, 0, flags);
        let Reply::SyncObject(created) = self.call(process, create) else { panic!() };
        created.object
    }

    fn gpu_wait(&mut self, process: u32, context: Handle, fence: Handle, value: u64) {
        self.call(process, calls::gpu_wait(context, fence, value));
    }

    fn gpu_signal(&mut self, process: u32, context: Handle, fence: Handle, value: u64) {
        self.call(process, calls::gpu_signal(context, fence, value));
    }

    fn wait(&mut self, process: u32, device: Handle, fence: Handle, value: u64) {
        self.call(process, calls::wait(device, fence, value, EventId(9)));
    }
}

/// A client in one VM waits for a frame of a compositor in another, whose engine hangs; two queues of a game wait for each
/// other; and a recorder waits for a camera that was killed.
fn planted() -> Why {
    let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let config = Config {
        grants: vec![Grant { name: "frame".into(), vms: vec!["left".into(), "right".into()] }],
        tdr: TdrConfig { level: 0, ..TdrConfig::default() },
        ..Config::default()
    };
    let mut planted = Planted { kernel: Kernel::new(config, SimulatedMiniport::default()), now: 0 };
    for (vm, name) in [(1, "left"), (2, "right")] {
        planted.input(Input::VmAttached { vm: VmId(vm), name: name.into() });
    }
    let device = planted.process(1, 1, "compositor");
    let context = planted.context(1, device, 0);
    let frame = planted.fence(1, device, shared);
    planted.call(1, calls::share(frame, ShareToken([1; 16]), Some("frame")));
    let client_device = planted.process(2, 2, "client");
    let token = ShareToken([2; 16]);
    let (name, desired_access) = ("frame".into(), access::SYNC_OBJECT_ALL_ACCESS);
    planted.call(2, Call::OpenNtHandleFromName { name, desired_access, token, sync_object: true });
    let Reply::SyncObject(opened) = planted.call(2, calls::open(client_device, token)) else { panic!() };
    planted.now = 1_000_000_000;
    planted.call(1, calls::submit(context, isa::encode(&[isa::Packet::Hang])));
    planted.gpu_signal(1, context, frame, 7);
    planted.now = 1_200_000_000;
    planted.wait(2, client_device, opened.object, 7);

    planted.now = 4_000_000_000;
    let device = planted.process(3, 0, "game");
    let (draw, copy) = (planted.context(3, device, 1), planted.context(3, device, 2));
    let none = SyncObjectFlags::empty();
    let (drawn, copied) = (planted.fence(3, device, none), planted.fence(3, device, none));
    planted.gpu_wait(3, draw, copied, 1);
    planted.gpu_signal(3, draw, drawn, 1);
    planted.gpu_wait(3, copy, drawn, 1);
    planted.gpu_signal(3, copy, copied, 1);

    planted.now = 5_000_000_000;
    let device = planted.process(4, 0, "recorder");
    let shot = planted.fence(4, device, shared);
    let token = ShareToken([3; 16]);
    planted.call(4, calls::share(shot, token, None));
    let camera = planted.process(5, 0, "camera <&\">");
    planted.call(5, calls::open(camera, token));
    planted.wait(4, device, shot, 30);
    planted.now = 5_500_000_000;
    planted.input(Input::ProcessGone { process: ProcessId(5) });

    let state = planted.kernel.save().expect("the simulated driver can be saved");
    planted.kernel.why_and_what_if(&Question { now: 9_000_000_000, ..Question::default() }, || {
        Kernel::restore(planted.kernel.config().clone(), SimulatedMiniport::default(), &state).ok()
    })
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn agrees(name: &str, found: &str) {
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(docs(name), found).expect("docs can be written");
    }
    let known = std::fs::read_to_string(docs(name)).expect("docs are there");
    assert!(known == found, "docs/{name} differs from the output: GPUPV_BLESS=1 writes it\n{found}");
}

#[test]
fn the_text_in_the_docs_is_the_output() {
    let page = std::fs::read_to_string(docs("WHY.md")).expect("docs are there");
    let (head, rest) = page.split_once("## What it says\n\n```text\n").expect("the example");
    let (_, tail) = rest.split_once("```\n").expect("its end");
    let text = planted().to_string();
    agrees("WHY.md", &format!("{head}## What it says\n\n```text\n{text}```\n{tail}"));
}

#[test]
fn the_picture_in_the_docs_is_the_output_and_well_formed() {
    let drawn = to_svg(&planted());
    assert_eq!(drawn, to_svg(&planted()), "the same bytes each time");
    agrees("why.svg", &drawn);
    let mut reader = quick_xml::Reader::from_str(&drawn);
    let mut open = 0_i32;
    loop {
        match reader.read_event().expect("well-formed") {
            quick_xml::events::Event::Start(_) => open += 1,
            quick_xml::events::Event::End(_) => open -= 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0);
    assert!(drawn.contains("camera &lt;&amp;"), "names are text");
    assert!(drawn.contains("stroke-dasharray"), "the cycle has its way back");
    let empty = to_svg(&Why::default());
    assert!(empty.contains("nothing waits"), "{empty}");
}

#[test]
fn programs_get_the_fence_the_value_and_the_release_of_each_cause() {
    let why = planted();
    let value = to_json(&why);
    let causes = value["causes"].as_array().expect("a list");
    let of = |verdict: &str| causes.iter().find(|cause| cause["verdict"] == verdict).expect(verdict);
    let hang = of("hang");
    assert_eq!((&hang["root"]["needed"], &hang["root"]["current"]), (&7.into(), &0.into()));
    assert_eq!(hang["root"]["thing"]["name"], "frame");
    assert_eq!((&hang["about"]["adapter"], &hang["about"]["node"]), (&0.into(), &0.into()));
    assert_eq!((&hang["released_by"]["value"], &hang["released_by"]["tried"]), (&7.into(), &true.into()));
    assert_eq!(of("cycle")["about"]["members"], 2);
    assert_eq!(of("cycle")["released_by"]["value"], 1);
    assert_eq!(of("dead-end")["gone"][0]["process"]["process"], 5);
    assert_eq!(of("dead-end")["released_by"]["value"], 30);
    assert!(causes.iter().all(|cause| cause["stuck"] == true));
    let reply = to_reply(&why, false);
    assert_eq!((reply.causes.len(), reply.svg.as_str()), (3, ""));
    assert!(reply.causes.iter().all(|cause| reply.text.contains(cause.text.trim_end())));
}
