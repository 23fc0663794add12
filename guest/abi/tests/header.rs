//! `d3dkmthk.h` is the text that the declarations generate, and has a function for every call. So has docs/ABI.md.

use std::path::{Path, PathBuf};

use abi::header::{Prototype, text};
use abi::refused::{REFUSED, markdown};

/// The types of one call's parameters in Rust's notation.
macro_rules! parameters {
    (by $($parameter:ident: $type:ty),*) => { &[$(stringify!($type)),*] };
    (in $type:ident $(of $process:ident)?) => { &[concat!("*const ", stringify!($type))] };
    ($mode:ident $type:ident $(of $process:ident)?) => { &[concat!("*mut ", stringify!($type))] };
}

macro_rules! prototypes {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($($parameters:tt)*) = $module:ident::$thunk:ident;)*) => {
        vec![$(Prototype { name: stringify!($name), docs: &[$($doc),*], parameters: parameters!($($parameters)*) }),*]
    };
}

macro_rules! plain_prototypes {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($($parameters:tt)*)
        = $call:ident $fields:tt $(-> $reply:ident $outputs:tt)?;)*) => {
        vec![$(Prototype { name: stringify!($name), docs: &[$($doc),*], parameters: parameters!($($parameters)*) }),*]
    };
}

/// The functions with a thunk of their own, and the plain ones.
fn functions() -> (Vec<Prototype>, Vec<Prototype>) {
    (abi::for_each_function!(prototypes), abi::for_each_plain_call!(plain_prototypes))
}

fn prototypes() -> Vec<Prototype> {
    let (own, plain) = functions();
    own.into_iter().chain(plain).collect()
}

/// A file of the source tree.
fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_header_is_the_one_that_the_declarations_make() {
    let path = in_tree("guest/umd/include/d3dkmthk.h");
    let made = text(&prototypes());
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    let differs = known.lines().zip(made.lines()).position(|(known, made)| known != made);
    assert!(known == made, "line {differs:?} (from 0) of d3dkmthk.h differs; GPUPV_BLESS=1 rewrites it");
}

/// Each function with a thunk of its own is called by a program of `tests/c` and mentioned in docs/ABI.md. Plain calls
/// need neither: the scenario client makes them through C.
#[test]
fn every_call_is_tried_by_a_c_program_and_documented() {
    let programs: String = std::fs::read_dir(in_tree("tests/c"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let page = std::fs::read_to_string(in_tree("docs/ABI.md")).unwrap();
    let words: Vec<&str> = page.split(|letter: char| !letter.is_alphanumeric()).collect();
    for Prototype { name, .. } in functions().0 {
        let short = name.trim_start_matches("D3DKMT");
        let tried = programs.contains(&format!("CALL({short},")) || programs.contains(&format!("{name}("));
        assert!(tried, "no program of tests/c calls {name}");
        assert!(words.contains(&short), "docs/ABI.md does not mention {short}");
    }
}

/// The page has the table of calls that answer NOT_SUPPORTED.
#[test]
fn the_page_lists_what_is_not_supported() {
    const HEAD: &str = "## What is exported and answers NOT_SUPPORTED\n";
    let path = in_tree("docs/ABI.md");
    let known = std::fs::read_to_string(&path).unwrap();
    let (before, section) = known.split_once(HEAD).expect("docs/ABI.md has the section");
    let end = section.find("\n## ").expect("a section follows");
    let (section, after) = section.split_at(end);
    let (text, _) = section.split_once("| calls | why |").expect("the section has the table");
    let made = format!("{before}{HEAD}{text}{}{after}", markdown());
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
        return;
    }
    assert!(known == made, "the table of docs/ABI.md differs from refused.rs; GPUPV_BLESS=1 rewrites it");
}

/// `tests/c/loader.c` looks for every exported call.
#[test]
fn the_loader_test_has_every_name() {
    let program = std::fs::read_to_string(in_tree("tests/c/loader.c")).unwrap();
    let refused = REFUSED.iter().flat_map(|group| group.calls);
    for name in prototypes().iter().map(|call| call.name).chain(refused.map(|call| call.name)) {
        let quoted = format!("\"{}\"", name.trim_start_matches("D3DKMT"));
        assert!(program.contains(&quoted), "tests/c/loader.c does not look for {name}");
    }
}

#[test]
fn no_supported_call_is_refused_as_well() {
    let refused: Vec<_> = REFUSED.iter().flat_map(|group| group.calls).map(|call| call.name).collect();
    let both: Vec<_> =
        prototypes().into_iter().map(|call| call.name).filter(|name| refused.contains(name)).collect();
    assert!(both.is_empty(), "remove {both:?} from guest/abi/src/refused.rs");
}

macro_rules! docs_of_calls {
    ($($(#[doc = $doc:literal])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// Each row of the table of calls, and its doc.
        const ROWS: &[(&str, &[&str])] = &[$((stringify!($name), &[$($doc),*])),+];
    };
}

d3dkmt::for_each_call!(docs_of_calls);

/// Rows without a C function: calls that only the library makes, and doorbells, which have no documented C layout.
const NOT_EXPORTED: [&str; 7] = [
    "CancelWait",
    "WatchAdapters",
    "ReadKeyedMutex",
    "CreateDoorbell",
    "ConnectDoorbell",
    "DestroyDoorbell",
    "NotifyWorkSubmission",
];

#[test]
fn every_row_of_a_call_has_its_c_function() {
    let prototypes = prototypes();
    for (name, doc) in ROWS.iter().filter(|(name, _)| !NOT_EXPORTED.contains(name)) {
        let first = doc.first().and_then(|line| line.trim().strip_prefix('`')?.split('`').next());
        let function = first.unwrap_or_else(|| panic!("the doc of {name} does not begin with its C name"));
        let is_exported = prototypes.iter().any(|prototype| prototype.name == function);
        assert!(is_exported, "{function} of the row {name} is not in the tables of C functions");
    }
}
