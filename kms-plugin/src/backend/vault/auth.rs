//! The token: from a file or by AppRole, renewed at two thirds of its life, exchanged when it is refused.
//!
//! | | token file | AppRole |
//! |---|---|---|
//! | the file changes | the new token is taken | the new secret ID is used at the next login |
//! | time to renew | renewed if it can be | renewed, else a new login |
//! | renewal refused, or at the end of its life | kept until it expires; a warning says so | a new login |
//! | a request is refused | reported | one new login, then reported |

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use atrest::secret::Password;
use reqwest::Method as Verb;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use super::body::{self, Body, Granted};
use super::client::{Client, Refusal};
use crate::backend::Error;
use crate::secret_file::{self, Contents};

/// So long after a login that failed, the next is not tried.
const PAUSE: Duration = Duration::from_secs(1);

/// The same when the credentials were refused: a Vault locks a role after a few of those.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// A token that is younger is not exchanged when a request is refused: the policy is the reason.
const MIN_TOKEN_AGE: Duration = Duration::from_secs(2);

/// A renewal that could not be sent is tried again after that.
const RETRY: Duration = Duration::from_secs(2);

/// Longer files hold no token.
const MAX_SECRET_BYTES: usize = 64 * 1024;

/// How we say who we are.
#[derive(Debug)]
pub(super) enum Method {
    /// A file with a token, as `vault agent` writes it.
    TokenFile(PathBuf),
    /// A role and its secret ID.
    AppRole { mount: String, role_id: String, secret_id_file: PathBuf },
}

/// A server, and a token for it.
#[derive(Debug)]
pub(super) struct Auth {
    client: Client,
    method: Method,
    /// Who logs in holds it, so that the others wait for that token.
    state: tokio::sync::Mutex<State>,
    /// When a token expires that cannot be renewed.
    end: Mutex<Option<Instant>>,
    /// Tells the task that renews that there is another token.
    wake: Arc<Notify>,
    renewal: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Arc<Token>>,
    failed: Option<Failed>,
    /// The file that the token or the secret ID came from, as it was.
    stamp: Option<Stamp>,
    /// When to renew.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Failed {
    until: Instant,
    error: Error,
}

#[derive(Debug)]
struct Token {
    value: Password,
    got: Instant,
    /// `None` for one that does not expire.
    ttl: Option<Duration>,
    /// What it was at the login.
    first_ttl: Option<Duration>,
    renewable: bool,
}

/// What changes when a file is written or replaced.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl Auth {
    pub(super) fn new(client: Client, method: Method) -> Arc<Self> {
        Arc::new(Self {
            client,
            method,
            state: tokio::sync::Mutex::default(),
            end: Mutex::default(),
            wake: Arc::default(),
            renewal: Mutex::default(),
        })
    }

    /// One request to `/v1/<path>` with a token.
    pub(super) async fn call(
        self: &Arc<Self>,
        verb: Verb,
        path: &str,
        body: Option<Body>,
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let mut exchanged = false;
        loop {
            let token = self.token().await?;
            match self.client.call(verb.clone(), path, Some(&token.value), body.clone()).await {
                Err(Refusal::Forbidden) if !exchanged && self.refused(&token).await => exchanged = true,
                Err(Refusal::Forbidden) => {
                    let text =
                        format!("permission denied for {path}: a policy does not allow it, or the token is not valid");
                    return Err(Error::Credentials(text).into());
                }
                answer => return answer,
            }
        }
    }

    /// Forgets failures. What changed in files is seen without it.
    pub(super) async fn reload(&self) {
        self.state.lock().await.failed = None;
    }

    /// What an operator should know.
    pub(super) fn warning(&self) -> Option<String> {
        if let Some(end) = *self.end.lock().unwrap_or_else(PoisonError::into_inner) {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            return Some(format!("the token cannot be renewed, and expires in {left} s"));
        }
        let text = "the connection to the Vault is plain HTTP: tokens and keys can be read on their way";
        self.client.is_in_the_clear().then(|| text.to_owned())
    }

    async fn token(self: &Arc<Self>) -> Result<Arc<Token>, Error> {
        let mut state = self.state.lock().await;
        let stamp = Stamp::of(self.method.file());
        if stamp.is_some() && stamp != state.stamp {
            state.failed = None;
            if matches!(self.method, Method::TokenFile(_)) {
                state.token = None;
            }
        }
        if let Some(token) = state.token.as_ref().filter(|token| !token.has_expired()) {
            return Ok(Arc::clone(token));
        }
        if let Some(failed) = state.failed.as_ref().filter(|failed| Instant::now() < failed.until) {
            return Err(failed.error.clone());
        }
        state.stamp = stamp;
        self.log_in_to(&mut state).await
    }

    /// Gets a token and keeps it, or the reason why there is none.
    async fn log_in_to(self: &Arc<Self>, state: &mut State) -> Result<Arc<Token>, Error> {
        match self.log_in().await {
            Ok(token) => {
                tracing::info!(ttl = ?token.ttl, renewable = token.renewable, "got a token for the Vault");
                let token = Arc::new(token);
                state.token = Some(Arc::clone(&token));
                state.failed = None;
                state.due = token.renewal_is_due();
                *self.end.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.wake.notify_one();
                self.start_renewing();
                Ok(token)
            }
            Err(error) => {
                let pause = match error {
                    // The client counts that pause itself.
                    Error::Throttled { .. } => Duration::ZERO,
                    Error::Credentials(_) => PAUSE_AFTER_REFUSAL,
                    _ => PAUSE,
                };
                let until = Instant::now().checked_add(pause).unwrap_or_else(Instant::now);
                state.failed = Some(Failed { until, error: error.clone() });
                Err(error)
            }
        }
    }

    async fn log_in(&self) -> Result<Token, Error> {
        let got = Instant::now();
        match &self.method {
            Method::TokenFile(file) => {
                let value = read_secret(file)?;
                match self.client.call(Verb::GET, "auth/token/lookup-self", Some(&value), None).await {
                    Ok(answer) => {
                        let (ttl, renewable) = body::looked_up(&answer)?;
                        Ok(Token::new(Granted { token: value, ttl, renewable }, got, None))
                    }
                    // A policy may forbid this look-up and allow the rest.
                    Err(Refusal::Forbidden) => {
                        Ok(Token::new(Granted { token: value, ttl: 0, renewable: false }, got, None))
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Method::AppRole { mount, role_id, secret_id_file } => {
                let request = body::login(role_id, &read_secret(secret_id_file)?)?;
                let path = format!("auth/{mount}/login");
                let answer = self.client.call(Verb::POST, &path, None, Some(request)).await;
                let refused = |reason: &str| Error::Credentials(format!("the login by AppRole was refused: {reason}"));
                let answer = answer.map_err(|refusal| match refusal {
                    Refusal::Forbidden => refused("permission denied"),
                    Refusal::Bad(reason) => refused(&reason),
                    Refusal::NotFound => refused(&format!("nothing is mounted at auth/{mount}")),
                    Refusal::Other(error) => error,
                })?;
                Ok(Token::new(body::granted(&answer)?, got, None))
            }
        }
    }

    /// Whether there may be a better token than this one, which was refused.
    async fn refused(&self, token: &Arc<Token>) -> bool {
        let mut state = self.state.lock().await;
        match &state.token {
            Some(current) if Arc::ptr_eq(current, token) => match self.method {
                // A changed file is seen at the next request.
                Method::TokenFile(_) => false,
                Method::AppRole { .. } if token.got.elapsed() < MIN_TOKEN_AGE => false,
                Method::AppRole { .. } => {
                    state.token = None;
                    true
                }
            },
            _ => true,
        }
    }

    fn start_renewing(self: &Arc<Self>) {
        let mut renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        if renewal.is_none() {
            let task = tokio::spawn(keep_renewing(Arc::downgrade(self), Arc::clone(&self.wake)));
            *renewal = Some(task.abort_handle());
        }
    }

    /// Renews the token, or gets another one.
    async fn renew(self: &Arc<Self>) {
        let Some(token) = self.state.lock().await.token.clone() else { return };
        let renewed = if token.renewable {
            let body = Zeroizing::new(b"{}".to_vec());
            let got = Instant::now();
            let answer = self.client.call(Verb::POST, "auth/token/renew-self", Some(&token.value), Some(body)).await;
            match answer.map_err(Some).and_then(|a| body::granted(&a).map_err(|error| Some(error.into()))) {
                Ok(granted) => Ok(Token::new(granted, got, token.first_ttl)),
                Err(refusal) => Err(refusal),
            }
        } else {
            Err(None)
        };
        let mut state = self.state.lock().await;
        if !state.token.as_ref().is_some_and(|current| Arc::ptr_eq(current, &token)) {
            return;
        }
        match renewed {
            Ok(renewed) if !renewed.is_at_its_end() => {
                tracing::debug!(ttl = ?renewed.ttl, "renewed the token for the Vault");
                state.due = renewed.renewal_is_due();
                state.token = Some(Arc::new(renewed));
            }
            Err(Some(Refusal::Other(error))) => {
                tracing::warn!(%error, "the token for the Vault could not be renewed yet");
                state.due = Instant::now().checked_add(RETRY);
            }
            _ if self.can_log_in() => {
                if let Err(error) = self.log_in_to(&mut state).await {
                    tracing::warn!(%error, "the login to the Vault failed; the old token is used while it lasts");
                    let pause = if matches!(error, Error::Credentials(_)) { PAUSE_AFTER_REFUSAL } else { RETRY };
                    state.due = Instant::now().checked_add(pause);
                }
            }
            last => {
                tracing::warn!("the token for the Vault cannot be renewed; write another one to its file");
                let last = last.ok().filter(|renewed| renewed.ttl.is_some()).map_or(token, Arc::new);
                *self.end.lock().unwrap_or_else(PoisonError::into_inner) = last.expires();
                state.due = None;
                state.token = Some(last);
            }
        }
    }

    fn can_log_in(&self) -> bool {
        matches!(self.method, Method::AppRole { .. })
    }
}

impl Drop for Auth {
    fn drop(&mut self) {
        if let Some(task) = self.renewal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn keep_renewing(auth: Weak<Auth>, wake: Arc<Notify>) {
    loop {
        let Some(strong) = auth.upgrade() else { return };
        let due = strong.state.lock().await.due;
        drop(strong);
        let Some(due) = due else {
            wake.notified().await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = wake.notified() => continue,
        }
        let Some(strong) = auth.upgrade() else { return };
        strong.renew().await;
    }
}

impl Method {
    fn file(&self) -> &Path {
        match self {
            Self::TokenFile(file) => file,
            Self::AppRole { secret_id_file, .. } => secret_id_file,
        }
    }
}

impl Token {
    fn new(granted: Granted, got: Instant, first_ttl: Option<Duration>) -> Self {
        let ttl = Some(Duration::from_secs(granted.ttl)).filter(|ttl| !ttl.is_zero());
        Self { value: granted.token, got, ttl, first_ttl: first_ttl.or(ttl), renewable: granted.renewable }
    }

    fn expires(&self) -> Option<Instant> {
        self.got.checked_add(self.ttl?)
    }

    fn has_expired(&self) -> bool {
        self.expires().is_some_and(|end| end <= Instant::now())
    }

    /// At two thirds of its life or a little before, so that the plugins of many nodes do not all come at once.
    fn renewal_is_due(&self) -> Option<Instant> {
        let mut random = [0];
        // Without random numbers they come at the same time, which is no reason to fail.
        if getrandom::fill(&mut random).is_err() {
            random = [0];
        }
        let [random] = random;
        let two_thirds = self.ttl?.saturating_mul(2) / 3;
        self.got.checked_add(two_thirds - two_thirds / 10 * u32::from(random) / 255)
    }

    /// Whether its maximal age does not let it live as long as at first.
    fn is_at_its_end(&self) -> bool {
        self.first_ttl.is_some_and(|first| self.ttl.is_none_or(|ttl| ttl < first / 2))
    }
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(file).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { inode: metadata.ino(), len: metadata.len(), modified })
    }
}

fn read_secret(file: &Path) -> Result<Password, Error> {
    let unreadable = |error: std::io::Error| Error::Credentials(format!("cannot read {}: {error}", file.display()));
    let contents = secret_file::read(file, MAX_SECRET_BYTES).map_err(unreadable)?;
    let text = match &contents {
        Contents::Secret(bytes) if bytes.iter().all(u8::is_ascii_graphic) => std::str::from_utf8(bytes).ok(),
        Contents::Secret(_) | Contents::Empty | Contents::TooLong => None,
    };
    let none = || Error::Credentials(format!("{} holds no token or secret ID", file.display()));
    Ok(Password::new(text.ok_or_else(none)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(ttl: u64, first_ttl: Option<u64>) -> Token {
        let granted = Granted { token: Password::new("s.x".to_owned()), ttl, renewable: true };
        Token::new(granted, Instant::now(), first_ttl.map(Duration::from_secs))
    }

    #[test]
    fn a_token_is_renewed_at_two_thirds_of_its_life_or_a_little_before() {
        for _ in 0..100 {
            let token = token(3600, None);
            let due = token.renewal_is_due().expect("it expires") - token.got;
            assert!((Duration::from_secs(2160)..=Duration::from_secs(2400)).contains(&due), "{due:?}");
        }
    }

    #[test]
    fn a_token_that_does_not_expire_is_not_renewed() {
        let token = token(0, None);
        assert_eq!((token.renewal_is_due(), token.expires(), token.has_expired()), (None, None, false));
    }

    #[test]
    fn a_token_is_at_its_end_when_half_of_its_first_life_is_left() {
        assert!(!token(60, Some(60)).is_at_its_end());
        assert!(!token(30, Some(60)).is_at_its_end());
        assert!(token(29, Some(60)).is_at_its_end());
        assert!(token(0, Some(60)).is_at_its_end());
        assert!(!token(0, None).is_at_its_end());
    }

    #[test]
    fn a_secret_is_the_only_word_of_its_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = |text: &str| {
            std::fs::write(file.path(), text).expect("it can be written");
            read_secret(file.path()).map(|secret| secret.expose().to_owned())
        };
        assert_eq!(read("s.abc\n"), Ok("s.abc".to_owned()));
        let none = Err(Error::Credentials(format!("{} holds no token or secret ID", file.path().display())));
        for text in
            ["", "\n", "two words", " s.abc", "s.abc\r\n", "s.abc\n\n", "s.\u{e9}", &"x".repeat(MAX_SECRET_BYTES + 1)]
        {
            assert_eq!(read(text), none);
        }
    }
}
