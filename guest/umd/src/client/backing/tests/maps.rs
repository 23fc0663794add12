//! How much of the process's mappings the library reads.

use rustix::mm::{MprotectFlags, ProtFlags, mprotect};

use super::super::maps::{Mapping, OwnMaps, walk};
use super::super::{covered, overlapping};
use super::*;

/// Bytes that this thread has read, of whatever file.
fn bytes_read() -> usize {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// More than the counts themselves, and less than a text of many mappings.
const FEW_BYTES: usize = 4096;
const MANY: usize = 4000;

/// Memory of which each page is a mapping.
fn many_mappings() -> Memory {
    let memory = Memory::new(MANY);
    for page in (0..MANY).step_by(2) {
        // SAFETY: our own pages.
        unsafe { mprotect(memory.0.add(page * PAGE_BYTES).cast(), PAGE_BYTES, MprotectFlags::READ) }.unwrap();
    }
    memory
}

/// Whether this kernel answers for one address: Linux 6.11 and later.
fn may_query() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap());
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

#[test]
fn an_allocation_costs_the_same_with_many_mappings_of_the_program() {
    let (_many, memory, broker) = (many_mappings(), Memory::new(1), Broker::default());
    let mut backing = ProcessBacking::default();
    let before = bytes_read();
    add(&mut backing, &broker, 1, memory.pages(0..1)).unwrap();
    end(&mut backing, &broker, 1);
    let read = bytes_read() - before;
    assert!(read < FEW_BYTES || !may_query(), "{read} bytes");
}

#[test]
fn a_kernel_that_has_the_text_only_writes_it_up_to_the_range() {
    let memory = many_mappings();
    let read = |pages: Range<u64>| {
        let before = bytes_read();
        let mut maps = OwnMaps::open().unwrap();
        maps.may_query = false;
        let found = maps.of(&memory.pages(pages)).unwrap();
        (found.len(), bytes_read() - before)
    };
    let ((first, few), (last, many)) = (read(0..1), read(MANY as u64 - 1..MANY as u64));
    assert_eq!((first, last), (1, 1));
    let lines = MANY / 2 * "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n".len();
    assert!(few + lines < many, "{few} and {many} bytes");
}

#[test]
fn the_kernels_answers_are_those_of_its_text() {
    let (memory, broker, mut backing) = (Memory::new(6), Broker::default(), ProcessBacking::default());
    add(&mut backing, &broker, 1, memory.pages(1..2)).unwrap();
    add(&mut backing, &broker, 2, memory.pages(3..4)).unwrap();
    end(&mut backing, &broker, 2);
    // SAFETY: our own pages.
    unsafe { munmap(memory.0.add(4 * PAGE_BYTES).cast(), PAGE_BYTES) }.unwrap();
    let asked = |may_query| {
        let mut maps = OwnMaps::open().unwrap();
        maps.may_query = may_query;
        // The neighbours belong to whatever else this process has mapped.
        let of = |range| format!("{:?}", maps.of(&memory.pages(range)).unwrap());
        [1..2, 1..4, 3..4, 4..5].map(of)
    };
    assert_eq!(asked(true), asked(false));
    assert!(asked(false)[0].contains(BACKING_MEMFD));
}

fn mapping(range: Range<u64>) -> Mapping {
    let (protection, name) = (ProtFlags::READ, String::new());
    Mapping { range, protection, is_private: true, offset: 0, inode: 0, name }
}

#[test]
fn only_mappings_of_a_range_are_looked_at() {
    let kept = [mapping(0x2000..0x4000), mapping(0x5000..0x6000)];
    let starts = |maps: &[Mapping]| maps.iter().map(|mapping| mapping.range.start).collect::<Vec<_>>();
    for (range, wanted) in [
        (0x3000..0x4000, &[0x2000][..]),
        (0x3000..0x5001, &[0x2000, 0x5000]),
        (0x4000..0x5000, &[]),
        (0x1000..0x2000, &[]),
    ] {
        assert_eq!(starts(overlapping(&kept, &range)), wanted);
    }
    assert!(matches!(covered(&kept, &(0x3000..0x5800), |_| true), Err(None)));
    assert!(covered(&kept, &(0x5000..0x5800), |_| true).is_ok());
    assert!(covered(&kept, &(0x5000..0x6800), |_| true).is_err());
}

/// Asks a kernel that answers with the first of these that ends after the address.
fn asked(range: Range<u64>, answers: &[Mapping]) -> Option<Vec<Mapping>> {
    let mut answers = answers.iter();
    walk(&range, |_| Ok(answers.next().expect("it asks no more").clone()))
}

#[test]
fn an_answer_that_is_no_mapping_after_the_address_is_not_believed() {
    for wrong in [0..0, 0x1000..0x2000, Range { start: 0x5000, end: 0x3000 }] {
        assert!(asked(0x2000..0x4000, &[mapping(wrong)]).is_none());
    }
}

#[test]
fn mappings_that_another_thread_joins_meanwhile_do_not_overlap() {
    let found = asked(0x2000..0x6000, &[mapping(0x1000..0x3000), mapping(0x1000..0x6000)]).unwrap();
    let ranges_and_offsets = found.iter().map(|one| (one.range.clone(), one.offset));
    assert_eq!(Vec::from_iter(ranges_and_offsets), [(0x1000..0x3000, 0), (0x3000..0x6000, 0x2000)]);
}

#[test]
fn a_line_that_is_not_understood_hides_no_later_mapping() {
    let text = File::from(memfd_create("text", MemfdFlags::CLOEXEC).unwrap());
    text.write_all_at(b"what a later kernel says\n2000-3000 rw-p 00000000 00:00 0 \n", 0).unwrap();
    let mut maps = OwnMaps::over(text);
    maps.may_query = false;
    assert_eq!(maps.of(&(0x2000..0x3000)).unwrap().len(), 1);
}

#[test]
fn mappings_are_found_after_the_main_thread_has_ended() {
    let memory = Memory::new(1);
    // SAFETY: the child has this thread alone, which ends when it has started another one.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let range = memory.pages(0..1);
        std::thread::spawn(move || {
            let main = format!("/proc/self/task/{}/stat", std::process::id());
            while !std::fs::read_to_string(&main).unwrap().contains(") Z ") {
                std::thread::yield_now();
            }
            let found = [true, false].map(|may_query| {
                let mut maps = OwnMaps::open().unwrap();
                maps.may_query = may_query;
                maps.of(&range).unwrap().len()
            });
            // SAFETY: the end of the child.
            unsafe { libc::_exit(i32::from(found != [1, 1])) }
        });
        // SAFETY: the end of this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let mut status = 0;
    // SAFETY: a child of this test.
    assert_eq!((unsafe { libc::waitpid(pid, &raw mut status, 0) }, status), (pid, 0));
}
