use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atrest::config::{
    self, DialAddress, EncryptionConfiguration, Endpoint, KmsApiVersion, KmsConfiguration, ProviderConfiguration,
};
use atrest::doctor::metrics::{Scrape, targets};
use atrest::doctor::{
    ApiserverManifest, Clock, ConfigurationErrors, Evidence, KmsSocket, LogSummary, ManifestProblem, probe,
};
use atrest::report::DoctorSource;
use atrest::transformer::ResourceTransformers;

use super::super::source::connect_options;
use super::super::{read_file, stop_signal, warn};
use super::fetch::{Fetcher, Place, bounded};
use crate::args::{DoctorArgs, DoctorFileArgs};
use crate::failure::Failure;

/// The timeout of a KMS plugin that no configuration names.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn gather(args: &DoctorArgs, quiet: bool) -> Result<Evidence, Failure> {
    let mut gathered = Gathered::default();
    let DoctorFileArgs { encryption_provider_config, kms_endpoint, manifest, log } = &args.files;
    let given_endpoints = args.etcd.endpoints.iter().any(|endpoint| !endpoint.trim().is_empty());
    if encryption_provider_config.is_empty()
        && kms_endpoint.is_empty()
        && manifest.is_none()
        && log.is_empty()
        && args.metrics.apiserver_metrics.is_empty()
        && args.metrics.etcd_metrics.is_empty()
        && !given_endpoints
    {
        return Err(Failure::Usage(
            "there is nothing to look at: name --endpoints, --apiserver-metrics, --etcd-metrics, --log, --manifest, \
             --encryption-provider-config or --kms-endpoint"
                .to_owned(),
        ));
    }
    if args.write_probe && !given_endpoints {
        return Err(Failure::Usage("--write-probe needs --endpoints".to_owned()));
    }
    let places =
        |flag, texts: &[String]| texts.iter().map(|text| Place::parse(flag, text)).collect::<Result<Vec<_>, _>>();
    let apiserver = places("--apiserver-metrics", &args.metrics.apiserver_metrics)?;
    let etcd = places("--etcd-metrics", &args.metrics.etcd_metrics)?;
    // Without a URL nothing of it is needed, the system's certificates neither.
    let by_url = apiserver.iter().chain(&etcd).any(|place| matches!(place, Place::Url(_)));
    let fetcher =
        if by_url { Fetcher::new(&args.metrics, args.etcd.insecure_skip_tls_verify)? } else { Fetcher::of_files() };

    for file in encryption_provider_config {
        gathered.configuration(file);
    }
    // An invalid file may have the name: it is told, and what it has is not known.
    let all_read = gathered.configurations.len() == encryption_provider_config.len();
    for name in kms_endpoint.iter().filter_map(|(name, _)| name.as_ref()).filter(|_| all_read) {
        if !gathered.configurations.is_empty() && !gathered.kms_providers().any(|kms| kms.name == *name) {
            return Err(Failure::Usage(format!(
                "--kms-endpoint {name}=…: no KMS provider of the configuration has that name"
            )));
        }
    }
    if let Some(file) = manifest {
        gathered.manifest(file, kms_endpoint);
    }
    for file in log {
        gathered.log(file);
    }
    gathered.metrics(&fetcher, &apiserver, &etcd, args.metrics.window).await;
    gathered.kms(kms_endpoint).await;
    if given_endpoints {
        gathered.etcd(args, quiet).await?;
    }
    Ok(gathered.evidence)
}

/// A reading of metrics: the kind of server, and where.
type Asked<'a> = (&'static str, &'a Place);

#[derive(Default)]
struct Gathered {
    evidence: Evidence,
    configurations: Vec<EncryptionConfiguration>,
}

impl Gathered {
    fn source(&mut self, kind: &'static str, name: String, outcome: Result<String, String>) {
        let (read, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(why) => (false, why),
        };
        self.evidence.sources.push(DoctorSource { kind, name, read, detail });
    }

    fn configuration(&mut self, file: &Path) {
        let name = file.display().to_string();
        let text = match read_file(file) {
            Ok(text) => text,
            Err(failure) => return self.source("configuration", name, Err(reason(&failure))),
        };
        let errors = match config::load(&text, &config::Options::default()) {
            Ok(loaded) => {
                if let Ok(built) = ResourceTransformers::from_configurations(std::slice::from_ref(&loaded.config)) {
                    self.evidence.transformers.extend(probe::transformers(&built));
                }
                let covered = loaded.config.covered().len();
                self.source("configuration", name, Ok(format!("accepted; it covers {covered} resources")));
                self.configurations.push(loaded.config);
                Vec::new()
            }
            Err(invalid) => {
                self.source("configuration", name, Ok("not accepted by kube-apiserver".to_owned()));
                invalid.errors.iter().map(ToString::to_string).collect()
            }
        };
        self.evidence.configuration.push(ConfigurationErrors { path: file.to_owned(), errors });
    }

    fn manifest(&mut self, file: &Path, here: &[(Option<String>, Endpoint)]) {
        let name = file.display().to_string();
        let text = match bounded(file) {
            Ok(text) => text,
            Err(error) => return self.source("manifest", name, Err(error.to_string())),
        };
        match ApiserverManifest::parse(&text) {
            Ok(manifest) => {
                let mut problems = manifest.problems(&self.sockets(here));
                problems.extend(not_there(&manifest));
                problems.extend(manifest.is_without_encryption().then_some(ManifestProblem::NoEncryptionConfig));
                self.evidence.manifest = problems;
                let flags: Vec<_> =
                    manifest.settings().into_iter().map(|(flag, value)| format!("{flag}={value}")).collect();
                let detail = if flags.is_empty() { "no flag that matters here".to_owned() } else { flags.join(" ") };
                self.source("manifest", name, Ok(detail));
            }
            Err(error) => self.source("manifest", name, Err(error.to_string())),
        }
    }

    /// The sockets that the configurations name, and where the plugins listen on this host, as far as that is given.
    fn sockets(&self, here: &[(Option<String>, Endpoint)]) -> Vec<KmsSocket> {
        let mut sockets = Vec::new();
        for kms in self.kms_providers() {
            let DialAddress::Path(path) = kms.endpoint.dial_address() else { continue };
            let named = here.iter().find(|(name, _)| name.as_deref() == Some(kms.name.as_str()));
            let plugin = named.and_then(|(_, endpoint)| match endpoint.dial_address() {
                DialAddress::Path(path) => Some(path.to_owned()),
                _ => None,
            });
            let socket = KmsSocket { provider: kms.name.clone(), path: path.to_owned(), plugin };
            if !sockets.contains(&socket) {
                sockets.push(socket);
            }
        }
        sockets
    }

    fn kms_providers(&self) -> impl Iterator<Item = &KmsConfiguration> {
        let entries = self.configurations.iter().flat_map(|config| &config.resources);
        entries.flat_map(|entry| &entry.providers).filter_map(|provider| match provider {
            ProviderConfiguration::Kms(kms) => Some(kms),
            _ => None,
        })
    }

    fn log(&mut self, file: &Path) {
        let name = file.display().to_string();
        let read = if file == Path::new("-") {
            LogSummary::read(&name, &mut std::io::stdin().lock())
        } else {
            std::fs::File::open(file).and_then(|log| LogSummary::read(&name, &mut BufReader::new(log)))
        };
        match read {
            Ok(log) => {
                let known: u64 = log.matches.values().map(|found| found.count).sum();
                self.source("log", name, Ok(format!("{} lines, {known} with a known error text", log.lines)));
                match &mut self.evidence.log {
                    Some(all) => all.take(log),
                    none => *none = Some(log),
                }
            }
            Err(error) => self.source("log", name, Err(error.to_string())),
        }
    }

    /// Reads all metrics; and those of URLs that are given twice once more after a pause.
    async fn metrics(&mut self, fetcher: &Fetcher, apiserver: &[Place], etcd: &[Place], pause: Duration) {
        let (mut once, mut again): (Vec<Asked<'_>>, Vec<Asked<'_>>) = (Vec::new(), Vec::new());
        let of_apiservers = apiserver.iter().map(|place| ("apiserver-metrics", place));
        for asked in of_apiservers.chain(etcd.iter().map(|place| ("etcd-metrics", place))) {
            let is_again = matches!(asked.1, Place::Url(_)) && once.contains(&asked);
            if is_again { again.push(asked) } else { once.push(asked) }
        }
        let mut scrapes = self.read_all(fetcher, &once).await;
        if !again.is_empty() {
            tokio::time::sleep(pause).await;
            scrapes.extend(self.read_all(fetcher, &again).await);
        }
        let (of_apiserver, of_etcd): (Vec<_>, Vec<_>) =
            scrapes.into_iter().partition(|(kind, _)| *kind == "apiserver-metrics");
        let targets_of =
            |scrapes: Vec<(&'static str, Scrape)>| targets(scrapes.into_iter().map(|(_, scrape)| scrape).collect());
        self.evidence.apiservers = targets_of(of_apiserver);
        self.evidence.etcd_metrics = targets_of(of_etcd);
    }

    async fn read_all(&mut self, fetcher: &Fetcher, places: &[Asked<'_>]) -> Vec<(&'static str, Scrape)> {
        let mut scrapes = Vec::new();
        for (kind, place) in places {
            match fetcher.read(place).await.and_then(|read| of_kind(kind, read)) {
                Ok((scrape, clock)) => {
                    self.source(kind, place.name(), Ok(format!("{} samples", scrape.metrics.len())));
                    self.evidence.clocks.extend(clock);
                    scrapes.push((*kind, scrape));
                }
                Err(why) => self.source(kind, place.name(), Err(why)),
            }
        }
        scrapes
    }

    /// Asks the plugins of the configurations, and those that are named.
    async fn kms(&mut self, here: &[(Option<String>, Endpoint)]) {
        let mut asked: Vec<(String, Endpoint, Duration, Option<KmsApiVersion>)> = Vec::new();
        for kms in self.kms_providers() {
            let named = here.iter().find(|(name, _)| name.as_deref() == Some(kms.name.as_str()));
            let endpoint = named.map_or(&kms.endpoint, |(_, endpoint)| endpoint).clone();
            if !asked.iter().any(|(_, other, ..)| *other == endpoint) {
                asked.push((kms.name.clone(), endpoint, kms.timeout, Some(kms.api_version)));
            }
        }
        for (name, endpoint) in here {
            if !asked.iter().any(|(_, other, ..)| other == endpoint) {
                asked.push((name.clone().unwrap_or_else(|| "kms".to_owned()), endpoint.clone(), KMS_TIMEOUT, None));
            }
        }
        for (name, endpoint, timeout, version) in asked {
            let probed = probe::kms(&name, endpoint, timeout, version).await;
            let outcome = match &probed.error {
                Some(error) => Err(error.clone()),
                None => Ok(format!("{} checks failed", probed.failed.len())),
            };
            self.source("kms", format!("{name} at {}", probed.endpoint), outcome);
            self.evidence.kms.push(probed);
        }
    }

    async fn etcd(&mut self, args: &DoctorArgs, quiet: bool) -> Result<(), Failure> {
        // Once: each call of it would count a signal of its own.
        let stop = stop_signal();
        let endpoints = connect_options(&args.etcd, &args.etcd.endpoints, "--endpoints", stop)?.endpoints;
        let mut members = Vec::new();
        for endpoint in endpoints {
            let mut options = connect_options(&args.etcd, &args.etcd.endpoints, "--endpoints", stop)?;
            options.endpoints = vec![endpoint];
            members.push(options);
        }
        let key = if args.write_probe { Some(throw_away_key()?) } else { None };
        if let Some(key) = &key {
            warn(quiet, format_args!("writing {} to etcd, and removing it again", String::from_utf8_lossy(key)));
        }
        let probed = probe::etcd(members, key).await;
        if let Some(write) = probed.write.as_ref().filter(|write| !write.removed) {
            warn(false, format_args!("{} could not be removed: `etcdctl del {}`", write.key, write.key));
        }
        for member in &probed.members {
            let outcome = match &member.error {
                Some(error) => Err(error.clone()),
                None if member.version.is_empty() => Ok("it answers, and does not tell its status".to_owned()),
                None => Ok(format!("etcd {}", member.version)),
            };
            self.source("etcd", member.endpoint.clone(), outcome);
        }
        self.evidence.etcd = Some(probed);
        Ok(())
    }
}

/// Of another server every counter is missing, which must not be taken for nothing counted.
fn of_kind(kind: &str, read: (Scrape, Option<Clock>)) -> Result<(Scrape, Option<Clock>), String> {
    let (names, whose): (&[&str], _) = match kind {
        "apiserver-metrics" => (&["apiserver_"], "an API server"),
        _ => (&["etcd_server_", "etcd_disk_", "etcd_mvcc_", "etcd_debugging_"], "etcd"),
    };
    match names.iter().any(|name| read.0.metrics.has_prefix(name)) {
        true => Ok(read),
        false => Err(format!("these are no metrics of {whose}")),
    }
}

/// A key that nobody else has.
fn throw_away_key() -> Result<Vec<u8>, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Failure::Output(std::io::Error::other(error)))?;
    Ok([probe::THROW_AWAY, hex::encode(random).as_bytes()].concat())
}

/// The EncryptionConfiguration may be looked for on this machine when it is the node: then its folder is there.
fn not_there(manifest: &ApiserverManifest) -> Option<ManifestProblem> {
    let path = manifest.encryption_config()?;
    let host: PathBuf = manifest.host_path(path)?;
    let is_this_node = host.parent().is_some_and(Path::is_dir) && Path::new("/etc/kubernetes/manifests").is_dir();
    let is_missing = matches!(host.try_exists(), Ok(false));
    (is_this_node && is_missing).then(|| ManifestProblem::ConfigNotThere { path: path.to_owned(), host })
}

/// Why a file could not be read; its name stands before it.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::File { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
