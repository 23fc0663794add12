//! Calls that always answer NOT_SUPPORTED, without a broker.

use std::ffi::c_void;
use std::process::Command;
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};

use abi::refused::{REFUSED, RefusedGroup};
use abi::types::{D3DKMT_HANDLE, HANDLE, NTSTATUS};
use d3dkmt::NtStatus;

// Links the library.
use dxcore as _;

const NOT_SUPPORTED: NTSTATUS = NtStatus::NOT_SUPPORTED.0 as NTSTATUS;
const INVALID_PARAMETER: NTSTATUS = NtStatus::INVALID_PARAMETER.0 as NTSTATUS;

/// An argument of a call, as NULL or as what is no address of anything.
trait Argument {
    const NULL: Self;
    const ABSURD: Self;
}

impl Argument for *const c_void {
    const NULL: Self = null();
    const ABSURD: Self = without_provenance(1);
}

impl Argument for *mut HANDLE {
    const NULL: Self = null_mut();
    const ABSURD: Self = without_provenance_mut(1);
}

impl Argument for HANDLE {
    const NULL: Self = 0;
    const ABSURD: Self = HANDLE::MAX;
}

impl Argument for D3DKMT_HANDLE {
    const NULL: Self = 0;
    const ABSURD: Self = D3DKMT_HANDLE::MAX;
}

macro_rules! declared {
    ($($why:literal { $($name:ident $(($($parameter:ident: $type:ty),+))?,)+ })+) => {
        unsafe extern "C" {
            $($(fn $name(argument: *const c_void, second: *const c_void) -> NTSTATUS;)+)+
        }
    };
}

macro_rules! asserted {
    ($($why:literal { $($name:ident $(($($parameter:ident: $type:ty),+))?,)+ })+) => {
        $($(asserted_call! { $name($($($type),+)?) })+)+
    };
}

macro_rules! asserted_call {
    ($name:ident()) => { asserted_call! { $name(*const c_void) } };
    ($name:ident($($type:ty),+)) => {{
        // SAFETY: the declared form of the call, which reads nothing at its arguments.
        let call: unsafe extern "C" fn($($type),+) -> NTSTATUS = unsafe { std::mem::transmute($name as *const c_void) };
        // SAFETY: as above.
        let null = unsafe { call($(<$type>::NULL),+) };
        // SAFETY: as above.
        let absurd = [(); 2].map(|()| unsafe { call($(<$type>::ABSURD),+) });
        assert_eq!((null, absurd), (INVALID_PARAMETER, [NOT_SUPPORTED; 2]), stringify!($name));
    }};
}

abi::for_each_refused_call!(declared);

#[test]
fn null_is_invalid_and_every_other_argument_is_not_read() {
    abi::for_each_refused_call!(asserted);
}

/// Runs the test above in a process of its own, and reads its stderr.
#[test]
fn the_reason_is_printed_once_for_each_call() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "null_is_invalid_and_every_other_argument_is_not_read"]).env_remove("GPUPV_QUIET");
    let stderr = String::from_utf8(again.output().unwrap().stderr).unwrap();
    let notices: Vec<&str> = stderr.lines().filter(|line| line.contains(" is not supported: ")).collect();
    let wanted: Vec<String> = REFUSED
        .iter()
        .flat_map(|RefusedGroup { why, calls }| {
            calls.iter().map(move |call| format!("gpupv: {} is not supported: {why}", call.name))
        })
        .collect();
    assert_eq!(notices, wanted);
}

#[test]
fn no_process_owns_a_display() {
    unsafe extern "C" {
        safe fn D3DKMTCheckExclusiveOwnership() -> u8;
    }
    assert_eq!(D3DKMTCheckExclusiveOwnership(), 0);
}
