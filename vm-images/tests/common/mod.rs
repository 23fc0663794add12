//! Shared by the tests that boot real guests: one kernel, one cache, an init, and second processes of a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vm_images::{
    Accelerator, Cache, GuestFile, Initramfs, Kernel, Result, Silent, VmConfig, find_on_path, requirements,
};

/// Set in the second process of a test: the name of its role.
const ROLE: &str = "GPUPV_TEST_ROLE";

/// An init that begins like guestd: mounts, loads the modules in order, prints that it is ready, and stays.
const INIT_SOURCE: &str = include_str!("init.c");

pub struct Fixture {
    pub folder: tempfile::TempDir,
    pub cache: Cache,
    pub kernel: Kernel,
    pub init: PathBuf,
    pub initramfs: Initramfs,
}

/// Everything for a boot, or `None` with the reason printed where this machine cannot boot a guest.
pub fn fixture() -> Option<Fixture> {
    let cache = shared_cache();
    for requirement in requirements(&cache) {
        // The compiler is optional for a user, but not for these tests.
        let needed = !requirement.optional || requirement.name == "C compiler";
        if let (true, vm_images::State::Missing { what, mend, .. }) = (needed, &requirement.state) {
            println!("skipped: {}: {what}; to fix it: {mend}", requirement.name);
            return None;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::provide(&cache, &Silent).unwrap();
    let init = compile(folder.path(), "init", INIT_SOURCE);
    let initramfs = Initramfs::build(&kernel, &init, &[], &cache, &Silent).unwrap();
    Some(Fixture { folder, cache, kernel, init, initramfs })
}

impl Fixture {
    pub fn config(&self, name: &str) -> VmConfig {
        VmConfig {
            name: name.to_owned(),
            kernel: self.kernel.clone(),
            initramfs: self.initramfs.clone(),
            memory_mib: 256,
            cpus: 1,
            accelerator: Accelerator::Tcg,
            vhost_user_vsock_socket: None,
            console_log: self.folder.path().join(format!("{name}.log")),
            extra_kernel_args: Vec::new(),
        }
    }

    pub fn image_with(&self, init: &Path, files: &[GuestFile]) -> Result<Initramfs> {
        Initramfs::build(&self.kernel, init, files, &self.cache, &Silent)
    }
}

/// Kept between runs: the kernel is downloaded once.
pub fn shared_cache() -> Cache {
    Cache::at(Path::new(env!("CARGO_TARGET_TMPDIR")).join("vm-images-cache"))
}

pub fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let compiler = ["cc", "gcc", "clang"].iter().find_map(|name| find_on_path(name)).unwrap();
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).unwrap();
    assert!(Command::new(compiler).arg("-o").args([&program, &file]).status().unwrap().success());
    program
}

/// This test program again, running only `test` in `role`, with its output on pipes.
pub fn second_process(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The role this process was started in, if it is a second process.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}
