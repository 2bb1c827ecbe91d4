//! From a key to the object that it is the key of.

use std::str;

use super::known::Scope;
use super::{EtcdPrefix, KeyLayout, ResourceRef};

/// What a key of etcd is, by its shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The stored things that are no REST resource; their storage is set up without transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonRest {
    /// `masterleases/<ip>`: an API server's address (`pkg/controlplane/reconcilers/lease.go`).
    MasterLease,
    /// `peerserverleases/<id>`: the same for the proxy among API servers.
    PeerServerLease,
    /// `ranges/…`: the allocations of service addresses and node ports.
    Range,
}

/// Keys whose values are plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
mod tests {
    use proptest::prelude::*;

    use super::super::{GroupResource, known_resources};
    use super::*;

    /// The keys of Kubernetes 1.36, from `test/integration/etcd/data.go`.
    const KEYS: &[(&str, &str, &str)] = &[
        ("/registry/configmaps/ns/n", "configmaps", "ConfigMap"),
        ("/registry/services/endpoints/ns/n", "endpoints", "Endpoints"),
        ("/registry/events/ns/n", "events", "Event"),
        ("/registry/limitranges/ns/n", "limitranges", "LimitRange"),
        ("/registry/namespaces/n", "namespaces", "Namespace"),
        ("/registry/minions/n", "nodes", "Node"),
        ("/registry/persistentvolumeclaims/ns/n", "persistentvolumeclaims", "PersistentVolumeClaim"),
        ("/registry/persistentvolumes/n", "persistentvolumes", "PersistentVolume"),
        ("/registry/pods/ns/n", "pods", "Pod"),
        ("/registry/podtemplates/ns/n", "podtemplates", "PodTemplate"),
        ("/registry/controllers/ns/n", "replicationcontrollers", "ReplicationController"),
        ("/registry/resourcequotas/ns/n", "resourcequotas", "ResourceQuota"),
        ("/registry/secrets/ns/n", "secrets", "Secret"),
        ("/registry/serviceaccounts/ns/n", "serviceaccounts", "ServiceAccount"),
        ("/registry/services/specs/ns/n", "services", "Service"),
        (
            "/registry/mutatingadmissionpolicies/n",
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "MutatingAdmissionPolicy",
        ),
        (
            "/registry/mutatingadmissionpolicybindings/n",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
            "MutatingAdmissionPolicyBinding",
        ),
        (
            "/registry/mutatingwebhookconfigurations/n",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
        ),
        (
            "/registry/validatingadmissionpolicies/n",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy",
        ),
        (
            "/registry/validatingadmissionpolicybindings/n",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding",
        ),
        (
            "/registry/validatingwebhookconfigurations/n",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
        ),
        (
            "/registry/apiextensions.k8s.io/customresourcedefinitions/n",
            "customresourcedefinitions.apiextensions.k8s.io",
            "CustomResourceDefinition",
        ),
        ("/registry/apiregistration.k8s.io/apiservices/n", "apiservices.apiregistration.k8s.io", "APIService"),
        ("/registry/controllerrevisions/ns/n", "controllerrevisions.apps", "ControllerRevision"),
        ("/registry/daemonsets/ns/n", "daemonsets.apps", "DaemonSet"),
        ("/registry/deployments/ns/n", "deployments.apps", "Deployment"),
        ("/registry/replicasets/ns/n", "replicasets.apps", "ReplicaSet"),
        ("/registry/statefulsets/ns/n", "statefulsets.apps", "StatefulSet"),
        ("/registry/horizontalpodautoscalers/ns/n", "horizontalpodautoscalers.autoscaling", "HorizontalPodAutoscaler"),
        ("/registry/cronjobs/ns/n", "cronjobs.batch", "CronJob"),
        ("/registry/jobs/ns/n", "jobs.batch", "Job"),
        (
            "/registry/certificatesigningrequests/n",
            "certificatesigningrequests.certificates.k8s.io",
            "CertificateSigningRequest",
        ),
        ("/registry/clustertrustbundles/n", "clustertrustbundles.certificates.k8s.io", "ClusterTrustBundle"),
        (
            "/registry/podcertificaterequests/ns/n",
            "podcertificaterequests.certificates.k8s.io",
            "PodCertificateRequest",
        ),
        ("/registry/leasecandidates/ns/n", "leasecandidates.coordination.k8s.io", "LeaseCandidate"),
        ("/registry/leases/ns/n", "leases.coordination.k8s.io", "Lease"),
        ("/registry/endpointslices/ns/n", "endpointslices.discovery.k8s.io", "EndpointSlice"),
        ("/registry/flowschemas/n", "flowschemas.flowcontrol.apiserver.k8s.io", "FlowSchema"),
        (
            "/registry/prioritylevelconfigurations/n",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            "PriorityLevelConfiguration",
        ),
        ("/registry/storageversions/n", "storageversions.internal.apiserver.k8s.io", "StorageVersion"),
        ("/registry/ingressclasses/n", "ingressclasses.networking.k8s.io", "IngressClass"),
        ("/registry/ingress/ns/n", "ingresses.networking.k8s.io", "Ingress"),
        ("/registry/ipaddresses/n", "ipaddresses.networking.k8s.io", "IPAddress"),
        ("/registry/networkpolicies/ns/n", "networkpolicies.networking.k8s.io", "NetworkPolicy"),
        ("/registry/servicecidrs/n", "servicecidrs.networking.k8s.io", "ServiceCIDR"),
        ("/registry/runtimeclasses/n", "runtimeclasses.node.k8s.io", "RuntimeClass"),
        ("/registry/poddisruptionbudgets/ns/n", "poddisruptionbudgets.policy", "PodDisruptionBudget"),
        ("/registry/clusterrolebindings/n", "clusterrolebindings.rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("/registry/clusterroles/n", "clusterroles.rbac.authorization.k8s.io", "ClusterRole"),
        ("/registry/rolebindings/ns/n", "rolebindings.rbac.authorization.k8s.io", "RoleBinding"),
        ("/registry/roles/ns/n", "roles.rbac.authorization.k8s.io", "Role"),
        ("/registry/deviceclasses/n", "deviceclasses.resource.k8s.io", "DeviceClass"),
        ("/registry/devicetaintrules/n", "devicetaintrules.resource.k8s.io", "DeviceTaintRule"),
        ("/registry/resourceclaims/ns/n", "resourceclaims.resource.k8s.io", "ResourceClaim"),
        ("/registry/resourceclaimtemplates/ns/n", "resourceclaimtemplates.resource.k8s.io", "ResourceClaimTemplate"),
        (
            "/registry/resourcepoolstatusrequests/n",
            "resourcepoolstatusrequests.resource.k8s.io",
            "ResourcePoolStatusRequest",
        ),
        ("/registry/resourceslices/n", "resourceslices.resource.k8s.io", "ResourceSlice"),
        ("/registry/podgroups/ns/n", "podgroups.scheduling.k8s.io", "PodGroup"),
        ("/registry/priorityclasses/n", "priorityclasses.scheduling.k8s.io", "PriorityClass"),
        ("/registry/workloads/ns/n", "workloads.scheduling.k8s.io", "Workload"),
        ("/registry/csidrivers/n", "csidrivers.storage.k8s.io", "CSIDriver"),
        ("/registry/csinodes/n", "csinodes.storage.k8s.io", "CSINode"),
        ("/registry/csistoragecapacities/ns/n", "csistoragecapacities.storage.k8s.io", "CSIStorageCapacity"),
        ("/registry/storageclasses/n", "storageclasses.storage.k8s.io", "StorageClass"),
        ("/registry/volumeattachments/n", "volumeattachments.storage.k8s.io", "VolumeAttachment"),
        ("/registry/volumeattributesclasses/n", "volumeattributesclasses.storage.k8s.io", "VolumeAttributesClass"),
        (
            "/registry/storageversionmigrations/n",
            "storageversionmigrations.storagemigration.k8s.io",
            "StorageVersionMigration",
        ),
    ];

    /// A location in words: `resource namespace/name`, or what else it is.
    fn show(layout: &KeyLayout, key: impl AsRef<[u8]>) -> String {
        match layout.locate(key.as_ref()) {
            Location::Object { resource, namespace, name, .. } => {
                let namespace = namespace.map(|bytes| format!("{}/", bytes.escape_ascii())).unwrap_or_default();
                format!("{resource} {namespace}{}", name.escape_ascii())
            }
            Location::NonRest { kind, name, .. } => format!("{kind:?} {}", name.escape_ascii()),
            Location::NonObject(kind) => format!("{kind:?}"),
            Location::Foreign => "foreign".to_owned(),
            Location::Unknown { resource: Some(resource), .. } => format!("unknown in {resource}"),
            Location::Unknown { resource: None, .. } => "unknown".to_owned(),
        }
    }

    #[test]
    fn every_built_in_resource_is_found_at_its_key_and_back() {
        let layout = KeyLayout::default();
        assert_eq!(KEYS.len(), 67);
        for (key, resource, kind) in KEYS {
            let resource = GroupResource::parse(resource);
            let Location::Object { prefix, resource: found, namespace, name } = layout.locate(key.as_bytes()) else {
                panic!("{key} is not an object");
            };
            assert_eq!(prefix.as_str(), "/registry/");
            assert_eq!(found, resource, "{key}");
            assert_eq!(found.known().and_then(|row| row.kind), Some(*kind));
            let namespaced = key.ends_with("/ns/n");
            assert_eq!((namespace, name), (namespaced.then_some(b"ns".as_slice()), b"n".as_slice()), "{key}");
            assert_eq!(prefix.key(&resource, namespaced.then_some("ns"), "n").as_deref(), Ok(key.as_bytes()));
        }
    }

    #[test]
    fn events_of_the_newer_group_have_the_key_of_the_older() {
        let key = EtcdPrefix::new("/registry").key(ResourceRef::new("events.k8s.io", "events"), Some("ns"), "n");
        assert_eq!(key.as_deref(), Ok(b"/registry/events/ns/n".as_slice()));
    }

    #[test]
    fn keys_are_what_their_place_says() {
        let layout = KeyLayout::default();
        for (key, expected) in [
            ("compact_rev_key", "CompactRevision"),
            ("compact_rev_key_apiserver", "CompactRevision"),
            ("/registry/health", "Health"),
            ("/registry/masterleases/10.0.0.1", "MasterLease 10.0.0.1"),
            ("/registry/masterleases/fd00::1", "MasterLease fd00::1"),
            ("/registry/peerserverleases/apiserver-x", "PeerServerLease apiserver-x"),
            ("/registry/ranges/servicenodeports", "Range servicenodeports"),
            ("/kubernetes.io/ranges/serviceips", "Range serviceips"),
            ("/kubernetes.io/secrets/ns/n", "secrets ns/n"),
            ("/kubernetes.io/minions/n", "nodes n"),
            ("/openshift.io/oauth/accesstokens/t", "oauthaccesstokens.oauth.openshift.io t"),
            ("/openshift.io/useridentities/htpasswd:me", "identities.user.openshift.io htpasswd:me"),
            ("/openshift.io/routes/ns/n", "routes.route.openshift.io ns/n"),
            ("/openshift.io/registry/sdnnetworks/default", "clusternetworks.network.openshift.io default"),
            ("/registry/podsecuritypolicy/restricted", "podsecuritypolicies.policy restricted"),
            ("/registry/snapshot.storage.k8s.io/volumesnapshots/ns/n", "volumesnapshots.snapshot.storage.k8s.io ns/n"),
            ("/registry/stable.example.com/widgets/n", "widgets.stable.example.com n"),
            ("/kubernetes.io/route.openshift.io/routes/ns/n", "routes.route.openshift.io ns/n"),
            ("/registry/clusterroles/system:node", "clusterroles.rbac.authorization.k8s.io system:node"),
            ("/registry/roles/Team/me@example.com", "roles.rbac.authorization.k8s.io Team/me@example.com"),
            ("/registry/apiregistration.k8s.io/apiservices/v1.", "apiservices.apiregistration.k8s.io v1."),
        ] {
            assert_eq!(show(&layout, key), expected, "{key}");
        }
    }

    #[test]
    fn unknown_keys_belong_to_the_directory_that_they_lie_in() {
        let layout = KeyLayout::default();
        for (key, expected) in [
            ("/registry/", "unknown"),
            ("/registry/frobs/ns/n", "unknown"),
            ("/registry/secrets", "unknown"),
            ("/registry/services/n", "unknown"),
            ("/registry/services/other/ns/n", "unknown"),
            ("/registry/health/x", "unknown"),
            ("/registry//secrets/ns/n", "unknown"),
            ("/registry/masterleases//x", "unknown"),
            ("/registry/routes/ns/n", "unknown"),
            ("/registry/Stable.example.com/widgets/ns/n", "unknown"),
            ("/openshift.io/secrets/ns/n", "unknown"),
            ("/registry/wardle.example.com/wardle.example.com/flunders/n", "unknown"),
            ("/registry/secrets/", "unknown in secrets"),
            ("/registry/secrets/n", "unknown in secrets"),
            ("/registry/secrets//n", "unknown in secrets"),
            ("/registry/secrets/ns/n/", "unknown in secrets"),
            ("/registry/secrets/team-b/weird name/with slash", "unknown in secrets"),
            ("/registry/services/specs/n", "unknown in services"),
            ("/registry/minions/ns/n", "unknown in nodes"),
            ("/registry/stable.example.com/widgets/a/b/c", "unknown in widgets.stable.example.com"),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a/b",
                "unknown in customresourcedefinitions.apiextensions.k8s.io",
            ),
        ] {
            assert_eq!(show(&layout, key), expected, "{key}");
        }
    }

    #[test]
    fn keys_below_no_prefix_are_foreign() {
        let layout = KeyLayout::default();
        for key in ["", "/", "/registry", "registry/secrets/ns/n", "/registry2/secrets/ns/n", "/calico/v1/x", "health"]
        {
            assert_eq!(show(&layout, key), "foreign", "{key}");
        }
    }

    #[test]
    fn names_may_be_any_bytes() {
        let layout = KeyLayout::default();
        assert_eq!(show(&layout, b"/registry/secrets/a\xff/weird name\xfe\x00"), r"secrets a\xff/weird name\xfe\x00");
        assert_eq!(show(&layout, b"/registry/\xff.example.com/widgets/n"), "unknown");
    }

    #[test]
    fn the_longest_prefix_is_taken() {
        let layout = KeyLayout::new(["/registry", "/registry/wardle.example.com"]);
        assert_eq!(
            show(&layout, "/registry/wardle.example.com/wardle.example.com/flunders/ns/n"),
            "flunders.wardle.example.com ns/n"
        );
        assert_eq!(show(&layout, "/registry/secrets/ns/n"), "secrets ns/n");
    }

    #[test]
    fn a_custom_prefix_has_both_tables() {
        let layout = KeyLayout::new(["own//prefix"]);
        assert_eq!(show(&layout, "/own/prefix/secrets/ns/n"), "secrets ns/n");
        assert_eq!(show(&layout, "/own/prefix/oauth/clients/n"), "oauthclients.oauth.openshift.io n");
        assert_eq!(show(&layout, "/registry/secrets/ns/n"), "foreign");
        let root = KeyLayout::new([""]);
        assert_eq!(show(&root, "/secrets/ns/n"), "secrets ns/n");
        assert_eq!(show(&root, "/health"), "Health");
    }

    fn layout() -> impl Strategy<Value = KeyLayout> {
        proptest::sample::select(vec![
            KeyLayout::default(),
            KeyLayout::new(["", "registry"]),
            KeyLayout::new(["a/b"]),
            KeyLayout::new(Vec::<String>::new()),
        ])
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_location(layout in layout(), key: Vec<u8>) {
            let _ = layout.locate(&key);
        }

        #[test]
        fn any_path_has_a_location(
            layout in layout(),
            key in "(/registry|/openshift.io|)(/(secrets|services|specs|oauth|minions|a[.]b|[a-z.%]{0,4})){0,6}",
        ) {
            let is_object = matches!(layout.locate(key.as_bytes()), Location::Object { .. });
            prop_assert!(!(is_object && key.contains("//")));
        }

        #[test]
        fn a_built_key_is_located_as_what_it_was_built_from(
            row in 0..known_resources().count(),
            namespace in "[a-z0-9-]{1,20}",
            name in "[^/%]{3,40}",
        ) {
            let row = known_resources().nth(row).unwrap();
            let namespace = (row.scope == Scope::Namespaced).then_some(namespace.as_str());
            for prefix in ["own", "/registry", "/openshift.io"] {
                let layout = KeyLayout::new([prefix]);
                let prefix = &layout.prefixes()[0];
                let Ok(key) = prefix.key(row.resource, namespace, &name) else {
                    prop_assert_eq!(prefix.as_str(), "/openshift.io/");
                    continue;
                };
                prop_assert_eq!(layout.locate(&key), Location::Object {
                    prefix,
                    resource: row.resource,
                    namespace: namespace.map(str::as_bytes),
                    name: name.as_bytes(),
                });
                prop_assert!(key.starts_with(&prefix.directory(row.resource, namespace).unwrap()));
            }
        }

        #[test]
        fn a_custom_resources_key_is_located_as_what_it_was_built_from(
            group in "[a-z0-9]{1,9}([.][a-z0-9]{1,9}){1,3}",
            plural in "[a-z]{1,9}",
            namespace in proptest::option::of("[a-z0-9-]{1,20}"),
            name in "[^/%]{3,40}",
        ) {
            let resource = GroupResource::new(group, plural);
            let layout = KeyLayout::default();
            for prefix in layout.prefixes() {
                let key = prefix.key(&resource, namespace.as_deref(), &name).unwrap();
                prop_assert_eq!(layout.locate(&key), Location::Object {
                    prefix,
                    resource: ResourceRef::from(&resource),
                    namespace: namespace.as_deref().map(str::as_bytes),
                    name: name.as_bytes(),
                });
            }
        }
    }
}
