//! A record as it comes from a topic.

use crate::kafka::{
    header::{self, HeaderError, RecordHeader},
    letter,
};
use rdkafka::{
    Message,
    message::{BorrowedMessage, Headers},
};

/// A record, borrowed from the client or from where it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub offset: u64,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
    header: Option<&'a [u8]>,
    /// It has passed the stages already: it goes on at the indexer.
    pub skips_stages: bool,
}

/// A record that waits until it may start.
#[derive(Debug)]
pub(super) struct HeldRecord {
    offset: u64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    header: Option<Vec<u8>>,
    skips_stages: bool,
}

impl<'a> Record<'a> {
    pub fn of(message: &'a BorrowedMessage<'_>) -> Self {
        let (mut header, mut skips_stages) = (None, false);
        for found in message.headers().iter().flat_map(|headers| headers.iter()) {
            match found.key {
                header::NAME => header = Some(found.value.unwrap_or_default()),
                letter::names::RESUME => skips_stages = found.value == Some(letter::INDEXER.as_bytes()),
                _ => {}
            }
        }
        let key = message.key().unwrap_or_default();
        Self { offset: message.offset() as u64, key, value: message.payload(), header, skips_stages }
    }

    /// What Penstock itself says about the record; nothing for one from outside.
    pub fn header(&self) -> Result<Option<RecordHeader<'a>>, HeaderError> {
        self.header.map(RecordHeader::decode).transpose()
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    pub fn to_held(self) -> HeldRecord {
        let Self { offset, key, value, header, skips_stages } = self;
        HeldRecord { offset, key: key.into(), value: value.map(Into::into), header: header.map(Into::into), skips_stages }
    }
}

impl HeldRecord {
    pub fn as_record(&self) -> Record<'_> {
        let Self { offset, key, value, header, skips_stages } = self;
        Record { offset: *offset, key, value: value.as_deref(), header: header.as_deref(), skips_stages: *skips_stages }
    }
}
