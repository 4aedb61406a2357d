//! The MCP clients of a user: their places, and the entries of them that are riglm.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{Ledger, Os, Places, RiglmIdentity};

use crate::args::HomeArgs;
use crate::commands::connect::proxy_url;
use crate::config::{Config, ProcessEnv};
use crate::exit::WrongUsage;

/// The clients of a user.
#[derive(Clone, Debug)]
pub(super) struct UserClients {
    pub(super) places: Places,
    /// The addresses and programs that are riglm.
    pub(super) riglm: RiglmIdentity,
    /// The path of this program.
    pub(super) program: PathBuf,
}

impl UserClients {
    /// Returns the clients of the user that the arguments name, or of this user.
    ///
    /// # Errors
    ///
    /// Returns [`WrongUsage`] if there is no home directory.
    pub(super) fn new(
        config: &Config,
        process: &ProcessEnv,
        arguments: &HomeArgs,
    ) -> anyhow::Result<Self> {
        let named = arguments.home.as_ref();
        let named = named.map(|home| process.working_directory.join(home));
        let home = named.clone().or_else(|| process.home_directory.clone());
        let home = home.ok_or_else(|| {
            WrongUsage("this user has no home directory: set HOME, or use --home DIR".into())
        })?;
        let home = std::path::absolute(&home)
            .with_context(|| format!("invalid path {}", home.display()))?;
        let program = std::env::current_exe().context("failed to find the path of this program")?;
        // Variables such as XDG_CONFIG_HOME belong to this user, not to the named one.
        let variables = match named {
            Some(_) => BTreeMap::new(),
            None => process.environment.all().clone(),
        };
        Ok(Self {
            places: Places {
                os: arguments.os.unwrap_or_else(Os::of_this_build),
                home,
                variables,
            },
            riglm: RiglmIdentity {
                // With those of earlier installations, before the port was changed.
                addresses: (Ledger::read(&config.data_dir)?.addresses().into_iter())
                    .chain(endpoint(config, None))
                    .collect(),
                programs: vec![program.display().to_string()],
            },
            program,
        })
    }

    /// Returns the home directory as text.
    pub(super) fn home(&self) -> String {
        self.places.home.display().to_string()
    }
}

/// Returns the address of the MCP endpoint for clients on this machine; `None` if its port is
/// unknown.
pub(super) fn endpoint(config: &Config, profile: Option<&str>) -> Option<String> {
    let url = proxy_url(config.listen.address, profile).ok()?;
    Some(url.to_string())
}
