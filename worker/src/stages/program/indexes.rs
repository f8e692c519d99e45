//! The indexes into lists that a program names, told from its text.
//!
//! `.a[900000000] = 1` makes a list of that many elements, and already the compiler notes the type of each. So what is too
//! large must be found before anything is compiled.

use super::depth::{is_word, literal_end};

/// The largest index in a path, whether counted from the begin or the end, and the byte where it stands.
pub(super) fn largest_index(source: &str) -> Option<(u64, usize)> {
    let mut largest: Option<(u64, usize)> = None;
    let (mut at, mut before) = (0, ' ');
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' => literal_end(rest, '"'),
            '\'' if matches!(before, 'r' | 's' | 't') => literal_end(rest, '\''),
            '[' if is_word(before) || matches!(before, '.' | '@' | '"' | ')' | ']' | '}') => {
                let index = index(&rest[1..]).map(|index| (index, at + 1));
                largest = largest.max(index);
                1
            }
            c => c.len_utf8(),
        };
        before = source[at..at + length].chars().next_back().unwrap_or(c);
        at += length;
    }
    largest
}

/// The number that is all there is up to the closing bracket.
fn index(text: &str) -> Option<u64> {
    let (inside, _) = text.split_once(']')?;
    let digits: String = inside.trim().trim_start_matches('-').chars().filter(|c| *c != '_').collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_in_paths_are_found_and_nothing_else() {
        for (source, expected) in [
            (".a[3] = 1", Some(3)),
            (".a[3].b[12].c = x[7]", Some(12)),
            (".a[-900_000] = 1", Some(900_000)),
            (".\"a b\"[ 5 ] = 1", Some(5)),
            ("f(.x)[4]", Some(4)),
            (".a[99999999999999999999]", Some(u64::MAX)),
            (".a = [900]", None),
            (".a = \"x[900]\"", None),
            (".a = match!(.b, r'x[900]')", None),
            ("# .a[900]\n.a[1]", Some(1)),
            (".a = set!(.b, [900], 1)", None),
            (".ä[é", None),
        ] {
            assert_eq!(largest_index(source).map(|(index, _)| index), expected, "{source}");
        }
    }
}
