//! A server behind a transport with a separate exchange for each request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, ModernClientLink};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    Exchange, SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::{mpsc, oneshot};

use crate::scene::{ALL, WELCOME, request};

/// A server that requests the roots in every call, and answers with them.
#[derive(Debug)]
struct Asking {
    name: UpstreamName,
    principals: Mutex<Vec<Principal>>,
}

#[derive(Debug)]
struct AskingLink {
    events: Arc<dyn UpstreamEvents>,
    asked: Arc<Mutex<HashMap<RequestId, oneshot::Sender<String>>>>,
    n_asked: AtomicUsize,
}

#[async_trait]
impl UpstreamConnector for Asking {
    fn name(&self) -> &UpstreamName {
        &self.name
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        self.principals.lock().push(principal.clone());
        Ok(Arc::new(AskingLink {
            events,
            asked: Arc::default(),
            n_asked: AtomicUsize::new(0),
        }))
    }
}

#[async_trait]
impl UpstreamLink for AskingLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let envelope = message.single().unwrap().clone();
        if envelope.kind() == MessageKind::Success {
            let result = message.result(&envelope).unwrap().to_owned();
            let id = envelope.id().unwrap();
            let answered = self.asked.lock().remove(id).unwrap();
            answered.send(result).unwrap();
        }
        let Some((method, id)) = envelope.as_request() else {
            return Ok(SendOutcome::Delivered);
        };
        let (events, id) = (Arc::clone(&self.events), id.clone());
        let n_asked = self.n_asked.fetch_add(1, Ordering::SeqCst);
        let asked = Arc::clone(&self.asked);
        let is_call = method == "tools/call";
        let run = async move {
            let mut member = WELCOME.to_owned();
            if is_call {
                let (answered, answer) = oneshot::channel();
                let question = RequestId::Number(n_asked.to_string().into());
                asked.lock().insert(question, answered);
                let ask = format!(r#"{{"jsonrpc":"2.0","id":{n_asked},"method":"roots/list"}}"#);
                let ask = Message::from_text(ask).unwrap();
                events.on_message(ask, Some(id.clone())).await;
                let told = answer.await.unwrap();
                member = format!(r#""result":{{"told":{told}}}"#);
            }
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#);
            events
                .on_message(Message::from_text(text).unwrap(), Some(id))
                .await;
        };
        Ok(SendOutcome::UnderWay(Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(async {}),
        }))
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn close(&self) {}
}

#[derive(Debug)]
struct Reports(mpsc::Sender<(String, RequestId)>);

#[async_trait]
impl UpstreamEvents for Reports {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.0.send((text, related.unwrap())).await.unwrap();
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        panic!("{request} is unanswered: {error}");
    }

    async fn on_lost(&self, error: UpstreamError) {
        panic!("a link over many connections is never lost: {error}");
    }
}

async fn send(link: &ModernClientLink, id: usize, params: &str) {
    let text = request(ALL, &id.to_string(), "tools/call", params, "");
    let sent = link.send(Message::from_text(text).unwrap()).await.unwrap();
    // The exchange is dropped, so nothing polls it.
    drop(sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_concurrent_calls_continue_with_their_retry() {
    const N_CALLS: usize = 100;
    let (reports, mut reported) = mpsc::channel(8);
    let server = Arc::new(Asking {
        name: UpstreamName::parse("u").unwrap(),
        principals: Mutex::default(),
    });
    let link = ModernClientLink::new(
        server.clone(),
        Principal::from_name("me"),
        Arc::new(Reports(reports)),
        BridgeOptions::new([1; 32]),
    );
    for id in 0..N_CALLS {
        send(&link, id, &format!(r#""name":"t{id}""#)).await;
    }
    let mut n_done = 0;
    while n_done < N_CALLS {
        let (text, related) = reported.recv().await.unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["id"].to_string(), related.to_json());
        let id: usize = related.to_json().parse().unwrap();
        let result = &report["result"];
        if result["resultType"] == "complete" {
            assert_eq!(
                Some(&result["told"]["of"]),
                id.checked_sub(N_CALLS).map(Into::into).as_ref(),
                "{text}"
            );
            n_done += 1;
            continue;
        }
        let state = &result["requestState"];
        let params = format!(
            r#""name":"t{id}","requestState":{state},"inputResponses":{{"roots-1":{{"of":{id}}}}}"#
        );
        send(&link, id + N_CALLS, &params).await;
    }
    assert_eq!(*server.principals.lock(), [Principal::from_name("me")]);
    link.close().await;
}
