//! Sets of flags in a configuration: their names where people read it, their bits elsewhere.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use bitflags::Flags;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

pub(crate) fn serialize<F, S>(flags: &F, serializer: S) -> Result<S::Ok, S::Error>
where
    F: Flags<Bits: Serialize>,
    S: Serializer,
{
    match serializer.is_human_readable() {
        true => serializer.collect_seq(flags.iter_names().map(|(name, _)| name)),
        false => flags.bits().serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, F, D>(deserializer: D) -> Result<F, D::Error>
where
    F: Flags<Bits: Deserialize<'de>>,
    D: Deserializer<'de>,
{
    if deserializer.is_human_readable() {
        return deserializer.deserialize_seq(Names(PhantomData));
    }
    let bits = F::Bits::deserialize(deserializer)?;
    F::from_bits(bits).ok_or_else(|| D::Error::custom("a set of flags has an unknown bit"))
}

struct Names<F>(PhantomData<F>);

impl<'de, F: Flags> Visitor<'de> for Names<F> {
    type Value = F;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<F, A::Error> {
        let mut flags = F::empty();
        while let Some(name) = names.next_element::<Name<F>>()? {
            flags.insert(name.0);
        }
        Ok(flags)
    }
}

/// One name.
struct Name<F>(F);

impl<'de, F: Flags> Deserialize<'de> for Name<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name<F>, D::Error> {
        deserializer.deserialize_str(Name(F::empty()))
    }
}

impl<F: Flags> Visitor<'_> for Name<F> {
    type Value = Name<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    /// The error has the text of an unknown variant of an enum.
    fn visit_str<E: Error>(self, name: &str) -> Result<Name<F>, E> {
        F::from_name(name).map(Name).ok_or_else(|| {
            let names: Vec<_> = F::FLAGS.iter().map(|flag| flag.name()).collect();
            E::custom(format_args!("unknown variant `{name}`, expected one of `{}`", names.join("`, `")))
        })
    }
}
