//! `gpupv_cmd.h` against this crate: every value, and the bytes of every packet. As C11 and as C++11.

use bitflags::Flags;
use d3dkmt::isa::{
    self, Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, BufferBarrier, FenceValue,
    HeapType, Kernel, LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType, RangedBarrier,
    RangedFlags, ResourceDesc, ResourceFlags, ResourceKind, SubresourceRange, TextureBarrier, TextureFlags,
    Use, UseFlags, WorkKind,
};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/umd/include")
}

/// Compiles a source as C11 and as C++11, and returns both programs.
fn compile(source: &Path) -> [PathBuf; 2] {
    [("gcc", "-std=c11", "c"), ("g++", "-std=c++11", "c++")].map(|(compiler, standard, language)| {
        let name = source.file_stem().expect("a name").to_string_lossy();
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{language}"));
        let output = Command::new(compiler)
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wconversion",
                "-Wpedantic",
                "-Werror",
                "-O1",
                "-x",
                language,
            ])
            .arg("-I")
            .arg(include())
            .arg(source)
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap_or_else(|error| panic!("{compiler} is needed: apt-get install gcc g++: {error}"));
        assert!(output.status.success(), "{compiler}:\n{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

const WORDS: Barrier = Barrier {
    sync_before: BarrierSync::COPY,
    sync_after: BarrierSync::PIXEL_SHADING,
    access_before: BarrierAccess::COPY_DEST,
    access_after: BarrierAccess::SHADER_RESOURCE,
};

fn texture() -> TextureBarrier {
    TextureBarrier {
        barrier: WORDS,
        layout_before: BarrierLayout::COPY_DEST,
        layout_after: BarrierLayout::SHADER_RESOURCE,
        resource: 3,
        flags: TextureFlags::DISCARD,
        subresources: SubresourceRange {
            first_mip: 1,
            mips: 2,
            first_slice: 3,
            slices: 4,
            first_plane: 5,
            planes: 6,
        },
    }
}

fn groups() -> Vec<BarrierGroup> {
    let buffer = |resource, bytes| BufferBarrier { barrier: WORDS, resource, offset: 0, bytes };
    let flags = RangedFlags::ACQUIRE;
    vec![
        BarrierGroup::Global(vec![WORDS]),
        BarrierGroup::Texture(vec![texture()]),
        BarrierGroup::Buffer(vec![buffer(4, isa::WHOLE), buffer(5, 4096)]),
        BarrierGroup::Ranged(vec![RangedBarrier {
            barrier: WORDS,
            resource: 6,
            flags,
            offset: 64,
            bytes: 128,
        }]),
        BarrierGroup::Unknown { kind: 9, barriers: 7 },
    ]
}

/// The packets that `gpupv_cmd.c` builds.
fn packets() -> Vec<Packet> {
    let list = |queue, flags, name: &str| Packet::BeginList { queue, flags, name: name.into() };
    let pixel = Use { flags: UseFlags::PIXEL_STAGE, ..Use::whole(3, BarrierAccess::SHADER_RESOURCE) };
    let uses = vec![
        pixel,
        Use::range(4, BarrierAccess::UNORDERED_ACCESS, 64, 128),
        Use::subresource(5, BarrierAccess::RENDER_TARGET, 7),
    ];
    let work =
        |kind, kernel, operand, duration_ns, uses| Packet::Work { kind, kernel, operand, duration_ns, uses };
    let none = LegacyFlags::empty();
    let transition = LegacyBarrier::Transition {
        flags: LegacyFlags::BEGIN_ONLY,
        resource: 3,
        subresource: 1,
        before: LegacyState::COPY_DEST,
        after: LegacyState::RENDER_TARGET,
    };
    let buffer = BufferBarrier { barrier: WORDS, resource: 4, offset: 0, bytes: isa::WHOLE };
    let fence = |gpu_address, value| FenceValue { gpu_address, value };
    vec![
        Packet::FenceWrite { gpu_address: 0x1000, value: 1 },
        Packet::Busy { duration_ns: 5 },
        Packet::Hang,
        Packet::FenceWait { gpu_address: 0x1040, value: 2 },
        Packet::MarkerIn { gpu_address: 0x1080, value: 3 },
        Packet::MarkerOut { gpu_address: 0x10C0, value: 4 },
        list(QueueType::Compute, ListFlags::BUNDLE, "shadow pass"),
        list(QueueType::VideoEncode, ListFlags::empty(), ""),
        list(QueueType::Direct, ListFlags::empty(), "8 bytes!"),
        work(WorkKind::DrawIndexed, Kernel::Xor, 0x5A5A_5A5A, 1000, uses),
        work(WorkKind::Discard, Kernel::None, 0, 0, vec![]),
        Packet::Barrier { groups: groups() },
        Packet::Barrier { groups: vec![] },
        Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![texture()])] },
        Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![buffer])] },
        Packet::LegacyBarrier {
            barriers: vec![
                transition,
                LegacyBarrier::Aliasing { flags: none, before: 4, after: 5 },
                LegacyBarrier::UnorderedAccess { flags: none, resource: 6 },
            ],
        },
        Packet::SignalBarrier { fence: fence(0x1000, 9), groups: groups()[..2].to_vec() },
        Packet::WaitBarrier {
            fences: vec![fence(0x1000, 1), fence(0x1040, u64::MAX)],
            groups: groups()[2..3].to_vec(),
        },
        Packet::AssertResourceAccess {
            resource: 3,
            subresource: isa::ALL_SUBRESOURCES,
            access: BarrierAccess::COPY_SOURCE,
        },
        Packet::AssertTextureLayout { resource: 3, subresource: 1, layout: BarrierLayout::GENERIC_READ },
        Packet::Timestamp { gpu_address: 0x2000 },
    ]
}

#[test]
fn every_packet_has_the_same_bytes_in_c_and_in_rust() {
    let flags = ResourceFlags::ALLOW_RENDER_TARGET;
    let desc = ResourceDesc { mips: 3, flags, ..ResourceDesc::texture("albedo", 0x10_0000, (16, 16)) };
    let desc = desc.with_packed_bytes();
    let right = [isa::encode(&packets()), desc.encode()].concat();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpupv_cmd.c");
    for program in compile(&source) {
        let output = Command::new(&program).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {:?} {errors}", program.display(), output.status);
        assert_eq!(output.stdout, right, "{}", program.display());
    }
    let (list, described) = right.split_at(right.len() - ResourceDesc::SIZE);
    assert_eq!(isa::decode(list), Ok(isa::CommandBuffer::Packets(packets())));
    assert_eq!(ResourceDesc::decode(described), Ok(desc));
}

/// The C form of a name: `DrawIndexed` is `DRAW_INDEXED`.
fn upper(name: &impl Debug) -> String {
    let name = format!("{name:?}");
    let mut upper = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() && !name[..at].ends_with(|before: char| before.is_ascii_digit()) {
            upper.push('_');
        }
        upper.push(letter.to_ascii_uppercase());
    }
    upper
}

fn bits<F: Flags<Bits = u32>>() -> Vec<(String, u32)> {
    F::FLAGS.iter().map(|flag| (flag.name().to_owned(), flag.value().bits())).collect()
}

fn numbers<T: Debug + Copy>(all: &[T], value: impl Fn(T) -> u32) -> Vec<(String, u32)> {
    all.iter().map(|one| (upper(one), value(*one))).collect()
}

/// Prefix, every value with such a name, and names that are aliases of another.
type Prefixed = (&'static str, Vec<(String, u32)>, &'static [&'static str]);

fn values() -> Vec<Prefixed> {
    let layouts = BarrierLayout::ALL.iter().map(|(layout, name)| ((*name).to_owned(), layout.0)).collect();
    vec![
        ("SYNC", bits::<BarrierSync>(), &["NONE", "INPUT_ASSEMBLER", "PREDICATION"]),
        ("ACCESS", bits::<BarrierAccess>(), &["COMMON", "PREDICATION"]),
        ("LAYOUT", layouts, &["PRESENT"]),
        ("STATE", bits::<LegacyState>(), &["COMMON", "PRESENT", "PREDICATION"]),
        ("QUEUE", numbers(&QueueType::ALL, |queue| queue as u32), &[]),
        ("WORK", numbers(WorkKind::ALL, |kind| kind as u32), &[]),
        ("KERNEL", numbers(Kernel::ALL, |kernel| kernel as u32), &[]),
        ("USE", bits::<UseFlags>(), &[]),
        ("TEXTURE", bits::<TextureFlags>(), &[]),
        ("RANGED", bits::<RangedFlags>(), &[]),
        ("RESOURCE", bits::<ResourceFlags>(), &[]),
        ("KIND", numbers(ResourceKind::ALL, |kind| kind as u32), &[]),
        ("HEAP", numbers(HeapType::ALL, |heap| heap as u32), &[]),
    ]
}

#[test]
fn every_value_of_the_header_is_the_value_here() {
    let text = std::fs::read_to_string(include().join("gpupv_cmd.h")).expect("the header");
    let mut source = String::from("#include <gpupv_cmd.h>\n");
    for (prefix, values, others) in values() {
        let defined =
            text.lines().filter(|line| line.starts_with(&format!("#define GPUPV_{prefix}_"))).count();
        assert_eq!(defined, values.len() + others.len(), "values of {prefix}");
        for (name, value) in &values {
            source +=
                &format!("GPUPV_CMD_ASSERT(GPUPV_{prefix}_{name} == {value:#x}u, \"{prefix} {name}\");\n");
        }
    }
    for (name, opcode) in [
        ("BEGIN_LIST", isa::opcode::BEGIN_LIST),
        ("WORK", isa::opcode::WORK),
        ("BARRIER", isa::opcode::BARRIER),
        ("LEGACY_BARRIER", isa::opcode::LEGACY_BARRIER),
        ("SIGNAL_BARRIER", isa::opcode::SIGNAL_BARRIER),
        ("WAIT_BARRIER", isa::opcode::WAIT_BARRIER),
        ("ASSERT_RESOURCE_ACCESS", isa::opcode::ASSERT_RESOURCE_ACCESS),
        ("ASSERT_TEXTURE_LAYOUT", isa::opcode::ASSERT_TEXTURE_LAYOUT),
        ("TIMESTAMP", isa::opcode::TIMESTAMP),
    ] {
        source += &format!("GPUPV_CMD_ASSERT(GPUPV_OP_{name} == {opcode}u, \"opcode {name}\");\n");
    }
    let names = d3dkmt::limits::LIST_NAME_BYTES_MAX;
    source += &format!("GPUPV_CMD_ASSERT(GPUPV_LIST_NAME_BYTES_MAX == {names}u, \"names\");\n");
    source += "int main(void) { return 0; }\n";
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("values.c");
    std::fs::write(&path, source).expect("the folder of tests is writable");
    compile(&path);
}

/// The union of the flags that `names` lists, separated by spaces.
fn sum<F: Flags<Bits = u32>>(names: &str) -> F {
    names.split_whitespace().fold(F::empty(), |sum, name| {
        let bit = if name == "COMMON" {
            F::empty()
        } else {
            F::from_name(name).unwrap_or_else(|| panic!("{name}"))
        };
        sum.union(bit)
    })
}

#[test]
fn docs_commands_has_the_scopes_and_kernels_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMMANDS.md");
    let text = std::fs::read_to_string(path).expect("docs/COMMANDS.md");
    let row = |head: String| {
        let start = format!("| {head} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|line| line.strip_suffix(" |")).unwrap_or_else(|| panic!("no row of {head}"))
    };
    for kind in WorkKind::ALL {
        let cells: Vec<(BarrierAccess, BarrierSync)> = row(format!("{} {kind:?}", *kind as u32))
            .split("; ")
            .map(|cell| cell.split_once(": ").expect("accesses: scopes"))
            .flat_map(|(accesses, scopes)| accesses.split(' ').map(move |access| (sum(access), sum(scopes))))
            .collect();
        for access in BarrierAccess::all().iter().chain([BarrierAccess::COMMON]) {
            let written =
                cells.iter().find(|(one, _)| *one == access).map_or(BarrierSync::NONE, |(_, scope)| *scope);
            assert_eq!(isa::scope(*kind, access), written, "{kind:?} {access:?}");
        }
    }
    for kernel in Kernel::ALL {
        row(format!("{} {kernel:?}", *kernel as u32));
    }
    for (packet, bytes) in packets().iter().map(|packet| (packet, isa::encode(std::slice::from_ref(packet))))
    {
        let opcode = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let name = format!("{packet:?}");
        let name = name.split([' ', '(']).next().unwrap();
        row(format!("{opcode} | {name}"));
    }
}
