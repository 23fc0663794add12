//! The template of `gpupv scenario new`.

use crate::script::print::quoted;

/// Returns a template of a scenario: it passes on every backend and explains its lines.
pub fn template(title: &str) -> String {
    let title = if title.trim().is_empty() { "one process waits for another" } else { title };
    format!("scenario {}\n{BODY}", quoted(title))
}

const BODY: &str = r#"
# One step per line: the actor, its action, the expected result. docs/SCENARIOS.md explains every word.
# `gpupv scenario check FILE` checks the file, `gpupv scenario run FILE` runs it.

# The rules that the file tests, by their ids in the reference:
covers FEN-030

# Two guest processes in one VM, and a second thread of the first. You choose the names.
vm A
process p in A
process q in A
thread t in p

# A device and a monitored fence of p; q opens the same fence. The name before `=` stands for the handle.
p  D = device             -> ok
p  F = fence D shared     -> ok
p  N = share F            -> ok
q  E = device             -> ok
q  G = open E N           -> ok

# A call that does not return yet `blocks`: it needs a name, and its thread takes no step until it returns.
t  W = wait D F>=5        -> blocks
q  signal E G=4           -> ok
expect W blocked

# The fence reaches the value: the wait ends, and both processes read the value from their own memory.
q  signal E G=5           -> ok
expect W returned ok
expect F = 5
expect G = 5

# A refused call has an error status. A signal cannot lower the fence without `rewind`.
q  signal E G=3           -> INVALID_PARAMETER
"#;
