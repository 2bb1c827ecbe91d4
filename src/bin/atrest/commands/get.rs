use atrest::get::{Got, Options, SecretData, Shown, get};
use atrest::resource::GroupResource;

use super::lines::BufferedOutput;
use super::source::{Context, Want};
use super::{Keys, exit_code, warn, warn_of_unreadable};
use crate::args::{GetArgs, ShownArgs};
use crate::failure::Failure;
use crate::render::Objects;

pub(super) async fn run(args: &GetArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::of(&args.encryption_provider_config, &args.kms, quiet)?;
    let mut selection = args.selection.clone();
    if let Some(what) = &args.what {
        selection.resource.extend(what.split(',').map(str::to_owned));
    }
    let want = Want { in_order: true, routed: true, ..Want::default() };
    let context = Context::new(&args.source, &selection, want, quiet).await?;
    let options = Options {
        transformers: &transformers,
        selection: &context.selection,
        source: context.name.clone(),
        name: args.name.as_deref(),
        wants: &|object| {
            let selector = args.selector.as_ref();
            selector.is_none_or(|selector| {
                selector.matches(|wanted| object.labels().find(|(label, _)| *label == wanted).map(|(_, value)| value))
            })
        },
        shown: shown(&args.shown),
    };
    let values = context.values().await?;
    let problems = values.problems();
    let mut out = BufferedOutput::default();
    let mut objects = Objects::new(&mut out, args.output.clone(), args.name.is_none());
    let mut failed = None;
    let mut visit = |got: Got| {
        if failed.is_none()
            && let Err(failure) = objects.print(got)
        {
            failed = Some(failure);
            context.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let report = get(values, &*kms, &options, &context.display, context.stop, &mut visit).await?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    let condition = context.condition(&problems)?;
    let is_missing = report.objects == 0 && args.name.is_some();
    if is_missing && report.findings.is_empty() {
        let resources: Vec<_> =
            selection.resource.iter().map(|text| GroupResource::resolve(text).to_string()).collect();
        condition.notes.iter().for_each(|note| warn(quiet, format_args!("{note}")));
        let (resource, name) = (resources.join(","), args.name.clone().unwrap_or_default());
        return Err(Failure::NotFound { resource, name, partial: condition.partial });
    }
    if !is_missing {
        objects.finish()?;
    }
    let untold = condition.notes.iter().filter(|note| condition.warned.as_ref() != Some(note));
    untold.for_each(|note| warn(quiet, format_args!("{note}")));
    // Of one object, why it cannot be shown is all that there is to say.
    warn_of_unreadable(&report.findings, &args.encryption_provider_config, quiet && !is_missing);
    let complete = report.complete && !condition.partial;
    Ok(exit_code(complete, !report.findings.is_empty() || condition.suspicious))
}

/// How objects are to look.
pub(super) fn shown(args: &ShownArgs) -> Shown {
    Shown {
        managed_fields: args.show_managed_fields,
        as_stored: args.as_stored,
        secrets: if args.reveal { SecretData::Revealed } else { SecretData::Redacted },
    }
}
