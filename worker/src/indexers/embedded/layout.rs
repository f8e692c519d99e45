//! How an index is laid out, and opening one: the same for whoever writes and whoever searches.
//!
//! | field | holds | for |
//! |---|---|---|
//! | `_id` | the id, as it is | replacing, deleting, `id:…` |
//! | `_source` | the document as JSON, stored only | showing hits |
//! | `_text` | the words of all texts and numbers of the document | words without a field |
//! | `_fields` | the words and values of each field, under its path | `field:word`, `field:*` |
//! | `_ranges` | the numbers and points in time of each field, in columns | `field:>10` |

use std::{
    io,
    path::{Path, PathBuf},
};
use tantivy::{
    Index, IndexSettings, TantivyError,
    directory::{MmapDirectory, error::LockError},
    schema::{Field, IndexRecordOption, JsonObjectOptions, STORED, Schema, TextFieldIndexing, TextOptions},
    tokenizer::{LowerCaser, RemoveLongFilter, SimpleTokenizer, TextAnalyzer},
};

/// Words longer than this are not indexed: nobody types them.
const LONGEST_WORD: usize = 256;
const ANALYZER: &str = "penstock";

pub(super) const ID: &str = "_id";
pub(super) const TEXT: &str = "_text";
pub(super) const FIELDS: &str = "_fields";
const RANGES: &str = "_ranges";
const SOURCE: &str = "_source";

/// A directory that cannot be used as an index.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing.
    #[error("index {}: there is no such directory; give the `path` of a pipeline's `embedded` indexer", .0.display())]
    Missing(PathBuf),
    /// It is a file.
    #[error("index {}: it is a file, not a directory; choose another path", .0.display())]
    NotADirectory(PathBuf),
    /// It holds other things.
    #[error("index {}: the directory is no index, it holds {found}; choose the directory of an index, or an empty or new one for a new index", path.display())]
    NoIndex {
        /// The directory.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// The directory is empty.
    #[error("index {}: the directory is empty; run a pipeline that writes it first", .0.display())]
    Empty(PathBuf),
    /// An index that somebody else wrote.
    #[error("index {}: it was written by another program or an incompatible version; choose another directory, or remove it and run again", .0.display())]
    Foreign(PathBuf),
    /// Another run writes it.
    #[error("index {}: another run is writing it; wait for its end, or choose another directory", .0.display())]
    Busy(PathBuf),
    /// It cannot be read or written.
    #[error("index {}: {what}; {}", path.display(), cure(source))]
    Failed {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: TantivyError,
    },
    /// The directory cannot be made or read.
    #[error("index {}: {what}; allow it or choose another path", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// What to do about a failure, as far as it can be told.
fn cure(error: &TantivyError) -> &'static str {
    let text = error.to_string();
    if text.contains("No space left") || text.contains("StorageFull") || text.contains("Disk quota") {
        "free space on the disk or choose another path"
    } else if text.contains("PermissionDenied") || text.contains("ermission denied") || text.contains("ead-only") {
        "allow writing there or choose another path"
    } else if matches!(error, TantivyError::DataCorruption(_) | TantivyError::IncompatibleIndex(_)) {
        "remove the directory and run again"
    } else {
        "see to the cause or choose another path"
    }
}

impl OpenError {
    pub(super) fn failed(path: &Path, what: &'static str, source: TantivyError) -> Self {
        match source {
            TantivyError::LockFailure(LockError::LockBusy, _) => Self::Busy(path.into()),
            TantivyError::IncompatibleIndex(_) => Self::Foreign(path.into()),
            source => Self::Failed { path: path.into(), what, source },
        }
    }
}

/// The fields of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub id: Field,
    pub source: Field,
    pub text: Field,
    pub fields: Field,
    pub ranges: Field,
}

/// An open index.
pub(super) struct Opened {
    pub index: Index,
    pub layout: Layout,
    /// Whether there was none before.
    pub created: bool,
}

/// Opens the index in a directory.
pub(super) fn open(path: &Path) -> Result<Opened, OpenError> {
    match look(path)? {
        Found::Index => open_existing(path),
        Found::Empty => Err(OpenError::Empty(path.into())),
        Found::Nothing => Err(OpenError::Missing(path.into())),
    }
}

/// Opens the index in a directory, or makes one in an empty directory.
pub(super) fn open_or_create(path: &Path) -> Result<Opened, OpenError> {
    if let Found::Index = look(path)? {
        return open_existing(path);
    }
    let (schema, layout) = schema();
    let index = MmapDirectory::open(path)
        .map_err(TantivyError::from)
        .and_then(|directory| Index::create(directory, schema, IndexSettings::default()))
        .map_err(|error| OpenError::failed(path, "it cannot be made", error))?;
    register_analyzer(&index);
    Ok(Opened { index, layout, created: true })
}

/// Removes the files of an index that this program has made and that nobody has filled; nothing else.
pub(super) fn remove_files(path: &Path) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_index_file(&name.to_string_lossy()) {
            // what cannot be removed is an empty index, which does no harm
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

enum Found {
    Index,
    Empty,
    Nothing,
}

fn look(path: &Path) -> Result<Found, OpenError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(OpenError::NotADirectory(path.into())),
        Err(source) => return Err(OpenError::Folder { path: path.into(), what: "it cannot be read", source }),
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if names.iter().any(|name| name == "meta.json") {
        return Ok(Found::Index);
    }
    // an index that was being made when the machine stopped is none yet
    match names.into_iter().find(|name| !is_index_file(name)) {
        Some(found) => Err(OpenError::NoIndex { path: path.into(), found }),
        None => Ok(Found::Empty),
    }
}

fn is_index_file(name: &str) -> bool {
    let segment =
        |name: &str| name.split_once('.').is_some_and(|(id, _)| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    name == "meta.json" || name == ".managed.json" || name.starts_with(".tantivy-") || segment(name)
}

fn open_existing(path: &Path) -> Result<Opened, OpenError> {
    let index = MmapDirectory::open(path)
        .map_err(TantivyError::from)
        .and_then(Index::open)
        .map_err(|error| OpenError::failed(path, "it cannot be opened", error))?;
    let (schema, layout) = schema();
    if index.schema() != schema {
        return Err(OpenError::Foreign(path.into()));
    }
    register_analyzer(&index);
    Ok(Opened { index, layout, created: false })
}

fn schema() -> (Schema, Layout) {
    let exact = TextFieldIndexing::default().set_tokenizer("raw").set_fieldnorms(false).set_index_option(IndexRecordOption::Basic);
    let words = TextFieldIndexing::default().set_tokenizer(ANALYZER).set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let mut builder = Schema::builder();
    let layout = Layout {
        id: builder.add_text_field(ID, TextOptions::default().set_indexing_options(exact).set_stored()),
        source: builder.add_bytes_field(SOURCE, STORED),
        text: builder.add_text_field(TEXT, TextOptions::default().set_indexing_options(words.clone())),
        fields: builder.add_json_field(FIELDS, JsonObjectOptions::default().set_indexing_options(words).set_expand_dots_enabled()),
        ranges: builder.add_json_field(RANGES, JsonObjectOptions::default().set_fast("raw").set_expand_dots_enabled()),
    };
    (builder.build(), layout)
}

fn register_analyzer(index: &Index) {
    index.tokenizers().register(ANALYZER, analyzer());
}

/// How texts become words: at anything that is neither letter nor digit, in lower case.
pub(super) fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default()).filter(RemoveLongFilter::limit(LONGEST_WORD)).filter(LowerCaser).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        open_or_create(path).err().expect("refused").to_string()
    }

    #[test]
    fn a_directory_with_other_content_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("letter.txt"), "dear").expect("file");
        assert!(error(folder.path()).contains("it holds letter.txt; choose the directory of an index"));
        assert!(error(&folder.path().join("letter.txt")).contains("it is a file"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
        remove_files(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
    }

    #[test]
    fn an_index_of_another_program_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let mut builder = Schema::builder();
        builder.add_text_field("title", tantivy::schema::TEXT);
        Index::create_in_dir(folder.path(), builder.build()).expect("index");
        assert!(error(folder.path()).contains("another program"));
    }

    #[test]
    fn an_index_is_made_once_and_then_opened() {
        let folder = tempfile::tempdir().expect("folder");
        assert!(matches!(open(folder.path()), Err(OpenError::Empty(_))));
        assert!(open_or_create(folder.path()).expect("made").created);
        assert!(!open_or_create(folder.path()).expect("opened").created);
        assert!(!open(folder.path()).expect("opened").created);
        assert!(matches!(open(&folder.path().join("none")), Err(OpenError::Missing(_))));
        remove_files(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
