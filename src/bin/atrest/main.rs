//! atrest
fn main() {}
