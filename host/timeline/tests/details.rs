//! What the HTML page says of a selected row, in a real browser.

mod browser;
mod common;

use browser::page::Page;
use d3dkmt::{Call, EventId, SyncObjectFlags, WaitFromCpuFlags};
use serde_json::json;

#[test]
fn a_call_of_several_objects_is_shown_and_found_by_each() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, _, [frames, _]| {
        let second = session.fence(client, SyncObjectFlags::empty()).object;
        let (objects, values) = (vec![frames, second].into(), vec![6, u64::MAX - 1].into());
        let (device, event) = (client.device, EventId(9));
        let flags = WaitFromCpuFlags::WAIT_ANY;
        session.call(client.process, Call::WaitFromCpu { device, objects, values, flags, event });
    });
    let mut page = Page::of(common::timeline_of(file.path()), "");
    page.is("gpupv.app.search('WaitFromCpu F1')");
    assert_eq!(page.text("#found"), "1 of 1");
    assert_eq!(page.text("#details h2"), "WaitFromCpu F0 >= 6, F1 >= 18446744073709551614 (any)");
    let details = page.text("#details");
    assert!(details.contains("F0 ") && details.contains("F1 monitored fence"), "{details}");
    page.no_errors();
}

#[test]
fn a_call_that_names_a_fence_without_a_value_has_none() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, _, [frames, _]| {
        session.signal(client, frames, 1);
        session.call(client.process, Call::DestroySynchronizationObject { object: frames });
    });
    let mut page = Page::of(common::timeline_of(file.path()), "");
    for (call, has_value) in [("Signal", true), ("Destroy", false), ("CreateSync", false), ("Share", false)] {
        page.is(&format!("gpupv.app.search('{call}')"));
        let details = page.text("#details");
        assert!(details.contains("fence") && details.contains("value") == has_value, "{call}: {details}");
    }
    page.no_errors();
}

#[test]
fn waits_at_the_end_are_not_counted_if_the_replay_diverged() {
    let mut timeline = common::small_timeline();
    timeline.integrity.diverged = true;
    (timeline.blocked, timeline.reasons, timeline.why_picture) = Default::default();
    let mut page = Page::of(timeline, "#panel=blocked");
    assert_eq!(page.text("#blocked-button"), "Waits at the end (?)");
    assert!(page.text("#blocked").contains("what waits at its end is not known"));
    page.no_errors();
}

#[test]
fn the_parts_of_a_wait_say_where_the_guests_times_are() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for with_times in [false, true] {
        common::pair(file.path(), |session, client, server, [frames, theirs]| {
            let event = session.wait(server, &[(theirs, 1)]);
            session.now += 1_000;
            session.signal(client, frames, 1);
            if with_times {
                session.times(client, server, event);
            }
        });
        let mut page = Page::of(common::timeline_of(file.path()), "#select=wait:0");
        let details = page.text("#details");
        assert_eq!(details.contains("are not in the trace"), !with_times, "{details}");
        assert_eq!(details.contains("gpupv trace stats TRACE --wakes"), with_times, "{details}");
        page.no_errors();
    }
}

/// More waits end than fit one step, so the last ones end in a later step than the signal.
#[test]
fn the_cause_of_a_wake_up_is_in_the_step_of_its_signal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, server, [frames, theirs]| {
        (0..100).for_each(|_| _ = session.wait(server, &[(theirs, 1)]));
        session.signal(client, frames, 1);
        session.advance(1_000, 0);
    });
    let timeline = common::timeline_of(file.path());
    let late = timeline.waits.iter().rposition(|wait| wait.end > wait.cause.unwrap().moment).unwrap();
    let cause = timeline.waits[late].cause.unwrap().moment.sequence;
    let end = timeline.waits[late].end.sequence;
    let mut page = Page::of(timeline, &format!("#axis=step&select=wait:{late}"));
    let arrow = page.is(
        "(() => { const { painter } = gpupv.app, ends = []; painter.arrow = (from, begin, to, end) => ends.push(begin, end); \
         painter.arrows(); delete painter.arrow; return ends; })()",
    );
    assert_eq!(arrow, json!([cause, end]));
    page.browser.press("c");
    assert_eq!(page.text("#details h2"), "SignalFromCpu F0 = 1");
    assert!(page.text("#details").contains("woken in later steps"), "{}", page.text("#details"));
    page.no_errors();
}
