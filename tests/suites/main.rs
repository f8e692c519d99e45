//! Suites over real parts. One binary, so that it links once; one module a subject.

mod api_server;
mod architecture;
mod docs;
mod examples;
mod licences;
mod local_disk_full;
mod opensearch;
mod opensearch_outages;
