//! The providers of an EncryptionConfiguration whose keys are those of a KMS plugin.
//!
//! A [`KmsProvider`] does no I/O. Somebody else asks the plugin and tells it the answers, by [`KmsProvider::set_status`],
//! [`KmsProvider::put_dek`], [`KmsProvider::set_write_state`] and [`KmsProvider::add_fresh_dek`].

mod observer;
mod write_state;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

pub use observer::{KmsObserver, TransformationType};
pub use write_state::{InvalidAnswer, WriteState};

use super::envelope::{
    Dek, DekCache, DekFailure, DekSource, EncryptedDekSourceType, EncryptedObject, EnvelopeV1, Resolved, cache_key_of,
};
use super::{AesCbc, AesGcm, DataContext, Error, ExtendedNonceGcm, FromStorage, KeyLabel, ProviderKind, Transformer};
use crate::config::{Endpoint, KmsApiVersion, KmsConfiguration};
use crate::secret::Key;

/// How many answers are kept of a KMS v2, which has few DEK sources, unless it was written to by something strange.
const V2_CACHE: usize = 65_536;
/// How many are kept of a KMS v1 at least, whatever `cachesize` says: more than are asked for at once.
const V1_CACHE: usize = 4096;

thread_local! {
    static CACHE_KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// etcdctl ends what it prints with a line feed; a value that was put back with it can be explained.
fn v2_object(payload: &[u8]) -> Option<EncryptedObject<'_>> {
    EncryptedObject::parse(payload).ok().or_else(|| EncryptedObject::parse(payload.strip_suffix(b"\n")?).ok())
}

/// A `kms` block of the configuration: one for all resources that list it.
pub struct KmsProvider {
    index: usize,
    label: KeyLabel,
    endpoint: Endpoint,
    timeout: Duration,
    cache: DekCache,
    state: RwLock<State>,
    fresh: Mutex<VecDeque<FreshDek>>,
    observer: OnceLock<Arc<dyn KmsObserver>>,
}

/// What is known of the plugin.
#[derive(Default)]
struct State {
    /// The key ID of the last status that had one, or why there was none.
    status: Option<Result<Arc<str>, Arc<DekFailure>>>,
    /// What writes, and until when.
    write: Option<(Arc<WriteState>, Instant)>,
    /// How often what writes has changed.
    generation: u64,
}

impl State {
    /// The key ID by which values are current: that of the state that writes, where there is one.
    fn key_id(&self) -> Result<&str, Arc<DekFailure>> {
        match (&self.write, &self.status) {
            (Some((write, _)), _) => Ok(write.key_id()),
            (None, Some(Ok(key_id))) => Ok(key_id),
            (None, Some(Err(failure))) => Err(Arc::clone(failure)),
            (None, None) => Err(Arc::new(DekFailure::NotAsked)),
        }
    }
}

/// A data key of KMS v1 that has written nothing yet.
struct FreshDek {
    encrypted: Vec<u8>,
    dek: Arc<Dek>,
}

impl fmt::Debug for KmsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KmsProvider({} at {})", self.label, self.endpoint)
    }
}

impl KmsProvider {
    pub(super) fn new(index: usize, kms: &KmsConfiguration) -> Self {
        let (kind, limit) = match kms.api_version {
            KmsApiVersion::V1 => {
                (ProviderKind::KmsV1, usize::try_from(kms.cache_size.unwrap_or(0)).unwrap_or(0).max(V1_CACHE))
            }
            KmsApiVersion::V2 => (ProviderKind::KmsV2, V2_CACHE),
        };
        Self {
            index,
            label: KeyLabel::new(kind, &kms.name),
            endpoint: kms.endpoint.clone(),
            timeout: kms.timeout,
            cache: DekCache::new(limit),
            state: RwLock::default(),
            fresh: Mutex::default(),
            observer: OnceLock::new(),
        }
    }

    /// Which of the KMS providers it is, in file order.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its version and name.
    #[must_use]
    pub fn label(&self) -> &KeyLabel {
        &self.label
    }

    /// The plugin's socket.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The longest that a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the plugin speaks the API of KMS v2.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.label.provider == ProviderKind::KmsV2
    }

    /// Whether this is the block of another configuration: the same provider at the same socket.
    pub(super) fn is_same(&self, kms: &KmsConfiguration) -> bool {
        let v2 = kms.api_version == KmsApiVersion::V2;
        self.is_v2() == v2 && self.label.name == kms.name && self.endpoint == kms.endpoint
    }

    /// Forgets every failure of the plugin, so that it is asked again.
    pub fn forget_failures(&self) {
        self.cache.forget_failures();
    }

    /// Forgets what became of a DEK source, so that it is asked for again.
    pub fn forget(&self, cache_key: &[u8]) {
        self.cache.forget(cache_key);
    }

    /// Whether a DEK source has been decrypted.
    #[must_use]
    pub fn has_dek(&self, source: &DekSource) -> bool {
        self.cache.get(&source.cache_key()).is_some_and(|resolved| resolved.is_ok())
    }

    /// Whether the answer for a DEK source is known, and need not be asked for again.
    #[must_use]
    pub fn knows(&self, cache_key: &[u8]) -> bool {
        self.cache.contains(cache_key)
    }

    /// How many answers are kept.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// What has to be decrypted to open a payload, when that much of it is well-formed, or would be without a line feed at its
    /// end.
    pub(super) fn dek_source(&self, payload: &[u8]) -> Option<DekSource> {
        match self.is_v2() {
            true => v2_object(payload).map(|object| DekSource::of_v2(&object)),
            false => EnvelopeV1::parse(payload).ok().map(DekSource::of_v1),
        }
    }

    /// Whether the plugin has to be asked before a payload can be opened.
    pub(super) fn lacks(&self, payload: &[u8]) -> bool {
        match self.is_v2() {
            true if !self.has_status() => true,
            true => v2_object(payload).is_some_and(|object| {
                CACHE_KEY.with_borrow_mut(|key| {
                    cache_key_of(&object, key);
                    !self.knows(key)
                })
            }),
            false => EnvelopeV1::parse(payload).is_ok_and(|envelope| !self.knows(envelope.encrypted_dek)),
        }
    }

    /// Shows every value that is opened or sealed to an observer; the first one stays.
    pub fn observe(&self, observer: Arc<dyn KmsObserver>) {
        // A second observer is not an error: it sees nothing.
        let _ = self.observer.set(observer);
    }

    fn used(&self, transformation_type: TransformationType, key_id: &str) {
        if let Some(observer) = self.observer.get() {
            observer.used(&self.label, transformation_type, key_id);
        }
    }

    fn keep(&self, source: &DekSource, resolved: Resolved, transformation_type: TransformationType) {
        self.cache.put(source.cache_key(), resolved);
        if let Some(observer) = self.observer.get() {
            observer.cached(&self.label, transformation_type, self.cache.len(), self.cache.limit());
        }
    }

    /// Tells what became of a DEK source.
    ///
    /// A plaintext of a length that opens nothing is a failure too.
    pub fn put_dek(&self, source: &DekSource, answer: Result<&Key, DekFailure>) {
        let resolved = match answer {
            Ok(plaintext) => dek_of(source, plaintext).map(Arc::new),
            Err(failure) => Err(failure),
        };
        self.keep(source, resolved.map_err(Arc::new), TransformationType::FromStorage);
    }

    /// Tells which key the plugin says that it uses, or why it does not.
    pub fn set_status(&self, status: Result<&str, DekFailure>) {
        self.state_mut(|state| {
            match (&state.status, status) {
                // Who has once known a key ID goes on reading by it.
                (Some(Ok(_)), Err(_)) => {}
                (_, status) => state.status = Some(status.map(Arc::from).map_err(Arc::new)),
            }
        });
    }

    /// Whether a status has said which key is used, so that values can be read.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.state(|state| state.key_id().is_ok())
    }

    /// The key ID by which values are current.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub fn key_id(&self) -> Result<String, Arc<DekFailure>> {
        self.state(|state| state.key_id().map(str::to_owned))
    }

    /// Whether a value of this key ID and type is current.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub fn is_current(&self, key_id: &str, source_type: EncryptedDekSourceType) -> Result<bool, Arc<DekFailure>> {
        let is_seed = source_type == EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed;
        self.state(|state| state.key_id().map(|current| is_seed && current == key_id))
    }

    /// Writes by this state from now on, up to a time that [`Self::extend_write_state`] moves. The KMS must have decrypted it
    /// once: what it does not give back is lost.
    pub fn set_write_state(&self, write: WriteState, valid_until: Instant) {
        self.keep(write.source(), Ok(write.dek()), TransformationType::ToStorage);
        self.state_mut(|state| {
            state.write = Some((Arc::new(write), valid_until));
            state.generation += 1;
        });
    }

    /// How often what writes has changed: a key that changes and changes back is seen by this.
    #[must_use]
    pub fn write_generation(&self) -> u64 {
        self.state(|state| state.generation)
    }

    /// Whether a KMS v2 has something to write with.
    #[must_use]
    pub fn has_write_state(&self) -> bool {
        self.state(|state| state.write.is_some())
    }

    /// Goes on writing by the same state.
    pub fn extend_write_state(&self, valid_until: Instant) {
        self.state_mut(|state| {
            if let Some((_, until)) = &mut state.write {
                *until = valid_until;
            }
        });
    }

    /// Adds a data key of KMS v1 for one write. It is not kept for reading: whether the KMS gives it back is for the KMS to say.
    ///
    /// # Errors
    ///
    /// When the plaintext is no key of AES.
    pub fn add_fresh_dek(&self, plaintext: &Key, encrypted: Vec<u8>) -> Result<(), DekFailure> {
        let source = DekSource::V1 { encrypted_dek: encrypted.clone() };
        let dek = Arc::new(dek_of(&source, plaintext)?);
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).push_back(FreshDek { encrypted, dek });
        Ok(())
    }

    fn state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn state_mut(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, failure: Arc<DekFailure>) -> Error {
        Error::Kms { provider: self.label.clone(), failure }
    }

    fn dek(&self, cache_key: &[u8]) -> Result<Arc<Dek>, Error> {
        let kept = self.cache.get(cache_key).filter(Result::is_ok);
        // What writes now is never dropped.
        let own = || self.state(|state| state.write.as_ref()?.0.dek_of(cache_key)).map(Ok);
        let resolved = kept.or_else(own).or_else(|| self.cache.get(cache_key));
        resolved.unwrap_or_else(|| Err(Arc::new(DekFailure::NotAsked))).map_err(|failure| self.failed(failure))
    }

    fn open_v1<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let envelope = EnvelopeV1::parse(data)?;
        self.dek(envelope.encrypted_dek)?.open(envelope.data, context)
    }

    fn open_v2<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let object = EncryptedObject::parse(data)?;
        // As upstream, whose cache of derived keys knows no empty name: what has no key has no place.
        if context.authenticated_data().is_empty() {
            return Err(Error::EmptyContext);
        }
        let current = self.is_current(object.key_id, object.encrypted_dek_source_type);
        let current = current.map_err(|failure| self.failed(failure))?;
        let dek = CACHE_KEY.with_borrow_mut(|key| {
            cache_key_of(&object, key);
            self.dek(key)
        })?;
        self.used(TransformationType::FromStorage, object.key_id);
        let opened = dek.open(object.encrypted_data, context)?;
        Ok(FromStorage { stale: !current, ..opened })
    }

    fn seal_v1(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<Arc<Dek>, Error> {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let fresh = fresh.ok_or_else(|| Error::NoWriteState { provider: self.label.clone() })?;
        EnvelopeV1::write_encrypted_dek(&fresh.encrypted, out)?;
        match &*fresh.dek {
            Dek::V1 { gcm, .. } => gcm.transform_to_storage(plaintext, context, out)?,
            _ => return Err(Error::NoWriteState { provider: self.label.clone() }),
        }
        Ok(fresh.dek)
    }

    fn seal_v2(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<Arc<Dek>, Error> {
        if context.authenticated_data().is_empty() {
            return Err(Error::EmptyContext);
        }
        let write = self.state(|state| match &state.write {
            Some((write, until)) if Instant::now() <= *until => Ok(Arc::clone(write)),
            Some(_) => Err(Error::WriteStateExpired { provider: self.label.clone() }),
            None => Err(Error::NoWriteState { provider: self.label.clone() }),
        })?;
        self.used(TransformationType::ToStorage, write.key_id());
        write.seal(plaintext, context, out)?;
        Ok(write.dek())
    }

    fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<Arc<Dek>, Error> {
        match self.is_v2() {
            true => self.seal_v2(plaintext, context, out),
            false => self.seal_v1(plaintext, context, out),
        }
    }

    /// Seals a payload, opens it again by the same data key, and says whether that gives the same, and as current.
    pub(super) fn seal_and_reopen(
        &self,
        plaintext: &[u8],
        context: DataContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let start = out.len();
        let dek = self.seal(plaintext, context, out)?;
        let payload = out.get(start..).unwrap_or_default();
        let (data, is_current) = match self.is_v2() {
            true => {
                let object = EncryptedObject::parse(payload)?;
                let current = self.is_current(object.key_id, object.encrypted_dek_source_type);
                (object.encrypted_data, current.map_err(|failure| self.failed(failure))?)
            }
            false => (EnvelopeV1::parse(payload)?.data, true),
        };
        let reopened = dek.open(data, context)?;
        Ok(is_current && !reopened.stale && reopened.data.same_as(plaintext))
    }
}

/// Makes of a plaintext what opens values.
fn dek_of(source: &DekSource, plaintext: &Key) -> Result<Dek, DekFailure> {
    let wrong_length = |_| DekFailure::Length { actual: plaintext.len() };
    match source {
        DekSource::V1 { .. } => {
            let gcm = AesGcm::new(plaintext).map_err(wrong_length)?;
            let cbc = Box::new(AesCbc::new(plaintext).map_err(wrong_length)?);
            Ok(Dek::V1 { gcm, cbc })
        }
        DekSource::V2 { source_type: EncryptedDekSourceType::AesGcmKey, .. } => {
            AesGcm::new(plaintext).map(Dek::Key).map_err(wrong_length)
        }
        DekSource::V2 { source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed, .. } => {
            ExtendedNonceGcm::new(plaintext).map(Dek::Seed).map_err(wrong_length)
        }
    }
}

/// A provider as an entry of a list.
#[derive(Debug)]
pub(super) struct KmsTransformer(pub(super) Arc<KmsProvider>);

impl Transformer for KmsTransformer {
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        match self.0.is_v2() {
            true => self.0.open_v2(data, context),
            false => self.0.open_v1(data, context),
        }
    }

    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.0.seal(plaintext, context, out).map(|_| ())
    }
}
