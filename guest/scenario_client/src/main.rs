//! The client process of a scenario on a live backend: a real client of `libdxcore.so` that executes orders. It takes
//! no arguments and reads orders from its standard input; each gets one report on its standard output. The protocol's
//! primer is in `proto/scenario_client.proto`.
//!
//! ```text
//!  stdin ──▶ main: reads orders ──▶ queue of thread 0 ──▶ thread 0: calls the C ABI ──┐
//!                               └─▶ queue of thread 1 ──▶ thread 1: in a wait         ├─▶ stdout
//!                                                         ..                        ──┘  whole reports
//! ```
//! Nothing is checked here: bad handles, flags and counts go to the library unchanged. Calls that C cannot express are
//! answered with `NoCForm` and not called.
//!
//! Exit codes: 0 at the end of input, at once, even with threads in waits (queued orders are dropped: a runner that
//! needs their reports waits for them first); 2 for input that is no order, and for output that cannot be written; 101
//! after a panic. Errors are printed on standard error.

mod abi;
mod barrier;
mod calls;
mod events;
mod memory;
mod objects;
mod output;
mod shares;
mod threads;

use std::io::Write as _;
use std::sync::atomic::AtomicU64;

use proto::frame::FrameBuffer;
use proto::limits::SCENARIO_CLIENT_DIES_WITH_PARENT_ENV;
use proto::scenario_client::{Order, Outcome, Task};
use rustix::io::Errno;
use rustix::process::Signal;

use barrier::Barriers;
use calls::Done;
use events::Events;
use memory::Memory;
use objects::Objects;
use output::Output;
use shares::Shares;
use threads::Threads;

const READ_BYTES: usize = 64 * 1024;
const BAD_INPUT: i32 = 2;
const PANICKED: i32 = 101;

/// The state that all threads share.
#[derive(Default)]
struct ScenarioClient {
    /// Orders that were put into a thread's queue.
    received_orders: AtomicU64,
    output: Output,
    events: Events,
    objects: Objects,
    memory: Memory,
    shares: Shares,
    barriers: Barriers,
}

impl ScenarioClient {
    fn perform(&self, task: Task) -> Done {
        match task {
            Task::Call { call, event } => {
                self.barriers.call_begins();
                calls::perform(self, &call, event)
            }
            Task::StartThread => Done::success(Outcome::Nothing),
            Task::NewEvent(number) => Done::nothing(self.events.make(number)),
            Task::TakeEvent(number) => Done::value(self.events.take(number)),
            Task::AwaitEvent(number) => Done::value(self.events.wait(number)),
            Task::CloseEvent(number) => Done::nothing(self.events.close(number)),
            Task::ReadValue(object) => Done::value(self.objects.value(object)),
            Task::MessagesSent => Done::success(Outcome::Value(self.barriers.messages_sent())),
            Task::Barrier => {
                self.barriers.pass(&self.received_orders, || self.output.reported());
                Done::success(Outcome::Nothing)
            }
            Task::OpenMailbox(name) => Done::nothing(self.shares.open_mailbox(&name)),
            Task::SendShare { token, mailbox } => Done::nothing(self.shares.send(token, &mailbox)),
            Task::StoreWords(words) => Done::nothing(self.memory.store(&words)),
            Task::FindOther(words) => Done::value(self.memory.find_other(&words)),
            Task::CloseShare(token) => Done::nothing(self.shares.close(token)),
        }
    }
}

/// Prints an error. `eprintln` would panic if standard error is full or closed.
fn print_error(words: std::fmt::Arguments<'_>) {
    // An error here cannot be reported.
    let _ = writeln!(std::io::stderr(), "scenario-client: {words}");
}

/// Prints an error and exits.
fn fail(words: std::fmt::Arguments<'_>) -> ! {
    print_error(words);
    std::process::exit(BAD_INPUT);
}

/// A panic in any thread ends the process: a scenario with a thread missing would only hang.
fn exit_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(PANICKED);
    }));
}

/// Makes this process die with its parent. The end of input ends a scenario client, but not one that is stopped when
/// its runner is killed. The signal follows the thread that spawned this process, and a runner's threads live until
/// their scenario clients have exited. A runner on this machine asks for it; in a guest the VM's end kills all
/// processes.
fn die_with_the_parent() {
    if std::env::var_os(SCENARIO_CLIENT_DIES_WITH_PARENT_ENV).is_none_or(|value| value != "1") {
        return;
    }
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        fail(format_args!("cannot be set to die with its runner: {error}"));
    }
}

fn main() {
    exit_on_panic();
    die_with_the_parent();
    let mut threads = Threads::new(Box::leak(Box::default()));
    let mut frames = FrameBuffer::default();
    let mut landing = vec![0; READ_BYTES];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut landing) {
            Ok(0) if frames.pending() > 0 => fail(format_args!("the input ended inside an order")),
            // Exit at once, because a thread may wait for ever.
            Ok(0) => std::process::exit(0),
            Ok(count) => frames.extend(&landing[..count]),
            Err(Errno::INTR) => continue,
            Err(error) => fail(format_args!("cannot read the input: {error}")),
        }
        loop {
            match Order::next(&mut frames) {
                Ok(Some(order)) => threads.give(order),
                Ok(None) => break,
                Err(error) => fail(format_args!("the input is no order: {error}")),
            }
        }
    }
}
