//! Export of the rows of clients, page by page.

use std::collections::BTreeSet;
use std::fmt::Display;

use riglm_domain::id::SessionId;
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::InvocationSummary;
use riglm_domain::usage::work_session::WorkSession;
use riglm_ports::analytics::{ClientRow, StoreError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rows;
use super::selection::ClientSelection;
use crate::database::{Database, Statement};
use crate::repository::{
    context, exchange, feedback, invocation, list_epoch, list_shown, recommendation, search,
    session, work_session,
};
use crate::value::Micros;

// The number of rows per page, so that memory stays bounded.
const PAGE: usize = 500;

/// The cursor of a page: an identifier, a scope, or a session with the second sort key of its rows.
type PageCursor = (String, Value);

/// Returns the cursor of the first page. No identifier is nil, so the second part does not matter
/// there. For scopes the second part marks the first page, since any text may be a scope.
fn first_cursor() -> PageCursor {
    ("00000000-0000-0000-0000-000000000000".into(), json!(0))
}

/// Passes all rows of the clients to `take`, kind by kind, until it returns false.
pub(super) async fn export(
    database: &Database,
    selected: &ClientSelection,
    take: &mut (dyn FnMut(ClientRow) -> bool + Send),
) -> Result<(), StoreError> {
    let mut export = PagedExport {
        database,
        selected,
        take,
        is_over: false,
    };
    export.sessions_and_requests().await?;
    export.lists().await?;
    export.searches_and_feedback().await?;
    export.decisions().await
}

struct PagedExport<'a> {
    database: &'a Database,
    selected: &'a ClientSelection,
    take: &'a mut (dyn FnMut(ClientRow) -> bool + Send),
    // `take` returned false.
    is_over: bool,
}

impl PagedExport<'_> {
    /// Reads all pages of a kind. `read` returns the cursor of a row and the row for the export.
    async fn export_kind<R: DeserializeOwned + Send>(
        &mut self,
        statement: &Statement,
        read: fn(R) -> Result<(PageCursor, ClientRow), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after = first_cursor();
        while !self.is_over {
            let parameter = (&self.selected.clients, &after, PAGE);
            let page: Vec<R> = self.database.rows(statement, &parameter).await?;
            // A short page is the last one, which saves an empty query.
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
        self.export_kind(&rows::SESSIONS, |row: session::SessionRow| {
            let row = row.summary(BTreeSet::new());
            let place = cursor_by_id(row.session.id);
            Ok((place, ClientRow::session(&row.session, row.ended_at)?))
        })
        .await?;
        self.export_kind(&rows::CALLS, |row: invocation::InvocationRow| {
            let row = InvocationSummary::from(row);
            Ok((cursor_by_id(row.invocation.id), ClientRow::call(&row)?))
        })
        .await?;
        self.export_kind(&rows::EXCHANGES, |row: exchange::ExchangeRow| {
            let row = Exchange::from(row);
            Ok((cursor_by_id(row.id), ClientRow::exchange(&row)?))
        })
        .await
    }

    async fn lists(&mut self) -> Result<(), StoreError> {
        self.export_kind(
            &rows::TOOLS_LISTED,
            |(session, listing, at): (SessionId, String, Micros)| {
                let row = ClientRow::tools_listed(session, &listing, at.0)?;
                Ok(((session.to_string(), json!(listing)), row))
            },
        )
        .await?;
        self.export_kind(&rows::LISTS_SHOWN, |row: list_shown::ListShownRow| {
            let row = ListShown::from(row);
            let place = (
                row.session.to_string(),
                json!(row.shown_at.as_microsecond()),
            );
            Ok((place, ClientRow::list_shown(&row)?))
        })
        .await
    }

    async fn searches_and_feedback(&mut self) -> Result<(), StoreError> {
        self.export_kind(&rows::SEARCHES, |row: search::SearchRow| {
            let row = Search::from(row);
            Ok((cursor_by_id(row.id), ClientRow::search(&row)?))
        })
        .await?;
        self.export_kind(&rows::CONTEXTS, |row: context::ContextRow| {
            let row = Context::try_from(row)?;
            Ok((cursor_by_id(row.id), ClientRow::context(&row)?))
        })
        .await?;
        self.export_kind(
            &rows::RECOMMENDATIONS,
            |row: recommendation::RecommendationRow| {
                let row = Recommendation::from(row);
                Ok((cursor_by_id(row.id), ClientRow::recommendation(&row)?))
            },
        )
        .await?;
        self.export_kind(&rows::FEEDBACK, |row: feedback::FeedbackRow| {
            let row = Feedback::from(row);
            Ok((cursor_by_id(row.id), ClientRow::feedback(&row)?))
        })
        .await
    }

    async fn list_epochs(&mut self) -> Result<(), StoreError> {
        self.export_kind(&rows::LIST_EPOCHS, |row: list_epoch::ListEpochRow| {
            let row = ListEpoch::from(row);
            let place = (row.scope.clone(), Value::Null);
            Ok((place, ClientRow::list_epoch(&row)?))
        })
        .await
    }

    async fn decisions(&mut self) -> Result<(), StoreError> {
        self.export_kind(&rows::WORK_SESSIONS, |row: work_session::WorkSessionRow| {
            let row = WorkSession::from(row);
            Ok((cursor_by_id(row.id), ClientRow::work_session(&row)?))
        })
        .await?;
        self.list_epochs().await?;
        if self.is_over {
            return Ok(());
        }
        // Overrides need no pages: operators write only few of them.
        for row in self.selected.overrides(self.database).await? {
            if !(self.take)(ClientRow::tool_override(&row)?) {
                break;
            }
        }
        Ok(())
    }
}

fn cursor_by_id(id: impl Display) -> PageCursor {
    (id.to_string(), Value::Null)
}
