//! What an error of AWS KMS means.

use std::time::{Duration, Instant};

use atrest::causes::innermost;
use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::backend::Error;
use crate::backend::pause::Pause;

/// The codes of a service that limits the rate of requests, KMS or what signs for it.
const THROTTLED: [&str; 6] = [
    "ThrottlingException",
    "Throttling",
    "ThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "LimitExceededException",
];

/// The codes of credentials that are wrong or too old.
const CREDENTIALS: [&str; 10] = [
    "ExpiredTokenException",
    "ExpiredToken",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
];

/// The error of a call of that name; begins a pause when the service asks for one.
pub(super) fn of<E>(operation: &str, error: &SdkError<E, HttpResponse>, pause: &Pause) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ServiceError(context) => {
            let code = context.err().code().unwrap_or("an error without a code");
            if THROTTLED.contains(&code) || context.raw().status().as_u16() == 429 {
                let asked = context.raw().headers().get("retry-after").and_then(|seconds| seconds.parse().ok());
                return pause.begin(Instant::now(), asked.map(Duration::from_secs));
            }
            of_code(operation, code)
        }
        SdkError::TimeoutError(_) => {
            Error::Unavailable("AWS KMS, or what gives the credentials, did not answer in time".to_owned())
        }
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            Error::Unavailable("AWS KMS did not answer in time".to_owned())
        }
        SdkError::DispatchFailure(_) => {
            let text = DisplayErrorContext(error).to_string();
            // The provider chain has no type of error that is ours to name.
            if text.contains("redential") {
                Error::Credentials(format!("none are found: {}", innermost(error)))
            } else {
                Error::Unavailable(innermost(error).to_string())
            }
        }
        SdkError::ConstructionFailure(_) => Error::Configuration(innermost(error).to_string()),
        _ => Error::Unavailable("the answer is not one of AWS KMS".to_owned()),
    }
}

fn of_code(operation: &str, code: &str) -> Error {
    match code {
        "InvalidCiphertextException" | "IncorrectKeyException" => Error::AuthenticationFailed,
        "AccessDeniedException" => Error::KeyUnusable(format!("access denied to kms:{operation}")),
        "NotFoundException" => Error::KeyUnusable("there is no such key".to_owned()),
        "DisabledException" => Error::KeyUnusable("it is disabled".to_owned()),
        "KMSInvalidStateException" | "KeyUnavailableException" | "InvalidKeyUsageException" => {
            Error::KeyUnusable(format!("AWS KMS answered {code}"))
        }
        code if CREDENTIALS.contains(&code) => Error::Credentials(code.to_owned()),
        code => Error::Unavailable(format!("AWS KMS answered {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_this() {
        let of = |code| of_code("Decrypt", code);
        assert_eq!(of("InvalidCiphertextException"), Error::AuthenticationFailed);
        assert_eq!(of("IncorrectKeyException"), Error::AuthenticationFailed);
        assert_eq!(of("AccessDeniedException"), Error::KeyUnusable("access denied to kms:Decrypt".to_owned()));
        assert_eq!(of("ExpiredTokenException"), Error::Credentials("ExpiredTokenException".to_owned()));
        assert_eq!(of("KMSInternalException"), Error::Unavailable("AWS KMS answered KMSInternalException".to_owned()));
    }
}
