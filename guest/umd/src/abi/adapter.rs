//! Adapters, devices and contexts.

use std::ffi::c_void;
use std::ptr::null_mut;

use d3dkmt::query::kind::DRIVER_DESCRIPTION;
use d3dkmt::{Adapter, Call, CreateContextFlags, Handle, Luid, NtStatus, Reply};

use super::memory::{read, read_bytes, write, write_array};
use super::thunk::{CStatus, enter, failure};
use super::types::{
    AdapterInfo, CreateContextVirtual, CreateDevice, EnumAdapters2, EnumAdapters3, GetDeviceState, OneHandle,
    OpenAdapterFromLuid, QueryAdapterInfo,
};
use crate::client::{Answer, NewContext, Session};
use crate::process::Starts;

/// `D3DKMTEnumAdapters2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTEnumAdapters2(argument: *mut EnumAdapters2) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        arguments.count = enumerate(session, arguments.count, arguments.adapters)?;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTEnumAdapters3`. The filter narrows by kinds of adapters that all of ours are.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTEnumAdapters3(argument: *mut EnumAdapters3) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        arguments.count = enumerate(session, arguments.count, arguments.adapters)?;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// Fills the caller's array; answers how many adapters there are, or for no array how many there
/// may be at most (W-288).
fn enumerate(session: &Session, capacity: u32, array: *mut AdapterInfo) -> Result<u32, NtStatus> {
    if array.is_null() {
        return Ok(d3dkmt::limits::ADAPTERS_MAX as u32);
    }
    let adapters = session.enum_adapters(capacity)?;
    let infos: Vec<AdapterInfo> = adapters.iter().map(adapter_info).collect();
    let count = infos.len().min(capacity as usize);
    write_array(array, &infos[..count]);
    Ok(count as u32)
}

fn adapter_info(adapter: &Adapter) -> AdapterInfo {
    AdapterInfo {
        adapter: adapter.handle.0,
        luid_low: adapter.luid.low,
        luid_high: adapter.luid.high,
        sources: adapter.sources,
        precise_present_regions_preferred: 0,
    }
}

/// `D3DKMTOpenAdapterFromLuid`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenAdapterFromLuid(argument: *mut OpenAdapterFromLuid) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let luid = Luid { low: arguments.luid_low, high: arguments.luid_high };
        arguments.adapter = session.open_adapter(luid)?.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTCloseAdapter`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCloseAdapter(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.close_adapter(Handle(read(argument)?.handle))))
}

/// `D3DKMTQueryAdapterInfo`. The WCHARs of DRIVER_DESCRIPTION have 4 bytes here; QUERYREGISTRY goes through as it is, in
/// UTF-16.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTQueryAdapterInfo(argument: *mut QueryAdapterInfo) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let adapter = Handle(arguments.adapter);
        let mut data = read_bytes(arguments.private_data, arguments.private_data_size)?;
        if arguments.kind == DRIVER_DESCRIPTION {
            // Only asked for, never given: an empty text of the size that the host speaks.
            data = vec![0; data.len() / 2];
        }
        let answer = session.call(&Call::QueryAdapterInfo { adapter, kind: arguments.kind, data });
        if !answer.status.is_success() {
            return Err(answer.status);
        }
        let Reply::AdapterInfo(mut data) = answer.reply else { return Err(NtStatus::INTERNAL_ERROR) };
        if arguments.kind == DRIVER_DESCRIPTION {
            data = widen(&data, arguments.private_data_size as usize / size_of::<u32>());
        }
        data.truncate(arguments.private_data_size as usize);
        write_array(arguments.private_data.cast::<u8>(), &data);
        Ok(answer.status)
    })
}

/// UTF-16 as `count` WCHARs of 4 bytes, the rest zero.
fn widen(text: &[u8], count: usize) -> Vec<u8> {
    let units = text.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let wide = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER) as u32);
    let padded = wide.chain(std::iter::repeat(0)).take(count);
    padded.flat_map(u32::to_le_bytes).collect()
}

/// `D3DKMTCreateDevice`. Command buffers and lists are not what a WDDM 2 device has: NULL (W-282).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateDevice(argument: *mut CreateDevice) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let device = session.create_device(Handle(arguments.adapter), arguments.flags)?;
        let outputs = CreateDevice {
            device: device.0,
            command_buffer: null_mut::<c_void>(),
            command_buffer_size: 0,
            allocation_list: null_mut::<c_void>(),
            allocation_list_size: 0,
            patch_location_list: null_mut::<c_void>(),
            patch_location_list_size: 0,
            ..arguments
        };
        write(argument, outputs);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTDestroyDevice`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyDevice(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.destroy_device(Handle(read(argument)?.handle))))
}

/// `D3DKMTGetDeviceState`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTGetDeviceState(argument: *mut GetDeviceState) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let call =
            Call::GetDeviceState { device: Handle(arguments.device), state_type: arguments.state_type };
        match session.call(&call) {
            Answer { status, reply: Reply::PageFault(fault) } if status.is_success() => {
                // The primitive, the pipeline's stage, the table entry and the error code are not known: 0.
                (arguments.state, arguments.second) = (0, 0);
                arguments.rest = [0, fault.flags.into(), fault.gpu_address, 0, 0];
                write(argument, arguments);
                Ok(status)
            }
            Answer { status, reply: Reply::DeviceState(state) } if status.is_success() => {
                arguments.state = state;
                write(argument, arguments);
                Ok(status)
            }
            answer => Err(failure(&answer)),
        }
    })
}

/// `D3DKMTCreateContextVirtual`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateContextVirtual(argument: *mut CreateContextVirtual) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        arguments.context = session
            .create_context(NewContext {
                device: Handle(arguments.device),
                node_ordinal: arguments.node_ordinal,
                engine_affinity: arguments.engine_affinity,
                flags: CreateContextFlags::from_bits_retain(arguments.flags),
                client_hint: arguments.client_hint,
                private_data: read_bytes(arguments.private_data, arguments.private_data_size)?,
            })?
            .0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTDestroyContext`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyContext(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.destroy_context(Handle(read(argument)?.handle))))
}

#[cfg(test)]
mod tests {
    use super::widen;

    #[test]
    fn a_description_is_widened_from_2_to_4_byte_characters() {
        let text: Vec<u8> = "gp\u{1F600}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wide = widen(&text, 5);
        let characters: Vec<u32> =
            wide.chunks_exact(4).map(|unit| u32::from_le_bytes(unit.try_into().unwrap())).collect();
        assert_eq!(characters, [u32::from(b'g'), u32::from(b'p'), 0x1F600, 0, 0]);
    }
}
