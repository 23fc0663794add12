//! A file, line by line.

use d3dkmt::{Luid, limits};
use dxgkrnl::{AdapterConfig, Policy};

use crate::limits::{ERRORS_SHOWN_MAX, FILE_BYTES_MAX, PROCESSES_MAX, STEPS_MAX, TIME_MAX_NS};
use crate::program::{Action, Arm, Column, Expected, Program, Race, Step, Thread};
use crate::script::acts::{Place as ActPlace, act};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::{Place, ScriptError, suggestion};
use crate::script::expects::{expectation, fault, outcomes};
use crate::script::matrix::{Case, Matrix};
use crate::script::names::Names;
use crate::script::token::{Token, TokenKind, tokens};
use crate::script::verbs::STATEMENTS;
use crate::script::words;

/// Reads the bytes of a file: a program for each case of its matrix, or everything that is wrong with it.
pub fn parse_bytes(bytes: &[u8]) -> Result<Vec<Program>, Vec<ScriptError>> {
    let start = Place { line: 1, column: 1, width: 1 };
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes, the limit is {FILE_BYTES_MAX}", bytes.len());
        return Err(vec![
            ScriptError::new(start, message).help("scenarios are small texts: is it the right file?"),
        ]);
    }
    let not_text = |at: usize| {
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
        let place = Place { line, column: 1, width: 1 };
        let message = format!("byte {at} is not text: a scenario is UTF-8 text");
        vec![ScriptError::new(place, message).help("is it the right file?")]
    };
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(error.valid_up_to()))?;
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => Err(not_text(at)),
        None => parse(text),
    }
}

/// Reads a text: a program for each case of its matrix, or everything that is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Program>, Vec<ScriptError>> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    let mut matrix = Matrix::default();
    for (at, line) in text.lines().enumerate() {
        let read = tokens(at as u32 + 1, line).and_then(|tokens| {
            match tokens.first().map(|first| first.text.as_str()) {
                None => {}
                Some("matrix") => matrix.axis(&tokens)?,
                Some("given") => matrix.given(&tokens)?,
                Some(_) => lines.push(tokens),
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
    let cases = matrix.cases().map_err(|error| vec![error])?;
    cases.iter().map(|case| Reader::new(case).read(&lines)).collect()
}

/// What has been read of a race.
enum RaceState {
    None,
    Rows,
    Outcomes,
}

/// Reads one case.
struct Reader<'a> {
    case: &'a Case,
    names: Names,
    race: RaceState,
    is_litmus: bool,
    /// Statements that describe come before those that do.
    begun: bool,
    /// Virtual time so far.
    now: u64,
}

impl<'a> Reader<'a> {
    fn new(case: &'a Case) -> Reader<'a> {
        let mut names = Names::default();
        names.program.case = case.name.clone();
        Reader { case, names, race: RaceState::None, is_litmus: false, begun: false, now: 0 }
    }

    fn read(mut self, lines: &[Vec<Token>]) -> Result<Program, Vec<ScriptError>> {
        let mut errors = Vec::new();
        for line in lines {
            let read = self.case.substitute(line).and_then(|tokens| match tokens.first() {
                None => Ok(()),
                Some(first) => self.statement(first, &tokens),
            });
            errors.extend(read.err());
            if errors.len() >= ERRORS_SHOWN_MAX {
                break;
            }
        }
        if errors.is_empty() {
            errors.extend(self.check_whole(lines).err());
        }
        if errors.is_empty() { Ok(self.names.program) } else { Err(errors) }
    }

    fn check_whole(&self, lines: &[Vec<Token>]) -> Parsed<()> {
        let last = lines.last().and_then(|line| line.first());
        let place = last.map_or(Place { line: 1, column: 1, width: 1 }, |token| token.place);
        if self.names.program.title.is_empty() {
            let error = ScriptError::new(place, "the file has no `scenario \"TITLE\"`");
            return Err(error.help("`gpupv scenario new FILE` writes one to begin with"));
        }
        match (&self.names.program.race, self.is_litmus) {
            (None, true) => Err(ScriptError::new(place, "a litmus file needs a `race`")),
            (Some(race), _) if race.allowed.is_empty() && race.forbidden.is_empty() => {
                let error = ScriptError::new(place, "the race does not say how it may end");
                Err(error.help("add `allowed TERM ..` or `forbidden TERM ..`"))
            }
            _ => Ok(()),
        }
    }

    fn statement(&mut self, first: &Token, tokens: &[Token]) -> Parsed<()> {
        let mut cursor = Cursor::new(tokens);
        let line = first.place.line;
        if self.names.program.title.is_empty() && !matches!(first.text.as_str(), "scenario" | "litmus") {
            let message = "the first statement must be `scenario \"TITLE\"` or `litmus \"TITLE\"`";
            return Err(ScriptError::new(first.place, message));
        }
        if matches!(self.race, RaceState::Rows) && !matches!(first.text.as_str(), "allowed" | "forbidden") {
            return self.row(tokens, line);
        }
        if matches!(self.race, RaceState::Outcomes) && !matches!(first.text.as_str(), "allowed" | "forbidden")
        {
            return Err(ScriptError::new(first.place, "a race is the end of its file"));
        }
        if first.is_symbol("+") {
            cursor.next();
            let place = cursor.place();
            let time = cursor.duration()?;
            cursor.end()?;
            return self.advance(time, place, line);
        }
        if first.kind != TokenKind::Atom {
            return cursor.expected("a statement or an actor");
        }
        cursor.next();
        match first.text.as_str() {
            "scenario" | "litmus" => self.title(first, &mut cursor),
            "covers" => self.covers(first, &mut cursor),
            "tags" => self.tags(&mut cursor),
            "skip" => self.skip(&mut cursor),
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
                let vm = self.names.add_vm(cursor.atom("a name for the VM")?)?;
                cursor.end()?;
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
                    return Err(ScriptError::new(name.place, format!("{} is frozen", name.text)));
                }
                self.names.end(process, line, "ended");
                Action::Exit(process)
            }
            "at" => {
                let place = cursor.place();
                let time = cursor.duration()?;
                cursor.end()?;
                let Some(ahead) = time.checked_sub(self.now) else {
                    let now = words::write_duration(self.now);
                    let message = format!("time does not go back: it is {now} here");
                    return Err(ScriptError::new(place, message));
                };
                return self.advance(ahead, place, line);
            }
            "fault" => Action::Fault(fault(&mut self.names, cursor, line)?),
            "expect" => Action::Expect(expectation(&mut self.names, cursor)?),
            "race" => return self.race(first, cursor, line),
            "allowed" | "forbidden" => return self.outcomes(first, cursor, line),
            _ => {
                let Some(thread) = self.names.thread(first) else {
                    return Err(self.no_actor(first));
                };
                self.names.check_able(thread, first)?;
                Action::Act(act(&mut self.names, thread, cursor, ActPlace::Steps)?)
            }
        };
        self.push(action, first)
    }

    fn no_actor(&self, first: &Token) -> ScriptError {
        let known: Vec<&str> =
            self.names.actors().into_iter().chain(STATEMENTS.iter().map(|word| word.name)).collect();
        let near = crate::script::error::nearest(&first.text, known.iter().copied());
        let help = match near {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("actors: {}", suggestion("", self.names.actors()).replace("there are: ", "")),
        };
        let message =
            format!("`{}` is no statement, and no process or thread of that name is declared", first.text);
        ScriptError::new(first.place, message).help(help)
    }

    fn check_count(&self, at: &Token, count: usize, what: &str) -> Parsed<()> {
        if count <= PROCESSES_MAX {
            return Ok(());
        }
        Err(ScriptError::new(at.place, format!("more than {PROCESSES_MAX} {what}, the limit")))
    }

    fn push(&mut self, action: Action, at: &Token) -> Parsed<()> {
        let steps = &mut self.names.program.steps;
        if steps.len() >= STEPS_MAX {
            return Err(ScriptError::new(at.place, format!("more than {STEPS_MAX} steps, the limit")));
        }
        steps.push(Step { line: at.place.line, action });
        Ok(())
    }

    fn advance(&mut self, time: u64, place: Place, line: u32) -> Parsed<()> {
        self.begun = true;
        let end = self.now.checked_add(time).filter(|end| *end <= TIME_MAX_NS);
        let Some(end) = end else {
            return Err(ScriptError::new(place, "a scenario lasts ten years at most"));
        };
        self.now = end;
        self.names.program.steps.push(Step { line, action: Action::Advance(time) });
        Ok(())
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

    fn title(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let title = cursor.text("the title, in quotes")?;
        if !self.names.program.title.is_empty() {
            return Err(
                ScriptError::new(first.place, "the file has a title already").help("one scenario a file")
            );
        }
        if title.text.trim().is_empty() {
            return Err(ScriptError::new(title.place, "the title says nothing"));
        }
        self.is_litmus = first.text == "litmus";
        self.names.program.title = title.text.clone();
        cursor.end()
    }

    /// What describes the scenario stands before what happens in it.
    fn check_early(&self, first: &Token) -> Parsed<()> {
        if !self.begun {
            return Ok(());
        }
        let message = format!("`{}` stands before the first VM, process or step", first.text);
        Err(ScriptError::new(first.place, message))
    }

    fn covers(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        loop {
            let id = cursor.atom("a rule id, as FEN-030")?;
            if let Some(why) = words::rule_error(&id.text) {
                return Err(ScriptError::new(id.place, format!("`{}` is no rule id", id.text)).help(why));
            }
            if self.names.program.covers.contains(&id.text) {
                return Err(ScriptError::new(id.place, format!("{} is named twice", id.text)));
            }
            self.names.program.covers.push(id.text.clone());
            if cursor.peek().is_none() {
                return Ok(());
            }
        }
    }

    fn tags(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        loop {
            let tag = cursor.atom("a word")?;
            self.names.program.tags.push(tag.text.clone());
            if cursor.peek().is_none() {
                return Ok(());
            }
        }
    }

    fn skip(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let arm = cursor.choice("an arm", &Arm::ALL.map(|arm| (arm.name(), arm)))?;
        let reason = cursor.text("the reason, in quotes")?;
        if reason.text.trim().is_empty() {
            return Err(ScriptError::new(reason.place, "the reason says nothing"));
        }
        self.names.program.not_on.push((arm, reason.text.clone()));
        cursor.end()
    }

    fn config(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        let key = cursor.atom("a setting")?;
        let setting = &mut self.names.program.setting;
        match key.text.as_str() {
            "async_submission" => setting.async_submission = true,
            "adapters" => {
                cursor.symbol("=")?;
                let place = cursor.place();
                let count = cursor.number("a count")?;
                if !(1..=limits::ADAPTERS_MAX as u64).contains(&count) {
                    let message = format!("{count} adapters: there can be 1 to {}", limits::ADAPTERS_MAX);
                    return Err(ScriptError::new(place, message));
                }
                let first = AdapterConfig::default();
                let luid = |number: u64| Luid { low: first.luid.low + number as u32, high: 0 };
                let adapters = (0..count).map(|number| AdapterConfig { luid: luid(number), ..first.clone() });
                setting.kernel.adapters = adapters.collect();
            }
            switch => {
                let Some((_, values)) = Policy::SWITCHES.into_iter().find(|(name, _)| *name == switch) else {
                    let switches = Policy::SWITCHES.map(|(name, _)| name);
                    let known: Vec<&str> =
                        switches.into_iter().chain(["adapters", "async_submission"]).collect();
                    return Err(unknown(key, "a setting", known));
                };
                cursor.symbol("=")?;
                let value = cursor.atom("a value")?;
                let policy = setting.kernel.policy.with(switch, &value.text);
                setting.kernel.policy = policy.ok_or_else(|| unknown(value, "a value of it", values))?;
            }
        }
        cursor.end()
    }

    fn race(&mut self, first: &Token, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        if !self.is_litmus {
            return Err(ScriptError::new(first.place, "a race needs a file that begins with `litmus`"));
        }
        let mut columns: Vec<Column> = Vec::new();
        loop {
            let name = cursor.atom("an actor")?;
            let thread: Thread = self.names.thread(name).ok_or_else(|| self.no_actor(name))?;
            self.names.check_able(thread, name)?;
            if columns.iter().any(|column| column.thread == thread) {
                return Err(ScriptError::new(name.place, format!("{} has a column already", name.text)));
            }
            columns.push(Column { thread, steps: Vec::new() });
            if !cursor.take_symbol("|") {
                break;
            }
        }
        cursor.end()?;
        if columns.len() < 2 {
            return Err(ScriptError::new(first.place, "a race needs two columns at least"));
        }
        self.names.program.race = Some(Race { line, columns, ..Race::default() });
        self.race = RaceState::Rows;
        Ok(())
    }

    /// One step of each column; an empty cell is none.
    fn row(&mut self, tokens: &[Token], line: u32) -> Parsed<()> {
        let threads: Vec<Thread> = match &self.names.program.race {
            Some(race) => race.columns.iter().map(|column| column.thread).collect(),
            None => unreachable!("rows come after the head of a race"),
        };
        let cells: Vec<&[Token]> = tokens.split(|token| token.is_symbol("|")).collect();
        if cells.len() > threads.len() {
            let message = format!("the row has {} cells, the race {} columns", cells.len(), threads.len());
            return Err(ScriptError::new(tokens[0].place, message));
        }
        for (at, cell) in cells.into_iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            let act = act(&mut self.names, threads[at], &mut Cursor::new(cell), ActPlace::Race)?;
            debug_assert!(act.expected != Expected::Blocks, "refused where it is read");
            let race = self.names.program.race.as_mut().expect("it was there above");
            race.columns[at].steps.push((line, act));
        }
        Ok(())
    }

    fn outcomes(&mut self, first: &Token, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        let outcomes = outcomes(&self.names, cursor, line)?;
        let Some(race) = &mut self.names.program.race else {
            return Err(ScriptError::new(first.place, format!("`{}` belongs to a race", first.text)));
        };
        if first.text == "allowed" {
            race.allowed.extend(outcomes)
        } else {
            race.forbidden.extend(outcomes)
        }
        self.race = RaceState::Outcomes;
        Ok(())
    }
}
