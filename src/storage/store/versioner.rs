use super::codec::StoredObject;

/// Reads and writes the resource versions of objects. Upstream: `storage.APIObjectVersioner`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Versioner;

/// A resource version that is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion: Invalid value: {0:?}: must be a non-negative integer")]
pub struct InvalidResourceVersion(pub String);

impl Versioner {
    /// The number in a resource version; 0 of an empty one.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn parse_resource_version(self, resource_version: &str) -> Result<u64, InvalidResourceVersion> {
        if resource_version.is_empty() {
            return Ok(0);
        }
        // Go's parser takes no sign.
        let number = resource_version.parse().ok().filter(|_| !resource_version.starts_with('+'));
        number.ok_or_else(|| InvalidResourceVersion(resource_version.to_owned()))
    }

    /// The resource version of an object.
    ///
    /// # Errors
    ///
    /// When it is no number.
    pub fn object_resource_version(self, object: &impl StoredObject) -> Result<u64, InvalidResourceVersion> {
        self.parse_resource_version(object.resource_version())
    }

    /// Gives an object the revision of its key. 0 is none.
    pub fn update_object(self, object: &mut impl StoredObject, revision: i64) {
        object.set_resource_version(if revision == 0 { String::new() } else { revision.to_string() });
    }

    /// Takes out what is not stored.
    pub fn prepare_object_for_storage(self, object: &mut impl StoredObject) {
        object.set_resource_version(String::new());
        object.clear_self_link();
    }

    /// Which of two objects is newer.
    ///
    /// # Errors
    ///
    /// When one of the versions is no number.
    pub fn compare_resource_version<O: StoredObject>(
        self,
        left: &O,
        right: &O,
    ) -> Result<std::cmp::Ordering, InvalidResourceVersion> {
        Ok(self.object_resource_version(left)?.cmp(&self.object_resource_version(right)?))
    }
}
