//! Real guests: the image that they boot, QEMU, and the agent inside.

pub mod agent;
pub mod boot;
pub mod driver;
pub mod image;
pub mod stream;
