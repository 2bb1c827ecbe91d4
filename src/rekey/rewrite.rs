use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::journal::cluster_name;
use super::plan::{self, Group};
use crate::report::{Class, EtcdKey, JournalEntry, NotRewritten, VerifyRow, key_id_hash};
use crate::resource::{KeyLayout, Location};
use crate::source::StoredValue;
use crate::storage::{self, Client, Refusal, Rewrap, RewrapOptions, Sealed};
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::transformer::{self, DataContext, Header, ProviderKind, ResourceTransformer, ResourceTransformers};
use crate::verify::Judge;

/// What a writer needs; shared by all that are under way.
pub(super) struct Shared<K> {
    pub(super) client: Client,
    pub(super) transformers: Arc<ResourceTransformers>,
    pub(super) kms: Arc<K>,
    pub(super) layout: KeyLayout,
    pub(super) rewrap: RewrapOptions,
    /// Set when nothing more is to be asked of a KMS.
    pub(super) stop: AtomicBool,
}

/// What became of one value, for the report.
pub(super) enum Outcome {
    Rewritten { group: Group, bytes: u64, entry: Box<JournalEntry> },
    AlreadyCurrent,
    Gone,
    Refused(Box<VerifyRow>),
    TooLarge(NotRewritten),
    Failed { not_rewritten: NotRewritten, fatal: bool },
}

/// Why a value is not sealed anew.
enum NotSealed {
    /// It is not to be: it cannot be read, say.
    Refused(Box<VerifyRow>),
    /// A KMS has to be asked first what decrypts it.
    NeedsDek(Box<VerifyRow>),
    /// A KMS has to be asked first for something to write with.
    NeedsWriteKey,
    /// The key that writes cannot; when it is fatal, no other value can be written either.
    CannotWrite { row: Box<VerifyRow>, fatal: bool },
}

/// How often a KMS is asked for something to write one value with: others may take it.
const MAX_WRITE_KEYS: u32 = 32;

/// What is said of a value that is stale and lies where no object is.
pub(super) fn not_object(value: &StoredValue) -> NotRewritten {
    NotRewritten {
        key: EtcdKey::new(&value.key),
        mod_revision: value.mod_revision,
        message: "not the key of an object, so never rewritten: delete it, or move it to where it belongs".to_owned(),
    }
}

/// Stores a value anew.
pub(super) async fn rewrite<K: DekResolver>(shared: Arc<Shared<K>>, value: StoredValue) -> Outcome {
    let (key, mod_revision) = (EtcdKey::new(&value.key), value.mod_revision);
    let failed = |mod_revision, message, fatal| {
        let not_rewritten = NotRewritten { key: key.clone(), mod_revision, message };
        Outcome::Failed { not_rewritten, fatal }
    };
    let mut value = value;
    let mut resolved = resolve(&shared, &value).await;
    let mut write_keys = 0;
    loop {
        match shared.client.rewrap(value, shared.rewrap, |value| seal(&shared, value)).await {
            // Somebody else has written it meanwhile, by another data key.
            Ok(Rewrap::Refused { reason: NotSealed::NeedsDek(_), value: again }) if resolved != again.mod_revision => {
                resolved = resolve(&shared, &again).await;
                value = again;
            }
            Ok(Rewrap::Refused { reason: NotSealed::NeedsWriteKey, value: again }) if write_keys < MAX_WRITE_KEYS => {
                write_keys += 1;
                let list = shared.transformers.transformer_for_key(&shared.layout, &again.key);
                if let Some(provider) = list.and_then(ResourceTransformer::write_kms)
                    && let Err(failure) = shared.kms.prepare_write(provider).await
                {
                    return failed(again.mod_revision, format!("cannot be sealed: {failure}"), true);
                }
                value = again;
            }
            rewrapped => return outcome(&shared, rewrapped, key, mod_revision),
        }
    }
}

/// Has the KMS asked for what it takes to open a value; says of which revision.
async fn resolve<K: DekResolver>(shared: &Shared<K>, value: &StoredValue) -> i64 {
    let list = shared.transformers.transformer_for_key(&shared.layout, &value.key);
    if let Some(list) = list.filter(|list| list.lacks(&value.value)) {
        let mut wanted = Wanted::default();
        wanted.add(list, &value.value);
        shared.kms.resolve(wanted, &shared.stop).await;
    }
    value.mod_revision
}

/// What a rewrap came to.
fn outcome<K>(
    shared: &Shared<K>,
    rewrapped: Result<Rewrap<NotSealed>, storage::Error>,
    key: EtcdKey,
    mod_revision: i64,
) -> Outcome {
    match rewrapped {
        Ok(Rewrap::Rewritten { old, new }) => rewritten(shared, &old, &new),
        Ok(Rewrap::AlreadyCurrent) => Outcome::AlreadyCurrent,
        Ok(Rewrap::Gone) => Outcome::Gone,
        Ok(Rewrap::Refused { reason: NotSealed::Refused(row) | NotSealed::NeedsDek(row), .. }) => Outcome::Refused(row),
        Ok(Rewrap::Refused { reason: NotSealed::NeedsWriteKey, value }) => {
            let message = "others take what a KMS gives to write with: run this again".to_owned();
            let not_rewritten = NotRewritten { key, mod_revision: value.mod_revision, message };
            Outcome::Failed { not_rewritten, fatal: false }
        }
        // It is readable, so the final pass would report it as stale and not say why.
        Ok(Rewrap::Refused { reason: NotSealed::CannotWrite { row, fatal }, value }) => {
            let not_rewritten = NotRewritten { key, mod_revision: value.mod_revision, message: row.message };
            Outcome::Failed { not_rewritten, fatal }
        }
        Ok(Rewrap::TooLarge { value, request_bytes }) => Outcome::TooLarge(NotRewritten {
            key,
            mod_revision: value.mod_revision,
            message: match shared.rewrap.max_request_bytes {
                limit if request_bytes > limit => {
                    format!("the request would have {request_bytes} bytes, more than {limit} (--max-request-bytes)")
                }
                _ => format!("the request has about {request_bytes} bytes, and etcd refuses it as too large"),
            },
        }),
        Ok(Rewrap::Contended) => {
            let message = "others write it again and again: run this again".to_owned();
            Outcome::Failed { not_rewritten: NotRewritten { key, mod_revision, message }, fatal: false }
        }
        Err(error) => {
            let fatal = matches!(error, storage::Error::NoSpace) || error.is_transient();
            let advice = match &error {
                storage::Error::NoSpace => {
                    ": compact and defragment etcd, disarm the alarm with `etcdctl alarm disarm`, then run this again"
                }
                storage::Error::PermissionDenied => ": the user's role must allow writing it",
                error if error.is_transient() => ": run this again",
                _ => "",
            };
            let not_rewritten = NotRewritten { key, mod_revision, message: format!("{error}{advice}") };
            Outcome::Failed { not_rewritten, fatal }
        }
    }
}

/// Opens a value and seals it again, and makes sure that what was sealed opens to the same and is no longer stale.
fn seal<K>(shared: &Shared<K>, value: &StoredValue) -> Result<Sealed, Refusal<NotSealed>> {
    let (judged, opened) = Judge::new(&shared.transformers, &shared.layout).open(value);
    let location = shared.layout.locate(&value.key);
    let (opened, resource) = match (judged.row.class, opened, &location) {
        (Class::Current, ..) => return Ok(Sealed::Current),
        (Class::Stale, Some(opened), Location::Object { resource, .. }) => (opened, resource),
        // What cannot be read, or is not what it should be, must not become a fresh and authenticated value.
        _ => {
            let list = shared.transformers.transformer_for_key(&shared.layout, &value.key);
            let lacks = list.is_some_and(|list| list.lacks(&value.value));
            let row = Box::new(judged.row);
            return Err(Refusal(if lacks { NotSealed::NeedsDek(row) } else { NotSealed::Refused(row) }));
        }
    };
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    let context = DataContext::new(&value.key);
    let mut sealed = list.seal_and_reopen(&opened.data, context);
    if list.write_kms().is_some() && matches!(sealed, Ok(None)) {
        // The KMS may have changed its key between sealing and opening.
        sealed = list.seal_and_reopen(&opened.data, context);
    }
    let fatal = matches!(sealed, Err(transformer::Error::WriteStateExpired { .. }));
    let message = match sealed {
        Ok(Some(sealed)) => return Ok(Sealed::Value(sealed)),
        // A key of another provider opens what the first one sealed, for example by a name that begins with another's.
        Ok(None) => {
            "what the first provider seals does not open to the same as current: nothing was written. Look for two keys of \
             the same name"
                .to_owned()
        }
        // A data key for one write is used up by the first attempt of several.
        Err(transformer::Error::NoWriteState { .. }) => {
            return Err(Refusal(NotSealed::NeedsWriteKey));
        }
        Err(error) => format!("cannot be sealed: {error}"),
    };
    Err(Refusal(NotSealed::CannotWrite { row: Box::new(VerifyRow { message, ..judged.row }), fatal }))
}

fn rewritten<K>(shared: &Shared<K>, old: &StoredValue, new: &StoredValue) -> Outcome {
    let location = shared.layout.locate(&old.key);
    let Location::Object { resource, namespace, .. } = &location else { return Outcome::Gone };
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    let (old_header, new_header) = (list.header(&old.value), list.header(&new.value));
    let entry = JournalEntry {
        time: OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
        cluster_id: shared.client.cluster_id().map(cluster_name),
        key: EtcdKey::new(&old.key),
        old_revision: old.mod_revision,
        new_revision: new.mod_revision,
        old_header: header_text(&old_header),
        new_header: header_text(&new_header),
        old_kms_key_id_hash: old_header.kms_key_id().map(key_id_hash),
        new_kms_key_id_hash: new_header.kms_key_id().map(key_id_hash),
    };
    let group = plan::group(*resource, *namespace, &old_header, plan::named_key(&new_header));
    Outcome::Rewritten { group, bytes: new.value.len() as u64, entry: Box::new(entry) }
}

/// The stored prefix with the name of the key; `identity` where there is none.
fn header_text(header: &Header<'_>) -> String {
    match (header.provider(), header.name()) {
        (Some(provider), Some(name)) if provider != ProviderKind::Identity => {
            format!("{}{}:", String::from_utf8_lossy(provider.prefix()), String::from_utf8_lossy(name))
        }
        (Some(ProviderKind::Identity), _) => ProviderKind::Identity.name().to_owned(),
        _ => "(unrecognised)".to_owned(),
    }
}
