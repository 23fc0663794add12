//! The declarations as data, for fuzz targets, which fill a struct by its fields.

/// A struct, or a word without fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub name: &'static str,
    pub bytes: usize,
    pub fields: &'static [Field],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// In Rust's notation.
    pub rust_type: &'static str,
    pub offset: usize,
    pub bytes: usize,
}
