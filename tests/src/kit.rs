//! Builders of scenes: servers, a proxy in front of them, and its clients.
//!
//! ```no_run
//! # async fn scene() {
//! use riglm_tests::kit::{proxy, server};
//!
//! let proxy = proxy()
//!     .server(&server("docs").tools(3))
//!     .server(&server("wiki").tools(3))
//!     .strategy("prediction")
//!     .start()
//!     .await;
//! let client = proxy.client().connect().await;
//! # }
//! ```

use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;
use tempfile::TempDir;
use url::Url;

use crate::answers::Answers;
use crate::binary;
use crate::client::RawClient;
use crate::fixture::Upstream;
use crate::messages;
use crate::plain_http::{self, HttpResponse};
use crate::process::free_port;
use crate::riglm::{Options, Riglm};

/// A server for the configuration of a proxy: the unusual server over stdio.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    name: String,
    command: Vec<String>,
    keys: String,
}

/// Returns a server with this name and the unusual tools.
pub fn server(name: &str) -> ServerBuilder {
    let program = binary::odd_server().display().to_string();
    ServerBuilder {
        name: name.to_owned(),
        command: vec![program, "stdio".into(), "--name".into(), name.into()],
        keys: String::new(),
    }
}

impl ServerBuilder {
    /// Replaces the unusual tools by `n` plain ones.
    #[must_use]
    pub fn tools(self, n: usize) -> Self {
        self.argument("--tools", n.to_string())
    }

    /// Replaces the unusual tools by the definitions in a file, a JSON array.
    #[must_use]
    pub fn listing(self, file: &Path) -> Self {
        self.argument("--listing", file.display().to_string())
    }

    /// Adds an argument of the unusual server.
    #[must_use]
    pub fn argument(mut self, key: &str, value: impl Into<String>) -> Self {
        self.command.extend([key.to_owned(), value.into()]);
        self
    }

    /// Runs a shell command before the server starts.
    #[must_use]
    pub fn after(mut self, command: &str) -> Self {
        let script = format!("{command} && exec \"$0\" \"$@\"");
        let shell = ["sh".to_owned(), "-c".to_owned(), script];
        self.command.splice(..0, shell);
        self
    }

    /// Adds a line to the section of the server in the configuration.
    #[must_use]
    pub fn key(mut self, line: &str) -> Self {
        self.keys += line;
        self.keys.push('\n');
        self
    }

    /// Returns the server as the upstream of a command line.
    pub fn upstream(&self) -> Upstream {
        Upstream::of_command(self.command.clone())
    }

    /// Returns the section of the server in the configuration.
    pub fn section(&self) -> String {
        let command = Value::from(self.command.clone());
        format!(
            "[upstreams.{}]\n{}command = {command}\n",
            self.name, self.keys
        )
    }
}

/// A proxy that is not started yet.
#[derive(Debug)]
pub struct ProxyBuilder {
    upstream: Upstream,
    servers: String,
    configuration: String,
    options: Options,
    control: Option<String>,
}

/// Returns a proxy without servers.
pub fn proxy() -> ProxyBuilder {
    ProxyBuilder {
        upstream: Upstream::from_configuration(),
        servers: String::new(),
        configuration: String::new(),
        options: Options::default(),
        control: None,
    }
}

impl ProxyBuilder {
    /// Adds a server to the configuration.
    #[must_use]
    pub fn server(mut self, server: &ServerBuilder) -> Self {
        self.servers += &server.section();
        self
    }

    /// Names the one server on the command line.
    #[must_use]
    pub fn before(mut self, upstream: Upstream) -> Self {
        self.upstream = upstream;
        self
    }

    /// Adds TOML before the sections of the servers.
    #[must_use]
    pub fn configuration(mut self, toml: &str) -> Self {
        self.configuration += toml;
        self.configuration.push('\n');
        self
    }

    /// Selects lists by this strategy. Without one, lists stay as they are.
    #[must_use]
    pub fn strategy(mut self, strategy: &str) -> Self {
        let arguments = ["--strategy", strategy].map(str::to_owned);
        self.options.arguments.extend(arguments);
        self
    }

    /// Selects lists by the strategy of the configuration, which can then be tuned.
    #[must_use]
    pub fn with_file_strategy(mut self) -> Self {
        self.options.has_file_strategy = true;
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        let variable = (name.to_owned(), value.to_owned());
        self.options.environment.push(variable);
        self
    }

    /// Starts another program with the commands of riglm.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.options.program = Some(program);
        self
    }

    /// Opens the control port.
    #[must_use]
    pub fn with_control(mut self) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let arguments = ["--control", &address].map(str::to_owned);
        self.options.arguments.extend(arguments);
        self.control = Some(address);
        self
    }

    /// Starts the proxy with a data directory that is removed with it.
    pub async fn start(self) -> Proxy {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let mut proxy = self.start_in(folder.path()).await;
        proxy.folder = Some(folder);
        proxy
    }

    /// Starts the proxy with this data directory.
    pub async fn start_in(self, data_dir: &Path) -> Proxy {
        let configuration = self.configuration + &self.servers;
        let options = Options {
            configuration: (!configuration.is_empty()).then_some(configuration),
            ..self.options
        };
        let riglm = Riglm::serve(&self.upstream, data_dir, &options).await;
        let control = self.control.map(|address| {
            let url = format!("http://{address}").parse();
            url.expect("the address of the control port is a URL")
        });
        Proxy {
            riglm,
            data_dir: data_dir.to_owned(),
            control,
            folder: None,
        }
    }
}

/// A proxy that listens over HTTP. It is killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    /// The process.
    pub riglm: Riglm,
    /// The data directory.
    pub data_dir: PathBuf,
    control: Option<Url>,
    folder: Option<TempDir>,
}

impl Proxy {
    /// Returns a client of the latest legacy revision, which is not connected yet.
    pub fn client(&self) -> ClientBuilder {
        ClientBuilder {
            client: self.riglm.client(Answers::default()),
            revision: "2025-11-25",
        }
    }

    /// Sends a request to a path of the MCP port. Its body is JSON if no header says otherwise.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let is_typed = headers.iter().any(|(name, _)| *name == "content-type");
        let json = (!is_typed).then_some(("content-type", "application/json"));
        let headers: Vec<_> = json.into_iter().chain(headers.iter().copied()).collect();
        let url = self.riglm.at("/").join(path);
        let url = url.unwrap_or_else(|error| panic!("{path}: {error}"));
        let sent = plain_http::exchange(method, &url, &headers, body.to_owned());
        sent.await
            .unwrap_or_else(|error| panic!("{path}: {}", error.0))
    }

    /// Returns the address of a path on the control port.
    pub fn control(&self, path: &str) -> Url {
        let url = self.control.as_ref().expect("the control port is open");
        url.join(path)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Returns the token of the operator.
    pub fn token(&self) -> String {
        let token = std::fs::read_to_string(self.data_dir.join("control.token"));
        token.expect("there is a token").trim().to_owned()
    }

    /// Sends a request of the operator to the control port.
    pub async fn operate(&self, method: Method, path: &str, body: &str) -> HttpResponse {
        self.operate_with(method, path, &[], body).await
    }

    /// Returns the JSON at a path of the control port.
    pub async fn control_response(&self, path: &str) -> Value {
        let answer = self.operate(Method::GET, path, "").await;
        let body = serde_json::from_str(&answer.body);
        body.unwrap_or_else(|error| panic!("{path}: {error} in {}", answer.body))
    }

    /// Like [`Proxy::operate`], with more headers.
    pub async fn operate_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let bearer = format!("Bearer {}", self.token());
        let usual = [
            ("authorization", &*bearer),
            ("content-type", "application/json"),
        ];
        let headers = [&usual[..], headers].concat();
        let url = self.control(path);
        let sent = plain_http::exchange(method, &url, &headers, body.to_owned());
        sent.await.unwrap_or_else(|error| panic!("{}", error.0))
    }
}

/// A client that is not connected yet.
#[derive(Debug)]
pub struct ClientBuilder {
    client: RawClient,
    revision: &'static str,
}

impl ClientBuilder {
    /// Sets the revision that the client asks for.
    #[must_use]
    pub fn revision(mut self, revision: &'static str) -> Self {
        self.revision = revision;
        self
    }

    /// Sets the canned responses to requests of servers.
    #[must_use]
    pub fn answers(self, answers: Answers) -> Self {
        self.client.set_answers(answers);
        self
    }

    /// Sets a header of all requests.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.client.set_header(name, value);
        self
    }

    /// Initialises a session.
    pub async fn connect(self) -> RawClient {
        let hello = messages::initialize("0", self.revision);
        self.client.initialize(&hello).await;
        self.client
    }
}
