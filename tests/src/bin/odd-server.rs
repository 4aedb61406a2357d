//! The program of the unusual server.
//!
//! Usage: `odd-server stdio|http [OPTIONS]`, with the options of [`Settings`].
//!
//! Over HTTP it prints `listening on http://127.0.0.1:PORT` to standard error and serves `/mcp` and
//! `/stats`. Except in the modern era, it also serves `/sse` and `/messages`.

use std::process::ExitCode;

use riglm_tests::odd::{self, Settings};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let transport = arguments.next().unwrap_or_default();
    let settings = match Settings::parse(&arguments.collect::<Vec<_>>()) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    settings.pass_gate().await;
    match transport.as_str() {
        "stdio" => odd::serve_stdio(settings).await,
        "http" => {
            if let Err(error) = odd::serve_http(settings).await {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
        _ => {
            eprintln!(
                "usage: odd-server stdio|http [--era legacy|modern|dual] [--tools N] [--delay MS] [--name NAME] [--changes FILE] [--gate FILE]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
