//! A server behind a transport where each request has an exchange of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use riglm_app::bridge::{BridgeOptions, ModernClientLink};
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{
    Exchange, Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::{mpsc, oneshot};

use crate::scene::{ALL, WELCOME, request};

/// A server whose every call asks for the roots first, and answers with what it was told.
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
        self.principals.lock().unwrap().push(principal.clone());
        Ok(Arc::new(AskingLink {
            events,
            asked: Arc::default(),
            n_asked: AtomicUsize::new(0),
        }))
    }
}

#[async_trait]
impl UpstreamLink for AskingLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        let envelope = message.single().unwrap().clone();
        if envelope.kind() == Kind::Success {
            let result = message.result(&envelope).unwrap().to_owned();
            let id = envelope.id().unwrap();
            let answered = self.asked.lock().unwrap().remove(id).unwrap();
            answered.send(result).unwrap();
        }
        let Some((method, id)) = envelope.as_request() else {
            return Ok(Sent::Delivered);
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
                asked.lock().unwrap().insert(question, answered);
                let ask = format!(r#"{{"jsonrpc":"2.0","id":{n_asked},"method":"roots/list"}}"#);
                let ask = Message::from_text(ask).unwrap();
                events.received(ask, Some(id.clone())).await;
                let told = answer.await.unwrap();
                member = format!(r#""result":{{"told":{told}}}"#);
            }
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#);
            events
                .received(Message::from_text(text).unwrap(), Some(id))
                .await;
        };
        Ok(Sent::UnderWay(Exchange {
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
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.0.send((text, related.unwrap())).await.unwrap();
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        panic!("{request} is unanswered: {error}");
    }

    async fn lost(&self, error: UpstreamError) {
        panic!("a link over many connections is never lost: {error}");
    }
}

async fn send(link: &ModernClientLink, id: usize, params: &str) {
    let text = request(ALL, &id.to_string(), "tools/call", params, "");
    let sent = link.send(Message::from_text(text).unwrap()).await.unwrap();
    // Nobody drives the exchange that the link returns.
    drop(sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_many_goes_on_with_its_retry() {
    const N_CALLS: usize = 100;
    let (reports, mut reported) = mpsc::channel(8);
    let server = Arc::new(Asking {
        name: UpstreamName::parse("u").unwrap(),
        principals: Mutex::default(),
    });
    let link = ModernClientLink::new(
        server.clone(),
        Principal::named("me"),
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
    assert_eq!(*server.principals.lock().unwrap(), [Principal::named("me")]);
    link.close().await;
}
