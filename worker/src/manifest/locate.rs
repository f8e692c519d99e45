//! Path of a field → its place in the file; line and column inside a text value → place in the file.

use super::{
    path::split_index,
    yaml::{Content, Node, Place, Scalar},
};
use granit_parser::ScalarStyle;

/// What a path leads to.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    /// The node, or the nearest one above it that exists.
    pub node: &'a Node,
    /// Where a problem of it is shown: the value itself if it is a scalar, else the key that leads to it.
    pub place: Place,
}

/// Follows a path as far as it exists.
pub fn locate<'a>(root: &'a Node, path: &str) -> Located<'a> {
    let mut at = Located { node: root, place: root.place };
    let mut rest = path;
    while let Some((next, after)) = step(at, rest) {
        at = next;
        rest = after;
    }
    at
}

fn step<'a, 'p>(at: Located<'a>, rest: &'p str) -> Option<(Located<'a>, &'p str)> {
    match &at.node.content {
        Content::Scalar(_) => None,
        Content::List(items) => {
            let (index, after) = split_index(rest)?;
            let node = items.get(index)?;
            Some((Located { node, place: node.place }, after))
        }
        Content::Map(entries) => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            // Keys may contain dots, so the longest that fits is meant.
            let entry = entries.iter().filter(|entry| begins_with_key(rest, &entry.key)).max_by_key(|entry| entry.key.len())?;
            let node = &entry.value;
            let place = if matches!(node.content, Content::Scalar(_)) && !node.is_null() { node.place } else { entry.place };
            Some((Located { node, place }, &rest[entry.key.len()..]))
        }
    }
}

fn begins_with_key(rest: &str, key: &str) -> bool {
    !key.is_empty() && rest.strip_prefix(key).is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
}

/// The place in the file of a line and column (from 1) inside the text of a scalar; beyond its end, that end. Whatever the style, whether folded,
/// indented, quoted or escaped, white space is all that it changes: the n-th other character is the same one in the
/// text and in the file.
pub fn place_inside(source: &str, scalar: &Scalar, (line, column): (usize, usize)) -> Option<Place> {
    let (range, style) = scalar.source.as_ref()?;
    let before = solid_characters_before(&scalar.text, line, column);
    let begin = source.get(..range.start)?;
    let mut raw = Characters { rest: source.get(range.clone())?, style: *style, place: place_after(begin) };
    let mut seen = 0;
    let mut end = raw.place;
    while let Some((place, solid)) = raw.next() {
        if !solid {
            continue;
        }
        if seen == before {
            return Some(place);
        }
        seen += 1;
        end = raw.place;
    }
    Some(end)
}

fn solid_characters_before(text: &str, line: usize, column: usize) -> usize {
    let mut lines = text.split('\n');
    let above: usize = lines.by_ref().take(line.saturating_sub(1)).map(count_solid).sum();
    let left: String = lines.next().unwrap_or_default().chars().take(column.saturating_sub(1)).collect();
    above + count_solid(&left)
}

fn count_solid(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace()).count()
}

fn place_after(text: &str) -> Place {
    let begin = text.rfind('\n').map_or(0, |end| end + 1);
    let column = text[begin..].trim_start_matches('\u{feff}').chars().count() + 1;
    Place { line: text.matches('\n').count() + 1, column }
}

/// The characters of a scalar as it stands in the file, each with its place and whether it is one that counts.
struct Characters<'a> {
    rest: &'a str,
    style: ScalarStyle,
    place: Place,
}

impl Characters<'_> {
    fn next(&mut self) -> Option<(Place, bool)> {
        let place = self.place;
        let c = self.take()?;
        let solid = match (self.style, c) {
            (ScalarStyle::DoubleQuoted, '\\') => self.escape(),
            (ScalarStyle::DoubleQuoted, '"') => false,
            // Within single quotes, two stand for one; the outer ones stand alone.
            (ScalarStyle::SingleQuoted, '\'') => self.rest.starts_with('\'') && self.take().is_some(),
            _ => !c.is_whitespace(),
        };
        Some((place, solid))
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '\n' => self.place = Place { line: self.place.line + 1, column: 1 },
            _ => self.place.column += 1,
        }
        Some(c)
    }

    /// What follows a backslash; whether it stands for a character that counts.
    fn escape(&mut self) -> bool {
        let digits = match self.take() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('n' | 't' | 'r' | 'v' | 'f' | ' ' | '\t' | '\n' | '\r' | 'N' | '_' | 'L' | 'P') | None => return false,
            Some(_) => return true,
        };
        let code: String = (0..digits).filter_map(|_| self.take()).collect();
        u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).is_none_or(|c| !c.is_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::yaml::read_one;

    fn read(text: &str) -> Node {
        let document = read_one(text);
        assert_eq!(document.findings, []);
        document.root
    }

    #[test]
    fn a_path_is_followed_as_far_as_it_exists() {
        let root = read("spec:\n  stages:\n    - copy: {fields: {a: b}}\n    - name: x\nmetadata:\n  labels: {a.b/c: v, a: w}\n");
        for (path, line, column) in [
            ("spec.stages[0].copy.fields.a", 3, 26),
            ("spec.stages[0].copy.fields", 3, 14),
            ("spec.stages[0].copy.missing.x", 3, 7),
            ("spec.stages[1]", 4, 7),
            ("spec.stages[7]", 2, 3),
            ("metadata.labels.a.b/c", 6, 19),
            ("metadata.labels.a", 6, 25),
            ("", 1, 1),
        ] {
            assert_eq!(locate(&root, path).place, Place { line, column }, "{path}");
        }
    }

    #[test]
    fn a_place_inside_a_text_is_found_in_every_style() {
        for (text, inside, line, column) in [
            ("a: plain text", (1, 7), 1, 10),
            ("a: \"q: \\\"x\\\" é\\n\\u00e9 y\"", (2, 3), 1, 24),
            ("a: 'it''s here'", (1, 6), 1, 11),
            ("a: |\n    one\n    two  three\n", (2, 6), 3, 10),
            ("a: |\n\n\n    one\n", (3, 2), 4, 6),
            ("a:\n  - |2\n      x\n     y\n", (2, 2), 4, 6),
            ("a: >-\n    one\n    two\n\n    three\n", (1, 5), 3, 5),
            ("a: >-\n    one\n    two\n\n    three\n", (2, 1), 5, 5),
            ("a: one\n   two\n", (1, 5), 2, 4),
            ("\u{feff}a: |\r\n  x\r\n  yz\r\n", (2, 2), 3, 4),
        ] {
            let root = read(text);
            let value = match &root.entries()[0].value.content {
                Content::List(items) => &items[0],
                _ => &root.entries()[0].value,
            };
            let Content::Scalar(scalar) = &value.content else { panic!("{text}") };
            assert_eq!(place_inside(text, scalar, inside), Some(Place { line, column }), "{text}");
        }
    }

    #[test]
    fn a_place_beyond_the_text_is_its_end() {
        let text = "a: |\n  x yz\n";
        let root = read(text);
        let Content::Scalar(scalar) = &root.entries()[0].value.content else { panic!("not a scalar") };
        for inside in [(1, 5), (2, 1), (9, 9)] {
            assert_eq!(place_inside(text, scalar, inside), Some(Place { line: 2, column: 7 }), "{inside:?}");
        }
    }
}
