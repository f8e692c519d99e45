//! `penstock run --preview`: shows what the stages do to documents; writes nothing.

use super::{Exit, style::printable};
use crate::{
    connectors::{self, Cursor, Publish, RecordFault, Stopped},
    context::StepContext,
    document::Document,
    event::Tag,
    manifest::{Manifests, Object},
    pipeline::{Failure, Pipeline, Plan, Sink, SinkClosed},
    secrets::Secrets,
};
use anyhow::{Context, anyhow};
use penstock_crds::IngestRunSpec;
use std::{
    collections::HashMap,
    io::{self, StdoutLock, Write},
};
use tokio_util::sync::CancellationToken;

/// Documents of each connector that are shown if nothing else is said.
const DEFAULT_LIMIT: u64 = 10;

/// Prints the documents of each connector, after every stage that changed them.
pub(super) fn print(
    manifests: &Manifests,
    run: &Object<IngestRunSpec>,
    secrets: Secrets,
    limit: Option<u64>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    for connector in &run.spec.connectors {
        let pipeline = manifests
            .pipeline(&run.namespace, &connector.pipeline)
            .ok_or_else(|| anyhow!("there is no pipeline `{}`", connector.pipeline))?;
        let context = StepContext {
            run: run.name.clone(),
            run_id: "preview".into(),
            connector: connector.name.clone(),
            pipeline: connector.pipeline.clone(),
            base_dir: pipeline.base_dir.clone(),
            run_base_dir: run.base_dir.clone(),
            secrets: secrets.clone(),
            runtime: runtime.clone(),
            stop: CancellationToken::new(),
            is_continuous: false,
            written: Default::default(),
        };
        writeln!(out, "connector {} → pipeline {}", connector.name, connector.pipeline).context("failed to print")?;
        let plan = Plan::preview(&pipeline.spec.stages)?;
        let mut source = connectors::build(connector, &context)?;
        let printer = Printer { out: &mut out, shown: HashMap::new(), error: None };
        let mut preview = Preview { pipeline: plan.lane(), printer, left: limit.unwrap_or(DEFAULT_LIMIT), seq: 0 };
        let executed = source.execute(&mut preview, None);
        let error = preview.printer.error.take();
        source.close()?;
        if let Some(error) = error {
            return Err(error).context("failed to print");
        }
        executed?;
    }
    Ok(Exit::Complete)
}

/// Takes what the connector reads, so many records.
struct Preview<'a, 'b> {
    pipeline: Pipeline,
    printer: Printer<'a, 'b>,
    left: u64,
    seq: u64,
}

impl Preview<'_, '_> {
    fn take(&mut self) -> Result<(), Stopped> {
        self.left = self.left.checked_sub(1).ok_or(Stopped)?;
        self.seq += 1;
        Ok(())
    }
}

impl Publish for Preview<'_, '_> {
    fn split(&mut self, _: serde_json::Value) -> u32 {
        0
    }

    fn publish(&mut self, document: Document, _: Cursor) -> Result<(), Stopped> {
        self.take()?;
        self.printer.show("read", &document);
        self.pipeline.process(document, self.seq, &mut self.printer).map_err(|SinkClosed| Stopped)
    }

    fn fail(&mut self, fault: RecordFault, _: Cursor) -> Result<(), Stopped> {
        self.take()?;
        self.printer.line(&format!("  failed: {}", fault.reason));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        Ok(())
    }

    fn progress(&mut self, _: u64, _: Option<u64>) {}
}

/// Prints documents, each time only if it has changed.
struct Printer<'a, 'b> {
    out: &'a mut StdoutLock<'b>,
    /// What was last printed of the documents that are under way, by id.
    shown: HashMap<String, String>,
    error: Option<io::Error>,
}

impl Printer<'_, '_> {
    fn show(&mut self, stage: &str, document: &Document) {
        let mut json = Vec::new();
        document.write_json(&mut json);
        let json = String::from_utf8_lossy(&json).into_owned();
        if self.shown.get(document.id()).is_none_or(|shown| *shown != json) {
            self.line(&format!("  {stage:<16} `{}` {json}", document.id()));
            self.shown.insert(document.id().to_owned(), json);
        }
    }

    fn line(&mut self, text: &str) {
        if let Err(error) = writeln!(self.out, "{}", printable(text)) {
            self.error.get_or_insert(error);
        }
    }

    fn end(&mut self, id: &str, text: &str) -> Result<(), SinkClosed> {
        self.shown.remove(id);
        self.line(text);
        if self.error.is_some() { Err(SinkClosed) } else { Ok(()) }
    }
}

impl Sink for Printer<'_, '_> {
    fn passed(&mut self, stage: &str, document: &Document) {
        self.show(stage, document);
    }

    fn forward(&mut self, document: Document, _: Tag) -> Result<(), SinkClosed> {
        // a child that no stage touched has not been seen yet
        self.show("made", &document);
        self.end(document.id(), &format!("  → index          `{}`", document.id()))
    }

    fn dropped(&mut self, document: Document, _: Tag, stage: &str, reason: String) -> Result<(), SinkClosed> {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        self.end(document.id(), &format!("  → dropped        `{}` by {stage}{reason}", document.id()))
    }

    fn failed(&mut self, failure: Failure<'_>) -> Result<(), SinkClosed> {
        self.end(failure.id, &format!("  → failed         `{}` in {}: {}", failure.id, failure.stage, failure.reason))
    }
}
