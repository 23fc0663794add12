//! The raw peers of local figures: blocking threads on Unix sockets, without any gpupv code in between. Also the host's
//! side of a wake.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use proto::bench::Order;

use super::ports::Orders;
use crate::daemon::kernel_host::KernelHost;

const BUFFER_BYTES: usize = 64 * 1024;

/// Sockets `echo`, `sink`, `relay` and `driver` in a folder. Their threads exit when their connections close.
pub struct RawPeers {
    sockets: Vec<PathBuf>,
    over: Arc<AtomicBool>,
}

/// A listening socket that accepts until the peers are dropped.
struct Door {
    listener: UnixListener,
    over: Arc<AtomicBool>,
}

impl RawPeers {
    pub fn start(folder: &Path, kernel_host: Arc<KernelHost>) -> anyhow::Result<RawPeers> {
        let mut peers = RawPeers { sockets: Vec::new(), over: Arc::default() };
        peers.serve(folder.join("echo"), |door| each(&door, echo))?;
        peers.serve(folder.join("sink"), |door| each(&door, sink))?;
        peers.serve(folder.join("relay"), |door| relay_pairs(&door))?;
        peers.serve(folder.join("driver"), move |door| obey_pairs(&door, &kernel_host))?;
        Ok(peers)
    }

    fn serve(&mut self, path: PathBuf, serve: impl FnOnce(Door) + Send + 'static) -> anyhow::Result<()> {
        let listener =
            UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        self.sockets.push(path);
        let door = Door { listener, over: self.over.clone() };
        std::thread::Builder::new().name("raw-peer".into()).spawn(move || serve(door))?;
        Ok(())
    }
}

impl Drop for RawPeers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for socket in &self.sockets {
            // Wakes the accepting thread, which then sees `over`.
            let _ = UnixStream::connect(socket);
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Door {
    fn accept(&self) -> Option<UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        (!self.over.load(Ordering::Acquire)).then_some(stream)
    }
}

fn each(door: &Door, serve: fn(UnixStream) -> io::Result<()>) {
    while let Some(stream) = door.accept() {
        // A closed connection is no error here.
        std::thread::spawn(move || drop(serve(stream)));
    }
}

/// Sends back what it receives.
fn echo(mut stream: UnixStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

/// Reads as many bytes as the first 8 bytes say, answers with one byte, and repeats.
fn sink(mut stream: UnixStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let mut left = u64::from_le_bytes(length);
        while left > 0 {
            let wanted = left.min(BUFFER_BYTES as u64) as usize;
            match stream.read(&mut buffer[..wanted])? {
                0 => return Ok(()),
                count => left -= count as u64,
            }
        }
        stream.write_all(&[1])?;
    }
}

/// Forwards the bytes of the first of two connections to the second.
fn relay_pairs(door: &Door) {
    while let Some(mut from) = door.accept()
        && let Some(mut to) = door.accept()
    {
        std::thread::spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; BUFFER_BYTES];
            loop {
                match from.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => to.write_all(&buffer[..count])?,
                }
            }
        });
    }
}

/// Executes the orders of the first of two connections; raw bytes go to the second.
fn obey_pairs(door: &Door, kernel_host: &Arc<KernelHost>) {
    while let Some(mut from) = door.accept()
        && let Some(mut to) = door.accept()
    {
        let mut orders = Orders::new(kernel_host.clone());
        std::thread::spawn(move || -> io::Result<()> {
            loop {
                let mut order = [0; Order::BYTES];
                from.read_exact(&mut order)?;
                let Some(order) = Order::parse(order) else { return Ok(()) };
                let mut sent = Ok(());
                let answer = orders.obey(order, |bytes| sent = to.write_all(bytes));
                sent?;
                if let Some(answer) = answer {
                    from.write_all(&answer)?;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let kernel_host = KernelHost::new(&crate::daemon::Options::default()).unwrap();
        let peers = RawPeers::start(folder.path(), kernel_host).unwrap();
        let connect = |name| UnixStream::connect(folder.path().join(name)).unwrap();
        let mut buffer = [0; 3];
        let mut echo = connect("echo");
        echo.write_all(b"abc").unwrap();
        echo.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, *b"abc");
        let mut sink = connect("sink");
        for _ in 0..2 {
            sink.write_all(&5u64.to_le_bytes()).unwrap();
            sink.write_all(b"abcde").unwrap();
            sink.read_exact(&mut buffer[..1]).unwrap();
        }
        let (mut from, mut to) = (connect("relay"), connect("relay"));
        from.write_all(b"xyz").unwrap();
        to.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, *b"xyz");
        let (mut from, mut to) = (connect("driver"), connect("driver"));
        for order in [Order::Raw(3), Order::Signal, Order::When] {
            from.write_all(&order.bytes()).unwrap();
        }
        to.read_exact(&mut buffer).unwrap();
        let mut when = [0; 8];
        from.read_exact(&mut when).unwrap();
        assert_ne!(u64::from_le_bytes(when), 0);
        drop(peers);
    }
}
