//! What the guest driver checks before the host sees a call, where it answers otherwise than the host or the library:
//! counts, arrays that cannot be read, descriptors that are no events. Handles are the host's.

use std::ffi::CStr;

use abi::Plain;
use abi::types::{
    D3DDDI_CPU_NOTIFICATION, D3DDDI_DRIVERESCAPETYPE, D3DDDI_MAX_BROADCAST_CONTEXT,
    D3DDDI_MAX_OBJECT_SIGNALED, D3DDDI_MAX_OBJECT_WAITED_ON, D3DKMT_CREATESYNCHRONIZATIONOBJECT2,
    D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3, D3DKMT_ESCAPE, D3DKMT_HANDLE,
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
    D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, HANDLE, UINT64,
};
use d3dkmt::{SignalFlags, SyncObjectFlags};

use crate::defects::ring_is_full;
use crate::library::Function;
use crate::limits::{ADAPTERS2_MAX, ADAPTERS3_MAX, MESSAGE_OBJECTS_MAX};
use crate::memory::{readable, readable_bytes};
use crate::status::{Answer, Errno};

pub type Check = Result<(), Errno>;

fn require(condition: bool) -> Check {
    if condition { Ok(()) } else { Err(Errno::INVAL) }
}

/// A message of a context, for which the ring has no room if that defect is on.
pub fn send<T: Plain>(arguments: &mut T, function: &Function<T>) -> Answer {
    // The driver gives up after 5000 attempts. The client sees TIMEOUT, a success code.
    if ring_is_full() { Err(Errno::AGAIN) } else { function.call(arguments) }
}

/// The number of an eventfd, and not 0, which is NULL.
pub fn event(handle: HANDLE) -> Check {
    let mut path = [0u8; 32];
    let mut target = [0u8; 32];
    let number = i32::try_from(handle).ok().filter(|number| *number > 0).ok_or(Errno::INVAL)?;
    // `/proc/self` is the main thread, which a program may have ended, and then has no descriptors.
    let text = format!("/proc/thread-self/fd/{number}\0");
    path[..text.len()].copy_from_slice(text.as_bytes());
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    // SAFETY: writes to `target` only, at most its length.
    let length = unsafe { libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    require(usize::try_from(length).is_ok_and(|length| &target[..length] == b"anon_inode:[eventfd]"))
}

fn handles_and_values(objects: *const D3DKMT_HANDLE, values: *const UINT64, count: u32) -> Check {
    readable(objects, count)?;
    readable(values, count)
}

pub fn enum_adapters2(
    arguments: &mut D3DKMT_ENUMADAPTERS2,
    function: &Function<D3DKMT_ENUMADAPTERS2>,
) -> Answer {
    require(arguments.pAdapters.is_null() || arguments.NumAdapters <= ADAPTERS2_MAX)?;
    function.call(arguments)
}

pub fn enum_adapters3(
    arguments: &mut D3DKMT_ENUMADAPTERS3,
    function: &Function<D3DKMT_ENUMADAPTERS3>,
) -> Answer {
    require(arguments.pAdapters.is_null() || arguments.NumAdapters <= ADAPTERS3_MAX)?;
    function.call(arguments)
}

/// The driver puts the context before the others, so one less than 64 are allowed.
pub fn signal(
    arguments: &mut D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2,
    function: &Function<D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2>,
) -> Answer {
    require((arguments.BroadcastContextCount as usize) < D3DDDI_MAX_BROADCAST_CONTEXT)?;
    require(arguments.ObjectCount as usize <= D3DDDI_MAX_OBJECT_SIGNALED)?;
    if SignalFlags::from_bits_retain(arguments.Flags).contains(SignalFlags::ENQUEUE_CPU_EVENT) {
        event(arguments.value)?;
    }
    send(arguments, function)
}

pub fn wait(
    arguments: &mut D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2,
    function: &Function<D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2>,
) -> Answer {
    require((1..=D3DDDI_MAX_OBJECT_WAITED_ON).contains(&(arguments.ObjectCount as usize)))?;
    send(arguments, function)
}

pub fn signal_from_cpu(
    arguments: &mut D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU,
    function: &Function<D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU>,
) -> Answer {
    let count = arguments.ObjectCount;
    require((1..=D3DDDI_MAX_OBJECT_SIGNALED).contains(&(count as usize)))?;
    handles_and_values(arguments.ObjectHandleArray, arguments.FenceValueArray, count)?;
    send(arguments, function)
}

pub fn signal_from_gpu(
    arguments: &mut D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
    function: &Function<D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU>,
) -> Answer {
    let count = arguments.ObjectCount;
    require((1..=MESSAGE_OBJECTS_MAX).contains(&count))?;
    handles_and_values(arguments.ObjectHandleArray, arguments.values as *const UINT64, count)?;
    send(arguments, function)
}

pub fn signal_from_gpu2(
    arguments: &mut D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2,
    function: &Function<D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2>,
) -> Answer {
    let (objects, contexts) = (arguments.ObjectCount, arguments.BroadcastContextCount);
    if SignalFlags::from_bits_retain(arguments.Flags).contains(SignalFlags::ENQUEUE_CPU_EVENT) {
        require(objects == 0)?;
        event(arguments.values)?;
    } else {
        require((1..=MESSAGE_OBJECTS_MAX).contains(&objects))?;
        require((1..=MESSAGE_OBJECTS_MAX).contains(&contexts))?;
        handles_and_values(arguments.ObjectHandleArray, arguments.values as *const UINT64, objects)?;
    }
    readable(arguments.BroadcastContextArray, contexts.max(1))?;
    send(arguments, function)
}

/// The values are a pointer or one value, as the first object's type says; only the host's side knows which.
pub fn wait_from_gpu(
    arguments: &mut D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
    function: &Function<D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU>,
) -> Answer {
    require((1..=D3DDDI_MAX_OBJECT_WAITED_ON).contains(&(arguments.ObjectCount as usize)))?;
    readable(arguments.ObjectHandleArray, arguments.ObjectCount)?;
    send(arguments, function)
}

pub fn signal_to_hw_queue(
    arguments: &mut D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
    function: &Function<D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE>,
) -> Answer {
    let (queues, objects) = (arguments.BroadcastHwQueueCount, arguments.ObjectCount);
    require((1..=D3DDDI_MAX_BROADCAST_CONTEXT).contains(&(queues as usize)))?;
    require((1..=D3DDDI_MAX_OBJECT_SIGNALED).contains(&(objects as usize)))?;
    readable(arguments.BroadcastHwQueueArray, queues)?;
    handles_and_values(arguments.ObjectHandleArray, arguments.FenceValueArray, objects)?;
    send(arguments, function)
}

pub fn wait_to_hw_queue(
    arguments: &mut D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
    function: &Function<D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE>,
) -> Answer {
    require((1..=D3DDDI_MAX_OBJECT_WAITED_ON).contains(&(arguments.ObjectCount as usize)))?;
    handles_and_values(arguments.ObjectHandleArray, arguments.FenceValueArray, arguments.ObjectCount)?;
    send(arguments, function)
}

/// An NT handle is a descriptor of a shared object.
pub fn open_sync_object(arguments: &D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2) -> Check {
    require(arguments.hDevice != 0)?;
    let number = i32::try_from(arguments.hNtHandle).ok().filter(|number| *number >= 0).ok_or(Errno::INVAL)?;
    // SAFETY: borrowed for one check, which answers `None` for a number that is not open.
    let handle = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    require(nt_handle::token_of(handle).is_some())
}

/// A shared object must be shared by NT handles (C07). The event of a CPU notification must be one.
pub fn create_synchronization_object(arguments: &D3DKMT_CREATESYNCHRONIZATIONOBJECT2) -> Check {
    let flags = SyncObjectFlags::from_bits_retain(arguments.Info.Flags);
    require(
        !flags.contains(SyncObjectFlags::SHARED) || flags.contains(SyncObjectFlags::NT_SECURITY_SHARING),
    )?;
    if arguments.Info.Type == D3DDDI_CPU_NOTIFICATION {
        event(arguments.Info.first)?;
    }
    Ok(())
}

pub fn wait_from_cpu(arguments: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU) -> Check {
    require((1..=MESSAGE_OBJECTS_MAX).contains(&arguments.ObjectCount))?;
    if arguments.hAsyncEvent != 0 {
        event(arguments.hAsyncEvent)?;
    }
    handles_and_values(arguments.ObjectHandleArray, arguments.FenceValueArray, arguments.ObjectCount)
}

/// A driver-known escape has at least its type.
pub fn escape(arguments: &D3DKMT_ESCAPE, is_known: bool) -> Check {
    let bytes = arguments.PrivateDriverDataSize;
    require(bytes <= crate::limits::ESCAPE_BYTES_MAX)?;
    require(!is_known || bytes as usize >= size_of::<D3DDDI_DRIVERESCAPETYPE>())?;
    readable_bytes(arguments.pPrivateDriverData, bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_eventfds_are_events() {
        // SAFETY: new descriptors, closed below.
        unsafe {
            let [event_number, copy, other] =
                [libc::eventfd(0, 0), libc::dup(0), libc::epoll_create1(0)].map(|number| number as u64);
            assert_eq!(event(event_number), Ok(()));
            for number in [0, copy, other, 1 << 20, u64::MAX, u64::MAX - 99] {
                assert_eq!(event(number), Err(Errno::INVAL), "{number}");
            }
            for number in [event_number, copy, other] {
                libc::close(number as i32);
            }
        }
    }
}
