use std::io::Write as _;
use std::path::{Path, PathBuf};

use atrest_kms_plugin::keyring::{self, FileError, KeyInfo, Keyring, NewSealArgs, Opener, Retired, SealArgs, rfc3339};
use clap::ValueEnum;
use serde::Serialize;
use time::OffsetDateTime;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct KeygenArgs {
    #[command(flatten)]
    keyring: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    /// Make a key that only decrypts for now: copy the file to every node, activate it on one, and copy the file again
    #[arg(long)]
    stage: bool,
    /// Make no key; let the staged one encrypt, or the one with this ID
    #[arg(long, value_name = "KEY_ID", num_args = 0..=1, conflicts_with = "stage")]
    activate: Option<Option<String>>,
    #[command(flatten)]
    keyring: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    keyring: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RetireArgs {
    /// The key, as list shows it
    #[arg(value_name = "KEY_ID")]
    key_id: String,
    /// Remove it. There is no way back: what it encrypted is lost
    #[arg(long)]
    yes: bool,
    /// Also when it stopped encrypting less than 10 minutes ago, and API servers may still write by it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keyring: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResealArgs {
    #[command(flatten)]
    new: NewSealArgs,
    #[command(flatten)]
    keyring: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Keyring")]
struct FileArgs {
    /// File with the keys
    #[arg(long = "keyring", value_name = "FILE")]
    path: PathBuf,
    #[command(flatten)]
    seal: SealArgs,
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Form {
    #[default]
    Table,
    Json,
}

pub(crate) fn keygen(args: &KeygenArgs) -> Result<(), Failure> {
    let path = &args.keyring.path;
    let Some(opener) = args.keyring.seal.given().map_err(at(path))? else {
        return Err(Failure::Usage("say how to seal it: --passphrase-file, --credential, --tpm or --plain".to_owned()));
    };
    let keyring = Keyring::create(path, &opener, now()).map_err(at(path))?;
    show(path, &keyring, keyring.ring().keys().collect(), Vec::new(), args.output.output)
}

pub(crate) fn rotate(args: &RotateArgs) -> Result<(), Failure> {
    let (path, opener) = args.keyring.resolve()?;
    let (keyring, key) = Keyring::update(path, &opener, |ring| match (&args.activate, args.stage) {
        (Some(key_id), _) => ring.activate(key_id.as_deref(), now()),
        (None, true) => ring.stage(now()),
        (None, false) => ring.rotate(now()),
    })
    .map_err(at(path))?;
    if args.activate.is_none() && !args.stage {
        let text = "the new key encrypts at once: a plugin with another copy of the keyring cannot decrypt what this one encrypts; with \
                    several nodes, `rotate --stage`, copy the keyring to each, then `rotate --activate`";
        // Nothing depends on whether it is read.
        _ = writeln!(std::io::stderr(), "atrest-kms-plugin: warning: {text}");
    }
    show(path, &keyring, vec![key], Vec::new(), args.output.output)
}

pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let (path, opener) = args.keyring.resolve()?;
    let keyring = Keyring::open(path, &opener).map_err(at(path))?;
    let ring = keyring.ring();
    show(path, &keyring, ring.keys().collect(), ring.retired().to_vec(), args.output.output)
}

pub(crate) fn retire(args: &RetireArgs) -> Result<(), Failure> {
    let (path, opener) = args.keyring.resolve()?;
    if !args.yes {
        let keyring = Keyring::open(path, &opener).map_err(at(path))?;
        let key = keyring.ring().retirable(&args.key_id).map_err(at(path))?;
        if !args.force {
            keyring.ring().check_settled(&args.key_id, now()).map_err(at(path))?;
        }
        return Err(Failure::NotConfirmed { key_id: key.id.as_str().to_owned() });
    }
    let (keyring, retired) = Keyring::update(path, &opener, |ring| {
        if !args.force {
            ring.check_settled(&args.key_id, now())?;
        }
        ring.retire(&args.key_id, now())
    })
    .map_err(at(path))?;
    show(path, &keyring, Vec::new(), vec![retired], args.output.output)
}

pub(crate) fn reseal(args: &ResealArgs) -> Result<(), Failure> {
    let path = &args.keyring.path;
    let (opener, new) = args.keyring.seal.with(&args.new).map_err(at(path))?;
    let Some(new) = new else {
        let message = "say how to seal it: --new-passphrase-file, --new-credential, --new-tpm or --new-plain";
        return Err(Failure::Usage(message.to_owned()));
    };
    let keyring = Keyring::reseal(path, &opener, &new).map_err(at(path))?;
    let ring = keyring.ring();
    show(path, &keyring, ring.keys().collect(), ring.retired().to_vec(), args.output.output)
}

impl FileArgs {
    fn resolve(&self) -> Result<(&Path, Opener), Failure> {
        Ok((&self.path, self.seal.opener().map_err(at(&self.path))?))
    }
}

fn at(path: &Path) -> impl FnOnce(keyring::Error) -> Failure {
    move |source| Failure::Keyring(FileError { path: path.to_owned(), source })
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[derive(Serialize)]
struct Report {
    keyring: String,
    seal: &'static str,
    keys: Vec<KeyRow>,
    retired: Vec<RetiredRow>,
}

#[derive(Serialize)]
struct KeyRow {
    key_id: String,
    key_id_hash: String,
    created: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deactivated: Option<String>,
}

#[derive(Serialize)]
struct RetiredRow {
    key_id: String,
    key_id_hash: String,
    created: String,
    retired: String,
}

fn show(path: &Path, keyring: &Keyring, keys: Vec<KeyInfo>, retired: Vec<Retired>, form: Form) -> Result<(), Failure> {
    let keys = keys.into_iter().map(|key| KeyRow {
        key_id: key.id.as_str().to_owned(),
        key_id_hash: key.id.hash(),
        created: rfc3339(key.created),
        state: key.state.name(),
        deactivated: key.deactivated.map(rfc3339),
    });
    let retired = retired.into_iter().map(|key| RetiredRow {
        key_id: key.id.as_str().to_owned(),
        key_id_hash: key.id.hash(),
        created: rfc3339(key.created),
        retired: key.when(),
    });
    let report = Report {
        keyring: path.display().to_string(),
        seal: keyring.method().name(),
        keys: keys.collect(),
        retired: retired.collect(),
    };
    let mut stdout = std::io::stdout().lock();
    match form {
        Form::Json => {
            serde_json::to_writer_pretty(&mut stdout, &report).map_err(std::io::Error::from)?;
            writeln!(stdout)?;
        }
        Form::Table => table(&mut stdout, &report)?,
    }
    stdout.flush()?;
    Ok(())
}

fn table(out: &mut impl std::io::Write, report: &Report) -> std::io::Result<()> {
    // Last a hash as Kubernetes' metrics and logs have it: 71 characters.
    let mut rows = vec![["KEY ID", "STATE", "CREATED", "RETIRED", "HASH"]];
    rows.extend(report.keys.iter().map(|key| [&*key.key_id, key.state, &*key.created, "", &*key.key_id_hash]));
    rows.extend(
        report.retired.iter().map(|key| [&*key.key_id, "retired", &*key.created, &*key.retired, &*key.key_id_hash]),
    );
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
