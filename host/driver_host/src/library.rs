//! The driver's shared object.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use driver_host::abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_MINIPORT_VERSION, DXGKRNL_INTERFACE, Ddi, NTSTATUS, Pointer,
};

use crate::callbacks;

/// Name of the function that the shared object exports.
const ENTRY: &CStr = c"DxgkMiniportEntry";

type Entry =
    unsafe extern "C" fn(*const DXGKRNL_INTERFACE, *mut *mut c_void) -> *const DRIVER_INITIALIZATION_DATA;

/// A loaded driver: its functions and its context. It is never unloaded, because the process ends first.
pub struct Library {
    functions: DRIVER_INITIALIZATION_DATA,
    context: *mut c_void,
}

fn last_error() -> String {
    // SAFETY: dlerror returns NULL or a text that lasts until the next call of these functions by this thread.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return "unknown error of the loader".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()
}

impl Library {
    pub fn load(path: &Path) -> Result<Library, String> {
        // A name without a slash would be searched for in the system's folders.
        let path = if path.parent() == Some(Path::new("")) { Path::new(".").join(path) } else { path.into() };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the name is a C string. The object's constructors run, as its user wants.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(last_error());
        }
        // SAFETY: the handle is open, and never closed.
        let entry = unsafe { libc::dlsym(library, ENTRY.as_ptr()) };
        if entry.is_null() {
            return Err("it does not export DxgkMiniportEntry".into());
        }
        // SAFETY: the function of this name has this type, by the header.
        let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry) };
        let mut context = std::ptr::null_mut();
        let interface = Box::leak(Box::new(callbacks::interface()));
        // SAFETY: both pointers are valid, the first one as long as the process lives.
        let table = unsafe { entry(interface, &raw mut context) };
        Ok(Library { functions: read_table(table)?, context })
    }

    pub fn implemented(&self) -> Vec<bool> {
        self.functions.implemented()
    }

    /// Calls a DDI, whose pointers are valid; `None` if the driver does not have it.
    pub fn call(&self, now: u64, ddi: &mut Ddi) -> Option<NTSTATUS> {
        // SAFETY: the functions are the driver's, with its context; `serve` has set the pointers.
        unsafe { self.functions.call(self.context, now, ddi) }
    }
}

/// Bytes of a table at most: that of a much newer header.
const TABLE_BYTES_MAX: usize = 64 << 10;

/// Copies a driver's table. One of an older header is shorter; one of a newer header is longer, and the driver runs if
/// it has none of the functions that are new.
fn read_table(table: *const DRIVER_INITIALIZATION_DATA) -> Result<DRIVER_INITIALIZATION_DATA, String> {
    if table.is_null() {
        return Err("DxgkMiniportEntry returned NULL".into());
    }
    // SAFETY: every table begins with these two fields.
    let (size, version) = unsafe { ((*table).Size as usize, (*table).Version) };
    if version != DXGK_MINIPORT_VERSION {
        return Err(format!(
            "it is for version {version} of dxgk_miniport.h; this is version {DXGK_MINIPORT_VERSION}"
        ));
    }
    let known = size_of::<DRIVER_INITIALIZATION_DATA>();
    if !(8..=TABLE_BYTES_MAX).contains(&size) || !size.is_multiple_of(8) {
        return Err(format!("its table has {size} bytes; this build knows tables of 8 to {known} bytes"));
    }
    // SAFETY: the table has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(table.cast::<u8>(), size) };
    if bytes.iter().skip(known).any(|byte| *byte != 0) {
        return Err(format!(
            "it is for a newer dxgk_miniport.h: its table has {size} bytes, with functions beyond the {known} bytes that this build knows"
        ));
    }
    let mut functions = DRIVER_INITIALIZATION_DATA::default();
    // SAFETY: both have at least as many bytes. Every bit pattern of a pointer is a function of the driver or NULL, by
    // the header.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut functions).cast::<u8>(), size.min(known));
    }
    Ok(functions)
}

/// The driver's handle of its adapter, for callbacks.
pub const DXGK_HANDLE: Pointer = Pointer(1);
