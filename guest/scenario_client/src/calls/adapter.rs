//! Adapters and devices.

use ::abi::wchar::{self, Wchar};
use d3dkmt::limits::MESSAGE_BYTES_MAX;
use d3dkmt::{Adapter, Handle, Luid, PageFaultState, Reply};

use super::Done;
use crate::ScenarioClient;
use crate::abi::sdk;

/// `D3DKMT_DEVICESTATE_PAGE_FAULT`.
const PAGE_FAULT: u32 = 5;

pub fn enumerate(capacity: u32) -> Done {
    // An answer cannot have more adapters than bytes.
    let room = (capacity as usize).min(MESSAGE_BYTES_MAX);
    let mut adapters = vec![sdk::D3DKMT_ADAPTERINFO::default(); room];
    let mut enumerate = sdk::D3DKMT_ENUMADAPTERS2 { NumAdapters: capacity, pAdapters: adapters.as_mut_ptr() };
    // SAFETY: see the module above; the library writes no more entries than it got.
    let status = unsafe { sdk::D3DKMTEnumAdapters2(&mut enumerate) };
    Done::reply(status, || {
        adapters.truncate(enumerate.NumAdapters as usize);
        Reply::Adapters(adapters.iter().map(adapter_of).collect())
    })
}

fn adapter_of(info: &sdk::D3DKMT_ADAPTERINFO) -> Adapter {
    Adapter {
        handle: Handle(info.hAdapter),
        luid: Luid { low: info.AdapterLuid.LowPart, high: info.AdapterLuid.HighPart },
        sources: info.NumOfSources,
        // No C struct has it.
        arrival: 0,
    }
}

pub fn open(luid: Luid) -> Done {
    let mut open = sdk::D3DKMT_OPENADAPTERFROMLUID::default();
    open.AdapterLuid.LowPart = luid.low;
    open.AdapterLuid.HighPart = luid.high;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenAdapterFromLuid(&mut open) };
    Done::reply(status, || Reply::Adapter(Handle(open.hAdapter)))
}

pub fn close(adapter: Handle) -> Done {
    let close = sdk::D3DKMT_CLOSEADAPTER { hAdapter: adapter.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTCloseAdapter(&close) })
}

pub fn query(adapter: Handle, kind: u32, data: &[u8]) -> Done {
    let mut buffer = wchar::request(kind, data, Wchar::Kernel, Wchar::Client);
    let mut query = sdk::D3DKMT_QUERYADAPTERINFO {
        hAdapter: adapter.0,
        Type: kind as i32,
        pPrivateDriverData: buffer.as_mut_ptr().cast(),
        PrivateDriverDataSize: buffer.len() as u32,
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTQueryAdapterInfo(&mut query) };
    Done::reply(status, || {
        let mut data = data.to_vec();
        let answer = wchar::answer(kind, &buffer, Wchar::Client, Wchar::Kernel, data.len());
        data[..answer.len()].copy_from_slice(&answer);
        Reply::AdapterInfo(data)
    })
}

pub fn create_device(adapter: Handle, flags: u32) -> Done {
    let mut create = sdk::D3DKMT_CREATEDEVICE::default();
    create.Anonymous.hAdapter = adapter.0;
    create.Flags._bitfield = flags;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateDevice(&mut create) };
    Done::reply(status, || Reply::Device(Handle(create.hDevice)))
}

pub fn destroy_device(scenario_client: &ScenarioClient, device: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYDEVICE { hDevice: device.0 };
    // SAFETY: see the module above.
    let done = Done::status(unsafe { sdk::D3DKMTDestroyDevice(&destroy) });
    if done.status.is_success() {
        scenario_client.objects.device_destroyed(device);
        scenario_client.memory.ended(|_, _, of| of == device);
    }
    done
}

pub fn device_state(device: Handle, state_type: u32) -> Done {
    let mut state =
        sdk::D3DKMT_GETDEVICESTATE { hDevice: device.0, StateType: state_type as i32, ..Default::default() };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTGetDeviceState(&mut state) };
    if state_type == PAGE_FAULT {
        return Done::reply(status, || {
            // SAFETY: the member of the type that was asked for.
            let fault = unsafe { state.Anonymous.PageFaultState };
            let flags = fault.PageFaultFlags as u32;
            Reply::PageFault(PageFaultState { flags, gpu_address: fault.FaultedVirtualAddress })
        });
    }
    // SAFETY: zeroed before the call, and every other state begins with a number.
    Done::reply(status, || Reply::DeviceState(unsafe { state.Anonymous.ExecutionState } as u32))
}
