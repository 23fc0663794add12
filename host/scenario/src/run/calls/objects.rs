//! Calls about synchronization objects and keyed mutexes.

use d3dkmt::{Call, CreatedSyncObject, EventId, Handle, RuntimeBuffer, SyncObjectInfo, limits};

use super::{NO_EVENT, token};
use crate::host::utc_100ns;
use crate::program::{Act, Binding, HandleRef, ObjectSpec, Operation, Timeout};
use crate::run::Run;
use crate::world::World;

impl<W: World> Run<'_, W> {
    /// The call of an act about objects; `None` if it is about something else.
    pub(super) fn call_of_objects(&self, act: &Act) -> Option<Call> {
        let own_token = token(act.binding.unwrap_or(Binding(u32::MAX)));
        Some(match &act.operation {
            Operation::CreateObject { device, spec } => {
                let info = self.info(spec, spec.event.map(|_| NO_EVENT));
                Call::CreateSynchronizationObject { device: self.handle(*device), info, legacy: spec.legacy }
            }
            Operation::DestroyObject { object } => {
                Call::DestroySynchronizationObject { object: self.handle(*object) }
            }
            Operation::CreateNativeFence { device, initial, native_type, flags, engine_affinity } => {
                Call::CreateNativeFence {
                    device: self.handle(*device),
                    initial_value: *initial,
                    native_type: *native_type,
                    flags: *flags,
                    engine_affinity: *engine_affinity,
                }
            }
            Operation::Share { objects, access, name } => Call::ShareObjects {
                objects: self.handles(objects),
                desired_access: *access,
                name: name.clone(),
                token: own_token,
            },
            Operation::OpenName { name, access } => {
                Call::OpenNtHandleFromName { name: name.clone(), desired_access: *access, token: own_token }
            }
            Operation::Open { device, share, flags, engine_affinity, legacy } => Call::OpenSyncObject {
                device: self.handle(*device),
                token: token(*share),
                flags: *flags,
                engine_affinity: *engine_affinity,
                legacy: *legacy,
            },
            Operation::OpenNativeFence { device, share, flags } => Call::OpenNativeFence {
                device: self.handle(*device),
                token: token(*share),
                flags: *flags,
                engine_affinity: 0,
            },
            Operation::OpenGlobal { object } => {
                Call::OpenSynchronizationObject { shared_handle: self.global(*object) }
            }
            Operation::Signal { device, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                Call::SignalFromCpu { device: self.handle(*device), objects, values, flags: *flags }
            }
            Operation::Wait { device, items, flags, .. } => {
                let (objects, values) = self.pairs(items);
                let (device, flags) = (self.handle(*device), *flags);
                Call::WaitFromCpu { device, objects, values, flags, event: NO_EVENT }
            }
            other => return self.call_of_keyed_mutexes(other),
        })
    }

    fn call_of_keyed_mutexes(&self, operation: &Operation) -> Option<Call> {
        let buffer = |size: &u32, data: &Option<String>| {
            let mut data = data.clone().unwrap_or_default().into_bytes();
            let size = (*size).max(data.len() as u32);
            data.resize((size as usize).min(limits::PRIVATE_DATA_BYTES_MAX), 0);
            RuntimeBuffer { size, present: size != 0, data }
        };
        Some(match operation {
            Operation::CreateKeyedMutex { key, data, flags } => Call::CreateKeyedMutex {
                initial_value: *key,
                private_data: data.clone().unwrap_or_default().into_bytes(),
                flags: *flags,
            },
            Operation::OpenKeyedMutex { mutex, buffer: size, data } => {
                Call::OpenKeyedMutex { shared_handle: self.global(*mutex), buffer: buffer(size, data) }
            }
            Operation::OpenSharedKeyedMutex { share, buffer: size, data } => {
                Call::OpenKeyedMutexFromNtHandle { token: token(*share), buffer: buffer(size, data) }
            }
            Operation::DestroyKeyedMutex { mutex } => Call::DestroyKeyedMutex { mutex: self.handle(*mutex) },
            Operation::Acquire { mutex, key, timeout } => Call::AcquireKeyedMutex {
                mutex: self.handle(*mutex),
                key: *key,
                timeout: match *timeout {
                    Timeout::Forever => None,
                    Timeout::Poll => Some(0),
                    Timeout::Within(time) => Some(-((time / 100) as i64)),
                    Timeout::Until(time) => Some(utc_100ns(time)),
                },
                event: NO_EVENT,
            },
            Operation::Release { mutex, key, value, data } => Call::ReleaseKeyedMutex {
                mutex: self.handle(*mutex),
                key: *key,
                fence_value: *value,
                private_data: data.clone().map(String::into_bytes),
            },
            _ => return None,
        })
    }

    /// The global handle that came with an object.
    fn global(&self, handle: HandleRef) -> Handle {
        match handle {
            HandleRef::Bound(binding) => self.bound[binding.index()].global,
            HandleRef::Raw(raw) => Handle(raw),
        }
    }

    fn info(&self, spec: &ObjectSpec, event: Option<EventId>) -> SyncObjectInfo {
        SyncObjectInfo {
            object_type: spec.object_type,
            flags: spec.flags,
            initial_state: spec.initial_state,
            max_count: spec.max_count,
            initial_count: spec.initial_count,
            initial_value: spec.initial_value,
            engine_affinity: spec.engine_affinity,
            adapter: spec.adapter.map_or(Handle::NULL, |adapter| self.handle(adapter)),
            vidpn_target: spec.target,
            time_100ns: spec.time_100ns,
            event,
        }
    }

    /// Keeps what came with an object.
    pub(in crate::run) fn keep_object(&mut self, binding: Binding, created: &CreatedSyncObject) {
        let bound = &mut self.bound[binding.index()];
        bound.handle = created.object;
        bound.global = created.shared_handle;
        bound.gpu_address = created.gpu_address;
    }
}
