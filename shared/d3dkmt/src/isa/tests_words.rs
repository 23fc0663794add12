//! Compares the enums and flags with their published names and values, which stand here as text.

use covers::covers;

use super::{
    BarrierAccess, BarrierLayout, BarrierSync, LegacyState, RangedFlags, ScopeReading, TextureFlags, Use,
    UseFlags, WorkKind, other_scopes, scope,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bitflags::Flags;

/// `NAME value` on each line, as the flags of a type report them.
fn listed<F: Flags<Bits = u32>>() -> Vec<String> {
    F::FLAGS.iter().map(|flag| format!("{} {:#x}", flag.name(), flag.value().bits())).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.split(", ").map(str::trim).collect()
}

const SYNC: &str = "ALL 0x1, DRAW 0x2, INDEX_INPUT 0x4, VERTEX_SHADING 0x8, PIXEL_SHADING 0x10, \
    DEPTH_STENCIL 0x20, RENDER_TARGET 0x40, COMPUTE_SHADING 0x80, RAYTRACING 0x100, COPY 0x200, RESOLVE 0x400, \
    EXECUTE_INDIRECT 0x800, ALL_SHADING 0x1000, NON_PIXEL_SHADING 0x2000, EMIT_RTAS_POSTBUILD_INFO 0x4000, \
    CLEAR_UNORDERED_ACCESS_VIEW 0x8000, VIDEO_DECODE 0x100000, VIDEO_PROCESS 0x200000, VIDEO_ENCODE 0x400000, \
    BUILD_RTAS 0x800000, COPY_RTAS 0x1000000, SPLIT 0x80000000";

#[test]
fn sync_bits_have_the_published_values() {
    covers!("BAR-001");
    assert_eq!(listed::<BarrierSync>(), lines(SYNC));
    assert_eq!(BarrierSync::from_bits_retain(0x0001_0001).unknown(), 0x0001_0000);
}

#[test]
fn two_names_of_one_value_are_one_value() {
    covers!("BAR-002");
    assert_eq!(BarrierSync::INPUT_ASSEMBLER.bits(), 0x4);
    assert_eq!(BarrierSync::INPUT_ASSEMBLER, BarrierSync::INDEX_INPUT);
    assert_eq!(BarrierSync::PREDICATION.bits(), 0x800);
    assert_eq!(BarrierSync::PREDICATION, BarrierSync::EXECUTE_INDIRECT);
    assert_eq!(BarrierAccess::PREDICATION, BarrierAccess::INDIRECT_ARGUMENT);
}

#[test]
fn none_is_no_bit_at_all() {
    covers!("BAR-003");
    assert_eq!(BarrierSync::NONE.bits(), 0);
    assert_eq!(BarrierSync::NONE | BarrierSync::COPY, BarrierSync::COPY, "it cannot stand beside another");
}

const ACCESS: &str = "VERTEX_BUFFER 0x1, CONSTANT_BUFFER 0x2, INDEX_BUFFER 0x4, RENDER_TARGET 0x8, \
    UNORDERED_ACCESS 0x10, DEPTH_STENCIL_WRITE 0x20, DEPTH_STENCIL_READ 0x40, SHADER_RESOURCE 0x80, \
    STREAM_OUTPUT 0x100, INDIRECT_ARGUMENT 0x200, COPY_DEST 0x400, COPY_SOURCE 0x800, RESOLVE_DEST 0x1000, \
    RESOLVE_SOURCE 0x2000, RTAS_READ 0x4000, RTAS_WRITE 0x8000, SHADING_RATE_SOURCE 0x10000, \
    VIDEO_DECODE_READ 0x20000, VIDEO_DECODE_WRITE 0x40000, VIDEO_PROCESS_READ 0x80000, \
    VIDEO_PROCESS_WRITE 0x100000, VIDEO_ENCODE_READ 0x200000, VIDEO_ENCODE_WRITE 0x400000, \
    GLOBAL 0x40000000, NO_ACCESS 0x80000000";

#[test]
fn access_bits_have_the_published_values() {
    covers!("BAR-009");
    assert_eq!(listed::<BarrierAccess>(), lines(ACCESS));
    assert_eq!(BarrierAccess::COMMON.bits(), 0);
}

const LAYOUTS: &str = "COMMON, GENERIC_READ, RENDER_TARGET, UNORDERED_ACCESS, DEPTH_STENCIL_WRITE, \
    DEPTH_STENCIL_READ, SHADER_RESOURCE, COPY_SOURCE, COPY_DEST, RESOLVE_SOURCE, RESOLVE_DEST, \
    SHADING_RATE_SOURCE, VIDEO_DECODE_READ, VIDEO_DECODE_WRITE, VIDEO_PROCESS_READ, VIDEO_PROCESS_WRITE, \
    VIDEO_ENCODE_READ, VIDEO_ENCODE_WRITE, DIRECT_QUEUE_COMMON, DIRECT_QUEUE_GENERIC_READ, \
    DIRECT_QUEUE_UNORDERED_ACCESS, DIRECT_QUEUE_SHADER_RESOURCE, DIRECT_QUEUE_COPY_SOURCE, \
    DIRECT_QUEUE_COPY_DEST, COMPUTE_QUEUE_COMMON, COMPUTE_QUEUE_GENERIC_READ, \
    COMPUTE_QUEUE_UNORDERED_ACCESS, COMPUTE_QUEUE_SHADER_RESOURCE, COMPUTE_QUEUE_COPY_SOURCE, \
    COMPUTE_QUEUE_COPY_DEST, VIDEO_QUEUE_COMMON, DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE";

#[test]
fn layouts_have_the_published_values() {
    covers!("BAR-010");
    for (value, name) in lines(LAYOUTS).into_iter().enumerate() {
        assert_eq!(format!("{:?}", BarrierLayout(value as u32)), name);
    }
    assert_eq!(lines(LAYOUTS).len(), 32);
    assert_eq!(BarrierLayout::UNDEFINED.0, 0xFFFF_FFFF);
    assert_eq!(BarrierLayout::PRESENT.0, 0);
    assert_eq!(BarrierLayout::LEGACY_COPY_SOURCE.0, 0x8000_0000);
    assert_eq!(BarrierLayout::LEGACY_PIXEL_SHADER_RESOURCE.0, 0x8000_0003);
    assert_eq!(format!("{:?}", BarrierLayout(32)), "0x20", "there is no more");
}

const STATES: &str = "VERTEX_AND_CONSTANT_BUFFER 0x1, INDEX_BUFFER 0x2, RENDER_TARGET 0x4, \
    UNORDERED_ACCESS 0x8, DEPTH_WRITE 0x10, DEPTH_READ 0x20, NON_PIXEL_SHADER_RESOURCE 0x40, \
    PIXEL_SHADER_RESOURCE 0x80, STREAM_OUT 0x100, INDIRECT_ARGUMENT 0x200, COPY_DEST 0x400, COPY_SOURCE 0x800, \
    RESOLVE_DEST 0x1000, RESOLVE_SOURCE 0x2000, VIDEO_DECODE_READ 0x10000, VIDEO_DECODE_WRITE 0x20000, \
    VIDEO_PROCESS_READ 0x40000, VIDEO_PROCESS_WRITE 0x80000, VIDEO_ENCODE_READ 0x200000, \
    RAYTRACING_ACCELERATION_STRUCTURE 0x400000, VIDEO_ENCODE_WRITE 0x800000, SHADING_RATE_SOURCE 0x1000000";

#[test]
fn flags_and_states_have_the_published_values() {
    assert_eq!(listed::<LegacyState>(), lines(STATES));
    assert_eq!(listed::<TextureFlags>(), ["DISCARD 0x1"]);
    assert_eq!(listed::<RangedFlags>(), ["ATOMIC_COPY 0x1", "ACQUIRE 0x2", "RELEASE 0x4"]);
}

fn sync(names: &str) -> BarrierSync {
    bitflags::parser::from_str_strict(names).map_err(|_| names).expect("names of bits")
}

fn access(names: &str) -> BarrierAccess {
    bitflags::parser::from_str_strict(names).map_err(|_| names).expect("names of bits")
}

#[test]
fn umbrellas_stand_for_every_scope_below_them() {
    covers!("BAR-008");
    let draw = "INDEX_INPUT | VERTEX_SHADING | PIXEL_SHADING | DEPTH_STENCIL | RENDER_TARGET";
    assert_eq!(BarrierSync::DRAW.expanded(), sync(draw));
    let shading = "VERTEX_SHADING | COMPUTE_SHADING | RAYTRACING";
    assert_eq!(BarrierSync::NON_PIXEL_SHADING.expanded(), sync(shading));
    assert_eq!(BarrierSync::ALL_SHADING.expanded(), sync(shading) | BarrierSync::PIXEL_SHADING);
    let all = sync("ALL | DRAW | ALL_SHADING | NON_PIXEL_SHADING | SPLIT");
    assert_eq!(BarrierSync::ALL.expanded(), BarrierSync::all() - all, "every bit that is no umbrella");
    for bit in BarrierSync::all().iter().filter(|bit| !all.intersects(*bit)) {
        assert_eq!(bit.expanded(), bit);
    }
    assert_eq!((BarrierSync::SPLIT.expanded(), BarrierSync::NONE.expanded()), (sync(""), sync("")));
    assert_eq!(sync("DRAW | COPY").expanded(), sync(draw) | BarrierSync::COPY);
}

/// Each kind of work with each access that it can have, and the scope of that access.
const SCOPES: &str = "\
Draw CONSTANT_BUFFER VERTEX_SHADING | PIXEL_SHADING
Draw SHADER_RESOURCE VERTEX_SHADING | PIXEL_SHADING
Draw UNORDERED_ACCESS VERTEX_SHADING | PIXEL_SHADING
Draw RTAS_READ VERTEX_SHADING | PIXEL_SHADING
Draw VERTEX_BUFFER VERTEX_SHADING
Draw STREAM_OUTPUT VERTEX_SHADING
Draw RENDER_TARGET RENDER_TARGET
Draw DEPTH_STENCIL_WRITE DEPTH_STENCIL
Draw DEPTH_STENCIL_READ DEPTH_STENCIL
Draw SHADING_RATE_SOURCE PIXEL_SHADING
Draw INDIRECT_ARGUMENT EXECUTE_INDIRECT
Dispatch CONSTANT_BUFFER COMPUTE_SHADING
Dispatch SHADER_RESOURCE COMPUTE_SHADING
Dispatch UNORDERED_ACCESS COMPUTE_SHADING
Dispatch RTAS_READ COMPUTE_SHADING
Dispatch INDIRECT_ARGUMENT EXECUTE_INDIRECT
DispatchRays CONSTANT_BUFFER RAYTRACING
DispatchRays SHADER_RESOURCE RAYTRACING
DispatchRays UNORDERED_ACCESS RAYTRACING
DispatchRays RTAS_READ RAYTRACING
DispatchRays INDIRECT_ARGUMENT EXECUTE_INDIRECT
Copy COPY_SOURCE COPY
Copy COPY_DEST COPY
Resolve RESOLVE_SOURCE RESOLVE
Resolve RESOLVE_DEST RESOLVE
ClearRenderTarget RENDER_TARGET RENDER_TARGET
ClearDepthStencil DEPTH_STENCIL_WRITE DEPTH_STENCIL
ClearUnorderedAccess UNORDERED_ACCESS CLEAR_UNORDERED_ACCESS_VIEW
BuildRtas RTAS_READ BUILD_RTAS
BuildRtas RTAS_WRITE BUILD_RTAS
BuildRtas SHADER_RESOURCE BUILD_RTAS
BuildRtas UNORDERED_ACCESS BUILD_RTAS
CopyRtas RTAS_READ COPY_RTAS
CopyRtas RTAS_WRITE COPY_RTAS
EmitRtasPostbuildInfo RTAS_READ EMIT_RTAS_POSTBUILD_INFO
EmitRtasPostbuildInfo UNORDERED_ACCESS EMIT_RTAS_POSTBUILD_INFO
VideoDecode VIDEO_DECODE_READ VIDEO_DECODE
VideoDecode VIDEO_DECODE_WRITE VIDEO_DECODE
VideoProcess VIDEO_PROCESS_READ VIDEO_PROCESS
VideoProcess VIDEO_PROCESS_WRITE VIDEO_PROCESS
VideoEncode VIDEO_ENCODE_READ VIDEO_ENCODE
VideoEncode VIDEO_ENCODE_WRITE VIDEO_ENCODE
SetGraphicsRoot CONSTANT_BUFFER DRAW
SetGraphicsRoot SHADER_RESOURCE DRAW
SetGraphicsRoot UNORDERED_ACCESS DRAW
SetComputeRoot CONSTANT_BUFFER COMPUTE_SHADING
SetComputeRoot SHADER_RESOURCE COMPUTE_SHADING
SetComputeRoot UNORDERED_ACCESS COMPUTE_SHADING
DispatchMesh CONSTANT_BUFFER VERTEX_SHADING | PIXEL_SHADING
DispatchMesh SHADER_RESOURCE VERTEX_SHADING | PIXEL_SHADING
DispatchMesh UNORDERED_ACCESS VERTEX_SHADING | PIXEL_SHADING
DispatchMesh RTAS_READ VERTEX_SHADING | PIXEL_SHADING
DispatchMesh RENDER_TARGET RENDER_TARGET
DispatchMesh DEPTH_STENCIL_WRITE DEPTH_STENCIL
DispatchMesh DEPTH_STENCIL_READ DEPTH_STENCIL
DispatchMesh SHADING_RATE_SOURCE PIXEL_SHADING
DispatchMesh INDIRECT_ARGUMENT EXECUTE_INDIRECT
Discard RENDER_TARGET RENDER_TARGET
Discard DEPTH_STENCIL_WRITE DEPTH_STENCIL
Discard UNORDERED_ACCESS COMPUTE_SHADING";

#[test]
fn every_access_of_every_command_is_in_its_scope_and_in_no_other() {
    covers!("BAR-004", "BAR-005");
    let mut table = SCOPES.lines().map(|line| {
        let (kind, rest) = line.split_once(' ').unwrap();
        let (access, scope) = rest.split_once(' ').unwrap();
        (kind, access, sync(scope))
    });
    let rows: Vec<_> = table.by_ref().collect();
    for kind in WorkKind::ALL {
        if matches!(kind, WorkKind::Present | WorkKind::ExecuteIndirect | WorkKind::DrawIndexed) {
            continue;
        }
        for bit in BarrierAccess::all().iter().chain([BarrierAccess::COMMON]) {
            let row =
                rows.iter().find(|(name, allowed, _)| *name == format!("{kind:?}") && access(allowed) == bit);
            let right = row.map_or(BarrierSync::NONE, |(_, _, scope)| *scope);
            assert_eq!(scope(*kind, bit), right, "{kind:?} {bit:?}");
        }
    }
    // The others are made of these.
    for bit in BarrierAccess::all().iter() {
        let index = bit == BarrierAccess::INDEX_BUFFER;
        let (draw, dispatch) = (scope(WorkKind::Draw, bit), scope(WorkKind::Dispatch, bit));
        let drawn = if index { BarrierSync::INDEX_INPUT } else { draw };
        assert_eq!(scope(WorkKind::DrawIndexed, bit), drawn);
        assert_eq!(scope(WorkKind::ExecuteIndirect, bit), drawn | dispatch);
        assert_eq!(scope(WorkKind::Present, bit), BarrierSync::NONE);
        // All of a draw is in DRAW, all of a dispatch in COMPUTE_SHADING, except for what both fetch.
        assert!((BarrierSync::DRAW.expanded() | BarrierSync::PREDICATION).contains(draw | drawn));
        assert!((BarrierSync::COMPUTE_SHADING | BarrierSync::PREDICATION).contains(dispatch));
    }
}

#[test]
fn all_work_is_in_the_scope_all() {
    covers!("BAR-007");
    for kind in WorkKind::ALL {
        for bit in BarrierAccess::all().iter().chain([BarrierAccess::COMMON]) {
            assert!(BarrierSync::ALL.expanded().contains(scope(*kind, bit).expanded()), "{kind:?} {bit:?}");
        }
    }
}

#[test]
fn a_stage_that_is_named_narrows_the_scope() {
    let pixel = Use { flags: UseFlags::PIXEL_STAGE, ..Use::whole(1, BarrierAccess::SHADER_RESOURCE) };
    assert_eq!(pixel.scope(WorkKind::Draw), BarrierSync::PIXEL_SHADING);
    assert_eq!(pixel.scope(WorkKind::Dispatch), BarrierSync::COMPUTE_SHADING, "a stage it does not have");
    let both = Use { flags: UseFlags::PIXEL_STAGE | UseFlags::VERTEX_STAGE, ..pixel };
    assert_eq!(both.scope(WorkKind::ExecuteIndirect), sync("PIXEL_SHADING | VERTEX_SHADING"));
}

#[test]
fn readings_add_scopes_to_indirect_calls_and_to_vertex_buffers_alone() {
    let both = ScopeReading { indirect_execution: true, vertex_buffers: true };
    for kind in WorkKind::ALL {
        for bit in BarrierAccess::all().iter().chain([BarrierAccess::COMMON]) {
            let has = !scope(*kind, bit).is_empty();
            let indirect = has && *kind == WorkKind::ExecuteIndirect;
            let vertices = has && bit == BarrierAccess::VERTEX_BUFFER;
            let one = |is, name| if is { sync(name) } else { BarrierSync::NONE };
            let right = one(indirect, "EXECUTE_INDIRECT") | one(vertices, "INDEX_INPUT");
            assert_eq!(other_scopes(*kind, bit, both), right, "{kind:?} {bit:?}");
            assert_eq!(other_scopes(*kind, bit, ScopeReading::default()), BarrierSync::NONE);
        }
    }
}

#[test]
fn every_stage_before_the_rasterizer_is_in_vertex_shading_and_in_its_own_command_alone() {
    covers!("BAR-006");
    let of = |kind, flags| Use { flags, ..Use::whole(1, BarrierAccess::SHADER_RESOURCE) }.scope(kind);
    let names = "VERTEX HULL DOMAIN GEOMETRY AMPLIFICATION MESH PIXEL COMPUTE";
    for name in names.split(' ') {
        let flag = UseFlags::from_name(&format!("{name}_STAGE")).unwrap();
        let own = match name {
            "PIXEL" => BarrierSync::PIXEL_SHADING,
            "COMPUTE" => BarrierSync::COMPUTE_SHADING,
            _ => BarrierSync::VERTEX_SHADING,
        };
        let commands: &[(WorkKind, bool)] = &[
            (WorkKind::Draw, matches!(name, "VERTEX" | "HULL" | "DOMAIN" | "GEOMETRY" | "PIXEL")),
            (WorkKind::DrawIndexed, matches!(name, "VERTEX" | "HULL" | "DOMAIN" | "GEOMETRY" | "PIXEL")),
            (WorkKind::DispatchMesh, matches!(name, "AMPLIFICATION" | "MESH" | "PIXEL")),
            (WorkKind::Dispatch, name == "COMPUTE"),
            (WorkKind::ExecuteIndirect, true),
        ];
        for (kind, has) in commands {
            let right = if *has { own } else { scope(*kind, BarrierAccess::SHADER_RESOURCE) };
            assert_eq!(of(*kind, flag), right, "{kind:?} {name}");
        }
    }
    assert_eq!(UseFlags::all().iter().count(), 9, "these eight, and ONLY_READS");
}
