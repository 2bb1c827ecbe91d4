//! Connections that are refused, cut, or not trusted: the port says of whom, and x509 says why.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const ETCD: &[&str] = &["2379", "2380", "4001"];
const APISERVER: &[&str] = &["6443", "443", "8443"];
const DNS: &[&str] = &["53"];
const FAILED: &[&str] = &[
    "connection refused",
    "i/o timeout",
    "was refused",
    "no route to host",
    "network is unreachable",
    "connection reset by peer",
    "server misbehaving",
];

const PROBE: &str = "`atrest doctor --endpoints … --cacert … --cert … --key …` with the API server's files: it says what is wrong with each endpoint";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "certificate-expired",
        axis: Axis::Network,
        patterns: &[
            Pattern::Text("certificate has expired"),
            Pattern::Text("certificate is not yet valid"),
            Pattern::Text("is after notafter"),
        ],
        in_logs: true,
        vague: false,
        meaning: "TLS: a certificate is out of its time. Whoever listens there runs, and was reached.",
        causes: &["certificates that nobody renewed; kubeadm's live a year", "a clock that is wrong, on either side"],
        next: &[
            "`openssl x509 -noout -dates -in FILE` on the certificate; `kubeadm certs check-expiration` shows all of them",
            "renew it (`kubeadm certs renew all`), and restart what uses it",
            "`timedatectl` on both machines, when the dates are right",
        ],
    },
    Entry {
        id: "certificate-authority",
        axis: Axis::Network,
        patterns: &[
            Pattern::Text("certificate signed by unknown authority"),
            Pattern::Text("unknown certificate authority"),
        ],
        in_logs: true,
        vague: false,
        meaning: "TLS: the certificate is signed by an authority that the other side does not know. Whoever listens there runs, and was reached.",
        causes: &[
            "a CA file of another cluster, or the system's authorities where the cluster's are meant",
            "the authority was replaced, and not everywhere",
            "something else answers at that address, as a proxy",
        ],
        next: &[
            "who signed it: `openssl s_client -connect HOST:PORT -showcerts </dev/null`, and compare with the CA file that is given (etcd's is /etc/kubernetes/pki/etcd/ca.crt, the cluster's /etc/kubernetes/pki/ca.crt)",
        ],
    },
    Entry {
        id: "tls-timeout",
        axis: Axis::Network,
        patterns: &[Pattern::Text("tls handshake timeout")],
        in_logs: true,
        vague: false,
        meaning: "The connection was taken, and the other side did not come to TLS in time: it is overloaded, or packets are lost.",
        causes: &[
            "an API server or etcd without CPU or memory",
            "very many new connections at once",
            "a path with a smaller MTU: large packets vanish",
        ],
        next: &[
            "CPU and memory of the machine that is named (`uptime`, `free -m`)",
            "`ping -M do -s 1472 HOST`: whether large packets come through",
        ],
    },
    Entry {
        id: "dns-refused",
        axis: Axis::Network,
        patterns: &[Pattern::Port(DNS, FAILED, &[])],
        in_logs: true,
        vague: false,
        meaning: "The DNS server (port 53) does not answer, so a name could not be looked up. What the name stands for was not asked.",
        causes: &["CoreDNS does not run, or has no endpoints", "kube-proxy, or the network of the pods, on that node"],
        next: &[
            "`kubectl -n kube-system get pods -l k8s-app=kube-dns`, and its endpoints",
            "a control plane should not depend on it: etcd and webhooks by address, or by the host's resolver (dnsPolicy: Default)",
        ],
    },
    Entry {
        id: "host-unknown",
        axis: Axis::Network,
        patterns: &[Pattern::Text("no such host")],
        in_logs: true,
        vague: false,
        meaning: "DNS answered that there is no host of this name. What the name stands for was not asked.",
        causes: &[
            "a name that is misspelled, or was removed",
            "a Service or pod that is gone",
            "another resolver or search domain than expected",
        ],
        next: &[
            "`getent hosts NAME` on that machine, or in that pod",
            "the URL, endpoint or webhook that has the name",
        ],
    },
    Entry {
        id: "etcd-refused",
        axis: Axis::Network,
        patterns: &[Pattern::Port(ETCD, FAILED, &[])],
        in_logs: true,
        vague: false,
        meaning: "etcd (port 2379, or 2380 between its members) does not answer at that address.",
        causes: &[
            "etcd does not run there",
            "it listens on another address (--listen-client-urls)",
            "a firewall between them",
        ],
        next: &["is it running? `crictl ps -a --name etcd`, and its log: `atrest doctor --log FILE`", PROBE],
    },
    Entry {
        id: "apiserver-refused",
        axis: Axis::Network,
        patterns: &[
            Pattern::Port(APISERVER, FAILED, &["calling webhook", "call webhook"]),
            Pattern::All(&["the connection to the server", "was refused - did you specify the right host or port"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "The API server does not answer at that address. It says nothing of etcd yet.",
        causes: &[
            "kube-apiserver does not start: an EncryptionConfiguration that it does not take, a KMS, etcd, or a certificate",
            "another address or port in the kubeconfig; a load balancer without a healthy API server",
            "a firewall, when it is a timeout",
        ],
        next: &[
            "is it running? `crictl ps -a --name kube-apiserver`, and the log of the last one: `atrest doctor --log FILE`",
            "`atrest doctor --manifest /etc/kubernetes/manifests/kube-apiserver.yaml --encryption-provider-config FILE`",
        ],
    },
    Entry {
        id: "transport",
        axis: Axis::Network,
        patterns: &[
            Pattern::Text("connection refused"),
            Pattern::Text("transport is closing"),
            Pattern::Text("all subconns are in transientfailure"),
            Pattern::Text("error reading server preface"),
            Pattern::Text("tls: bad certificate"),
            Pattern::All(&["dial tcp", "i/o timeout"]),
        ],
        in_logs: true,
        vague: true,
        meaning: "A connection was refused, cut, or failed in TLS. Of whom, the address says: port 2379 is etcd, 6443 or 443 the API server, 53 DNS.",
        causes: &[
            "nothing listens at that address",
            "a client certificate that is not taken",
            "a firewall between them",
        ],
        next: &["what should listen at the address in the text, and whether it runs: `ss -tlnp` there", PROBE],
    },
];
