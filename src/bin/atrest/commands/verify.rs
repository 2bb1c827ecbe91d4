use atrest::report::{Removable, VerifyReport, VerifyRow};
use atrest::transformer::ProviderKind;
use atrest::verify::{self, Options, RemovableKey, Rows};

use super::lines::Lines;
use super::source::{Context, Want};
use super::{Keys, exit_code, stdout};
use crate::args::{Output, VerifyArgs, VerifyExpectation};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(args: &VerifyArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::new(&args.config, quiet)?;
    let output = args.output.output;
    let want = Want { in_order: output == Output::Ndjson, ..Want::default() };
    let context = Context::new(&args.source, &args.selection, want, quiet).await?;
    // Whether a key can go is asked of everything in etcd, unless it is said where the API server stores.
    let everywhere = args.removable.is_some() && args.selection.etcd_prefix.is_empty();
    let scope = match everywhere {
        true => format!("every key of this {} that begins with a slash was looked at", context.kind()),
        false => context.selection.layout.scope(),
    };
    let options = Options {
        transformers: &transformers,
        selection: &context.selection,
        source: context.name.clone(),
        expect_current: args.expect == Some(VerifyExpectation::Current),
        removable: args.removable.as_deref().map(RemovableKey::parse),
        scope,
        rows: if output == Output::Ndjson { Rows::Every } else { Rows::Unreadable },
    };
    let values = if everywhere { context.whole_store().await? } else { context.values().await? };
    let problems = values.problems();
    let mut lines = Lines::new(context.stop);
    let mut rows = |row: &VerifyRow| {
        if output == Output::Ndjson {
            lines.print(row);
        }
    };
    let keys = async || context.all_keys().await;
    let mut report = verify::verify(values, keys, &*kms, &options, &context.display, context.stop, &mut rows).await?;
    lines.finish()?;
    let condition = context.condition(&problems)?;
    report.complete &= !condition.partial;
    report.notes.extend(condition.notes);
    if let Some(asked) = &options.removable {
        refuse_unknown_key(
            &report,
            asked,
            !transformers.kms_providers().is_empty(),
            args.removable.as_deref().unwrap_or_default(),
        )?;
    }
    let code = exit_code_of(&report, options.expect_current, condition.suspicious);
    if output == Output::Ndjson {
        // Each of them has had its line.
        report.findings.clear();
    }
    render::print(&report, output, &mut stdout())?;
    Ok(code)
}

fn exit_code_of(report: &VerifyReport, expect_current: bool, suspicious: bool) -> u8 {
    match &report.removable {
        Some(answer) => exit_code(report.complete, suspicious || answer.removable != Removable::Yes),
        None => exit_code(
            report.complete,
            suspicious || !report.findings.is_empty() || (expect_current && report.values == 0),
        ),
    }
}

/// A key that is misspelled is needed by nothing: that must not be taken for a yes.
fn refuse_unknown_key(report: &VerifyReport, asked: &RemovableKey, has_kms: bool, typed: &str) -> Result<(), Failure> {
    let Some(answer) = &report.removable else { return Ok(()) };
    let meant = report.keys.iter().find(|used| used.key.split_once('/').is_some_and(|(_, name)| name == typed));
    if let (RemovableKey::KmsKeyId { .. }, Some(meant)) = (asked, meant) {
        return Err(Failure::Usage(format!("--removable {typed:?} names no provider: did you mean {}?", meant.key)));
    }
    if ProviderKind::ENCRYPTED.iter().any(|provider| provider.name() == typed) {
        let of_provider =
            report.keys.iter().filter(|used| used.key.split_once('/').is_some_and(|(provider, _)| provider == typed));
        let keys: Vec<_> = of_provider.map(|used| used.key.as_str()).collect();
        return Err(Failure::Usage(format!("--removable {typed:?} names no key: there are {}", keys.join(", "))));
    }
    let known = report.keys.iter().any(|used| used.key == answer.key)
        || answer.needed_by > 0
        || (has_kms && matches!(asked, RemovableKey::KmsKeyId { .. }));
    if known || !report.complete || report.values == 0 {
        return Ok(());
    }
    let keys: Vec<_> = report.keys.iter().map(|used| used.key.as_str()).collect();
    Err(Failure::Usage(match asked {
        RemovableKey::Label(label) => format!(
            "--removable: there is no key {label}, neither in the configuration nor in a stored value; there are {}",
            keys.join(", ")
        ),
        RemovableKey::KmsKeyId { .. } => format!(
            "--removable takes PROVIDER/NAME or a KMS key ID, and no stored value names a key ID {typed:?}; there are {}",
            keys.join(", ")
        ),
    }))
}
