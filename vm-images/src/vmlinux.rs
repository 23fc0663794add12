//! Extracts the kernel from a bootable image.
//!
//! Distributions ship a bzImage: a small loader with the compressed kernel inside. Under emulation the loader's
//! decompression is 0.3 s of every boot (LZ4, Debian 12) or 0.7 s (zstd, Debian 13), so it is done once, here. QEMU
//! starts an uncompressed kernel by its PVH entry point, which the kernel declares in an ELF note. If any of this is
//! missing, the bzImage is used unchanged.

use elf::ElfBytes;
use elf::abi::PT_NOTE;
use elf::endian::AnyEndian;
use elf::note::Note;

use crate::decompress::decompressed;

/// Offsets in the bzImage's header, from the kernel's x86 boot protocol.
const SETUP_SECTORS: usize = 0x1f1;
const HEADER_MAGIC: usize = 0x202;
const PROTOCOL_VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR_BYTES: usize = 512;
/// The first protocol version with a payload offset.
const PROTOCOL_VERSION_MIN: u16 = 0x208;
/// XEN_ELFNOTE_PHYS32_ENTRY: where PVH starts.
const PVH_ENTRY_NOTE: u64 = 18;

/// The uncompressed kernel in `image`, if it can be extracted and QEMU can start it.
pub(crate) fn extract(image: &[u8]) -> Option<Vec<u8>> {
    let (packed, size) = payload(image)?.split_last_chunk::<4>()?;
    let kernel = decompressed(packed.to_vec()).ok()?;
    let is_complete = kernel.len() == u32::from_le_bytes(*size) as usize;
    (is_complete && has_pvh_entry(&kernel)?).then_some(kernel)
}

fn has_pvh_entry(kernel: &[u8]) -> Option<bool> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(kernel).ok()?;
    let notes = file.segments()?.iter().filter(|segment| segment.p_type == PT_NOTE);
    let mut notes = notes.filter_map(|segment| file.segment_data_as_notes(&segment).ok()).flatten();
    Some(notes.any(|note| match note {
        Note::Unknown(note) => {
            note.n_type == PVH_ENTRY_NOTE && note.name_str().is_ok_and(|name| name == "Xen")
        }
        Note::GnuAbiTag(_) | Note::GnuBuildId(_) => false,
    }))
}

/// The compressed kernel, followed by its uncompressed size. (The build appends none to gzip, which no supported
/// distribution uses.)
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word =
        |offset: usize| Some(u32::from_le_bytes(image.get(offset..offset + 4)?.try_into().ok()?) as usize);
    let version = u16::from_le_bytes(image.get(PROTOCOL_VERSION..PROTOCOL_VERSION + 2)?.try_into().ok()?);
    if image.get(HEADER_MAGIC..HEADER_MAGIC + 4)? != b"HdrS" || version < PROTOCOL_VERSION_MIN {
        return None;
    }
    // Zero means four, for historical reasons.
    let setup_sectors = match *image.get(SETUP_SECTORS)? {
        0 => 4,
        count => usize::from(count),
    };
    let start = ((setup_sectors + 1) * SECTOR_BYTES).checked_add(word(PAYLOAD_OFFSET)?)?;
    image.get(start..start.checked_add(word(PAYLOAD_LENGTH)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE_KIND: usize = 64 + 56 + 8;

    /// An ELF header, a program header of notes, and the note with the PVH entry.
    fn kernel() -> Vec<u8> {
        let mut kernel = vec![0; 140];
        let mut put =
            |offset: usize, bytes: &[u8]| kernel[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01");
        // Type, machine, version; then where the program header is, its size and number.
        put(16, &[2, 0, 62, 0, 1]);
        put(32, &[64]);
        put(52, &[64, 0, 56, 0, 1]);
        // PT_NOTE with its offset, size and alignment.
        put(64, &[4]);
        put(72, &[120]);
        put(96, &[20]);
        put(112, &[4]);
        put(120, &[4, 0, 0, 0, 4, 0, 0, 0, 18, 0, 0, 0]);
        put(132, b"Xen\0");
        kernel
    }

    fn image(kernel: &[u8], size: usize) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES];
        image[SETUP_SECTORS] = 1;
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        image[PROTOCOL_VERSION..PROTOCOL_VERSION + 2].copy_from_slice(&[0x0f, 2]);
        image[PAYLOAD_LENGTH] = kernel.len() as u8 + 4;
        [image.as_slice(), kernel, &(size as u32).to_le_bytes()].concat()
    }

    #[test]
    fn a_kernel_is_extracted_from_its_image() {
        let kernel = kernel();
        let image = image(&kernel, kernel.len());
        assert_eq!(extract(&image), Some(kernel));
        assert_eq!(extract(&image[..image.len() - 1]), None, "a payload that ends outside the image");
    }

    #[test]
    fn a_file_that_is_no_kernel_image_is_unchanged() {
        assert_eq!(extract(b""), None);
        assert_eq!(extract(&vec![0; 8192]), None);
        let mut image = vec![0xff; 8192];
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        assert_eq!(extract(&image), None, "a payload that ends outside the image");
    }

    #[test]
    fn a_kernel_of_another_size_is_not_used() {
        assert_eq!(extract(&image(&kernel(), kernel().len() + 1)), None);
    }

    #[test]
    fn a_kernel_without_a_pvh_entry_is_not_used() {
        let mut kernel = kernel();
        kernel[NOTE_KIND] += 1;
        assert_eq!(extract(&image(&kernel, kernel.len())), None);
        assert_eq!(extract(&image(b"text", 4)), None);
    }
}
