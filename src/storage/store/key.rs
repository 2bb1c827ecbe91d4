use super::error::StorageError;

/// What all keys of an API server begin with: its `--etcd-prefix` cleaned, with a slash on both sides (upstream `etcd3.New`).
///
/// ```
/// assert_eq!(atrest::storage::path_prefix("custom//prefix//"), "/custom/prefix/");
/// assert_eq!(atrest::storage::path_prefix(""), "/");
/// ```
#[must_use]
pub fn path_prefix(configured: &str) -> String {
    let mut prefix = clean(&format!("/{configured}"));
    if !prefix.ends_with('/') {
        prefix.push('/');
    }
    prefix
}

/// The key of an object below the path prefix, checked as upstream does it (`storage.PrepareKey`); of a range, with a slash at the end.
///
/// # Errors
///
/// [`StorageError::InvalidKey`] when the key is empty, leads out of where it is, or is not below the prefix of the resource.
pub fn prepare_key(
    path_prefix: &str,
    resource_prefix: &str,
    key: &str,
    recursive: bool,
) -> Result<String, StorageError> {
    let leads_out = |dots: &str| {
        key == dots
            || key.starts_with(&format!("{dots}/"))
            || key.ends_with(&format!("/{dots}"))
            || key.contains(&format!("/{dots}/"))
    };
    let invalid = |message: String| Err(StorageError::InvalidKey { message });
    if leads_out("..") || leads_out(".") {
        return invalid(format!("invalid key: {key:?}"));
    }
    if key.is_empty() || key == "/" {
        return invalid(format!("empty key: {key:?}"));
    }
    let mut key = key.to_owned();
    if recursive && !key.ends_with('/') {
        key.push('/');
    }
    if !key.starts_with(resource_prefix) {
        return invalid(format!("invalid key: {key:?} lacks resource prefix: {resource_prefix:?}"));
    }
    let below = key.strip_prefix('/').unwrap_or(&key);
    Ok(format!("{path_prefix}{below}"))
}

/// A path without empty elements, `.` and `..` (Go's `path.Clean`), of one that begins with a slash.
pub(super) fn clean(path: &str) -> String {
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => _ = elements.pop(),
            element => elements.push(element),
        }
    }
    format!("/{}", elements.join("/"))
}
