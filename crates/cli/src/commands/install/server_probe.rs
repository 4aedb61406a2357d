//! The proof that riglm can serve a server, before `--replace` takes it out of the file of a client.
//!
//! A server at an address is asked for its tools over the connection that riglm has to it, or gets
//! by an import. One that an import finds with a login is not asked: it may list its tools to everybody,
//! and refuse the calls until `riglm login`. Programs are not started: whether they are there is known
//! without that.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use riglm_adapters_clients::configuration::{ConfiguredServer, ConfiguredTransport};
use riglm_domain::id::UpstreamName;

use crate::commands::import::plan::KnownServers;
use crate::commands::import::sources::error_text;
use crate::commands::server_listing::ServerLister;

/// The time limit for each server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that stays in the file of a client, because riglm cannot serve it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct KeptServer {
    pub(in crate::commands) name: String,
    pub(in crate::commands) reason: String,
}

/// Asks servers for their tools, each once.
#[derive(Debug)]
pub(super) struct ServerProbe<'a> {
    known: &'a KnownServers<'a>,
    lister: ServerLister<'a>,
    /// The reason why riglm cannot serve each upstream; `None` if it can.
    reasons: BTreeMap<UpstreamName, Option<String>>,
}

impl<'a> ServerProbe<'a> {
    /// Creates a probe for servers that riglm has. `data_dir` has the tokens of logins.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub(super) fn new(known: &'a KnownServers<'a>, data_dir: &'a Path) -> anyhow::Result<Self> {
        Ok(Self {
            known,
            lister: ServerLister::new(None, data_dir, PATIENCE)?,
            reasons: BTreeMap::new(),
        })
    }

    /// Returns the reason why riglm cannot serve a server of a client that it has; `None` if it can.
    pub(super) async fn obstacle(&mut self, server: &ConfiguredServer) -> Option<String> {
        if !matches!(server.transport, ConfiguredTransport::Url(_)) {
            return None;
        }
        let (name, connection) = self.known.connection_to(server)?;
        if let Some(reason) = self.reasons.get(name) {
            return reason.clone();
        }
        let reason = match connection {
            Ok(config) => {
                let listed = self.lister.tools(name, &config).await;
                listed.err().map(|error| error_text(&error))
            }
            Err(reason) => Some(reason.to_string()),
        };
        self.reasons.insert(name.clone(), reason.clone());
        reason
    }
}

impl KeptServer {
    /// Returns the sentence for people. `client` is the title of the client.
    pub(in crate::commands) fn text(&self, client: &str) -> String {
        format!(
            "{client}: {} stays in the file, because riglm cannot serve it now: {}",
            self.name, self.reason
        )
    }
}
