//! What `--help` says is what the README and people's scripts rely on.

use crate::run::atrest;

#[track_caller]
fn assert_help(name: &str, args: &[&str]) {
    let run = atrest(&[args, &["--help"]].concat(), b"").exits(0);
    assert_eq!(run.stderr, "");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/help/{name}.txt"));
    if std::env::var_os("ATREST_UPDATE_HELP").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, &run.stdout).expect("a file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(run.text(), expected, "ATREST_UPDATE_HELP=1 writes {} anew", path.display());
}

#[test]
fn of_the_program() {
    assert_help("atrest", &[]);
}

#[test]
fn of_scan() {
    assert_help("scan", &["scan"]);
}

#[test]
fn of_verify() {
    assert_help("verify", &["verify"]);
}

#[test]
fn of_rekey() {
    assert_help("rekey", &["rekey"]);
}

#[test]
fn of_get() {
    assert_help("get", &["get"]);
}

#[test]
fn of_watch() {
    assert_help("watch", &["watch"]);
}

#[test]
fn of_decode() {
    assert_help("decode", &["decode"]);
}

#[test]
fn of_snapshot() {
    assert_help("snapshot", &["snapshot"]);
    for command in ["inspect", "export", "diff", "history", "residue", "rekey", "redact", "decrypt"] {
        assert_help(&format!("snapshot-{command}"), &["snapshot", command]);
    }
}

#[test]
fn of_decrypt() {
    assert_help("decrypt", &["decrypt"]);
}

#[test]
fn of_encrypt() {
    assert_help("encrypt", &["encrypt"]);
}

#[test]
fn of_config() {
    assert_help("config", &["config"]);
}

#[test]
fn of_config_check() {
    assert_help("config-check", &["config", "check"]);
}

#[test]
fn of_kms() {
    assert_help("kms", &["kms"]);
}

#[test]
fn of_kms_check() {
    assert_help("kms-check", &["kms", "check"]);
}

#[test]
fn of_doctor() {
    assert_help("doctor", &["doctor"]);
    assert_help("doctor-explain", &["doctor", "explain"]);
}

#[test]
fn every_command_is_here() {
    let run = atrest(&["--help"], b"").exits(0);
    let commands = run.text().lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = commands.map_while(|line| line.strip_prefix("  "));
    // What goes on in a second line stands further to the right.
    let names: Vec<_> =
        listed.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "scan", "verify", "rekey", "get", "watch", "decode", "decrypt", "encrypt", "snapshot", "config", "kms",
            "doctor", "help"
        ]
    );
}

#[test]
fn the_exit_codes_stand_below_the_commands() {
    let run = atrest(&["--help"], b"").exits(0);
    for line in ["  0  done, and nothing found", "  2  wrong usage or configuration"] {
        assert!(run.text().lines().any(|printed| printed == line), "{}", run.text());
    }
}
