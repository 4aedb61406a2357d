//! The files of MCP clients: their configuration, and the transcripts of their sessions.
//!
//! Nothing here runs while the proxy serves. Commands such as `riglm import` and `riglm audit` use
//! it. Nothing here reads the environment or the clock, and nothing is printed: places, variables and
//! times are arguments, and results are values. So the files of every system are tested on one.
//!
//! # Contents
//!
//! | Module | Question that it answers |
//! | --- | --- |
//! | [`configuration`] | Which clients has a user, which servers do they use, and how does a file change when riglm is added? |
//! | [`transcripts`] | Which tools did the sessions of a client call, when, and with which outcome? |
//!
//! # Examples
//!
//! The installed clients of a user, and the names of their servers:
//!
//! ```no_run
//! use std::collections::BTreeMap;
//!
//! use riglm_adapters_clients::configuration::{
//!     Os, Places, ReadContext, RiglmIdentity, installed_clients, read_servers, read_text,
//! };
//!
//! let places = Places {
//!     os: Os::of_this_build(),
//!     home: "/home/dev".into(),
//!     variables: BTreeMap::new(),
//! };
//! let riglm = RiglmIdentity::default();
//! let context = ReadContext { home: "/home/dev", riglm: &riglm };
//! for installed in installed_clients(&places) {
//!     for file in installed.install_files() {
//!         let text = read_text(&file.path)?.text;
//!         for server in read_servers(&text, installed.client, context)?.servers {
//!             println!("{}: {}", installed.client.title, server.name);
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod configuration;
pub mod transcripts;
