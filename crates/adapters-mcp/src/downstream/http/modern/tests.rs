mod contract;

use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientSession, Proxy, ProxyParts, Upstream};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::upstream::{
    Exchange, SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::Semaphore;

use super::link::ModernLink;
use super::*;

/// An upstream with an exchange for each request. No request counts as sent before the gate is
/// open.
#[derive(Debug)]
struct GatedUpstream {
    name: UpstreamName,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
struct Traffic {
    sent: Mutex<Vec<String>>,
    gate: Semaphore,
}

impl Traffic {
    fn sent_texts(&self) -> Vec<String> {
        let sent = self.sent.lock();
        sent.clone()
    }
}

#[async_trait]
impl UpstreamConnector for GatedUpstream {
    fn name(&self) -> &UpstreamName {
        &self.name
    }

    async fn connect(
        &self,
        _principal: &Principal,
        _events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        Ok(Arc::new(GatedLink(Arc::clone(&self.traffic))))
    }
}

#[derive(Debug)]
struct GatedLink(Arc<Traffic>);

#[async_trait]
impl UpstreamLink for GatedLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        let mut sent = self.0.sent.lock();
        sent.push(text);
        if message.request_ids().next().is_none() {
            return Ok(SendOutcome::Delivered);
        }
        let traffic = Arc::clone(&self.0);
        Ok(SendOutcome::UnderWay(Exchange {
            run: Box::pin(std::future::pending()),
            on_its_way: Box::pin(async move {
                let _open = traffic.gate.acquire().await;
            }),
        }))
    }

    async fn close(&self) {}
}

struct Scene {
    traffic: Arc<Traffic>,
    session: Arc<ClientSession>,
    link: Arc<ModernLink>,
}

impl Scene {
    fn new() -> Self {
        Self::within(Limits::default())
    }

    fn within(limits: Limits) -> Self {
        let traffic = Arc::new(Traffic {
            sent: Mutex::default(),
            gate: Semaphore::new(0),
        });
        let proxy = Proxy::new(ProxyParts {
            limits,
            ..testing::proxy_parts(vec![Upstream::new(Arc::new(GatedUpstream {
                name: UpstreamName::parse("u").unwrap(),
                traffic: Arc::clone(&traffic),
            }))])
        });
        let key = ClientKey::new(&ClientIdentity::from(&Principal::local()), None, None);
        let (session, link) = Clients::default().find_or_accept(&proxy, &key).unwrap();
        Self {
            traffic,
            session,
            link,
        }
    }

    /// Makes a request whose response is a stream.
    fn listen(&self, id: u32) -> Body {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen"}}"#);
        let message = Message::from_text(text).unwrap();
        let (session, link) = (Arc::clone(&self.session), Arc::clone(&self.link));
        let (call, message) = PendingCall::open(session, link, message).unwrap();
        call.stream(message, Box::pin(std::future::pending()))
            .into_body()
    }

    async fn deliver(&self, id: u32, text: &str) {
        let route = Route::Related(RequestId::Number(id.to_string().into()));
        let message = Message::from_text(text.into()).unwrap();
        self.link.deliver(message, route).await;
    }

    async fn until_sent(&self, n: usize) {
        while self.traffic.sent_texts().len() < n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;

async fn chunk(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_does_not_overtake_its_request() {
    let scene = Scene::new();
    let body = scene.listen(1);
    scene.until_sent(1).await;
    drop(body);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.traffic.sent_texts().len(), 1);
    scene.traffic.gate.add_permits(1);
    scene.until_sent(2).await;
    assert!(scene.traffic.sent_texts()[1].contains("notifications/cancelled"));
}

#[tokio::test(start_paused = true)]
async fn stalled_clients_are_disconnected_and_their_requests_cancelled() {
    let scene = Scene::new();
    scene.traffic.gate.add_permits(1);
    let mut body = scene.listen(1);
    scene.until_sent(1).await;
    let started = tokio::time::Instant::now();
    for _ in 0..65 {
        scene.deliver(1, NOTE).await;
    }
    assert_eq!(started.elapsed().as_secs(), 30);
    scene.until_sent(2).await;
    assert!(scene.traffic.sent_texts()[1].contains(r#""requestId":1"#));
    scene.deliver(1, NOTE).await;
    assert_eq!(started.elapsed().as_secs(), 30, "nobody waits for it again");
    let mut n_chunks = 0;
    while chunk(&mut body).await.is_some() {
        n_chunks += 1;
    }
    assert_eq!(n_chunks, 65, "a comment and what found a place");
    drop(body);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.traffic.sent_texts().len(), 2, "it is cancelled once");
}

#[tokio::test(start_paused = true)]
async fn silent_streams_send_keep_alive_comments() {
    let scene = Scene::new();
    let mut body = scene.listen(1);
    assert_eq!(chunk(&mut body).await.as_deref(), Some(":\n\n"));
    let started = tokio::time::Instant::now();
    assert_eq!(chunk(&mut body).await.as_deref(), Some(":\n\n"));
    assert_eq!(started.elapsed().as_secs(), 15);
    scene.deliver(1, NOTE).await;
    let expected = format!("data: {NOTE}\n\n");
    assert_eq!(chunk(&mut body).await, Some(expected));
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_their_request_and_with_the_session() {
    let scene = Scene::new();
    scene.traffic.gate.add_permits(3);
    let mut bodies = [scene.listen(1), scene.listen(2), scene.listen(3)];
    scene.until_sent(3).await;
    scene.link.finish(&RequestId::Number("1".into())).await;
    scene.deliver(2, &format!("[{NOTE}]")).await;
    for body in &mut bodies[..2] {
        assert_eq!(chunk(body).await.as_deref(), Some(":\n\n"));
        assert_eq!(chunk(body).await, None);
    }
    scene.deliver(3, NOTE).await;
    scene.link.close().await;
    let rest: Vec<_> = [
        chunk(&mut bodies[2]).await,
        chunk(&mut bodies[2]).await,
        chunk(&mut bodies[2]).await,
    ]
    .into();
    let expected = [
        Some(":\n\n".into()),
        Some(format!("data: {NOTE}\n\n")),
        None,
    ];
    assert_eq!(rest, expected);
    drop(bodies);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.traffic.sent_texts().len(), 3, "nothing is cancelled");
    let message = Message::from_text(r#"{"jsonrpc":"2.0","id":4,"method":"m"}"#.into()).unwrap();
    assert!(PendingCall::open(scene.session, scene.link, message).is_none());
}

#[tokio::test]
async fn answers_beyond_the_waiting_bytes_limit_become_errors() {
    let scene = Scene::within(Limits {
        waiting_bytes: 1 << 20,
        ..Limits::default()
    });
    scene.traffic.gate.add_permits(3);
    let mut bodies = [scene.listen(1), scene.listen(2), scene.listen(3)];
    scene.until_sent(3).await;
    let text = "x".repeat(700 << 10);
    let large = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#);
    let mut answers = Vec::new();
    scene.deliver(1, &large(1)).await;
    scene.deliver(2, &large(2)).await;
    for body in &mut bodies[..2] {
        assert_eq!(chunk(body).await.as_deref(), Some(":\n\n"));
        answers.extend(chunk(body).await);
    }
    assert!(answers[0].contains(&text));
    assert!(
        answers[1].contains("limits.waiting_bytes") && answers[1].contains(r#""id":2"#),
        "{}",
        answers[1]
    );
    // Reading a message frees memory.
    scene.deliver(3, &large(3)).await;
    assert_eq!(chunk(&mut bodies[2]).await.as_deref(), Some(":\n\n"));
    assert!(
        chunk(&mut bodies[2])
            .await
            .is_some_and(|answer| answer.contains(&text))
    );
}
