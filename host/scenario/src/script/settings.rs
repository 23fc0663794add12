//! Parses and writes settings of adapters, engines, display targets, the registry, features, VMs, the system and TDR,
//! by the field names of the configuration's types.
//!
//! Each is a list of words: a flag by itself, or after `not`; a value as `key=VALUE`. A key is the name of the field,
//! without `_ns` for a time, or the shorter name of [`SHORTER`].

use std::fmt::Write as _;

use d3dkmt::Luid;
use dxgkrnl::{
    AdapterConfig, Config, EngineType, Features, Grant, NodeConfig, RegistryData, RegistryKey, RegistryValue,
    TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::program::Engine;
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::names::OwnerOfAdapters;
use crate::script::operands::no_adapter;
use crate::script::print::quoted;
use crate::script::token::{Token, TokenKind, tokens};
use crate::script::words;

/// Settings that may be given several times.
pub(super) const SEVERAL: [&str; 10] =
    ["adapter", "engine", "engines", "target", "registry", "feature", "tdr", "grant", "vm", "system"];

/// Shorter words for names of fields.
const SHORTER: [(&str, &str); 5] = [
    ("physical", "physical_adapters"),
    ("local", "local_budget_bytes"),
    ("non_local", "non_local_budget_bytes"),
    ("in_flight", "max_in_flight_hw_queue_buffers"),
    ("opaque", "opaque_packet_ns"),
];

/// Fields with their own lines or words.
const BY_THEMSELVES: [&str; 3] = ["name", "engine", "adapters"];

/// The adapters of a VM: one field with two words.
const OF_VMS: [&str; 2] = ["adapters", "adapter"];

/// A part of the configuration, by name of field.
type Fields = Map<String, Value>;

fn word_of(field: &str) -> &str {
    let shorter = SHORTER.into_iter().find(|(_, longer)| *longer == field);
    shorter.map_or(field.strip_suffix("_ns").unwrap_or(field), |(word, _)| word)
}

/// Whether a field is set by a word of its name.
fn has_word(field: &str, value: &Value) -> bool {
    !BY_THEMSELVES.contains(&field) && !value.is_array() && (field == "luid" || !value.is_object())
}

fn fields(part: &impl Serialize) -> Fields {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a part of the configuration has fields: {other:?}"),
    }
}

/// Returns the default configuration of this number of adapters.
pub(crate) fn adapters(count: u32) -> Vec<AdapterConfig> {
    let first = AdapterConfig::default();
    let luid = |number: u32| Luid { low: first.luid.low + number, high: 0 };
    (0..count).map(|number| AdapterConfig { luid: luid(number), ..first.clone() }).collect()
}

/// Returns the names of the flags of a field.
fn flags_of(field: &str) -> Vec<&'static str> {
    match field {
        "caps" => words::flag_names::<VidSchCaps>(),
        "features" => words::flag_names::<Features>(),
        _ => Vec::new(),
    }
}

/// Parses the setting after `config KEY`. Adds the names of VMs to `vms`, because the VMs themselves follow.
pub(super) fn read(
    config: &mut Config,
    vms: &mut Vec<Token>,
    key: &Token,
    cursor: &mut Cursor<'_>,
) -> Parsed<()> {
    match key.text.as_str() {
        "adapter" => items(adapter(config, cursor)?, "a setting of an adapter", "caps", cursor)?,
        "engine" => {
            let token = cursor.atom("an engine, as 3D or COPY.1")?;
            let Some(Engine { adapter, node }) = words::engine(&token.text, config) else {
                let known = config.adapters[0].nodes.iter().map(|node| node.engine_type.name());
                return Err(unknown(token, "an engine", known));
            };
            let node = &mut config.adapters[adapter as usize].nodes[node as usize];
            items(node, "a setting of an engine", "", cursor)?;
        }
        "engines" => engines(config, cursor)?,
        "target" => target(config, cursor)?,
        "registry" => registry(config, cursor)?,
        "grant" => {
            let name = cursor.text("the name of a shared object, in quotes")?.text.clone();
            let before = vms.len();
            while vms.len() == before || cursor.peek().is_some() {
                vms.push(name_of(cursor, "a VM, or `host`")?.clone());
            }
            let vms = vms[before..].iter().map(|vm| vm.text.clone()).collect();
            config.grants.push(Grant { name, vms });
        }
        "vm" => {
            let name = name_of(cursor, "the name of a VM")?;
            vms.push(name.clone());
            let vm = config.vm_mut(&name.text);
            if cursor.peek().is_some() {
                items(vm, "a setting of a VM", "features", cursor)?;
            }
        }
        "system" => items(config, "a setting of the system", "", cursor)?,
        "feature" => items(config, "a feature", "features", cursor)?,
        _ => items(&mut config.tdr, "a TDR setting", "", cursor)?,
    }
    config.check().map_err(|flaw| ScriptError::new(cursor.last_span(), flaw.message))
}

/// Parses one or more of `[not] WORD` and `KEY=VALUE`: fields of a part, and names of its flags.
fn items<T>(part: &mut T, what: &str, flags: &str, cursor: &mut Cursor<'_>) -> Parsed<()>
where
    T: Serialize + DeserializeOwned,
{
    loop {
        let is_on = !cursor.take_word("not");
        let item = cursor.atom("a setting")?;
        let mut all = fields(part);
        if !item_of(&mut all, flags, item, is_on, cursor)? {
            let own =
                all.iter().filter(|(field, value)| has_word(field, value)).map(|(field, _)| word_of(field));
            let of_vms = OF_VMS.into_iter().filter(|_| all.contains_key("adapters"));
            let known: Vec<&str> = flags_of(flags).into_iter().chain(own).chain(of_vms).collect();
            return Err(unknown(item, what, known));
        }
        let span = cursor.last_span();
        *part = serde_json::from_value(Value::Object(all))
            .map_err(|error| ScriptError::new(span, format!("`{}`: {error}", item.text)))?;
        if !cursor.peek().is_some_and(|token| token.kind == TokenKind::Atom) {
            return Ok(());
        }
    }
}

/// Applies one word; `false` if it is unknown.
fn item_of(
    all: &mut Fields,
    flags: &str,
    item: &Token,
    is_on: bool,
    cursor: &mut Cursor<'_>,
) -> Parsed<bool> {
    let word = item.text.as_str();
    if flags_of(flags).contains(&word) {
        if let Some(Value::Array(names)) = all.get_mut(flags) {
            names.retain(|name| name != word);
            names.extend(is_on.then(|| word.into()));
        }
        return Ok(true);
    }
    if let Some(ordinals) = all.get_mut("adapters").filter(|_| OF_VMS.contains(&word)) {
        return of_adapters(ordinals, word, is_on, cursor).map(|()| true);
    }
    let found = all.iter_mut().find(|(field, value)| has_word(field, value) && word_of(field) == word);
    let Some((field, value)) = found else { return Ok(false) };
    if let Value::Bool(flag) = value {
        *flag = is_on;
        return Ok(true);
    }
    if !is_on {
        return Err(ScriptError::new(
            item.span,
            format!("`not` stands before a flag, and `{word}` has a value"),
        ));
    }
    cursor.symbol("=")?;
    *value = match value {
        Value::String(_) => name_of(cursor, word)?.text.clone().into(),
        Value::Object(_) => {
            let luid = cursor.number(word)?;
            fields(&Luid { low: luid as u32, high: (luid >> 32) as i32 }).into()
        }
        _ if field.ends_with("_ns") => cursor.duration()?.into(),
        _ => cursor.number(word)?.into(),
    };
    Ok(true)
}

/// Parses the adapters of a VM: `[not] adapters`, or `adapter=N` for each.
fn of_adapters(ordinals: &mut Value, word: &str, is_on: bool, cursor: &mut Cursor<'_>) -> Parsed<()> {
    if word == "adapters" {
        *ordinals = if is_on { Value::Null } else { Value::Array(Vec::new()) };
        return Ok(());
    }
    cursor.symbol("=")?;
    let ordinal = Value::from(cursor.number32("an adapter's number")?);
    match ordinals {
        Value::Array(given) if given.contains(&ordinal) => {}
        Value::Array(given) => given.push(ordinal),
        all => *all = Value::Array(vec![ordinal]),
    }
    Ok(())
}

/// Parses a word, or a text in quotes.
fn name_of<'c>(cursor: &mut Cursor<'c>, what: &str) -> Parsed<&'c Token> {
    match cursor.peek() {
        Some(token) if token.kind == TokenKind::Text => cursor.text(what),
        _ => cursor.atom(what),
    }
}

fn adapter<'c>(config: &'c mut Config, cursor: &mut Cursor<'_>) -> Parsed<&'c mut AdapterConfig> {
    let span = cursor.span();
    let number = cursor.number32("an adapter's number")?;
    let count = config.adapters.len();
    let adapter = config.adapters.get_mut(number as usize);
    adapter.ok_or_else(|| no_adapter(span, number.into(), OwnerOfAdapters::Scenario, count))
}

/// Parses `on N`; without it the first adapter is meant.
fn on_adapter<'c>(config: &'c mut Config, cursor: &mut Cursor<'_>) -> Parsed<&'c mut AdapterConfig> {
    if cursor.take_word("on") { adapter(config, cursor) } else { Ok(&mut config.adapters[0]) }
}

/// Parses `TYPE TYPE .. [on N]`: these nodes instead of the default six.
fn engines(config: &mut Config, cursor: &mut Cursor<'_>) -> Parsed<()> {
    let mut nodes = Vec::new();
    while nodes.is_empty() || cursor.peek().is_some_and(|token| !token.is_word("on")) {
        let token = cursor.atom("a type of engine, as 3D")?;
        let known = EngineType::ALL.into_iter().find(|engine| engine.name() == token.text);
        let engine =
            known.ok_or_else(|| unknown(token, "a type of engine", EngineType::ALL.map(EngineType::name)));
        nodes.push(NodeConfig::of(engine?));
    }
    on_adapter(config, cursor)?.nodes = nodes;
    Ok(())
}

/// Parses `ID vsync=TIME [on N]`, which adds or changes a target, or `ID none [on N]`, which removes it.
fn target(config: &mut Config, cursor: &mut Cursor<'_>) -> Parsed<()> {
    let id = cursor.number32("the number of a display target")?;
    if cursor.take_word("none") {
        on_adapter(config, cursor)?.targets.retain(|target| target.id != id);
        return Ok(());
    }
    cursor.word("vsync")?;
    cursor.symbol("=")?;
    let vsync_ns = cursor.duration()?;
    let adapter = on_adapter(config, cursor)?;
    match adapter.targets.iter_mut().find(|target| target.id == id) {
        Some(target) => target.vsync_ns = vsync_ns,
        None => adapter.targets.push(TargetConfig { id, vsync_ns }),
    }
    Ok(())
}

/// Parses `service|adapter "NAME" dword=N|qword=N|text="TEXT"|binary="HEX" [on N]`.
fn registry(config: &mut Config, cursor: &mut Cursor<'_>) -> Parsed<()> {
    let keys = [("service", RegistryKey::Service), ("adapter", RegistryKey::Adapter)];
    let key = cursor.choice("a key of the registry", &keys)?;
    let name = cursor.text("the name of a value, in quotes")?.text.clone();
    let kind = cursor.atom("dword, qword, text or binary")?;
    cursor.symbol("=")?;
    let data = match kind.text.as_str() {
        "dword" => RegistryData::Dword(cursor.number32("a dword")?),
        "qword" => RegistryData::Qword(cursor.number("a qword")?),
        "text" => RegistryData::Text(cursor.text("a text, in quotes")?.text.clone()),
        "binary" => {
            let digits = cursor.text("bytes as hexadecimal digits, in quotes")?;
            let bytes = bytes_of(&digits.text);
            RegistryData::Binary(bytes.ok_or_else(|| {
                ScriptError::new(digits.span, "bytes are two hexadecimal digits each, as \"00ff\"")
            })?)
        }
        _ => return Err(unknown(kind, "a type of the registry", ["dword", "qword", "text", "binary"])),
    };
    on_adapter(config, cursor)?.registry.push(RegistryValue { key, name, data });
    Ok(())
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}

/// Writes the lines that change the default configuration to this one.
pub(super) fn write(config: &Config) -> String {
    let mut head = String::new();
    let count = config.adapters.len();
    if count != 1 {
        let _ = writeln!(head, "config adapters = {count}");
    }
    for (number, (adapter, plain)) in config.adapters.iter().zip(adapters(count as u32)).enumerate() {
        let on = if number == 0 { String::new() } else { format!(" on {number}") };
        let types =
            |adapter: &AdapterConfig| adapter.nodes.iter().map(|node| node.engine_type).collect::<Vec<_>>();
        if types(adapter) != types(&plain) {
            let names: Vec<&str> = types(adapter).into_iter().map(EngineType::name).collect();
            let _ = writeln!(head, "config engines {}{on}", names.join(" "));
        }
        write_line(&mut head, &format!("adapter {number}"), "caps", &fields(adapter), &fields(&plain));
        for (at, node) in adapter.nodes.iter().enumerate() {
            let engine = words::write_engine(Engine { adapter: number as u32, node: at as u32 }, config);
            let plain = NodeConfig::of(node.engine_type);
            write_line(&mut head, &format!("engine {engine}"), "", &fields(node), &fields(&plain));
        }
        let keeps_first =
            adapter.targets.first().map(|first| first.id) == plain.targets.first().map(|first| first.id);
        for target in plain.targets.iter().filter(|_| !keeps_first) {
            let _ = writeln!(head, "config target {} none{on}", target.id);
        }
        for target in adapter.targets.iter().filter(|target| !keeps_first || !plain.targets.contains(target))
        {
            let vsync = words::write_duration(target.vsync_ns);
            let _ = writeln!(head, "config target {} vsync={vsync}{on}", target.id);
        }
        for RegistryValue { key, name, data } in &adapter.registry {
            let key = if *key == RegistryKey::Service { "service" } else { "adapter" };
            let data = match data {
                RegistryData::Dword(number) => format!("dword={number}"),
                RegistryData::Qword(number) => format!("qword={}", words::write_number(*number)),
                RegistryData::Text(text) => format!("text={}", quoted(text)),
                RegistryData::Binary(bytes) => {
                    format!(
                        "binary=\"{}\"",
                        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
                    )
                }
            };
            let _ = writeln!(head, "config registry {key} {} {data}{on}", quoted(name));
        }
    }
    let (now, plain) = (fields(config), fields(&Config::default()));
    let features = |of: &Fields| Fields::from_iter([("features".into(), of["features"].clone())]);
    write_line(&mut head, "feature", "features", &features(&now), &features(&plain));
    for Grant { name, vms } in &config.grants {
        let vms: Vec<String> = vms.iter().map(|vm| word_or_text(vm)).collect();
        let _ = writeln!(head, "config grant {} {}", quoted(name), vms.join(" "));
    }
    for vm in &config.vms {
        let plain = VmConfig { name: vm.name.clone(), ..VmConfig::default() };
        let key = format!("vm {}", word_or_text(&vm.name));
        if *vm == plain {
            let _ = writeln!(head, "config {key}");
        }
        write_line(&mut head, &key, "features", &fields(vm), &fields(&plain));
    }
    write_line(&mut head, "system", "", &now, &plain);
    write_line(&mut head, "tdr", "", &fields(&config.tdr), &fields(&TdrConfig::default()));
    head
}

/// Writes a line with the differing fields, if there are any.
fn write_line(head: &mut String, key: &str, flags: &str, now: &Fields, plain: &Fields) {
    let mut line = String::new();
    for name in flags_of(flags) {
        let is_on =
            |of: &Fields| of[flags].as_array().is_some_and(|names| names.iter().any(|one| one == name));
        if is_on(now) != is_on(plain) {
            line += if is_on(now) { " " } else { " not " };
            line += name;
        }
    }
    for (field, value) in now.iter().filter(|(field, value)| plain.get(*field) != Some(value)) {
        let word = word_of(field);
        let number = value.as_u64().unwrap_or_default();
        let _ = match value {
            _ if field == "adapters" => write_adapters(&mut line, value),
            _ if !has_word(field, value) => Ok(()),
            Value::Bool(is_on) => write!(line, " {}{word}", if *is_on { "" } else { "not " }),
            Value::String(text) => write!(line, " {word}={}", word_or_text(text)),
            Value::Object(luid) => write!(line, " {word}={:#x}", number_of(luid)),
            _ if field.ends_with("_ns") => write!(line, " {word}={}", words::write_duration(number)),
            _ if field.ends_with("_bytes") => write!(line, " {word}={number:#x}"),
            _ => write!(line, " {word}={}", words::write_number(number)),
        };
    }
    if !line.is_empty() {
        let _ = writeln!(head, "config {key}{line}");
    }
}

/// Writes the adapters of a VM that does not have all of them.
fn write_adapters(line: &mut String, ordinals: &Value) -> std::fmt::Result {
    match ordinals.as_array().map(Vec::as_slice) {
        Some([]) => line.write_str(" not adapters"),
        Some(ordinals) => ordinals.iter().try_for_each(|ordinal| write!(line, " adapter={ordinal}")),
        None => Ok(()),
    }
}

/// Returns a LUID as one number.
fn number_of(luid: &Fields) -> u64 {
    let half = |name: &str| luid.get(name).and_then(Value::as_i64).unwrap_or_default();
    u64::from(half("high") as u32) << 32 | u64::from(half("low") as u32)
}

/// Writes a text without quotes if it reads as one word.
fn word_or_text(text: &str) -> String {
    match tokens(1, text).as_deref() {
        Ok([token]) if token.kind == TokenKind::Atom && token.text == text => text.into(),
        _ => quoted(text),
    }
}
