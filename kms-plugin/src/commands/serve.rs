//! `serve`: the server, its signals, and what the service manager is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atrest::config::{Endpoint, InvalidDuration, parse_timeout};
use atrest_kms_plugin::backend::Backend;
#[cfg(feature = "aws")]
use atrest_kms_plugin::backend::aws;
use atrest_kms_plugin::backend::keyring::KeyringBackend;
#[cfg(feature = "pkcs11")]
use atrest_kms_plugin::backend::pkcs11;
#[cfg(feature = "vault")]
use atrest_kms_plugin::backend::vault;
use atrest_kms_plugin::keyring::{FileError, KeyringArgs};
use atrest_kms_plugin::serve::{Access, Condition, Handle, HealthAddress, LateBackend, Options, Server, StatusVersion};
use clap::ValueEnum;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, is_of_flags};
use crate::hint::hint;
use crate::process;

/// Not a port of Kubernetes, of etcd or of the usual add-ons of a control plane.
const HEALTH_ADDRESS: &str = "127.0.0.1:8477";
const GROUPS: &str = "/etc/group";
/// Before a keyring that could not be opened is tried again; the next pauses are twice as long each.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where the keys are
    #[arg(long, value_enum, value_name = "BACKEND")]
    backend: BackendKind,
    /// Socket that kube-apiserver connects to, as in its EncryptionConfiguration; unix:///@NAME is an abstract one
    #[arg(long, value_parser = Endpoint::parse, value_name = "URL", default_value = "unix:///run/atrest-kms/kms.sock")]
    listen: Endpoint,
    /// Who may connect: the mode of the socket's file
    #[arg(long, value_parser = mode, value_name = "MODE", default_value = "0600")]
    socket_mode: u32,
    /// Group of the socket's file: a name in /etc/group, or a number
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Only users with these numbers may connect; repeatable
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// Open connections at most; kube-apiserver keeps one
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "COUNT", default_value_t = 128)]
    max_connections: u16,
    /// What Status says that the plugin speaks: kube-apiserver 1.27 and 1.28 accept v2beta1 only
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Version::V2)]
    status_version: Version,
    /// Where /livez, /readyz and /metrics are: ADDRESS:PORT, unix:///PATH or none
    #[arg(long, value_parser = health, value_name = "ADDRESS", default_value = HEALTH_ADDRESS)]
    health: Health,
    /// Time for open calls to end on SIGTERM
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "10s")]
    drain_timeout: Duration,
    // The groups with a heading come last: a heading holds for all that follows.
    #[command(flatten, next_help_heading = "Keyring")]
    keyring: KeyringArgs,
    #[cfg(feature = "pkcs11")]
    #[command(flatten, next_help_heading = "PKCS#11")]
    pkcs11: pkcs11::Options,
    #[cfg(feature = "vault")]
    #[command(flatten, next_help_heading = "Vault and OpenBao")]
    vault: vault::Options,
    #[cfg(feature = "aws")]
    #[command(flatten, next_help_heading = "AWS KMS")]
    aws: aws::Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    #[value(name = "v2")]
    V2,
    #[value(name = "v2beta1")]
    V2Beta1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendKind {
    /// A file of this machine
    Keyring,
    /// A token: an HSM, a smart card, SoftHSM
    #[cfg(feature = "pkcs11")]
    Pkcs11,
    /// The Transit engine of HashiCorp Vault or OpenBao
    #[cfg(feature = "vault")]
    Vault,
    /// AWS KMS
    #[cfg(feature = "aws")]
    Aws,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Health(Option<HealthAddress>);

fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    parse_timeout(text)
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not a mode of octal digits, as 0600".to_owned()),
    }
}

fn health(text: &str) -> Result<Health, String> {
    if text == "none" {
        return Ok(Health(None));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Health(Some(HealthAddress::Tcp(address))));
    }
    match Endpoint::parse(text) {
        Ok(endpoint) => Ok(Health(Some(HealthAddress::Unix(endpoint)))),
        Err(error) => Err(format!("not ADDRESS:PORT, and no URL of a socket: {error}")),
    }
}

/// The number of a group.
fn group(name: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string(GROUPS)
        .map_err(|error| Failure::Usage(format!("--socket-group: {GROUPS}: {error}; give the group's number")))?;
    group_in(&groups, name).ok_or_else(|| Failure::Usage(format!("--socket-group: no group {name} in {GROUPS}")))
}

/// group(5): `name:password:number:members`.
fn group_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

fn options(args: &ServeArgs) -> Result<Options, Failure> {
    let group = args.socket_group.as_deref().map(group).transpose()?;
    let mut options = Options::new(args.listen.clone());
    options.access = Access { mode: args.socket_mode, group };
    options.allowed_uids.clone_from(&args.allow_uid);
    options.max_connections = args.max_connections.into();
    options.status_version = match args.status_version {
        Version::V2 => StatusVersion::V2,
        Version::V2Beta1 => StatusVersion::V2Beta1,
    };
    options.health.clone_from(&args.health.0);
    options.drain_timeout = args.drain_timeout;
    Ok(options)
}

/// The keys, and the same where they could not be opened yet.
struct Opened {
    backend: Arc<dyn Backend>,
    late: Option<Arc<LateBackend>>,
}

impl From<Arc<dyn Backend>> for Opened {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self { backend, late: None }
    }
}

/// Only flags that are wrong end the plugin. Whatever else is wrong is said in Status, until it is right.
fn open_backend(args: &ServeArgs) -> Result<Opened, Failure> {
    match args.backend {
        BackendKind::Keyring => open_keyring(&args.keyring),
        #[cfg(feature = "pkcs11")]
        BackendKind::Pkcs11 => Ok(Opened::from(Arc::new(pkcs11::Pkcs11::open(&args.pkcs11)?) as Arc<dyn Backend>)),
        #[cfg(feature = "vault")]
        BackendKind::Vault => Ok(Opened::from(Arc::new(vault::Vault::open(&args.vault)?) as Arc<dyn Backend>)),
        #[cfg(feature = "aws")]
        BackendKind::Aws => Ok(Opened::from(Arc::new(aws::Aws::open(&args.aws)?) as Arc<dyn Backend>)),
    }
}

fn open_keyring(args: &KeyringArgs) -> Result<Opened, Failure> {
    let path = args.keyring.clone().filter(|path| !path.as_os_str().is_empty());
    let path = path.ok_or_else(|| Failure::Usage("--backend keyring: name the file by --keyring".to_owned()))?;
    let failed = {
        let path = path.clone();
        move |source| Failure::Keyring(FileError { path: path.clone(), source })
    };
    let opener = args.seal.opener().map_err(&failed)?;
    let source = match KeyringBackend::open(&path, opener.clone()) {
        Ok(backend) => return Ok(Opened::from(Arc::new(backend) as Arc<dyn Backend>)),
        Err(source) if is_of_flags(&source) => return Err(failed(source)),
        Err(source) => source,
    };
    let failure = failed(source);
    tracing::error!("{failure}; it is tried again while the plugin serves");
    if let Some(hint) = hint(&failure) {
        tracing::error!("hint: {hint}");
    }
    let again = move || match KeyringBackend::open(&path, opener.clone()) {
        Ok(backend) => Ok(Arc::new(backend) as Arc<dyn Backend>),
        Err(source) => Err(failed(source).to_string()),
    };
    let late = Arc::new(LateBackend::new("keyring", true, failure.to_string(), again));
    Ok(Opened { backend: Arc::clone(&late) as Arc<dyn Backend>, late: Some(late) })
}

/// Opens it, with longer and longer pauses: each try may cost what a passphrase costs.
async fn open_late(late: Arc<LateBackend>, server: Handle) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        // SIGHUP may have done it.
        if late.is_open() {
            return;
        }
        // What goes wrong is in Status, and is logged from there.
        if server.reload().await.is_ok() {
            tracing::info!("the keys could be read");
            return;
        }
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let options = options(args)?;
    process::lock_memory();
    let system = |what| move |source| Failure::System { what, source };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system("cannot start threads"))?;
    let result = runtime.block_on(async {
        // Before anything else: until they are expected, these signals end the process.
        let signals = Signals::expect().map_err(system("cannot receive signals"))?;
        let opened = open_backend(args)?;
        serve(opened, options, signals).await
    });
    // A backend's call that hangs does not keep the process.
    runtime.shutdown_background();
    result
}

async fn serve(opened: Opened, options: Options, signals: Signals) -> Result<(), Failure> {
    let Opened { backend, late } = opened;
    let Signals { mut terminate, mut interrupt, hang_up } = signals;
    let listen = options.listen.clone();
    let server = Server::bind(backend, options).await?;
    let health = server.health_address().map(tracing::field::display);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %listen, health, "serving");
    tell(&[NotifyState::Ready]);
    let manager = tokio::spawn(tell_condition(server.handle()));
    let reloader = tokio::spawn(reload_on(hang_up, server.handle()));
    let opener = late.map(|late| tokio::spawn(open_late(late, server.handle())));
    let stop = async {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: stopping");
        tell(&[NotifyState::Stopping]);
    };
    let result = server.run(stop).await;
    manager.abort();
    reloader.abort();
    if let Some(opener) = opener {
        opener.abort();
    }
    tracing::info!("stopped");
    Ok(result?)
}

/// The signals that a server expects.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn expect() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Has the backend read its keys again, at each SIGHUP.
async fn reload_on(mut hang_up: Signal, server: Handle) {
    while hang_up.recv().await.is_some() {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
        match server.reload().await {
            Ok(()) => tracing::info!("SIGHUP: the keys were read again"),
            Err(error) => tracing::error!("SIGHUP: the keys could not be read again, and stay as they were: {error}"),
        }
        tell(&[NotifyState::Ready]);
    }
}

/// Tells the service manager how the plugin is, whenever that changes.
async fn tell_condition(server: Handle) {
    let mut condition = server.condition();
    loop {
        let text = status_text(&condition.borrow_and_update());
        tell(&[NotifyState::Status(&text)]);
        if condition.changed().await.is_err() {
            return;
        }
    }
}

fn status_text(condition: &Condition) -> String {
    let problems: Vec<_> = condition.problems().collect();
    if !problems.is_empty() {
        // One line: the next would be another assignment of the protocol.
        return format!("Not healthy: {}", problems.join("; ").replace('\n', " "));
    }
    let key = condition.key_id_hash().map(|hash| format!(", encrypting by {hash}")).unwrap_or_default();
    let warning = condition.warning().map(|warning| format!("; {}", warning.replace('\n', " "))).unwrap_or_default();
    format!("Healthy{key}{warning}")
}

/// Tells the service manager, if there is one.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_their_names() {
        let groups = "root:x:0:\nkube:x:1337:a,b\nbroken\nkube2:x:many:\n";
        assert_eq!(group_in(groups, "kube"), Some(1337));
        assert_eq!(group_in(groups, "root"), Some(0));
        assert_eq!(group_in(groups, "broken"), None);
        assert_eq!(group_in(groups, "kube2"), None);
        assert_eq!(group_in(groups, "kub"), None);
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("600"), Ok(0o600));
        for wrong in ["", "0o600", "0668", "1777", "rw", "-1"] {
            assert_eq!(mode(wrong), Err("not a mode of octal digits, as 0600".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn health_is_an_address_a_socket_or_nothing() {
        let tcp = |text: &str| Ok(Health(Some(HealthAddress::Tcp(text.parse().unwrap()))));
        assert_eq!(health("127.0.0.1:8477"), tcp("127.0.0.1:8477"));
        assert_eq!(health("[::1]:80"), tcp("[::1]:80"));
        assert_eq!(health("none"), Ok(Health(None)));
        let socket = Endpoint::parse("unix:///run/health.sock").unwrap();
        assert_eq!(health("unix:///run/health.sock"), Ok(Health(Some(HealthAddress::Unix(socket)))));
        for wrong in ["", "8477", "localhost:8477", "http://127.0.0.1:8477"] {
            assert!(health(wrong).unwrap_err().starts_with("not ADDRESS:PORT, and no URL of a socket: "), "{wrong}");
        }
    }
}
