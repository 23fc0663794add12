//! The HTML page, in a real browser.

mod browser;
mod common;

use browser::page::Page;
use d3dkmt::CreateContextFlags;
use serde_json::{Value, json};
use timeline::{NONE, Outcome};

#[test]
fn page_has_every_event_and_wait() {
    let mut page = Page::small();
    let events = page.rows(
        "events",
        "rows.at[row], rows.seq[row], rows.track[row], t.head.words[rows.name[row]], rows.request[row], \
         rows.fence[row] === NONE ? null : rows.fence[row], String(gpupv.app.words.value(rows, row)), rows.wakes[row], \
         rows.status[row] < 0 ? null : t.head.statuses[rows.status[row]]",
    );
    let timeline = page.timeline.clone();
    let expected: Vec<Value> = timeline
        .events
        .iter()
        .map(|event| {
            json!([
                event.moment.at,
                event.moment.sequence,
                event.track,
                timeline.word(event.name),
                event.request,
                (event.fence != NONE).then_some(event.fence),
                event.value.to_string(),
                event.wakes,
                event.status.map(timeline::status_name),
            ])
        })
        .collect();
    assert_eq!(events, json!(expected));
    let submissions = timeline.submissions();
    let waits = page.rows(
        "waits",
        "rows.track[row], rows.event[row], rows.t0[row], rows.s0[row], rows.t1[row], rows.s1[row], \
         rows.by[row] === NONE ? null : rows.by[row], rows.by[row] === NONE ? null : rows.cause[row], gpupv.app.words.outcome(rows.outcome[row]), gpupv.app.words.parts(row)",
    );
    let expected: Vec<Value> = timeline
        .waits
        .iter()
        .map(|wait| {
            let parts = timeline::parts(wait, &submissions);
            let parts: Vec<_> = parts.iter().map(|part| json!([part.name, part.nanos])).collect();
            json!([
                wait.process,
                wait.event,
                wait.begin.at,
                wait.begin.sequence,
                wait.end.at,
                wait.end.sequence,
                wait.cause.map(|cause| cause.track),
                wait.cause.map(|cause| cause.moment.sequence),
                wait.outcome.name(),
                parts,
            ])
        })
        .collect();
    assert_eq!(waits, json!(expected));
    assert!(timeline.waits.iter().any(|wait| wait.outcome == Outcome::Pending), "the sample has such a wait");
    page.no_errors();
}

#[test]
fn page_has_every_packet_run_and_value() {
    let mut page = Page::small();
    let timeline = page.timeline.clone();
    let packets = page.rows(
        "packets",
        "rows.track[row], rows.t0[row], Number.isNaN(rows.given[row]) ? null : rows.given[row], \
         Number.isNaN(rows.ran[row]) ? null : rows.ran[row], rows.t1[row], rows.s1[row], t.head.packetKinds[rows.kind[row]]",
    );
    let expected: Vec<Value> = timeline
        .packets
        .iter()
        .map(|packet| {
            json!([
                packet.queue,
                packet.begin.at,
                packet.submitted,
                packet.ran,
                packet.end.at,
                packet.end.sequence,
                packet.kind.name(),
            ])
        })
        .collect();
    assert_eq!(packets, json!(expected));
    let runs = page.rows("runs", "rows.track[row], rows.t0[row], rows.t1[row], rows.call[row], rows.s1[row]");
    let expected: Vec<Value> =
        timeline.runs.iter().map(|run| json!([run.engine, run.begin, run.end, run.call, run.last])).collect();
    assert_eq!(runs, json!(expected));
    let samples =
        page.rows("samples", "rows.fence[row], rows.at[row], String(gpupv.app.words.value(rows, row))");
    let expected: Vec<Value> = timeline
        .samples
        .iter()
        .map(|sample| json!([sample.fence, sample.moment.at, sample.value.to_string()]))
        .collect();
    assert_eq!(samples, json!(expected));
    assert!(
        timeline.samples.iter().any(|sample| sample.value == u64::MAX),
        "a value that JavaScript cannot count to"
    );
    page.no_errors();
}

#[test]
fn page_loads_nothing_and_says_its_title() {
    let mut page = Page::small();
    assert_eq!(page.text("h1"), "a <trace> & more.gvt");
    assert_eq!(page.is("performance.getEntriesByType('resource').length"), json!(0));
    let policy = page.is("document.querySelector('meta[http-equiv=Content-Security-Policy]').content");
    assert!(policy.as_str().unwrap().contains("default-src 'none'"), "{policy}");
    // The policy works: loading is refused.
    let blocked = page.is("fetch('data:text/plain,x').then(() => 'loaded', () => 'refused')");
    assert_eq!(blocked, json!("refused"));
    page.no_errors();
}

#[test]
fn search_finds_an_event_and_goes_on_to_the_next() {
    let mut page = Page::small();
    page.browser.press("/");
    assert_eq!(page.is("document.activeElement.id"), json!("find"));
    page.browser.kind("SignalFromCpu F0");
    page.browser.press("Enter");
    assert_eq!(page.text("#found"), "1 of 3");
    assert_eq!(page.text("#details h2"), "SignalFromCpu F0 = 1");
    page.browser.press("Enter");
    page.browser.press("Enter");
    assert_eq!(page.text("#found"), "3 of 3");
    assert_eq!(page.text("#details h2"), "SignalFromCpu F0 = 1 INVALID_PARAMETER");
    assert!(page.text("#details").contains("is below its value 2"), "the note says why it was refused");
    page.is("gpupv.app.search('hangs')");
    assert_eq!(page.text("#details h2"), "fault: engine 0.0 hangs");
    page.is("gpupv.app.search('no such thing')");
    assert_eq!(page.text("#found"), "nothing found");
    page.no_errors();
}

#[test]
fn blocked_table_says_who_waits_for_what() {
    let mut page = Page::small();
    assert_eq!(page.text("#blocked-button"), "Waits at the end (3)");
    assert_eq!(page.is("document.getElementById('blocked').hidden"), json!(true));
    page.browser.press("b");
    assert_eq!(page.is("document.getElementById('blocked').hidden"), json!(false));
    let rows = page.is("[...document.querySelectorAll('#blocked tbody tr')].map((row) => row.textContent)");
    let rows: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows[0].contains("p3 other") && rows[0].contains("key 1"), "{rows:?}");
    assert!(rows[1].contains("p1 client") && rows[1].contains("F1 >= 9, is 2"), "{rows:?}");
    assert!(rows[2].contains("context 0x") && rows[2].contains("F1 >= 7, is 2"), "{rows:?}");
    // The reasons, with the texts of `gpupv why`: the first chain is open.
    let reasons = page.is(
        "[...document.querySelectorAll('#blocked tbody tr')].map((row) => \
         [row.querySelector('summary').textContent, row.querySelector('details').open, row.querySelectorAll('li').length])",
    );
    let expected: Vec<Value> = page
        .timeline
        .blocked
        .iter()
        .map(|wait| {
            let reason = &page.timeline.reasons[wait.why];
            json!([reason.sentence, true, reason.chain.len()])
        })
        .collect();
    assert_eq!(reasons, json!(expected));
    assert!(rows[1].contains("could signal") || rows[1].contains("gone: "), "{rows:?}");
    // Its link leads to the call.
    page.is("document.querySelectorAll('#blocked tbody a')[1].click()");
    assert!(page.text("#details h2").starts_with("WaitFromCpu F1 >= 9"));
    page.browser.press("Escape");
    assert_eq!(page.is("document.getElementById('blocked').hidden"), json!(true));
    page.no_errors();
}

#[test]
fn keyboard_moves_zooms_turns_and_walks() {
    let mut page = Page::small();
    let all = page.view();
    page.browser.press("+");
    let near = page.view();
    assert!(near.1 - near.0 < (all.1 - all.0) * 0.7, "{all:?} {near:?}");
    page.browser.press("ArrowRight");
    let right = page.view();
    assert!(right.0 > near.0 && ((right.1 - right.0) - (near.1 - near.0)).abs() < 1.0, "{near:?} {right:?}");
    page.browser.press("0");
    assert_eq!(page.view(), all);
    page.browser.press("x");
    let steps = page.timeline.events.len() as f64;
    let view = page.view();
    assert!(view.0 <= 1.0 && view.1 >= steps && view.1 < steps + 5.0, "steps in their order: {view:?}");
    // Moves between lanes, then between events.
    page.browser.press("ArrowDown");
    let first = page.is("gpupv.app.painter.lane.label");
    page.browser.press("ArrowDown");
    assert_ne!(page.is("gpupv.app.painter.lane.label"), first);
    page.browser.press("ArrowUp");
    assert_eq!(page.is("gpupv.app.painter.lane.label"), first);
    page.browser.press("n");
    let one = page.is("gpupv.app.selected.seq").as_u64().unwrap();
    page.browser.press("n");
    let next = page.is("gpupv.app.selected.seq").as_u64().unwrap();
    assert!(next > one, "{one} {next}");
    page.browser.press("p");
    assert_eq!(page.is("gpupv.app.selected.seq"), json!(one));
    page.browser.press("Escape");
    assert_eq!(page.is("gpupv.app.selected"), Value::Null);
    page.no_errors();
}

#[test]
fn every_key_is_in_the_help_and_the_help_has_no_other() {
    let mut page = Page::small();
    page.browser.press("?");
    assert_eq!(page.is("document.getElementById('help').hidden"), json!(false));
    let shown = page.is("[...document.querySelectorAll('#help kbd')].map((key) => key.textContent)");
    let source = include_str!("../page/main.js");
    let keys = source.split_once("const keys = {").unwrap().1.split_once("    };").unwrap().0;
    let mut handled: Vec<String> = keys
        .split("() =>")
        .filter_map(|part| {
            part.trim_end().strip_suffix(':')?.rsplit([' ', '\n', ',']).next().map(str::to_owned)
        })
        .map(|key| key.trim_matches('"').to_owned())
        .map(|key| match key.as_str() {
            "ArrowLeft" => "\u{2190}".into(),
            "ArrowRight" => "\u{2192}".into(),
            "ArrowUp" => "\u{2191}".into(),
            "ArrowDown" => "\u{2193}".into(),
            "Escape" => "Esc".into(),
            _ => key,
        })
        // The same key without Shift.
        .filter(|key| key != "=")
        .collect();
    let mut shown: Vec<String> =
        shown.as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect();
    shown.sort();
    handled.sort();
    assert_eq!(shown, handled);
    page.no_errors();
}

/// WCAG 2.1.4: keys that type characters can be made to need Alt. The others are as before.
#[test]
fn keys_of_one_character_need_alt_on_demand() {
    let mut page = Page::small();
    let hidden =
        |page: &mut Page, panel: &str| page.is(&format!("document.getElementById('{panel}').hidden"));
    let switch = "document.getElementById('with-alt')";
    page.browser.press_with_alt("b", "KeyB");
    assert_eq!(hidden(&mut page, "blocked"), json!(true), "Alt is the browser's until then");
    page.browser.press("?");
    assert!(page.text("#help table").contains("n p "), "{}", page.text("#help table"));
    page.is(&format!("{switch}.focus(), {switch}.click()"));
    assert!(page.text("#help table").contains("Alt n Alt p "), "{}", page.text("#help table"));
    assert!(!page.text("#help table").contains("Alt Enter"), "{}", page.text("#help table"));
    for key in ["?", "b", "0", "-", "x"] {
        let before = page.view();
        page.browser.press(key);
        assert_eq!(hidden(&mut page, "help"), json!(false), "{key}");
        assert_eq!(page.view(), before, "{key}");
    }
    // The same key by its character, and where Alt gives another one; a key with a name needs no Alt.
    page.browser.press_with_alt("b", "KeyB");
    assert_eq!(hidden(&mut page, "blocked"), json!(false));
    page.browser.press_with_alt("\u{222b}", "KeyB");
    assert_eq!(hidden(&mut page, "blocked"), json!(true));
    page.browser.press("ArrowDown");
    assert!(page.text("#said").contains("Alt n and Alt p"), "{}", page.text("#said"));
    // The choice is kept.
    let path = page.path.clone();
    page.browser.open(&path, "");
    assert_eq!(page.is(&format!("{switch}.checked")), json!(true));
    page.is(&format!("{switch}.click()"));
    page.browser.press("b");
    assert_eq!(hidden(&mut page, "blocked"), json!(false));
    page.no_errors();
}

#[test]
fn link_leads_to_a_step_and_selection_gives_one() {
    let mut page = Page::of(common::small_timeline(), "#seq=35");
    assert_eq!(page.text("#details h2"), "SignalFromCpu F0 = 2");
    page.is("gpupv.app.step(42)");
    assert_eq!(page.is("location.hash"), json!("#seq=42"));
    page.is("gpupv.app.select('wait', 1)");
    let link = page.is("location.hash");
    assert_eq!(link, json!("#select=wait:1"));
    let path = page.path.clone();
    page.browser.open(&path, link.as_str().unwrap());
    assert_eq!(page.text("#details h2"), "wait for F1 >= 2");
    page.browser.open(&path, "#find=F2&axis=step&panel=table");
    assert_eq!(page.is("gpupv.app.view.axis"), json!(1));
    assert_eq!(page.text("#found"), "1 of 2", "its creation, and the wait for it");
    assert_eq!(page.is("document.getElementById('table').hidden"), json!(false));
    page.no_errors();
}

#[test]
fn table_is_what_is_on_the_screen() {
    let mut page = Page::of(common::small_timeline(), "#axis=step");
    page.browser.press("t");
    page.browser.drawn();
    let rows = "document.querySelectorAll('#table tbody tr').length";
    assert_eq!(page.is(rows), json!(page.timeline.events.len()));
    page.is("gpupv.app.show(30, 40)");
    page.browser.drawn();
    let shown = page.is(rows).as_u64().unwrap();
    assert!((9..=11).contains(&shown), "{shown}");
    assert!(page.text("#table tbody tr").contains("WaitFromGpu F0 >= 2"));
    page.no_errors();
}

#[test]
fn wake_up_is_split_into_its_parts_and_leads_to_its_cause() {
    let mut page = Page::small();
    let wait = page
        .timeline
        .waits
        .iter()
        .position(|wait| wait.cause.is_some_and(|cause| cause.submission.is_some()));
    page.is(&format!("gpupv.app.select('wait', {})", wait.unwrap()));
    let details = page.text("#details");
    for part in ["in its queue", "in the hardware queue", "on the engine", "daemon told late"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    page.browser.press("c");
    assert_eq!(page.is("gpupv.app.selected.kind"), json!("packet"));
    page.no_errors();
}

#[test]
fn why_is_a_picture_and_one_panel_is_open_at_a_time() {
    let mut page = Page::small();
    page.browser.press("b");
    page.browser.press("w");
    assert_eq!(
        page.is("['blocked', 'why'].map((name) => document.getElementById(name).hidden)"),
        json!([true, false])
    );
    let width = page.is("(async () => { const one = document.querySelector('#why img'); await one.decode(); return one.naturalWidth; })()");
    assert_eq!(width, json!(760), "the picture of `gpupv why --svg`");
    let shown = page.is("atob(document.querySelector('#why img').src.split('base64,')[1])");
    assert_eq!(shown, json!(page.timeline.why_picture));
    assert!(page.timeline.why_picture.contains(&timeline::escaped(&page.timeline.reasons[0].sentence)));
    page.browser.press("Escape");
    assert_eq!(page.is("document.getElementById('why').hidden"), json!(true));
    page.no_errors();
    // Without blocked waits there is no picture to show.
    let file = tempfile::NamedTempFile::new().unwrap();
    common::booted(file.path());
    let mut page = Page::of(common::timeline_of(file.path()), "#panel=why");
    page.browser.press("w");
    assert_eq!(
        page.is("[document.getElementById('why-button').hidden, document.getElementById('why').hidden]"),
        json!([true, true])
    );
    page.no_errors();
}

#[test]
fn first_view_leaves_out_the_boot_and_shows_few_moments_by_steps() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::booted(file.path());
    let mut page = Page::of(common::timeline_of(file.path()), "");
    // The processes begin after 2.5 s and take 3 ms.
    let (from, to) = page.view();
    assert!(from > 2.49e9 && to < 2.51e9 && page.is("gpupv.app.view.axis") == json!(0), "{from} {to}");
    assert!(page.text("#remark").contains("without 2.490 s"), "{}", page.text("#remark"));
    page.browser.press("0");
    assert!(page.view().0 < 1e9 && page.text("#remark").is_empty());
    page.no_errors();
    // A place that the link names is shown as ever.
    let mut page = Page::of(common::timeline_of(file.path()), "#seq=1");
    assert!(page.view().0 < 1e9 && page.text("#remark").is_empty());
    // Three seconds of a hang between two moments.
    let mut page = Page::of(common::small_timeline(), "");
    assert_eq!(page.is("gpupv.app.view.axis"), json!(1));
    assert!(page.text("#remark").contains("by steps"), "{}", page.text("#remark"));
    // A wait is no idle time, however long it is.
    assert!(!page.text("#remark").contains("idle"), "{}", page.text("#remark"));
    page.no_errors();
}

#[test]
fn paper_has_all_lanes_and_dark_ink() {
    let mut page = Page::of(common::small_timeline(), "#axis=step");
    let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
    page.browser.order("Emulation.setEmulatedMedia", json!({ "features": dark }));
    page.browser.press("b");
    page.browser.drawn();
    let state = "(() => { const { painter, lanes } = gpupv.app; \
                 return [painter.height >= lanes.height, painter.ink.back, painter.ink.front]; })()";
    assert_eq!(page.is(state), json!([false, "#14171a", "#e4e8ec"]), "the panel hides some lanes");
    page.is("window.dispatchEvent(new Event('beforeprint'))");
    assert_eq!(page.is(state), json!([true, "#ffffff", "#1b1f24"]));
    page.is("gpupv.app.redraw()");
    page.browser.drawn();
    assert_eq!(page.is(state), json!([true, "#ffffff", "#1b1f24"]), "no frame draws over it");
    // A page ends between lanes: each lane is a picture of its own, and together they are the whole.
    let strips = "(() => { const { painter, lanes } = gpupv.app, all = [...document.querySelectorAll('#strips canvas')]; \
                  return [all.length - lanes.list.length, all.reduce((sum, one) => sum + one.height, 0) - painter.canvas.height]; })()";
    assert_eq!(page.is(strips), json!([0, 0]));
    page.is("window.dispatchEvent(new Event('afterprint'))");
    assert_eq!(page.is("document.querySelectorAll('#strips canvas').length"), json!(0));
    page.browser.drawn();
    assert_eq!(page.is(state), json!([false, "#14171a", "#e4e8ec"]));
    let printed = page.browser.order("Page.printToPDF", json!({ "preferCSSPageSize": true }));
    assert!(printed["data"].as_str().unwrap().len() > 10_000);
    page.no_errors();
}

/// What axe-core checks, as far as it is structure: each control, picture and region has a name.
#[test]
fn screen_readers_find_names_states_and_news() {
    let mut page = Page::small();
    assert_eq!(page.is("[document.documentElement.lang, document.title !== '', document.querySelectorAll('h1').length, document.querySelectorAll('main').length]"), json!(["en", true, 1, 1]));
    let controls = "[...document.querySelectorAll('button')].map((one) => { \
         const panel = one.getAttribute('aria-controls'); \
         return one.textContent.trim() !== '' && (panel === null) === (one.getAttribute('aria-expanded') === null) \
         && (panel === null || document.getElementById(panel) !== null); })";
    assert_eq!(page.is(controls), json!(vec![true; 6]), "name, and the panel that it opens");
    assert_eq!(
        page.is("[...document.querySelectorAll('input')].map((one) => one.labels.length)"),
        json!([1, 1])
    );
    let named = "[...document.querySelectorAll('canvas, [role=application], section, img')].filter((one) => \
         !(one.getAttribute('aria-label') || one.alt || one.id === 'details' || document.getElementById(one.getAttribute('aria-labelledby') ?? '')?.textContent)).map((one) => one.outerHTML.slice(0, 60))";
    for key in ["b", "w", "t", "?"] {
        page.browser.press(key);
        assert_eq!(page.is(named), json!([]), "{key}");
        let (opened, scrolls) = (
            "[...document.querySelectorAll('[aria-expanded=true]')].map((one) => document.getElementById(one.getAttribute('aria-controls')).hidden)",
            "[...document.querySelectorAll('.panel:not([hidden]) .scroll, #text pre')].every((one) => one.tabIndex === 0)",
        );
        assert_eq!((page.is(opened), page.is(scrolls)), (json!([false]), json!(true)), "{key}");
    }
    let heads = page.is(
        "[...document.querySelectorAll('th')].every((one) => one.scope === 'col' || one.scope === 'row')",
    );
    assert_eq!(heads, json!(true));
    // The keys reach each lane, and say which it is; the selection is told by the panel beside.
    page.browser.press("ArrowDown");
    assert!(page.text("#said").contains("p1 client: "), "{}", page.text("#said"));
    page.browser.press("ArrowDown");
    assert!(page.text("#said").contains("waits: "), "{}", page.text("#said"));
    assert_eq!(
        page.is("['said', 'found'].map((id) => document.getElementById(id).getAttribute('role'))"),
        json!(["status", "status"])
    );
    assert_eq!(page.is("document.getElementById('side').getAttribute('aria-live')"), json!("polite"));
    page.no_errors();
}

/// Pages in which a long picture is not cut, so that the first one has lanes as well.
#[test]
fn long_picture_begins_on_the_first_sheet() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::long(file.path(), 2_000);
    let mut page = Page::of(common::timeline_of(file.path()), "");
    page.browser.order("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    page.is("window.dispatchEvent(new Event('beforeprint'))");
    let height =
        page.is("document.getElementById('strips').clientHeight / document.documentElement.clientWidth");
    assert!(height.as_f64().unwrap() > 210.0 / 297.0, "{height}: it fits on one sheet");
    let cut = "[...document.querySelectorAll('#strips canvas')].every((one) => \
               getComputedStyle(one).breakInside === 'avoid' && one.clientHeight < 200) \
               && getComputedStyle(document.getElementById('scroller')).display === 'none'";
    assert_eq!(page.is(cut), json!(true));
    page.no_errors();
}

#[test]
fn numbers_stand_below_their_headings_and_controls_beside_their_labels() {
    let mut page = Page::small();
    page.browser.press("t");
    let apart = "[...document.querySelectorAll('#table th')].filter((head, at) => \
                 getComputedStyle(head).textAlign !== getComputedStyle(document.querySelectorAll('#table tbody tr:first-child td')[at]).textAlign).map((head) => head.textContent)";
    assert_eq!(page.is(apart), json!([]));
    page.browser.press("?");
    assert!(page.is("document.getElementById('with-alt').clientWidth").as_u64().unwrap() < 40);
    // A reset stores UINT64_MAX: a fence's ladder has no room for its digits.
    let labels = "gpupv.app.timeline.samples.wide.size > 0 && \
                  [...gpupv.app.timeline.samples.wide.keys()].map((row) => gpupv.app.words.rung(gpupv.app.timeline.samples, row))";
    assert_eq!(page.is(labels), json!(["MAX"]));
    page.no_errors();
}

/// The engine is given the commands of two contexts in another order than that of their calls.
#[test]
fn hardware_queue_is_stacked_in_the_order_in_which_the_engine_got_the_commands() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, server, [frames, _]| {
        let [late, early] =
            [client, server].map(|guest| session.context(guest, 0, CreateContextFlags::empty()));
        session.now = 1_000_000;
        session.gpu_wait(client, late, frames, 1);
        for _ in 0..20 {
            session.now += 1_000;
            session.submit(client, late, &[common::busy(1_000)]);
        }
        session.now = 2_000_000;
        session.submit(server, early, &[common::busy(100_000)]);
        session.advance(50_000, 0);
        session.signal(client, frames, 1);
        session.advance(1_000_000, 0);
    });
    let mut page = Page::of(common::timeline_of(file.path()), "#axis=time");
    // What the lane shows of the time in which one command runs and the other stands behind it: owner and level.
    let shown = "(() => { const { painter, lanes, timeline } = gpupv.app, lane = lanes.list.find((one) => one.label === 'hardware queue'); \
                 const top = lane.y - painter.scroll + AXIS, packets = painter.hits.filter((one) => one.kind === 'packet' && one.y >= top && one.y < top + lane.height); \
                 return packets.map((one) => [lanes.timeline.packets.t0[one.row] - timeline.head.begin, Math.round((top + lane.height - 2 - one.y) / ROW)]); })()";
    page.is("gpupv.app.show(2060000, 2070000)");
    page.browser.drawn();
    assert_eq!(page.is(shown), json!([[2_000_000, 1], [1_001_000, 2]]), "in the middle of both");
    page.is("gpupv.app.show(2010000, 2020000)");
    page.browser.drawn();
    assert_eq!(page.is(shown), json!([[2_000_000, 1]]), "the first one alone");
    // Its depth is that of the engine's queue, on both axes: a context has one command there at a time.
    let rows = "gpupv.app.lanes.list.find((one) => one.label === 'hardware queue').stack.rows";
    assert_eq!(page.is(rows), json!(2));
    page.browser.press("x");
    page.browser.drawn();
    assert_eq!(page.is(rows), json!(2));
    page.no_errors();
}

/// The first step of a daemon has any time.
#[test]
fn ruler_has_round_times_since_the_first_step() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = common::Session::new(file.path());
    session.now = 484_567;
    session.vm(1, "red");
    let client = session.guest(1, 1, "client");
    session.advance(9_000_000, 0);
    session.fence(client, d3dkmt::SyncObjectFlags::empty());
    session.finish();
    let mut page = Page::of(common::timeline_of(file.path()), "#axis=time");
    page.browser.press("0");
    page.browser.drawn();
    let ticks = "(() => { const { painter, timeline } = gpupv.app, { paint } = painter, shown = []; \
                 paint.fillText = (text, x) => shown.push([text, painter.at(x - 3) - timeline.head.begin]); \
                 painter.ruler(); delete paint.fillText; return shown.filter(([text]) => / .?s$/.test(text)); })()";
    let ticks = page.is(ticks);
    let ticks = ticks.as_array().unwrap();
    assert!(ticks.len() > 4, "{ticks:?}");
    for tick in ticks {
        let (text, position) = (tick[0].as_str().unwrap(), tick[1].as_f64().unwrap());
        let (number, unit) = text.split_once(' ').unwrap();
        let unit = match unit {
            "ms" => 1e6,
            "us" => 1e3,
            "ns" => 1.0,
            other => panic!("{other}"),
        };
        let said = number.parse::<f64>().unwrap() * unit;
        assert!((said - position).abs() < 1.0, "{text} stands at {position} ns");
        assert!((position / 1e5 - (position / 1e5).round()).abs() < 1e-4, "{text} stands at {position} ns");
    }
    page.no_errors();
}

#[test]
fn part_of_a_trace_says_its_own_length() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::small(file.path());
    let options = timeline::Options { window: (30, 34), ..Default::default() };
    let mut page = Page::of(common::timeline_with(file.path(), &options), "");
    let (first, last) = (page.timeline.events[0].moment.at, page.timeline.events[4].moment.at);
    let length = timeline::duration(last - first);
    let meta = page.text("#meta");
    assert!(meta.starts_with(&format!("5 events in {length} of ")), "{meta}");
    page.no_errors();
}

#[test]
fn deep_queue_costs_what_is_drawn_of_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::deep(file.path(), 3_000);
    let mut page = Page::of(common::timeline_of(file.path()), "#axis=step");
    let packets = page.timeline.packets.len();
    assert!(packets > 3_000, "{packets}");
    page.is("gpupv.app.show(gpupv.app.timeline.packets.s0[2000], gpupv.app.timeline.packets.s0[2600])");
    page.browser.drawn();
    let [hits, examined] = ["hits.length", "examined"]
        .map(|what| page.is(&format!("gpupv.app.painter.{what}")).as_u64().unwrap());
    // Eight rows are drawn; a packet is looked at for each of them, in the context and in the hardware queue.
    assert!(
        examined < 20 * packets as u64 && hits < 9_000,
        "{examined} examined, {hits} drawn, of {packets}"
    );
    page.no_errors();
}

#[test]
fn dark_and_light_can_be_read() {
    let mut page = Page::small();
    for scheme in ["light", "dark"] {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        page.browser.order("Emulation.setEmulatedMedia", json!({ "features": feature }));
        page.browser.drawn();
        let ink = page.is("gpupv.app.painter.ink");
        let color = |name: &str| ink[name].as_str().unwrap().to_owned();
        let back = color("back");
        assert!(contrast(&color("front"), &back) >= 7.0, "{scheme}");
        assert!(contrast(&color("quiet"), &back) >= 4.5, "{scheme}");
        // Graphics need a contrast of 3 to 1; the text in a bar has the background's color.
        let link = page.is("getComputedStyle(document.documentElement).getPropertyValue('--link').trim()");
        assert!(contrast(link.as_str().unwrap(), &back) >= 4.5, "{scheme} link");
        assert!(contrast(&color("front"), &color("band")) >= 7.0, "{scheme} text of a button");
        for name in ["bad", "wait", "ladder"] {
            assert!(contrast(&color(name), &back) >= 4.5, "{scheme} {name}");
        }
        let tracks: Vec<String> = ink["tracks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|color| color.as_str().unwrap().to_owned())
            .collect();
        for (at, color) in tracks.iter().enumerate() {
            assert!(contrast(color, &back) >= 3.0, "{scheme} c{at}");
            // Readers who do not see red or green can distinguish neighboring colors.
            for blind in [DEUTERANOPE, PROTANOPE] {
                let next = &tracks[(at + 1) % tracks.len()];
                let distance = apart(simulate(color, blind), simulate(next, blind));
                assert!(distance > 0.3, "{scheme} c{at}: {distance}");
            }
        }
    }
    page.no_errors();
}

#[test]
fn long_trace_is_drawn_with_no_more_marks_than_pixels() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::long(file.path(), 60_000);
    let mut page = Page::of(common::timeline_of(file.path()), "");
    let lanes = page.is("gpupv.app.lanes.list.length").as_u64().unwrap();
    for key in ["0", "+", "+", "x", "+", "+", "+", "+", "+", "+", "+"] {
        page.browser.press(key);
        let hits = page.is("gpupv.app.painter.hits.length").as_u64().unwrap();
        assert!(hits < 9_000 * lanes.min(3), "{hits} marks in {lanes} lanes after {key}");
    }
    page.is("gpupv.app.step(30000)");
    page.browser.drawn();
    assert_eq!(page.is("gpupv.app.selected.seq"), json!(30_000));
    let view = page.view();
    assert!(view.1 - view.0 < 60.0, "a step that is gone to is shown among its neighbours: {view:?}");
    page.no_errors();
}

/// `#rrggbb` as linear light.
fn linear(color: &str) -> [f64; 3] {
    [1, 3, 5].map(|at| {
        let part = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

/// WCAG's contrast ratio.
fn contrast(one: &str, other: &str) -> f64 {
    let light = |color: &str| {
        let [red, green, blue] = linear(color);
        0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
    };
    let (one, other) = (light(one), light(other));
    one.max(other) / one.min(other)
}

/// Simulated color blindness of linear light, after Machado, Oliveira and Fernandes (2009), severity 1.
const DEUTERANOPE: [[f64; 3]; 3] =
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]];
const PROTANOPE: [[f64; 3]; 3] =
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]];

fn simulate(color: &str, by: [[f64; 3]; 3]) -> [f64; 3] {
    let light = linear(color);
    // The exponent makes steps perceptually even.
    by.map(|row| (0..3).map(|at| row[at] * light[at]).sum::<f64>().clamp(0.0, 1.0).powf(1.0 / 2.2))
}

fn apart(one: [f64; 3], other: [f64; 3]) -> f64 {
    (0..3).map(|at| (one[at] - other[at]).powi(2)).sum::<f64>().sqrt()
}
