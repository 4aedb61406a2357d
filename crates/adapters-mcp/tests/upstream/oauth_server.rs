//! An MCP server that requires tokens, combined with the authorization server that issues them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use axum::http::{Method, header};
use axum::response::Response;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::{
    CredentialsType, LoginError, OAuthGrant, UpstreamConfig, UpstreamCredentials, connector, login,
};
use riglm_ports::upstream::UpstreamConnector;
use serde_json::{Value, json as value};

use crate::support::{ReceivedRequest, Server, json, name, result, status};

/// The behaviour of the servers. Tests change it at run time.
#[derive(Debug)]
pub(crate) struct Behaviour {
    /// The lifetime of tokens in seconds.
    pub(crate) expires_in: u64,
    /// Whether the server accepts its tokens.
    pub(crate) takes_tokens: bool,
    /// Whether refresh tokens are accepted.
    pub(crate) refreshes: bool,
    /// The error that the browser is redirected with, in place of a code.
    pub(crate) denial: Option<&'static str>,
    /// A fake authorization endpoint in the metadata.
    pub(crate) authorization_endpoint: Option<&'static str>,
    /// A fake token endpoint in the metadata.
    pub(crate) token_endpoint: Option<String>,
    /// The target of redirects of token requests.
    pub(crate) redirect: Option<String>,
    /// The number of the newest token.
    n_issued: u32,
    revoked: u32,
}

/// The servers, the configuration for them, and the directory with the tokens.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) behaviour: Arc<Mutex<Behaviour>>,
    pub(crate) config: UpstreamConfig,
    pub(crate) data_dir: tempfile::TempDir,
}

impl Scene {
    pub(crate) async fn new(change: impl FnOnce(&mut UpstreamCredentials)) -> Self {
        let behaviour = Arc::new(Mutex::new(Behaviour {
            expires_in: 3600,
            takes_tokens: true,
            refreshes: true,
            denial: None,
            authorization_endpoint: None,
            token_endpoint: None,
            redirect: None,
            n_issued: 0,
            revoked: 0,
        }));
        let shared = behaviour.clone();
        let server = Server::start(move |asked| shared.lock().answer(asked)).await;
        let mut credentials = UpstreamCredentials::bearer("unused".into());
        credentials.r#type = CredentialsType::Oauth;
        credentials.token = None;
        change(&mut credentials);
        let config = UpstreamConfig {
            url: Some(server.url("/mcp")),
            credentials: Some(credentials),
            ..UpstreamConfig::default()
        };
        Self {
            server,
            behaviour,
            config,
            data_dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns the scene of a proxy with its own account (`client_credentials`).
    pub(crate) async fn with_account() -> Self {
        Self::new(|credentials| {
            credentials.grant = Some(OAuthGrant::ClientCredentials);
            credentials.client_id = Some("account".into());
            credentials.client_secret = Some("account-secret".into());
        })
        .await
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock());
    }

    /// Revokes all tokens that were issued so far.
    pub(crate) fn revoke(&self) {
        self.change(|behaviour| behaviour.revoked = behaviour.n_issued);
    }

    pub(crate) fn connector(&self) -> Arc<dyn UpstreamConnector> {
        connector(name(), &self.config, None, self.data_dir.path()).unwrap()
    }

    /// Logs in with a fake browser that follows redirects.
    pub(crate) async fn login(&self) -> Result<(), LoginError> {
        login(&name(), &self.config, self.data_dir.path(), browse).await
    }

    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.data_dir.path().join("credentials/test.json")
    }

    /// Returns the token requests with this grant type, and their parameters.
    pub(crate) fn grants(&self, grant: &str) -> Vec<(ReceivedRequest, HashMap<String, String>)> {
        let asked = self.server.received_requests().into_iter();
        asked
            .filter(|asked| asked.path == "/as/token")
            .map(|asked| {
                let parameters = form(&asked.body);
                (asked, parameters)
            })
            .filter(|(_, parameters)| parameters["grant_type"] == grant)
            .collect()
    }

    /// Returns the `Authorization` headers of the received messages.
    pub(crate) fn presented_tokens(&self) -> Vec<String> {
        let asked = self.server.received_requests().into_iter();
        asked
            .filter(|asked| asked.path == "/mcp" && asked.method == Method::POST)
            .map(|asked| asked.header("authorization").to_owned())
            .collect()
    }
}

pub(crate) fn browse(address: &str) {
    let address = address.to_owned();
    tokio::spawn(async move { reqwest::get(address).await.unwrap() });
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
}

pub(crate) fn form(text: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(text.as_bytes())
        .into_owned()
        .collect()
}

impl Behaviour {
    fn answer(&mut self, asked: &ReceivedRequest) -> Response {
        let base = format!("http://{}", asked.header("host"));
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        match path {
            "/mcp" => self.mcp(asked, &base),
            "/.well-known/oauth-protected-resource/mcp" => json(
                value!({
                    "resource": format!("{base}/mcp"),
                    "authorization_servers": [format!("{base}/as")],
                    "scopes_supported": ["tools"],
                })
                .to_string(),
            ),
            "/.well-known/oauth-authorization-server/as" => json(self.metadata(&base).to_string()),
            "/as/register" => {
                let wanted: Value = serde_json::from_str(&asked.body).unwrap();
                let client = value!({
                    "client_id": "registered",
                    "client_secret": "registered-secret",
                    "redirect_uris": wanted["redirect_uris"],
                });
                with_status(201, json(client.to_string()))
            }
            "/as/authorize" => self.authorize(&form(query), &base),
            "/as/token" => self.token(&form(&asked.body)),
            _ => status(404),
        }
    }

    fn metadata(&self, base: &str) -> Value {
        let authorization_endpoint = format!("{base}/as/authorize");
        let token_endpoint = self.token_endpoint.clone();
        value!({
            "issuer": format!("{base}/as"),
            "authorization_endpoint":
                self.authorization_endpoint.unwrap_or(&authorization_endpoint),
            "token_endpoint": token_endpoint.unwrap_or_else(|| format!("{base}/as/token")),
            "registration_endpoint": format!("{base}/as/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    fn mcp(&self, asked: &ReceivedRequest, base: &str) -> Response {
        let number = asked
            .header("authorization")
            .strip_prefix("Bearer access-")
            .and_then(|number| number.parse::<u32>().ok());
        if !number.is_some_and(|number| self.takes_tokens && number > self.revoked) {
            let mut response = status(401);
            let pointer = format!(
                r#"Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp""#
            );
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, pointer.parse().unwrap());
            return response;
        }
        if asked.method == Method::POST {
            json(result(asked.id()))
        } else {
            status(405)
        }
    }

    fn authorize(&self, wanted: &HashMap<String, String>, base: &str) -> Response {
        assert_eq!(wanted["code_challenge_method"], "S256");
        assert_eq!(wanted["resource"], format!("{base}/mcp"));
        let outcome = match self.denial {
            Some(denial) => format!("error={denial}"),
            None => "code=one-time-code".to_owned(),
        };
        let target = format!(
            "{}?{outcome}&state={}&iss={base}/as",
            wanted["redirect_uri"], wanted["state"]
        );
        let mut response = status(302);
        let target = target.parse().unwrap();
        response.headers_mut().insert(header::LOCATION, target);
        response
    }

    fn token(&mut self, wanted: &HashMap<String, String>) -> Response {
        if let Some(target) = &self.redirect {
            let mut response = status(307);
            let target = target.parse().unwrap();
            response.headers_mut().insert(header::LOCATION, target);
            return response;
        }
        let is_good = match wanted["grant_type"].as_str() {
            "authorization_code" => {
                wanted["code"] == "one-time-code" && wanted.contains_key("code_verifier")
            }
            "refresh_token" => {
                // Each refresh token is valid only once.
                let newest = format!("refresh-{}", self.n_issued);
                self.refreshes && wanted["refresh_token"] == newest
            }
            "client_credentials" => wanted["client_secret"] == "account-secret",
            _ => false,
        };
        if !is_good {
            return with_status(400, json(r#"{"error":"invalid_grant"}"#));
        }
        self.n_issued += 1;
        let mut token = value!({
            "access_token": format!("access-{}", self.n_issued),
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "id_token": "hunter2",
        });
        if wanted["grant_type"] != "client_credentials" {
            token["refresh_token"] = format!("refresh-{}", self.n_issued).into();
        }
        json(token.to_string())
    }
}

fn with_status(code: u16, mut response: Response) -> Response {
    *response.status_mut() = code.try_into().unwrap();
    response
}
