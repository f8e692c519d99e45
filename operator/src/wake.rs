//! Waking objects from outside of their watches: by observers of Kafka and pollers of pods.

use futures::{Stream, stream};
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Wakes objects of one kind. Clones wake the same ones.
///
/// The queue has no bound: the controller folds repeated wishes for one object, and takes them up at once.
pub struct Wake<K: Resource<DynamicType = ()>> {
    sender: UnboundedSender<ObjectRef<K>>,
}

impl<K: Resource<DynamicType = ()>> Clone for Wake<K> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

/// What a controller listens to.
pub struct Wishes<K: Resource<DynamicType = ()>>(UnboundedReceiver<ObjectRef<K>>);

impl<K: Resource<DynamicType = ()>> Wake<K> {
    /// A new pair.
    pub fn new() -> (Self, Wishes<K>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender }, Wishes(receiver))
    }

    /// Has the object reconciled soon.
    pub fn wake(&self, namespace: &str, name: &str) {
        // nobody listens any more: the process ends
        let _ = self.sender.send(ObjectRef::new(name).within(namespace));
    }
}

impl<K: Resource<DynamicType = ()>> Wishes<K> {
    /// The wishes, as a controller takes them.
    pub fn into_stream(self) -> impl Stream<Item = ObjectRef<K>> {
        stream::unfold(self.0, |mut receiver| async move { receiver.recv().await.map(|wish| (wish, receiver)) })
    }
}
