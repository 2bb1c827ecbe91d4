//! Keys of AWS KMS.
//!
//! ```text
//! mod      options; the calls of Backend
//! arn      names of keys
//! failure  what an error of the SDK means
//! ```
//!
//! The key ID is the key's ARN. An alias can be given to another key, and a key's ID belongs to whatever account the credentials do, so
//! neither is taken without the ARN that it has to mean. An alias that means another key at the first contact is refused for encrypting;
//! one that is moved later is told, not followed. The rotation that AWS does inside a key leaves the ARN as it is.
//!
//! A ciphertext is decrypted only by a key that is configured, which the request to AWS names: neither etcd's data nor the ciphertext
//! chooses one.
//!
//! The identity needs `kms:Encrypt`, `kms:Decrypt` and `kms:DescribeKey`; the last only if the key is not configured by its ARN, but
//! without it the state of the key is not known before it fails.
//!
//! The SDK's buffers that the plaintext passes through are not wiped.

mod arn;
mod failure;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use atrest::report::key_id_hash;
use atrest::secret::Key;
use atrest::transformer::envelope::MAX_DEK_SOURCE_BYTES;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_kms::Client;
use aws_sdk_kms::primitives::{Blob, DateTimeFormat};
use aws_sdk_kms::types::{KeyMetadata, KeyState};
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use self::arn::KeyArn;
use super::pause::Pause;
use super::{Backend, Error, Wrapped};

/// The state of the key, and where an alias points, is looked up again after that time.
const KEY_AGE: Duration = Duration::from_secs(60);

/// Tells the SDK to log the bodies of answers at the level `trace`.
const LOGS_PLAINTEXT: &str = "LOG_SENSITIVE_BODIES";

/// Names the key for people who look at a stored value. Not read.
const ARN_ANNOTATION: &str = "key-arn.aws.kms.atrest.io";

/// Which keys, and where.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "aws")]
#[command(next_help_heading = "AWS KMS")]
pub struct Options {
    /// The key that encrypts: ARN, ID or alias
    #[arg(long, value_name = "KEY")]
    pub aws_key_id: Option<String>,
    /// ARN of the key that --aws-key-id means; required unless that is one
    #[arg(long, value_name = "ARN")]
    pub aws_pinned_key_arn: Option<String>,
    /// ARN of another key that decrypts
    #[arg(long, value_name = "ARN")]
    pub aws_decrypt_key_id: Vec<String>,
    /// Region; of a key that is named by its ARN, that one's
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    pub aws_region: Option<String>,
    /// Address of AWS KMS, in place of the region's
    #[arg(long, value_name = "URL")]
    pub aws_endpoint_url: Option<String>,
    /// Encryption context, which decrypting needs again; not a secret
    #[arg(long, value_name = "NAME=VALUE")]
    pub aws_encryption_context: Vec<String>,
    /// Time for one attempt
    #[arg(long, default_value = "1200ms", value_parser = atrest::config::parse_timeout, value_name = "DURATION")]
    pub aws_attempt_timeout: Duration,
    /// Time for one call, which is two attempts at most
    #[arg(long, default_value = "2500ms", value_parser = atrest::config::parse_timeout, value_name = "DURATION")]
    pub aws_timeout: Duration,
}

/// Keys of AWS KMS. Finds credentials at the first call.
#[derive(Debug)]
pub struct Aws {
    options: Options,
    context: HashMap<String, String>,
    /// The key that encrypts, which [`Options::aws_key_id`] has to mean.
    pinned: KeyArn,
    /// Keys that decrypt, apart from the one that encrypts.
    older: Vec<KeyArn>,
    config: OnceCell<SdkConfig>,
    /// By region, each with its connections.
    clients: Mutex<BTreeMap<Option<String>, Client>>,
    current: tokio::sync::Mutex<Option<Current>>,
    /// That the alias points to another key.
    moved: Mutex<Option<String>>,
    pause: Pause,
}

/// The key that encrypts.
#[derive(Clone, Debug)]
struct Current {
    /// Whether the configured name meant the pinned key at the first contact.
    is_confirmed: bool,
    /// Why it cannot be used.
    problem: Option<String>,
    checked_at: Instant,
}

impl Aws {
    /// Checks the options. AWS is not asked.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] when an option is missing, contradicts another or cannot be used.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let wrong = |text: String| Error::Configuration(text);
        if std::env::var_os(LOGS_PLAINTEXT).is_some() {
            return Err(wrong(format!("the variable {LOGS_PLAINTEXT} is set, which writes decrypted keys to the log")));
        }
        let key = options.aws_key_id.as_deref().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| wrong("--aws-key-id is required".to_owned()))?;
        let pinned = pinned(key, options.aws_pinned_key_arn.as_deref())?;
        let regions = [arn::region_of(key), Some(pinned.region())];
        if let Some(region) = &options.aws_region
            && let Some(of_key) = regions.into_iter().flatten().find(|of_key| of_key != region)
        {
            return Err(wrong(format!("--aws-region is {region}, and the key is in {of_key}")));
        }
        let older = options.aws_decrypt_key_id.iter().map(|text| {
            text.parse().map_err(|_| wrong(format!("--aws-decrypt-key-id: {text:?} is not the ARN of a key")))
        });
        let mut context = HashMap::new();
        for entry in &options.aws_encryption_context {
            let pair = entry.split_once('=').filter(|(name, _)| !name.is_empty() && !name.starts_with("aws:"));
            let (name, value) =
                pair.ok_or_else(|| wrong(format!("--aws-encryption-context: {entry:?} is not NAME=VALUE")))?;
            if context.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(wrong(format!("--aws-encryption-context: {name:?} is there twice")));
            }
        }
        Ok(Self {
            pinned,
            older: older.collect::<Result<_, _>>()?,
            options: options.clone(),
            context,
            config: OnceCell::new(),
            clients: Mutex::default(),
            current: tokio::sync::Mutex::default(),
            moved: Mutex::default(),
            pause: Pause::default(),
        })
    }

    fn configured(&self) -> &str {
        self.options.aws_key_id.as_deref().unwrap_or_default()
    }

    /// The client for a region; `None` for the configured one.
    async fn client(&self, region: Option<&str>) -> Client {
        let config = self.config.get_or_init(|| self.load_config()).await;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let mut builder = aws_sdk_kms::config::Builder::from(config);
            if let Some(region) = region {
                builder = builder.region(Region::new(region.to_owned()));
            }
            Client::from_conf(builder.build())
        };
        clients.entry(region.map(str::to_owned)).or_insert_with(new).clone()
    }

    async fn load_config(&self) -> SdkConfig {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(self.options.aws_attempt_timeout)
            .operation_attempt_timeout(self.options.aws_attempt_timeout)
            .operation_timeout(self.options.aws_timeout)
            .build();
        let retries = RetryConfig::standard().with_max_attempts(2).with_initial_backoff(Duration::from_millis(100));
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts).retry_config(retries);
        let region = self.options.aws_region.as_deref().filter(|region| !region.is_empty());
        loader = loader.region(Region::new(region.unwrap_or(self.pinned.region()).to_owned()));
        if let Some(url) = &self.options.aws_endpoint_url {
            loader = loader.endpoint_url(url);
        }
        loader.load().await
    }

    /// However many requests it takes, no longer than the timeout.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = || Err(Error::Unavailable("AWS KMS did not answer in time".to_owned()));
        tokio::time::timeout(self.options.aws_timeout, call).await.unwrap_or_else(|_| late())
    }

    /// The key that encrypts, as it is now, or was at most `age` ago.
    async fn current(&self, age: Duration) -> Result<&KeyArn, Error> {
        let mut current = self.current.lock().await;
        // It is not taken out: a caller that gives up must not undo what is confirmed.
        let known = match current.as_ref() {
            Some(known) if known.checked_at.elapsed() < age => known.clone(),
            Some(known) if known.is_confirmed => self.look_again(known).await?,
            _ => self.resolve().await?,
        };
        let known = current.insert(known);
        match &known.problem {
            Some(problem) => Err(Error::KeyUnusable(problem.clone())),
            None => Ok(&self.pinned),
        }
    }

    /// Finds out whether the configured name means the pinned key.
    async fn resolve(&self) -> Result<Current, Error> {
        let checked_at = Instant::now();
        match self.describe(None, self.configured()).await {
            Ok(metadata) => {
                let arn = arn_of(&metadata)?;
                let is_confirmed = arn == self.pinned;
                let problem = if is_confirmed {
                    tracing::info!(key_id = key_id_hash(arn.as_str()), "the key of AWS KMS is known");
                    problem_of(&metadata)
                } else {
                    let (means, pinned) = (key_id_hash(arn.as_str()), key_id_hash(self.pinned.as_str()));
                    let text = format!("--aws-key-id means the key {means}, and --aws-pinned-key-arn is {pinned}");
                    tracing::error!("{text}");
                    Some(text)
                };
                Ok(Current { is_confirmed, problem, checked_at })
            }
            // An ARN says which key it is; that it is usable turns out when it is used.
            Err(Error::KeyUnusable(problem))
                if problem == "access denied to kms:DescribeKey" && self.configured() == self.pinned.as_str() =>
            {
                Ok(Current { is_confirmed: true, problem: None, checked_at })
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at the state of the key, and what an alias means now.
    async fn look_again(&self, known: &Current) -> Result<Current, Error> {
        let checked_at = Instant::now();
        let problem = match self.describe(Some(self.pinned.region()), self.pinned.as_str()).await {
            Ok(metadata) => problem_of(&metadata),
            Err(Error::KeyUnusable(problem)) if problem == "access denied to kms:DescribeKey" => None,
            // It is pinned, and is not another because AWS is busy.
            Err(Error::Throttled { .. }) => known.problem.clone(),
            Err(error) => return Err(error),
        };
        if arn::is_alias(self.configured())
            && let Ok(metadata) = self.describe(None, self.configured()).await
        {
            let now = arn_of(&metadata)?;
            let warning = (now != self.pinned).then(|| {
                let hash = key_id_hash(now.as_str());
                format!(
                    "the alias of the key points to another one now ({hash}), which is not used: after a restart the plugin does not \
                     encrypt until --aws-pinned-key-arn names that key, or the alias points back"
                )
            });
            let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(warning) = warning.as_ref().filter(|warning| moved.as_ref() != Some(*warning)) {
                tracing::warn!("{warning}");
            }
            *moved = warning;
        }
        Ok(Current { is_confirmed: true, problem, checked_at })
    }

    async fn describe(&self, region: Option<&str>, key: &str) -> Result<KeyMetadata, Error> {
        self.pause.check(Instant::now())?;
        let answer = self.client(region).await.describe_key().key_id(key).send().await;
        let answer = answer.map_err(|error| failure::of("DescribeKey", &error, &self.pause))?;
        self.pause.end(Instant::now());
        answer.key_metadata.ok_or_else(|| Error::Unavailable("AWS KMS describes no key".to_owned()))
    }

    /// The same error, with the state of the key if that is the reason.
    async fn explained(&self, error: Error, arn: &KeyArn) -> Error {
        match error {
            Error::KeyUnusable(_) => match self.describe(Some(arn.region()), arn.as_str()).await {
                Ok(metadata) => problem_of(&metadata).map_or(error, Error::KeyUnusable),
                Err(_) => error,
            },
            other => other,
        }
    }

    /// The key with that ID, if it is one that is configured. A state that forbids encrypting may allow decrypting, and AWS says it if not.
    fn by_id(&self, key_id: &str) -> Result<&KeyArn, Error> {
        let mut known = std::iter::once(&self.pinned).chain(&self.older);
        let found = known.find(|arn| arn.as_str() == key_id);
        found.ok_or_else(|| Error::UnknownKey { key_id_hash: key_id_hash(key_id) })
    }

    async fn encrypt_now(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        if plaintext.is_empty() {
            return Err(Error::InvalidRequest("the plaintext is empty"));
        }
        if plaintext.len() > MAX_DEK_SOURCE_BYTES {
            return Err(Error::InvalidRequest("the plaintext is too long"));
        }
        let arn = self.current(KEY_AGE).await?;
        self.pause.check(Instant::now())?;
        let request = self.client(Some(arn.region())).await.encrypt().key_id(arn.as_str());
        let request = request.set_encryption_context(self.context());
        let answer = match request.plaintext(Blob::new(plaintext.expose())).send().await {
            Ok(answer) => answer,
            Err(error) => return Err(self.explained(failure::of("Encrypt", &error, &self.pause), arn).await),
        };
        self.pause.end(Instant::now());
        if answer.key_id() != Some(arn.as_str()) {
            return Err(Error::Unavailable("AWS KMS encrypted by another key than it was asked to".to_owned()));
        }
        let ciphertext = answer.ciphertext_blob.map(Blob::into_inner).unwrap_or_default();
        match ciphertext.len() {
            0 => Err(Error::Unavailable("the ciphertext of AWS KMS is empty".to_owned())),
            1..=MAX_DEK_SOURCE_BYTES => {
                let annotations = BTreeMap::from([(ARN_ANNOTATION.to_owned(), arn.as_str().as_bytes().to_vec())]);
                Ok(Wrapped { ciphertext, key_id: arn.to_string(), annotations })
            }
            _ => Err(Error::InvalidRequest("the plaintext is too long")),
        }
    }

    async fn decrypt_now(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        if !(1..=MAX_DEK_SOURCE_BYTES).contains(&wrapped.ciphertext.len()) {
            return Err(Error::AuthenticationFailed);
        }
        let arn = self.by_id(&wrapped.key_id)?;
        self.pause.check(Instant::now())?;
        let request = self.client(Some(arn.region())).await.decrypt().key_id(arn.as_str());
        let request = request.set_encryption_context(self.context());
        let answer = match request.ciphertext_blob(Blob::new(wrapped.ciphertext.as_slice())).send().await {
            Ok(answer) => answer,
            Err(error) => return Err(self.explained(failure::of("Decrypt", &error, &self.pause), arn).await),
        };
        self.pause.end(Instant::now());
        let same_key = answer.key_id() == Some(arn.as_str());
        let plaintext = Zeroizing::new(answer.plaintext.map(Blob::into_inner).unwrap_or_default());
        if same_key && !plaintext.is_empty() { Ok(Key::new(plaintext)) } else { Err(Error::AuthenticationFailed) }
    }

    fn context(&self) -> Option<HashMap<String, String>> {
        Some(self.context.clone()).filter(|context| !context.is_empty())
    }
}

#[tonic::async_trait]
impl Backend for Aws {
    fn name(&self) -> &'static str {
        "aws"
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        Ok(self.in_time(self.current(KEY_AGE)).await?.to_string())
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        self.in_time(self.encrypt_now(plaintext)).await
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        self.in_time(self.decrypt_now(wrapped)).await
    }

    async fn reload(&self) -> Result<(), Error> {
        self.in_time(self.current(Duration::ZERO)).await.map(drop)
    }

    fn warning(&self) -> Option<String> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The key that the name has to mean: itself, if it is an ARN, else what the operator looked up.
fn pinned(key: &str, pinned: Option<&str>) -> Result<KeyArn, Error> {
    let wrong = |text: String| Error::Configuration(text);
    let is_none = |text: &str| wrong(format!("--aws-pinned-key-arn: {text:?} is not the ARN of a key"));
    let pinned = pinned.map(|text| text.parse::<KeyArn>().map_err(|_| is_none(text))).transpose()?;
    match (key.parse::<KeyArn>(), pinned) {
        (Ok(arn), Some(pinned)) if arn != pinned => {
            Err(wrong("--aws-key-id and --aws-pinned-key-arn are the ARNs of two keys".to_owned()))
        }
        (Ok(arn), _) | (Err(_), Some(arn)) => Ok(arn),
        (Err(_), None) => Err(wrong(format!(
            "--aws-key-id {key:?} can mean another key later: add --aws-pinned-key-arn with the ARN that `aws kms describe-key --key-id \
             {key} --query KeyMetadata.Arn --output text` prints"
        ))),
    }
}

fn arn_of(metadata: &KeyMetadata) -> Result<KeyArn, Error> {
    let arn = metadata.arn().and_then(|arn| arn.parse().ok());
    arn.ok_or_else(|| Error::Unavailable("AWS KMS describes a key without an ARN".to_owned()))
}

/// Why a key cannot be used.
fn problem_of(metadata: &KeyMetadata) -> Option<String> {
    let date = metadata.deletion_date().and_then(|date| date.fmt(DateTimeFormat::DateTime).ok());
    match metadata.key_state() {
        // A server that says nothing says it when the key is used.
        None | Some(KeyState::Enabled | KeyState::Updating) => None,
        Some(KeyState::Disabled) => Some("it is disabled".to_owned()),
        Some(KeyState::PendingDeletion | KeyState::PendingReplicaDeletion) => Some(match date {
            Some(date) => format!("it will be deleted on {date}, and everything that it encrypted is lost then"),
            None => "it will be deleted, and everything that it encrypted is lost then".to_owned(),
        }),
        Some(KeyState::PendingImport) => Some("its key material is not imported, or has expired".to_owned()),
        Some(other) => Some(format!("its state is {}", other.as_str())),
    }
}
