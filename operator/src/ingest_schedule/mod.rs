//! Schedules: they start runs by the clock, or by a changed nonce, and keep some of those that ended.
//!
//! [`cron`] and [`due`] say when and under which name, [`decide`] what is done about it (all pure), [`reconcile`] does it.

mod cron;
mod decide;
mod due;
mod history;
mod reconcile;
mod validate;

#[cfg(test)]
mod requests;
