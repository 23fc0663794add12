//! Names of one case, and the state of each thread while the file is parsed.

use std::collections::{BTreeMap, BTreeSet};

use d3dkmt::SignalFlags;
use dxgkrnl::HOST_NAME;

use crate::limits::NAME_CHARACTERS_MAX;
use crate::program::{
    Binding, Kind, Named, Process, ProcessInfo, Program, Thread, ThreadInfo, Vm, fence_name,
};
use crate::script::error::{ScriptError, shortened, suggestion};
use crate::script::token::{Token, TokenKind};
use crate::script::verbs::{STATEMENTS, VERBS};
use crate::script::words::flag_names;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    Vm(Vm),
    Process(Process),
    Thread(Thread),
    Binding(Binding),
}

impl Meaning {
    pub fn what(self, program: &Program) -> &'static str {
        match self {
            Meaning::Vm(_) => "a VM",
            Meaning::Process(_) => "a process",
            Meaning::Thread(_) => "a thread",
            Meaning::Binding(binding) => program.bindings[binding.index()].kind.name(),
        }
    }
}

/// Reason why a thread takes no steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    In { call: Binding, line: u32 },
}

/// The owner of the adapters that a text names, for errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OwnerOfAdapters {
    #[default]
    Scenario,
    /// A running daemon: `gpupv inject` passes a fault, and no scenario.
    Daemon,
}

/// The parser's state of one case.
#[derive(Default)]
pub(crate) struct Names {
    pub program: Program,
    pub owner_of_adapters: OwnerOfAdapters,
    names: BTreeMap<String, (Meaning, u32)>,
    blocked: BTreeMap<Thread, Blocked>,
    /// Processes that have ended, with the line and the reason.
    ended: BTreeMap<Process, (u32, &'static str)>,
    frozen: BTreeMap<Process, u32>,
    held: BTreeMap<Process, u32>,
    paused: BTreeMap<Vm, u32>,
    /// VMs that have crashed, with the line.
    crashed: BTreeMap<Vm, u32>,
    /// Names declared by lines with errors: their uses are no further errors.
    failed: BTreeSet<String>,
}

/// Words of the language that occur where names do.
const RESERVED: [&str; 26] = [
    "null",
    "max",
    "ok",
    "on",
    "in",
    "any",
    "when",
    "blocks",
    "anything",
    "flags",
    "rewind",
    "write",
    "marker_in",
    "marker_out",
    "busy",
    "hang",
    "opaque",
    "u32",
    "engine",
    "report",
    "no",
    "messages",
    "wakes",
    "waits",
    "nothing",
    "legacy",
];

/// Whether the language uses this text as a word, so that nothing can have it as a name.
fn is_word(text: &str) -> bool {
    RESERVED.contains(&text)
        || flag_names::<SignalFlags>().contains(&text)
        || STATEMENTS.iter().chain(VERBS.iter()).any(|word| word.name == text)
}

fn has_legal_letters(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && !text.contains(['^', '$', '.'])
}

/// Whether a scenario can declare this name, of letters, digits and `_`.
pub(crate) fn is_legal_name(text: &str) -> bool {
    has_legal_letters(text)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.len() <= NAME_CHARACTERS_MAX
        && !is_word(text)
}

impl Names {
    /// Checks that a name is new and legal.
    fn check_new(&self, token: &Token) -> Result<(), ScriptError> {
        let text = &token.text;
        if !has_legal_letters(text) {
            let message = format!("`{}` cannot be a name", shortened(text));
            return Err(ScriptError::new(token.span, message)
                .help("names begin with a letter, as F, D0 or gpu_fence"));
        }
        let length = text.chars().count();
        if length > NAME_CHARACTERS_MAX {
            let message = format!("the name has {length} characters, the limit is {NAME_CHARACTERS_MAX}");
            return Err(ScriptError::new(token.span, message));
        }
        if is_word(text) {
            return Err(ScriptError::new(
                token.span,
                format!("`{text}` is a word of the language, not a name"),
            ));
        }
        match self.names.get(text) {
            None => Ok(()),
            Some((meaning, line)) => {
                let what = meaning.what(&self.program);
                let message = format!("the name {text} is taken: {what} of line {line} has it");
                Err(ScriptError::new(token.span, message).help("every name is given once"))
            }
        }
    }

    pub fn add_vm(&mut self, token: &Token) -> Result<Vm, ScriptError> {
        self.check_new(token)?;
        if token.text == HOST_NAME {
            let error = ScriptError::new(token.span, "`host` is the host itself, and names no VM");
            return Err(error.help("give the VM another name"));
        }
        let vm = Vm(self.program.vms.len() as u32);
        self.program.vms.push(token.text.clone());
        self.names.insert(token.text.clone(), (Meaning::Vm(vm), token.span.line));
        Ok(vm)
    }

    pub fn add_process(&mut self, token: &Token, vm: Option<Vm>) -> Result<Process, ScriptError> {
        self.check_new(token)?;
        let process = Process(self.program.processes.len() as u32);
        let main = self.push_thread(&token.text, process);
        self.program.processes.push(ProcessInfo { name: token.text.clone(), vm, main });
        self.names.insert(token.text.clone(), (Meaning::Process(process), token.span.line));
        Ok(process)
    }

    fn push_thread(&mut self, name: &str, process: Process) -> Thread {
        let thread = Thread(self.program.threads.len() as u32);
        self.program.threads.push(ThreadInfo { name: name.into(), process });
        thread
    }

    pub fn add_thread(&mut self, token: &Token, process: Process) -> Result<Thread, ScriptError> {
        self.check_new(token)?;
        let thread = self.push_thread(&token.text, process);
        self.names.insert(token.text.clone(), (Meaning::Thread(thread), token.span.line));
        Ok(thread)
    }

    pub fn add_binding(&mut self, token: &Token, kind: Kind, thread: Thread) -> Result<Binding, ScriptError> {
        self.check_new(token)?;
        let binding = Binding(self.program.bindings.len() as u32);
        self.program.bindings.push(Named { name: token.text.clone(), kind, thread });
        self.names.insert(token.text.clone(), (Meaning::Binding(binding), token.span.line));
        if kind.has_fence() {
            let (name, fence) = (fence_name(&token.text), Binding(binding.0 + 1));
            self.program.bindings.push(Named { name: name.clone(), kind: Kind::Object, thread });
            self.names.insert(name, (Meaning::Binding(fence), token.span.line));
        }
        Ok(binding)
    }

    /// Returns the names whose meaning `accepts` takes, for suggestions.
    fn accepted_names(&self, accepts: impl Fn(Meaning) -> bool) -> Vec<&str> {
        self.names
            .iter()
            .filter(|(_, (meaning, _))| accepts(*meaning))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    pub fn look_up(&self, name: &str) -> Option<Meaning> {
        self.names.get(name).map(|(meaning, _)| *meaning)
    }

    fn unknown(&self, token: &Token, what: &str, accepts: impl Fn(Meaning) -> bool) -> ScriptError {
        let (message, known) = match self.look_up(&token.text) {
            Some(meaning) => (
                format!("{} is {}, not {what}", token.text, meaning.what(&self.program)),
                self.accepted_names(accepts),
            ),
            None if token.kind == TokenKind::Atom => (
                format!("there is no {} here", quoted(what, &shortened(&token.text))),
                self.accepted_names(accepts),
            ),
            None => (format!("expected the name of {what}"), self.accepted_names(accepts)),
        };
        ScriptError::new(token.span, message).help(suggestion(&token.text, known))
    }

    /// Returns the VM of this name, which has not crashed.
    pub fn vm(&self, token: &Token) -> Result<Vm, ScriptError> {
        match self.look_up(&token.text) {
            Some(Meaning::Vm(vm)) => match self.crashed.get(&vm) {
                Some(line) => {
                    Err(ScriptError::new(token.span, format!("VM {} crashed in line {line}", token.text)))
                }
                None => Ok(vm),
            },
            _ => Err(self.unknown(token, "a VM", |meaning| matches!(meaning, Meaning::Vm(_)))),
        }
    }

    /// Refuses a setting of a VM that the file does not have. `host` is the host itself.
    pub fn check_vm_of_setting(&self, token: &Token) -> Result<(), ScriptError> {
        if token.text == HOST_NAME || self.program.vms.contains(&token.text) {
            return Ok(());
        }
        Err(self.unknown(token, "a VM", |meaning| matches!(meaning, Meaning::Vm(_))))
    }

    pub fn process(&self, token: &Token) -> Result<Process, ScriptError> {
        match self.look_up(&token.text) {
            Some(Meaning::Process(process)) => Ok(process),
            _ => Err(self.unknown(token, "a process", |meaning| matches!(meaning, Meaning::Process(_)))),
        }
    }

    /// Returns the thread of this name; a process's name is its first thread.
    pub fn thread(&self, token: &Token) -> Option<Thread> {
        match self.look_up(&token.text)? {
            Meaning::Process(process) => Some(self.program.processes[process.index()].main),
            Meaning::Thread(thread) => Some(thread),
            Meaning::Vm(_) | Meaning::Binding(_) => None,
        }
    }

    /// Returns the command list of this name, for lines that record into it.
    pub fn list(&self, token: &Token) -> Option<Binding> {
        match self.look_up(&token.text)? {
            Meaning::Binding(binding) if self.kind(binding) == Kind::List => Some(binding),
            _ => None,
        }
    }

    pub fn actors(&self) -> Vec<&str> {
        self.accepted_names(|meaning| matches!(meaning, Meaning::Process(_) | Meaning::Thread(_)))
    }

    /// Returns the binding of a name whose kind `fits`.
    pub fn binding(
        &self,
        token: &Token,
        what: &str,
        fits: impl Fn(Kind) -> bool,
    ) -> Result<Binding, ScriptError> {
        let is_fit = |meaning| match meaning {
            Meaning::Binding(binding) => fits(self.program.bindings[binding.index()].kind),
            Meaning::Vm(_) | Meaning::Process(_) | Meaning::Thread(_) => false,
        };
        match self.look_up(&token.text) {
            Some(meaning @ Meaning::Binding(binding)) if is_fit(meaning) => Ok(binding),
            _ => Err(self.unknown(token, what, is_fit)),
        }
    }

    /// Checks that a binding belongs to the thread's process: its event, its fence memory.
    pub fn check_own(&self, binding: Binding, thread: Thread, token: &Token) -> Result<(), ScriptError> {
        let (owner, process) = (self.program.owner(binding), self.program.process_of(thread));
        if owner == process {
            return Ok(());
        }
        let of = |process: Process| &self.program.processes[process.index()].name;
        let what = self.kind(binding).name();
        let message = format!("{} is {what} of {}: {} cannot use it", token.text, of(owner), of(process));
        Err(ScriptError::new(token.span, message))
    }

    pub fn kind(&self, binding: Binding) -> Kind {
        self.program.bindings[binding.index()].kind
    }

    /// Checks that a thread can take a step.
    pub fn check_able(&self, thread: Thread, token: &Token) -> Result<(), ScriptError> {
        self.check_alive(self.program.process_of(thread), token)?;
        if let Some(Blocked::In { call, line }) = self.blocked.get(&thread) {
            let name = self.program.name(*call);
            let message = format!("{} is in the call {name} since line {line}", token.text);
            let help = format!("let another thread do this, or `expect {name} returned ..` first");
            return Err(ScriptError::new(token.span, message).help(help));
        }
        if let Some(line) = self.frozen.get(&self.program.process_of(thread)) {
            let message = format!("{} is frozen since line {line}", token.text);
            return Err(ScriptError::new(token.span, message).help("thaw its process first"));
        }
        self.check_runs(self.program.processes[self.program.process_of(thread).index()].vm, token)
    }

    /// Checks that a VM, if it is one, is not paused.
    pub fn check_runs(&self, vm: Option<Vm>, token: &Token) -> Result<(), ScriptError> {
        if let Some((vm, line)) = vm.and_then(|vm| Some((vm, self.paused.get(&vm)?))) {
            let name = &self.program.vms[vm.index()];
            let message = format!("the VM of {}, {name}, is paused since line {line}", token.text);
            return Err(ScriptError::new(token.span, message).help("resume the VM first"));
        }
        Ok(())
    }

    pub fn check_alive(&self, process: Process, token: &Token) -> Result<(), ScriptError> {
        match self.ended.get(&process) {
            None => Ok(()),
            Some((line, how)) => {
                let name = &self.program.processes[process.index()].name;
                Err(ScriptError::new(token.span, format!("process {name} {how} in line {line}")))
            }
        }
    }

    pub fn block(&mut self, thread: Thread, call: Binding, line: u32) {
        self.blocked.insert(thread, Blocked::In { call, line });
    }

    pub fn returned(&mut self, call: Binding) {
        self.blocked.retain(|_, Blocked::In { call: other, .. }| *other != call);
    }

    pub fn end(&mut self, process: Process, line: u32, how: &'static str) {
        self.ended.entry(process).or_insert((line, how));
        self.frozen.remove(&process);
        self.held.remove(&process);
        let of_process: Vec<Thread> = self
            .blocked
            .keys()
            .copied()
            .filter(|thread| self.program.process_of(*thread) == process)
            .collect();
        for thread in of_process {
            self.blocked.remove(&thread);
        }
    }

    pub fn freeze(&mut self, process: Process, token: &Token) -> Result<(), ScriptError> {
        begin(&mut self.frozen, process, token, "frozen")
    }

    pub fn thaw(&mut self, process: Process, token: &Token) -> Result<(), ScriptError> {
        finish(&mut self.frozen, process, token, "frozen")
    }

    pub fn hold(&mut self, process: Process, token: &Token) -> Result<(), ScriptError> {
        begin(&mut self.held, process, token, "held")
    }

    pub fn release(&mut self, process: Process, token: &Token) -> Result<(), ScriptError> {
        finish(&mut self.held, process, token, "held")
    }

    pub fn pause(&mut self, vm: Vm, token: &Token) -> Result<(), ScriptError> {
        begin(&mut self.paused, vm, token, "paused")
    }

    pub fn resume(&mut self, vm: Vm, token: &Token) -> Result<(), ScriptError> {
        finish(&mut self.paused, vm, token, "paused")
    }

    /// Checks that no VM is paused, because a new daemon does not know of it.
    pub fn check_all_run(&self, token: &Token) -> Result<(), ScriptError> {
        match self.paused.iter().next() {
            None => Ok(()),
            Some((vm, line)) => {
                let message = format!("{} is paused since line {line}", self.program.vms[vm.index()]);
                Err(ScriptError::new(token.span, message)
                    .help("a new daemon would not know: resume it first"))
            }
        }
    }

    pub fn crash(&mut self, vm: Vm, token: &Token) -> Result<(), ScriptError> {
        self.paused.remove(&vm);
        self.crashed.insert(vm, token.span.line);
        Ok(())
    }

    /// Marks the names that a line with errors would have declared, so that they cause no further errors.
    pub fn line_failed(&mut self, tokens: &[Token]) {
        let pairs = tokens.windows(2).filter_map(|pair| match pair {
            [first, name] if ["vm", "process", "thread"].contains(&first.text.as_str()) => Some(name),
            [name, equals] if equals.is_symbol("=") => Some(name),
            _ => None,
        });
        self.failed.extend(pairs.map(|name| name.text.clone()));
    }

    /// Whether an error follows from a name whose line had errors.
    pub fn follows(&self, error: &ScriptError, tokens: &[Token]) -> bool {
        let at_fault = tokens.iter().find(|token| token.span == error.span);
        at_fault.is_some_and(|token| self.failed.contains(&token.text) && self.look_up(&token.text).is_none())
    }

    pub fn is_frozen(&self, process: Process) -> bool {
        self.frozen.contains_key(&process)
    }
}

/// The line since which something is in a state.
type Since<T> = BTreeMap<T, u32>;

fn begin<T: Ord>(since: &mut Since<T>, of: T, token: &Token, what: &str) -> Result<(), ScriptError> {
    match since.insert(of, token.span.line) {
        None => Ok(()),
        Some(line) => {
            let message = format!("{} is {what} since line {line}", token.text);
            Err(ScriptError::new(token.span, message))
        }
    }
}

fn finish<T: Ord>(since: &mut Since<T>, of: T, token: &Token, what: &str) -> Result<(), ScriptError> {
    match since.remove(&of) {
        Some(_) => Ok(()),
        None => Err(ScriptError::new(token.span, format!("{} is not {what}", token.text))),
    }
}

/// Returns text like "process named q".
fn quoted(what: &str, name: &str) -> String {
    let bare = what.strip_prefix("a ").or_else(|| what.strip_prefix("an ")).unwrap_or(what);
    format!("{bare} named {name}")
}

#[cfg(test)]
mod tests {
    use dxgkrnl::{Config, Effects, Input, ProcessId, VmId};

    use super::*;
    use crate::from_trace;
    use crate::script::{parse, print};

    /// A recording may have processes and VMs of any name; its scenario has to be read again.
    #[test]
    fn a_recorded_name_that_is_a_word_of_the_language_becomes_another() {
        let words = STATEMENTS.iter().chain(VERBS.iter()).map(|word| word.name);
        let words: Vec<&str> = words.chain(RESERVED).chain(flag_names::<SignalFlags>()).collect();
        let long = "x".repeat(NAME_CHARACTERS_MAX + 1);
        for word in words.into_iter().chain([long.as_str(), "9", "a b", "a.b", "D0", "", "p"]) {
            let inputs = [
                Input::VmAttached { vm: VmId(1), name: word.into() },
                Input::ProcessAttached { process: ProcessId(1), vm: VmId(1), pid: 1, name: word.into() },
                Input::ProcessAttached { process: ProcessId(2), vm: VmId(1), pid: 2, name: word.into() },
            ];
            let effects = Effects::default();
            let steps = inputs.iter().map(|input| (0, input, &effects));
            let converted = from_trace::program("x", &Config::default(), steps);
            let text = print(&converted.program);
            assert!(converted.omitted.is_empty(), "{word}: {text}");
            let read =
                parse(&text).unwrap_or_else(|errors| panic!("{word}: {}", errors[0].render("x", &text)));
            assert_eq!((read[0].vms.len(), read[0].processes.len()), (1, 2), "{word}: {text}");
        }
    }
}
