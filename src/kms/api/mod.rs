//! The protobuf messages and gRPC services between kube-apiserver and a KMS plugin: clients and servers.
//!
//! Generated from the `.proto` files in this folder by `ATREST_REGENERATE=1 cargo nextest run --test kms generated`; the same test
//! fails when they differ. Upstream: `k8s.io/kms/apis`.
//!
//! Messages that carry a data key wipe it when they are dropped, and their `Debug` does not print it. The buffers in which gRPC
//! sends and receives them are not wiped: they belong to the HTTP/2 library.

use std::fmt;

use zeroize::Zeroize as _;

use crate::report::key_id_hash;

/// `k8s.io/kms/apis/v1beta1`.
#[allow(clippy::all, clippy::pedantic, clippy::indexing_slicing, missing_docs, unreachable_pub, reason = "generated")]
#[allow(clippy::missing_errors_doc, clippy::semicolon_if_nothing_returned, clippy::needless_pass_by_value, reason = "generated")]
#[rustfmt::skip]
pub mod v1beta1;

/// `k8s.io/kms/apis/v2`.
#[allow(clippy::all, clippy::pedantic, clippy::indexing_slicing, missing_docs, unreachable_pub, reason = "generated")]
#[allow(clippy::missing_errors_doc, clippy::semicolon_if_nothing_returned, clippy::needless_pass_by_value, reason = "generated")]
#[rustfmt::skip]
pub mod v2;

/// Wipes the field that holds a data key, and keeps it out of `Debug`.
macro_rules! secret_field {
    ($($message:ty: $field:ident),+ $(,)?) => {$(
        impl Drop for $message {
            fn drop(&mut self) {
                self.$field.zeroize();
            }
        }

        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}([REDACTED], {} bytes)", stringify!($message), self.$field.len())
            }
        }
    )+};
}

secret_field! {
    v1beta1::EncryptRequest: plain,
    v1beta1::DecryptResponse: plain,
    v2::EncryptRequest: plaintext,
    v2::DecryptResponse: plaintext,
}

/// Keeps the raw key ID out of `Debug`.
macro_rules! key_id_field {
    ($($message:ty),+ $(,)?) => {$(
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).field("key_id", &key_id_hash(&self.key_id)).finish_non_exhaustive()
            }
        }
    )+};
}

key_id_field!(v2::StatusResponse, v2::EncryptResponse, v2::DecryptRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_message_shows_no_data_key() {
        let messages: [&dyn fmt::Debug; 4] = [
            &v1beta1::EncryptRequest { version: "v1beta1".into(), plain: b"s3cr3t".to_vec() },
            &v1beta1::DecryptResponse { plain: b"s3cr3t".to_vec() },
            &v2::EncryptRequest { plaintext: b"s3cr3t".to_vec(), uid: String::new() },
            &v2::DecryptResponse { plaintext: b"s3cr3t".to_vec() },
        ];
        let expected = [
            "v1beta1::EncryptRequest([REDACTED], 6 bytes)",
            "v1beta1::DecryptResponse([REDACTED], 6 bytes)",
            "v2::EncryptRequest([REDACTED], 6 bytes)",
            "v2::DecryptResponse([REDACTED], 6 bytes)",
        ];
        assert_eq!(messages.map(|message| format!("{message:?}")), expected);
    }

    #[test]
    fn debug_of_a_message_shows_no_raw_key_id() {
        let key_id = "arn:aws:kms:1234".to_owned();
        let messages: [&dyn fmt::Debug; 3] = [
            &v2::StatusResponse { key_id: key_id.clone(), ..Default::default() },
            &v2::EncryptResponse { key_id: key_id.clone(), ..Default::default() },
            &v2::DecryptRequest { key_id: key_id.clone(), ..Default::default() },
        ];
        for message in messages {
            let text = format!("{message:?}");
            assert!(text.contains(&key_id_hash(&key_id)) && !text.contains("arn:aws"), "{text}");
        }
    }
}
