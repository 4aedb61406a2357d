//! The skills of the servers of a session, for searches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_discovery::search::{MAX_SKILLS, Skill, SkillIndex};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::unescape;

use crate::proxy::aggregator::merged_list_fetch::{FetchSelection, gather};
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::{ListFetchError, ListTemplate};
use crate::proxy::session::ClientSession;

/// The time for which known skills are used without asking the servers again.
const FRESH_FOR: Duration = Duration::from_mins(1);
/// The time that a search waits for the skills.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The skills that searches of a session use.
#[derive(Clone, Debug)]
pub(super) struct KnownSkills {
    pub(super) index: Arc<SkillIndex>,
    listed_at: Instant,
    /// The number of changes of resources before the skills were listed.
    n_changes: u64,
}

impl KnownSkills {
    fn is_fresh(&self, n_changes: u64) -> bool {
        self.n_changes == n_changes && self.listed_at.elapsed() < FRESH_FOR
    }
}

/// Returns the skills of all servers that declare skills. Returns `None` if there are none. Failures
/// are logged: a search does not fail because of skills.
pub(in crate::proxy) async fn skills_of(
    session: &Arc<ClientSession>,
    message: &Message,
    era: Era,
) -> Option<Arc<SkillIndex>> {
    let kind = ListKind::Skills;
    let members = session.members();
    let has_skills = members.iter().any(|member| {
        let said = member.tools.handshake_result();
        said.is_some_and(|said| kind.is_declared_in(&said))
    });
    if !has_skills {
        return None;
    }
    let search = &session.client_context.search;
    let n_changes = session.aggregator.changes.n_changes(kind.change());
    if let Some(known) = search.skills().filter(|known| known.is_fresh(n_changes)) {
        return Some(known.index);
    }
    let template = ListTemplate::new(kind, message, era);
    let listed = tokio::time::timeout(TIMEOUT, list_skills(session, &template)).await;
    let listed = listed.unwrap_or(Err(ListFetchError::Timeout));
    let index = match listed {
        Ok(skills) => Arc::new(SkillIndex::new(skills)),
        // The next searches do not wait again.
        Err(error) => {
            tracing::debug!("failed to list skills for a search: {error}");
            let known = search.skills().map(|known| known.index);
            known.unwrap_or_else(|| Arc::new(SkillIndex::new(Vec::new())))
        }
    };
    let known = KnownSkills {
        index,
        listed_at: Instant::now(),
        n_changes,
    };
    search.note_skills(known.clone());
    Some(known.index)
}

/// Lists the skills of all servers, with the URIs that the client knows.
async fn list_skills(
    session: &Arc<ClientSession>,
    template: &ListTemplate,
) -> Result<Vec<Skill>, ListFetchError> {
    if let Some(only) = session.only_upstream() {
        let entries = only.fetch_entries(template, MAX_SKILLS).await?;
        let skills = entries.iter().filter_map(|entry| {
            let uri = member(entry, template.kind.key()).and_then(unescape)?;
            Skill::read(&uri, entry)
        });
        return Ok(skills.collect());
    }
    let gathered = gather(session, template, &FetchSelection::All).await;
    let gathered = gathered.map_err(|error| ListFetchError::Request(error.message))?;
    let skills = gathered.list.entries();
    Ok(skills
        .filter_map(|(uri, entry)| Skill::read(uri, entry))
        .collect())
}
