//! How numbers are told to people. Knows nobody else of this crate.

use std::fmt;

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A number of bytes in a fitting unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1024 => f.write_str(&counted(bytes as u64, "byte")),
            bytes @ 1024..1_048_576 => write!(f, "{:.1} KiB", bytes as f64 / 1024.0),
            bytes => write!(f, "{:.1} MiB", bytes as f64 / 1_048_576.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_else_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "document")), ["0 documents", "1 document", "2 documents"]);
    }

    #[test]
    fn bytes_are_told_in_a_fitting_unit() {
        let told = [1, 1_023, 1_536, 3 << 20].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(told, ["1 byte", "1023 bytes", "1.5 KiB", "3.0 MiB"]);
    }
}
