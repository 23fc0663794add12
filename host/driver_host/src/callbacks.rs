//! The functions that a driver may call. They only record; the kernel performs them when the DDI has returned.

use std::cell::RefCell;
use std::ffi::c_void;

use driver_host::abi::{
    Callback, DXGK_MINIPORT_VERSION, DXGKRNL_INTERFACE, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, UINT, UINT64,
};
use driver_host::limits::{CALLBACKS_PER_DDI_MAX, DEBUG_PRINT_BYTES_MAX};
use driver_host::messages::Called;

thread_local! {
    /// The callbacks of the DDI that this thread is in; `None` outside of one, and in threads of the driver's own.
    static CALLED: RefCell<Option<Vec<Called>>> = const { RefCell::new(None) };
}

/// Runs a DDI and returns its callbacks with its result.
pub fn collect<T>(ddi: impl FnOnce() -> T) -> (T, Vec<Called>) {
    CALLED.set(Some(Vec::new()));
    let result = ddi();
    (result, CALLED.take().unwrap_or_default())
}

fn record(mut callback: Callback) -> NTSTATUS {
    let mut text = Vec::new();
    let is_text = matches!(callback, Callback::SimDebugPrint(_));
    if let Some((pointer, size)) = callback.buffer() {
        // A text may be cut, a list may be empty.
        if pointer.0 == 0 && (is_text || *size != 0) || *size > DEBUG_PRINT_BYTES_MAX as UINT64 && !is_text {
            return STATUS_INVALID_PARAMETER;
        }
        let kept = (*size as usize).min(DEBUG_PRINT_BYTES_MAX);
        if kept > 0 {
            // SAFETY: the driver's buffer has as many bytes as it says, by the header.
            text = unsafe { std::slice::from_raw_parts(pointer.0 as *const u8, kept) }.to_vec();
        }
        pointer.0 = 0;
    }
    CALLED.with_borrow_mut(|called| match called {
        None => STATUS_INVALID_DEVICE_REQUEST,
        Some(called) if called.len() >= CALLBACKS_PER_DDI_MAX => STATUS_INSUFFICIENT_RESOURCES,
        Some(called) => {
            called.push(Called { callback, text });
            STATUS_SUCCESS
        }
    })
}

macro_rules! functions {
    ($($name:ident $arguments:ident;)*) => {
        /// The table for the driver.
        pub fn interface() -> DXGKRNL_INTERFACE {
            $(
                #[allow(non_snake_case, reason = "the name that C has")]
                unsafe extern "C" fn $name(
                    _dxgk_handle: *mut c_void,
                    arguments: *const driver_host::abi::$arguments,
                ) -> NTSTATUS {
                    // SAFETY: NULL, or the driver's arguments, by the header.
                    match unsafe { arguments.as_ref() } {
                        Some(arguments) => record((*arguments).into()),
                        None => STATUS_INVALID_PARAMETER,
                    }
                }
            )*
            DXGKRNL_INTERFACE {
                Size: size_of::<DXGKRNL_INTERFACE>() as UINT,
                Version: DXGK_MINIPORT_VERSION,
                DxgkHandle: crate::library::DXGK_HANDLE,
                $($name,)*
            }
        }
    };
}
driver_host::for_each_callback!(functions);
