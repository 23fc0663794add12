//! The macros behind the rows.

/// A field of a C struct, for the header.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub c_type: &'static str,
    pub docs: &'static [&'static str],
}

/// A function of a table, for the header, the documentation and tests.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    /// The method of `dxgkrnl::ddi::Miniport`, or the variant of `dxgkrnl::ddi::Callback`.
    pub model: &'static str,
    pub arguments: &'static str,
    pub docs: &'static [&'static str],
    pub fields: &'static [Field],
    /// Pointer and size of its buffer.
    pub buffer: Option<(&'static str, &'static str)>,
    /// What happens without it.
    pub default: &'static str,
    /// Bytes of the struct, and the sum of its fields': equal, because a stable layout has no holes.
    pub bytes: (usize, usize),
}

/// The C structs of rows, the enum with a variant for each row, and the rows.
macro_rules! rows {
    ($enum:ident, $rows:ident: $(
        $(#[doc = $doc:literal])*
        $name:ident $model:ident $arguments:ident {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ident,)*
        } $(buffer($pointer:ident, $size:ident))? = $default:literal;
    )*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
            pub struct $arguments {
                $(
                    pub $pointer: Pointer,
                    /// Bytes.
                    pub $size: UINT64,
                )?
                $($(#[doc = $field_doc])* pub $field: $type,)*
            }
        )*

        /// The arguments of one call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $enum {
            $($name($arguments),)*
        }

        impl $enum {
            /// Its row in the table.
            pub fn row(&self) -> usize {
                #[derive(Clone, Copy)]
                enum Number { $($name,)* }
                match self {
                    $($enum::$name(_) => Number::$name as usize,)*
                }
            }

            pub fn name(&self) -> &'static str {
                match self {
                    $($enum::$name(_) => stringify!($name),)*
                }
            }

            /// Pointer and size of its buffer.
            #[allow(unused_variables, reason = "some rows have no buffer")]
            pub fn buffer(&mut self) -> Option<(&mut Pointer, &mut UINT64)> {
                match self {
                    $($enum::$name(arguments) => rows!(@buffer_of arguments $($pointer $size)?),)*
                }
            }
        }

        $(impl From<$arguments> for $enum {
            fn from(arguments: $arguments) -> $enum {
                $enum::$name(arguments)
            }
        })*

        pub const $rows: &[Row] = &[$(Row {
            name: stringify!($name),
            model: stringify!($model),
            arguments: stringify!($arguments),
            docs: &[$($doc),*],
            fields: &[$(Field { name: stringify!($field), c_type: stringify!($type), docs: &[$($field_doc),*] }),*],
            buffer: rows!(@buffer $($pointer $size)?),
            default: $default,
            bytes: (size_of::<$arguments>(), 0 $(+ size_of::<$type>())* + rows!(@bytes $($pointer)?)),
        }),*];
    };
    (@buffer) => { None };
    (@buffer $pointer:ident $size:ident) => { Some((stringify!($pointer), stringify!($size))) };
    (@buffer_of $arguments:ident) => { None };
    (@buffer_of $arguments:ident $pointer:ident $size:ident) => {
        Some((&mut $arguments.$pointer, &mut $arguments.$size))
    };
    (@bytes) => { 0 };
    (@bytes $pointer:ident) => { size_of::<Pointer>() + size_of::<UINT64>() };
}

pub(super) use rows;
