//! Settings of adapters, engines, display targets, features, VMs, the system and TDR: read and written.
//!
//! Each is a list of words: a flag stands by itself, or behind `not`; what has a value is `key=VALUE`.

use std::fmt::Write as _;

use dxgkrnl::{
    AdapterConfig, Config, Features, Grant, NodeConfig, TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};

use crate::program::Engine;
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::print::quoted;
use crate::script::token::{Token, TokenKind};
use crate::script::words;

/// Settings that may be said several times.
pub(super) const SEVERAL: [&str; 8] =
    ["adapter", "engine", "target", "feature", "tdr", "grant", "vm", "system"];

/// Reads what comes after `config KEY`.
pub(super) fn read(config: &mut Config, key: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
    match key.text.as_str() {
        "adapter" => {
            let adapter = adapter(config, cursor)?;
            items(cursor, |item, is_on, cursor| adapter_item(adapter, item, is_on, cursor))
        }
        "engine" => {
            let token = cursor.atom("an engine, as 3D or COPY.1")?;
            let Some(Engine { adapter, node }) = words::engine(&token.text, config) else {
                let known = config.adapters[0].nodes.iter().map(|node| node.engine_type.name());
                return Err(unknown(token, "an engine", known));
            };
            let node = &mut config.adapters[adapter as usize].nodes[node as usize];
            items(cursor, |item, is_on, cursor| engine_item(node, item, is_on, cursor))
        }
        "target" => target(config, cursor),
        "grant" => {
            let name = cursor.text("the name of a shared object, in quotes")?.text.clone();
            let mut vms = vec![cursor.atom("a VM, or `host`")?.text.clone()];
            while let Some(vm) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
                cursor.next();
                vms.push(vm.text.clone());
            }
            config.grants.push(Grant { name, vms });
            Ok(())
        }
        "vm" => {
            let count = config.adapters.len() as u32;
            let vm = vm(config, cursor)?;
            items(cursor, |item, is_on, cursor| vm_item(vm, count, item, is_on, cursor))
        }
        "system" => items(cursor, |item, is_on, cursor| system_item(config, item, is_on, cursor)),
        "feature" => items(cursor, |item, is_on, _| {
            let known = Features::all().iter_names().map(|(name, _)| name).collect::<Vec<_>>();
            let feature = Features::from_name(&item.text).ok_or_else(|| unknown(item, "a feature", known))?;
            config.features.set(feature, is_on);
            Ok(())
        }),
        _ => items(cursor, |item, is_on, cursor| tdr_item(&mut config.tdr, item, is_on, cursor)),
    }
}

/// `[not] WORD`, one at least.
fn items<'a>(
    cursor: &mut Cursor<'a>,
    mut each: impl FnMut(&'a Token, bool, &mut Cursor<'a>) -> Parsed<()>,
) -> Parsed<()> {
    loop {
        let is_on = !cursor.take_word("not");
        let item = cursor.atom("a setting")?;
        each(item, is_on, cursor)?;
        if !cursor.peek().is_some_and(|token| token.kind == TokenKind::Atom) {
            return Ok(());
        }
    }
}

fn adapter<'c>(config: &'c mut Config, cursor: &mut Cursor<'_>) -> Parsed<&'c mut AdapterConfig> {
    let place = cursor.place();
    let number = cursor.number32("an adapter's number")?;
    let count = config.adapters.len();
    config.adapters.get_mut(number as usize).ok_or_else(|| {
        let message = format!("there is no adapter {number}: the scenario has {count}, numbered from 0");
        ScriptError::new(place, message).help("`config adapters = N` makes more")
    })
}

fn number(cursor: &mut Cursor<'_>, what: &str) -> Parsed<u32> {
    cursor.symbol("=")?;
    cursor.number32(what)
}

fn bytes(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    cursor.symbol("=")?;
    cursor.number("a number of bytes")
}

fn time(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    cursor.symbol("=")?;
    cursor.duration()
}

fn adapter_item(
    adapter: &mut AdapterConfig,
    item: &Token,
    is_on: bool,
    cursor: &mut Cursor<'_>,
) -> Parsed<()> {
    match item.text.as_str() {
        "iommu" => adapter.iommu = is_on,
        "io_coherent" => adapter.io_coherent = is_on,
        "hazards" => adapter.hazards = is_on,
        "physical" => {
            let place = cursor.last_place();
            adapter.physical_adapters = number(cursor, "how many there are in the chain")?;
            if !(1..=32).contains(&adapter.physical_adapters) {
                return Err(ScriptError::new(place, "an adapter is a chain of 1 to 32 physical adapters"));
            }
        }
        "kmd" => {
            cursor.symbol("=")?;
            adapter.kmd = cursor.atom("the name of a driver")?.text.clone();
        }
        "paging_node" => adapter.paging_node = Some(number(cursor, "a node ordinal")?),
        "paravirtualization" => adapter.paravirtualization = is_on,
        "virtual_functions" => adapter.virtual_functions = number(cursor, "a count")?,
        "local" => adapter.budget_bytes[0] = bytes(cursor)?,
        "non_local" => adapter.budget_bytes[1] = bytes(cursor)?,
        "wddm_version" => adapter.wddm_version = number(cursor, "a version, as 3000")?,
        word => {
            let cap = VidSchCaps::from_name(word).ok_or_else(|| {
                let caps = VidSchCaps::all().iter_names().map(|(name, _)| name);
                let others = "hazards iommu io_coherent kmd local non_local paging_node paravirtualization physical \
                     virtual_functions wddm_version";
                let known = caps.chain(others.split_ascii_whitespace()).collect::<Vec<_>>();
                unknown(item, "a setting of an adapter", known)
            })?;
            adapter.caps.set(cap, is_on);
        }
    }
    Ok(())
}

/// The VM of this name, as the host has it: one that nothing was said of yet is plain.
fn vm<'c>(config: &'c mut Config, cursor: &mut Cursor<'_>) -> Parsed<&'c mut VmConfig> {
    let name = &cursor.atom("the name of a VM")?.text;
    let at = config.vms.iter().position(|vm| vm.name == *name).unwrap_or_else(|| {
        config.vms.push(VmConfig { name: name.clone(), ..VmConfig::default() });
        config.vms.len() - 1
    });
    Ok(&mut config.vms[at])
}

fn vm_item(
    vm: &mut VmConfig,
    adapters: u32,
    item: &Token,
    is_on: bool,
    cursor: &mut Cursor<'_>,
) -> Parsed<()> {
    const KNOWN: &str = "secure iommu_isolation linux escapes asynchronous adapters adapter";
    match item.text.as_str() {
        "secure" => vm.secure = is_on,
        "iommu_isolation" => vm.iommu_isolation = is_on,
        "linux" => vm.linux = is_on,
        "escapes" => vm.escapes = is_on,
        "asynchronous" => vm.asynchronous = is_on,
        "adapters" => vm.adapters = if is_on { None } else { Some(Vec::new()) },
        "adapter" => {
            cursor.symbol("=")?;
            let place = cursor.place();
            let ordinal = cursor.number32("an adapter's number")?;
            if ordinal >= adapters {
                let message =
                    format!("there is no adapter {ordinal}: the scenario has {adapters}, numbered from 0");
                return Err(ScriptError::new(place, message).help("`config adapters = N` makes more"));
            }
            let given = vm.adapters.get_or_insert_with(Vec::new);
            if !given.contains(&ordinal) {
                given.push(ordinal);
            }
        }
        word => {
            let feature = Features::from_name(word).ok_or_else(|| {
                let features = Features::all().iter_names().map(|(name, _)| name);
                unknown(
                    item,
                    "a setting of a VM",
                    features.chain(KNOWN.split_ascii_whitespace()).collect::<Vec<_>>(),
                )
            })?;
            vm.features.set(feature, is_on);
        }
    }
    Ok(())
}

fn system_item(config: &mut Config, item: &Token, is_on: bool, cursor: &mut Cursor<'_>) -> Parsed<()> {
    match item.text.as_str() {
        "test_signing" => config.test_signing = is_on,
        "gpu_virtualization_flags" => config.gpu_virtualization_flags = number(cursor, "flags")?,
        _ => {
            return Err(unknown(
                item,
                "a setting of the system",
                ["test_signing", "gpu_virtualization_flags"],
            ));
        }
    }
    Ok(())
}

fn engine_item(node: &mut NodeConfig, item: &Token, is_on: bool, cursor: &mut Cursor<'_>) -> Parsed<()> {
    const KNOWN: &str = "signals_at_write hw_queues ring_buffer_fence_release user_mode_submission in_flight \
                         doorbells opaque overlap_seed";
    match item.text.as_str() {
        "signals_at_write" => node.signals_at_write = is_on,
        "hw_queues" => node.hw_queues = is_on,
        "ring_buffer_fence_release" => node.ring_buffer_fence_release = is_on,
        "user_mode_submission" => node.user_mode_submission = is_on,
        "in_flight" => node.max_in_flight_hw_queue_buffers = number(cursor, "a count")?,
        "doorbells" => node.doorbells = number(cursor, "a count")?,
        "opaque" => node.opaque_packet_ns = time(cursor)?,
        "overlap_seed" => {
            cursor.symbol("=")?;
            node.overlap_seed = cursor.number("a seed")?;
        }
        _ => return Err(unknown(item, "a setting of an engine", KNOWN.split_ascii_whitespace())),
    }
    Ok(())
}

/// `ID vsync=TIME [on N]`: another target, or this one with another frequency.
fn target(config: &mut Config, cursor: &mut Cursor<'_>) -> Parsed<()> {
    let id = cursor.number32("the number of a display target")?;
    cursor.word("vsync")?;
    let place = cursor.place();
    let vsync_ns = time(cursor)?;
    if vsync_ns == 0 {
        return Err(ScriptError::new(place, "from one vsync to the next some time passes"));
    }
    let adapter = match cursor.take_word("on") {
        true => adapter(config, cursor)?,
        false => &mut config.adapters[0],
    };
    match adapter.targets.iter_mut().find(|target| target.id == id) {
        Some(target) => target.vsync_ns = vsync_ns,
        None => adapter.targets.push(TargetConfig { id, vsync_ns }),
    }
    Ok(())
}

fn tdr_item(tdr: &mut TdrConfig, item: &Token, is_on: bool, cursor: &mut Cursor<'_>) -> Parsed<()> {
    const KNOWN: &str = "level delay ddi_delay limit_count limit_time debug_mode dod_present_delay \
                         dod_vsync_delay test_mode";
    match item.text.as_str() {
        "level" => tdr.level = number(cursor, "a level")?,
        "delay" => tdr.delay_ns = time(cursor)?,
        "ddi_delay" => tdr.ddi_delay_ns = time(cursor)?,
        "limit_count" => tdr.limit_count = number(cursor, "a count")?,
        "limit_time" => tdr.limit_time_ns = time(cursor)?,
        "debug_mode" => tdr.debug_mode = number(cursor, "a mode")?,
        "dod_present_delay" => tdr.dod_present_delay_ns = time(cursor)?,
        "dod_vsync_delay" => tdr.dod_vsync_delay_ns = time(cursor)?,
        "test_mode" => tdr.test_mode = is_on,
        _ => return Err(unknown(item, "a TDR setting", KNOWN.split_ascii_whitespace())),
    }
    Ok(())
}

/// The lines that make the default what it is here.
pub(super) fn write(config: &Config) -> String {
    let mut head = String::new();
    if config.adapters.len() != 1 {
        let _ = writeln!(head, "config adapters = {}", config.adapters.len());
    }
    let plain = AdapterConfig::default();
    for (number, adapter) in config.adapters.iter().enumerate() {
        let mut line = Line::default();
        for (name, cap) in VidSchCaps::all().iter_names() {
            line.flag(name, adapter.caps.contains(cap), plain.caps.contains(cap));
        }
        line.flag("iommu", adapter.iommu, plain.iommu);
        line.flag("io_coherent", adapter.io_coherent, plain.io_coherent);
        line.flag("hazards", adapter.hazards, plain.hazards);
        line.number("physical", adapter.physical_adapters, plain.physical_adapters);
        if let Some(node) = adapter.paging_node {
            line.number("paging_node", node, u32::MAX);
        }
        line.word("kmd", &adapter.kmd, &plain.kmd);
        line.flag("paravirtualization", adapter.paravirtualization, plain.paravirtualization);
        line.number("virtual_functions", adapter.virtual_functions, plain.virtual_functions);
        for (at, name) in ["local", "non_local"].into_iter().enumerate() {
            line.bytes(name, adapter.budget_bytes[at], plain.budget_bytes[at]);
        }
        line.number("wddm_version", adapter.wddm_version, plain.wddm_version);
        line.end(&mut head, &format!("adapter {number}"));
        for (at, (node, plain)) in adapter.nodes.iter().zip(&plain.nodes).enumerate() {
            let engine = Engine { adapter: number as u32, node: at as u32 };
            write_engine(&mut head, &words::write_engine(engine, config), node, plain);
        }
        for target in adapter.targets.iter().filter(|target| !plain.targets.contains(target)) {
            let on = if number == 0 { String::new() } else { format!(" on {number}") };
            let vsync = words::write_duration(target.vsync_ns);
            let _ = writeln!(head, "config target {} vsync={vsync}{on}", target.id);
        }
    }
    write_rest(&mut head, config);
    head
}

fn write_engine(head: &mut String, engine: &str, node: &NodeConfig, plain: &NodeConfig) {
    let mut line = Line::default();
    line.flag("signals_at_write", node.signals_at_write, plain.signals_at_write);
    line.flag("hw_queues", node.hw_queues, plain.hw_queues);
    line.flag("ring_buffer_fence_release", node.ring_buffer_fence_release, plain.ring_buffer_fence_release);
    line.flag("user_mode_submission", node.user_mode_submission, plain.user_mode_submission);
    line.number("in_flight", node.max_in_flight_hw_queue_buffers, plain.max_in_flight_hw_queue_buffers);
    line.number("doorbells", node.doorbells, plain.doorbells);
    line.time("opaque", node.opaque_packet_ns, plain.opaque_packet_ns);
    line.long("overlap_seed", node.overlap_seed, plain.overlap_seed);
    line.end(head, &format!("engine {engine}"));
}

fn write_rest(head: &mut String, config: &Config) {
    let plain = Config::default();
    let mut line = Line::default();
    for (name, feature) in Features::all().iter_names() {
        line.flag(name, config.features.contains(feature), plain.features.contains(feature));
    }
    line.end(head, "feature");
    for Grant { name, vms } in &config.grants {
        let _ = writeln!(head, "config grant {} {}", quoted(name), vms.join(" "));
    }
    for vm in &config.vms {
        write_vm(head, vm);
    }
    let mut line = Line::default();
    line.flag("test_signing", config.test_signing, plain.test_signing);
    line.number("gpu_virtualization_flags", config.gpu_virtualization_flags, plain.gpu_virtualization_flags);
    line.end(head, "system");
    let (tdr, plain) = (&config.tdr, &plain.tdr);
    let mut line = Line::default();
    line.number("level", tdr.level, plain.level);
    line.time("delay", tdr.delay_ns, plain.delay_ns);
    line.time("ddi_delay", tdr.ddi_delay_ns, plain.ddi_delay_ns);
    line.number("limit_count", tdr.limit_count, plain.limit_count);
    line.time("limit_time", tdr.limit_time_ns, plain.limit_time_ns);
    line.number("debug_mode", tdr.debug_mode, plain.debug_mode);
    line.time("dod_present_delay", tdr.dod_present_delay_ns, plain.dod_present_delay_ns);
    line.time("dod_vsync_delay", tdr.dod_vsync_delay_ns, plain.dod_vsync_delay_ns);
    line.flag("test_mode", tdr.test_mode, plain.test_mode);
    line.end(head, "tdr");
}

fn write_vm(head: &mut String, vm: &VmConfig) {
    let plain = VmConfig::default();
    let mut line = Line::default();
    line.flag("secure", vm.secure, plain.secure);
    line.flag("iommu_isolation", vm.iommu_isolation, plain.iommu_isolation);
    line.flag("linux", vm.linux, plain.linux);
    line.flag("escapes", vm.escapes, plain.escapes);
    line.flag("asynchronous", vm.asynchronous, plain.asynchronous);
    for (name, feature) in Features::all().iter_names() {
        line.flag(name, vm.features.contains(feature), plain.features.contains(feature));
    }
    if let Some(adapters) = &vm.adapters {
        line.flag("adapters", !adapters.is_empty(), true);
        adapters.iter().for_each(|ordinal| line.number("adapter", *ordinal, u32::MAX));
    }
    line.end(head, &format!("vm {}", vm.name));
}

/// What differs, as it is written behind `config KEY`.
#[derive(Default)]
struct Line(String);

impl Line {
    fn flag(&mut self, name: &str, is_on: bool, plain: bool) {
        if is_on != plain {
            self.0 += if is_on { " " } else { " not " };
            self.0 += name;
        }
    }

    fn number(&mut self, name: &str, number: u32, plain: u32) {
        if number != plain {
            let _ = write!(self.0, " {name}={number}");
        }
    }

    fn long(&mut self, name: &str, number: u64, plain: u64) {
        if number != plain {
            let _ = write!(self.0, " {name}={}", words::write_number(number));
        }
    }

    fn bytes(&mut self, name: &str, bytes: u64, plain: u64) {
        if bytes != plain {
            let _ = write!(self.0, " {name}={bytes:#x}");
        }
    }

    fn word(&mut self, name: &str, word: &str, plain: &str) {
        if word != plain {
            let _ = write!(self.0, " {name}={word}");
        }
    }

    fn time(&mut self, name: &str, nanos: u64, plain: u64) {
        if nanos != plain {
            let _ = write!(self.0, " {name}={}", words::write_duration(nanos));
        }
    }

    fn end(self, head: &mut String, key: &str) {
        if !self.0.is_empty() {
            let _ = writeln!(head, "config {key}{}", self.0);
        }
    }
}
