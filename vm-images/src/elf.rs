//! The parts of ELF that preparing a guest needs: a program's machine, its loader, and one section's bytes.
//!
//! Files are untrusted, so every offset is checked and a bad one gives `None`.

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86_64: u16 = 62;
const PROGRAM_HEADER_INTERPRETER: u32 = 3;

/// The kind of a file, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// An x86-64 ELF file; `interpreter` is its loader, absent in a static program.
    Elf { interpreter: Option<String> },
    /// An ELF file for another machine, with the reason as text.
    ElfOther(String),
    /// Starts with `#!`; the interpreter it names.
    Script(String),
    /// None of these.
    Unknown,
}

pub(crate) fn kind_of(bytes: &[u8]) -> FileKind {
    if let Some(rest) = bytes.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(rest.split(|&byte| byte == b'\n').next().unwrap_or_default())
            .into_owned();
        return FileKind::Script(line.split_whitespace().next().unwrap_or_default().to_owned());
    }
    if !bytes.starts_with(b"\x7fELF") {
        return FileKind::Unknown;
    }
    match (bytes.get(4), bytes.get(5), u16_at(bytes, 18)) {
        (Some(&CLASS_64), Some(&LITTLE_ENDIAN), Some(MACHINE_X86_64)) => {
            FileKind::Elf { interpreter: interpreter_of(bytes) }
        }
        (class, order, machine) => FileKind::ElfOther(machine_words(class.copied(), order.copied(), machine)),
    }
}

fn machine_words(class: Option<u8>, order: Option<u8>, machine: Option<u16>) -> String {
    let name = match machine {
        // Other byte order: the machine number is not readable here.
        _ if order != Some(LITTLE_ENDIAN) => "a big-endian machine".to_owned(),
        Some(3) => "i386".to_owned(),
        Some(40) => "arm".to_owned(),
        Some(183) => "aarch64".to_owned(),
        Some(243) => "riscv".to_owned(),
        Some(MACHINE_X86_64) if class == Some(1) => "x32".to_owned(),
        Some(other) => format!("machine number {other}"),
        None => "an unknown machine (the file is cut short)".to_owned(),
    };
    format!("it is built for {name}, the guest is x86-64")
}

fn interpreter_of(bytes: &[u8]) -> Option<String> {
    let table = usize::try_from(u64_at(bytes, 32)?).ok()?;
    let entry_size = usize::from(u16_at(bytes, 54)?);
    for index in 0..usize::from(u16_at(bytes, 56)?) {
        let header = table.checked_add(index * entry_size)?;
        if u32_at(bytes, header)? == PROGRAM_HEADER_INTERPRETER {
            let path = range(
                bytes,
                u64_at(bytes, header.checked_add(8)?)?,
                u64_at(bytes, header.checked_add(32)?)?,
            )?;
            let path = path.split(|&byte| byte == 0).next()?;
            return Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    None
}

/// The bytes of the section called `name`.
pub(crate) fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !matches!(kind_of(bytes), FileKind::Elf { .. }) {
        return None;
    }
    let table = usize::try_from(u64_at(bytes, 40)?).ok()?;
    let entry_size = usize::from(u16_at(bytes, 58)?);
    let header = |index: u16| table.checked_add(usize::from(index) * entry_size);
    let content = |header: usize| {
        range(bytes, u64_at(bytes, header.checked_add(24)?)?, u64_at(bytes, header.checked_add(32)?)?)
    };
    let names = content(header(u16_at(bytes, 62)?)?)?;
    for index in 0..u16_at(bytes, 60)? {
        let header = header(index)?;
        let name_offset = usize::try_from(u32_at(bytes, header)?).ok()?;
        if names.get(name_offset..)?.split(|&byte| byte == 0).next()? == name.as_bytes() {
            return content(header);
        }
    }
    None
}

/// How many bytes of a program its loader reads: the rest is symbols and debug information.
///
/// `None` if the headers are not as expected; the whole file is then needed.
fn loaded_size_bytes(bytes: &[u8]) -> Option<usize> {
    let table = usize::try_from(u64_at(bytes, 32)?).ok()?;
    let (entry_size, count) = (usize::from(u16_at(bytes, 54)?), usize::from(u16_at(bytes, 56)?));
    let mut end = table.checked_add(entry_size * count)?;
    for index in 0..count {
        let header = table.checked_add(index * entry_size)?;
        let (offset, size) =
            (u64_at(bytes, header.checked_add(8)?)?, u64_at(bytes, header.checked_add(32)?)?);
        end = end.max(usize::try_from(offset.checked_add(size)?).ok()?);
    }
    (count > 0 && end <= bytes.len()).then_some(end)
}

/// The program without debug information; it runs as before.
pub(crate) fn stripped(mut bytes: Vec<u8>) -> Vec<u8> {
    let FileKind::Elf { .. } = kind_of(&bytes) else { return bytes };
    if let Some(size) = loaded_size_bytes(&bytes) {
        bytes.truncate(size);
        // The section table is gone: its offset, and the number of its entries with the index of their names.
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
    }
    bytes
}

/// The content of the note `kind` of `owner` in a section or segment of notes.
///
/// A note is the sizes of its owner and content, its kind, the zero-terminated owner and the content, each padded to
/// four bytes.
pub(crate) fn note<'a>(mut notes: &'a [u8], owner: &str, kind: u32) -> Option<&'a [u8]> {
    loop {
        let owner_size = usize::try_from(u32_at(notes, 0)?).ok()?;
        let content_size = usize::try_from(u32_at(notes, 4)?).ok()?;
        let content_start = 12_usize.checked_add(owner_size.checked_next_multiple_of(4)?)?;
        let content = notes.get(content_start..content_start.checked_add(content_size)?)?;
        let found = notes.get(12..12 + owner_size)?.strip_suffix(b"\0")?;
        if found == owner.as_bytes() && u32_at(notes, 8)? == kind {
            return Some(content);
        }
        notes = notes.get(content_start.checked_add(content_size.checked_next_multiple_of(4)?)?..)?;
    }
}

fn range(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

fn array_at<const SIZE: usize>(bytes: &[u8], offset: usize) -> Option<[u8; SIZE]> {
    bytes.get(offset..offset.checked_add(SIZE)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
