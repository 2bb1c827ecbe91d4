use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::plan::label;
use super::{Error, Options, check_write_keys};
use crate::report::{
    Class, EtcdKey, JournalEntry, NotRewritten, PlanGroup, Progress, RekeyReport, ValueRow, VerifyRow,
};
use crate::resource::{KeyLayout, Location, Selection};
use crate::source::{Source as _, StoredValue};
use crate::storage::{self, Ranges, Refusal, Rewrap, RewrapOptions, Sealed, Store};
use crate::transformer::{DataContext, Header, HeaderVerdict, ProviderKind, ResourceTransformers};
use crate::verify::{self, Judge};

/// How to carry a rotation out.
#[derive(Debug)]
pub struct Execution {
    /// How many writes are under way at once.
    pub concurrency: usize,
    /// At most so many writes a second.
    pub rate: Option<u32>,
    /// The limits of one write.
    pub rewrap: RewrapOptions,
    /// Where every write is noted.
    pub journal: Option<Journal>,
}

/// What a writer needs; shared by all that are under way.
struct Shared {
    store: Store,
    transformers: Arc<ResourceTransformers>,
    layout: KeyLayout,
    rewrap: RewrapOptions,
}

/// What became of one value, for the report.
enum Outcome {
    Rewritten { group: (String, String, String, String), bytes: u64, entry: JournalEntry },
    AlreadyCurrent,
    Gone,
    Refused(Box<VerifyRow>),
    TooLarge(NotRewritten),
    Failed { not_rewritten: NotRewritten, fatal: bool },
}

/// How many keys of stale values a report names.
const MAX_STALE_KEYS: usize = 100;

/// Rewrites what is stale, then reads everything again and reports what is still stale.
///
/// Conflicts are read again and judged again; one bad value never stops the rest. When `stop` is set, the writes in flight are
/// finished and nothing is begun. Running it again does what is left.
///
/// # Errors
///
/// When etcd cannot be read, when the configuration cannot write, and when the journal cannot be written.
pub async fn execute(
    store: &Store,
    transformers: &Arc<ResourceTransformers>,
    options: &Options<'_>,
    mut execution: Execution,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<RekeyReport, Error> {
    check_write_keys(options)?;
    let mut report = RekeyReport::new(options.source.clone());
    let mut tally = Tally::default();
    let shared = Arc::new(Shared {
        store: store.clone(),
        transformers: Arc::clone(transformers),
        layout: options.selection.layout.clone(),
        rewrap: execution.rewrap,
    });
    let mut source = ranges(store, options.selection);
    source.count().await?;
    progress.begin("rewriting", source.expected());
    let begun = Instant::now();
    let mut pace = Pace::new(execution.rate);
    let mut writes = JoinSet::new();
    let mut halted = false;
    'pages: while !stop.load(Ordering::Relaxed) && !halted {
        let Some(page) = source.next_page().await? else { break };
        for value in page.values {
            if !is_due(&value, &shared, options.selection) {
                progress.advance(1);
                continue;
            }
            while writes.len() >= execution.concurrency.max(1) {
                let outcome = writes.join_next().await;
                halted |= tally.note(outcome, &mut report, execution.journal.as_mut())?;
                progress.advance(1);
            }
            pace.wait().await;
            if stop.load(Ordering::Relaxed) || halted {
                break 'pages;
            }
            writes.spawn(rewrite(Arc::clone(&shared), value));
        }
    }
    while let Some(outcome) = writes.join_next().await {
        halted |= tally.note(Some(outcome), &mut report, execution.journal.as_mut())?;
        progress.advance(1);
    }
    report.seconds = begun.elapsed().as_secs_f64();
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed) && !halted;
    report.groups = tally.groups();
    if report.complete {
        final_pass(&mut report, store, options, progress, stop).await?;
    }
    report.notes.push(
        "etcd's history holds the old values until it is compacted (5 to 10 minutes by default), and snapshots hold them for \
         good: they still need the old keys"
            .to_owned(),
    );
    Ok(report)
}

fn ranges(store: &Store, selection: &Selection) -> Ranges {
    // The selection was resolved before anything was read.
    Ranges::of_prefixes(store, &selection.prefixes().unwrap_or_default())
}

/// Whether the header says that the value should be rewritten.
fn is_due(value: &StoredValue, shared: &Shared, selection: &Selection) -> bool {
    let location = shared.layout.locate(&value.key);
    let Location::Object { resource, .. } = &location else { return false };
    if !selection.includes(&location) {
        return false;
    }
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    matches!(list.judge(&list.header(&value.value)), HeaderVerdict::Stale | HeaderVerdict::Undecided)
}

async fn rewrite(shared: Arc<Shared>, value: StoredValue) -> Outcome {
    let (key, mod_revision) = (EtcdKey::new(&value.key), value.mod_revision);
    let rewrapped = shared.store.rewrap(value, shared.rewrap, |value| seal(&shared, value)).await;
    match rewrapped {
        Ok(Rewrap::Rewritten { old, new_value, new_revision }) => rewritten(&shared, &old, &new_value, new_revision),
        Ok(Rewrap::AlreadyCurrent) => Outcome::AlreadyCurrent,
        Ok(Rewrap::Gone) => Outcome::Gone,
        Ok(Rewrap::Refused { reason, .. }) => Outcome::Refused(reason),
        Ok(Rewrap::TooLarge { value, request_bytes }) => Outcome::TooLarge(NotRewritten {
            key,
            mod_revision: value.mod_revision,
            message: format!(
                "the request would have {request_bytes} bytes, more than the {} that etcd takes (--max-request-bytes)",
                shared.rewrap.max_request_bytes
            ),
        }),
        Ok(Rewrap::Contended) => {
            let message = "others write it again and again: run this again".to_owned();
            Outcome::Failed { not_rewritten: NotRewritten { key, mod_revision, message }, fatal: false }
        }
        Err(error) => {
            let fatal =
                matches!(error, storage::Error::NoSpace | storage::Error::PermissionDenied) || error.is_transient();
            let not_rewritten = NotRewritten { key, mod_revision, message: error.to_string() };
            Outcome::Failed { not_rewritten, fatal }
        }
    }
}

/// Opens a value and seals it again, and makes sure that what was sealed opens to the same and is no longer stale.
fn seal(shared: &Shared, value: &StoredValue) -> Result<Sealed, Refusal<Box<VerifyRow>>> {
    let judged = Judge::new(&shared.transformers, &shared.layout).judge(value);
    match judged.row.class {
        Class::Current => return Ok(Sealed::Current),
        Class::Stale => {}
        // What cannot be read, or is not what it should be, must not become a fresh and authenticated value.
        _ => return Err(Refusal(Box::new(judged.row))),
    }
    let location = shared.layout.locate(&value.key);
    let Location::Object { resource, .. } = &location else { return Err(Refusal(Box::new(judged.row))) };
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    let context = DataContext::new(&value.key);
    let sealed = list.open(&value.value, context).and_then(|(opened, _)| {
        let mut sealed = Vec::new();
        list.seal(&opened.data, context, &mut sealed)?;
        let (reopened, _) = list.open(&sealed, context)?;
        let same = !reopened.stale && reopened.data.same_as(&opened.data);
        drop(reopened);
        Ok(same.then_some(sealed))
    });
    let refused = |class, message: String| {
        let location = shared.layout.locate(&value.key);
        let row = ValueRow::of(value, &location, &list.header(&value.value));
        Err(Refusal(Box::new(VerifyRow { value: row, class, message })))
    };
    match sealed {
        Ok(Some(sealed)) => Ok(Sealed::Value(sealed)),
        // A key of another provider opens what the first one sealed, for example by a name that begins with another's.
        Ok(None) => refused(
            Class::Stale,
            "what the first provider seals does not open to the same as current: nothing was written. Look for two keys of \
             the same name"
                .to_owned(),
        ),
        Err(error) => refused(Class::Stale, format!("cannot be sealed: {error}")),
    }
}

fn rewritten(shared: &Shared, old: &StoredValue, new_value: &[u8], new_revision: i64) -> Outcome {
    let location = shared.layout.locate(&old.key);
    let Location::Object { resource, namespace, .. } = &location else { return Outcome::Gone };
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    let (old_header, new_header) = (list.header(&old.value), list.header(new_value));
    let entry = JournalEntry {
        time: OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
        key: EtcdKey::new(&old.key),
        old_revision: old.mod_revision,
        new_revision,
        old_header: header_text(&old_header),
        new_header: header_text(&new_header),
    };
    let namespace = namespace.map(|namespace| String::from_utf8_lossy(namespace).into_owned()).unwrap_or_default();
    let group = (resource.to_string(), namespace, label(&old_header), label(&new_header));
    Outcome::Rewritten { group, bytes: new_value.len() as u64, entry }
}

/// The stored prefix with the name of the key; `identity` where there is none.
fn header_text(header: &Header<'_>) -> String {
    match (header.provider(), header.name()) {
        (Some(provider), Some(name)) if provider != ProviderKind::Identity => {
            format!("{}{}:", String::from_utf8_lossy(provider.prefix()), String::from_utf8_lossy(name))
        }
        _ => ProviderKind::Identity.name().to_owned(),
    }
}

#[derive(Default)]
struct Tally {
    groups: BTreeMap<(String, String, String, String), (u64, u64)>,
}

impl Tally {
    /// Adds an outcome to the report, and says whether nothing more should be begun.
    fn note(
        &mut self,
        outcome: Option<Result<Outcome, tokio::task::JoinError>>,
        report: &mut RekeyReport,
        journal: Option<&mut Journal>,
    ) -> Result<bool, Error> {
        let Some(outcome) = outcome else { return Ok(false) };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Ok(true),
            },
        };
        match outcome {
            Outcome::Rewritten { group, bytes, entry } => {
                report.rewritten += 1;
                let (values, total) = self.groups.entry(group).or_default();
                *values += 1;
                *total += bytes;
                if let Some(journal) = journal {
                    journal.write(&entry)?;
                }
            }
            Outcome::AlreadyCurrent => report.already_current += 1,
            Outcome::Gone => report.gone += 1,
            Outcome::Refused(row) => report.unreadable.push(*row),
            Outcome::TooLarge(value) => report.too_large.push(value),
            Outcome::Failed { not_rewritten, fatal } => {
                report.failed.push(not_rewritten);
                return Ok(fatal);
            }
        }
        Ok(false)
    }

    fn groups(self) -> Vec<PlanGroup> {
        self.groups
            .into_iter()
            .map(|((resource, namespace, from, to), (values, bytes))| PlanGroup {
                resource,
                namespace,
                from,
                to,
                values,
                bytes,
            })
            .collect()
    }
}

/// Reads everything again: what is still stale, what cannot be read, and which keys are still needed.
async fn final_pass(
    report: &mut RekeyReport,
    store: &Store,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let verify_options = verify::Options {
        transformers: options.transformers,
        selection: options.selection,
        source: options.source.clone(),
        expect_current: false,
        removable: None,
    };
    let mut stale = Vec::new();
    let mut still_stale = 0;
    let mut rows = |row: &VerifyRow| {
        if row.class == Class::Stale {
            still_stale += 1;
            if stale.len() < MAX_STALE_KEYS {
                stale.push(row.value.key.clone());
            }
        }
    };
    let mut source = ranges(store, options.selection);
    source.count().await?;
    let keys = async || Ok(Ranges::of_prefixes(store, &options.selection.layout.all()).keys_only());
    let verified = verify::verify(source, keys, &verify_options, progress, stop, &mut rows).await?;
    report.verified = verified.complete;
    report.unreadable = verified.findings;
    report.still_stale = still_stale;
    report.still_stale_keys = stale;
    if options.selection.is_partial() {
        report.notes.push("only a part was rewritten: other values may need the old keys".to_owned());
        return Ok(());
    }
    for used in verified.keys {
        let needed = used.opens + used.unreadable > 0 || !used.writes.is_empty();
        if needed { &mut report.keys_in_use } else { &mut report.keys_unused }.push(used.key);
    }
    Ok(())
}

/// Holds writes back to a rate.
struct Pace {
    interval: Option<Duration>,
    next: Instant,
}

impl Pace {
    fn new(rate: Option<u32>) -> Self {
        let interval = rate.filter(|rate| *rate > 0).map(|rate| Duration::from_secs(1) / rate);
        Self { interval, next: Instant::now() }
    }

    async fn wait(&mut self) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        if self.next > now {
            tokio::time::sleep(self.next - now).await;
        }
        // Time that was lost is not caught up with, so that the rate is never exceeded.
        self.next = self.next.max(now) + interval;
    }
}
