//! Files and directories that only their owner may use: modes 0600 and 0700 on systems with modes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Returns options that create a file readable and writable only by its owner.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Creates `path` and its missing parents. An existing directory stays unchanged.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Creates the file unless it exists.
pub(crate) fn ensure(path: &Path) -> io::Result<()> {
    options().append(true).create(true).open(path).map(drop)
}

/// Returns whether users other than the owner may read or write the file.
pub(crate) fn is_shared(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Ok(metadata.mode() & 0o077 != 0)
    }
    // Other systems have access lists, which protect a user's data directory by inheritance.
    #[cfg(not(unix))]
    {
        drop(metadata);
        Ok(false)
    }
}
