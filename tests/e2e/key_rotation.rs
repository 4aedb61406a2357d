//! Rotation of keys while the proxy runs: client keys, operator keys and the token of the control
//! port.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy};
use riglm_tests::messages::{initialize, request};
use riglm_tests::plain_http;
use tempfile::TempDir;

use crate::odd_over_stdio;

/// A generous deadline for a change to take effect.
const SOON: Duration = Duration::from_secs(20);

/// A proxy with a control port.
struct RunningProxy(Proxy);

async fn line(data: &Path, configuration: &str) -> RunningProxy {
    let proxy = proxy()
        .before(odd_over_stdio())
        .configuration(configuration);
    RunningProxy(proxy.with_control().start_in(data).await)
}

impl RunningProxy {
    /// Returns the status of a request to the control port with this key.
    async fn operates(&self, key: &str) -> u16 {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", &*bearer)];
        let url = self.0.control("/upstreams");
        let answer = plain_http::exchange(Method::GET, &url, &headers, "");
        answer.await.unwrap().status
    }

    async fn until_operates(&self, key: &str) {
        let started = Instant::now();
        while self.operates(key).await != 200 {
            assert!(started.elapsed() < SOON, "the new key is refused");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn client(&self, key: &str) -> RawClient {
        let client = self.0.riglm.client(Answers::default());
        client.set_header("authorization", &format!("Bearer {key}"));
        client
    }

    /// Waits until a client with this key is accepted, and returns the client.
    async fn wait_until_accepted(&self, key: &str) -> RawClient {
        let started = Instant::now();
        loop {
            let client = self.client(key);
            let hello = client.send(&initialize("0", "2025-11-25")).await;
            if hello.status == 200 {
                return client;
            }
            assert!(started.elapsed() < SOON, "the new key is refused");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Replaces a file atomically.
fn replace(data: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let new = data.join("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, data.join(name)).unwrap();
}

#[tokio::test]
async fn replacing_the_token_file_revokes_the_old_token() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), "").await;
    let file = data.path().join("control.token");
    let earlier = std::fs::read_to_string(file).unwrap().trim().to_owned();
    assert_eq!(line.operates(&earlier).await, 200);
    let new = "another token of the control server";
    replace(data.path(), "control.token", &format!("{new}\n"));
    line.until_operates(new).await;
    assert_eq!(line.operates(&earlier).await, 401);
}

#[tokio::test]
async fn replaced_client_keys_apply_to_open_sessions() {
    let data = TempDir::new().unwrap();
    let of_ann = |key: &str| format!("[auth.keys]\nann = \"{key}\"\n");
    let (earlier, new) = ("the earlier key of ann", "the new key of ann 1");
    let line = line(data.path(), &of_ann(earlier)).await;
    let open = line.client(earlier);
    open.initialize(&initialize("0", "2025-11-25")).await;
    replace(data.path(), "test.toml", &of_ann(new));
    line.wait_until_accepted(new).await;
    let refused = open.send(&request("1", "tools/list")).await;
    assert_eq!(refused.status, 401, "{}", refused.body);
    let late = line.client(earlier);
    let hello = late.send(&initialize("0", "2025-11-25")).await;
    assert_eq!(hello.status, 401);
    // The new key has the same principal, so the session continues.
    open.set_header("authorization", &format!("Bearer {new}"));
    let list = open.request(&request("2", "tools/list")).await;
    assert!(list.text.contains("\"tools\":["), "{}", list.text);
}

#[tokio::test]
async fn a_key_of_an_operator_is_replaced() {
    let data = TempDir::new().unwrap();
    let of_page =
        |key: &str| format!("[control.keys.page]\nkey = \"{key}\"\nscopes = [\"read\"]\n");
    let (earlier, new) = ("the earlier key of page", "the new key of page 1");
    let line = line(data.path(), &of_page(earlier)).await;
    assert_eq!(line.operates(earlier).await, 200);
    replace(data.path(), "test.toml", &of_page(new));
    line.until_operates(new).await;
    assert_eq!(line.operates(earlier).await, 401);
    let changed = "configuration changed: keys of the control port";
    let said = |text: &str| text.contains(changed).then_some(());
    line.0.riglm.process.line(SOON, "the change", said).await;
}

#[tokio::test]
async fn the_only_keys_of_clients_cannot_be_taken_away() {
    let data = TempDir::new().unwrap();
    let key = "the only key of ann";
    let line = line(data.path(), &format!("[auth.keys]\nann = \"{key}\"\n")).await;
    replace(data.path(), "test.toml", "[limits]\nsessions = 7\n");
    let refused = |text: &str| {
        let is_refused = text.contains("configuration reload failed");
        (is_refused && text.contains("riglm started with client keys")).then_some(())
    };
    line.0
        .riglm
        .process
        .line(SOON, "the refusal", refused)
        .await;
    let stranger = line.0.riglm.client(Answers::default());
    let hello = stranger.send(&initialize("0", "2025-11-25")).await;
    assert_eq!(hello.status, 401);
    let hello = line.client(key).send(&initialize("0", "2025-11-25")).await;
    assert_eq!(hello.status, 200);
}
