//! What must be right before anything can be: the configuration, the manifest, and an etcd that answers. And, behind the table,
//! what is worth knowing besides.

use super::column::Column;
use super::facts::{Facts, Server};
use super::thresholds::{CLOCK_SECONDS, DEFAULT_QUOTA_BYTES, EVER, FRAGMENTED, QUOTA_NEAR, SMALL_AGAIN};
use super::{Row, seen, steps};
use crate::doctor::evidence::MemberProbe;
use crate::doctor::figure;
use crate::doctor::manifest::ManifestProblem;
use crate::report::Axis;

/// Texts that an API server writes when others have encrypted what it reads.
const OF_ENCRYPTED: &[&str] =
    &["encrypted-read-as-object", "identity-encrypted", "not-decodable", "no-matching-prefix"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "no-encryption-config",
        axis: Axis::Configuration,
        title: "this API server has no --encryption-provider-config: it reads and writes everything in the clear, and fails on what others \
                have encrypted",
        expected: false,
        symptom: |facts| if unencrypted(facts).holds() { others_encrypt(facts) } else { unencrypted(facts) },
        confirm: unencrypted,
        next: |_| {
            steps(&[
                "add --encryption-provider-config=FILE to this manifest, with the file of the other API servers and its volumeMount",
                "compare every control-plane node: `atrest doctor --manifest … --encryption-provider-config FILE` on each",
                "what it wrote meanwhile is in the clear: `atrest scan` finds it, `atrest rekey` encrypts it",
            ])
        },
    },
    Row {
        id: "configuration-invalid",
        axis: Axis::Configuration,
        title: "kube-apiserver does not start with this EncryptionConfiguration",
        expected: false,
        symptom: seen,
        confirm: configuration_invalid,
        next: |_| steps(&["`atrest config check FILE`: every error with its line and what to write instead"]),
    },
    Row {
        id: "manifest",
        axis: Axis::Configuration,
        title: "the manifest of kube-apiserver is wrong",
        expected: false,
        symptom: seen,
        confirm: |facts| {
            manifest(facts, |problem| !problem.is_of_kms() && *problem != ManifestProblem::NoEncryptionConfig)
        },
        next: |_| {
            steps(&[
                "correct it on this control-plane node, and compare the others",
                "a file needs a volume with its hostPath, and a volumeMount around the path that the flag names",
            ])
        },
    },
    Row {
        id: "kms-socket-mount",
        axis: Axis::Kms,
        title: "the API server does not see the socket of its KMS plugin",
        expected: false,
        symptom: seen,
        confirm: |facts| manifest(facts, ManifestProblem::is_of_kms),
        next: |_| {
            steps(&[
                "mount the folder of the socket (hostPath of type DirectoryOrCreate), and not the socket",
                "the plugin's path, the hostPath and the mountPath must lead to one place",
            ])
        },
    },
    Row {
        id: "etcd-unreachable",
        axis: Axis::Network,
        title: "etcd does not answer at some of the endpoints",
        expected: false,
        symptom: seen,
        confirm: etcd_unreachable,
        next: |facts| {
            let members = facts.evidence.etcd.iter().flat_map(|probe| &probe.members);
            let all = members.clone().all(|member| member.error.is_some());
            let quorum = if all {
                "is etcd running there? `crictl ps -a --name etcd`, and its log: `atrest doctor --log FILE`"
            } else {
                "the other members go on as long as they are the majority; look at the log of the one that does not answer"
            };
            let says = |text: &str| {
                members.clone().any(|member| member.error.as_ref().is_some_and(|error| error.contains(text)))
            };
            let reason = "the reason stands behind each endpoint: refused, TLS, or no answer in time";
            // It runs, and was spoken to in the wrong way.
            if says("does not speak TLS") {
                return steps(&[
                    "the scheme: that etcd speaks no TLS, so its endpoint is http://…, or it lacks --cert-file and --key-file",
                    reason,
                ]);
            }
            if says("the server speaks TLS") {
                return steps(&[
                    "the scheme: that etcd speaks TLS, so its endpoint is https://…, with --cacert, --cert and --key",
                    reason,
                ]);
            }
            steps(&[quorum, reason])
        },
    },
];

pub(super) const LAST: &[Row] = &[
    Row {
        id: "two-clusters",
        axis: Axis::Network,
        title: "the endpoints belong to different clusters of etcd",
        expected: false,
        symptom: seen,
        confirm: two_clusters,
        next: |_| {
            steps(&[
                "`etcdctl endpoint status --cluster -w table` on each of them: who belongs to whom",
                "an API server that is given both reads and writes now here, now there: give it the endpoints of one cluster (--etcd-servers)",
                "a member that was started anew with an empty directory and --initial-cluster-state=new is a cluster of its own: remove it and add it again",
            ])
        },
    },
    Row {
        id: "corrupt-alarm",
        axis: Axis::Mvcc,
        title: "a member of etcd holds other data than the rest (alarm CORRUPT)",
        expected: false,
        symptom: seen,
        confirm: |facts| alarm(facts, "CORRUPT"),
        next: |_| {
            steps(&[
                "take a snapshot of every member first: `etcdctl snapshot save`",
                "compare them: `atrest snapshot diff A B`",
                "remove the member that differs, and add it again with an empty data directory",
            ])
        },
    },
    Row {
        id: "quota-near",
        axis: Axis::Mvcc,
        title: "etcd's database file comes near its quota",
        expected: false,
        // When it is there already, the table has said so.
        symptom: |facts| Column::of(!super::store::quota_reached(facts).holds(), Vec::new()),
        confirm: |facts| quota_used(facts, QUOTA_NEAR),
        next: |_| {
            steps(&[
                "let no rotation run: it adds every value once more before the next compaction",
                "`etcdctl defrag` on one member after the other, when little of the file is in use",
                "raise --quota-backend-bytes (8 GiB at most is suggested), when most of it is",
            ])
        },
    },
    Row {
        id: "kms-checks",
        axis: Axis::Kms,
        title: "a KMS plugin does not behave as kube-apiserver needs it",
        expected: false,
        symptom: seen,
        confirm: kms_checks,
        next: |_| steps(&["`atrest kms check --endpoint unix:///…`: all checks, and how fast it is"]),
    },
    Row {
        id: "clock",
        axis: Axis::Clock,
        title: "clocks differ",
        expected: false,
        symptom: seen,
        confirm: clocks,
        next: |_| {
            steps(&["`timedatectl` on both machines: certificates and tokens depend on it, and every time in a log"])
        },
    },
    Row {
        id: "quota-over",
        axis: Axis::Mvcc,
        title: "etcd had reached its quota, and the alarm was disarmed since",
        expected: true,
        symptom: seen,
        confirm: |facts| match &facts.evidence.log {
            None => Column::unknown("a log (--log)"),
            Some(log) => {
                let figures = log.disarmed().map(|(raised, disarmed)| {
                    vec![
                        figure::text("last refused, or raised", raised.when(), &log.name),
                        figure::text("disarmed", disarmed.when(), &log.name),
                    ]
                });
                Column::of(figures.is_some(), figures.unwrap_or_default())
            }
        },
        next: |_| {
            steps(&[
                "whether there is room now: `atrest doctor --endpoints …` shows the file, what of it is in use, and the quota",
            ])
        },
    },
    Row {
        id: "encryption-off",
        axis: Axis::Configuration,
        title: "this API server has no --encryption-provider-config: it stores everything in the clear",
        expected: true,
        symptom: |facts| others_encrypt(facts).not(),
        confirm: unencrypted,
        next: |_| {
            steps(&[
                "whether others encrypt: `atrest scan` says what is stored by which provider; if so, this API server fails on it",
                "nothing, when nothing is to be encrypted",
            ])
        },
    },
];

/// A manifest without the flag.
fn unencrypted(facts: Facts<'_>) -> Column {
    manifest(facts, |problem| *problem == ManifestProblem::NoEncryptionConfig)
}

/// Whether there is a configuration that it should have, or a sign of what others have encrypted.
fn others_encrypt(facts: Facts<'_>) -> Column {
    let configurations = facts.evidence.configuration.iter();
    let figures: Vec<_> = configurations
        .map(|file| {
            figure::text("configuration", "given, and not that of this API server", file.path.display().to_string())
        })
        .collect();
    let given = Column::of(!figures.is_empty(), figures);
    let logged = facts.logged(OF_ENCRYPTED);
    let given = if logged.holds() { given.or(logged) } else { given };
    let decode = facts.counted(Server::Api, "apiserver_storage_decode_errors_total", EVER, |labels| {
        Some(format!("{} not decoded", super::cache::resource_of(labels)))
    });
    let by_provider = facts.counted(Server::Api, "apiserver_storage_transformation_operations_total", EVER, |labels| {
        let prefix = labels.get("transformer_prefix");
        prefix.starts_with("k8s:enc:").then(|| format!("values by {prefix}"))
    });
    [decode, by_provider].into_iter().filter(Column::holds).fold(given, Column::or)
}

fn two_clusters(facts: Facts<'_>) -> Column {
    let Some(probe) = &facts.evidence.etcd else { return Column::unknown("a running etcd (--endpoints)") };
    let members: Vec<_> = probe.members.iter().filter(|member| member.cluster_id != 0).collect();
    let differ = members.iter().any(|member| members.iter().any(|other| other.cluster_id != member.cluster_id));
    let figure = |member: &&MemberProbe| figure::text("cluster", format!("{:x}", member.cluster_id), &member.endpoint);
    Column::of(differ, members.iter().filter(|_| differ).map(figure).collect())
}

fn configuration_invalid(facts: Facts<'_>) -> Column {
    if facts.evidence.configuration.is_empty() {
        return Column::unknown("a configuration (--encryption-provider-config)");
    }
    let invalid = facts.evidence.configuration.iter().filter(|file| !file.errors.is_empty());
    let figures = invalid.flat_map(|file| {
        file.errors.iter().take(5).map(|error| figure::text("error", error, file.path.display().to_string()))
    });
    let figures: Vec<_> = figures.collect();
    Column::of(!figures.is_empty(), figures)
}

fn manifest(facts: Facts<'_>, wanted: impl Fn(&ManifestProblem) -> bool) -> Column {
    let Some(source) = facts.evidence.sources.iter().find(|source| source.kind == "manifest" && source.read) else {
        return Column::unknown("a manifest (--manifest)");
    };
    let problems = facts.evidence.manifest.iter().filter(|problem| wanted(problem));
    let figures: Vec<_> = problems.map(|problem| figure::text("manifest", problem.to_string(), &source.name)).collect();
    Column::of(!figures.is_empty(), figures)
}

fn etcd_unreachable(facts: Facts<'_>) -> Column {
    let Some(probe) = &facts.evidence.etcd else { return Column::unknown("a running etcd (--endpoints)") };
    let failed = probe.members.iter().filter_map(|member| Some((member, member.error.as_ref()?)));
    let figures: Vec<_> = failed.map(|(member, error)| figure::text("connection", error, &member.endpoint)).collect();
    Column::of(!figures.is_empty(), figures)
}

/// An alarm, by etcd's own word or by its metrics (of 3.6).
pub(super) fn alarm(facts: Facts<'_>, wanted: &str) -> Column {
    let live = match facts.evidence.etcd.as_ref().and_then(|probe| probe.alarms.as_ref()) {
        Some(alarms) => {
            let raised = alarms.iter().filter(|(_, alarm)| *alarm == wanted);
            let figures: Vec<_> =
                raised.map(|(member, alarm)| figure::text("alarm", *alarm, format!("member {member}"))).collect();
            Column::of(!figures.is_empty(), figures)
        }
        None => Column::unknown("a running etcd (--endpoints)"),
    };
    let mut of_metrics = Column::unknown("etcd_debugging_server_alarms");
    for target in facts.targets(Server::Etcd) {
        for (labels, value) in target.last().samples("etcd_debugging_server_alarms") {
            let holds = labels.is("alarm_type", wanted) && value >= 1.0;
            let figures = if holds { vec![figure::text("alarm", wanted, &target.name)] } else { Vec::new() };
            of_metrics = of_metrics.or(Column::of(holds, figures));
        }
    }
    live.or(of_metrics)
}

/// The size of a member's database file, and its quota.
struct Size {
    file: f64,
    in_use: Option<f64>,
    quota: Option<f64>,
    source: String,
}

/// The quota, when every etcd whose metrics are there tells the same.
pub(super) fn quota_by_metrics(facts: Facts<'_>) -> Option<f64> {
    let told = |target: &crate::doctor::metrics::Target| target.last().value("etcd_server_quota_backend_bytes");
    let mut quotas =
        facts.targets(Server::Etcd).iter().filter_map(told).filter(|quota| quota.is_finite() && *quota > 0.0);
    let first = quotas.next()?;
    quotas.all(|quota| quota == first).then_some(first)
}

fn sizes(facts: Facts<'_>) -> Vec<Size> {
    let of_metrics = facts.targets(Server::Etcd).iter().filter_map(|target| {
        let value = |name| target.last().value(name).filter(|value| value.is_finite());
        Some(Size {
            file: value("etcd_mvcc_db_total_size_in_bytes")?,
            in_use: value("etcd_mvcc_db_total_size_in_use_in_bytes"),
            quota: value("etcd_server_quota_backend_bytes").filter(|quota| *quota > 0.0),
            source: target.name.clone(),
        })
    });
    let of_members = facts.evidence.etcd.iter().flat_map(|probe| &probe.members).filter(|member| member.db_size > 0);
    let of_members = of_members.map(|member| Size {
        file: member.db_size as f64,
        in_use: (member.db_size_in_use > 0).then_some(member.db_size_in_use as f64),
        quota: if member.quota > 0 { Some(member.quota as f64) } else { quota_by_metrics(facts) },
        source: member.endpoint.clone(),
    });
    of_metrics.chain(of_members).collect()
}

/// Whether so much of the quota is used, at some member. Where nobody tells the quota, etcd's default is assumed, and that is said; of a file
/// that is larger than the default nothing is known.
pub(super) fn quota_used(facts: Facts<'_>, part: f64) -> Column {
    let missing = Column::unknown("the size of etcd's database and its quota (--etcd-metrics, --endpoints)");
    sizes(facts).into_iter().fold(missing, |all, size| {
        let Size { file, in_use, quota, source } = size;
        let assumed = DEFAULT_QUOTA_BYTES as f64;
        if quota.is_none() && file > assumed {
            return all;
        }
        let mut figures = vec![figure::bytes_of("database file", file, &source)];
        figures.extend(in_use.map(|in_use| figure::bytes_of("of it in use", in_use, &source)));
        figures.push(match quota {
            Some(quota) => figure::bytes_of("quota", quota, &source),
            None => figure::text("quota", "not known (etcd's default, 2 GiB, is assumed)", &source),
        });
        all.or(Column::of(file >= quota.unwrap_or(assumed) * part, figures))
    })
}

/// What is left to do about an etcd that takes no writes, by its figures.
pub(super) fn after_quota(facts: Facts<'_>) -> Vec<String> {
    const STOP: &str = "stop a rotation that is running";
    const COMPACT: &str = "compact: `etcdctl compact REV`, with the revision of `etcdctl endpoint status -w json`";
    const DEFRAG: &str = "`etcdctl defrag` on one member after the other, the leader last: it blocks the member";
    const DISARM: &str = "`etcdctl alarm disarm`: the alarm stays until somebody does that";
    let sizes = sizes(facts);
    let is_small = |size: &Size| size.quota.is_some_and(|quota| size.file < quota * SMALL_AGAIN);
    if !sizes.is_empty() && sizes.iter().all(is_small) {
        return steps(&["the file is small again, and only the alarm is left: `etcdctl alarm disarm`"]);
    }
    let mut next = Vec::new();
    if sizes.iter().any(|size| size.quota.is_none()) {
        next.push("the quota is not told: when the file is far below --quota-backend-bytes, `etcdctl alarm disarm` is all that is left");
    }
    next.push(STOP);
    // What is free is free because it was compacted.
    if sizes.iter().any(|size| size.in_use.is_some_and(|in_use| in_use < size.file * FRAGMENTED)) {
        next.extend([
            "most of the file is free: `etcdctl defrag` on one member after the other, the leader last",
            DISARM,
        ]);
    } else {
        next.extend([
            COMPACT,
            DEFRAG,
            "when it is full of data even then: delete what nobody needs, or raise --quota-backend-bytes",
            DISARM,
        ]);
    }
    steps(&next)
}

fn kms_checks(facts: Facts<'_>) -> Column {
    if facts.evidence.kms.is_empty() {
        return Column::unknown("a KMS plugin (--kms-endpoint, --encryption-provider-config)");
    }
    let failed = facts.evidence.kms.iter().flat_map(|probe| {
        let source = format!("{} at {}", probe.name, probe.endpoint);
        // That nobody answers is a row of its own.
        probe.failed.iter().cloned().map(|(check, why)| figure::text(check, why, &source)).collect::<Vec<_>>()
    });
    let figures: Vec<_> = failed.collect();
    Column::of(!figures.is_empty(), figures)
}

fn clocks(facts: Facts<'_>) -> Column {
    if facts.evidence.clocks.is_empty() {
        return Column::unknown("another clock (metrics by URL)");
    }
    let differ = facts
        .evidence
        .clocks
        .iter()
        .filter(|clock| clock.ahead_seconds.unsigned_abs() > CLOCK_SECONDS + clock.uncertain_seconds);
    let figures: Vec<_> =
        differ.map(|clock| figure::seconds("ahead of ours", clock.ahead_seconds as f64, &clock.source)).collect();
    Column::of(!figures.is_empty(), figures)
}
