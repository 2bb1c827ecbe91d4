use std::path::PathBuf;

use clap::Subcommand;

use super::{ConfigArgs, FileArgs, LayoutArgs, OptionalConfigArgs, OutputArgs, SelectionArgs, ShownArgs, file};

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Say what a snapshot is, which keys it needs, and what to know before it is restored
    Inspect(SnapshotInspectArgs),
    /// Write all objects as files of YAML or as lines of JSON; resumable
    Export(SnapshotExportArgs),
    /// Say which objects were added, removed or changed between two snapshots, or two revisions of one
    Diff(SnapshotDiffArgs),
    /// List every revision of a key that is still in a snapshot, and what changed
    History(SnapshotHistoryArgs),
    /// Find plaintext and old ciphertext that is left in history, free pages, the log and other files
    Residue(SnapshotResidueArgs),
    /// Write a new snapshot whose values are all under the first provider
    Rekey(SnapshotRekeyArgs),
    /// Write a new snapshot without some keys, or without the data of Secrets
    Redact(SnapshotRedactArgs),
    /// Write a new snapshot in the clear: whoever has it has everything
    Decrypt(SnapshotDecryptArgs),
}

/// The file, as an argument or by a flag.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArg {
    /// Snapshot; a data directory is named with --data-dir
    #[arg(value_parser = file(), conflicts_with_all = ["snapshot", "data_dir", "kine"], value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotInspectArgs {
    #[command(flatten)]
    pub(crate) snapshot: SnapshotArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotResidueArgs {
    #[command(flatten)]
    pub(crate) snapshot: SnapshotArg,
    /// kube-apiserver's EncryptionConfiguration: tells what must not be in the clear, and which keys are old. Without one, plaintext
    /// of Secrets is looked for
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotExportArgs {
    #[command(flatten)]
    pub(crate) snapshot: SnapshotArg,
    /// Directory for files of YAML; with -o ndjson, file for lines of JSON. Only its owner can read it
    #[arg(long, value_parser = file(), value_name = "PATH")]
    pub(crate) out: PathBuf,
    /// yaml or ndjson
    #[arg(short, long, default_value = "yaml", value_parser = ["yaml", "ndjson"], value_name = "FORM")]
    pub(crate) output: String,
    /// Go on with an export that was interrupted
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) config: OptionalConfigArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotDiffArgs {
    /// First snapshot; the only one for two of its revisions
    #[arg(value_parser = file(), value_name = "A")]
    pub(crate) from: PathBuf,
    /// Second snapshot
    #[arg(value_parser = file(), value_name = "B")]
    pub(crate) to: Option<PathBuf>,
    /// Revision of the first
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "N")]
    pub(crate) from_revision: Option<i64>,
    /// Revision of the second
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "N")]
    pub(crate) to_revision: Option<i64>,
    /// Read what is left of damaged files
    #[arg(long)]
    pub(crate) salvage: bool,
    /// A file whose SHA-256 is wrong or missing is no finding
    #[arg(long)]
    pub(crate) skip_hash_check: bool,
    /// Show values that were only sealed anew, too
    #[arg(long)]
    pub(crate) resealed: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    #[command(flatten)]
    pub(crate) config: OptionalConfigArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotHistoryArgs {
    /// The complete etcd key, as /registry/secrets/default/x
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) config: OptionalConfigArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
}

/// The new snapshot.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "New snapshot")]
pub(crate) struct TargetArgs {
    /// File to write, which only its owner can read
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file when it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Keep only the last value of each key
    #[arg(long)]
    pub(crate) drop_history: bool,
    /// Leave alarms out, with which the restored cluster would begin
    #[arg(long)]
    pub(crate) drop_alarms: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotRekeyArgs {
    #[command(flatten)]
    pub(crate) snapshot: SnapshotArg,
    /// Leave values as they are that cannot be read, in place of writing nothing
    #[arg(long)]
    pub(crate) keep_unreadable: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotDecryptArgs {
    #[command(flatten)]
    pub(crate) rekey: SnapshotRekeyArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotRedactArgs {
    #[command(flatten)]
    pub(crate) snapshot: SnapshotArg,
    /// Only this etcd key; may be given again
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Replace the data of Secrets by fixed bytes, in place of leaving keys out
    #[arg(long)]
    pub(crate) replace_secret_data: bool,
    /// Leave values as they are that cannot be read, in place of writing nothing
    #[arg(long, requires = "replace_secret_data")]
    pub(crate) keep_unreadable: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) config: OptionalConfigArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}
