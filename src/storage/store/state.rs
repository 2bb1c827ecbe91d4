use super::codec::{Codec, StoredObject as _};
use super::error::StorageError;
use super::options::Preconditions;
use super::transformer::StorageTransformer;
use super::versioner::Versioner;
use super::{Operation, Store, shown};
use crate::secret::{Opened, Plaintext};
use crate::source::StoredValue;

/// An object between its being read and its being written (upstream `objState`).
pub(super) struct ObjectState<O> {
    /// None when it cannot be read, and that was expected.
    pub(super) object: Option<O>,
    /// The revision of its key; 0 when there is none.
    pub(super) revision: i64,
    /// The bytes that it was decoded from.
    pub(super) data: Opened,
    /// Whether it is to be written again even when it does not change. Of an object that the caller gave, that is not known.
    pub(super) stale: bool,
    /// The lease of its key. Of an object that the caller gave, that is not known.
    pub(super) lease: Option<i64>,
}

/// Whether values are expected that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Readable,
    Unreadable,
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// Reads a key, as it is now.
    pub(super) async fn read_state(
        &self,
        key: &str,
        ignore_not_found: bool,
        expect: Expect,
    ) -> Result<ObjectState<C::Object>, StorageError> {
        let response = self.request(Operation::Get, self.inner.client.get_at(key.as_bytes(), 0)).await?;
        self.state_of(key, response.value, ignore_not_found, expect).await
    }

    /// What was read of a key.
    pub(super) async fn state_of(
        &self,
        key: &str,
        value: Option<StoredValue>,
        ignore_not_found: bool,
        expect: Expect,
    ) -> Result<ObjectState<C::Object>, StorageError> {
        let Some(value) = value else {
            if !ignore_not_found {
                return Err(StorageError::KeyNotFound { key: key.to_owned() });
            }
            let object = Some(self.inner.codec.new_object());
            return Ok(ObjectState {
                object,
                revision: 0,
                data: Opened::new(Vec::new()),
                stale: false,
                lease: Some(0),
            });
        };
        self.inner.sizes.note(&value.key, value.value.len());
        self.inner.transformer.prepare_read(&[&value]).await;
        let revision = value.mod_revision;
        let read = self.open(&value).and_then(|opened| {
            let object = self.decode_counted(&value.key, Plaintext::Stored(&opened.data), revision)?;
            Ok((object, Opened::new(opened.data.to_vec()), opened.stale))
        });
        let lease = Some(value.lease);
        match (read, expect) {
            (Ok((object, data, stale)), Expect::Readable) => {
                Ok(ObjectState { object: Some(object), revision, data, stale, lease })
            }
            (Ok(_), Expect::Unreadable) => Err(StorageError::InvalidObject {
                key: key.to_owned(),
                message: "unsafe deletion is not allowed because the object is decodable from storage".to_owned(),
            }),
            // A KMS that does not answer says nothing of the value.
            (Err(error), Expect::Unreadable) if error.may_pass() => Err(error),
            (Err(_), Expect::Unreadable) => {
                Ok(ObjectState { object: None, revision, data: Opened::new(Vec::new()), stale: true, lease })
            }
            (Err(error), Expect::Readable) => Err(error),
        }
    }

    /// What the caller believes to be there.
    pub(super) fn state_from_object(&self, object: C::Object) -> Result<ObjectState<C::Object>, StorageError> {
        let revision = i64::try_from(Versioner.object_resource_version(&object)?).unwrap_or(i64::MAX);
        let data = self.encode(&object)?;
        let mut object = object;
        object.clear_self_link();
        Ok(ObjectState { object: Some(object), revision, data, stale: false, lease: None })
    }
}

impl Preconditions {
    /// Whether they hold (upstream `Preconditions.Check`).
    pub(super) fn check<O: super::StoredObject>(&self, key: &str, object: Option<&O>) -> Result<(), StorageError> {
        let failed = |message: String| Err(StorageError::InvalidObject { key: shown(key.as_bytes()), message });
        let Some(object) = object else { return Ok(()) };
        if let Some(uid) = &self.uid {
            let actual = object.uid();
            if *uid != actual {
                return failed(format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
                ));
            }
        }
        if let Some(version) = &self.resource_version {
            let actual = object.resource_version();
            if version != actual {
                return failed(format!(
                    "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {actual}"
                ));
            }
        }
        Ok(())
    }
}
