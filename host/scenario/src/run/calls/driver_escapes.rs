//! Escapes to the driver for resources, fences and the debug layer.

use d3dkmt::isa::{ResourceDesc, ResourceName};
use d3dkmt::{Call, EscapeFlags, Handle, escape, list_escape};

use crate::program::{Act, HandleRef, Operation};
use crate::run::Run;
use crate::world::World;

/// Size of the buffer for messages.
const MESSAGES_BYTES: usize = 32 * 1024;

impl<W: World> Run<'_, W> {
    /// Returns the escape of an operation on resources or the debug layer.
    pub(super) fn escape_of_lists(&self, act: &Act) -> Call {
        let (device, data) = match &act.operation {
            Operation::CreateResource { device, at, desc } => {
                let gpu_address = self.address(*at).wrapping_add(desc.gpu_address);
                // A resource without a name gets its scenario name.
                let name = match (desc.name.as_ref(), act.binding) {
                    ("", Some(binding)) => ResourceName::new(self.program.name(binding)),
                    _ => desc.name,
                };
                let desc = ResourceDesc { gpu_address, name, ..*desc };
                (device, list_escape::create_resource(&desc))
            }
            Operation::DestroyResource { device, resource } => {
                let number = self.bound[resource.index()].number.unwrap_or_default();
                (device, list_escape::command(list_escape::DESTROY_RESOURCE, number as u32))
            }
            Operation::DescribeFence { device, fence, flags } => {
                let (gpu_address, name) = match fence {
                    HandleRef::Bound(binding) => {
                        (self.bound[binding.index()].gpu_address, self.program.name(*binding))
                    }
                    HandleRef::Raw(raw) => (u64::from(*raw), ""),
                };
                (device, list_escape::describe_fence(gpu_address, *flags, name))
            }
            Operation::SetDebug { device, level } => {
                (device, list_escape::command(list_escape::SET_DEBUG, *level))
            }
            Operation::ReadMessages { device } => (device, list_escape::read_messages(MESSAGES_BYTES)),
            _ => unreachable!("an operation that makes no escape"),
        };
        let adapter = match device {
            HandleRef::Bound(binding) => self.bound[binding.index()].adapter,
            HandleRef::Raw(_) => Handle::NULL,
        };
        Call::Escape {
            adapter,
            device: self.handle(*device),
            context: Handle::NULL,
            kind: escape::kind::DRIVER_PRIVATE,
            flags: EscapeFlags::empty(),
            data,
        }
    }
}
