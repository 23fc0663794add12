//! What this process knows of its own sync objects, as any client does: their types, and the addresses of its fences'
//! values.
//!
//! `unsafe` here: C's pointer to a fence value is dereferenced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use d3dkmt::{Handle, NtStatus, SyncObjectType};

#[derive(Clone, Copy)]
pub struct Object {
    pub device: Handle,
    /// `None` for an object that was opened.
    pub object_type: Option<SyncObjectType>,
    value: Option<&'static AtomicU64>,
}

impl Object {
    /// `address` is `FenceValueCPUVirtualAddress`, NULL for an object that has none.
    pub fn new(
        device: Handle,
        object_type: Option<SyncObjectType>,
        address: *mut core::ffi::c_void,
    ) -> Object {
        let value = (!address.is_null()).then(|| {
            // SAFETY: an aligned u64 in fence memory, which libdxcore.so keeps mapped to the end of the
            // process; nothing is stored through the reference.
            unsafe { AtomicU64::from_ptr(address.cast()) }
        });
        Object { device, object_type, value }
    }
}

#[derive(Default)]
pub struct Objects(Mutex<BTreeMap<Handle, Object>>);

impl Objects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Handle, Object>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn created(&self, handle: Handle, object: Object) {
        self.lock().insert(handle, object);
    }

    pub fn destroyed(&self, handle: Handle) {
        self.lock().remove(&handle);
    }

    /// Forgets the monitored fences of a destroyed device.
    pub fn device_destroyed(&self, device: Handle) {
        self.lock().retain(|_, object| object.device != device || object.value.is_none());
    }

    /// The value of a fence now.
    pub fn value(&self, handle: Handle) -> Result<u64, NtStatus> {
        let value = self.lock().get(&handle).and_then(|object| object.value);
        value.map(|value| value.load(Ordering::Acquire)).ok_or(NtStatus::INVALID_HANDLE)
    }

    /// Whether a GPU signal or wait of these objects has one value in place and not an array of values. That holds for
    /// all types but the monitored fence; the first object decides.
    pub fn take_value_in_place(&self, objects: &[Handle]) -> bool {
        let first = objects.first().and_then(|first| self.lock().get(first).copied());
        let first_type = first.and_then(|object| object.object_type);
        first_type.is_some_and(|object_type| {
            object_type != SyncObjectType::MONITORED_FENCE
                && object_type != SyncObjectType::PERIODIC_MONITORED_FENCE
                && object_type != SyncObjectType::NATIVE_FENCE
        })
    }
}
