use proptest::prelude::*;

use super::*;
use crate::resource::{GroupResource, known_resources};

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
    ("/registry/podcertificaterequests/ns/n", "podcertificaterequests.certificates.k8s.io", "PodCertificateRequest"),
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

/// The snapshots name the resource of what the configuration covers, and that of the rest as `<directory>.other`.
#[test]
fn keys_of_a_cluster_are_of_the_resources_that_upstream_takes_them_for() {
    let layout = KeyLayout::default();
    let mut misplaced = Vec::new();
    for line in include_str!("../../../tests/vectors/snapshots/damaged.expected.jsonl").lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let (key, expected) = (line["key"].as_str().unwrap(), line["resource"].as_str().unwrap());
        let found = match layout.locate(key.as_bytes()) {
            Location::Object { resource, .. } => resource.to_string(),
            Location::Unknown { resource: Some(resource), .. } => {
                misplaced.push(key.to_owned());
                resource.to_string()
            }
            Location::NonRest { kind: NonRest::Range, .. } => "ranges".to_owned(),
            other => panic!("{key} is {other:?}"),
        };
        match expected.strip_suffix(".other") {
            None => assert_eq!(found, expected, "{key}"),
            Some(_) => assert_ne!(found, "secrets", "{key}"),
        }
    }
    assert_eq!(misplaced, ["/registry/secrets/team-b/weird name/with slash\u{ff}\u{e9}"]);
}

#[test]
fn keys_below_no_prefix_are_foreign() {
    let layout = KeyLayout::default();
    for key in ["", "/", "/registry", "registry/secrets/ns/n", "/registry2/secrets/ns/n", "/calico/v1/x", "health"] {
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
