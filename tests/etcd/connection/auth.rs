//! Users, passwords and permissions.

use super::{Scan, atrest, outcome};
use crate::support::{Etcd, Pki, Version};

const PASSWORD: &str = "correct horse: battery";
const DENIED: &str = "hint: the user's role must allow reading (for rekey also writing) below /registry/, /kubernetes.io/ \
                      and /openshift.io/; with --etcd-prefix only one of them is used";
const CHECK: &str = "hint: check --user, and --password or ETCDCTL_PASSWORD";

fn with_auth(version: Version) -> Etcd {
    Etcd::builder(version).auth_enabled(PASSWORD).start()
}

/// Makes a user who may read what is below these prefixes.
fn add_reader(etcd: &Etcd, name: &str, prefixes: &[&str]) {
    let etcdctl = |args: &[&str]| {
        let output = etcd.etcdctl(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    etcdctl(&["user", "add", &format!("{name}:{PASSWORD}")]);
    etcdctl(&["role", "add", name]);
    etcdctl(&["user", "grant-role", name, name]);
    for prefix in prefixes {
        etcdctl(&["role", "grant-permission", name, "read", "--prefix=true", prefix]);
    }
}

#[test]
fn a_password_can_be_given_in_every_way() {
    for version in Version::ALL {
        let etcd = with_auth(version);
        let scan = || Scan::of(&etcd.endpoint());
        scan().flag("--user", "root").flag("--password", PASSWORD).works();
        scan().flag("--user", format!("root:{PASSWORD}")).works();
        scan().flag("--user", "root").variable("ETCDCTL_PASSWORD", PASSWORD).works();
        scan().variable("ETCDCTL_USER", "root").variable("ETCDCTL_PASSWORD", PASSWORD).works();
        scan().variable("ETCDCTL_USER", format!("root:{PASSWORD}")).works();
        scan().flag("--user", format!("root:{PASSWORD}")).variable("ETCDCTL_USER", "other:wrong").works();
        scan()
            .flag("--user", "root")
            .flag("--password", PASSWORD)
            .variable("ETCDCTL_USER", "other")
            .variable("ETCDCTL_PASSWORD", "wrong")
            .works();
    }
}

#[test]
fn a_password_goes_through_tls() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).auth_enabled(PASSWORD).start();
    Scan::of(&etcd.endpoint()).ca(pki.ca()).flag("--user", format!("root:{PASSWORD}")).works();
}

#[test]
fn a_user_is_required() {
    for version in Version::ALL {
        let etcd = with_auth(version);
        Scan::of(&etcd.endpoint()).fails(
            3,
            &[
                "error: etcd requires a user",
                "hint: give --user and ETCDCTL_PASSWORD, or a client certificate with --cert and --key",
            ],
        );
    }
}

#[test]
fn the_password_or_the_user_is_wrong() {
    for version in Version::ALL {
        let etcd = with_auth(version);
        for user in ["root", "nobody"] {
            let error = format!("error: etcd does not accept the user \"{user}\" with this password");
            Scan::of(&etcd.endpoint()).flag("--user", format!("{user}:wrong")).fails(3, &[&error, CHECK]);
        }
        // Also where the first endpoint says nothing at all.
        let dead = super::Dead::new();
        Scan::of(&format!("{dead},{}", etcd.endpoint()))
            .flag("--user", "root:wrong")
            .fails(3, &["error: etcd does not accept the user \"root\" with this password", CHECK]);
    }
}

#[test]
fn a_password_is_missing() {
    Scan::of("127.0.0.1:1")
        .flag("--user", "root")
        .fails(2, &["error: --user is given without a password: set ETCDCTL_PASSWORD, or --password"]);
}

#[test]
fn a_user_is_not_wanted() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        Scan::of(&etcd.endpoint()).flag("--user", format!("root:{PASSWORD}")).fails(
            3,
            &[
                "error: authentication is not enabled in etcd, and a user is given",
                "hint: leave --user and ETCDCTL_USER out",
            ],
        );
    }
}

#[test]
fn a_user_may_not_read() {
    for version in Version::ALL {
        let etcd = with_auth(version);
        add_reader(&etcd, "nothing", &[]);
        add_reader(&etcd, "registry", &["/registry/"]);
        add_reader(&etcd, "all", &["/registry/", "/kubernetes.io/", "/openshift.io/"]);
        let scan = |user: &str| Scan::of(&etcd.endpoint()).flag("--user", format!("{user}:{PASSWORD}"));
        scan("nothing").fails(3, &["error: permission denied", DENIED]);
        scan("registry").fails(3, &["error: permission denied", DENIED]);
        scan("registry").flag("--etcd-prefix", "/registry").works();
        scan("registry").flag("--etcd-prefix", "/other").fails(3, &["error: permission denied", DENIED]);
        scan("all").works();
    }
}

#[test]
fn a_client_certificate_names_the_user() {
    let pki = Pki::new();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().auth_enabled(PASSWORD).start();
        let scan = |user: &str| Scan::of(&etcd.endpoint()).ca(pki.ca()).pair(&pki.client(user));
        scan("root").works();
        scan("nobody").fails(3, &["error: permission denied", DENIED]);
        // A password wins over the certificate.
        scan("nobody").flag("--user", format!("root:{PASSWORD}")).works();
    }
}

#[test]
fn a_password_is_never_shown() {
    let etcd = with_auth(Version::V3_5);
    for (password, log) in
        [(PASSWORD, "info"), (PASSWORD, "trace"), ("wrong horse: battery", "trace"), ("wrong horse: battery", "info")]
    {
        let mut command = atrest();
        command.args(["scan", "-vv", "--endpoints", &etcd.endpoint(), "--user", "root", "--password", password]);
        if log == "trace" {
            command.env("RUST_LOG", log);
        }
        let outcome = outcome(&mut command);
        assert_eq!(outcome.code, Some(if password == PASSWORD { 0 } else { 3 }));
        assert!(!outcome.stderr.contains("battery") && !outcome.stdout.contains("battery"), "{}", outcome.stderr);
    }
    for args in
        [&["--user", "root:hunter2", "--dial-timeout", "x"][..], &["--password", "hunter2", "--dial-timeout", "x"]]
    {
        let outcome = outcome(atrest().arg("scan").args(args));
        assert_eq!(outcome.code, Some(2));
        assert!(!outcome.stderr.contains("hunter2"), "{}", outcome.stderr);
    }
    let outcome =
        outcome(atrest().args(["scan", "--help"]).env("ETCDCTL_PASSWORD", "hunter2").env("ETCDCTL_USER", "u:hunter2"));
    assert!(outcome.stdout.contains("ETCDCTL_PASSWORD") && !outcome.stdout.contains("hunter2"), "{}", outcome.stdout);
}
