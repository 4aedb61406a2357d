//! Several upstreams as one server.

mod apps;
mod changes;
mod health;
mod lists;
mod modern;
mod observed_events;
mod own_tools;
mod requests;
mod scene;
mod search;
mod skills;
mod slow;
