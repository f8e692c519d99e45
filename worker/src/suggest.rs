//! Did you mean?

/// The candidate that is meant in all likelihood, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `, did you mean `rename`?`, or nothing.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|candidate| format!(", did you mean `{candidate}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested_and_a_far_one_is_not() {
        let known = ["rename", "remove", "remap"];
        for (word, want) in [("renam", Some("rename")), ("Rename", Some("rename")), ("ermap", Some("remap")), ("price", None), ("", None)] {
            assert_eq!(nearest(word, known), want, "{word}");
        }
    }
}
