//! A connection into a guest as an asynchronous byte stream, for gRPC.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use vsock_device::{CloseReason, Connection, Credit, Device, Endpoint, SendError};

/// Bytes sent to the connection at once: they always fit its queue once that is empty.
const PIECE_BYTES: usize = 16 * 1024;

/// The device's end: forwards the connection's events.
struct Bridge {
    bytes: mpsc::UnboundedSender<Vec<u8>>,
    connected: Option<oneshot::Sender<Result<(), CloseReason>>>,
    writer: Arc<Mutex<Option<Waker>>>,
}

impl Bridge {
    fn wake_writer(&self) {
        let waker = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Endpoint for Bridge {
    fn connected(&mut self) {
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        // The queue is bounded by the guest's credit.
        let _ = self.bytes.send(bytes.to_vec());
    }

    fn peer_finished(&mut self) {
        let _ = self.bytes.send(Vec::new());
    }

    fn writable(&mut self) {
        self.wake_writer();
    }

    fn closed(&mut self, reason: CloseReason) {
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Err(reason));
        }
        let _ = self.bytes.send(Vec::new());
        self.wake_writer();
    }

    fn credit(&self) -> Credit {
        Credit::Manual
    }
}

/// A byte stream to a port of the guest.
pub struct GuestStream {
    connection: Connection,
    bytes: mpsc::UnboundedReceiver<Vec<u8>>,
    current: Vec<u8>,
    /// Number of bytes of `current` that were read.
    at: usize,
    ended: bool,
    writer: Arc<Mutex<Option<Waker>>>,
}

impl GuestStream {
    /// Connects to a port of the guest.
    pub async fn connect(device: &Device, port: u32) -> io::Result<GuestStream> {
        let (sender, bytes) = mpsc::unbounded_channel();
        let (connected, answer) = oneshot::channel();
        let writer = Arc::new(Mutex::new(None));
        let bridge = Bridge { bytes: sender, connected: Some(connected), writer: writer.clone() };
        let connection = device.connect(port, Box::new(bridge)).map_err(io::Error::other)?;
        match answer.await {
            Ok(Ok(())) => {
                Ok(GuestStream { connection, bytes, current: Vec::new(), at: 0, ended: false, writer })
            }
            Ok(Err(reason)) => Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("guest port {port}: {reason:?}"),
            )),
            Err(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.at == self.current.len() {
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match self.bytes.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(bytes)) if !bytes.is_empty() => {
                    self.current = bytes;
                    self.at = 0;
                }
                // An empty piece marks the end of the stream.
                Poll::Ready(_) => self.ended = true,
            }
        }
        let count = buffer.remaining().min(self.current.len() - self.at);
        buffer.put_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        self.connection.consumed(count as u32);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        // The waker is stored before the attempt, so that room in between is not missed.
        *self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(context.waker().clone());
        match self.connection.send(piece) {
            Ok(()) => Poll::Ready(Ok(piece.len())),
            Err(SendError::Full) => Poll::Pending,
            Err(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for GuestStream {
    fn drop(&mut self) {
        self.connection.reset();
    }
}
