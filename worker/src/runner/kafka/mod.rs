//! Steps over Kafka: the publisher's side ([`publishing`]), the parts of a pipeline that process documents ([`role`]), and what both
//! need of the topics.

mod barrier;
mod lag;
mod publishing;
mod role;
mod route;

pub use publishing::KafkaOptions;
pub(super) use publishing::publish;
pub use role::{RoleEnd, RolePlan, RoleThreads};
pub use route::Route;
