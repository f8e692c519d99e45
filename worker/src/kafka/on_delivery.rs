//! The context of a producer whose acknowledgements are looked at.

use super::KafkaContext;
use rdkafka::{
    ClientContext, client::OAuthToken, config::RDKafkaLogLevel, error::KafkaError as ClientError, message::DeliveryResult,
    producer::ProducerContext, util::IntoOpaque,
};
use std::error::Error;

type Function<O> = Box<dyn Fn(&DeliveryResult<'_>, O) + Send + Sync>;

/// Hands each acknowledgement, with what was sent along with the record, to a function; all else is the connection's.
pub struct OnDelivery<O> {
    connection: KafkaContext,
    on_delivery: Function<O>,
}

impl<O> OnDelivery<O> {
    /// A context that calls the function for every record.
    pub fn new(connection: KafkaContext, on_delivery: impl Fn(&DeliveryResult<'_>, O) + Send + Sync + 'static) -> Self {
        Self { connection, on_delivery: Box::new(on_delivery) }
    }
}

impl<O> ClientContext for OnDelivery<O> {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = KafkaContext::ENABLE_REFRESH_OAUTH_TOKEN;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.connection.log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.connection.stats_raw(statistics);
    }

    fn error(&self, error: ClientError, reason: &str) {
        self.connection.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.connection.generate_oauth_token(config)
    }
}

impl<O: IntoOpaque> ProducerContext for OnDelivery<O> {
    type DeliveryOpaque = O;

    fn delivery(&self, result: &DeliveryResult<'_>, along: O) {
        (self.on_delivery)(result, along);
    }
}
