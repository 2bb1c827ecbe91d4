//! Endpoints of a KMS, read as Go's `url.Parse` and then kube-apiserver's dialler read them.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::Serialize;

use super::diagnostic::shown;

/// The URL of the Unix socket that a KMS listens on.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    path: Vec<u8>,
    host: String,
}

/// Where a client connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialAddress<'a> {
    /// A socket in the file system.
    Path(&'a Path),
    /// A socket in Linux' abstract namespace: the bytes after the leading NUL.
    Abstract(&'a [u8]),
    /// No socket: kube-apiserver accepts such an endpoint and can never connect to it.
    None,
}

impl fmt::Display for DialAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialAddress::Path(path) => write!(f, "{}", path.display()),
            DialAddress::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
            DialAddress::None => Ok(()),
        }
    }
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum InvalidEndpoint {
    /// A control character.
    #[error("control characters are not allowed")]
    ControlCharacter,
    /// A `:` that no scheme precedes.
    #[error("the scheme is missing")]
    MissingScheme,
    /// A path or a name without a scheme.
    #[error("there is no scheme, only unix is supported")]
    NoScheme,
    /// A scheme other than `unix`.
    #[error("unsupported scheme {0:?}, only unix is supported")]
    UnsupportedScheme(String),
    /// A `%` that two hexadecimal digits do not follow.
    #[error("invalid URL escape {0:?}")]
    Escape(String),
    /// A part between `//` and the next slash that no host can have.
    #[error("invalid host")]
    Host,
    /// A port that is no number.
    #[error("invalid port")]
    Port,
    /// A user that no URL can have.
    #[error("invalid user information")]
    UserInfo,
}

impl Endpoint {
    /// Parses the text of an endpoint.
    ///
    /// # Errors
    /// When kube-apiserver would not load a file with this endpoint.
    pub fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(InvalidEndpoint::ControlCharacter);
        }
        let rest = without_scheme(url)?;
        unescape(fragment)?;
        let rest = rest.split_once('?').map_or(rest, |(rest, _query)| rest);
        let (host, path) = match rest.strip_prefix("//") {
            Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
            // Without a slash the rest is opaque to Go, and no path.
            None if !rest.starts_with('/') => ("", ""),
            None => ("", rest),
        };
        check_authority(host)?;
        Ok(Self { url: text.to_owned(), path: unescape(path)?, host: host.to_owned() })
    }

    /// The text in the file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// The socket that kube-apiserver dials.
    #[must_use]
    pub fn dial_address(&self) -> DialAddress<'_> {
        match self.path.as_slice() {
            [] => DialAddress::None,
            [b'/', b'@', name @ ..] => DialAddress::Abstract(name),
            path => DialAddress::Path(Path::new(OsStr::from_bytes(path))),
        }
    }

    /// The part before the path, which kube-apiserver ignores: `var` of `unix://var/run/kms.sock`.
    #[must_use]
    pub fn ignored_host(&self) -> Option<&str> {
        (!self.host.is_empty()).then_some(self.host.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.url).finish()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// What follows `unix:`.
fn without_scheme(url: &str) -> Result<&str, InvalidEndpoint> {
    let Some((scheme, rest)) = url.split_once(':') else { return Err(InvalidEndpoint::NoScheme) };
    if scheme.is_empty() {
        return Err(InvalidEndpoint::MissingScheme);
    }
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return Err(InvalidEndpoint::NoScheme);
    }
    if !scheme.eq_ignore_ascii_case("unix") {
        return Err(InvalidEndpoint::UnsupportedScheme(shown(scheme)));
    }
    Ok(rest)
}

/// The part is ignored, and yet an error in it makes the whole URL one.
fn check_authority(authority: &str) -> Result<(), InvalidEndpoint> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    if user.chars().any(|c| !c.is_ascii_alphanumeric() && !"-._:~!$&'()*+,;=%@".contains(c)) {
        return Err(InvalidEndpoint::UserInfo);
    }
    unescape(user)?;
    let port = if host.starts_with('[') {
        host.rsplit_once(']').ok_or(InvalidEndpoint::Host)?.1
    } else {
        host.rfind(':').and_then(|at| host.get(at..)).unwrap_or_default()
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(InvalidEndpoint::Port);
    }
    // RFC 6874 allows %25 in a host; other escapes are for characters beyond ASCII.
    if unescape(host)?.iter().any(u8::is_ascii_control)
        || host.chars().any(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"!$&'()*+,;=:[]<>\"-_.~%".contains(c))
        || host.match_indices('%').any(|(at, _)| {
            let digits = host.get(at + 1..at + 3).unwrap_or_default();
            digits != "25" && digits.starts_with(|c: char| ('0'..='7').contains(&c))
        })
    {
        return Err(InvalidEndpoint::Host);
    }
    Ok(())
}

fn unescape(text: &str) -> Result<Vec<u8>, InvalidEndpoint> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let mut decoded = [0];
        let digits = part.as_bytes().get(..2);
        if digits.is_none_or(|digits| hex::decode_to_slice(digits, &mut decoded).is_err()) {
            return Err(InvalidEndpoint::Escape(format!("%{}", part.chars().take(2).collect::<String>())));
        }
        bytes.extend(decoded);
        bytes.extend(part.as_bytes().get(2..).unwrap_or_default());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_what_upstream_dials() {
        for (text, address) in [
            ("unix:///run/kms.sock", "/run/kms.sock"),
            ("unix:/run/kms.sock", "/run/kms.sock"),
            ("UNIX:///run/kms.sock", "/run/kms.sock"),
            ("unix:///@foo.sock", "@foo.sock"),
            ("unix:/@foo.sock", "@foo.sock"),
            ("unix://foo/bar", "/bar"),
            ("unix://var/run/k.sock", "/run/k.sock"),
            ("unix:///a%20b", "/a b"),
            ("unix:///a?x=y", "/a"),
            ("unix:///a#f", "/a"),
            ("unix:///a?%zz", "/a"),
            ("unix:@foo", ""),
            ("unix:", ""),
            ("unix://", ""),
            ("unix://@foo", ""),
            ("unix:%zz", ""),
        ] {
            let endpoint = Endpoint::parse(text).expect(text);
            assert_eq!(endpoint.dial_address().to_string(), address, "{text}");
            assert_eq!(endpoint.as_str(), text);
        }
    }

    #[test]
    fn an_abstract_socket_has_a_name_without_the_at() {
        let endpoint = Endpoint::parse("unix:///@foo").expect("an endpoint");
        assert_eq!(endpoint.dial_address(), DialAddress::Abstract(b"foo"));
    }

    #[test]
    fn the_ignored_host_is_kept() {
        let host = |text| Endpoint::parse(text).map(|endpoint| endpoint.ignored_host().map(str::to_owned));
        assert_eq!(host("unix://var/run/k.sock"), Ok(Some("var".to_owned())));
        assert_eq!(host("unix:///run/k.sock"), Ok(None));
    }

    #[test]
    fn other_texts_are_refused() {
        let escape = |text: &str| InvalidEndpoint::Escape(text.to_owned());
        for (text, expected) in [
            ("", InvalidEndpoint::NoScheme),
            ("/x", InvalidEndpoint::NoScheme),
            ("*", InvalidEndpoint::NoScheme),
            ("1unix:/x", InvalidEndpoint::NoScheme),
            ("a b:/x", InvalidEndpoint::NoScheme),
            ("://x", InvalidEndpoint::MissingScheme),
            ("tcp://x", InvalidEndpoint::UnsupportedScheme("tcp".to_owned())),
            ("npipe:////./pipe/kms", InvalidEndpoint::UnsupportedScheme("npipe".to_owned())),
            ("unix:///a\nb", InvalidEndpoint::ControlCharacter),
            ("unix:///%zz", escape("%zz")),
            ("unix:///%2", escape("%2")),
            ("unix:///%é", escape("%é")),
            ("unix:///a#%", escape("%")),
            ("unix://a b/c", InvalidEndpoint::Host),
            ("unix://%41/c", InvalidEndpoint::Host),
            ("unix://[a/c", InvalidEndpoint::Host),
            ("unix://h:p/c", InvalidEndpoint::Port),
            ("unix://a b@h/c", InvalidEndpoint::UserInfo),
        ] {
            assert_eq!(Endpoint::parse(text), Err(expected), "{text:?}");
        }
    }
}
