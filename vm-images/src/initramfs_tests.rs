use super::*;
use crate::progress::Silent;

struct Fixture {
    folder: tempfile::TempDir,
    cache: Cache,
    kernel: Kernel,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("00-vsock.ko");
        fs::write(&module, b"module").unwrap();
        let kernel = Kernel {
            package: "linux-image-test".to_owned(),
            key: "0".to_owned(),
            image: folder.path().join("vmlinuz"),
            modules: vec![module],
        };
        let cache = Cache::at(folder.path().join("cache"));
        Self { folder, cache, kernel }
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn build(&self, cache: &Cache, files: &[GuestFile]) -> Result<Initramfs> {
        Initramfs::build(&self.kernel, &std::env::current_exe().unwrap(), files, cache, &Silent)
    }
}

/// All entries in their order, each with its content.
fn read(archive: &Path) -> Vec<(newc::Entry, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut input: Box<dyn Read> = Box::new(File::open(archive).unwrap());
    loop {
        let mut reader = newc::Reader::new(input).unwrap();
        if reader.entry().is_trailer() {
            return entries;
        }
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        entries.push((reader.entry().clone(), content));
        input = reader.finish().unwrap();
    }
}

fn entries_of(archive: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let entry = |(entry, content): (newc::Entry, Vec<u8>)| (entry.name().to_owned(), (entry.mode(), content));
    read(archive).into_iter().map(entry).collect()
}

#[test]
fn the_archive_holds_init_modules_libraries_and_files() {
    let fixture = Fixture::new();
    let program = fixture.file("program", b"#!/bin/sh\n");
    let files = [GuestFile { mode: Some(0o700), ..GuestFile::new(program, "/opt/deep/program") }];
    let entries = entries_of(&fixture.build(&fixture.cache, &files).unwrap().path);
    assert_eq!(entries["init"].0, 0o100_755);
    assert_eq!(entries["opt/deep/program"], (0o100_700, b"#!/bin/sh\n".to_vec()));
    assert_eq!(entries["opt/deep"].0, 0o040_755);
    assert_eq!(entries["dev/console"].0, 0o020_600);
    assert_eq!(entries["etc/gpupv/modules"].1, b"/lib/modules/gpupv/00-vsock.ko\n");
    assert_eq!(entries["lib/modules/gpupv/00-vsock.ko"].1, b"module");
    assert!(entries.keys().any(|name| name.contains("/libc.so")));
}

/// In the guest it would be root's.
#[test]
fn a_set_user_id_file_of_the_host_is_an_ordinary_one_in_the_guest() {
    let fixture = Fixture::new();
    let program = fixture.file("set-uid", b"x");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let own = GuestFile { mode: Some(0o4755), ..GuestFile::new(program.clone(), "/own") };
    let files = [GuestFile::new(program, "/kept"), own];
    let entries = entries_of(&fixture.build(&fixture.cache, &files).unwrap().path);
    assert_eq!((entries["kept"].0, entries["own"].0), (0o100_755, 0o104_755));
}

/// The kernel's own root folder has mode 1777. A user who can make /sbin is root: the kernel runs /sbin/modprobe.
#[test]
fn every_folder_is_roots_and_no_other_user_can_write_it() {
    let fixture = Fixture::new();
    // Its name sorts before that of the root folder.
    let odd = fixture.file("odd", b"");
    let files = [GuestFile::new(odd, "/+/file")];
    let entries = read(&fixture.build(&fixture.cache, &files).unwrap().path);
    let (first, _) = &entries[0];
    assert_eq!((first.name(), first.mode()), (".", 0o040_755));
    let folders: BTreeMap<_, _> = entries
        .iter()
        .filter(|(entry, _)| entry.mode() & KIND_FOLDER == KIND_FOLDER)
        .map(|(entry, _)| (entry.name(), entry.mode() & 0o7777))
        .collect();
    for (folder, mode) in &folders {
        assert_eq!(mode & 0o7022, 0, "{folder} has mode {mode:o}");
    }
    assert_eq!((folders["root"], folders["tmp"], folders["+"]), (0o700, 0o755, 0o755));
    for (entry, _) in &entries {
        assert_eq!((entry.uid(), entry.gid()), (0, 0), "{}", entry.name());
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let fixture = Fixture::new();
    let one = fixture.file("one", b"1");
    let two = fixture.file("two", b"2");
    let mut files = vec![GuestFile::new(one, "/one"), GuestFile::new(two, "/two")];
    let first = fixture.build(&fixture.cache, &files).unwrap();
    files.reverse();
    let second = fixture.build(&Cache::at(fixture.folder.path().join("other cache")), &files).unwrap();
    assert_eq!(first.key, second.key);
    assert_ne!(first.path, second.path);
    assert_eq!(fs::read(first.path).unwrap(), fs::read(second.path).unwrap());
}

#[test]
fn another_content_or_mode_gives_another_image() {
    let fixture = Fixture::new();
    let file = GuestFile::new(fixture.file("one", b"1"), "/one");
    let first = fixture.build(&fixture.cache, std::slice::from_ref(&file)).unwrap();
    let other_mode = GuestFile { mode: Some(0o600), ..file.clone() };
    assert_ne!(first.key, fixture.build(&fixture.cache, &[other_mode]).unwrap().key);
    fixture.file("one", b"2");
    assert_ne!(first.key, fixture.build(&fixture.cache, &[file]).unwrap().key);
}

#[test]
fn a_corrupted_image_is_noticed_and_made_anew() {
    let fixture = Fixture::new();
    let first = fixture.build(&fixture.cache, &[]).unwrap();
    let good = fs::read(&first.path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&first.path, bad).unwrap();
    let second = fixture.build(&fixture.cache, &[]).unwrap();
    assert_eq!((&first.path, good), (&second.path, fs::read(&second.path).unwrap()));
}

#[test]
fn a_folder_brings_what_is_below_it() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("data/below");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("file"), b"x").unwrap();
    let files = [GuestFile::new(fixture.folder.path().join("data"), "/srv/data/")];
    let entries = entries_of(&fixture.build(&fixture.cache, &files).unwrap().path);
    assert_eq!(entries["srv/data/below/file"].1, b"x");
}

#[test]
fn bad_guest_paths_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let one = fixture.file("one", b"1");
    let two = fixture.file("two", b"2");
    let refusal = |files: &[GuestFile]| fixture.build(&fixture.cache, files).unwrap_err().to_string();
    assert!(refusal(&[GuestFile::new(&one, "relative")]).contains("not absolute"));
    assert!(refusal(&[GuestFile::new(&one, "/a/../b")]).contains("`..`"));
    assert!(refusal(&[GuestFile::new(&one, "/")]).contains("empty part"));
    assert!(refusal(&[GuestFile::new(&one, "/x"), GuestFile::new(&two, "/x")]).contains("two different"));
    assert!(refusal(&[GuestFile::new(&one, "/x"), GuestFile::new(&two, "/x/y")]).contains("is a file"));
    assert!(refusal(&[GuestFile::new("/dev/null", "/x")]).contains("neither a file nor a folder"));
}
