//! Several upstreams as one server: use cases over upstreams that do what a test tells them.

mod changes;
mod lists;
mod modern;
mod requests;
mod scene;
