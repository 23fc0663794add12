//! `gpupv inspect`: the live state of a daemon.

use std::path::PathBuf;

use clap::Args;
use proto::control::{InspectRequest, Inspection, Wait};
use serde_json::{Value, json};

use crate::commands::default_directory;
use crate::daemon::control;
use crate::output::{OK, say};

/// Arguments of `gpupv inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Folder of the daemon's sockets
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print the state as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    let directory = args.directory.clone().unwrap_or_else(default_directory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inspection = runtime.block_on(async {
        let mut client = control::connect(&directory).await?;
        anyhow::Ok(client.inspect(InspectRequest {}).await?.into_inner())
    })?;
    if args.json {
        say(format_args!("{:#}", to_json(&inspection)));
    } else {
        say(format_args!("{}", render(&inspection).trim_end()));
    }
    Ok(OK)
}

fn handle(handle: u32) -> String {
    format!("{handle:#x}")
}

fn milliseconds(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1000 % 1000)
}

/// One line: who waits for what, and what the values are.
fn render_wait(wait: &Wait, now_ns: u64) -> String {
    let who = if wait.context == 0 {
        format!("process {} event {}", wait.process, wait.event)
    } else {
        format!("process {} context {}", wait.process, handle(wait.context))
    };
    let items: Vec<String> = wait
        .items
        .iter()
        .map(|item| {
            let done = if item.satisfied { ", reached" } else { "" };
            format!("fence {} >= {} (now {}{done})", handle(item.object), item.value, item.current)
        })
        .collect();
    let kind = if wait.any { " or " } else { " and " };
    let age = milliseconds(now_ns.saturating_sub(wait.since_ns));
    format!("  {who} has waited {age} for {}\n", items.join(kind))
}

/// The state for a person.
pub fn render(state: &Inspection) -> String {
    let mut text = format!(
        "daemon {}: {} threads, {} KiB resident, up {}{}\n",
        state.pid,
        state.threads,
        state.resident_bytes / 1024,
        milliseconds(state.now_ns),
        if state.recording { ", recording" } else { "" }
    );
    for vm in &state.vms {
        text += &format!("vm {} ({}): {}, {}\n", vm.id, vm.name, vm.state, vm.socket);
    }
    for process in &state.processes {
        let place = if process.vm == 0 { "local".into() } else { format!("vm {}", process.vm) };
        let connected = if process.connected { "" } else { ", not connected" };
        text += &format!(
            "process {} ({place}, pid {}, {}): {} handles, {} of {} fence slots{connected}\n",
            process.id,
            process.pid,
            process.name,
            process.handles,
            process.fence_slots_used,
            process.fence_slots
        );
    }
    for device in &state.devices {
        text += &format!(
            "  process {} device {} on adapter {}, execution state {}\n",
            device.process,
            handle(device.handle),
            device.adapter,
            device.state
        );
    }
    for context in &state.contexts {
        let queue = if context.queue.is_empty() { "empty".into() } else { context.queue.join("; ") };
        text += &format!(
            "  process {} context {} on node {}: {queue}\n",
            context.process,
            handle(context.handle),
            context.node
        );
    }
    for object in &state.objects {
        text += &format!(
            "  process {} {} {} = {}, {} waiters\n",
            object.process,
            object.r#type,
            handle(object.handle),
            object.value,
            object.waiters
        );
    }
    for wait in &state.waits {
        text += &render_wait(wait, state.now_ns);
    }
    for engine in state.engines.iter().filter(|engine| engine.state != "idle") {
        text += &format!("engine {}.{} ({}): {}\n", engine.adapter, engine.node, engine.kind, engine.state);
    }
    if let Some(counters) = &state.counters {
        text += &format!(
            "frames {} in, {} out; {} fence stores, {} wakes, {} refusals, {} protocol errors\n",
            counters.frames_received,
            counters.frames_sent,
            counters.fence_stores,
            counters.wakes,
            counters.refusals,
            counters.protocol_errors
        );
    }
    text
}

/// The state for a program.
pub fn to_json(state: &Inspection) -> Value {
    let counters = state.counters.unwrap_or_default();
    json!({
        "pid": state.pid,
        "threads": state.threads,
        "resident_bytes": state.resident_bytes,
        "now_ns": state.now_ns,
        "recording": state.recording,
        "vms": state.vms.iter().map(|vm| json!({
            "id": vm.id, "name": vm.name, "state": vm.state, "socket": vm.socket,
        })).collect::<Vec<_>>(),
        "processes": state.processes.iter().map(|process| json!({
            "id": process.id, "vm": process.vm, "pid": process.pid, "name": process.name,
            "handles": process.handles, "fence_slots": process.fence_slots,
            "fence_slots_used": process.fence_slots_used, "connected": process.connected,
        })).collect::<Vec<_>>(),
        "devices": state.devices.iter().map(|device| json!({
            "process": device.process, "handle": device.handle, "adapter": device.adapter, "state": device.state,
        })).collect::<Vec<_>>(),
        "contexts": state.contexts.iter().map(|context| json!({
            "process": context.process, "handle": context.handle, "node": context.node, "queue": context.queue,
        })).collect::<Vec<_>>(),
        "objects": state.objects.iter().map(|object| json!({
            "process": object.process, "handle": object.handle, "type": object.r#type,
            "flags": object.flags, "value": object.value, "waiters": object.waiters,
        })).collect::<Vec<_>>(),
        "waits": state.waits.iter().map(|wait| json!({
            "process": wait.process, "event": wait.event, "context": wait.context, "any": wait.any,
            "since_ns": wait.since_ns,
            "items": wait.items.iter().map(|item| json!({
                "object": item.object, "value": item.value, "current": item.current, "satisfied": item.satisfied,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "engines": state.engines.iter().map(|engine| json!({
            "adapter": engine.adapter, "node": engine.node, "kind": engine.kind, "state": engine.state,
        })).collect::<Vec<_>>(),
        "counters": {
            "frames_received": counters.frames_received, "frames_sent": counters.frames_sent,
            "fence_stores": counters.fence_stores, "refusals": counters.refusals,
            "protocol_errors": counters.protocol_errors, "wakes": counters.wakes,
        },
    })
}
