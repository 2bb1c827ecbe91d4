use std::path::PathBuf;

/// What is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestProblem {
    /// A flag that kube-apiserver does not have: it does not start.
    #[error("{given} is no flag of kube-apiserver: is {meant} meant?")]
    Misspelled {
        /// As it is given.
        given: String,
        /// The flag that is meant.
        meant: String,
    },
    /// A flag and its value as one argument.
    #[error("{text:?} is one argument: write {flag}=… or two arguments")]
    OneArgument {
        /// The argument.
        text: String,
        /// The flag in it.
        flag: String,
    },
    /// A flag without its value.
    #[error("{flag} has no value")]
    NoValue {
        /// The flag.
        flag: String,
    },
    /// No EncryptionConfiguration at all.
    #[error("no --encryption-provider-config: this API server reads and writes everything in the clear")]
    NoEncryptionConfig,
    /// Reloading, and nothing to reload.
    #[error("--encryption-provider-config-automatic-reload needs --encryption-provider-config")]
    ReloadWithoutConfig,
    /// Nobody compacts.
    #[error("--etcd-compaction-interval=0: the API server does not let etcd compact, so its history grows")]
    NoCompaction,
    /// An override that kube-apiserver does not take.
    #[error("--etcd-servers-overrides: {entry:?} is not of the form group/resource#url;url")]
    InvalidOverride {
        /// The entry.
        entry: String,
    },
    /// An override of Events by the group in which they are not stored.
    #[error("--etcd-servers-overrides: events.k8s.io/events has no effect, Events are /events")]
    EventsOverride,
    /// The EncryptionConfiguration cannot be seen.
    #[error("{}, the file of --encryption-provider-config, lies in no volumeMount: the API server does not see it", path.display())]
    ConfigNotMounted {
        /// The file.
        path: PathBuf,
    },
    /// The EncryptionConfiguration is not there.
    #[error("{}, the file of --encryption-provider-config, is {} on the host, and is not there", path.display(), host.display())]
    ConfigNotThere {
        /// The file, as the API server sees it.
        path: PathBuf,
        /// On the host.
        host: PathBuf,
    },
    /// A path that depends on where the API server is started.
    #[error("{} is no absolute path", path.display())]
    RelativePath {
        /// The path.
        path: PathBuf,
    },
    /// The socket of a KMS cannot be seen.
    #[error("{}, the socket of the KMS provider {provider}, lies in no volumeMount: the API server does not see it", path.display())]
    SocketNotMounted {
        /// The provider.
        provider: String,
        /// The socket.
        path: PathBuf,
    },
    /// The socket is mounted, and not its folder.
    #[error(
        "{}, the socket of the KMS provider {provider}, is mounted itself, and not its folder: after a restart of the plugin it is a socket \
         that nobody listens on",
        path.display()
    )]
    SocketMountedItself {
        /// The provider.
        provider: String,
        /// The socket.
        path: PathBuf,
    },
    /// The plugin listens elsewhere.
    #[error(
        "{}, the socket of the KMS provider {provider}, is {} on the host, and its plugin listens on {}",
        path.display(), host.display(), plugin.display()
    )]
    SocketElsewhere {
        /// The provider.
        provider: String,
        /// The socket, as the API server sees it.
        path: PathBuf,
        /// On the host.
        host: PathBuf,
        /// Where the plugin listens.
        plugin: PathBuf,
    },
    /// A mount of a volume that is not there: the pod is not made.
    #[error("the volumeMount {} names the volume {volume:?}, which the pod does not have", mount.display())]
    NoSuchVolume {
        /// The volume.
        volume: String,
        /// The mount.
        mount: PathBuf,
    },
}

impl ManifestProblem {
    /// Whether it is about a socket of a KMS, and not about the API server's own flags and files.
    #[must_use]
    pub fn is_of_kms(&self) -> bool {
        matches!(self, Self::SocketNotMounted { .. } | Self::SocketMountedItself { .. } | Self::SocketElsewhere { .. })
    }
}
