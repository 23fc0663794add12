//! The macro language that declares the C types once: for Rust, for C and for the comparison with the Windows SDK.
//!
//! ```text
//! section NAME("title") {}                     a heading of the header
//! alias NAME(RUST_TYPE, "C type") {}           a typedef of one word
//! defines GROUP(TYPE) { NAME = NUMBER, }       #define
//! enum NAME(TYPE) { NAME = NUMBER, }           the type is an integer in Rust: C may pass any number
//! bits NAME(TYPE) { FIELD WIDTH, }             struct { bit fields }
//! flag_union NAME(TYPE) { FIELD WIDTH, }       union { struct { bit fields }; TYPE Value; }
//! flags NAME(TYPE) { FIELD WIDTH, }            struct { union { struct { bit fields }; TYPE Value; }; }
//! packed_struct NAME(SIZE, ..) { .. }          a struct without padding; otherwise as struct
//! struct NAME(SIZE, also ALIAS, ours "why the SDK's type is not compared") {
//!     OFFSET FIELD: TYPE,
//!     OFFSET FIELD: TYPE = SDK.FIELD | SDK.FIELD => "C text of the member",
//! }
//! ```
//!
//! Every name is the C name. Where C has a union, Rust has plain fields for its bytes: the first row has the union's C
//! text, and the other rows of the union have `""`. Each names the SDK's fields that begin there, or `none`. `ours`
//! after a number of an enum means that the SDK lacks it. A doc comment becomes a C comment.
//!
//! The compiler checks sizes and offsets against the types. Tests compare them with `windows-sys`, and the C text with
//! `include/d3dkmthk.h` (`src/header.rs`).

/// Declares the C types of one file.
macro_rules! c_abi {
    ($($(#[doc = $doc:literal])* $kind:ident $name:ident($($head:tt)*) $body:tt)*) => {
        $(declared! { $kind $name($($head)*) $body [$($doc)*] })*

        /// Writes the C text of this file's declarations.
        pub fn write_c(header: &mut $crate::header::Header) {
            $(written! { header $kind $name($($head)*) $body [$($doc)*] })*
        }

        /// Adds the layouts of this file's declarations.
        pub(super) fn add_layouts(layouts: &mut Vec<$crate::layout::Layout>) {
            $(laid_out! { layouts $kind $name($($head)*) $body })*
        }

        /// Compares this file's declarations with the types of the Windows SDK.
        #[cfg(test)]
        pub fn compare_with_sdk() {
            $(compared! { $kind $name($($head)*) $body })*
        }
    };
}

/// The Rust item of one declaration.
macro_rules! declared {
    (section $name:ident($title:literal) {} $doc:tt) => {};
    (alias $name:ident($type:ty $(, $c:literal)?) {} $doc:tt) => {
        #[allow(dead_code, reason = "a word of C")]
        pub type $name = $type;
    };
    (defines $group:ident($type:ty) { $($name:ident = $value:literal $($ours:ident)?,)* } $doc:tt) => {
        $(#[allow(dead_code, reason = "a number of C")] pub const $name: $type = $value;)*
    };
    (enum $name:ident($type:ty $(, ours $why:literal)?) $values:tt $doc:tt) => {
        declared! { alias $name($type) {} [] }
        declared! { defines $name($type) $values [] }
    };
    (struct $($declaration:tt)*) => { declared! { @[C] $($declaration)* } };
    (packed_struct $($declaration:tt)*) => { declared! { @[C, packed] $($declaration)* } };
    (@[$($layout:tt)*] $name:ident($size:literal $(, also $alias:ident)* $(, ours $why:literal)?) {
        $($(#[doc = $row_doc:literal])* $offset:literal $field:ident: $type:ty
            $(= $($($sdk:ident).+)|+)? $(=> $text:literal)?,)*
    } [$($doc:literal)*]) => {
        $(#[doc = $doc])*
        #[repr($($layout)*)]
        #[derive(Clone, Copy)]
        #[allow(dead_code, reason = "some structs are only passed through")]
        pub struct $name {
            $($(#[doc = $row_doc])* pub $field: $type,)*
        }
        $(declared! { alias $alias($name) {} [] })*
        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            $(
                $crate::assert_plain::<$type>();
                assert!(
                    std::mem::offset_of!($name, $field) == $offset,
                    concat!("offset of ", stringify!($name), ".", stringify!($field))
                );
            )*
        };
        // SAFETY: the layout is C's, and every field is plain, as asserted above.
        unsafe impl $crate::Plain for $name {}
    };
    // bits, flags and flag_union: one integer.
    ($form:ident $name:ident($type:ty $(, ours $why:literal)?) { $($bit:ident $width:literal,)* } $doc:tt) => {
        declared! { alias $name($type) {} [] }
        const _: () = assert!(0 $(+ $width)* == 8 * size_of::<$type>(), concat!("bits of ", stringify!($name)));
    };
}

/// The C text of one declaration.
macro_rules! written {
    ($header:ident section $name:ident($title:literal) {} [$($doc:literal)*]) => {
        $header.section($title, &[$($doc),*]);
    };
    ($header:ident alias $name:ident($type:ty) {} $doc:tt) => {
        $header.alias(stringify!($type), stringify!($name));
    };
    ($header:ident alias $name:ident($type:ty, $c:literal) {} $doc:tt) => {
        $header.alias($c, stringify!($name));
    };
    ($header:ident defines $group:ident($type:ty) { $($name:ident = $value:literal $($ours:ident)?,)* }
        [$($doc:literal)*]) => {
        $header.defines(&[$($doc),*], &[$((stringify!($name), stringify!($value))),*]);
    };
    ($header:ident enum $name:ident($($head:tt)*) { $($value_name:ident = $value:literal $($ours:ident)?,)* }
        [$($doc:literal)*]) => {
        $header.enumeration(&[$($doc),*], stringify!($name), &[$((stringify!($value_name), stringify!($value))),*]);
    };
    ($header:ident packed_struct $($declaration:tt)*) => {
        $header.packed(|$header| { written! { $header struct $($declaration)* } });
    };
    ($header:ident struct $name:ident($size:literal $(, also $alias:ident)* $(, ours $why:literal)?) {
        $($(#[doc = $row_doc:literal])* $offset:literal $field:ident: $type:ty
            $(= $($($sdk:ident).+)|+)? $(=> $text:literal)?,)*
    } [$($doc:literal)*]) => {
        $header.structure(&[$($doc),*], &[stringify!($name) $(, stringify!($alias))*], $size, &[$($crate::header::Row {
            docs: &[$($row_doc),*],
            c_type: stringify!($type),
            name: stringify!($field),
            text: &[$($text)?],
        }),*]);
    };
    ($header:ident $form:ident $name:ident($type:ty $(, ours $why:literal)?) { $($bit:ident $width:literal,)* }
        [$($doc:literal)*]) => {
        let bits = [$((stringify!($bit), $width)),*];
        $header.bit_fields(&[$($doc),*], stringify!($form), stringify!($name), stringify!($type), &bits);
    };
}

/// The layout of one declaration.
macro_rules! laid_out {
    ($layouts:ident section $name:ident $head:tt $body:tt) => {};
    ($layouts:ident defines $group:ident $head:tt $body:tt) => {};
    ($layouts:ident packed_struct $($declaration:tt)*) => { laid_out! { $layouts struct $($declaration)* } };
    ($layouts:ident struct $name:ident($size:literal $(, also $alias:ident)* $(, ours $why:literal)?) {
        $($(#[doc = $row_doc:literal])* $offset:literal $field:ident: $type:ty
            $(= $($($sdk:ident).+)|+)? $(=> $text:literal)?,)*
    }) => {
        let fields = &[$($crate::layout::Field {
            name: stringify!($field),
            rust_type: stringify!($type),
            offset: $offset,
            bytes: size_of::<$type>(),
        }),*];
        for name in [stringify!($name) $(, stringify!($alias))*] {
            $layouts.push($crate::layout::Layout { name, bytes: $size, fields });
        }
    };
    ($layouts:ident $form:ident $name:ident $head:tt $body:tt) => {
        let (name, bytes) = (stringify!($name), size_of::<$name>());
        $layouts.push($crate::layout::Layout { name, bytes, fields: &[] });
    };
}

/// The comparison of one declaration with the Windows SDK.
#[cfg(test)]
macro_rules! compared {
    (section $name:ident $head:tt {}) => {};
    (alias $name:ident $head:tt {}) => {};
    ($kind:ident $name:ident($type:tt $(, also $alias:ident)*, ours $why:literal) $body:tt) => {
        assert!(!$why.is_empty());
    };
    (packed_struct $name:ident($size:literal) $rows:tt) => { compared! { struct $name($size) $rows } };
    (struct $name:ident($size:literal, also $alias:ident $(, also $more:ident)*) $rows:tt) => {
        compared! { struct $name($size) $rows }
        compared! { struct $alias($size $(, also $more)*) $rows }
    };
    (struct $name:ident($size:literal) {
        $($(#[doc = $row_doc:literal])* $offset:literal $field:ident: $type:ty
            $(= $($($sdk:ident).+)|+)? $(=> $text:literal)?,)*
    }) => {
        assert_eq!(size_of::<$name>(), size_of::<sdk::$name>(), stringify!($name));
        assert_eq!(align_of::<$name>(), align_of::<sdk::$name>(), stringify!($name));
        $(compared_row! { $name $offset $field $($($($sdk).+)|+)? })*
    };
    (enum $name:ident $head:tt $values:tt) => { compared! { defines $name $head $values } };
    (defines $group:ident $head:tt { $($name:ident = $value:literal $($ours:ident)?,)* }) => {
        $(compared_number! { $name $($ours)? })*
    };
    ($form:ident $name:ident $head:tt { $($bit:ident $width:literal,)* }) => {
        assert_eq!(size_of::<$name>(), size_of::<sdk::$name>(), stringify!($name));
    };
}

#[cfg(test)]
macro_rules! compared_row {
    ($name:ident $offset:literal $field:ident none) => {};
    ($name:ident $offset:literal $field:ident) => {
        compared_row! { $name $offset $field $field }
        assert_eq!(
            $crate::types::width_of(|all: &$name| &raw const all.$field),
            $crate::types::width_of(|all: &sdk::$name| &raw const all.$field),
            concat!("width of ", stringify!($name), ".", stringify!($field))
        );
    };
    ($name:ident $offset:literal $field:ident $($($sdk:ident).+)|+) => {
        $(assert_eq!(
            $offset,
            std::mem::offset_of!(sdk::$name, $($sdk).+),
            concat!(stringify!($name), ".", stringify!($($sdk).+))
        );)+
    };
}

#[cfg(test)]
macro_rules! compared_number {
    ($name:ident ours) => {};
    ($name:ident) => {
        assert_eq!($name as u32, sdk::$name as u32, stringify!($name));
    };
}

pub(crate) use {c_abi, declared, laid_out, written};
#[cfg(test)]
pub(crate) use {compared, compared_number, compared_row};
