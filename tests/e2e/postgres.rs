//! A schema in the PostgreSQL database of the tests.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use riglm_tests::riglm::Options;

/// The number of the next schema of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The schema of one test. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    /// Returns a new name. The schema does not exist yet.
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("riglm_e2e_{}_{number}", std::process::id());
        Self { name }
    }

    /// Returns the options of a proxy that stores its data in the schema.
    pub(crate) fn options(&self) -> Options {
        let (url, name) = (url(), &self.name);
        Options::with_configuration(&format!(
            "[storage]\nbackend = \"postgres\"\n[storage.postgres]\nurl = \"{url}\"\nschema = \"{name}\"\n"
        ))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        let done = Command::new("psql")
            .args(["--quiet", "--no-psqlrc", &url(), "--command", &drop])
            .env("PGOPTIONS", "--client-min-messages=warning")
            .status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("schema {} is left over", self.name);
        }
    }
}

fn url() -> String {
    let name = "RIGLM_TEST_POSTGRES_URL";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Borrows all texts, for functions that take `&[&str]`.
pub(crate) fn as_texts(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
