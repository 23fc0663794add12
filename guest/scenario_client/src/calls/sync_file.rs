//! Creating sync files, waiting for them and opening them.

use std::os::fd::{FromRawFd, OwnedFd};

use abi::types::{D3DKMT_CREATESYNCFILE, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, D3DKMT_WAITSYNCFILE};
use d3dkmt::{CreatedSyncObject, Handle, Reply, ShareToken};

use super::Done;
use crate::ScenarioClient;
use crate::objects::Object;

unsafe extern "C" {
    fn D3DKMTCreateSyncFile(argument: *mut D3DKMT_CREATESYNCFILE) -> i32;
    fn D3DKMTWaitSyncFile(argument: *const D3DKMT_WAITSYNCFILE) -> i32;
    fn D3DKMTOpenSyncObjectFromSyncFile(argument: *mut D3DKMT_OPENSYNCOBJECTFROMSYNCFILE) -> i32;
}

/// Creates a sync file, and keeps it under the token.
pub fn create(
    scenario_client: &ScenarioClient,
    device: Handle,
    fence: Handle,
    value: u64,
    token: ShareToken,
) -> Done {
    let mut create = D3DKMT_CREATESYNCFILE {
        hDevice: device.0,
        hMonitoredFence: fence.0,
        FenceValue: value,
        hSyncFile: 0,
    };
    // SAFETY: see the module above.
    let done = Done::status(unsafe { D3DKMTCreateSyncFile(&raw mut create) });
    if done.status.is_success() {
        // SAFETY: a sync file is a file descriptor that this process owns from here on.
        scenario_client.shares.keep(token, unsafe { OwnedFd::from_raw_fd(create.hSyncFile as i32) });
    }
    done
}

/// Lets a context wait for a sync file.
pub fn wait(scenario_client: &ScenarioClient, context: Handle, token: ShareToken) -> Done {
    let (sync_file, _kept) = scenario_client.nt_handle(token);
    let wait = D3DKMT_WAITSYNCFILE { hSyncFile: sync_file as u64, hContext: context.0, Reserved: 0 };
    // SAFETY: see the module above.
    Done::status(unsafe { D3DKMTWaitSyncFile(&raw const wait) })
}

/// Opens the fence of a sync file.
pub fn open(scenario_client: &ScenarioClient, device: Handle, token: ShareToken) -> Done {
    let (sync_file, _kept) = scenario_client.nt_handle(token);
    let mut open = D3DKMT_OPENSYNCOBJECTFROMSYNCFILE {
        hSyncFile: sync_file as u64,
        hDevice: device.0,
        hSyncObject: 0,
        FenceValue: 0,
        FenceValueCPUVirtualAddress: std::ptr::null_mut(),
        FenceValueGPUVirtualAddress: 0,
    };
    // SAFETY: see the module above.
    let status = unsafe { D3DKMTOpenSyncObjectFromSyncFile(&raw mut open) };
    Done::reply(status, || {
        let (object, gpu_address) = (Handle(open.hSyncObject), open.FenceValueGPUVirtualAddress);
        let address = open.FenceValueCPUVirtualAddress.cast();
        scenario_client.objects.created(object, Object::new(device, None, address));
        let object = CreatedSyncObject { object, gpu_address, ..CreatedSyncObject::default() };
        Reply::OpenedSyncFile { object, fence_value: open.FenceValue }
    })
}
