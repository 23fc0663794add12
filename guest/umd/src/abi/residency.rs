//! What is resident, locked, and worth how much; video memory budgets.

use d3dkmt::{Call, Handle, NtStatus, Reply};

use super::memory::{Array, read, read_array, read_handles, write, write_array};
use super::thunk::{CStatus, enter, failure};
use super::types::{AllocationPriority, Evict, Lock2, MakeResident, QueryVideoMemoryInfo, Unlock2};
use crate::client::{Answer, Session};
use crate::process::Starts;

/// `GetCurrentProcess()`.
const CURRENT_PROCESS: u64 = u64::MAX;

fn handles(array: *const u32, count: u32) -> Result<Vec<Handle>, NtStatus> {
    let mut copy = Array::default();
    Ok(read_handles(&mut copy, array, count)?.to_vec())
}

/// The status, the value of the paging fence from which on it holds, and NumBytesToTrim: told over budget as well.
fn residency(session: &Session, call: &Call) -> Result<(NtStatus, u64, u64), NtStatus> {
    match session.call(call) {
        Answer { status, reply: Reply::Residency { paging_fence_value, bytes_to_trim, .. } } => {
            Ok((status, paging_fence_value, bytes_to_trim))
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTMakeResident`. Over budget NumBytesToTrim is written all the same.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTMakeResident(argument: *mut MakeResident) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let priorities = if arguments.priorities.is_null() { 0 } else { arguments.count as usize };
        let call = Call::MakeResident {
            paging_queue: Handle(arguments.paging_queue),
            allocations: handles(arguments.allocations, arguments.count)?,
            priorities: read_array(arguments.priorities, priorities)?,
            flags: arguments.flags,
        };
        let (status, paging_fence_value, bytes_to_trim) = residency(session, &call)?;
        (arguments.paging_fence_value, arguments.bytes_to_trim) = (paging_fence_value, bytes_to_trim);
        write(argument, arguments);
        Ok(status)
    })
}

/// `D3DKMTEvict`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTEvict(argument: *mut Evict) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let call = Call::Evict {
            device: Handle(arguments.device),
            allocations: handles(arguments.allocations, arguments.count)?,
            flags: arguments.flags,
        };
        let (status, _, bytes_to_trim) = residency(session, &call)?;
        arguments.bytes_to_trim = bytes_to_trim;
        write(argument, arguments);
        Ok(status)
    })
}

/// `D3DKMTLock2`: the address is the one that the allocation was made of.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTLock2(argument: *mut Lock2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (device, allocation) = (Handle(arguments.device), Handle(arguments.allocation));
        match session.call(&Call::Lock { device, allocation, flags: arguments.flags }) {
            Answer { status, reply: Reply::Locked { address } } if status.is_success() => {
                arguments.data = address;
                write(argument, arguments);
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}

/// `D3DKMTUnlock2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTUnlock2(argument: *const Unlock2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let Unlock2 { device, allocation } = read(argument)?;
        let (device, allocation) = (Handle(device), Handle(allocation));
        Ok(session.call(&Call::Unlock { device, allocation }).status)
    })
}

/// How many priorities go with a call: one for a resource, or else one for each allocation.
fn priority_count(arguments: &AllocationPriority) -> Result<usize, NtStatus> {
    let count = if arguments.resource == 0 { arguments.count as usize } else { 1 };
    match count > 0 && arguments.priorities.is_null() {
        true => Err(NtStatus::INVALID_PARAMETER),
        false => Ok(count),
    }
}

/// `D3DKMTSetAllocationPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSetAllocationPriority(argument: *const AllocationPriority) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let count = priority_count(&arguments)?;
        let call = Call::SetAllocationPriority {
            device: Handle(arguments.device),
            resource: Handle(arguments.resource),
            allocations: handles(arguments.allocations, arguments.count)?,
            priorities: read_array(arguments.priorities.cast_const(), count)?,
        };
        Ok(session.call(&call).status)
    })
}

/// `D3DKMTGetAllocationPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTGetAllocationPriority(argument: *const AllocationPriority) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let count = priority_count(&arguments)?;
        let call = Call::AllocationPriority {
            device: Handle(arguments.device),
            resource: Handle(arguments.resource),
            allocations: handles(arguments.allocations, arguments.count)?,
        };
        match session.call(&call) {
            Answer { status, reply: Reply::AllocationPriorities(priorities) } if status.is_success() => {
                write_array(arguments.priorities, &priorities[..priorities.len().min(count)]);
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}

/// The calling process: NULL, `GetCurrentProcess()`, or a pidfd of it. A pidfd of another one gives no right to ask
/// about it, and what is no pidfd names no process (W-292).
fn own_process(process: u64) -> Result<(), NtStatus> {
    if process == 0 || process == CURRENT_PROCESS {
        return Ok(());
    }
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{process}"));
    let info = info.map_err(|_| NtStatus::INVALID_HANDLE)?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or(NtStatus::INVALID_HANDLE)?;
    match pid.trim() == std::process::id().to_string() {
        true => Ok(()),
        false => Err(NtStatus::ACCESS_DENIED),
    }
}

/// `D3DKMTQueryVideoMemoryInfo`, of the calling process.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTQueryVideoMemoryInfo(argument: *mut QueryVideoMemoryInfo) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        own_process(arguments.process)?;
        let call = Call::QueryVideoMemoryInfo {
            adapter: Handle(arguments.adapter),
            segment_group: arguments.segment_group,
            physical_adapter: arguments.physical_adapter,
        };
        match session.call(&call) {
            Answer { status, reply: Reply::VideoMemoryInfo(info) } if status.is_success() => {
                arguments.budget = info.budget;
                arguments.current_usage = info.current_usage;
                arguments.current_reservation = info.current_reservation;
                arguments.available_for_reservation = info.available_for_reservation;
                write(argument, arguments);
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}
