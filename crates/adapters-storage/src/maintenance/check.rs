//! What is wrong with the database.

mod counts;
mod rows;
mod structure;

use std::error::Error;

use riglm_ports::analytics::{Finding, StoreError};

use crate::error::Plain;
use crate::store::Store;

/// How many differences are told of each table.
const MAX_TOLD: usize = 20;

/// Result codes of SQLite for a file that is damaged and for one that is no database.
const SQLITE_DAMAGED: [u32; 2] = [11, 26];
/// Codes of PostgreSQL for damaged tables and damaged indices.
const POSTGRES_DAMAGED: [&str; 2] = ["XX001", "XX002"];

/// Looks at the structure of the database, at its counts and at what rows refer to.
pub(super) async fn check(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::default();
    let database = match store.database().await {
        Ok(database) => database,
        Err(error) => {
            findings.add_damage(error)?;
            return Ok(findings.0);
        }
    };
    let checked = structure::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    let checked = counts::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    let checked = rows::check(database, &mut findings).await;
    findings.add_damage_of(checked)?;
    Ok(findings.0)
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, subject: &str, problem: impl Into<String>) {
        self.0.push(Finding {
            subject: subject.into(),
            problem: problem.into(),
        });
    }

    /// Adds problems of a subject: the first ones, and how many more there are.
    fn add_some(&mut self, subject: &str, mut problems: Vec<String>) {
        let n_more = problems.len().saturating_sub(MAX_TOLD);
        problems.truncate(MAX_TOLD);
        for problem in problems {
            self.add(subject, problem);
        }
        if n_more > 0 {
            self.add(subject, format!("{n_more} more rows are wrong"));
        }
    }

    fn add_damage_of(&mut self, checked: Result<(), StoreError>) -> Result<(), StoreError> {
        checked.or_else(|error| self.add_damage(error))
    }

    /// Adds what an error says of damage.
    ///
    /// # Errors
    ///
    /// Returns the error when it has another cause.
    fn add_damage(&mut self, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Damaged { what, reason } => self.add(&what, reason),
            StoreError::Corrupt { table, reason } => {
                self.add(table, format!("a row holds an unexpected value: {reason}"));
            }
            error => match damage(&error) {
                Some(reason) => self.add("database", reason),
                None => return Err(error),
            },
        }
        Ok(())
    }
}

/// Returns what the database says of its damage, where that is the cause of the error.
fn damage(error: &StoreError) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let plain = error.downcast_ref::<Plain>().map(|Plain(error)| error);
        if let Some(sqlx::Error::Database(error)) = plain.or_else(|| error.downcast_ref()) {
            let code = error.code()?;
            // The low byte of an extended result code of SQLite is the primary one.
            let is_damaged = match code.parse::<u32>() {
                Ok(code)
                    if error
                        .try_downcast_ref::<sqlx::sqlite::SqliteError>()
                        .is_some() =>
                {
                    SQLITE_DAMAGED.contains(&(code & 0xff))
                }
                _ => POSTGRES_DAMAGED.contains(&&*code),
            };
            return is_damaged.then(|| error.message().to_owned());
        }
        cause = error.source();
    }
    None
}
