use std::collections::HashSet;

use super::Error;
use crate::protobuf::{Field, Reader};

/// The longest key ID, in bytes.
pub const MAX_KEY_ID_BYTES: usize = 1024;
/// The longest encrypted data key or seed, in bytes.
pub const MAX_DEK_SOURCE_BYTES: usize = 1024;
/// The sum of the lengths of all annotations' keys and values, in bytes.
pub const MAX_ANNOTATIONS_BYTES: usize = 32 * 1024;

/// What the plaintext of the encrypted DEK source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncryptedDekSourceType {
    /// 0: the data key itself.
    AesGcmKey,
    /// 1: a seed from which HKDF derives a data key for each value.
    HkdfSha256XnonceAesGcmSeed,
}

/// The envelope of KMS v2, the protobuf message `EncryptedObject`.
///
/// Decoded as Go does: unknown fields and known fields of another wire type are skipped, of a repeated field the last counts,
/// the enum is cut to 32 bits. Upstream: `kmsv2/v2/api.proto` and `kmsv2.validateEncryptedObject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedObject<'a> {
    /// Field 1: the value, encrypted with the data key.
    pub encrypted_data: &'a [u8],
    /// Field 2: names the key-encryption key in the KMS.
    pub key_id: &'a str,
    /// Field 3: what the plugin's Decrypt gets.
    pub encrypted_dek_source: &'a [u8],
    /// Field 4: handed back to the plugin, in the order of storage; of a repeated key the last counts.
    pub annotations: Vec<(&'a str, &'a [u8])>,
    /// Field 5.
    pub encrypted_dek_source_type: EncryptedDekSourceType,
}

impl<'a> EncryptedObject<'a> {
    /// Decodes and validates an envelope.
    ///
    /// # Errors
    ///
    /// In upstream's order: not protobuf, an unknown type, empty or too long fields, annotations.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (mut data, mut key_id, mut source): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let mut annotations: Vec<(&str, &[u8])> = Vec::new();
        let mut source_type = 0;
        let mut reader = Reader::new(bytes);
        while let Some((number, field)) = reader.next_field()? {
            match (number, field) {
                (1, Field::Bytes(bytes)) => data = bytes,
                (2, Field::Bytes(bytes)) => key_id = bytes,
                (3, Field::Bytes(bytes)) => source = bytes,
                (4, Field::Bytes(bytes)) => {
                    annotations.push(annotation(bytes)?);
                }
                // Go keeps the low 32 bits of the varint.
                (5, Field::Varint(value)) => source_type = (value & 0xffff_ffff) as u32 as i32,
                _ => {}
            }
        }
        keep_last(&mut annotations);
        // Go checks strings while it decodes, so this comes before everything else.
        let key_id = std::str::from_utf8(key_id).map_err(|_| Error::Utf8 { field: "keyID" })?;
        let encrypted_dek_source_type = match source_type {
            0 => EncryptedDekSourceType::AesGcmKey,
            1 => EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed,
            value => return Err(Error::UnknownDekSourceType { value }),
        };
        if data.is_empty() {
            return Err(Error::EmptyField { field: "encryptedData" });
        }
        validate_encrypt_response(source, key_id, annotations.iter().copied())?;
        Ok(Self { encrypted_data: data, key_id, encrypted_dek_source: source, annotations, encrypted_dek_source_type })
    }
}

fn annotation(bytes: &[u8]) -> Result<(&str, &[u8]), Error> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next_field()? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = bytes,
            (2, Field::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((std::str::from_utf8(key).map_err(|_| Error::Utf8 { field: "annotations" })?, value))
}

/// Of a repeated key only the last is kept, in time that does not grow with the square of what a hostile value repeats.
fn keep_last(annotations: &mut Vec<(&str, &[u8])>) {
    if annotations.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(annotations.len());
    annotations.reverse();
    annotations.retain(|(key, _)| seen.insert(*key));
    annotations.reverse();
}

fn check_length(field: &'static str, actual: usize, max: usize) -> Result<(), Error> {
    match actual {
        0 => Err(Error::EmptyField { field }),
        _ if actual > max => Err(Error::FieldTooLong { field, actual, max }),
        _ => Ok(()),
    }
}

/// Checks what a plugin's Encrypt answers, as kube-apiserver does before it uses it.
///
/// # Errors
///
/// In upstream's order: empty or too long fields, annotations.
pub fn validate_encrypt_response<'a>(
    encrypted_dek_source: &[u8],
    key_id: &str,
    annotations: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
) -> Result<(), Error> {
    check_length("encryptedDEKSource", encrypted_dek_source.len(), MAX_DEK_SOURCE_BYTES)?;
    check_length("keyID", key_id.len(), MAX_KEY_ID_BYTES)?;
    check_annotations(annotations)
}

fn check_annotations<'a>(annotations: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> Result<(), Error> {
    if !annotations.clone().all(|(key, _)| is_fqdn(key)) {
        return Err(Error::AnnotationKey);
    }
    let actual = annotations.map(|(key, value)| key.len() + value.len()).sum();
    if actual > MAX_ANNOTATIONS_BYTES {
        return Err(Error::FieldTooLong { field: "annotations", actual, max: MAX_ANNOTATIONS_BYTES });
    }
    Ok(())
}

/// Upstream: `validation.IsFullyQualifiedDomainName`.
fn is_fqdn(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    }

    fn object(parts: &[Vec<u8>]) -> Vec<u8> {
        [field(1, b"data"), field(2, b"kek-1"), field(3, b"dek")].iter().chain(parts).flatten().copied().collect()
    }

    #[test]
    fn fields_are_read_and_defaults_filled_in() {
        let bytes = object(&[field(4, &[field(1, b"a.example.com"), field(2, b"x")].concat()), vec![0x28, 1]]);
        assert_eq!(
            EncryptedObject::parse(&bytes),
            Ok(EncryptedObject {
                encrypted_data: b"data",
                key_id: "kek-1",
                encrypted_dek_source: b"dek",
                annotations: vec![("a.example.com", b"x")],
                encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed,
            })
        );
        let plain = object(&[]);
        assert_eq!(
            EncryptedObject::parse(&plain).unwrap().encrypted_dek_source_type,
            EncryptedDekSourceType::AesGcmKey
        );
    }

    #[test]
    fn go_s_leniencies_are_kept() {
        let last_wins = object(&[field(2, b"kek-2")]);
        assert_eq!(EncryptedObject::parse(&last_wins).unwrap().key_id, "kek-2");
        let unknown = object(&[field(15, b"?")]);
        assert_eq!(EncryptedObject::parse(&unknown).unwrap().key_id, "kek-1");
        let wrong_wire_type = object(&[vec![2 << 3, 7]]);
        assert_eq!(EncryptedObject::parse(&wrong_wire_type).unwrap().key_id, "kek-1");
        let wide_enum = object(&[vec![0x28, 0x81, 0x80, 0x80, 0x80, 0x10]]);
        assert_eq!(
            EncryptedObject::parse(&wide_enum).unwrap().encrypted_dek_source_type,
            EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed
        );
        let no_value = object(&[field(4, &field(1, b"a.example.com"))]);
        assert_eq!(EncryptedObject::parse(&no_value).unwrap().annotations, vec![("a.example.com", &b""[..])]);
    }

    #[test]
    fn limits_are_those_of_kubernetes() {
        let with_key_id = |n| object(&[field(2, &vec![b'k'; n])]);
        assert_eq!(EncryptedObject::parse(&with_key_id(1024)).unwrap().key_id.len(), 1024);
        assert_eq!(
            EncryptedObject::parse(&with_key_id(1025)),
            Err(Error::FieldTooLong { field: "keyID", actual: 1025, max: 1024 })
        );
        let annotated =
            |n: usize| object(&[field(4, &[field(1, b"a.example.com"), field(2, &vec![0; n - 13])].concat())]);
        assert_eq!(EncryptedObject::parse(&annotated(32768)).unwrap().annotations.len(), 1);
        assert_eq!(
            EncryptedObject::parse(&annotated(32769)),
            Err(Error::FieldTooLong { field: "annotations", actual: 32769, max: 32768 })
        );
        assert_eq!(EncryptedObject::parse(&object(&[vec![0x28, 9]])), Err(Error::UnknownDekSourceType { value: 9 }));
        assert_eq!(EncryptedObject::parse(b""), Err(Error::EmptyField { field: "encryptedData" }));
    }

    #[test]
    fn annotation_keys_are_domain_names() {
        let label = |n| "a".repeat(n);
        let long = format!("{0}.{0}.{0}.{1}", label(63), label(61));
        for good in ["10.0.0.1", "dev.k8s.io.", "a-b.c", &format!("{}.io", label(63)), &long] {
            assert!(is_fqdn(good), "{good}");
        }
        let too_long = format!("{long}a");
        let bad = [
            "",
            ".",
            "com",
            "simple",
            "Dev.k8s.io",
            "*.x.com",
            "a_b.io",
            "http://x.y",
            "a..b",
            "-a.b",
            "a-.b",
            &format!("{}.io", label(64)),
            &too_long,
        ];
        for bad in bad {
            assert!(!is_fqdn(bad), "{bad}");
        }
    }
}
