//! A program that changes its working folder. Alone in its process, whose folder it is.

mod host;

use std::path::Path;
use std::thread;

use dxcore::client::attach;
use host::{Listener, Peer, welcome};
use proto::attach::BrokerReply;

#[test]
fn a_restarted_daemon_is_found_by_a_path_that_was_relative() {
    let listener = Listener::new();
    std::env::set_current_dir(listener.path.parent().unwrap()).unwrap();
    let name = Path::new(listener.path.file_name().unwrap());
    // Without the daemon the session is lost after the first attempt that is later than this.
    let reply =
        BrokerReply { resume_token: b"a right".to_vec(), resume_ms: Some(1), ..BrokerReply::default() };
    let (session, host) = thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(name, "test").expect("attaches"));
        let host = listener.accept_with(reply, welcome(), 64);
        (attaching.join().unwrap(), host)
    });
    std::env::set_current_dir("/").unwrap();
    let Peer { broker, stream, .. } = host;
    drop((broker, stream));
    while !listener.has_connection() {
        assert!(!session.is_lost(), "no connection by the path {name:?}");
        thread::yield_now();
    }
}
