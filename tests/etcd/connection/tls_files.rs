//! TLS files and flags that cannot be used. Nothing is asked of etcd then.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Scan;
use crate::support::{Algorithm, Pki, Request};

const PEM: &str = "hint: the flags take PEM files: --cacert and --cert certificates, --key a private key";
const DECRYPT: &str = "hint: decrypt it with `openssl pkey`, and give the result to --key";
const PAIR: &str = "hint: --cert and --key must be two files of one pair";

fn scan() -> Scan {
    Scan::of("https://127.0.0.1:1")
}

fn file(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).expect("the file can be written");
    path
}

#[test]
fn the_authorities_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new();
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (path, why, hint) in [
        (dir.path().join("none"), "No such file or directory (os error 2)", None),
        (dir.path().to_owned(), "Is a directory (os error 21)", None),
        (file(dir.path(), "empty", ""), "no certificate in PEM form is in the file", Some(PEM)),
        (file(dir.path(), "text", "hello\n"), "no certificate in PEM form is in the file", Some(PEM)),
        (pki.client("a").key, "no certificate in PEM form is in the file", Some(PEM)),
        (file(dir.path(), "cut", "-----BEGIN CERTIFICATE-----\nAAAA\n"), "damaged PEM block", None),
        (file(dir.path(), "garbage", garbage), "not a usable certificate: BadEncoding", None),
    ] {
        let error = format!("error: --cacert {}: {why}", path.display());
        let lines: Vec<_> = [Some(error.as_str()), hint].into_iter().flatten().collect();
        scan().ca(&path).fails(2, &lines);
    }
}

#[test]
fn one_of_a_pair_is_missing() {
    let pki = Pki::new();
    let client = pki.client("root");
    scan().ca(pki.ca()).flag("--cert", &client.cert).fails(2, &["error: --cert is given without --key"]);
    scan().ca(pki.ca()).flag("--key", &client.key).fails(2, &["error: --key is given without --cert"]);
    scan().ca(pki.ca()).variable("ETCDCTL_CERT", &client.cert).fails(2, &["error: --cert is given without --key"]);
}

#[test]
fn the_pair_is_none() {
    let pki = Pki::new();
    for algorithm in Algorithm::ALL {
        let (mut pair, other) = (
            pki.issue(&Request::client("root").algorithm(algorithm)),
            pki.issue(&Request::client("root").algorithm(algorithm)),
        );
        pair.key = other.key;
        let error = format!("error: --key {}: the private key does not belong to the certificate", pair.key.display());
        scan().ca(pki.ca()).pair(&pair).fails(2, &[&error, PAIR]);
    }
}

#[test]
fn the_pair_is_swapped_or_damaged() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let client = pki.client("root");
    let error = format!("error: --cert {}: no certificate in PEM form is in the file", client.key.display());
    scan().ca(pki.ca()).flag("--cert", &client.key).flag("--key", &client.cert).fails(2, &[&error, PEM]);
    let error = format!("error: --key {}: no private key in PEM form is in the file", client.cert.display());
    scan().ca(pki.ca()).flag("--cert", &client.cert).flag("--key", &client.cert).fails(2, &[&error, PEM]);
    let garbage = file(dir.path(), "crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let error = format!("error: --cert {}: not a usable certificate: BadEncoding", garbage.display());
    scan().ca(pki.ca()).flag("--cert", &garbage).flag("--key", &client.key).fails(2, &[&error]);
    let garbage = file(dir.path(), "key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let error = format!("error: --key {}: unusable private key: ", garbage.display());
    let outcome = scan().ca(pki.ca()).flag("--cert", &client.cert).flag("--key", &garbage).run();
    assert!(outcome.stderr.starts_with(&format!("atrest: {error}")), "{}", outcome.stderr);
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn the_key_is_encrypted() {
    let pki = Pki::new();
    for options in [
        &["pkey", "-aes256", "-passout", "pass:hunter2"][..],
        &["pkey", "-traditional", "-aes256", "-passout", "pass:hunter2"],
    ] {
        let client = pki.client("root");
        let encrypted = Command::new("openssl").args(options).arg("-in").arg(&client.key).output().unwrap();
        assert!(encrypted.status.success(), "{}", String::from_utf8_lossy(&encrypted.stderr));
        std::fs::write(&client.key, encrypted.stdout).unwrap();
        let error = format!(
            "error: --key {}: the private key is encrypted, and no passphrase can be given",
            client.key.display()
        );
        scan().ca(pki.ca()).pair(&client).fails(2, &[&error, DECRYPT]);
    }
}

#[test]
fn the_server_name_is_none() {
    scan()
        .ca(Pki::new().ca())
        .flag("--tls-server-name", "etcd 0")
        .fails(2, &["error: --tls-server-name \"etcd 0\" is neither a host name nor an IP address"]);
}
