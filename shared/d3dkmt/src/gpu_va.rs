//! Numbers of calls that change GPU virtual addresses.

/// `D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE`.
pub mod protection {
    pub const WRITE: u64 = 0x1;
    pub const EXECUTE: u64 = 0x2;
    pub const ZERO: u64 = 0x4;
    pub const NO_ACCESS: u64 = 0x8;
}

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`.
pub mod operation {
    pub const MAP: u32 = 0;
    pub const UNMAP: u32 = 1;
    pub const COPY: u32 = 2;
    pub const MAP_PROTECT: u32 = 3;
}

/// `D3DKMT_UPDATEGPUVIRTUALADDRESS`: DoNotWait.
pub const DO_NOT_WAIT: u32 = 0x1;
