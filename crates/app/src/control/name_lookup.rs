//! Lookup of the session, client, profile or tool that an operator names. It is the same on the
//! control port and on the command line.
//!
//! Open sessions of this process are searched first, since their rows may not be in the store yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::catalog::naming::{NamespacePolicy, shown_names};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::catalog::tool_override::OverrideScope;
use riglm_domain::id::{ProfileName, UpstreamName, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::retrieval::nearest_names;
use riglm_ports::analytics::StoreError;

use crate::control::queries::{Queries, SessionView};
use crate::proxy::Proxy;

/// The longest name in an error, in characters.
const MAX_NAME_CHARS: usize = 200;
/// The most suggested tools in an error.
const MAX_PROPOSED: usize = 3;

/// The error for a name without a match.
#[derive(Debug, thiserror::Error)]
pub enum UnknownName {
    /// No session has the identifier.
    #[error("unknown session {0}")]
    Session(String),
    /// No client has the identifier or the name.
    #[error(
        "unknown client {0}; GET /sessions and riglm sessions --json show the client_id of each \
         client"
    )]
    Client(String),
    /// Several clients have the name.
    #[error("several clients are named {name}; use a client_id instead, one of {ids}")]
    Clients {
        /// The name.
        name: String,
        /// The identifiers of these clients.
        ids: String,
    },
    /// The configuration has no profile of the name.
    #[error("unknown profile {name}; {known}")]
    Profile {
        /// The name.
        name: String,
        /// The configured profiles.
        known: String,
    },
    /// No upstream listed a tool of the name.
    #[error("unknown tool {name}: no upstream has listed it{nearest}")]
    Tool {
        /// The name.
        name: String,
        /// The nearest names, as the end of the sentence.
        nearest: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns a name in quotes, truncated for an error.
#[must_use]
pub fn quote(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME_CHARS).collect();
    if cut.len() < name.len() {
        format!("\"{cut}...\"")
    } else {
        format!("\"{cut}\"")
    }
}

/// A session that an operator named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSession {
    /// The identifier of the work session or of the connection.
    pub id: String,
    /// Whether its client is modern, so that its lists must not depend on the session.
    pub is_modern: bool,
}

/// Looks up the names that operators use.
#[derive(Debug)]
pub struct NameLookup {
    queries: Arc<Queries>,
    proxy: Option<Arc<Proxy>>,
    profiles: BTreeSet<ProfileName>,
    naming: NamespacePolicy,
}

impl NameLookup {
    /// Creates the lookup in a store and in the configured profiles.
    #[must_use]
    pub fn new(
        queries: Arc<Queries>,
        profiles: BTreeSet<ProfileName>,
        naming: NamespacePolicy,
    ) -> Self {
        Self {
            queries,
            proxy: None,
            profiles,
            naming,
        }
    }

    /// Adds the open sessions of this process.
    #[must_use]
    pub fn with_proxy(self, proxy: Arc<Proxy>) -> Self {
        Self {
            proxy: Some(proxy),
            ..self
        }
    }

    /// Replaces the names in a scope by the identifiers that the proxy compares. Returns also the
    /// session of the scope.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] for a name without a match.
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

    /// Returns the session with this identifier: of a work session, of a connection, or of the
    /// transport of an open connection.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] if there is none.
    pub async fn session(&self, id: &str) -> Result<NamedSession, UnknownName> {
        let proxy = self.proxy.as_ref();
        if let Some(open) = proxy.and_then(|proxy| proxy.session_named(id)) {
            return Ok(open);
        }
        match self.queries.session(id).await? {
            Some(SessionView::Connection(summary)) => Ok(NamedSession {
                id: summary.session.id.to_string(),
                is_modern: summary.session.protocol.is_modern(),
            }),
            Some(SessionView::Work(work)) => Ok(NamedSession {
                id: work.id.to_string(),
                is_modern: self.is_modern(work.id).await?,
            }),
            None => Err(UnknownName::Session(quote(id))),
        }
    }

    /// Returns whether the newest call of a work session came from a modern client.
    async fn is_modern(&self, work: WorkSessionId) -> Result<bool, StoreError> {
        let newest = self.queries.newest_connection_of(work).await?;
        Ok(newest.is_some_and(|newest| newest.session.protocol.is_modern()))
    }

    /// Returns the client with this identifier, or the only client with this declared name.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] if there is none, or several.
    pub async fn client(&self, name: &str) -> Result<KeyedHash, UnknownName> {
        let mut clients = self.queries.clients_named(name).await?;
        if let Some(proxy) = &self.proxy {
            clients.extend(proxy.clients_named(name));
        }
        // An identifier wins, so that a client cannot hide another one by declaring its identifier
        // as a name.
        if let Some(id) = KeyedHash::from_hex(name).filter(|id| clients.contains(id)) {
            return Ok(id);
        }
        let mut found = clients.iter();
        match (found.next(), found.next()) {
            (None, _) => Err(UnknownName::Client(quote(name))),
            (Some(only), None) => Ok(*only),
            _ => {
                let ids: Vec<String> = clients.iter().map(ToString::to_string).collect();
                Err(UnknownName::Clients {
                    name: quote(name),
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
            name: quote(&name),
            known: if known.is_empty() {
                "the configuration has no profiles".into()
            } else {
                format!("known are {}", known.join(", "))
            },
        })
    }

    /// Checks for a tool of this name in the lists of all upstreams, by its own name or its name in
    /// lists. Listed tools of the past count if they are stored.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] when no upstream has or had the tool.
    pub async fn tool(&self, name: &str) -> Result<(), UnknownName> {
        let stored = self.queries.tools_seen().await?;
        if stored.iter().any(|tool| tool.is_named(name)) {
            return Ok(());
        }
        let shown = self.shown_names(&stored);
        let is_open = || {
            let proxy = self.proxy.as_ref();
            proxy.is_some_and(|proxy| proxy.has_tool_named(name))
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
            name: quote(name),
            nearest: if nearest.is_empty() {
                String::new()
            } else {
                format!("; the nearest is {}", nearest.join(" or "))
            },
        })
    }

    /// Returns the names of tools in lists, in the same order. The tools must be grouped by
    /// upstream.
    fn shown_names(&self, tools: &[ToolRef]) -> Vec<String> {
        let by_upstream = || tools.chunk_by(|one, other| one.upstream == other.upstream);
        let owned: Vec<(&UpstreamName, Vec<&str>)> = by_upstream()
            .filter_map(|of_one| {
                let names = of_one.iter().map(|tool| tool.tool.as_str());
                Some((&of_one.first()?.upstream, names.collect()))
            })
            .collect();
        // A single upstream keeps its names.
        let names = (owned.len() > 1).then(|| shown_names(self.naming, &owned));
        let mut names = names.into_iter().flatten().flatten();
        let own = tools.iter().map(|tool| tool.tool.as_str().to_owned());
        own.map(|own| names.next().flatten().unwrap_or(own))
            .collect()
    }
}

#[cfg(test)]
mod tests;
