//! Requests to the nodes of a cluster: in turn, and to the next one if one cannot be connected to.

use crate::http;
use bytes::Bytes;
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use std::{
    io::Write,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long a node that could not be connected to comes last.
const REST: Duration = Duration::from_secs(30);

/// The nodes of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    client: reqwest::Client,
    nodes: Vec<Node>,
    authorization: Option<HeaderValue>,
    turn: AtomicUsize,
    began: Instant,
}

#[derive(Debug)]
struct Node {
    url: Url,
    /// Milliseconds since the beginning until which it comes last.
    resting_until: AtomicU64,
}

/// One request, the same for every node.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    pub method: Method,
    /// The parts of the path; each is escaped.
    pub path: &'a [&'a str],
    pub query: &'a [(&'a str, &'a str)],
    /// Lines of JSON, and whether they are compressed with gzip.
    pub body: Option<(Bytes, bool)>,
}

/// The answer of a node.
#[derive(Debug)]
pub(super) struct Reply {
    /// Who answered.
    pub node: String,
    pub status: StatusCode,
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

/// No node answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(pub String);

impl Cluster {
    /// The nodes at these URLs.
    pub fn new(client: reqwest::Client, urls: Vec<Url>, authorization: Option<HeaderValue>) -> Self {
        let nodes = urls.into_iter().map(|url| Node { url, resting_until: AtomicU64::new(0) }).collect();
        Self { client, nodes, authorization, turn: AtomicUsize::new(0), began: Instant::now() }
    }

    /// Asks the node whose turn it is. If it cannot even be connected to, nothing was sent, and the next one is asked.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Reply, NoAnswer> {
        let mut faults = Vec::new();
        for node in self.in_turn() {
            match self.ask_node(node, &ask).await {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    let connected = !error.is_connect();
                    faults.push(format!("{}: {}", node.name(), http::chain(&error.without_url())));
                    if connected {
                        break; // it may be at work on the request, so no other node may get it now
                    }
                    node.resting_until.store(self.millis() + REST.as_millis() as u64, Relaxed);
                }
            }
        }
        Err(NoAnswer(faults.join("; ")))
    }

    async fn ask_node(&self, node: &Node, ask: &Ask<'_>) -> Result<Reply, reqwest::Error> {
        let mut url = node.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(ask.path);
        }
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let mut request = self.client.request(ask.method.clone(), url);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some((body, compressed)) = &ask.body {
            request = request.header(CONTENT_TYPE, "application/x-ndjson").body(body.clone());
            if *compressed {
                request = request.header(CONTENT_ENCODING, "gzip");
            }
        }
        let response = request.send().await?;
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        Ok(Reply { node: node.name(), status, retry_after, body: response.bytes().await? })
    }

    /// All nodes, the one whose turn it is first, those at rest last.
    fn in_turn(&self) -> Vec<&Node> {
        let first = self.turn.fetch_add(1, Relaxed);
        let mut nodes: Vec<&Node> = (0..self.nodes.len()).map(|i| &self.nodes[(first.wrapping_add(i)) % self.nodes.len()]).collect();
        let now = self.millis();
        nodes.sort_by_key(|node| node.resting_until.load(Relaxed) > now);
        nodes
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

impl Node {
    /// What people call it: its address.
    fn name(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }
}

/// Compresses a body, quickly rather than well.
pub(super) fn gzip(body: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    // writing into memory cannot fail
    let written = encoder.write_all(body);
    debug_assert!(written.is_ok());
    encoder.finish().unwrap_or_default().into()
}

/// How long we are asked to wait: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(count: usize) -> Cluster {
        let urls = (0..count).map(|i| Url::parse(&format!("http://n{i}:9200/")).expect("url")).collect();
        Cluster::new(reqwest::Client::new(), urls, None)
    }

    #[test]
    fn nodes_take_turns_and_those_at_rest_come_last() {
        let cluster = cluster(3);
        let order = || cluster.in_turn().iter().map(|node| node.name()[8..9].to_owned()).collect::<String>();
        assert_eq!([order(), order(), order(), order()], ["012", "120", "201", "012"]);
        cluster.nodes[1].resting_until.store(u64::MAX, Relaxed);
        assert_eq!([order(), order(), order()], ["201", "201", "021"]);
    }

    #[test]
    fn the_wait_that_is_asked_for_may_be_seconds_or_a_date() {
        let headers = |text: &str| HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).expect("header"))]);
        assert_eq!(retry_after(&headers("7")), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&headers("Sun, 06 Nov 1994 08:49:37 GMT")), Some(Duration::ZERO));
        assert!(retry_after(&headers("Sat, 06 Nov 2094 08:49:37 GMT")).is_some_and(|wait| wait.as_secs() > 1_000_000));
        assert_eq!(retry_after(&headers("soon")), None);
    }

    #[test]
    fn a_compressed_body_is_the_same_body() {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip(b"{}\n{}\n")[..]), &mut text).expect("gzip");
        assert_eq!(text, "{}\n{}\n");
    }
}
