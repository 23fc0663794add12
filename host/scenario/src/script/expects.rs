//! Parses `expect CONDITION`, `fault ..`, and the outcomes of races.

use d3dkmt::query::DriverVersion;
use dxgkrnl::Fault as Hardware;
use dxgkrnl::why::Verdict;

use crate::limits::{OUTCOMES_MAX, TIME_MAX_NS};
use crate::program::{Engine, EngineIs, EventCount, Expectation, Fault, Kind, Outcome, Process, Term, Vm};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::escapes::{Bytes, pieces};
use crate::script::lists;
use crate::script::names::{Meaning, Names};
use crate::script::operands::{adapter_number, no_adapter, value32, value64};
use crate::script::token::{Token, TokenKind};
use crate::script::verbs::{EXPECTATIONS, FAULTS};
use crate::script::words;

/// Parses the condition after `expect`.
pub(crate) fn expectation(names: &mut Names, cursor: &mut Cursor<'_>) -> Parsed<Expectation> {
    let token = match cursor.peek() {
        Some(token) if token.kind == TokenKind::Atom => token,
        _ => {
            let forms: Vec<&str> = EXPECTATIONS.iter().map(|word| word.form.as_ref()).collect();
            let help = format!("there are: {}", forms.join("; "));
            return cursor.expected("a condition").map_err(|error| error.help(help));
        }
    };
    let expectation = match (token.text.as_str(), names.look_up(&token.text)) {
        (_, Some(Meaning::Binding(_))) => of_binding(names, cursor)?,
        ("engine", _) => {
            cursor.next();
            let engine = engine(names, cursor)?;
            let states = [("idle", EngineIs::Idle), ("running", EngineIs::Running), ("hung", EngineIs::Hung)];
            Expectation::Engine { engine, is: cursor.choice("a state of an engine", &states)? }
        }
        ("report", _) => {
            cursor.next();
            Expectation::Report { text: cursor.text("the text, in quotes")?.text.clone() }
        }
        ("no", _) => {
            cursor.next();
            match cursor.choice("`report` or `race`", &[("report", true), ("race", false)])? {
                true => Expectation::NoReport,
                false => Expectation::NoRace,
            }
        }
        ("race", _) => {
            cursor.next();
            let mut texts = vec![cursor.text("a text of the race, in quotes")?.text.clone()];
            while let Some(more) = cursor.peek().filter(|token| token.kind == TokenKind::Text) {
                cursor.next();
                texts.push(more.text.clone());
            }
            Expectation::Race { texts }
        }
        ("messages", _) => {
            let (process, count) = count_of_process(names, cursor)?;
            Expectation::Messages { process, count }
        }
        ("wakes", _) => {
            let (process, count) = count_of_process(names, cursor)?;
            Expectation::Wakes { process, count }
        }
        ("waits", _) => {
            cursor.next();
            cursor.symbol("=")?;
            Expectation::Waits { count: cursor.number("a count")? }
        }
        ("why", _) => {
            cursor.next();
            why(names, cursor)?
        }
        ("nothing", _) => {
            cursor.next();
            cursor.word("left")?;
            let process =
                if cursor.take_word("of") { Some(names.process(cursor.atom("a process")?)?) } else { None };
            Expectation::NothingLeft { process }
        }
        _ => {
            let words = ["engine", "report", "no", "race", "messages", "wakes", "waits", "why", "nothing"];
            let names = names.program.bindings.iter().map(|binding| binding.name.as_str());
            let known: Vec<&str> = names.chain(words).collect();
            return Err(unknown(token, "a name, nor a word that can be expected", known));
        }
    };
    cursor.end()?;
    Ok(expectation)
}

/// Parses `PROCESS = N` after a word.
fn count_of_process(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<(Process, u64)> {
    cursor.next();
    let token = cursor.atom("a process")?;
    let process = names.process(token)?;
    names.check_alive(process, token)?;
    cursor.symbol("=")?;
    Ok((process, cursor.number("a count")?))
}

fn of_binding(names: &mut Names, cursor: &mut Cursor<'_>) -> Parsed<Expectation> {
    let token = cursor.next().expect("it was looked at");
    let binding = names.binding(token, "a name", |_| true)?;
    let kind = names.kind(binding);
    let is_call = !matches!(kind, Kind::Event | Kind::Register | Kind::List);
    if is_call && cursor.take_word("blocked") {
        names.check_alive(names.program.owner(binding), token)?;
        return Ok(Expectation::Blocked { call: binding });
    }
    if is_call && cursor.take_word("returned") {
        let status = cursor.status("a status", &[])?;
        names.returned(binding);
        return Ok(Expectation::Returned { call: binding, status });
    }
    if is_call && cursor.take_word("data") {
        if cursor.peek().is_none() {
            return cursor.expected("the data, as \"TEXT\" or u32(7)");
        }
        let data = pieces(names, cursor, Bytes::Expected)?;
        return Ok(Expectation::Data { call: binding, data });
    }
    if matches!(kind, Kind::Object | Kind::Event | Kind::Device | Kind::Doorbell) {
        names.check_alive(names.program.owner(binding), token)?;
    }
    match kind {
        Kind::Allocation if cursor.take_word("words") => {
            names.check_alive(names.program.owner(binding), token)?;
            let (first, count) = lists::word_range(cursor)?;
            let word = value32(cursor, "a word of 32 bits")?;
            Ok(Expectation::Words { allocation: binding, first, count, word })
        }
        Kind::Messages => lists::wanted_message(names, binding, cursor),
        Kind::Doorbell => {
            if !cursor.take_word("status") {
                return cursor.expected("`status STATUS`");
            }
            let status = cursor.choice("a doorbell's status", &words::DOORBELL_STATUSES)?;
            Ok(Expectation::Doorbell { doorbell: binding, status })
        }
        Kind::Call | Kind::Address if cursor.take_symbol("=") => {
            let below_zero = cursor.take_symbol("-");
            let number = cursor.number("a number")?;
            let value = if below_zero { number.wrapping_neg() } else { number };
            Ok(Expectation::Value { object: binding, value })
        }
        Kind::Object | Kind::Register => {
            if !cursor.take_symbol("=") {
                return cursor.expected("`= VALUE`");
            }
            Ok(Expectation::Value { object: binding, value: cursor.number("a value")? })
        }
        Kind::Event => Ok(Expectation::Event { event: binding, count: event_count(cursor)? }),
        Kind::Device => {
            if !cursor.take_word("state") {
                return cursor.expected("`state STATE`");
            }
            let state = cursor.choice("a device state", &words::DEVICE_STATES)?;
            Ok(Expectation::DeviceState { device: binding, state })
        }
        Kind::Adapter
        | Kind::Context
        | Kind::Share
        | Kind::Call
        | Kind::Address
        | Kind::KeyedMutex
        | Kind::PagingQueue
        | Kind::HwQueue
        | Kind::Resource
        | Kind::List
        | Kind::Allocation => cursor.expected("`blocked` or `returned STATUS`"),
    }
}

/// Parses `set [N]` or `clear`.
fn event_count(cursor: &mut Cursor<'_>) -> Parsed<EventCount> {
    if cursor.take_word("clear") {
        return Ok(EventCount::Clear);
    }
    if !cursor.take_word("set") {
        return cursor.expected("`set`, `set N` or `clear`");
    }
    match cursor.peek() {
        Some(_) => cursor.number("how often").map(EventCount::Times),
        None => Ok(EventCount::Set),
    }
}

/// Parses `PROCESS VERDICT [F>=V]`.
fn why(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Expectation> {
    let token = cursor.atom("a process")?;
    let process = names.process(token)?;
    names.check_alive(process, token)?;
    let verdict = cursor.choice("a verdict", &Verdict::NAMES.map(|name| (name, name)))?;
    if cursor.peek().is_none() {
        return Ok(Expectation::Why { process, verdict, root: None });
    }
    let object = names.binding(cursor.atom("a fence")?, "a fence", |kind| kind == Kind::Object)?;
    cursor.symbol(">=")?;
    let value = cursor.number("a fence value")?;
    Ok(Expectation::Why { process, verdict, root: Some((object, value)) })
}

fn engine(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Engine> {
    let token = cursor.atom("an engine, as 3D or COPY.1")?;
    let config = &names.program.setting.kernel;
    words::engine(&token.text, config).ok_or_else(|| {
        let count = config.adapters.len();
        let adapter = token.text.rsplit_once('.').and_then(|(_, adapter)| words::number(adapter));
        if let Some(adapter) = adapter.filter(|adapter| *adapter >= count as u64) {
            return no_adapter(token.span, adapter, names.owner_of_adapters, count);
        }
        let known = config.adapters[0].nodes.iter().map(|node| node.engine_type.name());
        unknown(token, "an engine", known)
    })
}

/// Parses the fault after `fault`.
pub(crate) fn fault(names: &mut Names, cursor: &mut Cursor<'_>, line: u32) -> Parsed<Fault> {
    let faults = || FAULTS.iter().map(|word| word.name).collect::<Vec<_>>().join(", ");
    let token = cursor.atom("a fault").map_err(|error| error.help(format!("there are: {}", faults())))?;
    let fault = match token.text.as_str() {
        "kill" => Fault::Kill(process(names, cursor, line, Some("was killed"))?),
        "cut" => Fault::Cut(process(names, cursor, line, None)?),
        "hold" => Fault::Hold(changed(names, cursor, Names::hold)?),
        "release" => Fault::Release(changed(names, cursor, Names::release)?),
        "freeze" => Fault::Freeze(changed(names, cursor, Names::freeze)?),
        "thaw" => Fault::Thaw(changed(names, cursor, Names::thaw)?),
        "delay" => Fault::Delay(process(names, cursor, line, None)?, delay(cursor)?),
        "reorder" => Fault::Reorder,
        "crash" => {
            let vm = changed_vm(names, cursor, Names::crash)?;
            let inside =
                names.program.processes.iter().enumerate().filter(|(_, process)| process.vm == Some(vm));
            let inside: Vec<u32> = inside.map(|(at, _)| at as u32).collect();
            for process in inside {
                names.end(Process(process), line, "was in a VM that crashed");
            }
            Fault::CrashVm(vm)
        }
        "pause" => Fault::PauseVm(changed_vm(names, cursor, Names::pause)?),
        "resume" => Fault::ResumeVm(changed_vm(names, cursor, Names::resume)?),
        "lose_interrupt" => Fault::Hardware(Hardware::LoseInterrupt { engine: engine(names, cursor)? }),
        "hang" => Fault::Hardware(Hardware::Hang { engine: engine(names, cursor)? }),
        "stop_adapter" => {
            Fault::Hardware(Hardware::StopAdapter { adapter: adapter_number(names, cursor)?.0 })
        }
        "start_adapter" => {
            Fault::Hardware(Hardware::StartAdapter { adapter: adapter_number(names, cursor)?.0 })
        }
        "remove_adapter" => vm_adapter(names, cursor, false)?,
        "add_adapter" => vm_adapter(names, cursor, true)?,
        "update_driver" => Fault::Hardware(driver_update(names, cursor)?),
        "page_fault" => Fault::Hardware(page_fault(names, cursor)?),
        "reset_fails" => Fault::Hardware(Hardware::ResetFails { engine: engine(names, cursor)? }),
        "power" => {
            let adapter = adapter_number(names, cursor)?.0;
            let on = cursor.choice("`on` or `off`", &[("on", true), ("off", false)])?;
            Fault::Hardware(Hardware::Power { adapter, on })
        }
        "f1" => Fault::Hardware(Hardware::EngineToF1 { engine: engine(names, cursor)? }),
        "object_bad" => {
            let adapter = adapter_number(names, cursor)?.0;
            cursor.word("usage")?;
            let usage = value32(cursor, "a usage")?;
            Fault::Hardware(Hardware::ObjectGoesBad { adapter, usage })
        }
        "clock" => Fault::SetClock(delay(cursor)?),
        "fill" => {
            let context = cursor.atom("the name of a context")?;
            let filled = names.binding(context, "a context", |kind| kind == Kind::Context)?;
            let owner = &names.program.processes[names.program.owner(filled).index()];
            names.check_able(owner.main, &Token { text: owner.name.clone(), ..context.clone() })?;
            Fault::Fill(filled)
        }
        "restart" => {
            cursor.word("daemon")?;
            names.check_all_run(token)?;
            Fault::RestartDaemon
        }
        _ => return Err(unknown(token, "a fault", FAULTS.iter().map(|word| word.name))),
    };
    cursor.end()?;
    Ok(fault)
}

/// Parses `N VM`.
fn vm_adapter(names: &Names, cursor: &mut Cursor<'_>, added: bool) -> Parsed<Fault> {
    let adapter = adapter_number(names, cursor)?.0;
    let vm = names.vm(cursor.atom("a VM")?)?;
    Ok(Fault::VmAdapter { vm, adapter, added })
}

/// Parses `N A.B.C.D`.
fn driver_update(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Hardware> {
    let adapter = adapter_number(names, cursor)?.0;
    let token = cursor.atom("a driver's version, as 2.0.0.1")?;
    let Some(version) = DriverVersion::parse(&token.text) else {
        let why = "expected a driver's version: four numbers up to 65535, as 2.0.0.1";
        return Err(ScriptError::new(token.span, why));
    };
    if let Some(other) = cursor.peek() {
        let why = "an update changes the version of the driver, and never which driver it is";
        let help = "for a driver of another name, start the daemon anew with that `kmd` in its configuration";
        return Err(ScriptError::new(other.span, why).help(help));
    }
    Ok(Hardware::UpdateDriver { adapter, version })
}

fn page_fault(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Hardware> {
    let engine = engine(names, cursor)?;
    cursor.word("at")?;
    let gpu_address = value64(cursor, "a GPU address")?;
    let mut flags = 0;
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        flags |= match token.text.as_str() {
            "flags" => {
                cursor.next();
                value32(cursor, "flags")?
            }
            _ => cursor.choice("a page-fault flag", &words::PAGE_FAULT_FLAGS)?,
        };
    }
    Ok(Hardware::PageFault { engine, gpu_address, flags })
}

/// Parses a VM and changes its state, as the fault does.
fn changed_vm(
    names: &mut Names,
    cursor: &mut Cursor<'_>,
    change: impl Fn(&mut Names, Vm, &Token) -> Parsed<()>,
) -> Parsed<Vm> {
    let token = cursor.atom("a VM")?;
    let vm = names.vm(token)?;
    change(names, vm, token)?;
    Ok(vm)
}

/// Parses a process and changes its state, as the fault does.
fn changed(
    names: &mut Names,
    cursor: &mut Cursor<'_>,
    change: impl Fn(&mut Names, Process, &Token) -> Parsed<()>,
) -> Parsed<Process> {
    let token = cursor.atom("a process")?;
    let process = names.process(token)?;
    names.check_alive(process, token)?;
    change(names, process, token)?;
    Ok(process)
}

fn delay(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    let span = cursor.span();
    let delay = cursor.duration()?;
    if delay <= TIME_MAX_NS {
        Ok(delay)
    } else {
        Err(ScriptError::new(span, "a scenario lasts ten years at most"))
    }
}

fn process(
    names: &mut Names,
    cursor: &mut Cursor<'_>,
    line: u32,
    ends: Option<&'static str>,
) -> Parsed<Process> {
    let token = cursor.atom("a process")?;
    let process = names.process(token)?;
    names.check_alive(process, token)?;
    if let Some(how) = ends {
        names.end(process, line, how);
    }
    Ok(process)
}

/// Parses sets of terms, separated by commas.
pub(crate) fn outcomes(names: &Names, cursor: &mut Cursor<'_>, line: u32) -> Parsed<Vec<Outcome>> {
    let mut outcomes = vec![Outcome { line, terms: Vec::new() }];
    loop {
        let terms = &mut outcomes.last_mut().expect("there is one").terms;
        if cursor.take_symbol(",") {
            outcomes.push(Outcome { line, terms: Vec::new() });
            if outcomes.len() > OUTCOMES_MAX {
                return cursor.expected(&format!("{OUTCOMES_MAX} outcomes at most"));
            }
            continue;
        }
        if cursor.peek().is_none() {
            break;
        }
        let first = cursor.span();
        let term = term(names, cursor)?;
        if terms.iter().any(|other| other.binding() == term.binding()) {
            let name = names.program.name(term.binding());
            let help = "every term of an outcome has to hold: write other outcomes behind a comma";
            return Err(
                ScriptError::new(first, format!("the outcome has a term for {name} already")).help(help)
            );
        }
        terms.push(term);
    }
    if outcomes.iter().any(|outcome| outcome.terms.is_empty()) {
        return cursor.expected("terms, as `r0=1 W=asleep`, with a comma between outcomes");
    }
    Ok(outcomes)
}

fn term(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Term> {
    let token: &Token = cursor.atom("a register, call or fence")?;
    let binding = names.binding(token, "a register, call or fence", |kind| {
        matches!(kind, Kind::Register | Kind::Call | Kind::Object)
    })?;
    cursor.symbol("=")?;
    match names.kind(binding) {
        Kind::Register => Ok(Term::Register { register: binding, value: cursor.number("a value")? }),
        Kind::Object => Ok(Term::Value { object: binding, value: cursor.number("a value")? }),
        _ => {
            if cursor.take_word("asleep") {
                return Ok(Term::Asleep { call: binding, asleep: true });
            }
            if cursor.take_word("returned") {
                return Ok(Term::Asleep { call: binding, asleep: false });
            }
            let status = cursor.status("`asleep`, `returned` or a status", &["asleep", "returned"])?;
            Ok(Term::Status { call: binding, status })
        }
    }
}
