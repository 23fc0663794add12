use super::*;

/// One block: literals "abc", a match of 9 at distance 3, then the literals "xyz".
const BLOCK: [u8; 10] = [0x35, b'a', b'b', b'c', 3, 0, 0x30, b'x', b'y', b'z'];

fn frame(blocks: &[&[u8]]) -> Vec<u8> {
    let mut frame = LZ4_MAGIC.to_vec();
    for block in blocks {
        frame.extend((block.len() as u32).to_le_bytes());
        frame.extend(*block);
    }
    frame
}

#[test]
fn lz4_blocks_with_overlapping_matches_are_unpacked() {
    let unpacked = decompressed(frame(&[&BLOCK, &BLOCK])).unwrap();
    assert_eq!(unpacked, b"abcabcabcabcxyzabcabcabcabcxyz");
}

#[test]
fn long_lengths_are_spread_over_bytes() {
    let mut block = vec![0xf0, 255, 10];
    block.extend(vec![7; 15 + 255 + 10]);
    assert_eq!(decompressed(frame(&[&block])).unwrap(), vec![7; 280]);
}

#[test]
fn damaged_lz4_is_refused_whatever_the_damage() {
    let good = frame(&[&BLOCK]);
    for size in LZ4_MAGIC.len() + 1..good.len() {
        assert!(decompressed(good[..size].to_vec()).is_err(), "{size}");
    }
    for position in LZ4_MAGIC.len()..good.len() {
        for value in 0..=255 {
            let mut bad = good.clone();
            bad[position] = value;
            // It must not panic and not grow without bound; whether it is an error depends on the byte.
            let _ = decompressed(bad);
        }
    }
    assert!(decompressed(frame(&[&[0x00, 9, 0]])).is_err(), "a distance before the block");
}

#[test]
fn the_tools_unpack_what_they_packed() {
    for (_, tool, _) in TOOLS {
        if find_on_path(tool).is_none() {
            println!("skipped {tool}: not on this machine");
            continue;
        }
        let content = vec![b'x'; 300_000];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("content");
        std::fs::write(&file, &content).unwrap();
        let packed = Command::new(tool).arg("-c").arg(&file).output().unwrap().stdout;
        assert!(packed.len() < content.len());
        assert_eq!(decompressed(packed.clone()).unwrap(), content, "{tool}");
        assert!(decompressed(packed[..packed.len() / 2].to_vec()).is_err(), "{tool}");
    }
}

#[test]
fn uncompressed_bytes_are_unchanged() {
    assert_eq!(decompressed(b"\x7fELF".to_vec()).unwrap(), b"\x7fELF");
    assert_eq!(decompressed(Vec::new()).unwrap(), b"");
}
