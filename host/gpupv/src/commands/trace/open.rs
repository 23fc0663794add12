//! `gpupv trace open`: serves the page of a trace to this user's browser, until Ctrl-C.
//!
//! The address has a random token, and only processes of this user (or root) get an answer: other users of the machine
//! reach the same loopback interface, and see the arguments of a browser.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use drivers::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use super::{Window, timeline_of, title_of};
use crate::output::{complain, say};

/// Arguments of `gpupv trace open`.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    #[command(flatten)]
    window: Window,
    /// Print the address only; do not start a browser
    #[arg(long)]
    pub no_browser: bool,
}

/// Bytes of a request's head that are read.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Time for a request's head, and for an answer.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Connections that are served at the same time. Others wait.
const CONNECTIONS_MAX: usize = 32;
/// Connections of other users, which get no page.
const OTHERS_MAX: usize = 4;

pub fn run(args: &OpenArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (timeline, code) = timeline_of(&args.trace, drivers, &args.window.options()?)?;
    let page = timeline::html::export(&timeline, &title_of(&args.trace));
    drop(timeline);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on 127.0.0.1")?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            unreachable!("it is bound to 127.0.0.1")
        };
        let site = Rc::new(Site { address, path: format!("/{}/", token()?), page });
        let link = format!("http://{address}{}", site.path);
        say(format_args!("{link}\nCtrl-C ends it."));
        if !args.no_browser && has_desktop() {
            tokio::task::spawn_local(open_browser(link));
        }
        tokio::select! {
            result = site.serve(&listener) => result,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })?;
    Ok(code)
}

/// 128 random bits in hexadecimal.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a browser could show a window. Without one xdg-open may start a browser in this terminal.
fn has_desktop() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

async fn open_browser(link: String) {
    let mut command = tokio::process::Command::new("xdg-open");
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().await {
        Ok(status) if status.success() => {}
        Ok(status) => {
            complain(format_args!("xdg-open failed ({status}): open the address above in a browser"))
        }
        Err(error) => {
            complain(format_args!("cannot run xdg-open ({error}): open the address above in a browser"))
        }
    }
}

/// The site that the server has: one page at one path.
struct Site {
    address: SocketAddrV4,
    path: String,
    page: String,
}

/// An answer's status line, further header lines, and its body.
struct Answer<'a> {
    status: &'static str,
    header: &'static str,
    body: &'a str,
}

impl Site {
    async fn serve(self: &Rc<Self>, listener: &TcpListener) -> anyhow::Result<()> {
        let [ours, others] =
            [CONNECTIONS_MAX, OTHERS_MAX].map(|most| Arc::new(tokio::sync::Semaphore::new(most)));
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // As without descriptors: those of other connections are closed soon.
                Err(error) => {
                    complain(format_args!("cannot accept a connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Other users take no place of this one's, and are dropped once they are many.
            let is_ours = is_ours(peer, self.address);
            let permit = match is_ours {
                true => ours.clone().acquire_owned().await?,
                false => match others.clone().try_acquire_owned() {
                    Ok(permit) => permit,
                    Err(_) => continue,
                },
            };
            let site = self.clone();
            tokio::task::spawn_local(async move {
                // A browser that closes its connection early is no failure.
                let _ = site.answer(stream, is_ours).await;
                drop(permit);
            });
        }
    }

    async fn answer(&self, mut stream: TcpStream, is_ours: bool) -> io::Result<()> {
        let head = tokio::time::timeout(HEAD_TIME_MAX, head_of(&mut stream)).await??;
        let Answer { status, header, body } = match is_ours {
            true => self.answer_to(&head),
            false => Answer { status: "403 Forbidden", header: "", body: "another user's page\n" },
        };
        let kind = if status.starts_with("200") { "html" } else { "plain" };
        let lines = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/{kind}; charset=utf-8\r\nContent-Length: {}\r\n{header}\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: frame-ancestors 'none'\r\nCross-Origin-Opener-Policy: same-origin\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let body = if head.starts_with("HEAD ") { "" } else { body };
        let write = async {
            stream.write_all(lines.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await
        };
        tokio::time::timeout(ANSWER_TIME_MAX, write).await?
    }

    fn answer_to(&self, head: &str) -> Answer<'_> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        // A name that another site resolves to 127.0.0.1 is not this one. The port is another behind `ssh -L`.
        let is_host = host.is_some_and(|host| {
            let name = host.split_once(':').map_or(host, |(name, _)| name);
            name == "localhost" || name == "127.0.0.1"
        });
        let refusal = |status, header, body| Answer { status, header, body };
        match (is_http && is_host, method) {
            (false, _) => refusal("400 Bad Request", "", "not a request for this page\n"),
            (true, "GET" | "HEAD") if target == self.path => refusal("200 OK", "", &self.page),
            (true, "GET" | "HEAD") => {
                refusal("404 Not Found", "", "the address is the one that gpupv printed\n")
            }
            (true, _) => refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "read only\n"),
        }
    }
}

/// A request up to its empty line.
async fn head_of(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 2048];
    // The end may begin in the bytes before.
    let mut looked = 0_usize;
    while !head[looked.saturating_sub(3)..].windows(4).any(|end| end == b"\r\n\r\n") {
        looked = head.len();
        let count = stream.read(&mut bytes).await?;
        if count == 0 || head.len() + count > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the process at the other end belongs to this user or to root.
fn is_ours(peer: SocketAddr, here: SocketAddrV4) -> bool {
    let SocketAddr::V4(peer) = peer else { return false };
    let Ok(sockets) = std::fs::read_to_string("/proc/net/tcp") else { return false };
    may_see(owner_of(&sockets, peer, here), rustix::process::geteuid().as_raw())
}

/// Whether the owner of a connection gets the page of this user. An owner that is not known does not.
fn may_see(owner: Option<u32>, user: u32) -> bool {
    owner.is_some_and(|owner| owner == 0 || owner == user)
}

/// The user of the socket at `local` that is connected to `remote`, from the lines of /proc/net/tcp.
fn owner_of(sockets: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
    let shown = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (local, remote) = (shown(local), shown(remote));
    sockets.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_it = fields.nth(1)? == local && fields.next()? == remote;
        // Behind state, queues, timer and retransmits.
        is_it.then(|| fields.nth(4)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKETS: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:B2C4 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 0100007F:B2C4 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
";

    #[test]
    fn a_connection_belongs_to_the_user_at_its_other_end() {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        assert_eq!(owner_of(SOCKETS, at(0xB2C4), at(0x1F90)), Some(1000));
        assert_eq!(owner_of(SOCKETS, at(0x1F90), at(0xB2C4)), Some(0));
        assert_eq!(owner_of(SOCKETS, at(0xB2C5), at(0x1F90)), None);
        assert_eq!(owner_of("", at(1), at(2)), None);
    }

    /// The test with a real other user (`trace_pictures.rs`) needs root.
    #[test]
    fn a_page_is_for_its_user_and_root() {
        for (owner, user, may) in [
            (Some(1000), 1000, true),
            (Some(0), 1000, true),
            (Some(1001), 1000, false),
            (Some(65534), 0, false),
            (Some(0), 0, true),
            (None, 1000, false),
            (None, 0, false),
        ] {
            assert_eq!(may_see(owner, user), may, "{owner:?} asks for the page of {user}");
        }
    }

    #[test]
    fn only_the_printed_address_is_answered_with_the_page() {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080);
        let site = Site { address, path: "/5eed/".into(), page: "<page>".into() };
        let status = |request: &str| {
            let answer = site.answer_to(&format!("{request}\r\n\r\n"));
            assert_eq!(answer.body == "<page>", answer.status == "200 OK", "{request}");
            answer.status[..3].to_owned()
        };
        assert_eq!(status("GET /5eed/ HTTP/1.1\r\nHost: 127.0.0.1:8080"), "200");
        assert_eq!(status("HEAD /5eed/ HTTP/1.1\r\nAccept: */*\r\nhost:localhost"), "200");
        assert_eq!(status("GET /5eed/ HTTP/1.1\r\nHost: localhost:9999"), "200");
        assert_eq!(status("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080"), "404");
        assert_eq!(status("GET /5eed/../x HTTP/1.1\r\nHost: 127.0.0.1:8080"), "404");
        assert_eq!(status("GET /5eee/ HTTP/1.1\r\nHost: 127.0.0.1:8080"), "404");
        assert_eq!(status("POST /5eed/ HTTP/1.1\r\nHost: 127.0.0.1:8080"), "405");
        assert_eq!(status("GET /5eed/ HTTP/1.1\r\nHost: attacker.example:8080"), "400");
        assert_eq!(status("GET /5eed/ HTTP/1.1\r\nHost: localhost.attacker.example"), "400");
        assert_eq!(status("GET /5eed/ HTTP/1.1"), "400");
        assert_eq!(status("GET /5eed/"), "400");
        assert_eq!(status(""), "400");
    }
}
