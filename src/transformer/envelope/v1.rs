use super::Error;

/// The longest encrypted data key, in bytes.
pub const MAX_ENCRYPTED_DEK_BYTES: usize = u16::MAX as usize;

/// The envelope of KMS v1.
///
/// ```text
/// length of the encrypted data key[2, big-endian] || encrypted data key || data encrypted with the data key
/// ```
///
/// An empty data key is legal. Upstream: `envelope.NewEnvelopeTransformer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeV1<'a> {
    /// What the plugin's Decrypt gets.
    pub encrypted_dek: &'a [u8],
    /// The value, encrypted with the data key.
    pub data: &'a [u8],
}

impl<'a> EnvelopeV1<'a> {
    /// Splits an envelope.
    ///
    /// # Errors
    ///
    /// [`Error::DekTruncated`] when the length does not fit.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (length, rest) = bytes.split_first_chunk::<2>().ok_or(Error::DekTruncated)?;
        let (encrypted_dek, data) =
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(Error::DekTruncated)?;
        Ok(Self { encrypted_dek, data })
    }

    /// Appends what comes before the data.
    ///
    /// # Errors
    ///
    /// [`Error::FieldTooLong`] when the encrypted data key has more than 65535 bytes.
    pub fn write_encrypted_dek(encrypted_dek: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let length = u16::try_from(encrypted_dek.len()).map_err(|_| Error::FieldTooLong {
            field: "encrypted DEK",
            actual: encrypted_dek.len(),
            max: MAX_ENCRYPTED_DEK_BYTES,
        })?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(encrypted_dek);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_splits_the_envelope() {
        assert_eq!(EnvelopeV1::parse(b"\0\x02ekdata"), Ok(EnvelopeV1 { encrypted_dek: b"ek", data: b"data" }));
        assert_eq!(EnvelopeV1::parse(b"\0\0"), Ok(EnvelopeV1 { encrypted_dek: b"", data: b"" }));
        for bytes in [&b""[..], b"\0", b"\0\x05ab"] {
            assert_eq!(EnvelopeV1::parse(bytes), Err(Error::DekTruncated));
        }
    }

    #[test]
    fn an_encrypted_data_key_fits_its_length() {
        let mut out = Vec::new();
        EnvelopeV1::write_encrypted_dek(b"ek", &mut out).unwrap();
        assert_eq!(out, b"\0\x02ek");
        EnvelopeV1::write_encrypted_dek(&[0; 65535], &mut out).unwrap();
        assert_eq!(
            EnvelopeV1::write_encrypted_dek(&[0; 65536], &mut out),
            Err(Error::FieldTooLong { field: "encrypted DEK", actual: 65536, max: 65535 })
        );
    }
}
