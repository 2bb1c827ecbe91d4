use std::path::PathBuf;

use crate::config::Diagnostic;
use crate::config::document::{self, Node, Value};

/// A file that is no manifest of kube-apiserver.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidManifest {
    /// Neither YAML nor JSON. The operator can fix it.
    #[error("{0}")]
    Syntax(Box<Diagnostic>),
    /// There is no such container.
    #[error("no container runs kube-apiserver")]
    NoApiserver,
}

/// What of the container matters.
#[derive(Debug, Default)]
pub(super) struct Container {
    /// `command`, and behind it `args`.
    pub(super) command: Vec<String>,
    pub(super) mounts: Vec<Mount>,
    pub(super) volumes: Vec<Volume>,
}

#[derive(Debug)]
pub(super) struct Mount {
    /// The name of the volume.
    pub(super) volume: String,
    pub(super) path: PathBuf,
    pub(super) sub_path: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    /// Nothing for volumes of other kinds.
    pub(super) host_path: Option<PathBuf>,
}

/// The container that runs kube-apiserver.
pub(super) fn container(text: &[u8]) -> Result<Container, InvalidManifest> {
    let root = document::parse(text).map_err(InvalidManifest::Syntax)?.root;
    let pods = list(&root, "items").iter().chain([&root]);
    pods.flat_map(|pod| [field(pod, &["spec"]), field(pod, &["spec", "template", "spec"])])
        .flatten()
        .find_map(in_spec)
        .ok_or(InvalidManifest::NoApiserver)
}

fn in_spec(spec: &Node) -> Option<Container> {
    let texts = |node: &Node, name| list(node, name).iter().filter_map(text).map(str::to_owned).collect::<Vec<_>>();
    let runs_apiserver = |container: &&Node| {
        let named = string(container, "name").is_some_and(|name| name == "kube-apiserver");
        named || texts(container, "command").iter().any(|word| word.contains("kube-apiserver"))
    };
    let container = list(spec, "containers").iter().find(runs_apiserver)?;
    let mount = |mount: &Node| {
        Some(Mount {
            volume: string(mount, "name")?.to_owned(),
            path: string(mount, "mountPath")?.into(),
            sub_path: string(mount, "subPath").filter(|path| !path.is_empty()).map(PathBuf::from),
        })
    };
    let volume = |volume: &Node| {
        let host_path = field(volume, &["hostPath", "path"]).and_then(text).map(PathBuf::from);
        Some(Volume { name: string(volume, "name")?.to_owned(), host_path })
    };
    Some(Container {
        command: [texts(container, "command"), texts(container, "args")].concat(),
        mounts: list(container, "volumeMounts").iter().filter_map(mount).collect(),
        volumes: list(spec, "volumes").iter().filter_map(volume).collect(),
    })
}

fn field<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(node, |node, name| match &node.value {
        Value::Mapping(entries) => entries.iter().find(|entry| entry.key.as_str() == *name).map(|entry| &entry.value),
        _ => None,
    })
}

fn list<'a>(node: &'a Node, name: &str) -> &'a [Node] {
    match field(node, &[name]).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn string<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    field(node, &[name]).and_then(text)
}

fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Some(text.as_str()),
        _ => None,
    }
}
