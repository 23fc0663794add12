//! The control service: daemon administration on a Unix socket of the host only, with reflection and
//! health. It only looks at the daemon; nothing of a guest's path goes through here.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use proto::control::control_client::ControlClient;
use proto::control::control_server::{Control, ControlServer};
use proto::control::{
    Counters, Engine, InspectRequest, Inspection, Note, NotesRequest, StopReply, StopRequest, Vm,
};
use tokio::sync::{Notify, broadcast};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::Daemon;
use super::local_vm::LocalVm;
use super::seat::Seat;
use super::vm::{VmEntry, VmRegistry};

/// File name of the control socket in a daemon's directory.
pub const SOCKET_NAME: &str = "control.sock";

struct Service {
    seat: Arc<Seat>,
    vms: Arc<VmRegistry>,
    stop: Arc<Notify>,
}

/// The whole live state of a daemon.
pub fn inspection(seat: &Seat, vms: &VmRegistry) -> Inspection {
    let snapshot = seat.snapshot();
    let guests = seat.guests();
    let counters = &seat.counters;
    let connected =
        |process: u32| guests.iter().any(|guest| guest.id.0 == process && guest.outbox.is_connected());
    let (threads, resident_bytes) = own_size();
    Inspection {
        now_ns: seat.timer.now(),
        pid: std::process::id(),
        threads,
        resident_bytes,
        recording: seat.recording,
        vms: vms.list().iter().map(|entry| vm(entry)).chain(vms.list_local().iter().map(local_vm)).collect(),
        processes: snapshot.processes.iter().map(|state| process(state, connected(state.process))).collect(),
        devices: snapshot.devices.iter().map(device).collect(),
        contexts: snapshot.contexts.iter().map(context).collect(),
        objects: snapshot.objects.iter().map(object).collect(),
        waits: snapshot.waits.iter().map(wait).collect(),
        engines: snapshot.engines.iter().map(engine).collect(),
        counters: Some(Counters {
            frames_received: counters.frames_received.count(),
            frames_sent: counters.frames_sent.count(),
            fence_stores: counters.fence_stores.count(),
            refusals: counters.refusals.count(),
            protocol_errors: counters.protocol_errors.count(),
            wakes: counters.wakes.count(),
        }),
    }
}

fn vm(entry: &VmEntry) -> Vm {
    Vm {
        id: entry.shared.id.0,
        name: entry.shared.name.clone(),
        state: entry.shared.state().name().into(),
        socket: entry.socket.display().to_string(),
    }
}

fn local_vm(vm: &LocalVm) -> Vm {
    Vm {
        id: vm.id.0,
        name: vm.name.clone(),
        state: vm.state().into(),
        socket: vm.socket.display().to_string(),
    }
}

fn process(state: &dxgkrnl::snapshot::ProcessState, connected: bool) -> proto::control::Process {
    proto::control::Process {
        id: state.process,
        vm: state.vm,
        pid: state.pid,
        name: state.name.clone(),
        handles: state.handles,
        fence_slots: state.fence_slots,
        fence_slots_used: state.fence_slots_used,
        connected,
    }
}

fn device(state: &dxgkrnl::snapshot::DeviceState) -> proto::control::Device {
    let dxgkrnl::snapshot::DeviceState {
        process,
        handle,
        adapter,
        state,
        page_fault_flags,
        page_fault_address,
    } = *state;
    proto::control::Device { process, handle: handle.0, adapter, state, page_fault_flags, page_fault_address }
}

fn context(state: &dxgkrnl::snapshot::ContextState) -> proto::control::Context {
    proto::control::Context {
        process: state.process,
        handle: state.handle.0,
        node: state.node,
        queue: state.queue.clone(),
    }
}

fn object(state: &dxgkrnl::snapshot::ObjectState) -> proto::control::Object {
    proto::control::Object {
        process: state.process,
        handle: state.handle.0,
        r#type: state.object_type.name().into(),
        flags: state.flags,
        value: state.value,
        waiters: state.waiters,
    }
}

fn wait(state: &dxgkrnl::snapshot::WaitState) -> proto::control::Wait {
    proto::control::Wait {
        process: state.process,
        event: state.event.unwrap_or(0),
        context: state.context.map_or(0, |context| context.0),
        any: state.any,
        since_ns: state.since,
        items: state
            .items
            .iter()
            .map(|item| proto::control::WaitItem {
                object: item.object.0,
                value: item.value,
                current: item.current,
                satisfied: item.satisfied,
            })
            .collect(),
    }
}

fn engine(report: &dxgkrnl::snapshot::EngineReport) -> Engine {
    use dxgkrnl::ddi::EngineState;
    let state = match report.state {
        EngineState::Idle => "idle".into(),
        EngineState::Running { submission_fence_id, until, queued } => {
            format!("running submission {submission_fence_id} until {until} ns, {queued} queued")
        }
        EngineState::Hung { submission_fence_id, queued } => {
            format!("hung in submission {submission_fence_id}, {queued} queued")
        }
    };
    Engine { adapter: report.adapter, node: report.node, kind: report.kind.name().into(), state }
}

/// Threads and resident bytes of this process.
fn own_size() -> (u32, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    (field("Threads:").unwrap_or(0) as u32, field("VmRSS:").unwrap_or(0) * 1024)
}

#[tonic::async_trait]
impl Control for Service {
    async fn inspect(&self, _: Request<InspectRequest>) -> Result<Response<Inspection>, Status> {
        Ok(Response::new(inspection(&self.seat, &self.vms)))
    }

    type NotesStream = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

    async fn notes(&self, _: Request<NotesRequest>) -> Result<Response<Self::NotesStream>, Status> {
        let mut lines = self.seat.subscribe();
        let (sender, receiver) = tokio::sync::mpsc::channel(16);
        tokio::spawn(async move {
            loop {
                let note = match lines.recv().await {
                    Ok(line) => Ok(Note {
                        now_ns: line.now,
                        process: line.process.map_or(0, |process| process.0),
                        text: line.text,
                    }),
                    Err(broadcast::error::RecvError::Lagged(lost)) => {
                        Ok(Note { text: format!("{lost} notes were lost: read faster"), ..Note::default() })
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                if sender.send(note).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))))
    }

    async fn stop(&self, _: Request<StopRequest>) -> Result<Response<StopReply>, Status> {
        self.stop.notify_one();
        Ok(Response::new(StopReply {}))
    }
}

/// Serves the control socket of a daemon until it is stopped or interrupted.
pub async fn serve(daemon: &Daemon) -> anyhow::Result<()> {
    let path = daemon.directory().join(SOCKET_NAME);
    let listener = super::socket::listen(&path, rustix::net::SocketType::STREAM)?;
    // Administration is for the user that started the daemon.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).context("cannot set the mode of the control socket")?;
    let listener = std::os::unix::net::UnixListener::from(listener.descriptor.try_clone()?);
    let incoming =
        tokio_stream::wrappers::UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
    let stop = Arc::new(Notify::new());
    let service = Service { seat: daemon.seat.clone(), vms: daemon.vms.clone(), stop: stop.clone() };
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ControlServer<Service>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    tonic::transport::Server::builder()
        .add_service(ControlServer::new(service))
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(incoming, stop.notified())
        .await
        .context("the control service failed")
}

/// The control service of the daemon in a directory.
pub async fn connect(directory: &Path) -> anyhow::Result<ControlClient<tonic::transport::Channel>> {
    // The state of a busy daemon is larger than what gRPC takes by default.
    Ok(ControlClient::new(channel(directory).await?).max_decoding_message_size(usize::MAX))
}

/// Connects to the control socket in a daemon's directory; health and reflection are there as well.
pub async fn channel(directory: &Path) -> anyhow::Result<tonic::transport::Channel> {
    let path: PathBuf = directory.join(SOCKET_NAME);
    let shown = path.display().to_string();
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let path = path.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(path).await?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://gpupv.invalid");
    endpoint.connect_with_connector(connector).await.with_context(|| {
        format!(
            "no daemon answers on {shown}: start one with `gpupv serve`, or name its folder with --directory"
        )
    })
}
