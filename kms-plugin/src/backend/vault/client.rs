//! HTTP, and what an answer means.

use std::time::{Duration, Instant};

use atrest::causes::innermost;
use atrest::secret::Password;
use axum::body::Bytes;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Method, StatusCode, Url};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Options;
use super::body::Body;
use crate::backend::Error;
use crate::backend::pause::Pause;

/// A key of many versions has the largest answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// So much of what the server says is repeated.
const MAX_REASON_CHARS: usize = 200;

/// Why a call was not answered as asked.
#[derive(Debug)]
pub(super) enum Refusal {
    /// 403: the token is not valid, or its policy does not allow it.
    Forbidden,
    /// 404: there is no such key, or no engine at that path.
    NotFound,
    /// 400, with the server's words.
    Bad(String),
    /// Anything else.
    Other(Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Forbidden => Self::Credentials("permission denied".to_owned()),
            Refusal::NotFound => {
                Self::KeyUnusable("there is no such key, or no transit engine at that path".to_owned())
            }
            Refusal::Bad(reason) => of_bad_request(&reason),
            Refusal::Other(error) => error,
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// A server.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    pause: Pause,
    /// Plain HTTP, and not to this machine.
    in_the_clear: bool,
}

impl Client {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let wrong = |what: String| Error::Configuration(what);
        let address = options.vault_addr.as_deref().filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| wrong("--vault-addr is required".to_owned()))?;
        let url = Url::parse(address).map_err(|error| wrong(format!("--vault-addr {address:?}: {error}")))?;
        let plain = url.scheme() == "http";
        if !(plain || url.scheme() == "https") || !url.has_host() {
            return Err(wrong(format!("--vault-addr {address:?}: neither http:// nor https://")));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("--vault-addr has more than a scheme, a host, a port and a path".to_owned()));
        }

        let mut headers = HeaderMap::new();
        headers.insert("x-vault-request", HeaderValue::from_static("true"));
        if let Some(namespace) = options.vault_namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
            let value = HeaderValue::from_str(namespace)
                .map_err(|_| wrong(format!("--vault-namespace {namespace:?} cannot be sent")))?;
            headers.insert("x-vault-namespace", value);
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(options.vault_connect_timeout)
            .timeout(options.vault_timeout)
            // Its headers are followed by our token to wherever it points.
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers);
        if plain {
            // A proxy would read the keys.
            builder = builder.no_proxy();
        }
        if let Some(file) = &options.vault_ca_file {
            let unusable = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", file.display()));
            let pem = std::fs::read(file).map_err(|error| unusable(&error))?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
            if certificates.is_empty() {
                return Err(unusable(&"no certificate in it"));
            }
            builder = builder.tls_certs_only(certificates);
        }
        let http =
            builder.build().map_err(|error| wrong(format!("cannot use these options: {}", innermost(&error))))?;
        let in_the_clear = plain && !is_this_machine(&url);
        Ok(Self { http, base: url.as_str().trim_end_matches('/').to_owned(), pause: Pause::default(), in_the_clear })
    }

    /// Whether tokens and keys can be read on their way.
    pub(super) fn is_in_the_clear(&self) -> bool {
        self.in_the_clear
    }

    /// One request to `/v1/<path>`; the answer's body.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&Password>,
        body: Option<Body>,
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        self.pause.check(Instant::now())?;
        let body = body.map(Bytes::from_owner);
        let mut value = None;
        if let Some(token) = token {
            let mut header = HeaderValue::from_str(token.expose())
                .map_err(|_| Error::Credentials("the token is not one that can be sent".to_owned()))?;
            header.set_sensitive(true);
            value = Some(header);
        }
        let send = || {
            let mut request = self.http.request(method.clone(), format!("{}/v1/{path}", self.base));
            if let Some(value) = value.clone() {
                request = request.header("x-vault-token", value);
            }
            if let Some(body) = body.clone() {
                request = request.header("content-type", "application/json").body(body);
            }
            request.send()
        };
        let mut response = match send().await {
            // A connection that was kept open, to a server that has been restarted. Every call of ours can be repeated.
            Err(error) if !error.is_connect() && !error.is_timeout() => send().await,
            answer => answer,
        }
        .map_err(|error| unavailable(&error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let expected = response.content_length().and_then(|len| usize::try_from(len).ok()).unwrap_or(4096);
        let mut answer = Zeroizing::new(Vec::with_capacity(expected.min(MAX_ANSWER_BYTES)));
        while let Some(chunk) = response.chunk().await.map_err(|error| unavailable(&error))? {
            if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Error::Unavailable("the answer of the Vault is too large".to_owned()).into());
            }
            answer.extend_from_slice(&chunk);
        }
        if status.is_success() {
            self.pause.end(Instant::now());
            return Ok(answer);
        }
        Err(self.refusal(status, retry_after, &answer))
    }

    fn refusal(&self, status: StatusCode, retry_after: Option<Duration>, answer: &[u8]) -> Refusal {
        let reason = reason(answer);
        let says = |what: &str| Error::Unavailable(what.to_owned()).into();
        match status.as_u16() {
            400 => Refusal::Bad(reason),
            403 => Refusal::Forbidden,
            404 => Refusal::NotFound,
            // Of a quota. Health checks of standbys have it too, which we do not ask.
            429 => self.pause.begin(Instant::now(), retry_after).into(),
            503 if reason.contains("sealed") => says("the Vault is sealed"),
            503 if reason.contains("standby") => says("the Vault is a standby, and knows no active node"),
            300..=399 => says("the Vault answers with a redirection: name its active node"),
            _ => says(&format!("the Vault answered {}: {reason}", status.as_u16())),
        }
    }
}

/// What the transit engine says of a request that it does not like.
fn of_bad_request(reason: &str) -> Error {
    let damaged = ["message authentication failed", "invalid ciphertext", "unable to decrypt"];
    let unusable = ["encryption key not found", "disallowed by policy", "version is too new", "higher than the latest"];
    if unusable.iter().any(|text| reason.contains(text)) {
        Error::KeyUnusable(reason.to_owned())
    } else if damaged.iter().any(|text| reason.contains(text)) {
        Error::AuthenticationFailed
    } else {
        Error::Unavailable(format!("the Vault refused the request: {reason}"))
    }
}

/// What the server says, on one line and not endlessly.
fn reason(answer: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    let errors = serde_json::from_slice::<Errors>(answer).map(|answer| answer.errors.join("; ")).unwrap_or_default();
    let line: String = errors.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON_CHARS).collect();
    if line.trim().is_empty() { "no reason".to_owned() } else { line }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn unavailable(error: &reqwest::Error) -> Error {
    if error.is_timeout() {
        return Error::Unavailable("the Vault did not answer in time".to_owned());
    }
    Error::Unavailable(innermost(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_server_are_bounded_and_on_one_line() {
        assert_eq!(reason(br#"{"errors":["a\nb","c"]}"#), "a b; c");
        assert_eq!(reason(br#"{"errors":[]}"#), "no reason");
        assert_eq!(reason(b"<html>"), "no reason");
        let long = format!(r#"{{"errors":["{}"]}}"#, "x".repeat(5000));
        assert_eq!(reason(long.as_bytes()).len(), 200);
    }

    #[test]
    fn words_of_the_transit_engine_are_understood() {
        assert_eq!(of_bad_request("cipher: message authentication failed"), Error::AuthenticationFailed);
        assert_eq!(of_bad_request("invalid ciphertext length"), Error::AuthenticationFailed);
        let old = "ciphertext or signature version is disallowed by policy (too old)";
        assert_eq!(of_bad_request(old), Error::KeyUnusable(old.to_owned()));
        let gone = "encryption key not found";
        assert_eq!(of_bad_request(gone), Error::KeyUnusable(gone.to_owned()));
        assert_eq!(of_bad_request("odd"), Error::Unavailable("the Vault refused the request: odd".to_owned()));
    }

    #[test]
    fn an_address_on_this_machine_needs_no_tls() {
        let here = |url: &str| is_this_machine(&Url::parse(url).expect("a URL"));
        for url in ["http://127.0.0.1:8200", "http://[::1]:8200", "http://localhost"] {
            assert!(here(url), "{url}");
        }
        for url in ["http://10.0.0.1", "http://vault.example", "http://localhost.example"] {
            assert!(!here(url), "{url}");
        }
    }
}
