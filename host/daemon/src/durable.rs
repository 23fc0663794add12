//! How much of a trace a power failure may lose, and the thread that writes it to the disk.

use std::fs::File;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::kernel_host::KernelHost;
use super::thread_kind::ThreadKind;

/// `--durable`: how much of a trace is on the disk when the power fails. A killed daemon loses nothing in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// The part that the operating system has written by itself.
    #[default]
    None,
    /// Each full block before the next begins: all but the last 64 KiB.
    Block,
    /// Everything but the last interval.
    Interval(Duration),
}

impl Durable {
    pub(super) fn of_blocks(self) -> trace::Durable {
        match self {
            Durable::None => trace::Durable::No,
            Durable::Block => trace::Durable::Block,
            Durable::Interval(_) => trace::Durable::Flushed,
        }
    }
}

impl FromStr for Durable {
    type Err = String;

    fn from_str(words: &str) -> Result<Durable, String> {
        let interval =
            |millis: &str| millis.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis);
        match (words, words.strip_prefix("interval:").and_then(interval)) {
            ("none", _) => Ok(Durable::None),
            ("block", _) => Ok(Durable::Block),
            (_, Some(interval)) => Ok(Durable::Interval(interval)),
            _ => Err("give `none`, `block` or `interval:MS`, MS milliseconds above 0".into()),
        }
    }
}

/// A message to the disk writer.
#[derive(Debug)]
pub(super) enum WriterMessage {
    /// Something is recorded, for the first time since the last write.
    Recorded,
    /// A file in which nothing more is recorded, and a reference to what counts such files until they are on the disk.
    Ended {
        file: File,
        unsynced: Arc<()>,
    },
    Stop,
}

/// The thread that writes the recording to the disk after an interval. It sleeps until something is recorded. Dropping
/// it stops it.
pub(super) struct DiskWriter {
    sender: Sender<WriterMessage>,
    thread: Option<JoinHandle<()>>,
}

impl DiskWriter {
    pub fn start(kernel_host: Arc<KernelHost>, interval: Duration) -> std::io::Result<DiskWriter> {
        let (sender, messages) = channel();
        kernel_host.traces().notify_writer(sender.clone());
        let run = move || {
            sandbox::enter(ThreadKind::DiskWriter);
            write_often(&kernel_host, interval, &messages);
        };
        let thread = std::thread::Builder::new().name("disk-writer".into()).spawn(run)?;
        Ok(DiskWriter { sender, thread: Some(thread) })
    }
}

fn write_often(kernel_host: &KernelHost, interval: Duration, messages: &Receiver<WriterMessage>) {
    // When the recording is written, if anything is recorded.
    let mut due = None;
    loop {
        let left = due.map(|due: Instant| due.saturating_duration_since(Instant::now()));
        let message = match left {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            Some(left) => messages.recv_timeout(left),
        };
        match message {
            Ok(WriterMessage::Recorded) => due = Some(Instant::now() + interval),
            Ok(WriterMessage::Ended { file, unsynced }) => {
                sync(&file);
                drop(unsynced);
            }
            Ok(WriterMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                due = None;
                // The kernel is unlocked before this thread waits for the disk.
                kernel_host.traces().flush().iter().for_each(sync);
            }
        }
    }
}

fn sync(file: &File) {
    if let Err(error) = file.sync_data() {
        tracing::error!("the trace could not be written to the disk: {error}");
    }
}

impl Drop for DiskWriter {
    fn drop(&mut self) {
        let _ = self.sender.send(WriterMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
