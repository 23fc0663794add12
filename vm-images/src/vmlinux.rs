//! Extracts the kernel from a bootable image.
//!
//! Distributions ship a bzImage: a small loader with the compressed kernel inside. Under emulation the loader's
//! decompression is 0.2 s of every boot, so it is done once, here. QEMU starts an uncompressed kernel by its PVH entry
//! point, which the kernel declares in an ELF note. If any of this is missing, the bzImage is used unchanged.

use crate::decompress::decompressed;
use crate::elf::{note, section};

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
const PVH_ENTRY_NOTE: u32 = 18;

/// The uncompressed kernel in `image`, if it can be extracted and QEMU can start it.
pub(crate) fn extract(image: &[u8]) -> Option<Vec<u8>> {
    let kernel = decompressed(payload(image)?.to_vec()).ok()?;
    note(section(&kernel, ".notes")?, "Xen", PVH_ENTRY_NOTE)?;
    Some(kernel)
}

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
    let payload = image.get(start..start.checked_add(word(PAYLOAD_LENGTH)?)?)?;
    // The build appends the unpacked size, except for gzip, whose own last word has it.
    if payload.starts_with(&[0x1f, 0x8b]) {
        Some(payload)
    } else {
        payload.get(..payload.len().checked_sub(4)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_kernel_image_is_unchanged() {
        assert_eq!(extract(b""), None);
        assert_eq!(extract(&vec![0; 8192]), None);
        let mut image = vec![0xff; 8192];
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        assert_eq!(extract(&image), None, "a payload that ends outside the image");
    }

    #[test]
    fn a_payload_without_a_pvh_entry_is_left_alone() {
        let mut image = vec![0; 8192];
        image[SETUP_SECTORS] = 1;
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        image[PROTOCOL_VERSION] = 0x0f;
        image[PROTOCOL_VERSION + 1] = 2;
        image[PAYLOAD_LENGTH] = 100;
        assert_eq!(payload(&image).map(<[u8]>::len), Some(96));
        assert_eq!(extract(&image), None);
    }
}
