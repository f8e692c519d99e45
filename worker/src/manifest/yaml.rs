//! YAML text → nodes that know their place. Anchors, merge keys and tags are resolved here; what kubectl would
//! read differently, or silently, is a problem: duplicate keys, keys such as `n` that become booleans, tabs.

use super::{
    path::{push_field, push_index},
    scalar,
};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle, Tag};
use serde_json::Value;
use std::{borrow::Cow, collections::HashMap, ops::Range};

/// Levels of nesting that a manifest may have. No real one comes near; it keeps every walk's stack small.
const MAX_DEPTH: usize = 100;
/// What the copies of anchored nodes may weigh together, in bytes: stops files that double with every line.
const MAX_COPIED: usize = 32 << 20;

/// Line and column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    /// The beginning of a file.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl From<&Marker> for Place {
    fn from(marker: &Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

/// Something wrong at a place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// Path of the field; empty for the document as a whole.
    pub path: String,
    /// What is wrong and how to cure it.
    pub message: String,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub content: Content,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text, a number, a boolean or nothing.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub place: Place,
    /// The value.
    pub value: Node,
}

/// A scalar as it stands in the file.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// Its text, unescaped and unfolded.
    pub text: String,
    /// Whether the text says of what type it is. Otherwise it is text whatever it looks like.
    pub plain: bool,
    /// The value cannot be known: its text names a variable that is not set, or it is an alias that leads nowhere.
    /// That has been reported, and nothing else can be said about it.
    pub unknown: bool,
    /// Where it stands in the file, in bytes. Nothing once the text is no longer that of the file.
    pub source: Option<(Range<usize>, ScalarStyle)>,
}

impl Scalar {
    /// The value. What has no JSON form was reported when the file was read.
    pub fn value(&self) -> Value {
        if self.plain { scalar::resolve(&self.text).unwrap_or(Value::Null) } else { Value::String(self.text.clone()) }
    }
}

impl Node {
    /// Whether there is nothing: `~`, `null` or no text at all.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(scalar) if scalar.plain && scalar.value().is_null())
    }

    /// Whether the value cannot be known, which has been reported.
    pub fn is_unknown(&self) -> bool {
        matches!(&self.content, Content::Scalar(Scalar { unknown: true, .. }))
    }

    /// The entries of a map; none if it is something else.
    pub fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key, `null` being as good as none.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// The text of a key's value, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            Content::Scalar(scalar) if !scalar.plain || scalar.value().is_string() => Some(&scalar.text),
            _ => None,
        }
    }

    fn weight(&self) -> usize {
        const NODE: usize = size_of::<Node>();
        match &self.content {
            Content::Scalar(scalar) => NODE + scalar.text.len(),
            Content::List(items) => NODE + items.iter().map(Node::weight).sum::<usize>(),
            Content::Map(entries) => NODE + entries.iter().map(|entry| NODE + entry.key.len() + entry.value.weight()).sum::<usize>(),
        }
    }

    fn height(&self) -> usize {
        match &self.content {
            Content::Scalar(_) => 1,
            Content::List(items) => 1 + items.iter().map(Node::height).max().unwrap_or(0),
            Content::Map(entries) => 1 + entries.iter().map(|entry| entry.value.height()).max().unwrap_or(0),
        }
    }
}

/// One document of a file.
#[derive(Debug)]
pub struct Document {
    /// What it holds.
    pub root: Node,
    /// What is wrong with the way it is written.
    pub findings: Vec<Finding>,
}

/// What could be read of a file.
#[derive(Debug, Default)]
pub struct Documents {
    /// The documents. Empty ones are left out.
    pub documents: Vec<Document>,
    /// Why others could not be read.
    pub errors: Vec<Finding>,
}

/// Reads all documents of a text. One that is not YAML does not hide the others.
pub fn parse(text: &str) -> Documents {
    let options = granit_parser::options! {
        emit_comments: false,
        block_nesting_limit: MAX_DEPTH,
        flow_nesting_limit: MAX_DEPTH,
    };
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text, options),
        source: text,
        anchors: HashMap::new(),
        copied: 0,
        path: String::new(),
        depth: 0,
        findings: Vec::new(),
    };
    reader.documents()
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a str,
    anchors: HashMap<usize, Node>,
    copied: usize,
    path: String,
    depth: usize,
    findings: Vec<Finding>,
}

type Marked<'a> = (Event<'a>, Span);

impl<'a> Reader<'a> {
    fn documents(&mut self) -> Documents {
        let mut read = Documents::default();
        loop {
            match self.document() {
                Ok(Some(root)) => {
                    let findings = std::mem::take(&mut self.findings);
                    if !root.is_null() {
                        read.documents.push(Document { root, findings });
                    }
                }
                Ok(None) => return read,
                Err(error) => {
                    read.errors.append(&mut self.findings);
                    let message = format!("not YAML: {}{}", error.info(), self.hint(error.marker()));
                    read.errors.push(Finding { place: error.marker().into(), path: String::new(), message });
                    if !matches!(self.parser.proceed_next_document(), Ok(true)) {
                        return read;
                    }
                }
            }
        }
    }

    /// The cure of the most likely mistake, if the line has it: braces mean something else inside of a flow map.
    fn hint(&self, marker: &Marker) -> &'static str {
        let line = self.source.lines().nth(marker.line().saturating_sub(1)).unwrap_or_default();
        let flows = line.find("${").is_some_and(|at| line[..at].contains(['{', '[']));
        if flows { "; a variable inside of { } or [ ] needs quotes: \"${NAME}\"" } else { "" }
    }

    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        loop {
            match self.parser.next_event().transpose()? {
                None | Some((Event::StreamEnd, _)) => return Ok(None),
                Some((Event::DocumentStart(..), _)) => {
                    self.anchors.clear();
                    self.path.clear();
                    self.depth = 0;
                    return self.next().and_then(|event| self.node(event)).map(Some);
                }
                Some(_) => {}
            }
        }
    }

    /// The next event inside of a document.
    fn next(&mut self) -> Result<Marked<'a>, ScanError> {
        self.parser.next_event().unwrap_or_else(|| {
            let end = Marker::new(0, self.source.lines().count().max(1), 0);
            Err(ScanError::new(end, "the document ends too early"))
        })
    }

    fn node(&mut self, (event, span): Marked<'a>) -> Result<Node, ScanError> {
        let place = Place::from(&span.start);
        let (anchor, content) = match event {
            Event::Alias(anchor) => return Ok(self.copy(anchor, place)),
            Event::Scalar(text, style, anchor, tag) => (anchor, Content::Scalar(self.scalar(text, style, tag.as_deref(), &span))),
            Event::SequenceStart(style, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", place);
                (anchor, Content::List(self.list(style)?))
            }
            Event::MappingStart(style, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", place);
                (anchor, Content::Map(self.map(style)?))
            }
            other => return Err(ScanError::new(span.start, format!("unexpected {other:?}"))),
        };
        let node = Node { place, content };
        if anchor != 0 {
            self.copied += node.weight();
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// The node that an alias stands for.
    fn copy(&mut self, anchor: usize, place: Place) -> Node {
        let Some(original) = self.anchors.get(&anchor) else {
            self.report(place, "this alias stands for a value that contains it");
            return unknown(place);
        };
        self.copied += original.weight();
        if self.copied > MAX_COPIED || self.depth + original.height() > MAX_DEPTH {
            self.report(place, "the aliases of this file multiply beyond all measure; write the values out");
            return unknown(place);
        }
        original.clone()
    }

    fn scalar(&mut self, text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Scalar {
        let place = Place::from(&span.start);
        let source = match (span.start.byte_offset(), span.end.byte_offset()) {
            (Some(start), Some(end)) => Some((start..end, style)),
            _ => None,
        };
        // An absent value comes as `~` without extent.
        let absent = style == ScalarStyle::Plain && span.start.index() == span.end.index();
        let text = if absent { String::new() } else { text.into_owned() };
        let plain = match tag.filter(|tag| *tag.handle() != *"!" || !tag.suffix().is_empty()) {
            None => style == ScalarStyle::Plain && tag.is_none(),
            Some(tag) => match tag.core_suffix() {
                Some("str") => false,
                Some(wanted @ ("int" | "float" | "bool" | "null")) => {
                    self.check_typed(&text, wanted, place);
                    true
                }
                _ => {
                    self.report(place, format!("the tag `{}` has no meaning here; remove it", tag.original()));
                    false
                }
            },
        };
        if plain && scalar::resolve(&text).is_none() {
            self.report(place, format!("`{text}` is not a number that JSON knows; put it in quotes if it is text"));
        }
        Scalar { text, plain, unknown: false, source }
    }

    fn check_typed(&mut self, text: &str, wanted: &str, place: Place) {
        let fits = scalar::resolve(text).is_none_or(|value| match wanted {
            "int" => value.is_i64() || value.is_u64(),
            "float" => value.is_number(),
            "bool" => value.is_boolean(),
            _ => value.is_null(),
        });
        if !fits {
            self.report(place, format!("`{text}` is not what its tag `!!{wanted}` says; correct one of them"));
        }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, allowed: &str, place: Place) {
        if let Some(tag) = tag
            && tag.core_suffix() != Some(allowed)
        {
            self.report(place, format!("the tag `{}` has no meaning here; remove it", tag.original()));
        }
    }

    fn list(&mut self, style: StructureStyle) -> Result<Vec<Node>, ScanError> {
        let mut items = Vec::new();
        let parent = self.path.len();
        self.depth += 1;
        loop {
            let event = self.next()?;
            if matches!(event.0, Event::SequenceEnd) {
                break;
            }
            push_index(&mut self.path, items.len());
            self.check_indentation(style, &event.1);
            let item = self.node(event)?;
            items.push(item);
            self.path.truncate(parent);
        }
        self.depth -= 1;
        Ok(items)
    }

    fn map(&mut self, style: StructureStyle) -> Result<Vec<Entry>, ScanError> {
        let mut map = MapBuilder::default();
        let parent = self.path.len();
        self.depth += 1;
        loop {
            let event = self.next()?;
            if matches!(event.0, Event::MappingEnd) {
                break;
            }
            self.check_indentation(style, &event.1);
            let key = self.node(event)?;
            let place = key.place;
            let Some((key, merges)) = self.key(&key) else {
                // Its value is read all the same, so that nothing in it stays unseen.
                let value = self.next()?;
                self.node(value)?;
                continue;
            };
            push_field(&mut self.path, &key);
            let value = self.next()?;
            let value = self.node(value)?;
            let complaint = if merges { map.merge(place, value) } else { map.insert(Entry { key, place, value }) };
            if let Some(complaint) = complaint {
                self.report(place, complaint);
            }
            self.path.truncate(parent);
        }
        self.depth -= 1;
        Ok(map.entries)
    }

    /// The text of a key, and whether it is the merge key.
    fn key(&mut self, node: &Node) -> Option<(String, bool)> {
        let Content::Scalar(scalar) = &node.content else {
            self.report(node.place, "a key must be text, not a list or a map");
            return None;
        };
        if !scalar.plain {
            return Some((scalar.text.clone(), false));
        }
        let text = scalar.text.clone();
        let complaint = match scalar::as_key(&scalar.value()) {
            Some(read) if read == text => None,
            Some(read) => Some(format!("kubectl reads the key `{text}` as `{read}`; put it in quotes")),
            None => Some(format!("the key `{text}` is no text; put it in quotes")),
        };
        if let Some(complaint) = complaint {
            let parent = self.path.len();
            push_field(&mut self.path, &text);
            self.report(node.place, complaint);
            self.path.truncate(parent);
        }
        let merges = text == "<<";
        Some((text, merges))
    }

    /// kubectl refuses tabs before a key or an item of a block.
    fn check_indentation(&mut self, style: StructureStyle, span: &Span) {
        let (StructureStyle::Block, Some(offset)) = (style, span.start.byte_offset()) else { return };
        let before = self.source.get(..offset).unwrap_or_default();
        let line = &before[before.rfind(['\n', '\r']).map_or(0, |end| end + 1)..];
        if line.contains('\t') && line.trim_start_matches([' ', '\t', '-', '?', '\u{feff}']).is_empty() {
            self.report(Place::from(&span.start), "a tab stands before this; YAML is indented by spaces only");
        }
    }

    fn report(&mut self, place: Place, message: impl Into<String>) {
        self.findings.push(Finding { place, path: self.path.clone(), message: message.into() });
    }
}

/// Stands for a value that cannot be had.
fn unknown(place: Place) -> Node {
    Node { place, content: Content::Scalar(Scalar { text: String::new(), plain: false, unknown: true, source: None }) }
}

/// Entries of a map in order, with what `<<` brings. Answers are complaints.
#[derive(Default)]
struct MapBuilder {
    entries: Vec<Entry>,
    /// Key → its index in `entries`, and whether `<<` brought it.
    known: HashMap<String, (usize, bool)>,
    merged: Option<Place>,
}

impl MapBuilder {
    fn insert(&mut self, entry: Entry) -> Option<String> {
        match self.known.get_mut(&entry.key) {
            Some((_, false)) => {
                let first = self.known.get(&entry.key).map_or(0, |(index, _)| self.entries[*index].place.line);
                Some(format!("the key `{}` is set already in line {first}; remove one of them", entry.key))
            }
            Some((index, brought)) => {
                *brought = false;
                self.entries[*index] = entry;
                None
            }
            None => {
                self.known.insert(entry.key.clone(), (self.entries.len(), false));
                self.entries.push(entry);
                None
            }
        }
    }

    /// Takes over the entries of a map, or of a list of maps of which earlier ones win.
    fn merge(&mut self, place: Place, value: Node) -> Option<String> {
        if let Some(first) = self.merged.replace(place) {
            return Some(format!("the key `<<` is set already in line {}; write one with a list of aliases", first.line));
        }
        let maps = match value.content {
            Content::List(items) => items,
            _ => vec![value],
        };
        for map in maps {
            let Content::Map(entries) = map.content else {
                return Some("`<<` takes an alias of a map, or a list of them".into());
            };
            for entry in entries {
                match self.known.get(&entry.key) {
                    // In YAML the key beside `<<` wins; kubectl lets the later of the two win.
                    Some((_, false)) => {
                        return Some(format!("`<<` also sets `{}`, and kubectl lets the later win; write `<<` first", entry.key));
                    }
                    Some((_, true)) => {}
                    None => {
                        self.known.insert(entry.key.clone(), (self.entries.len(), true));
                        self.entries.push(entry);
                    }
                }
            }
        }
        None
    }
}

/// The only document of a text, for tests.
#[cfg(test)]
pub fn read_one(text: &str) -> Document {
    let mut read = parse(text);
    assert_eq!((read.documents.len(), read.errors), (1, vec![]), "{text}");
    read.documents.remove(0)
}
