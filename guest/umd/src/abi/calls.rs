//! The exported functions: each row of the tables of `abi` as a C function.
#![allow(clippy::wildcard_imports, reason = "the tables name nearly every type")]

use abi::types::*;

use super::memory::{read, write};
use super::thunk::{enter, own_process, plain};
use super::{
    adapter, allocation, display, escape, hw_queue, keyed_mutex, legacy, notification, offer, paging, queue,
    residency, scheduling, share, sync, sync_file, wait,
};
use crate::process::Starts;

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($($parameters:tt)*) = $module:ident::$thunk:ident;)*) => {
        $(exported! { $starts $name($($parameters)*) [$module::$thunk] })*
    };
}

/// The C function of one call.
macro_rules! exported {
    ($starts:ident $name:ident(by $($parameter:ident: $type:ty),*) [$($thunk:tt)*]) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($parameter: $type),*) -> NTSTATUS {
            enter(Starts::$starts, |session| $($thunk)*(session, $($parameter),*))
        }
    };
    ($starts:ident $name:ident(inout $type:ident) [$($thunk:tt)*]) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(argument: *mut $type) -> NTSTATUS {
            enter(Starts::$starts, |session| {
                let mut arguments = read(argument)?;
                let status = $($thunk)*(session, &mut arguments)?;
                write(argument, arguments);
                Ok(status)
            })
        }
    };
    ($starts:ident $name:ident(in $type:ident) [$($thunk:tt)*]) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(argument: *const $type) -> NTSTATUS {
            enter(Starts::$starts, |session| $($thunk)*(session, &read(argument)?))
        }
    };
    ($starts:ident $name:ident(unwritten $type:ident) [$($thunk:tt)*]) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(argument: *mut $type) -> NTSTATUS {
            enter(Starts::$starts, |session| $($thunk)*(session, &read(argument)?))
        }
    };
}

macro_rules! plain_calls {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($mode:ident $type:ident $(of $process:ident)?)
        = $call:ident $fields:tt $(-> $reply:ident $outputs:tt)?;)*) => {
        $(#[unsafe(no_mangle)]
        pub extern "C" fn $name(argument: plain_pointer!($mode $type)) -> NTSTATUS {
            enter(Starts::$starts, |session| {
                let mut arguments = read(argument)?;
                $(own_process(arguments.$process)?;)?
                let status = plain(session, &mut arguments)?;
                plain_written!($mode argument arguments);
                Ok(status)
            })
        })*
    };
}

macro_rules! plain_pointer {
    (in $type:ident) => { *const $type };
    (inout $type:ident) => { *mut $type };
}

macro_rules! plain_written {
    (in $argument:ident $arguments:ident) => {};
    (inout $argument:ident $arguments:ident) => {
        write($argument, $arguments)
    };
}

abi::for_each_function!(functions);
abi::for_each_plain_call!(plain_calls);
