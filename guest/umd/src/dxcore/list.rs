//! `IDXCoreAdapterList`.

use std::cmp::Reverse;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::NtStatus;

use super::adapter::Adapter;
use super::{
    DXGI_ERROR_DEVICE_REMOVED, E_FAIL, E_INVALIDARG, E_OUTOFMEMORY, E_POINTER, Guid, Hresult, S_OK, attached,
    clear, factory, give, guarded, present,
};

const IID: Guid = Guid(0x526c_7776, 0x40e9, 0x459b, [0xb7, 0x11, 0xf3, 0x2a, 0xd7, 0x6d, 0xfc, 0x28]);

/// `DXCoreAdapterPreference`.
mod preference {
    pub const HARDWARE: u32 = 0;
    pub const MINIMUM_POWER: u32 = 1;
    pub const HIGH_PERFORMANCE: u32 = 2;
}

type This = *const List;

#[repr(C)]
struct Vtable {
    query_interface: extern "C" fn(This, *const Guid, *mut *const c_void) -> Hresult,
    add_ref: extern "C" fn(This) -> u32,
    release: extern "C" fn(This) -> u32,
    get_adapter: extern "C" fn(This, u32, *const Guid, *mut *const c_void) -> Hresult,
    get_adapter_count: extern "C" fn(This) -> u32,
    is_stale: extern "C" fn(This) -> bool,
    get_factory: extern "C" fn(This, *const Guid, *mut *const c_void) -> Hresult,
    sort: extern "C" fn(This, u32, *const u32) -> Hresult,
    is_adapter_preference_supported: extern "C" fn(This, u32) -> bool,
}

#[repr(C)]
pub(super) struct List {
    vtable: &'static Vtable,
    references: AtomicU32,
    /// The attributes that its adapters have.
    filter: Vec<Guid>,
    adapters: Mutex<Vec<&'static Adapter>>,
    is_stale: AtomicBool,
}

static VTABLE: Vtable = Vtable {
    query_interface,
    add_ref,
    release,
    get_adapter,
    get_adapter_count,
    is_stale,
    get_factory,
    sort,
    is_adapter_preference_supported,
};

/// The adapters that are present and have all attributes. `None`: the host does not say.
fn matching(filter: &[Guid]) -> Option<Vec<&'static Adapter>> {
    let present = present()?;
    let Some(session) = attached() else { return Some(Vec::new()) };
    let mut adapters = Vec::new();
    for wanted in present {
        match Adapter::of(session, wanted) {
            Ok(adapter) => adapters.push(adapter),
            Err(NtStatus::NO_MEMORY) => return None,
            // It has left meanwhile.
            Err(_) => {}
        }
    }
    adapters.retain(|one| filter.iter().all(|wanted| one.properties.has_attribute(*wanted)));
    Some(adapters)
}

/// Gives a caller a new list.
pub(super) fn give_list(filter: Vec<Guid>, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    let Some(adapters) = matching(&filter) else {
        clear(out);
        return E_OUTOFMEMORY;
    };
    let adapters = Mutex::new(adapters);
    let (references, is_stale) = (AtomicU32::new(0), AtomicBool::new(false));
    let list = Box::new(List { vtable: &VTABLE, references, filter, adapters, is_stale });
    let given = give(&raw const *list, IID, interface, out, || list.references.store(1, Ordering::Relaxed));
    if given == S_OK {
        // From here on it is freed by its last release.
        Box::leak(list);
    }
    given
}

/// The object behind a pointer that a caller has.
fn object<'list>(this: This) -> &'list List {
    // SAFETY: the C contract says that it is a list object with a reference of the caller, who waits for the method.
    unsafe { &*this }
}

impl List {
    fn adapters(&self) -> MutexGuard<'_, Vec<&'static Adapter>> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

extern "C" fn query_interface(this: This, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    let add = || _ = object(this).references.fetch_add(1, Ordering::Relaxed);
    guarded(E_FAIL, || give(this, IID, interface, out, add))
}

extern "C" fn add_ref(this: This) -> u32 {
    object(this).references.fetch_add(1, Ordering::Relaxed) + 1
}

extern "C" fn release(this: This) -> u32 {
    let left = object(this).references.fetch_sub(1, Ordering::AcqRel) - 1;
    if left == 0 {
        // SAFETY: it was leaked by `give_list`, and this was the last reference.
        drop(unsafe { Box::from_raw(this.cast_mut()) });
    }
    left
}

extern "C" fn get_adapter(
    this: This,
    index: u32,
    interface: *const Guid,
    out: *mut *const c_void,
) -> Hresult {
    guarded(E_FAIL, || {
        if !clear(out) {
            return E_POINTER;
        }
        let Some(adapter) = object(this).adapters().get(index as usize).copied() else { return E_INVALIDARG };
        if adapter.is_present() { adapter.give(interface, out) } else { DXGI_ERROR_DEVICE_REMOVED }
    })
}

extern "C" fn get_adapter_count(this: This) -> u32 {
    guarded(0, || object(this).adapters().len() as u32)
}

/// Once stale, a list stays so.
extern "C" fn is_stale(this: This) -> bool {
    guarded(true, || staleness(object(this)).unwrap_or(false))
}

/// Whether the list is stale. `None`: the host does not say.
pub(super) fn staleness(list: &List) -> Option<bool> {
    if list.is_stale.load(Ordering::Relaxed) {
        return Some(true);
    }
    let sorted = |adapters: Vec<&'static Adapter>| {
        let mut adapters: Vec<_> = adapters
            .iter()
            .map(|adapter| (adapter.properties.luid.high, adapter.properties.luid.low, adapter.arrival))
            .collect();
        adapters.sort_unstable();
        adapters
    };
    let is_stale = sorted(matching(&list.filter)?) != sorted(list.adapters().clone());
    // Another thread may have found that it is.
    Some(list.is_stale.fetch_or(is_stale, Ordering::Relaxed) || is_stale)
}

/// A list with a reference of the library's own.
pub(super) struct HeldList(&'static List);

impl HeldList {
    /// The list behind a caller's pointer, if it is one.
    pub fn of(pointer: *const c_void) -> Option<HeldList> {
        // SAFETY: the C contract says that it is a COM object, whose first word points to its vtable.
        let vtable = unsafe { pointer.cast::<*const Vtable>().read_unaligned() };
        if !std::ptr::eq(vtable, &VTABLE) {
            return None;
        }
        add_ref(pointer.cast());
        Some(HeldList(object(pointer.cast())))
    }

    pub fn list(&self) -> &List {
        self.0
    }
}

impl Clone for HeldList {
    fn clone(&self) -> HeldList {
        add_ref(self.0);
        HeldList(self.0)
    }
}

impl Drop for HeldList {
    fn drop(&mut self) {
        release(self.0);
    }
}

extern "C" fn get_factory(_: This, interface: *const Guid, out: *mut *const c_void) -> Hresult {
    clear(out);
    guarded(E_FAIL, || factory::give_factory(interface, out))
}

/// Where an adapter stands by one preference: lower is better. An unknown preference makes no difference.
fn rank(adapter: &Adapter, preference: u32) -> Reverse<u64> {
    let properties = &adapter.properties;
    Reverse(match preference {
        preference::HARDWARE => properties.is_hardware().into(),
        preference::MINIMUM_POWER => properties.is_integrated().into(),
        // The adapter with the most memory of its own.
        preference::HIGH_PERFORMANCE => properties.budgets[0],
        _ => 0,
    })
}

extern "C" fn sort(this: This, count: u32, preferences: *const u32) -> Hresult {
    guarded(E_FAIL, || {
        if count == 0 || preferences.is_null() {
            return E_INVALIDARG;
        }
        // The first preferences decide; more of them than there are kinds decide nothing new.
        // SAFETY: the C contract says that there are `count` preferences.
        let wanted = (0..count as usize).map(|at| unsafe { preferences.add(at).read_unaligned() });
        let mut kinds: Vec<u32> = Vec::new();
        for preference in wanted.filter(|one| is_adapter_preference_supported(this, *one)) {
            if !kinds.contains(&preference) {
                kinds.push(preference);
            }
        }
        let ranks = |adapter: &&Adapter| kinds.iter().map(|kind| rank(adapter, *kind)).collect::<Vec<_>>();
        object(this).adapters().sort_by_key(|adapter| ranks(adapter));
        S_OK
    })
}

extern "C" fn is_adapter_preference_supported(_: This, preference: u32) -> bool {
    [preference::HARDWARE, preference::MINIMUM_POWER, preference::HIGH_PERFORMANCE].contains(&preference)
}
