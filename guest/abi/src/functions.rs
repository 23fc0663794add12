//! Every exported function with a thunk of its own, in the order of the header: its prototype and its thunk. Plain
//! calls are declared beside their structs (`plain.rs`).
//!
//! ```text
//! STARTS fn NAME(MODE STRUCT) = module::thunk;
//! ```
//!
//! `Session`: the call may start the session of a forked child. `Ending`: the call ends what the library has of devices and
//! allocations, also when the session is lost. A doc comment becomes a C comment. The thunks are in
//! the library (`guest/umd/src/abi`).
//!
//! | mode | C | the thunk gets |
//! |---|---|---|
//! | `in` | `const STRUCT *` | a copy of the caller's struct |
//! | `inout` | `STRUCT *` | a copy, which is written back unless the thunk returns `Err` |
//! | `unwritten` | `STRUCT *` | a copy, which is never written back |
//! | `by` | the parameters | the parameters |

macro_rules! functions {
    ($d:tt $($rows:tt)*) => {
        /// Calls `expand!` with the rows of the table of functions.
        #[macro_export]
        macro_rules! for_each_function {
            ($d($d expand:ident)::+) => { $d($d expand)::+! { $($rows)* } };
        }
    };
}

functions! {
    $
    Session fn D3DKMTEnumAdapters(inout D3DKMT_ENUMADAPTERS) = adapter::enum_adapters;
    Session fn D3DKMTEnumAdapters2(inout D3DKMT_ENUMADAPTERS2) = adapter::enum_adapters2;
    Session fn D3DKMTEnumAdapters3(inout D3DKMT_ENUMADAPTERS3) = adapter::enum_adapters3;
    Session fn D3DKMTOpenAdapterFromLuid(inout D3DKMT_OPENADAPTERFROMLUID) = adapter::open_adapter_from_luid;
    Session fn D3DKMTOpenAdapterFromGdiDisplayName(by argument: *mut D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME)
        = display::open_adapter_from_gdi_display_name;
    Session fn D3DKMTOpenAdapterFromDeviceName(inout D3DKMT_OPENADAPTERFROMDEVICENAME)
        = display::open_adapter_from_device_name;
    Session fn D3DKMTOpenAdapterFromHdc(inout D3DKMT_OPENADAPTERFROMHDC) = display::open_adapter_from_hdc;
    Ending fn D3DKMTCloseAdapter(in D3DKMT_CLOSEADAPTER) = adapter::close_adapter;
    Nothing fn D3DKMTQueryAdapterInfo(unwritten D3DKMT_QUERYADAPTERINFO) = adapter::query_adapter_info;
    Nothing fn D3DKMTCreateDevice(inout D3DKMT_CREATEDEVICE) = adapter::create_device;
    Ending fn D3DKMTDestroyDevice(in D3DKMT_DESTROYDEVICE) = adapter::destroy_device;
    Nothing fn D3DKMTGetDeviceState(inout D3DKMT_GETDEVICESTATE) = adapter::get_device_state;
    Nothing fn D3DKMTCreateContextVirtual(inout D3DKMT_CREATECONTEXTVIRTUAL) = adapter::create_context_virtual;
    Nothing fn D3DKMTDestroyContext(in D3DKMT_DESTROYCONTEXT) = adapter::destroy_context;
    Nothing fn D3DKMTCreateSynchronizationObject(inout D3DKMT_CREATESYNCHRONIZATIONOBJECT)
        = sync::create_synchronization_object;
    Nothing fn D3DKMTCreateSynchronizationObject2(inout D3DKMT_CREATESYNCHRONIZATIONOBJECT2)
        = sync::create_synchronization_object2;
    Nothing fn D3DKMTDestroySynchronizationObject(in D3DKMT_DESTROYSYNCHRONIZATIONOBJECT)
        = sync::destroy_synchronization_object;
    Nothing fn D3DKMTShareObjects(
        by count: UINT, objects: *const D3DKMT_HANDLE, attributes: *mut OBJECT_ATTRIBUTES, access: DWORD,
        nt_handle: *mut HANDLE
    ) = share::share_objects;
    Nothing fn D3DKMTOpenSyncObjectFromNtHandle2(inout D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2)
        = share::open_sync_object_from_nt_handle2;
    Nothing fn D3DKMTSignalSynchronizationObjectFromCpu(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU)
        = wait::signal_synchronization_object_from_cpu;
    Nothing fn D3DKMTWaitForSynchronizationObjectFromCpu(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU)
        = wait::wait_for_synchronization_object_from_cpu;
    Nothing fn D3DKMTSignalSynchronizationObjectFromGpu(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU)
        = queue::signal_synchronization_object_from_gpu;
    Nothing fn D3DKMTSignalSynchronizationObjectFromGpu2(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2)
        = queue::signal_synchronization_object_from_gpu2;
    Nothing fn D3DKMTWaitForSynchronizationObjectFromGpu(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU)
        = queue::wait_for_synchronization_object_from_gpu;
    Nothing fn D3DKMTSubmitCommand(in D3DKMT_SUBMITCOMMAND) = queue::submit_command;
    Nothing fn D3DKMTOpenSynchronizationObject(inout D3DKMT_OPENSYNCHRONIZATIONOBJECT)
        = legacy::open_synchronization_object;
    Nothing fn D3DKMTWaitForSynchronizationObject(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECT)
        = legacy::wait_for_synchronization_object;
    Nothing fn D3DKMTWaitForSynchronizationObject2(in D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2)
        = legacy::wait_for_synchronization_object2;
    Nothing fn D3DKMTSignalSynchronizationObject(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECT)
        = legacy::signal_synchronization_object;
    Nothing fn D3DKMTSignalSynchronizationObject2(in D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2)
        = legacy::signal_synchronization_object2;
    Session fn D3DKMTOpenSyncObjectFromNtHandle(inout D3DKMT_OPENSYNCOBJECTFROMNTHANDLE)
        = share::open_sync_object_from_nt_handle;
    Session fn D3DKMTOpenSyncObjectNtHandleFromName(inout D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME)
        = share::open_sync_object_nt_handle_from_name;
    Session fn D3DKMTOpenNtHandleFromName(inout D3DKMT_OPENNTHANDLEFROMNAME) = share::open_nt_handle_from_name;
    Session fn D3DKMTCreateKeyedMutex(inout D3DKMT_CREATEKEYEDMUTEX) = keyed_mutex::create_keyed_mutex;
    Session fn D3DKMTCreateKeyedMutex2(inout D3DKMT_CREATEKEYEDMUTEX2) = keyed_mutex::create_keyed_mutex2;
    Session fn D3DKMTOpenKeyedMutex(inout D3DKMT_OPENKEYEDMUTEX) = keyed_mutex::open_keyed_mutex;
    Session fn D3DKMTOpenKeyedMutex2(inout D3DKMT_OPENKEYEDMUTEX2) = keyed_mutex::open_keyed_mutex2;
    Session fn D3DKMTOpenKeyedMutexFromNtHandle(inout D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE)
        = keyed_mutex::open_keyed_mutex_from_nt_handle;
    Nothing fn D3DKMTAcquireKeyedMutex(inout D3DKMT_ACQUIREKEYEDMUTEX) = keyed_mutex::acquire_keyed_mutex;
    Nothing fn D3DKMTAcquireKeyedMutex2(inout D3DKMT_ACQUIREKEYEDMUTEX2) = keyed_mutex::acquire_keyed_mutex2;
    Nothing fn D3DKMTReleaseKeyedMutex(inout D3DKMT_RELEASEKEYEDMUTEX) = keyed_mutex::release_keyed_mutex;
    Nothing fn D3DKMTReleaseKeyedMutex2(inout D3DKMT_RELEASEKEYEDMUTEX2) = keyed_mutex::release_keyed_mutex2;
    Nothing fn D3DKMTCreatePagingQueue(inout D3DKMT_CREATEPAGINGQUEUE) = paging::create_paging_queue;
    Nothing fn D3DKMTCreateAllocation(inout D3DKMT_CREATEALLOCATION) = allocation::create_allocation;
    Nothing fn D3DKMTCreateAllocation2(inout D3DKMT_CREATEALLOCATION) = allocation::create_allocation2;
    Ending fn D3DKMTDestroyAllocation(in D3DKMT_DESTROYALLOCATION) = allocation::destroy_allocation;
    Ending fn D3DKMTDestroyAllocation2(in D3DKMT_DESTROYALLOCATION2) = allocation::destroy_allocation2;
    Nothing fn D3DKMTQueryResourceInfo(inout D3DKMT_QUERYRESOURCEINFO) = allocation::query_resource_info;
    Nothing fn D3DKMTOpenResource(inout D3DKMT_OPENRESOURCE) = allocation::open_resource;
    Nothing fn D3DKMTOpenResource2(inout D3DKMT_OPENRESOURCE) = allocation::open_resource2;
    Nothing fn D3DKMTQueryResourceInfoFromNtHandle(inout D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE)
        = allocation::query_resource_info_from_nt_handle;
    Session fn D3DKMTGetSharedResourceAdapterLuid(inout D3DKMT_GETSHAREDRESOURCEADAPTERLUID)
        = allocation::get_shared_resource_adapter_luid;
    Nothing fn D3DKMTOpenResourceFromNtHandle(inout D3DKMT_OPENRESOURCEFROMNTHANDLE)
        = allocation::open_resource_from_nt_handle;
    Nothing fn D3DKMTLock2(inout D3DKMT_LOCK2) = allocation::lock2;
    Nothing fn D3DKMTUnlock2(in D3DKMT_UNLOCK2) = allocation::unlock2;
    Nothing fn D3DKMTDestroyPagingQueue(inout D3DDDI_DESTROYPAGINGQUEUE) = paging::destroy_paging_queue;
    Nothing fn D3DKMTUpdateGpuVirtualAddress(in D3DKMT_UPDATEGPUVIRTUALADDRESS)
        = paging::update_gpu_virtual_address;
    Nothing fn D3DKMTMakeResident(inout D3DDDI_MAKERESIDENT) = residency::make_resident;
    Nothing fn D3DKMTEvict(inout D3DKMT_EVICT) = residency::evict;
    Nothing fn D3DKMTOfferAllocations(in D3DKMT_OFFERALLOCATIONS) = offer::offer_allocations;
    Nothing fn D3DKMTReclaimAllocations(in D3DKMT_RECLAIMALLOCATIONS) = offer::reclaim_allocations;
    Nothing fn D3DKMTReclaimAllocations2(inout D3DKMT_RECLAIMALLOCATIONS2) = offer::reclaim_allocations2;
    Nothing fn D3DKMTQueryAllocationResidency(in D3DKMT_QUERYALLOCATIONRESIDENCY)
        = offer::query_allocation_residency;
    Nothing fn D3DKMTSetAllocationPriority(in D3DKMT_SETALLOCATIONPRIORITY)
        = residency::set_allocation_priority;
    Nothing fn D3DKMTGetAllocationPriority(in D3DKMT_GETALLOCATIONPRIORITY)
        = residency::get_allocation_priority;
    Nothing fn D3DKMTCreateHwQueue(inout D3DKMT_CREATEHWQUEUE) = hw_queue::create_hw_queue;
    Nothing fn D3DKMTDestroyHwQueue(in D3DKMT_DESTROYHWQUEUE) = hw_queue::destroy_hw_queue;
    Nothing fn D3DKMTSubmitCommandToHwQueue(in D3DKMT_SUBMITCOMMANDTOHWQUEUE)
        = hw_queue::submit_command_to_hw_queue;
    Nothing fn D3DKMTSubmitSignalSyncObjectsToHwQueue(in D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE)
        = hw_queue::submit_signal_sync_objects_to_hw_queue;
    Nothing fn D3DKMTSubmitWaitForSyncObjectsToHwQueue(in D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE)
        = hw_queue::submit_wait_for_sync_objects_to_hw_queue;
    Nothing fn D3DKMTCreateNativeFence(inout D3DKMT_CREATENATIVEFENCE) = hw_queue::create_native_fence;
    Nothing fn D3DKMTOpenNativeFenceFromNtHandle(inout D3DKMT_OPENNATIVEFENCEFROMNTHANDLE)
        = hw_queue::open_native_fence_from_nt_handle;
    Nothing fn D3DKMTSetContextSchedulingPriority(in D3DKMT_SETCONTEXTSCHEDULINGPRIORITY)
        = scheduling::set_context_scheduling_priority;
    Nothing fn D3DKMTGetContextSchedulingPriority(inout D3DKMT_GETCONTEXTSCHEDULINGPRIORITY)
        = scheduling::get_context_scheduling_priority;
    Nothing fn D3DKMTSetContextInProcessSchedulingPriority(in D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY)
        = scheduling::set_context_in_process_scheduling_priority;
    Nothing fn D3DKMTGetContextInProcessSchedulingPriority(inout D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY)
        = scheduling::get_context_in_process_scheduling_priority;
    /// The process must be (HANDLE)-1, the calling process.
    Session fn D3DKMTSetProcessSchedulingPriorityClass(by process: HANDLE, class: D3DKMT_SCHEDULINGPRIORITYCLASS)
        = scheduling::set_process_scheduling_priority_class;
    Session fn D3DKMTGetProcessSchedulingPriorityClass(
        by process: HANDLE, class: *mut D3DKMT_SCHEDULINGPRIORITYCLASS
    ) = scheduling::get_process_scheduling_priority_class;
    /// hProcess of the next three is NULL, (HANDLE)-1 or a pidfd of the calling process.
    Session fn D3DKMTTrimProcessCommitment(inout D3DKMT_TRIMPROCESSCOMMITMENT) = notification::trim_process_commitment;
    Session fn D3DKMTQueryProcessOfferInfo(inout D3DKMT_QUERYPROCESSOFFERINFO) = notification::query_process_offer_info;
    Session fn D3DKMTGetProcessDeviceRemovalSupport(inout D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT)
        = notification::get_process_device_removal_support;
    /// The name of the call above up to Windows 10, version 1709.
    Session fn D3DKMTGetProcessDeviceLostSupport(inout D3DKMT_GETPROCESSDEVICELOSTSUPPORT)
        = notification::get_process_device_lost_support;
    Session fn D3DKMTEnumProcesses(inout D3DKMT_ENUMPROCESSES) = notification::enum_processes;
    Nothing fn D3DKMTWaitForIdle(in D3DKMT_WAITFORIDLE) = wait::wait_for_idle;
    Nothing fn D3DKMTUpdateAllocationProperty(inout D3DDDI_UPDATEALLOCPROPERTY)
        = residency::update_allocation_property;
    Session fn D3DKMTRegisterTrimNotification(inout D3DKMT_REGISTERTRIMNOTIFICATION)
        = notification::register_trim_notification;
    Session fn D3DKMTUnregisterTrimNotification(in D3DKMT_UNREGISTERTRIMNOTIFICATION)
        = notification::unregister_trim_notification;
    Nothing fn D3DKMTRegisterBudgetChangeNotification(inout D3DKMT_REGISTERBUDGETCHANGENOTIFICATION)
        = notification::register_budget_change_notification;
    Nothing fn D3DKMTUnregisterBudgetChangeNotification(in D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION)
        = notification::unregister_budget_change_notification;
    Nothing fn D3DKMTMarkDeviceAsError(in D3DKMT_MARKDEVICEASERROR) = scheduling::mark_device_as_error;
    Nothing fn D3DKMTCreateSyncFile(inout D3DKMT_CREATESYNCFILE) = sync_file::create_sync_file;
    Nothing fn D3DKMTEscape(in D3DKMT_ESCAPE) = escape::escape;
    Nothing fn D3DKMTWaitSyncFile(in D3DKMT_WAITSYNCFILE) = sync_file::wait_sync_file;
    Nothing fn D3DKMTOpenSyncObjectFromSyncFile(inout D3DKMT_OPENSYNCOBJECTFROMSYNCFILE)
        = sync_file::open_sync_object_from_sync_file;
}
