//! A KMS plugin for kube-apiserver: serves `v2.KeyManagementService` and `v1beta1.KeyManagementService` on one unix socket.

pub mod backend;
pub mod keyring;
mod secret_file;
pub mod serve;
