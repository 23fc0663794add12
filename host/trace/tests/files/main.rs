//! Trace files: format, damage, playback and replay. One program, because each program that links the kernel takes
//! seconds to build.

#[path = "../common/mod.rs"]
mod common;
#[path = "../hot/mod.rs"]
mod hot;

mod damage;
mod flight;
mod format;
mod killed;
mod packed;
mod player;
mod replay;
mod times;
