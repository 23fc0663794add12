//! Attacks on the daemon's files, and on its privileges.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::attacker::{Attacked, Stopped};
use crate::calls;
use crate::ground::{Ground, Setup};
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack("recording_fills_disk", "H2", "escapes of 120 KiB, each recorded", recording_fills_disk)
        .at(Setup::Recording),
    attack(
        "journal_too_big",
        "H5",
        "a state of three million semaphores, a kill, and a start",
        journal_too_big,
    )
    .at(Setup::Journal),
    attack("journal_snapshots", "H5", "snapshots of a state with a million waits", journal_snapshots)
        .at(Setup::Journal),
    attack("sandbox", "H4", "what the daemon could do if a guest had taken it over", sandbox),
    attack("modes", "M5", "sockets and traces of a daemon that was started with umask 0", modes)
        .at(Setup::OpenUmask),
];

fn recording_fills_disk(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let escape = calls::escape(attacker.adapter, attacker.device, vec![0x5A; 120 * 1024]);
    // The first word is the command: ECHO.
    let escape = match escape {
        d3dkmt::Call::Escape { adapter, device, mut data, .. } => {
            data[..4].fill(0);
            calls::escape(adapter, device, data)
        }
        other => other,
    };
    ground.repeat(|| attacker.call(&escape).map(drop))
}

fn journal_too_big(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let create = calls::semaphore(attacker.device, 1);
    let all = std::iter::repeat_n(create, ground.scale(5000, 3_000_000));
    attacker.many(all.take_while(|_| !ground.is_over()))
}

fn journal_snapshots(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let fence = attacker.fence()?.object;
    attacker.waits(fence, ground.scale(2000, 1 << 20))?;
    // Traffic that makes snapshots due.
    let device = attacker.device;
    let other = attacker.fence()?.object;
    let mut value = 0;
    ground.repeat(|| {
        value += 128;
        attacker.many((value - 127..=value).map(|value| calls::signal(device, other, value)))
    })
}

/// A guest that takes over the daemon has the rights of its process.
fn sandbox(ground: &Ground<'_>) -> Attacked {
    let status = std::fs::read_to_string(format!("/proc/{}/status", ground.pid));
    let status = status.map_err(|error| Stopped::Broken(error.to_string()))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().to_owned()
    };
    let (privileges, seccomp) = (field("NoNewPrivs:"), field("Seccomp:"));
    if privileges == "1" && seccomp == "2" {
        return Ok(());
    }
    Err(Stopped::Fell(format!("NoNewPrivs {privileges}, Seccomp {seccomp}, CapEff {}", field("CapEff:"))))
}

fn modes(ground: &Ground<'_>) -> Attacked {
    let private = ["vm1.sock", "vm2.sock", "control.sock"].map(|name| ground.directory.join(name));
    let mode = |path: &Path| std::fs::metadata(path).map(|file| file.permissions().mode() & 0o777);
    let paths: Vec<PathBuf> = private.into_iter().chain([ground.trace.to_owned()]).collect();
    for path in paths {
        let mode = mode(&path).map_err(|error| Stopped::Broken(format!("{}: {error}", path.display())))?;
        if mode & 0o077 != 0 {
            return Err(Stopped::Fell(format!("{} has mode {mode:o}", path.display())));
        }
    }
    Ok(())
}
