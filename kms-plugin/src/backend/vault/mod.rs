//! Keys of the transit engine of HashiCorp Vault or OpenBao.
//!
//! ```text
//! mod     options; the calls of Backend
//! key     a key's versions, and their key IDs
//! auth    the token: from a file or by AppRole, renewed, exchanged
//! client  HTTP, and what an answer means
//! body    JSON that holds key material
//! ```
//!
//! The policy needs `read` of `transit/keys/NAME` and `update` of `transit/encrypt/NAME` and `transit/decrypt/NAME`. It should not have
//! `create`: with that, encrypting by a key that was deleted makes a new one.
//!
//! The ciphertext is the `vault:v1:…` text of the engine. The key ID is its associated data: `bao write transit/decrypt/NAME
//! ciphertext=… associated_data=$(printf %s KEY-ID | base64 -w0)` opens it without us. An engine that was moved to another mount opens what it
//! encrypted at the old one: a version is found by the key's name, its number and its time, and the ID that the value is stored under
//! stays the associated data.
//!
//! Source: OpenBao, HTTP API, "Transit secrets engine", "Token auth method", "AppRole auth method".

mod auth;
mod body;
mod client;
mod key;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrest::report::key_id_hash;
use atrest::secret::Key;
use atrest::transformer::envelope::MAX_DEK_SOURCE_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use self::auth::{Auth, Method};
use self::client::{Client, Refusal};
use self::key::{KeyId, TransitKey};
use super::{Backend, Error, Wrapped};

/// What is known of a key is read again after that time.
const KEY_AGE: Duration = Duration::from_secs(30);

/// After that time it is read again for a key ID that is not known, and after encrypting.
const MIN_KEY_AGE: Duration = Duration::from_secs(1);

/// Which Vault, which keys, and who we are.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "vault")]
#[command(next_help_heading = "Vault or OpenBao")]
pub struct Options {
    /// Address of the server
    #[arg(long, env = "VAULT_ADDR", value_name = "URL")]
    pub vault_addr: Option<String>,
    /// Namespace
    #[arg(long, env = "VAULT_NAMESPACE", value_name = "NAMESPACE")]
    pub vault_namespace: Option<String>,
    /// File with the certificates that the server's is checked against, in place of the system's
    #[arg(long, env = "VAULT_CACERT", value_name = "FILE")]
    pub vault_ca_file: Option<PathBuf>,
    /// Where the transit engine is mounted
    #[arg(long, default_value = "transit", value_name = "PATH")]
    pub vault_mount: String,
    /// Name of the key that encrypts
    #[arg(long, value_name = "NAME")]
    pub vault_key: Option<String>,
    /// Name of another key that decrypts
    #[arg(long, value_name = "NAME")]
    pub vault_decrypt_key: Vec<String>,
    /// File with a token; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub vault_token_file: Option<PathBuf>,
    /// Role ID for AppRole
    #[arg(long, value_name = "ID")]
    pub vault_role_id: Option<String>,
    /// File with the secret ID for AppRole
    #[arg(long, value_name = "FILE")]
    pub vault_secret_id_file: Option<PathBuf>,
    /// Where AppRole is mounted
    #[arg(long, default_value = "approle", value_name = "PATH")]
    pub vault_approle_mount: String,
    /// Time for a connection
    #[arg(long, default_value = "1s", value_parser = atrest::config::parse_timeout, value_name = "DURATION")]
    pub vault_connect_timeout: Duration,
    /// Time for one call, with the login if there has to be one
    #[arg(long, default_value = "2500ms", value_parser = atrest::config::parse_timeout, value_name = "DURATION")]
    pub vault_timeout: Duration,
}

/// Keys of a transit engine. Logs in at the first call.
#[derive(Debug)]
pub struct Vault {
    auth: Arc<Auth>,
    mount: String,
    /// The name of the key that encrypts.
    current: String,
    /// By name, the current one among them.
    keys: BTreeMap<String, KnownKey>,
    timeout: Duration,
}

/// What is known of a key. Who reads it from the server holds the lock, so that the others wait for that answer.
type KnownKey = tokio::sync::Mutex<Option<Arc<TransitKey>>>;

impl Vault {
    /// Checks the options. The server is not asked.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] when an option is missing, contradicts another or cannot be used.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let missing = |what: &str| Error::Configuration(format!("{what} is required"));
        let method = match (&options.vault_token_file, &options.vault_role_id, &options.vault_secret_id_file) {
            (Some(file), None, None) => Method::TokenFile(file.clone()),
            (None, Some(role_id), Some(file)) => Method::AppRole {
                mount: valid_mount("--vault-approle-mount", &options.vault_approle_mount)?,
                role_id: role_id.clone(),
                secret_id_file: file.clone(),
            },
            (None, None, None) => {
                return Err(missing("--vault-token-file, or --vault-role-id with --vault-secret-id-file,"));
            }
            (None, Some(_), None) => return Err(missing("--vault-secret-id-file")),
            (None, None, Some(_)) => return Err(missing("--vault-role-id")),
            (Some(_), ..) => {
                let text = "--vault-token-file excludes --vault-role-id and --vault-secret-id-file";
                return Err(Error::Configuration(text.to_owned()));
            }
        };
        let current = options.vault_key.clone().ok_or_else(|| missing("--vault-key"))?;
        let names = std::iter::once(&current).chain(&options.vault_decrypt_key);
        for name in names.clone() {
            if !key::is_name(name) {
                return Err(Error::Configuration(format!("{name:?} is no name of a transit key")));
            }
        }
        let keys = names.map(|name| (name.clone(), KnownKey::default())).collect();
        let client = Client::new(options)?;
        let mount = valid_mount("--vault-mount", &options.vault_mount)?;
        Ok(Self { auth: Auth::new(client, method), mount, current, keys, timeout: options.vault_timeout })
    }

    /// A key as it is now, or was at most `age` ago.
    async fn key(&self, name: &str, age: Duration) -> Result<Arc<TransitKey>, Error> {
        let unknown = || Error::Configuration(format!("the key {name:?} is not configured"));
        let mut known = self.keys.get(name).ok_or_else(unknown)?.lock().await;
        if let Some(key) = known.as_ref().filter(|key| key.read_at().elapsed() < age) {
            return Ok(Arc::clone(key));
        }
        let read_at = Instant::now();
        let path = format!("{}/keys/{name}", self.mount);
        let answer = self.auth.call(reqwest::Method::GET, &path, None).await.map_err(|refusal| match refusal {
            Refusal::NotFound => Error::KeyUnusable(format!("there is no key {name:?} at {:?}", self.mount)),
            other => other.into(),
        })?;
        let key = Arc::new(TransitKey::parse(&self.mount, name, &answer, read_at)?);
        *known = Some(Arc::clone(&key));
        Ok(key)
    }

    /// The key that has that ID, and its version.
    async fn by_id(&self, key_id: &str) -> Result<(Arc<TransitKey>, u64), Error> {
        let unknown = || Error::UnknownKey { key_id_hash: key_id_hash(key_id) };
        let id = key_id.parse::<KeyId>().ok().filter(|id| self.keys.contains_key(&id.name)).ok_or_else(unknown)?;
        // It may have been moved since. An ID of another engine's key does not open anything: the ciphertext authenticates it.
        let id = KeyId { mount: self.mount.clone(), ..id };
        // A version keeps its creation time; an old reading is as good as a new one, unless it does not have it.
        let known = self.key(&id.name, Duration::MAX).await?;
        let key = if known.has(&id) == Ok(true) { known } else { self.key(&id.name, MIN_KEY_AGE).await? };
        if key.has(&id)? { Ok((key, id.version)) } else { Err(unknown()) }
    }

    async fn encrypt_now(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        if plaintext.is_empty() {
            return Err(Error::InvalidRequest("the plaintext is empty"));
        }
        if plaintext.len() > MAX_DEK_SOURCE_BYTES {
            return Err(Error::InvalidRequest("the plaintext is too long"));
        }
        let mut key = self.key(&self.current, KEY_AGE).await?;
        let mut id = key.current()?;
        let answer = match self.encrypt_by(&id, plaintext).await {
            // A rotation that also raised min_encryption_version.
            Err(Refusal::Bad(reason)) => {
                key = self.key(&self.current, Duration::ZERO).await?;
                let now = key.current()?;
                if now == id {
                    return Err(Refusal::Bad(reason).into());
                }
                id = now;
                self.encrypt_by(&id, plaintext).await?
            }
            answer => answer?,
        };
        let ciphertext = body::ciphertext(&answer)?;
        if version_of(&ciphertext) != Some(id.version) {
            return Err(Error::Unavailable("the Vault encrypted by another version than it was asked to".to_owned()));
        }
        if ciphertext.len() > MAX_DEK_SOURCE_BYTES {
            return Err(Error::InvalidRequest("the plaintext is too long"));
        }
        // A key that was made anew under its name in the meantime would have answered, and nobody would find it by this ID.
        if key.read_at().elapsed() >= MIN_KEY_AGE && !self.key(&self.current, MIN_KEY_AGE).await?.has(&id)? {
            return Err(Error::KeyUnusable(format!("the key {:?} was replaced while it encrypted", id.name)));
        }
        Ok(Wrapped { ciphertext: ciphertext.into_bytes(), key_id: id.to_string(), annotations: BTreeMap::new() })
    }

    /// The answer of the engine, asked to encrypt by that version.
    async fn encrypt_by(&self, id: &KeyId, plaintext: &Key) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let request = body::encrypt(plaintext, &STANDARD.encode(id.to_string()), id.version);
        let path = format!("{}/encrypt/{}", self.mount, id.name);
        self.auth.call(reqwest::Method::POST, &path, Some(request)).await
    }

    async fn decrypt_now(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        let (key, version) = self.by_id(&wrapped.key_id).await?;
        let text = std::str::from_utf8(&wrapped.ciphertext).ok().filter(|text| text.len() <= MAX_DEK_SOURCE_BYTES);
        let text = text.filter(|text| version_of(text) == Some(version)).ok_or(Error::AuthenticationFailed)?;
        let request = body::decrypt(text, &STANDARD.encode(&wrapped.key_id));
        let path = format!("{}/decrypt/{}", self.mount, key.name());
        match self.auth.call(reqwest::Method::POST, &path, Some(request)).await.map_err(Error::from) {
            Ok(answer) => body::plaintext(&answer),
            Err(Error::AuthenticationFailed) if key.read_at().elapsed() >= MIN_KEY_AGE => {
                // The key may have been made anew under its name.
                self.key(key.name(), MIN_KEY_AGE).await?;
                self.by_id(&wrapped.key_id).await?;
                Err(Error::AuthenticationFailed)
            }
            Err(error) => Err(error),
        }
    }

    /// However many requests it takes, no longer than the timeout.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = || Err(Error::Unavailable("the Vault did not answer in time".to_owned()));
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| late())
    }
}

#[tonic::async_trait]
impl Backend for Vault {
    fn name(&self) -> &'static str {
        "vault"
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        let key = self.in_time(self.key(&self.current, KEY_AGE)).await?;
        Ok(key.current()?.to_string())
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        self.in_time(self.encrypt_now(plaintext)).await
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        self.in_time(self.decrypt_now(wrapped)).await
    }

    async fn reload(&self) -> Result<(), Error> {
        self.auth.reload().await;
        for name in self.keys.keys() {
            self.in_time(self.key(name, Duration::ZERO)).await?;
        }
        Ok(())
    }

    fn warning(&self) -> Option<String> {
        self.auth.warning()
    }
}

/// The version of the key that made a ciphertext of the form `vault:v1:` and strict base64.
fn version_of(ciphertext: &str) -> Option<u64> {
    let (version, data) = ciphertext.strip_prefix("vault:v")?.split_once(':')?;
    STANDARD.decode(data).ok().filter(|data| !data.is_empty())?;
    key::canonical_number(version)
}

/// A path of the server, without slashes around it.
fn valid_mount(option: &str, path: &str) -> Result<String, Error> {
    let path = path.trim_matches('/');
    if path.split('/').all(key::is_name) {
        Ok(path.to_owned())
    } else {
        Err(Error::Configuration(format!("{option}: {path:?} is no path of a mount")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ciphertext_names_the_version_of_its_key() {
        assert_eq!(version_of("vault:v1:AAAA"), Some(1));
        assert_eq!(version_of("vault:v42:AAAA"), Some(42));
        let none = [
            "",
            "vault:v1",
            "vault:v1:",
            "vault:v01:AAAA",
            "vault:v+1:AAAA",
            "vault:v0:AAAA",
            "vault:v1:AAA",
            "v1:AAAA",
        ];
        for text in none {
            assert_eq!(version_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_mount_is_a_path_of_names() {
        assert_eq!(valid_mount("--vault-mount", "/team-a/transit/"), Ok("team-a/transit".to_owned()));
        for path in ["", "/", "a//b", "../sys", "a/..", "a?b", "a b", "a%2fb"] {
            let refused = valid_mount("--vault-mount", path);
            assert!(
                matches!(&refused, Err(Error::Configuration(text)) if text.starts_with("--vault-mount: ")),
                "{path}"
            );
        }
    }

    proptest! {
        #[test]
        fn of_any_ciphertext_the_version_is_the_one_written(version in 1..u64::MAX, data in proptest::collection::vec(any::<u8>(), 1..99)) {
            prop_assert_eq!(version_of(&format!("vault:v{version}:{}", STANDARD.encode(data))), Some(version));
        }

        #[test]
        fn any_text_has_a_version_or_none(text in "(vault:v)?[0-9]{0,21}:?[a-zA-Z0-9+/=]{0,12}") {
            if let Some(version) = version_of(&text) {
                let expected = format!("vault:v{version}:");
                prop_assert!(text.starts_with(&expected));
            }
        }
    }
}
