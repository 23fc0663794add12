//! Calls that always answer NOT_SUPPORTED, and CheckExclusiveOwnership. None starts a
//! session.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::types::{D3DKMT_HANDLE, HANDLE, NTSTATUS};
use d3dkmt::NtStatus;

use crate::notice::print;

macro_rules! refused_calls {
    ($($why:literal { $($name:ident $(($($parameter:ident: $type:ty),+))?,)+ })+) => {
        $($(refused_call! { $why $name($($($parameter: $type),+)?) })+)+
    };
}

macro_rules! refused_call {
    ($why:literal $name:ident()) => { refused_call! { $why $name(argument: *const c_void) } };
    ($why:literal $name:ident($($parameter:ident: $type:ty),+)) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($parameter: $type),+) -> NTSTATUS {
            static WAS_EXPLAINED: AtomicBool = AtomicBool::new(false);
            if $($parameter as usize == 0)||+ {
                return NtStatus::INVALID_PARAMETER.0 as NTSTATUS;
            }
            refuse(&WAS_EXPLAINED, stringify!($name), $why)
        }
    };
}

abi::for_each_refused_call!(refused_calls);

/// Prints why the call is not supported, once in a process.
fn refuse(was_explained: &AtomicBool, name: &str, why: &str) -> NTSTATUS {
    if !was_explained.swap(true, Ordering::Relaxed) {
        print(format_args!("{name} is not supported: {why}"));
    }
    NtStatus::NOT_SUPPORTED.0 as NTSTATUS
}

/// `D3DKMTCheckExclusiveOwnership`: whether a process owns a display exclusively. None does, because no adapter drives
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCheckExclusiveOwnership() -> u8 {
    0
}
