//! What every messenger must do; each member runs it.

use super::{Payload, Polled, SourceBatch, SourceReader, SourceWriter, local};
use crate::document::{Columns, Document, Row};
use std::{collections::HashMap, sync::Arc, thread};

/// A way with its two ends, as the suite needs it.
struct Way {
    writer: Box<dyn SourceWriter>,
    readers: Vec<Box<dyn SourceReader>>,
}

type Member = (&'static str, fn(usize) -> Way);

fn members() -> Vec<Member> {
    vec![("local", |lanes| {
        let (writer, readers, _) = local::channel(lanes);
        Way { writer: Box::new(writer), readers: readers.into_iter().map(|reader| Box::new(reader) as _).collect() }
    })]
}

/// Everything a lane got: (seq, id).
fn read_all(mut reader: Box<dyn SourceReader>) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    while let Polled::Batch(batch) = reader.poll(None) {
        seen.extend((0..batch.len()).map(|i| (batch.seqs[i], batch.document(i).expect("a document").id().to_owned())));
    }
    seen
}

#[test]
fn every_document_arrives_once_and_in_order_of_its_id_x11() {
    for (name, make) in members() {
        for lanes in [1, 2, 7] {
            let Way { mut writer, readers } = make(lanes);
            let lanes: Vec<_> = readers.into_iter().map(|reader| thread::spawn(move || read_all(reader))).collect();
            let columns = Arc::new(Columns { names: vec!["a".into()], ..Columns::default() });
            for seq in 1..=20_000_u64 {
                let id = format!("id-{}", seq % 100);
                let sent = match seq % 3 {
                    0 => writer.send_row(seq, Row { columns: &columns, id: &id, text: "x", ends: &[1], line: seq }),
                    _ => writer.send(seq, Document::new(id.as_str())),
                };
                sent.expect("open");
            }
            writer.finish();
            assert_eq!(writer.acknowledged(), 20_000, "{name}");
            let mut all = Vec::new();
            let mut lane_of = HashMap::new();
            for (lane, handle) in lanes.into_iter().enumerate() {
                let mut last = HashMap::new();
                for (seq, id) in handle.join().expect("lane") {
                    assert_eq!(*lane_of.entry(id.clone()).or_insert(lane), lane, "{name}: {id} in two lanes");
                    assert!(last.insert(id.clone(), seq).is_none_or(|before| before < seq), "{name}: {id} out of order");
                    all.push(seq);
                }
            }
            all.sort_unstable();
            assert_eq!(all, (1..=20_000).collect::<Vec<_>>(), "{name}");
        }
    }
}

#[test]
fn what_is_held_back_arrives_after_a_flush() {
    for (name, make) in members() {
        let Way { mut writer, mut readers } = make(1);
        writer.send(1, Document::new("a")).expect("open");
        writer.flush().expect("open");
        let Polled::Batch(SourceBatch { seqs, payload: Payload::Documents(documents) }) = readers[0].poll(None) else {
            panic!("{name}: no batch")
        };
        assert_eq!((seqs, documents[0].id()), (vec![1], "a"));
    }
}

#[test]
fn a_writer_whose_reader_is_gone_is_told() {
    for (name, make) in members() {
        let Way { mut writer, readers } = make(1);
        drop(readers);
        let told = (1..=100_000).any(|seq| writer.send(seq, Document::new("a")).is_err());
        assert!(told, "{name}");
    }
}

#[test]
fn readers_end_when_the_writer_is_gone() {
    for (name, make) in members() {
        let Way { writer, mut readers } = make(2);
        drop(writer);
        assert!(readers.iter_mut().all(|reader| matches!(reader.poll(None), Polled::End)), "{name}");
    }
}
