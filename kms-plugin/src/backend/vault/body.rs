//! JSON that holds key material: written into buffers that are wiped, and read without copies.
//!
//! What the HTTP and TLS libraries copy into buffers of their own is not wiped.

use atrest::secret::{Key, Password};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::{Zeroize as _, Zeroizing};

use crate::backend::Error;

/// A request's body.
pub(super) type Body = Zeroizing<Vec<u8>>;

/// More than the rest of any body has.
const ROOM: usize = 4096;

/// Of `transit/encrypt`.
pub(super) fn encrypt(plaintext: &Key, associated_data: &str, version: u64) -> Body {
    let mut text = Zeroizing::new(String::with_capacity(ROOM + plaintext.len() * 2));
    text.push_str(r#"{"plaintext":""#);
    // Base64 needs no escapes.
    STANDARD.encode_string(plaintext.expose(), &mut text);
    text.push_str(r#"","associated_data":""#);
    text.push_str(associated_data);
    text.push_str(&format!(r#"","key_version":{version}}}"#));
    Zeroizing::new(std::mem::take(&mut *text).into_bytes())
}

/// Of `transit/decrypt`.
pub(super) fn decrypt(ciphertext: &str, associated_data: &str) -> Body {
    let value = serde_json::json!({ "ciphertext": ciphertext, "associated_data": associated_data });
    Zeroizing::new(value.to_string().into_bytes())
}

/// Of `auth/approle/login`.
pub(super) fn login(role_id: &str, secret_id: &Password) -> Result<Body, Error> {
    #[derive(serde::Serialize)]
    struct Login<'a> {
        role_id: &'a str,
        secret_id: &'a str,
    }
    let mut body = Zeroizing::new(Vec::with_capacity(ROOM));
    serde_json::to_writer(&mut *body, &Login { role_id, secret_id: secret_id.expose() })
        .map_err(|_| Error::Credentials("the secret ID cannot be sent".to_owned()))?;
    Ok(body)
}

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

/// Out of the answer to `transit/encrypt`.
pub(super) fn ciphertext(answer: &[u8]) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Data {
        ciphertext: String,
    }
    let answer: Answer<Data> = serde_json::from_slice(answer).map_err(|_| unexpected("encryption"))?;
    Ok(answer.data.ciphertext)
}

/// Out of the answer to `transit/decrypt`.
pub(super) fn plaintext(answer: &[u8]) -> Result<Key, Error> {
    #[derive(Deserialize)]
    struct Data<'a> {
        plaintext: &'a str,
    }
    // Without the library's reason, which may quote.
    let answer: Answer<Data<'_>> = serde_json::from_slice(answer).map_err(|_| unexpected("decryption"))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(answer.data.plaintext.len()));
    if STANDARD.decode_vec(answer.data.plaintext, &mut bytes).is_err() {
        bytes.zeroize();
        return Err(unexpected("decryption"));
    }
    Ok(Key::new(bytes))
}

/// A token, as the server gives or renews it.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) token: Password,
    /// Seconds; 0 for one that does not expire.
    pub(super) ttl: u64,
    pub(super) renewable: bool,
}

/// Out of the answer to a login or a renewal.
pub(super) fn granted(answer: &[u8]) -> Result<Granted, Error> {
    #[derive(Deserialize)]
    struct Login<'a> {
        #[serde(borrow)]
        auth: Auth<'a>,
    }
    #[derive(Deserialize)]
    struct Auth<'a> {
        client_token: &'a str,
        lease_duration: u64,
        renewable: bool,
    }
    let Login { auth } = serde_json::from_slice(answer).map_err(|_| unexpected("login"))?;
    Ok(Granted {
        token: Password::new(auth.client_token.to_owned()),
        ttl: auth.lease_duration,
        renewable: auth.renewable,
    })
}

/// The seconds left to a token, and whether it can be renewed; out of the answer to `auth/token/lookup-self`.
pub(super) fn looked_up(answer: &[u8]) -> Result<(u64, bool), Error> {
    #[derive(Deserialize)]
    struct Data {
        ttl: u64,
        #[serde(default)]
        renewable: bool,
    }
    let answer: Answer<Data> = serde_json::from_slice(answer).map_err(|_| unexpected("look-up of the token"))?;
    Ok((answer.data.ttl, answer.data.renewable))
}

fn unexpected(what: &str) -> Error {
    Error::Unavailable(format!("the answer to the {what} is not what Vault answers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_an_encryption_is_this() {
        let body = encrypt(&Key::new(b"\xfb\xff\xfe".to_vec().into()), "a2V5", 7);
        assert_eq!(String::from_utf8_lossy(&body), r#"{"plaintext":"+//+","associated_data":"a2V5","key_version":7}"#);
    }

    #[test]
    fn a_plaintext_is_read_or_refused_without_being_quoted() {
        let key = plaintext(br#"{"data":{"plaintext":"+//+"}}"#);
        assert_eq!(key, Ok(Key::new(b"\xfb\xff\xfe".to_vec().into())));
        let refused = Err(Error::Unavailable("the answer to the decryption is not what Vault answers".to_owned()));
        for answer in [&br#"{"data":{"plaintext":"s3cr3t!"}}"#[..], br#"{"data":{"plaintext":5}}"#, b"s3cr3t", b""] {
            assert_eq!(plaintext(answer), refused);
        }
    }
}
