//! The validator of command lists and barriers, as the debug layer of a D3D12 runtime has it.
//!
//! A [`Device`] tracks the resources and fences of one device. [`Device::submit`] checks one ExecuteCommandLists (one
//! submission of the ISA) when it starts. It keeps the state that outlasts it: layouts of textures, begun split
//! barriers, values of fences. Lists are not checked when they are recorded, because a driver does not see them then.
//! `submit` returns [`Messages`]. Each message has a [`Rule`], the published message id if there is one, the list,
//! command and barrier, and a correction. The validator does not decide whether a list runs, except for
//! [`Outcome::dropped`]: lists that the runtime would have removed.
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
//! Start reading at [`rules`] and [`tables`]. `words` checks one barrier by itself, `state` draws the state of a
//! subresource, and `walk` follows the commands. Sources: the published text D3D12EnhancedBarriers (rule numbers are
//! gpupv's own), and the DDI reference pages about barriers.
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

pub use device::{Device, Outcome, Residency};
pub use fences::FenceFlags;
pub use message::{CommandRef, Message, Messages, Phase};
pub use policy::{Capabilities, FenceBarrierTier, Policy};
pub use rules::{Rule, Severity};
