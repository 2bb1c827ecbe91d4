mod doctor;
mod objects;
mod snapshot;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use atrest::config::Endpoint;
use atrest::report::Dimension;
use atrest::snapshot::MetaChoice;
use atrest::transformer::KeyLabel;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use zeroize::Zeroizing;

pub(crate) use doctor::{DoctorArgs, DoctorCommand, DoctorFileArgs, ExplainArgs, MetricsArgs};
pub(crate) use objects::{DecodeArgs, GetArgs, ObjectForm, ShownArgs, WatchArgs, WatchForm};
pub(crate) use snapshot::{
    SnapshotArg, SnapshotCommand, SnapshotDecryptArgs, SnapshotDiffArgs, SnapshotExportArgs, SnapshotHistoryArgs,
    SnapshotInspectArgs, SnapshotRedactArgs, SnapshotRekeyArgs, SnapshotResidueArgs, TargetArgs,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done, and nothing found
  1  done, with findings: unreadable values, or what --expect forbids
  2  wrong usage or configuration
  3  cannot connect to, or read, the source
  4  partial: interrupted, some writes failed, or a damaged source was read in part";

/// See, verify and rotate what is encrypted at rest in a Kubernetes cluster's etcd.
#[derive(Debug, Parser)]
#[command(name = "atrest", version, after_help = EXIT_CODES, propagate_version = true, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// No progress and no warnings
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// More messages on standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count what is stored under which key, from the stored headers; needs no key
    Scan(ScanArgs),
    /// Open every value, and say what cannot be read and why
    Verify(VerifyArgs),
    /// Store everything stale again under the first provider; shows the plan, and writes with --yes
    Rekey(RekeyArgs),
    /// Print decrypted objects as kubectl does; the data of Secrets only with --reveal
    Get(GetArgs),
    /// Show changes as they happen, decrypted, with the key that each value is stored under
    Watch(WatchArgs),
    /// Decode plaintext from standard input to an object: what `decrypt` gives, or what is stored in the clear
    Decode(DecodeArgs),
    /// Open stored values from standard input, or the value of a key in a file
    Decrypt(DecryptArgs),
    /// Seal plaintext from standard input as kube-apiserver would store it
    Encrypt(CryptArgs),
    /// Look into snapshots and data directories, and write them anew
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Check an EncryptionConfiguration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at a KMS plugin
    #[command(subcommand)]
    Kms(KmsCommand),
    /// Say where a fault is: the API server, the transformer, the KMS, the network or etcd
    Doctor(DoctorArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KmsCommand {
    /// Say whether a KMS plugin behaves as kube-apiserver needs it, and how fast it is
    Check(KmsCheckArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether kube-apiserver accepts a file, and everything that is wrong with it
    Check(ConfigCheckArgs),
}

/// What opens the values, where they are encrypted.
#[derive(Debug, clap::Args)]
pub(crate) struct OptionalConfigArgs {
    /// kube-apiserver's EncryptionConfiguration; what is stored in the clear is read without. Of several, the first writes
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kms: KmsArgs,
}

/// Where API servers store.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct LayoutArgs {
    /// kube-apiserver's --etcd-prefix, when it is not /registry, /kubernetes.io or /openshift.io
    #[arg(long, value_name = "PREFIX")]
    pub(crate) etcd_prefix: Vec<String>,
}

/// Where the values come from: etcd, unless a file is named.
#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) overrides: OverridesArgs,
}

/// Resources that are stored elsewhere.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Source: more than one etcd")]
pub(crate) struct OverridesArgs {
    /// kube-apiserver's flag: resources that are stored in another etcd, as `/events#https://a:2379;https://b:2379`. With a file as
    /// the source, the file of that etcd: `/events#events.db`
    #[arg(long, value_name = "OVERRIDES")]
    pub(crate) etcd_servers_overrides: Vec<String>,
}

/// A file that is read in place of etcd.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Source: a file")]
pub(crate) struct FileArgs {
    /// Snapshot, or a copy of member/snap/db; also gzip, zstd or ZIP, and - for standard input
    #[arg(long, value_parser = file(), conflicts_with = "data_dir", value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Data directory of an etcd, running or not
    #[arg(long, value_parser = file(), value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// SQLite database of kine, as k3s has it in server/db/state.db
    #[arg(
        long,
        value_parser = file(),
        conflicts_with_all = ["snapshot", "data_dir", "salvage", "meta", "skip_hash_check"],
        value_name = "FILE"
    )]
    pub(crate) kine: Option<PathBuf>,
    /// The state at this revision, in place of the last
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "N")]
    pub(crate) revision: Option<i64>,
    /// Read what is left of a damaged file, and say what is lost
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Which of the two meta pages to believe: 0 and 1 are sometimes a state apart
    #[arg(long, value_enum, default_value_t = MetaPage::Auto, value_name = "PAGE")]
    pub(crate) meta: MetaPage,
    /// A file whose SHA-256 is wrong or missing is no finding
    #[arg(long)]
    pub(crate) skip_hash_check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetaPage {
    /// The newer one that is valid
    Auto,
    /// The first
    #[value(name = "0")]
    First,
    /// The second
    #[value(name = "1")]
    Second,
}

impl From<MetaPage> for MetaChoice {
    fn from(page: MetaPage) -> Self {
        match page {
            MetaPage::Auto => Self::Auto,
            MetaPage::First => Self::First,
            MetaPage::Second => Self::Second,
        }
    }
}

/// How etcd is reached. The flags and variables are those of etcdctl; a flag wins over its variable.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Source: etcd")]
pub(crate) struct EtcdArgs {
    /// Members of etcd: host:port, http://, https:// or unix://
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:2379",
        value_name = "URL"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Certificates that sign etcd's, instead of the system's
    #[arg(long, env = "ETCDCTL_CACERT", value_parser = file(), value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, env = "ETCDCTL_CERT", value_parser = file(), value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, env = "ETCDCTL_KEY", value_parser = file(), value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Name to look for in etcd's certificate, when it is not the host in --endpoints
    #[arg(long, env = "ETCDCTL_TLS_SERVER_NAME", value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// Accept any certificate of etcd: dangerous, whoever answers is believed
    #[arg(long, env = "ETCDCTL_INSECURE_SKIP_TLS_VERIFY")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// User, or user:password
    #[arg(long, env = "ETCDCTL_USER", hide_env_values = true, value_name = "NAME")]
    pub(crate) user: Option<Hidden>,
    /// Password of the user; the variable keeps it out of the list of processes
    #[arg(long, env = "ETCDCTL_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    pub(crate) password: Option<Hidden>,
    /// Time for a connection
    #[arg(long, env = "ETCDCTL_DIAL_TIMEOUT", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(crate) dial_timeout: Duration,
    /// Time for one request
    #[arg(long, env = "ETCDCTL_COMMAND_TIMEOUT", default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub(crate) command_timeout: Duration,
}

/// An argument that may hold a password: wiped when dropped, and not shown by `Debug`.
#[derive(Clone)]
pub(crate) struct Hidden(Zeroizing<String>);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl Deref for Hidden {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden([REDACTED])")
    }
}

/// Which values. Everything is the default.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectionArgs {
    /// Only this namespace
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only these resources, as `secrets` or `deployments.apps`
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    pub(crate) resource: Vec<String>,
    /// Only etcd keys that begin with this
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
    /// kube-apiserver's --etcd-prefix, when it is not /registry, /kubernetes.io or /openshift.io
    #[arg(long, value_name = "PREFIX")]
    pub(crate) etcd_prefix: Vec<String>,
}

/// kube-apiserver's configuration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ConfigArgs {
    /// kube-apiserver's EncryptionConfiguration; of several, the first writes and all read
    #[arg(long, required = true, value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kms: KmsArgs,
}

/// How KMS plugins are reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct KmsArgs {
    /// Where the plugin of a KMS provider listens here, when it is not where the configuration says, as cloud-kms=unix:///run/kms.sock
    #[arg(long, value_parser = kms_endpoint, value_name = "NAME=URL")]
    pub(crate) kms_endpoint: Vec<(String, Endpoint)>,
    /// Calls of KMS plugins under way at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub(crate) kms_concurrency: u16,
}

fn kms_endpoint(text: &str) -> Result<(String, Endpoint), String> {
    let (name, url) = text.split_once('=').ok_or("it is NAME=URL, with the name of the KMS provider")?;
    let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), endpoint))
}

#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For people with room
    Wide,
    /// The report
    Json,
    /// A line for each value, and the report
    Ndjson,
    /// The report
    Yaml,
    /// The rows of the table
    Csv,
    /// Keys only
    Name,
}

// In the commands the groups with a heading come last: a heading holds for all that follows.

#[derive(Debug, clap::Args)]
pub(crate) struct ScanArgs {
    /// Break the census down by these: resource, namespace, provider, key, key-id
    #[arg(long, value_delimiter = ',', default_value = "resource,provider,key,key-id", value_name = "COLUMNS")]
    pub(crate) by: Vec<Dimension>,
    /// Plaintext is a finding: of the resources that the configuration encrypts, or else of all that are selected
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) expect: Option<ScanExpectation>,
    /// Count every value that is still in the file, also those that were overwritten or deleted
    #[arg(long)]
    pub(crate) history: bool,
    /// kube-apiserver's EncryptionConfiguration: not needed, tells what should be encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScanExpectation {
    /// Nothing is stored in the clear
    Encrypted,
}

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Stale values are findings too
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) expect: Option<VerifyExpectation>,
    /// Ask whether this key can go: PROVIDER/NAME as `aescbc/key1`, or a KMS key ID, best as its hash `sha256:…`
    #[arg(long, value_name = "KEY", conflicts_with_all = ["namespace", "resource", "prefix"])]
    pub(crate) removable: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyExpectation {
    /// Everything is written by the key that writes now
    Current,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RekeyArgs {
    /// Write. Without it only the plan is shown. kube-apiserver's audit log does not see these writes
    #[arg(long)]
    pub(crate) yes: bool,
    /// Writes under way at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub(crate) concurrency: u16,
    /// At most so many writes a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) rate: Option<u32>,
    /// File to which every write is noted as a line of JSON; a name with the time is made up otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Keep no journal
    #[arg(long, conflicts_with = "journal")]
    pub(crate) no_journal: bool,
    /// Write by this key, as `aesgcm/key2`, although it opens none of the values that name it: they are all damaged, not the key
    #[arg(long, value_name = "KEY")]
    pub(crate) trust_write_key: Vec<KeyLabel>,
    /// etcd's --quota-backend-bytes: writing ends before the database is full; guessed when not given
    #[arg(long, value_name = "BYTES")]
    pub(crate) quota_backend_bytes: Option<u64>,
    /// etcd's --max-request-bytes
    #[arg(long, default_value_t = 1_572_864, value_name = "BYTES")]
    pub(crate) max_request_bytes: usize,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) overrides: OverridesArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecryptArgs {
    #[command(flatten)]
    pub(crate) crypt: CryptArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CryptArgs {
    /// Resource whose providers are used; the key tells it, unless it is in no known layout
    #[arg(long, value_name = "RESOURCE")]
    pub(crate) resource: Option<String>,
    /// Complete etcd key, as /registry/secrets/default/x
    #[arg(long = "key", id = "etcd_key", required_unless_present = "jsonl", value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Lines of JSON with `resource`, `key` or `key_b64`, and `data` in base64; each is answered with `out`, or `error`
    #[arg(long, conflicts_with_all = ["resource", "etcd_key"])]
    pub(crate) jsonl: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigCheckArgs {
    /// The file; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Apply the rules of a server with --encryption-provider-config-automatic-reload
    #[arg(long)]
    pub(crate) automatic_reload: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KmsCheckArgs {
    /// The plugin's socket, as in the configuration: unix:///run/kms.sock
    #[arg(long, value_parser = Endpoint::parse, value_name = "URL")]
    pub(crate) endpoint: Endpoint,
    /// The provider's timeout in the configuration
    #[arg(long, default_value = "3s", value_parser = duration, value_name = "DURATION")]
    pub(crate) timeout: Duration,
    /// Only this API, which then must be served
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) api_version: Option<KmsApi>,
    /// File with a stored value, as etcd has it, whose data key must be decrypted: perhaps one of an older key
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) value: Vec<PathBuf>,
    /// Calls that are timed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub(crate) samples: u32,
    /// Calls made at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024), value_name = "N")]
    pub(crate) concurrency: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KmsApi {
    /// v1beta1.KeyManagementService
    V1,
    /// v2.KeyManagementService
    V2,
}

/// Of etcdctl's variables an empty one is as good as none.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn duration(text: &str) -> Result<Duration, atrest::config::InvalidDuration> {
    atrest::config::parse_timeout(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_the_arguments_shows_no_password() {
        let args = ["atrest", "scan", "--user", "root:hunter2", "--password", "hunter3"];
        let args = Args::try_parse_from(args).unwrap();
        assert!(!format!("{args:?} {args:#?}").contains("hunter"), "{args:?}");
        let Command::Scan(scan) = args.command else { panic!("{args:?}") };
        assert_eq!(scan.source.etcd.user.as_deref(), Some("root:hunter2"));
        assert_eq!(scan.source.etcd.password.as_deref(), Some("hunter3"));
    }
}
