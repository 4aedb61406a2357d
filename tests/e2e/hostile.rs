//! Hostile servers and clients, and their effect on other clients.

mod crowd;
mod texts;

use std::path::Path;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport};
use riglm_tests::messages::{initialize, request};
use riglm_tests::riglm::{Options, Riglm};

async fn connected(riglm: &Riglm) -> RawClient {
    let client = riglm.client(Answers::full());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.request(&request("\"list\"", "tools/list")).await;
    client
}

async fn start(data_dir: &Path, listing: &str, control: u16) -> Riglm {
    let file = data_dir.join("listing.json");
    std::fs::write(&file, listing).unwrap();
    let program = env!("CARGO_BIN_EXE_odd-server").into();
    let arguments = ["--listing", &file.display().to_string(), "--name", "odd"];
    let upstream = Server::OddWith(program, arguments.map(str::to_owned).to_vec());
    let upstream = upstream.start(Transport::Stdio).await;
    let options = Options {
        arguments: [
            "--strategy",
            "denylist",
            "--control",
            &format!("127.0.0.1:{control}"),
        ]
        .map(str::to_owned)
        .to_vec(),
        configuration: Some("[filtering]\ndeny = [\"hidden*\"]\n".to_owned()),
        ..Options::default()
    };
    Riglm::serve(&upstream, data_dir, &options).await
}
