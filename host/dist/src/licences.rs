//! Licences of the crates that are linked into the programs, as text, and a bill of materials (SBOM) as CycloneDX 1.5.
//!
//! Both come from `cargo metadata` and `Cargo.lock`: the normal dependencies of the installed programs, and of those.
//! What only builds them - build scripts, procedural macros, tests - is not in them. Features are those of the whole
//! workspace, so that a crate may be listed that a single program would do without.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::build::Source;
use crate::command::output;
use crate::tree::write as write_file;

/// Programs and libraries of each Debian package, by the crates that build them.
const OF_HOST: [&str; 6] = ["gpupv", "umd", "guestd", "scenario-client", "dev-dxg", "driver-host"];
const OF_GUEST: [&str; 2] = ["umd", "guestd"];

/// Head of `/usr/share/doc/*/copyright`.
const COPYRIGHT: &str = include_str!("../debian/copyright");

/// Beginnings of the names of files with licences and notices.
const LICENCE_FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "UNLICENSE", "COPYRIGHT", "NOTICE"];

/// A crate that is linked.
struct Crate {
    name: String,
    version: String,
    /// SPDX expression.
    licence: String,
    repository: String,
    folder: PathBuf,
    is_ours: bool,
    /// SHA-256 of its archive in the registry, in hexadecimal.
    checksum: Option<String>,
    /// Ids of linked crates that it uses.
    uses: BTreeSet<String>,
}

impl Crate {
    fn shown(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// All that is linked, by cargo's id of a crate.
struct Linked {
    crates: BTreeMap<String, Crate>,
    /// As `rustc 1.96.0 (..)`.
    compiler: String,
}

/// Adds `copyright`, the licences and the bills of materials to the tree.
pub fn write(source: &Source, tree: &Path) -> anyhow::Result<()> {
    let host = Linked::of(source, &OF_HOST)?;
    let guest = Linked::of(source, &OF_GUEST)?;
    let docs = tree.join("share/doc/gpupv");
    write_file(
        &docs.join("copyright"),
        host.copyright(&fs::read_to_string(source.tree.join("LICENSE-MIT"))?),
    )?;
    write_file(&docs.join("LICENCES.txt"), host.licences(source)?)?;
    write_file(&docs.join("gpupv.cdx.json"), format!("{:#}\n", host.bill("gpupv", source)))?;
    write_file(&docs.join("gpupv-guest.cdx.json"), format!("{:#}\n", guest.bill("gpupv-guest", source)))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// An SPDX expression of a manifest; older ones have a slash for OR.
fn expression(licence: &str) -> String {
    licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Checksums of `Cargo.lock` by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]");
    blocks
        .filter_map(|block| {
            Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?))
        })
        .collect()
}

impl Linked {
    /// What these crates link, they themselves included.
    fn of(source: &Source, programs: &[&str]) -> anyhow::Result<Linked> {
        let verbose = output(Command::new("rustc").arg("-vV"), "rustc")?;
        let host =
            verbose.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc has no host")?;
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.current_dir(&source.tree).args(["metadata", "--format-version", "1", "--locked"]);
        let metadata: Value =
            serde_json::from_str(&output(command.args(["--filter-platform", host]), "cargo")?)?;
        let lock = fs::read_to_string(source.tree.join("Cargo.lock"))?;
        Linked::from(&metadata, &checksums(&lock), programs, verbose.lines().next().unwrap_or_default())
    }

    fn from(
        metadata: &Value,
        checksums: &BTreeMap<(String, String), String>,
        programs: &[&str],
        compiler: &str,
    ) -> anyhow::Result<Linked> {
        let packages: BTreeMap<&str, &Value> =
            rows(&metadata["packages"]).iter().filter_map(|one| Some((one["id"].as_str()?, one))).collect();
        let nodes: BTreeMap<&str, &Value> = rows(&metadata["resolve"]["nodes"])
            .iter()
            .filter_map(|one| Some((one["id"].as_str()?, one)))
            .collect();
        let is_macro = |id: &str| {
            let of_target = |target: &Value| rows(&target["kind"]).iter().any(|kind| kind == "proc-macro");
            packages.get(id).is_some_and(|package| rows(&package["targets"]).iter().any(of_target))
        };
        let mut next: Vec<&str> = Vec::new();
        for program in programs {
            let is_it = |package: &&Value| package["name"] == **program && package["source"].is_null();
            let package = packages.values().copied().find(is_it);
            next.push(
                package.and_then(|one| one["id"].as_str()).with_context(|| format!("no crate {program}"))?,
            );
        }
        let mut crates = BTreeMap::new();
        while let Some(id) = next.pop() {
            if crates.contains_key(id) {
                continue;
            }
            let package = packages.get(id).with_context(|| format!("cargo metadata has no {id}"))?;
            let dependencies = nodes.get(id).map_or(&[][..], |node| rows(&node["deps"]));
            let is_linked = |one: &&Value| {
                rows(&one["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
                    && !is_macro(one["pkg"].as_str().unwrap_or_default())
            };
            let uses: Vec<&str> =
                dependencies.iter().filter(is_linked).filter_map(|one| one["pkg"].as_str()).collect();
            next.extend(&uses);
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let linked = Crate {
                licence: expression(&text(&package["license"])),
                repository: text(&package["repository"]),
                folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
                is_ours: package["source"].is_null(),
                checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
                uses: uses.into_iter().map(str::to_owned).collect(),
                name,
                version,
            };
            crates.insert(id.to_owned(), linked);
        }
        Ok(Linked { crates, compiler: compiler.to_owned() })
    }

    /// The crates of others, by name and version.
    fn others(&self) -> Vec<&Crate> {
        let mut others: Vec<&Crate> = self.crates.values().filter(|one| !one.is_ours).collect();
        others.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        others
    }

    /// The list of crates with their licences, one a line.
    fn list(&self) -> String {
        let mut list = String::new();
        for one in self.others() {
            let _ = writeln!(list, "  {}: {}", one.shown(), one.licence);
        }
        let _ = writeln!(list, "  Rust's standard library, {}: MIT OR Apache-2.0", self.compiler);
        list
    }

    /// The file that Debian asks for.
    fn copyright(&self, mit: &str) -> String {
        let paragraph = |text: &str| {
            text.lines()
                .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
                .collect::<String>()
        };
        COPYRIGHT
            .replace("{{linked}}\n", &paragraph(&self.list()))
            .replace("{{mit}}\n", &paragraph(mit.trim()))
    }

    /// All licences of what is linked: the list, then each text once with the crates that have it.
    fn licences(&self, source: &Source) -> anyhow::Result<String> {
        let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        let mut add = |text: String, of: String| {
            let key: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            texts.entry(key).or_insert_with(|| (text, Vec::new())).1.push(of);
        };
        let others = self.others();
        for one in &others {
            let mut found = licence_files(&one.folder)?;
            if found.is_empty() {
                // Some archives lack the file that their repository has.
                let is_sibling =
                    |other: &&&Crate| other.repository == one.repository && !one.repository.is_empty();
                for sibling in others.iter().filter(is_sibling) {
                    found.extend(licence_files(&sibling.folder)?);
                }
            }
            if found.is_empty() && one.licence.contains("Apache-2.0") {
                found.push(source.tree.join("LICENSE-APACHE"));
            }
            if found.is_empty() {
                bail!(
                    "{} ({}) has no text of its licence: say in licences.rs where it is",
                    one.shown(),
                    one.licence
                );
            }
            for file in found {
                let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
                add(String::from_utf8_lossy(&bytes).trim().to_owned(), one.shown());
            }
        }
        let standard = "Rust's standard library (copyright the Rust Project contributors)".to_owned();
        for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let text = fs::read_to_string(source.tree.join(file))?;
            add(text.trim().to_owned(), "gpupv".into());
            if file == "LICENSE-APACHE" {
                add(text.trim().to_owned(), standard.clone());
            }
        }
        let mut all =
            format!("What is linked into gpupv {}, and its licences\n\n{}", source.version, self.list());
        for (text, mut of) in texts.into_values() {
            of.dedup();
            let _ = write!(all, "\n{}\n{}:\n\n{text}\n", "-".repeat(72), of.join(", "));
        }
        Ok(all)
    }

    /// The bill of materials.
    fn bill(&self, package: &str, source: &Source) -> Value {
        let component = |one: &Crate| {
            let mut component = json!({
                "type": "library", "bom-ref": one.purl(), "name": one.name, "version": one.version,
                "licenses": [{ "expression": one.licence }], "purl": one.purl(),
            });
            if let Some(checksum) = &one.checksum {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            }
            if one.is_ours {
                // Not in the registry of crates: the name alone says nothing elsewhere.
                component["purl"] = format!("pkg:generic/gpupv/{}@{}", one.name, one.version).into();
            }
            component
        };
        let depends = |one: &Crate| {
            let on = one.uses.iter().filter_map(|id| self.crates.get(id)).map(Crate::purl);
            json!({ "ref": one.purl(), "dependsOn": on.collect::<BTreeSet<_>>() })
        };
        json!({
            "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {
                "timestamp": timestamp(source.epoch),
                "component": {
                    "type": "application", "bom-ref": package, "name": package, "version": source.version,
                    "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                },
                "properties": [{ "name": "gpupv:compiler", "value": self.compiler }],
            },
            "components": self.crates.values().map(component).collect::<Vec<_>>(),
            "dependencies": self.crates.values().map(depends).collect::<Vec<_>>(),
        })
    }
}

fn licence_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = crate::tree::files_of(folder, None)?;
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        LICENCE_FILES.iter().any(|begin| name.starts_with(begin))
    });
    Ok(files)
}

/// Seconds since 1970 as `2026-11-26T20:15:44Z`.
fn timestamp(epoch: u64) -> String {
    let (days, seconds) = (epoch / 86_400, epoch % 86_400);
    // The civil calendar, in years that begin in March, of eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source { epoch: 1_790_000_000, ..Source::find().unwrap() }
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_is_not() {
        let host = Linked::of(&source(), &OF_HOST).unwrap();
        let names: BTreeSet<&str> = host.crates.values().map(|one| one.name.as_str()).collect();
        for linked in ["gpupv", "dxgkrnl", "umd", "guestd", "tokio", "clap", "libc", "prost"] {
            assert!(names.contains(linked), "{linked}");
        }
        for other in [
            "proptest",
            "serde_derive",
            "syn",
            "proc-macro2",
            "tempfile-macro",
            "covers",
            "e2e",
            "loom",
            "protox",
        ] {
            assert!(!names.contains(other), "{other}");
        }
        let guest = Linked::of(&source(), &OF_GUEST).unwrap();
        assert!(guest.crates.len() < host.crates.len() / 2, "{} {}", guest.crates.len(), host.crates.len());
        assert!(guest.crates.keys().all(|id| host.crates.contains_key(id)));
    }

    #[test]
    fn each_linked_crate_has_an_expression_a_text_and_a_line_in_the_bill() {
        let source = source();
        let host = Linked::of(&source, &OF_HOST).unwrap();
        let licences = host.licences(&source).unwrap();
        let copyright = host.copyright("Permission is hereby granted\n\nand more");
        assert!(copyright.contains(" Permission is hereby granted\n .\n and more\n"), "{copyright}");
        assert!(
            !copyright.contains("{{") && copyright.contains("Rust's standard library, rustc 1."),
            "{copyright}"
        );
        // A text names its crates before it.
        let texts = licences.split_once("\n----").unwrap().1;
        for one in host.others() {
            assert!(
                !one.licence.is_empty() && !one.licence.contains('/'),
                "{}: {}",
                one.shown(),
                one.licence
            );
            assert!(texts.contains(&one.shown()), "{} has no text", one.shown());
            assert!(copyright.contains(&format!("   {}: {}\n", one.shown(), one.licence)), "{}", one.shown());
            assert!(one.checksum.as_ref().is_some_and(|sum| sum.len() == 64), "{}", one.shown());
        }
        let bill = host.bill("gpupv", &source);
        assert_eq!(bill["metadata"]["timestamp"], "2026-09-21T14:13:20Z");
        let refs: BTreeSet<&str> =
            rows(&bill["components"]).iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert_eq!((refs.len(), rows(&bill["components"]).len()), (host.crates.len(), host.crates.len()));
        for one in rows(&bill["dependencies"]) {
            assert!(refs.contains(one["ref"].as_str().unwrap()));
            assert!(rows(&one["dependsOn"]).iter().all(|on| refs.contains(on.as_str().unwrap())), "{one}");
        }
        assert!(!bill.to_string().contains(source.tree.to_str().unwrap()), "no path of this machine");
        assert!(!licences.contains(source.tree.to_str().unwrap()));
    }

    #[test]
    fn a_crate_without_any_text_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        let metadata = json!({
            "packages": [{ "id": "a", "name": "a", "version": "1.0.0", "source": null, "license": "MIT", "manifest_path": "/a/Cargo.toml", "targets": [] },
                         { "id": "b", "name": "b", "version": "2.0.0", "source": "registry", "license": "MIT/BSL-1.0", "manifest_path": manifest, "targets": [] }],
            "resolve": { "nodes": [{ "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": null }] }] }] },
        });
        let linked = Linked::from(&metadata, &BTreeMap::new(), &["a"], "rustc 1.0").unwrap();
        let error = linked.licences(&source()).unwrap_err().to_string();
        assert!(error.contains("b 2.0.0 (MIT OR BSL-1.0) has no text of its licence"), "{error}");
        fs::write(folder.path().join("LICENSE-MIT"), "its text").unwrap();
        assert!(linked.licences(&source()).unwrap().contains("b 2.0.0:\n\nits text\n"));
        assert!(Linked::from(&metadata, &BTreeMap::new(), &["c"], "").is_err());
    }
}
