//! An observer sees every step, complete and in order.

use std::sync::{Arc, Mutex};
use std::thread;

use dxgkrnl::{Config, Effects, Fault, Input, Nanos};
use e2e::embedded::Embedded;
use e2e::wire::{Client, Steady};
use gpupv::daemon::observer::DaemonKernel;
use gpupv::daemon::{Clock, Observer, Options};
use gpupv::drivers::{Drivers, Registry};

/// A step, and the digest of the state after it.
type Seen = (Nanos, Input, Effects, u64);

#[derive(Default)]
struct Notebook(Mutex<Vec<Seen>>);

impl Notebook {
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().expect("no observer thread panicked"))
    }
}

impl Observer for Notebook {
    fn step(&self, now: Nanos, input: &Input, effects: &Effects, kernel: &DaemonKernel) {
        let record = (now, input.clone(), effects.clone(), kernel.snapshot().digest());
        self.0.lock().expect("no observer thread panicked").push(record);
    }
}

fn start(clock: Clock) -> (Embedded, Arc<Notebook>) {
    let notebook = Arc::new(Notebook::default());
    let observer: Option<Arc<dyn Observer>> = Some(notebook.clone());
    let local_vms = vec!["a".into()];
    (Embedded::start_with(Options { clock, observer, local_vms, ..Options::default() }), notebook)
}

#[test]
fn observed_inputs_give_another_kernel_the_same_effects() {
    let (daemon, notebook) = start(Clock::Monotonic);
    let (_, a) = daemon.daemon().local_vm("a").expect("the local VM exists");
    thread::scope(|scope| {
        for broker in [daemon.broker(), a.clone(), daemon.broker()] {
            scope.spawn(move || {
                let mut steady = Steady::new(&broker);
                (0..50).for_each(|_| steady.assert_works());
            });
        }
    });
    daemon.wait_until_forgotten();
    let records = notebook.take();
    assert!(records.len() > 3 * 50 * 2, "{} steps", records.len());
    let mut again =
        DaemonKernel::new(Config::default(), Drivers::new(&Registry::default(), &Config::default()));
    for (now, input, effects, digest) in records {
        let mut same = Effects::default();
        let line = input.to_string();
        again.handle(now, input, &mut same);
        assert_eq!((same, again.snapshot().digest()), (effects, digest), "{line}");
    }
    daemon.end();
}

#[test]
fn steps_of_a_virtual_clock_have_exact_times() {
    let (daemon, notebook) = start(Clock::Virtual);
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let context = client.create_context(device);
    let fence = client.create_fence(device, 0);
    notebook.take();
    client.submit_write(context, &fence, 1);
    daemon.daemon().advance(3_000_000);
    daemon.kernel_host().fault(Fault::StopAdapter { adapter: 0 });
    let lines = notebook.take().into_iter().map(|(now, input, ..)| (now, input.to_string()));
    let mut lines = lines.collect::<Vec<_>>();
    assert!(lines.remove(0).1.contains("SubmitCommand"));
    let expected = [(1_000_000, "deadline"), (3_000_000, "fault: adapter 0 stops")];
    assert_eq!(lines, expected.map(|(now, line)| (now, line.to_owned())));
    drop(client);
    daemon.end();
}
