//! A scenario or a trace may name a driver in C. Its code runs then, in the sandbox of drivers: it changes no file.

mod common;

use common::{driver, passes_in_the_model, program, record};
use e2e::programs::gpupv;
use scenario::model::ModelWorld;
use scenario::world::World as _;

/// Its driver wants to change a file as soon as it is loaded.
const TEXT: &str = r#"
scenario "a driver that writes files"
config adapter 0 kmd="DRIVER"
process p
process q
p  D = device       -> ok
p  F = fence D      -> ok
q  E = device       -> ok
q  G = fence E      -> ok
"#;

#[test]
fn a_driver_that_a_scenario_or_a_trace_names_changes_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "mine").expect("it is written");
    let path = format!("-DVICTIM=\"{}\"", victim.display());
    let driver = driver("hostile", "writes", &["-DDOES=13", &path]);
    let path_text = driver.to_str().expect("the path is text");
    let scenario = folder.path().join("s.scn");
    std::fs::write(&scenario, TEXT.replace("DRIVER", path_text)).expect("it is written");
    let trace = folder.path().join("t.gvt");
    let program = program(TEXT, &driver);
    let mut world = passes_in_the_model(&program, ModelWorld::new(&program, None).recording());
    let digest = world.snapshot().digest();
    record(&program, world.steps(), digest, &trace);

    for (arguments, file) in [
        (&["scenario", "check"][..], &scenario),
        (&["scenario", "run"], &scenario),
        (&["scenario", "explore", "--seeds", "0..2"], &scenario),
        (&["trace", "reorder", "--orders", "2"], &trace),
        (&["trace", "shrink", "--keep", "note=driver"], &trace),
    ] {
        let output = gpupv(arguments).arg(file).output().expect("gpupv starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("lacks landlock") {
            return eprintln!("skipped: {said}");
        }
        println!("{arguments:?}: {:?} {said}", output.status.code());
        assert_eq!(std::fs::read_to_string(&victim).ok().as_deref(), Some("mine"), "{arguments:?}: {said}");
        assert!(!folder.path().join("victim.made").exists(), "{arguments:?}: {said}");
    }
}
