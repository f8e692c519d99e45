//! Where a CSV record ends and what its cells are: decides on bytes alone, reads nothing.
//!
//! RFC 4180, and where that is silent: CR, LF and CRLF end a record; a quote inside an unquoted cell is a character like any
//! other; what follows a closing quote must be a delimiter or the end of the record.

use memchr::{memchr, memchr2, memchr3};

/// The characters that have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) quote: Option<u8>,
    pub(super) comment: Option<u8>,
    /// Blanks and tabs around cells are no part of them; inside quotes they are.
    pub(super) trim: bool,
}

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Cannot be said yet.
    More,
    /// An empty line of that length.
    Blank(usize),
    /// A line to pass over.
    Comment,
    /// A record without quoted cells.
    Plain(Extent),
    /// A record with quoted cells; its cells are made of the [pieces](Piece).
    Quoted(Extent),
    /// Something follows a closing quote, at this place.
    Malformed(usize),
    /// The file ends inside quotes.
    Unterminated,
}

/// How long a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Without its line end.
    pub(super) content: usize,
    /// With it.
    pub(super) whole: usize,
}

/// A part of a cell as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) begin: usize,
    pub(super) end: usize,
    /// The cell ends here.
    pub(super) last: bool,
}

impl Dialect {
    /// Looks at what begins at the beginning of `text`, which is not empty. `ended`: nothing follows behind it.
    pub(super) fn scan(&self, text: &[u8], ended: bool, pieces: &mut Vec<Piece>) -> Scan {
        if self.comment.is_some_and(|comment| text[0] == comment) {
            return Scan::Comment;
        }
        let stop = match self.quote {
            Some(quote) => memchr3(b'\n', b'\r', quote, text),
            None => memchr2(b'\n', b'\r', text),
        };
        let content = match stop {
            Some(at) if text[at] != b'\n' && text[at] != b'\r' => return self.scan_quoted(text, ended, pieces),
            Some(at) => at,
            None if ended => text.len(),
            None => return Scan::More,
        };
        let Some(whole) = line_end(text, content, ended) else { return Scan::More };
        match content == 0 || self.trim && text[..content].iter().all(|&byte| self.is_blank(byte)) {
            true => Scan::Blank(whole),
            false => Scan::Plain(Extent { content, whole }),
        }
    }

    fn scan_quoted(&self, text: &[u8], ended: bool, pieces: &mut Vec<Piece>) -> Scan {
        pieces.clear();
        let mut at = 0;
        loop {
            let begin = at;
            at = self.after_blanks(text, at);
            if at < text.len() && Some(text[at]) == self.quote {
                match self.quoted_cell(text, at + 1, ended, pieces) {
                    Ok(end) => at = self.after_blanks(text, end),
                    Err(fault) => return fault,
                }
            } else {
                let end = memchr3(self.delimiter, b'\n', b'\r', &text[begin..]).map(|found| begin + found);
                let Some(end) = end.or(ended.then_some(text.len())) else { return Scan::More };
                let trimmed = self.trimmed(&text[begin..end]);
                pieces.push(Piece { begin: begin + trimmed.0, end: begin + trimmed.1, last: true });
                at = end;
            }
            match text.get(at) {
                Some(&byte) if byte == self.delimiter => at += 1,
                None if !ended => return Scan::More,
                None | Some(b'\n' | b'\r') => {
                    let Some(whole) = line_end(text, at, ended) else { return Scan::More };
                    return Scan::Quoted(Extent { content: at, whole });
                }
                Some(_) => return Scan::Malformed(at),
            }
        }
    }

    /// The pieces of a quoted cell that begins at `at`; answers the place behind the closing quote.
    fn quoted_cell(&self, text: &[u8], mut at: usize, ended: bool, pieces: &mut Vec<Piece>) -> Result<usize, Scan> {
        let quote = self.quote.unwrap_or(b'"');
        loop {
            let Some(found) = memchr(quote, &text[at..]) else {
                return Err(if ended { Scan::Unterminated } else { Scan::More });
            };
            let close = at + found;
            match text.get(close + 1) {
                Some(&next) if next == quote => {
                    pieces.push(Piece { begin: at, end: close + 1, last: false });
                    at = close + 2;
                }
                None if !ended => return Err(Scan::More),
                _ => {
                    pieces.push(Piece { begin: at, end: close, last: true });
                    return Ok(close + 1);
                }
            }
        }
    }

    fn is_blank(&self, byte: u8) -> bool {
        (byte == b' ' || byte == b'\t') && byte != self.delimiter
    }

    fn after_blanks(&self, text: &[u8], mut at: usize) -> usize {
        while self.trim && at < text.len() && self.is_blank(text[at]) {
            at += 1;
        }
        at
    }

    /// Where an unquoted cell begins and ends without the blanks around it.
    #[inline]
    pub(super) fn trimmed(&self, cell: &[u8]) -> (usize, usize) {
        if !self.trim {
            return (0, cell.len());
        }
        let begin = self.after_blanks(cell, 0);
        let end = cell.iter().rposition(|&byte| !self.is_blank(byte)).map_or(begin, |at| at + 1);
        (begin, end)
    }
}

/// Where the line end at `at` ends; nothing if that cannot be said yet.
fn line_end(text: &[u8], at: usize, ended: bool) -> Option<usize> {
    match (text.get(at), text.get(at + 1)) {
        (None, _) => Some(at),
        (Some(b'\r'), Some(b'\n')) => Some(at + 2),
        (Some(b'\r'), None) if !ended => None,
        _ => Some(at + 1),
    }
}

/// Calls `found` with each place of a byte. Cells are short: looking at eight bytes at once costs less than a search for each.
#[inline]
pub(super) fn each_place(text: &[u8], byte: u8, mut found: impl FnMut(usize)) {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let pattern = u64::from_ne_bytes([byte; 8]);
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let difference = u64::from_le_bytes(*word) ^ pattern;
        // the highest bit of every byte in which nothing differs
        let mut places = !(((difference & LOW_BITS) + LOW_BITS) | difference | LOW_BITS);
        while places != 0 {
            found(index * 8 + places.trailing_zeros() as usize / 8);
            places &= places - 1;
        }
    }
    let begin = words.len() * 8;
    rest.iter().enumerate().filter(|(_, other)| **other == byte).for_each(|(at, _)| found(begin + at));
}

/// How many lines end in a text. CRLF is one line end.
pub(super) fn count_line_ends(text: &[u8]) -> u64 {
    let ends = memchr::memchr2_iter(b'\n', b'\r', text).filter(|&at| text[at] == b'\r' || at == 0 || text[at - 1] != b'\r');
    ends.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Dialect = Dialect { delimiter: b',', quote: Some(b'"'), comment: None, trim: false };

    /// The cells of the record at the beginning of a text, and what follows it.
    fn cells(dialect: Dialect, text: &str) -> Result<(Vec<String>, &str), Scan> {
        let mut pieces = Vec::new();
        match dialect.scan(text.as_bytes(), true, &mut pieces) {
            Scan::Plain(extent) => {
                let cells = text[..extent.content].split(char::from(dialect.delimiter)).map(|cell| {
                    let (begin, end) = dialect.trimmed(cell.as_bytes());
                    cell[begin..end].to_owned()
                });
                Ok((cells.collect(), &text[extent.whole..]))
            }
            Scan::Quoted(extent) => {
                let mut cells = Vec::new();
                let mut cell = String::new();
                for piece in pieces {
                    cell.push_str(&text[piece.begin..piece.end]);
                    if piece.last {
                        cells.push(std::mem::take(&mut cell));
                    }
                }
                Ok((cells, &text[extent.whole..]))
            }
            other => Err(other),
        }
    }

    #[test]
    fn records_are_cut_as_rfc_4180_says() {
        let cases: [(&str, &[&str], &str); 14] = [
            ("a,b\nc", &["a", "b"], "c"),
            ("a,b\r\nc", &["a", "b"], "c"),
            ("a,b\rc", &["a", "b"], "c"),
            ("a,,", &["a", "", ""], ""),
            (",\n", &["", ""], ""),
            ("\"a\",\"b\"\n", &["a", "b"], ""),
            ("\"a\nb\",c\r\nd", &["a\nb", "c"], "d"),
            ("\"a\"\"b\"\"\",\"\"", &["a\"b\"", ""], ""),
            ("\"\"\n", &[""], ""),
            ("a\"b,\"c\"", &["a\"b", "c"], ""),
            ("\"a\",", &["a", ""], ""),
            ("a\\,b", &["a\\", "b"], ""),
            ("a\0b,c", &["a\0b", "c"], ""),
            ("\"a,b\",c\"\"d", &["a,b", "c\"\"d"], ""),
        ];
        for (text, wanted, rest) in cases {
            assert_eq!(cells(PLAIN, text), Ok((wanted.iter().map(|&cell| cell.to_owned()).collect(), rest)), "{text:?}");
        }
    }

    #[test]
    fn faults_of_quotes_are_found_at_their_place() {
        assert_eq!(cells(PLAIN, "\"x\"y,z\n"), Err(Scan::Malformed(3)));
        assert_eq!(cells(PLAIN, "a,\"x\" ,z\n"), Err(Scan::Malformed(5)));
        assert_eq!(cells(PLAIN, "a,\"x\nb,c\n"), Err(Scan::Unterminated));
        assert_eq!(cells(PLAIN, "a,\""), Err(Scan::Unterminated));
    }

    #[test]
    fn other_dialects_change_what_has_a_meaning() {
        let no_quote = Dialect { quote: None, ..PLAIN };
        assert_eq!(cells(no_quote, "\"a,b\n"), Ok((vec!["\"a".into(), "b".into()], "")));
        let trim = Dialect { trim: true, delimiter: b';', ..PLAIN };
        assert_eq!(cells(trim, " a b ;\t\" c \" ; d\"\n"), Ok((vec!["a b".into(), " c ".into(), "d\"".into()], "")));
        assert_eq!(cells(trim, "  \nx"), Err(Scan::Blank(3)));
        let tabs = Dialect { trim: true, delimiter: b'\t', ..PLAIN };
        assert_eq!(cells(tabs, "a \t\t b\n"), Ok((vec!["a".into(), String::new(), "b".into()], "")));
        let comment = Dialect { comment: Some(b'#'), ..PLAIN };
        assert_eq!(cells(comment, "# \"x\n"), Err(Scan::Comment));
        assert_eq!(cells(comment, "a#,\"#\""), Ok((vec!["a#".into(), "#".into()], "")));
    }

    #[test]
    fn lines_end_with_any_of_the_three_line_ends() {
        assert_eq!(count_line_ends(b"a\nb\r\nc\rd\n\n\r\r\n"), 7);
    }

    proptest! {
        /// Nothing is decided before it can be: what is said of a beginning is what is said of the whole.
        #[test]
        fn a_longer_text_never_changes_what_was_said(text in "[ab,\"\n\r]{1,24}") {
            let bytes = text.as_bytes();
            let (mut pieces, mut early) = (Vec::new(), Vec::new());
            let whole = PLAIN.scan(bytes, true, &mut pieces);
            for cut in 1..bytes.len() {
                let said = PLAIN.scan(&bytes[..cut], false, &mut early);
                if said != Scan::More {
                    prop_assert_eq!(said, whole);
                    if matches!(said, Scan::Quoted(_)) {
                        prop_assert_eq!(&early, &pieces);
                    }
                }
            }
        }

        /// Each place is found once, in order.
        #[test]
        fn places_are_those_that_a_loop_finds(text in prop::collection::vec(prop_oneof![Just(b','), Just(b'-'), Just(0xac), any::<u8>()], 0..40)) {
            let mut places = Vec::new();
            each_place(&text, b',', |at| places.push(at));
            prop_assert_eq!(places, memchr::memchr_iter(b',', &text).collect::<Vec<_>>());
        }

        /// Where the csv crate and we mean the same thing, we give the same cells.
        #[test]
        fn well_formed_texts_are_read_as_by_the_csv_crate(rows in prop::collection::vec(prop::collection::vec("[a,\"\n\r é]{0,5}", 1..4), 1..6)) {
            let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
            for row in &rows {
                writer.write_record(row).expect("write");
            }
            let text = String::from_utf8(writer.into_inner().expect("text")).expect("utf-8");
            let mut rest = text.as_str();
            for row in &rows {
                let (cells, after) = cells(PLAIN, rest).expect("a record");
                prop_assert_eq!(&cells, row);
                rest = after;
            }
            prop_assert_eq!(rest, "");
        }
    }
}
