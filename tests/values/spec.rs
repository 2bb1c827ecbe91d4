//! Values of one known plaintext in every format, which an independent program opened too.

use std::collections::BTreeMap;

use atrest::secret::Key;
use atrest::transformer::envelope::EncryptedDekSourceType;
use atrest::transformer::{
    AesCbc, AesGcm, DataContext, Error, FromStorage, Header, KeyLabel, ProviderKind, Secretbox, Transformer,
};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::setup::lines;

#[derive(Deserialize)]
struct Vector {
    id: String,
    provider: String,
    name: Option<String>,
    #[serde(default)]
    secret: String,
    key: String,
    value: String,
    out: String,
    #[serde(default)]
    dek: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    key_id: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(rename = "type", default)]
    source_type: u8,
}

impl Vector {
    fn value(&self) -> Vec<u8> {
        hex::decode(&self.value).expect("hex")
    }

    fn out(&self) -> Vec<u8> {
        hex::decode(&self.out).expect("hex")
    }

    fn dek(&self) -> Vec<u8> {
        hex::decode(&self.dek).expect("hex")
    }
}

fn key(bytes: &[u8]) -> Key {
    Key::new(Zeroizing::new(bytes.to_vec()))
}

fn transformer(provider: &str, bytes: &[u8]) -> Box<dyn Transformer> {
    match provider {
        "aescbc" => Box::new(AesCbc::new(&key(bytes)).expect("a key")),
        "aesgcm" => Box::new(AesGcm::new(&key(bytes)).expect("a key")),
        "secretbox" => Box::new(Secretbox::new(&key(bytes)).expect("a key")),
        other => panic!("{other}"),
    }
}

/// HKDF-Expand of one block (RFC 5869), as the specification gives it: `HMAC-SHA256(seed, info || 1)`.
fn derive(seed: &[u8], info: &[u8]) -> Vec<u8> {
    use aws_lc_rs::hmac;
    let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
    hmac::sign(&key, &[info, &[1]].concat()).as_ref().to_vec()
}

/// Opens what lies behind a data key, so that the vector itself is proved.
fn open_data(vector: &Vector, data: &[u8]) -> Vec<u8> {
    let context = DataContext::new(vector.key.as_bytes());
    let opened = |transformer: Box<dyn Transformer>, data: &[u8]| {
        transformer.transform_from_storage(data, context).expect(&vector.id).data.to_vec()
    };
    if vector.data == "hkdf" {
        let (info, sealed) = data.split_at(32);
        opened(transformer("aesgcm", &derive(&vector.dek(), info)), sealed)
    } else {
        opened(transformer(&vector.data, &vector.dek()), data)
    }
}

#[test]
fn local_values_open_and_are_not_stale() {
    let mut count = 0;
    for vector in lines::<Vector>("spec.jsonl").iter().filter(|vector| !vector.secret.is_empty()) {
        let transformer = transformer(&vector.provider, &hex::decode(&vector.secret).expect("hex"));
        let value = vector.value();
        let payload = match &vector.name {
            Some(name) => {
                let label: KeyLabel = format!("{}/{name}", vector.provider).parse().expect("a label");
                value.strip_prefix(label.prefix().as_slice()).expect(&vector.id)
            }
            None => &value,
        };
        let opened =
            transformer.transform_from_storage(payload, DataContext::new(vector.key.as_bytes())).expect(&vector.id);
        assert_eq!((opened.data.to_vec(), opened.stale), (vector.out(), false), "{}", vector.id);
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn under_another_etcd_key_only_gcm_refuses() {
    for vector in lines::<Vector>("spec.jsonl").iter().filter(|vector| !vector.secret.is_empty()) {
        let transformer = transformer(&vector.provider, &hex::decode(&vector.secret).expect("hex"));
        let value = vector.value();
        let payload = vector.name.as_ref().map_or(&value[..], |name| {
            &value["k8s:enc:".len() + vector.provider.len() + ":v1:".len() + name.len() + 1..]
        });
        let opened: Result<FromStorage<'_>, Error> =
            transformer.transform_from_storage(payload, DataContext::new(b"/registry/secrets/default/other"));
        match vector.provider.as_str() {
            "aesgcm" => assert!(matches!(opened, Err(Error::AuthenticationFailed)), "{}", vector.id),
            _ => assert_eq!(opened.expect(&vector.id).data.to_vec(), vector.out(), "{}", vector.id),
        }
    }
}

#[test]
fn envelopes_say_what_they_were_written_with() {
    let mut count = 0;
    for vector in lines::<Vector>("spec.jsonl").iter().filter(|vector| vector.provider.starts_with("kms")) {
        let value = vector.value();
        let header = Header::parse(&value);
        assert_eq!(header.name(), vector.name.as_deref().map(str::as_bytes), "{}", vector.id);
        let data = match &header {
            Header::KmsV1 { envelope: Ok(envelope), .. } => {
                assert_eq!(header.provider(), Some(ProviderKind::KmsV1));
                assert_eq!(hex::decode(&vector.dek).ok(), base64_decode(envelope.encrypted_dek), "{}", vector.id);
                envelope.data
            }
            Header::KmsV2 { envelope: Ok(envelope), .. } => {
                assert_eq!(header.kms_key_id(), Some(vector.key_id.as_str()), "{}", vector.id);
                let annotations: Vec<_> =
                    vector.annotations.iter().map(|(key, value)| (key.as_str(), value.as_bytes())).collect();
                assert_eq!(envelope.annotations, annotations, "{}", vector.id);
                let source_type = match vector.source_type {
                    0 => EncryptedDekSourceType::AesGcmKey,
                    _ => EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed,
                };
                assert_eq!(envelope.encrypted_dek_source_type, source_type, "{}", vector.id);
                assert_eq!(base64_decode(envelope.encrypted_dek_source), Some(vector.dek()), "{}", vector.id);
                envelope.encrypted_data
            }
            other => panic!("{}: {other:?}", vector.id),
        };
        assert_eq!(open_data(vector, data), vector.out(), "{}", vector.id);
        count += 1;
    }
    assert_eq!(count, 5);
}

/// The "KMS" of these vectors encrypts by base64.
fn base64_decode(bytes: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(bytes).ok()
}

#[test]
fn the_first_two_nonces_of_a_counter_follow_a_random_start() {
    let vectors: Vec<Vector> = lines("spec.jsonl");
    for (id, counter) in [("kms-v2-type-0-write-1", 1_000_000_001_u64), ("kms-v2-type-0-write-2", 1_000_000_002)] {
        let value = vectors.iter().find(|vector| vector.id == id).expect(id).value();
        let Header::KmsV2 { envelope: Ok(envelope), .. } = Header::parse(&value) else { panic!("{id}") };
        assert_eq!(envelope.encrypted_data[4..12], counter.to_le_bytes(), "{id}");
    }
}

#[test]
fn a_seed_gives_the_data_key_of_the_specification() {
    let vectors: Vec<Vector> = lines("spec.jsonl");
    let vector = vectors.iter().find(|vector| vector.id == "payload-hkdf").expect("the vector");
    assert_eq!(
        hex::encode(derive(&vector.dek(), &vector.value()[..32])),
        "c02145af9e76303a6c210e104bc22187b0b6c57758d87b86b3d2dc4f7874906a"
    );
    assert_eq!(open_data(vector, &vector.value()), b"hello");
}
