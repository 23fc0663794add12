//! `libdxcore.so`, loaded when the device is first opened. Its functions are found in it alone: a client may export
//! functions of the same names, which call this device.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use abi::Plain;
use abi::types::{D3DKMT_ENUMADAPTERS2, NTSTATUS};
use d3dkmt::NtStatus;

use crate::notice::print;
use crate::status::{Answer, Errno, answer};

const NAME: &CStr = c"libdxcore.so";

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The program had loaded the library before the device was opened, so it may use the session without the device.
static HAS_OTHER_USERS: AtomicBool = AtomicBool::new(false);

/// A function of the library that takes one pointer to a `T`.
pub struct Function<T> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    argument: PhantomData<fn(*mut T)>,
}

impl<T> Function<T> {
    /// # Safety
    /// The function of this name takes a pointer to a `T`, or the caller uses nothing but `address`.
    pub const unsafe fn named(name: &'static CStr) -> Function<T> {
        Function { name, address: AtomicPtr::new(null_mut()), argument: PhantomData }
    }

    /// Where the function is; ENOTTY if the library does not have it.
    pub fn address(&self) -> Result<*mut c_void, Errno> {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            let library = LIBRARY.load(Ordering::Acquire);
            if !library.is_null() {
                // SAFETY: the library is loaded and never unloaded.
                address = unsafe { libc::dlsym(library, self.name.as_ptr()) };
            }
            self.address.store(address, Ordering::Release);
        }
        if address.is_null() { Err(Errno::NOTTY) } else { Ok(address) }
    }
}

impl<T: Plain> Function<T> {
    /// Calls it.
    pub fn status(&self, argument: &mut T) -> Result<NtStatus, Errno> {
        let address = self.address()?;
        // SAFETY: `named` promised this type, and the argument is valid.
        let status = unsafe {
            let function: unsafe extern "C" fn(*mut T) -> NTSTATUS = std::mem::transmute(address);
            function(argument)
        };
        Ok(NtStatus(status as u32))
    }

    /// Calls it, and maps its status.
    pub fn call(&self, argument: &mut T) -> Answer {
        answer(self.status(argument)?)
    }
}

/// Loads the library, if it is not. ENOENT without it: there is no device.
pub fn load() -> Result<(), Errno> {
    if !LIBRARY.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    // SAFETY: names are valid strings; the library's constructors have no precondition.
    let library = unsafe {
        let present = libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        HAS_OTHER_USERS.store(!present.is_null(), Ordering::Release);
        if present.is_null() {
            libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
        } else {
            present
        }
    };
    if library.is_null() {
        // SAFETY: the text that dlopen left for this thread, or NULL.
        let reason = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
        print(format_args!("/dev/dxg: cannot load libdxcore.so: {:?}", reason.unwrap_or_default()));
        return Err(Errno::NOENT);
    }
    LIBRARY.store(library, Ordering::Release);
    Ok(())
}

/// Starts the session of this process, unless there is one. Returns whether the last close of the device is to end it.
/// The library prints why it fails. EBADF: the host refuses the process (L01).
pub fn start_session() -> Result<bool, Errno> {
    // SAFETY: takes this struct.
    static ENUM_ADAPTERS: Function<D3DKMT_ENUMADAPTERS2> = unsafe { Function::named(c"D3DKMTEnumAdapters2") };
    // SAFETY: only its address is used.
    static HAS_SESSION: Function<c_void> = unsafe { Function::named(c"gpupv_has_session") };
    // SAFETY: the library's function of this name has this type.
    let has_session: extern "C" fn() -> c_int = unsafe { std::mem::transmute(HAS_SESSION.address()?) };
    let is_shared = HAS_OTHER_USERS.load(Ordering::Acquire) || has_session() != 0;
    // Without an array it starts the session and lists nothing.
    let status = ENUM_ADAPTERS.status(&mut abi::zeroed())?;
    if status.is_success() { Ok(!is_shared) } else { Err(Errno::BADF) }
}

/// Ends the session of this process.
pub fn end_session() {
    // SAFETY: only its address is used.
    static END_SESSION: Function<c_void> = unsafe { Function::named(c"gpupv_end_session") };
    if let Ok(address) = END_SESSION.address() {
        // SAFETY: the library's function of this name has this type.
        let end: extern "C" fn() = unsafe { std::mem::transmute(address) };
        end();
    }
}
