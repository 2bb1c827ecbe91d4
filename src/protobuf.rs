//! Reads the fields of a protobuf message in place, without a schema and without copying.

/// Why bytes are not a protobuf message. Offsets are those of the field in question, in bytes.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The message ends inside a field.
    #[error("the field at byte {offset} is cut off")]
    Truncated {
        /// Where the field begins.
        offset: usize,
    },
    /// There is no such field.
    #[error("invalid protobuf wire format at byte {offset}")]
    Malformed {
        /// Where the field begins.
        offset: usize,
    },
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64([u8; 8]),
    /// Wire type 2: bytes, a string, or a message.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32([u8; 4]),
    /// Wire types 3 and 4: an unknown group, skipped.
    Group,
}

/// Walks the fields of one message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    /// Where the message ends, counted from where offsets are counted from.
    end: usize,
    rest: &'a [u8],
}

/// How deep unknown groups may be nested. Kubernetes writes none.
const MAX_GROUP_DEPTH: usize = 100;

/// Whether a field went wrong because the message ends, or for another reason.
enum Wrong {
    End,
    Form,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of a message; offsets are counted from there.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self::ending_at(message.len(), message)
    }

    /// Starts at the beginning of a message that is part of something larger, in which it ends at `end`.
    #[must_use]
    pub fn ending_at(end: usize, message: &'a [u8]) -> Self {
        Self { end, rest: message }
    }

    /// Where the next field begins.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    /// The next field and its number, or `None` at the end.
    ///
    /// # Errors
    ///
    /// When the bytes left over are no field.
    pub fn next_field(&mut self) -> Result<Option<(u32, Field<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.offset();
        self.field().map(Some).map_err(|wrong| match wrong {
            Wrong::End => Error::Truncated { offset },
            Wrong::Form => Error::Malformed { offset },
        })
    }

    fn field(&mut self) -> Result<(u32, Field<'a>), Wrong> {
        let (number, wire_type) = self.tag()?;
        if wire_type != 3 {
            return Ok((number, self.value(wire_type)?));
        }
        self.skip_group(number)?;
        Ok((number, Field::Group))
    }

    fn tag(&mut self) -> Result<(u32, u8), Wrong> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Wrong::Form)?;
        match tag >> 3 {
            0 => Err(Wrong::Form),
            number => Ok((number, (tag & 7) as u8)),
        }
    }

    fn value(&mut self, wire_type: u8) -> Result<Field<'a>, Wrong> {
        match wire_type {
            0 => self.varint().map(Field::Varint),
            1 => self.fixed().map(Field::Fixed64),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Wrong::End)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Wrong::End)?;
                self.rest = rest;
                Ok(Field::Bytes(bytes))
            }
            5 => self.fixed().map(Field::Fixed32),
            _ => Err(Wrong::Form),
        }
    }

    fn skip_group(&mut self, number: u32) -> Result<(), Wrong> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            match self.tag()? {
                (number, 3) if open.len() < MAX_GROUP_DEPTH => open.push(number),
                (number, 4) if number == *innermost => {
                    open.pop();
                }
                (_, wire_type @ (0 | 1 | 2 | 5)) => {
                    self.value(wire_type)?;
                }
                _ => return Err(Wrong::Form),
            }
        }
        Ok(())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(Wrong::End)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn varint(&mut self) -> Result<u64, Wrong> {
        // prost tells a varint that goes on past the end from one that is too long by its text only.
        let cut_off = self.rest.len() < 10 && self.rest.iter().all(|byte| byte & 0x80 != 0);
        let wrong = || if cut_off { Wrong::End } else { Wrong::Form };
        prost::encoding::decode_varint(&mut self.rest).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u32, Field<'_>)>, Error> {
        let mut reader = Reader::new(message);
        std::iter::from_fn(|| reader.next_field().transpose()).collect()
    }

    #[test]
    fn every_wire_type_is_read() {
        let message =
            b"\x08\x96\x01\x12\x03abc\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08\x2b\x08\x01\x2c";
        assert_eq!(
            fields(message),
            Ok(vec![
                (1, Field::Varint(150)),
                (2, Field::Bytes(b"abc")),
                (3, Field::Fixed32([1, 2, 3, 4])),
                (4, Field::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
                (5, Field::Group),
            ])
        );
    }

    #[test]
    fn what_is_no_field_is_an_error_at_its_place() {
        for message in [&b"\x12\x05abc"[..], b"\x08", b"\x80", b"\x0b\x08\x01", b"\x12\xff\xff\xff\xff\x7f", b"\x1d\0"]
        {
            assert_eq!(fields(message), Err(Error::Truncated { offset: 0 }), "{message:02x?}");
        }
        for message in [
            &b"\x00\x01"[..],
            b"\x0e",
            b"\x0c",
            b"\x0b\x14",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x88\x80\x80\x80\x80\x01\x01",
        ] {
            assert_eq!(fields(message), Err(Error::Malformed { offset: 0 }), "{message:02x?}");
        }
        assert_eq!(fields(b"\x08\x01\x12\x05abc"), Err(Error::Truncated { offset: 2 }));
    }

    #[test]
    fn offsets_of_a_part_are_those_of_the_whole() {
        let mut reader = Reader::ending_at(12, b"\x08\x01\x0e");
        assert_eq!(reader.offset(), 9);
        assert_eq!(reader.next_field(), Ok(Some((1, Field::Varint(1)))));
        assert_eq!(reader.next_field(), Err(Error::Malformed { offset: 11 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = fields(&message).map_or(0, |fields| fields.len());
            prop_assert!(total <= message.len());
        }
    }
}
