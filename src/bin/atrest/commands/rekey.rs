use std::path::PathBuf;

use atrest::rekey::{Execution, Journal, Options, Space, execute, plan};
use atrest::report::RekeyReport;
use atrest::storage::RewrapOptions;
use time::OffsetDateTime;
use time::macros::format_description;

use super::source::{Etcd, checked_selection};
use super::{Keys, STOP, exit_code, stdout};
use crate::args::RekeyArgs;
use crate::failure::{Failure, PARTIAL};
use crate::progress::Display;
use crate::render;

pub(super) async fn run(args: &RekeyArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::new(&args.config, quiet)?;
    let selection = checked_selection(&args.selection)?;
    let etcd = Etcd::connect(&args.etcd).await?;
    let display = Display::new(quiet);
    let options = Options {
        transformers: &transformers,
        selection: &selection,
        source: etcd.name.clone(),
        trusted: &args.trust_write_key,
    };
    if !args.yes {
        let mut plan =
            plan(etcd.values(&selection).await?, etcd.everything(&selection), &*kms, &options, &display, &STOP).await?;
        let space = Space::new(etcd.client.status().await?.db_size, args.quota_backend_bytes);
        if space.is_scarce_after(plan.growth_bytes) {
            plan.warnings.push(format!("etcd has little room for what will be written: {space}"));
        }
        render::print(&plan, args.output.output, &mut stdout())?;
        return Ok(exit_code(plan.complete, plan.unreadable > 0 || !plan.wrong_keys.is_empty()));
    }
    let journal = match (&args.journal, args.no_journal) {
        (_, true) => None,
        (Some(path), false) => Some(Journal::open(path).map_err(atrest::rekey::Error::from)?),
        (None, false) => Some(Journal::open(&journal_name()).map_err(atrest::rekey::Error::from)?),
    };
    let journal_path = journal.as_ref().map(|journal| journal.path().to_owned());
    let execution = Execution {
        concurrency: usize::from(args.concurrency),
        rate: args.rate,
        rewrap: RewrapOptions { max_request_bytes: args.max_request_bytes },
        quota_bytes: args.quota_backend_bytes,
        journal,
    };
    let mut report = execute(&etcd.client, &transformers, &kms, &options, execution, &display, &STOP).await?;
    if let Some(path) = journal_path.filter(|_| report.rewritten > 0) {
        report.notes.push(format!("every write is noted in {}", path.display()));
    }
    render::print(&report, args.output.output, &mut stdout())?;
    Ok(exit_code_of(&report))
}

fn exit_code_of(report: &RekeyReport) -> u8 {
    if !report.failed.is_empty() || !report.complete || !report.verified {
        return PARTIAL;
    }
    let left = report.read_again == 0
        || !report.unreadable.is_empty()
        || !report.too_large.is_empty()
        || !report.not_objects.is_empty()
        || report.still_stale != Some(0);
    exit_code(true, left)
}

fn journal_name() -> PathBuf {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let time = OffsetDateTime::now_utc().format(format).unwrap_or_default();
    PathBuf::from(format!("atrest-rekey-{time}.jsonl"))
}
