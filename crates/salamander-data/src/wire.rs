//! The protobuf wire format, walked without copying, so that rows can borrow from the reader's buffer.

/// How deep unknown groups may nest.
const MAX_DEPTH: u32 = 64;

/// Why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("varint longer than 64 bits")]
    LongVarint,
    #[error("ends inside a field")]
    Truncated,
    #[error("field number {0} is impossible")]
    FieldNumber(u64),
    #[error("wire type {0} is unknown here")]
    WireType(u8),
    #[error("group without start or end, or nested too deep")]
    Group,
    #[error("name is not utf-8")]
    Name,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Group,
}

impl<'a> Field<'a> {
    /// The bytes of a string or an embedded message.
    pub(crate) fn bytes(self) -> Result<&'a [u8], Error> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            other => Err(other.unexpected()),
        }
    }

    /// The error for a field whose wire type does not fit its number.
    pub(crate) fn unexpected(self) -> Error {
        Error::WireType(match self {
            Field::Varint(_) => 0,
            Field::Fixed64 => 1,
            Field::Bytes(_) => 2,
            Field::Group => 3,
            Field::Fixed32(_) => 5,
        })
    }
}

/// The fields of a message that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire<'a> {
    rest: &'a [u8],
}

impl<'a> Wire<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Wire<'a> {
        Wire { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field with its number, or `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        if wire_type == END_GROUP {
            return Err(Error::Group);
        }
        Ok(Some((number, self.value(number, wire_type, 0)?)))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for position in 0..10 {
            let (&byte, rest) = self.rest.split_first().ok_or(Error::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                // The tenth byte has room for the last of 64 bits only.
                return if position == 9 && byte > 1 { Err(Error::LongVarint) } else { Ok(value) };
            }
        }
        Err(Error::LongVarint)
    }

    pub(crate) fn fixed32(&mut self) -> Result<[u8; 4], Error> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Number and wire type of the next field.
    pub(crate) fn key(&mut self) -> Result<(u32, u8), Error> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || key > u64::from(u32::MAX) {
            return Err(Error::FieldNumber(number));
        }
        Ok((number as u32, (key & 7) as u8))
    }

    pub(crate) fn value(
        &mut self,
        number: u32,
        wire_type: u8,
        depth: u32,
    ) -> Result<Field<'a>, Error> {
        match wire_type {
            0 => Ok(Field::Varint(self.varint()?)),
            1 => self.take(8).map(|_| Field::Fixed64),
            2 => {
                let length = self.varint()?;
                Ok(Field::Bytes(self.take(length)?))
            }
            START_GROUP => self.skip_group(number, depth + 1).map(|()| Field::Group),
            5 => Ok(Field::Fixed32(self.fixed32()?)),
            other => Err(Error::WireType(other)),
        }
    }

    fn skip_group(&mut self, number: u32, depth: u32) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Group);
        }
        loop {
            let (inner, wire_type) = self.key()?;
            if wire_type == END_GROUP {
                return if inner == number { Ok(()) } else { Err(Error::Group) };
            }
            self.value(inner, wire_type, depth)?;
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Error> {
        let length = usize::try_from(length).map_err(|_| Error::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}

const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_wire_type() {
        let check = |bytes: &[u8], expected: Result<Option<(u32, Field<'_>)>, Error>| {
            assert_eq!(Wire::new(bytes).next(), expected, "{bytes:02x?}");
        };
        check(&[], Ok(None));
        check(&[0x08, 0x96, 0x01], Ok(Some((1, Field::Varint(150)))));
        check(&[0x12, 2, 7, 8], Ok(Some((2, Field::Bytes(&[7, 8])))));
        check(&[0x0d, 1, 2, 3, 4], Ok(Some((1, Field::Fixed32([1, 2, 3, 4])))));
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], Ok(Some((1, Field::Fixed64))));
        check(&[0x0b, 0x08, 1, 0x0c], Ok(Some((1, Field::Group))));
        check(&[0x0b, 0x08, 1, 0x14], Err(Error::Group));
        check(&[0x0c], Err(Error::Group));
        check(&[0x12, 3, 7, 8], Err(Error::Truncated));
        check(
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            Err(Error::Truncated),
        );
        check(
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            Err(Error::LongVarint),
        );
        check(&[0x00, 0], Err(Error::FieldNumber(0)));
        check(&[0x0f], Err(Error::WireType(7)));
    }

    #[test]
    fn groups_cannot_nest_without_end() {
        assert_eq!(Wire::new(&[0x0b; 100_000]).next(), Err(Error::Group));
    }
}
