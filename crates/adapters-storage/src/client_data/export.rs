//! The rows of clients, page by page.

use std::collections::BTreeSet;
use std::fmt::Display;

use riglm_domain::context::Context;
use riglm_domain::exchange::Exchange;
use riglm_domain::feedback::Feedback;
use riglm_domain::id::SessionId;
use riglm_domain::invocation::InvocationSummary;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::ListShown;
use riglm_domain::recommendation::Recommendation;
use riglm_domain::search::Search;
use riglm_domain::work_session::WorkSession;
use riglm_ports::analytics::{ClientRow, StoreError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rows;
use super::selected::Selected;
use crate::database::{Database, Statement};
use crate::repository::{
    context, exchange, feedback, invocation, list_epoch, list_shown, recommendation, search,
    session, work_session,
};
use crate::value::Micros;

/// How many rows are read at once.
const PAGE: usize = 500;

/// What a page comes after: an identifier, a scope, or a session and what its rows are ordered by.
type Place = (String, Value);

/// The place before all rows. No identifier is nil, so that the second part does not matter there;
/// of scopes it tells the first page, since any text may be one.
fn beginning() -> Place {
    ("00000000-0000-0000-0000-000000000000".into(), json!(0))
}

/// Gives all rows of the clients to `take`, kind by kind, until it wants no more.
pub(super) async fn export(
    database: &Database,
    selected: &Selected,
    take: &mut (dyn FnMut(ClientRow) -> bool + Send),
) -> Result<(), StoreError> {
    let mut export = Export {
        database,
        selected,
        take,
        is_over: false,
    };
    export.sessions_and_requests().await?;
    export.lists().await?;
    export.sayings().await?;
    export.decisions().await
}

struct Export<'a> {
    database: &'a Database,
    selected: &'a Selected,
    take: &'a mut (dyn FnMut(ClientRow) -> bool + Send),
    /// Nobody takes more.
    is_over: bool,
}

impl Export<'_> {
    /// Reads all pages of a kind; `read` gives the place of a row and what is handed out.
    async fn kind<R: DeserializeOwned + Send>(
        &mut self,
        statement: &Statement,
        read: fn(R) -> Result<(Place, ClientRow), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after = beginning();
        while !self.is_over {
            let parameter = (&self.selected.clients, &after, PAGE);
            let page: Vec<R> = self.database.rows(statement, &parameter).await?;
            let is_last = page.len() < PAGE;
            for row in page {
                let (place, row) = read(row)?;
                after = place;
                if !(self.take)(row) {
                    self.is_over = true;
                    return Ok(());
                }
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    async fn sessions_and_requests(&mut self) -> Result<(), StoreError> {
        self.kind(&rows::SESSIONS, |row: session::Row| {
            let row = row.summary(BTreeSet::new());
            let place = by_id(row.session.id);
            Ok((place, ClientRow::session(&row.session, row.ended_at)?))
        })
        .await?;
        self.kind(&rows::CALLS, |row: invocation::Row| {
            let row = InvocationSummary::from(row);
            Ok((by_id(row.invocation.id), ClientRow::call(&row)?))
        })
        .await?;
        self.kind(&rows::EXCHANGES, |row: exchange::Row| {
            let row = Exchange::from(row);
            Ok((by_id(row.id), ClientRow::exchange(&row)?))
        })
        .await
    }

    async fn lists(&mut self) -> Result<(), StoreError> {
        self.kind(
            &rows::TOOLS_LISTED,
            |(session, listing, at): (SessionId, String, Micros)| {
                let row = ClientRow::tools_listed(session, &listing, at.0)?;
                Ok(((session.to_string(), json!(listing)), row))
            },
        )
        .await?;
        self.kind(&rows::LISTS_SHOWN, |row: list_shown::Row| {
            let row = ListShown::from(row);
            let place = (
                row.session.to_string(),
                json!(row.shown_at.as_microsecond()),
            );
            Ok((place, ClientRow::list_shown(&row)?))
        })
        .await
    }

    async fn sayings(&mut self) -> Result<(), StoreError> {
        self.kind(&rows::SEARCHES, |row: search::Row| {
            let row = Search::from(row);
            Ok((by_id(row.id), ClientRow::search(&row)?))
        })
        .await?;
        self.kind(&rows::CONTEXTS, |row: context::Row| {
            let row = Context::try_from(row)?;
            Ok((by_id(row.id), ClientRow::context(&row)?))
        })
        .await?;
        self.kind(&rows::RECOMMENDATIONS, |row: recommendation::Row| {
            let row = Recommendation::from(row);
            Ok((by_id(row.id), ClientRow::recommendation(&row)?))
        })
        .await?;
        self.kind(&rows::FEEDBACK, |row: feedback::Row| {
            let row = Feedback::from(row);
            Ok((by_id(row.id), ClientRow::feedback(&row)?))
        })
        .await
    }

    async fn list_epochs(&mut self) -> Result<(), StoreError> {
        self.kind(&rows::LIST_EPOCHS, |row: list_epoch::Row| {
            let row = ListEpoch::from(row);
            let place = (row.scope.clone(), Value::Null);
            Ok((place, ClientRow::list_epoch(&row)?))
        })
        .await
    }

    async fn decisions(&mut self) -> Result<(), StoreError> {
        self.kind(&rows::WORK_SESSIONS, |row: work_session::Row| {
            let row = WorkSession::from(row);
            Ok((by_id(row.id), ClientRow::work_session(&row)?))
        })
        .await?;
        self.list_epochs().await?;
        if self.is_over {
            return Ok(());
        }
        // Operators write few of them.
        for row in self.selected.overrides(self.database).await? {
            if !(self.take)(ClientRow::tool_override(&row)?) {
                break;
            }
        }
        Ok(())
    }
}

fn by_id(id: impl Display) -> Place {
    (id.to_string(), Value::Null)
}
