//! Files in and out of the guest. A file appears complete, by one rename, or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use proto::agent::{GetChunk, PutChunk, PutReply};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::refusal::status;
use crate::limits::READ_BYTES;

/// Permission bits of a file whose mode was not given.
const MODE_DEFAULT: u32 = 0o644;
const MODE_MASK: u32 = 0o7777;

/// An incoming file, under a temporary name; removed if it is not renamed to its target.
struct Arriving {
    file: File,
    path: PathBuf,
    target: PathBuf,
    finished: bool,
}

pub(super) async fn put(mut input: Streaming<PutChunk>) -> Result<PutReply, Status> {
    let Some(first) = input.message().await? else {
        return Err(Status::invalid_argument("the first chunk names the file, and there was none"));
    };
    let mut arriving = Arriving::new(Path::new(&first.path), first.mode)?;
    let mut bytes = arriving.write(&first.data)?;
    while let Some(chunk) = input.message().await? {
        bytes += arriving.write(&chunk.data)?;
    }
    arriving.finish()?;
    Ok(PutReply { bytes })
}

impl Arriving {
    fn new(target: &Path, mode: u32) -> Result<Self, Status> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Status::invalid_argument(format!("`{}` names no file", target.display())));
        };
        if !target.is_absolute() {
            return Err(Status::invalid_argument(format!("{} is not an absolute path", target.display())));
        }
        if target.is_dir() {
            return Err(Status::failed_precondition(format!("{} is a folder", target.display())));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)
            .map_err(|error| status(&format!("make the folder {}", folder.display()), &error))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".{}.{}-{number}", name.to_string_lossy(), std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| status(&format!("make a file in {}", folder.display()), &error))?;
        let arriving = Self { file, path, target: target.to_owned(), finished: false };
        let mode = if mode == 0 { MODE_DEFAULT } else { mode & MODE_MASK };
        let set = arriving.file.set_permissions(Permissions::from_mode(mode));
        set.map_err(|error| status(&format!("set the mode of {}", target.display()), &error))?;
        Ok(arriving)
    }

    fn write(&mut self, data: &[u8]) -> Result<u64, Status> {
        let written = self.file.write_all(data);
        written.map_err(|error| status(&format!("write {}", self.target.display()), &error))?;
        Ok(data.len() as u64)
    }

    fn finish(mut self) -> Result<(), Status> {
        let moved = fs::rename(&self.path, &self.target);
        moved.map_err(|error| status(&format!("put {} in its place", self.target.display()), &error))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn get(path: &str) -> Result<impl Stream<Item = Result<GetChunk, Status>> + use<>, Status> {
    let failed = |error: &std::io::Error| status(&format!("read {path}"), error);
    // Opening a pipe without a writer must not block the agent.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file =
        OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(|error| failed(&error))?;
    if !file.metadata().map_err(|error| failed(&error))?.is_file() {
        return Err(Status::failed_precondition(format!("{path} is not a regular file")));
    }
    let path = path.to_owned();
    let mut ended = false;
    Ok(tokio_stream::iter(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut data = vec![0; READ_BYTES];
        match file.read(&mut data) {
            Ok(0) => None,
            Ok(count) => {
                data.truncate(count);
                Some(Ok(GetChunk { data }))
            }
            Err(error) => {
                ended = true;
                Some(Err(status(&format!("read {path}"), &error)))
            }
        }
    })))
}
