//! Opens values and decodes what comes out: objects, as kube-apiserver would serve them.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::object::{self, Object};
use crate::report::{Class, GetReport, Progress, ValueRow, VerifyRow};
use crate::resource::{Location, Selection};
use crate::source::{Source, StoredValue};
use crate::transformer::ResourceTransformers;
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::verify::Judge;

/// Which objects, and how they are to look.
pub struct Options<'a> {
    /// The configuration; without one only what is stored in the clear can be read.
    pub transformers: &'a ResourceTransformers,
    /// Which values.
    pub selection: &'a Selection,
    /// What the report calls the source.
    pub source: String,
    /// Only objects of this name.
    pub name: Option<&'a str>,
    /// Only objects of which this is true.
    pub wants: &'a (dyn Fn(&Object) -> bool + Sync),
    /// How objects are shown.
    pub shown: Shown,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("source", &self.source)
            .field("name", &self.name)
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

/// What of an object is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// `metadata.managedFields` too.
    pub managed_fields: bool,
    /// The version that is stored, in place of the one that is served.
    pub as_stored: bool,
    /// What becomes of the data of Secrets.
    pub secrets: SecretData,
}

/// What becomes of the data of Secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretData {
    /// Only their lengths are shown.
    #[default]
    Redacted,
    /// Only hashes of them are shown, made with this salt.
    Hashed([u8; 32]),
    /// All of them.
    Revealed,
}

impl Shown {
    /// Makes an object look so. `mod_revision` becomes its resourceVersion.
    pub fn apply(self, object: &mut Object, mod_revision: i64) {
        object.set_resource_version(mod_revision);
        self.apply_to_plaintext(object);
    }

    /// The same for an object of which nothing but the plaintext is known.
    pub fn apply_to_plaintext(self, object: &mut Object) {
        if !self.managed_fields {
            object.hide_managed_fields();
        }
        if !self.as_stored {
            object.convert_to_served_version();
        }
        match self.secrets {
            SecretData::Redacted => object.redact_secret_data(),
            SecretData::Hashed(salt) => object.hash_secret_data(&salt),
            SecretData::Revealed => {}
        }
    }
}

/// An object, and where it was.
#[derive(Debug)]
pub struct Got {
    /// The value.
    pub row: ValueRow,
    /// What was in it.
    pub object: Object,
}

/// What was read of one value.
pub(crate) enum Read {
    /// An object, with what is wrong all the same.
    Object(Box<Got>, Option<Box<VerifyRow>>),
    /// It is none of those that are wanted.
    Other,
    Unreadable(Box<VerifyRow>),
}

/// Hands each object to `visit`, in the order of the source. What cannot be read is in the report.
///
/// # Errors
///
/// When the source cannot be read.
pub async fn get<S: Source>(
    mut source: S,
    kms: &impl DekResolver,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
    visit: &mut (dyn FnMut(Got) + Send),
) -> Result<GetReport, S::Error> {
    let mut report = GetReport::new(options.source.clone());
    progress.begin("reading", source.expected());
    while !stop.load(Ordering::Relaxed) {
        let Some(page) = source.next_page().await? else { break };
        let wanted: Vec<_> = page.values.iter().filter(|value| selects(options, &value.key)).collect();
        let layout = &options.selection.layout;
        let lacking = wanted.iter().map(|value| (&value.key[..], &value.value[..]));
        let lacking = Wanted::by(options.transformers, layout, lacking);
        if !lacking.is_empty() {
            kms.resolve(lacking, stop).await;
        }
        let read: Vec<_> = wanted.par_iter().map(|value| read(value, options)).collect();
        for read in read {
            match read {
                Read::Object(got, finding) => {
                    report.objects += 1;
                    report.findings.extend(finding.map(|finding| *finding));
                    visit(*got);
                }
                Read::Other => {}
                Read::Unreadable(row) => report.findings.push(*row),
            }
        }
        progress.advance(page.values.len() as u64);
    }
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed);
    report.revision = source.revision().unwrap_or(0);
    Ok(report)
}

/// Whether a key is one of those that are wanted.
pub(crate) fn selects(options: &Options<'_>, key: &[u8]) -> bool {
    let location = options.selection.layout.locate(key);
    let is_named = |wanted: &str| matches!(&location, Location::Object { name, .. } if *name == wanted.as_bytes());
    options.selection.includes(&location)
        && options.selection.key_prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
        && options.name.is_none_or(is_named)
}

/// Opens one value and decodes it. What opens and is wrong all the same is unreadable too.
pub(crate) fn read(value: &StoredValue, options: &Options<'_>) -> Read {
    let (judged, opened) = Judge::new(options.transformers, &options.selection.layout).open(value);
    if judged.skipped {
        return Read::Other;
    }
    let plaintext = match (&opened, judged.row.class) {
        (Some(opened), class) if class.is_readable() => &opened.data[..],
        // Leases of API servers and ranges of addresses are no objects of a resource. And what kube-apiserver refuses because it is
        // in the clear, can be read all the more.
        (None, class) if class.is_readable() || class == Class::PlaintextNotAllowed => &value.value[..],
        _ => return Read::Unreadable(Box::new(judged.row)),
    };
    match object::decode(plaintext) {
        Ok(mut object) => {
            options.shown.apply(&mut object, value.mod_revision);
            match (options.wants)(&object) {
                true => {
                    let finding = (!judged.row.class.is_readable()).then(|| Box::new(judged.row.clone()));
                    Read::Object(Box::new(Got { row: judged.row.value, object }), finding)
                }
                false => Read::Other,
            }
        }
        Err(error) => {
            let message = format!("cannot be decoded: {error}");
            Read::Unreadable(Box::new(VerifyRow { class: Class::Malformed, message, ..judged.row }))
        }
    }
}
