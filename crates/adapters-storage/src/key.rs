//! The secrets of the installation: the key for hashing arguments and client identities, and the
//! token of the control server.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::analytics::StoreError;

use crate::error::{open_error, operation_error};
use crate::private_file;

/// The name of the key file in the data directory.
const FILE_NAME: &str = "hmac.key";
/// The name of the file with the token of the control server.
const TOKEN_FILE_NAME: &str = "control.token";
/// The longest token that is read, in bytes.
const MAX_TOKEN_BYTES: u64 = 4 << 10;
/// The length of the key in bytes.
const KEY_BYTES: usize = 32;

/// The reason why a key file is refused.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    #[error("other users can read or write the file: set its mode to 0600")]
    Shared,
    #[error("the file does not hold exactly {KEY_BYTES} bytes")]
    Length,
    #[error("the file is empty")]
    NoText,
}

/// Returns the hasher with the key in `data_dir`; creates directory and key if they are missing.
///
/// Processes that start concurrently all use the key of the first one.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the file cannot be read or created, when users other than its
/// owner may use it, and when its length is not 32 bytes.
pub fn keyed_hasher(data_dir: &Path) -> Result<KeyedHasher, StoreError> {
    private_file::create_dir_all(data_dir).map_err(open_error(data_dir))?;
    let path = data_dir.join(FILE_NAME);
    let key = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_secret_file(&path, &random_key()?)?;
            File::open(&path)
                .map_err(open_error(&path))
                .and_then(|file| read_key(file, &path))?
        }
        Err(error) => return Err(open_error(&path)(error)),
        Ok(file) => read_key(file, &path)?,
    };
    Ok(KeyedHasher::new(&key))
}

/// Returns the token in `data_dir` that callers of the control server present; creates directory
/// and token if they are missing.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the file cannot be read or created, when users other than its
/// owner may use it, and when it holds no text.
pub fn control_token(data_dir: &Path) -> Result<String, StoreError> {
    private_file::create_dir_all(data_dir).map_err(open_error(data_dir))?;
    let path = data_dir.join(TOKEN_FILE_NAME);
    if !path.try_exists().map_err(open_error(&path))? {
        let digits = hex::encode(random_key()?);
        create_secret_file(&path, format!("{digits}\n").as_bytes())?;
    }
    read_token(&path)
}

/// Returns the token in `data_dir` that callers of the control server present; `None` if there is
/// none. Creates nothing.
///
/// # Errors
///
/// Returns the errors of [`control_token`].
pub fn existing_control_token(data_dir: &Path) -> Result<Option<String>, StoreError> {
    let path = data_dir.join(TOKEN_FILE_NAME);
    let is_there = path.try_exists().map_err(open_error(&path))?;
    is_there.then(|| read_token(&path)).transpose()
}

fn read_token(path: &Path) -> Result<String, StoreError> {
    let file = File::open(path).map_err(open_error(path))?;
    if private_file::is_shared(&file).map_err(open_error(path))? {
        return Err(open_error(path)(KeyError::Shared));
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES)
        .read_to_string(&mut text)
        .map_err(open_error(path))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(open_error(path)(KeyError::NoText));
    }
    Ok(token.to_owned())
}

fn random_key() -> Result<[u8; KEY_BYTES], StoreError> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(operation_error("generate a random key"))?;
    Ok(bytes)
}

fn read_key(mut file: File, path: &Path) -> Result<[u8; KEY_BYTES], StoreError> {
    if private_file::is_shared(&file).map_err(open_error(path))? {
        return Err(open_error(path)(KeyError::Shared));
    }
    let mut bytes = Vec::with_capacity(KEY_BYTES + 1);
    (&mut file)
        // One byte more than a key, to detect a longer file.
        .take(KEY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(open_error(path))?;
    bytes
        .try_into()
        .map_err(|_: Vec<u8>| open_error(path)(KeyError::Length))
}

/// Writes a secret to a file with a random name and links it to `path`. The link fails harmlessly
/// when another process was faster. In this way no reader ever sees a half-written file.
fn create_secret_file(path: &Path, secret: &[u8]) -> Result<(), StoreError> {
    let mut suffix = [0; 8];
    getrandom::fill(&mut suffix).map_err(operation_error("generate a random name"))?;
    let draft = path.with_extension(format!("draft.{:016x}", u64::from_ne_bytes(suffix)));
    let written = private_file::options()
        .write(true)
        .create_new(true)
        .open(&draft)
        .and_then(|mut file| file.write_all(secret).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::hard_link(&draft, path));
    // Removed in any case: after a successful link the secret has its final name.
    let removed = std::fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(open_error(path))?,
    }
    removed.map_err(open_error(&draft))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_the_control_server_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new");
        let token = control_token(&data_dir).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(control_token(&data_dir).unwrap(), token);
        let path = data_dir.join(TOKEN_FILE_NAME);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), token);
        std::fs::write(&path, " \n").unwrap();
        let refusal = || {
            let error = control_token(&data_dir).unwrap_err();
            std::error::Error::source(&error).unwrap().to_string()
        };
        assert_eq!(refusal(), "the file is empty");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let permissions = std::fs::Permissions::from_mode;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, permissions(0o640)).unwrap();
            assert!(refusal().contains("0600"), "{}", refusal());
        }
    }

    #[test]
    fn existing_tokens_are_read_without_creating_one() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new");
        assert_eq!(existing_control_token(&data_dir).unwrap(), None);
        assert!(!data_dir.exists());
        let made = control_token(&data_dir).unwrap();
        assert_eq!(existing_control_token(&data_dir).unwrap(), Some(made));
    }

    #[test]
    fn the_key_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new");
        let first = keyed_hasher(&data_dir).unwrap().hash_text("x");
        assert_eq!(keyed_hasher(&data_dir).unwrap().hash_text("x"), first);
        let names: Vec<_> = std::fs::read_dir(&data_dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [FILE_NAME]);
    }

    #[test]
    fn starters_at_once_agree_on_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let hashes: Vec<_> = std::thread::scope(|scope| {
            let starters: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| keyed_hasher(dir.path()).unwrap().hash_text("x")))
                .collect();
            starters
                .into_iter()
                .map(|starter| starter.join().unwrap())
                .collect()
        });
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        for length in [0, KEY_BYTES - 1, KEY_BYTES + 1] {
            let dir = tempfile::tempdir().unwrap();
            let mut file = private_file::options()
                .write(true)
                .create_new(true)
                .open(dir.path().join(FILE_NAME))
                .unwrap();
            file.write_all(&vec![7; length]).unwrap();
            let error = keyed_hasher(dir.path()).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(source, "the file does not hold exactly 32 bytes");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_readable_by_others_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        keyed_hasher(dir.path()).unwrap();
        let path = dir.path().join(FILE_NAME);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = keyed_hasher(dir.path()).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("0600"), "{source}");
    }
}
