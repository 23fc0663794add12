//! Polls a daemon and shows each reply, until the user quits.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use proto::control::control_client::ControlClient;
use proto::control::{Note, NotesRequest, TopReply, TopRequest};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::TopArgs;
use super::screen::Screen;
use super::view::{NOTES_KEPT, View};
use crate::output::{OK, say};

type Client = ControlClient<tonic::transport::Channel>;

/// Number of intervals after which an answer is late.
const LATE_INTERVALS: u32 = 3;

async fn fetch(client: &mut Client, args: &TopArgs) -> Result<TopReply, Status> {
    Ok(client.top(TopRequest { causes: args.rows }).await?.into_inner())
}

fn explained(status: Status) -> anyhow::Error {
    match status.code() {
        Code::Unimplemented => {
            anyhow::anyhow!("this daemon is older than `gpupv top`: restart it with this version of gpupv")
        }
        _ => anyhow::Error::new(status).context("the daemon did not answer"),
    }
}

/// Requests two replies and prints their tables.
pub async fn once(mut client: Client, args: &TopArgs) -> anyhow::Result<u8> {
    let before = fetch(&mut client, args).await.map_err(explained)?;
    tokio::time::sleep(args.interval).await;
    let now = fetch(&mut client, args).await.map_err(explained)?;
    print(Some(&before), &now, &VecDeque::new(), args)?;
    Ok(OK)
}

/// Prints the tables, or a JSON object, on standard output.
fn print(
    before: Option<&TopReply>,
    now: &TopReply,
    notes: &VecDeque<Note>,
    args: &TopArgs,
) -> anyhow::Result<()> {
    let view = View::new(before, now, notes, args.rows).context("the daemon's answer is empty")?;
    if args.json {
        say(format_args!("{}", view.json()));
    } else {
        for line in view.lines() {
            say(format_args!("{}", line.text));
        }
    }
    Ok(())
}

/// Polls the daemon. The queue has one entry, so a slow display does not show old replies.
fn looks(mut client: Client, args: &TopArgs) -> mpsc::Receiver<Result<TopReply, Status>> {
    let (sender, receiver) = mpsc::channel(1);
    let (interval, causes) = (args.interval, args.rows);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let reply = client.top(TopRequest { causes }).await.map(tonic::Response::into_inner);
            let is_over = reply.is_err();
            if sender.send(reply).await.is_err() || is_over {
                return;
            }
        }
    });
    receiver
}

/// Signals that end `gpupv top`, suspend it or have it redraw.
struct Signals {
    ends: [Signal; 3],
    resized: Signal,
    stops: Signal,
}

enum WatchEvent {
    End,
    Resized,
    Stop,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [one, two, three] = ends.map(signal);
        Ok(Signals {
            ends: [one?, two?, three?],
            resized: signal(SignalKind::window_change())?,
            stops: signal(SignalKind::from_raw(libc::SIGTSTP))?,
        })
    }

    async fn next(&mut self) -> WatchEvent {
        let [one, two, three] = &mut self.ends;
        tokio::select! {
            _ = one.recv() => WatchEvent::End,
            _ = two.recv() => WatchEvent::End,
            _ = three.recv() => WatchEvent::End,
            _ = self.resized.recv() => WatchEvent::Resized,
            _ = self.stops.recv() => WatchEvent::Stop,
        }
    }
}

/// The replies and notes to show, and the screen.
struct Shown<'a> {
    args: &'a TopArgs,
    before: Option<TopReply>,
    now: Option<TopReply>,
    notes: VecDeque<Note>,
    /// Time of the last answer.
    heard: Instant,
    screen: Option<Screen>,
}

impl Shown<'_> {
    fn take(&mut self, reply: TopReply) -> anyhow::Result<()> {
        self.before = self.now.replace(reply);
        self.heard = Instant::now();
        match &self.screen {
            Some(_) => self.draw(),
            None => {
                let now = self.now.as_ref().expect("it was just put there");
                print(self.before.as_ref(), now, &self.notes, self.args)?;
                if !self.args.json {
                    say(format_args!(""));
                }
                Ok(())
            }
        }
    }

    fn draw(&self) -> anyhow::Result<()> {
        let (Some(screen), Some(now)) = (&self.screen, &self.now) else { return Ok(()) };
        let view = View::new(self.before.as_ref(), now, &self.notes, self.args.rows)
            .context("the daemon's answer is empty")?;
        let silent = self.heard.elapsed();
        let last = if silent > LATE_INTERVALS * self.args.interval {
            format!("the daemon has not answered for {} s    q: quit", silent.as_secs())
        } else {
            "q: quit".into()
        };
        screen.draw(&view.lines(), &last).context("cannot write to the terminal")
    }

    /// Restores the terminal and stops this process until it is continued.
    fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(screen) = &mut self.screen {
            screen.leave();
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        if let Some(screen) = &mut self.screen {
            screen.enter_again()?;
        }
        self.draw()
    }
}

/// Shows replies until it is interrupted or the daemon exits, which is no failure.
pub async fn watch(mut client: Client, args: &TopArgs) -> anyhow::Result<u8> {
    // The first answer is awaited before the screen is switched, so that errors are printed on the normal screen.
    let first = fetch(&mut client, args).await.map_err(explained)?;
    let mut notes = client.notes(NotesRequest {}).await.map_err(explained)?.into_inner();
    let mut signals = Signals::new()?;
    let on_screen = std::io::stdout().is_terminal() && !args.json;
    let screen = if on_screen { Some(Screen::enter()?) } else { None };
    let has_keys = screen.as_ref().is_some_and(|screen| screen.has_keys());
    // SAFETY: the descriptor of standard input stays open and unchanged as long as the program runs.
    let keys = has_keys.then(|| unsafe { AsyncFd::register(std::io::stdin()) }).transpose()?;
    let mut shown =
        Shown { args, before: None, now: None, notes: VecDeque::new(), heard: Instant::now(), screen };
    shown.take(first)?;
    let mut looks = looks(client, args);
    let mut late = tokio::time::interval(Duration::from_secs(1).max(args.interval));
    loop {
        tokio::select! {
            heard = signals.next() => match heard {
                WatchEvent::End => return Ok(OK),
                WatchEvent::Resized => shown.draw()?,
                WatchEvent::Stop => shown.stop()?,
            },
            _ = late.tick() => shown.draw()?,
            pressed = pressed(keys.as_ref()) => if pressed?.contains(&b'q') { return Ok(OK) },
            Ok(Some(note)) = notes.message() => {
                shown.notes.push_back(note);
                while shown.notes.len() > NOTES_KEPT {
                    shown.notes.pop_front();
                }
            }
            reply = looks.recv() => match reply {
                Some(Ok(reply)) => shown.take(reply)?,
                Some(Err(_)) | None => {
                    drop(shown);
                    say(format_args!("the daemon has ended"));
                    return Ok(OK);
                }
            },
        }
    }
}

/// Returns the pressed keys; never returns without a keyboard.
async fn pressed(keys: Option<&AsyncFd<std::io::Stdin>>) -> anyhow::Result<Vec<u8>> {
    let Some(keys) = keys else { return std::future::pending().await };
    loop {
        let mut ready = keys.readable().await?;
        let mut bytes = [0; 64];
        match rustix::io::read(keys.get_ref(), &mut bytes)? {
            // Everything is read, or the terminal is closed, which a signal reports.
            0 => ready.clear_ready(),
            count => return Ok(bytes[..count].to_vec()),
        }
    }
}
