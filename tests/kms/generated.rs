use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kms/api")
}

fn generate(name: &str, out: &Path) {
    let files = protox::compile([format!("{name}.proto")], [folder()]).expect("a valid definition");
    let secret = [".v2.EncryptRequest", ".v2.DecryptResponse", ".v1beta1.EncryptRequest", ".v1beta1.DecryptResponse"];
    let with_key_id = [".v2.StatusResponse", ".v2.EncryptResponse", ".v2.DecryptRequest"];
    tonic_prost_build::configure()
        .btree_map(".")
        .skip_debug(secret.into_iter().chain(with_key_id))
        .out_dir(out)
        .compile_fds(files)
        .expect("code for the definition");
}

/// The generated code is checked in, so that the build needs no compiler of protobuf definitions for it.
#[test]
fn the_code_is_that_of_the_definitions() {
    let out = tempfile::tempdir().expect("a temporary folder");
    for name in ["v1beta1", "v2"] {
        generate(name, out.path());
        let generated = std::fs::read_to_string(out.path().join(format!("{name}.rs"))).expect("generated code");
        let checked_in = folder().join(format!("{name}.rs"));
        if std::env::var_os("ATREST_REGENERATE").is_some() {
            std::fs::write(&checked_in, &generated).expect("a writable folder");
        }
        let present = std::fs::read_to_string(&checked_in).unwrap_or_default();
        assert!(present == generated, "{name}.rs is not what {name}.proto gives: run this with ATREST_REGENERATE=1");
    }
}
