//! Reads the fields of a protobuf message in place, without a schema and without copying.

/// Why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid protobuf wire format at byte {offset}")]
pub struct Error {
    /// Where reading failed, in bytes from the start of the message.
    pub offset: usize,
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
    message: &'a [u8],
    rest: &'a [u8],
}

/// How deep unknown groups may be nested. Kubernetes writes none.
const MAX_GROUP_DEPTH: usize = 100;

impl<'a> Reader<'a> {
    /// Starts at the beginning of a message.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, rest: message }
    }

    fn error(&self) -> Error {
        Error { offset: self.message.len() - self.rest.len() }
    }

    /// The next field and its number, or `None` at the end.
    ///
    /// # Errors
    ///
    /// When the bytes left over are no field.
    pub fn next_field(&mut self) -> Result<Option<(u64, Field<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let field = match wire_type {
            3 => {
                self.skip_group(number)?;
                Field::Group
            }
            _ => self.value(wire_type)?,
        };
        Ok(Some((number, field)))
    }

    fn tag(&mut self) -> Result<(u64, u8), Error> {
        let error = self.error();
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > (1 << 29) - 1 {
            return Err(error);
        }
        Ok((number, (tag & 7) as u8))
    }

    fn value(&mut self, wire_type: u8) -> Result<Field<'a>, Error> {
        match wire_type {
            0 => self.varint().map(Field::Varint),
            1 => self.fixed().map(Field::Fixed64),
            2 => {
                let error = self.error();
                let length = usize::try_from(self.varint()?).map_err(|_| error)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(error)?;
                self.rest = rest;
                Ok(Field::Bytes(bytes))
            }
            5 => self.fixed().map(Field::Fixed32),
            _ => Err(self.error()),
        }
    }

    fn skip_group(&mut self, number: u64) -> Result<(), Error> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let error = self.error();
            match self.tag()? {
                (number, 3) if open.len() < MAX_GROUP_DEPTH => open.push(number),
                (number, 4) if number == *innermost => {
                    open.pop();
                }
                (_, wire_type @ (0 | 1 | 2 | 5)) => {
                    self.value(wire_type)?;
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.error())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let error = self.error();
        prost::encoding::decode_varint(&mut self.rest).map_err(|_| error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u64, Field<'_>)>, Error> {
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
        for (message, offset) in [
            (&b"\x12\x05abc"[..], 1),
            (b"\x08", 1),
            (b"\x00\x01", 0),
            (b"\x0e", 1),
            (b"\x0c", 1),
            (b"\x0b\x08\x01", 3),
            (b"\x0b\x14", 1),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1),
        ] {
            assert_eq!(fields(message), Err(Error { offset }), "{message:02x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = fields(&message).map_or(0, |fields| fields.len());
            prop_assert!(total <= message.len());
        }
    }
}
