//! How a value of ours travels in a field of a message, and the macros that read the table of types.

use std::collections::BTreeSet;
use std::time::Duration;

use salamander_core::asynchronous::MapVersion;
use salamander_core::elastic::{Generation, StateLineage, Term, Version, WorkerId};
use salamander_core::progress::StepCount;

use super::Error;
use crate::v1;

/// A value that travels in a field of type `F`.
pub(super) trait MessageField<F>: Sized {
    fn put(self) -> F;
    fn take(field: F, at: FieldName) -> Result<Self, Error>;
}

/// A field, for errors.
#[derive(Clone, Copy)]
pub(super) struct FieldName {
    pub(super) message: &'static str,
    pub(super) field: &'static str,
}

impl FieldName {
    pub(super) fn missing(self) -> Error {
        Error::Missing { message: self.message, field: self.field }
    }

    pub(super) fn wrong(self, value: i64) -> Error {
        Error::Value { message: self.message, field: self.field, value }
    }
}

/// Values that are one value on the wire.
macro_rules! scalars {
    ($($ours:ty as $wire:ty: $put:expr, $take:expr;)*) => {$(
        impl MessageField<$wire> for $ours {
            fn put(self) -> $wire {
                let put: fn($ours) -> $wire = $put;
                put(self)
            }

            fn take(field: $wire, _at: FieldName) -> Result<Self, Error> {
                let take: fn($wire) -> $ours = $take;
                Ok(take(field))
            }
        }
    )*};
}

scalars! {
    bool as bool: |it| it, |it| it;
    u32 as u32: |it| it, |it| it;
    u64 as u64: |it| it, |it| it;
    f64 as f64: |it| it, |it| it;
    String as String: |it| it, |it| it;
    v1::Process as v1::Process: |it| it, |it| it;
    usize as u64: |it| it as u64, |it| it as usize;
    Duration as u64: |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX), Duration::from_nanos;
    Term as u32: |it| it.0, Term;
    Version as u64: |it| it.0, Version;
    StepCount as u64: |it| it.0, StepCount;
    StateLineage as u64: |it| it.0, StateLineage;
    WorkerId as u64: |it| it.0, WorkerId;
    Generation as u64: Generation::to_u64, Generation::from_u64;
    MapVersion as u64: |it| it.0.to_u64(), |it| MapVersion(Generation::from_u64(it));
}

impl<T: MessageField<F>, F> MessageField<F> for Box<T> {
    fn put(self) -> F {
        (*self).put()
    }

    fn take(field: F, at: FieldName) -> Result<Self, Error> {
        T::take(field, at).map(Box::new)
    }
}

impl<T: MessageField<F>, F> MessageField<Option<F>> for Option<T> {
    fn put(self) -> Option<F> {
        self.map(T::put)
    }

    fn take(field: Option<F>, at: FieldName) -> Result<Self, Error> {
        field.map(|field| T::take(field, at)).transpose()
    }
}

impl<T: MessageField<F>, F> MessageField<Vec<F>> for Vec<T> {
    fn put(self) -> Vec<F> {
        self.into_iter().map(T::put).collect()
    }

    fn take(fields: Vec<F>, at: FieldName) -> Result<Self, Error> {
        fields.into_iter().map(|field| T::take(field, at)).collect()
    }
}

impl<T: MessageField<F> + Ord, F> MessageField<Vec<F>> for BTreeSet<T> {
    fn put(self) -> Vec<F> {
        self.into_iter().map(T::put).collect()
    }

    fn take(fields: Vec<F>, at: FieldName) -> Result<Self, Error> {
        fields.into_iter().map(|field| T::take(field, at)).collect()
    }
}

/// What follows for a type that is a message: as a field it must be there, and the standard conversions.
macro_rules! message {
    ($ours:ty => $message:ident) => {
        impl MessageField<Option<v1::$message>> for $ours {
            fn put(self) -> Option<v1::$message> {
                Some(self.put())
            }

            fn take(field: Option<v1::$message>, at: FieldName) -> Result<Self, Error> {
                MessageField::take(field.ok_or(at.missing())?, at)
            }
        }

        impl From<$ours> for v1::$message {
            fn from(value: $ours) -> Self {
                value.put()
            }
        }

        impl TryFrom<v1::$message> for $ours {
            type Error = Error;

            fn try_from(message: v1::$message) -> Result<Self, Error> {
                MessageField::take(message, FieldName { message: stringify!($message), field: "" })
            }
        }
    };
}

/// Structs and the messages with the same fields; `if` names a function that looks at what was read.
macro_rules! structs {
    ($($ours:ty => $message:ident { $($field:ident),* } $(if $check:ident)?;)*) => {$(
        impl MessageField<v1::$message> for $ours {
            fn put(self) -> v1::$message {
                v1::$message { $($field: self.$field.put()),* }
            }

            fn take(message: v1::$message, _at: FieldName) -> Result<Self, Error> {
                $(let $field = MessageField::take(
                    message.$field,
                    FieldName { message: stringify!($message), field: stringify!($field) },
                )?;)*
                let value = Self { $($field),* };
                $($check(&value)?;)?
                Ok(value)
            }
        }

        message!($ours => $message);
    )*};
}

/// Enums and the alternatives of a message: `in` names the message and the field if there is nothing else in it, `as`
/// the message that a variant's fields are in.
macro_rules! alternatives {
    ($($ours:ty => $module:ident::$oneof:ident $(in $message:ident.$field:ident)? {
        $($variant:ident $shape:tt $(as $part:ident)?),* $(,)?
    })*) => {$(
        impl MessageField<Option<v1::$module::$oneof>> for $ours {
            fn put(self) -> Option<v1::$module::$oneof> {
                Some(match self {
                    $(Self::$variant $shape => {
                        v1::$module::$oneof::$variant(payload!(put $shape $(as $part)?))
                    })*
                })
            }

            fn take(field: Option<v1::$module::$oneof>, at: FieldName) -> Result<Self, Error> {
                Ok(match field.ok_or(at.missing())? {
                    $(v1::$module::$oneof::$variant(_it) => {
                        payload!(take _it, at, $shape $(as $part)?);
                        Self::$variant $shape
                    })*
                })
            }
        }

        $(
            impl MessageField<v1::$message> for $ours {
                fn put(self) -> v1::$message {
                    v1::$message { $field: self.put() }
                }

                fn take(message: v1::$message, _at: FieldName) -> Result<Self, Error> {
                    let at = FieldName { message: stringify!($message), field: stringify!($field) };
                    MessageField::take(message.$field, at)
                }
            }

            message!($ours => $message);
        )?
    )*};
}

/// What is inside of an alternative: nothing, a value, or the fields of a message.
macro_rules! payload {
    (put {}) => { true };
    (put ($value:ident)) => { $value.put() };
    (put {$value:ident}) => { $value.put() };
    (put ($($field:ident),*) as $part:ident) => { payload!(put {$($field),*} as $part) };
    (put {$($field:ident),*} as $part:ident) => { v1::$part { $($field: $field.put()),* } };
    (take $it:ident, $at:ident, {}) => {};
    (take $it:ident, $at:ident, ($value:ident)) => { let $value = MessageField::take($it, $at)?; };
    (take $it:ident, $at:ident, {$value:ident}) => { let $value = MessageField::take($it, $at)?; };
    (take $it:ident, $at:ident, ($($field:ident),*) as $part:ident) => {
        payload!(take $it, $at, {$($field),*} as $part);
    };
    (take $it:ident, $at:ident, {$($field:ident),*} as $part:ident) => {
        $(let $field = MessageField::take(
            $it.$field,
            FieldName { message: stringify!($part), field: stringify!($field) },
        )?;)*
    };
}

/// Enums without data.
macro_rules! words {
    ($($ours:ty => $module:ident::$word:ident { $($variant:ident),* };)*) => {$(
        impl MessageField<i32> for $ours {
            fn put(self) -> i32 {
                match self {
                    $(Self::$variant => v1::$module::$word::$variant.into()),*
                }
            }

            fn take(number: i32, at: FieldName) -> Result<Self, Error> {
                match v1::$module::$word::try_from(number) {
                    $(Ok(v1::$module::$word::$variant) => Ok(Self::$variant),)*
                    Err(_) => Err(at.wrong(number.into())),
                }
            }
        }
    )*};
}

pub(super) use {alternatives, message, payload, structs, words};
