//! `IDXCoreAdapterFactory`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use d3dkmt::{Luid, NtStatus};

use super::adapter::Adapter;
use super::list::give_list;
use super::notification::{self, Callback};
use super::{
    E_FAIL, E_INVALIDARG, E_OUTOFMEMORY, E_POINTER, Guid, Hresult, S_OK, attached, clear, give, guarded,
    present,
};
use abi::CValue;
use abi::types::LUID;

const IID: Guid = Guid(0x78ee_5945, 0xc36e, 0x4b13, [0xa6, 0x69, 0x00, 0x5d, 0xd1, 0x1c, 0x0f, 0x06]);

/// Attributes of a filter that are read at most: more could only repeat those that an adapter has.
const ATTRIBUTES_MAX: u32 = 1024;

type This = *const Factory;

#[repr(C)]
struct Vtable {
    query_interface: extern "C" fn(This, *const Guid, *mut *const c_void) -> Hresult,
    add_ref: extern "C" fn(This) -> u32,
    release: extern "C" fn(This) -> u32,
    create_adapter_list: extern "C" fn(This, u32, *const Guid, *const Guid, *mut *const c_void) -> Hresult,
    get_adapter_by_luid: extern "C" fn(This, *const LUID, *const Guid, *mut *const c_void) -> Hresult,
    is_notification_type_supported: extern "C" fn(This, u32) -> bool,
    register_event_notification:
        extern "C" fn(This, *const c_void, u32, Option<Callback>, *mut c_void, *mut u32) -> Hresult,
    unregister_event_notification: extern "C" fn(This, u32) -> Hresult,
}

#[repr(C)]
pub(super) struct Factory {
    vtable: &'static Vtable,
    references: AtomicU32,
}

static VTABLE: Vtable = Vtable {
    query_interface,
    add_ref,
    release,
    create_adapter_list,
    get_adapter_by_luid,
    is_notification_type_supported,
    register_event_notification,
    unregister_event_notification,
};

/// The one factory of the process.
static FACTORY: Factory = Factory { vtable: &VTABLE, references: AtomicU32::new(0) };

/// Gives a caller the factory.
pub(super) fn give_factory(interface: *const Guid, out: *mut *const c_void) -> Hresult {
    give(&raw const FACTORY, IID, interface, out, || _ = add_ref(&raw const FACTORY))
}

extern "C" fn query_interface(_: This, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    guarded(E_FAIL, || give_factory(interface, out))
}

extern "C" fn add_ref(_: This) -> u32 {
    FACTORY.references.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

extern "C" fn release(_: This) -> u32 {
    FACTORY.references.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1)
}

extern "C" fn create_adapter_list(
    _: This,
    count: u32,
    attributes: *const Guid,
    interface: *const Guid,
    out: *mut *const c_void,
) -> Hresult {
    guarded(E_FAIL, || {
        if !clear(out) {
            return E_POINTER;
        }
        if attributes.is_null() || !(1..=ATTRIBUTES_MAX).contains(&count) {
            return E_INVALIDARG;
        }
        // SAFETY: the C contract says that there are `count` attributes.
        let filter = (0..count as usize).map(|at| unsafe { attributes.add(at).read_unaligned() }).collect();
        give_list(filter, interface, out)
    })
}

extern "C" fn get_adapter_by_luid(
    _: This,
    luid: *const LUID,
    interface: *const Guid,
    out: *mut *const c_void,
) -> Hresult {
    guarded(E_FAIL, || {
        if !clear(out) {
            return E_POINTER;
        }
        if luid.is_null() {
            return E_INVALIDARG;
        }
        // SAFETY: not NULL; the C contract says that it points to a LUID.
        let luid = Luid::from_c(unsafe { luid.read_unaligned() });
        let Some(present) = present() else { return E_OUTOFMEMORY };
        let wanted = present.into_iter().find(|(one, _)| *one == luid);
        match attached().zip(wanted).map(|(session, wanted)| Adapter::of(session, wanted)) {
            Some(Ok(adapter)) => adapter.give(interface, out),
            Some(Err(NtStatus::NO_MEMORY)) => E_OUTOFMEMORY,
            Some(Err(_)) | None => E_INVALIDARG,
        }
    })
}

extern "C" fn is_notification_type_supported(_: This, kind: u32) -> bool {
    notification::is_supported(kind)
}

extern "C" fn register_event_notification(
    _: This,
    object: *const c_void,
    kind: u32,
    callback: Option<Callback>,
    context: *mut c_void,
    cookie: *mut u32,
) -> Hresult {
    guarded(E_FAIL, || {
        // SAFETY: not NULL where it is called; the C contract says that it points to a cookie. 0 is none.
        let write = |value: u32| unsafe { cookie.write_unaligned(value) };
        if !cookie.is_null() {
            write(0);
        }
        let Some(callback) = callback.filter(|_| !object.is_null() && !cookie.is_null()) else {
            return if object.is_null() { E_INVALIDARG } else { E_POINTER };
        };
        match notification::register(object, kind, callback, context) {
            Ok(registered) => {
                write(registered);
                S_OK
            }
            Err(error) => error,
        }
    })
}

extern "C" fn unregister_event_notification(_: This, cookie: u32) -> Hresult {
    guarded(E_FAIL, || notification::unregister(cookie))
}
