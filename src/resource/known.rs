//! The resources whose place in etcd is fixed by the API servers themselves.
//!
//! A built-in resource's directory is its lower-case plural *without* the group, apart from the few of
//! `pkg/kubeapiserver/default_storage_factory_builder.go`; `test/integration/etcd/data.go` has the key of each. Custom
//! resources are not listed: theirs is `<group>/<plural>`.

use super::ResourceRef;

/// Whether a resource's objects belong to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `<directory>/<namespace>/<name>`.
    Namespaced,
    /// `<directory>/<name>`.
    Cluster,
}

/// A resource with a fixed directory in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownResource {
    /// The directory below the etcd prefix, without slashes around it.
    pub directory: &'static str,
    /// The resource, as an encryption configuration spells it.
    pub resource: ResourceRef<'static>,
    /// The kind of its objects; not recorded for OpenShift's resources.
    pub kind: Option<&'static str>,
    /// Whether its objects belong to a namespace.
    pub scope: Scope,
}

/// The tables that apply below an etcd prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tables {
    Kubernetes,
    OpenShift,
    Both,
}

impl Tables {
    fn list(self) -> &'static [&'static [KnownResource]] {
        match self {
            Self::Kubernetes => &[KUBERNETES],
            Self::OpenShift => &[OPENSHIFT],
            Self::Both => &[KUBERNETES, OPENSHIFT],
        }
    }

    /// The resource that has this very directory.
    pub(super) fn with_directory(self, directory: &[u8]) -> Option<&'static KnownResource> {
        self.list().iter().find_map(|table| {
            let at = table.binary_search_by(|row| row.directory.as_bytes().cmp(directory)).ok()?;
            table.get(at)
        })
    }

    /// The row of a resource.
    pub(super) fn with_resource(self, resource: ResourceRef<'_>) -> Option<&'static KnownResource> {
        self.list().iter().find_map(|table| table.iter().find(|row| row.resource == resource))
    }
}

/// Every resource with a fixed directory: Kubernetes' own, then OpenShift's.
pub fn known_resources() -> impl Iterator<Item = &'static KnownResource> {
    KUBERNETES.iter().chain(OPENSHIFT)
}

/// Where the API server stores a resource that several groups serve (`DefaultStorageFactory.AddCohabitatingResources`).
///
/// The first of the cohabiting groups that is enabled gets the objects: the one on the right, unless somebody switched it
/// off. An encryption configuration has to name that one too.
pub(super) fn cohabitation(resource: ResourceRef<'_>) -> Option<ResourceRef<'static>> {
    COHABITING.iter().find(|(served, _)| *served == resource).map(|(_, stored)| *stored)
}

const COHABITING: &[(ResourceRef<'static>, ResourceRef<'static>)] = &[
    (ResourceRef::new("events.k8s.io", "events"), ResourceRef::new("", "events")),
    (ResourceRef::new("extensions", "daemonsets"), ResourceRef::new("apps", "daemonsets")),
    (ResourceRef::new("extensions", "deployments"), ResourceRef::new("apps", "deployments")),
    (ResourceRef::new("extensions", "ingresses"), ResourceRef::new("networking.k8s.io", "ingresses")),
    (ResourceRef::new("extensions", "networkpolicies"), ResourceRef::new("networking.k8s.io", "networkpolicies")),
    (ResourceRef::new("extensions", "podsecuritypolicies"), ResourceRef::new("policy", "podsecuritypolicies")),
    (ResourceRef::new("extensions", "replicasets"), ResourceRef::new("apps", "replicasets")),
    (ResourceRef::new("extensions", "replicationcontrollers"), ResourceRef::new("", "replicationcontrollers")),
];

const fn namespaced(
    directory: &'static str,
    group: &'static str,
    resource: &'static str,
    kind: Option<&'static str>,
) -> KnownResource {
    KnownResource { directory, resource: ResourceRef::new(group, resource), kind, scope: Scope::Namespaced }
}

const fn cluster(
    directory: &'static str,
    group: &'static str,
    resource: &'static str,
    kind: Option<&'static str>,
) -> KnownResource {
    KnownResource { directory, resource: ResourceRef::new(group, resource), kind, scope: Scope::Cluster }
}

/// kube-apiserver and its two built-in companions, as of 1.36, and PodSecurityPolicy, which 1.25 removed. Ordered by
/// directory, for the binary search.
#[rustfmt::skip]
const KUBERNETES: &[KnownResource] = &[
    cluster("apiextensions.k8s.io/customresourcedefinitions", "apiextensions.k8s.io", "customresourcedefinitions", Some("CustomResourceDefinition")),
    cluster("apiregistration.k8s.io/apiservices", "apiregistration.k8s.io", "apiservices", Some("APIService")),
    cluster("certificatesigningrequests", "certificates.k8s.io", "certificatesigningrequests", Some("CertificateSigningRequest")),
    cluster("clusterrolebindings", "rbac.authorization.k8s.io", "clusterrolebindings", Some("ClusterRoleBinding")),
    cluster("clusterroles", "rbac.authorization.k8s.io", "clusterroles", Some("ClusterRole")),
    cluster("clustertrustbundles", "certificates.k8s.io", "clustertrustbundles", Some("ClusterTrustBundle")),
    namespaced("configmaps", "", "configmaps", Some("ConfigMap")),
    namespaced("controllerrevisions", "apps", "controllerrevisions", Some("ControllerRevision")),
    namespaced("controllers", "", "replicationcontrollers", Some("ReplicationController")),
    namespaced("cronjobs", "batch", "cronjobs", Some("CronJob")),
    cluster("csidrivers", "storage.k8s.io", "csidrivers", Some("CSIDriver")),
    cluster("csinodes", "storage.k8s.io", "csinodes", Some("CSINode")),
    namespaced("csistoragecapacities", "storage.k8s.io", "csistoragecapacities", Some("CSIStorageCapacity")),
    namespaced("daemonsets", "apps", "daemonsets", Some("DaemonSet")),
    namespaced("deployments", "apps", "deployments", Some("Deployment")),
    cluster("deviceclasses", "resource.k8s.io", "deviceclasses", Some("DeviceClass")),
    cluster("devicetaintrules", "resource.k8s.io", "devicetaintrules", Some("DeviceTaintRule")),
    namespaced("endpointslices", "discovery.k8s.io", "endpointslices", Some("EndpointSlice")),
    namespaced("events", "", "events", Some("Event")),
    cluster("flowschemas", "flowcontrol.apiserver.k8s.io", "flowschemas", Some("FlowSchema")),
    namespaced("horizontalpodautoscalers", "autoscaling", "horizontalpodautoscalers", Some("HorizontalPodAutoscaler")),
    namespaced("ingress", "networking.k8s.io", "ingresses", Some("Ingress")),
    cluster("ingressclasses", "networking.k8s.io", "ingressclasses", Some("IngressClass")),
    cluster("ipaddresses", "networking.k8s.io", "ipaddresses", Some("IPAddress")),
    namespaced("jobs", "batch", "jobs", Some("Job")),
    namespaced("leasecandidates", "coordination.k8s.io", "leasecandidates", Some("LeaseCandidate")),
    namespaced("leases", "coordination.k8s.io", "leases", Some("Lease")),
    namespaced("limitranges", "", "limitranges", Some("LimitRange")),
    cluster("minions", "", "nodes", Some("Node")),
    cluster("mutatingadmissionpolicies", "admissionregistration.k8s.io", "mutatingadmissionpolicies", Some("MutatingAdmissionPolicy")),
    cluster("mutatingadmissionpolicybindings", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", Some("MutatingAdmissionPolicyBinding")),
    cluster("mutatingwebhookconfigurations", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", Some("MutatingWebhookConfiguration")),
    cluster("namespaces", "", "namespaces", Some("Namespace")),
    namespaced("networkpolicies", "networking.k8s.io", "networkpolicies", Some("NetworkPolicy")),
    namespaced("persistentvolumeclaims", "", "persistentvolumeclaims", Some("PersistentVolumeClaim")),
    cluster("persistentvolumes", "", "persistentvolumes", Some("PersistentVolume")),
    namespaced("podcertificaterequests", "certificates.k8s.io", "podcertificaterequests", Some("PodCertificateRequest")),
    namespaced("poddisruptionbudgets", "policy", "poddisruptionbudgets", Some("PodDisruptionBudget")),
    namespaced("podgroups", "scheduling.k8s.io", "podgroups", Some("PodGroup")),
    namespaced("pods", "", "pods", Some("Pod")),
    cluster("podsecuritypolicy", "policy", "podsecuritypolicies", Some("PodSecurityPolicy")),
    namespaced("podtemplates", "", "podtemplates", Some("PodTemplate")),
    cluster("priorityclasses", "scheduling.k8s.io", "priorityclasses", Some("PriorityClass")),
    cluster("prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", Some("PriorityLevelConfiguration")),
    namespaced("replicasets", "apps", "replicasets", Some("ReplicaSet")),
    namespaced("resourceclaims", "resource.k8s.io", "resourceclaims", Some("ResourceClaim")),
    namespaced("resourceclaimtemplates", "resource.k8s.io", "resourceclaimtemplates", Some("ResourceClaimTemplate")),
    cluster("resourcepoolstatusrequests", "resource.k8s.io", "resourcepoolstatusrequests", Some("ResourcePoolStatusRequest")),
    namespaced("resourcequotas", "", "resourcequotas", Some("ResourceQuota")),
    cluster("resourceslices", "resource.k8s.io", "resourceslices", Some("ResourceSlice")),
    namespaced("rolebindings", "rbac.authorization.k8s.io", "rolebindings", Some("RoleBinding")),
    namespaced("roles", "rbac.authorization.k8s.io", "roles", Some("Role")),
    cluster("runtimeclasses", "node.k8s.io", "runtimeclasses", Some("RuntimeClass")),
    namespaced("secrets", "", "secrets", Some("Secret")),
    namespaced("serviceaccounts", "", "serviceaccounts", Some("ServiceAccount")),
    cluster("servicecidrs", "networking.k8s.io", "servicecidrs", Some("ServiceCIDR")),
    namespaced("services/endpoints", "", "endpoints", Some("Endpoints")),
    namespaced("services/specs", "", "services", Some("Service")),
    namespaced("statefulsets", "apps", "statefulsets", Some("StatefulSet")),
    cluster("storageclasses", "storage.k8s.io", "storageclasses", Some("StorageClass")),
    cluster("storageversionmigrations", "storagemigration.k8s.io", "storageversionmigrations", Some("StorageVersionMigration")),
    cluster("storageversions", "internal.apiserver.k8s.io", "storageversions", Some("StorageVersion")),
    cluster("validatingadmissionpolicies", "admissionregistration.k8s.io", "validatingadmissionpolicies", Some("ValidatingAdmissionPolicy")),
    cluster("validatingadmissionpolicybindings", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", Some("ValidatingAdmissionPolicyBinding")),
    cluster("validatingwebhookconfigurations", "admissionregistration.k8s.io", "validatingwebhookconfigurations", Some("ValidatingWebhookConfiguration")),
    cluster("volumeattachments", "storage.k8s.io", "volumeattachments", Some("VolumeAttachment")),
    cluster("volumeattributesclasses", "storage.k8s.io", "volumeattributesclasses", Some("VolumeAttributesClass")),
    namespaced("workloads", "scheduling.k8s.io", "workloads", Some("Workload")),
];

/// openshift-apiserver and oauth-apiserver, which store under `/openshift.io/` (oauth-apiserver
/// `pkg/cmd/oauth-apiserver/cmd.go`, origin `test/extended/etcd`); `registry/…` are OpenShift SDN's, of OpenShift 3 and
/// early releases of 4. Ordered by directory.
#[rustfmt::skip]
const OPENSHIFT: &[KnownResource] = &[
    cluster("brokertemplateinstances", "template.openshift.io", "brokertemplateinstances", None),
    namespaced("buildconfigs", "build.openshift.io", "buildconfigs", None),
    namespaced("builds", "build.openshift.io", "builds", None),
    namespaced("deploymentconfigs", "apps.openshift.io", "deploymentconfigs", None),
    cluster("groups", "user.openshift.io", "groups", None),
    cluster("images", "image.openshift.io", "images", None),
    namespaced("imagestreams", "image.openshift.io", "imagestreams", None),
    cluster("oauth/accesstokens", "oauth.openshift.io", "oauthaccesstokens", None),
    cluster("oauth/authorizetokens", "oauth.openshift.io", "oauthauthorizetokens", None),
    cluster("oauth/clientauthorizations", "oauth.openshift.io", "oauthclientauthorizations", None),
    cluster("oauth/clients", "oauth.openshift.io", "oauthclients", None),
    cluster("rangeallocations", "security.openshift.io", "rangeallocations", None),
    namespaced("registry/egressnetworkpolicy", "network.openshift.io", "egressnetworkpolicies", None),
    cluster("registry/sdnnetnamespaces", "network.openshift.io", "netnamespaces", None),
    cluster("registry/sdnnetworks", "network.openshift.io", "clusternetworks", None),
    cluster("registry/sdnsubnets", "network.openshift.io", "hostsubnets", None),
    namespaced("routes", "route.openshift.io", "routes", None),
    namespaced("templateinstances", "template.openshift.io", "templateinstances", None),
    namespaced("templates", "template.openshift.io", "templates", None),
    cluster("useridentities", "user.openshift.io", "identities", None),
    cluster("users", "user.openshift.io", "users", None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_their_directories() {
        for table in [KUBERNETES, OPENSHIFT] {
            assert!(table.is_sorted_by(|a, b| a.directory < b.directory));
        }
    }

    #[test]
    fn no_resource_is_listed_twice() {
        let mut resources: Vec<_> = known_resources().map(|row| row.resource).collect();
        let before = resources.len();
        resources.sort();
        resources.dedup();
        assert_eq!(resources.len(), before);
        assert_eq!((KUBERNETES.len(), OPENSHIFT.len()), (68, 21));
    }

    #[test]
    fn the_place_of_a_cohabiting_resource_is_known() {
        for (served, stored) in COHABITING {
            assert_eq!(Tables::Kubernetes.with_resource(*served), None);
            assert!(Tables::Kubernetes.with_resource(*stored).is_some());
        }
    }
}
