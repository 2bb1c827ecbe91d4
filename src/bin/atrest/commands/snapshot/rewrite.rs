use std::sync::PoisonError;

use atrest::backup::{Change, RewriteOptions, rewrite};
use atrest::kms::Kms;
use atrest::resource::{KeyLayout, Selection};
use atrest::snapshot::{KeyFilter, RebuildOptions, directory_of};
use atrest::transformer::{ProviderKind, ResourceTransformers};

use super::{Named, open_whole};
use crate::args::{FileArgs, OutputArgs, SnapshotDecryptArgs, SnapshotRedactArgs, SnapshotRekeyArgs, TargetArgs};
use crate::commands::{Keys, STOP, UNFINISHED, exit_code, layout_of, selection_of, stdout, stop_signal, warn};
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
    let named = open_whole(&args.snapshot, &args.file)?;
    let what = What { change, keep_unreadable: args.keep_unreadable, only: None, drop_key: None };
    job.run(&named, &layout, keys, what).await
}

pub(super) async fn redact(args: &SnapshotRedactArgs, quiet: bool) -> Result<u8, Failure> {
    let selection = selection_of(&args.selection)?;
    let is_all = args.keys.is_empty() && !selection.is_partial();
    if is_all && !args.replace_secret_data {
        return Err(Failure::Usage(
            "nothing is selected: name what is to be left out with --key, --resource, -n or --prefix".to_owned(),
        ));
    }
    let job = Job { target: &args.target, file: &args.file, output: &args.output, quiet };
    let named = open_whole(&args.snapshot, &args.file)?;
    let keys = Keys::of(&args.config.encryption_provider_config, &args.config.kms, quiet)?;
    let is_meant = |key: &[u8]| {
        is_all
            || args.keys.iter().any(|wanted| wanted.as_bytes() == key)
            || (selection.is_partial() && selects(&selection, key))
    };
    let what = match args.replace_secret_data {
        true => {
            What { change: Change::Blank, keep_unreadable: args.keep_unreadable, only: Some(&is_meant), drop_key: None }
        }
        false => What { change: Change::Keep, keep_unreadable: false, only: None, drop_key: Some(&is_meant) },
    };
    job.run(&named, &selection.layout, &keys, what).await
}

fn selects(selection: &Selection, key: &[u8]) -> bool {
    selection.key_prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
        && selection.includes(&selection.layout.locate(key))
}

/// What is to become of a snapshot.
struct What<'a> {
    change: Change,
    keep_unreadable: bool,
    /// Whose values are changed; all when there is none.
    only: Option<KeyFilter<'a>>,
    /// Who is left out.
    drop_key: Option<KeyFilter<'a>>,
}

struct Job<'a> {
    target: &'a TargetArgs,
    file: &'a FileArgs,
    output: &'a OutputArgs,
    quiet: bool,
}

impl Job<'_> {
    async fn run(&self, named: &Named, layout: &KeyLayout, keys: &Keys, what: What<'_>) -> Result<u8, Failure> {
        if self.target.out == std::path::Path::new("-") {
            return Err(Failure::Usage(
                "--out is a file: a new snapshot is read again before it is given out".to_owned(),
            ));
        }
        let directory = directory_of(&self.target.out).to_owned();
        *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory);
        named.warn_of_log(self.quiet);
        stop_signal();
        let What { change, keep_unreadable, only, drop_key } = what;
        let transformers: &ResourceTransformers = &keys.transformers;
        let kms: &Kms = &keys.kms;
        let options = RewriteOptions {
            transformers,
            layout,
            source: named.name.clone(),
            source_path: named.file(),
            target: &self.target.out,
            change,
            only,
            keep_unreadable,
            rebuild: RebuildOptions {
                drop_history: self.target.drop_history,
                drop_alarms: self.target.drop_alarms,
                drop_key,
                // A data directory has no hash.
                skip_hash_check: self.file.skip_hash_check || named.data_dir.is_some(),
                overwrite: self.target.force,
            },
        };
        let report = rewrite(&named.snapshot, &options, kms, &Display::new(self.quiet), &STOP)
            .await
            .map_err(|error| Failure::from(error).in_file(&named.path))?;
        render::print(&report, self.output.output, &mut stdout())?;
        Ok(exit_code(report.complete, report.unreadable_values > 0 || report.target.is_empty()))
    }
}
