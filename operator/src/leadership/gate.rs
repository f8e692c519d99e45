//! Holds back the writes of a process that does not lead, in the one place that all of them pass: the client. No reconcile can forget
//! to ask, and one that was stopped in the middle and wakes up when another process leads does no harm.

use super::Leadership;
use http::{Method, Request};
use std::{
    future::{Future, ready},
    pin::Pin,
    task::{Context, Poll},
};
use tower::{BoxError, Layer, Service};

/// Why a write was held back.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this process does not lead, so it does not write")]
pub struct NotLeading;

/// A layer of a client that lets writes through only while this process leads.
#[derive(Clone)]
pub struct Gate(pub Leadership);

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { leadership: self.0.clone(), inner }
    }
}

/// A client's service behind the gate.
#[derive(Clone)]
pub struct Gated<S> {
    leadership: Leadership,
    inner: S,
}

impl<S, B> Service<Request<B>> for Gated<S>
where
    S: Service<Request<B>, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        if !reads && !self.leadership.is_leader() {
            return Box::pin(ready(Err(NotLeading.into())));
        }
        Box::pin(self.inner.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tokio::sync::watch;
    use tower::service_fn;

    /// Whether a request comes through.
    async fn passes(leadership: Leadership, method: Method) -> bool {
        let mut service = Gate(leadership).layer(service_fn(|_: Request<()>| ready(Ok::<_, BoxError>(()))));
        let request = Request::builder().method(method).body(()).expect("a request");
        service.call(request).await.is_ok()
    }

    #[tokio::test]
    async fn only_a_leader_writes_and_everybody_reads() {
        let now = Instant::now();
        let standing = |until| {
            let (sender, receiver) = watch::channel(until);
            drop(sender);
            Leadership(Some(receiver))
        };
        let (later, earlier) = (now + Duration::from_secs(60), now.checked_sub(Duration::from_millis(1)));
        for (leadership, writes) in
            [(Leadership::alone(), true), (standing(Some(later)), true), (standing(None), false), (standing(earlier), false)]
        {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(passes(leadership.clone(), method).await, writes);
            }
            assert!(passes(leadership, Method::GET).await);
        }
    }
}
