//! Data of escapes that do not go through the stream: they stand in memory that the process has lent.
//!
//! They are copied once before anybody looks at them, so that a process which writes there meanwhile changes nothing,
//! and the kernel, its traces and its journal see an escape like any other.

use anyhow::Context as _;
use d3dkmt::Reply;
use dxgkrnl::ProcessId;
use proto::convert::LentData;
use proto::limits::FRAME_BYTES_MAX;

use super::{Seat, Seated};

/// Data of the call that is made now are lent.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfCall {
    pub process: ProcessId,
    pub request: u64,
    pub lent: LentData,
}

impl Seat {
    /// A copy of what a process says that it has lent.
    pub fn read_lent(&self, process: ProcessId, LentData { at, bytes }: LentData) -> anyhow::Result<Vec<u8>> {
        anyhow::ensure!(
            bytes as usize <= FRAME_BYTES_MAX,
            "{bytes} bytes of data, at most {FRAME_BYTES_MAX} are taken"
        );
        let mut data = vec![0; bytes as usize];
        let seated = self.take();
        let attached = seated.guests.get(&process).context("no such process")?;
        attached.lent.read(at, &mut data)?;
        Ok(data)
    }
}

impl Seated {
    /// The data of an answer go where those of the call were. Where nothing is lent any more they stay in the answer.
    pub(super) fn give_back(&self, process: ProcessId, request: u64, reply: Reply) -> Reply {
        let Some(of) = self.lent_data.filter(|of| (of.process, of.request) == (process, request)) else {
            return reply;
        };
        match (reply, self.guests.get(&process)) {
            (Reply::Escape(data), Some(attached)) if data.len() == of.lent.bytes as usize => {
                let is_there = attached.lent.write(of.lent.at, &data).is_ok();
                Reply::Escape(if is_there { Vec::new() } else { data })
            }
            (reply, _) => reply,
        }
    }
}
