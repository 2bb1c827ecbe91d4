use std::fmt;

use crate::protobuf::{Field, Reader};

/// A message that was checked against its schema, read field by field where it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a>(pub(super) &'a [u8]);

impl<'a> Message<'a> {
    pub(super) fn fields(self) -> impl Iterator<Item = (u32, Field<'a>)> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || reader.next_field().ok().flatten())
    }

    /// The last field of that number, as in any protobuf message; nothing if there is none.
    pub(super) fn bytes(self, number: u32) -> Option<&'a [u8]> {
        self.fields().filter_map(|(found, field)| bytes_of(field).filter(|_| found == number)).last()
    }

    pub(super) fn varint(self, number: u32) -> Option<u64> {
        self.fields()
            .filter_map(|(found, field)| match field {
                Field::Varint(value) if found == number => Some(value),
                _ => None,
            })
            .last()
    }

    /// All fields of that number: those of a repeated field.
    pub(super) fn messages(self, number: u32) -> impl Iterator<Item = Self> {
        self.fields().filter_map(move |(found, field)| bytes_of(field).filter(|_| found == number).map(Self))
    }
}

pub(super) fn bytes_of(field: Field<'_>) -> Option<&[u8]> {
    if let Field::Bytes(bytes) = field { Some(bytes) } else { None }
}

/// Says how long it is: there may be values in it.
impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}
