//! One login on one token, with its sessions and keys.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use atrest::report::key_id_hash;
use atrest::secret::Key;
use cryptoki::context::Pkcs11;
use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::MechanismType;
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use zeroize::Zeroizing;

use super::failure::Failure;
use super::key::TokenKey;
use super::seal::Sealer;
use super::{Config, module};
use crate::backend::{Error, Wrapped};
use crate::secret_file::{self, Contents};

/// A longer file is no PIN.
const MAX_PIN_BYTES: usize = 1024;

/// How a token is found among the slots, whose numbers change.
#[derive(Debug)]
pub(super) enum TokenName {
    /// `CK_TOKEN_INFO.label`
    Label(String),
    /// `CK_TOKEN_INFO.serialNumber`
    Serial(String),
}

/// A token that we are logged in to.
#[derive(Debug)]
pub(super) struct Token {
    module: Pkcs11,
    slot: Slot,
    /// The first encrypts.
    keys: Vec<TokenKey>,
    sealer: Sealer,
    /// That a value came with an earlier ID of the key that encrypts now.
    renamed: AtomicBool,
    idle: Mutex<Vec<Session>>,
    /// The token forgets the login with the last session.
    _login: Mutex<Session>,
}

impl Token {
    /// Finds the token, logs in, finds the keys, and tries the first.
    pub(super) fn connect(config: &Config) -> Result<Self, Failure> {
        let module = module::get(&config.module)?;
        let slot = config.token.find(&module)?;
        let session = module.open_ro_session(slot)?;
        log_in(&module, slot, &session, config.pin_file.as_deref())?;
        let mechanisms = module.get_mechanism_list(slot)?;
        let mut keys = Vec::new();
        for (number, selector) in config.keys.iter().enumerate() {
            match selector.find(&session, &mechanisms)? {
                Some(key) => keys.push(key),
                None if number == 0 => return Err(Error::KeyUnusable(format!("no AES key is {selector}")).into()),
                None => tracing::warn!(%selector, "no AES key is labelled so: what it encrypted cannot be decrypted"),
            }
        }
        let first = keys.first().ok_or_else(|| Error::KeyUnusable("there is no key".to_owned()))?;
        let sealer = Sealer::choose(config.mechanism, config.gcm_iv, first, &mechanisms)?;
        let renamed = AtomicBool::new(false);
        let token = Self { module, slot, keys, sealer, renamed, idle: Mutex::default(), _login: Mutex::new(session) };
        token.try_first()?;
        if let Some(warning) = token.current()?.warning() {
            tracing::warn!("{warning}");
        }
        for key in &token.keys {
            if key.extractable() {
                tracing::warn!(
                    key_id = key_id_hash(key.key_id()),
                    "the key is extractable: it can be taken off the token"
                );
            }
        }
        Ok(token)
    }

    /// A token that does not decrypt what it encrypts is found out before a value depends on it.
    fn try_first(&self) -> Result<(), Failure> {
        let mut bytes = Zeroizing::new(vec![0; 32]);
        getrandom::fill(&mut bytes).map_err(|error| Error::Unavailable(format!("no random numbers: {error}")))?;
        let plaintext = Key::new(bytes);
        let wrapped = self.encrypt(&plaintext)?;
        if self.decrypt(&wrapped)? == plaintext {
            Ok(())
        } else {
            Err(Error::KeyUnusable("the token does not decrypt what it encrypts".to_owned()).into())
        }
    }

    /// The key that encrypts.
    pub(super) fn current(&self) -> Result<&TokenKey, Failure> {
        self.keys.first().ok_or_else(|| Error::KeyUnusable("there is no key".to_owned()).into())
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn warning(&self) -> Option<String> {
        let current = self.keys.first()?;
        let extractable = "the key that encrypts is extractable: it can be taken off the token";
        let renamed = "values are stored under another ID of the key that encrypts: the token or the key's attributes were changed; \
                       store everything again by `atrest rekey`";
        let warnings = [
            current.extractable().then(|| extractable.to_owned()),
            current.warning(),
            self.renamed.load(Ordering::Relaxed).then(|| renamed.to_owned()),
        ];
        let warnings: Vec<_> = warnings.into_iter().flatten().collect();
        (!warnings.is_empty()).then(|| warnings.join("; "))
    }

    pub(super) fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Failure> {
        let key = self.current()?;
        let ciphertext = self.with_session(|session| self.sealer.seal(session, key, plaintext))?;
        Ok(Wrapped { ciphertext, key_id: key.key_id().to_owned(), annotations: Default::default() })
    }

    pub(super) fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Failure> {
        let open = |key: &TokenKey| {
            self.with_session(|session| self.sealer.open(session, key, &wrapped.key_id, &wrapped.ciphertext))
        };
        if let Some((number, key)) = self.keys.iter().enumerate().find(|(_, key)| key.has_id(&wrapped.key_id)) {
            let opened = open(key)?;
            self.note(number, key, wrapped);
            return Ok(opened);
        }
        let mut reason = Error::UnknownKey { key_id_hash: key_id_hash(&wrapped.key_id) };
        for (number, key) in self.keys.iter().enumerate().filter(|(_, key)| key.is_likely(&wrapped.key_id)) {
            match open(key) {
                Ok(opened) => {
                    self.note(number, key, wrapped);
                    return Ok(opened);
                }
                Err(Failure::Other(Error::AuthenticationFailed)) => {}
                Err(Failure::Other(error)) => reason = error,
                Err(failure) => return Err(failure),
            }
        }
        Err(reason.into())
    }

    /// Remembers that the key that encrypts had another ID.
    fn note(&self, number: usize, key: &TokenKey, wrapped: &Wrapped) {
        if number == 0 && key.key_id() != wrapped.key_id && !self.renamed.swap(true, Ordering::Relaxed) {
            let (now, before) = (key_id_hash(key.key_id()), key_id_hash(&wrapped.key_id));
            tracing::warn!(now, before, "the key that encrypts had another ID, under which values are stored");
        }
    }

    /// Runs it with a session of its own. One that failed is closed: an operation may still be active in it.
    fn with_session<T>(&self, call: impl FnOnce(&Session) -> Result<T, Failure>) -> Result<T, Failure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let session = idle().pop();
        let session = match session {
            Some(session) => session,
            None => self.module.open_ro_session(self.slot)?,
        };
        let answer = call(&session)?;
        idle().push(session);
        Ok(answer)
    }
}

impl TokenName {
    fn find(&self, module: &Pkcs11) -> Result<Slot, Failure> {
        let mut found = Vec::new();
        for slot in module.get_slots_with_token()? {
            // A token that is being pulled out says so here; it is not ours then.
            let Ok(info) = module.get_token_info(slot) else { continue };
            let same = match self {
                Self::Label(label) => info.label() == label,
                Self::Serial(serial) => info.serial_number() == serial,
            };
            if same && info.token_initialized() {
                found.push((slot, info.serial_number().to_owned()));
            }
        }
        match found.as_slice() {
            [(slot, _)] => Ok(*slot),
            [] => Err(Failure::Lost(match self {
                Self::Label(label) => format!("no token is labelled {label:?}"),
                Self::Serial(serial) => format!("no token has the serial number {serial:?}"),
            })),
            many => {
                let serials: Vec<_> = many.iter().map(|(_, serial)| serial.as_str()).collect();
                let text = format!(
                    "{} tokens match: choose one by --pkcs11-token-serial ({})",
                    many.len(),
                    serials.join(", ")
                );
                Err(Error::Configuration(text).into())
            }
        }
    }
}

fn log_in(module: &Pkcs11, slot: Slot, session: &Session, pin_file: Option<&Path>) -> Result<(), Failure> {
    let info = module.get_token_info(slot)?;
    if !info.login_required() {
        return Ok(());
    }
    if info.user_pin_locked() {
        return Err(Failure::Pin("the PIN is locked".to_owned()));
    }
    if info.user_pin_final_try() {
        return Err(Failure::Pin("one attempt is left before the token locks its PIN: it is not used".to_owned()));
    }
    let pin = match pin_file {
        Some(file) => Some(read_pin(file)?),
        None if info.protected_authentication_path() => None,
        None => {
            let text = "the token requires a PIN: name its file by --pkcs11-pin-file";
            return Err(Error::Configuration(text.to_owned()).into());
        }
    };
    match session.login(UserType::User, pin.as_ref()) {
        Ok(()) | Err(CryptokiError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Read at each login, and not kept. What is no PIN is not tried: a token has few attempts.
fn read_pin(file: &Path) -> Result<AuthPin, Failure> {
    let unreadable = |error: std::io::Error| Error::Credentials(format!("cannot read {}: {error}", file.display()));
    let contents = secret_file::read(file, MAX_PIN_BYTES).map_err(unreadable)?;
    let pin = match &contents {
        Contents::Secret(bytes) => std::str::from_utf8(bytes).ok().filter(|pin| !pin.contains(['\r', '\n'])),
        Contents::Empty | Contents::TooLong => None,
    };
    match pin {
        Some(pin) => Ok(AuthPin::from(pin)),
        None => Err(Error::Credentials(format!("{} holds no PIN", file.display())).into()),
    }
}

/// Whether the token has it.
pub(super) fn has(mechanisms: &[MechanismType], mechanism: MechanismType) -> bool {
    mechanisms.contains(&mechanism)
}
