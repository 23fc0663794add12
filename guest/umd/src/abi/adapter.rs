//! Adapters, devices and contexts.

use std::ptr::null_mut;

use d3dkmt::{Adapter, Call, CreateContextFlags, Handle, Luid, NtStatus, Reply, device_state_type};

use super::memory::{check_range, read_bytes, write_array};
use super::thunk::{ThunkResult, failure};
use crate::client::{Answer, NewContext, Session, block_on};
use abi::CValue;
use abi::types::{
    D3DKMT_ADAPTERINFO, D3DKMT_CLOSEADAPTER, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEDEVICE,
    D3DKMT_DESTROYCONTEXT, D3DKMT_DESTROYDEVICE, D3DKMT_ENUMADAPTERS, D3DKMT_ENUMADAPTERS2,
    D3DKMT_ENUMADAPTERS3, D3DKMT_GETDEVICESTATE, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERYADAPTERINFO,
};
use abi::wchar::{self, Wchar};

/// `D3DKMTEnumAdapters`: into the struct's own array.
pub(super) fn enum_adapters(session: &Session, arguments: &mut D3DKMT_ENUMADAPTERS) -> ThunkResult {
    let adapters = block_on(session.enum_adapters(arguments.Adapters.len() as u32))?;
    for (info, adapter) in arguments.Adapters.iter_mut().zip(&adapters) {
        *info = adapter_info(adapter);
    }
    arguments.NumAdapters = adapters.len() as u32;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTEnumAdapters2`.
pub(super) fn enum_adapters2(session: &Session, arguments: &mut D3DKMT_ENUMADAPTERS2) -> ThunkResult {
    arguments.NumAdapters = enumerate(session, arguments.NumAdapters, arguments.pAdapters)?;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTEnumAdapters3`. The filter is ignored: every adapter here is of all the kinds that it can select.
pub(super) fn enum_adapters3(session: &Session, arguments: &mut D3DKMT_ENUMADAPTERS3) -> ThunkResult {
    arguments.NumAdapters = enumerate(session, arguments.NumAdapters, arguments.pAdapters)?;
    Ok(NtStatus::SUCCESS)
}

/// Fills the caller's array and returns the number of adapters; without an array, returns the maximum number (W-288).
fn enumerate(session: &Session, capacity: u32, array: *mut D3DKMT_ADAPTERINFO) -> Result<u32, NtStatus> {
    if array.is_null() {
        return Ok(d3dkmt::limits::ADAPTERS_MAX as u32);
    }
    if capacity > 0 {
        check_range(array, 1)?;
    }
    let adapters = block_on(session.enum_adapters(capacity))?;
    let infos: Vec<D3DKMT_ADAPTERINFO> = adapters.iter().map(adapter_info).collect();
    let count = infos.len().min(capacity as usize);
    write_array(array, &infos[..count]);
    Ok(count as u32)
}

fn adapter_info(adapter: &Adapter) -> D3DKMT_ADAPTERINFO {
    D3DKMT_ADAPTERINFO {
        hAdapter: adapter.handle.0,
        AdapterLuid: adapter.luid.to_c(),
        NumOfSources: adapter.sources,
        bPrecisePresentRegionsPreferred: 0,
    }
}

/// `D3DKMTOpenAdapterFromLuid`.
pub(super) fn open_adapter_from_luid(
    session: &Session,
    arguments: &mut D3DKMT_OPENADAPTERFROMLUID,
) -> ThunkResult {
    let luid = Luid::from_c(arguments.AdapterLuid);
    arguments.hAdapter = block_on(session.open_adapter(luid))?.0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTCloseAdapter`.
pub(super) fn close_adapter(session: &Session, arguments: &D3DKMT_CLOSEADAPTER) -> ThunkResult {
    Ok(block_on(session.close_adapter(Handle(arguments.hAdapter))))
}

/// `D3DKMTQueryAdapterInfo`.
pub(super) fn query_adapter_info(session: &Session, arguments: &D3DKMT_QUERYADAPTERINFO) -> ThunkResult {
    let (adapter, kind) = (Handle(arguments.hAdapter), arguments.Type);
    let bytes = arguments.PrivateDriverDataSize;
    let data = read_bytes(arguments.pPrivateDriverData, bytes)?;
    let data = wchar::request(kind, &data, Wchar::Client, Wchar::Kernel);
    let answer = block_on(session.call(&Call::QueryAdapterInfo { adapter, kind, data }));
    if !answer.status.is_success() {
        return Err(answer.status);
    }
    let Reply::AdapterInfo(data) = answer.reply else { return Err(NtStatus::INTERNAL_ERROR) };
    let data = wchar::answer(kind, &data, Wchar::Kernel, Wchar::Client, bytes as usize);
    write_array(arguments.pPrivateDriverData.cast::<u8>(), &data);
    Ok(answer.status)
}

/// `D3DKMTCreateDevice`. A WDDM 2 device has no command buffer and no lists: NULL (W-282).
pub(super) fn create_device(session: &Session, arguments: &mut D3DKMT_CREATEDEVICE) -> ThunkResult {
    arguments.hDevice = block_on(session.create_device(Handle(arguments.adapter), arguments.Flags))?.0;
    arguments.pCommandBuffer = null_mut();
    arguments.CommandBufferSize = 0;
    arguments.pAllocationList = null_mut();
    arguments.AllocationListSize = 0;
    arguments.pPatchLocationList = null_mut();
    arguments.PatchLocationListSize = 0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTDestroyDevice`.
pub(super) fn destroy_device(session: &Session, arguments: &D3DKMT_DESTROYDEVICE) -> ThunkResult {
    Ok(block_on(session.destroy_device(Handle(arguments.hDevice))))
}

/// `D3DKMTGetDeviceState`.
pub(super) fn get_device_state(session: &Session, arguments: &mut D3DKMT_GETDEVICESTATE) -> ThunkResult {
    match block_on(session.device_state(Handle(arguments.hDevice), arguments.StateType)) {
        Answer { status, reply: Reply::PageFault(fault) } if status.is_success() => {
            // The pipeline's stage and the error code are not known: 0. Nor are the primitive and the table entry:
            // DXGK_PRIMITIVE_API_SEQUENCE_NUMBER_UNKNOWN and DXGK_BIND_TABLE_ENTRY_UNKNOWN.
            (arguments.state, arguments.second, arguments.pipeline) = (u32::MAX, u32::MAX, [0, u32::MAX]);
            (arguments.page_fault_flags, arguments.error_code) = (fault.flags, 0);
            (arguments.page_fault_address, arguments.rest) = (fault.gpu_address, [0; 2]);
            Ok(status)
        }
        Answer { status, reply: Reply::DeviceState(state) } if status.is_success() => {
            if arguments.StateType == device_state_type::PRESENT {
                // PresentStats, behind the VidPnSourceId of the caller.
                (arguments.pipeline, arguments.page_fault_flags, arguments.error_code) = ([0; 2], 0, 0);
                (arguments.page_fault_address, arguments.rest[0]) = (0, 0);
            } else {
                arguments.state = state;
            }
            Ok(status)
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTCreateContextVirtual`.
pub(super) fn create_context_virtual(
    session: &Session,
    arguments: &mut D3DKMT_CREATECONTEXTVIRTUAL,
) -> ThunkResult {
    arguments.hContext = block_on(session.create_context(NewContext {
        device: Handle(arguments.hDevice),
        node_ordinal: arguments.NodeOrdinal,
        engine_affinity: arguments.EngineAffinity,
        flags: CreateContextFlags::from_bits_retain(arguments.Flags),
        client_hint: arguments.ClientHint,
        private_data: read_bytes(arguments.pPrivateDriverData, arguments.PrivateDriverDataSize)?,
    }))?
    .0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTDestroyContext`.
pub(super) fn destroy_context(session: &Session, arguments: &D3DKMT_DESTROYCONTEXT) -> ThunkResult {
    Ok(block_on(session.destroy_context(Handle(arguments.hContext))))
}
