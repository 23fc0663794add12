//! The functions of the same names in the libraries behind this one: libc's, or those of another preload object.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::status::Errno;

/// Where a function is; NULL if no library behind this one has it.
fn find(address: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = address.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a valid string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    address.store(found, Ordering::Release);
    found
}

macro_rules! next_functions {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        /// Looks all functions up, because dlsym must not run in a signal handler.
        pub fn find_all() {
            $(find(&addresses::$name, name_of(concat!(stringify!($name), "\0")));)*
        }

        mod addresses {
            #![allow(non_upper_case_globals, reason = "named for the functions")]
            use super::{AtomicPtr, c_void, null_mut};
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(null_mut());)*
        }

        $(
            /// # Safety
            /// As for the function of this name.
            pub unsafe fn $name($($parameter: $type),*) -> c_int {
                let address = find(&addresses::$name, name_of(concat!(stringify!($name), "\0")));
                if address.is_null() {
                    Errno(libc::ENOSYS).set();
                    return -1;
                }
                // SAFETY: the function of this name has this type; variadic arguments are passed as others are.
                unsafe {
                    let function: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(address);
                    function($($parameter),*)
                }
            }
        )*
    };
}

const fn name_of(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only NUL"),
    }
}

next_functions! {
    open(path: *const c_char, flags: c_int, mode: c_uint);
    open64(path: *const c_char, flags: c_int, mode: c_uint);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    __open_2(path: *const c_char, flags: c_int);
    __open64_2(path: *const c_char, flags: c_int);
    __openat_2(folder: c_int, path: *const c_char, flags: c_int);
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
    ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void);
    close(descriptor: c_int);
    close_range(first: c_uint, last: c_uint, flags: c_int);
    dup2(old: c_int, new: c_int);
    dup3(old: c_int, new: c_int, flags: c_int);
    access(path: *const c_char, mode: c_int);
    faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int);
    stat(path: *const c_char, status: *mut libc::stat);
    stat64(path: *const c_char, status: *mut libc::stat);
    lstat(path: *const c_char, status: *mut libc::stat);
    lstat64(path: *const c_char, status: *mut libc::stat);
    __xstat(version: c_int, path: *const c_char, status: *mut libc::stat);
    __xstat64(version: c_int, path: *const c_char, status: *mut libc::stat);
    __lxstat(version: c_int, path: *const c_char, status: *mut libc::stat);
    __lxstat64(version: c_int, path: *const c_char, status: *mut libc::stat);
    __fxstatat(version: c_int, folder: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int);
    __fxstatat64(version: c_int, folder: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int);
    fstatat(folder: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int);
    fstatat64(folder: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int);
    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx);
}
