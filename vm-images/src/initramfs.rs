//! The guest's root file system: an uncompressed newc archive that the kernel unpacks into memory.
//!
//! ```text
//!   /                           root's, with mode 0755: the kernel's own root folder is everybody's
//!   /init                       guestd, run as PID 1, with its shared libraries where its loader looks
//!   /etc/gpupv/modules          one absolute module path per line, in load order
//!   /lib/modules/gpupv/*.ko     those modules
//!   /dev/console                so that init has output before it mounts anything
//!   /etc/passwd, /etc/group, empty folders /dev /proc /sys /run /tmp /root
//! ```
//!
//! Not compressed: under emulation unpacking gzip costs more than reading the bytes. The bytes depend on the inputs
//! only (sorted, times and inode numbers fixed), and the cache key is the hash of those inputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cpio::newc;

use crate::cache::{Cache, hash_file, hash_text, make_folder};
use crate::error::{Error, FileContext, Result};
use crate::kernel::Kernel;
use crate::libraries::libraries_of;
use crate::limits::{GUEST_FILE_BYTES_MAX, INITRAMFS_ENTRIES_MAX, INITRAMFS_PRUNE_AGE_MIN};
use crate::program::stripped;
use crate::progress::Progress;

const KIND: &str = "initramfs";
const ARCHIVE: &str = "initramfs.cpio";
/// Part of every key: raise it when the layout changes.
const LAYOUT_VERSION: u32 = 3;
/// Where the guest reads which modules to load, one absolute path per line.
pub const MODULE_LIST_PATH: &str = "/etc/gpupv/modules";
const MODULE_FOLDER: &str = "/lib/modules/gpupv";

/// Path of the root folder in a [`Tree`]; its name in the archive.
const ROOT: &str = "";
const ROOT_NAME: &str = ".";

const KIND_FOLDER: u32 = 0o040_000;
const KIND_FILE: u32 = 0o100_000;
const KIND_CHARACTER_DEVICE: u32 = 0o020_000;

/// A file or folder of this machine that is copied into the guest. A folder includes everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
    /// Permission bits; `None` keeps those of the host file.
    pub mode: Option<u32>,
}

impl GuestFile {
    pub fn new(host: impl Into<PathBuf>, guest: impl Into<String>) -> Self {
        Self { host: host.into(), guest: guest.into(), mode: None }
    }

    /// `program` at `guest`, followed by the shared libraries it needs.
    pub fn program(program: &Path, guest: &str, library_path: &[PathBuf]) -> Result<Vec<Self>> {
        let mut files = vec![Self { mode: Some(0o755), ..Self::new(program, guest) }];
        for library in libraries_of(program, library_path)? {
            files.push(Self { mode: Some(0o755), ..Self::new(library.host, library.guest) });
        }
        Ok(files)
    }
}

/// An initramfs in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initramfs {
    /// Hash of its inputs.
    pub key: String,
    pub path: PathBuf,
    pub size_bytes: u64,
}

/// The contents of one path of the archive.
enum Node {
    Folder { mode: u32 },
    CharacterDevice { mode: u32, major: u32, minor: u32 },
    Bytes { mode: u32, content: Vec<u8> },
    File { mode: u32, host: PathBuf, hash: String, size_bytes: u64 },
}

/// Nodes by guest path without its leading slash. A parent sorts before its contents: the root folder, [`ROOT`], first.
type Tree = BTreeMap<String, Node>;

impl Initramfs {
    /// An image with `init` as `/init` (its shared libraries are included), the kernel's modules, and `files`.
    ///
    /// Programs among `files` need their libraries too: see [`GuestFile::program`]. The same guest path may be given
    /// twice only with the same content.
    pub fn build(
        kernel: &Kernel,
        init: &Path,
        files: &[GuestFile],
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let tree = tree_of(kernel, init, files)?;
        let key = key_of(&tree);
        if let Some(found) = Self::from_entry(&key, cache) {
            return Ok(found);
        }
        let lock = cache.lock(KIND, progress)?;
        if let Some(found) = Self::from_entry(&key, cache) {
            return Ok(found);
        }
        progress.step("build the guest image");
        let content = cache.building(KIND, &lock)?.join("content");
        make_folder(&content)?;
        write_archive(&tree, &content.join(ARCHIVE), progress)?;
        cache.publish(KIND, Some(&key), &content, &lock)?;
        prune(&cache.folder(KIND), &key);
        progress.finish();
        Self::from_entry(&key, cache).ok_or_else(|| Error::File {
            what: "read back",
            path: cache.folder(KIND).join(&key),
            source: io::Error::other("the new cache entry does not hold what was written"),
        })
    }

    fn from_entry(key: &str, cache: &Cache) -> Option<Self> {
        let folder = cache.entry(KIND, key)?;
        // The folder's time says when the image was last used; failing to set it only makes it prunable earlier.
        let _ = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        let path = folder.join(ARCHIVE);
        let size_bytes = path.metadata().ok()?.len();
        Some(Self { key: key.to_owned(), path, size_bytes })
    }
}

fn tree_of(kernel: &Kernel, init: &Path, files: &[GuestFile]) -> Result<Tree> {
    let mut tree = Tree::new();
    // guestd mounts the file systems of /dev, /run and /tmp, with their own modes: here no folder is another user's to
    // write. The kernel runs /sbin/modprobe as root when a user asks for a protocol, so / must not be either.
    for (folder, mode) in [
        (ROOT, 0o755),
        ("dev", 0o755),
        ("proc", 0o555),
        ("sys", 0o555),
        ("run", 0o755),
        ("tmp", 0o755),
        ("root", 0o700),
    ] {
        tree.insert(folder.to_owned(), Node::Folder { mode });
    }
    tree.insert("dev/console".to_owned(), Node::CharacterDevice { mode: 0o600, major: 5, minor: 1 });
    let text = |content: &str| Node::Bytes { mode: 0o644, content: content.as_bytes().to_vec() };
    add(
        &mut tree,
        "/etc/passwd",
        text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    )?;
    add(&mut tree, "/etc/group", text("root:x:0:\nnogroup:x:65534:\n"))?;
    let mut list = String::new();
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let guest = format!("{MODULE_FOLDER}/{name}");
        let _ = writeln!(list, "{guest}");
        add_host(&mut tree, &GuestFile { mode: Some(0o644), ..GuestFile::new(module, guest) })?;
    }
    add(&mut tree, MODULE_LIST_PATH, text(&list))?;
    // A debug build of guestd is mostly debug information, which an emulated guest would copy for 0.3 s.
    let content = stripped(fs::read(init).at("read", init)?);
    add(&mut tree, "/init", Node::Bytes { mode: 0o755, content })?;
    for library in libraries_of(init, &[])? {
        add_host(&mut tree, &GuestFile { mode: Some(0o755), ..GuestFile::new(library.host, library.guest) })?;
    }
    for file in files {
        add_host(&mut tree, file)?;
    }
    Ok(tree)
}

/// Adds a host file, or a folder with all below it.
fn add_host(tree: &mut Tree, file: &GuestFile) -> Result<()> {
    let data = file.host.metadata().at("read", &file.host)?;
    if data.is_dir() {
        let mut names = fs::read_dir(&file.host)
            .at("list", &file.host)?
            .map(|entry| Ok(entry.at("list", &file.host)?.file_name()))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        add(tree, &file.guest, Node::Folder { mode: 0o755 })?;
        for name in names {
            let guest = format!("{}/{}", file.guest.trim_end_matches('/'), name.to_string_lossy());
            add_host(tree, &GuestFile { host: file.host.join(name), guest, mode: file.mode })?;
        }
        return Ok(());
    }
    let refused = |reason: String| Err(Error::GuestPath { guest: file.guest.clone(), reason });
    if !data.is_file() {
        return refused(format!("{} is neither a file nor a folder", file.host.display()));
    }
    if data.len() > GUEST_FILE_BYTES_MAX {
        return refused(format!("{} is over {GUEST_FILE_BYTES_MAX} bytes", file.host.display()));
    }
    let (hash, size_bytes) = hash_file(&file.host)?;
    // The owner in the guest is root: without the bits that give a file's user more rights than its owner meant.
    let mode = file.mode.unwrap_or(data.permissions().mode() & 0o777) & 0o7777;
    add(tree, &file.guest, Node::File { mode, host: file.host.clone(), hash, size_bytes })
}

/// Adds a node and the folders above it.
fn add(tree: &mut Tree, guest: &str, node: Node) -> Result<()> {
    let refused = |reason: &str| Error::GuestPath { guest: guest.to_owned(), reason: reason.to_owned() };
    let path = guest.strip_prefix('/').ok_or_else(|| refused("it is not absolute"))?.trim_end_matches('/');
    if path.is_empty() && matches!(node, Node::Folder { .. }) {
        return Ok(());
    }
    if path.contains('\0') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(refused("it has an empty part, `.`, `..` or a zero byte"));
    }
    for (end, _) in path.match_indices('/') {
        let above = tree.entry(path[..end].to_owned()).or_insert(Node::Folder { mode: 0o755 });
        if !matches!(above, Node::Folder { .. }) {
            return Err(refused("a part of it is a file"));
        }
    }
    match (tree.get(path), &node) {
        (None, _) => drop(tree.insert(path.to_owned(), node)),
        (Some(Node::Folder { .. }), Node::Folder { .. }) => {}
        (Some(Node::File { hash: old, .. }), Node::File { hash: new, .. }) if old == new => {}
        (Some(_), _) => return Err(refused("two different files have this path")),
    }
    Ok(())
}

fn key_of(tree: &Tree) -> String {
    let mut text = format!("layout {LAYOUT_VERSION}\n");
    for (path, node) in tree {
        let _ = match node {
            Node::Folder { mode } => writeln!(text, "{path}\0folder {mode:o}"),
            Node::CharacterDevice { mode, major, minor } => {
                writeln!(text, "{path}\0device {mode:o} {major} {minor}")
            }
            Node::Bytes { mode, content } => {
                writeln!(text, "{path}\0file {mode:o} {}", hash_text(content))
            }
            Node::File { mode, hash, .. } => writeln!(text, "{path}\0file {mode:o} {hash}"),
        };
    }
    hash_text(text.as_bytes())
}

fn write_archive(tree: &Tree, path: &Path, progress: &dyn Progress) -> Result<()> {
    let mut output = BufWriter::new(File::create(path).at("create", path)?);
    let total = tree.values().map(Node::size_bytes).sum();
    let mut done = 0;
    for (number, (name, node)) in tree.iter().enumerate() {
        let size_bytes = u32::try_from(node.size_bytes()).unwrap_or(u32::MAX);
        let name = if name == ROOT { ROOT_NAME } else { name };
        let mut writer = node.header(name, number as u32 + 1).write(&mut output, size_bytes);
        match node {
            Node::Bytes { content, .. } => writer.write_all(content).at("write", path)?,
            Node::File { host, hash, size_bytes, .. } => copy_file(host, hash, *size_bytes, &mut writer)?,
            Node::Folder { .. } | Node::CharacterDevice { .. } => {}
        }
        writer.finish().at("write", path)?;
        done += node.size_bytes();
        progress.advance(done, total);
    }
    newc::trailer(&mut output).at("write", path)?;
    output.flush().at("write", path)
}

/// Copies a file that must still match its hash, because the key depends on it.
fn copy_file(host: &Path, hash: &str, size_bytes: u64, writer: &mut impl Write) -> Result<()> {
    let copied =
        io::copy(&mut File::open(host).at("open", host)?.take(size_bytes), writer).at("copy", host)?;
    if copied != size_bytes || hash_file(host)?.0 != hash {
        return Err(io::Error::other("it changed while the image was built")).at("copy", host);
    }
    Ok(())
}

impl Node {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Folder { .. } | Self::CharacterDevice { .. } => 0,
            Self::Bytes { content, .. } => content.len() as u64,
            Self::File { size_bytes, .. } => *size_bytes,
        }
    }

    fn header(&self, name: &str, inode: u32) -> newc::Builder {
        let header = newc::Builder::new(name).ino(inode).nlink(1).mtime(0).uid(0).gid(0);
        match self {
            Self::Folder { mode } => header.mode(KIND_FOLDER | mode).nlink(2),
            Self::CharacterDevice { mode, major, minor } => {
                header.mode(KIND_CHARACTER_DEVICE | mode).rdev_major(*major).rdev_minor(*minor)
            }
            Self::Bytes { mode, .. } | Self::File { mode, .. } => header.mode(KIND_FILE | mode),
        }
    }
}

/// Removes the images that were used longest ago. Best effort: an image that stays costs only disk.
fn prune(folder: &Path, keep: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut found = entries
        .flatten()
        .filter(|entry| entry.file_name() != keep)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect::<Vec<_>>();
    found.sort();
    for (used, path) in found.iter().rev().skip(INITRAMFS_ENTRIES_MAX - 1) {
        if used.elapsed().is_ok_and(|age| age > INITRAMFS_PRUNE_AGE_MIN) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
#[path = "initramfs_tests.rs"]
mod tests;
