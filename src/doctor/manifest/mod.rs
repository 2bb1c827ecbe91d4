//! The manifest of a static pod: which flags kube-apiserver gets, and whether it can see the files that they name.

mod flags;
mod problem;
mod tree;

use std::path::{Path, PathBuf};

pub use problem::ManifestProblem;
pub use tree::InvalidManifest;

use flags::Flags;
use tree::{Mount, Volume};

/// The flag of the EncryptionConfiguration.
const ENCRYPTION_CONFIG: &str = "encryption-provider-config";

/// kube-apiserver's container.
#[derive(Debug)]
pub struct ApiserverManifest {
    flags: Flags,
    mounts: Vec<Mount>,
    volumes: Vec<Volume>,
}

/// Where the socket of a KMS provider is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsSocket {
    /// The provider's name.
    pub provider: String,
    /// The path in the configuration, as the API server sees it.
    pub path: PathBuf,
    /// Where the plugin listens on the host, where that is known.
    pub plugin: Option<PathBuf>,
}

impl ApiserverManifest {
    /// Reads a Pod, or what has the template of one.
    ///
    /// # Errors
    ///
    /// When it is no YAML or JSON, or has no container that runs kube-apiserver.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidManifest> {
        let container = tree::container(text)?;
        Ok(Self { flags: Flags::new(&container.command), mounts: container.mounts, volumes: container.volumes })
    }

    /// The value of a flag; of several the last.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.flags.value(name)
    }

    /// The flags that matter here, as they are given.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        self.flags.watched().map(|(name, value)| (format!("--{name}"), value.to_owned())).collect()
    }

    /// The file of `--encryption-provider-config`, as the API server sees it.
    #[must_use]
    pub fn encryption_config(&self) -> Option<&Path> {
        self.flag(ENCRYPTION_CONFIG).map(Path::new)
    }

    /// Whether kube-apiserver starts without any encryption: the flag is not there, and nothing that was meant for it.
    #[must_use]
    pub fn is_without_encryption(&self) -> bool {
        let is_meant = |problem: &ManifestProblem| match problem {
            ManifestProblem::Misspelled { meant: flag, .. }
            | ManifestProblem::OneArgument { flag, .. }
            | ManifestProblem::NoValue { flag } => flag.contains(ENCRYPTION_CONFIG),
            _ => false,
        };
        self.encryption_config().is_none() && !self.flags.problems().iter().any(is_meant)
    }

    /// Where a path of the container is on the host. Nothing when that is not known, or on no host.
    #[must_use]
    pub fn host_path(&self, path: &Path) -> Option<PathBuf> {
        let mount = self.mount_of(path)?;
        let volume = self.volumes.iter().find(|volume| volume.name == mount.volume)?;
        let inside = path.strip_prefix(&mount.path).ok()?;
        let base = volume.host_path.as_ref()?;
        let base = mount.sub_path.as_ref().map_or_else(|| base.clone(), |sub| base.join(sub));
        Some(if inside.as_os_str().is_empty() { base } else { base.join(inside) })
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn problems(&self, sockets: &[KmsSocket]) -> Vec<ManifestProblem> {
        let mut problems = self.flags.problems();
        if let Some(path) = self.encryption_config() {
            problems.extend(self.unseen(path, |path| ManifestProblem::ConfigNotMounted { path }));
        }
        for KmsSocket { provider, path, plugin } in sockets {
            let not_mounted = |path| ManifestProblem::SocketNotMounted { provider: provider.clone(), path };
            if let Some(problem) = self.unseen(path, not_mounted) {
                problems.push(problem);
                continue;
            }
            if self.mounts.iter().any(|mount| mount.path == *path) {
                problems.push(ManifestProblem::SocketMountedItself { provider: provider.clone(), path: path.clone() });
            }
            if let (Some(host), Some(plugin)) = (self.host_path(path), plugin)
                && host != *plugin
            {
                let (provider, path, plugin) = (provider.clone(), path.clone(), plugin.clone());
                problems.push(ManifestProblem::SocketElsewhere { provider, path, host, plugin });
            }
        }
        problems
    }

    /// The mount that a path lies in: the longest.
    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let around = self.mounts.iter().filter(|mount| path.starts_with(&mount.path));
        around.max_by_key(|mount| mount.path.components().count())
    }

    fn unseen(&self, path: &Path, not_mounted: impl Fn(PathBuf) -> ManifestProblem) -> Option<ManifestProblem> {
        if !path.is_absolute() {
            return Some(ManifestProblem::RelativePath { path: path.to_owned() });
        }
        let Some(mount) = self.mount_of(path) else { return Some(not_mounted(path.to_owned())) };
        let volume = mount.volume.clone();
        match self.volumes.iter().any(|other| other.name == volume) {
            true => None,
            false => Some(ManifestProblem::NoSuchVolume { volume, mount: mount.path.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(command: &str, mounts: &str, volumes: &str) -> Vec<u8> {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: kube-apiserver}}\nspec:\n  hostNetwork: true\n  containers:\n  - name: kube-apiserver\n    \
             command: {command}\n    volumeMounts: {mounts}\n  volumes: {volumes}\n"
        )
        .into_bytes()
    }

    fn problems(command: &str, mounts: &str, volumes: &str, sockets: &[KmsSocket]) -> Vec<String> {
        let manifest = ApiserverManifest::parse(&pod(command, mounts, volumes)).unwrap();
        manifest.problems(sockets).iter().map(ToString::to_string).collect()
    }

    fn socket(path: &str, plugin: Option<&str>) -> KmsSocket {
        KmsSocket { provider: "cloud".to_owned(), path: path.into(), plugin: plugin.map(PathBuf::from) }
    }

    const VOLUMES: &str = "[{name: enc, hostPath: {path: /etc/kubernetes/enc, type: DirectoryOrCreate}}, {name: run, hostPath: {path: /run/kms}}]";

    #[test]
    fn a_mounted_file_and_socket_are_right() {
        let command =
            "[kube-apiserver, --encryption-provider-config=/etc/enc/enc.yaml, --etcd-servers=https://127.0.0.1:2379]";
        let mounts = "[{name: enc, mountPath: /etc/enc, readOnly: true}, {name: run, mountPath: /var/run/kms}]";
        let manifest = ApiserverManifest::parse(&pod(command, mounts, VOLUMES)).unwrap();
        assert_eq!(manifest.problems(&[socket("/var/run/kms/kms.sock", Some("/run/kms/kms.sock"))]), []);
        assert_eq!(manifest.host_path(Path::new("/etc/enc/enc.yaml")), Some("/etc/kubernetes/enc/enc.yaml".into()));
        assert_eq!(manifest.flag("etcd-servers"), Some("https://127.0.0.1:2379"));
        assert_eq!(
            manifest.settings(),
            [
                ("--encryption-provider-config".to_owned(), "/etc/enc/enc.yaml".to_owned()),
                ("--etcd-servers".to_owned(), "https://127.0.0.1:2379".to_owned())
            ]
        );
    }

    /// A manifest without the flag had nothing wrong, while its API server failed on all that others have encrypted.
    #[test]
    fn a_manifest_without_the_flag_is_without_encryption() {
        for (command, is_without) in [
            ("[kube-apiserver, --etcd-servers=https://127.0.0.1:2379]", true),
            ("[kube-apiserver, --encryption-provider-config=/e]", false),
            ("[kube-apiserver, --encryption-provider-confg=/e]", false),
            ("[kube-apiserver, '--encryption-provider-config /e']", false),
        ] {
            let manifest = ApiserverManifest::parse(&pod(command, "[]", "[]")).unwrap();
            assert_eq!(manifest.is_without_encryption(), is_without, "{command}");
        }
    }

    /// kubernetes#53867: the API server "did not run", and nothing said why.
    #[test]
    fn a_file_that_is_not_mounted_is_found() {
        let command = "[kube-apiserver, --encryption-provider-config, /etc/kubernetes/enc/enc.yaml]";
        assert_eq!(
            problems(
                command,
                "[{name: pki, mountPath: /etc/kubernetes/pki}]",
                "[{name: pki, hostPath: {path: /etc/kubernetes/pki}}]",
                &[]
            ),
            [
                "/etc/kubernetes/enc/enc.yaml, the file of --encryption-provider-config, lies in no volumeMount: the API server does not see it"
            ]
        );
        // A path that only begins with the same letters is another one.
        assert_eq!(problems(command, "[{name: enc, mountPath: /etc/kubernetes/en}]", VOLUMES, &[]).len(), 1);
        assert_eq!(
            problems(command, "[{name: gone, mountPath: /etc/kubernetes/enc}]", VOLUMES, &[]),
            ["the volumeMount /etc/kubernetes/enc names the volume \"gone\", which the pod does not have"]
        );
    }

    /// cloud-provider-openstack#1313: the socket was on the host, and its folder not in the container.
    #[test]
    fn a_socket_must_be_mounted_by_its_folder_from_where_the_plugin_listens() {
        let command = "[kube-apiserver]";
        let run = "[{name: run, mountPath: /var/run/kms}]";
        assert_eq!(
            problems(command, run, VOLUMES, &[socket("/run/kms/kms.sock", None)]),
            [
                "/run/kms/kms.sock, the socket of the KMS provider cloud, lies in no volumeMount: the API server does not see it"
            ]
        );
        assert_eq!(
            problems(command, run, VOLUMES, &[socket("/var/run/kms/kms.sock", Some("/run/other/kms.sock"))]),
            [
                "/var/run/kms/kms.sock, the socket of the KMS provider cloud, is /run/kms/kms.sock on the host, and its plugin listens on /run/other/kms.sock"
            ]
        );
        assert_eq!(
            problems(command, "[{name: run, mountPath: /run/kms.sock}]", VOLUMES, &[socket("/run/kms.sock", None)]),
            [
                "/run/kms.sock, the socket of the KMS provider cloud, is mounted itself, and not its folder: after a restart of the plugin it is a socket that nobody listens on"
            ]
        );
    }

    #[test]
    fn flags_are_taken_in_every_form_and_wrong_ones_are_named() {
        for command in [
            "[kube-apiserver, --encryption-provider-config=/enc.yaml]",
            "[kube-apiserver, --encryption_provider_config=/enc.yaml]",
            "[kube-apiserver, --encryption-provider-config, /enc.yaml]",
            "[sh, -c, 'exec kube-apiserver --v=2 --encryption-provider-config=/enc.yaml']",
        ] {
            let manifest = ApiserverManifest::parse(&pod(command, "[]", "[]")).unwrap();
            assert_eq!(manifest.encryption_config(), Some(Path::new("/enc.yaml")), "{command}");
        }
        for (flag, problem) in [
            (
                "--encryption-provider-confg=/x",
                "--encryption-provider-confg is no flag of kube-apiserver: is --encryption-provider-config meant?",
            ),
            (
                "--experimental-encryption-provider-config=/x",
                "--experimental-encryption-provider-config is no flag of kube-apiserver: is --encryption-provider-config meant?",
            ),
            ("-etcd-servers=http://a", "-etcd-servers is no flag of kube-apiserver: is --etcd-servers meant?"),
            (
                "'--etcd-servers http://a'",
                "\"--etcd-servers http://a\" is one argument: write --etcd-servers=… or two arguments",
            ),
            ("--etcd-cafile", "--etcd-cafile has no value"),
            (
                "--encryption-provider-config-automatic-reload",
                "--encryption-provider-config-automatic-reload needs --encryption-provider-config",
            ),
            (
                "--etcd-compaction-interval=0",
                "--etcd-compaction-interval=0: the API server does not let etcd compact, so its history grows",
            ),
            (
                "--etcd-servers-overrides=events#http://a",
                "--etcd-servers-overrides: \"events#http://a\" is not of the form group/resource#url;url",
            ),
            (
                "--etcd-servers-overrides=events.k8s.io/events#http://a",
                "--etcd-servers-overrides: events.k8s.io/events has no effect, Events are /events",
            ),
        ] {
            assert_eq!(problems(&format!("[kube-apiserver, {flag}]"), "[]", "[]", &[]), [problem], "{flag}");
        }
        let right = "[kube-apiserver, --etcd-servers-overrides=/events#http://a;http://b, --etcd-readycheck-timeout=2s, --etcd-healthcheck-timeout, 2s, --encryption-provider-config=/e/x, --encryption-provider-config-automatic-reload=true]";
        assert_eq!(problems(right, "[{name: enc, mountPath: /e}]", VOLUMES, &[]), [""; 0]);
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let error = |text: &str| ApiserverManifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error("kind: Pod\nspec: {containers: [{name: etcd, command: [etcd]}]}"),
            "no container runs kube-apiserver"
        );
        assert_eq!(error("[]"), "no container runs kube-apiserver");
        assert!(error("a: [").contains("1:"), "{}", error("a: ["));
        let deployment = "kind: Deployment\nspec: {template: {spec: {containers: [{name: kube-apiserver, args: [--etcd-servers=x]}]}}}";
        assert_eq!(ApiserverManifest::parse(deployment.as_bytes()).unwrap().flag("etcd-servers"), Some("x"));
    }

    proptest! {
        #[test]
        fn no_manifest_makes_it_panic(command in "[ -z\\[\\]{}'\"#=/;,-]{0,60}", rest in ".{0,60}") {
            if let Ok(manifest) = ApiserverManifest::parse(&pod(&command, &rest, "[]")) {
                _ = manifest.problems(&[socket(&rest, Some(&rest))]);
            }
        }
    }
}
