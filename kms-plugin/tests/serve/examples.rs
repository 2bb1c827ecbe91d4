//! The files of `config-examples/` that run the plugin have its flags.

use std::path::Path;
use std::process::Command;

use atrest::config::ProviderConfiguration;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config-examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether the program knows these arguments. With `--help` after them it does no more.
fn is_accepted(args: &[&str]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_atrest-kms-plugin")).args(args).arg("--help").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn service_args(service: &str) -> Vec<&str> {
    let (_, rest) = service.split_once("\nExecStart=/usr/local/bin/atrest-kms-plugin ").unwrap();
    let mut args = Vec::new();
    for line in rest.lines() {
        let (words, goes_on) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        args.extend(words.split_whitespace());
        if !goes_on {
            break;
        }
    }
    args
}

fn pod_args(pod: &str) -> Vec<&str> {
    let (_, rest) = pod.split_once("\n    args:\n").unwrap();
    rest.lines().map_while(|line| line.strip_prefix("    - ")).collect()
}

#[test]
fn the_flags_of_the_examples_are_accepted() {
    let (service, pod) = (example("atrest-kms-plugin.service"), example("kms-plugin-static-pod.yaml"));
    for args in [service_args(&service), pod_args(&pod)] {
        assert_eq!((args[0], args.len() > 5), ("serve", true), "{args:?}");
        assert_eq!(is_accepted(&args), Ok(()), "{args:?}");
        let wrong = [&args[..], &["--no-such-flag"]].concat();
        assert!(is_accepted(&wrong).unwrap_err().contains("--no-such-flag"));
    }
}

#[test]
fn the_examples_agree_on_the_socket_and_the_health_port() {
    let (service, pod) = (example("atrest-kms-plugin.service"), example("kms-plugin-static-pod.yaml"));
    let configuration = example("kms-plugin.yaml");
    let loaded = atrest::config::load(configuration.as_bytes(), &atrest::config::Options::default()).unwrap();
    let providers = loaded.config.resources.iter().flat_map(|entry| &entry.providers);
    let endpoints: Vec<_> = providers
        .filter_map(|provider| match provider {
            ProviderConfiguration::Kms(kms) => Some(kms.endpoint.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(endpoints, ["unix:///run/atrest-kms/kms.sock"]);
    assert!(service_args(&service).windows(2).any(|pair| pair == ["--listen", endpoints[0]]));
    assert!(pod_args(&pod).contains(&format!("--listen={}", endpoints[0]).as_str()));
    let probes: Vec<_> = pod.lines().filter_map(|line| line.trim().strip_prefix("httpGet: ")).collect();
    let expected = ["/livez", "/readyz"].map(|path| format!("{{host: 127.0.0.1, port: 8477, path: {path}}}"));
    assert_eq!(probes, expected);
}

/// A backup of one folder had all that is needed to read the keys.
#[test]
fn the_passphrase_is_not_beside_the_keyring() {
    let (service, pod) = (example("atrest-kms-plugin.service"), example("kms-plugin-static-pod.yaml"));
    let folder_of = |flag: &str| {
        let args = pod_args(&pod);
        let path = args.iter().find_map(|arg| arg.strip_prefix(flag)).unwrap_or_else(|| panic!("no {flag}")).to_owned();
        Path::new(&path).parent().unwrap().to_owned()
    };
    let (keyring, passphrase) = (folder_of("--keyring="), folder_of("--passphrase-file="));
    assert!(!passphrase.starts_with(&keyring) && !keyring.starts_with(&passphrase), "{keyring:?} {passphrase:?}");
    for folder in [keyring, passphrase] {
        let mounted = format!("mountPath: {}", folder.display());
        assert!(pod.lines().any(|line| line.trim() == mounted), "{mounted}");
    }
    let state = "/var/lib/atrest-kms";
    assert!(service_args(&service).contains(&format!("{state}/keyring").as_str()));
    let passphrase = service.lines().find_map(|line| line.strip_prefix("LoadCredential=passphrase:")).unwrap();
    assert!(!passphrase.starts_with(state), "{passphrase}");
}
