//! KMS plugins: what kube-apiserver asks of them, over a unix socket.

pub mod api;
