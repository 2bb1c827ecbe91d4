use atrest::backup::{Change, RewriteOptions, rewrite};
use atrest::kms::Kms;
use atrest::report::RewriteReport;
use atrest::resource::{KeyLayout, Selection};
use atrest::snapshot::RebuildOptions;
use atrest::transformer::{ProviderKind, ResourceTransformers};

use super::{Named, open};
use crate::args::{FileArgs, OutputArgs, SnapshotDecryptArgs, SnapshotRedactArgs, SnapshotRekeyArgs, TargetArgs};
use crate::commands::{Keys, STOP, exit_code, layout_of, selection_of, stdout, stop_signal, warn};
use crate::failure::Failure;
use crate::progress::Display;
use crate::render;

pub(super) async fn rekey(args: &SnapshotRekeyArgs, quiet: bool) -> Result<u8, Failure> {
    let keys = Keys::new(&args.config, quiet)?;
    for (resource, list) in keys.transformers.lists() {
        if list.write_key().provider == ProviderKind::Identity {
            warn(quiet, format_args!("{resource} have identity first: they are written in the clear"));
        }
    }
    with_keys(args, &keys, Change::Rekey, quiet).await
}

pub(super) async fn decrypt(args: &SnapshotDecryptArgs, quiet: bool) -> Result<u8, Failure> {
    let args = &args.rekey;
    // Not even --quiet silences this one.
    warn(
        false,
        format_args!(
            "{} will hold every secret in the clear: keep it where only you can read it, and destroy it when it has served",
            args.target.out.display()
        ),
    );
    let keys = Keys::new(&args.config, quiet)?;
    with_keys(args, &keys, Change::Decrypt, quiet).await
}

async fn with_keys(args: &SnapshotRekeyArgs, keys: &Keys, change: Change, quiet: bool) -> Result<u8, Failure> {
    let job = Job { target: &args.target, file: &args.file, output: &args.output, quiet };
    let layout = layout_of(&args.layout.etcd_prefix);
    let named = open(&args.snapshot, &args.file)?;
    job.run(&named, &layout, keys, change, args.keep_unreadable, None).await
}

pub(super) async fn redact(args: &SnapshotRedactArgs, quiet: bool) -> Result<u8, Failure> {
    let selection = selection_of(&args.selection)?;
    if args.key.is_empty() && !selection.is_partial() {
        return Err(Failure::Usage(
            "nothing is selected: name what is to be left out with --key, --resource, -n or --prefix".to_owned(),
        ));
    }
    let job = Job { target: &args.target, file: &args.file, output: &args.output, quiet };
    let named = open(&args.snapshot, &args.file)?;
    let keys = Keys::of(&[], &args.kms, quiet)?;
    let drop_key = |key: &[u8]| {
        args.key.iter().any(|wanted| wanted.as_bytes() == key) || (selection.is_partial() && selects(&selection, key))
    };
    job.run(&named, &selection.layout, &keys, Change::Keep, false, Some(&drop_key)).await
}

fn selects(selection: &Selection, key: &[u8]) -> bool {
    selection.key_prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
        && selection.includes(&selection.layout.locate(key))
}

struct Job<'a> {
    target: &'a TargetArgs,
    file: &'a FileArgs,
    output: &'a OutputArgs,
    quiet: bool,
}

impl Job<'_> {
    async fn run(
        &self,
        named: &Named,
        layout: &KeyLayout,
        keys: &Keys,
        change: Change,
        keep_unreadable: bool,
        drop_key: Option<&(dyn Fn(&[u8]) -> bool + Sync)>,
    ) -> Result<u8, Failure> {
        stop_signal();
        let transformers: &ResourceTransformers = &keys.transformers;
        let kms: &Kms = &keys.kms;
        let options = RewriteOptions {
            transformers,
            layout,
            source: named.name.clone(),
            source_path: named.path.as_deref(),
            target: &self.target.out,
            change,
            keep_unreadable,
            rebuild: RebuildOptions {
                drop_history: self.target.drop_history,
                drop_alarms: self.target.drop_alarms,
                drop_key,
                skip_hash_check: self.file.skip_hash_check,
                overwrite: self.target.force,
            },
        };
        let report = rewrite(&named.snapshot, &options, kms, &Display::new(self.quiet), &STOP).await?;
        render::print(&report, self.output.output, &mut stdout())?;
        Ok(exit_code_of(&report, drop_key.is_some()))
    }
}

/// Of a redaction that found nothing to leave out, the selection is misspelled.
fn exit_code_of(report: &RewriteReport, redacts: bool) -> u8 {
    exit_code(report.complete, report.unreadable_values > 0 || (redacts && report.dropped == 0))
}
