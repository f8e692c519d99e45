//! Whether the settings of a search cluster can be right, without asking it.

use crate::problem::Problems;
use penstock_crds::indexers::{Indexer, Opensearch, Operation, Versioning};
use reqwest::Url;

/// The longest name of an index, in bytes.
const LONGEST_NAME: usize = 255;

/// Collects what is wrong with the settings. `problems` is at the indexer.
pub fn check(indexer: &Indexer, spec: &Opensearch, problems: &mut Problems<'_>) {
    let mut below = problems.below(indexer.kind.key());
    for (position, url) in spec.urls.iter().enumerate() {
        if let Err(fault) = node_url(url) {
            below.add(&format!("urls[{position}]"), fault);
        }
    }
    if let Some(fault) = fault_of_name(&spec.index) {
        below.add("index", fault);
    }
    let external = indexer.versioning == Some(Versioning::External);
    if external && !matches!(spec.operation, Operation::Index | Operation::Delete) {
        let message = format!("External works with the operations Index and Delete, not with {:?}; remove it", spec.operation);
        problems.add("versioning", message);
    }
}

/// The URL of a node.
pub(super) fn node_url(text: &str) -> Result<Url, String> {
    const EXAMPLE: &str = "write for example http://localhost:9200";
    // a text with `@` may hold a password
    let shown = if text.contains('@') { "this".into() } else { format!("`{text}`") };
    let url = Url::parse(text).map_err(|error| format!("{shown} is not a URL: {error}; {EXAMPLE}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("no credentials in URLs: use username and password with valueFrom.secretKeyRef".into());
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("{shown} does not begin with http:// or https://; {EXAMPLE}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("{shown} has a `?` or `#` part; {EXAMPLE}"));
    }
    Ok(url)
}

/// What is wrong with the name of an index. Date math (`<logs-{now/d}>`) is the cluster's business, and placeholders are
/// filled later.
fn fault_of_name(name: &str) -> Option<String> {
    if name.starts_with('<') && name.ends_with('>') {
        return None;
    }
    let filled = ["{run}", "{runId}", "{connector}"].iter().fold(name.to_owned(), |name, placeholder| name.replace(placeholder, "x"));
    let fault = match filled.as_str() {
        "." | ".." => "it cannot be `.` or `..`".into(),
        name if name.len() > LONGEST_NAME => format!("it has {} bytes, and {LONGEST_NAME} are the most", name.len()),
        name if name.starts_with(['-', '_', '+']) => "it cannot begin with `-`, `_` or `+`".into(),
        name if name.chars().any(char::is_uppercase) => format!("it must be in lower case; write {}", name.to_lowercase()),
        name => {
            let bad = name.chars().find(|c| c.is_whitespace() || c.is_control() || r#"\/*?"<>|,#:"#.contains(*c))?;
            format!("it cannot contain {bad:?}")
        }
    };
    Some(format!("`{name}` is not the name of an index: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        for (text, fault) in [
            ("http://localhost:9200", None),
            ("https://search/prefix", None),
            ("http://[::1]:9200", None),
            ("localhost 9200", Some("is not a URL")),
            ("localhost:9200", Some("does not begin with http://")),
            ("ftp://search", Some("does not begin with http://")),
            ("http://", Some("is not a URL")),
            ("http://search:99999", Some("is not a URL")),
            ("http://search?x=1", Some("`?`")),
        ] {
            match (node_url(text), fault) {
                (Ok(_), None) => {}
                (Err(error), Some(part)) => assert!(error.contains(part), "{error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn credentials_in_urls_are_refused_and_not_repeated() {
        for text in ["http://user:topsecret@search", "user:topsecret@ search"] {
            let error = node_url(text).expect_err(text);
            assert!(!error.contains("topsecret"), "{error}");
        }
    }

    #[test]
    fn names_of_indexes_follow_the_rules_of_the_cluster() {
        for good in ["products", "a.b-c_1", "products-{runId}", "<logs-{now/d}>", ".hidden", "ä"] {
            assert_eq!(fault_of_name(good), None);
        }
        for bad in ["Products", "a b", "a,b", "-a", "_a", "+a", ".", "..", "a/b", "a*", "a#", "a:b", "{run}X"] {
            assert!(fault_of_name(bad).is_some(), "{bad}");
        }
        assert!(fault_of_name(&"ü".repeat(128)).is_some());
    }
}
