//! The control service: daemon administration on a Unix socket of the host only, with reflection and
//! health. It looks at the daemon, and has things go wrong; nothing of a guest's path goes through here.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use proto::control::control_client::ControlClient;
use proto::control::control_server::{Control, ControlServer};
use proto::control::{
    InjectRequest, Injected, InspectRequest, Inspection, Note, NotesRequest, StopReply, StopRequest,
};
use tokio::sync::{Notify, broadcast};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::Daemon;
pub use super::inspection::inspection;
use super::seat::Seat;
use super::vm::VmRegistry;

/// File name of the control socket in a daemon's directory.
pub const SOCKET_NAME: &str = "control.sock";

struct Service {
    seat: Arc<Seat>,
    vms: Arc<VmRegistry>,
    stop: Arc<Notify>,
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

    async fn inject(&self, request: Request<InjectRequest>) -> Result<Response<Injected>, Status> {
        let what = self.seat.inject(&request.into_inner().fault).map_err(Status::invalid_argument)?;
        Ok(Response::new(Injected { what }))
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
