use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;
use tonic::transport::Channel;
use zeroize::Zeroizing;

use super::api::v1beta1::key_management_service_client::KeyManagementServiceClient as V1;
use super::api::v2::key_management_service_client::KeyManagementServiceClient as V2;
use super::api::{v1beta1, v2};
use super::connection::said;
use super::{Connection, Error};
use crate::report::key_id_hash;
use crate::secret::Key;

/// The version of the API of KMS v1, in every request and in the plugin's answer.
const V1BETA1: &str = "v1beta1";

/// What a plugin of KMS v2 says of itself, as it says it.
#[derive(Clone, PartialEq, Eq)]
pub struct Status {
    /// `v2`, or `v2beta1`.
    pub version: String,
    /// `ok`, or what is wrong.
    pub healthz: String,
    /// The ID of the key that encrypts now.
    pub key_id: String,
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key_id = key_id_hash(&self.key_id);
        write!(f, "Status({:?}, {:?}, {key_id})", self.version, said(&self.healthz, Some(&self.key_id)))
    }
}

/// What Encrypt of KMS v2 answers, as it is, and what Decrypt takes.
#[derive(Clone, PartialEq, Eq)]
pub struct Encrypted {
    /// The encrypted DEK source.
    pub ciphertext: Vec<u8>,
    /// The ID of the key that encrypted it.
    pub key_id: String,
    /// What else the plugin wants to see again.
    pub annotations: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encrypted({} bytes, {} annotations)", self.ciphertext.len(), self.annotations.len())
    }
}

/// Calls a plugin. One connection serves both versions of the API.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    /// KMS v1 wants the version checked before the first call; only a success is remembered.
    v1_checked: OnceCell<()>,
    /// The key ID that was named last, which no error may repeat.
    last_key_id: Mutex<String>,
}

impl Client {
    /// A client that has not connected yet.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection, v1_checked: OnceCell::new(), last_key_id: Mutex::default() }
    }

    fn last_key_id(&self) -> String {
        self.last_key_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_key_id(&self, key_id: &str) {
        key_id.clone_into(&mut self.last_key_id.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes calls of KMS v1, which all together take no longer than one may.
    async fn within<T>(&self, method: &'static str, calls: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match tokio::time::timeout(self.connection.timeout(), calls).await {
            Ok(result) => result,
            Err(_) => Err(self.connection.timed_out(method)),
        }
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// `/v2.KeyManagementService/Status`.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, or answers with an error.
    pub async fn status(&self) -> Result<Status, Error> {
        let call = |channel, timeout| async move {
            v2(channel).status(Connection::request(v2::StatusRequest {}, timeout)).await
        };
        let last = self.last_key_id();
        let v2::StatusResponse { version, healthz, key_id } = self.connection.call("Status", Some(&last), call).await?;
        self.note_key_id(&key_id);
        Ok(Status { version, healthz, key_id })
    }

    /// `/v2.KeyManagementService/Encrypt`.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, or answers with an error.
    pub async fn encrypt(&self, plaintext: &Key) -> Result<Encrypted, Error> {
        let uid = uid()?;
        let call = |channel, timeout| {
            let request = v2::EncryptRequest { plaintext: plaintext.expose().to_vec(), uid: uid.clone() };
            async move { v2(channel).encrypt(Connection::request(request, timeout)).await }
        };
        let v2::EncryptResponse { ciphertext, key_id, annotations } =
            self.connection.call("Encrypt", Some(&self.last_key_id()), call).await?;
        Ok(Encrypted { ciphertext, key_id, annotations })
    }

    /// `/v2.KeyManagementService/Decrypt`.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, or answers with an error.
    pub async fn decrypt(&self, encrypted: &Encrypted) -> Result<Key, Error> {
        let uid = uid()?;
        let Encrypted { ciphertext, key_id, annotations } = encrypted;
        let call = |channel, timeout| {
            let request = v2::DecryptRequest {
                ciphertext: ciphertext.clone(),
                uid: uid.clone(),
                key_id: key_id.clone(),
                annotations: annotations.clone(),
            };
            async move { v2(channel).decrypt(Connection::request(request, timeout)).await }
        };
        let mut answer = self.connection.call("Decrypt", Some(key_id.as_str()), call).await?;
        Ok(Key::new(Zeroizing::new(std::mem::take(&mut answer.plaintext))))
    }

    /// `/v1beta1.KeyManagementService/Version`: what the plugin says.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, or answers with an error.
    pub async fn v1_version(&self) -> Result<v1beta1::VersionResponse, Error> {
        let call = |channel, timeout| async move {
            let request = v1beta1::VersionRequest { version: V1BETA1.to_owned() };
            v1(channel).version(Connection::request(request, timeout)).await
        };
        self.connection.call("Version", None, call).await
    }

    /// Checks the version, until it has once been right.
    async fn check_v1(&self) -> Result<(), Error> {
        let check = async || {
            let version = self.v1_version().await?.version;
            if version == V1BETA1 { Ok(()) } else { Err(Error::Version { version }) }
        };
        self.v1_checked.get_or_try_init(check).await?;
        Ok(())
    }

    /// `/v1beta1.KeyManagementService/Encrypt`.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, answers with an error, or speaks another version.
    pub async fn v1_encrypt(&self, plain: &Key) -> Result<Vec<u8>, Error> {
        let call = |channel, timeout| {
            let request = v1beta1::EncryptRequest { version: V1BETA1.to_owned(), plain: plain.expose().to_vec() };
            async move { v1(channel).encrypt(Connection::request(request, timeout)).await }
        };
        let calls = async {
            self.check_v1().await?;
            Ok(self.connection.call("Encrypt", None, call).await?.cipher)
        };
        self.within("Encrypt", calls).await
    }

    /// `/v1beta1.KeyManagementService/Decrypt`.
    ///
    /// # Errors
    ///
    /// When the plugin does not answer, answers with an error, or speaks another version.
    pub async fn v1_decrypt(&self, cipher: &[u8]) -> Result<Key, Error> {
        let call = |channel, timeout| {
            let request = v1beta1::DecryptRequest { version: V1BETA1.to_owned(), cipher: cipher.to_vec() };
            async move { v1(channel).decrypt(Connection::request(request, timeout)).await }
        };
        let calls = async {
            self.check_v1().await?;
            let mut answer = self.connection.call("Decrypt", None, call).await?;
            Ok(Key::new(Zeroizing::new(std::mem::take(&mut answer.plain))))
        };
        self.within("Decrypt", calls).await
    }
}

fn v1(channel: Channel) -> V1<Channel> {
    V1::new(channel).max_decoding_message_size(Connection::max_message_bytes())
}

fn v2(channel: Channel) -> V2<Channel> {
    V2::new(channel).max_decoding_message_size(Connection::max_message_bytes())
}

/// Names a request in the plugin's logs: a random UUID (RFC 9562, version 4).
fn uid() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Randomness)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}
