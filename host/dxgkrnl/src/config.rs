//! What hardware the kernel has.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::Luid;

use crate::{Nanos, Policy};

/// `DXGK_ENGINE_TYPE`, the ones we model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum EngineType {
    ThreeD = 1,
    VideoDecode = 2,
    VideoEncode = 3,
    VideoProcessing = 4,
    Copy = 6,
    Compute = 10,
}

impl EngineType {
    const ALL: [EngineType; 6] = [
        EngineType::ThreeD,
        EngineType::Compute,
        EngineType::Copy,
        EngineType::VideoDecode,
        EngineType::VideoProcessing,
        EngineType::VideoEncode,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            EngineType::ThreeD => "3D",
            EngineType::VideoDecode => "VIDEO_DECODE",
            EngineType::VideoEncode => "VIDEO_ENCODE",
            EngineType::VideoProcessing => "VIDEO_PROCESS",
            EngineType::Copy => "COPY",
            EngineType::Compute => "COMPUTE",
        }
    }

    pub fn from_number(number: u32) -> Option<EngineType> {
        EngineType::ALL.into_iter().find(|engine| *engine as u32 == number)
    }
}

/// One node: one engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    pub engine_type: EngineType,
    /// True: the engine raises interrupt 11 right after a fence write (FEN-019). False: waiters are
    /// looked at when a command buffer completes (FEN-017). A property of the engine (FEN-020).
    pub signals_at_write: bool,
    /// How long a command buffer of somebody else's format takes.
    pub opaque_packet_ns: Nanos,
}

/// One adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterConfig {
    pub luid: Luid,
    pub description: String,
    pub vendor: u32,
    pub device: u32,
    pub nodes: Vec<NodeConfig>,
}

/// The whole configuration: part of a trace's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    pub adapters: Vec<AdapterConfig>,
    pub policy: Policy,
}

impl Default for AdapterConfig {
    /// Six nodes; the copy and video engines are of the basic kind, so that both kinds are there.
    fn default() -> Self {
        let nodes = EngineType::ALL.into_iter().map(|engine_type| NodeConfig {
            engine_type,
            signals_at_write: matches!(engine_type, EngineType::ThreeD | EngineType::Compute),
            opaque_packet_ns: 100_000,
        });
        AdapterConfig {
            luid: Luid { low: 0x6770_0001, high: 0 },
            description: String::from("gpupv simulated adapter"),
            vendor: 0x1414,
            device: 0x6770,
            nodes: nodes.collect(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config { adapters: vec![AdapterConfig::default()], policy: Policy::default() }
    }
}
