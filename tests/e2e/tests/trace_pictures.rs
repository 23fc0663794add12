//! `gpupv trace show`, `stats`, `export` and `diff`, on a trace of real programs.

use std::path::Path;
use std::process::Output;

use e2e::embedded::Embedded;
use e2e::programs::gpupv;
use gpupv::daemon::Options;
use serde_json::Value;

fn trace_command(arguments: &[&str], traces: &[&Path]) -> Output {
    let mut command = gpupv(&["trace", arguments[0]]);
    command.args(traces).args(&arguments[1..]).output().expect("gpupv starts")
}

fn text_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records `fence_tour` twice; the second time with another program after it.
fn record(folder: &Path) -> [std::path::PathBuf; 2] {
    [("one.gvt", 1), ("two.gvt", 2)].map(|(name, programs)| {
        let trace = folder.join(name);
        let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
        for program in ["fence_tour", "threads"].iter().take(programs) {
            assert!(daemon.run(program, &[]).status.success(), "{program}");
            daemon.wait_until_forgotten();
        }
        daemon.stop();
        trace
    })
}

#[test]
fn recorded_programs_are_shown_counted_drawn_and_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, two] = record(folder.path());

    let lanes = text_of(&trace_command(&["show", "--last", "1000"], &[&one]));
    assert!(lanes.contains("p1 fence_tour") && lanes.contains("CreateDevice"), "{lanes}");
    let around = text_of(&trace_command(&["show", "--around", "3", "--steps", "1"], &[&one]));
    assert!(around.contains("#2 ") && around.contains("#4 ") && !around.contains("#5 "), "{around}");
    let full = text_of(&trace_command(&["show", "--fence", "F0", "--full"], &[&one]));
    assert!(full.contains("CreateSynchronizationObject") || full.contains("store p1 slot"), "{full}");
    assert!(text_of(&trace_command(&["show", "--process", "p1"], &[&one])).contains("p1 fence_tour"));
    let messages = text_of(&trace_command(&["show", "--last", "1000", "--vmbus"], &[&one]));
    for shown in
        ["VM_TO_HOST    CREATEPROCESS (1000)", "SIGNALSYNCOBJECT (26)", "HOST_TO_VM    SIGNALGUESTEVENT (0)"]
    {
        assert!(messages.contains(shown), "{shown}: {messages}");
    }
    let around = text_of(&trace_command(&["show", "--around", "3", "--steps", "1", "--vmbus"], &[&one]));
    assert!(around.contains("#2 ") && around.contains("#4 ") && !around.contains("#5 "), "{around}");
    let both =
        text_of(&trace_command(&["show", "--fence", "F0", "--full", "--vmbus", "--width", "110"], &[&one]));
    assert!(both.contains(" ns p1 #") && both.contains("CREATESYNCOBJECT (8)"), "{both}");

    let stats: Value =
        serde_json::from_str(&text_of(&trace_command(&["stats", "--json"], &[&one]))).expect("JSON");
    assert_eq!(stats["ended"], true);
    assert_eq!(stats["inputs"]["process attached"], 1);
    assert!(stats["calls"]["SignalFromCpu"]["count"].as_u64().is_some_and(|count| count > 0), "{stats}");
    assert!(text_of(&trace_command(&["stats"], &[&one])).contains("busiest fences"));

    text_of(&trace_command(&["export"], &[&one]));
    let page = std::fs::read_to_string(one.with_extension("html")).expect("it was written");
    assert!(page.starts_with("<!doctype html>"), "{page:.80}");
    let again = complaint(&trace_command(&["export"], &[&one]));
    assert!(again.contains("exists") && again.contains("--output"), "{again}");
    let output = trace_command(&["export", "--format", "pftrace", "--output", "-"], &[&one]);
    assert!(output.status.success() && output.stdout.len() > 1000);

    let same = trace_command(&["diff"], &[&one, &one]);
    assert!(text_of(&same).starts_with("the same, whatever their times"));
    let other = trace_command(&["diff", "--json"], &[&one, &two]);
    assert_eq!(other.status.code(), Some(1));
    let other: Value = serde_json::from_slice(&other.stdout).expect("JSON");
    assert_eq!(other["same"], false);
    assert!(other["only_b"][0].as_str().is_some_and(|name| name.starts_with("host/threads")), "{other}");
}

#[test]
fn an_object_missing_from_a_trace_is_reported_with_those_present() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, _] = record(folder.path());
    for (arguments, says) in [
        (&["show", "--fence", "F9999"][..], "it has F0 to F"),
        (&["show", "--fence", "what"], "write it like F3"),
        (&["show", "--fence", "p1:0x7"], "no synchronization object"),
        (&["show", "--wait", "p1"], "such as p2:17"),
        (&["show", "--wait", "p77:1"], "no step matches"),
        (&["show", "--around", "1", "--last", "2"], "cannot be used with"),
        (&["show", "--vmbus", "--around", "1", "--last", "2"], "cannot be used with"),
        (&["show", "--vmbus=yes"], "unexpected value"),
        (&["show", "--vm-bus"], "--vmbus"),
        (&["show", "--vmbus", "--wait", "p77:1"], "no step matches"),
        (&["export", "--from", "9", "--to", "3"], "no step is between them"),
        (&["export", "--format", "svg"], "possible values: html, pftrace"),
    ] {
        let error = complaint(&trace_command(arguments, &[&one]));
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let text = folder.path().join("text.gvt");
    std::fs::write(&text, "no trace at all").expect("it can be written");
    for command in ["show", "stats", "export"] {
        let error = complaint(&trace_command(&[command], &[&text]));
        assert!(error.contains("is not a trace"), "{command}: {error}");
    }
    let output = folder.path().join("no such folder").join("a.html");
    let mut export = gpupv(&["trace", "export", "--output"]);
    let error = complaint(&export.arg(&output).arg(&one).output().expect("gpupv starts"));
    assert!(error.contains("cannot write"), "{error}");
}

#[test]
fn a_damaged_trace_is_drawn_up_to_the_reported_damage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, _] = record(folder.path());
    let mut bytes = std::fs::read(&one).expect("it was recorded");
    let place = bytes.len() * 2 / 3;
    bytes[place] ^= 0x10;
    let damaged = folder.path().join("damaged.gvt");
    std::fs::write(&damaged, bytes).expect("it can be written");
    let output = trace_command(&["stats"], &[&damaged]);
    let words =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("only up to step #"), "{words}");
}
