//! What a debug layer says of command lists and their barriers.
//!
//! A [`Device`] knows the resources and fences of a user's device. [`Device::record`] looks at a command list as when it is
//! recorded: with nothing known of what runs before it. [`Device::submit`] looks at one ExecuteCommandLists - one
//! submission of our ISA - when it is its turn to run, and keeps what lasts: the layouts of textures, the begins of
//! split barriers, the values of fences. Both answer with [`Messages`], each with a [`Rule`], the published id of a
//! debug layer's message where there is one, the list, the command, the barrier, and what would be right. Nothing here
//! decides whether a list runs, but for [`Outcome::dropped`]: lists that the runtime would have removed.
//!
//! ```
//! use barriers::{Capabilities, Device, Policy};
//! use d3dkmt::isa::{self, BarrierAccess, Kernel, Packet, QueueType, Reader, ResourceDesc, Use, WorkKind};
//!
//! let mut device = Device::new(Capabilities::default(), Policy::default());
//! device.add_resource(1, ResourceDesc::buffer("vertices", 0x10_0000, 4096)).unwrap();
//! let work = |kind, access| {
//!     let uses = vec![Use::whole(1, access)];
//!     Packet::Work { kind, kernel: Kernel::None, operand: 0, duration_ns: 1, uses }
//! };
//! let bytes = isa::encode(&[
//!     work(WorkKind::Copy, BarrierAccess::COPY_DEST),
//!     work(WorkKind::Draw, BarrierAccess::VERTEX_BUFFER),
//! ]);
//! let packets = Reader::new(&bytes).unwrap().expect("our magic");
//! let outcome = device.submit(QueueType::Direct, &packets).unwrap();
//! assert_eq!(
//!     outcome.messages.iter().next().unwrap().to_string(),
//!     "R-091 hazard: list 0 command 1: Draw touches buffer \"vertices\" (1) by VERTEX_BUFFER after command 0 of list 0 did \
//!      by COPY_DEST, with no barrier between them; one of COPY -> VERTEX_SHADING, COPY_DEST -> VERTEX_BUFFER would order \
//!      them",
//! );
//! ```
//!
//! Start reading at [`rules`] and [`tables`]; `words` judges one barrier by itself, `state` draws what is known of a
//! subresource, `walk` follows the commands. Sources: the published text D3D12EnhancedBarriers (rule numbers are ours),
//! and the DDI's pages of barriers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod device;
mod fences;
pub mod legacy;
pub mod limits;
mod message;
pub mod policy;
pub mod rules;
mod state;
pub mod tables;
mod walk;
mod words;

pub use device::{Device, Outcome};
pub use fences::FenceFlags;
pub use message::{CommandRef, Message, Messages, Phase};
pub use policy::{Capabilities, FenceBarrierTier, Policy};
pub use rules::{Rule, Severity};
