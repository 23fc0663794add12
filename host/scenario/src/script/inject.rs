//! Parses faults in the words of `fault ..`, for a running daemon without a scenario.

use dxgkrnl::{Config, Injection};

use crate::program::Fault;
use crate::script::cursor::Cursor;
use crate::script::error::ScriptError;
use crate::script::expects;
use crate::script::names::{Names, OwnerOfAdapters};
use crate::script::operands::adapter_number;
use crate::script::token::tokens;

/// Hardware faults, which need no scenario.
const HARDWARE: [&str; 10] = [
    "hang",
    "lose_interrupt",
    "stop_adapter",
    "start_adapter",
    "update_driver",
    "page_fault",
    "reset_fails",
    "power",
    "f1",
    "object_bad",
];

/// Parses a fault as written after `fault` in a scenario, for the adapters of this configuration. The first word may
/// have `-` instead of `_`.
pub fn injection(text: &str, config: &Config) -> Result<Injection, ScriptError> {
    let text = text.trim_start();
    let (first, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let tokens = tokens(1, &format!("{}{rest}", first.replace('-', "_")))?;
    let mut names = Names::default();
    names.owner_of_adapters = OwnerOfAdapters::Daemon;
    names.program.setting.kernel = config.clone();
    let mut cursor = Cursor::new(&tokens);
    let word = cursor.peek().map_or("", |token| token.text.as_str());
    match word {
        "freeze" | "thaw" => {
            cursor.next();
            let Some(process) = cursor.next() else {
                return cursor.expected("the name or the number of a process");
            };
            cursor.end()?;
            Ok(Injection::Frozen { process: process.text.clone(), frozen: word == "freeze" })
        }
        "pause" | "resume" => {
            cursor.next();
            let Some(vm) = cursor.next() else {
                return cursor.expected("the name or the number of a VM");
            };
            cursor.end()?;
            Ok(Injection::Paused { vm: vm.text.clone(), paused: word == "pause" })
        }
        "remove_adapter" | "add_adapter" => {
            cursor.next();
            let adapter = adapter_number(&names, &mut cursor)?.0;
            let Some(vm) = cursor.next() else {
                return cursor.expected("the name or the number of a VM");
            };
            cursor.end()?;
            Ok(Injection::VmAdapter { vm: vm.text.clone(), adapter, added: word == "add_adapter" })
        }
        word if HARDWARE.contains(&word) => match expects::fault(&mut names, &mut cursor, 1)? {
            Fault::Hardware(fault) => Ok(Injection::Fault(fault)),
            other => unreachable!("{word} is no fault of hardware: {other:?}"),
        },
        _ => {
            let known: Vec<&str> = HARDWARE
                .into_iter()
                .chain(["freeze", "thaw", "pause", "resume", "remove_adapter", "add_adapter"])
                .collect();
            let message = match word {
                "" => "expected a fault".to_owned(),
                word => format!("there is no fault `{word}` of a running daemon"),
            };
            let help = format!("there are: {}", known.join(", "));
            Err(ScriptError::new(cursor.span(), message).help(help))
        }
    }
}
