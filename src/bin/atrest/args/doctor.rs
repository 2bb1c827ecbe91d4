use std::path::PathBuf;
use std::time::Duration;

use atrest::config::Endpoint;
use clap::Subcommand;

use super::{EtcdArgs, OutputArgs, duration, file};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
// etcd is asked only when it is named: everything else works without it.
#[command(mut_arg("endpoints", |arg| arg.default_value(None::<&'static str>)))]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DoctorCommand>,
    /// Also write: one throw-away key, /atrest.doctor/…, which is removed again. It goes round the API server
    #[arg(long)]
    pub(crate) write_probe: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) files: DoctorFileArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    /// Say what an error text of an API server, etcd or a KMS plugin means
    Explain(ExplainArgs),
}

/// What describes a control-plane node.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Evidence")]
pub(crate) struct DoctorFileArgs {
    /// kube-apiserver's EncryptionConfiguration: is it accepted, are its KMS plugins well, how fast are its keys here
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) encryption_provider_config: Vec<PathBuf>,
    /// Socket of a KMS plugin, as unix:///run/kms.sock; or where that of a provider of the configuration is here, as NAME=URL
    #[arg(long, value_parser = kms_endpoint, value_name = "[NAME=]URL")]
    pub(crate) kms_endpoint: Vec<(Option<String>, Endpoint)>,
    /// Manifest of kube-apiserver's static pod: are its flags right, and what they name mounted
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Log of an API server or of etcd, text or JSON, also compressed by gzip; - for standard input
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) log: Vec<PathBuf>,
}

/// Metrics, and how they are reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Evidence: metrics")]
pub(crate) struct MetricsArgs {
    /// /metrics of an API server. Two of the same server, read at two times, tell what happened between them
    #[arg(long, value_name = "URL|FILE")]
    pub(crate) apiserver_metrics: Vec<String>,
    /// /metrics of a member of etcd, likewise
    #[arg(long, value_name = "URL|FILE")]
    pub(crate) etcd_metrics: Vec<String>,
    /// Pause between the two readings of a URL that is given twice
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub(crate) window: Duration,
    /// Certificates that sign those of the URLs, instead of the system's; --insecure-skip-tls-verify holds for URLs too
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) metrics_cacert: Option<PathBuf>,
    /// Client certificate for the URLs
    #[arg(long, value_parser = file(), requires = "metrics_key", value_name = "FILE")]
    pub(crate) metrics_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_parser = file(), requires = "metrics_cert", value_name = "FILE")]
    pub(crate) metrics_key: Option<PathBuf>,
    /// File with a bearer token for https URLs
    #[arg(long, value_parser = file(), value_name = "FILE")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The text; - for standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn kms_endpoint(text: &str) -> Result<(Option<String>, Endpoint), String> {
    let (name, url) = match text.split_once('=') {
        Some((name, url)) if !name.contains(':') => (Some(name.to_owned()), url),
        _ => (None, text),
    };
    let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
    Ok((name, endpoint))
}
