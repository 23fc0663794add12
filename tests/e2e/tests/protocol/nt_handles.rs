//! NT handles at the broker: tokens without a descriptor, processes that keep a descriptor, the limit, and that nothing
//! leaks.

use std::process::{Command, Stdio};

use covers::covers;
use d3dkmt::limits::SHARES_PER_VM_MAX;
use d3dkmt::{Call, Handle, NtStatus, ShareToken, calls};
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::machine;
use e2e::polling::until;
use e2e::served::Served;
use e2e::wire::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit of NT handles of one user.
const SHARES_PER_USER_MAX: usize = SHARES_PER_VM_MAX * 2 / 3;

#[test]
fn a_token_without_a_descriptor_opens_nothing() {
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let fence = client.create_shared_fence(device);
    // An invented token, and one closed before the call.
    let made_up = ShareToken([7; 16]);
    let (closed, handle) = client.make_nt_handle().unwrap();
    drop(handle);
    until("the close is seen", || daemon.kernel_host().nt_handles().count() == 0);
    for token in [made_up, closed] {
        // The call shares it, and its last NT handle is already closed.
        assert_eq!(client.call(&calls::share(fence, token, Some("name"))).0, NtStatus::SUCCESS);
        assert_eq!(client.call(&calls::open(device, token)).0, NtStatus::INVALID_HANDLE);
        assert_eq!(daemon.kernel_host().views().snapshot().shares, 0);
    }
    // After a refused call the handle names nothing, and a later call may use it.
    let (token, handle) = client.make_nt_handle().unwrap();
    assert_eq!(client.call(&calls::share(Handle(1), token, None)).0, NtStatus::INVALID_PARAMETER);
    assert_eq!(client.call(&calls::open(device, token)).0, NtStatus::INVALID_HANDLE);
    assert_eq!(client.call(&calls::share(fence, token, None)).0, NtStatus::SUCCESS);
    assert_eq!(client.call(&calls::open(device, token)).0, NtStatus::SUCCESS);
    drop((handle, client));
    daemon.end();
}

#[test]
fn a_process_that_never_attached_keeps_an_object_alive() {
    covers!("W-127");
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let fence = client.create_shared_fence(device);
    let (token, handle) = client.make_nt_handle().unwrap();
    assert_eq!(client.call(&calls::share(fence, token, Some("kept"))).0, NtStatus::SUCCESS);
    // Inherited over fork and exec, as standard input.
    let mut proxy =
        Command::new("sleep").arg("1000").stdin(Stdio::from(handle)).spawn().expect("sleep starts");
    drop(client);
    until("the process is gone", || daemon.inspection().processes.is_empty());
    let mut other = Client::new(&daemon.broker());
    let device = other.open_device();
    let by_name = |token| Call::OpenNtHandleFromName {
        name: "kept".into(),
        desired_access: u32::MAX,
        token,
        sync_object: true,
    };
    let (found, handle) = other.make_nt_handle().unwrap();
    assert_eq!(other.call(&by_name(found)).0, NtStatus::SUCCESS);
    assert_eq!(other.call(&calls::open(device, found)).0, NtStatus::SUCCESS);
    drop(handle);
    proxy.kill().expect("the child process can be killed");
    proxy.wait().expect("the child process can be waited for");
    // The broker handles earlier closes before a new NT handle, so the name is free at once.
    let (late, _handle) = other.make_nt_handle().unwrap();
    assert_eq!(other.call(&by_name(late)).0, NtStatus::OBJECT_NAME_NOT_FOUND);
    drop((_handle, other));
    daemon.end();
}

/// Attack nt_handle_churn: an inotify instance takes the system milliseconds to close.
#[test]
fn churning_nt_handles_share_one_watch_descriptor() {
    // Runs alone, because other tests count this program's open files.
    let _alone = lock_exclusive();
    let served = Served::start(&[]);
    let inotify = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", served.pid())).expect("it runs").flatten();
        let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.as_os_str() == "anon_inode:inotify").count()
    };
    assert_eq!(inotify(), 1, "the watch descriptor is created with the broker's socket");
    let client = Client::new(&served.broker());
    for _ in 0..3 {
        drop(client.make_nt_handle().expect("an NT handle"));
        // The broker checks for closes before it answers a request for an NT handle.
        drop(client.make_nt_handle().expect("an NT handle"));
        assert_eq!(inotify(), 1);
    }
    drop(client);
    until("the process has ended", || served.inspect().processes.is_empty());
    assert_eq!(inotify(), 1);
}

#[test]
fn a_process_may_have_ten_thousand_nt_handles_and_more_are_refused_with_the_limit() {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("up to the hard limit");
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let fence = client.create_shared_fence(device);
    let files = machine::open_files(std::process::id()).len();
    let room = most.map_or(usize::MAX, |most| most as usize - files - 100);
    let count = SHARES_PER_USER_MAX.min(room);
    assert!(count >= 1000, "only {room} files may be open: raise the hard limit (ulimit -Hn)");
    let mut handles = Vec::new();
    for number in 0..count {
        let (token, handle) =
            client.make_nt_handle().unwrap_or_else(|why| panic!("NT handle {number}: {why}"));
        assert_eq!(client.call(&calls::share(fence, token, None)).0, NtStatus::SUCCESS);
        handles.push((token, handle));
    }
    // The broker keeps no descriptor for each: one existing inotify descriptor reports all closes.
    assert_eq!(machine::open_files(std::process::id()).len(), files + count);
    if count == SHARES_PER_USER_MAX {
        for _ in 0..40 {
            let why = client.make_nt_handle().expect_err("over the limit");
            assert!(why.contains(&format!("has {count} NT handles")), "{why}");
        }
        handles.pop();
        handles.push(client.make_nt_handle().expect("there is room again"));
    } else {
        eprintln!(
            "only {room} files may be open: the limit of {SHARES_PER_USER_MAX} NT handles is not reached"
        );
    }
    assert_eq!(client.call(&calls::open(device, handles[count / 2].0)).0, NtStatus::SUCCESS);
    drop((handles, client));
    daemon.end();
}
