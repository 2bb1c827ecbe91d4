//! `atrest-kms-plugin`: the KMS plugin's command line.

fn main() {}
