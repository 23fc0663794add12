//! Finds scenario files below the given paths, reads them, and collects their errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use drivers::Registry;
use scenario::Program;
use scenario::limits::FILE_BYTES_MAX;
use scenario::script::{ScriptError, Span, parse_bytes};

use crate::artifacts::provide_driver_host;
use crate::output::{Steps, say_error};

/// A file that has been read.
pub struct ScenarioFile {
    /// Path as given, or as found below a given folder.
    pub name: String,
    pub text: String,
    /// One for each case.
    pub programs: Vec<Program>,
}

impl ScenarioFile {
    /// Returns a line of the file for display; `None` if `number` names no line.
    pub fn line(&self, number: u32) -> Option<String> {
        let line = self.text.lines().nth(number.checked_sub(1)? as usize)?;
        Some(line.trim_end().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect())
    }
}

/// All files that were read.
#[derive(Default)]
pub struct Corpus {
    pub files: Vec<ScenarioFile>,
    /// All errors, formatted.
    pub errors: Vec<String>,
    /// Number of files with errors.
    pub wrong_files: usize,
}

impl Corpus {
    /// Reads the files and those below the folders, in the order of the paths, each once. Errors in a file are part of
    /// the result; a path without any scenario is an `Err`.
    pub fn read(paths: &[PathBuf]) -> anyhow::Result<Corpus> {
        let mut corpus = Corpus::default();
        find_all(paths)?.iter().for_each(|file| corpus.add(file));
        Ok(corpus)
    }

    /// Like [`Corpus::read`], but fails if a file has errors, and prints them on standard error.
    pub fn read_sound(paths: &[PathBuf]) -> anyhow::Result<Vec<ScenarioFile>> {
        let corpus = Corpus::read(paths)?;
        if corpus.errors.is_empty() {
            return Ok(corpus.files);
        }
        corpus.show_errors();
        bail!("{}: fix them first", corpus.count_errors())
    }

    pub fn show_errors(&self) {
        for error in &self.errors {
            say_error(format_args!("{error}"));
        }
    }

    /// Returns a count like `2 errors in 1 file`.
    pub fn count_errors(&self) -> String {
        format!(
            "{} in {}",
            trace::counted(self.errors.len() as u64, "error"),
            trace::counted(self.wrong_files as u64, "file")
        )
    }

    fn add(&mut self, path: &Path) {
        let name = path.display().to_string();
        match read(path, &name) {
            Ok(file) => self.files.push(file),
            Err(errors) => {
                self.errors.extend(errors);
                self.wrong_files += 1;
            }
        }
    }
}

/// Fails if an adapter of a case names a driver that is not registered, or a shared object that cannot be loaded. A case
/// that does not use the adapter would pass without it.
pub fn check_drivers<'a>(
    cases: impl Iterator<Item = (&'a str, &'a Program)> + Clone,
    drivers: &Registry,
) -> anyhow::Result<()> {
    provide_driver_host(cases.clone().map(|(_, program)| &program.setting.kernel), &Steps::new())?;
    let mut checked = BTreeMap::new();
    let mut wrong = BTreeSet::new();
    for (name, program) in cases {
        for (number, adapter) in program.setting.kernel.adapters.iter().enumerate() {
            let why = checked.entry(&adapter.kmd).or_insert_with_key(|kmd| drivers.check_driver(kmd).err());
            wrong.extend(why.as_ref().map(|why| format!("{name}: adapter {number}: {why}")));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", Vec::from_iter(wrong).join("\n"))
}

/// Returns the files and those below the folders, in the order of the paths, each once.
pub fn find_all(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for path in paths {
        for file in find(path)? {
            if seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())) {
                all.push(file);
            }
        }
    }
    Ok(all)
}

/// Returns the file itself, or every .scn file below the folder, sorted.
fn find(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    if metadata.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !metadata.is_dir() {
        bail!("{} is neither a file nor a folder", path.display());
    }
    let mut found = Vec::new();
    walk(path, &mut found)?;
    if found.is_empty() {
        bail!("there is no .scn file in {}: `gpupv scenario new FILE` writes one", path.display());
    }
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        // A symbolic link to a folder could form a cycle.
        if path.is_dir() && !path.is_symlink() {
            walk(&path, found)?;
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "scn") {
            found.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path, name: &str) -> Result<ScenarioFile, Vec<String>> {
    let in_words = |error: std::io::Error| vec![format!("{name}: {error}")];
    let length = fs::metadata(path).map_err(in_words)?.len();
    if length > FILE_BYTES_MAX as u64 {
        // A file above the limit is not even read.
        let message = format!("the file has {length} bytes, the limit is {FILE_BYTES_MAX}");
        let error = ScriptError::new(Span { line: 1, column: 1, width: 1 }, message);
        return Err(vec![error.help("scenarios are small texts: is it the right file?").render(name, "")]);
    }
    let bytes = fs::read(path).map_err(in_words)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match parse_bytes(&bytes) {
        Ok(programs) => Ok(ScenarioFile { name: name.into(), text, programs }),
        Err(errors) => Err(errors.iter().map(|error| error.render(name, &text)).collect()),
    }
}
