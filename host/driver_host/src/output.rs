//! What the processes of drivers print.
//!
//! ```text
//!   driver-host ──stdout and stderr: one pipe──▶ OutputThread of the daemon ──lines──▶ its log
//!                                          └──▶ without a daemon: a thread for each process ──▶ standard error
//! ```
//! Nothing waits long for a thread that writes standard error: nobody may read that.
//! The driver's end of the pipe blocks, because few programs print into one that does not: `println!` panics, and `cout` is silent
//! for ever after its first error. So whatever becomes of the lines, a pipe is always read at once, and what is in it does not
//! hold a DDI. A daemon logs some lines of each second and counts the others: it looks for their ends only. When the process
//! ends, the last of them are logged as well, because they say why.

use std::borrow::Cow;
use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::time::Timespec;

use crate::limits::{LAST_LINES, OUTPUT_BYTES_WAITING, OUTPUT_LINE_BYTES_MAX, OUTPUT_LINES_PER_SECOND_MAX};

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Reads of one driver's pipe before the next one's turn.
const READS_PER_TURN: usize = 16;
/// Bytes of the last lines that are kept.
const LAST_BYTES: usize = LAST_LINES * OUTPUT_LINE_BYTES_MAX;
/// How long a pipe is left alone from which no line is said, so that many small writes cost few reads.
const AT_LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
const SECOND: Duration = Duration::from_secs(1);

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
    second_ends: Instant,
    /// Lines of this second that may be said, those that were with all bytes of them, and others.
    lines_max: u64,
    said: u64,
    bytes: u64,
    left_out: u64,
    /// The last bytes that were left out since a line was said.
    last_bytes: Vec<u8>,
}

impl Output {
    pub fn new(pid: u32, driver: &Path, pipe: OwnedFd) -> Output {
        let driver = driver.file_name().unwrap_or(driver.as_os_str()).to_string_lossy().into_owned();
        let (line, last_bytes, second_ends) = (Vec::new(), Vec::new(), Instant::now());
        let lines_max = OUTPUT_LINES_PER_SECOND_MAX;
        Output { pid, driver, pipe, line, second_ends, lines_max, said: 0, bytes: 0, left_out: 0, last_bytes }
    }

    fn is_at_limit(&self) -> bool {
        let bytes_max = self.lines_max.saturating_mul(OUTPUT_LINE_BYTES_MAX as u64);
        self.said >= self.lines_max || self.bytes >= bytes_max
    }

    /// Reads what is there, in a bounded turn; false if nothing more will come.
    fn read(&mut self, sink: &dyn Fn(u32, &str, &str)) -> bool {
        let mut bytes = [0; READ_BYTES];
        for _ in 0..READS_PER_TURN {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => {
                    self.end(sink);
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

    fn add(&mut self, mut bytes: &[u8], sink: &dyn Fn(u32, &str, &str)) {
        if !self.is_at_limit() && !self.last_bytes.is_empty() {
            // The rest of their last line comes now.
            let last_bytes = std::mem::take(&mut self.last_bytes);
            let mut pieces = last_bytes.rsplit(|byte| *byte == b'\n');
            let last = pieces.next().unwrap_or_default();
            if pieces.next().is_some() {
                self.line.clear();
            }
            self.add_to_line(last);
        }
        while !self.is_at_limit() && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.add_to_line(piece);
            self.bytes += piece.len() as u64 + 1;
            bytes = rest.get(1..).unwrap_or_default();
            if end.is_some() {
                self.end_line(sink);
            }
        }
        self.left_out += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.last_bytes.extend(bytes);
        if self.last_bytes.len() > 2 * LAST_BYTES {
            self.last_bytes.drain(..self.last_bytes.len() - LAST_BYTES);
        }
    }

    fn add_to_line(&mut self, piece: &[u8]) {
        let room = OUTPUT_LINE_BYTES_MAX - self.line.len();
        self.line.extend(&piece[..piece.len().min(room)]);
    }

    fn end_line(&mut self, sink: &dyn Fn(u32, &str, &str)) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.said += 1;
            sink(self.pid, &self.driver, &printable(&line));
        }
    }

    fn end_second(&mut self, now: Instant, sink: &dyn Fn(u32, &str, &str)) {
        if now >= self.second_ends {
            self.say_left_out(sink);
            (self.said, self.bytes, self.second_ends) = (0, 0, now + SECOND);
        }
    }

    fn say_left_out(&mut self, sink: &dyn Fn(u32, &str, &str)) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let line = format!("({left_out} more lines were left out in one second)");
            sink(self.pid, &self.driver, &line);
        }
    }

    /// Nothing more will come.
    fn end(&mut self, sink: &dyn Fn(u32, &str, &str)) {
        self.end_line(sink);
        self.say_left_out(sink);
        let lines = self.last_bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<_> = lines.collect();
        if !lines.is_empty() {
            sink(self.pid, &self.driver, "(its last lines were:)");
        }
        for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
            let line = &line[..line.len().min(OUTPUT_LINE_BYTES_MAX)];
            sink(self.pid, &self.driver, &printable(line));
        }
    }

    /// Writes all lines to this file in a thread of its own until the pipe ends. What this returns is disconnected then.
    pub fn print(mut self, to: impl AsFd + Send + 'static) -> io::Result<Receiver<Infallible>> {
        self.lines_max = u64::MAX;
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
    /// A file that has room for one line may have none for two.
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
            let flags =
                |output: &Output| if output.is_at_limit() { PollFlags::empty() } else { PollFlags::IN };
            let pipes = outputs.iter().map(|output| PollFd::new(&output.pipe, flags(output)));
            let mut polled: Vec<_> =
                std::iter::once(PollFd::new(&self.wake, PollFlags::IN)).chain(pipes).collect();
            let timeout = outputs.iter().any(Output::is_at_limit).then_some(AT_LIMIT);
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut is_ready = polled.iter().map(|one| !one.revents().is_empty());
            let is_woken = is_ready.next() == Some(true);
            let mut is_ready = is_ready.collect::<Vec<_>>().into_iter();
            let now = Instant::now();
            outputs.retain_mut(|output| {
                let is_read = is_ready.next() == Some(true) || output.is_at_limit();
                output.end_second(now, sink);
                !is_read || output.read(sink)
            });
            if is_woken {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.append(&mut arrivals.outputs);
                if arrivals.is_ending {
                    break;
                }
            }
        }
        for output in &mut outputs {
            // All that a pipe holds.
            let mut turns = 0..OUTPUT_BYTES_WAITING.div_ceil(READ_BYTES * READS_PER_TURN);
            if turns.all(|_| output.read(sink)) {
                output.end(sink);
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
    use std::ops::Range;

    use super::*;

    /// The lines that come of these writes, each in a second of its own.
    fn lines(writes: &[&[u8]]) -> Vec<String> {
        let (pipe, input) = pipe().unwrap();
        let (mut output, lines) = (Output::new(1, Path::new("/a/driver.so"), pipe), RefCell::new(Vec::new()));
        let sink = |_: u32, driver: &str, line: &str| lines.borrow_mut().push(format!("{driver}: {line}"));
        for bytes in writes {
            rustix::io::write(&input, bytes).unwrap();
            output.end_second(output.second_ends, &sink);
            assert!(output.read(&sink));
        }
        drop(input);
        // A process that another test starts has it until it runs its program.
        while output.read(&sink) {
            std::thread::yield_now();
        }
        lines.into_inner()
    }

    /// Lines with these numbers.
    fn numbered(numbers: Range<usize>) -> impl Iterator<Item = String> {
        numbers.map(|number| number.to_string())
    }

    #[test]
    fn lines_over_the_limit_of_a_second_are_counted_and_the_last_ones_come_at_the_end() {
        let many: String = numbered(0..10_000).map(|line| line + "\n").collect();
        let limit = OUTPUT_LINES_PER_SECOND_MAX as usize;
        let left_out = |count: usize| format!("({count} more lines were left out in one second)");
        let expected = numbered(0..limit)
            .chain([left_out(10_000 - limit), "the next second".into()])
            .chain(numbered(0..limit - 1).chain([left_out(10_001 - limit), "(its last lines were:)".into()]))
            .chain(numbered(10_000 - LAST_LINES..10_000))
            .map(|line| format!("driver.so: {line}"));
        let next = format!("the next second\n{many}");
        assert_eq!(lines(&[many.as_bytes(), next.as_bytes()]), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_line_that_began_while_lines_were_left_out_is_whole_in_the_next_second() {
        let many = "x\n".repeat(OUTPUT_LINES_PER_SECOND_MAX as usize + 1) + "be";
        let said = lines(&[many.as_bytes(), b"gin\n"]);
        assert_eq!(
            said[said.len() - 2..].join(" "),
            "driver.so: (1 more lines were left out in one second) driver.so: begin"
        );
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

    #[test]
    fn a_line_without_an_end_and_empty_lines_reach_the_limit() {
        for bytes in [[b'x'; 40_000], [b'\n'; 40_000]] {
            let (pipe, input) = pipe().unwrap();
            let mut output = Output::new(1, Path::new("/a/driver.so"), pipe);
            for _ in 0..3 {
                assert!(!output.is_at_limit());
                rustix::io::write(&input, &bytes).unwrap();
                output.read(&|_, _, _| {});
            }
            assert!(output.is_at_limit());
        }
    }
}
