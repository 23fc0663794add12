//! Guests of another release than the daemon: both sides send a range of versions and their known features.

use attacks::attacker::Attacker;
use attacks::relay::{Relay, Session, hello};
use covers::covers;
use d3dkmt::{Call, FeatureId, Reply};
use e2e::served::Served;
use proto::PROTOCOL_VERSION;
use proto::attach::GuestdHello;

fn is_enabled(broker: &std::path::Path, feature: FeatureId) -> bool {
    let mut process = Attacker::new(broker).expect("a process attaches");
    let call = Call::IsFeatureEnabled { adapter: process.adapter, feature_id: feature.0 };
    let Ok(Reply::Feature(result)) = process.call(&call) else { panic!("no answer of IsFeatureEnabled") };
    result.enabled
}

#[test]
fn a_guest_of_another_release_works_with_what_both_have() {
    covers!("GPV-029");
    let served = Served::start(&["--vms", "1"]);
    let socket = served.directory().join("vm1.sock");
    let all = FeatureId::MODELLED.map(|feature| feature.0).to_vec();
    let without_scheduling: Vec<u32> = all[1..].to_vec();
    let cases = [
        ("this release", hello(), PROTOCOL_VERSION, true),
        (
            "one version back",
            GuestdHello { version: 7, kernel: "old".into(), ..GuestdHello::default() },
            7,
            true,
        ),
        (
            "newer, and knows more",
            GuestdHello { version: 99, features: [&all[..], &[1 << 20]].concat(), ..hello() },
            PROTOCOL_VERSION,
            true,
        ),
        (
            "knows of no hardware scheduling",
            GuestdHello { features: without_scheduling.clone(), ..hello() },
            PROTOCOL_VERSION,
            false,
        ),
        ("once more with all", hello(), PROTOCOL_VERSION, true),
    ];
    for (case, hello, version, enabled) in cases {
        let knows = if enabled { &all } else { &without_scheduling };
        let (session, welcome) =
            Session::boot_saying(&socket, hello).unwrap_or_else(|why| panic!("{case}: {why}"));
        assert_eq!((welcome.version, &welcome.features), (version, knows), "{case}");
        let relay = Relay::of(session);
        assert_eq!(is_enabled(relay.broker(), FeatureId::HWSCH), enabled, "{case}");
        assert!(is_enabled(relay.broker(), FeatureId::NATIVE_FENCE), "{case}");
        assert!(
            is_enabled(&served.broker(), FeatureId::HWSCH),
            "{case}: the features of the host's processes stay"
        );
    }
    let too_old = GuestdHello { version: 6, ..GuestdHello::default() };
    let refused = Session::boot_saying(&socket, too_old).err().expect("no version is common");
    let words = "guestd speaks protocol version 6, this side speaks versions 7 to 8";
    assert!(refused.starts_with(words), "{refused}");
}
