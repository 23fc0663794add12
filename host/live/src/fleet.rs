//! A daemon with its guests: boots them, copies files into them, and ends them.

use std::collections::HashMap;
use std::path::PathBuf;

use daemon::{Daemon, Options};

use crate::artifacts::Artifacts;
use crate::cleanup::{self, Cleanup, Temporary};
use crate::consoles::Consoles;
use crate::output::{Steps, complain};
use crate::virtual_machine::agent::Agent;
use crate::virtual_machine::boot::{self, GuestVm, console_log};
use crate::virtual_machine::image::{CopiedPath, GUEST_LIBRARY_FOLDER, Image};

/// A daemon with booted guests and their agents; dropping it ends them.
pub struct Fleet {
    // Fields drop in this order: guests end before their daemon.
    pub guests: Vec<(GuestVm, Agent)>,
    pub daemon: Daemon,
    _cleanup: Cleanup,
    pub consoles: Consoles,
    _folder: Temporary<tempfile::TempDir>,
}

/// If a signal ends the process, the recording gets its end, and the console logs are removed, unless the user named their
/// folder. The guests end with the process.
fn end_by_signal(daemon: &Daemon, consoles: &Consoles) -> Cleanup {
    let (kernel_host, logs) = (daemon.kernel_host.clone(), consoles.removable());
    Cleanup::new(move || {
        if let Err(error) = kernel_host.traces().finish() {
            complain(format_args!("{error:#}"));
        }
        // A guest that is being launched may make one meanwhile.
        if let Some(logs) = logs {
            cleanup::remove(&logs);
        }
    })
}

/// The daemon's options, and the number and contents of the guests.
#[derive(Default, Clone)]
pub struct FleetPlan {
    pub options: Options,
    pub count: u32,
    pub with: Vec<CopiedPath>,
    pub console: Option<PathBuf>,
}

/// Name of the guest with this number, from 1.
fn guest_name(number: u32) -> String {
    format!("vm{number}")
}

impl FleetPlan {
    /// The files of the console logs, if the user named their folder.
    pub fn console_logs(&self) -> impl Iterator<Item = PathBuf> {
        let names = (1..=self.count).map(guest_name);
        names.filter_map(|name| Some(console_log(self.console.as_ref()?, &name)))
    }
}

/// Why a guest's agent failed. If the guest has ended, that is the cause, and its console is kept.
fn cause_of(error: anyhow::Error, guest: &GuestVm, consoles: &mut Consoles) -> anyhow::Error {
    let Some(failure) = guest.ended() else { return error };
    consoles.keep = true;
    anyhow::anyhow!("{error:#}: {} ended: {}", failure.name, failure.details())
}

impl Fleet {
    /// Boots the guests and copies files into each.
    pub async fn boot(plan: &FleetPlan, steps: &Steps) -> anyhow::Result<Fleet> {
        let artifacts = Artifacts::provide(steps)?;
        let image = Image::provide(steps, &artifacts)?;
        let folder = cleanup::socket_folder()?;
        let directory = folder.value.path().into();
        let daemon = cleanup::start_daemon(Options { directory, ..plan.options.clone() })?;
        let mut consoles = Consoles::new(plan.console.as_ref())?;
        let cleanup = end_by_signal(&daemon, &consoles);
        let guests_word = if plan.count == 1 { "a guest" } else { "the guests" };
        tracing::info!("guests run under {}: {}", image.accelerator, image.accelerator_reason);
        steps.step(format!("booting {guests_word} under {}", image.accelerator));
        let booting = (1..=plan.count)
            .map(|number| boot::launch(&daemon, &image, &guest_name(number), &consoles.folder))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut guests = Vec::new();
        for guest in booting {
            guest.wait_ready().inspect_err(|_| consoles.keep = true)?;
            let agent = Agent::connect(guest.entry.clone()).await;
            let agent = agent.map_err(|error| cause_of(error, &guest, &mut consoles))?;
            guests.push((guest, agent));
        }
        for brought in &plan.with {
            steps.step(format!("copying {} into {guests_word}", brought.host.display()));
            for (host, path, mode) in brought.files(&image, std::slice::from_ref(&artifacts.directory))? {
                for (guest, agent) in &mut guests {
                    let put = agent.put(&host, &path, mode).await;
                    put.map_err(|error| cause_of(error, guest, &mut consoles))?;
                }
            }
        }
        Ok(Fleet { guests, daemon, _cleanup: cleanup, consoles, _folder: folder })
    }

    /// Ends the guests, then stops the daemon in order.
    pub fn end(self) -> anyhow::Result<()> {
        drop(self.guests);
        self.daemon.stop()
    }
}

/// Returns the environment of every program in a guest.
pub fn guest_environment() -> HashMap<String, String> {
    HashMap::from([
        ("LD_LIBRARY_PATH".into(), GUEST_LIBRARY_FOLDER.into()),
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()),
        ("HOME".into(), "/root".into()),
    ])
}
