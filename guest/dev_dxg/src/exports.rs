//! The exported functions: those of libc, for the device's path and its files. Everything else goes on to libc.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::MaybeUninit;

use abi::cancellation::Uncancelled;

use crate::files::{self, Found};
use crate::memory;
use crate::next;
use crate::status::{Answer, Errno};
use crate::table;

const PATH: &CStr = c"/dev/dxg";
/// A character device that everyone may read and write; its driver is a misc device (major 10) of a dynamic minor.
const MODE: u32 = libc::S_IFCHR | 0o666;
const MAJOR: u32 = 10;
const LINKS: u32 = 1;
const BLOCK_BYTES: u32 = 4096;

extern "C" fn initialize() {
    next::find_all();
}

/// Runs when the object is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZE: extern "C" fn() = initialize;

/// Whether a path that the kernel has just read is the device: only this spelling is.
fn is_device(path: *const c_char) -> bool {
    // SAFETY: the kernel has read it, so it is a string.
    !path.is_null() && unsafe { CStr::from_ptr(path) } == PATH
}

/// Whether a call failed because the machine has no such device.
fn is_missing_device(path: *const c_char) -> bool {
    Errno::last().0 == libc::ENOENT && is_device(path)
}

/// Opens the device, if the path is its; else what the machine has there. The kernel is asked first, because only it can
/// find out whether the path can be read. Where that might create a file, it copies the path instead.
fn open_with(path: *const c_char, flags: c_int, next: impl FnOnce() -> c_int) -> c_int {
    if flags & libc::O_CREAT != 0 {
        return if memory::is_text(path, PATH) { result(files::open(flags)) } else { next() };
    }
    let before = Errno::last();
    let opened = next();
    // Bad flags are refused before the path is read.
    let is_unread = opened < 0 && matches!(Errno::last().0, libc::EFAULT | libc::EINVAL);
    if is_unread || !is_device(path) {
        return opened;
    }
    if opened >= 0 {
        // SAFETY: the machine's own device, which was opened above.
        unsafe { next::close(opened) };
    }
    before.set();
    result(files::open(flags))
}

fn result(answer: Answer) -> c_int {
    answer.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// Functions that open a path. The mode is there only if a file is created; reading it regardless is harmless, because
/// it is in a register or unused.
macro_rules! opening {
    ($($name:ident($($folder:ident)? ; $($mode:ident)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($folder: c_int,)? path: *const c_char, flags: c_int $(, $mode: c_uint)?
            ) -> c_int {
                // SAFETY: the caller's arguments.
                open_with(path, flags, || unsafe { next::$name($($folder,)? path, flags $(, $mode)?) })
            }
        )*
    };
}

opening! {
    open(; mode);
    open64(; mode);
    openat(folder; mode);
    openat64(folder; mode);
    __open_2(;);
    __open64_2(;);
    __openat_2(folder;);
    __openat64_2(folder;);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // The kernel reads 32 bits of the request.
    let request = request as u32;
    if table::is_of_device(request) {
        let _uncancelled = Uncancelled::begin();
        match files::find(descriptor) {
            Found::Other => {}
            Found::Inherited => return result(Err(Errno::NOTTY)),
            Found::Own(_user) => return result(table::run(request, argument)),
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { next::ioctl(descriptor, request.into(), argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if files::is_hidden(descriptor) {
        return result(Err(Errno::BADF));
    }
    // SAFETY: the caller's argument.
    let closed = unsafe { next::close(descriptor) };
    files::release_closed();
    closed
}

/// Functions that close descriptors besides other work.
macro_rules! closing {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($parameter: $type),*) -> c_int {
                // SAFETY: the caller's arguments.
                let closed = unsafe { next::$name($($parameter),*) };
                files::release_closed();
                closed
            }
        )*
    };
}

closing! {
    close_range(first: c_uint, last: c_uint, flags: c_int);
    dup2(old: c_int, new: c_int);
    dup3(old: c_int, new: c_int, flags: c_int);
}

fn status_of_device() -> libc::stat {
    // SAFETY: any bytes are a valid value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    status.st_mode = MODE;
    status.st_rdev = libc::makedev(MAJOR, 0);
    status.st_nlink = LINKS.into();
    status.st_blksize = BLOCK_BYTES as libc::blksize_t;
    status
}

macro_rules! stating {
    ($($name:ident($($before:ident),* ; $($flags:ident)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: c_int,)* path: *const c_char, status: *mut libc::stat $(, $flags: c_int)?
            ) -> c_int {
                // SAFETY: the caller's arguments.
                let answer = unsafe { next::$name($($before,)* path, status $(, $flags)?) };
                if answer == 0 || !is_missing_device(path) {
                    return answer;
                }
                // SAFETY: it was zeroed.
                result(unsafe { memory::write_of_libc(status, &status_of_device()) }.map(|()| 0))
            }
        )*
    };
}

stating! {
    stat(;);
    stat64(;);
    lstat(;);
    lstat64(;);
    fstatat(folder; flags);
    fstatat64(folder; flags);
    // What stat was in programs that were linked with glibc before 2.33.
    __xstat(version;);
    __xstat64(version;);
    __lxstat(version;);
    __lxstat64(version;);
    __fxstatat(version, folder; flags);
    __fxstatat64(version, folder; flags);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    status: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller's arguments.
    let answer = unsafe { next::statx(folder, path, flags, mask, status) };
    if answer == 0 || !is_missing_device(path) {
        return answer;
    }
    // SAFETY: any bytes are a valid value, and all are initialized.
    let written = unsafe {
        let mut device: libc::statx = MaybeUninit::zeroed().assume_init();
        device.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
        device.stx_mode = MODE as u16;
        device.stx_nlink = LINKS;
        device.stx_blksize = BLOCK_BYTES;
        device.stx_rdev_major = MAJOR;
        memory::write_of_libc(status, &device)
    };
    result(written.map(|()| 0))
}

/// Everyone may read and write the device; nobody may run it.
fn accessible(mode: c_int) -> Answer {
    if mode & libc::X_OK == 0 { Ok(0) } else { Err(Errno::ACCES) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let answer = unsafe { next::access(path, mode) };
    if answer == 0 || !is_missing_device(path) { answer } else { result(accessible(mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let answer = unsafe { next::faccessat(folder, path, mode, flags) };
    if answer == 0 || !is_missing_device(path) { answer } else { result(accessible(mode)) }
}
