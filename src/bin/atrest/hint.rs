use atrest::config::Problem;
use atrest::snapshot::{self, Foreign, bbolt};
use atrest::storage::{ConnectFailure, Error, TlsFailure};
use atrest::transformer::envelope::DekFailure;
use atrest::{kine, kms, rekey, resource};

use crate::failure::Failure;

/// What to do about a failure, naming the flag to change. This is the one place for it.
pub(crate) fn hints(failure: &Failure) -> Vec<String> {
    if let Some(error) = failure.storage() {
        return storage_hints(error);
    }
    if let Failure::Selection(resource::Error::UnknownResource { resource }) = failure {
        return vec![resource_hint(&resource.to_string())];
    }
    let hint = match failure {
        Failure::Config { invalid, .. }
            if invalid.errors.iter().any(|error| matches!(error.problem, Problem::Empty)) =>
        {
            "the file that kube-apiserver uses is named by its flag --encryption-provider-config"
        }
        Failure::Kms(kms::Error::Unreachable { endpoint, .. }) if ignored_host(endpoint) => {
            "kube-apiserver ignores what stands before the path, and so does this: write three slashes, unix:///run/kms.sock"
        }
        Failure::Kms(kms::Error::Unreachable { .. }) => {
            "is the plugin running, and is that its socket? Run this where the socket is, as a user who may connect"
        }
        Failure::Kms(kms::Error::NoSocket { .. }) => "endpoints are unix:///absolute/path, or unix:///@name",
        Failure::Rekey(rekey::Error::Kms { failure, .. }) => match failure {
            DekFailure::Unavailable(_) | DekFailure::NoStatus(_) => {
                "the plugin must run and be healthy, and its socket be open to you: `atrest kms check --endpoint unix:///…` looks at it. \
                 When the socket is elsewhere here than in the configuration, name it with --kms-endpoint NAME=unix:///…"
            }
            _ => {
                "`atrest kms check --endpoint unix:///…` looks at the plugin; other resources are selected with --resource"
            }
        },
        Failure::Rekey(rekey::Error::WrongWriteKey { .. }) => {
            "it is not the key that the API servers have under that name, or, of a KMS, it is the plugin of another cluster: compare \
             with theirs. Nothing was written; if the key is right, and all those values are damaged, say so with --trust-write-key"
        }
        Failure::Watch(atrest::watch::WatchError::Compacted { .. }) => {
            "with --relist what is there is shown in place of what is missing; API servers have etcd compacted every five minutes"
        }
        Failure::Export(atrest::backup::ExportError::Other { .. }) => {
            "resume with the same snapshot, revision, keys and flags (--reveal), or name another place with --out"
        }
        Failure::Export(atrest::backup::ExportError::Exists { .. }) => {
            "go on with an interrupted export with --resume, or name another place with --out"
        }
        Failure::Kine(kine::Error::Busy { .. }) => {
            "k3s is writing: run this again, or on a copy of the database and its -wal"
        }
        Failure::Kine(kine::Error::NoSharedMemory { .. }) => {
            "copy the database and its -wal to a directory that you can write to, and name the copy"
        }
        Failure::Kine(kine::Error::Unfinished) => {
            "copy the database and its -journal to a directory that you can write to, and open it once with `sqlite3`"
        }
        Failure::Kine(kine::Error::NoTable { .. } | kine::Error::NotSqlite { .. }) => {
            "--kine takes the database of kine, as k3s has it in /var/lib/rancher/k3s/server/db/state.db"
        }
        Failure::InFile { failure, .. } => return hints(failure),
        Failure::Snapshot(error) => {
            return snapshot_hint(error).map(str::to_owned).into_iter().collect();
        }
        Failure::Rekey(rekey::Error::Journal(_)) => {
            "name another file with --journal, or do without one with --no-journal"
        }
        _ => return Vec::new(),
    };
    vec![hint.to_owned()]
}

/// Whether an endpoint has two slashes where three are meant.
fn ignored_host(endpoint: &str) -> bool {
    atrest::config::Endpoint::parse(endpoint).is_ok_and(|endpoint| endpoint.ignored_host().is_some())
}

/// kubectl's short names that are not the beginning of the plural.
const SHORT_NAMES: [(&str, &str); 14] = [
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
    ("cj", "cronjobs.batch"),
    ("ds", "daemonsets.apps"),
    ("hpa", "horizontalpodautoscalers.autoscaling"),
    ("netpol", "networkpolicies.networking.k8s.io"),
    ("pdb", "poddisruptionbudgets.policy"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets.apps"),
    ("sa", "serviceaccounts"),
    ("sts", "statefulsets.apps"),
    ("svc", "services"),
];

fn resource_hint(text: &str) -> String {
    let typed = text.to_lowercase();
    let begins = |resource: &str| !typed.is_empty() && resource.starts_with(&typed);
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == typed).map(|(_, resource)| (*resource).to_owned());
    let meant = short.or_else(|| {
        let is_meant = |row: &&resource::KnownResource| {
            begins(row.resource.resource) || row.kind.is_some_and(|kind| kind.to_lowercase() == typed)
        };
        resource::known_resources().find(is_meant).map(|row| row.resource.to_string())
    });
    match meant {
        Some(resource) => format!("did you mean {resource}?"),
        None => {
            "resources are lower-case plurals, and custom ones need their group: widgets.stable.example.com".to_owned()
        }
    }
}

fn snapshot_hint(error: &snapshot::Error) -> Option<&'static str> {
    use snapshot::Error;
    Some(match error {
        Error::Directory { .. } => "a data directory is named with --data-dir",
        Error::NotADataDirectory { .. } => {
            "--data-dir takes what etcd's --data-dir names (of kubeadm: /var/lib/etcd); a file is named with --snapshot"
        }
        Error::Foreign { what: Foreign::Xz | Foreign::Tar } => {
            "unpack it first; gzip, zstd and ZIP are read as they are"
        }
        Error::Foreign { what: Foreign::Sqlite } => {
            "scan, verify and get read kine's database, with --kine in place of --snapshot"
        }
        Error::Foreign { what: Foreign::Wal } => "name the data directory with --data-dir, or a snapshot",
        Error::UnpackedTooLarge { .. } => "unpack it to a file: what is compressed is held in memory",
        Error::ZipMembers { .. } => "unpack it, and name the snapshot",
        Error::Unpack { .. } => "an incomplete download? Compare its size and its checksum with the original's",
        Error::Database(bbolt::Error::Damaged(_)) => "what is left of it is read with --salvage",
        Error::Database(bbolt::Error::NoMeta(_)) => {
            "a file that was cut off or overwritten at its beginning; --salvage takes what etcd would not, --meta 0 or 1 one page"
        }
        Error::Database(bbolt::Error::NotBbolt) => {
            "a snapshot is what `etcdctl snapshot save` writes, or a copy of member/snap/db"
        }
        Error::NoKeyBucket { .. } => "is it the snapshot of an etcd of version 3?",
        Error::Exists { .. } => "name another file with --out, or replace it with --force",
        Error::Hash { .. } => {
            "--skip-hash-check takes it all the same: look at it with `atrest snapshot inspect` first"
        }
        Error::SalvageOnly => "leave --salvage out; `atrest snapshot export --salvage` saves what is left as objects",
        Error::Compacted { .. } => "--salvage shows what is left of earlier revisions, which is not all of them",
        _ => return None,
    })
}

fn storage_hints(error: &Error) -> Vec<String> {
    let hint = match error {
        Error::NoEndpoint => "name the members of etcd with --endpoints or ETCDCTL_ENDPOINTS",
        Error::Unreachable { endpoints } => {
            let mut hints = Vec::new();
            for hint in endpoints.iter().map(|endpoint| connect_hint(&endpoint.failure)) {
                if !hints.contains(&hint) {
                    hints.push(hint);
                }
            }
            return hints;
        }
        Error::Tls(error) => match error.failure {
            TlsFailure::EncryptedKey => "decrypt it with `openssl pkey`, and give the result to --key",
            TlsFailure::KeyMismatch => "--cert and --key must be two files of one pair",
            TlsFailure::NoSystemRoots => "give the authority that signs etcd's certificates with --cacert",
            TlsFailure::Missing(_) => "the flags take PEM files: --cacert and --cert certificates, --key a private key",
            _ => return Vec::new(),
        },
        Error::UserRequired => "give --user and ETCDCTL_PASSWORD, or a client certificate with --cert and --key",
        Error::WrongPassword { .. } => "check --user, and --password or ETCDCTL_PASSWORD",
        Error::AuthNotEnabled => "leave --user and ETCDCTL_USER out",
        Error::PermissionDenied => {
            "the user's role must allow reading (for rekey also writing) below /registry/, /kubernetes.io/ and \
             /openshift.io/; with --etcd-prefix only one of them is used"
        }
        Error::NoSpace => {
            "compact and defragment etcd, disarm the alarm with `etcdctl alarm disarm`, then run this again"
        }
        Error::Unavailable { .. } => {
            "check the cluster with `etcdctl endpoint status`; more time is given with --command-timeout"
        }
        _ => return Vec::new(),
    };
    vec![hint.to_owned()]
}

fn connect_hint(failure: &ConnectFailure) -> String {
    let hint = match failure {
        ConnectFailure::Refused => "is etcd running there? Check the host and port in --endpoints",
        ConnectFailure::Resolve => "check the host name in --endpoints",
        ConnectFailure::Timeout(_) => "check --endpoints and the network; more time is given with --dial-timeout",
        ConnectFailure::NoSocket | ConnectFailure::PermissionDenied => "check the path of the socket in --endpoints",
        ConnectFailure::UnknownAuthority => {
            "give the authority that signed it with --cacert (of kubeadm: /etc/kubernetes/pki/etcd/ca.crt)"
        }
        ConnectFailure::NameMismatch { is_ip: true, .. } => {
            "the certificate has no IP SAN for it: use a name of the certificate in --endpoints, or give one with \
             --tls-server-name"
        }
        ConnectFailure::NameMismatch { .. } => {
            "use a name of the certificate in --endpoints, or give one with --tls-server-name"
        }
        ConnectFailure::Expired | ConnectFailure::NotValidYet => "check the clock, and renew etcd's certificate",
        ConnectFailure::ClientCertificateRequired => {
            "give --cert and --key (of kubeadm: /etc/kubernetes/pki/apiserver-etcd-client.crt and .key)"
        }
        ConnectFailure::ClientCertificateRejected => {
            "--cert must be valid, and signed by the authority that etcd's --trusted-ca-file names"
        }
        ConnectFailure::AuthorityAsServer => {
            "start etcd with a certificate that has no basicConstraints CA:TRUE; --cacert is not the cause"
        }
        ConnectFailure::HandshakeRefused => "the server may want a client certificate: give --cert and --key",
        ConnectFailure::NotTls => "use http:// in --endpoints, and leave --cacert, --cert and --key out",
        ConnectFailure::SpeaksTls => "use https:// in --endpoints, with --cacert, --cert and --key",
        ConnectFailure::NotEtcd(_) => "check the port in --endpoints: etcd's clients use 2379",
        ConnectFailure::NotReady(_) => "check the cluster with `etcdctl endpoint status`",
        ConnectFailure::Closed => "check --endpoints: is it etcd's client port, and is TLS (https://) wanted?",
        ConnectFailure::Certificate(_) | ConnectFailure::Tls(_) => "check --cacert and the certificate of etcd",
        _ => "check --endpoints",
    };
    hint.to_owned()
}
