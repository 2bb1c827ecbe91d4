//! A server as narrow as kine, in front of a real etcd: what kine takes is passed on, and everything else is refused as kine refuses it.

use std::sync::{Arc, Mutex};

use etcd_client::CompareOp;
use etcd_client::proto::*;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::uri::PathAndQuery;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::Etcd;

/// The transactions that kine knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    Create,
    Update,
    Delete,
    Compact,
}

/// A transaction as it came in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SeenTxn {
    /// Nothing when it was refused.
    pub(crate) shape: Option<Shape>,
    /// The keys that it puts or deletes.
    pub(crate) writes: Vec<Vec<u8>>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Kine {
    port: u16,
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    transactions: Mutex<Vec<SeenTxn>>,
    refused: Mutex<Vec<String>>,
}

impl Kine {
    /// Serves what is in that etcd.
    pub(crate) fn in_front_of(etcd: &Etcd) -> Self {
        Self::start(etcd, false)
    }

    /// The same as of releases of before keys could be asked for without their values.
    pub(crate) fn older(etcd: &Etcd) -> Self {
        Self::start(etcd, true)
    }

    fn start(etcd: &Etcd, without_keys_only: bool) -> Self {
        let (seen, endpoint) = (Arc::new(Seen::default()), etcd.endpoint());
        let (stop, stopped) = oneshot::channel();
        let (serves, served) = std::sync::mpsc::channel();
        let bridge = seen.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let channel = Channel::from_shared(endpoint).expect("it is an endpoint").connect_lazy();
                let bridge = Bridge { channel, seen: bridge, without_keys_only };
                let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).expect("there is a free port");
                serves.send(incoming.local_addr().expect("it is bound").port()).expect("somebody waits");
                let server = tonic::transport::Server::builder()
                    .add_service(PbKvServer::new(bridge.clone()))
                    .add_service(PbLeaseServer::new(bridge.clone()))
                    .add_service(PbMaintenanceServer::new(bridge.clone()))
                    .add_service(PbWatchServer::new(bridge));
                let stopped = async { _ = stopped.await };
                // Not gracefully: a watch never ends.
                tokio::select! {
                    served = server.serve_with_incoming(incoming) => served.expect("it serves"),
                    () = stopped => {}
                }
            });
        });
        let port = served.recv().expect("it serves");
        Self { port, seen, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The transactions that came in.
    pub(crate) fn transactions(&self) -> Vec<SeenTxn> {
        self.seen.transactions.lock().expect("no panic").clone()
    }

    /// What was refused, and why.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.seen.refused.lock().expect("no panic").clone()
    }
}

impl Drop for Kine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A lease of kine is its time to live. The lease of etcd behind it has that in its lower half, so that keys can share none.
mod lease {
    use std::sync::atomic::{AtomicI64, Ordering};

    pub(super) fn behind(ttl: i64) -> i64 {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        NEXT.fetch_add(1, Ordering::SeqCst) << 32 | ttl
    }

    pub(super) fn in_front(id: i64) -> i64 {
        id & 0xffff_ffff
    }
}

/// kine's own place for what API servers store under `compact_rev_key`.
const COMPACT_REV_KEY: &[u8] = b"compact_rev_key";
const COMPACT_REV_KEY_APISERVER: &[u8] = b"compact_rev_key_apiserver";

#[derive(Clone)]
struct Bridge {
    channel: Channel,
    seen: Arc<Seen>,
    without_keys_only: bool,
}

/// Which of kine's four a transaction is.
fn shape(txn: &PbTxnRequest) -> Option<Shape> {
    use PbTxnOpRequest::{RequestDeleteRange as Delete, RequestPut as Put, RequestRange as Range};
    fn operations(operations: &[PbTxnRequestOp]) -> Vec<&PbTxnOpRequest> {
        operations.iter().filter_map(|operation| operation.request.as_ref()).collect()
    }
    let (success, failure) = (operations(&txn.success), operations(&txn.failure));
    let compare = match txn.compare.as_slice() {
        [] => None,
        [compare] if compare.result == CompareOp::Equal as i32 => Some(compare),
        _ => return None,
    };
    match (compare, compare.and_then(|compare| compare.target_union.as_ref()), success.as_slice(), failure.as_slice()) {
        (None, None, [Range(_), Delete(_)], []) => Some(Shape::Delete),
        (Some(_), Some(PbTargetUnion::ModRevision(0)), [Put(_)], []) => Some(Shape::Create),
        (Some(_), Some(PbTargetUnion::ModRevision(_)), [Put(_)], [Range(_)]) => Some(Shape::Update),
        (Some(_), Some(PbTargetUnion::ModRevision(_)), [Delete(_)], [Range(_)]) => Some(Shape::Delete),
        (Some(compare), Some(PbTargetUnion::Version(_)), [Put(_)], [Range(_)]) if compare.key == COMPACT_REV_KEY => {
            Some(Shape::Compact)
        }
        _ => None,
    }
}

/// The keys that operations write, those of transactions within transactions too.
fn writes(operations: &[PbTxnRequestOp]) -> Vec<Vec<u8>> {
    let of = |operation: &PbTxnRequestOp| match &operation.request {
        Some(PbTxnOpRequest::RequestPut(put)) => vec![put.key.clone()],
        Some(PbTxnOpRequest::RequestDeleteRange(delete)) => vec![delete.key.clone()],
        Some(PbTxnOpRequest::RequestTxn(txn)) => [writes(&txn.success), writes(&txn.failure)].concat(),
        _ => Vec::new(),
    };
    operations.iter().flat_map(of).collect()
}

/// Its headers have a revision and nothing else.
fn header(header: Option<PbResponseHeader>) -> Option<PbResponseHeader> {
    header.map(|header| PbResponseHeader { revision: header.revision, ..PbResponseHeader::default() })
}

/// It does not count versions.
fn key_value(kv: PbKeyValue) -> PbKeyValue {
    PbKeyValue { version: 0, lease: lease::in_front(kv.lease), ..kv }
}

fn range(response: PbRangeResponse) -> PbRangeResponse {
    let kvs = response.kvs.into_iter().map(key_value).collect();
    PbRangeResponse { header: header(response.header), kvs, ..response }
}

impl Bridge {
    /// Asks etcd.
    async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut etcd = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        etcd.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        Ok(etcd.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    fn refuse<T>(&self, status: Status) -> Result<T, Status> {
        self.seen.refused.lock().expect("no panic").push(status.message().to_owned());
        Err(status)
    }

    /// What kine answers to what it does not know: an error of Go, which gRPC knows no code for.
    fn unsupported<T>(&self, what: &str) -> Result<T, Status> {
        self.refuse(Status::unknown(format!("{what} is not supported")))
    }

    /// A put as etcd is to make it, under a new lease of the same time.
    async fn with_lease(&self, put: &mut PbPutRequest) -> Result<(), Status> {
        put.ignore_lease = false;
        if put.lease > 0 {
            let grant = PbLeaseGrantRequest { ttl: put.lease, id: lease::behind(put.lease) };
            let granted: PbLeaseGrantResponse = self.ask("/etcdserverpb.Lease/LeaseGrant", grant).await?;
            put.lease = granted.id;
        }
        Ok(())
    }

    async fn pass_on(&self, mut txn: PbTxnRequest) -> Result<PbTxnResponse, Status> {
        for operation in &mut txn.success {
            if let Some(PbTxnOpRequest::RequestPut(put)) = &mut operation.request {
                self.with_lease(put).await?;
            }
        }
        let mut answer: PbTxnResponse = self.ask("/etcdserverpb.KV/Txn", txn).await?;
        answer.header = header(answer.header);
        for response in &mut answer.responses {
            if let Some(PbTxnOpResponse::ResponseRange(found)) = &mut response.response {
                *found = range(std::mem::take(found));
            }
        }
        Ok(answer)
    }

    /// The version and the value of what API servers know as `compact_rev_key` are stored as `<version>|<value>` under another key.
    async fn compact_revision(&self, mut txn: PbTxnRequest) -> Result<PbTxnResponse, Status> {
        let get = PbRangeRequest { key: COMPACT_REV_KEY_APISERVER.to_vec(), ..PbRangeRequest::default() };
        let found: PbRangeResponse = self.ask("/etcdserverpb.KV/Range", get).await?;
        let stored = found.kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()).unwrap_or_default();
        let (version, value) = stored.split_once('|').unwrap_or(("0", ""));
        let version: i64 = version.parse().expect("we have written it");
        let expected = match txn.compare.first().and_then(|compare| compare.target_union.as_ref()) {
            Some(PbTargetUnion::Version(expected)) => *expected,
            _ => return self.unsupported("transaction"),
        };
        if expected != version {
            let kv =
                PbKeyValue { key: COMPACT_REV_KEY.to_vec(), value: value.into(), version, ..PbKeyValue::default() };
            let range = PbRangeResponse { kvs: vec![kv], count: 1, ..PbRangeResponse::default() };
            let response = PbResponseOp { response: Some(PbTxnOpResponse::ResponseRange(range)) };
            return Ok(PbTxnResponse { header: header(found.header), succeeded: false, responses: vec![response] });
        }
        let Some(PbTxnOpRequest::RequestPut(put)) = txn.success.pop().and_then(|operation| operation.request) else {
            return self.unsupported("transaction");
        };
        let value = [format!("{}|", version + 1).as_bytes(), &put.value].concat();
        let put = PbPutRequest { key: COMPACT_REV_KEY_APISERVER.to_vec(), value, ..PbPutRequest::default() };
        let answer: PbPutResponse = self.ask("/etcdserverpb.KV/Put", put).await?;
        Ok(PbTxnResponse { header: header(answer.header), succeeded: true, responses: Vec::new() })
    }
}

#[tonic::async_trait]
impl PbKvService for Bridge {
    type RangeStreamStream = BoxStream<'static, Result<PbRangeStreamResponse, Status>>;

    async fn range(&self, request: Request<PbRangeRequest>) -> Result<Response<PbRangeResponse>, Status> {
        let request = request.into_inner();
        let refused = [
            ("keysOnly", self.without_keys_only && request.keys_only),
            ("sortOrder", request.sort_order != 0),
            ("sortTarget", request.sort_target != 0),
            ("serializable", request.serializable),
            ("minModRevision", request.min_mod_revision != 0),
            ("maxModRevision", request.max_mod_revision != 0),
            ("minCreateRevision", request.min_create_revision != 0),
            ("maxCreateRevision", request.max_create_revision != 0),
            ("limit of a single key", request.range_end.is_empty() && request.limit > 1),
        ];
        if let Some((what, _)) = refused.into_iter().find(|(_, is_so)| *is_so) {
            return self.refuse(Status::unknown(format!("{what} is unsupported")));
        }
        Ok(Response::new(range(self.ask("/etcdserverpb.KV/Range", request).await?)))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let txn = request.into_inner();
        let shape = shape(&txn);
        let writes = [writes(&txn.success), writes(&txn.failure)].concat();
        self.seen.transactions.lock().expect("no panic").push(SeenTxn { shape, writes });
        let Some(shape) = shape else {
            return self.refuse(Status::invalid_argument("etcdserver: unsupported operations in txn request"));
        };
        if let (Shape::Create, Some(PbTxnOpRequest::RequestPut(put))) =
            (shape, txn.success.first().and_then(|operation| operation.request.as_ref()))
            && (put.ignore_lease || put.ignore_value || put.prev_kv)
        {
            return self.unsupported("ignoreLease, ignoreValue or prevKv");
        }
        let answer = match shape {
            Shape::Compact => self.compact_revision(txn).await?,
            _ => self.pass_on(txn).await?,
        };
        Ok(Response::new(answer))
    }

    async fn compact(&self, request: Request<PbCompactionRequest>) -> Result<Response<PbCompactionResponse>, Status> {
        let answer: PbCompactionResponse = self.ask("/etcdserverpb.KV/Compact", request.into_inner()).await?;
        Ok(Response::new(PbCompactionResponse { header: header(answer.header) }))
    }

    async fn put(&self, _: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        self.unsupported("put")
    }

    async fn delete_range(&self, _: Request<PbDeleteRequest>) -> Result<Response<PbDeleteResponse>, Status> {
        self.unsupported("delete")
    }

    async fn range_stream(&self, _: Request<PbRangeRequest>) -> Result<Response<Self::RangeStreamStream>, Status> {
        self.unsupported("range stream")
    }
}

#[tonic::async_trait]
impl PbLeaseService for Bridge {
    type LeaseKeepAliveStream = BoxStream<'static, Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        let ttl = request.into_inner().ttl;
        Ok(Response::new(PbLeaseGrantResponse {
            header: Some(PbResponseHeader::default()),
            id: ttl,
            ttl,
            ..PbLeaseGrantResponse::default()
        }))
    }

    async fn lease_revoke(&self, _: Request<PbLeaseRevokeRequest>) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        self.unsupported("lease revoke")
    }

    async fn lease_keep_alive(
        &self,
        _: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.unsupported("lease keep alive")
    }

    async fn lease_time_to_live(
        &self,
        _: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        self.unsupported("lease time to live")
    }

    async fn lease_leases(&self, _: Request<PbLeaseLeasesRequest>) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        self.unsupported("lease leases")
    }
}

#[tonic::async_trait]
impl PbMaintenanceService for Bridge {
    type SnapshotStream = BoxStream<'static, Result<PbSnapshotResponse, Status>>;

    async fn status(&self, request: Request<PbStatusRequest>) -> Result<Response<PbStatusResponse>, Status> {
        let status: PbStatusResponse = self.ask("/etcdserverpb.Maintenance/Status", request.into_inner()).await?;
        let (header, version) = (Some(PbResponseHeader::default()), status.version);
        Ok(Response::new(PbStatusResponse { header, version, db_size: status.db_size, ..PbStatusResponse::default() }))
    }

    async fn alarm(&self, _: Request<PbAlarmRequest>) -> Result<Response<PbAlarmResponse>, Status> {
        self.unsupported("alarm")
    }

    async fn defragment(&self, _: Request<PbDefragmentRequest>) -> Result<Response<PbDefragmentResponse>, Status> {
        self.unsupported("defragment")
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Result<Response<PbHashResponse>, Status> {
        self.unsupported("hash")
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Result<Response<PbHashKvResponse>, Status> {
        self.unsupported("hash kv")
    }

    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        self.unsupported("snapshot")
    }

    async fn move_leader(&self, _: Request<PbMoveLeaderRequest>) -> Result<Response<PbMoveLeaderResponse>, Status> {
        self.unsupported("move leader")
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> Result<Response<PbDowngradeResponse>, Status> {
        self.unsupported("downgrade")
    }
}

#[tonic::async_trait]
impl PbWatchService for Bridge {
    type WatchStream = BoxStream<'static, Result<PbWatchResponse, Status>>;

    async fn watch(&self, requests: Request<Streaming<PbWatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let requests = requests.into_inner().filter_map(async |request| {
            let mut request = request.ok()?;
            if let Some(PbWatchRequestUnion::CreateRequest(create)) = &mut request.request_union {
                // It sends every answer whole.
                create.fragment = false;
            }
            Some(request)
        });
        let mut etcd = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        etcd.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = tonic_prost::ProstCodec::<PbWatchRequest, PbWatchResponse>::default();
        let answers = etcd.streaming(Request::new(requests), path, codec).await?.into_inner();
        let answers = answers.map(|answer| {
            let mut answer = answer?;
            // The answer to the request has an empty header.
            let is_first = answer.created;
            answer.header =
                header(answer.header).map(|header| if is_first { PbResponseHeader::default() } else { header });
            for event in &mut answer.events {
                event.kv = event.kv.take().map(key_value);
                event.prev_kv = event.prev_kv.take().map(key_value);
            }
            Ok(answer)
        });
        Ok(Response::new(answers.boxed()))
    }
}
