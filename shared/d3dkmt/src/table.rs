//! The macros behind the tables of calls and replies. A row is `TAG Name FIELDS -> Reply, effect => "FORM";` with its
//! doc:
//!
//! ```text
//! 9 GetDeviceState { 1 device: Handle, 2 state_type: u32 } -> DeviceState     a message with fields and their tags
//!     => "device_state {device} [type={state_type:1}]";
//! 8 DestroyDevice(device: Handle), destroys => "destroy_device {device}";     the message is the bare value
//! 53 ProcessPriorityClass -> Priority => "priority_class ..";                 no field
//! ```
//!
//! Tags are those of `channel.proto`; `()` is the tag of a field whose own fields stand in the message, and `(2, 5)` of
//! a list whose first entry is field 5. A reply of the form `Name[0: Type]` is a tuple variant. `=> Device 0` names the
//! field that the reply gives its caller, and its kind ([`ReplyValueKind`](crate::ReplyValueKind)).
//!
//! The form is how a scenario writes the call:
//!
//! | form | meaning |
//! |---|---|
//! | `{device}` | an operand, read and written as its field's kind is |
//! | `key={field}` | the same behind a key |
//! | `[..]` | left out if it has its default: 0, none, or what stands behind a colon, `{state_type:1}` |
//! | `{reason\|NAMES}`, `{flags&NAMES}` | a number with a name, or bits with names, of a list of the scenario language |
//! | `{field as word}` | the word that stands for the field where it has no key |
//! | `verb ..` | the scenario language reads and writes the operands by itself |
//! | `- why` | scenarios have no word for the call |

/// Fails the build if two rows of a table have one tag.
pub(crate) const fn assert_distinct(tags: &[u32]) {
    let mut at = 0;
    while at < tags.len() {
        let mut next = at + 1;
        while next < tags.len() {
            assert!(tags[at] != tags[next], "two rows of a table in call.rs have one tag");
            next += 1;
        }
        at += 1;
    }
}

/// Declares [`CallOf`](crate::CallOf) from its rows, and `for_each_call!`, which passes the rows to another macro.
macro_rules! calls {
    ($d:tt $($rows:tt)*) => {
        declare_calls! { $($rows)* }

        /// Calls `expand!` with the rows of the table of calls.
        #[macro_export]
        macro_rules! for_each_call {
            ($d($d expand:ident)::+) => { $d($d expand)::+! { $($rows)* } };
        }
    };
}

macro_rules! declare_calls {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// One D3DKMT call with its inputs, given as `N` gives them. Each variant begins its doc with the C name.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum CallOf<N: Names> {
            $($(#[$doc])* $name
                $({ $($field: <$kind as Kind<N>>::Type),+ })?
                $({ $bare: <$bare_kind as Kind<N>>::Type })?,)+
        }

        const _: () = $crate::table::assert_distinct(&[$($tag),+]);

        impl<N: Names> CallOf<N> {
            /// The name of the call.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(CallOf::$name { .. } => stringify!($name),)+
                }
            }

            /// Its tag in a message.
            pub const fn tag(&self) -> u32 {
                match self {
                    $(CallOf::$name { .. } => $tag,)+
                }
            }

            /// The tags of all calls.
            pub const TAGS: &'static [u32] = &[$($tag),+];

            /// How scenarios write each call, in the order of the table.
            pub const FORMS: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $form)),+];

            /// How scenarios write the call.
            pub const fn form(&self) -> &'static str {
                match self {
                    $(CallOf::$name { .. } => $form,)+
                }
            }

            /// Side effect of the call, beside its reply.
            pub const fn effect(&self) -> CallEffect {
                match self {
                    $(CallOf::$name { .. } => effect!($($effect)?),)+
                }
            }

            /// Kind of the reply to a successful call.
            pub const fn reply(&self) -> ReplyKind {
                match self {
                    $(CallOf::$name { .. } => reply_kind!($($reply)?),)+
                }
            }

            /// Passes each name to `visitor`, in the order of the fields.
            pub fn visit_names(&mut self, visitor: &mut impl Visit<N>) {
                match self {
                    $(CallOf::$name { $($($field),+)? $($bare)? } => {
                        $($(<$kind as Kind<N>>::visit($field, visitor);)+)?
                        $(<$bare_kind as Kind<N>>::visit($bare, visitor);)?
                        let _ = &visitor;
                    })+
                }
            }

            /// The same call with the names `M`.
            ///
            /// # Errors
            ///
            /// Those of `names`.
            pub fn rename<M: Names, R: Rename<N, M>>(&self, names: &mut R) -> Result<CallOf<M>, R::Error> {
                let _ = &names;
                Ok(match self {
                    $(CallOf::$name { $($($field),+)? $($bare)? } => CallOf::$name {
                        $($($field: <$kind as RenamedKind<N, M>>::rename($field, names)?),+)?
                        $($bare: <$bare_kind as RenamedKind<N, M>>::rename($bare, names)?)?
                    },)+
                })
            }
        }
    };
}

macro_rules! effect {
    () => {
        CallEffect::None
    };
    (destroys) => {
        CallEffect::Destroys
    };
    (makes_nt_handle) => {
        CallEffect::MakesNtHandle
    };
}

macro_rules! reply_kind {
    () => {
        ReplyKind::None
    };
    ($reply:ident) => {
        ReplyKind::$reply
    };
}

macro_rules! value_kind {
    () => {
        ReplyValueKind::Nothing
    };
    ($value_kind:ident) => {
        ReplyValueKind::$value_kind
    };
}

macro_rules! value {
    () => {
        ReplyValue::Nothing
    };
    ($value_kind:ident $value:ident) => {
        HasValue::reply_value($value)
    };
}

/// Declares [`Reply`](crate::Reply) from its rows, and `for_each_reply!`, which passes the rows to another macro.
macro_rules! replies {
    ($d:tt $($rows:tt)*) => {
        declare_replies! { $($rows)* }

        /// Calls `expand!` with the rows of the table of replies.
        #[macro_export]
        macro_rules! for_each_reply {
            ($d($d expand:ident)::+) => { $d($d expand)::+! { $($rows)* } };
        }
    };
}

macro_rules! declare_replies {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $type:ty),+ $(,)? })?
        $(($bare:ident: $bare_type:ty))?
        $([$index:tt: $tuple:ty])?
        $(=> $value_kind:ident $value:tt)?;)+) => {
        /// Result of a call, beside its status.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Reply {
            /// Only the status.
            None,
            $($(#[$doc])* $name
                $({ $($field: $type),+ })?
                $({ $bare: $bare_type })?
                $(($tuple))?,)+
        }

        /// Which reply it is.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ReplyKind {
            None,
            $($name,)+
        }

        impl ReplyKind {
            /// Kind of the value that the reply gives its caller.
            pub const fn value_kind(self) -> ReplyValueKind {
                match self {
                    ReplyKind::None => ReplyValueKind::Nothing,
                    $(ReplyKind::$name => value_kind!($($value_kind)?),)+
                }
            }
        }

        const _: () = $crate::table::assert_distinct(&[$($tag),+]);

        impl Reply {
            /// The tags of all replies.
            pub const TAGS: &'static [u32] = &[$($tag),+];

            /// The value that the reply gives its caller.
            pub fn value(&self) -> ReplyValue<'_> {
                match self {
                    Reply::None => ReplyValue::Nothing,
                    $(Reply::$name { $($value: value, )? .. } => value!($($value_kind value)?),)+
                }
            }

            pub const fn kind(&self) -> ReplyKind {
                match self {
                    Reply::None => ReplyKind::None,
                    $(Reply::$name { .. } => ReplyKind::$name,)+
                }
            }

            /// Each handle of the reply, in the order of its fields; NULL where there is none.
            pub fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
                match self {
                    Reply::None => {}
                    $(Reply::$name { $($($field),+)? $($bare)? $($index: value)? } => {
                        $($(NamesHandles::handles_mut($field, each);)+)?
                        $(NamesHandles::handles_mut($bare, each);)?
                        $(<$tuple as NamesHandles>::handles_mut(value, each);)?
                        let _ = &each;
                    })+
                }
            }
        }
    };
}

/// One match over all calls, split into functions by topic. A call that is in no topic is a compile error.
///
/// ```text
/// calls_by_topic! {
///     fn perform(client: &Client, call: &Call) -> Done, by (client, call) on call;
///     of_adapters {
///         EnumAdapters { capacity } => adapter::enumerate(*capacity),
///     }
/// }
/// ```
///
/// `perform` passes a call to the function of its topic. For methods, write `by self.(call)`.
#[macro_export]
macro_rules! calls_by_topic {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $parameters:tt -> $result:ty, by $receiver:ident . $arguments:tt on $call:ident;
        $($topic:ident { $($variant:ident $fields:tt => $behaviour:expr,)+ })+
    ) => {
        $(#[$attribute])*
        $visibility fn $name $parameters -> $result {
            match $call {
                $($($crate::Call::$variant { .. })|+ => $receiver.$topic $arguments,)+
            }
        }

        $($crate::calls_of_topic! { $topic $parameters $result, $call $($variant $fields => $behaviour,)+ })+
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $parameters:tt -> $result:ty, by $arguments:tt on $call:ident;
        $($topic:ident { $($variant:ident $fields:tt => $behaviour:expr,)+ })+
    ) => {
        $(#[$attribute])*
        $visibility fn $name $parameters -> $result {
            match $call {
                $($($crate::Call::$variant { .. })|+ => $topic $arguments,)+
            }
        }

        $($crate::calls_of_topic! { $topic $parameters $result, $call $($variant $fields => $behaviour,)+ })+
    };
}

/// The calls of one topic.
#[doc(hidden)]
#[macro_export]
macro_rules! calls_of_topic {
    ($topic:ident $parameters:tt $result:ty, $call:ident $($variant:ident $fields:tt => $behaviour:expr,)+) => {
        #[allow(unused_variables)]
        fn $topic $parameters -> $result {
            match $call {
                $($crate::Call::$variant $fields => $behaviour,)+
                _ => unreachable!("the list of topics is made of the same calls"),
            }
        }
    };
}
