//! The flags of commands that work on a keyring.

use std::path::PathBuf;

use super::Error;
use super::passphrase::Source;
use super::seal::{Opener, TpmOptions};

/// Which keyring a plugin serves, and how it is opened.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KeyringArgs {
    /// File with the keys
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
    /// How it is sealed.
    #[command(flatten)]
    pub seal: SealArgs,
}

/// How a keyring is sealed. The file must agree, so that nobody can put an unsealed one in its place.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SealArgs {
    /// The keyring is not sealed: its mode 0600 protects it (the default, except for keygen)
    #[arg(long, group = "sealing")]
    pub plain: bool,
    /// The keyring is sealed by the passphrase in this file; one newline at its end does not count
    #[arg(long, group = "sealing", value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// The keyring is sealed by the passphrase in this systemd credential: a file in $CREDENTIALS_DIRECTORY
    #[arg(long, group = "sealing", value_name = "NAME")]
    pub credential: Option<String>,
    /// The keyring is sealed by the TPM 2.0 of this machine
    #[arg(long, group = "sealing")]
    pub tpm: bool,
    /// The way to the TPM [default: $TPM2TOOLS_TCTI, $TCTI, or device:/dev/tpmrm0]
    #[arg(long, value_name = "TCTI")]
    pub tpm_tcti: Option<String>,
    /// Seal to the present values of these PCRs (SHA-256), as in 7,11; only when a keyring is sealed
    #[arg(long, value_name = "PCR,…", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..24))]
    pub tpm_pcrs: Vec<u8>,
}

/// How a keyring is to be sealed instead.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NewSealArgs {
    /// Not sealed any more
    #[arg(long, group = "new_sealing")]
    pub new_plain: bool,
    /// Sealed by the passphrase in this file
    #[arg(long, group = "new_sealing", value_name = "FILE")]
    pub new_passphrase_file: Option<PathBuf>,
    /// Sealed by the passphrase in this systemd credential
    #[arg(long, group = "new_sealing", value_name = "NAME")]
    pub new_credential: Option<String>,
    /// Sealed by the TPM 2.0 of this machine; PCRs as in --tpm-pcrs
    #[arg(long, group = "new_sealing")]
    pub new_tpm: bool,
}

impl SealArgs {
    /// What the flags say; without one, that the file is not sealed.
    ///
    /// # Errors
    ///
    /// [`Error::TpmFlagsAlone`].
    pub fn opener(&self) -> Result<Opener, Error> {
        Ok(self.given()?.unwrap_or(Opener::Plain))
    }

    /// What the flags say, if they say anything.
    ///
    /// # Errors
    ///
    /// [`Error::TpmFlagsAlone`].
    pub fn given(&self) -> Result<Option<Opener>, Error> {
        if !self.tpm && self.has_tpm_flags() {
            return Err(Error::TpmFlagsAlone);
        }
        Ok(self.said())
    }

    /// What these flags, and those for another seal, say.
    ///
    /// # Errors
    ///
    /// [`Error::TpmFlagsAlone`].
    pub fn with(&self, new: &NewSealArgs) -> Result<(Opener, Option<Opener>), Error> {
        if !self.tpm && !new.new_tpm && self.has_tpm_flags() {
            return Err(Error::TpmFlagsAlone);
        }
        Ok((self.said().unwrap_or(Opener::Plain), new.said(self)))
    }

    fn has_tpm_flags(&self) -> bool {
        self.tpm_tcti.is_some() || !self.tpm_pcrs.is_empty()
    }

    fn said(&self) -> Option<Opener> {
        said(self.plain, self.passphrase_file.as_ref(), self.credential.as_ref(), self.tpm, self)
    }
}

impl NewSealArgs {
    fn said(&self, tpm: &SealArgs) -> Option<Opener> {
        said(self.new_plain, self.new_passphrase_file.as_ref(), self.new_credential.as_ref(), self.new_tpm, tpm)
    }
}

fn said(
    plain: bool,
    file: Option<&PathBuf>,
    credential: Option<&String>,
    by_tpm: bool,
    tpm: &SealArgs,
) -> Option<Opener> {
    match (plain, file, credential, by_tpm) {
        (true, ..) => Some(Opener::Plain),
        (_, Some(file), ..) => Some(Opener::Passphrase(Source::File(file.clone()))),
        (_, _, Some(name), _) => Some(Opener::Passphrase(Source::Credential(name.clone()))),
        (.., true) => {
            let mut pcrs = tpm.tpm_pcrs.clone();
            pcrs.sort_unstable();
            pcrs.dedup();
            Some(Opener::Tpm(TpmOptions { tcti: tpm.tpm_tcti.clone(), pcrs }))
        }
        _ => None,
    }
}
