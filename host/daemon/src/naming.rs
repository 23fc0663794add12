//! Parses what people write on the command line: times, names of processes and of VMs.

use dxgkrnl::{Nanos, duration};

/// The most processes that an error lists.
const LISTED_MAX: usize = 16;

/// Parses a length of time with its unit.
pub fn length_of_time(text: &str) -> Result<Nanos, String> {
    duration::parse(text).ok_or_else(|| format!("a time is a number and a unit: {}", duration::FORMS))
}

/// What is named: the word for one, for several, and what stands before a number.
struct Naming {
    one: &'static str,
    several: &'static str,
    prefix: &'static str,
    /// What an error says of the ones that are searched.
    place: &'static str,
}

const PROCESSES: Naming = Naming { one: "process", several: "processes", prefix: "p", place: "is attached" };

/// Finds the process with this number (`2` or `p2`), or the only one with this name, among the attached ones (number and
/// name).
pub fn process_named<'a>(
    wanted_name: &str,
    attached: impl Iterator<Item = (u32, &'a str)> + Clone,
) -> Result<u32, String> {
    named(&PROCESSES, wanted_name, attached)
}

/// The same among the processes of a trace.
pub fn recorded_process_named<'a>(
    wanted_name: &str,
    recorded: impl Iterator<Item = (u32, &'a str)> + Clone,
) -> Result<u32, String> {
    named(&Naming { place: "is in the trace", ..PROCESSES }, wanted_name, recorded)
}

/// The same for a VM.
pub fn vm_named<'a>(
    wanted_name: &str,
    attached: impl Iterator<Item = (u32, &'a str)> + Clone,
) -> Result<u32, String> {
    let vms = Naming { one: "VM", several: "VMs", prefix: "", place: "is attached" };
    named(&vms, wanted_name, attached)
}

fn named<'a>(
    Naming { one, several, prefix, place }: &Naming,
    wanted_name: &str,
    attached: impl Iterator<Item = (u32, &'a str)> + Clone,
) -> Result<u32, String> {
    let is_number = |number: u32| {
        let digits = wanted_name.strip_prefix(prefix).unwrap_or(wanted_name);
        digits == number.to_string()
    };
    let is_wanted = |(number, name): &(u32, &str)| *name == wanted_name || is_number(*number);
    let found: Vec<(u32, &str)> = attached.clone().filter(is_wanted).collect();
    let listed = |all: &mut dyn Iterator<Item = (u32, &'a str)>| {
        let mut listed: Vec<String> =
            all.take(LISTED_MAX + 1).map(|(number, name)| format!("{prefix}{number} {name:?}")).collect();
        if listed.len() > LISTED_MAX {
            listed[LISTED_MAX] = "..".into();
        }
        if listed.is_empty() { "none".into() } else { listed.join(", ") }
    };
    match found[..] {
        [(number, _)] => Ok(number),
        [] => {
            let all = listed(&mut attached.clone());
            Err(format!("no {one} {wanted_name:?} {place}: there are {all}"))
        }
        _ => {
            let count = found.len();
            let choices = listed(&mut found.into_iter());
            Err(format!("{count} {several} are named {wanted_name:?}: say which by its number, of {choices}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_number_and_by_a_unique_name() {
        let attached = [(1, "game"), (2, "game"), (3, "7"), (7, "recorder")];
        let named = |wanted| process_named(wanted, attached.into_iter());
        assert_eq!((named("recorder"), named("2"), named("p2")), (Ok(7), Ok(2), Ok(2)));
        assert!(named("7").unwrap_err().starts_with("2 processes are named \"7\""));
        assert_eq!(
            named("game").unwrap_err(),
            "2 processes are named \"game\": say which by its number, of p1 \"game\", p2 \"game\""
        );
        assert!(
            named("nobody")
                .unwrap_err()
                .ends_with("there are p1 \"game\", p2 \"game\", p3 \"7\", p7 \"recorder\"")
        );
        let many: Vec<(u32, &str)> = (0..100).map(|number| (number, "many")).collect();
        let error = process_named("many", many.into_iter()).unwrap_err();
        assert!(error.ends_with("p15 \"many\", .."), "{error}");
        assert!(process_named("x", std::iter::empty()).unwrap_err().ends_with("there are none"));
        let error = recorded_process_named("p9", attached.into_iter()).unwrap_err();
        assert!(error.starts_with("no process \"p9\" is in the trace: there are p1 \"game\", "), "{error}");
    }

    #[test]
    fn vms_are_found_likewise() {
        let attached = [(1, "red"), (2, "blue"), (3, "blue")];
        let named = |wanted| vm_named(wanted, attached.into_iter());
        assert_eq!((named("red"), named("2")), (Ok(1), Ok(2)));
        let error = named("blue").unwrap_err();
        assert_eq!(error, "2 VMs are named \"blue\": say which by its number, of 2 \"blue\", 3 \"blue\"");
        let error = named("green").unwrap_err();
        assert!(error.starts_with("no VM \"green\" is attached: there are 1 \"red\", "), "{error}");
    }
}
