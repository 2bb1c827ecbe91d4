use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::journal::Journal;
use super::plan::{self, Group, plan};
use super::rewrite::{Outcome, Shared, not_object, rewrite};
use super::space::Space;
use super::{Error, Options};
use crate::report::{Class, JournalEntry, NotRewritten, Progress, RekeyReport, VerifyRow, WrongKey};
use crate::resource::{GroupResource, Location, Selection};
use crate::source::{Source as _, StoredValue};
use crate::storage::{Client, Ranges, RewrapOptions};
use crate::transformer::envelope::DekResolver;
use crate::transformer::{HeaderVerdict, KmsProvider, ResourceTransformers};
use crate::verify;

/// How to carry a rotation out.
#[derive(Debug)]
pub struct Execution {
    /// How many writes are under way at once.
    pub concurrency: usize,
    /// At most so many writes a second.
    pub rate: Option<u32>,
    /// The limits of one write.
    pub rewrap: RewrapOptions,
    /// etcd's `--quota-backend-bytes`, where it is known.
    pub quota_bytes: Option<u64>,
    /// Where every write is noted.
    pub journal: Option<Journal>,
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
/// When etcd cannot be read before anything is written, when the journal is of another cluster or of a later revision, and when a KMS that
/// writes cannot be used. What happens later, like a journal that fails, ends the run and is in the report.
pub async fn execute<K: DekResolver + 'static>(
    client: &Client,
    transformers: &Arc<ResourceTransformers>,
    kms: &Arc<K>,
    options: &Options<'_>,
    mut execution: Execution,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<RekeyReport, Error> {
    let everything = Ranges::of_prefixes(client, &options.selection.layout.all());
    let prefixes = options.selection.prefixes()?;
    let mut source = Ranges::of_prefixes(client, &prefixes);
    source.count().await?;
    if let (Some(journal), Some(revision)) = (&execution.journal, source.revision()) {
        journal.check(client.cluster_id(), revision)?;
    }
    let plan = plan(source, everything, &**kms, options, progress, stop).await?;
    if let Some(WrongKey { key, values }) = plan.wrong_keys.first().cloned() {
        return Err(Error::WrongWriteKey { key, values });
    }
    let write_kms = options.write_kms();
    // Told before anything is written; where nothing is to be, a KMS need not be there.
    if plan.to_rewrite + plan.to_open > 0 && !stop.load(Ordering::Relaxed) {
        for (resource, provider) in write_kms.values() {
            kms.begin_writing(provider).await.map_err(|failure| Error::Kms {
                resource: resource.to_string(),
                key: provider.label().clone(),
                failure,
            })?;
        }
    }
    let shared = Arc::new(Shared {
        client: client.clone(),
        transformers: Arc::clone(transformers),
        kms: Arc::clone(kms),
        layout: options.selection.layout.clone(),
        rewrap: execution.rewrap,
        stop: AtomicBool::new(false),
    });
    let begun = Instant::now();
    let mut pace = Pace::new(execution.rate);
    let mut run = Run {
        report: RekeyReport::new(options.source.clone()),
        groups: BTreeMap::new(),
        writes: JoinSet::new(),
        journal: execution.journal.take(),
        unjournaled: 0,
        halted: false,
        again: false,
        progress,
    };
    for pass in 0..MAX_PASSES {
        let generations = generations(&write_kms);
        progress.begin("rewriting", (pass == 0).then_some(plan.to_rewrite + plan.to_open));
        run.pass(&shared, options, &prefixes, &execution, &mut pace, stop).await?;
        progress.end();
        if !stop.load(Ordering::Relaxed) {
            run.confirm(&**kms, &write_kms).await;
        }
        if run.halted || stop.load(Ordering::Relaxed) || generations == self::generations(&write_kms) {
            break;
        }
        // What was written by the former key is stale again.
        run.report
            .notes
            .push("a KMS changed its key while values were rewritten: they were gone through once more".to_owned());
        run.again = true;
    }
    let mut report = run.finish();
    report.seconds = begun.elapsed().as_secs_f64();
    report.planned = plan.to_rewrite + plan.to_open;
    report.notes.extend(plan.decryption_warning());
    report.complete &= !stop.load(Ordering::Relaxed);
    if report.complete {
        if let Err(error) = final_pass(&mut report, client, &**kms, options, progress, stop).await {
            report.notes.push(format!("the values could not be read again: {error}"));
        }
        if !report.verified {
            report.notes.push("not everything was read again: `atrest verify` says what is still stale".to_owned());
        }
    }
    report.notes.push(
        "etcd's history holds the old values until it is compacted (5 to 10 minutes by default), and snapshots hold them for \
         good: they still need the old keys"
            .to_owned(),
    );
    Ok(report)
}

/// How often everything is gone through while a KMS changes its key again and again.
const MAX_PASSES: u32 = 8;

/// The KMS providers that write, each with a resource that it writes.
type WriteKms = BTreeMap<usize, (GroupResource, Arc<KmsProvider>)>;

/// How often what writes has changed. Before the first write there is nothing that could.
fn generations(write_kms: &WriteKms) -> Vec<u64> {
    write_kms.values().map(|(_, provider)| provider.write_generation().max(1)).collect()
}

/// What the header says of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    /// It should be rewritten, or has to be opened to tell.
    Yes,
    /// The key that writes now wrote it.
    Current,
    /// It is stale, and lies where no object of the resource is.
    NotObject,
    /// It cannot be read, or is nothing to rewrite.
    No,
}

fn due<K>(value: &StoredValue, shared: &Shared<K>, selection: &Selection) -> Due {
    let location = shared.layout.locate(&value.key);
    let Some(resource) = location.resource() else { return Due::No };
    if !selection.includes(&location) {
        return Due::No;
    }
    let is_object = matches!(location, Location::Object { .. });
    let list = shared.transformers.transformer_for_resource(resource.group, resource.resource);
    match list.judge(&list.header(&value.value)) {
        HeaderVerdict::Stale | HeaderVerdict::Undecided if is_object => Due::Yes,
        HeaderVerdict::Stale | HeaderVerdict::Undecided => Due::NotObject,
        HeaderVerdict::Current if list.is_configured() => Due::Current,
        _ => Due::No,
    }
}

/// The state of a run.
struct Run<'a> {
    report: RekeyReport,
    groups: BTreeMap<Group, (u64, u64)>,
    writes: JoinSet<Outcome>,
    journal: Option<Journal>,
    /// Writes that were done after the journal had failed.
    unjournaled: u64,
    /// Nothing more is to be begun.
    halted: bool,
    /// Everything is gone through another time.
    again: bool,
    progress: &'a dyn Progress,
}

/// What a pass leaves as it is: the next one finds it again.
struct Left {
    unreadable: Vec<VerifyRow>,
    too_large: Vec<NotRewritten>,
    not_objects: Vec<NotRewritten>,
    failed: Vec<NotRewritten>,
}

impl Left {
    fn take(report: &mut RekeyReport) -> Self {
        Self {
            unreadable: std::mem::take(&mut report.unreadable),
            too_large: std::mem::take(&mut report.too_large),
            not_objects: std::mem::take(&mut report.not_objects),
            failed: std::mem::take(&mut report.failed),
        }
    }

    /// Adds what was not found again.
    fn put_back(self, report: &mut RekeyReport) {
        let add = |now: &mut Vec<NotRewritten>, former: Vec<NotRewritten>| {
            let found: HashSet<_> = now.iter().map(|value| value.key.clone()).collect();
            now.extend(former.into_iter().filter(|value| !found.contains(&value.key)));
        };
        add(&mut report.too_large, self.too_large);
        add(&mut report.not_objects, self.not_objects);
        add(&mut report.failed, self.failed);
        let found: HashSet<_> = report.unreadable.iter().map(|row| row.value.key.clone()).collect();
        report.unreadable.extend(self.unreadable.into_iter().filter(|row| !found.contains(&row.value.key)));
    }
}

impl Run<'_> {
    fn has_begun(&self) -> bool {
        !self.writes.is_empty() || self.report.rewritten > 0 || !self.report.failed.is_empty()
    }

    /// Goes through everything once, and rewrites what is stale.
    async fn pass<K: DekResolver + 'static>(
        &mut self,
        shared: &Arc<Shared<K>>,
        options: &Options<'_>,
        prefixes: &[Vec<u8>],
        execution: &Execution,
        pace: &mut Pace,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut source = Ranges::of_prefixes(&shared.client, prefixes);
        let former = Left::take(&mut self.report);
        'pages: while !stop.load(Ordering::Relaxed) && !self.halted {
            let page = match source.next_page().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) if self.has_begun() => {
                    // What was written is to be reported.
                    self.halt(format!("reading stopped: {error}"));
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            self.check_space(&shared.client, execution.quota_bytes).await;
            for value in page.values {
                match due(&value, shared, options.selection) {
                    Due::Yes => {}
                    Due::NotObject => {
                        self.report.not_objects.push(not_object(&value));
                        continue;
                    }
                    due => {
                        // Another time, these have been rewritten, or counted before.
                        self.report.already_current += u64::from(due == Due::Current && !self.again);
                        continue;
                    }
                }
                self.make_room(execution.concurrency, pace).await;
                if stop.load(Ordering::Relaxed) || self.halted {
                    shared.stop.store(true, Ordering::Relaxed);
                    break 'pages;
                }
                self.writes.spawn(rewrite(Arc::clone(shared), value));
            }
        }
        while let Some(outcome) = self.writes.join_next().await {
            self.note(outcome);
        }
        if self.halted || stop.load(Ordering::Relaxed) {
            // It has not come to all of them again.
            former.put_back(&mut self.report);
        }
        Ok(())
    }

    /// Makes sure that what was written is given back by the KMS, and by a key that is still the one that writes.
    async fn confirm(&mut self, kms: &impl DekResolver, write_kms: &WriteKms) {
        for (_, provider) in write_kms.values().filter(|(_, provider)| provider.has_write_state()) {
            if let Err(failure) = kms.confirm_writing(provider).await {
                self.halt(format!(
                    "{} does not confirm what was written: {failure}. Whether the KMS gives it back, and is to be written by, is not known: \
                     run `atrest verify` when it answers",
                    provider.label()
                ));
            }
        }
    }

    fn halt(&mut self, why: String) {
        self.halted = true;
        self.report.notes.push(why);
    }

    /// Halts before the database reaches its quota: then nothing could be written any more, in the whole cluster.
    async fn check_space(&mut self, client: &Client, quota_bytes: Option<u64>) {
        let Ok(status) = client.status().await else { return };
        let space = Space::new(status.db_size, quota_bytes);
        if space.is_nearly_used() {
            self.halt(format!("stopped before etcd is full: {space}"));
        }
    }

    /// Waits until another write may begin.
    ///
    /// Writes that are finished are noted meanwhile: what etcd has confirmed must be in the journal, whatever happens next.
    async fn make_room(&mut self, concurrency: usize, pace: &mut Pace) {
        while self.writes.len() >= concurrency.max(1)
            && let Some(outcome) = self.writes.join_next().await
        {
            self.note(outcome);
        }
        loop {
            tokio::select! {
                biased;
                Some(outcome) = self.writes.join_next() => self.note(outcome),
                () = pace.wait() => return,
            }
        }
    }

    /// Adds an outcome to the report.
    fn note(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        self.progress.advance(1);
        let outcome = match outcome.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(outcome) => outcome,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => return self.halt("a write was cancelled".to_owned()),
        };
        match outcome {
            Outcome::Rewritten { group, bytes, entry } => {
                self.report.rewritten += 1;
                plan::add(&mut self.groups, group, bytes);
                self.write_down(&entry);
            }
            Outcome::AlreadyCurrent => self.report.already_current += u64::from(!self.again),
            Outcome::Gone => self.report.gone += 1,
            Outcome::Refused(row) => self.report.unreadable.push(*row),
            Outcome::TooLarge(value) => self.report.too_large.push(value),
            Outcome::Failed { not_rewritten, fatal } => {
                if fatal && !self.halted {
                    self.halt(format!("stopped: {}", not_rewritten.message));
                }
                self.report.failed.push(not_rewritten);
            }
        }
    }

    /// Without its journal the run goes no further.
    fn write_down(&mut self, entry: &JournalEntry) {
        let Some(journal) = &mut self.journal else { return };
        if self.unjournaled > 0 {
            self.unjournaled += 1;
        } else if let Err(error) = journal.write(entry) {
            self.unjournaled = 1;
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            self.halt(format!("stopped, since the journal failed: {error}{cause}"));
        }
    }

    fn finish(mut self) -> RekeyReport {
        if self.unjournaled > 0 {
            self.report.notes.push(format!("{} writes are missing from the journal", self.unjournaled));
        }
        self.report.complete = !self.halted;
        let groups = self.groups.into_iter();
        self.report.groups = groups.map(|(group, (values, bytes))| plan::plan_group(group, values, bytes)).collect();
        self.report
    }
}

/// Reads everything again: what is still stale, what cannot be read, and which keys are still needed.
async fn final_pass(
    report: &mut RekeyReport,
    client: &Client,
    kms: &impl DekResolver,
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
        scope: options.selection.layout.scope(),
        rows: verify::Rows::NotCurrent,
    };
    let mut stale = Vec::new();
    let mut still_stale = 0;
    let mut rows = |row: &VerifyRow| {
        // What is not an object is in the report for itself.
        if row.class == Class::Stale && row.value.name.is_some() {
            still_stale += 1;
            if stale.len() < MAX_STALE_KEYS {
                stale.push(row.value.key.clone());
            }
        }
    };
    let mut source = Ranges::of_prefixes(client, &options.selection.prefixes()?);
    source.count().await?;
    let keys = async || Ok(Ranges::of_prefixes(client, &options.selection.layout.all()).keys_only());
    let verified = verify::verify(source, keys, kms, &verify_options, progress, stop, &mut rows).await?;
    if !verified.complete {
        // Of a part, nothing follows: least of all that no value needs a key.
        return Ok(());
    }
    report.verified = true;
    report.read_again = verified.values;
    report.unreadable = verified.findings;
    report.still_stale = Some(still_stale);
    report.still_stale_keys = stale;
    report.notes.extend(options.selection.nothing_found(verified.values));
    if options.selection.is_partial() {
        report.notes.push("only a part was rewritten: other values may need the old keys".to_owned());
        return Ok(());
    }
    if verified.values == 0 {
        return Ok(());
    }
    for used in verified.keys {
        let needed = used.opens + used.unreadable + used.unattributed > 0 || !used.writes.is_empty();
        if needed { &mut report.keys_in_use } else { &mut report.keys_unused }.push(used.key);
    }
    if !report.keys_unused.is_empty() {
        report.notes.push(options.selection.layout.scope());
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
