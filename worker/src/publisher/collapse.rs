//! `collapse`: consecutive documents of one id become one. For sources that give a document line by line.

use crate::{connectors::Cursor, document::Document};

/// Merges consecutive documents of one id.
///
/// At every moment `received = sent + merged + held`, where at most one document is held. What is held has no number yet, so
/// no checkpoint covers it: after a crash its lines are read again. When it goes, it takes the cursor of its last line.
#[derive(Debug, Default)]
pub struct Collapse {
    held: Option<(Document, Cursor)>,
    received: u64,
    merged: u64,
}

impl Collapse {
    /// Takes a document, with the cursor behind it. Gives the one before, if that is of another id.
    ///
    /// A field that both have gets the values of both, equal ones too; a field that only one has stays as it is.
    pub fn push(&mut self, document: Document, after: Cursor) -> Option<(Document, Cursor)> {
        self.received += 1;
        if let Some((held, cursor)) = &mut self.held
            && held.id() == document.id()
        {
            self.merged += 1;
            *cursor = after;
            merge(held, document);
            return None;
        }
        self.held.replace((document, after))
    }

    /// Gives what is held. To be called when the connector has returned, and before anything that must keep its place behind
    /// the documents so far: a record that could not be read.
    pub fn flush(&mut self) -> Option<(Document, Cursor)> {
        self.held.take()
    }

    /// How many documents came.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How many of them were merged into the one before.
    pub fn merged(&self) -> u64 {
        self.merged
    }
}

fn merge(held: &mut Document, mut newer: Document) {
    for (key, value) in std::mem::take(newer.fields_mut()) {
        match held.fields_mut().get_mut(&key) {
            Some(present) => present.append(value),
            None => held.fields_mut().push_new(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;
    use proptest::prelude::*;

    fn document(id: &str, fields: &[(&str, i64)]) -> Document {
        let mut document = Document::new(id);
        for (key, value) in fields {
            document.fields_mut().insert(*key, Value::Int(*value));
        }
        document
    }

    fn after(record: u64) -> Cursor {
        Cursor { record, ..Cursor::default() }
    }

    fn ints(values: &[i64]) -> Value {
        Value::list(values.iter().map(|value| Value::Int(*value)).collect())
    }

    #[test]
    fn consecutive_documents_of_one_id_are_set_or_added_and_equal_values_both_kept_p18() {
        let mut collapse = Collapse::default();
        assert_eq!(collapse.push(document("a", &[("x", 1), ("y", 2)]), after(1)), None);
        assert_eq!(collapse.push(document("a", &[("x", 1), ("z", 3)]), after(2)), None);
        let (merged, cursor) = collapse.push(document("b", &[]), after(3)).expect("another id came");
        assert_eq!(cursor, after(2), "the cursor of its last input");
        assert_eq!(merged.fields().get("x"), Some(&ints(&[1, 1])));
        assert_eq!(merged.fields().get("y"), Some(&Value::Int(2)));
        assert_eq!(merged.fields().get("z"), Some(&Value::Int(3)));
        assert_eq!(collapse.flush().map(|(document, cursor)| (document.into_id(), cursor)), Some(("b".into(), after(3))));
        assert_eq!(collapse.flush(), None);
        assert_eq!((collapse.received(), collapse.merged()), (3, 1));
    }

    #[test]
    fn an_id_that_comes_again_later_is_another_document_p18() {
        let mut collapse = Collapse::default();
        let sent: Vec<_> = ["a", "b", "a", "a"].iter().filter_map(|id| collapse.push(document(id, &[]), after(0))).collect();
        assert_eq!(sent.iter().map(|(document, _)| document.id()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(collapse.merged(), 1);
    }

    proptest! {
        #[test]
        fn nothing_that_came_is_lost_p18(ids in prop::collection::vec(0..3_u8, 0..40)) {
            let mut collapse = Collapse::default();
            let mut sent = Vec::new();
            for (record, id) in (1..).zip(&ids) {
                sent.extend(collapse.push(document(&id.to_string(), &[("n", record as i64)]), after(record)));
                prop_assert_eq!(collapse.received(), sent.len() as u64 + collapse.merged() + 1);
            }
            sent.extend(collapse.flush());
            prop_assert_eq!(collapse.received(), sent.len() as u64 + collapse.merged());
            let values: Vec<_> = sent.iter().flat_map(|(document, _)| document.fields().get("n").expect("set").as_slice()).collect();
            let given: Vec<_> = (1..=ids.len() as i64).map(Value::Int).collect();
            prop_assert!(values.into_iter().eq(&given));
            prop_assert!(sent.windows(2).all(|pair| pair[0].0.id() != pair[1].0.id() && pair[0].1.record < pair[1].1.record));
        }
    }
}
