//! Maps recorded names to current ones: handles, adapters, the GPU addresses of fences.

use std::collections::{BTreeMap, BTreeSet};

use d3dkmt::isa::{self, CommandBuffer, Packet};
use d3dkmt::{Call, CpuEventUsage, EscapeFlags, Handle, HandleKind, Luid, Reply};
use dxgkrnl::ProcessId;
use scenario::world::fence_of;

/// A handle with its process; global handles have no process.
type Owned = (Option<ProcessId>, Handle);

#[derive(Default)]
pub struct Names {
    handles: BTreeMap<Owned, Handle>,
    /// Handles that exist in the recording and not in the replay.
    missing: BTreeSet<Owned>,
    adapters: BTreeMap<Luid, Luid>,
    /// GPU addresses of fences; only those that differ.
    fences: BTreeMap<(ProcessId, u64), u64>,
}

fn owned(process: ProcessId, handle: Handle) -> Owned {
    (Some(process).filter(|_| handle.kind() != HandleKind::Global), handle)
}

impl Names {
    /// Translates a recorded call to current names. Fails with a handle that the process did not get in the replay. A
    /// handle that the process never had stays unchanged, so that it is refused again.
    pub fn translate(&self, process: ProcessId, call: &mut Call) -> Result<(), Handle> {
        let mut missing = None;
        let mut named = |handle: &mut Handle| {
            let name = owned(process, *handle);
            if self.missing.contains(&name) {
                missing = Some(*handle);
            }
            *handle = self.handles.get(&name).copied().unwrap_or(*handle);
        };
        call.handles_mut(&mut named);
        match call {
            Call::Escape { flags, data, .. } if flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE) => {
                if let Some(mut usage) = CpuEventUsage::decode(data) {
                    named(&mut usage.object);
                    *data = usage.encode();
                }
            }
            Call::SubmitCommand { private_data, .. } | Call::SubmitCommandToHwQueue { private_data, .. }
                if !self.fences.is_empty() =>
            {
                self.translate_commands(process, private_data);
            }
            Call::OpenAdapterFromLuid { luid } => *luid = self.adapters.get(luid).copied().unwrap_or(*luid),
            _ => {}
        }
        missing.map_or(Ok(()), Err)
    }

    /// A buffer in another format is left to the driver.
    fn translate_commands(&self, process: ProcessId, bytes: &mut Vec<u8>) {
        let Ok(CommandBuffer::Packets(mut packets)) = isa::decode(bytes) else { return };
        let mut changed = false;
        for packet in &mut packets {
            if let Packet::FenceWrite { gpu_address, .. }
            | Packet::MarkerIn { gpu_address, .. }
            | Packet::MarkerOut { gpu_address, .. } = packet
                && let Some(now) = self.fences.get(&(process, *gpu_address))
            {
                (*gpu_address, changed) = (*now, true);
            }
        }
        if changed {
            *bytes = isa::encode(&packets);
        }
    }

    /// Maps the names of a recorded reply to those of the new one. The error describes a difference.
    pub fn learn(&mut self, process: ProcessId, then: &Reply, now: &Reply) -> Result<(), String> {
        let (given_then, given_now) = (then.handles(), now.handles());
        if given_then.len() != given_now.len() {
            self.lose(process, then);
            return Err(format!("gave {} handles, now {}", given_then.len(), given_now.len()));
        }
        for (then, now) in given_then.into_iter().zip(given_now) {
            self.missing.remove(&owned(process, then));
            self.handles.insert(owned(process, then), now);
        }
        if let (Reply::Adapters(then), Reply::Adapters(now)) = (then, now) {
            self.adapters.extend(then.iter().zip(now).map(|(then, now)| (then.luid, now.luid)));
        }
        if let (Some(then), Some(now)) = (fence_of(then), fence_of(now)) {
            let then = (process, then.gpu_address);
            match then.1 == now.gpu_address {
                true => self.fences.remove(&then),
                false => self.fences.insert(then, now.gpu_address),
            };
        }
        match (then, now) {
            (
                Reply::GpuVirtualAddress { address: then, .. },
                Reply::GpuVirtualAddress { address: now, .. },
            ) if then != now => Err(format!("gave the GPU address {then:#x}, now {now:#x}")),
            _ => Ok(()),
        }
    }

    /// Marks the names of a recorded reply as missing.
    pub fn lose(&mut self, process: ProcessId, then: &Reply) {
        for handle in then.handles() {
            self.handles.remove(&owned(process, handle));
            self.missing.insert(owned(process, handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use d3dkmt::{Adapter, CreatedSyncObject, Handles};

    use super::*;

    const P: ProcessId = ProcessId(1);
    const Q: ProcessId = ProcessId(2);

    fn fence(object: u32, shared: u32, gpu_address: u64) -> Reply {
        let (object, shared_handle) = (Handle(object), Handle(shared));
        Reply::SyncObject(CreatedSyncObject {
            object,
            shared_handle,
            gpu_address,
            ..CreatedSyncObject::default()
        })
    }

    fn translated(names: &Names, process: ProcessId, call: Call) -> Result<Vec<Handle>, Handle> {
        let mut call = call;
        names.translate(process, &mut call).map(|()| call.handles())
    }

    #[test]
    fn handles_are_a_processs_own_and_global_ones_everybodys() {
        let (mut names, local, global) = (Names::default(), 0x4000_0040, 0x4000_0042);
        names.learn(P, &fence(local, global, 7), &fence(0x4000_1000, 0x4000_1002, 7)).unwrap();
        let destroy = |object| Call::DestroySynchronizationObject { object: Handle(object) };
        let open = |shared| Call::OpenSynchronizationObject { shared_handle: Handle(shared) };
        assert_eq!(translated(&names, P, destroy(local)), Ok(vec![Handle(0x4000_1000)]));
        assert_eq!(translated(&names, Q, destroy(local)), Ok(vec![Handle(local)]), "never given to it");
        assert_eq!(translated(&names, Q, open(global)), Ok(vec![Handle(0x4000_1002)]));
        let usage = CpuEventUsage { object: Handle(local), kmd_cpu_event: 3, usage: [1; 8] };
        let mut escape = Call::Escape {
            adapter: Handle::NULL,
            device: Handle::NULL,
            context: Handle::NULL,
            kind: 0,
            flags: EscapeFlags::DRIVER_KNOWN_ESCAPE,
            data: usage.encode(),
        };
        names.translate(P, &mut escape).unwrap();
        let Call::Escape { data, .. } = escape else { unreachable!() };
        assert_eq!(
            CpuEventUsage::decode(&data),
            Some(CpuEventUsage { object: Handle(0x4000_1000), ..usage })
        );
    }

    #[test]
    fn a_handle_is_missing_until_the_replay_creates_it() {
        let (mut names, then) = (Names::default(), fence(0x4000_0040, 0, 7));
        let destroy = || Call::DestroySynchronizationObject { object: Handle(0x4000_0040) };
        names.lose(P, &then);
        assert_eq!(translated(&names, P, destroy()), Err(Handle(0x4000_0040)));
        assert_eq!(names.learn(P, &then, &Reply::None), Err("gave 1 handles, now 0".into()));
        names.learn(P, &then, &fence(0x4000_0080, 0, 8)).unwrap();
        assert_eq!(translated(&names, P, destroy()), Ok(vec![Handle(0x4000_0080)]));
    }

    #[test]
    fn commands_write_the_fence_where_it_is_now() {
        let (mut names, then) = (Names::default(), fence(0x4000_0040, 0, 0x1_0000_0040));
        let written = |names: &Names, gpu_address| {
            let private_data = isa::encode(&[Packet::FenceWrite { gpu_address, value: 5 }]);
            let (contexts, commands, length, flags) = (Handles::default(), 0, 0, 0);
            let mut call = Call::SubmitCommand { contexts, commands, length, flags, private_data };
            names.translate(P, &mut call).unwrap();
            let Call::SubmitCommand { private_data, .. } = call else { unreachable!() };
            let Ok(CommandBuffer::Packets(packets)) = isa::decode(&private_data) else { panic!("packets") };
            let [Packet::FenceWrite { gpu_address, value: 5 }] = packets[..] else { panic!("{packets:?}") };
            gpu_address
        };
        names.learn(P, &then, &fence(0x4000_0040, 0, 0x1_0000_0100)).unwrap();
        assert_eq!(written(&names, 0x1_0000_0040), 0x1_0000_0100);
        assert_eq!(written(&names, 0x1_0000_0080), 0x1_0000_0080, "another's");
        names.learn(P, &then, &then).unwrap();
        assert_eq!(written(&names, 0x1_0000_0040), 0x1_0000_0040);
        let (then, now) = (1 << 20, 1 << 21);
        let mapped = |address| Reply::GpuVirtualAddress { address, paging_fence_value: 1 };
        let told = names.learn(P, &mapped(then), &mapped(now));
        assert_eq!(told, Err("gave the GPU address 0x100000, now 0x200000".into()));
    }

    #[test]
    fn an_adapter_is_the_one_at_the_same_place() {
        let adapters = |low| {
            let luid = Luid { low, high: 0 };
            Reply::Adapters(vec![Adapter { handle: Handle(0x4000_0080), luid, sources: 1, arrival: 0 }])
        };
        let mut names = Names::default();
        names.learn(P, &adapters(5), &adapters(9)).unwrap();
        let mut open = Call::OpenAdapterFromLuid { luid: Luid { low: 5, high: 0 } };
        names.translate(P, &mut open).unwrap();
        assert_eq!(open, Call::OpenAdapterFromLuid { luid: Luid { low: 9, high: 0 } });
    }
}
