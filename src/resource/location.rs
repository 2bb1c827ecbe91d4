//! From a key to the object that it is the key of.

use std::str;

use super::known::Scope;
use super::{EtcdPrefix, KeyLayout, ResourceRef};

/// What a key of etcd is, by its shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location<'a> {
    /// The key of an object of a resource.
    Object {
        /// The prefix that the key begins with.
        prefix: &'a EtcdPrefix,
        /// The resource, whose transformers the value goes through.
        resource: ResourceRef<'a>,
        /// The namespace, unless the object is cluster-scoped. Not necessarily UTF-8.
        namespace: Option<&'a [u8]>,
        /// The name. Not necessarily UTF-8.
        name: &'a [u8],
    },
    /// What an API server keeps below its prefix beside the objects, in an object's encoding. It goes through no
    /// transformer: an API server cannot read it if it is encrypted.
    NonRest {
        /// The prefix that the key begins with.
        prefix: &'a EtcdPrefix,
        /// Which of them.
        kind: NonRest,
        /// What follows the directory.
        name: &'a [u8],
    },
    /// Bookkeeping that is not an object in any encoding.
    NonObject(NonObject),
    /// Below none of the prefixes: not an API server's, or one's with another prefix.
    Foreign,
    /// Below a prefix, but not where any object is: leave it alone.
    Unknown {
        /// The prefix that the key begins with.
        prefix: &'a EtcdPrefix,
        /// The resource whose directory the key lies in, if it lies in one. The API server reads the key when it lists
        /// that resource, with that resource's transformers, and whoever put it there may have sealed it with them.
        resource: Option<ResourceRef<'a>>,
    },
}

impl<'a> Location<'a> {
    /// The resource whose transformers the value goes through: that of the object, or of the directory.
    #[must_use]
    pub fn resource(&self) -> Option<ResourceRef<'a>> {
        match self {
            Self::Object { resource, .. } => Some(*resource),
            Self::Unknown { resource, .. } => *resource,
            Self::NonRest { .. } | Self::NonObject(_) | Self::Foreign => None,
        }
    }
}

impl Location<'_> {
    /// The same without the name: what all objects of a resource in a namespace have in common.
    #[must_use]
    pub fn without_name(self) -> Self {
        match self {
            Self::Object { prefix, resource, namespace, .. } => Self::Object { prefix, resource, namespace, name: b"" },
            Self::NonRest { prefix, kind, .. } => Self::NonRest { prefix, kind, name: b"" },
            other => other,
        }
    }
}

/// The stored things that are no REST resource; their storage is set up without transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonRest {
    /// `masterleases/<ip>`: an API server's address (`pkg/controlplane/reconcilers/lease.go`).
    MasterLease,
    /// `peerserverleases/<id>`: the same for the proxy among API servers.
    PeerServerLease,
    /// `ranges/…`: the allocations of service addresses and node ports.
    Range,
}

/// Keys whose values are plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonObject {
    /// `compact_rev_key`, by which the API servers agree who compacts (`storage/etcd3/compact.go`), under either of its
    /// names: kine stores it as `compact_rev_key_apiserver`.
    CompactRevision,
    /// `<prefix>health`, of the health probe.
    Health,
}

impl KeyLayout {
    /// Tells what a key is. Nothing is copied, and any bytes are allowed.
    ///
    /// Keys of custom resources look alike whether or not their resource is defined: two segments below a directory are
    /// taken for a namespace and a name, one for a name. The decrypted object says what it is.
    #[must_use]
    pub fn locate<'a>(&'a self, key: &'a [u8]) -> Location<'a> {
        if matches!(key, b"compact_rev_key" | b"compact_rev_key_apiserver") {
            return Location::NonObject(NonObject::CompactRevision);
        }
        let below = |prefix: &'a EtcdPrefix| Some((prefix, key.strip_prefix(prefix.as_str().as_bytes())?));
        let Some((prefix, path)) = self.prefixes().iter().find_map(below) else { return Location::Foreign };
        if path == b"health" {
            return Location::NonObject(NonObject::Health);
        }
        let well_formed = path.split(|&b| b == b'/').all(|segment| !segment.is_empty());
        if well_formed && let Some((kind, name)) = non_rest(path) {
            return Location::NonRest { prefix, kind, name };
        }
        let Some(Directory { resource, scope, tail }) = directory(prefix, path) else {
            return Location::Unknown { prefix, resource: None };
        };
        let mut segments = tail.split(|&b| b == b'/');
        let (namespace, name) = match (segments.next(), segments.next(), segments.next()) {
            (Some(name), None, None) if scope != Some(Scope::Namespaced) => (None, name),
            (Some(namespace), Some(name), None) if scope != Some(Scope::Cluster) => (Some(namespace), name),
            _ => return Location::Unknown { prefix, resource: Some(resource) },
        };
        if well_formed {
            Location::Object { prefix, resource, namespace, name }
        } else {
            Location::Unknown { prefix, resource: Some(resource) }
        }
    }
}

fn non_rest(path: &[u8]) -> Option<(NonRest, &[u8])> {
    let (first, name) = split_segment(path).unwrap_or((path, b""));
    let kind = match first {
        b"masterleases" => NonRest::MasterLease,
        b"peerserverleases" => NonRest::PeerServerLease,
        b"ranges" => NonRest::Range,
        _ => return None,
    };
    Some((kind, name))
}

/// The directory that a path lies in, and the rest of the path.
struct Directory<'a> {
    resource: ResourceRef<'a>,
    /// Known for the resources of the tables only.
    scope: Option<Scope>,
    tail: &'a [u8],
}

fn directory<'a>(prefix: &EtcdPrefix, path: &'a [u8]) -> Option<Directory<'a>> {
    let known = |directory, tail| {
        let row = prefix.tables().with_directory(directory)?;
        Some(Directory { resource: row.resource, scope: Some(row.scope), tail })
    };
    let (first, rest) = split_segment(path)?;
    if let Some(found) = known(first, rest) {
        return Some(found);
    }
    let (second, tail) = split_segment(rest)?;
    // Both lengths are those of parts of `path`, so the sum is below its length.
    let both = path.get(..first.len() + 1 + second.len())?;
    known(both, tail).or_else(|| {
        let resource = ResourceRef::new(str::from_utf8(first).ok()?, str::from_utf8(second).ok()?);
        is_custom_resource(resource).then_some(Directory { resource, scope: None, tail })
    })
}

/// Splits at the first slash.
fn split_segment(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().position(|&b| b == b'/')?;
    let (segment, rest) = path.split_at_checked(slash)?;
    Some((segment, rest.get(1..)?))
}

/// Whether a CustomResourceDefinition may define the resource: the plural is a DNS label, and the group a domain with at
/// least one dot, which no directory of a built-in resource has.
///
/// The dot is also what tells an aggregated API server's prefix within `/registry/` from a group and a plural: the
/// sample-apiserver stores at `/registry/wardle.example.com/wardle.example.com/flunders/…`.
pub(super) fn is_custom_resource(resource: ResourceRef<'_>) -> bool {
    resource.group.contains('.') && resource.group.split('.').all(is_label) && is_label(resource.resource)
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.len() <= 63
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
}

#[cfg(test)]
mod tests;
