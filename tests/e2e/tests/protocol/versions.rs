//! Libraries of another release than the daemon: each side sends a range of versions.

use covers::covers;
use d3dkmt::WaitOutcome;
use e2e::embedded::Embedded;
use e2e::wire::Attached;
use proto::PROTOCOL_VERSION;
use proto::channel::{Hello, ToHost, to_host};

fn hello(version: u32, version_min: u32, token: &[u8]) -> ToHost {
    let hello = Hello { version, version_min, token: token.to_vec(), ..Hello::default() };
    ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }
}

#[test]
fn both_sides_use_the_newest_version_that_both_speak() {
    covers!("GPV-029");
    let daemon = Embedded::start();
    let back = PROTOCOL_VERSION - 1;
    let cases = [
        (back, 0, back),
        (back, 1, back),
        (PROTOCOL_VERSION, back, PROTOCOL_VERSION),
        (99, back, PROTOCOL_VERSION),
    ];
    for (newest, oldest, agreed) in cases {
        let attached = Attached::speaking(&daemon.broker(), newest, oldest).expect("the broker takes it");
        let hello = hello(newest, oldest, &attached.token);
        let (mut client, version) = attached.greet(&hello);
        assert_eq!(version, agreed, "{newest} down to {oldest}");
        let device = client.open_device();
        let fence = client.create_fence(device, 5);
        assert_eq!(client.wait(device, fence.object, 5, 7), Some(WaitOutcome::Satisfied));
    }
    for (newest, oldest) in [(back - 1, 0), (99, 0), (99, PROTOCOL_VERSION + 1), (0, 0)] {
        let refused =
            Attached::speaking(&daemon.broker(), newest, oldest).err().expect("no version is common");
        assert!(refused.contains("libdxcore.so speaks protocol version"), "{refused}");
        assert!(
            refused.contains(&format!("this side speaks versions {back} to {PROTOCOL_VERSION}")),
            "{refused}"
        );
    }
    daemon.end();
}
