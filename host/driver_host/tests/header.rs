//! `dxgk_miniport.h` and docs/KMD.md have what the rows say, and a C compiler agrees about each layout.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use driver_host::abi::{CALLBACKS, DDIS, header, table_of_ddis};

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn the_header_is_the_one_that_the_rows_make() {
    let (path, made) = (in_tree("host/driver_host/include/dxgk_miniport.h"), header());
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let known = read(&path);
    let differs = known.lines().zip(made.lines()).position(|(known, made)| known != made);
    assert!(known == made, "line {differs:?} (from 0) of dxgk_miniport.h differs; GPUPV_BLESS=1 rewrites it");
}

#[test]
fn the_documentation_lists_every_function() {
    const BEGIN: &str = "<!-- the functions of a driver in C: GPUPV_BLESS=1 cargo test -p driver-host -->\n";
    let path = in_tree("docs/KMD.md");
    let text = read(&path);
    let (before, rest) = text.split_once(BEGIN).expect("docs/KMD.md has the table's mark");
    let (known, after) = rest.split_once("\n\n").expect("text follows the table");
    let made = table_of_ddis();
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{made}\n{after}")).unwrap();
        return;
    }
    assert_eq!(format!("{known}\n"), made, "GPUPV_BLESS=1 rewrites it");
}

/// Rust and C lay out each struct in the same way.
#[test]
fn a_c_compiler_sees_the_same_layouts() {
    let mut text = String::from("#include <stddef.h>\n#include \"dxgk_miniport.h\"\n");
    for row in DDIS.iter().chain(CALLBACKS) {
        _ = writeln!(text, "_Static_assert(sizeof({}) == {}, \"\");", row.arguments, row.bytes.0);
    }
    for (table, rows, first) in
        [("DRIVER_INITIALIZATION_DATA", DDIS, 8), ("DXGKRNL_INTERFACE", CALLBACKS, 16)]
    {
        for (number, row) in rows.iter().enumerate() {
            let at = first + 8 * number;
            _ = writeln!(text, "_Static_assert(offsetof({table}, {}) == {at}, \"\");", row.name);
        }
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("layouts.c");
    std::fs::write(&source, text).unwrap();
    std::fs::write(folder.join("dxgk_miniport.h"), header()).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(&folder)
        .arg(&source)
        .output()
        .expect("a C compiler is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
