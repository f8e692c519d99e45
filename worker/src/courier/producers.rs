//! The producers of an outbox. The usual one lets records wait for others, which makes it fast; a document that is tried alone would
//! wait in vain, each time. For that there is a second one, made when it is needed first.

use crate::kafka::{
    Connection, KafkaContext, KafkaError,
    deliveries::{Deliveries, Numbered},
};
use rdkafka::{ClientConfig, producer::BaseProducer};
use std::time::Duration;

pub(super) struct Producers {
    connection: Connection,
    config: ClientConfig,
    usual: BaseProducer<Numbered>,
    urgent: Option<BaseProducer<Numbered>>,
    is_urgent: bool,
}

impl Producers {
    /// Starts the usual one. All of them report to the same deliveries.
    pub fn new(connection: &Connection, config: ClientConfig, deliveries: &Deliveries) -> Result<Self, KafkaError> {
        let usual = connection.start(&config, deliveries.context(connection.context()))?;
        Ok(Self { connection: connection.clone(), config, usual, urgent: None, is_urgent: false })
    }

    /// Chooses who sends from now on. Nothing may be on its way.
    pub fn hurry(&mut self, is_urgent: bool, deliveries: &Deliveries) -> Result<(), KafkaError> {
        if is_urgent && self.urgent.is_none() {
            let mut config = self.config.clone();
            config.set("linger.ms", "0");
            let context: KafkaContext = self.connection.context();
            self.urgent = Some(self.connection.start(&config, deliveries.context(context))?);
        }
        self.is_urgent = is_urgent;
        Ok(())
    }

    /// The one that sends.
    pub fn current(&self) -> &BaseProducer<Numbered> {
        match &self.urgent {
            Some(urgent) if self.is_urgent => urgent,
            _ => &self.usual,
        }
    }

    /// Lets them work.
    pub fn poll(&self) {
        self.usual.poll(Duration::ZERO);
        if let Some(urgent) = &self.urgent {
            urgent.poll(Duration::ZERO);
        }
    }
}
