//! `/metrics` by URL or from a file, bounded.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use atrest::causes::innermost;
use atrest::doctor::Clock;
use atrest::doctor::metrics::{Metrics, Scrape};
use atrest::secret::Password;
use reqwest::header::{AUTHORIZATION, DATE, HeaderValue};
use reqwest::{Certificate, Identity, StatusCode, Url};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use zeroize::Zeroizing;

use super::super::{given, read_file};
use crate::args::MetricsArgs;
use crate::failure::Failure;

/// The most that is read: ten times the metrics of a large API server.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// How long one reading may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where metrics are.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Place {
    Url(Url),
    File(PathBuf),
}

impl Place {
    pub(super) fn parse(flag: &str, text: &str) -> Result<Self, Failure> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let usage = |reason: &str| Failure::Usage(format!("{flag}: {reason}"));
        let url = Url::parse(text).map_err(|error| usage(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(usage("a URL is http:// or https://; a file is named by its path"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(usage(
                "no user and no password can stand in the URL: use --metrics-cert or --metrics-token-file",
            ));
        }
        Ok(Self::Url(url))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Url(url) => url.to_string(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Reads files, and URLs.
pub(super) struct Fetcher {
    http: Option<reqwest::Client>,
    token: Option<Password>,
}

impl Fetcher {
    pub(super) const fn of_files() -> Self {
        Self { http: None, token: None }
    }

    pub(super) fn new(args: &MetricsArgs, accept_any_certificate: bool) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(Duration::from_secs(10))
            // The token would follow to wherever it points.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_danger_accept_invalid_certs(accept_any_certificate);
        let unusable = |file: &Path, why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", file.display()));
        if let Some(file) = given(args.metrics_cacert.as_ref()) {
            let certificates = Certificate::from_pem_bundle(&read_file(&file)?)
                .map_err(|error| unusable(&file, &innermost(&error)))?;
            if certificates.is_empty() {
                return Err(unusable(&file, &"no certificate in it"));
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let (Some(cert), Some(key)) = (given(args.metrics_cert.as_ref()), given(args.metrics_key.as_ref())) {
            let mut pem = Zeroizing::new(read_file(&key)?.to_vec());
            pem.extend_from_slice(b"\n");
            pem.extend_from_slice(&read_file(&cert)?);
            builder = builder.identity(Identity::from_pem(&pem).map_err(|error| unusable(&cert, &innermost(&error)))?);
        }
        let token = match given(args.metrics_token_file.as_ref()) {
            Some(file) => {
                let bytes = read_file(&file)?;
                let text = std::str::from_utf8(&bytes).map_err(|_| unusable(&file, &"it holds no text"))?;
                Some(Password::new(text.trim().to_owned()))
            }
            None => None,
        };
        let http = builder.build().map_err(|error| Failure::Usage(format!("--metrics-…: {}", innermost(&error))))?;
        Ok(Self { http: Some(http), token })
    }

    /// Reads metrics, and the clock of who answers. The error is a sentence: it becomes a row of the report.
    pub(super) async fn read(&self, place: &Place) -> Result<(Scrape, Option<Clock>), String> {
        let (bytes, clock, at) = match place {
            Place::File(path) => (bounded(path).map_err(|error| not_read(path, &error))?, None, None),
            Place::Url(url) => {
                let (bytes, clock) = self.get(url).await?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (bytes, clock, Some(now.as_secs_f64()))
            }
        };
        let metrics = Metrics::parse(&bytes);
        if metrics.is_empty() {
            return Err("no metrics in the text format of Prometheus".to_owned());
        }
        Ok((Scrape { name: place.name(), metrics, at }, clock))
    }

    async fn get(&self, url: &Url) -> Result<(Vec<u8>, Option<Clock>), String> {
        let told = |error: reqwest::Error| {
            let error = innermost(&error.without_url()).to_string();
            // What is said of an answer that is no TLS, and of none, as etcd gives.
            let is_no_tls = error.contains("InvalidContentType") || error.contains("handshake eof");
            match url.scheme() == "https" && is_no_tls {
                true => format!("the server seems not to speak TLS: is http:// meant? ({error})"),
                false => error,
            }
        };
        let Some(http) = &self.http else { return Err("no client for URLs".to_owned()) };
        let mut request = http.get(url.clone());
        if let Some(token) = &self.token {
            if url.scheme() != "https" {
                return Err("the token of --metrics-token-file is not sent without TLS".to_owned());
            }
            let mut header = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                .map_err(|_| "the token is not one that can be sent".to_owned())?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        let begun = Instant::now();
        let mut answer = request.send().await.map_err(told)?;
        let clock = clock(url, answer.headers().get(DATE), begun.elapsed());
        if !answer.status().is_success() {
            let hint = if answer.status() == StatusCode::NOT_FOUND { ": is it …/metrics?" } else { "" };
            return Err(format!("HTTP {}{hint}", answer.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(told)? {
            if (bytes.len() + chunk.len()) as u64 > MAX_BYTES {
                return Err(format!("more than {MAX_BYTES} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, clock))
    }
}

/// Why a file could not be read. `10.0.0.1:2379/metrics` is taken for one.
fn not_read(path: &Path, error: &std::io::Error) -> String {
    let host = path.to_str().and_then(|text| text.split('/').next()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port).unwrap_or_default();
    match !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{error}; a URL begins with http:// or https://"),
        false => error.to_string(),
    }
}

/// A file, or standard input for `-`, as far as it is not too large.
pub(super) fn bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)?
    } else {
        std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?
    };
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The other clock, from the date of the answer, which has whole seconds.
fn clock(url: &Url, date: Option<&HeaderValue>, took: Duration) -> Option<Clock> {
    let theirs = OffsetDateTime::parse(date?.to_str().ok()?, &Rfc2822).ok()?;
    let ahead = theirs.unix_timestamp() - OffsetDateTime::now_utc().unix_timestamp();
    Some(Clock { source: url.to_string(), ahead_seconds: ahead, uncertain_seconds: took.as_secs() + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_date() {
        let url = Url::parse("http://127.0.0.1/").unwrap();
        let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        let clock = clock(&url, Some(&date), Duration::from_millis(1500)).unwrap();
        assert_eq!(clock.ahead_seconds + OffsetDateTime::now_utc().unix_timestamp(), 784_111_777);
        assert_eq!(clock.uncertain_seconds, 2);
        assert_eq!(super::clock(&url, None, Duration::ZERO), None);
    }
}
