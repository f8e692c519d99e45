//! How far a role is behind: asks the brokers now and then where its partitions end. The consumer itself would not do: it hears of
//! an end only with records that it fetches, and fetches none while the backend is slow.

use super::route::Route;
use crate::{
    courier::CourierFigures,
    kafka::{
        KafkaError,
        admin::{Admin, End},
    },
};
use std::{collections::BTreeMap, io, sync::Arc, thread, time::Duration};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(5);

/// Asks until it is told to stop.
pub(super) fn watch(route: &Route, figures: Arc<CourierFigures>, runtime: Handle, stop: CancellationToken) -> io::Result<()> {
    let (admin, topic) = (Arc::clone(&route.admin), figures.role.topic(&route.names).to_owned());
    let ask = move || {
        // the clock is that of the runtime: it is asked for on the inside only
        while runtime.block_on(async { tokio::time::timeout(INTERVAL, stop.cancelled()).await }).is_err() {
            match ends(&admin, &topic, &figures.partitions()) {
                Ok(ends) => figures.set_ends(ends),
                // the consumer says what is wrong with the brokers
                Err(error) => tracing::debug!(topic, %error, "the ends of partitions are not known"),
            }
        }
    };
    thread::Builder::new().name("lag".into()).spawn(ask).map(drop)
}

fn ends(admin: &Admin, topic: &str, partitions: &[u32]) -> Result<BTreeMap<u32, u64>, KafkaError> {
    if partitions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let asked = partitions.iter().map(|partition| (topic, *partition as i32));
    let ends = admin.offsets(asked, End::Latest)?;
    // a partition whose leader is not known has no end
    Ok(ends.into_iter().filter_map(|((_, partition), end)| Some((partition as u32, u64::try_from(end).ok()?))).collect())
}
