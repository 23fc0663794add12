//! Size, alignment and every offset of the C ABI on x86-64, asserted at compile time (reference
//! abi.md sections 2 to 8).

use std::mem::offset_of;

use super::types;

macro_rules! layout {
    ($name:ident $size:literal / $align:literal: $($field:ident $(. $inner:ident)? $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<types::$name>() == $size && align_of::<types::$name>() == $align);
            $(assert!(offset_of!(types::$name, $field $(. $inner)?) == $offset);)+
        };
    };
}

layout!(AdapterInfo 20 / 4: adapter 0, luid_low 4, luid_high 8, sources 12, precise_present_regions_preferred 16);
layout!(EnumAdapters2 16 / 8: count 0, adapters 8);
layout!(EnumAdapters3 24 / 8: filter 0, count 8, adapters 16);
layout!(OpenAdapterFromLuid 12 / 4: luid_low 0, luid_high 4, adapter 8);
layout!(OneHandle 4 / 4: handle 0);
layout!(QueryAdapterInfo 24 / 8: adapter 0, kind 4, private_data 8, private_data_size 16);
layout!(CreateDevice 64 / 8: adapter 0, flags 8, device 12, command_buffer 16, command_buffer_size 24,
    allocation_list 32, allocation_list_size 40, patch_location_list 48, patch_location_list_size 56);
layout!(GetDeviceState 56 / 8: device 0, state_type 4, state 8);
layout!(CreateContextVirtual 40 / 8: device 0, node_ordinal 4, engine_affinity 8, flags 12, private_data 16,
    private_data_size 24, client_hint 28, context 32);
layout!(SyncObjectInfo1 68 / 4: object_type 0, words 4);
layout!(CreateSynchronizationObject 76 / 4: device 0, info 4, object 72);
layout!(SyncObjectUnion 64 / 8: first 0, cpu_address 8, gpu_address 16, engine_affinity 24, padding 28);
layout!(SyncObjectInfo2 80 / 8: object_type 0, flags 4, union 8, union.cpu_address 16, union.gpu_address 24,
    union.engine_affinity 32, shared_handle 72);
layout!(CreateSynchronizationObject2 96 / 8: device 0, info 8, object 88);
layout!(OpenSyncObjectFromNtHandle2 88 / 8: nt_handle 0, device 8, flags 12, object 16, cpu_address 24,
    gpu_address 32, engine_affinity 40);
layout!(SignalFromCpu 32 / 8: device 0, object_count 4, objects 8, values 16, flags 24);
layout!(WaitFromCpu 40 / 8: device 0, object_count 4, objects 8, values 16, async_event 24, flags 32);
layout!(FromGpu 80 / 8: context 0, object_count 4, objects 8, values 16);
layout!(SignalFromGpu2 96 / 8: object_count 0, objects 8, flags 16, context_count 20, contexts 24, values 32);
layout!(SubmitCommand 384 / 8: commands 0, command_length 8, flags 12, present_history_token 16,
    context_count 24, contexts 28, private_data 288, private_data_size 296, primary_count 300,
    written_primaries 304, history_buffer_count 368, history_buffers 376);
