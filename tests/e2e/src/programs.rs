//! The programs that tests run: those of `tests/c`, and `gpupv` itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use gpupv::artifacts::Artifacts;
use gpupv::output::Steps;

/// The root of the source tree.
pub fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/e2e is two below the root")
}

/// The guest's programs; builds them on first use.
pub fn artifacts() -> &'static Artifacts {
    static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
    ARTIFACTS.get_or_init(|| Artifacts::provide(&Steps::new()).expect("the guest's programs are built"))
}

/// Builds the program behind `gpupv bench` and its guest part.
pub fn build_bench() {
    let names = ["gpupv-bench", "guest-bench"];
    gpupv::artifacts::programs(names, &Steps::new()).expect("the benchmark programs are built");
}

/// Programs that check answers observed on Windows; each prints a line for each row.
pub const ROWS: [&str; 7] = [
    "rows_adapters",
    "rows_create",
    "rows_cpu",
    "rows_sharing",
    "rows_keyed_mutex",
    "rows_allocation",
    "rows_memory",
];

/// Suffix of programs compiled with AddressSanitizer, whose library guests do not have.
pub const CHECKED: &str = "-asan";

/// A program of `tests/c`, compiled as a user would: plain gcc, gpupv's headers, `libdxcore.so`.
pub fn c_program(name: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.entry(name.into()).or_insert_with(|| compile(name)).clone()
}

/// Suffix of programs whose D3DKMT calls are ioctls of `/dev/dxg` instead of calls of `libdxcore.so`.
pub const DEV_DXG: &str = "-dxg";

/// Whether a program needs the preload object of `/dev/dxg`. Some exist in no other form.
pub fn needs_dev_dxg(name: &str) -> bool {
    name.ends_with(DEV_DXG) || name.starts_with("dxg_")
}

fn compile(name: &str) -> PathBuf {
    let folder = artifacts().directory.join("e2e-programs");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    // Another test may be running the program: a rename keeps its open file.
    let fresh = folder.join(format!("{name}.{}", std::process::id()));
    let program = folder.join(name);
    let (source, checks): (_, &[&str]) = match name.strip_suffix(CHECKED) {
        Some(source) => (source, &["-fsanitize=address", "-fno-omit-frame-pointer"]),
        None => (name, &[]),
    };
    let source = source.strip_suffix(DEV_DXG).unwrap_or(source);
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
        .args(checks)
        .arg(format!("-DPROTOCOL_VERSION={}", proto::PROTOCOL_VERSION))
        .arg("-I")
        .arg(tree().join("guest/umd/include"))
        .arg(tree().join(format!("tests/c/{source}.c")))
        .arg("-o")
        .arg(&fresh);
    match needs_dev_dxg(name) {
        true => gcc.arg("-DDEV_DXG").arg(tree().join("tests/c/dxg/d3dkmt.c")),
        false => gcc.arg("-L").arg(&artifacts().directory).args(["-Wl,--as-needed", "-ldxcore"]),
    };
    let output = gcc.output().expect("gcc is needed to compile tests/c: apt-get install gcc");
    assert!(output.status.success(), "gcc {name}.c:\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &program).expect("the target folder is writable");
    program
}

/// The `gpupv` binary of this source tree, built with the profile of the tests.
pub fn gpupv_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let folder = &artifacts().directory;
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(tree())
            .args(["build", "--quiet", "-p", "gpupv", "--profile", profile, "--target-dir"])
            .arg(folder.parent().expect("a target folder"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "building gpupv:\n{}", String::from_utf8_lossy(&output.stderr));
        folder.join("gpupv")
    })
}

/// The `gpupv` command, with the already built guest programs.
pub fn gpupv(arguments: &[&str]) -> Command {
    let mut command = Command::new(gpupv_binary());
    command.args(arguments).env(gpupv::artifacts::LIBDIR_ENV, &artifacts().directory);
    command
}

/// Runs `gpupv scenario` in a folder.
pub fn scenario(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = gpupv(&["scenario"]);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().expect("gpupv starts")
}

/// Output of a program as text.
pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("gpupv prints text")
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("gpupv prints text")
}

/// A stdout where every write fails with a full disk.
pub fn full() -> Stdio {
    std::fs::File::options().write(true).open("/dev/full").expect("/dev/full can be opened").into()
}

/// A stdout where every write fails because the reader has closed the pipe.
pub fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}
