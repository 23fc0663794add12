//! Contexts: made, given command buffers, ended.

use d3dkmt::{CreateContextFlags, Handle};
use serde::{Deserialize, Serialize};

use super::ready::Level;
use super::suspension::HardwareSide;
use crate::ProcessId;
use crate::ddi::EngineId;

#[derive(Serialize, Deserialize)]
pub(crate) struct Context {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    pub engine: EngineId,
    pub flags: CreateContextFlags,
    /// Its software queue.
    pub queue: u32,
    /// `SetContextSchedulingPriority`, -7 to 7.
    pub priority: i32,
    /// `SetContextInProcessSchedulingPriority`, -7 to 7.
    pub in_process_priority: i32,
    /// The context is the system's, for paging buffers: how important they are.
    pub paging: Option<Level>,
    pub hardware: HardwareSide,
}
