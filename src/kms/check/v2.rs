use std::time::Duration;

use super::{Checks, Options, authority, check_concurrency, is_not_served, latency, random_key};
use crate::kms::{Client, Encrypted, Status};
use crate::report::key_id_hash;
use crate::secret::Key;
use crate::transformer::envelope::{self, DekSource, MAX_KEY_ID_BYTES};

/// How often the status is asked for to see whether it stays what it is.
const STATUSES: usize = 5;

/// Looks at `v2.KeyManagementService`; says whether it is there.
pub(super) async fn check(client: &Client, options: &Options, checks: &mut Checks) -> bool {
    checks.api = "v2";
    let status = match client.status().await {
        Ok(status) => status,
        Err(error) if is_not_served(&error) && options.api.is_none() => return false,
        Err(error) => {
            checks.fail("status", error.chain());
            return true;
        }
    };
    checks.pass("status", "answered");
    check_status(&status, checks);
    check_stability(client, &status, checks).await;
    if let Some((plaintext, encrypted)) = check_encrypt(client, &status, checks).await {
        check_decrypt(client, &plaintext, &encrypted, checks).await;
        check_concurrency(options, checks, || async {
            let plaintext = random_key()?;
            Ok(client.decrypt(&client.encrypt(&plaintext).await?).await? == plaintext)
        })
        .await;
        latency::measure("Encrypt", options, checks, || async {
            client.encrypt(&plaintext).await.map(|_| ()).map_err(|error| error.chain())
        })
        .await;
        latency::measure("Decrypt", options, checks, || async {
            client.decrypt(&encrypted).await.map(|_| ()).map_err(|error| error.chain())
        })
        .await;
    }
    check_stored(client, options, checks).await;
    authority::check(options, "/v2.KeyManagementService/Status", checks).await;
    true
}

fn check_status(status: &Status, checks: &mut Checks) {
    match status.version.as_str() {
        "v2" => checks.pass("version", "v2: for kube-apiserver 1.29 and later"),
        "v2beta1" => checks.pass("version", "v2beta1: for kube-apiserver 1.27 and later"),
        other => checks.fail("version", format!("{:?}: kube-apiserver takes v2 and v2beta1 only", shortened(other))),
    }
    match status.healthz.as_str() {
        "ok" => checks.pass("healthz", "ok"),
        other => checks.fail("healthz", format!("{:?}: anything but ok is not healthy", shortened(other))),
    }
    match status.key_id.len() {
        0 => checks.fail("key-id", "Status answers an empty key ID: kube-apiserver encrypts nothing"),
        n if n > MAX_KEY_ID_BYTES => checks.fail("key-id", format!("{n} bytes, more than {MAX_KEY_ID_BYTES}")),
        n => {
            let hash = key_id_hash(&status.key_id);
            checks.pass("key-id", format!("{n} bytes, {hash}"));
            checks.report.kms_key_id_hash = Some(hash);
        }
    }
}

/// kube-apiserver keeps the first version that it accepts, and takes a new seed whenever the key ID changes.
async fn check_stability(client: &Client, first: &Status, checks: &mut Checks) {
    for _ in 1..STATUSES {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match client.status().await {
            Ok(status) if status.version != first.version => {
                return checks.fail(
                    "stability",
                    "the version changes: kube-apiserver keeps the first one, and is unhealthy then",
                );
            }
            Ok(status) if status.key_id != first.key_id => {
                return checks.warn(
                    "stability",
                    "the key ID has changed meanwhile: every change makes all values stale. Was the key rotated just now?",
                );
            }
            Ok(_) => {}
            Err(error) => return checks.fail("stability", error.chain()),
        }
    }
    checks.pass("stability", format!("version and key ID are the same in {STATUSES} answers"));
}

async fn check_encrypt(client: &Client, status: &Status, checks: &mut Checks) -> Option<(Key, Encrypted)> {
    let plaintext = random_key().ok()?;
    let encrypted = match client.encrypt(&plaintext).await {
        Ok(encrypted) => encrypted,
        Err(error) => {
            checks.fail("encrypt", error.chain());
            return None;
        }
    };
    checks.pass("encrypt", format!("32 bytes become {}", encrypted.ciphertext.len()));
    if encrypted.key_id.is_empty() {
        checks.fail("encrypt-key-id", "Encrypt answers an empty key ID: kube-apiserver encrypts nothing");
    } else if encrypted.key_id == status.key_id {
        checks.pass("encrypt-key-id", "Encrypt names the key ID that Status names");
    } else {
        let (encrypt, status) = (key_id_hash(&encrypted.key_id), key_id_hash(&status.key_id));
        checks.fail(
            "encrypt-key-id",
            format!("Encrypt names {encrypt}, and Status {status}: kube-apiserver does not write"),
        );
    }
    let annotations: Vec<_> =
        encrypted.annotations.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
    // Each limit is a check of its own: a key ID is given that is good.
    match envelope::validate_encrypt_response(&encrypted.ciphertext, "x", std::iter::empty()) {
        Ok(()) => checks.pass("ciphertext", "1 to 1024 bytes"),
        Err(error) => checks.fail("ciphertext", error.to_string()),
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    match envelope::validate_encrypt_response(b"x", "x", annotations.iter().copied()) {
        Ok(()) if annotations.is_empty() => checks.pass("annotations", "none"),
        Ok(()) => checks
            .pass("annotations", format!("{}, {size} bytes, kept in the clear with each value", annotations.len())),
        Err(error) => checks.fail("annotations", error.to_string()),
    }
    let visible = encrypted.ciphertext.windows(plaintext.len()).any(|part| part == plaintext.expose())
        || annotations.iter().any(|(_, value)| value.windows(plaintext.len()).any(|part| part == plaintext.expose()));
    match (visible, client.encrypt(&plaintext).await) {
        (true, _) => checks.fail("confidentiality", "the plaintext stands in the answer of Encrypt"),
        // A plugin may keep the real ciphertext in an annotation.
        (false, Ok(again))
            if again.ciphertext == encrypted.ciphertext && again.annotations == encrypted.annotations =>
        {
            checks
                .warn("confidentiality", "the same plaintext is encrypted to the same bytes: equal seeds can be seen");
        }
        (false, Ok(_)) => checks.pass("confidentiality", "the same plaintext is encrypted to other bytes each time"),
        (false, Err(error)) => checks.fail("confidentiality", error.chain()),
    }
    if encrypted.key_id != status.key_id {
        checks.skip("decrypt", "Encrypt and Status have to agree about the key ID first");
        return None;
    }
    Some((plaintext, encrypted))
}

async fn check_decrypt(client: &Client, plaintext: &Key, encrypted: &Encrypted, checks: &mut Checks) {
    match client.decrypt(encrypted).await {
        Ok(decrypted) if decrypted == *plaintext => checks.pass("decrypt", "what Encrypt answered is decrypted again"),
        Ok(decrypted) => {
            checks.fail("decrypt", format!("it gives {} other bytes than were encrypted", decrypted.len()));
        }
        Err(error) => checks.fail("decrypt", error.chain()),
    }
    let mut tampered = encrypted.clone();
    if let Some(last) = tampered.ciphertext.last_mut() {
        *last ^= 1;
    }
    match client.decrypt(&tampered).await {
        Err(error) if !error.is_unavailable() => checks.pass("tampered", "an altered ciphertext is refused"),
        Err(error) => checks
            .warn("tampered", format!("an altered ciphertext is answered as a passing failure: {}", error.chain())),
        Ok(_) => checks.warn("tampered", "an altered ciphertext is decrypted: it is not authenticated"),
    }
    let unknown = Encrypted { key_id: "atrest-kms-check-no-such-key".to_owned(), ..encrypted.clone() };
    match client.decrypt(&unknown).await {
        Err(error) if error.is_unavailable() => checks.warn("unknown-key-id", error.chain()),
        Err(_) => checks.pass("unknown-key-id", "a key ID that there is not is refused"),
        Ok(_) => checks.warn("unknown-key-id", "the key ID of Decrypt is ignored: old keys have to be found otherwise"),
    }
    match client.status().await {
        Ok(_) => checks.pass("survives", "the plugin still answers after requests that it refused"),
        Err(error) => checks.fail("survives", error.chain()),
    }
}

/// What values in storage need, which may be of an older key.
async fn check_stored(client: &Client, options: &Options, checks: &mut Checks) {
    let mut looked_at = 0;
    for source in &options.stored {
        let DekSource::V2 { encrypted_dek_source, key_id, annotations, .. } = source else { continue };
        looked_at += 1;
        let encrypted = Encrypted {
            ciphertext: encrypted_dek_source.clone(),
            key_id: key_id.clone(),
            annotations: annotations.clone(),
        };
        let hash = key_id_hash(key_id);
        match client.decrypt(&encrypted).await {
            Ok(_) => {
                checks.pass("stored", format!("the DEK source of a stored value under key ID {hash} is decrypted"));
            }
            Err(error) => checks.fail(
                "stored",
                format!("the DEK source of a stored value under key ID {hash} is not decrypted: {}", error.chain()),
            ),
        }
    }
    if looked_at == 0 {
        checks.skip(
            "stored",
            "name a stored value with --value to see whether its key, perhaps an older one, still decrypts",
        );
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
