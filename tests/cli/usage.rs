//! What is typed wrong ends with 2, before anything is read or written.

use crate::run::{DEMO, File, K1, atrest, command, config, finish, provider};

#[test]
fn the_version_is_that_of_the_package() {
    let expected = format!("atrest {}\n", env!("CARGO_PKG_VERSION"));
    for args in [&["--version"][..], &["-V"]] {
        let run = atrest(args, b"").exits(0);
        assert_eq!((run.text(), run.stderr.as_str()), (expected.as_str(), ""));
    }
    assert_eq!(
        atrest(&["scan", "--version"], b"").exits(0).text(),
        format!("atrest-scan {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn wrong_usage_exits_with_2_and_says_nothing_on_standard_output() {
    let cases: [(&[&str], &str); 17] = [
        (&[], "Usage: atrest"),
        (&["config"], "Usage: atrest config"),
        (&["explode"], "atrest: error: unrecognized subcommand 'explode'"),
        (&["scan", "--nope"], "unexpected argument '--nope'"),
        (&["scan", "-o", "html"], "invalid value 'html'"),
        (&["scan", "--dial-timeout", "5"], "invalid value '5' for '--dial-timeout"),
        (&["scan", "-n", "a", "-A"], "cannot be used with"),
        (&["scan", "--by", "colour"], "invalid value 'colour'"),
        (&["scan", "--user", "root"], "atrest: error: --user is given without a password"),
        (&["verify"], "--encryption-provider-config <FILE>"),
        (&["rekey"], "--encryption-provider-config <FILE>"),
        (&["rekey", "--encryption-provider-config", "f", "--concurrency", "0"], "invalid value '0'"),
        (&["rekey", "--encryption-provider-config", "f", "--journal", "j", "--no-journal"], "cannot be used with"),
        (&["decrypt", "--encryption-provider-config", "f"], "--key <KEY>"),
        (&["decrypt", "--encryption-provider-config", "f", "--resource", "secrets"], "--key <KEY>"),
        (&["decrypt", "--encryption-provider-config", "f", "--jsonl", "--key", "k"], "cannot be used with"),
        (&["config", "check"], "<FILE>"),
    ];
    for (args, message) in cases {
        let run = atrest(args, b"").exits(2);
        assert_eq!(run.text(), "", "{args:?}");
        assert!(run.stderr.contains(message), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn a_command_that_lacks_its_subcommand_shows_its_help() {
    for (args, help) in [(&[][..], &["--help"][..]), (&["config"], &["config", "--help"])] {
        let run = atrest(args, b"").exits(2);
        let help = atrest(help, b"").exits(0);
        let first = |text: &str| text.lines().next().map(str::to_owned);
        assert_eq!(first(&run.stderr), first(help.text()), "{args:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for args in [
        &["config", "check", "/does/not/exist.yaml"][..],
        &["decrypt", "--encryption-provider-config", "/does/not/exist.yaml", "--jsonl"],
        &["verify", "--encryption-provider-config", "/does/not/exist.yaml"],
    ] {
        let run = atrest(args, b"").exits(2);
        assert_eq!(run.text(), "");
        assert_eq!(run.stderr, "atrest: error: /does/not/exist.yaml: No such file or directory (os error 2)\n");
    }
}

#[test]
fn standard_input_cannot_be_both_values_and_configuration() {
    let run = atrest(&["decrypt", "--encryption-provider-config", "-", "--jsonl"], b"").exits(2);
    assert_eq!(
        run.stderr,
        "atrest: error: standard input holds the values: name a file with --encryption-provider-config\n"
    );
}

#[test]
fn a_configuration_that_is_not_accepted_exits_with_2_and_all_its_errors() {
    let file = config(&[&provider("aescbc", "key1", "AQEB"), &provider("aesgcm", "", K1)]);
    for command in ["decrypt", "encrypt"] {
        let args = [command, "--encryption-provider-config", file.path(), "--resource", "secrets", "--key", DEMO];
        let run = atrest(&args, b"x").exits(2);
        assert_eq!(run.text(), "");
        let lines: Vec<_> = run.stderr.lines().collect();
        assert_eq!(lines[0], format!("atrest: error: {}: 2 errors", file.path()));
        let path = file.path();
        let begin = format!("  {path}:6:44: resources[0].providers[0].aescbc.keys[0].secret: ");
        assert!(lines[1].starts_with(&begin), "{}", lines[1]);
        assert!(run.stderr.contains("resources[0].providers[1].aesgcm.keys[0].name: "), "{}", run.stderr);
    }
}

#[test]
fn nothing_is_coloured_where_nobody_looks() {
    let file = File::new("a: [");
    let cases: [&[&str]; 4] =
        [&["--help"], &["scan", "--nope"], &["config", "check", file.path()], &["scan", "--endpoints", "127.0.0.1:1"]];
    for args in cases {
        for no_color in [None, Some("1")] {
            let mut command = command(args);
            if let Some(value) = no_color {
                command.env("NO_COLOR", value);
            }
            let run = finish(command, b"");
            assert!(!run.stdout.contains(&0x1b) && !run.stderr.contains('\x1b'), "{args:?}");
        }
    }
}

#[test]
fn etcd_that_does_not_answer_exits_with_3_and_a_hint() {
    let run = atrest(&["scan", "--endpoints", "http://127.0.0.1:1"], b"").exits(3);
    assert_eq!(run.text(), "");
    assert!(run.stderr.starts_with("atrest: error: cannot connect to etcd at http://127.0.0.1:1"), "{}", run.stderr);
    assert!(run.stderr.contains("atrest: hint: is etcd running there? Check the host and port in --endpoints"));
}

#[test]
fn a_flag_wins_over_its_variable() {
    let mut command = command(&["scan", "--endpoints", "http://127.0.0.1:1"]);
    command.env("ETCDCTL_ENDPOINTS", "http://127.0.0.1:2");
    let run = finish(command, b"").exits(3);
    assert!(run.stderr.contains("127.0.0.1:1") && !run.stderr.contains("127.0.0.1:2"), "{}", run.stderr);
}

#[test]
fn help_does_not_show_the_password_of_the_environment() {
    let mut command = command(&["scan", "--help"]);
    command.env("ETCDCTL_USER", "root:hunter2").env("ETCDCTL_PASSWORD", "hunter3");
    let run = finish(command, b"").exits(0);
    assert!(!run.text().contains("hunter"), "{}", run.text());
}
