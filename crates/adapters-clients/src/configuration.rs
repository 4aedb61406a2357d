//! The configuration files of MCP clients: their places, their formats, and safe changes to them.
//!
//! - [`clients`]: the table of clients, data only.
//! - [`installed_clients`]: the clients of a user, and their files.
//! - [`read_servers`]: the servers of a file in neutral terms; [`merge_servers`] joins equal ones.
//! - [`ImportFormat`]: files of unknown origin, and those of other gateways; [`gateway_folders`]
//!   finds the latter.
//! - [`install_entry`] and [`remove_entry`]: changes of the entry for riglm in a text.
//! - [`preview_install`], [`apply`] and [`plan_undo`]: changes of files. [`Ledger`] records them.
//!
//! Nothing here reads the environment or the clock: both are arguments.
//!
//! # Examples
//!
//! ```
//! use riglm_adapters_clients::configuration::{
//!     Creation, EntryKey, InstallEntry, InstallRequest, Ledger, Os, Places, RiglmIdentity, apply,
//!     installed_clients, plan_undo, preview_install,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # std::fs::create_dir(home.path().join(".cursor"))?;
//! # let data_dir = home.path().join("data");
//! # let now: jiff::Timestamp = "2026-03-04T05:06:07Z".parse()?;
//! let places = Places {
//!     os: Os::of_this_build(),
//!     home: home.path().to_owned(),
//!     variables: std::collections::BTreeMap::new(),
//! };
//! let entry = InstallEntry {
//!     name: "riglm".to_owned(),
//!     address: "http://127.0.0.1:8642/mcp".to_owned(),
//!     program: "/usr/local/bin/riglm".to_owned(),
//!     arguments: vec!["connect".to_owned()],
//!     key: EntryKey::None,
//! };
//! let mut addresses = Ledger::read(&data_dir)?.addresses();
//! addresses.push(entry.address.clone());
//! let riglm = RiglmIdentity {
//!     addresses,
//!     programs: vec![entry.program.clone()],
//! };
//! for installed in installed_clients(&places) {
//!     for file in installed.install_files() {
//!         let request = InstallRequest {
//!             entry: &entry,
//!             riglm: &riglm,
//!             creation: Creation::Allowed,
//!         };
//!         let preview = preview_install(&file.path, installed.client, &request)?;
//!         for line in preview.diff() {
//!             println!("{line}");
//!         }
//!         if let Some(installation) = apply(&preview, now)? {
//!             Ledger::update(&data_dir, |ledger| ledger.add(installation))?;
//!         }
//!     }
//! }
//!
//! let path = home.path().join(".cursor/mcp.json");
//! let cursor = riglm_adapters_clients::configuration::client("cursor").expect("it is known");
//! let installation = Ledger::read(&data_dir)?.installation("cursor", &path, "riglm");
//! let installation = installation.expect("it was recorded");
//! let plan = plan_undo(&installation, cursor, &riglm)?;
//! if let Some(preview) = &plan.preview {
//!     apply(preview, now)?;
//! }
//! Ledger::update(&data_dir, |ledger| ledger.forget(&installation))?;
//! assert!(!path.exists());
//! # Ok(())
//! # }
//! ```

mod client;
mod discovery;
mod document;
mod editing;
mod entry;
mod file;
mod gateways;
mod identity;
mod merging;
mod places;
mod reading;
mod server;
mod table;
mod writing;

pub use client::{
    Client, Connection, Constant, Dialect, FilePlace, FileRole, HeaderPlace, HttpEntry, MapShape,
    Member, NextStep, ReferenceSyntax, ServerMap, Tier, TimeoutUnit, UntypedUrl, VariableReference,
};
pub use discovery::{
    ClientFile, FileState, InstalledClient, client_files, installed_client, installed_clients,
    project_files,
};
pub use document::{DocumentError, DocumentFormat, Position};
pub use editing::{
    EditError, EditedText, EntryChange, EntryRemoval, InsertionRecord, LossReason, entry_value,
    install_entry, own_entries, remove_entry,
};
pub use entry::{EntryKey, InstallEntry};
pub use file::{FileError, FileText, MAX_BYTES, read_text};
pub use gateways::{GatewayFolder, gateway_folders, server_files};
pub use identity::RiglmIdentity;
pub use merging::{MergedServer, ServerDifference, ServerEntry, SourcedServer, merge_servers};
pub use places::{CandidateFile, Os, Places};
pub use reading::{
    ConfiguredServers, FileProblem, ImportError, ImportFormat, ReadContext, read_servers,
};
pub use server::{
    ConfiguredCommand, ConfiguredOauth, ConfiguredServer, ConfiguredTransport, ConfiguredUrl,
    ServerNature, ServerNote, ServerTimeouts, ToolSelection, UnusableServer,
};
pub use table::{client, clients};
pub use writing::{
    Creation, DiffLine, InstallRequest, Installation, Ledger, LedgerError, LineRange, LostServer,
    Preview, UndoKind, UndoPlan, WriteError, apply, plan_undo, preview_install, preview_removal,
};
