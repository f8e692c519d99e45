//! `chunk`: pieces of a long text as documents of their own.

use super::{
    Next, Stage, StageError,
    children::{Family, Heritage},
    setting,
};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use compact_str::CompactString;
use penstock_crds::stages::{self as spec, ChunkUnit};
use std::{ops::Range, sync::Arc};
use text_splitter::{Characters, ChunkConfig, ChunkSizer, MarkdownSplitter, TextSplitter};

/// Cuts a text into pieces.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    source: Path,
    target: Path,
    splitter: Arc<Splitter>,
    index_field: Option<Path>,
    offset_field: Option<Path>,
    family: Family,
    drop_parent: bool,
}

impl Chunk {
    pub(super) fn compile(spec: &spec::Chunk, problems: &mut Problems<'_>) -> Option<Self> {
        let source = setting::path(&spec.source, "source", problems);
        let target = setting::path(&spec.target, "target", problems);
        let splitter = Splitter::compile(spec, problems);
        let index_field = setting::optional_path(spec.index_field.as_ref(), "indexField", problems);
        let offset_field = setting::optional_path(spec.offset_field.as_ref(), "offsetField", problems);
        let family = Family::compile(&spec.id_template, &spec.copy_fields, spec.parent_id_field.as_ref(), problems);
        Some(Self {
            source: source?,
            target: target?,
            splitter: Arc::new(splitter?),
            index_field: index_field?,
            offset_field: offset_field?,
            family: family?,
            drop_parent: spec.drop_parent,
        })
    }
}

impl Stage for Chunk {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        let text = match document.get(&self.source) {
            None | Some(Value::Null) => return Ok(Next::Continue),
            Some(Value::Text(text)) => text.clone(),
            Some(other) => return Err(StageError(format!("`{}` is {}, not text", self.source, other.kind()))),
        };
        // where the pieces are is a few bytes for each; the pieces themselves are made one by one
        let ranges = self.splitter.ranges(&text);
        let pieces = Pieces { text, heritage: self.family.of(document), stage: self.clone() };
        let children = ranges.into_iter().enumerate().map(move |(index, range)| pieces.child(index, range));
        Ok(Next::Children { children: Box::new(children), drop_parent: self.drop_parent })
    }
}

/// The text of one document, to be cut.
struct Pieces {
    text: CompactString,
    heritage: Heritage,
    stage: Chunk,
}

impl Pieces {
    fn child(&self, index: usize, range: Range<usize>) -> Result<Document, StageError> {
        self.heritage.child(index, |child| {
            child.set(&self.stage.target, self.text[range.clone()].into())?;
            if let Some(path) = &self.stage.index_field {
                child.set(path, (index as u64).into())?;
            }
            if let Some(path) = &self.stage.offset_field {
                child.set(path, (range.start as u64).into())?;
            }
            Ok(())
        })
    }
}

/// The splitter crate's types for each way to cut.
#[derive(Debug)]
enum Splitter {
    Characters(TextSplitter<Characters>),
    Words(TextSplitter<Words>),
    MarkdownCharacters(MarkdownSplitter<Characters>),
    MarkdownWords(MarkdownSplitter<Words>),
}

/// Counts words, separated by white space.
#[derive(Debug)]
struct Words;

impl ChunkSizer for Words {
    fn size(&self, chunk: &str) -> usize {
        chunk.split_whitespace().count()
    }
}

impl Splitter {
    fn compile(spec: &spec::Chunk, problems: &mut Problems<'_>) -> Option<Self> {
        if spec.size == 0 {
            problems.add("size", "must be at least 1");
            return None;
        }
        let size = ChunkConfig::new(spec.size as usize);
        let Ok(config) = size.with_overlap(spec.overlap as usize) else {
            problems.add("overlap", format!("overlap must be smaller than size ({})", spec.size));
            return None;
        };
        Some(match (spec.unit, spec.markdown) {
            (ChunkUnit::Characters, false) => Self::Characters(TextSplitter::new(config)),
            (ChunkUnit::Words, false) => Self::Words(TextSplitter::new(config.with_sizer(Words))),
            (ChunkUnit::Characters, true) => Self::MarkdownCharacters(MarkdownSplitter::new(config)),
            (ChunkUnit::Words, true) => Self::MarkdownWords(MarkdownSplitter::new(config.with_sizer(Words))),
        })
    }

    /// Where the pieces are in the text, without white space around them.
    fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let range = |(start, piece): (usize, &str)| start..start + piece.len();
        match self {
            Self::Characters(splitter) => splitter.chunk_indices(text).map(range).collect(),
            Self::Words(splitter) => splitter.chunk_indices(text).map(range).collect(),
            Self::MarkdownCharacters(splitter) => splitter.chunk_indices(text).map(range).collect(),
            Self::MarkdownWords(splitter) => splitter.chunk_indices(text).map(range).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, family, problems};
    use proptest::prelude::*;

    fn texts(children: Vec<(String, String)>) -> Vec<String> {
        let text = |json: &str| serde_json::from_str::<serde_json::Value>(json).expect(json)["text"].as_str().expect("text").to_owned();
        children.iter().map(|(_, json)| text(json)).collect()
    }

    #[test]
    fn pieces_end_at_the_best_boundary_and_know_their_place() {
        let stage = r#"{"chunk": {"source": "body", "target": "t", "size": 16, "indexField": "n", "offsetField": "at",
            "copyFields": ["lang"], "parentIdField": "doc", "idTemplate": "{id}/{n}"}}"#;
        assert_eq!(
            family(stage, "d", r#"{"lang":"de","body":"  Größe zählt.\n\nZweiter Absatz hier."}"#),
            [
                ("d/0".into(), r#"{"t":"Größe zählt.","n":0,"at":2,"lang":"de","doc":"d"}"#.into()),
                ("d/1".into(), r#"{"t":"Zweiter Absatz","n":1,"at":19,"lang":"de","doc":"d"}"#.into()),
                ("d/2".into(), r#"{"t":"hier.","n":2,"at":34,"lang":"de","doc":"d"}"#.into()),
            ] as [(String, String); 3]
        );
    }

    #[test]
    fn words_are_counted_and_repeated() {
        let stage = r#"{"chunk": {"source": "a", "size": 3, "overlap": 1, "unit": "Words"}}"#;
        assert_eq!(texts(family(stage, "d", r#"{"a":"one two three four five"}"#)), ["one two three", "three four five"]);
    }

    #[test]
    fn markdown_is_cut_at_its_headings() {
        let text = serde_json::json!({"a": "# One\ntext of one\n# Two\ntext of two\n"}).to_string();
        for (size, unit) in [(24, "Characters"), (6, "Words")] {
            let stage = format!(r#"{{"chunk": {{"source": "a", "size": {size}, "unit": "{unit}", "markdown": true}}}}"#);
            assert_eq!(texts(family(&stage, "d", &text)), ["# One\ntext of one", "# Two\ntext of two"], "{unit}");
        }
    }

    #[test]
    fn nothing_to_cut_means_no_children() {
        for document in ["{}", r#"{"a":null}"#, r#"{"a":""}"#, r#"{"a":" \n "}"#] {
            assert!(family(r#"{"chunk": {"source": "a"}}"#, "d", document).is_empty(), "{document}");
        }
        assert_eq!(failure(r#"{"chunk": {"source": "a"}}"#, r#"{"a":5}"#), "`a` is a whole number, not text");
    }

    #[test]
    fn sizes_that_cannot_be_are_problems() {
        assert_eq!(problems(r#"{"chunk": {"source": "a", "size": 5, "overlap": 5}}"#)[0].path, "[0].chunk.overlap");
        assert_eq!(problems(r#"{"chunk": {"source": "a", "size": 0}}"#)[0].path, "[0].chunk.size");
    }

    proptest! {
        #[test]
        fn pieces_fit_and_miss_nothing_but_white_space(text in "[a-z. \n]{0,200}", size in 1_u32..30) {
            let stage = format!(r#"{{"chunk": {{"source": "a", "size": {size}}}}}"#);
            let pieces = texts(family(&stage, "d", &serde_json::json!({"a": text}).to_string()));
            prop_assert!(pieces.iter().all(|piece| (1..=size as usize).contains(&piece.chars().count())));
            let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(solid(&pieces.concat()), solid(&text));
        }
    }
}
