//! What a DDI of a driver in C costs: a message to its process and one back. `cargo bench -p driver-host`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use divan::Bencher;
use divan::counter::BytesCount;
use driver_host::abi::{DXGKARG_ESCAPE, DXGKARG_SUBMITCOMMANDVIRTUAL};
use driver_host::messages::Request;
use driver_host::process::{DriverProcess, PROGRAM_ENV};

/// Answers an escape as it is, and completes a submission.
const DRIVER: &str = r#"
#include "dxgk_miniport.h"

static const DXGKRNL_INTERFACE *dxgk;

static NTSTATUS escape(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    (void)context, (void)now, (void)args;
    return STATUS_SUCCESS;
}

static NTSTATUS submit(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = 1, .FenceId = args->SubmissionFenceId };
    (void)context, (void)now;
    return dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table, .Version = DXGK_MINIPORT_VERSION,
    .DxgkDdiEscape = escape, .DxgkDdiSubmitCommandVirtual = submit,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pMiniportDeviceContext)
{
    (void)pMiniportDeviceContext;
    dxgk = pDxgkrnl;
    return &table;
}
"#;

fn driver() -> DriverProcess {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, object) = (folder.join("bench.c"), folder.join("bench.so"));
    std::fs::write(&source, DRIVER).expect("it is written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-I"]).arg(include).arg("-o").arg(&object).arg(&source);
    assert!(cc.status().expect("a C compiler is there").success());
    let mut process = DriverProcess::start(&object).expect("it starts");
    process.load().expect("it loads");
    process
}

/// An escape of so many bytes, there and back.
#[divan::bench(args = [8, 4096, 65536])]
fn escape(bencher: Bencher, bytes: usize) {
    let mut process = driver();
    let ddi = DXGKARG_ESCAPE::default().into();
    let request = Request { now: 0, ddi, buffer: vec![7; bytes], allocations: Vec::new() };
    bencher.counter(BytesCount::new(bytes)).bench_local(|| process.ask(&request, None).expect("it answers"));
}

/// A submission of 64 bytes, which completes at once.
#[divan::bench]
fn submit(bencher: Bencher) {
    let mut process = driver();
    let ddi = DXGKARG_SUBMITCOMMANDVIRTUAL::default().into();
    let request = Request { now: 0, ddi, buffer: vec![7; 64], allocations: Vec::new() };
    bencher.bench_local(|| process.ask(&request, None).expect("it answers"));
}

/// The peer: 64 bytes through a socket to another thread, and back.
#[divan::bench]
fn raw_socket(bencher: Bencher) {
    let (mut socket, mut other) = UnixStream::pair().expect("a pair of sockets");
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while other.read_exact(&mut bytes).is_ok() {
            other.write_all(&bytes).expect("the other end is open");
        }
    });
    let mut bytes = [7; 64];
    bencher.bench_local(|| {
        socket.write_all(&bytes).expect("it is open");
        socket.read_exact(&mut bytes).expect("it answers");
    });
    drop(socket);
    echo.join().expect("it ends with its socket");
}

fn main() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var(PROGRAM_ENV, env!("CARGO_BIN_EXE_driver-host")) };
    divan::main();
}
