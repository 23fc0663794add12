//! The control service: daemon administration on a Unix socket of the host only, with reflection and health. It
//! inspects the daemon and injects faults; no path of a guest leads through it.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use dxgkrnl::why::Question;
use listening::{Listener, PeerCredentials};
use proto::control::control_client::ControlClient;
use proto::control::control_server::{Control, ControlServer};
use proto::control::{
    DumpTraceRequest, Dumped, InjectRequest, Injected, InspectRequest, Inspection, Note, NotesRequest,
    SecurityReply, SecurityRequest, SecurityThread, StopReply, StopRequest, WhyReply, WhyRequest,
};
use rustix::net::SocketType;
use tokio::sync::{broadcast, watch};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::Daemon;
pub use super::inspection::inspection;
use super::inspection::{around, of_kernel};
use super::kernel_host::{KernelHost, ReadInjection};
use super::vm::VmRegistry;
use crate::limits::CONNECTIONS_END_WITHIN;
use crate::why_reply::{no_such_wait, to_reply};

/// File name of the control socket in a daemon's directory.
pub const SOCKET_NAME: &str = "control.sock";

struct Service {
    kernel_host: Arc<KernelHost>,
    vms: Arc<VmRegistry>,
    read_injection: ReadInjection,
    /// Whether the daemon is asked to stop.
    stop: watch::Sender<bool>,
}

/// Waits until the daemon is asked to stop.
async fn stop_is_asked(mut stop: watch::Receiver<bool>) {
    // An error: the service has ended, and so has what waits here.
    let _ = stop.wait_for(|is_asked| *is_asked).await;
}

#[tonic::async_trait]
impl Control for Service {
    async fn inspect(&self, request: Request<InspectRequest>) -> Result<Response<Inspection>, Status> {
        let (kernel_host, vms) = (self.kernel_host.clone(), self.vms.clone());
        let causes_max = request.into_inner().causes;
        read_state(move || {
            let state = kernel_host.views().read(|view| {
                let state = of_kernel(view.kernel);
                let Some(most) = causes_max else { return state };
                let question = Question { now: view.now, most: most as usize, ..Question::default() };
                let WhyReply { waiting, causes, .. } = to_reply(&view.kernel.why(&question), false);
                Inspection { waiting: Some(waiting), causes, ..state }
            })?;
            Ok(around(&kernel_host, &vms, state))
        })
        .await
    }

    type NotesStream = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

    async fn notes(&self, _: Request<NotesRequest>) -> Result<Response<Self::NotesStream>, Status> {
        let mut lines = self.kernel_host.log.subscribe();
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

    async fn inject(&self, request: Request<InjectRequest>) -> Result<Response<Injected>, Status> {
        let injection =
            (self.read_injection)(&request.into_inner().fault, &self.kernel_host.views().config());
        let injected = injection.and_then(|injection| self.kernel_host.inject(injection));
        let what = injected.map_err(Status::invalid_argument)?;
        Ok(Response::new(Injected { what }))
    }

    async fn why(&self, request: Request<WhyRequest>) -> Result<Response<WhyReply>, Status> {
        let (kernel_host, request) = (self.kernel_host.clone(), request.into_inner());
        let question = question(&kernel_host, &request).map_err(Status::invalid_argument)?;
        let reply = read_state(move || {
            kernel_host.views().read(|view| {
                let question = Question { now: view.now, ..question.clone() };
                let why = match request.without_trials {
                    true => view.kernel.why(&question),
                    false => view.why_and_what_if(&question),
                };
                match no_such_wait(&question, &why, |question| view.kernel.why(question)) {
                    Some(refused) => WhyReply { refused, ..WhyReply::default() },
                    None => to_reply(&why, request.picture),
                }
            })
        })
        .await?;
        match &reply.get_ref().refused {
            refused if refused.is_empty() => Ok(reply),
            refused => Err(Status::invalid_argument(refused)),
        }
    }

    async fn dump_trace(&self, request: Request<DumpTraceRequest>) -> Result<Response<Dumped>, Status> {
        let path = PathBuf::from(request.into_inner().path);
        let dumped = self.kernel_host.traces().dump(&path);
        let steps = dumped.map_err(|why| Status::failed_precondition(why + &outside(&path)))?;
        Ok(Response::new(Dumped { steps }))
    }

    async fn security(&self, _: Request<SecurityRequest>) -> Result<Response<SecurityReply>, Status> {
        let missing = vec!["everything: this process has no sandbox".to_owned()];
        let status = sandbox::status().unwrap_or(sandbox::Status { missing, ..sandbox::Status::default() });
        let thread = |(thread, list): (i32, &str)| SecurityThread { thread, list: list.into() };
        Ok(Response::new(SecurityReply {
            pid: std::process::id(),
            landlock: status.landlock.unwrap_or_default(),
            folders: status.folders.iter().map(|folder| folder.display().to_string()).collect(),
            missing: status.missing,
            threads: status.threads.into_iter().map(thread).collect(),
            signals_own_only: status.signals_own_only,
        }))
    }

    async fn stop(&self, _: Request<StopRequest>) -> Result<Response<StopReply>, Status> {
        self.stop.send_replace(true);
        Ok(Response::new(StopReply {}))
    }
}

/// What an error adds if the sandbox has no such folder.
fn outside(path: &Path) -> String {
    let status = sandbox::status().unwrap_or_default();
    if status.landlock.is_none() || status.folders.iter().any(|folder| path.starts_with(folder)) {
        return String::new();
    }
    let folders: Vec<_> = status.folders.iter().map(|folder| folder.display().to_string()).collect();
    format!("; this daemon writes into {} only (docs/SECURITY.md)", folders.join(" and "))
}

/// Reads the state on a blocking thread, because a large state takes long.
async fn read_state<R: Send + 'static>(
    read: impl FnOnce() -> Result<R, String> + Send + 'static,
) -> Result<Response<R>, Status> {
    let answer =
        tokio::task::spawn_blocking(read).await.map_err(|error| Status::internal(error.to_string()))?;
    answer.map(Response::new).map_err(Status::internal)
}

/// The question of `gpupv why`, except for the time.
fn question(kernel_host: &KernelHost, request: &WhyRequest) -> Result<Question, String> {
    let question =
        Question { event: request.event, older_than: request.older_than_ns, ..Question::default() };
    let most = request.most.map_or(question.most, |most| most as usize);
    let waiters = request.waiters.map_or(question.waiters, |waiters| waiters as usize);
    let named = Some(&request.process).filter(|process| !process.is_empty());
    let process = named.map(|process| kernel_host.views().process(process)).transpose()?;
    Ok(Question { most, waiters, process: process.map(|process| process.0), ..question })
}

/// Opens the control socket of a daemon.
pub fn listen(daemon: &Daemon) -> anyhow::Result<Listener> {
    let path = daemon.directory().join(SOCKET_NAME);
    // Administration is for the user that started the daemon.
    Ok(listening::listen(&path, SocketType::STREAM, listening::OWNER_ONLY)?)
}

/// Whether a connection is of an administrator: the mode of the socket's file may have been changed.
fn is_of(administrators: &[u32], stream: &tokio::net::UnixStream) -> bool {
    PeerCredentials::of(stream).is_ok_and(|peer| administrators.contains(&peer.uid))
}

/// Serves the control socket of a daemon until it is stopped or interrupted.
pub async fn serve(
    daemon: &Daemon,
    listener: &Listener,
    read_injection: ReadInjection,
) -> anyhow::Result<()> {
    let listener = std::os::unix::net::UnixListener::from(listener.descriptor.try_clone()?);
    let incoming =
        tokio_stream::wrappers::UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
    let administrators = listening::administrators();
    let incoming =
        incoming.filter(move |stream| stream.as_ref().map_or(true, |stream| is_of(&administrators, stream)));
    let stop = watch::Sender::new(false);
    let (kernel_host, vms) = (daemon.kernel_host.clone(), daemon.vms.clone());
    let service = Service { kernel_host, vms, read_injection, stop: stop.clone() };
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ControlServer<Service>>().await;
    // The set of descriptors also has the services of guests.
    let reflection = |own: &str| {
        [own, "gpupv.control.v1.Control", "grpc.health.v1.Health"].into_iter().fold(
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET),
            tonic_reflection::server::Builder::with_service_name,
        )
    };
    let reflection_v1 = reflection("grpc.reflection.v1.ServerReflection").build_v1()?;
    // The version that older tools know.
    let reflection_v1alpha = reflection("grpc.reflection.v1alpha.ServerReflection").build_v1alpha()?;
    let served = tonic::transport::Server::builder()
        .add_service(ControlServer::new(service))
        .add_service(health_service)
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha)
        .serve_with_incoming_shutdown(incoming, stop_is_asked(stop.subscribe()));
    // A reader of notes, or a client that sends nothing, would keep the daemon for ever.
    let grace = async {
        stop_is_asked(stop.subscribe()).await;
        tokio::time::sleep(CONNECTIONS_END_WITHIN).await;
    };
    tokio::select! {
        served = served => served.context("the control service failed"),
        () = grace => Ok(()),
    }
}

/// The number of the process that listens on the control socket in a daemon's directory.
pub fn server(directory: &Path) -> anyhow::Result<u32> {
    let stream = std::os::unix::net::UnixStream::connect(directory.join(SOCKET_NAME))?;
    Ok(PeerCredentials::of(stream)?.pid()?.as_raw_nonzero().get().cast_unsigned())
}

/// The control service of the daemon in a directory.
pub async fn connect(directory: &Path) -> anyhow::Result<ControlClient<tonic::transport::Channel>> {
    // The state of a busy daemon is larger than gRPC's default limit.
    Ok(ControlClient::new(channel(directory).await?).max_decoding_message_size(usize::MAX))
}

/// Checks that the daemon will serve this user: it closes the connection of another one without a word.
fn check_user(stream: &tokio::net::UnixStream) -> std::io::Result<()> {
    let (own, servers) = (rustix::process::geteuid(), PeerCredentials::of(stream)?.uid);
    let is_served = own.is_root() || own.as_raw() == servers;
    if is_served { Ok(()) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
}

/// Connects to the control socket in a daemon's directory; it also serves health and reflection.
pub async fn channel(directory: &Path) -> anyhow::Result<tonic::transport::Channel> {
    let path: PathBuf = directory.join(SOCKET_NAME);
    let socket = path.display().to_string();
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let path = path.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(path).await?;
            check_user(&stream)?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://gpupv.invalid");
    endpoint.connect_with_connector(connector).await.map_err(|error| {
        let error = anyhow::Error::from(error);
        let is_denied = |source: &std::io::Error| source.kind() == std::io::ErrorKind::PermissionDenied;
        let is_others = error.chain().filter_map(|source| source.downcast_ref()).any(is_denied);
        let (who, mend) = match is_others {
            true => ("another user has", "be that user or root"),
            false => ("no daemon answers on", "start one with `gpupv serve`"),
        };
        error.context(format!("{who} {socket}: {mend}, or name its folder with --directory"))
    })
}
