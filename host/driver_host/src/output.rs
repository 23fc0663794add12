//! What the processes of drivers print.
//!
//! ```text
//!   driver-host ──stdout and stderr: one pipe──▶ OutputThread of the daemon ──lines──▶ its log
//!                                          └──▶ without a daemon: a thread for each process ──▶ standard error
//! ```
//! Nothing waits long for a thread that writes standard error: nobody may read that.
//! The driver's end of the pipe blocks, because few programs print into one that does not: `println!` panics, and `cout` is silent
//! for ever after its first error. So whatever becomes of the lines, a pipe is always read at once, and what is in it does not
//! hold a DDI.

use std::borrow::Cow;
use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::time::Timespec;

use crate::limits::{OUTPUT_BYTES_WAITING, OUTPUT_LINE_BYTES_MAX};

/// Reads of one driver's pipe before the next one's turn.
const READS_PER_TURN: usize = 16;

/// Takes lines: of the process with this number, whose driver has this name.
pub type Sink = Box<dyn Fn(u32, &str, &str) + Send>;

/// The end of a process's pipe that is read, which does not block, and the end that the process writes.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, its_output) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&output, OFlags::NONBLOCK)?;
    // A user may have few pipes of this size.
    let _ = fcntl_setpipe_size(&output, OUTPUT_BYTES_WAITING);
    Ok((output, its_output))
}

/// What a driver's process prints.
pub(crate) struct Output {
    pid: u32,
    /// File name of the driver.
    driver: String,
    pipe: OwnedFd,
    /// The line that has not ended.
    line: Vec<u8>,
}

impl Output {
    pub fn new(pid: u32, driver: &Path, pipe: OwnedFd) -> Output {
        let driver = driver.file_name().unwrap_or(driver.as_os_str()).to_string_lossy().into_owned();
        Output { pid, driver, pipe, line: Vec::new() }
    }

    /// Reads what is there, in a bounded turn; false if nothing more will come.
    fn read(&mut self, sink: &dyn Fn(u32, &str, &str)) -> bool {
        let mut bytes = [0; 4096];
        for _ in 0..READS_PER_TURN {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => {
                    self.end_line(sink);
                    return false;
                }
                Ok(count) => self.add(&bytes[..count], sink),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn add(&mut self, bytes: &[u8], sink: &dyn Fn(u32, &str, &str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = OUTPUT_LINE_BYTES_MAX - self.line.len();
            self.line.extend(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                if self.line.last() == Some(&b'\n') {
                    self.line.pop();
                }
                self.end_line(sink);
            }
        }
    }

    fn end_line(&mut self, sink: &dyn Fn(u32, &str, &str)) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            sink(self.pid, &self.driver, &printable(&line));
        }
    }

    /// Writes lines to this file in a thread of its own until the pipe ends. What this returns is disconnected then.
    pub fn print(mut self, to: impl AsFd + Send + 'static) -> io::Result<Receiver<Infallible>> {
        let (sender, end) = channel();
        let run = move || {
            let _sender = sender;
            let lost = Cell::new(0u64);
            let sink = |_: u32, _: &str, line: &str| lost.set(lost.get() + u64::from(!print(&to, line)));
            loop {
                match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None) {
                    Ok(_) if self.read(&sink) => {}
                    Err(Errno::INTR) => {}
                    _ => break,
                }
            }
            if lost.get() > 0 {
                let (lost, driver) = (lost.get(), &self.driver);
                print(&to, &format!("gpupv: {lost} lines of {driver} were lost, because nobody read them"));
            }
        };
        std::thread::Builder::new().name("driver-printer".into()).stack_size(64 << 10).spawn(run)?;
        Ok(end)
    }
}

/// Writes a line; false if the file has no room for it now.
fn print(to: impl AsFd, line: &str) -> bool {
    /// What has room for one line may have none for two.
    static PRINTING: Mutex<()> = Mutex::new(());
    let _printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
    let has_room = poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&Timespec::default())) == Ok(1);
    has_room && rustix::io::write(&to, format!("{line}\n").as_bytes()).is_ok()
}

/// Text of bytes, without characters that move a terminal's cursor.
fn printable(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let is_control = |character: char| character.is_control() && character != '\t';
    match text.contains(is_control) {
        true => text.replace(is_control, "\u{fffd}").into(),
        false => text,
    }
}

/// Pipes on their way to the thread that reads them.
#[derive(Default)]
struct Arrivals {
    outputs: Vec<Output>,
    is_ending: bool,
}

struct Reader {
    arrivals: Mutex<Arrivals>,
    /// An eventfd.
    wake: OwnedFd,
}

impl Reader {
    fn change(&self, change: impl FnOnce(&mut Arrivals)) {
        change(&mut self.arrivals.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn run(&self, sink: &Sink) {
        let mut outputs: Vec<Output> = Vec::new();
        loop {
            let pipes = outputs.iter().map(|output| output.pipe.as_fd());
            let descriptors = std::iter::once(self.wake.as_fd()).chain(pipes);
            let mut polled: Vec<_> =
                descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut is_ready = polled.iter().map(|one| !one.revents().is_empty());
            let is_woken = is_ready.next() == Some(true);
            let mut is_ready = is_ready.collect::<Vec<_>>().into_iter();
            outputs.retain_mut(|output| is_ready.next() != Some(true) || output.read(sink));
            if is_woken {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.append(&mut arrivals.outputs);
                if arrivals.is_ending {
                    drop(arrivals);
                    for output in &mut outputs {
                        output.read(sink);
                    }
                    return;
                }
            }
        }
    }
}

/// The thread of this process's daemon.
static READER: Mutex<Option<Arc<Reader>>> = Mutex::new(None);

fn reader() -> MutexGuard<'static, Option<Arc<Reader>>> {
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a pipe to the daemon's thread. Without a daemon its lines are printed: see [`Output::print`].
pub(crate) fn hand_over(output: Output) -> io::Result<Option<Receiver<Infallible>>> {
    match &*reader() {
        Some(reader) => reader.change(|arrivals| arrivals.outputs.push(output)),
        None => return output.print(io::stderr()).map(Some),
    }
    Ok(None)
}

/// The thread that reads what all drivers of a daemon print. Dropping it stops it.
pub struct OutputThread {
    reader: Arc<Reader>,
    thread: Option<JoinHandle<()>>,
}

impl OutputThread {
    /// Starts the thread, which begins with `enter`.
    ///
    /// # Errors
    ///
    /// There is no descriptor or thread left.
    pub fn start(enter: impl FnOnce() + Send + 'static, sink: Sink) -> io::Result<OutputThread> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let reader = Arc::new(Reader { arrivals: Mutex::default(), wake });
        let of_thread = Arc::clone(&reader);
        let run = move || {
            enter();
            of_thread.run(&sink);
        };
        let thread = Some(std::thread::Builder::new().name("driver-output".into()).spawn(run)?);
        *self::reader() = Some(Arc::clone(&reader));
        Ok(OutputThread { reader, thread })
    }
}

impl Drop for OutputThread {
    fn drop(&mut self) {
        // Another daemon of this process may have replaced it.
        reader().take_if(|reader| Arc::ptr_eq(reader, &self.reader));
        self.reader.change(|arrivals| arrivals.is_ending = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The lines that come of these writes.
    fn lines(writes: &[&[u8]]) -> Vec<String> {
        let (pipe, input) = pipe().unwrap();
        let (mut output, lines) = (Output::new(1, Path::new("/a/driver.so"), pipe), RefCell::new(Vec::new()));
        let sink = |_: u32, driver: &str, line: &str| lines.borrow_mut().push(format!("{driver}: {line}"));
        for bytes in writes {
            rustix::io::write(&input, bytes).unwrap();
            assert!(output.read(&sink));
        }
        drop(input);
        assert!(!output.read(&sink));
        lines.into_inner()
    }

    #[test]
    fn lines_come_whole_and_the_last_one_needs_no_end() {
        assert_eq!(
            lines(&[b"one\ntw", b"o\n\n", b"three"]),
            ["one", "two", "three"].map(|line| format!("driver.so: {line}"))
        );
    }

    #[test]
    fn a_long_line_is_cut_and_control_characters_are_replaced() {
        let long = [&[b'x'; 2 * OUTPUT_LINE_BYTES_MAX][..], b"\n\x1b[2Jend\n"].concat();
        let expected = ["x".repeat(OUTPUT_LINE_BYTES_MAX), "\u{fffd}[2Jend".to_owned()];
        assert_eq!(lines(&[&long]), expected.map(|line| format!("driver.so: {line}")));
    }

    #[test]
    fn lines_that_nobody_reads_are_lost() {
        let (pipe, input) = pipe().unwrap();
        let (_unread, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        fcntl_setfl(&to, OFlags::NONBLOCK).unwrap();
        while rustix::io::write(&to, &[b'x'; 4096]).is_ok() {}
        fcntl_setfl(&to, OFlags::empty()).unwrap();
        rustix::io::write(&input, b"one\ntwo\n").unwrap();
        drop(input);
        let end = Output::new(1, Path::new("/a/driver.so"), pipe).print(to).unwrap();
        end.recv().expect_err("no line blocks the thread");
    }
}
