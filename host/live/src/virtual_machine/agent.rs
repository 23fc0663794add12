//! The client of the guest's agent: programs and files inside a guest.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use proto::agent::agent_client::AgentClient;
use proto::agent::{ExecInput, GetRequest, PutChunk, exec_input, exec_output};
use proto::limits::AGENT_PORT;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint, Uri};

use super::stream::GuestStream;
use daemon::vm::VmEntry;

const CHUNK_BYTES: usize = 64 * 1024;

/// The agent of one VM.
#[derive(Clone)]
pub struct Agent {
    client: AgentClient<Channel>,
}

/// Output of a program in a guest.
#[derive(Debug)]
pub enum Output {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// A program to run in a guest.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub arguments: Vec<String>,
    pub environment: HashMap<String, String>,
}

/// Input for a running program.
pub type Inputs = mpsc::Receiver<exec_input::Body>;

impl Agent {
    pub async fn connect(entry: Arc<VmEntry>) -> anyhow::Result<Agent> {
        let name = entry.shared.name.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let entry = entry.clone();
            async move {
                let stream = GuestStream::connect(&entry.device, AGENT_PORT).await?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_static("http://agent.invalid");
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.with_context(|| format!("no connection to the agent of {name}"))?;
        Ok(Agent { client: AgentClient::new(channel) })
    }

    /// Writes a file in the guest.
    pub async fn put(&mut self, host: &Path, guest: &str, mode: u32) -> anyhow::Result<()> {
        let bytes = std::fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
        let first = PutChunk { path: guest.into(), mode, data: Vec::new() };
        let chunk = |data: &[u8]| PutChunk { data: data.to_vec(), ..PutChunk::default() };
        let rest: Vec<PutChunk> = bytes.chunks(CHUNK_BYTES).map(chunk).collect();
        let chunks = tokio_stream::iter(std::iter::once(first).chain(rest));
        let put = self.client.put(chunks).await;
        put.map_err(words).with_context(|| format!("cannot write {guest} in the guest"))?;
        Ok(())
    }

    /// Reads a file of the guest.
    pub async fn get(&mut self, guest: &str) -> anyhow::Result<Vec<u8>> {
        let request = GetRequest { path: guest.into() };
        let mut chunks = self.client.get(request).await.map_err(words)?.into_inner();
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.message().await.map_err(words)? {
            bytes.extend_from_slice(&chunk.data);
        }
        Ok(bytes)
    }

    /// Runs a program; its output goes to `sink` as it arrives. Returns the exit code: 128 + signal if a signal killed
    /// it.
    pub async fn exec(
        &mut self,
        program: &Program,
        mut inputs: Inputs,
        mut sink: impl FnMut(Output),
    ) -> anyhow::Result<u8> {
        let start = exec_input::Start {
            arguments: program.arguments.clone(),
            environment: program.environment.clone(),
            directory: String::new(),
        };
        let (sender, receiver) = mpsc::channel(4);
        let _ = sender.send(ExecInput { body: Some(exec_input::Body::Start(start)) }).await;
        let feed = tokio::spawn(async move {
            while let Some(body) = inputs.recv().await {
                if sender.send(ExecInput { body: Some(body) }).await.is_err() {
                    return;
                }
            }
            let end = ExecInput { body: Some(exec_input::Body::StdinEnd(true)) };
            let _ = sender.send(end).await;
            // The stream of inputs stays open, because its end would end the program.
            std::future::pending::<()>().await;
        });
        let inputs = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let result = async {
            let name = &program.arguments[0];
            let started = self.client.exec(inputs).await.map_err(words);
            let mut outputs = started.with_context(|| format!("cannot run {name}"))?.into_inner();
            let lost = || format!("the connection to the guest was lost while {name} ran");
            while let Some(output) = outputs.message().await.map_err(words).with_context(lost)? {
                match output.body {
                    Some(exec_output::Body::Stdout(bytes)) => sink(Output::Stdout(bytes)),
                    Some(exec_output::Body::Stderr(bytes)) => sink(Output::Stderr(bytes)),
                    Some(exec_output::Body::Exit(exit)) => {
                        return Ok(if exit.signal != 0 { 128 + exit.signal as u8 } else { exit.code as u8 });
                    }
                    Some(exec_output::Body::Started(_)) | None => {}
                }
            }
            bail!(lost())
        }
        .await;
        feed.abort();
        result
    }

    pub async fn power_off(&mut self) -> anyhow::Result<()> {
        self.client.power_off(proto::agent::PowerOffRequest {}).await.map_err(words)?;
        Ok(())
    }
}

/// Returns the error text of a gRPC status: the agent's own message, if it has one.
fn words(status: tonic::Status) -> anyhow::Error {
    match status.message() {
        "" => anyhow::anyhow!("{:?}", status.code()),
        message => anyhow::anyhow!("{message}"),
    }
}
