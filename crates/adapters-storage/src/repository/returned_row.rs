//! Rows that writing statements return.

use riglm_ports::analytics::StoreError;

use crate::database::Statement;

/// Returns the row that the statement wrote and returned.
pub(crate) fn required_row<R, T: From<R>>(
    statement: &Statement,
    row: Option<R>,
) -> Result<T, StoreError> {
    row.map(T::from).ok_or_else(|| StoreError::Corrupt {
        table: statement.table,
        reason: "a written row is missing".into(),
    })
}
