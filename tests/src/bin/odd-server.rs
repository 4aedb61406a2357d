//! The unusual server as a program: `odd-server stdio` or `odd-server http`.
//!
//! Over HTTP it prints `listening on http://127.0.0.1:PORT` to standard error and serves `/mcp`,
//! `/sse` with `/messages`, and `/stats`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("stdio") => riglm_tests::odd::serve_stdio().await,
        Some("http") => {
            if let Err(error) = riglm_tests::odd::serve_http().await {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
        _ => {
            eprintln!("usage: odd-server stdio|http");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
