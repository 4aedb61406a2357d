//! Every pairing of the client's transport with the server's.

use riglm_tests::fixture::{Server, Transport};

use crate::comparison::{assert_transparent, run_direct};
use crate::{everything_script, odd, odd_script};

macro_rules! pairings {
    ($($name:ident: $downstream:ident, $upstream:ident;)*) => {
        mod odd_server {
            use super::*;

            $(#[tokio::test]
            async fn $name() {
                for script in [odd_script::everything_odd(), odd_script::batches()] {
                    assert_transparent(
                        &odd(), Transport::$downstream, Transport::$upstream, &script,
                    )
                    .await;
                }
            })*
        }

        mod server_everything {
            use super::*;

            $(#[tokio::test]
            #[ignore = "needs npm"]
            async fn $name() {
                let script = everything_script::all_features(Transport::$upstream);
                assert_transparent(
                    &Server::Everything, Transport::$downstream, Transport::$upstream, &script,
                )
                .await;
            })*
        }
    };
}

pairings! {
    stdio_client_with_stdio_server: Stdio, Stdio;
    stdio_client_with_streamable_server: Stdio, Streamable;
    stdio_client_with_legacy_server: Stdio, Legacy;
    streamable_client_with_stdio_server: Streamable, Stdio;
    streamable_client_with_streamable_server: Streamable, Streamable;
    streamable_client_with_legacy_server: Streamable, Legacy;
    legacy_client_with_stdio_server: Legacy, Stdio;
    legacy_client_with_streamable_server: Legacy, Streamable;
    legacy_client_with_legacy_server: Legacy, Legacy;
}

#[tokio::test]
async fn two_direct_transcripts_of_the_odd_server_are_equal() {
    for script in [odd_script::everything_odd(), odd_script::batches()] {
        let mut runs = Vec::new();
        for transport in Transport::ALL {
            runs.push(run_direct(&odd(), transport, &script).await);
        }
        // Only the framing depends on the transport, so all runs are equal.
        assert_eq!(runs[0].difference(&runs[1]), None);
        assert_eq!(runs[1].difference(&runs[2]), None);
        assert!(
            runs[0].n_messages() >= 3,
            "{} messages",
            runs[0].n_messages()
        );
    }
}

#[tokio::test]
#[ignore = "needs npm"]
async fn two_direct_transcripts_of_server_everything_are_equal() {
    for transport in Transport::ALL {
        let script = everything_script::all_features(transport);
        let first = run_direct(&Server::Everything, transport, &script).await;
        let second = run_direct(&Server::Everything, transport, &script).await;
        assert_eq!(first.difference(&second), None, "{transport:?}");
        assert!(first.n_messages() > 60, "{} messages", first.n_messages());
    }
}
