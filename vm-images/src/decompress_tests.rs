use super::*;

/// `CONTENT` 200 times, compressed as the kernel's build does: `lz4 -l`; `xz --check=crc32 --x86 --lzma2=dict=1MiB`;
/// `zstd -22 --ultra` of a stream, which gives the longest window.
const CONTENT: &[u8] = b"guest kernel module ";
const PACKED: [(&str, &[u8]); 3] = [
    (
        "lz4",
        b"\x02!L\x18.\0\0\0\xff\x05guest kernel module \x14\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
      \xff\xff\xff\xff\x83Pdule ",
    ),
    (
        "xz",
        b"\xfd7zXZ\0\0\x01i\"\xde6\x02\x01\x04\0!\x01\x10\0\x8b!oI\xe0\x0f\x9f\0/]\x003\x9dH\xce\xf5\x89\xff\
      ;\x01]FA7e\xbdD\x7fH\xc0\x87\xe9)\xc0t\xfc\xa6\xbc\x8d\xa2\xaa\x89]l\xa8\xad,[\x8e\x86\x8e\x86\
      \x01\xb2nYQ\0\0\0\xa6\xfd[\xf8\0\x01G\xa0\x1f\0\0\0V6U\xa9>0\x0d\x8b\x02\0\0\0\0\x01YZ",
    ),
    ("zstd", b"(\xb5/\xfd\x04\x88\xe5\0\0\xa0guest kernel module \x01\0\x12\x7f\xfed\x02\x9e\xd0\xe9U"),
];

#[test]
fn formats_of_the_kernels_build_are_decompressed() {
    for (format, packed) in PACKED {
        assert_eq!(decompressed(packed.to_vec()).unwrap(), CONTENT.repeat(200), "{format}");
    }
}

#[test]
fn data_cut_short_at_any_byte_is_refused() {
    for (format, packed) in PACKED {
        // LZ4 has no end mark: a cut in a block's size is found by the comparison with the kernel's size.
        for size in LZ4_MAGIC.len() + 4..packed.len() {
            assert!(decompressed(packed[..size].to_vec()).is_err(), "{format} {size}");
        }
    }
}

#[test]
fn blocks_of_lz4_are_joined() {
    let (_, packed) = PACKED[0];
    let twice = [packed, &packed[LZ4_MAGIC.len()..]].concat();
    assert_eq!(decompressed(twice).unwrap(), CONTENT.repeat(400));
}

#[test]
fn output_beyond_the_limit_is_refused() {
    assert_eq!(read_at_most(io::repeat(7).take(9), 9).unwrap(), [7; 9]);
    assert!(read_at_most(io::repeat(7), 9).unwrap_err().to_string().contains("more than 9 bytes"));
}

#[test]
fn uncompressed_bytes_are_unchanged() {
    assert_eq!(decompressed(b"\x7fELF".to_vec()).unwrap(), b"\x7fELF");
    assert_eq!(decompressed(Vec::new()).unwrap(), b"");
}
