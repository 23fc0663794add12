//! The ioctls of the device: number, name, struct, and the function of `libdxcore.so` that answers.
//!
//! ```text
//! NUMBER NAME(MODE STRUCT) = FUNCTION;               copied in, checked by the library, copied out
//! NUMBER NAME(MODE STRUCT) = FUNCTION, by HANDLER;   the same through a handler (`checks`, `calls`)
//! NUMBER NAME nil;                                   a number of the driver without a function: ENOTTY
//! ```
//!
//! `inout`: the struct is written back. The request's code is `_IOWR('G', NUMBER, STRUCT)`: any other size or direction
//! is ENOTTY, like an unknown number. Structs that no call here takes are words of the documented size.
#![allow(clippy::wildcard_imports, reason = "the table names nearly every type")]

use std::ffi::c_void;

use abi::Plain;
use abi::types::*;

use crate::calls;
use crate::checks;
use crate::library::Function;
use crate::memory;
use crate::status::{Answer, Errno};

/// `'G'`, the type of all requests.
const TYPE: u32 = b'G' as u32;
/// The direction of all requests: to the driver and back.
const READ_WRITE: u32 = 3;

/// One ioctl.
struct Row {
    number: u8,
    #[cfg_attr(not(test), allow(dead_code, reason = "for readers and tests"))]
    name: &'static str,
    #[cfg_attr(not(test), allow(dead_code, reason = "for readers and tests"))]
    function: &'static str,
    bytes: usize,
    #[cfg_attr(not(test), allow(dead_code, reason = "for readers and tests"))]
    mode: Mode,
    run: fn(*mut c_void) -> Answer,
}

impl Row {
    fn code(&self) -> u32 {
        READ_WRITE << 30 | (self.bytes as u32) << 16 | TYPE << 8 | u32::from(self.number)
    }
}

/// The struct is written back after the call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    In,
    InOut,
}

/// A request whose type is the device's.
pub fn is_of_device(request: u32) -> bool {
    request >> 8 & 0xFF == TYPE
}

/// Runs a request with the client's struct.
pub fn run(request: u32, argument: *mut c_void) -> Answer {
    let row = ROWS.iter().find(|row| u32::from(row.number) == request & 0xFF).ok_or(Errno::NOTTY)?;
    if row.code() != request {
        return Err(Errno::NOTTY);
    }
    (row.run)(argument)
}

fn with_copy<T: Plain>(argument: *mut c_void, mode: Mode, call: impl FnOnce(&mut T) -> Answer) -> Answer {
    let mut arguments = memory::read::<T>(argument)?;
    let answer = call(&mut arguments);
    if mode == Mode::InOut {
        let written = memory::write(argument, &arguments);
        // A failure keeps its errno: the driver copies out last.
        if answer.is_ok() {
            written?;
        }
    }
    answer
}

macro_rules! mode {
    (in) => {
        Mode::In
    };
    (inout) => {
        Mode::InOut
    };
}

macro_rules! ioctls {
    (@rows [$($rows:tt)*]) => {
        /// Every number with a function, in their order.
        const ROWS: &[Row] = &[$($rows)*];
    };
    (@rows [$($rows:tt)*] $number:literal $name:ident nil; $($rest:tt)*) => {
        ioctls! { @rows [$($rows)*] $($rest)* }
    };
    (@rows [$($rows:tt)*] $number:literal $name:ident($mode:ident $type:ty) = $function:ident; $($rest:tt)*) => {
        ioctls! { @rows [$($rows)*] $number $name($mode $type) = $function, by calls::forward; $($rest)* }
    };
    (@rows [$($rows:tt)*] $number:literal $name:ident($mode:ident $type:ty) = $function:ident, by $handler:path;
        $($rest:tt)*) => {
        ioctls! {
            @rows [$($rows)* Row {
                number: $number,
                name: stringify!($name),
                function: stringify!($function),
                bytes: size_of::<$type>(),
                mode: mode!($mode),
                run: |argument| {
                    const NAME: &str = concat!(stringify!($function), "\0");
                    const C_NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name ends with its only NUL"),
                    };
                    // SAFETY: the function takes a pointer to this struct; `calls::share_objects` uses its address only.
                    static FUNCTION: Function<$type> = unsafe { Function::named(C_NAME) };
                    with_copy(argument, mode!($mode), |arguments| $handler(arguments, &FUNCTION))
                },
            },]
            $($rest)*
        }
    };
}

ioctls! {
    @rows []
    0x01 LX_DXOPENADAPTERFROMLUID(inout D3DKMT_OPENADAPTERFROMLUID) = D3DKMTOpenAdapterFromLuid;
    0x02 LX_DXCREATEDEVICE(inout D3DKMT_CREATEDEVICE) = D3DKMTCreateDevice;
    0x03 LX_DXCREATECONTEXT nil;
    0x04 LX_DXCREATECONTEXTVIRTUAL(inout D3DKMT_CREATECONTEXTVIRTUAL) = D3DKMTCreateContextVirtual;
    0x05 LX_DXDESTROYCONTEXT(in D3DKMT_DESTROYCONTEXT) = D3DKMTDestroyContext;
    0x06 LX_DXCREATEALLOCATION(inout D3DKMT_CREATEALLOCATION) = D3DKMTCreateAllocation2;
    0x07 LX_DXCREATEPAGINGQUEUE(inout D3DKMT_CREATEPAGINGQUEUE) = D3DKMTCreatePagingQueue;
    0x08 LX_DXRESERVEGPUVIRTUALADDRESS(inout D3DDDI_RESERVEGPUVIRTUALADDRESS) = D3DKMTReserveGpuVirtualAddress;
    0x09 LX_DXQUERYADAPTERINFO(inout D3DKMT_QUERYADAPTERINFO) = D3DKMTQueryAdapterInfo,
        by calls::query_adapter_info;
    0x0A LX_DXQUERYVIDEOMEMORYINFO(inout D3DKMT_QUERYVIDEOMEMORYINFO) = D3DKMTQueryVideoMemoryInfo;
    0x0B LX_DXMAKERESIDENT(inout D3DDDI_MAKERESIDENT) = D3DKMTMakeResident;
    0x0C LX_DXMAPGPUVIRTUALADDRESS(inout D3DDDI_MAPGPUVIRTUALADDRESS) = D3DKMTMapGpuVirtualAddress;
    0x0D LX_DXESCAPE(in D3DKMT_ESCAPE) = D3DKMTEscape, by calls::escape;
    0x0E LX_DXGETDEVICESTATE(inout D3DKMT_GETDEVICESTATE) = D3DKMTGetDeviceState;
    0x0F LX_DXSUBMITCOMMAND(in D3DKMT_SUBMITCOMMAND) = D3DKMTSubmitCommand, by calls::on_ring;
    0x10 LX_DXCREATESYNCHRONIZATIONOBJECT(inout D3DKMT_CREATESYNCHRONIZATIONOBJECT2)
        = D3DKMTCreateSynchronizationObject2, by calls::create_synchronization_object;
    0x11 LX_DXSIGNALSYNCHRONIZATIONOBJECT(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2)
        = D3DKMTSignalSynchronizationObject2, by checks::signal;
    0x12 LX_DXWAITFORSYNCHRONIZATIONOBJECT(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2)
        = D3DKMTWaitForSynchronizationObject2, by checks::wait;
    0x13 LX_DXDESTROYALLOCATION2(in D3DKMT_DESTROYALLOCATION2) = D3DKMTDestroyAllocation2;
    0x14 LX_DXENUMADAPTERS2(inout D3DKMT_ENUMADAPTERS2) = D3DKMTEnumAdapters2, by checks::enum_adapters2;
    0x15 LX_DXCLOSEADAPTER(in D3DKMT_CLOSEADAPTER) = D3DKMTCloseAdapter, by calls::close_adapter;
    0x16 LX_DXCHANGEVIDEOMEMORYRESERVATION(in D3DKMT_CHANGEVIDEOMEMORYRESERVATION)
        = D3DKMTChangeVideoMemoryReservation;
    0x17 LX_DXCREATEHWCONTEXT nil;
    0x18 LX_DXCREATEHWQUEUE(inout D3DKMT_CREATEHWQUEUE) = D3DKMTCreateHwQueue;
    0x19 LX_DXDESTROYDEVICE(in D3DKMT_DESTROYDEVICE) = D3DKMTDestroyDevice;
    0x1A LX_DXDESTROYHWCONTEXT nil;
    0x1B LX_DXDESTROYHWQUEUE(in D3DKMT_DESTROYHWQUEUE) = D3DKMTDestroyHwQueue;
    0x1C LX_DXDESTROYPAGINGQUEUE(inout D3DDDI_DESTROYPAGINGQUEUE) = D3DKMTDestroyPagingQueue;
    0x1D LX_DXDESTROYSYNCHRONIZATIONOBJECT(in D3DKMT_DESTROYSYNCHRONIZATIONOBJECT)
        = D3DKMTDestroySynchronizationObject;
    0x1E LX_DXEVICT(inout D3DKMT_EVICT) = D3DKMTEvict;
    0x1F LX_DXFLUSHHEAPTRANSITIONS(in D3DKMT_FLUSHHEAPTRANSITIONS) = D3DKMTFlushHeapTransitions;
    0x20 LX_DXFREEGPUVIRTUALADDRESS(in D3DKMT_FREEGPUVIRTUALADDRESS) = D3DKMTFreeGpuVirtualAddress;
    0x21 LX_DXGETCONTEXTINPROCESSSCHEDULINGPRIORITY(inout D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY)
        = D3DKMTGetContextInProcessSchedulingPriority;
    0x22 LX_DXGETCONTEXTSCHEDULINGPRIORITY(inout D3DKMT_GETCONTEXTSCHEDULINGPRIORITY)
        = D3DKMTGetContextSchedulingPriority;
    0x23 LX_DXGETSHAREDRESOURCEADAPTERLUID nil;
    0x24 LX_DXINVALIDATECACHE(in D3DKMT_INVALIDATECACHE) = D3DKMTInvalidateCache;
    0x25 LX_DXLOCK2(inout D3DKMT_LOCK2) = D3DKMTLock2;
    0x26 LX_DXMARKDEVICEASERROR(in D3DKMT_MARKDEVICEASERROR) = D3DKMTMarkDeviceAsError;
    0x27 LX_DXOFFERALLOCATIONS(in D3DKMT_OFFERALLOCATIONS) = D3DKMTOfferAllocations;
    0x28 LX_DXOPENRESOURCE nil;
    0x29 LX_DXOPENSYNCHRONIZATIONOBJECT nil;
    0x2A LX_DXQUERYALLOCATIONRESIDENCY(in D3DKMT_QUERYALLOCATIONRESIDENCY) = D3DKMTQueryAllocationResidency;
    0x2B LX_DXQUERYRESOURCEINFO nil;
    0x2C LX_DXRECLAIMALLOCATIONS2(inout D3DKMT_RECLAIMALLOCATIONS2) = D3DKMTReclaimAllocations2;
    0x2D LX_DXRENDER nil;
    0x2E LX_DXSETALLOCATIONPRIORITY(in D3DKMT_SETALLOCATIONPRIORITY) = D3DKMTSetAllocationPriority;
    0x2F LX_DXSETCONTEXTINPROCESSSCHEDULINGPRIORITY(in D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY)
        = D3DKMTSetContextInProcessSchedulingPriority;
    0x30 LX_DXSETCONTEXTSCHEDULINGPRIORITY(in D3DKMT_SETCONTEXTSCHEDULINGPRIORITY)
        = D3DKMTSetContextSchedulingPriority;
    0x31 LX_DXSIGNALSYNCHRONIZATIONOBJECTFROMCPU(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU)
        = D3DKMTSignalSynchronizationObjectFromCpu, by checks::signal_from_cpu;
    0x32 LX_DXSIGNALSYNCHRONIZATIONOBJECTFROMGPU(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU)
        = D3DKMTSignalSynchronizationObjectFromGpu, by checks::signal_from_gpu;
    0x33 LX_DXSIGNALSYNCHRONIZATIONOBJECTFROMGPU2(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2)
        = D3DKMTSignalSynchronizationObjectFromGpu2, by checks::signal_from_gpu2;
    0x34 LX_DXSUBMITCOMMANDTOHWQUEUE(in D3DKMT_SUBMITCOMMANDTOHWQUEUE) = D3DKMTSubmitCommandToHwQueue,
        by calls::on_ring;
    0x35 LX_DXSUBMITSIGNALSYNCOBJECTSTOHWQUEUE(in D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE)
        = D3DKMTSubmitSignalSyncObjectsToHwQueue, by checks::signal_to_hw_queue;
    0x36 LX_DXSUBMITWAITFORSYNCOBJECTSTOHWQUEUE(in D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE)
        = D3DKMTSubmitWaitForSyncObjectsToHwQueue, by checks::wait_to_hw_queue;
    0x37 LX_DXUNLOCK2(in D3DKMT_UNLOCK2) = D3DKMTUnlock2;
    0x38 LX_DXUPDATEALLOCPROPERTY(inout D3DDDI_UPDATEALLOCPROPERTY) = D3DKMTUpdateAllocationProperty;
    0x39 LX_DXUPDATEGPUVIRTUALADDRESS(in D3DKMT_UPDATEGPUVIRTUALADDRESS) = D3DKMTUpdateGpuVirtualAddress;
    0x3A LX_DXWAITFORSYNCHRONIZATIONOBJECTFROMCPU(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU)
        = D3DKMTWaitForSynchronizationObjectFromCpu, by calls::wait_from_cpu;
    0x3B LX_DXWAITFORSYNCHRONIZATIONOBJECTFROMGPU(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU)
        = D3DKMTWaitForSynchronizationObjectFromGpu, by checks::wait_from_gpu;
    0x3C LX_DXGETALLOCATIONPRIORITY(in D3DKMT_GETALLOCATIONPRIORITY) = D3DKMTGetAllocationPriority;
    0x3D LX_DXQUERYCLOCKCALIBRATION(inout D3DKMT_QUERYCLOCKCALIBRATION) = D3DKMTQueryClockCalibration;
    0x3E LX_DXENUMADAPTERS3(inout D3DKMT_ENUMADAPTERS3) = D3DKMTEnumAdapters3, by checks::enum_adapters3;
    0x3F LX_DXSHAREOBJECTS(in calls::ShareObjects) = D3DKMTShareObjects, by calls::share_objects;
    0x40 LX_DXOPENSYNCOBJECTFROMNTHANDLE2(inout D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2)
        = D3DKMTOpenSyncObjectFromNtHandle2, by calls::open_sync_object;
    0x41 LX_DXQUERYRESOURCEINFOFROMNTHANDLE(inout D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE)
        = D3DKMTQueryResourceInfoFromNtHandle;
    0x42 LX_DXOPENRESOURCEFROMNTHANDLE(inout D3DKMT_OPENRESOURCEFROMNTHANDLE)
        = D3DKMTOpenResourceFromNtHandle;
    0x43 LX_DXQUERYSTATISTICS(inout D3DKMT_QUERYSTATISTICS) = D3DKMTQueryStatistics;
    0x44 LX_DXSHAREOBJECTWITHHOST(inout [u64; 3]) = D3DKMTShareObjectWithHost;
    0x45 LX_DXCREATESYNCFILE(inout D3DKMT_CREATESYNCFILE) = D3DKMTCreateSyncFile;
    0x46 LX_DXWAITSYNCFILE(in D3DKMT_WAITSYNCFILE) = D3DKMTWaitSyncFile;
    0x47 LX_DXOPENSYNCOBJECTFROMSYNCFILE(inout D3DKMT_OPENSYNCOBJECTFROMSYNCFILE)
        = D3DKMTOpenSyncObjectFromSyncFile;
    0x48 LX_DXENUMPROCESSES(inout D3DKMT_ENUMPROCESSES) = D3DKMTEnumProcesses;
    0x49 LX_ISFEATUREENABLED(inout D3DKMT_ISFEATUREENABLED) = D3DKMTIsFeatureEnabled;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The codes that the reference states.
    const CODES: &[u32] = &[
        0xC00C_4701,
        0xC040_4702,
        0xC028_4704,
        0xC004_4705,
        0xC020_4707,
        0xC018_4709,
        0xC020_470D,
        0xC180_470F,
        0xC060_4710,
        0xC1D0_4711,
        0xC0C8_4712,
        0xC010_4714,
        0xC004_4715,
        0xC030_4718,
        0xC004_4719,
        0xC004_471B,
        0xC004_471C,
        0xC004_471D,
        0xC020_4731,
        0xC050_4732,
        0xC060_4733,
        0xC038_4734,
        0xC028_4735,
        0xC018_4736,
        0xC038_4739,
        0xC028_473A,
        0xC050_473B,
        0xC018_473E,
        0xC028_473F,
        0xC058_4740,
        0xC018_4744,
        0xC018_4745,
        0xC010_4746,
        0xC028_4747,
        0xC018_4748,
        0xC00C_4749,
    ];

    #[test]
    fn codes_are_those_of_the_reference() {
        let codes: BTreeMap<u32, &str> = ROWS.iter().map(|row| (row.code(), row.name)).collect();
        for code in CODES {
            assert!(codes.contains_key(code), "{code:#010x}");
        }
        assert_eq!(codes.len(), 0x49 - 8, "all numbers but those without a function");
        assert!(ROWS.iter().zip(ROWS.iter().skip(1)).all(|(row, next)| row.number < next.number));
    }

    #[test]
    fn what_the_header_declares_const_is_not_written_back() {
        let header = include_str!("../../umd/include/d3dkmthk.h");
        for row in ROWS.iter().filter(|row| row.name != "LX_DXSHAREOBJECTS") {
            let declared = header.split_once(&format!(" {}(", row.function));
            let (_, parameters) = declared.unwrap_or_else(|| panic!("{} is not declared", row.function));
            // The struct of a refused call is not declared: `const void *`.
            let is_const = parameters.starts_with("const ") && !parameters.starts_with("const void");
            assert_eq!(row.mode == Mode::In, is_const, "{}", row.name);
        }
    }

    #[test]
    fn other_requests_are_enotty() {
        let mut bytes = [0u64; 128];
        let argument = bytes.as_mut_ptr().cast();
        // A number of the driver without a function, unknown numbers, a wrong size, a wrong direction.
        for request in [0xC048_4729, 0xC004_4700, 0xC004_474A, 0xC004_47FF, 0xC044_4702, 0x4040_4702, 0x4702]
        {
            assert_eq!(run(request, argument), Err(Errno::NOTTY), "{request:#010x}");
        }
    }
}
