//! Encoders: texts turned into vectors, by a table in the program, by models on disk, or by a
//! server.

pub(crate) mod model;
