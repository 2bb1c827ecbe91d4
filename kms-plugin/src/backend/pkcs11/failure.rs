//! What a return value of the module means.

use cryptoki::error::RvError;

use crate::backend::Error;

/// Why a call to the token did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The token, a session or the login is gone: to connect again may help.
    Lost(String),
    /// The PIN is wrong, locked or expired: to try again makes it worse.
    Pin(String),
    /// Anything else.
    Other(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(reason) => Self::Unavailable(reason),
            Failure::Pin(reason) => Self::Credentials(reason),
            Failure::Other(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<cryptoki::error::Error> for Failure {
    fn from(error: cryptoki::error::Error) -> Self {
        use RvError as Rv;
        let cryptoki::error::Error::Pkcs11(value, function) = &error else {
            return Error::Unavailable(format!("the PKCS#11 module failed: {error}")).into();
        };
        let text = format!("C_{function:?} returned {value:?}");
        match value {
            Rv::PinIncorrect => Self::Pin("the PIN is wrong; it is not tried again before a reload".to_owned()),
            Rv::PinLocked => Self::Pin("the PIN is locked".to_owned()),
            Rv::PinExpired => Self::Pin("the PIN has expired".to_owned()),
            Rv::PinInvalid | Rv::PinLenRange => Self::Pin("the PIN is not one that this token can have".to_owned()),
            Rv::UserPinNotInitialized => Self::Pin("the token has no user PIN yet".to_owned()),
            Rv::KeyFunctionNotPermitted
            | Rv::KeyNotWrappable
            | Rv::KeyUnextractable
            | Rv::KeySizeRange
            | Rv::KeyTypeInconsistent
            | Rv::WrappingKeyTypeInconsistent
            | Rv::WrappingKeySizeRange
            | Rv::UnwrappingKeyTypeInconsistent
            | Rv::UnwrappingKeySizeRange
            | Rv::MechanismInvalid
            | Rv::MechanismParamInvalid
            | Rv::ActionProhibited
            | Rv::FunctionNotSupported
            | Rv::TemplateInconsistent
            | Rv::AttributeValueInvalid => Error::KeyUnusable(text).into(),
            Rv::SessionCount | Rv::HostMemory => Error::Unavailable(text).into(),
            // The rest is what tokens say when they were pulled out, restarted or logged out, and what no program expects.
            _ => Self::Lost(text),
        }
    }
}

/// Whether that is how tokens answer a ciphertext that is not theirs. SoftHSM has only `CKR_GENERAL_ERROR` for it.
pub(super) fn refuses_ciphertext(error: &cryptoki::error::Error) -> Verdict {
    use RvError as Rv;
    match error {
        cryptoki::error::Error::Pkcs11(value, _) => match value {
            Rv::EncryptedDataInvalid
            | Rv::EncryptedDataLenRange
            | Rv::WrappedKeyInvalid
            | Rv::WrappedKeyLenRange
            | Rv::SignatureInvalid
            | Rv::DataInvalid
            | Rv::DataLenRange => Verdict::Yes,
            Rv::GeneralError | Rv::FunctionFailed | Rv::DeviceError | Rv::ArgumentsBad => Verdict::Perhaps,
            _ => Verdict::No,
        },
        _ => Verdict::No,
    }
}

/// Whether the ciphertext is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is.
    Yes,
    /// It is, if the key works on another one.
    Perhaps,
    /// It is not.
    No,
}
