//! DXCore: the COM interfaces by which clients list adapters before they make a D3DKMT call.
//!
//! ```text
//!   DXCoreCreateAdapterFactory ──▶ factory ── CreateAdapterList ──▶ list ── GetAdapter ──▶ adapter
//!                                     └────── GetAdapterByLuid ─────────────────────────▶ adapter
//! ```
//! An object is a vtable pointer with the object's data behind it. Vtables have the order of the interface's methods in
//! `dxcore_interface.h`, after QueryInterface, AddRef and Release. There is one factory, and one adapter object for each
//! LUID and arrival, so that pointers to one adapter are equal in all lists, and an adapter that was removed and arrived
//! again is another one. Both live as long as the process, whatever their
//! reference count; a list ends with its last reference. A forked child has its parent's objects, and a session of its
//! own (`process.rs`).
//!
//! A client polls IsStale and IsValid, or registers a callback: `notification.rs`.
//!
//! `unsafe` in these modules: methods read `this` and the caller's pointers. The C contract says that they are valid.

mod adapter;
mod factory;
mod list;
mod notification;
mod properties;

use std::ffi::c_void;
use std::ptr::null;

use d3dkmt::{Luid, NtStatus, limits};

use crate::client::{Session, block_on};
use crate::in_call;
use crate::process::{Starts, session};

/// `HRESULT`.
type Hresult = i32;

const S_OK: Hresult = 0;
const E_NOINTERFACE: Hresult = 0x8000_4002_u32 as Hresult;
const E_POINTER: Hresult = 0x8000_4003_u32 as Hresult;
const E_FAIL: Hresult = 0x8000_4005_u32 as Hresult;
const E_OUTOFMEMORY: Hresult = 0x8007_000E_u32 as Hresult;
const E_INVALIDARG: Hresult = 0x8007_0057_u32 as Hresult;
const DXGI_ERROR_INVALID_CALL: Hresult = 0x887A_0001_u32 as Hresult;
const DXGI_ERROR_UNSUPPORTED: Hresult = 0x887A_0004_u32 as Hresult;
const DXGI_ERROR_DEVICE_REMOVED: Hresult = 0x887A_0005_u32 as Hresult;

/// `GUID`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guid(u32, u16, u16, [u8; 8]);

const IID_IUNKNOWN: Guid = Guid(0, 0, 0, [0xc0, 0, 0, 0, 0, 0, 0, 0x46]);

/// Reads an identifier that a caller passed by reference; `None` for NULL.
fn read_guid(guid: *const Guid) -> Option<Guid> {
    // SAFETY: not NULL; the C contract says that it points to a GUID.
    (!guid.is_null()).then(|| unsafe { guid.read_unaligned() })
}

/// Gives a caller the interface that it wants of an object, with a reference, or NULL.
fn give<T>(
    object: *const T,
    own: Guid,
    wanted: *const Guid,
    out: *mut *const c_void,
    add: impl FnOnce(),
) -> Hresult {
    if out.is_null() {
        return E_POINTER;
    }
    let is_known = read_guid(wanted).is_some_and(|wanted| [IID_IUNKNOWN, own].contains(&wanted));
    // SAFETY: not NULL; the C contract says that it points to a pointer.
    unsafe { out.write_unaligned(if is_known { object.cast() } else { null() }) };
    if !is_known {
        return E_NOINTERFACE;
    }
    add();
    S_OK
}

/// Writes NULL where a caller expects an object. False if there is no such place.
fn clear(out: *mut *const c_void) -> bool {
    if !out.is_null() {
        // SAFETY: not NULL; the C contract says that it points to a pointer.
        unsafe { out.write_unaligned(null()) };
    }
    !out.is_null()
}

/// Runs a method. After a panic, and in a signal handler that has interrupted a call, the caller gets `otherwise`.
fn guarded<T: Copy>(otherwise: T, method: impl FnOnce() -> T) -> T {
    in_call::run(otherwise, otherwise, method)
}

/// The session of this process; `None` without a broker or a host, which is a machine without adapters.
fn attached() -> Option<&'static Session> {
    session(Starts::Session).ok().filter(|session| !session.is_lost())
}

/// A session of this process has started.
pub(crate) fn session_began() {
    notification::session_began();
}

/// An adapter, and which of its arrivals it is.
type Present = (Luid, u32);

/// The adapters that the process has and that have not stopped, in the order of the host. `None`: the host does not say,
/// because the process is at a limit of its own.
fn present() -> Option<Vec<Present>> {
    let session = match session(Starts::Session) {
        Ok(session) => session,
        Err(NtStatus::NO_MEMORY) => return None,
        Err(_) => return Some(Vec::new()),
    };
    match block_on(session.enum_adapters(limits::ADAPTERS_MAX as u32)) {
        Ok(adapters) => {
            for adapter in &adapters {
                block_on(session.close_adapter(adapter.handle));
            }
            Some(adapters.iter().map(|adapter| (adapter.luid, adapter.arrival)).collect())
        }
        Err(_) if session.is_lost() => Some(Vec::new()),
        Err(_) => None,
    }
}

/// `DXCoreCreateAdapterFactory`.
#[unsafe(no_mangle)]
pub extern "C" fn DXCoreCreateAdapterFactory(interface: *const Guid, out: *mut *const c_void) -> Hresult {
    guarded(E_FAIL, || factory::give_factory(interface, out))
}
