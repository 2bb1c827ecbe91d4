//! A SoftHSM of one's own: a folder of tokens, and a second hand on the module, behind the backend's back.

use std::path::{Path, PathBuf};
use std::process::Command;

use atrest_kms_plugin::backend::pkcs11::{GcmIv, Mechanism, Options, Pkcs11};
use cryptoki::context::{CInitializeArgs, CInitializeFlags};
use cryptoki::mechanism::Mechanism as P11Mechanism;
use cryptoki::object::{Attribute, KeyType, ObjectClass};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;

use crate::support::{install, own_process};

pub(crate) const PIN: &str = "87654321";
const SO_PIN: &str = "12345678";

/// Runs an async test in a process whose SoftHSM has no token yet.
pub(crate) fn test<F: Future<Output = ()>>(name: &str, body: impl FnOnce(SoftHsm) -> F) {
    test_with(&[], name, body);
}

/// The same with a SoftHSM that has these mechanisms only.
pub(crate) fn test_with<F: Future<Output = ()>>(mechanisms: &[&str], name: &str, body: impl FnOnce(SoftHsm) -> F) {
    let dir = tempfile::tempdir().expect("a folder");
    let variables = || {
        std::fs::create_dir(dir.path().join("tokens")).expect("a folder");
        let conf = write_conf(dir.path(), mechanisms);
        vec![("SOFTHSM2_CONF", conf.into_os_string()), ("CREDENTIALS_DIRECTORY", dir.path().into())]
    };
    own_process::run(name, variables, || {
        let conf = PathBuf::from(std::env::var_os("SOFTHSM2_CONF").expect("it is set"));
        let hsm = SoftHsm { dir: conf.parent().expect("it has one").to_owned() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(body(hsm));
    });
}

fn write_conf(dir: &Path, mechanisms: &[&str]) -> PathBuf {
    let conf = dir.join("softhsm2.conf");
    let mut text = format!("directories.tokendir = {}\nlog.level = ERROR\n", dir.join("tokens").display());
    if !mechanisms.is_empty() {
        text.push_str(&format!("slots.mechanisms = {}\n", mechanisms.join(",")));
    }
    std::fs::write(&conf, text).expect("a file");
    conf
}

pub(crate) struct SoftHsm {
    dir: PathBuf,
}

/// What a key may, and what else it has.
#[derive(Clone)]
pub(crate) struct KeySpec {
    pub(crate) label: &'static str,
    pub(crate) id: u8,
    pub(crate) encrypt: bool,
    pub(crate) wrap: bool,
    pub(crate) extractable: bool,
}

impl KeySpec {
    pub(crate) fn new(label: &'static str, id: u8) -> Self {
        Self { label, id, encrypt: true, wrap: true, extractable: false }
    }
}

impl SoftHsm {
    pub(crate) fn module() -> PathBuf {
        install::find("ATREST_SOFTHSM_MODULE", &["/usr/lib/softhsm/libsofthsm2.so"])
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.dir.join("tokens")
    }

    /// Another configuration of the token, as of a restart: it has these mechanisms only.
    pub(crate) fn set_mechanisms(&self, mechanisms: &[&str]) {
        write_conf(&self.dir, mechanisms);
        self.raw().finalize().expect("it can be finalized");
    }

    /// Another value of attributes of a key, as an administrator edits them.
    pub(crate) fn set_attributes(&self, label: &str, attributes: &[Attribute]) {
        let session = self.session();
        let keys = session.find_objects(&[Attribute::Label(label.as_bytes().to_vec())]).expect("it can search");
        let [key] = keys.as_slice() else { panic!("{} keys", keys.len()) };
        session.update_attributes(*key, attributes).expect("it can be edited");
    }

    /// A token made by another process, as an administrator makes it.
    pub(crate) fn make_token(&self, label: &str) {
        let arguments = ["--init-token", "--free", "--label", label, "--so-pin", SO_PIN, "--pin", PIN];
        let output = Command::new("softhsm2-util").args(arguments).output().expect("softhsm2-util is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn pin_file(&self, pin: &str) -> PathBuf {
        let file = self.dir.join("pin");
        std::fs::write(&file, format!("{pin}\n")).expect("a file");
        file
    }

    /// Options for the token `atrest` with these keys.
    pub(crate) fn options(&self, keys: &[&str]) -> Options {
        Options {
            pkcs11_module: Some(Self::module()),
            pkcs11_token_label: Some("atrest".to_owned()),
            pkcs11_token_serial: None,
            pkcs11_pin_file: Some(self.pin_file(PIN)),
            pkcs11_key_label: keys.iter().map(|&key| key.to_owned()).collect(),
            pkcs11_mechanism: Mechanism::Auto,
            pkcs11_gcm_iv: GcmIv::Random,
            pkcs11_sessions: 4,
            // A debug build on a loaded machine.
            pkcs11_timeout: std::time::Duration::from_secs(20),
        }
    }

    pub(crate) fn open(&self, keys: &[&str]) -> Pkcs11 {
        Pkcs11::open(&self.options(keys)).expect("the options are right")
    }

    /// The module, initialized.
    pub(crate) fn raw(&self) -> cryptoki::context::Pkcs11 {
        let raw = cryptoki::context::Pkcs11::new(Self::module()).expect("the module loads");
        // The backend may have done so already.
        drop(raw.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)));
        raw
    }

    pub(crate) fn slot(&self, label: &str) -> Slot {
        let raw = self.raw();
        let slots = raw.get_slots_with_initialized_token().expect("slots");
        let mut slots = slots.into_iter();
        slots.find(|slot| raw.get_token_info(*slot).expect("a token").label() == label).expect("the token is there")
    }

    /// A session that is logged in. The caller keeps it no longer than needed.
    pub(crate) fn session(&self) -> Session {
        let session = self.raw().open_rw_session(self.slot("atrest")).expect("a session");
        // The backend's login is the whole process's.
        drop(session.login(UserType::User, Some(&AuthPin::from(PIN))));
        session
    }

    pub(crate) fn make_key(&self, key: &KeySpec) {
        self.session().generate_key(&P11Mechanism::AesKeyGen, &template(key)).expect("a key");
    }

    pub(crate) fn delete_keys(&self, label: &str) {
        let session = self.session();
        let label = Attribute::Label(label.as_bytes().to_vec());
        for key in session.find_objects(&[label]).expect("it can search") {
            session.destroy_object(key).expect("it can delete");
        }
    }
}

fn template(key: &KeySpec) -> Vec<Attribute> {
    vec![
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::AES),
        Attribute::ValueLen(32.into()),
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Label(key.label.as_bytes().to_vec()),
        Attribute::Id(vec![key.id]),
        Attribute::Encrypt(key.encrypt),
        Attribute::Decrypt(key.encrypt),
        Attribute::Wrap(key.wrap),
        Attribute::Unwrap(key.wrap),
        Attribute::Extractable(key.extractable),
    ]
}

/// Renames a folder.
pub(crate) fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).expect("it can be renamed");
}
