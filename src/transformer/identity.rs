use super::{DataContext, ENCRYPTED_PREFIX, Error, FromStorage, Transformer};
use crate::secret::Plaintext;

/// The value as it is, refused when it carries the marker of ciphertext.
///
/// Upstream: `encrypt/identity.NewEncryptCheckTransformer`.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

impl Transformer for Identity {
    fn transform_from_storage<'a>(&self, data: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        if data.starts_with(ENCRYPTED_PREFIX) {
            return Err(Error::EncryptedDataReadByIdentity);
        }
        Ok(FromStorage::leaf(Plaintext::Stored(data)))
    }

    fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(plaintext);
        Ok(())
    }
}
