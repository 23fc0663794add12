//! Programs that are copied into a guest: their machine, their loader, and the part that the loader reads.

use elf::ElfBytes;
use elf::abi::{EM_X86_64, PT_INTERP};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::to_str::e_machine_to_human_str;

/// The kind of a file, by its content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// An x86-64 ELF file; `interpreter` is its loader, absent in a static program.
    Elf { interpreter: Option<String> },
    /// An ELF file that the guest cannot run, with the reason.
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
    if !bytes.starts_with(&elf::abi::ELFMAGIC) {
        return FileKind::Unknown;
    }
    match ElfBytes::minimal_parse(bytes) {
        Ok(file) if file.ehdr.class == Class::ELF64 && file.ehdr.e_machine == EM_X86_64 => {
            FileKind::Elf { interpreter: interpreter_of(&file) }
        }
        Ok(file) => FileKind::ElfOther(machine_words(file.ehdr.class, file.ehdr.e_machine)),
        Err(error) => FileKind::ElfOther(format!("it is a damaged ELF file: {error}")),
    }
}

fn machine_words(class: Class, machine: u16) -> String {
    let bits = match class {
        Class::ELF32 => 32,
        Class::ELF64 => 64,
    };
    let machine =
        e_machine_to_human_str(machine).map_or_else(|| format!("machine number {machine}"), str::to_owned);
    format!("it is a {bits}-bit program for {machine}; the guest is 64-bit x86-64")
}

fn interpreter_of(file: &ElfBytes<'_, AnyEndian>) -> Option<String> {
    let segment = file.segments()?.iter().find(|segment| segment.p_type == PT_INTERP)?;
    let path = file.segment_data(&segment).ok()?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// How many bytes of a program its loader reads: the rest is symbols and debug information.
///
/// `None` if the headers are not as expected; the whole file is then needed.
fn loaded_size_bytes(bytes: &[u8]) -> Option<usize> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).ok()?;
    let table_size_bytes = u64::from(file.ehdr.e_phentsize) * u64::from(file.ehdr.e_phnum);
    let table_end = file.ehdr.e_phoff.checked_add(table_size_bytes)?;
    let end = file
        .segments()?
        .iter()
        .try_fold(table_end, |end, segment| Some(end.max(segment.p_offset.checked_add(segment.p_filesz)?)))?;
    usize::try_from(end).ok().filter(|&end| end <= bytes.len())
}

/// The program without debug information; it runs as before.
pub(crate) fn stripped(mut bytes: Vec<u8>) -> Vec<u8> {
    let FileKind::Elf { .. } = kind_of(&bytes) else { return bytes };
    if let Some(size) = loaded_size_bytes(&bytes) {
        bytes.truncate(size);
        // The section table is cut off: clear e_shoff, and e_shnum with e_shstrndx.
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
    }
    bytes
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
