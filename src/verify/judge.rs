use std::fmt::Write as _;

use super::kms::explain_kms;
use crate::object::{self, Format, Identity};
use crate::report::{Class, ValueRow, VerifyRow, key_in_words, place_of};
use crate::resource::{GroupResource, KeyLayout, Location, ResourceRef};
use crate::source::StoredValue;
use crate::transformer::{
    DataContext, Error, FromStorage, Header, KeyId, KeyLabel, OpenedBy, ProviderKind, ResourceTransformer,
    ResourceTransformers,
};

/// Judges values one by one. What it takes the other values to know is left open: [`Judged::unauthenticated`].
#[derive(Clone, Copy, Debug)]
pub struct Judge<'t> {
    transformers: &'t ResourceTransformers,
    layout: &'t KeyLayout,
}

/// The verdict on one value.
#[derive(Debug)]
pub struct Judged {
    /// What is reported.
    pub row: VerifyRow,
    /// What the value is counted under: the resource, or what else lies under the prefix.
    pub place: String,
    /// Which key opened it, whatever came out.
    pub opened_by: Option<OpenedBy>,
    /// Which key it takes to read it, as far as that can be told.
    pub needs: Option<KeyLabel>,
    /// Which other keys it may take: the one inside, when what comes out is ciphertext again, and every configured key by whose
    /// name an unreadable value begins.
    pub may_need: Vec<KeyLabel>,
    /// Whether no entry of the configuration governs it, so that it is in the clear whatever `identity` stands in.
    pub ungoverned: bool,
    /// The keys that should have opened it. The class is then [`Class::WrongKey`], or [`Class::KmsRefused`], until more is known.
    pub unauthenticated: Option<Vec<KeyId>>,
    /// Whether it lies where no object is, so that there is nothing to judge.
    pub skipped: bool,
}

/// A verdict on its way.
pub(super) struct Verdict {
    class: Class,
    message: String,
    opened_by: Option<OpenedBy>,
    needs: Option<KeyLabel>,
    needs_inside: Option<KeyLabel>,
    unauthenticated: Option<Vec<KeyId>>,
}

impl Verdict {
    pub(super) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), opened_by: None, needs: None, needs_inside: None, unauthenticated: None }
    }

    /// The keys that should have opened it: what else they open decides.
    pub(super) fn until_more_is_known(mut self, claimants: Vec<KeyId>) -> Self {
        self.unauthenticated = Some(claimants);
        self
    }

    pub(super) fn needing(mut self, label: KeyLabel) -> Self {
        self.needs = Some(label);
        self
    }
}

/// A value that is readable, and the object that its key names.
#[derive(Debug)]
pub(crate) struct Readable<'v> {
    pub(crate) resource: ResourceRef<'v>,
    pub(crate) namespace: Option<&'v [u8]>,
    pub(crate) list: &'v ResourceTransformer,
    pub(crate) opened: FromStorage<'v>,
}

impl<'t> Judge<'t> {
    /// Judges by these transformers, with keys in this layout.
    #[must_use]
    pub fn new(transformers: &'t ResourceTransformers, layout: &'t KeyLayout) -> Self {
        Self { transformers, layout }
    }

    /// Opens a value and looks at what comes out.
    #[must_use]
    pub fn judge(&self, value: &StoredValue) -> Judged {
        self.open(value).0
    }

    /// The same, and what came out by the providers of the resource, whatever is wrong with it.
    #[must_use]
    pub fn open<'v>(&self, value: &'v StoredValue) -> (Judged, Option<FromStorage<'v>>) {
        let location = self.layout.locate(&value.key);
        let resource = location.resource();
        self.judge_at(value, location, resource)
    }

    /// The same for a value that is as it should be, and nothing for all others: without anything that a report would say.
    pub(crate) fn readable<'v>(&'v self, key: &'v [u8], value: &'v [u8]) -> Option<Readable<'v>> {
        let location = self.layout.locate(key);
        let Location::Object { resource, namespace, .. } = location else { return None };
        let list = self.transformers.transformer_for_resource(resource.group, resource.resource);
        let opened = list.recover(value, DataContext::new(key)).ok()?;
        inspect(&opened.data, &location).ok()?;
        Some(Readable { resource, namespace, list, opened })
    }

    /// The same, with the providers of a resource that is given: the key may be in no known layout.
    ///
    /// Of a value that does not authenticate, nothing is known of others under its key.
    #[must_use]
    pub fn open_as<'v>(&self, value: &'v StoredValue, resource: &GroupResource) -> (Judged, Option<FromStorage<'v>>) {
        let location = self.layout.locate(&value.key);
        let (mut judged, opened) = self.judge_at(value, location, Some(resource.into()));
        if judged.unauthenticated.is_some() && judged.row.class == Class::WrongKey {
            let label = judged.needs.as_ref().map(ToString::to_string).unwrap_or_default();
            judged.row.message = format!(
                "{label}: authentication or padding failed: another key wrote it, or it is damaged, or it was written for \
                 another etcd key"
            );
        }
        (judged, opened)
    }

    fn judge_at<'v>(
        &self,
        value: &'v StoredValue,
        location: Location<'_>,
        resource: Option<ResourceRef<'_>>,
    ) -> (Judged, Option<FromStorage<'v>>) {
        let list =
            resource.map(|resource| self.transformers.transformer_for_resource(resource.group, resource.resource));
        let header = list.map_or_else(|| Header::parse(&value.value), |list| list.header(&value.value));
        let skipped =
            list.is_none() && !matches!(location, Location::NonRest { .. }) && matches!(header, Header::Plaintext);
        let (verdict, opened) = match (list, resource) {
            (Some(list), Some(resource)) => self.judge_object(value, &location, resource, list, &header),
            _ => (judge_outside(&location, &header), None),
        };
        let judged = Judged {
            row: VerifyRow {
                value: ValueRow::of(value, &location, &header),
                class: verdict.class,
                message: verdict.message,
            },
            place: place_of(&location),
            opened_by: verdict.opened_by,
            needs: verdict.needs,
            may_need: self.may_need(value, verdict.class, verdict.needs_inside),
            ungoverned: !list.is_some_and(ResourceTransformer::is_configured),
            unauthenticated: verdict.unauthenticated,
            skipped,
        };
        (judged, opened)
    }

    fn may_need(&self, value: &StoredValue, class: Class, inside: Option<KeyLabel>) -> Vec<KeyLabel> {
        let mut labels: Vec<_> = inside.into_iter().collect();
        if !class.is_readable() {
            let named = self.transformers.keys().filter(|(_, key)| value.value.starts_with(&key.label.prefix()));
            labels.extend(named.map(|(_, key)| key.label.clone()));
        }
        labels
    }

    fn judge_object<'v>(
        &self,
        value: &'v StoredValue,
        location: &Location<'_>,
        resource: ResourceRef<'_>,
        list: &ResourceTransformer,
        header: &Header<'_>,
    ) -> (Verdict, Option<FromStorage<'v>>) {
        let context = DataContext::new(&value.key);
        match list.open(&value.value, context) {
            Ok((opened, by)) => {
                let mut verdict = match inspect(&opened.data, location) {
                    Ok(()) if opened.stale => Verdict::new(Class::Stale, stale(&by.label, header, list, resource)),
                    Ok(()) => Verdict::new(Class::Current, ""),
                    Err((Class::Nested, found)) => {
                        let inside = list.header(&opened.data).label();
                        let written = inside.as_ref().map(|label| format!(" written by {label}")).unwrap_or_default();
                        let verdict =
                            self.judge_wrong(value, list, header, Class::Nested, &format!("{found}{written}"), &by);
                        Verdict { needs_inside: inside, ..verdict }
                    }
                    Err((class, found)) => self.judge_wrong(value, list, header, class, &found, &by),
                };
                verdict.needs.get_or_insert_with(|| by.label.clone());
                verdict.opened_by = Some(by);
                (verdict, Some(opened))
            }
            Err(error) => (self.explain(value, location, resource, list, header, &error), None),
        }
    }

    /// It opened, and what came out is wrong.
    fn judge_wrong(
        &self,
        value: &StoredValue,
        list: &ResourceTransformer,
        header: &Header<'_>,
        class: Class,
        found: &str,
        by: &OpenedBy,
    ) -> Verdict {
        // One in 256 values opens under a wrong AES-CBC key.
        if class == Class::Garbage
            && by.label.provider == ProviderKind::AesCbc
            && let Some(verdict) = self.try_other_keys(value, list, header, by.key)
        {
            return verdict;
        }
        let advice = match (class, by.label.provider) {
            (Class::Garbage, ProviderKind::AesCbc) => {
                ": the value is damaged, or it was written by another key of that name (a wrong AES-CBC key opens one \
                 value in 256). Restore it from a backup, or find the key that wrote it"
            }
            (Class::Garbage, ProviderKind::KmsV1) => {
                ": data of KMS v1 that does not authenticate is tried as AES-CBC, as Kubernetes wrote it before 1.25, and that \
                 opens one value in 256. It is damaged, or it was copied here: restore it from a backup"
            }
            (Class::Garbage, ProviderKind::Identity) => ": restore it from a backup, or delete it",
            (Class::Garbage, _) => ": it was sealed in this state; restore it from a backup",
            (Class::Nested, _) => ": ciphertext was sealed again; the inner value has to be opened with its own key",
            (_, ProviderKind::AesCbc | ProviderKind::Secretbox | ProviderKind::Identity) => {
                ": this provider does not bind values to their keys, so it may have been copied here. Compare it with \
                 the object it says it is before anybody uses it"
            }
            _ => ": it was sealed for this key in this state",
        };
        let with = match by.label.provider {
            ProviderKind::Identity => "stored in the clear".to_owned(),
            _ => format!("{} opens it", by.label),
        };
        Verdict::new(class, format!("{with}, and {found}{advice}"))
    }

    /// It did not open.
    fn explain(
        &self,
        value: &StoredValue,
        location: &Location<'_>,
        resource: ResourceRef<'_>,
        list: &ResourceTransformer,
        header: &Header<'_>,
        error: &Error,
    ) -> Verdict {
        match header {
            Header::Plaintext => explain_plaintext(&value.value, location, resource),
            Header::Incomplete { .. } => Verdict::new(
                Class::Truncated,
                "the value ends inside the prefix that names its key: restore it from a backup",
            ),
            Header::DamagedName { provider } => Verdict::new(
                Class::Malformed,
                format!("the name of the {provider} key in the prefix is damaged: restore it from a backup"),
            ),
            Header::UnknownProvider { provider } => Verdict::new(
                Class::UnknownFormat,
                format!("Kubernetes has no provider {:?}: something else wrote it", String::from_utf8_lossy(provider)),
            ),
            Header::NewerVersion { provider, version } => Verdict::new(
                Class::NewerFormat,
                format!("{provider}:{} is newer than this program: use a newer one", version.escape_ascii()),
            ),
            Header::Local { provider, key_name, payload } => {
                let label = KeyLabel::new(*provider, String::from_utf8_lossy(key_name));
                self.explain_local(value, resource, list, header, error, label, payload)
            }
            Header::KmsV1 { name, envelope } => {
                let label = KeyLabel::new(ProviderKind::KmsV1, String::from_utf8_lossy(name));
                explain_kms(value, resource, list, header, error, label, envelope.as_ref().err())
            }
            Header::KmsV2 { name, envelope } => {
                let label = KeyLabel::new(ProviderKind::KmsV2, String::from_utf8_lossy(name));
                explain_kms(value, resource, list, header, error, label, envelope.as_ref().err())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one explanation")]
    fn explain_local(
        &self,
        value: &StoredValue,
        resource: ResourceRef<'_>,
        list: &ResourceTransformer,
        header: &Header<'_>,
        error: &Error,
        label: KeyLabel,
        payload: &[u8],
    ) -> Verdict {
        let claimants: Vec<_> = list.claimants(header).collect();
        if claimants.is_empty() || matches!(error, Error::EncryptedDataReadByIdentity) {
            return self.explain_not_configured(value, resource, list, header, label);
        }
        if error.is_authentication_failure() {
            if label.provider == ProviderKind::AesGcm && payload.len() < 28 {
                return too_short(&label, 28, payload.len());
            }
            if let Some(verdict) = self.try_other_keys(value, list, header, None) {
                return verdict;
            }
            if opens_without_line_feed(value, list) {
                return Verdict::new(Class::Malformed, format!("{label}: {LINE_FEED_ADDED}")).needing(label);
            }
            return Verdict::new(Class::WrongKey, "").until_more_is_known(claimants).needing(label);
        }
        let not_block_multiple = error.causes().any(|cause| matches!(cause, Error::NotBlockMultiple));
        if not_block_multiple {
            return self.explain_length(value, list, &label, payload).needing(label);
        }
        let required = error.causes().find_map(|cause| match cause {
            Error::TooShort { required, .. } => Some(*required),
            _ => None,
        });
        match required {
            Some(required) => too_short(&label, required, payload.len()),
            None => Verdict::new(Class::Malformed, format!("{label}: {error}")),
        }
    }

    fn explain_length(
        &self,
        value: &StoredValue,
        list: &ResourceTransformer,
        label: &KeyLabel,
        payload: &[u8],
    ) -> Verdict {
        let what = format!("{label}: {} bytes of AES-CBC data are no multiple of the block size", payload.len());
        if opens_without_line_feed(value, list) {
            return Verdict::new(Class::Malformed, format!("{what}: {LINE_FEED_ADDED}"));
        }
        if payload.starts_with(crate::transformer::ENCRYPTED_PREFIX) {
            return Verdict::new(
                Class::Malformed,
                format!("{what}: the prefix stands twice, so the value was put back with its prefix by hand"),
            );
        }
        let advice = if payload.windows(2).any(|pair| pair == b"\r\n") {
            "line feeds may have become CR LF on the way. Restore it from a backup"
        } else {
            "bytes are missing or were added. Restore it from a backup"
        };
        Verdict::new(Class::Malformed, format!("{what}: {advice}"))
    }

    fn explain_not_configured(
        &self,
        value: &StoredValue,
        resource: ResourceRef<'_>,
        list: &ResourceTransformer,
        header: &Header<'_>,
        label: KeyLabel,
    ) -> Verdict {
        let has_provider = list.providers().iter().any(|keys| keys.provider == label.provider);
        if has_provider {
            if let Some(verdict) = self.try_other_keys(value, list, header, None) {
                return verdict;
            }
            let configured: Vec<_> = list
                .providers()
                .iter()
                .filter(|keys| keys.provider == label.provider)
                .flat_map(|keys| keys.labels().map(|label| label.to_string()))
                .collect();
            let message = format!(
                "written by {label}, and {resource} have {} only: add the key under that name",
                configured.join(", ")
            );
            return Verdict::new(Class::KeyNotConfigured, message).needing(label);
        }
        let is_it = |known: KeyLabel| known == label;
        let elsewhere = self.lists_with(|list| list.providers().iter().any(|keys| keys.labels().any(is_it)));
        let mut message = format!("written by {label}, and {resource} have no {} provider", label.provider);
        match elsewhere.is_empty() {
            true => message.push_str(": add it to their providers"),
            false => _ = write!(message, ": the key is configured for {elsewhere}"),
        }
        Verdict::new(Class::NoProvider, message).needing(label)
    }

    /// The resources whose list is such a one.
    fn lists_with(&self, is_one: impl Fn(&ResourceTransformer) -> bool) -> String {
        let found = self.transformers.lists().filter(|(_, list)| is_one(list));
        let resources: Vec<_> = found.map(|(resource, _)| resource.to_string()).collect();
        resources.join(", ")
    }

    /// Whether a configured key of another name, or another key of the same name, opens the value.
    fn try_other_keys(
        &self,
        value: &StoredValue,
        list: &ResourceTransformer,
        header: &Header<'_>,
        tried: Option<KeyId>,
    ) -> Option<Verdict> {
        let Header::Local { provider, key_name, payload } = header else { return None };
        let location = self.layout.locate(&value.key);
        let others = self.transformers.keys().filter(|(id, key)| key.label.provider == *provider && Some(*id) != tried);
        for (id, key) in others {
            let Ok(opened) = key.open(payload, DataContext::new(&value.key)) else { continue };
            let inside = match inspect(&opened.data, &location) {
                Ok(()) => String::new(),
                Err((Class::IdentityMismatch, found)) => format!(". Also, {found}: it may have been copied here"),
                Err(_) => continue,
            };
            let stored = KeyLabel::new(*provider, String::from_utf8_lossy(key_name));
            let known = self.transformers.keys().any(|(_, key)| key.label == stored);
            let (class, message) = if stored != key.label {
                // With that name the key would open it, and it would still not be the object that the etcd key names.
                let class = if known || inside.is_empty() { Class::KeyRenamed } else { Class::KeyNotConfigured };
                let advice = format!("configure that key under the name {:?} too", stored.name);
                (class, format!("names {stored}, and {} opens it: {advice}{inside}", key.label))
            } else if list.claimants(header).any(|claimant| claimant == id) {
                let what = "it is not the first configured key of that name that opens it: move that key to the front";
                (Class::KeyRenamed, format!("names {stored}, and {what}{inside}"))
            } else {
                let elsewhere = self.lists_with(|list| list.has_key(id));
                let (class, advice) = match list.claimants(header).next() {
                    Some(_) => (Class::WrongKey, "has other bytes there: configure that one here too"),
                    None => (Class::KeyNotConfigured, "is not configured here: add it"),
                };
                (class, format!("written by the {stored} that is configured for {elsewhere}, and {advice}{inside}"))
            };
            return Some(Verdict::new(class, message).needing(key.label.clone()));
        }
        None
    }
}

/// Why a value is stale.
fn stale(by: &KeyLabel, header: &Header<'_>, list: &ResourceTransformer, resource: ResourceRef<'_>) -> String {
    let written = key_in_words(by, header.kms_key_id());
    let writes = key_in_words(&list.write_key(), list.write_key_id_of_kms().as_deref());
    if written == writes && by.provider.is_kms() {
        return format!("written by {written} in a form that kube-apiserver does not write any longer");
    }
    format!("written by {written}; {writes} writes {resource} now")
}

/// etcdctl ends what it prints with a line feed, and who puts that back has put one byte more.
pub(super) const LINE_FEED_ADDED: &str =
    "a line feed was added at the end; without it the value opens. Put it back without it";

pub(super) fn opens_without_line_feed(value: &StoredValue, list: &ResourceTransformer) -> bool {
    value.value.strip_suffix(b"\n").is_some_and(|shorter| {
        list.open(shorter, DataContext::new(&value.key)).is_ok_and(|(opened, _)| object::identify(&opened.data).is_ok())
    })
}

fn too_short(label: &KeyLabel, required: usize, actual: usize) -> Verdict {
    let message =
        format!("{label}: {actual} bytes follow the prefix, at least {required} are needed. Restore it from a backup");
    Verdict::new(Class::Truncated, message).needing(label.clone())
}

fn explain_plaintext(value: &[u8], location: &Location<'_>, resource: ResourceRef<'_>) -> Verdict {
    if value.is_empty() {
        return Verdict::new(Class::UnknownFormat, "the value is empty: restore it from a backup, or delete it");
    }
    if inspect(value, location).is_err_and(|(class, _)| class != Class::IdentityMismatch) {
        let shown = match Format::of(value) {
            Ok(_) => String::new(),
            Err(_) => format!("; it begins with {}", masked_hex(value.get(..16).unwrap_or(value))),
        };
        let message =
            format!("{} bytes, neither ciphertext nor an object{shown}. Restore it from a backup", value.len());
        return Verdict::new(Class::UnknownFormat, message);
    }
    Verdict::new(
        Class::PlaintextNotAllowed,
        format!(
            "stored in the clear, and {resource} have no identity provider: add identity last until it is rewritten"
        ),
    )
    .needing(KeyLabel::identity())
}

/// Bytes in hex, without what may be words of a secret that is stored in the clear: these are dots.
fn masked_hex(bytes: &[u8]) -> String {
    let is_word = |part: &[u8]| part.len() >= 4 && !Header::PROVIDERS.iter().any(|name| name.as_bytes() == part);
    let mut shown = String::new();
    for part in bytes.chunk_by(|a, b| a.is_ascii_alphanumeric() == b.is_ascii_alphanumeric()) {
        let word = part.first().is_some_and(u8::is_ascii_alphanumeric) && is_word(part);
        shown.push_str(&if word { "..".repeat(part.len()) } else { hex::encode(part) });
    }
    shown
}

/// Values that no transformer stands in front of.
fn judge_outside(location: &Location<'_>, header: &Header<'_>) -> Verdict {
    match (location, header) {
        (_, Header::Plaintext) => Verdict { needs: Some(KeyLabel::identity()), ..Verdict::new(Class::Current, "") },
        (Location::NonRest { .. } | Location::NonObject(_), _) => Verdict::new(
            Class::NoProvider,
            "kube-apiserver reads this key without a transformer, and cannot read it encrypted: delete it, it is written anew",
        ),
        _ => {
            let mut message = "encrypted, and the key is not that of a known resource".to_owned();
            let needs = header.label();
            if let Some(label) = &needs {
                _ = write!(message, ": written by {label}");
            }
            Verdict { needs, ..Verdict::new(Class::NoProvider, message) }
        }
    }
}

/// Whether what came out is the object that the key names.
fn inspect(plaintext: &[u8], location: &Location<'_>) -> Result<(), (Class, String)> {
    let identity = object::identify(plaintext).map_err(|error| match error {
        object::Error::Nested => (Class::Nested, "what comes out is ciphertext again".to_owned()),
        error => (Class::Garbage, format!("what comes out is no object ({error})")),
    })?;
    let Location::Object { resource, namespace, name, .. } = location else { return Ok(()) };
    let mismatch = |found: String| Err((Class::IdentityMismatch, found));
    let (own_namespace, own_name) =
        (identity.namespace.as_deref().unwrap_or(""), identity.name.as_deref().unwrap_or(""));
    if own_name.as_bytes() != *name || own_namespace.as_bytes() != namespace.unwrap_or_default() {
        let path = match (own_namespace, own_name) {
            (_, "") => "without a name".to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        return mismatch(format!("the object inside says that it is {} {path}", identity.kind));
    }
    match resource.known().map(|row| row.kind) {
        Some(Some(kind)) if kind != identity.kind => {
            mismatch(format!("the object inside is of kind {}, and {resource} are of kind {kind}", identity.kind))
        }
        None if !same_group(&identity, *resource) => {
            mismatch(format!("the object inside is of group {:?}, and {resource} are not", identity.group()))
        }
        _ => Ok(()),
    }
}

fn same_group(identity: &Identity<'_>, resource: ResourceRef<'_>) -> bool {
    identity.group() == resource.group
}
