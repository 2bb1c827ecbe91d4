//! AES keys on a PKCS#11 token: an HSM, a smart card, SoftHSM.
//!
//! ```text
//! mod      options; the calls of Backend, each on a thread that may block
//! token    one login on one token: its sessions and keys
//! key      finding keys by label; their key IDs
//! seal     the ciphertext, and the mechanisms that make it
//! module   the shared library, initialized once per process
//! failure  what a return value of the module means
//! ```
//!
//! A module is C code that may hang and is not always safe to interrupt. Each call therefore runs on a thread of its own, as many at
//! once as there are sessions; a caller that waits longer than the timeout gets [`Error::Unavailable`] while the call goes on.
//!
//! Source: PKCS #11 Specification 3.0 and its Current Mechanisms.

mod failure;
mod key;
mod module;
mod seal;
mod token;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use atrest::secret::Key;
use tokio::sync::Semaphore;

use self::failure::Failure;
use self::key::Selector;
use self::token::{Token, TokenName};
use super::{Backend, Error, Wrapped};

/// So long after a connection failed, the next is not tried.
const PAUSE: Duration = Duration::from_secs(1);

/// A credential of this name is the PIN when no file is named.
const PIN_CREDENTIAL: &str = "pkcs11-pin";

/// How a key encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mechanism {
    /// AES-GCM where token and key allow it, else AES key wrap.
    Auto,
    /// `CKM_AES_GCM`; authenticates the key ID too.
    AesGcm,
    /// `CKM_AES_KEY_WRAP` (RFC 3394), of a session object.
    AesKeyWrap,
}

/// Where the nonces of AES-GCM come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GcmIv {
    /// From the operating system's generator.
    Random,
    /// From the token, which writes it over twelve zeros: AWS CloudHSM and others take no other.
    Token,
}

/// Which token, and which keys.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "pkcs11")]
#[command(next_help_heading = "PKCS#11")]
pub struct Options {
    /// Shared library of the token
    #[arg(long, value_name = "FILE")]
    pub pkcs11_module: Option<PathBuf>,
    /// Label of the token
    #[arg(long, value_name = "LABEL")]
    pub pkcs11_token_label: Option<String>,
    /// Serial number of the token
    #[arg(long, value_name = "SERIAL")]
    pub pkcs11_token_serial: Option<String>,
    /// File with the user's PIN; without it, the systemd credential pkcs11-pin
    #[arg(long, value_name = "FILE")]
    pub pkcs11_pin_file: Option<PathBuf>,
    /// Label of an AES key, or label#CKA_ID in hexadecimal; the first encrypts, all decrypt
    #[arg(long, value_name = "LABEL[#ID]")]
    pub pkcs11_key_label: Vec<String>,
    /// How the first key encrypts; each decrypts what either mechanism made
    #[arg(long, value_enum, default_value = "auto", value_name = "MECHANISM")]
    pub pkcs11_mechanism: Mechanism,
    /// Where the nonces of AES-GCM come from
    #[arg(long, value_enum, default_value = "random", value_name = "SOURCE")]
    pub pkcs11_gcm_iv: GcmIv,
    /// Sessions, that is calls at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64), value_name = "NUMBER")]
    pub pkcs11_sessions: u16,
    /// Time for one call
    #[arg(long, default_value = "2500ms", value_parser = atrest::config::parse_timeout, value_name = "DURATION")]
    pub pkcs11_timeout: Duration,
}

/// The options, parsed.
#[derive(Debug)]
struct Config {
    module: PathBuf,
    token: TokenName,
    pin_file: Option<PathBuf>,
    keys: Vec<Selector>,
    mechanism: Mechanism,
    gcm_iv: GcmIv,
}

/// Keys on a token. Connects at the first call, and again when the token was lost.
#[derive(Debug)]
pub struct Pkcs11 {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    /// Calls hold it for reading: it is not exchanged below them.
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Token>,
    /// Tells whether somebody else has exchanged the token in the meantime.
    generation: u64,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    at: Instant,
    error: Error,
    /// A wrong PIN, tried again and again, is a locked one.
    until_reload: bool,
}

impl Pkcs11 {
    /// Checks the options. Neither the module nor the token is touched.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] when an option is missing or contradicts another.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let missing = |what: &str| Error::Configuration(format!("{what} is required"));
        let token = match (&options.pkcs11_token_label, &options.pkcs11_token_serial) {
            (Some(label), None) => TokenName::Label(label.clone()),
            (None, Some(serial)) => TokenName::Serial(serial.clone()),
            (None, None) => return Err(missing("--pkcs11-token-label or --pkcs11-token-serial")),
            (Some(_), Some(_)) => {
                let text = "--pkcs11-token-label and --pkcs11-token-serial exclude each other";
                return Err(Error::Configuration(text.to_owned()));
            }
        };
        let keys: Vec<Selector> = options.pkcs11_key_label.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(missing("--pkcs11-key-label"));
        }
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|dir| PathBuf::from(dir).join(PIN_CREDENTIAL));
        let config = Config {
            module: options.pkcs11_module.clone().ok_or_else(|| missing("--pkcs11-module"))?,
            token,
            pin_file: options.pkcs11_pin_file.clone().or(credential.filter(|file| file.is_file())),
            keys,
            mechanism: options.pkcs11_mechanism,
            gcm_iv: options.pkcs11_gcm_iv,
        };
        Ok(Self {
            shared: Arc::new(Shared { config, state: RwLock::default() }),
            permits: Arc::new(Semaphore::new(options.pkcs11_sessions.into())),
            timeout: options.pkcs11_timeout,
        })
    }

    /// Runs it on a thread that may block, and waits for it no longer than the timeout.
    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let late = || Error::Unavailable(format!("the token did not answer in {:?}", self.timeout));
        let run = async {
            // Held by the call, not by the caller: who gives up does not make a hanging module free.
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| late())?;
            let shared = Arc::clone(&self.shared);
            let call = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                call(&shared)
            });
            call.await
                .unwrap_or_else(|error| Err(Error::Unavailable(format!("the call to the module failed: {error}"))))
        };
        tokio::time::timeout(self.timeout, run).await.unwrap_or_else(|_| Err(late()))
    }
}

#[tonic::async_trait]
impl Backend for Pkcs11 {
    fn name(&self) -> &'static str {
        "pkcs11"
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        self.blocking(|shared| shared.with_token(|token| Ok(token.current()?.key_id().to_owned()))).await
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        let plaintext = Key::new(plaintext.expose().to_vec().into());
        self.blocking(move |shared| shared.with_token(|token| token.encrypt(&plaintext))).await
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        let wrapped = wrapped.clone();
        self.blocking(move |shared| shared.with_token(|token| token.decrypt(&wrapped))).await
    }

    async fn reload(&self) -> Result<(), Error> {
        self.blocking(Shared::reload).await
    }

    fn warning(&self) -> Option<String> {
        // Waits for nobody: a hanging module must not stop the health endpoint.
        self.shared.state.try_read().ok()?.token.as_ref()?.warning()
    }
}

impl Shared {
    /// Runs it with the token, connecting first where there is no connection, and once more where it was lost.
    fn with_token<T>(&self, call: impl Fn(&Token) -> Result<T, Failure>) -> Result<T, Error> {
        let mut lost = None;
        for _ in 0..2 {
            self.connect(lost)?;
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            // Lost between the two locks: the other thread's error says why.
            let Some(token) = &state.token else { continue };
            match call(token) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Lost(reason)) if lost.is_none() => {
                    tracing::warn!(reason, "the connection to the PKCS#11 token is lost");
                    lost = Some(state.generation);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Error::Unavailable("the connection to the token is lost".to_owned()))
    }

    /// Sees to it that there is a token, and another one than that of the generation `lost`.
    fn connect(&self, lost: Option<u64>) -> Result<(), Error> {
        let good = |state: &State| state.token.is_some() && lost != Some(state.generation);
        if good(&self.state.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if good(&state) {
            return Ok(());
        }
        // Closes its sessions, before a new one can get the same handle.
        state.token = None;
        if let Some(failed) = &state.failed
            && (failed.until_reload || failed.at.elapsed() < PAUSE)
        {
            return Err(failed.error.clone());
        }
        let connected = Token::connect(&self.config).or_else(|failure| match failure {
            Failure::Lost(reason) => {
                // Some modules see tokens that appear later only when they are initialized again. No call is under way here.
                tracing::debug!(reason, "initializing the PKCS#11 module again");
                module::restart(&self.config.module)?;
                Token::connect(&self.config)
            }
            other => Err(other),
        });
        state.put(connected)
    }

    fn reload(&self) -> Result<(), Error> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = &state.token {
            match Token::connect(&self.config) {
                Ok(new) => return state.put(Ok(new)),
                // That connection is of no use either.
                Err(Failure::Lost(_)) => state.token = None,
                Err(failure) => {
                    tracing::warn!(keys = token.len(), "the keys on the PKCS#11 token are kept as they were");
                    return Err(failure.into());
                }
            }
        }
        state.failed = None;
        drop(state);
        self.connect(None)
    }
}

impl State {
    fn put(&mut self, connected: Result<Token, Failure>) -> Result<(), Error> {
        match connected {
            Ok(token) => {
                tracing::info!(keys = token.len(), "connected to the PKCS#11 token");
                self.token = Some(token);
                self.generation = self.generation.wrapping_add(1);
                self.failed = None;
                Ok(())
            }
            Err(failure) => {
                let until_reload = matches!(failure, Failure::Pin(_));
                let error = Error::from(failure);
                self.failed = Some(Failed { at: Instant::now(), error: error.clone(), until_reload });
                Err(error)
            }
        }
    }
}
