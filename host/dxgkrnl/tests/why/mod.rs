//! Planted hangs: `why` names the fence, the value and the blocker. Waits that progress are not reported as dead.

mod dead;
mod engines;
mod loops;
mod progress;

use crate::common::{World, share};
use d3dkmt::{Handle, ShareToken, SyncObjectFlags};
use dxgkrnl::ProcessId;
use dxgkrnl::why::{Cause, Question, Verdict, Why};

const Q: ProcessId = ProcessId(2);
const R: ProcessId = ProcessId(3);

fn why(world: &World) -> Why {
    let why = world.kernel.why(&Question::default());
    // Printed for readers of the text (--nocapture).
    println!("{why}");
    why
}

/// The one cause of all waits.
fn only(world: &World) -> Cause {
    let mut why = why(world);
    assert_eq!((why.causes.len(), why.left_out), (1, 0), "{why}");
    why.causes.remove(0)
}

/// The cause of a process's wait.
fn of(world: &World, process: u32) -> Cause {
    let question = Question { process: Some(process), ..Question::default() };
    let mut why = world.kernel.why(&question);
    println!("{why}");
    assert_eq!(why.causes.len(), 1, "{why}");
    why.causes.remove(0)
}

/// Summary of a cause: verdict, handle in its process, current value and needed value.
fn comes_down_to(cause: &Cause) -> (&'static str, (u32, Handle), u64, u64) {
    let root = cause.root.as_ref().unwrap_or_else(|| panic!("nothing is missing: {cause:?}"));
    let (process, handle) = root.object.handles.first().copied().unwrap_or((ProcessId(0), Handle::NULL));
    (cause.verdict.name(), (process.0, handle), root.current, root.needed)
}

/// Texts of a chain, of possible signalers, or of ended ones.
fn chain(cause: &Cause) -> String {
    cause.chain.iter().map(|step| format!("{}\n", step.text)).collect()
}

fn could(cause: &Cause) -> Vec<u32> {
    cause.could.iter().map(|source| source.process).collect()
}

fn past_signalers(cause: &Cause) -> Vec<(u32, &str)> {
    cause.gone.iter().map(|gone| (gone.party.process, gone.text.as_str())).collect()
}

const NT: SyncObjectFlags = SyncObjectFlags::SHARED.union(SyncObjectFlags::NT_SECURITY_SHARING);

/// A fence of the calling process that another process also opened, with every right. Returns both handles.
fn fence_with(world: &mut World, device: Handle, other: (ProcessId, Handle)) -> (Handle, Handle) {
    let fence = world.fence_with(device, 0, NT).object;
    (fence, open_in(world, fence, other))
}

fn open_in(world: &mut World, fence: Handle, (other, device): (ProcessId, Handle)) -> Handle {
    let token = ShareToken([7; 16]);
    world.ok(share(fence, token));
    let me = std::mem::replace(&mut world.process, other);
    let opened = world.open(device, token);
    world.process = me;
    world.close_nt_handle(token);
    opened.object
}

/// Makes the calls of this process, then restores the calling process.
fn acts<T>(world: &mut World, process: ProcessId, act: impl FnOnce(&mut World) -> T) -> T {
    let me = std::mem::replace(&mut world.process, process);
    let result = act(world);
    world.process = me;
    result
}

fn is_waits_for(cause: &Cause, process: u32) -> bool {
    cause.verdict == Verdict::WaitsFor { process }
}
