#![doc = include_str!("../../../docs/CONFIG.md")]
//!
//! Its keys are the fields of [`Config`], or the names that those declare.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use daemon::machine_name;
use dxgkrnl::{Config, Flaw, HOST_NAME, NodeConfig};
use scenario::script::suggestion;
use toml::de::{DeTable, DeValue};
use trace::open_regular;

/// Reads the configuration in this file. The daemon will have this number of VMs with the usual names; `None`: it has none,
/// and the settings of VMs may be for another daemon.
pub fn read(path: &Path, machines: Option<u32>) -> anyhow::Result<Config> {
    let text =
        read_text(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let parsed = parse(&text).and_then(|config| {
        machines.map_or(Ok(()), |machines| check_vms(&text, &config, machines))?;
        Ok(config)
    });
    parsed.with_context(|| format!("in the configuration {}", path.display()))
}

/// Most bytes of a configuration.
const BYTES_MAX: u64 = 1 << 20;

fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= BYTES_MAX, "it has more than {BYTES_MAX} bytes: is it the right file?");
    Ok(text)
}

/// Refuses settings of a VM that the daemon will not have: they would hold for no VM.
fn check_vms(text: &str, config: &Config, machines: u32) -> anyhow::Result<()> {
    let is_known =
        |name: &str| name == HOST_NAME || (1..=machines).any(|number| name == machine_name(number));
    let named = (0..).zip(&config.vms).map(|(at, vm)| (format!("vm.{at}.name"), &vm.name));
    let granted = (0..).zip(&config.grants).flat_map(|(at, grant)| {
        (0..).zip(&grant.vms).map(move |(vm, name)| (format!("grant.{at}.vms.{vm}"), name))
    });
    let Some((path, name)) = named.chain(granted).find(|(_, name)| !is_known(name)) else { return Ok(()) };
    let vms = match machines {
        0 => "it has none".to_owned(),
        1 => format!("it has {}", machine_name(1)),
        _ => format!("it has {} to {}", machine_name(1), machine_name(machines)),
    };
    let message = format!("no VM of this daemon is named {name:?}: {vms} (--vms)");
    Err(config_error(text, span_of(text, &path), message))
}

/// Reads a configuration from its text.
pub fn parse(text: &str) -> anyhow::Result<Config> {
    let mut config: Config = toml::from_str(text).map_err(|error| {
        if let Some((span, message)) = repeated_table(text) {
            return config_error(text, Some(span), message);
        }
        let begin = error.span().map_or(0, |span| span.start);
        let message = right_header(text, begin, error.message());
        config_error(text, error.span(), message.unwrap_or_else(|| with_help(error.message())))
    })?;
    set_kinds_of_nodes(&mut config, text);
    match config.check() {
        Ok(()) => Ok(config),
        Err(Flaw { path, message }) => Err(config_error(text, span_of(text, &path), message)),
    }
}

/// Gives each node without `signals_at_write` the default of its type: serde's default of a field knows no type.
fn set_kinds_of_nodes(config: &mut Config, text: &str) {
    let Ok(root) = toml::from_str::<toml::Table>(text) else { return };
    let tables = |of: &toml::Table, name| of.get(name).and_then(toml::Value::as_array).cloned();
    let written = tables(&root, "adapter").into_iter().flatten();
    for (adapter, written) in config.adapters.iter_mut().zip(written) {
        let written = written.as_table().and_then(|adapter| tables(adapter, "node")).into_iter().flatten();
        for (node, written) in adapter.nodes.iter_mut().zip(written) {
            if written.get("signals_at_write").is_none() {
                node.signals_at_write = NodeConfig::of(node.engine_type).signals_at_write;
            }
        }
    }
}

/// Returns the error with its line, and the source text there.
fn config_error(text: &str, span: Option<Range<usize>>, message: String) -> anyhow::Error {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return anyhow!(message) };
    let (line, begin) = (before.matches('\n').count(), before.rfind('\n').map_or(0, |at| at + 1));
    let column = before[begin..].chars().count();
    let source = text.lines().nth(line).unwrap_or_default();
    anyhow!("line {}, column {}: {message}\n  | {source}\n  | {:column$}^", line + 1, column + 1, "")
}

/// Returns the place of a list of tables where the configuration has one table, and the message for it. serde reads such
/// a list as the values of the table's fields, so its own message is about a variant of the first field.
fn repeated_table(text: &str) -> Option<(Range<usize>, String)> {
    let root = DeTable::parse(text).ok()?;
    let known = serde_json::to_value(Config::default()).ok()?;
    root.get_ref().iter().find_map(|(name, value)| {
        let name = name.get_ref();
        let first = value.get_ref().as_array()?.first()?;
        let is_one = known.get(name.as_ref())?.is_object();
        is_one.then(|| (first.span(), format!("there is only one table `{name}`: write `[{name}]`")))
    })
}

/// Returns the message for a header of a table with too few brackets, or without the table that it is in.
fn right_header(text: &str, begin: usize, message: &str) -> Option<String> {
    let expected = message.strip_prefix("invalid type: map, expected ")?;
    // The place of a table that only its part names is inside the brackets.
    let line = text.get(..begin)?.rfind('\n').map_or(0, |end| end + 1);
    let (before, header) = text.split_at(line);
    let header = header.trim_start();
    let name = header.trim_start_matches('[').split(']').next().filter(|_| header.starts_with('['))?;
    let parent = name.rsplit_once('.').map(|(parent, _)| parent);
    let missing = parent.filter(|parent| !before.contains(&format!("[[{parent}]]")));
    match (expected.trim_end() == "a sequence", missing) {
        (true, Some(parent)) => {
            Some(format!("`{name}` is a part of `{parent}`: write `[[{parent}]]` above it"))
        }
        (true, None) => Some(format!("there may be several tables `{name}`: write `[[{name}]]`")),
        (false, _) => None,
    }
}

/// Returns serde's message about an unknown word, with the nearest known word.
fn with_help(message: &str) -> String {
    let mut message = message.trim_end().to_owned();
    let Some((told, known)) = message.split_once(", expected ") else { return message };
    let mut written = told.split('`').skip(1).step_by(2);
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    if let (true, Some(written)) = (told.starts_with("unknown "), written.next()) {
        message = format!("{told}: {}", suggestion(written, known.iter().copied()));
    }
    message
}

/// Returns the span of the value at this path, or of the table that it would be in.
fn span_of(text: &str, path: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let (mut span, mut table, mut list) = (root.span(), Some(root.get_ref()), None::<&[_]>);
    for step in path.split('.') {
        let value: Option<&toml::Spanned<DeValue<'_>>> = match (table, list) {
            (Some(table), _) => table.iter().find(|(key, _)| *key.get_ref() == step).map(|(_, value)| value),
            (None, Some(list)) => step.parse().ok().and_then(|at: usize| list.get(at)),
            (None, None) => None,
        };
        let Some(value) = value else { break };
        span = value.span();
        table = value.get_ref().as_table();
        list = value.get_ref().as_array().map(|array| &array[..]);
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use d3dkmt::Luid;
    use dxgkrnl::{
        EngineType, Features, Grant, RegistryData, RegistryKey, RegistryValue, TargetConfig, TdrConfig,
        VidSchCaps, VmConfig,
    };

    use super::*;

    #[test]
    fn the_examples_of_the_page_are_configurations() {
        let page = include_str!("../../../docs/CONFIG.md");
        for example in page.split("```toml").skip(1) {
            let example = example.split("```").next().unwrap_or_default();
            parse(example).unwrap_or_else(|error| panic!("{example}: {error:#}"));
        }
    }

    #[test]
    fn a_configuration_is_a_regular_file_within_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, large] = ["fifo", "large"].map(|name| folder.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        std::fs::write(&large, vec![b'#'; BYTES_MAX as usize + 1]).unwrap();
        for (path, why) in [
            (&*fifo, "not a regular file"),
            (Path::new("/dev/zero"), "not a regular file"),
            (&large, "more than 1048576 bytes"),
        ] {
            let error = format!("{:#}", read(path, None).unwrap_err());
            assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
        }
        std::fs::write(&large, vec![b'#'; BYTES_MAX as usize]).unwrap();
        read(&large, None).unwrap();
    }

    /// Adds the keys of a configuration, by path; those of a list are the keys of its tables.
    fn add_keys(value: &serde_json::Value, path: &str, keys: &mut BTreeSet<String>) {
        for element in value.as_array().into_iter().flatten() {
            add_keys(element, path, keys);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            add_keys(value, &path, keys);
            keys.insert(path);
        }
    }

    #[test]
    fn the_page_has_every_key_and_both_values_of_every_switch() {
        let page = include_str!("../../../docs/CONFIG.md");
        let (_, all) = page.split_once("All keys:\n\n```toml\n").expect("the long example");
        let (all, _) = all.split_once("```").expect("its end");
        let mut full = Config::default();
        full.grants.push(Grant { name: String::new(), vms: Vec::new() });
        full.vms.push(VmConfig::default());
        let data = RegistryData::Text(String::new());
        full.adapters[0].registry.push(RegistryValue {
            key: RegistryKey::Adapter,
            name: String::new(),
            data,
        });
        let [mut shown, mut known] = [const { BTreeSet::new() }; 2];
        add_keys(&toml::from_str(all).unwrap(), "", &mut shown);
        add_keys(&serde_json::to_value(full).unwrap(), "", &mut known);
        // A LUID is written as a list.
        known.retain(|key| !key.starts_with(".adapter.luid."));
        assert_eq!(shown, known, "left: the page; right: the configuration");
        for (switch, [default, other]) in dxgkrnl::Policy::SWITCHES {
            let is_its = |line: &&str| line.starts_with(&format!("{switch} = \"{default}\" "));
            let line = all.lines().find(is_its).unwrap_or_default();
            assert!(line.contains(&format!("# or \"{other}\"")), "{switch} = {default}|{other}: {line}");
        }
    }

    #[test]
    fn settings_of_a_vm_that_the_daemon_will_not_have_are_refused() {
        let refusal = |text: &str, machines| {
            let config = parse(text).unwrap();
            check_vms(text, &config, machines).map_err(|error| format!("{error:#}")).err()
        };
        let vm = "[[vm]]\nname = \"vm-1\"\nsecure = true";
        let expected =
            "line 2, column 8: no VM of this daemon is named \"vm-1\": it has vm1 (--vms)\n  | name = ";
        assert!(refusal(vm, 1).is_some_and(|error| error.starts_with(expected)), "{:?}", refusal(vm, 1));
        let grant = "[[grant]]\nname = \"n\"\nvms = [\"host\", \"vm2\", \"vm3\"]";
        let expected = "line 3, column 23: no VM of this daemon is named \"vm3\": it has vm1 to vm2 (--vms)";
        let refused = refusal(grant, 2);
        assert!(refused.as_ref().is_some_and(|error| error.starts_with(expected)), "{refused:?}");
        assert_eq!(refusal(grant, 3), None);
    }

    #[test]
    fn an_empty_file_is_the_default_and_every_switch_can_be_set() {
        assert_eq!(parse("").unwrap(), Config::default());
        let text = r#"
            [policy]
            lower_gpu_signal = "applied"
            destroyed_wait = "device-removed"
            refused_one_way = "note-only"
            [[adapter]]
            luid = [7, -1]
            kmd = "mine"
            [[adapter.node]]
            engine = "COPY"
            signals_at_write = false
        "#;
        let config = parse(text).unwrap();
        assert_eq!(config.policy.to_bits(), 0b111);
        assert_eq!(config.adapters[0].luid, Luid { low: 7, high: -1 });
        assert_eq!((config.adapters[0].nodes.len(), &config.adapters[0].kmd[..]), (1, "mine"));
        assert!(!config.adapters[0].nodes[0].signals_at_write);
    }

    #[test]
    fn a_node_has_the_defaults_of_its_type() {
        let all = ["3D", "COMPUTE", "COPY", "VIDEO_DECODE", "VIDEO_PROCESS", "VIDEO_ENCODE"];
        let node = |name: &str| format!("[[adapter.node]]\nengine = \"{name}\"\n");
        let text = format!("[[adapter]]\n{}", all.map(node).concat());
        assert_eq!(parse(&text).unwrap(), Config::default());
        let text = "[[adapter]]\n[[adapter]]\nluid = [7, 0]\nnode = [{}, { engine = \"COPY\", signals_at_write = true }]";
        let [copy, first] = [EngineType::Copy, EngineType::ThreeD].map(NodeConfig::of);
        let nodes = [first, NodeConfig { signals_at_write: true, ..copy }];
        assert_eq!(parse(text).unwrap().adapters[1].nodes, nodes);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one file with every setting")]
    fn the_system_and_the_hardware_can_be_set() {
        let text = r#"
            features = ["NATIVE_FENCE"]
            gpu_virtualization_flags = 4
            test_signing = true
            [[vm]]
            name = "one"
            secure = true
            iommu_isolation = false
            linux = false
            escapes = false
            asynchronous = true
            raised_priorities = false
            disable_gpu_timeout = false
            memory_bytes = 1048576
            adapters = [0]
            features = ["LDA_GPUPV"]
            [[vm]]
            name = "two"
            [[grant]]
            name = "frame"
            vms = ["one", "host"]
            [tdr]
            level = 0
            limit_time_ns = 7
            test_mode = true
            [[adapter]]
            caps = ["PREEMPTION_AWARE", "NO_64_BIT_ATOMICS"]
            physical_adapters = 2
            paging_node = 0
            iommu = true
            io_coherent = false
            hazards = true
            kmd = "mine"
            paravirtualization = false
            virtual_functions = 2
            wddm_version = 2900
            local_budget_bytes = 0
            non_local_budget_bytes = 17179869184
            [[adapter.registry]]
            key = "service"
            name = "a"
            dword = 4294967295
            [[adapter.registry]]
            key = "adapter"
            name = "b"
            qword = 4294967296
            [[adapter.registry]]
            key = "adapter"
            name = "c"
            text = "t"
            [[adapter.registry]]
            key = "adapter"
            name = "d"
            binary = [0, 255]
            [[adapter.target]]
            id = 5
            vsync_ns = 8333333
            [[adapter.node]]
            engine = "3D"
            hw_queues = false
            doorbells = 0
            opaque_packet_ns = 5000000000
        "#;
        let config = parse(text).unwrap();
        let tdr = TdrConfig { level: 0, limit_time_ns: 7, test_mode: true, ..TdrConfig::default() };
        assert_eq!((config.features, config.tdr), (Features::NATIVE_FENCE, tdr));
        assert_eq!(config.grants, [Grant { name: "frame".into(), vms: vec!["one".into(), "host".into()] }]);
        let adapter = &config.adapters[0];
        assert_eq!(adapter.caps, VidSchCaps::PREEMPTION_AWARE | VidSchCaps::NO_64_BIT_ATOMICS);
        assert_eq!((adapter.physical_adapters, adapter.iommu, adapter.io_coherent), (2, true, false));
        assert!(adapter.hazards);
        assert_eq!(adapter.paging_node, Some(0));
        assert_eq!((config.gpu_virtualization_flags, config.test_signing), (4, true));
        let one = VmConfig {
            name: "one".into(),
            secure: true,
            iommu_isolation: false,
            linux: false,
            escapes: false,
            asynchronous: true,
            raised_priorities: false,
            disable_gpu_timeout: false,
            memory_bytes: 1 << 20,
            adapters: Some(vec![0]),
            features: Features::LDA_GPUPV,
        };
        assert_eq!(config.vms, [one, VmConfig { name: "two".into(), ..VmConfig::default() }]);
        assert_eq!(
            (
                adapter.kmd.as_str(),
                adapter.paravirtualization,
                adapter.virtual_functions,
                adapter.wddm_version
            ),
            ("mine", false, 2, 2900)
        );
        assert_eq!(adapter.budget_bytes(), [0, 16 << 30]);
        let value = |key, name: &str, data| RegistryValue { key, name: name.into(), data };
        let (service, of_adapter) = (RegistryKey::Service, RegistryKey::Adapter);
        let expected = [
            value(service, "a", RegistryData::Dword(u32::MAX)),
            value(of_adapter, "b", RegistryData::Qword(1 << 32)),
            value(of_adapter, "c", RegistryData::Text("t".into())),
            value(of_adapter, "d", RegistryData::Binary(vec![0, 255])),
        ];
        assert_eq!(adapter.registry, expected);
        assert_eq!(adapter.targets, [TargetConfig { id: 5, vsync_ns: 8_333_333 }]);
        let node = NodeConfig {
            hw_queues: false,
            doorbells: 0,
            opaque_packet_ns: 5_000_000_000,
            ..NodeConfig::default()
        };
        assert_eq!(adapter.nodes, [node]);
    }

    /// Wrong files, each with the beginning of its error.
    const WRONG: &[(&str, &str)] = &[
        (
            "[adapter]\nkmd = \"mine\"",
            "line 1, column 1: there may be several tables `adapter`: write `[[adapter]]`",
        ),
        (
            "[[adapter]]\n[adapter.node]\nengine = \"3D\"",
            "line 2, column 1: there may be several tables `adapter.node`: write `[[adapter.node]]`",
        ),
        (
            "test_signing = true\n[[adapter.node]]\nengine = \"3D\"",
            "line 2, column 3: `adapter.node` is a part of `adapter`: write `[[adapter]]` above it",
        ),
        ("[vm]\nname = \"a\"", "line 1, column 1: there may be several tables `vm`: write `[[vm]]`"),
        ("[[tdr]]\nlevel = 0", "line 1, column 1: there is only one table `tdr`: write `[tdr]`"),
        (
            "[[policy]]\nlower_gpu_signl = \"applied\"",
            "line 1, column 1: there is only one table `policy`: write `[policy]`",
        ),
        (
            "test_signing = true\n[[policy]]\nlower_gpu_signal = \"applied\"\nrefused_one_way = \"note-only\"",
            "line 2, column 1: there is only one table `policy`: write `[policy]`",
        ),
        (
            "[policy]\nlower_gpu_signl = 1",
            "line 2, column 1: unknown field `lower_gpu_signl`: did you mean `lower_gpu_signal`?",
        ),
        (
            "[[adapter]]\n[[adapter.node]]\nengin = \"3D\"",
            "line 3, column 1: unknown field `engin`: did you mean `engine`?",
        ),
        ("[[grant]]\nnmae = \"a\"", "line 2, column 1: unknown field `nmae`: did you mean `name`?"),
        (
            "[[adapter]]\n[[adapter.target]]\nvsync = 1",
            "line 3, column 1: unknown field `vsync`: did you mean `vsync_ns`?",
        ),
        (
            "[[adapter]]\n[[adapter.registry]]\nkeys = \"service\"",
            "line 3, column 1: unknown field `keys`: did you mean `key`?",
        ),
        ("tdr = 3", "line 1, column 7: invalid type: integer `3`, expected a table, `[tdr]`"),
        (
            "adapter = [\"mine\"]",
            "line 1, column 12: invalid type: string \"mine\", expected a table, `[[adapter]]`",
        ),
        (
            "[[adapter]]\nluid = 1",
            "line 2, column 8: invalid type: integer `1`, expected a LUID: its low and its high part, as `[1, 0]`",
        ),
        (
            "[[adapter]]\nluid = [1]",
            "line 2, column 8: invalid length 1, expected a LUID: its low and its high part, as `[1, 0]`",
        ),
        ("colour = 1", "line 1, column 1: unknown field `colour`: there are: adapter"),
        (
            "[[adapter]]\nlocal_budget_bytes = -1",
            "line 2, column 22: invalid value: integer `-1`, expected u64",
        ),
        (
            "[policy]\nlower_gpu_signal = \"perhaps\"",
            "line 2, column 20: unknown variant `perhaps`: there are: ignored, applied",
        ),
        (
            "[[adapter]]\n[[adapter.node]]\nengine = \"4D\"",
            "line 3, column 10: unknown variant `4D`: there are: 3D",
        ),
        ("[[adapter]]\nvendor = -1", "line 2, column 10: invalid value: integer `-1`, expected u32"),
        ("[[adapter]]\nkmd = 7", "line 2, column 7: invalid type: integer `7`, expected a string"),
        (
            "[[adapter]]\nluid = [1, 0]\n[[adapter]]\nluid = [1, 0]",
            "line 4, column 8: two adapters have the LUID 00000000:00000001",
        ),
        ("[policy", "line 1, column 8: unclosed table, expected `]`"),
        (
            "[policy]\ncolour = \"red\"",
            "line 2, column 1: unknown field `colour`: there are: lower_gpu_signal",
        ),
        (
            "features = [\"HWSCH\"]",
            "line 1, column 13: unknown variant `HWSCH`: there are: HARDWARE_SCHEDULING",
        ),
        ("features = 3", "line 1, column 12: invalid type: integer `3`, expected an array of names"),
        ("[[grant]]\nvms = []", "line 1, column 1: missing field `name`"),
        (
            "[[grant]]\nname = \"n\"\nvms = [1]",
            "line 3, column 8: invalid type: integer `1`, expected a string",
        ),
        ("[[vm]]\nsecure = true", "line 1, column 1: a VM needs its name"),
        (
            "[[vm]]\nname = \"host\"\nraised_priorities = false\nlinux = false",
            "line 4, column 9: \"host\" is no VM, and has no linux: memory_bytes, raised_priorities and disable_gpu_timeout hold for \
             the host's own processes",
        ),
        ("[[vm]]\nname = \"a\"\nadapters = [1]", "line 3, column 12: there is no adapter 1, there are 1"),
        (
            "[[vm]]\nname = \"a\"\nfeatures = [\"X\"]",
            "line 3, column 13: unknown variant `X`: there are: HARDWARE_SCHEDULING",
        ),
        ("[[vm]]\nname = \"a\"\n[[vm]]\nname = \"a\"", "line 4, column 8: two VMs are named \"a\""),
        (
            "[[vm]]\nname = \"a\"\nsecured = true",
            "line 3, column 1: unknown field `secured`: did you mean `secure`?",
        ),
        ("gpu_virtualization_flags = -1", "line 1, column 28: invalid value: integer `-1`, expected u32"),
        ("test_signing = 1", "line 1, column 16: invalid type: integer `1`, expected a boolean"),
        ("[[adapter]]\nkmd = 1", "line 2, column 7: invalid type: integer `1`, expected a string"),
        ("[[adapter]]\n[[adapter.registry]]\nname = \"a\"", "line 2, column 1: missing field `key`"),
        (
            "[[adapter]]\n[[adapter.registry]]\nkey = \"a\"\nname = \"a\"",
            "line 3, column 7: unknown variant `a`: there are: service, adapter",
        ),
        (
            "[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"",
            "line 2, column 1: value \"a\" of the registry needs one of dword, qword, text, binary, and nothing else",
        ),
        (
            "[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"\ndword = 1\nqword = 1",
            "line 2, column 1: value \"a\" of the registry needs one of dword, qword, text, binary, and nothing else",
        ),
        (
            "[[adapter]]\n[[adapter.registry]]\nkey = \"service\"\nname = \"a\"\nbinary = [256]",
            "line 5, column 11: invalid value: integer `256`, expected u8",
        ),
        ("[tdr]\nlevel = 4", "line 2, column 9: level is 4; TdrLevel is 0, 1, 2 or 3"),
        ("[tdr]\ndelay_ns = -1", "line 2, column 12: invalid value: integer `-1`, expected u64"),
        ("[tdr]\ndelay = 1", "line 2, column 1: unknown field `delay`: did you mean `delay_ns`?"),
        ("[tdr]\ntest_mode = 1", "line 2, column 13: invalid type: integer `1`, expected a boolean"),
        (
            "[[adapter]]\ncaps = [\"FAST\"]",
            "line 2, column 9: unknown variant `FAST`: there are: MULTI_ENGINE_AWARE",
        ),
        (
            "[[adapter]]\nphysical_adapters = 0",
            "line 2, column 21: physical_adapters is 0; an affinity mask has room for 1 to 32",
        ),
        ("[[adapter]]\n[[adapter.target]]\nid = 1", "line 2, column 1: missing field `vsync_ns`"),
        (
            "[[adapter]]\n[[adapter.target]]\nid = 1\nvsync_ns = 0",
            "line 4, column 12: vsync_ns is 0; a target has time between two vsyncs",
        ),
        (
            "[[adapter]]\n[[adapter.target]]\nid = 1\nvsync_ns = 1\n[[adapter.target]]\nid = 1\nvsync_ns = 1",
            "line 6, column 6: two targets have the id 1",
        ),
    ];

    #[test]
    fn errors_name_the_place_and_the_nearest_word() {
        for (text, expected) in WRONG {
            let error = format!("{:#}", parse(text).unwrap_err());
            let first = error.lines().next().unwrap_or_default();
            assert!(first.starts_with(expected), "{text}: {error}");
            assert!(error.lines().count() == 3, "the line that it is about: {error}");
        }
    }
}
