//! How the parameters of a call are given: as numbers, or by the names that a scenario has for them.
//!
//! A row of the table of calls gives each field a *kind*: `Handle`, `u64`, `SignalFlags`. What the field holds depends
//! on [`Names`]: in [`Numbers`], which the kernel and the wire use, a `Handle` is a number; in a scenario it is a
//! binding. A kind of plain numbers is the same in both.
//!
//! ```text
//! row:                1 device: Handle       4 flags: SignalFlags
//! CallOf<Numbers>     Handle(0x40000040)     SignalFlags
//! CallOf<Bindings>    the name `D`           SignalFlags
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use crate::{
    CreateContextFlags, DestroyAllocationFlags, EscapeFlags, EventId, GpuSignal, GpuVaOperation, Handle,
    Handles, HwQueueFlags, KeyedMutexFlags, Luid, ResourceInfo, RuntimeBuffer, ShareToken, SignalFlags,
    SyncObjectFlags, SyncObjectInfo, Values, WaitFromCpuFlags,
};

/// The traits of every parameter.
pub trait Parameter: Clone + PartialEq + Eq + Hash + Debug {}
impl<T: Clone + PartialEq + Eq + Hash + Debug> Parameter for T {}

/// A kind of field: what it holds under `N`, and how it is visited.
pub trait Kind<N: Names> {
    type Type: Parameter;

    fn visit(value: &mut Self::Type, visitor: &mut impl Visit<N>);
}

/// A kind whose values can be given by other names.
pub trait RenamedKind<N: Names, M: Names>: Kind<N> + Kind<M> {
    /// The value under `M`.
    ///
    /// # Errors
    ///
    /// Those of `names`.
    fn rename<R: Rename<N, M>>(
        value: &<Self as Kind<N>>::Type,
        names: &mut R,
    ) -> Result<<Self as Kind<M>>::Type, R::Error>;
}

/// Each row: the kind, what it is, the method of visitors, and its type in [`Numbers`].
macro_rules! names {
    ($($(#[$doc:meta])* $kind:ident, $method:ident = $number:ty;)+) => {
        /// One way to give the parameters of calls.
        pub trait Names: Clone + PartialEq + Eq + Hash + Debug {
            $($(#[$doc])* type $kind: Parameter;)+
        }

        impl Names for Numbers {
            $(type $kind = $number;)+
        }

        /// Visitor of each name in a call, in the order of its fields.
        pub trait Visit<N: Names> {
            $($(#[$doc])* fn $method(&mut self, _: &mut N::$kind) {})+
        }

        /// Translates names of `N` to names of `M`.
        pub trait Rename<N: Names, M: Names> {
            type Error;
            $($(#[$doc])*
            #[allow(clippy::missing_errors_doc)]
            fn $method(&mut self, _: &N::$kind) -> Result<M::$kind, Self::Error>;)+
        }

        $(impl<N: Names> Kind<N> for kind::$kind {
            type Type = N::$kind;

            #[inline]
            fn visit(value: &mut N::$kind, visitor: &mut impl Visit<N>) {
                visitor.$method(value);
            }
        }

        impl<N: Names, M: Names> RenamedKind<N, M> for kind::$kind {
            fn rename<R: Rename<N, M>>(value: &N::$kind, names: &mut R) -> Result<M::$kind, R::Error> {
                names.$method(value)
            }
        })+

        /// The kinds that rows of the table name.
        pub mod kind {
            $($(#[$doc])*
            #[derive(Debug)]
            pub struct $kind;)+
        }
    };
}

/// Kinds that are the same under all names.
macro_rules! plain {
    ($($type:ty),+ $(,)?) => {
        $(impl<N: Names> Kind<N> for $type {
            type Type = $type;

            #[inline]
            fn visit(_: &mut $type, _: &mut impl Visit<N>) {}
        }

        impl<N: Names, M: Names> RenamedKind<N, M> for $type {
            fn rename<R: Rename<N, M>>(value: &$type, _: &mut R) -> Result<$type, R::Error> {
                Ok(value.clone())
            }
        })+
    };
}

/// The names that the kernel and the wire use: handles, tokens and addresses as numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Numbers {}

names! {
    /// `D3DKMT_HANDLE` of the caller's process; NULL where none is named.
    Handle, handle = Handle;
    /// Several handles.
    Handles, handles = Handles;
    /// Several handles, in a call that is infrequent.
    HandleList, handle_list = Vec<Handle>;
    /// The global handle of a shared object.
    SharedHandle, shared_handle = Handle;
    /// An adapter.
    Luid, luid = Luid;
    /// The library's name of a wait.
    WaitEvent, wait_event = EventId;
    /// The NT handle by which something is opened.
    Token, token = ShareToken;
    /// The NT handle that the call gives its process.
    NewToken, new_token = ShareToken;
    /// A value of a fence.
    FenceValue, fence_value = u64;
    /// A value for each handle of the list before it.
    FenceValues, fence_values = Values;
    /// A GPU virtual address.
    GpuAddress, gpu_address = u64;
    /// Creation parameters of a synchronization object.
    ObjectInfo, object_info = SyncObjectInfo;
    /// Effect of a GPU signal packet.
    GpuSignal, gpu_signal = GpuSignal;
    /// The private data of a submission: its command buffer.
    Commands, commands = Vec<u8>;
    /// A buffer of the caller, of which only the size matters.
    OutBuffer, out_buffer = Vec<u8>;
    /// The data of an escape.
    EscapeData, escape_data = Vec<u8>;
    /// The private runtime data of a keyed mutex.
    MutexData, mutex_data = Vec<u8>;
    /// New private runtime data of a keyed mutex; `None` keeps the old.
    NewMutexData, new_mutex_data = Option<Vec<u8>>;
    /// The caller's buffer for the private runtime data of a keyed mutex.
    MutexBuffer, mutex_buffer = RuntimeBuffer;
    /// In units of 100 ns: positive = absolute since 1601, negative = relative, 0 = poll, `None` = for ever (FEN-077).
    Timeout, timeout = Option<i64>;
    /// Creation parameters of allocations.
    NewAllocation, new_allocation = alloc::boxed::Box<crate::CreateAllocation>;
    /// Updates of an address space.
    GpuVaOperations, gpu_va_operations = Vec<GpuVaOperation>;
}

plain! {
    bool, u32, i32, u64, String, Option<String>, Vec<u8>, Vec<u32>, ResourceInfo, CreateContextFlags,
    DestroyAllocationFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, SignalFlags, SyncObjectFlags, WaitFromCpuFlags,
}
