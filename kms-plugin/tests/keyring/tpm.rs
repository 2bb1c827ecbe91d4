//! A TPM in software, swtpm: one folder of state is one TPM.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::folder::{Folder, Run, keyring, states};

const GET_IT: &str =
    "swtpm: as root on Debian `apt-get install swtpm swtpm-tools libtss2-dev tpm2-tools`, or `cargo xtask setup`";

/// A running TPM; ended when dropped.
struct Tpm {
    process: Child,
    port: u16,
}

impl Tpm {
    /// With a log of what is said to it and what it answers, beside its state.
    fn start(state: &Path) -> Self {
        std::fs::create_dir_all(state).unwrap();
        // The TCTI takes the next port for control, so both have to be free.
        for _ in 0..50 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let Some(control) = port.checked_add(1).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
            else {
                continue;
            };
            let mut process = Command::new("swtpm")
                .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"])
                .arg(format!("dir={}", state.display()))
                .args(["--server", &format!("type=tcp,port={port},bindaddr=127.0.0.1")])
                .args(["--ctrl", &format!("type=tcp,port={control},bindaddr=127.0.0.1")])
                .args(["--log", &format!("level=20,file={}.log", state.display())])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect(GET_IT);
            let deadline = Instant::now() + Duration::from_secs(30);
            while Instant::now() < deadline {
                if process.try_wait().unwrap().is_some() {
                    break;
                }
                // Only the control channel: a connection to the other ends the TPM.
                if std::net::TcpStream::connect(("127.0.0.1", control)).is_ok() {
                    return Self { process, port };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            _ = process.kill();
            _ = process.wait();
        }
        panic!("swtpm does not start");
    }

    fn tcti(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.port)
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn run(folder: &Folder, state: &str, args: &[&str]) -> Run {
    // A boot for each run.
    let tpm = Tpm::start(&folder.path(state));
    folder.run(&[args, &["--keyring", "k", "--tpm-tcti", &tpm.tcti()]].concat())
}

/// The last line but hints: the stack's own library writes before it.
fn error(run: &Run) -> &str {
    run.stderr.lines().find(|line| line.starts_with("atrest-kms-plugin: error: ")).unwrap_or(&run.stderr)
}

#[test]
fn only_the_tpm_that_sealed_it_opens_it() {
    let folder = Folder::new();
    let first = run(&folder, "one", &["keygen", "--tpm", "-o", "json"]).exits(0);
    assert_eq!(first.json()["seal"], "tpm2");
    let second = run(&folder, "one", &["rotate", "--tpm", "-o", "json"]).exits(0).key_id();
    let listed = run(&folder, "one", &["list", "--tpm", "-o", "json"]).exits(0).json();
    let ids: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|key| key["key_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [first.key_id(), second]);
    let other = run(&folder, "two", &["list", "--tpm"]).exits(3);
    let expected = "atrest-kms-plugin: error: k: the TPM does not do it: another TPM sealed the keyring, or this one was cleared since";
    assert_eq!(error(&other), expected);
    let none = folder.run(&["list", "--keyring", "k"]).exits(2);
    assert_eq!(error(&none), "atrest-kms-plugin: error: k: it is sealed by a TPM, which is not given");
}

fn tool(folder: &Folder, tpm: &Tpm, args: &[&str]) {
    let (program, args) = args.split_first().unwrap();
    let mut command = Command::new(program);
    let output = command.args(["-T", &tpm.tcti()]).args(args).current_dir(folder.path("")).output().expect(GET_IT);
    assert_eq!(output.status.code(), Some(0), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The log of a TPM, as the bytes that passed in and out.
fn passed(folder: &Folder, state: &str) -> Vec<u8> {
    let log = std::fs::read_to_string(folder.path(&format!("{state}.log"))).unwrap();
    let is_bytes = |word: &&str| word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    log.lines()
        .filter(|line| line.starts_with(' '))
        .flat_map(|line| line.split_whitespace().filter(is_bytes).map(|word| u8::from_str_radix(word, 16).unwrap()))
        .collect()
}

/// By the tools of the TPM project and the words of the format's description, without this program. And what they read in the
/// clear on the way to the TPM is not there when this program does it.
#[test]
fn other_tools_unseal_it_and_the_bus_does_not_show_the_key() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
    use chacha20poly1305::{XChaCha20Poly1305, XNonce};

    let folder = Folder::new();
    run(&folder, "one", &["keygen", "--tpm"]).exits(0);
    run(&folder, "one", &["list", "--tpm"]).exits(0);
    let before = passed(&folder, "one");
    assert!(before.len() > 1000, "{} bytes", before.len());

    let text = std::fs::read_to_string(folder.path("k")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let seal = &json["seal"]["tpm2"];
    for part in ["public", "private"] {
        let bytes = STANDARD.decode(seal[part].as_str().unwrap()).unwrap();
        let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        folder.write(part, [&len[..], &bytes].concat());
    }
    let tpm = Tpm::start(&folder.path("one"));
    let attributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|decrypt";
    let primary =
        ["tpm2_createprimary", "-C", "o", "-g", "sha256", "-G", "ecc256:aes128cfb", "-a", attributes, "-c", "primary"];
    tool(&folder, &tpm, &primary);
    tool(&folder, &tpm, &["tpm2_flushcontext", "-t"]);
    tool(&folder, &tpm, &["tpm2_load", "-C", "primary", "-u", "public", "-r", "private", "-c", "object"]);
    tool(&folder, &tpm, &["tpm2_flushcontext", "-t"]);
    tool(&folder, &tpm, &["tpm2_unseal", "-c", "object", "-o", "key"]);
    let key = std::fs::read(folder.path("key")).unwrap();
    assert_eq!(key.len(), 32);
    drop(tpm);
    let shows = |bytes: &[u8]| bytes.windows(32).any(|window| window == key);
    assert!(shows(&passed(&folder, "one")), "the tools asked in the clear");
    assert!(!shows(&before));

    let header = format!(
        "{{\"format\":\"atrest-keyring\",\"version\":1,\"seal\":{{\"tpm2\":{{\"public\":{},\"private\":{},\"pcrs\":[]}}}}}}",
        seal["public"], seal["private"]
    );
    let sealed = STANDARD.decode(json["sealed"].as_str().unwrap()).unwrap();
    let (nonce, rest) = sealed.split_first_chunk::<24>().unwrap();
    let cipher = XChaCha20Poly1305::new_from_slice(&key).unwrap();
    let payload = Payload { msg: rest, aad: header.as_bytes() };
    let opened = cipher.decrypt(&XNonce::from(*nonce), payload).expect("it opens");
    let content: serde_json::Value = serde_json::from_slice(&opened).unwrap();
    assert_eq!(content["keys"][0]["state"], "current");
}

#[test]
fn it_moves_to_another_machine_by_a_passphrase() {
    let folder = Folder::new();
    folder.write("p", "correct horse battery staple");
    run(&folder, "one", &["keygen", "--tpm"]).exits(0);
    run(&folder, "one", &["reseal", "--tpm", "--new-passphrase-file", "p"]).exits(0);
    run(&folder, "two", &["reseal", "--passphrase-file", "p", "--new-tpm"]).exits(0);
    run(&folder, "two", &["list", "--tpm"]).exits(0);
    run(&folder, "one", &["list", "--tpm"]).exits(3);
    run(&folder, "two", &["reseal", "--tpm", "--new-plain"]).exits(0);
    assert_eq!(states(&keyring(&folder.path("k"))).len(), 1);
}

#[test]
fn pcrs_have_to_be_as_they_were() {
    let folder = Folder::new();
    run(&folder, "one", &["keygen", "--tpm", "--tpm-pcrs", "16,7"]).exits(0);
    let text = std::fs::read_to_string(folder.path("k")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["seal"]["tpm2"]["pcrs"], serde_json::json!([7, 16]));
    run(&folder, "one", &["list", "--tpm"]).exits(0);
    // Another boot, in which something else was measured.
    let tpm = Tpm::start(&folder.path("one"));
    let digest = format!("16:sha256={}", "5a".repeat(32));
    let extended = Command::new("tpm2_pcrextend").args(["-T", &tpm.tcti(), &digest]).status().expect(GET_IT);
    assert_eq!(extended.code(), Some(0));
    let listed = folder.run(&["list", "--tpm", "--keyring", "k", "--tpm-tcti", &tpm.tcti()]).exits(3);
    let expected =
        "atrest-kms-plugin: error: k: the TPM does not do it: the PCRs do not have the values that it was sealed to";
    assert_eq!(error(&listed), expected);
}

#[test]
fn a_tpm_that_is_not_there() {
    let folder = Folder::new();
    let run = folder.run(&["keygen", "--tpm", "--keyring", "k", "--tpm-tcti", "device:/no/such/tpm"]).exits(3);
    let expected = "atrest-kms-plugin: error: k: the TPM does not do it: no TPM at device:/no/such/tpm: ";
    assert!(error(&run).starts_with(expected), "{}", run.stderr);
    let run = folder.run(&["keygen", "--tpm", "--keyring", "k", "--tpm-tcti", "telepathy"]).exits(3);
    assert_eq!(error(&run), "atrest-kms-plugin: error: k: the TPM does not do it: telepathy is no TCTI");
    assert_eq!(folder.names(), [""; 0]);
}
