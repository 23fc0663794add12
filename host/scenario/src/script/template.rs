//! The template of `gpupv scenario new`.

use crate::script::print::quoted;

/// Returns a template of a scenario: it passes on every backend and explains its lines.
pub fn template(title: &str) -> String {
    let title = if title.trim().is_empty() { "one process waits for another" } else { title };
    format!("scenario {}\n{BODY}", quoted(title))
}

const BODY: &str = r#"
# One step a line: the actor, what it does, what must come of it. docs/SCENARIOS.md has every word.
# `gpupv scenario check FILE` reads the file, `gpupv scenario run FILE` runs it.

# The rules that the file is about, by their ids in the reference:
covers FEN-030

# A guest process in a VM, another beside it, and a second thread of the first. Names are yours.
vm A
process p in A
process q in A
thread t in p

# A device and a monitored fence of p; q opens the same fence. A handle is what stands before `=`.
p  D = device             -> ok
p  F = fence D shared     -> ok
p  N = share F            -> ok
q  E = device             -> ok
q  G = open E N           -> ok

# A call that does not return for now `blocks`: it has a name, its thread takes no step until it is back.
t  W = wait D F>=5        -> blocks
q  signal E G=4           -> ok
expect W blocked

# The value is there: the wait is over, and both processes read it from their own memory.
q  signal E G=5           -> ok
expect W returned ok
expect F = 5
expect G = 5

# What is refused says so. A signal does not go back without `rewind`.
q  signal E G=3           -> INVALID_PARAMETER
"#;
