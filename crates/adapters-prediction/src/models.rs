//! Models on disk: `models/NAME/` in the data directory, with a manifest beside the files.

pub mod manifest;
