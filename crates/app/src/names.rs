//! Which session, client, profile or tool an operator names: the same answer on the control port and on
//! the command line.
//!
//! What is open in this process is asked first, since its rows may still be on their way to the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{ProfileName, UpstreamName, WorkSessionId};
use riglm_domain::naming::{Naming, shown};
use riglm_domain::retrieval::nearest_names;
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_override::OverrideScope;
use riglm_ports::analytics::StoreError;

use crate::insight::{Insight, SessionView};
use crate::proxy::Proxy;

/// The longest name that an error repeats, in characters.
const MAX_NAME_CHARS: usize = 200;
/// The most tools that an error proposes.
const MAX_PROPOSED: usize = 3;

/// Why a name stands for nothing that is known.
#[derive(Debug, thiserror::Error)]
pub enum UnknownName {
    /// No session has the identifier.
    #[error("there is no session {0}")]
    Session(String),
    /// No client has the identifier or the name.
    #[error(
        "there is no client {0}: GET /sessions and riglm sessions --json have the client_id of each"
    )]
    Client(String),
    /// Several clients have the name.
    #[error("several clients are named {name}: say which by its client_id, one of {ids}")]
    Clients {
        /// The name.
        name: String,
        /// Their identifiers.
        ids: String,
    },
    /// The configuration has no profile of the name.
    #[error("there is no profile {name} in the configuration; {known}")]
    Profile {
        /// The name.
        name: String,
        /// Which profiles it has.
        known: String,
    },
    /// No upstream listed a tool of the name.
    #[error("no upstream listed a tool {name}{nearest}")]
    Tool {
        /// The name.
        name: String,
        /// The nearest names, as the end of the sentence.
        nearest: String,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns a name as an error repeats it.
#[must_use]
pub fn quoted(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME_CHARS).collect();
    if cut.len() < name.len() {
        format!("\"{cut}...\"")
    } else {
        format!("\"{cut}\"")
    }
}

/// A session that an operator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSession {
    /// The identifier of the work session or of the connection.
    pub id: String,
    /// Whether its lists are those of revision 2026-07-28, which depend on no session.
    pub is_modern: bool,
}

/// Finds what operators name.
#[derive(Debug)]
pub struct Names {
    insight: Arc<Insight>,
    proxy: Option<Arc<Proxy>>,
    profiles: BTreeSet<ProfileName>,
    naming: Naming,
}

impl Names {
    /// Returns what finds names in a store and in the profiles of the configuration.
    #[must_use]
    pub fn new(insight: Arc<Insight>, profiles: BTreeSet<ProfileName>, naming: Naming) -> Self {
        Self {
            insight,
            proxy: None,
            profiles,
            naming,
        }
    }

    /// Has it know what is open in this process, too.
    #[must_use]
    pub fn with_proxy(self, proxy: Arc<Proxy>) -> Self {
        Self {
            proxy: Some(proxy),
            ..self
        }
    }

    /// Returns a scope with the identifiers by which the proxy compares it, instead of the names by which
    /// an operator may say it, and the session of it.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the name that stands for nothing.
    pub async fn scope(
        &self,
        scope: OverrideScope,
    ) -> Result<(OverrideScope, Option<NamedSession>), UnknownName> {
        Ok(match scope {
            OverrideScope::Global => (scope, None),
            OverrideScope::Profile(name) => (OverrideScope::Profile(self.profile(name)?), None),
            OverrideScope::Client(name) => {
                let client = self.client(&name).await?.to_string();
                (OverrideScope::Client(client), None)
            }
            OverrideScope::Session(id) => {
                let session = self.session(&id).await?;
                (OverrideScope::Session(session.id.clone()), Some(session))
            }
        })
    }

    /// Returns the session with this identifier: that of a work session, of a connection, or the one that
    /// its transport gave to an open connection.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] where there is none.
    pub async fn session(&self, id: &str) -> Result<NamedSession, UnknownName> {
        if let Some(open) = self
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.session_named(id))
        {
            return Ok(open);
        }
        match self.insight.session(id).await? {
            Some(SessionView::Connection(summary)) => Ok(NamedSession {
                id: summary.session.id.to_string(),
                is_modern: summary.session.protocol.is_modern(),
            }),
            Some(SessionView::Work(work)) => Ok(NamedSession {
                id: work.id.to_string(),
                is_modern: self.is_modern(work.id).await?,
            }),
            None => Err(UnknownName::Session(quoted(id))),
        }
    }

    /// Returns whether the newest call of a work session came over a connection of a modern revision.
    async fn is_modern(&self, work: WorkSessionId) -> Result<bool, StoreError> {
        let Some(connection) = self.insight.connection_of_work(work).await? else {
            return Ok(false);
        };
        let session = self.insight.session(&connection.to_string()).await?;
        Ok(matches!(session, Some(SessionView::Connection(summary))
            if summary.session.protocol.is_modern()))
    }

    /// Returns the client with this identifier, or the only one that gives itself this name.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] where there is none, or several.
    pub async fn client(&self, name: &str) -> Result<KeyedHash, UnknownName> {
        let mut clients = self.insight.clients_named(name).await?;
        if let Some(proxy) = &self.proxy {
            clients.extend(proxy.clients_named(name));
        }
        // An identifier is never taken for a name.
        if let Some(id) = KeyedHash::from_hex(name).filter(|id| clients.contains(id)) {
            return Ok(id);
        }
        let mut found = clients.iter();
        match (found.next(), found.next()) {
            (None, _) => Err(UnknownName::Client(quoted(name))),
            (Some(only), None) => Ok(*only),
            _ => {
                let ids: Vec<String> = clients.iter().map(ToString::to_string).collect();
                Err(UnknownName::Clients {
                    name: quoted(name),
                    ids: ids.join(", "),
                })
            }
        }
    }

    fn profile(&self, name: String) -> Result<String, UnknownName> {
        if self.profiles.iter().any(|one| one.as_str() == name) {
            return Ok(name);
        }
        let known: Vec<&str> = self.profiles.iter().map(ProfileName::as_str).collect();
        Err(UnknownName::Profile {
            name: quoted(&name),
            known: if known.is_empty() {
                "it has none".into()
            } else {
                format!("it has {}", known.join(", "))
            },
        })
    }

    /// Checks that some upstream listed a tool of this name, by the name that it has there or the one
    /// under which clients see it: now, or before as far as that is stored.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the nearest names where none did.
    pub async fn tool(&self, name: &str) -> Result<(), UnknownName> {
        let stored = self.insight.tools_seen().await?;
        if stored.iter().any(|tool| tool.is_named(name)) {
            return Ok(());
        }
        let shown = self.shown_names(&stored);
        let is_open = || {
            let proxy = self.proxy.as_ref();
            proxy.is_some_and(|proxy| proxy.offers(name))
        };
        if shown.iter().any(|shown| shown == name) || is_open() {
            return Ok(());
        }
        let own: Vec<&str> = stored.iter().map(|tool| tool.tool.as_str()).collect();
        let all: Vec<&str> = shown.iter().map(String::as_str).collect();
        let mut nearest = nearest_names(name, &all, MAX_PROPOSED);
        if nearest.is_empty() {
            nearest = nearest_names(name, &own, MAX_PROPOSED);
        }
        let nearest: Vec<&str> = nearest.into_iter().map(|at| all[at]).collect();
        Err(UnknownName::Tool {
            name: quoted(name),
            nearest: if nearest.is_empty() {
                String::new()
            } else {
                format!("; the nearest is {}", nearest.join(" or "))
            },
        })
    }

    /// Returns the names under which clients see tools, in the same order. They come by upstream.
    fn shown_names(&self, tools: &[ToolRef]) -> Vec<String> {
        let by_upstream = || tools.chunk_by(|one, other| one.upstream == other.upstream);
        let owned: Vec<(&UpstreamName, Vec<&str>)> = by_upstream()
            .filter_map(|of_one| {
                let names = of_one.iter().map(|tool| tool.tool.as_str());
                Some((&of_one.first()?.upstream, names.collect()))
            })
            .collect();
        // One upstream keeps its names.
        let names = (owned.len() > 1).then(|| shown(self.naming, &owned));
        let mut names = names.into_iter().flatten().flatten();
        let own = tools.iter().map(|tool| tool.tool.as_str().to_owned());
        own.map(|own| names.next().flatten().unwrap_or(own))
            .collect()
    }
}

#[cfg(test)]
mod tests;
