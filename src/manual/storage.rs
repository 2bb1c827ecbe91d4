//! # kube-apiserver's storage layer, call by call
//!
//! A [`Store`] does to etcd what kube-apiserver does with the objects of one resource: `storage.Interface`. It is for controllers,
//! migrations, forensics and test benches that have to be where the API server is, with the same keys, transactions, leases, revisions
//! and errors. Whatever is written here, a running API server sees as if another one had written it.
//!
//! | upstream | here |
//! |---|---|
//! | `runtime.Codec`, `newFunc` | [`Codec`]: [`JsonCodec`], [`RawCodec`], or one's own |
//! | `value.Transformer` | [`StorageTransformer`]: [`Encryption`], or any [`Transformer`](crate::transformer::Transformer) |
//! | `Versioner`, `Create`, `Delete`, `Watch`, `Get`, `GetList`, `GuaranteedUpdate` | [`Store::versioner`], [`create`](Store::create), [`delete`](Store::delete), [`watch`](Store::watch), [`get`](Store::get), [`get_list`](Store::get_list), [`guaranteed_update`](Store::guaranteed_update) |
//! | `Stats`, `Count`, `ReadinessCheck`, `RequestWatchProgress`, `GetCurrentResourceVersion`, `CompactRevision` | the same in lower case |
//! | `cacher.Cacher` | [`Cacher`](crate::cacher::Cacher) |
//! | `etcd3.StartCompactor` | [`Compactor`] |
//!
//! The examples are run by `cargo xtask test` against an etcd that holds a small cluster. To run them elsewhere, set `ETCDCTL_ENDPOINTS`
//! to an etcd that nobody needs.
//!
//! # A store
//!
//! [`Encryption`] applies an EncryptionConfiguration, and [`RawCodec`] leaves the bytes of objects as they are: of protobuf nothing is
//! lost that nobody here knows.
//!
//! ```
//! use std::sync::Arc;
//!
//! use atrest::config;
//! use atrest::resource::GroupResource;
//! use atrest::storage::{Client, ConnectOptions, Encryption, GetOptions, RawCodec, Store, StoreOptions};
//! use atrest::transformer::ResourceTransformers;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = std::env::var("ETCDCTL_ENDPOINTS").map_err(|_| "ETCDCTL_ENDPOINTS names no etcd: `cargo xtask test` starts one")?;
//! let client = Client::connect(ConnectOptions::new([endpoint.parse()?])).await?;
//!
//! let file = std::fs::read("tests/vectors/snapshots/encryption-config-local.yaml")?;
//! let configuration = config::load(&file, &config::Options::default())?.config;
//! let transformers = Arc::new(ResourceTransformers::from_configurations(&[configuration])?);
//!
//! let secrets = GroupResource::new("", "secrets");
//! let encryption = Encryption::new(transformers, secrets.clone());
//! let store = Store::new(&client, RawCodec, encryption, StoreOptions::new(secrets, "/secrets"))?;
//!
//! let secret = store.get("/secrets/team-a/p0-app-0", &GetOptions::default()).await?;
//! assert_eq!(secret.decode()?.name(), Some("p0-app-0"));
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Create, get, delete
//!
//! Objects have no resource version when they are created, and the revision of their key afterwards. A deletion gives the object as it
//! was, with the revision of the deletion. `validate` is asked again whenever somebody changes the object in between.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! let created = store.create("/widgets/ns/a", &widget("a"), None).await?;
//! let read = store.get("/widgets/ns/a", &GetOptions::default()).await?;
//! assert_eq!(read, created);
//!
//! let again = store.create("/widgets/ns/a", &widget("a"), None).await.unwrap_err();
//! assert_eq!(again.status(Verb::Create).reason, "AlreadyExists");
//!
//! let deleted = store.delete("/widgets/ns/a", DeleteOptions::default(), |_| Ok(())).await?.expect("it could be read");
//! assert!(store.versioner().compare_resource_version(&deleted, &created)?.is_gt());
//! let gone = store.get("/widgets/ns/a", &GetOptions::default()).await.unwrap_err();
//! assert!(gone.is_not_found());
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Guaranteed update
//!
//! The function gets the object as it is and gives it as it is to be, as often as it takes until nobody else has written it in between.
//! A failed precondition is a conflict at once; a lost compare-and-swap is a retry, and [`Updated::conflicts`] counts them. What does not
//! change is not written, unless it is stale: that is how storage is migrated. [`LeasePolicy`] says what becomes of the lease; `Upstream(None)`
//! takes it away, as upstream does.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! store.create("/widgets/ns/a", &widget("a"), None).await?;
//! let update = |mut widget: JsonObject, _: ResponseMeta| {
//!     widget.fields_mut().insert("size".to_owned(), 3.into());
//!     Ok((widget, LeasePolicy::Preserve))
//! };
//! let updated = store.guaranteed_update("/widgets/ns/a", false, None, None, update).await?;
//! assert!(updated.written);
//! assert_eq!((updated.conflicts, &updated.object.fields()["size"]), (0, &3.into()));
//!
//! let same = store.guaranteed_update("/widgets/ns/a", false, None, None, update).await?;
//! assert!(!same.written);
//!
//! let stranger = Preconditions { uid: Some("of another object".to_owned()), resource_version: None };
//! let refused = store.guaranteed_update("/widgets/ns/a", false, Some(&stranger), None, update).await.unwrap_err();
//! assert_eq!(refused.status(Verb::Update).code, 409);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Lists
//!
//! All of a list is of one revision, and a continue token goes on at it; tokens are upstream's, byte for byte. When that revision is
//! compacted away, the error has a token that goes on at a newer one. Objects that cannot be read fail the list, as upstream does it, or
//! are listed apart.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! for name in ["a", "b", "c"] {
//!     store.create(&format!("/widgets/ns/{name}"), &widget(name), None).await?;
//! }
//! let first = store.get_list("/widgets", &ListOptions { limit: 2, ..ListOptions::default() }).await?;
//! assert_eq!((first.items.len(), first.remaining_item_count), (2, Some(1)));
//!
//! let go_on = ListOptions { continue_token: first.continue_token, ..ListOptions::default() };
//! let rest = store.get_list("/widgets", &go_on).await?;
//! assert_eq!((rest.items.len(), rest.resource_version), (1, first.resource_version));
//!
//! let b = Predicate::new(|widget: &JsonObject| widget.fields()["metadata"]["name"] == "b");
//! let list = store.get_list("/widgets", &ListOptions { predicate: b, corrupt: Corrupt::Collect, ..ListOptions::default() }).await?;
//! assert_eq!((list.items.len(), list.corrupt.len()), (1, 0));
//! assert_eq!(store.count().await?, 3);
//! assert_eq!(store.stats().await?.object_count, 3);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Watches
//!
//! Without a resource version, what is there comes first. The watch goes on when etcd is restarted or a member is lost, and no event is
//! lost or comes twice. When its revision is compacted away, the last event is [`WatchEvent::Error`] with status 410: list, and watch from
//! the revision of the list.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! store.create("/widgets/ns/a", &widget("a"), None).await?;
//! let mut watch = store.watch("/widgets", StoreWatchOptions::default())?;
//! assert!(matches!(watch.next().await, Some(WatchEvent::Added(_))));
//!
//! store.delete("/widgets/ns/a", DeleteOptions::default(), |_| Ok(())).await?;
//! let Some(WatchEvent::Deleted(widget)) = watch.next().await else { panic!("it was deleted") };
//! assert!(store.versioner().object_resource_version(&widget)? <= store.get_current_resource_version().await?);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # The watch cache
//!
//! A [`Cacher`](crate::cacher::Cacher) has one watch of etcd for as many watchers as there are. Whoever is too slow is cut off, and goes on
//! after the last event that he has seen; behind the history he is told "too old resource version".
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! use atrest::cacher::{Cacher, CacherOptions};
//!
//! let cacher = Cacher::start(store.clone(), CacherOptions::default());
//! cacher.wait_until_ready().await;
//! cacher.readiness_check()?;
//! let mut watches = Vec::new();
//! for _ in 0..100 {
//!     watches.push(cacher.watch("/widgets", StoreWatchOptions::default()).await?);
//! }
//! let created = cacher.store().create("/widgets/ns/a", &widget("a"), None).await?;
//! for watch in &mut watches {
//!     let Some(WatchEvent::Added(widget)) = watch.next().await else { panic!("it was created") };
//!     assert_eq!(*widget, created);
//! }
//! let fresh = ListOptions { resource_version: created.resource_version().to_owned(), ..ListOptions::default() };
//! assert_eq!(cacher.get_list("/widgets", &fresh).await?.items.len(), 1);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Leases and compaction
//!
//! Only Events, and what API servers say of themselves, have a lease of etcd. **The Lease objects of `coordination.k8s.io` have none**: they
//! are ordinary keys that are written every ten seconds, and whoever reads them decides whether they have expired. A lease is used again
//! for keys that are to live about as long: for a twentieth of its time, a minute and a thousand keys at most.
//!
//! A [`Compactor`] takes part in the compaction of the API servers, by their own protocol: of all that take part, one wins each interval.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! use std::time::Duration;
//!
//! let event = store.create("/widgets/ns/a", &widget("a"), Some(3600)).await?;
//! let stored = client.get(format!("{prefix}/widgets/ns/a").as_bytes()).await?.expect("it is there");
//! assert_ne!(stored.lease, 0);
//! assert_eq!(store.leases().attached().await, 1);
//!
//! let compactor = Compactor::start(&client, Duration::from_secs(300));
//! assert!(compactor.is_running());
//! let options = StoreOptions { compactor: Some(compactor), ..store.options().clone() };
//! let store = Store::new(&client, JsonCodec, Identity, options)?;
//! assert_eq!(store.compact_revision(), 0);
//! # let _ = event;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # What cannot be read
//!
//! A value that no key opens is a [`StorageError::Internal`], or, with the gate for it, a [`StorageError::CorruptObject`]. Deleting it takes
//! [`DeleteOptions::expect_unreadable`], which deletes nothing that can be read.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! client.optimistic_create(format!("{prefix}/widgets/ns/bad").as_bytes(), b"no widget".to_vec(), 0).await?;
//! let unreadable = store.get("/widgets/ns/bad", &GetOptions::default()).await.unwrap_err();
//! assert_eq!(unreadable.status(Verb::Get).code, 500);
//!
//! let options = DeleteOptions { expect_unreadable: true, ..DeleteOptions::default() };
//! assert_eq!(store.delete("/widgets/ns/bad", options, |_| Ok(())).await?, None);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```
//!
//! # Metrics
//!
//! [`Metrics`] are upstream's, by name, labels and buckets, in a registry of the caller's.
//!
//! ```
#![doc = include_str!("storage/connect.rs.txt")]
//! use prometheus_client::registry::Registry;
//!
//! let mut registry = Registry::default();
//! let options = StoreOptions { metrics: Some(Metrics::register(&mut registry)), ..store.options().clone() };
//! let store = Store::new(&client, JsonCodec, Identity, options)?;
//! store.create("/widgets/ns/a", &widget("a"), None).await?;
//!
//! let mut text = String::new();
//! prometheus_client::encoding::text::encode(&mut text, &registry)?;
//! assert!(text.contains(r#"etcd_requests_total{operation="create",group="stable.example.com",resource="widgets"} 1"#));
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(example())
//! # }
//! ```

#[cfg(doc)]
use crate::storage::{
    Codec, Compactor, DeleteOptions, Encryption, JsonCodec, LeasePolicy, Metrics, RawCodec, StorageError,
    StorageTransformer, Store, Updated, WatchEvent,
};
