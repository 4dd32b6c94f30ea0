//! Fields of messages, each with one encoding, and the declaration of a message by its fields.

use crate::kv::RequestId;
use crate::link::codec::{Ended, NoRoom, Reader, Writer};

/// A value in a message. Bytes that no value has are an error, so that each value has one encoding.
pub(super) trait Field: Sized {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Ended>;
    fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom>;
}

macro_rules! numbers {
    ($($number:ident),*) => {$(
        impl Field for $number {
            fn take(reader: &mut Reader<'_>) -> Result<Self, Ended> {
                reader.$number()
            }

            fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                writer.$number(*self)
            }
        }
    )*};
}

numbers!(u8, u32, u64);

impl Field for bool {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Ended> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Ended),
        }
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u8((*self).into())
    }
}

impl Field for RequestId {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Ended> {
        let len = reader.u8()?;
        Self::new(reader.take(len.into())?).map_err(|_| Ended)
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let bytes = self.bytes();
        // The cast is exact: an id has 64 bytes at most.
        writer.u8(bytes.len() as u8)?;
        writer.put(bytes)
    }
}

/// Reads `count` bytes that fill a field up. They must be 0, because each message has one encoding.
pub(super) fn take_zeros(reader: &mut Reader<'_>, count: usize) -> Result<(), Ended> {
    if reader.take(count)?.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(Ended) }
}

/// Encodes an enum as a byte, its discriminant. A variant that is not listed does not compile, because it would be
/// written and never read.
macro_rules! codes {
    ($code:ident: $($variant:ident),*) => {
        const _: fn($code) = |code| match code { $($code::$variant => {})* };

        impl Field for $code {
            fn take(reader: &mut Reader<'_>) -> Result<Self, Ended> {
                let code = reader.u8()?;
                [$(Self::$variant),*].into_iter().find(|known| *known as u8 == code).ok_or(Ended)
            }

            fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                writer.u8(*self as u8)
            }
        }
    };
}

/// Declares the fields of a message in their order on the wire. `[N zeros]` are bytes behind a field that fill it up.
macro_rules! fields {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $([$zeros:literal zeros])?,)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::kv) struct $name {
            $($(#[$doc])* pub(in crate::kv) $field: $type,)*
        }

        impl Field for $name {
            fn take(reader: &mut Reader<'_>) -> Result<Self, Ended> {
                $(let $field = Field::take(reader)?; $(take_zeros(reader, $zeros)?;)?)*
                Ok(Self { $($field),* })
            }

            fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                $(self.$field.put(writer)?; $(writer.put(&[0; $zeros])?;)?)*
                Ok(())
            }
        }
    };
}

/// Declares a message: its fields, alone or `with a list` that goes in pieces.
macro_rules! message {
    ($(#[$attribute:meta])* $name:ident { $($fields:tt)* }) => {
        fields!($(#[$attribute])* $name { $($fields)* });

        impl $name {
            pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                self.put(writer)
            }

            pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
                let mut reader = Reader::new(body);
                let message = Self::take(&mut reader)?;
                if reader.rest().is_empty() { Ok(message) } else { Err(Ended) }
            }
        }
    };
    ($(#[$attribute:meta])* $name:ident { $($fields:tt)* } with a list) => {
        fields!($(#[$attribute])* $name { $($fields)* });

        impl $name {
            /// Writes the fields, and at most `room` numbers of `list` from index `first` on.
            pub(in crate::kv) fn write(
                &self,
                writer: &mut Writer<'_>,
                list: &[u32],
                first: usize,
                room: usize,
            ) -> Result<(), NoRoom> {
                self.put(writer)?;
                write_piece(writer, list, first, room)
            }

            pub(in crate::kv) fn read(body: &[u8]) -> Result<(Self, Piece<'_>), Ended> {
                let mut reader = Reader::new(body);
                Ok((Self::take(&mut reader)?, Piece::read(reader)?))
            }
        }
    };
}

pub(super) use {codes, fields, message};
