//! A program with more rights than the user who started it ignores the environment when it chooses its broker.

mod host;

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use host::{Listener, welcome};
use windows_sys::Wdk::Graphics::Direct3D as windows;

unsafe extern "C" {
    fn D3DKMTEnumAdapters2(argument: *mut windows::D3DKMT_ENUMADAPTERS2) -> i32;
}

/// Set in the process that is the program under test.
const ROLE: &str = "GPUPV_TEST_SET_UID";
const TEST: &str = "a_set_uid_program_ignores_the_environment";
const NOBODY: u32 = 65534;

/// A copy of this test's program, removed when the test is over.
struct Copy(PathBuf);

impl Copy {
    /// Makes a copy, owned by `owner` and set-uid if one is given.
    fn new(name: &str, owner: Option<u32>) -> Copy {
        let path = std::env::temp_dir().join(format!("umd-test-{name}-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        chown(&path, owner, None).unwrap();
        // After the change of the owner, which clears the bit.
        let mode = if owner.is_some() { 0o4755 } else { 0o755 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Copy(path)
    }

    /// Starts it with a broker in its environment, and with GPUPV_QUIET.
    fn start(&self, broker: &Path) -> std::process::Child {
        Command::new(&self.0)
            .args([TEST, "--exact", "--nocapture"])
            .env(ROLE, "1")
            .env(proto::limits::BROKER_ENV, broker)
            .env("GPUPV_QUIET", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The program under test: it begins a session, if it gets one.
fn begin_session() {
    // SAFETY: getauxval has no precondition.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    println!("AT_SECURE is {}", u8::from(is_privileged));
    let mut arguments = windows::D3DKMT_ENUMADAPTERS2::default();
    // SAFETY: a struct of ours.
    println!("status {:#x}", unsafe { D3DKMTEnumAdapters2(&raw mut arguments) });
}

fn texts(output: &Output) -> (String, String) {
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_set_uid_program_ignores_the_environment() {
    if std::env::var_os(ROLE).is_some() {
        return begin_session();
    }
    let listener = Listener::new();
    let all_permissions = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&listener.path, all_permissions).unwrap();

    // An ordinary program gets its session from there, and is quiet.
    let plain = Copy::new("plain", None);
    let child = plain.start(&listener.path);
    let peer = listener.accept(welcome(), 64);
    let (stdout, stderr) = texts(&child.wait_with_output().unwrap());
    drop(peer);
    assert!(stdout.contains("AT_SECURE is 0") && stdout.contains("status 0x0"), "{stdout}");
    assert!(!stderr.contains("gpupv:"), "{stderr}");

    // SAFETY: geteuid has no precondition.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not root: no set-uid program of another user was tried");
    }
    let privileged = Copy::new("set-uid", Some(NOBODY));
    let (stdout, stderr) = texts(&privileged.start(&listener.path).wait_with_output().unwrap());
    if stdout.contains("AT_SECURE is 0") {
        let folder = std::env::temp_dir();
        return eprintln!("{} is mounted nosuid: no set-uid program was tried", folder.display());
    }
    assert!(!listener.has_connection(), "it connects to a broker that its user has named");
    if !stdout.contains("status 0x0") {
        let usual = proto::limits::BROKER_PATH;
        assert!(stderr.contains(usual), "it looks where the broker always is, and says so: {stderr}");
        assert!(stderr.contains("ignores GPUPV_BROKER"), "{stderr}");
    }
}
