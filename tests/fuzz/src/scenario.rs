//! Scenario files: what parses is printed as text that parses to the same, and short ones run on the model.

use scenario::explore::{self, ModelBackend};
use scenario::script::{parse_bytes, print};

/// Longer programs, or more of them, are parsed only: a file may have 10,000 cases.
const STEPS_MAX: usize = 60;
const PROGRAMS_MAX: usize = 4;

/// One input: a file.
pub fn scenario(data: &[u8]) {
    let programs = match parse_bytes(data) {
        Ok(programs) => programs,
        Err(errors) => {
            assert!(!errors.is_empty(), "a file is refused without a reason");
            return errors.iter().for_each(|error| assert!(!error.to_string().is_empty()));
        }
    };
    for program in programs.iter().take(PROGRAMS_MAX) {
        let printed = print(program);
        match parse_bytes(printed.as_bytes()).as_deref() {
            Ok([again]) => assert_eq!(print(again), printed),
            Ok(several) => panic!("{} programs are printed as one:\n{printed}", several.len()),
            Err(errors) => panic!("what is printed does not parse: {errors:?}\n{printed}"),
        }
        if program.steps.len() <= STEPS_MAX {
            let ended =
                explore::run_once(&ModelBackend::default(), program, None, 1, &mut explore::chooser(1));
            if let Some(failure) = explore::failure(&ended) {
                assert!(!failure.what.starts_with("panic"), "{}\n{printed}", failure.what);
            }
        }
    }
}
