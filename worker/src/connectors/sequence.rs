//! `sequence`: numbered documents, for tests and load.

use super::{Connector, ConnectorError, Cursor, Publish, ResumeFrom, Stopped};
use crate::{
    document::{Columns, Document, Fields, Key, Row},
    problem::Problems,
};
use compact_str::{CompactString, ToCompactString};
use penstock_crds::connectors as spec;
use std::sync::Arc;

/// After so many documents the progress is told.
const PROGRESS_STEP: u64 = 4096;

/// Reports what is wrong with a specification.
pub fn check(spec: &spec::Sequence, problems: &mut Problems<'_>) {
    if spec.start.checked_add(spec.count).is_none() {
        problems.add("start", "start and count together are beyond the largest number, 18446744073709551615; take a smaller start");
    }
    if spec.field.as_deref() == Some("") {
        problems.add("field", "a field needs a name; leave `field` away if documents shall be empty");
    }
}

/// Makes numbered documents.
pub struct SequenceConnector {
    count: u64,
    start: u64,
    field: Option<Key>,
    id_prefix: String,
}

impl SequenceConnector {
    /// Documents as `spec` says, their ids with a prefix.
    pub fn new(spec: &spec::Sequence, id_prefix: &str) -> Self {
        Self { count: spec.count, start: spec.start, field: spec.field.as_deref().map(Key::from), id_prefix: id_prefix.to_owned() }
    }

    fn first(&self, from: Option<&ResumeFrom>, split: &serde_json::Value) -> Result<u64, ConnectorError> {
        match from {
            None => Ok(0),
            Some(from) if from.split == *split && from.cursor.offset <= self.count => Ok(from.cursor.offset),
            Some(from) => Err(ConnectorError::new(format!(
                "the sequence has changed since the checkpoint: it was {}, now it is {split}; start the run again from the beginning",
                from.split
            ))),
        }
    }

    fn publish_all(&self, first: u64, split: u32, publish: &mut dyn Publish) -> Result<(), Stopped> {
        let columns = Arc::new(Columns::default());
        let mut id = CompactString::default();
        for done in first + 1..=self.count {
            let number = self.start + (done - 1);
            let after = Cursor { split, offset: done, record: done, line: 0 };
            id.clear();
            id.push_str(&self.id_prefix);
            id.push_str(&number.to_compact_string());
            match &self.field {
                None => publish.publish_row(Row { columns: &columns, id: &id, text: "", ends: &[], line: 0 }, after)?,
                Some(field) => {
                    let fields: Fields = [(field.clone(), number.into())].into_iter().collect();
                    publish.publish(Document::with_fields(id.clone(), fields), after)?;
                }
            }
            if done.is_multiple_of(PROGRESS_STEP) || done == self.count {
                publish.progress(done, Some(self.count));
            }
        }
        Ok(())
    }
}

impl Connector for SequenceConnector {
    fn has_cursor(&self) -> bool {
        true
    }

    fn execute(&mut self, publish: &mut dyn Publish, from: Option<&ResumeFrom>) -> Result<(), ConnectorError> {
        let split = serde_json::json!({"sequence": {"start": self.start, "count": self.count}});
        let first = self.first(from, &split)?;
        let split = publish.split(split);
        // a stopped publisher is no failure of ours
        let _: Result<(), Stopped> = self.publish_all(first, split, publish);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connectors::testing::{Recording, assert_compliance};

    fn spec(count: u64, start: u64, field: Option<&str>) -> spec::Sequence {
        spec::Sequence { count, start, field: field.map(str::to_owned) }
    }

    #[test]
    fn numbers_are_ids_and_the_field_if_there_is_one() {
        let mut recording = Recording::default();
        SequenceConnector::new(&spec(2, 9, Some("n")), "x-").execute(&mut recording, None).expect("execute");
        assert_eq!(recording.lines(), [r#"x-9 {"n":9}"#, r#"x-10 {"n":10}"#]);
        let mut recording = Recording::default();
        SequenceConnector::new(&spec(1, u64::MAX - 1, None), "").execute(&mut recording, None).expect("execute");
        assert_eq!(recording.lines(), ["18446744073709551614 {}"]);
    }

    #[test]
    fn a_sequence_keeps_the_contract_of_connectors() {
        assert_compliance(|| Box::new(SequenceConnector::new(&spec(20, 5, None), "")));
        assert_compliance(|| Box::new(SequenceConnector::new(&spec(3, 0, Some("n")), "p")));
    }

    #[test]
    fn another_sequence_is_not_resumed() {
        let from = ResumeFrom { cursor: Cursor::default(), split: serde_json::json!({"sequence": {"start": 1, "count": 20}}) };
        let error = SequenceConnector::new(&spec(20, 5, None), "").execute(&mut Recording::default(), Some(&from)).expect_err("changed");
        assert!(error.to_string().contains("changed since the checkpoint"), "{error}");
    }

    #[test]
    fn a_sequence_that_overflows_is_a_problem() {
        let mut found = Vec::new();
        check(&spec(2, u64::MAX, None), &mut Problems::new("sequence", &mut found));
        assert_eq!(found[0].path, "sequence.start");
    }
}
