//! `file`: records of files. [`discover`] finds the files, [`reader`] makes text of their bytes, a [`Format`] cuts it into
//! records.
//!
//! A file is read as it is when it is opened. If it has changed by the time its end is reached, that is a fault of the file:
//! records may have been torn. A cursor holds the place in the decompressed, decoded text; for plain UTF-8 files that is a
//! place in the file, to which a new attempt jumps, for others it reads up to there again.

mod csv;
mod discover;
#[cfg(test)]
mod fixture;
mod ids;
mod json_lines;
mod reader;
mod reading;
mod scan;

use super::{Connector, ConnectorError, Cursor, Publish, RecordFault, ResumeFrom};
use crate::problem::Problems;
use discover::{Discovery, SourceFile};
use encoding_rs::{Encoding, UTF_8};
use penstock_crds::connectors as spec;
use reader::Source;
use reading::{End, Format, Progress, Reading, Unreadable};
use serde::{Deserialize, Serialize};
use std::{fs::Metadata, path::Path, time::SystemTime};

/// The cursor behind a file that could not be read: there is nothing more to be had from it.
const BEHIND_FILE: u64 = u64::MAX;
/// Records may not be larger than this, since one is held in memory as a whole.
const MAX_RECORD_LIMIT: u64 = 1 << 30;

/// Reads files.
pub struct FileConnector {
    discovery: Discovery,
    format: Box<dyn Format>,
    compression: spec::Compression,
    encoding: &'static Encoding,
    max_record: usize,
    on_file_error: spec::OnFileError,
}

/// Which file a cursor is in, and what the file was like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Split {
    path: String,
    /// Which of the files found it is.
    index: usize,
    /// Checksum of the paths of all files before it.
    before: u32,
    #[serde(flatten)]
    print: Fingerprint,
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fingerprint {
    size: u64,
    modified: Option<String>,
}

impl Fingerprint {
    /// Of an open file; pipes and devices have none.
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok().filter(|_| metadata.is_file());
        let text = |time: SystemTime| jiff::Timestamp::try_from(time).ok().map(|time| time.to_string());
        Self { size: metadata.len(), modified: modified.and_then(text) }
    }
}

/// Where to begin.
struct Start {
    index: usize,
    from: Option<(Cursor, Fingerprint)>,
}

impl FileConnector {
    /// Reads the files of a manifest in `base_dir`.
    ///
    /// # Errors
    /// What [`check`] reports.
    pub fn new(spec: &spec::File, id_prefix: &str, base_dir: &Path) -> Result<Self, ConnectorError> {
        let encoding = spec.encoding.as_deref().map_or(Ok(UTF_8), encoding).map_err(ConnectorError::new)?;
        let format: Result<Box<dyn Format>, String> = match &spec.format {
            spec::FileFormat::Csv(csv) => csv::Csv::new(csv, spec, id_prefix).map(|csv| Box::new(csv) as _),
            spec::FileFormat::JsonLines(lines) => json_lines::JsonLines::new(lines, spec, id_prefix).map(|lines| Box::new(lines) as _),
        };
        Ok(Self {
            discovery: Discovery::new(spec, base_dir).map_err(ConnectorError::new)?,
            format: format.map_err(ConnectorError::new)?,
            compression: spec.compression,
            encoding,
            max_record: max_record(spec),
            on_file_error: spec.on_file_error,
        })
    }

    fn read_file(
        &self,
        file: &SourceFile,
        place: (usize, u32),
        from: Option<(Cursor, Fingerprint)>,
        publish: &mut dyn Publish,
        progress: Progress,
    ) -> Result<(), End> {
        if file.waits {
            publish.flush()?;
        }
        let opened = Source::open(&file.path, self.compression, self.encoding, self.max_record)
            .and_then(|source| source.metadata().map(|metadata| (source, Fingerprint::of(&metadata))));
        let (source, print) = match opened {
            Ok((source, print)) => (Ok(source), print),
            Err(error) => (Err(error), Fingerprint { size: file.size, modified: None }),
        };
        let split = Split { path: file.name.clone(), index: place.0, before: place.1, print: print.clone() };
        let split = publish.split(serde_json::json!(split));
        let begin = Cursor { split, ..Cursor::default() };
        let source = match source {
            Ok(source) => source,
            Err(error) => {
                let fault = Unreadable { message: format!("failed to open {}", file.name), source: Some(error) };
                return self.give_up(fault, begin, publish);
            }
        };
        if let Some((_, before)) = from.as_ref().filter(|(_, before)| *before != print) {
            let message = format!("{} has changed since the checkpoint ({}); start the run again", file.name, difference(before, &print));
            return Err(ConnectorError::new(message).into());
        }
        let from = from.map(|(cursor, _)| cursor);
        let mut reading = Reading { path: &file.name, source, waits: file.waits, publish, progress, at: begin, from };
        let outcome = self.format.read(&mut reading).and_then(|()| unchanged(&reading, &print));
        let at = reading.at;
        match outcome {
            Err(End::Unreadable(fault)) => self.give_up(fault, at, publish),
            outcome => outcome,
        }
    }

    /// What becomes of a file that cannot be read (on).
    fn give_up(&self, fault: Unreadable, at: Cursor, publish: &mut dyn Publish) -> Result<(), End> {
        match self.on_file_error {
            spec::OnFileError::Fail => Err(fault.into()),
            spec::OnFileError::Continue => {
                let after = Cursor { offset: BEHIND_FILE, record: at.record + 1, ..at };
                Ok(publish.fail(RecordFault { id: String::new(), reason: fault.reason(), raw: Vec::new() }, after)?)
            }
        }
    }

    fn read_files(&self, publish: &mut dyn Publish, from: Option<&ResumeFrom>) -> Result<(), End> {
        let files = self.discovery.find()?;
        let mut start = from.map_or(Ok(Start { index: 0, from: None }), |from| start(&files, from))?;
        let total = files.iter().map(|file| file.size).sum();
        let (mut size_before, mut names_before) = (0, flate2::Crc::new());
        for (index, file) in files.iter().enumerate() {
            if index >= start.index {
                let progress = Progress { before: size_before, total };
                self.read_file(file, (index, names_before.sum()), start.from.take(), publish, progress)?;
            }
            size_before += file.size;
            add_name(&mut names_before, file);
        }
        publish.progress(total, Some(total));
        Ok(())
    }
}

impl Connector for FileConnector {
    fn has_cursor(&self) -> bool {
        true
    }

    fn execute(&mut self, publish: &mut dyn Publish, from: Option<&ResumeFrom>) -> Result<(), ConnectorError> {
        match self.read_files(publish, from) {
            Ok(()) | Err(End::Stopped) => Ok(()),
            Err(End::Unreadable(fault)) => Err(fault.into()),
            Err(End::Failed(error)) => Err(error),
        }
    }
}

/// Where to go on behind a checkpoint, if the files up to there are still the same.
fn start(files: &[SourceFile], from: &ResumeFrom) -> Result<Start, ConnectorError> {
    let split: Split = serde_json::from_value(from.split.clone())
        .map_err(|error| ConnectorError::with("the checkpoint is not one of a file connector; start the run again", error))?;
    let mut before = flate2::Crc::new();
    files.iter().take(split.index).for_each(|file| add_name(&mut before, file));
    let file = files.get(split.index).filter(|file| file.name == split.path && before.sum() == split.before);
    if file.is_none() {
        return Err(ConnectorError::new(format!(
            "the files have changed since the checkpoint: {} was number {} of them, and is not any more; start the run again",
            split.path,
            split.index + 1
        )));
    }
    Ok(match from.cursor.offset {
        BEHIND_FILE => Start { index: split.index + 1, from: None },
        _ => Start { index: split.index, from: Some((from.cursor, split.print)) },
    })
}

fn add_name(names: &mut flate2::Crc, file: &SourceFile) {
    names.update(file.name.as_bytes());
    names.update(&[0]);
}

/// Whether the file is still what it was when it was opened.
fn unchanged(reading: &Reading<'_>, print: &Fingerprint) -> Result<(), End> {
    let now = reading.source.metadata().map(|metadata| Fingerprint::of(&metadata));
    match now {
        Ok(now) if now == *print || now.modified.is_none() => Ok(()),
        Ok(now) => {
            let reason =
                format!("changed while it was read ({}); records may be torn, read it again when it is complete", difference(print, &now));
            Err(reading.unreadable(reason))
        }
        Err(error) => Err(Unreadable { message: format!("failed to look at {}", reading.path()), source: Some(error) }.into()),
    }
}

fn difference(before: &Fingerprint, now: &Fingerprint) -> String {
    let modified = |print: &Fingerprint| print.modified.clone().unwrap_or_else(|| "at an unknown time".to_owned());
    if before.size == now.size {
        format!("modified {}, now {}", modified(before), modified(now))
    } else {
        format!("{} bytes, now {}", before.size, now.size)
    }
}

/// The largest record in bytes, as a format uses it.
fn max_record(spec: &spec::File) -> usize {
    spec.max_record_size.bytes().min(MAX_RECORD_LIMIT) as usize
}

fn encoding(label: &str) -> Result<&'static Encoding, String> {
    if let Some(encoding) = Encoding::for_label_no_replacement(label.as_bytes()) {
        return Ok(encoding);
    }
    let wanted = label.trim().to_ascii_lowercase();
    let nearest = LABELS.iter().map(|known| (strsim::osa_distance(&wanted, known), *known)).min();
    let hint = nearest.filter(|(distance, _)| *distance <= 3).map(|(_, known)| format!("; did you mean `{known}`?")).unwrap_or_default();
    Err(format!("`{label}` is not the label of an encoding, such as utf-8, utf-16le, windows-1252 or shift_jis{hint}"))
}

/// Labels that people may have meant.
const LABELS: [&str; 28] = [
    "utf-8",
    "utf-16",
    "utf-16le",
    "utf-16be",
    "ascii",
    "latin1",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-5",
    "iso-8859-7",
    "iso-8859-9",
    "iso-8859-15",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "windows-1257",
    "macintosh",
    "koi8-r",
    "koi8-u",
    "gbk",
    "gb18030",
    "big5",
    "euc-jp",
    "iso-2022-jp",
    "shift_jis",
    "euc-kr",
];

/// The paths without a pattern.
pub fn named_paths(spec: &spec::File) -> Vec<String> {
    discover::named_paths(spec)
}

/// Reports what is wrong with a specification.
pub fn check(spec: &spec::File, problems: &mut Problems<'_>) {
    discover::check(spec, problems);
    if let Some(Err(fault)) = spec.encoding.as_deref().map(encoding) {
        problems.add("encoding", fault);
    }
    if !(1..=MAX_RECORD_LIMIT).contains(&spec.max_record_size.bytes()) {
        problems.add("maxRecordSize", "must be between 1 byte and 1Gi; a record is held in memory as a whole");
    }
    if spec.path_field.is_some() && spec.path_field == spec.line_field {
        problems.add("lineField", "is the name of `pathField` as well; each needs a name of its own");
    }
    match &spec.format {
        spec::FileFormat::Csv(csv) => csv::check(csv, &mut problems.below("format.csv")),
        spec::FileFormat::JsonLines(lines) => json_lines::check(lines, &mut problems.below("format.jsonLines")),
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::*, *};
    use crate::connectors::{
        Stopped,
        testing::{Entry, Recording, assert_compliance},
    };
    use crate::document::Document;
    use serde_json::json;
    use std::io::Write;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("write");
        encoder.finish().expect("finish")
    }

    /// A publisher that does something when the first document comes.
    struct Meddling<F>(Recording, Option<F>);

    impl<F: FnOnce()> Publish for Meddling<F> {
        fn split(&mut self, what: serde_json::Value) -> u32 {
            self.0.split(what)
        }
        fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
            if let Some(meddle) = self.1.take() {
                meddle();
            }
            self.0.publish(document, after)
        }
        fn fail(&mut self, fault: RecordFault, after: Cursor) -> Result<(), Stopped> {
            self.0.fail(fault, after)
        }
        fn flush(&mut self) -> Result<(), Stopped> {
            self.0.flush()
        }
        fn progress(&mut self, done: u64, total: Option<u64>) {
            self.0.progress(done, total);
        }
    }

    fn rows(from: usize, to: usize) -> String {
        (from..=to).map(|row| format!("{row},text {row}\n")).collect()
    }

    #[test]
    fn files_of_every_kind_keep_the_contract_of_connectors() {
        let text = format!("id,a\n{}broken\n{}", rows(1, 20), rows(21, 30));
        let utf_16: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        let folder = Folder::new(&[
            ("a.csv", text.as_bytes()),
            ("b.csv", b""),
            ("c.csv.gz", &gz(text.as_bytes())),
            ("d.csv.zst", &zstd::encode_all(text.as_bytes(), 1).expect("zstd")),
            ("e.csv", &utf_16),
        ]);
        let spec = json!({"paths": ["."], "lineField": "line", "format": {"csv": {}}});
        assert_compliance(|| Box::new(folder.connector(&spec)));
        let (recording, outcome) = folder.read(&spec);
        outcome.expect("readable");
        assert_eq!((recording.ids().len(), recording.faults().len()), (4 * 30, 4));
        let total: u64 =
            ["a.csv", "b.csv", "c.csv.gz", "d.csv.zst", "e.csv"].map(|name| folder.path(name).metadata().expect("file").len()).iter().sum();
        assert_eq!(recording.progress, Some((total, Some(total))));
    }

    #[test]
    fn a_damaged_file_fails_the_connector_or_one_document_x8_s25() {
        let whole = gz(format!("id,a\n{}", rows(1, 5000)).as_bytes());
        let folder = Folder::new(&[("a.csv.gz", &whole[..whole.len() / 2]), ("b.csv", b"id,a\nlast,x\n")]);
        let spec = json!({"paths": ["a.csv.gz", "b.csv"], "format": {"csv": {}}});
        let (recording, outcome) = folder.read(&spec);
        let before = recording.ids().len();
        assert!(before > 1000 && recording.faults().is_empty(), "{before}");
        let error = failure(outcome);
        let place = format!("failed to read a.csv.gz behind byte {};", whole.len() / 2);
        assert!(error.starts_with(&place), "{error}");

        let spec = json!({"paths": ["a.csv.gz", "b.csv"], "onFileError": "Continue", "format": {"csv": {}}});
        let (recording, outcome) = folder.read(&spec);
        outcome.expect("goes on");
        assert_eq!(recording.ids().len(), before + 1);
        let (Entry::Fault(fault), cursor) = &recording.entries[before] else { panic!("{:?}", recording.entries[before]) };
        assert!(fault.reason.starts_with(&place), "{}", fault.reason);
        assert_eq!(cursor.offset, BEHIND_FILE);
        let mut rest = Recording::default();
        folder.connector(&spec).execute(&mut rest, recording.resume_after(before + 1).as_ref()).expect("resumed");
        assert_eq!(rest.ids(), ["last"]);
    }

    #[test]
    fn a_file_that_is_gone_or_is_a_directory_fails_the_connector_or_one_document() {
        let files: [(&str, &[u8]); 3] = [("a.csv", b"id\n1\n"), ("b.csv", b"id\n2\n"), ("c.csv", b"id\n3\n")];
        for (policy, ids) in [("Fail", &["1"][..]), ("Continue", &["1", "3"])] {
            for directory in [false, true] {
                let folder = Folder::new(&files);
                let gone = folder.path("b.csv");
                let meddle = || {
                    std::fs::remove_file(&gone).expect("remove");
                    if directory {
                        std::fs::create_dir(&gone).expect("directory");
                    }
                };
                let mut publish = Meddling(Recording::default(), Some(meddle));
                let mut connector = folder.connector(&json!({"paths": ["*.csv"], "onFileError": policy, "format": {"csv": {}}}));
                let outcome = connector.execute(&mut publish, None);
                assert_eq!(publish.0.ids(), ids);
                let reason = match policy {
                    "Fail" => failure(outcome),
                    _ => publish.0.faults()[0].reason.clone(),
                };
                assert!(reason.starts_with("failed to open b.csv: "), "{reason}");
            }
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_a_fault() {
        let folder = Folder::new(&[("a.csv", format!("id,a\n{}", rows(1, 100)).as_bytes())]);
        let path = folder.path("a.csv");
        let meddle = || std::fs::OpenOptions::new().append(true).open(&path).expect("open").write_all(b"101,tor").expect("append");
        let mut publish = Meddling(Recording::default(), Some(meddle));
        let error = failure(folder.connector(&json!({"paths": ["a.csv"], "format": {"csv": {}}})).execute(&mut publish, None));
        assert!(error.contains("a.csv: changed while it was read"), "{error}");
    }

    #[test]
    fn a_checkpoint_in_files_that_changed_is_refused() {
        let folder = Folder::new(&[("b.csv", b"id\n1\n2\n"), ("c.csv", b"id\n3\n")]);
        let spec = json!({"paths": ["*.csv"], "onFileError": "Continue", "format": {"csv": {}}});
        let (recording, _) = folder.read(&spec);
        let from = recording.resume_after(1);
        let resume = || folder.connector(&spec).execute(&mut Recording::default(), from.as_ref());
        resume().expect("nothing changed");
        folder.write("c.csv", b"id\n3\n4\n");
        resume().expect("what comes later may change");
        folder.write("b.csv", b"id\n1\n2\n5\n");
        assert!(failure(resume()).contains("b.csv has changed since the checkpoint (7 bytes, now 9)"));
        folder.write("a.csv", b"id\n0\n");
        assert!(failure(resume()).contains("b.csv was number 1 of them"));
        let other = ResumeFrom { cursor: Cursor::default(), split: json!({"sequence": {}}) };
        assert!(failure(folder.connector(&spec).execute(&mut Recording::default(), Some(&other))).contains("not one of a file connector"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_read_and_never_waited_for_with_documents_in_hand() {
        let folder = Folder::new(&[("a.csv", b"id\n1\n")]);
        let pipe = folder.path("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        let writer = std::thread::spawn(move || std::fs::write(pipe, b"id\n2\n3\n"));
        let (recording, outcome) = folder.read(&json!({"paths": ["a.csv", "pipe"], "format": {"csv": {}}}));
        outcome.expect("readable");
        writer.join().expect("thread").expect("write");
        assert_eq!(recording.ids(), ["1", "2", "3"]);
        assert!(recording.flushed >= 1);
    }

    #[test]
    fn a_line_of_fifty_megabytes_takes_little_memory() {
        let folder = Folder::new(&[]);
        let file = std::fs::File::create(folder.path("x.csv")).expect("file");
        let mut file = std::io::BufWriter::new(file);
        file.write_all(b"id,a\n1,").expect("write");
        (0..50).for_each(|_| file.write_all(&[b'x'; 1_000_000]).expect("write"));
        file.write_all(b"\n2,y\n").expect("write");
        drop(file);
        let (recording, outcome) = folder.read(&json!({"paths": ["x.csv"], "maxRecordSize": "64Ki", "format": {"csv": {}}}));
        outcome.expect("readable");
        assert_eq!(recording.ids(), ["2"]);
        assert_eq!(recording.faults()[0].raw.len(), reading::RAW_LIMIT);
    }

    #[test]
    fn problems_are_all_found_with_their_cure() {
        let spec = json!({"paths": ["s3://x"], "encoding": "utf8-le", "maxRecordSize": "0", "pathField": "f", "lineField": "f",
            "format": {"csv": {"delimiter": "--"}}});
        let mut found = Vec::new();
        check(&serde_json::from_value(spec).expect("spec"), &mut Problems::new("file", &mut found));
        let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["file.paths[0]", "file.encoding", "file.maxRecordSize", "file.lineField", "file.format.csv.delimiter"]);
        assert!(encoding("utf-16el").expect_err("typo").ends_with("did you mean `utf-16le`?"));
        assert!(encoding("klingon").is_err_and(|fault| !fault.contains("did you mean")));
        for label in LABELS {
            assert!(encoding(label).is_ok(), "{label}");
        }
    }
}
