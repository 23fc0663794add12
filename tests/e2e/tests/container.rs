//! The image of `host/dist/Containerfile` is built from the package, and runs a folder of scenarios, programs in C that are
//! built in it, and the daemon.
//!
//! Ignored by default: it builds packages and a base image (debhelper, mmdebstrap, buildah, a mirror of Debian, root),
//! minutes in all. `just container` runs it. Containers run without namespaces (buildah's isolation `chroot`), because
//! machines of continuous integration often allow no others.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use e2e::files::files_below;
use e2e::packages::{package, run};
use e2e::pages::Page;
use e2e::polling::eventually;
use e2e::programs::{gpupv, stderr, tree};

/// buildah, with its images in this folder.
fn buildah(folder: &Path, command: &str) -> Command {
    let mut buildah = Command::new("buildah");
    buildah.arg("--root").arg(folder.join("images")).arg("--runroot").arg(folder.join("run-root"));
    buildah.args(["--storage-driver", "vfs", command]);
    buildah
}

fn build(folder: &Path, tag: &str, arguments: &[&str], context: &Path) {
    let mut build = buildah(folder, "build");
    build.args(["--isolation", "chroot", "--tag", tag]).args(arguments);
    run(build.arg(context));
}

/// An image of Debian, like `debian:bookworm-slim`.
fn base(folder: &Path) {
    let context = folder.join("base");
    fs::create_dir(&context).expect("writable");
    fs::write(context.join("Containerfile"), "FROM scratch\nADD base.tar /\n").expect("writable");
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--variant=apt", "--aptopt=Acquire::Languages \"none\"", "bookworm"]);
    run(mmdebstrap.arg(context.join("base.tar")));
    build(folder, "localhost/base", &[], &context);
}

/// Builds a client by pkg-config and by CMake, as docs/INSTALL.md does, and runs both.
const BUILD: &str = "set -e; cd /client
apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev make cmake pkgconf
cp /usr/share/gpupv/examples/check.h . && cp /usr/share/gpupv/examples/fence_tour.c client.c
cc -o client client.c $(pkg-config --cflags --libs gpupv)
cmake -S . -B build && cmake --build build
gpupv run ./client && gpupv run build/client";

/// The `CMakeLists.txt` of docs/INSTALL.md.
fn cmake_lists() -> String {
    let page = Page::new(Path::new("docs/INSTALL.md"));
    let block = page.blocks().into_iter().find(|block| block.info == "cmake").expect("the page has one");
    block.lines.join("\n")
}

/// The daemon of a container. Dropping it ends the container.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "minutes: builds packages and images"]
fn a_container_runs_scenarios_and_the_daemon() {
    let folder = tempfile::Builder::new().prefix("gpupv-container-").tempdir().expect("a temporary folder");
    let folder = folder.path();
    let package = package(&folder.join("packages"), "gpupv");
    base(folder);
    let context = folder.join("image");
    fs::create_dir(&context).expect("writable");
    fs::copy(&package, context.join(package.file_name().expect("a file"))).expect("writable");
    fs::copy(tree().join("host/dist/Containerfile"), context.join("Containerfile")).expect("writable");
    build(folder, "localhost/gpupv", &["--build-arg", "BASE=localhost/base"], &context);
    let container = run(buildah(folder, "from").arg("localhost/gpupv"));
    let container = container.trim();
    let in_container = |volume: &str| {
        let mut command = buildah(folder, "run");
        command.args(["--isolation", "chroot", "--volume", volume, container]);
        command
    };

    // A folder of scenarios, also on the backend with real processes.
    let scenarios = folder.join("scenarios");
    fs::create_dir(&scenarios).expect("writable");
    for file in files_below(&tree().join("tests/scenarios/litmus")) {
        fs::copy(&file, scenarios.join(file.file_name().expect("a file"))).expect("writable");
    }
    let mut of_scenarios = in_container(&format!("{}:/scenarios", scenarios.display()));
    of_scenarios.args(["gpupv", "scenario", "run", "/scenarios", "--backend", "model,link,local"]);
    let text = run(of_scenarios.args(["--junit", "/scenarios/results.xml"]));
    assert!(text.contains(" passed, 0 failed"), "{text}");
    let results = fs::read_to_string(scenarios.join("results.xml")).expect("the results are outside");
    assert!(results.contains("<testsuite name=\"local\""), "{results}");

    // Programs in C.
    let client = folder.join("client");
    fs::create_dir(&client).expect("writable");
    fs::write(client.join("CMakeLists.txt"), cmake_lists()).expect("writable");
    let text = run(in_container(&format!("{}:/client", client.display())).args(["sh", "-c", BUILD]));
    assert_eq!(text.matches("fence_tour: all as expected").count(), 2, "{text}");

    // The daemon answers a command outside.
    let sockets = folder.join("run");
    fs::create_dir(&sockets).expect("writable");
    let mut daemon = Command::new("unshare");
    daemon.args(["--pid", "--mount-proc", "--fork", "--kill-child", "--"]);
    let of_daemon = in_container(&format!("{}:/run/gpupv", sockets.display()));
    daemon.arg(of_daemon.get_program()).args(of_daemon.get_args());
    daemon.args(["gpupv", "serve", "--directory", "/run/gpupv"]).stdin(Stdio::null());
    let log = fs::File::create(folder.join("log")).expect("writable");
    daemon.stdout(log.try_clone().expect("a descriptor is free")).stderr(log);
    let _daemon = Daemon(daemon.spawn().expect("unshare (util-linux) starts"));
    eventually("the daemon answers", || {
        let mut inspect = gpupv(&["inspect", "--directory"]);
        let output = inspect.arg(&sockets).output().expect("gpupv starts");
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        if output.status.success() { Ok(()) } else { Err(format!("{}{log}", stderr(&output))) }
    });
}
