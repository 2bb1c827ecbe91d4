use super::{Checks, Options, authority, check_concurrency, is_not_served, latency, random_key};
use crate::kms::Client;
use crate::secret::Key;
use crate::transformer::envelope::{DekSource, MAX_ENCRYPTED_DEK_BYTES};

/// Looks at `v1beta1.KeyManagementService`; says whether it is there.
pub(super) async fn check(client: &Client, options: &Options, checks: &mut Checks) -> bool {
    checks.api = "v1beta1";
    let version = match client.v1_version().await {
        Ok(version) => version,
        Err(error) if is_not_served(&error) && options.api.is_none() => return false,
        Err(error) => {
            checks.fail("status", error.chain());
            return true;
        }
    };
    match version.version.as_str() {
        "v1beta1" => checks.pass("version", "v1beta1"),
        other => {
            let other: String = other.chars().take(100).collect();
            checks.fail("version", format!("{other:?}: kube-apiserver takes v1beta1 only"));
            return true;
        }
    }
    if let Some((plain, cipher)) = check_round_trip(client, checks).await {
        check_stored(client, options, checks).await;
        check_concurrency(options, checks, || async {
            let plain = random_key()?;
            Ok(client.v1_decrypt(&client.v1_encrypt(&plain).await?).await? == plain)
        })
        .await;
        latency::measure("Encrypt", options, checks, || async {
            client.v1_encrypt(&plain).await.map(|_| ()).map_err(|error| error.chain())
        })
        .await;
        latency::measure("Decrypt", options, checks, || async {
            client.v1_decrypt(&cipher).await.map(|_| ()).map_err(|error| error.chain())
        })
        .await;
    }
    authority::check(options, "/v1beta1.KeyManagementService/Version", checks).await;
    true
}

async fn check_round_trip(client: &Client, checks: &mut Checks) -> Option<(Key, Vec<u8>)> {
    let plain = random_key().ok()?;
    let cipher = match client.v1_encrypt(&plain).await {
        Ok(cipher) => cipher,
        Err(error) => {
            checks.fail("encrypt", error.chain());
            return None;
        }
    };
    checks.pass("encrypt", format!("32 bytes become {}", cipher.len()));
    match cipher.len() {
        n if n > MAX_ENCRYPTED_DEK_BYTES => {
            checks.fail("ciphertext", format!("{n} bytes, more than {MAX_ENCRYPTED_DEK_BYTES}"));
        }
        0 => checks.warn("ciphertext", "an empty encrypted data key is stored: it cannot depend on the data key"),
        _ => checks.pass("ciphertext", "1 to 65535 bytes"),
    }
    if cipher.windows(plain.len()).any(|part| part == plain.expose()) {
        checks.fail("confidentiality", "the plaintext stands in the answer of Encrypt");
    } else {
        checks.pass("confidentiality", "the plaintext does not stand in the answer of Encrypt");
    }
    match client.v1_decrypt(&cipher).await {
        Ok(decrypted) if decrypted == plain => checks.pass("decrypt", "what Encrypt answered is decrypted again"),
        Ok(decrypted) => {
            checks.fail("decrypt", format!("it gives {} other bytes than were encrypted", decrypted.len()));
        }
        Err(error) => checks.fail("decrypt", error.chain()),
    }
    let mut tampered = cipher.clone();
    if let Some(last) = tampered.last_mut() {
        *last ^= 1;
    }
    match client.v1_decrypt(&tampered).await {
        Err(error) if error.is_unavailable() => checks.warn("tampered", error.chain()),
        Err(_) => checks.pass("tampered", "an altered ciphertext is refused"),
        Ok(_) => checks.warn("tampered", "an altered ciphertext is decrypted: it is not authenticated"),
    }
    Some((plain, cipher))
}

/// What values in storage need, which may be of an older key.
async fn check_stored(client: &Client, options: &Options, checks: &mut Checks) {
    let mut looked_at = 0;
    for source in &options.stored {
        let DekSource::V1 { encrypted_dek } = source else { continue };
        looked_at += 1;
        match client.v1_decrypt(encrypted_dek).await {
            Ok(_) => checks.pass("stored", "the data key of a stored value is decrypted"),
            Err(error) => {
                checks.fail("stored", format!("the data key of a stored value is not decrypted: {}", error.chain()));
            }
        }
    }
    if looked_at == 0 {
        checks.skip(
            "stored",
            "name a stored value with --value to see whether its key, perhaps an older one, still decrypts",
        );
    }
}
