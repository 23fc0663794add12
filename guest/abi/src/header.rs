//! The text of `d3dkmthk.h`, generated from the declarations. A test compares it with the file.

use std::fmt::Write;

use d3dkmt::NtStatus;

use crate::refused::{REFUSED, RefusedGroup};
use crate::types;

/// The C text under construction.
#[derive(Default)]
pub struct Header(String);

/// A member of a struct.
pub struct Row {
    pub docs: &'static [&'static str],
    /// The type in Rust's notation.
    pub c_type: &'static str,
    pub name: &'static str,
    /// The member's C text, if it is not type and name; empty if another row's text contains the member.
    pub text: &'static [&'static str],
}

/// `TYPE NAME` in C's notation.
fn member(rust_type: &str, name: &str) -> String {
    let rust_type = rust_type.replace("* ", "*");
    let c_name = |word: &str| match word {
        "c_void" => "void".to_owned(),
        "u16" => "uint16_t".to_owned(),
        word => word.to_owned(),
    };
    if let Some(target) = rust_type.strip_prefix("*const ") {
        return format!("const {} *{name}", c_name(target));
    }
    if let Some(target) = rust_type.strip_prefix("*mut ") {
        return format!("{} *{name}", c_name(target));
    }
    match rust_type.trim_matches(['[', ']']).split_once(';') {
        Some((element, length)) => format!("{} {name}[{}]", element.trim(), length.trim()),
        None => format!("{} {name}", c_name(&rust_type)),
    }
}

impl Header {
    fn line(&mut self, depth: usize, text: &str) {
        writeln!(self.0, "{:1$}{text}", "", depth * 4).expect("a String takes all text");
    }

    /// Adds an empty line unless there is one.
    fn blank(&mut self) {
        if !self.0.ends_with("\n\n") {
            self.0.push('\n');
        }
    }

    fn comment(&mut self, depth: usize, docs: &[&str]) {
        let Some((last, before)) = docs.split_last() else { return };
        let mut opening = "/*";
        for doc in before {
            self.line(depth, &format!("{opening}{doc}"));
            opening = " *";
        }
        self.line(depth, &format!("{opening}{last} */"));
    }

    pub fn section(&mut self, title: &str, docs: &[&str]) {
        self.blank();
        self.line(0, &format!("/* ---- {title} ---- */"));
        self.comment(0, docs);
        self.blank();
    }

    pub fn alias(&mut self, c_type: &str, name: &str) {
        let last = self.0.lines().last().unwrap_or_default();
        if !last.starts_with("typedef") || c_type.ends_with('}') {
            self.blank();
        }
        let star = if c_type.ends_with('*') { "" } else { " " };
        self.nested(0, &format!("typedef {c_type}{star}{name};"));
    }

    pub fn defines(&mut self, docs: &[&str], numbers: &[(&str, &str)]) {
        self.blank();
        self.comment(0, docs);
        for (name, value) in numbers {
            self.line(0, &format!("#define {name} {value}"));
        }
    }

    pub fn enumeration(&mut self, docs: &[&str], name: &str, values: &[(&str, &str)]) {
        self.blank();
        self.comment(0, docs);
        self.line(0, &format!("typedef enum _{name} {{"));
        for (at, (value_name, value)) in values.iter().enumerate() {
            // An enumerator is an int.
            let cast = if value.starts_with("0x8") && value.len() == 10 { "(int)" } else { "" };
            let comma = if at + 1 < values.len() { "," } else { "" };
            self.line(1, &format!("{value_name} = {cast}{value}{comma}"));
        }
        self.line(0, &format!("}} {name};"));
    }

    /// Bit fields in one of the three forms that C has for them.
    pub fn bit_fields(&mut self, docs: &[&str], form: &str, name: &str, c_type: &str, bits: &[(&str, u32)]) {
        let fields: String = bits.iter().map(|(bit, width)| format!("{c_type} {bit} : {width}; ")).collect();
        let union = format!("struct {{ {fields} }}; {c_type} Value;");
        let (keyword, members) = match form {
            "bits" => ("struct", fields),
            "flag_union" => ("union", union),
            "flags" => ("struct", format!("union {{ {union} }};")),
            other => panic!("{name}: {other} is no kind of declaration"),
        };
        self.blank();
        self.comment(0, docs);
        self.nested(0, &format!("typedef {keyword} _{name} {{ {members} }} {name};"));
    }

    pub fn structure(&mut self, docs: &[&str], names: &[&str], size: usize, rows: &[Row]) {
        let name = names[0];
        self.blank();
        self.comment(0, docs);
        self.line(0, &format!("typedef struct _{name} {{"));
        for row in rows {
            self.comment(1, row.docs);
            match row.text {
                [] => self.line(1, &format!("{};", member(row.c_type, row.name))),
                text => text.iter().for_each(|text| self.nested(1, text)),
            }
        }
        self.line(0, &format!("}} {};", names.join(",\n    ")));
        self.line(0, &format!("GPUPV_SIZE({name}, {size});"));
    }

    /// Declarations without gaps.
    pub fn packed(&mut self, write: impl FnOnce(&mut Self)) {
        self.blank();
        self.line(0, "#pragma pack(push, 1)");
        write(self);
        self.line(0, "#pragma pack(pop)");
    }

    fn prototype(&mut self, call: &Prototype) {
        let Prototype { name, docs, parameters } = call;
        self.comment(0, docs);
        let parameters: Vec<String> =
            parameters.iter().map(|parameter| member(parameter, "").trim_end().to_owned()).collect();
        self.line(0, &format!("NTSTATUS {name}({});", parameters.join(", ")));
    }

    /// Writes members and nested blocks, one per line.
    fn nested(&mut self, mut depth: usize, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if word.starts_with('}') {
                depth -= 1;
            }
            line.push_str(word);
            match word.chars().last() {
                Some('{') => {
                    self.line(depth, &std::mem::take(&mut line));
                    depth += 1;
                }
                Some(';') => self.line(depth, &std::mem::take(&mut line)),
                _ => line.push(' '),
            }
        }
    }
}

/// One exported call.
pub struct Prototype {
    pub name: &'static str,
    pub docs: &'static [&'static str],
    /// The types of the parameters in Rust's notation.
    pub parameters: &'static [&'static str],
}

/// The text before the declarations.
const BEGINNING: &str = "\
/* The D3DKMT calls that gpupv's libdxcore.so exports: types, constants and prototypes.
 *
 * Generated from guest/abi/src: change that, then run
 * GPUPV_BLESS=1 cargo test -p abi --test header
 *
 * Written from the interface facts (sizes, offsets, numbers); no text of another header is in here.
 * C11 and C++11, x86-64 Linux. Link with -ldxcore. WCHAR is 4 bytes here, as with libdxg.
 * An event HANDLE is an eventfd number; an NT handle is a file descriptor.
 */
#ifndef GPUPV_D3DKMTHK_H
#define GPUPV_D3DKMTHK_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#ifdef __cplusplus
extern \"C\" {
#define GPUPV_ASSERT(condition) static_assert(condition, #condition)
#else
#define GPUPV_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define GPUPV_SIZE(type, size) GPUPV_ASSERT(sizeof(type) == (size))
";

/// The text after the declarations.
const END: &str = "
/* Whether a process owns a display exclusively: never. */
uint8_t D3DKMTCheckExclusiveOwnership(void);

/* gpupv extension: the number of messages that this process has sent to the host. For tests. */
uint64_t gpupv_messages_sent(void);
/* gpupv extension: returns once every event is set that the driver signaled before the host answered a call that has
 * returned. In a VM an event may be set after such an answer arrives. For tests. */
void gpupv_settle_events(void);

#ifdef __cplusplus
}
#endif
#endif
";

/// `STATUS_NAME` and value of the statuses that calls return.
macro_rules! statuses {
    ($($name:ident)*) => { [$((concat!("STATUS_", stringify!($name)), NtStatus::$name)),*] };
}

/// The complete header with these calls.
pub fn text(calls: &[Prototype]) -> String {
    let mut header = Header(BEGINNING.to_owned());
    types::write_c(&mut header);
    header.section("statuses", &[]);
    header.line(0, "#ifndef NT_SUCCESS\n#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)\n#endif");
    let statuses = statuses!(
        SUCCESS ABANDONED TIMEOUT PENDING DEVICE_BUSY UNSUCCESSFUL INVALID_HANDLE INVALID_PARAMETER NO_MEMORY ACCESS_DENIED
        BUFFER_TOO_SMALL OBJECT_TYPE_MISMATCH OBJECT_NAME_INVALID OBJECT_NAME_NOT_FOUND OBJECT_NAME_COLLISION
        NOT_SUPPORTED INTERNAL_ERROR DEVICE_REMOVED
    );
    for (name, status) in statuses {
        header.line(0, &format!("#define {name} ((NTSTATUS)0x{:08X})", status.0));
    }
    header.section("calls", &[]);
    calls.iter().for_each(|call| header.prototype(call));
    header.section(
        "calls that answer STATUS_NOT_SUPPORTED",
        &[" A NULL argument answers STATUS_INVALID_PARAMETER. Nothing else of the arguments is read."],
    );
    for RefusedGroup { why, calls } in REFUSED {
        header.blank();
        header.comment(0, &[&format!(" {why}")]);
        calls.iter().for_each(|call| header.prototype(call));
    }
    header.0 + END
}
