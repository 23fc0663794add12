//! Calls of the C ABI of `libdxcore.so`, with structs that a hostile or wrong program fills: counts and sizes of any value,
//! NULL, odd addresses, structs that point to structs. The library cannot check a pointer (docs/ABI.md): so each buffer
//! has exactly the bytes that its struct promises, and AddressSanitizer sees an access beyond them.
//!
//! Structs are filled by their declarations (`abi::types::layouts`), so a new function or field is fuzzed at once. A daemon
//! runs in this process. Calls that wait for the GPU, and those that register callbacks for ever, are left out.

mod memory;

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::LazyLock;

use abi::layout::{Field, Layout};
use abi::types::{
    self, D3DDDI_SYNCHRONIZATIONOBJECTINFO2, D3DKMT_ADAPTERINFO, D3DKMT_CLOSEADAPTER,
    D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEDEVICE, D3DKMT_CREATEPAGINGQUEUE,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYDEVICE, D3DKMT_DESTROYKEYEDMUTEX,
    D3DKMT_ENUMADAPTERS2,
};
use arbitrary::{Result, Unstructured};
use d3dkmt::{NtStatus, SyncObjectType};
use daemon::{Daemon, Options};
// Its functions are called by their C names.
use dxcore as _;

use memory::{Buffers, Pages};

/// Calls of an input.
const CALLS_MAX: usize = 48;
/// Structs in structs: a declaration that points to itself ends here.
const DEPTH_MAX: usize = 3;
/// Elements of a buffer whose count is greater than any message has room for: it must be refused unread, or little is
/// written.
const ELEMENTS_OF_HUGE: usize = 4096;

/// A function with one struct.
#[derive(Clone, Copy)]
struct Function {
    name: &'static str,
    structure: &'static str,
    /// The struct is not written.
    is_input: bool,
    call: unsafe extern "C" fn(*mut c_void) -> i32,
}

/// Functions that wait for the GPU or another process, and those that keep what they get for ever.
const LEFT_OUT: &[&str] = &[
    "D3DKMTWaitForIdle",
    "D3DKMTReclaimAllocations",
    "D3DKMTRegisterTrimNotification",
    "D3DKMTRegisterBudgetChangeNotification",
    "D3DKMTUnregisterTrimNotification",
    "D3DKMTUnregisterBudgetChangeNotification",
];

macro_rules! plain_functions {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($mode:ident $type:ident $(of $process:ident)?)
        = $call:ident $fields:tt $(-> $reply:ident $outputs:tt)?;)*) => {
        unsafe extern "C" {
            $(fn $name(argument: *mut c_void) -> i32;)*
        }

        fn plain_functions() -> Vec<Function> {
            vec![$(function! { $mode $name $type }),*]
        }
    };
}

macro_rules! function {
    ($mode:ident $name:ident $type:ident) => {
        Function {
            name: stringify!($name),
            structure: stringify!($type),
            is_input: !matches!(stringify!($mode).as_bytes(), b"inout"),
            call: $name,
        }
    };
}

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($($parameters:tt)*) = $module:ident::$thunk:ident;)*) => {
        unsafe extern "C" {
            $(#[allow(dead_code, reason = "those without a struct are not in the table")]
            fn $name(argument: *mut c_void) -> i32;)*
        }

        #[allow(clippy::vec_init_then_push, reason = "rows without a struct are left out")]
        fn functions() -> Vec<Function> {
            let mut functions = Vec::new();
            $(added! { functions $name $($parameters)* })*
            functions
        }
    };
}

macro_rules! added {
    // Functions without a struct have other parameters: see `share`.
    ($functions:ident $name:ident by $($rest:tt)*) => {};
    ($functions:ident $name:ident $mode:ident $type:ident) => {
        $functions.push(function! { $mode $name $type })
    };
}

abi::for_each_plain_call!(plain_functions);
abi::for_each_function!(functions);

/// `D3DKMTShareObjects`, by its type.
type ShareObjects = unsafe extern "C" fn(u32, *const u32, *mut c_void, u32, *mut u64) -> i32;

/// All that inputs share: the daemon, the tables, and memory for allocations.
struct Setting {
    functions: Vec<Function>,
    layouts: Vec<Layout>,
    pages: Pages,
    share_objects: ShareObjects,
    _daemon: Daemon,
}

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("gpupv-fuzz-abi-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a folder for sockets");
    let daemon = Daemon::start(Options { directory: directory.clone(), ..Options::default() });
    let daemon = daemon.expect("the daemon starts");
    // SAFETY: the targets and the daemon read the environment by functions of std, which lock it.
    unsafe {
        std::env::set_var("GPUPV_BROKER", daemon.broker_path());
        std::env::set_var("GPUPV_QUIET", "1");
    }
    let functions: Vec<_> = [plain_functions(), functions()].concat();
    let functions = functions.into_iter().filter(|function| !LEFT_OUT.contains(&function.name)).collect();
    // SAFETY: the C function has these parameters. The table above calls no function without a struct.
    let share_objects = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut c_void) -> i32, ShareObjects>(D3DKMTShareObjects)
    };
    let setting =
        Setting { functions, layouts: types::layouts(), pages: Pages::new(), share_objects, _daemon: daemon };
    // The session of this process begins; then nobody needs the sockets.
    first_adapter();
    let _ = std::fs::remove_dir_all(&directory);
    setting
});

/// Calls a function with a valid struct. The status.
fn valid<T>(function: unsafe extern "C" fn(*mut c_void) -> i32, arguments: &mut T) -> i32 {
    // SAFETY: the struct is the function's, and what it points to is valid.
    unsafe { function((&raw mut *arguments).cast()) }
}

fn first_adapter() -> u32 {
    let mut adapters: [D3DKMT_ADAPTERINFO; 4] = [abi::zeroed(); 4];
    let mut arguments = D3DKMT_ENUMADAPTERS2 { NumAdapters: 4, pAdapters: adapters.as_mut_ptr() };
    assert_eq!(valid(D3DKMTEnumAdapters2, &mut arguments), 0, "the daemon has an adapter");
    adapters[0].hAdapter
}

/// A struct that is made up, its layout, and what it points to.
struct Program<'a, 'b> {
    setting: &'static Setting,
    input: &'a mut Unstructured<'b>,
    buffers: Buffers,
    /// The name of the function that is called next.
    function: &'static str,
    /// Handles and numbers that calls have returned.
    handles: Vec<u32>,
    numbers: Vec<u64>,
    /// NT handles and sync files.
    descriptors: Vec<OwnedFd>,
    event: OwnedFd,
}

fn is_count(field: &Field) -> bool {
    let is_number = matches!(field.rust_type, "UINT" | "ULONG" | "UINT64") && field.name != "Size";
    is_number
        && !field.name.contains("Bytes")
        && (field.name.contains("Count") || field.name.starts_with("Num") || field.name.ends_with("Size"))
}

/// The count of the elements that a pointer names.
fn count_of<'f>(fields: &'f [Field], pointer: &Field) -> Option<&'f Field> {
    let counts = || fields.iter().filter(|field| is_count(field));
    let named = |name: &str| counts().find(|field| field.name == name);
    let base = pointer.name.strip_prefix('p').unwrap_or(pointer.name);
    let of_objects = matches!(pointer.name, "ObjectHandleArray" | "FenceValueArray" | "values");
    named(&format!("{base}Size"))
        .or_else(|| named(&format!("{}Count", base.trim_end_matches("Array"))))
        .or_else(|| named("ObjectCount").filter(|_| of_objects))
        .or_else(|| named("PrivateDriverDataSize").filter(|_| pointer.name == "private_data"))
        .or_else(|| counts().find(|field| field.name.contains("Count") || field.name.starts_with("Num")))
}

fn word(bytes: &[u8], field: &Field) -> u64 {
    let mut word = [0; 8];
    let bytes = &bytes[field.offset..field.offset + field.bytes.min(8)];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn put(bytes: &mut [u8], field: &Field, value: u64) {
    let length = field.bytes.min(8);
    bytes[field.offset..field.offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
}

impl Program<'_, '_> {
    fn layout(&self, name: &str) -> Option<&'static Layout> {
        self.setting.layouts.iter().find(|layout| layout.name == name)
    }

    fn count(&mut self) -> Result<u64> {
        Ok(match self.input.int_in_range(0..=31)? {
            0 => u64::from(u32::MAX) - u64::from(self.input.arbitrary::<u16>()?),
            1 => 1 << self.input.int_in_range(20..=31)?,
            2..=4 => self.input.int_in_range(0..=300)?,
            _ => self.input.int_in_range(0..=4)?,
        })
    }

    /// A number that is no count. Sizes of memory are small, or greater than any: what an engine accesses is the
    /// program's memory, of which there is little here.
    fn number(&mut self, field: &Field) -> Result<u64> {
        let small = self.input.int_in_range(0..=20)?;
        let is_size = field.name.to_ascii_lowercase().contains("size") && !field.name.contains("Pages");
        Ok(match self.input.int_in_range(0..=7)? {
            0 => u64::MAX - small,
            1 => 1 << self.input.int_in_range(40..=63)?,
            2 if field.bytes <= 4 => self.input.arbitrary::<u32>()?.into(),
            3 | 4 if !self.numbers.is_empty() && !is_size && !field.name.contains("Pages") => {
                *self.input.choose(&self.numbers)?
            }
            5 if !field.name.contains("Pages") => 4096 * (small % 5),
            _ => small,
        })
    }

    fn handle(&mut self) -> Result<u64> {
        Ok(match self.input.int_in_range(0..=7)? {
            0 => 0,
            1 => self.input.arbitrary::<u32>()?.into(),
            _ if self.handles.is_empty() => 0,
            _ => (*self.input.choose(&self.handles)?).into(),
        })
    }

    /// A `HANDLE`: an event, an NT handle, the process, or no descriptor.
    fn descriptor(&mut self) -> Result<u64> {
        Ok(match self.input.int_in_range(0..=5)? {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 20,
            3 | 4 if !self.descriptors.is_empty() => self.input.choose(&self.descriptors)?.as_raw_fd() as u64,
            _ => self.event.as_raw_fd() as u64,
        })
    }

    /// A new buffer of elements of this type.
    fn buffer(&mut self, element: &str, count: u64, depth: usize) -> Result<u64> {
        let layout = self.layout(element).filter(|layout| !layout.fields.is_empty() && depth < DEPTH_MAX);
        let bytes = self.layout(element).map_or(1, |layout| layout.bytes);
        let bytes = if element == "u16" { 2 } else { bytes };
        // The length of a string has 16 bits, and is always possible.
        let count = if count > u64::from(u16::MAX) { ELEMENTS_OF_HUGE } else { count as usize };
        let mut contents = Vec::with_capacity(count * bytes);
        // Elements beyond the first few are copies.
        for at in 0..count.min(3) {
            match layout {
                Some(layout) => contents.extend(self.structure(layout, depth + 1)?),
                None if element == "D3DKMT_HANDLE" => contents.extend((self.handle()? as u32).to_le_bytes()),
                // A timeout of 0 is over at once.
                None if element == "LARGE_INTEGER" => contents.extend([0; 8]),
                None if at == 0 && bytes == 1 => {
                    let drawn: &[u8] = self.input.arbitrary()?;
                    contents.extend(&drawn[..drawn.len().min(count)]);
                }
                None => contents.extend(std::iter::repeat_n(self.input.arbitrary::<u8>()?, bytes)),
            }
        }
        contents.truncate(count * bytes);
        let drawn = contents.len().max(1);
        while contents.len() < count * bytes {
            contents.push(contents.get(contents.len() % drawn).copied().unwrap_or(7));
        }
        let is_odd = self.input.ratio(1, 8)?;
        Ok(self.buffers.add(&contents, is_odd, layout))
    }

    /// A pointer, by the field's type and its count.
    fn pointer(&mut self, layout: &Layout, field: &Field, bytes: &[u8], depth: usize) -> Result<u64> {
        if self.input.ratio(1, 16)? {
            return Ok(0);
        }
        let target = field.rust_type.rsplit(' ').next().unwrap_or_default();
        let target = if target == "c_void" { "BYTE" } else { target };
        let counted = count_of(layout.fields, field).map_or(1, |count| word(bytes, count));
        match (layout.name, field.name) {
            (_, "pSystemMem" | "system_memory") => Ok(match self.input.int_in_range(0..=3)? {
                0 => 0,
                1 => self.setting.pages.address() + 8,
                page => self.setting.pages.address() + 4096 * page,
            }),
            // A string of Length bytes.
            ("UNICODE_STRING", _) => self.buffer("BYTE", word(bytes, &layout.fields[0]), depth),
            ("D3DKMT_CREATEALLOCATION", "private_data") if Self::is_standard(layout, bytes) => {
                self.buffer("D3DKMT_CREATESTANDARDALLOCATION", 1, depth)
            }
            // The function decides which member of the union is used.
            (_, "allocations") => {
                let element = match self.function {
                    "D3DKMTCreateAllocation" => "D3DDDI_ALLOCATIONINFO",
                    "D3DKMTCreateAllocation2" => "D3DDDI_ALLOCATIONINFO2",
                    "D3DKMTOpenResource" => "D3DDDI_OPENALLOCATIONINFO",
                    _ => "D3DDDI_OPENALLOCATIONINFO2",
                };
                self.buffer(element, counted, depth)
            }
            (_, "values") => self.buffer("UINT64", counted, depth),
            // A resource has one priority, whatever the number of allocations.
            (_, "pPriorities") if Self::has_resource(layout, bytes) => self.buffer(target, 1, depth),
            _ => self.buffer(target, counted, depth),
        }
    }

    fn is_standard(layout: &Layout, bytes: &[u8]) -> bool {
        let flags = layout.fields.iter().find(|field| field.name == "Flags");
        flags.is_some_and(|flags| word(bytes, flags) & 1 << 16 != 0)
    }

    fn has_resource(layout: &Layout, bytes: &[u8]) -> bool {
        let resource = layout.fields.iter().find(|field| field.name == "hResource");
        resource.is_some_and(|resource| word(bytes, resource) != 0)
    }

    /// The bytes of a struct.
    fn structure(&mut self, layout: &'static Layout, depth: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; layout.bytes];
        // Pointers come last: they depend on counts and flags.
        let is_pointer = |field: &&Field| {
            field.rust_type.starts_with('*') || matches!(field.name, "values" | "system_memory")
        };
        for field in layout.fields.iter().filter(|field| !is_pointer(field)) {
            self.field(field, &mut bytes, depth)?;
        }
        for field in layout.fields.iter().filter(is_pointer) {
            let pointer = self.pointer(layout, field, &bytes, depth)?;
            put(&mut bytes, field, pointer);
        }
        Ok(bytes)
    }

    fn field(&mut self, field: &Field, bytes: &mut [u8], depth: usize) -> Result<()> {
        let inner = self.layout(field.rust_type).filter(|layout| !layout.fields.is_empty());
        if let Some(inner) = inner.filter(|_| depth < DEPTH_MAX) {
            let contents = self.structure(inner, depth + 1)?;
            bytes[field.offset..field.offset + field.bytes].copy_from_slice(&contents);
            return Ok(());
        }
        let value = match field.rust_type {
            "D3DKMT_HANDLE" => self.handle()?,
            "HANDLE" => self.descriptor()?,
            array if array.contains("D3DKMT_HANDLE") => {
                for at in (0..field.bytes.min(16)).step_by(4) {
                    let element = Field { offset: field.offset + at, bytes: 4, ..*field };
                    let handle = self.handle()?;
                    put(bytes, &element, handle);
                }
                return Ok(());
            }
            _ if is_count(field) => self.count()?,
            // OBJECT_ATTRIBUTES must say its size.
            "ULONG" if field.name == "Length" && self.input.arbitrary()? => 48,
            _ => self.number(field)?,
        };
        put(bytes, field, value);
        Ok(())
    }

    /// Changes what would wait: a wait gets an event, an acquire a timeout, and an escape does not wait for hardware.
    fn bound(&mut self, function: &Function, layout: &Layout, bytes: &mut [u8]) {
        let field = |name: &str| layout.fields.iter().find(|field| field.name == name);
        if let Some(event) = field("hAsyncEvent").filter(|event| word(bytes, event) == 0) {
            put(bytes, event, self.event.as_raw_fd() as u64);
        }
        if let Some(timeout) = field("pTimeout").filter(|timeout| word(bytes, timeout) == 0) {
            let zero = self.buffers.add(&[0; 8], false, None);
            put(bytes, timeout, zero);
        }
        if let Some(flags) = field("Flags").filter(|_| function.name == "D3DKMTEscape") {
            let value = word(bytes, flags) & !1;
            put(bytes, flags, value);
        }
    }

    fn call(&mut self, function: &Function) -> Result<()> {
        let layout = self.layout(function.structure).expect("each struct is declared");
        self.function = function.name;
        let mut bytes = self.structure(layout, 0)?;
        self.bound(function, layout, &mut bytes);
        let is_odd = self.input.ratio(1, 8)?;
        let argument = self.buffers.add(&bytes, is_odd, None);
        // SAFETY: the struct and each array that it names have the bytes that the C contract asks for.
        let status = unsafe { (function.call)(argument as *mut c_void) };
        let after = self.buffers.bytes(argument, layout.bytes);
        assert_ne!(NtStatus(status as u32), NtStatus::INTERNAL_ERROR, "{} panicked", function.name);
        // It answers the bytes to trim although it fails.
        let is_exception = function.name == "D3DKMTMakeResident";
        if status < 0 || function.is_input {
            assert!(after == bytes || is_exception, "{} failed ({status:#x}) and wrote", function.name);
            return Ok(());
        }
        for field in layout.fields {
            let value = word(&after, field);
            if value == word(&bytes, field) || value == 0 {
                continue;
            }
            match field.rust_type {
                "D3DKMT_HANDLE" => self.handles.push(value as u32),
                "HANDLE" => self.keep(value),
                _ if field.bytes == 8 => self.numbers.push(value),
                _ => {}
            }
        }
        self.handles.extend(self.buffers.first_words("ALLOCATIONINFO"));
        Ok(())
    }

    /// A descriptor that a call has made.
    fn keep(&mut self, number: u64) {
        let number = i32::try_from(number).expect("a descriptor");
        // SAFETY: the call has made it for its caller, which closes it.
        self.descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
    }

    fn share(&mut self) -> Result<()> {
        let count = self.count()?;
        let objects = self.buffer("D3DKMT_HANDLE", count, 0)?;
        let attributes = if self.input.arbitrary()? { 0 } else { self.buffer("OBJECT_ATTRIBUTES", 1, 0)? };
        let handle = if self.input.ratio(1, 16)? { 0 } else { self.buffers.add(&[0; 8], false, None) };
        let (count, access) = (count as u32, self.input.arbitrary()?);
        // SAFETY: the array has as many entries, and the other pointers are NULL or to their types.
        let status = unsafe {
            let (objects, attributes) = (objects as *const u32, attributes as *mut c_void);
            (self.setting.share_objects)(count, objects, attributes, access, handle as *mut u64)
        };
        assert_ne!(NtStatus(status as u32), NtStatus::INTERNAL_ERROR, "D3DKMTShareObjects panicked");
        if status >= 0 {
            let bytes = self.buffers.bytes(handle, 8);
            self.keep(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        }
        Ok(())
    }

    /// Objects with which most calls can succeed.
    fn begin(&mut self) {
        let adapter = first_adapter();
        let mut device: D3DKMT_CREATEDEVICE = abi::zeroed();
        device.adapter = adapter;
        assert_eq!(valid(D3DKMTCreateDevice, &mut device), 0, "a device is created");
        let device = device.hDevice;
        let mut context: D3DKMT_CREATECONTEXTVIRTUAL = abi::zeroed();
        context.hDevice = device;
        assert_eq!(valid(D3DKMTCreateContextVirtual, &mut context), 0, "a context is created");
        let mut queue: D3DKMT_CREATEPAGINGQUEUE = abi::zeroed();
        queue.hDevice = device;
        assert_eq!(valid(D3DKMTCreatePagingQueue, &mut queue), 0, "a paging queue is created");
        let mut fence: D3DKMT_CREATESYNCHRONIZATIONOBJECT2 = abi::zeroed();
        fence.hDevice = device;
        let mut info: D3DDDI_SYNCHRONIZATIONOBJECTINFO2 = abi::zeroed();
        info.Type = SyncObjectType::MONITORED_FENCE.0;
        fence.Info = info;
        assert_eq!(valid(D3DKMTCreateSynchronizationObject2, &mut fence), 0, "a fence is created");
        self.handles.extend([adapter, device, context.hContext, queue.hPagingQueue, fence.hSyncObject]);
    }

    fn run(&mut self) -> Result<()> {
        for _ in 0..CALLS_MAX {
            if self.input.is_empty() {
                break;
            }
            let number = usize::from(self.input.arbitrary::<u8>()?);
            match self.setting.functions.get(number % (self.setting.functions.len() + 4)) {
                Some(function) if self.input.ratio(1, 64)? => {
                    // SAFETY: NULL is refused.
                    let status = unsafe { (function.call)(std::ptr::null_mut()) };
                    assert_eq!(NtStatus(status as u32), NtStatus::INVALID_PARAMETER, "{}", function.name);
                }
                Some(function) => self.call(function)?,
                None => self.share()?,
            }
            self.buffers.clear();
        }
        Ok(())
    }

    /// Destroys all that the input has created. Handles of other kinds are refused.
    fn end(&mut self) {
        for handle in std::mem::take(&mut self.handles).into_iter().rev() {
            valid(D3DKMTDestroyKeyedMutex, &mut D3DKMT_DESTROYKEYEDMUTEX { hKeyedMutex: handle });
            valid(D3DKMTDestroyDevice, &mut D3DKMT_DESTROYDEVICE { hDevice: handle });
            valid(D3DKMTCloseAdapter, &mut D3DKMT_CLOSEADAPTER { hAdapter: handle });
        }
    }
}

/// One input: calls of a program. A call that fails leaves its struct as it was, and none panics.
pub fn c_abi(data: &[u8]) {
    let setting = &*SETTING;
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let event = rustix::event::eventfd(0, flags).expect("an eventfd");
    let input = &mut Unstructured::new(data);
    let (buffers, function, handles, numbers, descriptors) = Default::default();
    let mut program = Program { setting, input, buffers, function, handles, numbers, descriptors, event };
    program.begin();
    // The input is over where bytes run out.
    let _ = program.run();
    program.end();
}
