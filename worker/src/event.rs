//! Terminal events: what became of documents, and of which.

/// Which document an event speaks of, within a step. Travels with the document from the publisher to the backend's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Number of the source document within its step, from 1.
    pub seq: u64,
    /// 0 for the source document itself, from 1 for its descendants in the order in which they were made.
    pub ordinal: u32,
    /// With ordinal 0: the number of all descendants that this passage made.
    pub children: u32,
}

impl Tag {
    /// The tag of a source document that has no descendants (yet).
    pub const fn source(seq: u64) -> Self {
        Self { seq, ordinal: 0, children: 0 }
    }
}

/// How a document ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The backend has it.
    Finished,
    /// It failed and is in the dead letter.
    Failed,
    /// A stage dropped it.
    Dropped,
}

impl Outcome {
    /// The word used in metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Why a document failed or was dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The number of the source document.
    pub seq: u64,
    /// The id of the document; empty where it has none.
    pub id: String,
    /// The stage, `indexer`, or empty for a record that could not be read.
    pub stage: String,
    /// The reason.
    pub reason: String,
}

/// Many events of one outcome, in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    /// The publisher's epoch that numbered the documents.
    pub epoch: u64,
    /// Which passage of the documents through the pipeline: the tenure of their partition's reader.
    pub attempt: u64,
    /// How all of them ended.
    pub outcome: Outcome,
    seqs: Vec<u64>,
    /// Empty while all are 0.
    ordinals: Vec<u32>,
    /// Empty while all are 0.
    children: Vec<u32>,
    /// One for each failed or dropped document; none for finished ones.
    pub details: Vec<Detail>,
}

impl EventBatch {
    /// No events yet.
    pub fn new(epoch: u64, attempt: u64, outcome: Outcome) -> Self {
        Self { epoch, attempt, outcome, seqs: Vec::new(), ordinals: Vec::new(), children: Vec::new(), details: Vec::new() }
    }

    /// Adds an event.
    pub fn push(&mut self, tag: Tag) {
        let before = self.seqs.len();
        self.seqs.push(tag.seq);
        push_sparse(&mut self.ordinals, before, tag.ordinal);
        push_sparse(&mut self.children, before, tag.children);
    }

    /// Adds an event with its reason.
    pub fn push_with(&mut self, tag: Tag, detail: Detail) {
        self.push(tag);
        self.details.push(detail);
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// Whether no event speaks of a family: every document is a source document without descendants.
    pub fn is_plain(&self) -> bool {
        self.ordinals.is_empty() && self.children.is_empty()
    }

    /// The numbers of the source documents, one for each event.
    pub fn seqs(&self) -> &[u64] {
        &self.seqs
    }

    /// Which of the source document's descendants each event is about; empty if all are about source documents.
    pub fn ordinals(&self) -> &[u32] {
        &self.ordinals
    }

    /// How many descendants each source document has; empty if none has any.
    pub fn children(&self) -> &[u32] {
        &self.children
    }

    /// The same batch with these events; `None` if a column is neither empty nor of the length of the others.
    pub fn with_columns(self, seqs: Vec<u64>, ordinals: Vec<u32>, children: Vec<u32>, details: Vec<Detail>) -> Option<Self> {
        let fits = |column: &[u32]| column.is_empty() || column.len() == seqs.len();
        (fits(&ordinals) && fits(&children)).then_some(Self { seqs, ordinals, children, details, ..self })
    }

    /// The events in batches of so many at most.
    pub fn split(self, most: usize) -> Vec<Self> {
        if self.len() <= most {
            return vec![self];
        }
        let Self { epoch, attempt, outcome, .. } = self;
        let tags: Vec<Tag> = self.tags().collect();
        let mut details = self.details.into_iter();
        let part = |tags: &[Tag]| {
            let mut part = Self::new(epoch, attempt, outcome);
            tags.iter().for_each(|tag| part.push(*tag));
            part.details = details.by_ref().take(tags.len()).collect();
            part
        };
        tags.chunks(most.max(1)).map(part).collect()
    }

    /// All events.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = Tag> + '_ {
        let at = |column: &[u32], i: usize| column.get(i).copied().unwrap_or(0);
        self.seqs.iter().enumerate().map(move |(i, seq)| Tag { seq: *seq, ordinal: at(&self.ordinals, i), children: at(&self.children, i) })
    }
}

/// Appends to a column that stays empty while all of its values are 0.
fn push_sparse(column: &mut Vec<u32>, before: usize, value: u32) {
    if value == 0 && column.is_empty() {
        return;
    }
    column.resize(before, 0);
    column.push(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_back_the_tags_that_were_pushed() {
        let tags = [Tag::source(1), Tag { seq: 2, ordinal: 1, children: 0 }, Tag { seq: 2, ordinal: 0, children: 1 }, Tag::source(3)];
        let mut batch = EventBatch::new(1, 1, Outcome::Finished);
        batch.push(tags[0]);
        assert!(batch.is_plain());
        tags[1..].iter().for_each(|tag| batch.push(*tag));
        assert!(!batch.is_plain());
        assert_eq!(batch.tags().collect::<Vec<_>>(), tags);
    }

    #[test]
    fn a_split_batch_has_the_same_events() {
        let mut batch = EventBatch::new(7, 2, Outcome::Failed);
        for seq in 1..=7 {
            batch.push_with(Tag { seq, ordinal: (seq % 2) as u32, children: 0 }, Detail { seq, ..Detail::default() });
        }
        let parts = batch.clone().split(3);
        assert_eq!(parts.iter().map(EventBatch::len).collect::<Vec<_>>(), [3, 3, 1]);
        assert_eq!(parts.iter().flat_map(EventBatch::tags).collect::<Vec<_>>(), batch.tags().collect::<Vec<_>>());
        assert_eq!(parts.into_iter().flat_map(|part| part.details).collect::<Vec<_>>(), batch.details);
    }
}
