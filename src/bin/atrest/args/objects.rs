use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use atrest::object::LabelSelector;
use atrest::object::jsonpath::JsonPath;
use clap::ValueEnum;

use super::{EtcdArgs, KmsArgs, OverridesArgs, SelectionArgs, SourceArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Resource, as `secrets` or `deployments.apps`; several with commas; all when left out
    #[arg(value_name = "RESOURCE")]
    pub(crate) what: Option<String>,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only objects with these labels, as `app=web,tier!=test`
    #[arg(short = 'l', long, value_parser = LabelSelector::parse, value_name = "SELECTOR")]
    pub(crate) selector: Option<LabelSelector>,
    /// yaml, json, ndjson, name, table, or jsonpath=TEMPLATE
    #[arg(short, long, default_value = "yaml", value_name = "FORM")]
    pub(crate) output: ObjectForm,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    /// kube-apiserver's EncryptionConfiguration; what is stored in the clear is read without. Of several, the first writes
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kms: KmsArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// Resource, as `secrets` or `deployments.apps`; several with commas; all when left out
    #[arg(value_name = "RESOURCE")]
    pub(crate) what: Option<String>,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only objects with these labels, as `app=web,tier!=test`, and what cannot be read
    #[arg(short = 'l', long, value_parser = LabelSelector::parse, value_name = "SELECTOR")]
    pub(crate) selector: Option<LabelSelector>,
    /// Changes after this revision, as far as etcd still has them, and then those to come
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "N")]
    pub(crate) since_revision: Option<i64>,
    /// Show what is there first
    #[arg(long, conflicts_with = "since_revision")]
    pub(crate) list_first: bool,
    /// When changes are compacted away, show what is there in their place, and go on
    #[arg(long)]
    pub(crate) relist: bool,
    /// Say how far etcd is when nothing changes: every ten minutes, unless etcd is told otherwise
    #[arg(long)]
    pub(crate) bookmarks: bool,
    /// End after so many changes
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) max_events: Option<u64>,
    /// End after so long
    #[arg(long = "for", id = "time", value_parser = super::duration, value_name = "DURATION")]
    pub(crate) time: Option<Duration>,
    /// Form of the result; with ndjson and yaml the objects are shown too
    #[arg(short, long, value_enum, default_value_t = WatchForm::Table)]
    pub(crate) output: WatchForm,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    /// kube-apiserver's EncryptionConfiguration; what is stored in the clear is read without. Of several, the first writes
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kms: KmsArgs,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) overrides: OverridesArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// The form in which changes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WatchForm {
    /// A line for each change
    Table,
    /// A line of JSON for each change
    Ndjson,
    /// A document for each change
    Yaml,
    /// Keys only
    Name,
}

/// How objects are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ShownArgs {
    /// Show the data of Secrets
    #[arg(long)]
    pub(crate) reveal: bool,
    /// Show metadata.managedFields
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// Show the version that is stored, in place of the one that is served (CustomResourceDefinitions)
    #[arg(long)]
    pub(crate) as_stored: bool,
}

/// The form in which objects are printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectForm {
    Yaml,
    Json,
    Ndjson,
    Name,
    Table,
    JsonPath(JsonPath),
}

impl FromStr for ObjectForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yaml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            "ndjson" => Ok(Self::Ndjson),
            "name" => Ok(Self::Name),
            "table" => Ok(Self::Table),
            _ if text.starts_with("jsonpath=") => JsonPath::parse(text.trim_start_matches("jsonpath="))
                .map(Self::JsonPath)
                .map_err(|error| error.to_string()),
            _ => Err("it is yaml, json, ndjson, name, table, or jsonpath=TEMPLATE".to_owned()),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeArgs {
    /// Lines of JSON with `data` in base64; each is answered with `object`, or `error`
    #[arg(long)]
    pub(crate) jsonl: bool,
    /// Form of the object
    #[arg(short, long, default_value = "json", value_parser = ["json", "yaml"], value_name = "FORM")]
    pub(crate) output: String,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}
