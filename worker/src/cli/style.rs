//! Colours, where a person looks at them.

use clap::builder::styling::{AnsiColor, Style};
use std::io::IsTerminal;

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

/// The text in that style.
pub fn styled(text: &str, style: Style, coloured: bool) -> String {
    if coloured { format!("{style}{text}{style:#}") } else { text.to_owned() }
}
