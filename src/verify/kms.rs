use super::judge::{LINE_FEED_ADDED, Verdict, opens_without_line_feed};
use crate::report::{Class, short_key_id_hash};
use crate::resource::ResourceRef;
use crate::source::StoredValue;
use crate::transformer::envelope::{self, DekFailure};
use crate::transformer::{Error, Header, KeyLabel, ResourceTransformer};

/// Why a value of a KMS did not open.
pub(super) fn explain_kms(
    value: &StoredValue,
    resource: ResourceRef<'_>,
    list: &ResourceTransformer,
    header: &Header<'_>,
    error: &Error,
    label: KeyLabel,
    envelope: Option<&envelope::Error>,
) -> Verdict {
    if list.kms_claimants(&value.value).next().is_none() {
        let message = format!("written by {label}, and {resource} have no such provider: add it to their providers");
        return Verdict::new(Class::NoProvider, message).needing(label);
    }
    if let Some(error) = envelope {
        return explain_envelope(value, list, &label, error).needing(label);
    }
    if let Some(failure) = error.kms_failure() {
        return explain_kms_failure(failure, list, header, &label).needing(label);
    }
    if error.is_authentication_failure() {
        if opens_without_line_feed(value, list) {
            return Verdict::new(Class::Malformed, format!("{label}: {LINE_FEED_ADDED}")).needing(label);
        }
        let claimants = list.claimants(header).collect();
        return Verdict::new(Class::WrongKey, "").until_more_is_known(claimants).needing(label);
    }
    let too_short = error.causes().find_map(|cause| match cause {
        Error::TooShort { required, actual } => Some((*required, *actual)),
        _ => None,
    });
    match too_short {
        Some((required, actual)) => Verdict::new(
            Class::Truncated,
            format!(
                "{label}: {actual} bytes of data are in the envelope, at least {required} are needed. Restore it from \
                 a backup"
            ),
        ),
        None => Verdict::new(Class::Malformed, format!("{label}: {error}")),
    }
    .needing(label)
}

/// The envelope is not one.
fn explain_envelope(
    value: &StoredValue,
    list: &ResourceTransformer,
    label: &KeyLabel,
    error: &envelope::Error,
) -> Verdict {
    match error {
        envelope::Error::UnknownDekSourceType { value } => Verdict::new(
            Class::NewerFormat,
            format!("{label}: encryptedDEKSourceType {value} is newer than this program: use a newer one"),
        ),
        envelope::Error::DekTruncated => {
            Verdict::new(Class::Truncated, format!("{label}: {error}. Restore it from a backup"))
        }
        _ if opens_without_line_feed(value, list) => {
            Verdict::new(Class::Malformed, format!("{label}: {LINE_FEED_ADDED}"))
        }
        error => Verdict::new(Class::Malformed, format!("{label}: {error}. Restore it from a backup")),
    }
}

/// The KMS gave no data key.
fn explain_kms_failure(
    failure: &DekFailure,
    list: &ResourceTransformer,
    header: &Header<'_>,
    label: &KeyLabel,
) -> Verdict {
    let key = header.kms_key_id().map(|key_id| format!(" of key ID {}", short_key_id_hash(key_id))).unwrap_or_default();
    match failure {
        DekFailure::KeyUnknown(_) => Verdict::new(
            Class::KmsKeyUnknown,
            format!(
                "{label}: its data key is encrypted by a key{key}: {failure}. The key was deleted, or this is another KMS \
                 than the one that wrote it"
            ),
        ),
        // Damage of an encrypted data key looks like this too: what else opens tells.
        failure if failure.may_be_of_the_value() => {
            let claimants = list.claimants(header).collect();
            let message = format!("{label}: the data key{key} is not decrypted: {failure}");
            Verdict::new(Class::KmsRefused, message).until_more_is_known(claimants)
        }
        DekFailure::Unusable(_) => Verdict::new(Class::KmsRefused, format!("{label}: {failure}")),
        DekFailure::Denied(_) => Verdict::new(
            Class::KmsRefused,
            format!(
                "{label}: the data key{key} is not decrypted: {failure}. Nothing is known to be wrong with the value"
            ),
        ),
        DekFailure::Length { .. } => Verdict::new(
            Class::KmsRefused,
            format!("{label}: {failure}: the KMS is another than the one that wrote it, or the value is damaged"),
        ),
        _ => Verdict::new(
            Class::KmsUnavailable,
            format!("{label}: {failure}. Nothing is known to be wrong with the value"),
        ),
    }
}
