//! Where the values come from: etcd, a snapshot, a data directory. The commands know none of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use atrest::backup;
use atrest::kine::{self, Kine};
use atrest::resource::{KeyLayout, Selection, ServersOverrides};
use atrest::snapshot::{self, DataDir, Mode, Order, Snapshot, Trailer, View};
use atrest::source::{Page, Source, StoredValue};
use atrest::storage::{Client, ConnectOptions, Ranges, TlsOptions};

use super::snapshot::is_suspicious;
use super::{STOP, exit_code, given, selection_of, stop_signal, user_of};
use crate::args::{EtcdArgs, FileArgs, OverridesArgs, SelectionArgs, SourceArgs};
use crate::failure::Failure;
use crate::progress::Display;

/// A source that is open, and what to read of it.
pub(super) struct Context {
    /// Where everything is, and behind it where some resources are.
    backends: Vec<Backend>,
    overrides: ServersOverrides,
    /// Whether values are left out that lie where no API server looks for them.
    routed: bool,
    pub(super) selection: Selection,
    /// What reports call the source.
    pub(super) name: String,
    pub(super) stop: &'static AtomicBool,
    pub(super) display: Display,
    quiet: bool,
}

/// One etcd, or one file.
struct Backend {
    source: Opened,
    name: String,
}

enum Opened {
    Etcd {
        client: Client,
        revision: Option<i64>,
    },
    Snapshot {
        snapshot: Arc<Snapshot>,
        path: PathBuf,
        is_data_dir: bool,
        view: View,
        skip_hash_check: bool,
        /// Hashing the file takes as long as reading it, and goes on beside that.
        trailer: Mutex<Option<JoinHandle<Result<Trailer, snapshot::Error>>>>,
    },
    Kine {
        kine: Arc<Kine>,
        path: PathBuf,
        view: kine::View,
    },
}

/// A connected etcd, for the commands that write to it.
pub(super) struct Etcd {
    pub(super) client: Client,
    pub(super) name: String,
}

impl Etcd {
    pub(super) async fn connect(args: &EtcdArgs) -> Result<Self, Failure> {
        Self::connect_to(args, &args.endpoints, "--endpoints").await
    }

    /// All etcds of an API server, the one with most first.
    pub(super) async fn connect_all(args: &EtcdArgs, overrides: &ServersOverrides) -> Result<Vec<Self>, Failure> {
        refuse_twice(args, overrides)?;
        let mut all = vec![Self::connect(args).await?];
        for backend in 0..overrides.backends().len() {
            all.push(Self::connect_override(args, overrides, backend).await?);
        }
        Ok(all)
    }

    /// Those of them in which something of the selection may be, with their numbers among the overrides; none for where everything else is.
    pub(super) async fn connect_wanted(
        args: &EtcdArgs,
        overrides: &ServersOverrides,
        selection: &Selection,
    ) -> Result<Vec<(Option<usize>, Self)>, Failure> {
        refuse_twice(args, overrides)?;
        let places: Vec<_> =
            selection.resources.iter().map(|resource| overrides.backend_of_resource(resource)).collect();
        let is_wanted = |place: Option<usize>| places.is_empty() || places.contains(&place);
        let mut all = Vec::new();
        if is_wanted(None) {
            all.push((None, Self::connect(args).await?));
        }
        for backend in (0..overrides.backends().len()).filter(|backend| is_wanted(Some(*backend))) {
            all.push((Some(backend), Self::connect_override(args, overrides, backend).await?));
        }
        Ok(all)
    }

    async fn connect_override(args: &EtcdArgs, overrides: &ServersOverrides, backend: usize) -> Result<Self, Failure> {
        let servers = overrides.backends().get(backend).map(Vec::as_slice).unwrap_or_default();
        let connected = Self::connect_to(args, servers, OVERRIDES).await;
        let Self { client, name } = connected.inspect_err(|_| say_which(overrides, backend))?;
        Ok(Self { client, name: name_of_backend(overrides, backend, &name) })
    }

    async fn connect_to(args: &EtcdArgs, endpoints: &[String], flag: &str) -> Result<Self, Failure> {
        let client = Client::connect(connect_options(args, endpoints, flag, stop_signal())?).await?;
        let status = client.status().await?;
        let version = if status.version.is_empty() { String::new() } else { format!(" {}", status.version) };
        let name = format!("etcd{version} at {}", status.endpoint);
        Ok(Self { client, name })
    }

    /// The selected values, counted.
    pub(super) async fn values(&self, selection: &Selection) -> Result<Ranges, Failure> {
        counted(Ranges::of_prefixes(&self.client, &selection.prefixes()?)).await
    }

    /// Every value of the layout.
    pub(super) fn everything(&self, selection: &Selection) -> Ranges {
        Ranges::of_prefixes(&self.client, &selection.layout.all())
    }
}

const OVERRIDES: &str = "--etcd-servers-overrides";

/// Errors and hints speak of endpoints: of which is to be said first.
fn say_which(overrides: &ServersOverrides, backend: usize) {
    let resources = overrides.resources_of(backend).collect::<Vec<_>>().join(", ");
    super::warn(false, format_args!("this is about the etcd of {resources}, which {OVERRIDES} names"));
}

/// Values that are read twice are counted twice. Clusters do not tell: those that were set up alike have the same ID.
fn refuse_twice(args: &EtcdArgs, overrides: &ServersOverrides) -> Result<(), Failure> {
    let address = |text: &str| {
        let address = text.trim().rsplit("://").next().unwrap_or_default().trim_end_matches('/');
        address.replace("localhost", "127.0.0.1")
    };
    let main: Vec<_> = args.endpoints.iter().map(|text| address(text)).collect();
    match overrides.backends().iter().flatten().find(|server| main.contains(&address(server))) {
        Some(server) => Err(Failure::Usage(format!("{OVERRIDES}: {server} is one of --endpoints: leave it out"))),
        None => Ok(()),
    }
}

/// `/events in etcd 3.5.1 at https://…`.
fn name_of_backend(overrides: &ServersOverrides, backend: usize, name: &str) -> String {
    format!("{} in {name}", overrides.resources_of(backend).collect::<Vec<_>>().join(", "))
}

/// The flag, however often it is given.
pub(super) fn overrides_of(args: &OverridesArgs) -> Result<ServersOverrides, Failure> {
    args.etcd_servers_overrides.iter().try_fold(ServersOverrides::default(), |all, text| {
        let more = text.parse().map_err(|error| Failure::Usage(format!("--etcd-servers-overrides: {error}")))?;
        Ok(all.and(&more))
    })
}

/// How etcd is reached.
pub(super) fn connect_options(
    args: &EtcdArgs,
    endpoints: &[String],
    flag: &str,
    interrupted: &'static AtomicBool,
) -> Result<ConnectOptions, Failure> {
    let endpoints = endpoints.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let endpoints = endpoints.map(str::parse).collect::<Result<Vec<_>, _>>();
    Ok(ConnectOptions {
        endpoints: endpoints.map_err(|error| Failure::Usage(format!("{flag}: {error}")))?,
        tls: TlsOptions {
            ca_file: given(args.cacert.as_ref()),
            cert_file: given(args.cert.as_ref()),
            key_file: given(args.key.as_ref()),
            server_name: args.tls_server_name.clone().filter(|name| !name.is_empty()),
            danger_accept_any_certificate: args.insecure_skip_tls_verify,
        },
        user: user_of(args)?,
        dial_timeout: args.dial_timeout,
        command_timeout: args.command_timeout,
        interrupted,
    })
}

async fn counted(mut ranges: Ranges) -> Result<Ranges, Failure> {
    ranges.count().await?;
    Ok(ranges)
}

/// A selection that cannot be is told before anything is asked of the source.
pub(super) fn checked_selection(args: &SelectionArgs) -> Result<Selection, Failure> {
    let selection = selection_of(args)?;
    if selection.prefixes()?.is_empty() {
        return Err(Failure::Usage(
            "--prefix lies outside of what is selected and of --etcd-prefix: no key can match".to_owned(),
        ));
    }
    Ok(selection)
}

/// What of a source is wanted besides the selection.
#[derive(Clone, Copy, Default)]
pub(super) struct Want {
    /// Also what was overwritten and deleted.
    pub(super) history: bool,
    /// In the order of the keys, which takes longer to read from a file.
    pub(super) in_order: bool,
    /// Only what an API server finds: of a resource that is stored elsewhere, what is there.
    pub(super) routed: bool,
}

impl FileArgs {
    /// The same with the file of another etcd, where a file is the source.
    fn replaced(&self, servers: &[String]) -> Result<Self, Failure> {
        let mut file = self.clone();
        let places = [&mut file.snapshot, &mut file.data_dir, &mut file.kine];
        let Some(place) = places.into_iter().find_map(Option::as_mut) else { return Ok(file) };
        match servers {
            [path]
                if std::fs::canonicalize(path)
                    .is_ok_and(|other| std::fs::canonicalize(&*place).is_ok_and(|one| one == other)) =>
            {
                return Err(Failure::Usage(format!("{OVERRIDES} names the same file as the source: leave it out")));
            }
            [path] if !path.contains("://") => *place = PathBuf::from(path),
            _ => {
                return Err(Failure::Usage(
                    "--etcd-servers-overrides: the source is a file, so name the file of the other etcd: /events#events.db"
                        .to_owned(),
                ));
            }
        }
        Ok(file)
    }
}

impl Backend {
    async fn open(
        file: &FileArgs,
        etcd: &EtcdArgs,
        endpoints: &[String],
        flag: &str,
        want: Want,
    ) -> Result<Self, Failure> {
        let (source, name) = match file {
            FileArgs { kine: Some(path), revision, .. } => {
                stop_signal();
                let kine = Kine::open(path).map(Arc::new).map_err(|error| Failure::Kine(error).in_file(path))?;
                let view = kine::View { revision: *revision, history: want.history, prefixes: Vec::new() };
                (Opened::Kine { kine, path: path.clone(), view }, format!("kine's {}", path.display()))
            }
            FileArgs { snapshot: None, data_dir: None, .. } => {
                if want.history {
                    return Err(Failure::Usage(
                        "--history reads every revision of a file: name one with --snapshot, --data-dir or --kine"
                            .to_owned(),
                    ));
                }
                let Etcd { client, name } = Etcd::connect_to(etcd, endpoints, flag).await?;
                (Opened::Etcd { client, revision: file.revision }, name)
            }
            file => {
                stop_signal();
                let OpenedFile { snapshot, name, path } = open_file(file)?;
                let order = if want.in_order { Order::Keys } else { Order::Stored };
                let view = View { revision: file.revision, history: want.history, order, prefixes: Vec::new() };
                let is_data_dir = file.snapshot.is_none();
                let skip_hash_check = file.skip_hash_check;
                let hashed = Arc::clone(&snapshot);
                let trailer = Mutex::new(Some(std::thread::spawn(move || hashed.trailer())));
                (Opened::Snapshot { snapshot, path, is_data_dir, view, skip_hash_check, trailer }, name)
            }
        };
        Ok(Self { source, name })
    }

    async fn of_prefixes(&self, prefixes: Vec<Vec<u8>>, keys_only: bool) -> Result<Part, Failure> {
        match &self.source {
            Opened::Etcd { client, revision } => {
                let ranges = Ranges::of_prefixes(client, &prefixes).at_revision(*revision);
                Ok(Part::Etcd(if keys_only { ranges.keys_only() } else { counted(ranges).await? }))
            }
            Opened::Snapshot { snapshot, path, view, .. } => {
                let view = View { prefixes, history: view.history && !keys_only, ..view.clone() };
                match snapshot::Values::new(snapshot, &view) {
                    Ok(values) => Ok(Part::Snapshot(values, path.clone())),
                    Err(error) => Err(Failure::of_snapshot(path, error)),
                }
            }
            Opened::Kine { kine, path, view } => {
                let view = kine::View { prefixes, history: view.history && !keys_only, ..view.clone() };
                match kine::Values::new(kine, &view) {
                    Ok(values) => Ok(Part::Kine(values, Arc::default(), path.clone())),
                    Err(error) => Err(Failure::Kine(error).in_file(path)),
                }
            }
        }
    }

    /// What is to be said of it once it was read.
    fn judge(&self, problems: &Problems, quiet: bool, condition: &mut Condition) -> Result<(), Failure> {
        let (snapshot, path, is_data_dir, skip_hash_check, trailer) = match &self.source {
            Opened::Etcd { .. } => return Ok(()),
            Opened::Kine { kine, .. } => {
                condition.add_rows(problems);
                if !kine.takes_locks() {
                    condition.notes.push(
                        "there is no log (-wal) beside the database: when k3s was running, a copy lacks its last writes".to_owned(),
                    );
                }
                return Ok(());
            }
            Opened::Snapshot { snapshot, path, is_data_dir, skip_hash_check, trailer, .. } => {
                (snapshot, path, is_data_dir, skip_hash_check, trailer)
            }
        };
        let hashed = trailer.lock().unwrap_or_else(PoisonError::into_inner).take().map(JoinHandle::join);
        condition.add_problems(problems);
        condition.notes.extend(snapshot.db().warnings().iter().map(ToString::to_string));
        if *is_data_dir && let Some(note) = note_of_log(snapshot, path) {
            super::warn(quiet, format_args!("{}: {note}", self.name));
            condition.notes.push(note);
        }
        let trailer = match hashed {
            Some(Ok(trailer)) => trailer?,
            _ => snapshot.trailer()?,
        };
        if !is_as_expected(&trailer, *is_data_dir) {
            let skipped = if *skip_hash_check { " (--skip-hash-check)" } else { "" };
            super::warn(quiet, format_args!("{}: {trailer}{skipped}", self.name));
            condition.warned = Some(format!("{trailer}{skipped}"));
            condition.notes.extend(condition.warned.clone());
            condition.suspicious |= trailer.is_wrong() && !skip_hash_check;
        }
        if snapshot.db().has_changed().map_err(snapshot::Error::from)? {
            condition.partial = true;
            condition.notes.push(snapshot::bbolt::Warning::Changed.to_string());
        }
        Ok(())
    }
}

impl Context {
    pub(super) async fn new(
        source: &SourceArgs,
        selection: &SelectionArgs,
        want: Want,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let selection = checked_selection(selection)?;
        let overrides = overrides_of(&source.overrides)?;
        if source.file.revision.is_some() && !overrides.is_empty() {
            return Err(Failure::Usage(format!(
                "--revision is a revision of one etcd, and {OVERRIDES} names others, which count their own: read them one by one"
            )));
        }
        if source.file.snapshot.is_none() && source.file.data_dir.is_none() && source.file.kine.is_none() {
            refuse_twice(&source.etcd, &overrides)?;
        }
        let mut backends =
            vec![Backend::open(&source.file, &source.etcd, &source.etcd.endpoints, "--endpoints", want).await?];
        for (backend, servers) in overrides.backends().iter().enumerate() {
            let file = source.file.replaced(servers)?;
            let opened = Backend::open(&file, &source.etcd, servers, OVERRIDES, want).await;
            let Backend { source, name } = opened.inspect_err(|_| say_which(&overrides, backend))?;
            backends.push(Backend { source, name: name_of_backend(&overrides, backend, &name) });
        }
        let name = backends.iter().map(|backend| backend.name.as_str()).collect::<Vec<_>>().join("; ");
        let routed = want.routed;
        Ok(Self { backends, overrides, routed, selection, name, stop: &STOP, display: Display::new(quiet), quiet })
    }

    /// What the source is, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self.backends.first().map(|backend| &backend.source) {
            Some(Opened::Snapshot { .. } | Opened::Kine { .. }) => "file",
            _ => "etcd",
        }
    }

    /// The selected values, counted.
    pub(super) async fn values(&self) -> Result<Values, Failure> {
        self.of_prefixes(self.selection.prefixes()?, false).await
    }

    /// Every key that begins with a slash, as those of all API servers do, whatever their prefix.
    pub(super) async fn whole_store(&self) -> Result<Values, Failure> {
        self.of_prefixes(vec![b"/".to_vec()], false).await
    }

    /// Every key of the layout, for the search for moved values.
    pub(super) async fn all_keys(&self) -> Result<Values, Failure> {
        self.of_prefixes(self.selection.layout.all(), true).await
    }

    async fn of_prefixes(&self, prefixes: Vec<Vec<u8>>, keys_only: bool) -> Result<Values, Failure> {
        let mut parts = Vec::with_capacity(self.backends.len());
        for backend in &self.backends {
            parts.push(backend.of_prefixes(prefixes.clone(), keys_only).await?);
        }
        let routes = Routes {
            overrides: self.overrides.clone(),
            layout: self.selection.layout.clone(),
            routed: self.routed,
            elsewhere: Arc::default(),
        };
        Ok(Values { parts, at: 0, routes })
    }

    /// What is to be said of the source once it was read, and how much that weighs.
    pub(super) fn condition(&self, read: &Read) -> Result<Condition, Failure> {
        let mut condition = Condition::default();
        for (backend, problems) in self.backends.iter().zip(&read.problems) {
            let before = condition.notes.len();
            backend.judge(problems, self.quiet, &mut condition)?;
            if self.backends.len() > 1 {
                let added = condition.notes.iter_mut().skip(before);
                added.for_each(|note| *note = format!("{}: {note}", backend.name));
            }
        }
        let elsewhere = read.elsewhere.count.load(Ordering::Relaxed);
        if elsewhere > 0 {
            let keys = read.elsewhere.keys.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
            let more = if elsewhere > SHOWN_ELSEWHERE as u64 { ", …" } else { "" };
            condition.notes.push(format!(
                "{elsewhere} values are where {OVERRIDES} has API servers look for others: none of them reads these ({keys}{more})"
            ));
        }
        Ok(condition)
    }
}

/// Whether there is nothing to say of a hash. etcd's own database never has one.
pub(super) fn is_as_expected(trailer: &Trailer, is_data_dir: bool) -> bool {
    *trailer == Trailer::Ok || (is_data_dir && matches!(trailer, Trailer::Missing { .. }))
}

/// How far what was read can be relied on.
#[derive(Default)]
pub(super) struct Condition {
    pub(super) notes: Vec<String>,
    /// The one of them that was told already.
    pub(super) warned: Option<String>,
    /// Something could not be read.
    pub(super) partial: bool,
    /// The file is known to be other than it was written.
    pub(super) suspicious: bool,
}

/// How many places of damage are told.
const SHOWN_DAMAGE: usize = 20;

impl Condition {
    fn add_rows(&mut self, problems: &Problems) {
        let Problems::Kine(problems) = problems else { return };
        let problems = problems.lock().unwrap_or_else(PoisonError::into_inner);
        self.partial |= !problems.is_clean();
        self.notes.extend(problems.lines().into_iter().take(SHOWN_DAMAGE).map(|line| format!("damaged: {line}")));
    }

    fn add_problems(&mut self, problems: &Problems) {
        let Problems::Snapshot(problems) = problems else { return };
        let lines = problems.lines();
        let lost = problems.damaged + problems.bad_records;
        self.partial |= lost > 0;
        self.notes.extend(lines.iter().take(SHOWN_DAMAGE).map(|line| format!("damaged: {line}")));
        if lost > SHOWN_DAMAGE as u64 {
            self.notes.push(format!("{lost} places are damaged; `atrest snapshot inspect` shows more"));
        }
        if problems.recovered > 0 {
            self.notes.push(format!(
                "{} records of lost revisions were found in pages that nothing refers to",
                problems.recovered
            ));
        }
        if problems.damaged > 0 {
            self.notes.push(
                "what is lost may be newer: overwritten values and deleted objects may be among what was read"
                    .to_owned(),
            );
        }
        if problems.maybe_compacted > 0 {
            self.notes.push(format!(
                "{} of them are from before the last compaction: keys that were deleted may be among them",
                problems.maybe_compacted
            ));
        }
        if problems.inconsistent > 0 {
            self.notes.push(format!("{} records contradict themselves", problems.inconsistent));
        }
    }
}

/// What is to be said of the log beside a database: requests that are in it alone.
pub(super) fn note_of_log(snapshot: &Snapshot, database: &Path) -> Option<String> {
    let member = database.parent()?.parent()?;
    let data_dir = DataDir::new(member).ok()?;
    match backup::not_yet_in_db(&data_dir, snapshot.meta().consistent_index.unwrap_or(0)) {
        Ok(entries) if entries.is_empty() => None,
        Ok(entries) => {
            let which = match entries.len() {
                1 => "an entry of the write-ahead log is not in the database yet, and is".to_owned(),
                count => format!("{count} entries of the write-ahead log are not in the database yet, and are"),
            };
            Some(format!("{which} left out here: `atrest snapshot inspect` names them"))
        }
        Err(error) => Some(format!("the write-ahead log was not looked at: {}", atrest::causes::Chain(&error))),
    }
}

/// The value of a key in a file, and the exit code that the state of the file deserves.
pub(super) async fn value_of(args: &FileArgs, key: &[u8], quiet: bool) -> Result<(StoredValue, u8), Failure> {
    let prefixes = vec![key.to_vec()];
    let (mut values, suspicious) = match &args.kine {
        Some(path) => {
            let failed = |error| Failure::Kine(error).in_file(path);
            let view = kine::View { revision: args.revision, prefixes, history: false };
            let kine = Arc::new(Kine::open(path).map_err(failed)?);
            let values = kine::Values::new(&kine, &view).map_err(failed)?;
            (Part::Kine(values, Arc::default(), path.clone()), false)
        }
        None => {
            let OpenedFile { snapshot, path, name } = open_file(args)?;
            let view = View { revision: args.revision, prefixes, ..View::default() };
            let values = snapshot::Values::new(&snapshot, &view).map_err(|error| Failure::of_snapshot(&path, error))?;
            let is_data_dir = args.snapshot.is_none();
            let suspicious = is_suspicious(&snapshot, &name, is_data_dir, args.skip_hash_check, quiet)?;
            (Part::Snapshot(values, path), suspicious)
        }
    };
    let mut condition = Condition { suspicious, ..Condition::default() };
    condition.add_problems(&values.problems());
    condition.notes.iter().for_each(|note| super::warn(quiet, format_args!("{note}")));
    while let Some(page) = values.next_page().await? {
        if let Some(value) = page.values.into_iter().find(|value| value.key == key) {
            return Ok((value, exit_code(!condition.partial, condition.suspicious)));
        }
    }
    let name = String::from_utf8_lossy(key).into_owned();
    Err(Failure::NotFound { resource: String::new(), name, partial: condition.partial })
}

/// A snapshot, or the database of a data directory.
pub(super) struct OpenedFile {
    pub(super) snapshot: Arc<Snapshot>,
    /// What reports call it.
    pub(super) name: String,
    /// - for standard input.
    pub(super) path: PathBuf,
}

/// Opens the file that is named, and says what it is.
pub(super) fn open_file(args: &FileArgs) -> Result<OpenedFile, Failure> {
    let options =
        snapshot::Options { mode: if args.salvage { Mode::Salvage } else { Mode::Strict }, meta: args.meta.into() };
    let (path, name) = match (&args.snapshot, &args.data_dir) {
        (Some(file), _) if file == Path::new("-") => (file.clone(), "snapshot on standard input".to_owned()),
        (Some(file), _) => (file.clone(), format!("snapshot {}", file.display())),
        (None, Some(directory)) => {
            (DataDir::new(directory)?.database(), format!("data directory {}", directory.display()))
        }
        (None, None) => return Err(Failure::Usage("name a file with --snapshot or --data-dir".to_owned())),
    };
    match Snapshot::open(&path, options) {
        Ok(snapshot) => Ok(OpenedFile { snapshot: Arc::new(snapshot), name, path }),
        Err(error) => Err(Failure::of_snapshot(&path, error)),
    }
}

/// The values of one etcd, or of one file.
enum Part {
    Etcd(Ranges),
    /// And the file that they are of.
    Snapshot(snapshot::Values, PathBuf),
    /// What could not be read is known only at the end.
    Kine(kine::Values, Arc<Mutex<kine::Problems>>, PathBuf),
}

/// The values of all of them, one after the other.
pub(super) struct Values {
    parts: Vec<Part>,
    at: usize,
    routes: Routes,
}

/// What API servers look for where.
struct Routes {
    overrides: ServersOverrides,
    layout: KeyLayout,
    routed: bool,
    /// Values that are where nobody looks for them.
    elsewhere: Arc<Elsewhere>,
}

/// Values that are where nobody looks for them: how many, and the first of them.
#[derive(Default)]
struct Elsewhere {
    count: AtomicU64,
    keys: Mutex<Vec<String>>,
}

/// How many keys are named.
const SHOWN_ELSEWHERE: usize = 3;

impl Routes {
    /// Counts the values of a page that are not where they are looked for, and leaves them out where only others are wanted.
    fn apply(&self, page: &mut Page, part: usize) {
        if self.overrides.is_empty() {
            return;
        }
        let backend = part.checked_sub(1);
        let is_here = |value: &StoredValue| {
            let place = self.overrides.backend_of_key(&self.layout, &value.key);
            // In the other etcds there is a key of the compactor too, and what is of no resource.
            place == backend || (place.is_none() && self.layout.locate(&value.key).resource().is_none())
        };
        for value in page.values.iter().filter(|value| !is_here(value)) {
            self.elsewhere.count.fetch_add(1, Ordering::Relaxed);
            let mut keys = self.elsewhere.keys.lock().unwrap_or_else(PoisonError::into_inner);
            if keys.len() < SHOWN_ELSEWHERE {
                keys.push(value.key.escape_ascii().to_string());
            }
        }
        if self.routed {
            page.values.retain(is_here);
        }
    }
}

/// What of a source could not be read.
enum Problems {
    None,
    Snapshot(snapshot::Problems),
    Kine(Arc<Mutex<kine::Problems>>),
}

/// What is known of values once they were read.
pub(super) struct Read {
    problems: Vec<Problems>,
    elsewhere: Arc<Elsewhere>,
}

impl Part {
    fn problems(&self) -> Problems {
        match self {
            Self::Etcd(_) => Problems::None,
            Self::Snapshot(values, _) => Problems::Snapshot(values.problems().clone()),
            Self::Kine(_, problems, _) => Problems::Kine(Arc::clone(problems)),
        }
    }
}

impl Values {
    /// What is to be told when they were read.
    pub(super) fn problems(&self) -> Read {
        let problems = self.parts.iter().map(Part::problems).collect();
        Read { problems, elsewhere: Arc::clone(&self.routes.elsewhere) }
    }
}

impl Source for Values {
    type Error = Failure;

    async fn next_page(&mut self) -> Result<Option<Page>, Failure> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let page = part.next_page().await?;
            let Some(mut page) = page else {
                self.at += 1;
                continue;
            };
            self.routes.apply(&mut page, self.at);
            return Ok(Some(page));
        }
        Ok(None)
    }

    fn expected(&self) -> Option<u64> {
        self.parts.iter().map(Source::expected).sum()
    }

    /// That of the first: those of different etcds have nothing to do with each other.
    fn revision(&self) -> Option<i64> {
        self.parts.first()?.revision()
    }

    fn is_consistent(&self) -> bool {
        self.parts.iter().all(Source::is_consistent)
    }
}

impl Source for Part {
    type Error = Failure;

    async fn next_page(&mut self) -> Result<Option<Page>, Failure> {
        match self {
            Self::Etcd(ranges) => Ok(ranges.next_page().await?),
            Self::Snapshot(values, path) => values.next_page().await.map_err(|error| Failure::of_snapshot(path, error)),
            Self::Kine(values, problems, path) => {
                let page = values.next_page().await.map_err(|error| Failure::Kine(error).in_file(path))?;
                problems.lock().unwrap_or_else(PoisonError::into_inner).clone_from(values.problems());
                Ok(page)
            }
        }
    }

    fn expected(&self) -> Option<u64> {
        match self {
            Self::Etcd(ranges) => ranges.expected(),
            Self::Snapshot(values, _) => values.expected(),
            Self::Kine(values, ..) => values.expected(),
        }
    }

    fn revision(&self) -> Option<i64> {
        match self {
            Self::Etcd(ranges) => ranges.revision(),
            Self::Snapshot(values, _) => values.revision(),
            Self::Kine(values, ..) => values.revision(),
        }
    }

    fn is_consistent(&self) -> bool {
        match self {
            Self::Etcd(ranges) => ranges.is_consistent(),
            Self::Snapshot(values, _) => values.is_consistent(),
            Self::Kine(values, ..) => values.is_consistent(),
        }
    }
}
