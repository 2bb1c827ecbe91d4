//! A key that one TPM 2.0 gives out, by the TPM Software Stack (TCG ESAPI).
//!
//! The key is the data of a sealed object (TPM 2.0 Library, part 1, "Sealed Data Object") below a primary key of the storage
//! hierarchy, which the TPM derives anew each time from a seed that does not leave it. It lies in the file encrypted by that TPM.
//! With PCRs, the object has the policy that they have the values of when it was sealed.
//!
//! What passes between this process and the TPM is encrypted by a session that is salted by the primary key, so that nobody reads
//! the key from the bus. Somebody who answers in the TPM's place is not recognised.

use std::str::FromStr as _;

use atrest::secret::Key;
use tss_esapi::attributes::{ObjectAttributesBuilder, SessionAttributesBuilder};
use tss_esapi::constants::{SessionType, Tss2ResponseCodeKind};
use tss_esapi::handles::KeyHandle;
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::ecc::EccCurve;
use tss_esapi::interface_types::resource_handles::Hierarchy;
use tss_esapi::interface_types::session_handles::{AuthSession, PolicySession};
use tss_esapi::structures::{
    Digest, EccPoint, EccScheme, KeyDerivationFunctionScheme, KeyedHashScheme, PcrSelectionList, PcrSlot, Private,
    Public, PublicBuilder, PublicEccParametersBuilder, PublicKeyedHashParameters, SensitiveData, SymmetricDefinition,
    SymmetricDefinitionObject,
};
use tss_esapi::traits::{Marshall as _, UnMarshall as _};
use tss_esapi::{Context, Error, TctiNameConf};
use zeroize::Zeroizing;

use super::seal::{Bytes, TpmOptions, TpmSealed};

const DEFAULT_TCTI: &str = "device:/dev/tpmrm0";

/// Why a TPM did not seal or unseal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TpmError {
    /// Not like `device:/dev/tpmrm0`, `swtpm:host=…,port=…`, `tabrmd:…`.
    #[error("{tcti} is no TCTI")]
    Tcti {
        /// What was given.
        tcti: String,
    },
    /// No such device, no permission, nobody who answers.
    #[error("no TPM at {tcti}: {message}")]
    Unreachable {
        /// The way to it.
        tcti: String,
        /// The stack's.
        message: String,
    },
    /// The sealed object does not load.
    #[error("another TPM sealed the keyring, or this one was cleared since")]
    OtherTpm,
    /// Another firmware, boot loader or kernel than when it was sealed.
    #[error("the PCRs do not have the values that it was sealed to")]
    PcrsChanged,
    /// Whatever else.
    #[error("{message}")]
    Failed {
        /// The stack's.
        message: String,
    },
}

/// The stack's errors have themselves as their causes, so the text is taken.
impl From<Error> for TpmError {
    fn from(error: Error) -> Self {
        Self::Failed { message: error.to_string() }
    }
}

/// Seals a key.
pub(super) fn seal(options: &TpmOptions, key: &Key) -> Result<TpmSealed, TpmError> {
    let mut context = connect(options)?;
    let primary = primary(&mut context)?;
    let with_pcrs = !options.pcrs.is_empty();
    let policy = if with_pcrs { policy_of_present_values(&mut context, &options.pcrs)? } else { Digest::default() };
    let attributes = ObjectAttributesBuilder::new()
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_no_da(true)
        .with_user_with_auth(!with_pcrs)
        .build()?;
    let public = PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::KeyedHash)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_auth_policy(policy)
        .with_keyed_hash_parameters(PublicKeyedHashParameters::new(KeyedHashScheme::Null))
        .with_keyed_hash_unique_identifier(Digest::default())
        .build()?;
    let data = SensitiveData::try_from(key.expose())?;
    let session = session(&mut context, primary, SessionType::Hmac)?;
    let created = context
        .execute_with_session(Some(session), |context| context.create(primary, public, None, Some(data), None, None))?;
    Ok(TpmSealed {
        public: Bytes(created.out_public.marshall()?),
        private: Bytes(created.out_private.value().to_vec()),
        pcrs: options.pcrs.clone(),
    })
}

/// Unseals a key, if this is the TPM that sealed it.
pub(super) fn unseal(options: &TpmOptions, sealed: &TpmSealed) -> Result<Key, TpmError> {
    let mut context = connect(options)?;
    let primary = primary(&mut context)?;
    let public = Public::unmarshall(&sealed.public.0)?;
    let private = Private::try_from(sealed.private.0.as_slice())?;
    let hmac = session(&mut context, primary, SessionType::Hmac)?;
    let object = context
        .execute_with_session(Some(hmac), |context| context.load(primary, private, public))
        .map_err(|error| if is(error, Tss2ResponseCodeKind::Integrity) { TpmError::OtherTpm } else { error.into() })?;
    let authorization = if sealed.pcrs.is_empty() {
        hmac
    } else {
        let policy = session(&mut context, primary, SessionType::Policy)?;
        context.policy_pcr(PolicySession::try_from(policy)?, Digest::default(), selection(&sealed.pcrs)?)?;
        policy
    };
    let data = context.execute_with_session(Some(authorization), |context| context.unseal(object.into())).map_err(
        |error| if is(error, Tss2ResponseCodeKind::PolicyFail) { TpmError::PcrsChanged } else { error.into() },
    )?;
    Ok(Key::new(Zeroizing::new(data.value().to_vec())))
}

fn connect(options: &TpmOptions) -> Result<Context, TpmError> {
    let variable = |name| std::env::var(name).ok().filter(|tcti| !tcti.is_empty());
    let tcti = options.tcti.clone().or_else(|| variable("TPM2TOOLS_TCTI")).or_else(|| variable("TCTI"));
    let tcti = tcti.unwrap_or_else(|| DEFAULT_TCTI.to_owned());
    let Ok(configuration) = TctiNameConf::from_str(&tcti) else { return Err(TpmError::Tcti { tcti }) };
    Context::new(configuration).map_err(|error| TpmError::Unreachable { tcti, message: error.to_string() })
}

/// The storage key that everything is sealed under: ECC P-256 with AES-128, always the same of one TPM.
fn primary(context: &mut Context) -> Result<KeyHandle, TpmError> {
    let attributes = ObjectAttributesBuilder::new()
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_sensitive_data_origin(true)
        .with_user_with_auth(true)
        .with_no_da(true)
        .with_restricted(true)
        .with_decrypt(true)
        .build()?;
    let parameters = PublicEccParametersBuilder::new()
        .with_symmetric(SymmetricDefinitionObject::AES_128_CFB)
        .with_ecc_scheme(EccScheme::Null)
        .with_curve(EccCurve::NistP256)
        .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null)
        .with_is_decryption_key(true)
        .with_restricted(true)
        .build()?;
    let public = PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::Ecc)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_ecc_parameters(parameters)
        .with_ecc_unique_identifier(EccPoint::default())
        .build()?;
    let created = context.execute_with_nullauth_session(|context| {
        context.create_primary(Hierarchy::Owner, public, None, None, None, None)
    })?;
    Ok(created.key_handle)
}

/// A session that encrypts the first parameter of requests and answers.
fn session(context: &mut Context, primary: KeyHandle, kind: SessionType) -> Result<AuthSession, TpmError> {
    let session = context.start_auth_session(
        Some(primary),
        None,
        None,
        kind,
        SymmetricDefinition::AES_128_CFB,
        HashingAlgorithm::Sha256,
    )?;
    let session = session.ok_or_else(|| TpmError::Failed { message: "the TPM gave no session".to_owned() })?;
    let (attributes, mask) = SessionAttributesBuilder::new().with_decrypt(true).with_encrypt(true).build();
    context.tr_sess_set_attributes(session, attributes, mask)?;
    Ok(session)
}

fn policy_of_present_values(context: &mut Context, pcrs: &[u8]) -> Result<Digest, TpmError> {
    let trial = context.start_auth_session(
        None,
        None,
        None,
        SessionType::Trial,
        SymmetricDefinition::AES_128_CFB,
        HashingAlgorithm::Sha256,
    )?;
    let trial = trial.ok_or_else(|| TpmError::Failed { message: "the TPM gave no session".to_owned() })?;
    let trial = PolicySession::try_from(trial)?;
    context.policy_pcr(trial, Digest::default(), selection(pcrs)?)?;
    Ok(context.policy_get_digest(trial)?)
}

fn selection(pcrs: &[u8]) -> Result<PcrSelectionList, TpmError> {
    let slots = pcrs.iter().map(|pcr| {
        let bit = 1_u32.checked_shl((*pcr).into()).unwrap_or_default();
        PcrSlot::try_from(bit).map_err(TpmError::from)
    });
    let slots = slots.collect::<Result<Vec<_>, _>>()?;
    Ok(PcrSelectionList::builder().with_selection(HashingAlgorithm::Sha256, &slots).build()?)
}

fn is(error: Error, kind: Tss2ResponseCodeKind) -> bool {
    matches!(error, Error::Tss2Error(code) if code.kind() == Some(kind))
}
