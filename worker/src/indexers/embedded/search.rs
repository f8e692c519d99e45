//! Finding documents in an index.

use super::{
    layout::{self, Layout, OpenError},
    query::{self, QueryError},
};
use crate::document::Fields;
use std::path::{Path, PathBuf};
use tantivy::{
    Index, Searcher, TantivyDocument,
    collector::{Count, TopDocs},
    schema::document::Value,
};

/// An index, open for searching, in the state of its last commit.
pub struct Search {
    path: PathBuf,
    index: Index,
    layout: Layout,
    searcher: Searcher,
}

/// What a query found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// How many documents match.
    pub count: usize,
    /// The best of them, best first.
    pub hits: Vec<Hit>,
    /// The words of the query, in lower case.
    pub words: Vec<String>,
}

/// One document that matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The id of the document.
    pub id: String,
    /// How well it matches, in comparison to the others.
    pub score: f32,
    /// The document.
    pub fields: Fields,
}

/// Why nothing could be searched.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The query makes no sense.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A document in the index cannot be read.
    #[error("index {}: a document in it cannot be read: {reason}; remove the directory and run again", path.display())]
    Document {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Search {
    /// Opens the index in a directory.
    ///
    /// # Errors
    /// The directory is no index of ours.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let opened = layout::open(path)?;
        let reader = opened.index.reader().map_err(|error| OpenError::failed(path, "it cannot be read", error))?;
        Ok(Self { path: path.into(), searcher: reader.searcher(), index: opened.index, layout: opened.layout })
    }

    /// How many documents there are.
    pub fn len(&self) -> u64 {
        self.searcher.num_docs()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts what matches and gives the best matches, as many as wanted.
    ///
    /// # Errors
    /// The query makes no sense, or the index cannot be read.
    pub fn find(&self, text: &str, limit: usize) -> Result<Found, SearchError> {
        let query::Parsed { query, words } = query::parse(&self.index, &self.layout, text)?;
        let failed = |error| OpenError::failed(&self.path, "the search failed", error);
        if limit == 0 {
            let count = self.searcher.search(&query, &Count).map_err(failed)?;
            return Ok(Found { count, hits: Vec::new(), words });
        }
        let (count, best) = self.searcher.search(&query, &(Count, TopDocs::with_limit(limit).order_by_score())).map_err(failed)?;
        let mut hits = Vec::with_capacity(best.len());
        for (score, address) in best {
            hits.push(self.hit(score, &self.searcher.doc(address).map_err(failed)?)?);
        }
        Ok(Found { count, hits, words })
    }

    fn hit(&self, score: f32, stored: &TantivyDocument) -> Result<Hit, SearchError> {
        let broken = |reason: &str| SearchError::Document { path: self.path.clone(), reason: reason.to_owned() };
        let id =
            stored.get_first(self.layout.id).and_then(|value| value.as_str().map(str::to_owned)).ok_or_else(|| broken("it has no id"))?;
        let source = stored.get_first(self.layout.source).and_then(|value| value.as_bytes()).ok_or_else(|| broken("it has no source"))?;
        let fields = Fields::from_json(source).map_err(|error| broken(&error.to_string()))?;
        Ok(Hit { id, score, fields })
    }
}
