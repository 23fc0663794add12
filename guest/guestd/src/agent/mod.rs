//! The agent: programs, files and power-off, as a gRPC service for the host.
//!
//! It listens on vsock port [`AGENT_PORT`] and serves only the host (CID 2), because a guest process that reached it
//! over the loopback would get root. Health and reflection are served too, so that `grpcurl` and similar tools work.

mod exec;
mod files;
mod output;
mod refusal;

use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use proto::agent::agent_server::{Agent, AgentServer};
use proto::agent::{
    ExecInput, ExecOutput, GetChunk, GetRequest, PowerOffReply, PowerOffRequest, PutChunk, PutReply,
};
use proto::limits::AGENT_PORT;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_stream::{Stream, StreamExt};
use tokio_vsock::{VsockAddr, VsockListener};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use crate::console::say;
use crate::limits::FAREWELL_MAX;
use crate::serve::POWER_OFF_STATUS;
use crate::vsock::{ANY_CID, HOST_CID};

/// The service. `power_off` is notified when the guest is to power off; it is absent if the guest has an init of its
/// own.
#[derive(Clone, Default)]
pub struct GuestAgent {
    power_off: Option<Arc<Notify>>,
}

impl GuestAgent {
    pub fn new(power_off: Option<Arc<Notify>>) -> Self {
        Self { power_off }
    }
}

/// The outcome of starting the agent.
pub struct Started {
    listening: bool,
}

impl Started {
    pub fn is_listening(&self) -> bool {
        self.listening
    }
}

/// Starts the agent's thread. A guest without vsock gets no agent, and the console log says so.
pub fn start(supervised: bool) -> std::io::Result<Started> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        VsockListener::bind(VsockAddr::new(ANY_CID, AGENT_PORT))
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            say(&format!("the agent cannot listen on vsock port {AGENT_PORT}: {error}"));
            return Ok(Started { listening: false });
        }
    };
    thread::Builder::new().name("agent".to_owned()).spawn(move || {
        let power_off = supervised.then(|| Arc::new(Notify::new()));
        let result = runtime.block_on(serve_vsock(listener, power_off));
        say(&format!("the agent has ended: {result:?}"));
        // PID 1 restarts `serve`.
        std::process::exit(1);
    })?;
    Ok(Started { listening: true })
}

async fn serve_vsock(
    listener: VsockListener,
    power_off: Option<Arc<Notify>>,
) -> Result<(), tonic::transport::Error> {
    let incoming = listener.incoming().filter(|stream| match stream {
        Ok(stream) => stream.peer_addr().is_ok_and(|peer| peer.cid() == HOST_CID),
        Err(_) => true,
    });
    let Some(notify) = power_off else {
        return serve(incoming, GuestAgent::new(None), std::future::pending()).await;
    };
    let power_off_requested = Arc::new(Notify::new());
    let farewell = {
        let (notify, power_off_requested) = (notify.clone(), power_off_requested.clone());
        async move {
            notify.notified().await;
            power_off_requested.notify_one();
        }
    };
    // The answer is sent before the guest powers off; other streams may never end and are not waited for.
    tokio::select! {
        result = serve(incoming, GuestAgent::new(Some(notify)), farewell) => result?,
        () = async { power_off_requested.notified().await; tokio::time::sleep(FAREWELL_MAX).await } => {}
    }
    rustix::fs::sync();
    std::process::exit(i32::from(POWER_OFF_STATUS));
}

/// Serves the agent on connections from `incoming` until `ending` completes, then finishes the open calls.
pub async fn serve<S, E>(
    incoming: impl Stream<Item = Result<S, E>>,
    agent: GuestAgent,
    ending: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were made by our own build");
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<AgentServer<GuestAgent>>().await;
    Server::builder()
        .add_service(health)
        .add_service(reflection)
        .add_service(AgentServer::new(agent))
        .serve_with_incoming_shutdown(incoming, ending)
        .await
}

/// A stream of answers.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agent for GuestAgent {
    type ExecStream = Answers<ExecOutput>;
    type GetStream = Answers<GetChunk>;

    async fn exec(
        &self,
        request: Request<Streaming<ExecInput>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        Ok(Response::new(Box::pin(exec::exec(request.into_inner()).await?)))
    }

    async fn put(&self, request: Request<Streaming<PutChunk>>) -> Result<Response<PutReply>, Status> {
        files::put(request.into_inner()).await.map(Response::new)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        Ok(Response::new(Box::pin(files::get(&request.into_inner().path)?)))
    }

    async fn power_off(&self, _request: Request<PowerOffRequest>) -> Result<Response<PowerOffReply>, Status> {
        let Some(power_off) = &self.power_off else {
            let words = "this guest has an init of its own: run its `poweroff` instead";
            return Err(Status::failed_precondition(words));
        };
        say("powering off, as the host asked");
        rustix::fs::sync();
        power_off.notify_one();
        Ok(Response::new(PowerOffReply {}))
    }
}

#[cfg(test)]
mod tests;
