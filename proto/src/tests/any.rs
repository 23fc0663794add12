//! Any call and any reply, by the rows of their tables.

use std::fmt::Debug;

use d3dkmt::names::kind::{
    Commands, EscapeData, FenceValue, FenceValues, GpuAddress, GpuSignal, GpuVaOperations, Handle,
    HandleList, Handles, Luid, MutexBuffer, MutexData, NewAllocation, NewMutexData, NewToken, ObjectInfo,
    OutBuffer, SharedHandle, Timeout, Token, WaitEvent,
};
use d3dkmt::names::{Kind, Numbers};
use d3dkmt::{
    AcquireOutcome, Adapter, AllocationInfo, Call, CreateAllocation, CreateAllocationFlags,
    CreateContextFlags, CreatedSyncObject, DestroyAllocationFlags, EscapeFlags, EventId, FeatureResult,
    GpuVaOperation, HwQueueFlags, KeyedMutexFlags, PageFaultState, ResourceInfo, RuntimeBuffer, ShareToken,
    SignalFlags, StandardAllocation, SyncObjectFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags,
    WaitOutcome,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Union;

/// A field of any value.
trait Any: Sized + Debug {
    fn any() -> BoxedStrategy<Self>;
}

macro_rules! anything {
    ($($type:ty),+ $(,)?) => {
        $(impl Any for $type {
            fn any() -> BoxedStrategy<$type> {
                any::<$type>().boxed()
            }
        })+
    };
}

anything!(bool, u32, i32, u64, String, Option<String>, Option<i64>, Vec<u32>, Vec<u64>);

macro_rules! any_of {
    ($($type:ty => $strategy:expr;)+) => {
        $(impl Any for $type {
            fn any() -> BoxedStrategy<$type> {
                $strategy.boxed()
            }
        })+
    };
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    // At times so many that they are copied in pieces.
    prop_oneof![8 => vec(any::<u8>(), 0..200), 1 => vec(any::<u8>(), 2000..5000)]
}

any_of! {
    d3dkmt::Handle => any::<u32>().prop_map(d3dkmt::Handle);
    d3dkmt::Handles => vec(handle(), 0..40).prop_map(d3dkmt::Handles::from);
    d3dkmt::Values => vec(any::<u64>(), 0..40).prop_map(d3dkmt::Values::from);
    Vec<d3dkmt::Handle> => vec(handle(), 0..40);
    Vec<u8> => bytes();
    Option<Vec<u8>> => option::of(bytes());
    d3dkmt::Luid => any::<(u32, i32)>().prop_map(|(low, high)| d3dkmt::Luid { low, high });
    EventId => (1..=u64::MAX).prop_map(EventId);
    ShareToken => any::<[u8; 16]>().prop_map(ShareToken);
    SyncObjectType => any::<u32>().prop_map(SyncObjectType);
    CreateAllocationFlags => any::<u32>().prop_map(CreateAllocationFlags::from_bits_retain);
    CreateContextFlags => any::<u32>().prop_map(CreateContextFlags::from_bits_retain);
    DestroyAllocationFlags => any::<u32>().prop_map(DestroyAllocationFlags::from_bits_retain);
    EscapeFlags => any::<u32>().prop_map(EscapeFlags::from_bits_retain);
    HwQueueFlags => any::<u32>().prop_map(HwQueueFlags::from_bits_retain);
    KeyedMutexFlags => any::<u32>().prop_map(KeyedMutexFlags::from_bits_retain);
    SignalFlags => any::<u32>().prop_map(SignalFlags::from_bits_retain);
    SyncObjectFlags => any::<u32>().prop_map(SyncObjectFlags::from_bits_retain);
    WaitFromCpuFlags => any::<u32>().prop_map(WaitFromCpuFlags::from_bits_retain);
    Option<EventId> => option::of(EventId::any());
    // A slot is sent plus one.
    Option<u32> => option::of(0..u32::MAX);
    Option<StandardAllocation> => option::of(StandardAllocation::any());
    Vec<AllocationInfo> => vec(AllocationInfo::any(), 0..4);
    Vec<GpuVaOperation> => vec(GpuVaOperation::any(), 0..4);
    Vec<Adapter> => vec(Adapter::any(), 0..4);
    Box<CreateAllocation> => CreateAllocation::any().prop_map(Box::new);
    d3dkmt::GpuSignal => prop_oneof![
        (d3dkmt::Handles::any(), d3dkmt::Values::any())
            .prop_map(|(objects, values)| d3dkmt::GpuSignal::Monitored { objects, values }),
        (d3dkmt::Handles::any(), any::<u64>())
            .prop_map(|(objects, fence_value)| d3dkmt::GpuSignal::Legacy { objects, fence_value }),
        event().prop_map(|event| d3dkmt::GpuSignal::CpuEvent { event }),
    ];
    AcquireOutcome => prop_oneof![
        any::<u64>().prop_map(|fence_value| AcquireOutcome::Acquired { fence_value }),
        any::<u64>().prop_map(|fence_value| AcquireOutcome::TimedOut { fence_value }),
        any::<u64>().prop_map(|fence_value| AcquireOutcome::Abandoned { fence_value }),
        Just(AcquireOutcome::Registered),
    ];
    WaitOutcome => prop_oneof![Just(WaitOutcome::Satisfied), Just(WaitOutcome::Registered)];
    FeatureResult => any::<(u16, u16)>().prop_map(|(version, value)| FeatureResult::from_value(version, value & 15));
}

/// Structs, field by field; proptest joins at most ten.
macro_rules! any_struct {
    ($($name:ident { $($field:ident),+ $(; $($further:ident),+)? })+) => {
        $(impl Any for $name {
            fn any() -> BoxedStrategy<$name> {
                let fields = ($(any_field(|of: &$name| &of.$field),)+);
                $(let fields = (fields, ($(any_field(|of: &$name| &of.$further),)+));)?
                fields
                    .prop_map(|any_struct!(@pattern $($field)+ $(; $($further)+)?)| $name {
                        $($field,)+
                        $($($further,)+)?
                    })
                    .boxed()
            }
        })+
    };
    (@pattern $($field:ident)+) => { ($($field,)+) };
    (@pattern $($field:ident)+; $($further:ident)+) => { (($($field,)+), ($($further,)+)) };
}

/// Any value of a field's type.
fn any_field<S, T: Any>(_: impl Fn(&S) -> &T) -> BoxedStrategy<T> {
    T::any()
}

any_struct! {
    RuntimeBuffer { size, present, data }
    ResourceInfo { runtime_data_size, private_data_size, total_private_data_size, allocations }
    StandardAllocation { kind, size, flags, private_data_size }
    AllocationInfo { system_memory, private_data, flags }
    CreateAllocation { device, resource, flags, standard, private_data, runtime_data, allocations }
    SyncObjectInfo {
        object_type, flags, initial_state, max_count, initial_count, initial_value;
        engine_affinity, event, adapter, vidpn_target, time_100ns
    }
    GpuVaOperation {
        operation, base, size, allocation, allocation_offset, allocation_size, protection, destination
    }
    Adapter { handle, luid, sources, arrival }
    CreatedSyncObject { object, shared_handle, slot, gpu_address, paging_fence_value, no_wait }
    PageFaultState { flags, gpu_address }
}

pub(super) fn handle() -> impl Strategy<Value = d3dkmt::Handle> {
    d3dkmt::Handle::any()
}

pub(super) fn event() -> impl Strategy<Value = EventId> {
    EventId::any()
}

pub(super) fn token() -> impl Strategy<Value = ShareToken> {
    ShareToken::any()
}

macro_rules! any_call {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        pub(in crate::tests) fn call() -> impl Strategy<Value = Call> {
            Union::new([$(
                any_variant!(Call::$name $({ $($field: <$kind as Kind<Numbers>>::Type),+ })? $({ $bare: <$bare_kind as Kind<Numbers>>::Type })?)
            ),+])
        }
    };
}

macro_rules! any_reply {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $type:ty),+ $(,)? })?
        $(($bare:ident: $bare_type:ty))?
        $([$index:tt: $tuple:ty])?
        $(=> $value_kind:ident $value:tt)?;)+) => {
        pub(in crate::tests) fn reply() -> impl Strategy<Value = Reply> {
            Union::new([
                Just(Reply::None).boxed(),
                $(any_variant!(Reply::$name $({ $($field: $type),+ })? $({ $bare: $bare_type })? $({ $index: $tuple })?)),+
            ])
        }
    };
}

macro_rules! any_variant {
    ($of:ident::$name:ident { 0: $type:ty }) => { <$type as Any>::any().prop_map($of::$name).boxed() };
    ($of:ident::$name:ident { $($field:ident: $type:ty),+ }) => {
        ($(<$type as Any>::any(),)+).prop_map(|($($field,)+)| $of::$name { $($field),+ }).boxed()
    };
    ($of:ident::$name:ident) => { Just($of::$name).boxed() };
}

d3dkmt::for_each_call!(any_call);

mod of_replies {
    use d3dkmt::{Handle, Luid, Reply, ResourceInfo};

    use super::*;

    d3dkmt::for_each_reply!(any_reply);
}

pub(in crate::tests) use of_replies::reply;
