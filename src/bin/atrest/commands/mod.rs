//! From what was typed to calls of the library. All commands share what is in this file.

mod config;
mod crypt;
mod decode;
mod doctor;
mod get;
mod kms;
mod lines;
mod rekey;
mod scan;
mod snapshot;
mod source;
mod verify;
mod watch;

use std::fmt;
use std::io::{BufWriter, Read as _, StdoutLock, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use atrest::config::{EncryptionConfiguration, Options};
use atrest::kms::Kms;
use atrest::report::{Class, VerifyRow};
use atrest::resource::{GroupResource, KeyLayout, Selection};
use atrest::secret::Password;
use atrest::transformer::ResourceTransformers;
use zeroize::Zeroizing;

use crate::args::{
    Args, Command, ConfigArgs, ConfigCommand, DoctorArgs, DoctorCommand, EtcdArgs, KmsArgs, KmsCommand, SelectionArgs,
};
use crate::failure::{Failure, PARTIAL, USAGE};

/// Does what was asked, and gives the exit code.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    match &args.command {
        Command::Config(ConfigCommand::Check(check)) => config::check(check, args.quiet),
        Command::Kms(KmsCommand::Check(check)) => block_on(kms::run(check)),
        Command::Doctor(DoctorArgs { command: Some(DoctorCommand::Explain(text)), .. }) => doctor::explain(text),
        Command::Doctor(doctor) => block_on(doctor::run(doctor, args.quiet)),
        Command::Get(get) => block_on(get::run(get, args.quiet)),
        Command::Watch(watch) => block_on(watch::run(watch, args.quiet)),
        Command::Decode(decode) => decode::run(decode),
        Command::Decrypt(decrypt) => crypt::decrypt(decrypt, args.quiet),
        Command::Encrypt(crypt) => crypt::encrypt(crypt, args.quiet),
        Command::Snapshot(command) => block_on(snapshot::run(command, args.quiet)),
        Command::Scan(scan) => block_on(scan::run(scan, args.quiet)),
        Command::Verify(verify) => block_on(verify::run(verify, args.quiet)),
        Command::Rekey(rekey) => block_on(rekey::run(rekey, args.quiet)),
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Output)?;
    let result = runtime.block_on(future);
    // Connections that hang must not hold the program.
    runtime.shutdown_background();
    result
}

fn selection_of(args: &SelectionArgs) -> Result<Selection, Failure> {
    if args.namespace.as_deref() == Some("") {
        return Err(Failure::Usage("--namespace is empty: leave it out for all namespaces".to_owned()));
    }
    Ok(Selection {
        layout: layout_of(&args.etcd_prefix),
        resources: args.resource.iter().map(|text| GroupResource::resolve(text.trim())).collect(),
        namespace: args.namespace.clone(),
        key_prefix: args.prefix.as_ref().map(|prefix| prefix.clone().into_bytes()),
    })
}

fn layout_of(prefixes: &[String]) -> KeyLayout {
    if prefixes.is_empty() { KeyLayout::default() } else { KeyLayout::new(prefixes) }
}

fn given(file: Option<&PathBuf>) -> Option<PathBuf> {
    file.filter(|file| !file.as_os_str().is_empty()).cloned()
}

fn user_of(source: &EtcdArgs) -> Result<Option<(String, Password)>, Failure> {
    let Some(user) = source.user.as_deref().filter(|user| !user.is_empty()) else { return Ok(None) };
    let password = source.password.as_deref().filter(|password| !password.is_empty());
    let (user, password) = match (user.split_once(':'), password) {
        // The variable may hold both.
        (Some((user, _)), Some(password)) => (user, password),
        (None, Some(password)) => (user, password),
        (Some((user, password)), None) => (user, password),
        (None, None) => {
            return Err(Failure::Usage(
                "--user is given without a password: set ETCDCTL_PASSWORD, or --password".to_owned(),
            ));
        }
    };
    Ok(Some((user.to_owned(), Password::new(password.to_owned()))))
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Where a file is being written, which must not be left there when the program ends at once: it may hold everything in the clear.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn remove_unfinished() {
    let directory = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(entries) = directory.and_then(|directory| std::fs::read_dir(directory).ok()) else { return };
    let ours = format!(".atrest-{}-", std::process::id());
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)) {
        _ = std::fs::remove_file(entry.path());
    }
}

/// Set by the first SIGINT or SIGTERM; the second ends the program at once.
fn stop_signal() -> &'static AtomicBool {
    // Of two that listen, the second would take the first signal for the second one.
    static LISTENING: std::sync::Once = std::sync::Once::new();
    LISTENING.call_once(listen);
    &STOP
}

fn listen() {
    tokio::spawn(async {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if STOP.swap(true, Ordering::SeqCst) {
                remove_unfinished();
                std::process::exit(i32::from(PARTIAL));
            }
            _ = writeln!(std::io::stderr(), "atrest: stopping; once more to stop at once");
        }
    });
}

fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 * 1024, std::io::stdout().lock())
}

/// What opens and seals values: the keys of the configurations, and the KMS plugins that they name.
struct Keys {
    transformers: Arc<ResourceTransformers>,
    kms: Arc<Kms>,
}

impl Keys {
    fn new(args: &ConfigArgs, quiet: bool) -> Result<Self, Failure> {
        Self::of(&args.encryption_provider_config, &args.kms, quiet)
    }

    /// Of no file is what is stored in the clear.
    fn of(files: &[PathBuf], args: &KmsArgs, quiet: bool) -> Result<Self, Failure> {
        let transformers = transformers(files, quiet)?;
        let options = atrest::kms::Options {
            concurrency: usize::from(args.kms_concurrency),
            endpoints: args.kms_endpoint.clone(),
            ..atrest::kms::Options::default()
        };
        let kms =
            Kms::new(&transformers, options).map_err(|error| Failure::Usage(format!("--kms-endpoint: {error}")))?;
        Ok(Self { transformers, kms: Arc::new(kms) })
    }
}

/// Reads the configurations; the first writes.
fn transformers(files: &[PathBuf], quiet: bool) -> Result<Arc<ResourceTransformers>, Failure> {
    let configurations = files.iter().map(|file| configuration(file, quiet)).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(ResourceTransformers::from_configurations(&configurations)?))
}

fn configuration(file: &Path, quiet: bool) -> Result<EncryptionConfiguration, Failure> {
    let text = read_file(file)?;
    let loaded = atrest::config::load(&text, &Options::default());
    // A file that names plugins only holds no key.
    let holds_keys = |config: &EncryptionConfiguration| {
        config.resources.iter().flat_map(|entry| &entry.providers).any(|provider| !provider.keys().is_empty())
    };
    if loaded.as_ref().map_or(true, |loaded| holds_keys(&loaded.config)) {
        warn_of_mode(file, quiet);
    }
    match loaded {
        Ok(loaded) => {
            let resources: Vec<_> = loaded.config.covered().iter().map(ToString::to_string).collect();
            tracing::info!(file = %file.display(), resources = resources.join(","), "configuration");
            for warning in &loaded.warnings {
                warn(quiet, format_args!("{}:{warning}", file.display()));
            }
            Ok(loaded.config)
        }
        Err(invalid) => Err(Failure::Config { path: file.to_owned(), invalid }),
    }
}

/// A file, or standard input for `-`. It may hold keys, so it is wiped when it was read.
fn read_file(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failed = |source| Failure::File { path: file.to_owned(), source };
    if file == Path::new("-") {
        let mut text = Zeroizing::new(Vec::new());
        std::io::stdin().lock().read_to_end(&mut text).map_err(failed)?;
        return Ok(text);
    }
    std::fs::read(file).map(Zeroizing::new).map_err(failed)
}

/// What should be known and ends nothing.
fn warn(quiet: bool, message: fmt::Arguments<'_>) {
    if !quiet {
        _ = writeln!(std::io::stderr(), "atrest: warning: {message}");
    }
}

/// Which values of a file cannot be shown, and why.
fn warn_of_unreadable(findings: &[VerifyRow], configs: &[PathBuf], quiet: bool) {
    for row in findings {
        warn(
            quiet,
            format_args!("{} (revision {}): {}: {}", row.value.key, row.value.mod_revision, row.class, row.message),
        );
    }
    if !quiet && configs.is_empty() && findings.iter().any(|row| row.class == Class::NoProvider) {
        _ = writeln!(
            std::io::stderr(),
            "atrest: hint: no configuration was named: --encryption-provider-config takes kube-apiserver's"
        );
    }
}

fn warn_of_mode(file: &Path, quiet: bool) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = std::fs::metadata(file) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & 0o044 != 0 {
        warn(
            quiet,
            format_args!("{} holds keys and others than its owner can read it (mode {mode:03o})", file.display()),
        );
    }
}

/// The exit code of a run that may have been interrupted.
fn exit_code(complete: bool, findings: bool) -> u8 {
    match (complete, findings) {
        (false, _) => PARTIAL,
        (true, true) => crate::failure::FINDINGS,
        (true, false) => 0,
    }
}

const _: () = assert!(USAGE == 2 && PARTIAL == 4, "clap exits with 2 for usage, and so do we");
