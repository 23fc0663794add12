//! Calls that are more than checks and a call of the library.

use std::ffi::{c_int, c_void};

use abi::Plain;
use abi::types::{
    D3DDDI_CPU_NOTIFICATION, D3DDDI_DRIVERESCAPETYPE_TRANSLATEALLOCATIONHANDLE,
    D3DDDI_DRIVERESCAPETYPE_TRANSLATERESOURCEHANDLE, D3DDDI_MONITORED_FENCE, D3DDDI_PERIODIC_MONITORED_FENCE,
    D3DDDI_SYNC_OBJECT_ALL_ACCESS, D3DKMT_CLOSEADAPTER, D3DKMT_CREATESYNCHRONIZATIONOBJECT2,
    D3DKMT_DEVICEEXECUTION_ACTIVE, D3DKMT_DEVICESTATE_EXECUTION, D3DKMT_ESCAPE, D3DKMT_ESCAPE_DRIVERPRIVATE,
    D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, DWORD, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES, UINT,
};
use abi::wchar::{self, Wchar};
use d3dkmt::limits::MESSAGE_BYTES_MAX;
use d3dkmt::{EscapeFlags, NtStatus};

use crate::checks::{self, send};
use crate::defects::{async_wait_fails, defects};
use crate::library::Function;
use crate::memory::{read_array, readable_bytes, write, write_array};
use crate::next;
use crate::status::{Answer, Errno, answer};

/// The first eventfd number that is no standard stream, and not NULL.
const ABOVE_STANDARD_STREAMS: c_int = 3;
/// `Type` of a private escape.
const DRIVER_PRIVATE: u32 = D3DKMT_ESCAPE_DRIVERPRIVATE;

/// Calls the library.
pub fn forward<T: Plain>(arguments: &mut T, function: &Function<T>) -> Answer {
    function.call(arguments)
}

/// The same, by a message that the driver sends without waiting for its reply if the host allows that.
pub fn on_ring<T: Plain>(arguments: &mut T, function: &Function<T>) -> Answer {
    send(arguments, function)
}

/// `LX_DXCLOSEADAPTER`: closing 0 succeeds (L02).
pub fn close_adapter(
    arguments: &mut D3DKMT_CLOSEADAPTER,
    function: &Function<D3DKMT_CLOSEADAPTER>,
) -> Answer {
    if arguments.hAdapter == 0 { Ok(0) } else { function.call(arguments) }
}

/// `LX_DXQUERYADAPTERINFO`. Clients' libraries convert the kernel's WCHARs of 2 bytes; here they are converted back.
pub fn query_adapter_info(
    arguments: &mut D3DKMT_QUERYADAPTERINFO,
    function: &Function<D3DKMT_QUERYADAPTERINFO>,
) -> Answer {
    let (kind, bytes) = (arguments.Type, arguments.PrivateDriverDataSize as usize);
    readable_bytes(arguments.pPrivateDriverData, bytes)?;
    // More is refused as it is.
    if !wchar::has_text(kind) || bytes > MESSAGE_BYTES_MAX {
        return function.call(arguments);
    }
    let data = read_array(arguments.pPrivateDriverData, bytes)?;
    let mut data = wchar::request(kind, &data, Wchar::Kernel, Wchar::Client);
    let mut copy = *arguments;
    copy.pPrivateDriverData = data.as_mut_ptr().cast();
    copy.PrivateDriverDataSize = data.len() as u32;
    let result = function.call(&mut copy)?;
    let answer = wchar::answer(kind, &data, Wchar::Client, Wchar::Kernel, bytes);
    write_array(arguments.pPrivateDriverData, &answer)?;
    Ok(result)
}

/// `LX_DXESCAPE`. Handles are equal in guest and host, so the driver translates them itself, and sends nothing (E03).
pub fn escape(arguments: &mut D3DKMT_ESCAPE, function: &Function<D3DKMT_ESCAPE>) -> Answer {
    let flags = EscapeFlags::from_bits_retain(arguments.Flags);
    let is_known = arguments.Type == DRIVER_PRIVATE && flags.contains(EscapeFlags::DRIVER_KNOWN_ESCAPE);
    checks::escape(arguments, is_known)?;
    if is_known {
        let known: u32 = crate::memory::read(arguments.pPrivateDriverData)?;
        let is_translation = matches!(
            known,
            D3DDDI_DRIVERESCAPETYPE_TRANSLATEALLOCATIONHANDLE
                | D3DDDI_DRIVERESCAPETYPE_TRANSLATERESOURCEHANDLE
        );
        if is_translation {
            return Ok(0);
        }
    }
    let status = function.status(arguments)?;
    // The reply has no room for a status (E02).
    if defects().escape_status { Ok(0) } else { answer(status) }
}

/// `LX_DXCREATESYNCHRONIZATIONOBJECT`.
pub fn create_synchronization_object(
    arguments: &mut D3DKMT_CREATESYNCHRONIZATIONOBJECT2,
    function: &Function<D3DKMT_CREATESYNCHRONIZATIONOBJECT2>,
) -> Answer {
    checks::create_synchronization_object(arguments)
        .map_err(|errno| unless_lost(arguments.hDevice, errno))?;
    let object_type = arguments.Info.Type;
    let status = function.status(arguments)?;
    if status.is_success() {
        // The driver's number of the event, where the client had put its own (C06).
        if object_type == D3DDDI_CPU_NOTIFICATION && defects().event_id {
            arguments.Info.first = u64::from(arguments.hSyncObject);
        }
    } else if defects().create_status && is_from_host(status, arguments.hDevice) {
        // The reply has no room for a status: no page to map, or a handle of 0.
        let is_mapped = matches!(object_type, D3DDDI_MONITORED_FENCE | D3DDDI_PERIODIC_MONITORED_FENCE);
        arguments.hSyncObject = 0;
        return if is_mapped { Err(Errno::NOMEM) } else { Ok(0) };
    }
    answer(status)
}

/// `LX_DXOPENSYNCOBJECTFROMNTHANDLE2`. The driver itself knows a descriptor of another kind.
pub fn open_sync_object(
    arguments: &mut D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
    function: &Function<D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2>,
) -> Answer {
    let device = arguments.hDevice;
    checks::open_sync_object(arguments).map_err(|errno| unless_lost(device, errno))?;
    match function.call(arguments) {
        Err(Errno::PROTOTYPE) => Err(Errno::INVAL),
        other => other,
    }
}

/// The errno of a failed check of the driver, which looks at the device first: ENODEV for a lost one.
fn unless_lost(device: D3DKMT_HANDLE, errno: Errno) -> Errno {
    match execution_state(device) {
        Some(state) if state != D3DKMT_DEVICEEXECUTION_ACTIVE => Errno::NODEV,
        _ => errno,
    }
}

/// Whether the host refuses, and not the driver, which knows devices and whether they are lost.
fn is_from_host(status: NtStatus, device: D3DKMT_HANDLE) -> bool {
    status != NtStatus::DEVICE_REMOVED && execution_state(device).is_some()
}

/// The state of a device; `None` for what is no device.
fn execution_state(device: D3DKMT_HANDLE) -> Option<UINT> {
    // SAFETY: the function takes this struct.
    static DEVICE_STATE: Function<D3DKMT_GETDEVICESTATE> =
        unsafe { Function::named(c"D3DKMTGetDeviceState") };
    let mut state: D3DKMT_GETDEVICESTATE = abi::zeroed();
    (state.hDevice, state.StateType) = (device, D3DKMT_DEVICESTATE_EXECUTION);
    DEVICE_STATE.status(&mut state).ok().filter(|status| status.is_success())?;
    Some(state.state)
}

/// `LX_DXWAITFORSYNCHRONIZATIONOBJECTFROMCPU`. A blocking wait sleeps in a system call that signals interrupt: it is
/// restarted with SA_RESTART, and ends with EINTR without. The host's wait stays registered (W11, W12).
pub fn wait_from_cpu(
    arguments: &mut D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
    function: &Function<D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU>,
) -> Answer {
    checks::wait_from_cpu(arguments)?;
    if arguments.hAsyncEvent != 0 {
        return if async_wait_fails() { Err(Errno::INVAL) } else { function.call(arguments) };
    }
    let event = PrivateEvent::new()?;
    arguments.hAsyncEvent = event.0 as u64;
    let result = function.call(arguments)?;
    event.wait()?;
    Ok(result)
}

/// An eventfd of one wait. It is not used again, because an interrupted wait may set it later.
struct PrivateEvent(c_int);

impl PrivateEvent {
    fn new() -> Result<PrivateEvent, Errno> {
        // SAFETY: makes a descriptor, and a copy of it with another number if needed.
        unsafe {
            let mut event = libc::eventfd(0, libc::EFD_CLOEXEC);
            if (0..ABOVE_STANDARD_STREAMS).contains(&event) {
                let low = event;
                event = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, ABOVE_STANDARD_STREAMS);
                next::close(low);
            }
            if event < 0 { Err(Errno::NOMEM) } else { Ok(PrivateEvent(event)) }
        }
    }

    /// Sleeps until it is set.
    fn wait(&self) -> Result<(), Errno> {
        if let Some(limit) = defects().wait_limit {
            let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, as the count says.
            match unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as c_int) } {
                0 => return Err(Errno::TIMEDOUT),
                1 => {}
                _ => return Err(Errno::last()),
            }
        }
        let mut count = 0u64;
        // Not libc's read, which is a cancellation point: ioctl is none.
        // SAFETY: writes 8 bytes to `count`.
        match unsafe { libc::syscall(libc::SYS_read, self.0, &raw mut count, size_of::<u64>()) } {
            8 => Ok(()),
            _ => Err(Errno::last()),
        }
    }
}

impl Drop for PrivateEvent {
    fn drop(&mut self) {
        let before = Errno::last();
        // SAFETY: the number belongs to this value; the library has a copy of its own.
        unsafe {
            next::close(self.0);
            *libc::__errno_location() = before.0;
        }
    }
}

/// The block of `LX_DXSHAREOBJECTS`. `D3DKMTShareObjects` takes five parameters, so the SDK has no struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShareObjects {
    pub count: UINT,
    pub reserved: UINT,
    pub objects: *const D3DKMT_HANDLE,
    pub attributes: *mut OBJECT_ATTRIBUTES,
    pub desired_access: DWORD,
    pub reserved1: UINT,
    pub nt_handle: *mut HANDLE,
}

// SAFETY: integers and addresses, without padding.
unsafe impl Plain for ShareObjects {}

/// `LX_DXSHAREOBJECTS`: one object. The driver does not read the attributes, and asks for all rights (S01, S02).
pub fn share_objects(arguments: &mut ShareObjects, function: &Function<ShareObjects>) -> Answer {
    if arguments.count != 1 {
        return Err(Errno::INVAL);
    }
    let object: D3DKMT_HANDLE = crate::memory::read(arguments.objects.cast())?;
    let address = function.address()?;
    let mut nt_handle: HANDLE = 0;
    // SAFETY: the library's function of this name has this type; the arguments are valid.
    let status = unsafe {
        type Share = unsafe extern "C" fn(
            UINT,
            *const D3DKMT_HANDLE,
            *mut OBJECT_ATTRIBUTES,
            DWORD,
            *mut HANDLE,
        ) -> NTSTATUS;
        let share: Share = std::mem::transmute(address);
        share(1, &raw const object, std::ptr::null_mut(), D3DDDI_SYNC_OBJECT_ALL_ACCESS, &raw mut nt_handle)
    };
    let result = answer(NtStatus(status as u32))?;
    write(arguments.nt_handle.cast::<c_void>(), &nt_handle).inspect_err(|_| {
        // SAFETY: the client does not get the descriptor.
        unsafe { next::close(nt_handle as c_int) };
    })?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () =
        assert!(size_of::<ShareObjects>() == 40 && std::mem::offset_of!(ShareObjects, nt_handle) == 32);
}
