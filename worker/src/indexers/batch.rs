//! The batch that a lane is filling: when it is full, too large, or already has an id.

use super::{Backend, Item, Needs, Rejected, Request};
use crate::{document::Document, event::Tag};
use compact_str::CompactString;
use foldhash::fast::RandomState;
use penstock_crds::indexers::Batch as Limits;
use std::{
    collections::HashSet,
    hash::BuildHasher,
    time::{Duration, Instant},
};

/// A set of hashed ids. Two ids of one hash are taken for the same, which costs a shorter batch or a short wait, never order.
pub(super) type Ids = HashSet<u64, RandomState>;

/// A full batch on its way to the sender.
#[derive(Debug, Default)]
pub(super) struct Packet {
    pub request: Request,
    /// Hashes of the ids, one for each item, if the backend needs distinct ids; else none.
    pub keys: Vec<u64>,
}

impl Packet {
    /// Makes it ready to be filled again. Buffers keep their size, unless that is much beyond what is usual.
    pub fn clear(&mut self, usual_bytes: usize) {
        self.request.body.clear();
        self.request.body.shrink_to(usual_bytes.saturating_mul(2));
        self.request.items.clear();
        self.request.documents.clear();
        self.keys.clear();
    }
}

/// The open batch.
pub(super) struct OpenBatch {
    needs: Needs,
    max_documents: usize,
    max_bytes: usize,
    max_age: Duration,
    packet: Packet,
    ids: Ids,
    hasher: RandomState,
    opened: Option<Instant>,
}

impl OpenBatch {
    /// An empty batch.
    pub fn new(limits: &Limits, needs: Needs) -> Self {
        Self {
            needs,
            max_documents: limits.max_documents as usize,
            max_bytes: usize::try_from(limits.max_bytes.bytes()).unwrap_or(usize::MAX),
            max_age: limits.max_age.get(),
            packet: Packet::default(),
            ids: Ids::default(),
            hasher: RandomState::default(),
            opened: None,
        }
    }

    /// The hash of the id, or 0 if nobody needs it.
    pub fn key(&self, id: &str) -> u64 {
        if self.needs.distinct_ids { self.hasher.hash_one(id) } else { 0 }
    }

    /// Whether the id is in the batch already and may not be twice.
    pub fn has(&self, key: u64) -> bool {
        self.needs.distinct_ids && self.ids.contains(&key)
    }

    /// Appends the document's operation to the body, without entering it yet.
    pub fn encode(&mut self, backend: &dyn Backend, document: &Document) -> Result<(), Rejected> {
        backend.encode(document, &mut self.packet.request.body)
    }

    /// Whether the operation encoded last makes the batch too large. It does not if it is the only one.
    pub fn overflows(&self) -> bool {
        !self.packet.request.items.is_empty() && self.packet.request.body.len() > self.max_bytes
    }

    /// Enters the document whose operation was encoded last.
    pub fn enter(&mut self, document: Document, tag: Tag, key: u64) {
        if self.opened.is_none() {
            self.opened = Some(Instant::now());
        }
        if self.needs.distinct_ids {
            self.ids.insert(key);
            self.packet.keys.push(key);
        }
        let request = &mut self.packet.request;
        let end = request.body.len();
        if self.needs.keep_documents {
            request.items.push(Item { tag, id: CompactString::new(document.id()), end });
            request.documents.push(document);
        } else {
            request.items.push(Item { tag, id: document.into_id(), end });
        }
    }

    /// Whether it must be sent now.
    pub fn is_full(&self) -> bool {
        self.packet.request.items.len() >= self.max_documents || self.packet.request.body.len() >= self.max_bytes
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.packet.request.items.is_empty()
    }

    /// When it must be sent at the latest: so long after its first document.
    pub fn due(&self) -> Option<Instant> {
        self.opened.map(|opened| opened + self.max_age)
    }

    /// Takes the batch; `next` is the buffer for the coming one. An operation that was encoded but not entered goes there.
    pub fn take(&mut self, mut next: Packet) -> Packet {
        let entered = self.packet.request.items.last().map_or(0, |item| item.end);
        next.request.body.extend_from_slice(&self.packet.request.body[entered..]);
        self.packet.request.body.truncate(entered);
        self.ids.clear();
        self.opened = None;
        std::mem::replace(&mut self.packet, next)
    }
}
