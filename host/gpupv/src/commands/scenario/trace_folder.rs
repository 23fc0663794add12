//! The traces of a run: a file for each case on each backend, in a folder that mirrors the scenarios' folders.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use d3dkmt::random::digest;
use scenario::{Backend, Program};

use crate::commands::scenario::work::Work;

/// Bytes of a file's name before its digest and suffixes: file systems limit the whole to 255.
const NAME_BYTES_MAX: usize = 200;

/// The folder of `--record`.
pub struct TraceFolder {
    folder: PathBuf,
    /// The deepest folder that has all scenarios of the run, as far as the paths say.
    common: PathBuf,
}

impl TraceFolder {
    /// `all` are the files of all shards, so that shards do not name two traces alike.
    pub fn new(folder: &Path, all: &[PathBuf]) -> TraceFolder {
        let mut parents = all.iter().map(|file| file.parent().unwrap_or(Path::new("")));
        let first = parents.next().unwrap_or(Path::new("")).to_owned();
        let common = parents.fold(first, |common, parent| {
            let alike = common.components().zip(parent.components()).take_while(|(one, other)| one == other);
            alike.map(|(one, _)| one).collect()
        });
        TraceFolder { folder: folder.to_owned(), common }
    }

    /// Returns `FOLDER/sub/waits.value=5.local.gvt` for a case of `sub/waits.scn`; a long name ends in a digest.
    pub fn path(&self, work: Work<'_>, backend: Backend) -> PathBuf {
        let file = Path::new(&work.file.name);
        let below = file.strip_prefix(&self.common).unwrap_or(file);
        let folders = below.parent().unwrap_or(Path::new("")).components();
        // `..` would leave the folder.
        let inner = folders.filter(|part| matches!(part, Component::Normal(_)));
        let mut name = below.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !work.program.case.is_empty() {
            name = format!("{name}.{}", in_a_file_name(work.program));
        }
        if name.len() > NAME_BYTES_MAX {
            let digest = digest(name.as_bytes());
            let end = (0..=NAME_BYTES_MAX).rev().find(|at| name.is_char_boundary(*at));
            name.truncate(end.unwrap_or(0));
            name = format!("{name}-{digest:016x}");
        }
        let name = format!("{name}.{}.gvt", backend.name());
        self.folder.join(inner.collect::<PathBuf>()).join(name)
    }

    /// Makes the folders. Fails if two cases would have one file.
    pub fn provide(&self, cases: &[Work<'_>], backends: &[Backend]) -> anyhow::Result<()> {
        let mut taken = BTreeMap::new();
        for work in cases {
            for backend in backends {
                let path = self.path(*work, *backend);
                let name = || format!("{} [{}]", work.file.name, work.program.case);
                if let Some(other) = taken.insert(path.clone(), name()) {
                    bail!("{other} and {} would both be recorded into {}", name(), path.display());
                }
                let folder = path.parent().unwrap_or(&self.folder);
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            }
        }
        Ok(())
    }
}

/// The case's name without what a file's name cannot have, or a shell would take for its own.
fn in_a_file_name(program: &Program) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "=_-+,.".contains(letter);
    program.case.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use scenario::script::parse;

    use super::*;
    use crate::commands::scenario::files::ScenarioFile;

    fn file(name: &str, values: &str) -> ScenarioFile {
        let text = format!(
            "scenario \"x\"\nmatrix n = {values}\nprocess p\np  D = device -> ok\np  F = fence D initial=$n -> ok\n"
        );
        ScenarioFile { name: name.into(), programs: parse(&text).expect("it is sound"), text }
    }

    fn names(files: &[&str]) -> Vec<String> {
        let all: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let traces = TraceFolder::new(Path::new("t"), &all);
        let files: Vec<_> = files.iter().map(|name| file(name, "1")).collect();
        let path = |file| traces.path(Work { file, program: &file.programs[0] }, Backend::Local);
        files.iter().map(|file| path(file).display().to_string()).collect()
    }

    #[test]
    fn traces_stand_as_their_scenarios_do() {
        assert_eq!(names(&["a.scn"]), ["t/a.n=1.local.gvt"]);
        assert_eq!(names(&["/s/x/a.scn", "/s/b.scn"]), ["t/x/a.n=1.local.gvt", "t/b.n=1.local.gvt"]);
        assert_eq!(names(&["s/a.scn", "../a.scn"]), ["t/s/a.n=1.local.gvt", "t/a.n=1.local.gvt"]);
    }

    #[test]
    fn names_that_no_file_can_have_are_shortened_and_stay_different() {
        let name = |at: u32| format!("{}{at}", "n".repeat(52));
        let axes: String = (0..6).map(|at| format!("matrix {} = 1ns 2ns\n", name(at))).collect();
        let uses: String = (0..6).map(|at| format!("+${}\n", name(at))).collect();
        let text = format!("scenario \"x\"\n{axes}{uses}");
        let programs = parse(&text).expect("it is sound");
        let file = ScenarioFile { name: format!("{}.scn", "ß".repeat(110)), programs, text };
        let works: Vec<_> = file.programs.iter().map(|program| Work { file: &file, program }).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let traces = TraceFolder::new(folder.path(), &[PathBuf::from(&file.name)]);
        traces.provide(&works, &[Backend::Local, Backend::Model]).expect("each has a file of its own");
        for work in &works {
            let path = traces.path(*work, Backend::Local);
            std::fs::write(path.with_extension("2.gvt"), "").expect("a file can have this name");
        }
        assert_eq!(names(&["a.scn"]), ["t/a.n=1.local.gvt"]);
    }

    #[test]
    fn two_cases_with_one_file_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = ["x/a.scn", "../x/a.scn"].map(PathBuf::from);
        let traces = TraceFolder::new(folder.path(), &all);
        let files = all.map(|path| file(&path.display().to_string(), "1"));
        let works: Vec<_> = files.iter().map(|file| Work { file, program: &file.programs[0] }).collect();
        let error = traces.provide(&works, &[Backend::Model]).expect_err("one file for both").to_string();
        assert!(
            error.starts_with("x/a.scn [n=1] and ../x/a.scn [n=1] would both be recorded into "),
            "{error}"
        );
    }
}
