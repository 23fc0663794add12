//! `IDXCoreAdapter`.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use d3dkmt::{Luid, NtStatus};

use super::properties::{MemoryBudget, Properties, memory_budget};
use super::{
    DXGI_ERROR_DEVICE_REMOVED, DXGI_ERROR_INVALID_CALL, DXGI_ERROR_UNSUPPORTED, E_FAIL, E_INVALIDARG,
    E_OUTOFMEMORY, E_POINTER, Guid, Hresult, Present, S_OK, attached, clear, factory, give, guarded, present,
    read_guid,
};
use crate::client::{Session, block_on};

const IID: Guid = Guid(0xf0db_4c7f, 0xfe5a, 0x42a2, [0xbd, 0x62, 0xf2, 0xa6, 0xcf, 0x6f, 0xc8, 0x3e]);

/// `DXCoreAdapterState`.
const IS_DRIVER_UPDATE_IN_PROGRESS: u32 = 0;
const ADAPTER_MEMORY_BUDGET: u32 = 1;

/// Bytes of `DXCoreAdapterMemoryBudgetNodeSegmentGroup`.
const BUDGET_INPUT_BYTES: usize = 8;

type This = *const Adapter;

#[repr(C)]
struct Vtable {
    query_interface: extern "C" fn(This, *const Guid, *mut *const c_void) -> Hresult,
    add_ref: extern "C" fn(This) -> u32,
    release: extern "C" fn(This) -> u32,
    is_valid: extern "C" fn(This) -> bool,
    is_attribute_supported: extern "C" fn(This, *const Guid) -> bool,
    is_property_supported: extern "C" fn(This, u32) -> bool,
    get_property: extern "C" fn(This, u32, usize, *mut u8) -> Hresult,
    get_property_size: extern "C" fn(This, u32, *mut usize) -> Hresult,
    is_query_state_supported: extern "C" fn(This, u32) -> bool,
    query_state: extern "C" fn(This, u32, usize, *const u8, usize, *mut u8) -> Hresult,
    is_set_state_supported: extern "C" fn(This, u32) -> bool,
    set_state: extern "C" fn(This, u32, usize, *const u8, usize, *const u8) -> Hresult,
    get_factory: extern "C" fn(This, *const Guid, *mut *const c_void) -> Hresult,
}

#[repr(C)]
pub(super) struct Adapter {
    vtable: &'static Vtable,
    references: AtomicU32,
    pub properties: Properties,
    /// The arrival of the adapter that it is of.
    pub arrival: u32,
    /// What the host said last.
    was_present: AtomicBool,
    /// The object that was made before it.
    next: Option<&'static Adapter>,
}

static VTABLE: Vtable = Vtable {
    query_interface,
    add_ref,
    release,
    is_valid,
    is_attribute_supported,
    is_property_supported,
    get_property,
    get_property_size,
    is_query_state_supported,
    query_state,
    is_set_state_supported,
    set_state,
    get_factory,
};

/// The adapter object that was made last. Objects are only added, without a lock, which a fork could leave held.
static NEWEST: AtomicPtr<Adapter> = AtomicPtr::new(null_mut());

fn newest() -> Option<&'static Adapter> {
    // SAFETY: NULL, or leaked by `of` and never freed.
    unsafe { NEWEST.load(Ordering::Acquire).as_ref() }
}

/// The object of an adapter among this one and those made before it.
fn known(newest: Option<&'static Adapter>, wanted: Present) -> Option<&'static Adapter> {
    let mut all = std::iter::successors(newest, |adapter| adapter.next);
    all.find(|adapter| (adapter.properties.luid, adapter.arrival) == wanted)
}

/// The adapter object behind a pointer, if it is one.
pub(super) fn of_pointer(pointer: *const c_void) -> Option<&'static Adapter> {
    std::iter::successors(newest(), |adapter| adapter.next)
        .find(|adapter| std::ptr::from_ref(*adapter).cast() == pointer)
}

impl Adapter {
    /// The object of an adapter that is present, made now if it is new.
    pub fn of(session: &Session, wanted: Present) -> Result<&'static Adapter, NtStatus> {
        if let Some(adapter) = known(newest(), wanted) {
            return Ok(adapter);
        }
        let (luid, arrival) = wanted;
        let properties = Properties::read(session, luid)?;
        let references = AtomicU32::new(0);
        let was_present = AtomicBool::new(true);
        let mut made =
            Box::new(Adapter { vtable: &VTABLE, references, properties, arrival, was_present, next: None });
        loop {
            let before = newest();
            if let Some(adapter) = known(before, wanted) {
                // Another thread was first.
                return Ok(adapter);
            }
            made.next = before;
            let expected = before.map_or(null_mut(), |before| std::ptr::from_ref(before).cast_mut());
            let object = Box::into_raw(made);
            if NEWEST.compare_exchange(expected, object, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: published, and from here on never changed or freed.
                return Ok(unsafe { &*object });
            }
            // SAFETY: made by `Box::into_raw` above, and not published.
            made = unsafe { Box::from_raw(object) };
        }
    }

    pub fn give(&self, interface: *const Guid, out: *mut *const c_void) -> Hresult {
        give(self, IID, interface, out, || _ = self.references.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the process has the adapter, of this arrival. `None`: the host does not say.
    pub fn presence(&self) -> Option<bool> {
        let is_present = present()?.contains(&(self.properties.luid, self.arrival));
        self.was_present.store(is_present, Ordering::Relaxed);
        Some(is_present)
    }

    /// The same, or what was true last.
    pub fn is_present(&self) -> bool {
        self.presence().unwrap_or_else(|| self.was_present.load(Ordering::Relaxed))
    }
}

/// The object behind a pointer that a caller has.
fn object(this: This) -> &'static Adapter {
    // SAFETY: the C contract says that it is an adapter object; none is ever freed.
    unsafe { &*this }
}

extern "C" fn query_interface(this: This, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    guarded(E_FAIL, || object(this).give(interface, out))
}

extern "C" fn add_ref(this: This) -> u32 {
    object(this).references.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

extern "C" fn release(this: This) -> u32 {
    object(this).references.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1)
}

extern "C" fn is_valid(this: This) -> bool {
    guarded(false, || object(this).is_present())
}

extern "C" fn is_attribute_supported(this: This, attribute: *const Guid) -> bool {
    let has = |attribute| object(this).properties.has_attribute(attribute);
    guarded(false, || read_guid(attribute).is_some_and(has))
}

extern "C" fn is_property_supported(this: This, property: u32) -> bool {
    guarded(false, || object(this).properties.bytes(property).is_ok())
}

/// Writes bytes into the caller's buffer, whose other bytes become 0.
fn fill(buffer: *mut u8, size: usize, bytes: &[u8]) -> Hresult {
    if buffer.is_null() {
        return E_POINTER;
    }
    if size < bytes.len() {
        return E_INVALIDARG;
    }
    // SAFETY: the C contract says that the buffer has `size` bytes, which are no fewer than `bytes`.
    unsafe {
        buffer.write_bytes(0, size);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len());
    }
    S_OK
}

extern "C" fn get_property(this: This, property: u32, size: usize, buffer: *mut u8) -> Hresult {
    guarded(E_FAIL, || match object(this).properties.bytes(property) {
        Ok(bytes) => fill(buffer, size, &bytes),
        Err(error) => error,
    })
}

extern "C" fn get_property_size(this: This, property: u32, size: *mut usize) -> Hresult {
    guarded(E_FAIL, || match object(this).properties.bytes(property) {
        Ok(_) if size.is_null() => E_POINTER,
        Ok(bytes) => {
            // SAFETY: not NULL; the C contract says that it points to a size.
            unsafe { size.write_unaligned(bytes.len()) };
            S_OK
        }
        Err(error) => error,
    })
}

extern "C" fn is_query_state_supported(_: This, state: u32) -> bool {
    [IS_DRIVER_UPDATE_IN_PROGRESS, ADAPTER_MEMORY_BUDGET].contains(&state)
}

extern "C" fn query_state(
    this: This,
    state: u32,
    input_size: usize,
    input: *const u8,
    size: usize,
    buffer: *mut u8,
) -> Hresult {
    guarded(E_FAIL, || match state {
        // An update removes the adapter; the one that arrives with the new driver is another object.
        IS_DRIVER_UPDATE_IN_PROGRESS if object(this).is_present() => fill(buffer, size, &[0]),
        ADAPTER_MEMORY_BUDGET => {
            if input.is_null() || input_size < BUDGET_INPUT_BYTES {
                return E_INVALIDARG;
            }
            // SAFETY: the C contract says that the input has `input_size` bytes.
            let [node, segment_group] = unsafe { input.cast::<[u32; 2]>().read_unaligned() };
            match budget(object(this).properties.luid, node, segment_group) {
                Ok(bytes) => fill(buffer, size, &bytes),
                Err(error) => error,
            }
        }
        IS_DRIVER_UPDATE_IN_PROGRESS => DXGI_ERROR_DEVICE_REMOVED,
        _ => DXGI_ERROR_INVALID_CALL,
    })
}

/// The bytes of `DXCoreAdapterMemoryBudget`.
fn budget(luid: Luid, node: u32, segment_group: u32) -> Result<Vec<u8>, Hresult> {
    let session = attached().ok_or(DXGI_ERROR_DEVICE_REMOVED)?;
    let adapter = block_on(session.open_adapter(luid)).map_err(|status| match status {
        NtStatus::NO_MEMORY => E_OUTOFMEMORY,
        _ => DXGI_ERROR_DEVICE_REMOVED,
    })?;
    let found = memory_budget(session, adapter, segment_group, node);
    block_on(session.close_adapter(adapter));
    let MemoryBudget { budget, current_usage, available_for_reservation, current_reservation } =
        found.map_err(|_| E_INVALIDARG)?;
    let words = [budget, current_usage, available_for_reservation, current_reservation];
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

extern "C" fn is_set_state_supported(_: This, _: u32) -> bool {
    false
}

extern "C" fn set_state(_: This, state: u32, _: usize, _: *const u8, _: usize, _: *const u8) -> Hresult {
    match state {
        IS_DRIVER_UPDATE_IN_PROGRESS | ADAPTER_MEMORY_BUDGET => DXGI_ERROR_UNSUPPORTED,
        _ => DXGI_ERROR_INVALID_CALL,
    }
}

extern "C" fn get_factory(_: This, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    clear(out);
    guarded(E_FAIL, || factory::give_factory(interface, out))
}
