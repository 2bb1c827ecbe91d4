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
    let etcds = Etcd::connect_all(&args.etcd, &overrides).await?;
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
    let backends = backends(etcds.into_iter().map(|etcd| (etcd.client, etcd.name)).collect());
    // What lies where no API server looks for it is no change that one of them shows.
    let is_here = |backend: usize, key: &[u8]| {
        overrides.is_empty() || overrides.backend_of_key(&selection.layout, key) == backend.checked_sub(1)
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
    if report.unreadable > 0 && args.encryption_provider_config.is_empty() {
        warn(quiet, format_args!("name the keys with --encryption-provider-config"));
    }
    Ok(exit_code(report.relisted == 0, report.unreadable > 0))
}
