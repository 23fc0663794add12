//! Plain calls: their struct has a member for each field of the [`Call`] and of its [`Reply`], and they need no other
//! work. One row beside the struct maps fields to members:
//!
//! ```text
//! STARTS fn NAME(MODE STRUCT) = CALL { FIELD: MEMBER, .. } -> REPLY { FIELD: MEMBER, .. };
//! STARTS fn NAME(MODE STRUCT of MEMBER) = ..            MEMBER is a process, and must be the calling one
//! ```
//!
//! The row generates the thunk of the library and the scenario client's C call, which fills the struct from a call. A
//! reply of the form `Name[0: Type]` has the field `0`. [`CValue`] converts values to and from C. The first words are
//! those of `functions.rs`.

use std::ffi::c_void;

use d3dkmt::{Call, FeatureResult, Handle, Luid, Reply};

use crate::Plain;
use crate::types::{DXGK_ISFEATUREENABLED_RESULT, LUID};

/// The struct of a plain call.
pub trait PlainCall: Plain {
    /// The call that the struct makes.
    fn call(&self) -> Call;

    /// The struct that makes this call. `None` if it belongs to another call.
    fn of(call: &Call) -> Option<Self>;

    /// Writes the reply's fields into their members. False if the reply belongs to another call.
    fn take(&mut self, reply: &Reply) -> bool;

    /// The reply that the members hold.
    fn reply(&self) -> Reply;
}

/// A value whose C type is `C`.
pub trait CValue<C> {
    fn from_c(value: C) -> Self;
    fn to_c(&self) -> C;
}

macro_rules! same_in_c {
    ($($type:ty)+) => {
        $(impl CValue<$type> for $type {
            fn from_c(value: $type) -> $type {
                value
            }

            fn to_c(&self) -> $type {
                *self
            }
        })+
    };
}

same_in_c!(u32 i32 u64);

impl CValue<u32> for Handle {
    fn from_c(value: u32) -> Handle {
        Handle(value)
    }

    fn to_c(&self) -> u32 {
        self.0
    }
}

/// `BOOL`.
impl CValue<i32> for bool {
    fn from_c(value: i32) -> bool {
        value != 0
    }

    fn to_c(&self) -> i32 {
        i32::from(*self)
    }
}

/// An address of the caller.
impl CValue<*mut c_void> for u64 {
    fn from_c(value: *mut c_void) -> u64 {
        value.expose_provenance() as u64
    }

    fn to_c(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(*self as usize)
    }
}

impl CValue<LUID> for Luid {
    fn from_c(value: LUID) -> Luid {
        Luid { low: value.LowPart, high: value.HighPart }
    }

    fn to_c(&self) -> LUID {
        LUID { LowPart: self.low, HighPart: self.high }
    }
}

/// Bytes of a struct whose layout is the kernel's: cut to the struct's size, or zero-padded.
impl<const LENGTH: usize> CValue<[u8; LENGTH]> for Vec<u8> {
    fn from_c(value: [u8; LENGTH]) -> Vec<u8> {
        value.to_vec()
    }

    fn to_c(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let common = self.len().min(LENGTH);
        bytes[..common].copy_from_slice(&self[..common]);
        bytes
    }
}

impl CValue<DXGK_ISFEATUREENABLED_RESULT> for FeatureResult {
    fn from_c(value: DXGK_ISFEATUREENABLED_RESULT) -> FeatureResult {
        FeatureResult::from_value(value.Version, value.value)
    }

    fn to_c(&self) -> DXGK_ISFEATUREENABLED_RESULT {
        DXGK_ISFEATUREENABLED_RESULT { Version: self.version, value: self.value() }
    }
}

/// Declares the plain calls of one file of types, and the macro `$collect!` that prepends its rows to those of other
/// files: `for_each_plain_call!` passes all of them on.
macro_rules! plain_calls {
    ($d:tt $collect:ident $($rows:tt)*) => {
        plain_call_impls! { $($rows)* }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $collect {
            ([] [$d($d expand:ident)::+] $d($d others:tt)*) => {
                $d($d expand)::+! { $($rows)* $d($d others)* }
            };
            ([$d next:ident $d($d more:ident)*] $d expand:tt $d($d others:tt)*) => {
                $crate::$d next! { [$d($d more)*] $d expand $($rows)* $d($d others)* }
            };
        }
    };
}

/// Implements `PlainCall` for the struct of each row.
macro_rules! plain_call_impls {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($mode:ident $struct:ident $(of $process:ident)?)
        = $call:ident { $($field:ident: $member:ident),* $(,)? }
        $(-> $reply:ident { $($output:tt: $written:ident),* $(,)? })?;)*) => {
        $(impl $crate::PlainCall for $struct {
            fn call(&self) -> d3dkmt::Call {
                d3dkmt::Call::$call { $($field: $crate::CValue::from_c(self.$member)),* }
            }

            fn of(call: &d3dkmt::Call) -> Option<Self> {
                let d3dkmt::Call::$call { $($field),* } = call else { return None };
                let mut made: $struct = $crate::zeroed();
                $(made.$member = $crate::CValue::to_c($field);)*
                Some(made)
            }

            fn take(&mut self, reply: &d3dkmt::Reply) -> bool {
                plain_call_taken! { self reply $($reply { $($output: $written),* })? }
            }

            fn reply(&self) -> d3dkmt::Reply {
                plain_call_reply! { self $($reply { $($output: $written),* })? }
            }
        })*
    };
}

macro_rules! plain_call_taken {
    ($self:ident $given:ident) => { *$given == d3dkmt::Reply::None };
    ($self:ident $given:ident $reply:ident { $($output:tt: $written:ident),* }) => {{
        let d3dkmt::Reply::$reply { $($output: $written),* } = $given else { return false };
        $($self.$written = $crate::CValue::to_c($written);)*
        true
    }};
}

macro_rules! plain_call_reply {
    ($self:ident) => { d3dkmt::Reply::None };
    ($self:ident $reply:ident { $($output:tt: $written:ident),* }) => {
        d3dkmt::Reply::$reply { $($output: $crate::CValue::from_c($self.$written)),* }
    };
}

pub(crate) use {plain_call_impls, plain_call_reply, plain_call_taken, plain_calls};

/// Calls `expand!` with the rows of all plain calls.
#[macro_export]
macro_rules! for_each_plain_call {
    ($($expand:ident)::+) => {
        $crate::plain_calls_of_adapters! {
            [plain_calls_of_keyed_mutexes plain_calls_of_residency plain_calls_of_offers] [$($expand)::+]
        }
    };
}
