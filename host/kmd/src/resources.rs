//! Resources that commands name by number. A user-mode driver creates and destroys them by escapes; a device's
//! destruction destroys its resources. A number is valid for one process on one adapter, and is not reused while the
//! process lives.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use d3dkmt::isa::ResourceDesc;
use d3dkmt::{NtStatus, limits};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::KmdDevice;
use serde::{Deserialize, Serialize};

/// Adapter and process that own resources.
pub(crate) type Space = (u32, ProcessId);

#[derive(Default, Serialize, Deserialize)]
struct Table {
    last: u32,
    /// The last one that existed when a command buffer of the process started: those behind are in no list yet.
    last_used: u32,
    resources: BTreeMap<u32, (KmdDevice, ResourceDesc)>,
    /// Numbers by device.
    of_device: BTreeMap<KmdDevice, BTreeSet<u32>>,
}

/// The resources of all processes.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Resources {
    tables: BTreeMap<Space, Table>,
    /// The space of each device that has resources.
    space_of: BTreeMap<KmdDevice, Space>,
}

/// Why an escape was refused: the status for the caller, and a text for the log.
pub(crate) type Refused = (NtStatus, String);

impl Resources {
    /// Creates a resource from an encoded [`ResourceDesc`]. Returns its number.
    pub fn create(&mut self, space: Space, device: KmdDevice, desc: &[u8]) -> Result<u32, Refused> {
        let desc = ResourceDesc::decode(desc);
        let desc = desc.map_err(|error| (NtStatus::INVALID_PARAMETER, error.to_string()))?;
        let table = self.tables.entry(space).or_default();
        let full = || {
            let most = limits::RESOURCES_PER_PROCESS_MAX;
            let text =
                alloc::format!("resource refused: the process has reached the limit of {most} resources");
            (NtStatus::NO_MEMORY, text)
        };
        if table.resources.len() >= limits::RESOURCES_PER_PROCESS_MAX {
            return Err(full());
        }
        table.last = table.last.checked_add(1).ok_or_else(full)?;
        table.resources.insert(table.last, (device, desc));
        table.of_device.entry(device).or_default().insert(table.last);
        self.space_of.insert(device, space);
        Ok(table.last)
    }

    pub fn destroy(&mut self, space: Space, device: KmdDevice, number: u32) -> Result<(), Refused> {
        match self.tables.get_mut(&space) {
            Some(table) if table.resources.get(&number).is_some_and(|(of, _)| *of == device) => {
                table.resources.remove(&number);
                if let Some(numbers) = table.of_device.get_mut(&device) {
                    numbers.remove(&number);
                }
                Ok(())
            }
            _ => {
                let text = alloc::format!("{number} is no resource of this device");
                Err((NtStatus::INVALID_PARAMETER, text))
            }
        }
    }

    /// A command buffer of the process starts, which may use any of its resources.
    pub fn started(&mut self, space: Space) {
        if let Some(table) = self.tables.get_mut(&space) {
            table.last_used = table.last;
        }
    }

    /// The last resource that a command buffer may have used; 0 if there is none.
    pub fn last_used(&self, space: Space) -> u32 {
        self.tables.get(&space).map_or(0, |table| table.last_used)
    }

    pub fn get(&self, space: Space, number: u32) -> Option<&ResourceDesc> {
        self.tables.get(&space)?.resources.get(&number).map(|(_, desc)| desc)
    }

    /// Bytes charged for the resources of a space. The number is the same in every build, because saved states and
    /// replays depend on it.
    pub fn kept_bytes(&self, space: Space) -> usize {
        const RESOURCE_BYTES: usize = 256;
        const { assert!(size_of::<(u32, KmdDevice, ResourceDesc, u32)>() <= RESOURCE_BYTES) };
        self.tables.get(&space).map_or(0, |table| table.resources.len() * RESOURCE_BYTES)
    }

    /// All resources of a space, by number.
    pub fn of(&self, space: Space) -> impl Iterator<Item = (u32, &ResourceDesc)> {
        let table = self.tables.get(&space).into_iter();
        table.flat_map(|table| table.resources.iter().map(|(number, (_, desc))| (*number, desc)))
    }

    /// Every process that has resources, with its adapter.
    pub fn spaces(&self) -> impl Iterator<Item = Space> {
        self.tables.keys().copied()
    }

    /// Destroys a device's resources. Returns them.
    pub fn end_device(&mut self, device: KmdDevice) -> Vec<(Space, u32)> {
        let Some(space) = self.space_of.remove(&device) else { return Vec::new() };
        let Some(table) = self.tables.get_mut(&space) else { return Vec::new() };
        let numbers = table.of_device.remove(&device).unwrap_or_default();
        for number in &numbers {
            table.resources.remove(number);
        }
        numbers.into_iter().map(|number| (space, number)).collect()
    }

    pub fn end_process(&mut self, space: Space) {
        self.tables.remove(&space);
    }
}
