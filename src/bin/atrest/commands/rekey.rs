use std::path::{Path, PathBuf};

use atrest::rekey::{Execution, Journal, Options, Space, execute, plan};
use atrest::report::{RekeyPlan, RekeyReport};
use atrest::storage::RewrapOptions;
use time::OffsetDateTime;
use time::macros::format_description;

use super::source::{Etcd, checked_selection, overrides_of};
use super::{Keys, STOP, exit_code, stdout};
use crate::args::RekeyArgs;
use crate::failure::{Failure, PARTIAL};
use crate::progress::Display;
use crate::render;

pub(super) async fn run(args: &RekeyArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::new(&args.config, quiet)?;
    let selection = checked_selection(&args.selection)?;
    let etcds = Etcd::connect_all(&args.etcd, &overrides_of(&args.overrides)?).await?;
    let display = Display::new(quiet);
    let options_of = |etcd: &Etcd| Options {
        transformers: &transformers,
        selection: &selection,
        source: etcd.name.clone(),
        trusted: &args.trust_write_key,
    };
    if !args.yes {
        let mut whole: Option<RekeyPlan> = None;
        for etcd in &etcds {
            let (values, everything) = (etcd.values(&selection).await?, etcd.everything(&selection));
            let mut plan = plan(values, everything, &*kms, &options_of(etcd), &display, &STOP).await?;
            let space = Space::new(etcd.client.status().await?.db_size, args.quota_backend_bytes);
            if space.is_scarce_after(plan.growth_bytes) {
                let etcd = if etcds.len() > 1 { etcd.name.as_str() } else { "etcd" };
                plan.warnings.push(format!("{etcd} has little room for what will be written: {space}"));
            }
            match &mut whole {
                Some(whole) => whole.absorb(plan),
                None => whole = Some(plan),
            }
        }
        let Some(plan) = whole else { return Ok(0) };
        render::print(&plan, args.output.output, &mut stdout())?;
        return Ok(exit_code(plan.complete, plan.unreadable > 0 || !plan.wrong_keys.is_empty()));
    }
    let journal_path = match (&args.journal, args.no_journal) {
        (_, true) => None,
        (Some(path), false) => Some(path.clone()),
        (None, false) => Some(journal_name()),
    };
    let mut whole: Option<RekeyReport> = None;
    for (backend, etcd) in etcds.iter().enumerate() {
        let path = journal_path.as_deref().map(|path| journal_of(path, backend));
        let journal = path.as_deref().map(Journal::open).transpose().map_err(atrest::rekey::Error::from)?;
        let execution = Execution {
            concurrency: usize::from(args.concurrency),
            rate: args.rate,
            rewrap: RewrapOptions { max_request_bytes: args.max_request_bytes },
            quota_bytes: args.quota_backend_bytes,
            journal,
        };
        let done = execute(&etcd.client, &transformers, &kms, &options_of(etcd), execution, &display, &STOP).await;
        let report = match (done, &whole) {
            (Ok(report), _) => report,
            // What was done is told, whatever is wrong with the next one.
            (Err(error), Some(_)) => {
                let failure = Failure::from(error);
                super::warn(false, format_args!("{}: {failure}", etcd.name));
                if let Some(whole) = &mut whole {
                    whole.complete = false;
                    // What the other etcd needs is not known.
                    whole.keys_unused.clear();
                    (whole.verified, whole.still_stale) = (false, None);
                    whole.notes.push(format!("{} was not rotated: {failure}", etcd.name));
                }
                break;
            }
            (Err(error), None) => return Err(error.into()),
        };
        match &mut whole {
            Some(whole) => whole.absorb(report),
            None => whole = Some(report),
        }
    }
    let Some(mut report) = whole else { return Ok(0) };
    if let Some(path) = journal_path.filter(|_| report.rewritten > 0) {
        let paths: Vec<_> = (0..etcds.len()).map(|backend| journal_of(&path, backend).display().to_string()).collect();
        report.notes.push(format!("every write is noted in {}", paths.join(", ")));
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

/// A journal is of one cluster: the other etcds have their own beside it.
fn journal_of(path: &Path, backend: usize) -> PathBuf {
    if backend == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", backend + 1));
    PathBuf::from(name)
}

fn journal_name() -> PathBuf {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let time = OffsetDateTime::now_utc().format(format).unwrap_or_default();
    PathBuf::from(format!("atrest-rekey-{time}.jsonl"))
}
