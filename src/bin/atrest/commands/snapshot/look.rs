use atrest::backup::{self, residue};

use super::open_whole;
use crate::args::{SnapshotInspectArgs, SnapshotResidueArgs};
use crate::commands::{STOP, exit_code, layout_of, stdout, stop_signal, transformers};
use crate::failure::Failure;
use crate::progress::Display;
use crate::render;

pub(super) fn inspect(args: &SnapshotInspectArgs, _: bool) -> Result<u8, Failure> {
    let named = open_whole(&args.snapshot, &args.file)?;
    let report = backup::inspect(&named.snapshot, named.name, named.data_dir.as_ref())
        .map_err(|error| Failure::of_snapshot(&named.path, error))?;
    render::print(&report, args.output.output, &mut stdout())?;
    Ok(exit_code(report.complete, report.trailer.is_wrong() && !args.file.skip_hash_check))
}

pub(super) fn residue(args: &SnapshotResidueArgs, quiet: bool) -> Result<u8, Failure> {
    let transformers = match args.encryption_provider_config.as_slice() {
        [] => None,
        files => Some(transformers(files, quiet)?),
    };
    stop_signal();
    let named = open_whole(&args.snapshot, &args.file)?;
    let options = residue::Options {
        transformers: transformers.as_deref(),
        layout: &layout_of(&args.layout.etcd_prefix),
        source: named.name.clone(),
        file: named.path.display().to_string(),
        data_dir: named.data_dir.as_ref(),
    };
    let mut report = residue::residue(&named.snapshot, &options, &Display::new(quiet), &STOP)
        .map_err(|error| Failure::from(error).in_file(&named.path))?;
    let suspicious = named.is_suspicious(args.file.skip_hash_check, quiet)?;
    let is_found = report.unwanted > 0 || !report.plaintext_passwords.is_empty();
    let (output, mut out) = (args.output.output, stdout());
    render::rows_first(&mut report.groups, output, &mut out)?;
    render::print(&report, output, &mut out)?;
    Ok(exit_code(report.complete, suspicious || is_found))
}
