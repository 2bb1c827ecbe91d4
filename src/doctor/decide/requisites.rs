//! What must be right before anything can be: the configuration, the manifest, and an etcd that answers. And, behind the table,
//! what is worth knowing besides.

use super::column::Column;
use super::facts::{Facts, Server};
use super::thresholds::{CLOCK_SECONDS, DEFAULT_QUOTA_BYTES, FRAGMENTED, QUOTA_NEAR};
use super::{Row, seen, steps};
use crate::doctor::figure;
use crate::doctor::log::LogMatch;
use crate::doctor::manifest::ManifestProblem;
use crate::report::{Axis, Finding, LogText};

/// The row that stands for what the log says alone.
pub(super) const LOG_TEXT: &str = "log-text";

pub(super) const ROWS: &[Row] = &[
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
        confirm: |facts| manifest(facts, |problem| !problem.is_of_kms()),
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
            steps(&[quorum, "the reason stands behind each endpoint: refused, TLS, or no answer in time"])
        },
    },
];

pub(super) const LAST: &[Row] = &[
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
];

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
    quota: f64,
    source: String,
}

fn sizes(facts: Facts<'_>) -> Vec<Size> {
    let of_metrics = facts.targets(Server::Etcd).iter().filter_map(|target| {
        let value = |name| target.last().value(name).filter(|value| value.is_finite());
        Some(Size {
            file: value("etcd_mvcc_db_total_size_in_bytes")?,
            in_use: value("etcd_mvcc_db_total_size_in_use_in_bytes"),
            quota: value("etcd_server_quota_backend_bytes").filter(|quota| *quota > 0.0)?,
            source: target.name.clone(),
        })
    });
    let of_members = facts.evidence.etcd.iter().flat_map(|probe| &probe.members).filter_map(|member| {
        // Below the default the file is small under every quota; above it an unknown quota tells nothing.
        let is_known = member.quota > 0 || member.db_size <= DEFAULT_QUOTA_BYTES;
        let quota = if member.quota > 0 { member.quota } else { DEFAULT_QUOTA_BYTES };
        (member.db_size > 0 && is_known).then(|| Size {
            file: member.db_size as f64,
            in_use: (member.db_size_in_use > 0).then_some(member.db_size_in_use as f64),
            quota: quota as f64,
            source: member.endpoint.clone(),
        })
    });
    of_metrics.chain(of_members).collect()
}

/// Whether so much of the quota is used, at some member.
pub(super) fn quota_used(facts: Facts<'_>, part: f64) -> Column {
    let missing = Column::unknown("the size of etcd's database and its quota (--etcd-metrics, --endpoints)");
    sizes(facts).into_iter().fold(missing, |all, size| {
        let Size { file, in_use, quota, source } = size;
        let mut figures = vec![figure::bytes_of("database file", file, &source)];
        figures.extend(in_use.map(|in_use| figure::bytes_of("of it in use", in_use, &source)));
        figures.push(figure::bytes_of("quota", quota, &source));
        all.or(Column::of(file >= quota * part, figures))
    })
}

/// Whether most of some member's file is free, so that defragmenting makes room.
pub(super) fn is_fragmented(facts: Facts<'_>) -> bool {
    sizes(facts).iter().any(|size| size.in_use.is_some_and(|in_use| in_use < size.file * FRAGMENTED))
}

fn kms_checks(facts: Facts<'_>) -> Column {
    if facts.evidence.kms.is_empty() {
        return Column::unknown("a KMS plugin (--kms-endpoint, --encryption-provider-config)");
    }
    let failed = facts.evidence.kms.iter().flat_map(|probe| {
        let source = format!("{} at {}", probe.name, probe.endpoint);
        let unreachable = probe.error.iter().map(|error| ("socket".to_owned(), error.clone()));
        unreachable
            .chain(probe.failed.iter().cloned())
            .map(|(check, why)| figure::text(check, why, &source))
            .collect::<Vec<_>>()
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

/// The most frequent text of the log. It is for when no row holds: the rows know such texts, and say more.
pub(super) fn most_frequent_text(facts: Facts<'_>) -> Option<Finding> {
    let log = facts.evidence.log.as_ref()?;
    let texts = log.texts();
    let first = texts.first()?;
    let figure =
        |text: &LogText| figure::count(format!("lines of the log ({})", text.explanation), text.count, &log.name);
    Some(Finding {
        row: LOG_TEXT,
        axis: first.axis,
        title: first.meaning.to_owned(),
        expected: false,
        evidence: texts.iter().take(5).map(figure).collect(),
        next: log.matches.get(first.explanation).map(LogMatch::next).unwrap_or_default(),
    })
}
