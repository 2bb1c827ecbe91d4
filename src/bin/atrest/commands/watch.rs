use std::io::Write as _;

use atrest::get;
use atrest::report::WatchRow;
use atrest::watch::{Options, backends, watch};

use super::get::shown;
use super::lines::BufferedOutput;
use super::source::{Etcd, checked_selection, overrides_of};
use super::{Keys, STOP, exit_code, warn};
use crate::args::WatchArgs;
use crate::failure::Failure;
use crate::render::Changes;

pub(super) async fn run(args: &WatchArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::of(&args.encryption_provider_config, &args.kms, quiet)?;
    let mut selection = args.selection.clone();
    if let Some(what) = &args.what {
        selection.resource.extend(what.split(',').map(str::to_owned));
    }
    let selection = checked_selection(&selection)?;
    let overrides = overrides_of(&args.overrides)?;
    let etcds = Etcd::connect_wanted(&args.etcd, &overrides, &selection).await?;
    if args.since_revision.is_some() && etcds.len() > 1 {
        return Err(Failure::Usage(
            "--since-revision is a revision of one etcd, and what is selected is stored in several: name the resources of one".to_owned(),
        ));
    }
    let options = Options {
        get: get::Options {
            transformers: &transformers,
            selection: &selection,
            source: String::new(),
            name: args.name.as_deref(),
            wants: &|object| {
                args.selector.as_ref().is_none_or(|selector| {
                    let labels = || object.labels();
                    selector.matches(|wanted| labels().find(|(label, _)| *label == wanted).map(|(_, value)| value))
                })
            },
            shown: shown(&args.shown),
        },
        since: args.since_revision,
        list_first: args.list_first,
        relist: args.relist,
        bookmarks: args.bookmarks,
        max_events: args.max_events,
        time: args.time,
    };
    // The numbers of the backends, as the overrides count them.
    let numbers: Vec<_> = etcds.iter().map(|(number, _)| *number).collect();
    let backends = backends(etcds.into_iter().map(|(_, etcd)| (etcd.client, etcd.name)).collect());
    // What lies where no API server looks for it is no change that one of them shows.
    let is_here = |backend: usize, key: &[u8]| {
        overrides.is_empty() || numbers.get(backend) == Some(&overrides.backend_of_key(&selection.layout, key))
    };
    let mut out = BufferedOutput::default();
    let mut changes = Changes::new(args.output, args.selection.namespace.is_some());
    let mut failed = None;
    let mut visit = |row: WatchRow| {
        if failed.is_none()
            && let Err(failure) = changes.print(&row, &mut out).and_then(|()| Ok(out.flush()?))
        {
            failed = Some(failure);
            STOP.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let watched = watch(&backends, &*kms, &options, &is_here, &STOP, &mut visit).await;
    if let Some(failure) = failed {
        return Err(failure);
    }
    let report = watched.map_err(Failure::Watch)?;
    if report.relisted > 0 {
        warn(quiet, format_args!("changes were compacted away before they were seen: some are missing"));
    }
    if !report.connected {
        warn(quiet, format_args!("there is no connection to etcd: what has changed since it was lost is not known"));
    }
    if report.unreadable > 0 && args.encryption_provider_config.is_empty() {
        warn(quiet, format_args!("name the keys with --encryption-provider-config"));
    }
    Ok(exit_code(report.relisted == 0 && report.connected, report.unreadable > 0))
}
