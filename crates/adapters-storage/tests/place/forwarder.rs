//! A TCP forwarder to a server that can be cut, and a server that refuses all connections.

use std::net::SocketAddr;
use std::sync::Arc;

use riglm_adapters_storage::PostgresConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::schema::{Schema, url};

/// Forwards connections to the PostgreSQL server of the tests, unless it is cut.
#[derive(Debug)]
pub(crate) struct Forwarder {
    address: SocketAddr,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Forwarder {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = Arc::new(watch::Sender::new(false));
        let cut = is_cut.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Dropped while it is cut, so that the client sees the end of its connection.
                if !*cut.borrow() {
                    tokio::spawn(forward(client, cut.clone()));
                }
            }
        });
        Self { address, is_cut }
    }

    /// Closes all connections and every new one.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn restore(&self) {
        self.is_cut.send_replace(false);
    }

    /// Returns the configuration of a store in the schema through this forwarder.
    pub(crate) fn config(&self, schema: &Schema) -> PostgresConfig {
        let server = server();
        let here = self.address.to_string();
        PostgresConfig {
            url: Some(url().replace(&server, &here).into()),
            ..schema.config()
        }
    }
}

/// Returns the host and the port of the server of the tests.
fn server() -> String {
    let url = url();
    let (_, rest) = url.split_once('@').unwrap();
    rest.split('/').next().unwrap().to_owned()
}

async fn forward(mut client: TcpStream, mut cut: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server()).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.wait_for(|is_cut| *is_cut) => {}
    }
}

/// Starts a server that responds to every greeting with this error. Returns its address.
pub(crate) async fn refusing_server(code: &'static str, message: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut greeting = [0; 1_024];
            drop(client.read(&mut greeting).await);
            // The `ErrorResponse` of the protocol: fields of a letter and a text, each ended by a
            // zero.
            let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
            let len = u32::try_from(fields.len() + 4).unwrap();
            let answer = [b"E", &len.to_be_bytes()[..], fields.as_bytes()].concat();
            drop(client.write_all(&answer).await);
        }
    });
    address
}
