//! A TCP relay that can go down and up again: an outage of a server that keeps its state.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

/// A relay in front of one server.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: String,
    accepting: Option<JoinHandle<()>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    /// Starts a relay on a free port in front of the server at `url`.
    pub fn before(url: &Url) -> Self {
        let mut relay = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            target: url.authority().to_owned(),
            accepting: None,
            connections: Arc::default(),
        };
        relay.up();
        relay
    }

    /// Returns `url` with the port of the relay.
    pub fn url(&self, url: &Url) -> Url {
        let mut url = url.clone();
        url.set_port(Some(self.address.port()))
            .expect("a URL with a host takes a port");
        url
    }

    /// Closes all connections and refuses new ones.
    pub async fn down(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // Aborting is asynchronous: the listener is closed only when its task has ended.
            let _ = accepting.await;
        }
        let connections = std::mem::take(&mut *self.connections.lock());
        for connection in connections {
            connection.abort();
            let _ = connection.await;
        }
    }

    /// Accepts connections again, on the same port as before.
    pub fn up(&mut self) {
        let listener = listen(self.address);
        self.address = listener.local_addr().expect("a listener has an address");
        let target = self.target.clone();
        let connections = Arc::clone(&self.connections);
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((inbound, _)) = listener.accept().await {
                let connection = tokio::spawn(copy_both_ways(inbound, target.clone()));
                connections.lock().push(connection);
            }
        }));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    // Without it, connections in `TIME_WAIT` would block the port.
    socket
        .set_reuseaddr(true)
        .expect("a new socket takes options");
    socket
        .bind(address)
        .and_then(|()| socket.listen(64))
        .unwrap_or_else(|error| panic!("{address}: {error}"))
}

async fn copy_both_ways(mut inbound: TcpStream, target: String) {
    let Ok(mut outbound) = TcpStream::connect(&target).await else {
        return;
    };
    // Errors are expected: the relay exists to break connections.
    let _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await;
}
