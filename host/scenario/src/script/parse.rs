//! Parses a file, line by line.

use std::collections::BTreeMap;

use crate::limits::{ERRORS_SHOWN_MAX, FILE_BYTES_MAX, PROCESSES_MAX, STEPS_MAX, TIME_MAX_NS, WORDS_MAX};
use crate::program::{Action, Program, Step};
use crate::script::acts::{ActContext as ActPlace, act};
use crate::script::cursor::{Cursor, Parsed};
use crate::script::error::{ScriptError, Span, nearest, shortened};
use crate::script::expects::{expectation, fault};
use crate::script::lists::list_command;
use crate::script::matrix::{Case, Line, Matrix};
use crate::script::names::{Meaning, Names};
use crate::script::race::RaceState;
use crate::script::token::{Token, TokenKind, tokens};
use crate::script::verbs::{STATEMENTS, VERBS};
use crate::script::words;

/// Parses the bytes of a file: returns a program for each case of its matrix, or all its errors.
pub fn parse_bytes(bytes: &[u8]) -> Result<Vec<Program>, Vec<ScriptError>> {
    let start = Span { line: 1, column: 1, width: 1 };
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes, the limit is {FILE_BYTES_MAX}", bytes.len());
        return Err(vec![
            ScriptError::new(start, message).help("scenarios are small texts: is it the right file?"),
        ]);
    }
    let not_text = |at: usize| {
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
        let begin = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let column = String::from_utf8_lossy(&bytes[begin..at]).chars().count() as u32 + 1;
        let message = format!("byte {at} is not text: a scenario is UTF-8 text");
        let help = match bytes {
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => "this is UTF-16: save it as UTF-8",
            _ => "is it the right file?",
        };
        vec![ScriptError::new(Span { line, column, width: 1 }, message).help(help)]
    };
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(error.valid_up_to()))?;
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => Err(not_text(at)),
        None => parse(text),
    }
}

/// Parses a text: returns a program for each case of its matrix, or all its errors.
pub fn parse(text: &str) -> Result<Vec<Program>, Vec<ScriptError>> {
    // Some editors write a byte order mark at the start.
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    let mut matrix = Matrix::default();
    for (at, line) in text.lines().enumerate() {
        let read = tokens(at as u32 + 1, line).and_then(|tokens| {
            match tokens.first().map(|first| first.text.as_str()) {
                None => {}
                Some("matrix") if tokens[0].kind == TokenKind::Atom => matrix.axis(&tokens)?,
                Some("given") if tokens[0].kind == TokenKind::Atom => matrix.given(&tokens)?,
                Some(_) => lines.push(matrix.line(tokens)?),
            }
            Ok(())
        });
        errors.extend(read.err());
        if errors.len() >= ERRORS_SHOWN_MAX {
            return Err(errors);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    matrix.check_used(&lines).map_err(|error| vec![error])?;
    let cases = matrix.cases().map_err(|error| vec![error])?;
    if let Some(unused) = lines.iter().find(|line| !cases.iter().any(|case| case.has(line))) {
        return Err(vec![unused.is_in_no_case()]);
    }
    let mut words = WORDS_MAX;
    cases.iter().map(|case| Reader::new(case, &mut words).read(&lines)).collect()
}

/// The parser of one case.
pub(super) struct Reader<'a> {
    case: &'a Case,
    /// Words left of the file's limit.
    words: &'a mut usize,
    pub names: Names,
    pub race: RaceState,
    pub is_litmus: bool,
    /// A step was parsed, so no describing statement may follow.
    begun: bool,
    /// An error occurred that every further line would repeat, so parsing stops.
    pub is_over: bool,
    /// Settings, each with its line.
    pub settings: BTreeMap<String, u32>,
    /// The VMs that settings name.
    pub vms_of_settings: Vec<Token>,
    /// Virtual time so far.
    now: u64,
    /// Steps so far, including those of a race.
    steps: usize,
}

impl<'a> Reader<'a> {
    fn new(case: &'a Case, words: &'a mut usize) -> Reader<'a> {
        let mut names = Names::default();
        names.program.case = case.name.clone();
        Reader {
            case,
            words,
            names,
            race: RaceState::None,
            is_litmus: false,
            begun: false,
            is_over: false,
            settings: BTreeMap::new(),
            vms_of_settings: Vec::new(),
            now: 0,
            steps: 0,
        }
    }

    fn read(mut self, lines: &[Line]) -> Result<Program, Vec<ScriptError>> {
        let mut errors = Vec::new();
        for line in lines {
            if !self.case.has(line) {
                continue;
            }
            let Err(error) = self.line(&line.tokens) else { continue };
            if !self.names.follows(&error, &line.tokens) {
                errors.push(error);
            }
            self.names.line_failed(&line.tokens);
            if self.is_over || *self.words == 0 || errors.len() >= ERRORS_SHOWN_MAX {
                break;
            }
        }
        if errors.is_empty() {
            errors.extend(self.check_whole(lines).err());
        }
        if errors.is_empty() { Ok(self.names.program) } else { Err(errors) }
    }

    fn line(&mut self, line: &[Token]) -> Parsed<()> {
        let tokens = self.case.substitute(line, self.words)?;
        let Some(first) = tokens.first() else { return Ok(()) };
        let read = self.statement(first, &tokens);
        let has_value = line.iter().any(|token| token.kind == TokenKind::Atom && token.text.starts_with('$'));
        read.map_err(|mut error| {
            if has_value {
                error.message += &format!(", in the case {}", shortened(&self.case.name));
            }
            error
        })
    }

    fn check_whole(&self, lines: &[Line]) -> Parsed<()> {
        let last = lines.last().and_then(|line| line.tokens.first());
        let span = last.map_or(Span { line: 1, column: 1, width: 1 }, |token| token.span);
        if self.names.program.title.is_empty() {
            let error = ScriptError::new(span, "the file has no `scenario \"TITLE\"`");
            return Err(error.help("`gpupv scenario new FILE` writes a template"));
        }
        self.vms_of_settings.iter().try_for_each(|name| self.names.check_vm_of_setting(name))?;
        match (&self.names.program.race, self.is_litmus) {
            (None, true) => Err(ScriptError::new(span, "a litmus file needs a `race`")),
            (Some(race), _) if race.allowed.is_empty() && race.forbidden.is_empty() => {
                let error = ScriptError::new(span, "the race has no outcomes");
                Err(error.help("add `allowed TERM ..` or `forbidden TERM ..`"))
            }
            _ => Ok(()),
        }
    }

    fn statement(&mut self, first: &Token, tokens: &[Token]) -> Parsed<()> {
        let mut cursor = Cursor::new(tokens);
        let line = first.span.line;
        if self.names.program.title.is_empty() && !matches!(first.text.as_str(), "scenario" | "litmus") {
            self.is_over = true;
            let message = "the first statement must be `scenario \"TITLE\"` or `litmus \"TITLE\"`";
            return Err(ScriptError::new(first.span, message));
        }
        if matches!(self.race, RaceState::Rows) && !matches!(first.text.as_str(), "allowed" | "forbidden") {
            return self.row(tokens, line);
        }
        if matches!(self.race, RaceState::Outcomes) && !matches!(first.text.as_str(), "allowed" | "forbidden")
        {
            return Err(ScriptError::new(first.span, "a race must be the last part of its file"));
        }
        if first.is_symbol("+") {
            cursor.next();
            let span = cursor.span();
            let time = cursor.duration()?;
            cursor.end()?;
            return self.advance(time, span, first);
        }
        if first.kind != TokenKind::Atom {
            return cursor.expected("a statement or an actor");
        }
        cursor.next();
        match first.text.as_str() {
            "scenario" | "litmus" => self.title(first, &mut cursor),
            "covers" => self.covers(first, &mut cursor),
            "tags" => self.tags(first, &mut cursor),
            "skip" => self.skip(first, &mut cursor),
            "config" => self.config(first, &mut cursor),
            _ => {
                self.begun = true;
                self.doing(first, &mut cursor, line)
            }
        }
    }

    fn doing(&mut self, first: &Token, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        let action = match first.text.as_str() {
            "vm" => {
                let name = cursor.atom("a name for the VM")?;
                let vm = self.names.add_vm(name)?;
                cursor.end()?;
                // Otherwise the VM would be missing, and a scenario without a call in it would pass.
                if let Some(why) = self.names.program.setting.kernel.vm_refusal(&name.text) {
                    return Err(ScriptError::new(name.span, why));
                }
                self.check_count(first, self.names.program.vms.len(), "VMs")?;
                Action::StartVm(vm)
            }
            "process" => self.process(first, cursor)?,
            "thread" => {
                let name = cursor.atom("a name for the thread")?;
                cursor.word("in")?;
                let of = cursor.atom("a process")?;
                let process = self.names.process(of)?;
                self.names.check_alive(process, of)?;
                cursor.end()?;
                let thread = self.names.add_thread(name, process)?;
                self.check_count(first, self.names.program.threads.len(), "threads")?;
                Action::StartThread(thread)
            }
            "exit" => {
                let name = cursor.atom("a process")?;
                let process = self.names.process(name)?;
                self.names.check_alive(process, name)?;
                cursor.end()?;
                if self.names.is_frozen(process) {
                    let error = ScriptError::new(name.span, format!("{} is frozen", name.text));
                    return Err(error.help("thaw it first, or `fault kill` it"));
                }
                self.names.check_runs(self.names.program.processes[process.index()].vm, name)?;
                self.names.end(process, line, "ended");
                Action::Exit(process)
            }
            "at" => return self.at(first, cursor),
            "fault" => Action::Fault(fault(&mut self.names, cursor, line)?),
            "expect" => Action::Expect(expectation(&mut self.names, cursor)?),
            "race" => return self.race(first, cursor, line),
            "allowed" | "forbidden" => return self.outcomes(first, cursor, line),
            _ => {
                if let Some(list) = self.names.list(first) {
                    let command = list_command(&self.names, cursor)?;
                    return self.push(Action::Record { list, command }, first);
                }
                let Some(thread) = self.names.thread(first) else {
                    return Err(self.no_actor(first));
                };
                self.names.check_able(thread, first)?;
                Action::Act(act(&mut self.names, thread, cursor, ActPlace::Steps)?)
            }
        };
        self.push(action, first)
    }

    fn at(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let span = cursor.span();
        let time = cursor.duration()?;
        cursor.end()?;
        let Some(ahead) = time.checked_sub(self.now) else {
            let now = words::write_duration(self.now);
            let message = format!("time does not go back: it is {now} here");
            return Err(ScriptError::new(span, message));
        };
        self.advance(ahead, span, first)
    }

    pub fn no_actor(&self, first: &Token) -> ScriptError {
        let actors = || match self.names.actors() {
            none if none.is_empty() => "declare one first, as `process p`".to_owned(),
            actors => format!("actors: {}", actors.join(", ")),
        };
        let word = shortened(&first.text);
        match self.names.look_up(&first.text) {
            Some(meaning @ (Meaning::Vm(_) | Meaning::Binding(_))) => {
                let message = format!("{word} is {}, it takes no steps", meaning.what(&self.names.program));
                return ScriptError::new(first.span, message).help(actors());
            }
            Some(Meaning::Process(_) | Meaning::Thread(_)) | None => {}
        }
        if VERBS.iter().any(|verb| verb.name == first.text) {
            let message = format!("`{word}` is a verb: write the name of an actor before it");
            return ScriptError::new(first.span, message).help(actors());
        }
        let known: Vec<&str> =
            self.names.actors().into_iter().chain(STATEMENTS.iter().map(|word| word.name)).collect();
        let near = nearest(&first.text, known.iter().copied());
        let help = near.map_or_else(actors, |word| format!("did you mean `{word}`?"));
        let message = format!("`{word}` is no statement, and no process or thread of that name is declared");
        ScriptError::new(first.span, message).help(help)
    }

    fn check_count(&self, at: &Token, count: usize, what: &str) -> Parsed<()> {
        if count <= PROCESSES_MAX {
            return Ok(());
        }
        Err(ScriptError::new(at.span, format!("more than {PROCESSES_MAX} {what}, the limit")))
    }

    /// Counts a step, up to the limit.
    pub fn count_step(&mut self, span: Span) -> Parsed<()> {
        self.steps += 1;
        self.is_over = self.steps > STEPS_MAX;
        if self.is_over {
            return Err(ScriptError::new(span, format!("more than {STEPS_MAX} steps, the limit")));
        }
        Ok(())
    }

    fn push(&mut self, action: Action, at: &Token) -> Parsed<()> {
        self.count_step(at.span)?;
        self.names.program.steps.push(Step { line: at.span.line, action });
        Ok(())
    }

    fn advance(&mut self, time: u64, span: Span, first: &Token) -> Parsed<()> {
        self.begun = true;
        let end = self.now.checked_add(time).filter(|end| *end <= TIME_MAX_NS);
        let Some(end) = end else {
            return Err(ScriptError::new(span, "a scenario lasts ten years at most"));
        };
        self.now = end;
        self.push(Action::Advance(time), first)
    }

    fn process(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<Action> {
        let name = cursor.atom("a name for the process")?;
        let vm = if cursor.take_word("in") {
            let of = cursor.atom("a VM")?;
            Some(self.names.vm(of)?)
        } else {
            None
        };
        cursor.end()?;
        let process = self.names.add_process(name, vm)?;
        self.check_count(first, self.names.program.processes.len(), "processes")?;
        Ok(Action::StartProcess(process))
    }

    /// Checks that a describing statement is before the first step.
    pub fn check_early(&self, first: &Token) -> Parsed<()> {
        if !self.begun {
            return Ok(());
        }
        let message = format!("`{}` stands before the first VM, process or step", first.text);
        Err(ScriptError::new(first.span, message))
    }
}
