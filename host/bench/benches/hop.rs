//! What a process between a VM's memory and the kernel's process would cost: a round trip over two rings, and the same
//! through a process in between (decision 47). `cargo bench -p gpupv-bench --bench hop`.
//!
//! Each party is a process. It publishes, kicks a peer that sleeps, looks as long as `frame_ring::Patience` says, and
//! sleeps on its socket: as client library and daemon do.
//!
//! `unsafe`: forks before there is a thread.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use frame_ring::{AREA_BYTES, MappedArea, OwnMappedArea, Patience, Receiver, Sender, look_until};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const FRAME: [u8; 44] = [7; 44];
const TRIPS: u32 = 20_000;
const ROUNDS: usize = 15;

/// One end of a session with rings.
struct End {
    sender: Sender<OwnMappedArea, MappedArea>,
    receiver: Receiver<OwnMappedArea, MappedArea>,
    stream: UnixStream,
    patience: Patience,
    bytes: Vec<u8>,
}

/// An end that is not in a process yet: a child has no mapping of its parent's areas.
struct Unmapped {
    own: OwnedFd,
    peer: OwnedFd,
    stream: UnixStream,
}

impl Unmapped {
    fn pair() -> [Unmapped; 2] {
        let [first, second] = [(); 2].map(|()| {
            let memory = memfd_create("hop", MemfdFlags::CLOEXEC).expect("a memfd");
            ftruncate(&memory, AREA_BYTES as u64).expect("its size");
            memory
        });
        let copies = [&first, &second].map(|memory| memory.try_clone().expect("a descriptor"));
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let [own, peer] = copies;
        [Unmapped { own: first, peer: second, stream: near }, Unmapped { own: peer, peer: own, stream: far }]
    }

    fn map(self) -> End {
        let own = OwnMappedArea::map(self.own.as_fd()).expect("mapped");
        let peer = MappedArea::map(self.peer.as_fd()).expect("mapped");
        End {
            sender: Sender::new(own.clone(), peer.clone()),
            receiver: Receiver::new(own, peer),
            stream: self.stream,
            patience: Patience::default(),
            bytes: Vec::new(),
        }
    }
}

impl End {
    fn send(&mut self, bytes: &[u8]) {
        self.sender.publish(bytes);
        if self.sender.must_kick() {
            self.stream.write_all(&[0]).expect("the peer is there");
        }
    }

    /// Waits for one frame; false at the end of the stream.
    fn receive(&mut self) -> bool {
        self.bytes.clear();
        while self.bytes.len() < FRAME.len() {
            let room = FRAME.len() - self.bytes.len();
            if self.receiver.take(&mut self.bytes, room).expect("sound indices") > 0 {
                continue;
            }
            if self.patience.looks() {
                let found = look_until(|| !self.receiver.is_empty());
                self.patience.looked(found);
                if found {
                    continue;
                }
            }
            if self.receiver.sleep() {
                let ended = !self.stream.read(&mut [0]).is_ok_and(|count| count > 0);
                self.receiver.wake();
                if ended {
                    return false;
                }
            }
        }
        true
    }
}

/// Runs `party` in a process of its own, which ends with it, and with this one: each has copies of all sockets.
fn in_process(party: impl FnOnce()) {
    // SAFETY: this process has one thread. The child does not return.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: takes no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            party();
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        child => assert!(child > 0, "{}", std::io::Error::last_os_error()),
    }
}

fn serve(mut end: End) {
    while end.receive() {
        end.send(&FRAME);
    }
}

fn relay(mut near: End, mut far: End) {
    while near.receive() {
        far.send(&near.bytes);
        if !far.receive() {
            return;
        }
        near.send(&far.bytes);
    }
}

/// Nanoseconds of a round trip.
fn trips(client: &mut End) -> f64 {
    let began = Instant::now();
    for _ in 0..TRIPS {
        client.send(&FRAME);
        assert!(client.receive(), "the server is there");
    }
    began.elapsed().as_nanos() as f64 / f64::from(TRIPS)
}

fn main() {
    let [direct, server] = Unmapped::pair();
    in_process(|| serve(server.map()));
    let [relayed, near] = Unmapped::pair();
    let [far, server] = Unmapped::pair();
    in_process(|| relay(near.map(), far.map()));
    in_process(|| serve(server.map()));
    let [mut direct, mut relayed] = [direct, relayed].map(Unmapped::map);
    let mut rounds: Vec<[f64; 2]> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push([trips(&mut direct), trips(&mut relayed)]);
    }
    let median = |at: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
        values.sort_by(f64::total_cmp);
        values[ROUNDS / 2]
    };
    let [direct, relayed] = [0, 1].map(median);
    println!(
        "a round trip: {direct:.0} ns; through a process in between: {relayed:.0} ns, {:.2}x",
        relayed / direct
    );
}
