//! What may come in, and what may go out: kube-apiserver refuses an answer that is over its limits only when it is too late.

use atrest::transformer::envelope::{self, validate_encrypt_response};

use crate::backend::Wrapped;

/// The longest plaintext. A DEK or a seed has 32 bytes; the AWS KMS takes as much as this.
pub(super) const MAX_PLAINTEXT_BYTES: usize = 4096;
/// The largest message that is read at all. The longest of kube-apiserver has 32 KiB of annotations and two fields of 1 KiB.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// Whether the plaintext has a length that a data key can have.
pub(super) fn check_plaintext(len: usize) -> Result<(), envelope::Error> {
    match len {
        0 => Err(envelope::Error::EmptyField { field: "plaintext" }),
        1..=MAX_PLAINTEXT_BYTES => Ok(()),
        actual => Err(envelope::Error::FieldTooLong { field: "plaintext", actual, max: MAX_PLAINTEXT_BYTES }),
    }
}

/// Whether kube-apiserver keeps this, or can have kept it.
pub(super) fn check_wrapped(wrapped: &Wrapped) -> Result<(), envelope::Error> {
    let annotations = wrapped.annotations.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
    validate_encrypt_response(&wrapped.ciphertext, &wrapped.key_id, annotations)
}

#[cfg(test)]
mod tests {
    use atrest::transformer::envelope::Error;

    use super::*;

    #[test]
    fn limits_of_a_plaintext() {
        assert_eq!(check_plaintext(0), Err(Error::EmptyField { field: "plaintext" }));
        assert_eq!(check_plaintext(1), Ok(()));
        assert_eq!(check_plaintext(4096), Ok(()));
        assert_eq!(check_plaintext(4097), Err(Error::FieldTooLong { field: "plaintext", actual: 4097, max: 4096 }));
    }

    #[test]
    fn limits_of_what_is_wrapped() {
        let wrapped = |ciphertext: usize, key_id: usize, annotation: &str, value: usize| Wrapped {
            ciphertext: vec![0; ciphertext],
            key_id: "k".repeat(key_id),
            annotations: [(annotation.to_owned(), vec![0; value])].into(),
        };
        let too_long = |field, actual, max| Err(Error::FieldTooLong { field, actual, max });
        assert_eq!(check_wrapped(&wrapped(1024, 1024, "a.b", 32 * 1024 - 3)), Ok(()));
        assert_eq!(check_wrapped(&wrapped(0, 1, "a.b", 0)), Err(Error::EmptyField { field: "encryptedDEKSource" }));
        assert_eq!(check_wrapped(&wrapped(1025, 1, "a.b", 0)), too_long("encryptedDEKSource", 1025, 1024));
        assert_eq!(check_wrapped(&wrapped(1, 0, "a.b", 0)), Err(Error::EmptyField { field: "keyID" }));
        assert_eq!(check_wrapped(&wrapped(1, 1025, "a.b", 0)), too_long("keyID", 1025, 1024));
        assert_eq!(check_wrapped(&wrapped(1, 1, "com", 0)), Err(Error::AnnotationKey));
        assert_eq!(
            check_wrapped(&wrapped(1, 1, "a.b", 32 * 1024 - 2)),
            too_long("annotations", 32 * 1024 + 1, 32 * 1024)
        );
    }
}
