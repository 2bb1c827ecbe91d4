//! What requests may take before the services see them: so many at a time over all connections, and so long each to arrive.
//!
//! A connection alone is bounded by HTTP/2 (its streams and its window). Many together are bounded here: a request that finds no
//! place is not read, and so waits in its client's part of the window.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Bytes, Service, http};
use tower_layer::Layer;

/// So many requests are read or answered at a time: with the longest messages 64 MiB.
const MAX_REQUESTS: usize = 1024;

/// Bounds a service.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    places: Arc<Semaphore>,
    body_time: Duration,
}

impl Intake {
    pub(super) fn new(body_time: Duration) -> Self {
        Self::of(MAX_REQUESTS, body_time)
    }

    fn of(places: usize, body_time: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), body_time }
    }
}

impl<S> Layer<S> for Intake {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, intake: self.clone() }
    }
}

/// A service that is bounded.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    intake: Intake,
}

impl<S, R> Service<http::Request<Body>> for Bounded<S>
where
    S: Service<http::Request<Body>, Response = R> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = R;
    type Error = S::Error;
    type Future = BoxFuture<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        // The one that is ready.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let Intake { places, body_time } = self.intake.clone();
        Box::pin(async move {
            // It is never closed.
            let _place = places.acquire_owned().await;
            let request = request.map(|body| {
                let end = Box::pin(tokio::time::sleep(body_time));
                Body::new(Arriving { body, end })
            });
            inner.call(request).await
        })
    }
}

/// A body that has to arrive in time.
struct Arriving {
    body: Body,
    end: Pin<Box<Sleep>>,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.end.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Some(Err(tonic::Status::deadline_exceeded("the request did not arrive in time"))))
            }
            poll => poll,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Counts the requests that have reached it, and keeps each until it is told to go on.
    #[derive(Clone, Default)]
    struct Counting {
        reached: Arc<AtomicUsize>,
        go_on: Arc<Notify>,
    }

    impl Service<http::Request<Body>> for Counting {
        type Response = ();
        type Error = Infallible;
        type Future = BoxFuture<(), Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            self.reached.fetch_add(1, Ordering::SeqCst);
            let go_on = Arc::clone(&self.go_on);
            Box::pin(async move {
                go_on.notified().await;
                Ok(())
            })
        }
    }

    /// With a limit for each connection alone, many connections together had none.
    #[tokio::test]
    async fn the_places_are_shared_by_all_connections() {
        let counting = Counting::default();
        let intake = Intake::of(2, Duration::from_secs(20));
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let mut connection = intake.layer(counting.clone());
            calls.spawn(connection.call(http::Request::new(Body::empty())));
        }
        for (ended, reached) in [(0, 2), (1, 3), (3, 5)] {
            while calls.len() > 5 - ended {
                counting.go_on.notify_one();
                calls.join_next().await.unwrap().unwrap().unwrap();
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(counting.reached.load(Ordering::SeqCst), reached, "after {ended} have ended");
        }
    }
}
