//! What every messenger must do, whatever lies between its two ends. Members run it: memory in the tests below, Kafka in the
//! suites, since it needs a broker.

use super::{Polled, SourceReader, SourceWriter};
use crate::document::{Columns, Document, Fields, Row, Value};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Documents that are sent, and the ids that they share.
const DOCUMENTS: u64 = 20_000;
const IDS: u64 = 100;
/// How long a lane waits for documents before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way with its two ends, as the suite needs it.
pub struct Way {
    /// Where documents go in.
    pub writer: Box<dyn SourceWriter>,
    /// Where they come out, one for each lane. A reader whose batches must be settled does so when it is asked for the next.
    pub readers: Vec<Box<dyn SourceReader>>,
}

/// A document that knows its number.
fn document(seq: u64) -> Document {
    Document::with_fields(id(seq), [("n".into(), Value::from(seq.to_string()))].into_iter().collect::<Fields>())
}

fn id(seq: u64) -> String {
    format!("id-{}", seq % IDS)
}

/// What a lane got: number and id, until it has so many or the way ends.
fn read(reader: &mut dyn SourceReader, is_enough: impl Fn(usize) -> bool) -> Vec<(u64, String)> {
    let (mut seen, until) = (Vec::new(), Instant::now() + PATIENCE);
    while !is_enough(seen.len()) && Instant::now() < until {
        match reader.poll(Some(Instant::now() + Duration::from_millis(100))) {
            Polled::Batch(batch) => seen.extend((0..batch.len()).map(|index| {
                let document = batch.document(index).expect("what was sent can be read");
                let number = document.fields().get("n").and_then(Value::as_text).and_then(|text| text.parse().ok());
                (number.expect("each document has its number"), document.id().to_owned())
            })),
            Polled::Nothing => {}
            Polled::End => break,
        }
    }
    seen
}

/// Every document arrives, once, and those of one id in the order in which they were sent, on one lane.
pub fn every_document_arrives_once_and_in_order_of_its_id(make: impl Fn(usize) -> Way) {
    for lanes in [1, 2, 7] {
        let Way { mut writer, readers } = make(lanes);
        let arrived = Arc::new(AtomicU64::new(0));
        let handles: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                let arrived = Arc::clone(&arrived);
                thread::spawn(move || {
                    let mut all = Vec::new();
                    // a lane is done when all documents have arrived, on whatever lane
                    loop {
                        let more = read(&mut *reader, |seen| seen > 0 || arrived.load(SeqCst) >= DOCUMENTS);
                        if more.is_empty() {
                            return all;
                        }
                        arrived.fetch_add(more.len() as u64, SeqCst);
                        all.extend(more);
                    }
                })
            })
            .collect();
        let columns = Arc::new(Columns { names: vec!["n".into()], ..Columns::default() });
        for seq in 1..=DOCUMENTS {
            let (id, text) = (id(seq), seq.to_string());
            let sent = match seq % 3 {
                0 => writer.send_row(seq, Row { columns: &columns, id: &id, text: &text, ends: &[text.len()], line: seq }),
                _ => writer.send(seq, document(seq)),
            };
            sent.expect("the readers are there");
        }
        writer.flush().expect("the readers are there");
        let until = Instant::now() + PATIENCE;
        while writer.acknowledged() < DOCUMENTS && Instant::now() < until {
            writer.flush().expect("the readers are there");
            thread::yield_now();
        }
        assert_eq!(writer.acknowledged(), DOCUMENTS, "{lanes} lanes");
        writer.finish();
        let mut all = BTreeMap::new();
        let mut lane_of = HashMap::new();
        for (lane, handle) in handles.into_iter().enumerate() {
            let mut last = HashMap::new();
            for (seq, id) in handle.join().expect("the lane has ended") {
                assert_eq!(*lane_of.entry(id.clone()).or_insert(lane), lane, "{id} on two lanes");
                assert!(last.insert(id.clone(), seq).is_none_or(|before| before < seq), "{id} out of order");
                assert!(all.insert(seq, id).is_none(), "number {seq} arrived twice");
            }
        }
        assert_eq!(all.len() as u64, DOCUMENTS, "{lanes} lanes");
    }
}

/// What the writer may have held back arrives after a flush, without more documents coming.
pub fn what_is_held_back_arrives_after_a_flush(make: impl Fn(usize) -> Way) {
    let Way { mut writer, mut readers } = make(1);
    writer.send(1, document(1)).expect("the reader is there");
    writer.flush().expect("the reader is there");
    assert_eq!(read(&mut *readers[0], |seen| seen == 1), [(1, id(1))]);
}

#[cfg(test)]
mod tests {
    use super::{super::local, *};

    fn memory(lanes: usize) -> Way {
        let (writer, readers, _) = local::channel(lanes);
        Way { writer: Box::new(writer), readers: readers.into_iter().map(|reader| Box::new(reader) as _).collect() }
    }

    #[test]
    fn every_document_arrives_once_and_in_order_of_its_id_x11() {
        every_document_arrives_once_and_in_order_of_its_id(memory);
    }

    #[test]
    fn what_is_held_back_arrives_after_a_flush_in_memory() {
        what_is_held_back_arrives_after_a_flush(memory);
    }

    #[test]
    fn a_writer_whose_reader_is_gone_is_told() {
        let Way { mut writer, readers } = memory(1);
        drop(readers);
        assert!((1..=100_000).any(|seq| writer.send(seq, document(seq)).is_err()));
    }

    #[test]
    fn readers_end_when_the_writer_is_gone() {
        let Way { writer, mut readers } = memory(2);
        drop(writer);
        assert!(readers.iter_mut().all(|reader| matches!(reader.poll(None), Polled::End)));
    }
}
