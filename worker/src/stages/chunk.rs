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
use std::{collections::VecDeque, ops::Range, sync::Arc};
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
        let mut places = Places::new(Arc::clone(&self.splitter));
        let pieces = Pieces { text, heritage: self.family.of(document), stage: self.clone() };
        let mut index = 0;
        let children = std::iter::from_fn(move || {
            let child = pieces.child(index, places.next(&pieces.text)?);
            index += 1;
            Some(child)
        });
        Ok(Next::Children { children: Box::new(children), drop_parent: self.drop_parent })
    }
}

/// The text of one document, to be cut.
struct Pieces {
    text: CompactString,
    heritage: Heritage,
    stage: Chunk,
}

/// Where the pieces are in the text of one document, one after the other, without white space around them.
///
/// For each piece the splitters of the crate look at all the text that is left. So a long text is given to them window by
/// window. The last pieces of a window depend on the text behind it: with the first of them the next window begins.
struct Places {
    splitter: Arc<Splitter>,
    found: VecDeque<Range<usize>>,
    /// Where the next window begins; nothing if there is none.
    begin: Option<usize>,
    /// Where the last piece ended: what overlaps and goes no further is no piece of its own.
    end: usize,
}

impl Places {
    fn new(splitter: Arc<Splitter>) -> Self {
        Self { splitter, found: VecDeque::new(), begin: Some(0), end: 0 }
    }

    fn next(&mut self, text: &str) -> Option<Range<usize>> {
        while self.found.is_empty() {
            let begin = self.begin?;
            self.begin = self.find(text, begin);
        }
        self.found.pop_front()
    }

    /// Finds the places in one window; gives the begin of the next.
    fn find(&mut self, text: &str, begin: usize) -> Option<usize> {
        let mut length = self.splitter.window;
        loop {
            let end = text.floor_char_boundary(begin.saturating_add(length));
            let window = &text[begin..end];
            let mut found = self.splitter.ranges(window);
            let filled = window.trim_end().len();
            let undecided = found.iter().position(|range| range.end >= filled).unwrap_or(found.len()).min(found.len().saturating_sub(1));
            if end < text.len() && undecided == 0 {
                length = length.saturating_mul(2);
                continue;
            }
            let next = (end < text.len()).then(|| begin + found[undecided].start);
            if next.is_some() {
                found.truncate(undecided);
            }
            for range in found.into_iter().map(|range| begin + range.start..begin + range.end) {
                if range.end > self.end {
                    self.end = range.end;
                    self.found.push_back(range);
                }
            }
            return next;
        }
    }
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

/// How to cut.
#[derive(Debug)]
struct Splitter {
    kind: SplitterKind,
    /// Bytes of text that are looked at together.
    window: usize,
}

/// The splitter crate's types for each way to cut.
#[derive(Debug)]
enum SplitterKind {
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
        let kind = match (spec.unit, spec.markdown) {
            (ChunkUnit::Characters, false) => SplitterKind::Characters(TextSplitter::new(config)),
            (ChunkUnit::Words, false) => SplitterKind::Words(TextSplitter::new(config.with_sizer(Words))),
            (ChunkUnit::Characters, true) => SplitterKind::MarkdownCharacters(MarkdownSplitter::new(config)),
            (ChunkUnit::Words, true) => SplitterKind::MarkdownWords(MarkdownSplitter::new(config.with_sizer(Words))),
        };
        let bytes_of_one = match spec.unit {
            ChunkUnit::Characters => 4,
            ChunkUnit::Words => 16,
        };
        // the structure of a text in Markdown is told from more than a few pieces
        let smallest = if spec.markdown { 64 << 10 } else { 64 };
        Some(Self { kind, window: (spec.size as usize).saturating_mul(4 * bytes_of_one).max(smallest) })
    }

    /// Where the pieces are in a text, without white space around them.
    fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let range = |(start, piece): (usize, &str)| start..start + piece.len();
        match &self.kind {
            SplitterKind::Characters(splitter) => splitter.chunk_indices(text).map(range).collect(),
            SplitterKind::Words(splitter) => splitter.chunk_indices(text).map(range).collect(),
            SplitterKind::MarkdownCharacters(splitter) => splitter.chunk_indices(text).map(range).collect(),
            SplitterKind::MarkdownWords(splitter) => splitter.chunk_indices(text).map(range).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkUnit, Places, Problems, Splitter};
    use crate::stages::testing::{failure, family, problems};
    use penstock_crds::stages as spec;
    use proptest::prelude::*;
    use std::{ops::Range, sync::Arc};

    fn splitter(size: u32, overlap: u32, unit: ChunkUnit) -> Splitter {
        let mut spec: spec::Chunk =
            serde_json::from_value(serde_json::json!({"source": "a", "size": size, "overlap": overlap})).expect("spec");
        spec.unit = unit;
        Splitter::compile(&spec, &mut Problems::new("chunk", &mut Vec::new())).expect("splitter")
    }

    const TEXT: &str = "([a-zÄ🙂]{1,9}[. \\n]{1,3}){0,200}";

    fn places(splitter: Splitter, text: &str) -> Vec<Range<usize>> {
        let mut places = Places::new(Arc::new(splitter));
        std::iter::from_fn(|| places.next(text)).collect()
    }

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

    #[test]
    fn a_long_text_takes_time_by_its_length_only() {
        let words = "many words and no end. ".repeat(4_000);
        assert_eq!(places(splitter(50, 0, ChunkUnit::Characters), &"x".repeat(200_000)).len(), 4_000);
        assert!(places(splitter(1, 0, ChunkUnit::Characters), &words).len() > 50_000);
        assert!(places(splitter(50, 10, ChunkUnit::Words), &words).len() > 400);
        assert!(places(splitter(50, 10, ChunkUnit::Words), &"x".repeat(100_000)).len() == 1);
        assert!(places(splitter(50, 10, ChunkUnit::Characters), &" ".repeat(200_000)).is_empty());
    }

    proptest! {
        #[test]
        fn windows_miss_nothing_and_repeat_no_more_than_asked_for(text in TEXT, size in 2_u32..40, overlap in 0_u32..40, words: bool) {
            let overlap = overlap.min(size - 1);
            let mut splitter = splitter(size, overlap, if words { ChunkUnit::Words } else { ChunkUnit::Characters });
            // a few pieces
            splitter.window = size as usize * if words { 64 } else { 16 };
            let mut covered = 0;
            for range in places(splitter, &text) {
                let piece = &text[range.clone()];
                let length = if words { piece.split_whitespace().count() } else { piece.chars().count() };
                prop_assert!((1..=size as usize).contains(&length), "{piece:?}");
                let repeated = text.get(range.start..covered).unwrap_or_default();
                let repeated = if words { repeated.split_whitespace().count() } else { repeated.chars().count() };
                prop_assert!(repeated <= overlap as usize, "{repeated} repeated in {piece:?}");
                prop_assert!(range.start <= covered || text[covered..range.start].trim().is_empty(), "{range:?} behind {covered}");
                covered = range.end;
            }
            prop_assert!(text[covered..].trim().is_empty());
        }

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
