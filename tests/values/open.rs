//! Values that kube-apiserver opened or refused, and what it said.

use std::collections::HashMap;

use atrest::resource::GroupResource;
use atrest::transformer::envelope::Error as Envelope;
use atrest::transformer::{DataContext, Error};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::setup::{lines, vector_config};

#[derive(Deserialize)]
struct Case {
    id: String,
    config: String,
    resource: String,
    key: String,
    data: String,
    #[serde(default)]
    out: String,
    #[serde(default)]
    stale: bool,
    error: Option<String>,
}

impl Case {
    fn data(&self) -> Vec<u8> {
        STANDARD.decode(&self.data).expect("base64")
    }

    /// Whether upstream asks the KMS before it knows what becomes of the value.
    fn asks_the_kms(&self) -> bool {
        use Class::{AuthenticationFailed, NotBlockMultiple, TooShort};
        let class = self.error.as_deref().and_then(class_of_text);
        self.data().starts_with(b"k8s:enc:kms:")
            && matches!(class, None | Some(AuthenticationFailed | NotBlockMultiple | TooShort))
    }

    fn is_of_a_kms(&self) -> bool {
        self.config.starts_with("kms")
    }
}

/// The causes that upstream and we must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    NoMatchingPrefix,
    NoMatchingKey,
    TooShort,
    NotBlockMultiple,
    AuthenticationFailed,
    DekTruncated,
    Wire,
    Utf8,
    Empty(&'static str),
    TooLong(&'static str),
    AnnotationKey,
    UnknownDekSourceType,
}

/// Upstream's words and their meaning. What is not here is said by a KMS, or of data behind a KMS.
const TEXTS: [(&str, Class); 20] = [
    ("no matching prefix found", Class::NoMatchingPrefix),
    ("no matching key was found for the provided AES transformer", Class::NoMatchingKey),
    ("no matching key was found for the provided Secretbox transformer", Class::NoMatchingKey),
    ("the stored data was shorter than the required size", Class::TooShort),
    // An IV and nothing else: upstream looks for the padding in front of the text.
    ("(upstream panics; ours must return a clear error)", Class::TooShort),
    ("the stored data is not a multiple of the block size", Class::NotBlockMultiple),
    // Three checks that fail for a wrong key, and one variant of ours.
    ("cipher: message authentication failed", Class::AuthenticationFailed),
    ("output array was not large enough for encryption", Class::AuthenticationFailed),
    ("invalid PKCS7 data (empty or not padded)", Class::AuthenticationFailed),
    ("invalid padding on input", Class::AuthenticationFailed),
    ("invalid data encountered by envelope transformer: failed to read uint16 length", Class::DekTruncated),
    ("proto: cannot parse invalid wire-format data", Class::Wire),
    ("string field contains invalid UTF-8", Class::Utf8),
    ("encrypted data is empty", Class::Empty("encryptedData")),
    ("failed to validate key id: keyID is empty", Class::Empty("keyID")),
    ("failed to validate key id: keyID is 1025 bytes", Class::TooLong("keyID")),
    (
        "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes",
        Class::TooLong("encryptedDEKSource"),
    ),
    ("failed to validate annotations: annotations: Invalid value", Class::AnnotationKey),
    ("failed to validate annotations: annotations: Required value", Class::AnnotationKey),
    ("unknown encryptedDEKSourceType", Class::UnknownDekSourceType),
];

fn class_of_text(text: &str) -> Option<Class> {
    TEXTS.iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, class)| *class)
}

fn class_of_error(error: &Error) -> Option<Class> {
    Some(match error {
        Error::NoMatchingPrefix => Class::NoMatchingPrefix,
        Error::NoMatchingKey { .. } => Class::NoMatchingKey,
        Error::TooShort { .. } => Class::TooShort,
        Error::NotBlockMultiple => Class::NotBlockMultiple,
        Error::AuthenticationFailed => Class::AuthenticationFailed,
        Error::InvalidEnvelope(envelope) => match envelope {
            Envelope::DekTruncated => Class::DekTruncated,
            Envelope::Wire(_) => Class::Wire,
            Envelope::Utf8 { .. } => Class::Utf8,
            Envelope::EmptyField { field } => Class::Empty(field),
            Envelope::FieldTooLong { field, .. } => Class::TooLong(field),
            Envelope::AnnotationKey => Class::AnnotationKey,
            Envelope::UnknownDekSourceType { .. } => Class::UnknownDekSourceType,
            _ => return None,
        },
        _ => return None,
    })
}

/// Compares what becomes of each case, and gives the differences.
fn compare<'c>(cases: impl Iterator<Item = &'c Case>, agrees: impl Fn(&Case, Outcome) -> bool) -> (usize, Vec<String>) {
    let mut configs = HashMap::new();
    let (mut total, mut differences) = (0, Vec::new());
    for case in cases {
        let transformers = configs.entry(&case.config).or_insert_with(|| vector_config(&case.config));
        let resource = GroupResource::parse(&case.resource);
        let list = transformers.transformer_for_resource(&resource.group, &resource.resource);
        let data = case.data();
        let outcome = list
            .open(&data, DataContext::new(case.key.as_bytes()))
            .map(|(opened, _)| (opened.data.to_vec(), opened.stale));
        let shown = format!("{} under {}: {outcome:?}, upstream: {:?}", case.id, case.config, case.error);
        total += 1;
        if !agrees(case, outcome) {
            differences.push(shown);
        }
    }
    (total, differences)
}

type Outcome = Result<(Vec<u8>, bool), Error>;

#[test]
fn values_that_need_no_kms_are_opened_or_refused_as_upstream_does() {
    let cases: Vec<Case> = lines("open.jsonl");
    let local = cases.iter().filter(|case| !case.is_of_a_kms() && !case.asks_the_kms());
    let (total, differences) = compare(local, |case, outcome| match (&case.error, outcome) {
        (None, Ok(opened)) => opened == (STANDARD.decode(&case.out).expect("base64"), case.stale),
        (Some(text), Err(error)) => class_of_text(text).is_some() && class_of_text(text) == class_of_error(&error),
        _ => false,
    });
    println!("{} of {total} local values agree", total - differences.len());
    assert_eq!(differences, [""; 0]);
    assert_eq!(total, 177);
}

#[test]
fn values_of_a_kms_configuration_that_fail_before_any_call_fail_alike() {
    let cases: Vec<Case> = lines("open.jsonl");
    let before = cases.iter().filter(|case| case.is_of_a_kms() && !case.asks_the_kms());
    let (total, differences) = compare(before, |case, outcome| {
        let text = case.error.as_deref().expect("an error");
        outcome.is_err_and(|error| class_of_text(text) == class_of_error(&error))
    });
    println!("{} of {total} values that fail before a KMS is asked agree", total - differences.len());
    assert_eq!(differences, [""; 0]);
    assert_eq!(total, 54);
}

/// What a KMS is asked for is opened or refused as upstream does, through a client and a real socket.
#[cfg(feature = "kms")]
#[test]
fn values_that_a_kms_is_asked_for_are_opened_or_refused_as_upstream_does() {
    use atrest::kms::{Kms, Options};
    use atrest::transformer::envelope::{DekResolver as _, Wanted};

    let plugin = crate::kms::TestKms::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cases: Vec<Case> = lines("open.jsonl");
    let asked: Vec<_> = cases.iter().filter(|case| case.asks_the_kms()).collect();
    let mut differences = Vec::new();
    for case in &asked {
        let text =
            std::fs::read_to_string(crate::setup::values("configs").join(&case.config)).expect("a configuration");
        let transformers = crate::setup::transformers(&[&plugin.in_config(&text)]);
        let resource = GroupResource::parse(&case.resource);
        let list = transformers.transformer_for_resource(&resource.group, &resource.resource);
        let (data, context) = (case.data(), DataContext::new(case.key.as_bytes()));
        let before = list.open(&data, context).map(|_| ()).expect_err("nothing is known yet");
        assert!(before.kms_failure().is_some(), "{}: {before:?}", case.id);
        let mut wanted = Wanted::default();
        wanted.add(list, &data);
        let kms = Kms::new(&transformers, Options::default()).expect("no endpoint is given");
        runtime.block_on(kms.resolve(wanted, &atrest::storage::NEVER));
        let outcome = list.open(&data, context).map(|(opened, _)| (opened.data.to_vec(), opened.stale));
        let agrees = match (&case.error, &outcome) {
            (None, Ok(opened)) => *opened == (STANDARD.decode(&case.out).expect("base64"), case.stale),
            (Some(text), Err(error)) => kms_class_of_text(text) == kms_class_of_error(error),
            _ => false,
        };
        if !agrees {
            differences.push(format!("{} under {}: {outcome:?}, upstream: {:?}", case.id, case.config, case.error));
        }
    }
    println!("{} of {} values of a KMS agree", asked.len() - differences.len(), asked.len());
    assert_eq!(differences, [""; 0]);
    assert_eq!(asked.len(), 71);
}

/// What goes wrong with a value when a KMS has been asked.
#[cfg(feature = "kms")]
#[derive(Debug, PartialEq, Eq)]
enum KmsClass {
    Refused,
    Length(usize),
    /// AES-GCM and AES-CBC each have failed, the latter so.
    Neither(Class),
    Data(Class),
}

#[cfg(feature = "kms")]
fn kms_class_of_text(text: &str) -> KmsClass {
    let length = |prefix: &str| text.strip_prefix(prefix)?.split(' ').next()?.parse().ok();
    if text.contains("rpc error: code = Unknown") {
        KmsClass::Refused
    } else if let Some(length) = length("invalid seed length ").or_else(|| length("crypto/aes: invalid key size ")) {
        KmsClass::Length(length)
    } else if let Some(second) = text.strip_prefix("[cipher: message authentication failed, ") {
        KmsClass::Neither(class_of_text(second).unwrap_or_else(|| panic!("{text}")))
    } else {
        KmsClass::Data(class_of_text(text).unwrap_or_else(|| panic!("{text}")))
    }
}

#[cfg(feature = "kms")]
fn kms_class_of_error(error: &Error) -> KmsClass {
    use atrest::transformer::envelope::DekFailure;
    match (error.kms_failure(), error) {
        (Some(DekFailure::Failed(_)), _) => KmsClass::Refused,
        (Some(DekFailure::Length { actual }), _) => KmsClass::Length(*actual),
        (_, Error::Several(causes)) => match &causes[..] {
            [Error::AuthenticationFailed, second] => {
                KmsClass::Neither(class_of_error(second).unwrap_or_else(|| panic!("{error:?}")))
            }
            _ => panic!("{error:?}"),
        },
        _ => KmsClass::Data(class_of_error(error).unwrap_or_else(|| panic!("{error:?}"))),
    }
}

#[test]
fn every_value_is_in_one_of_the_three_sets() {
    assert_eq!(lines::<Case>("open.jsonl").len(), 177 + 54 + 71);
}
