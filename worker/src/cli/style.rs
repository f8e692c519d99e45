//! Colours, where a person looks at them.

use clap::builder::styling::{AnsiColor, Style};
use std::{borrow::Cow, io::IsTerminal};

/// Where a problem is.
pub const LOCATION: Style = Style::new().bold();
/// Which field it is about.
pub const FIELD: Style = AnsiColor::Cyan.on_default();
/// A heading.
pub const HEADING: Style = Style::new().bold();

/// Whether a stream shows colours: on a terminal, unless `NO_COLOR` is set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text without control characters: ids and values of others may not steer the terminal on which they are shown.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n';
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// The text in that style.
pub fn styled(text: &str, style: Style, coloured: bool) -> String {
    if coloured { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\nü"), "a\nü");
        assert_eq!(printable("\x1b[31mred\u{7}\u{9b}\t"), "\\u{1b}[31mred\\u{7}\\u{9b}\\t");
    }
}
