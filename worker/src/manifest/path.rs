//! Paths of fields as people write them: `spec.stages[2].remap.source`.

use std::fmt::Write;

/// Adds a field of a map.
pub fn push_field(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Adds an element of a list, counted from 0.
pub fn push_index(path: &mut String, index: usize) {
    // Writing to a String cannot fail.
    let _ = write!(path, "[{index}]");
}

/// Whether `path` is `ancestor` or lies below it.
pub fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| ancestor.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path one step up; of `a.b[2]` that is `a.b`.
pub fn parent(path: &str) -> &str {
    path.rfind(['.', '[']).map_or("", |end| &path[..end])
}

/// One step of a path, and what follows it.
pub fn split_index(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_and_compared_by_whole_steps() {
        let mut path = String::new();
        push_field(&mut path, "spec");
        push_field(&mut path, "stages");
        push_index(&mut path, 1);
        assert_eq!(path, "spec.stages[1]");
        assert!(is_within("spec.stages[1].copy", &path));
        assert!(is_within("spec.stages[1]", &path));
        assert!(!is_within("spec.stages[10]", "spec.stages[1"));
        assert!(!is_within("spec.stages[10]", &path));
        assert!(is_within("anything", ""));
        assert_eq!(parent("spec.stages[1]"), "spec.stages");
        assert_eq!(parent("spec"), "");
        assert_eq!(split_index("[12].copy"), Some((12, ".copy")));
        assert_eq!(split_index("[x]"), None);
    }
}
