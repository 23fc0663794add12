//! Allocations with private driver data: the driver's own format (`d3dkmt::allocation_data`), and data that it does not
//! know.
//!
//! | data of an allocation | pSystemMem | answer |
//! |---|---|---|
//! | this driver's | yes or no | size in whole units of the alignment; NON_LOCAL and visible for memory of a process |
//! | another driver's, or none | yes | accepted unread, without a size |
//! | another driver's, or none | no | STATUS_NOT_SUPPORTED: the size of that memory is unknown |
//!
//! Data of the resource itself mean nothing here, and stay as they are.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use d3dkmt::NtStatus;
use d3dkmt::allocation_data::{
    AllocationData, AllocationDataFlags, NotAllocationData, SEGMENT_ANY, SEGMENT_LOCAL, SEGMENT_NON_LOCAL,
};
use dxgkrnl::ddi::{
    AllocationDescription, AllocationId, AllocationInfo, Callback, CreateAllocation, DestroyAllocation,
    SegmentGroup,
};
use serde::{Deserialize, Serialize};

use crate::resources::Refused;

const PAGE_BYTES: u32 = 4096;

/// Allocations that the driver can describe.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Allocations(BTreeMap<AllocationId, AllocationDescription>);

impl Allocations {
    pub fn create(
        &mut self,
        adapter: u32,
        create: &mut CreateAllocation,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let process = Some(create.process);
        let mut print = |text| callbacks.push(Callback::DebugPrint { adapter, process, text });
        let (mut unknown, mut described) = (None, Vec::new());
        for info in &mut create.allocations {
            let answer = match AllocationData::decode(&info.private_data) {
                Ok(data) => answer(info, data).map(|data| described.push((info.allocation, data))),
                Err(NotAllocationData::Unknown) => without_format(info).map(|()| {
                    unknown.get_or_insert(info.private_data.len());
                }),
                Err(NotAllocationData::Length) => {
                    let (has, wanted) = (info.private_data.len(), AllocationData::BYTES);
                    refused(format!("{has} bytes of its data of an allocation, which are {wanted}"))
                }
                Err(NotAllocationData::Version(version)) => {
                    refused(format!("data of an allocation of version {version}"))
                }
            };
            if let Err((status, text)) = answer {
                print(text);
                return Err(status);
            }
        }
        if let Some(bytes) = unknown {
            print(format!(
                "{bytes} bytes of private data of an allocation are not this driver's: accepted unread, its size is \
                 what is mapped of it"
            ));
        }
        let pictures = described.into_iter().filter(|(_, data)| data.width > 0);
        self.0.extend(pictures.map(|(id, AllocationData { width, height, format, .. })| {
            (id, AllocationDescription { width, height, format })
        }));
        Ok(())
    }

    pub fn destroy(&mut self, destroy: &DestroyAllocation) {
        for allocation in &destroy.allocations {
            self.0.remove(allocation);
        }
    }

    pub fn describe(&self, allocation: AllocationId) -> Option<AllocationDescription> {
        self.0.get(&allocation).copied()
    }
}

fn refused<T>(text: String) -> Result<T, Refused> {
    Err((NtStatus::INVALID_PARAMETER, text))
}

/// Answers data of this driver, also in the data themselves.
fn answer(info: &mut AllocationInfo, mut data: AllocationData) -> Result<AllocationData, Refused> {
    let AllocationData { size, alignment, segment, flags, .. } = data;
    if size == 0 || (alignment != 0 && !alignment.is_power_of_two()) {
        return refused(format!("an allocation of {size} bytes with alignment {alignment}"));
    }
    let unknown_flags = flags.bits() & !AllocationDataFlags::all().bits();
    if !matches!(segment, SEGMENT_ANY | SEGMENT_LOCAL | SEGMENT_NON_LOCAL) || unknown_flags != 0 {
        return refused(format!("an allocation in segment {segment} with flags {:#x}", flags.bits()));
    }
    data.alignment = alignment.max(PAGE_BYTES);
    let Some(size) = size.checked_next_multiple_of(data.alignment.into()) else {
        return refused(format!("an allocation of {size} bytes"));
    };
    data.size = size;
    let is_local = segment == SEGMENT_LOCAL && !info.system_memory;
    data.segment = if is_local { SEGMENT_LOCAL } else { SEGMENT_NON_LOCAL };
    data.flags.set(AllocationDataFlags::CPU_VISIBLE, info.system_memory || !flags.is_empty());
    data.number = info.allocation.0;
    info.size = Some(size);
    info.alignment = data.alignment;
    info.segment_group = if is_local { SegmentGroup::Local } else { SegmentGroup::NonLocal };
    info.cpu_visible = data.flags.contains(AllocationDataFlags::CPU_VISIBLE);
    info.private_data = data.encode().to_vec();
    Ok(data)
}

/// Accepts an allocation of which the driver knows nothing, if it is memory of its process.
fn without_format(info: &mut AllocationInfo) -> Result<(), Refused> {
    if !info.system_memory {
        let text = "an allocation without pSystemMem, and no data of this driver that say its size";
        return Err((NtStatus::NOT_SUPPORTED, text.to_string()));
    }
    info.alignment = PAGE_BYTES;
    info.cpu_visible = true;
    Ok(())
}
