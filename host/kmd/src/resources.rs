//! Resources that commands name by number. A user-mode driver makes them by an escape; they end by another, or with
//! their device. A number is of one process, on one adapter; it is never used again while the process lives.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use d3dkmt::isa::ResourceDesc;
use d3dkmt::{NtStatus, limits};
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::KmdDevice;
use serde::{Deserialize, Serialize};

/// Whose they are.
pub(crate) type Space = (u32, ProcessId);

#[derive(Default, Serialize, Deserialize)]
struct Table {
    last: u32,
    resources: BTreeMap<u32, (KmdDevice, ResourceDesc)>,
    /// Numbers by device.
    of_device: BTreeMap<KmdDevice, BTreeSet<u32>>,
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Resources {
    tables: BTreeMap<Space, Table>,
    /// Where a device has any.
    space_of: BTreeMap<KmdDevice, Space>,
}

/// Why there is no such resource: for the caller, and for people.
pub(crate) type Refused = (NtStatus, String);

impl Resources {
    /// From its description, as [`ResourceDesc`] has it. Gives its number.
    pub fn create(&mut self, space: Space, device: KmdDevice, desc: &[u8]) -> Result<u32, Refused> {
        let desc = ResourceDesc::decode(desc);
        let desc = desc.map_err(|error| (NtStatus::INVALID_PARAMETER, error.to_string()))?;
        let table = self.tables.entry(space).or_default();
        let full = || {
            let text = "resource refused: the process has as many as it may".to_string();
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

    pub fn get(&self, space: Space, number: u32) -> Option<&ResourceDesc> {
        self.tables.get(&space)?.resources.get(&number).map(|(_, desc)| desc)
    }

    /// All of a space, by number.
    pub fn of(&self, space: Space) -> impl Iterator<Item = (u32, &ResourceDesc)> {
        let table = self.tables.get(&space).into_iter();
        table.flat_map(|table| table.resources.iter().map(|(number, (_, desc))| (*number, desc)))
    }

    /// Gives what has ended.
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
