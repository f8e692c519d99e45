//! Suites over real parts. One binary, so that it links once; one module a subject.

mod api_server;
mod architecture;
mod bad_input;
mod bad_manifest;
mod bad_surroundings;
mod docs;
mod examples;
mod kafka_admin;
mod kafka_chaos;
mod kafka_contract;
mod kafka_dlq;
mod kafka_log;
mod kafka_messenger;
mod kafka_order;
mod kafka_poison;
mod kafka_publisher;
mod kafka_security;
mod kafka_trouble;
mod local_contract;
mod local_disk_full;
mod local_failures;
mod local_running;
mod opensearch;
mod opensearch_outages;
mod parity;
