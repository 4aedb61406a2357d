//! The official SDKs in TypeScript and Python: list, call, progress, sampling, elicitation and
//! cancellation.

use riglm_tests::fixture::{Transport, clients_dir};
use serde_json::Value;
use tokio::process::Command;

use crate::{
    SESSION, Target, direct_target, installed_target, masks, node_22, output, proxied_target,
    script, transport_name,
};

#[derive(Clone, Copy)]
enum Language {
    TypeScript,
    Python,
}

async fn session(language: Language, transport: Transport, target: &Target) -> String {
    let mut command = match language {
        Language::TypeScript => {
            let mut command = Command::new(node_22());
            command.arg(script("sdk-client.mjs"));
            command
        }
        Language::Python => {
            let mut command = Command::new("python3");
            command
                .arg(script("sdk_client.py"))
                .env("PYTHONPATH", clients_dir().join("python"));
            command
        }
    };
    command.arg(transport_name(transport)).args(&target.words);
    masks().apply(&output(command, SESSION).await)
}

async fn assert_alike(language: Language, transport: Transport, target: Target) {
    let expected = session(language, transport, &direct_target(transport).await).await;
    let seen = session(language, transport, &target).await;
    let report: Value = serde_json::from_str(&seen).expect("the client prints JSON");
    let n_steps = report["progress"].as_array().map_or(0, Vec::len);
    assert!(n_steps >= 2, "{seen}");
    assert_eq!(report["cancelled"], "cancelled", "{seen}");
    for (what, contains) in [
        ("echo", "h\u{e9}llo"),
        ("sampling", "a sampled answer"),
        ("elicitation", "Ada"),
        ("after", "after"),
    ] {
        assert!(
            report[what].to_string().contains(contains),
            "{what}: {}",
            report[what]
        );
    }
    assert_eq!(seen, expected);
}

macro_rules! clients {
    ($($name:ident: $language:ident, $transport:ident, $target:ident, $needs:literal;)*) => {
        $(#[tokio::test]
        #[ignore = $needs]
        async fn $name() {
            let target = $target(Transport::$transport).await;
            assert_alike(Language::$language, Transport::$transport, target).await;
        })*
    };
}

clients! {
    the_typescript_sdk_over_stdio: TypeScript, Stdio, proxied_target, "needs npm";
    the_typescript_sdk_over_streamable_http: TypeScript, Streamable, proxied_target, "needs npm";
    the_typescript_sdk_over_legacy_http: TypeScript, Legacy, proxied_target, "needs npm";
    the_python_sdk_over_stdio: Python, Stdio, proxied_target, "needs npm and pip";
    the_python_sdk_over_streamable_http: Python, Streamable, proxied_target, "needs npm and pip";
    the_typescript_sdk_through_an_installed_bridge: TypeScript, Stdio, installed_target, "needs npm";
    the_typescript_sdk_at_an_installed_address: TypeScript, Streamable, installed_target, "needs npm";
    the_python_sdk_through_an_installed_bridge: Python, Stdio, installed_target, "needs npm and pip";
    the_python_sdk_at_an_installed_address: Python, Streamable, installed_target, "needs npm and pip";
    the_python_sdk_over_legacy_http: Python, Legacy, proxied_target, "needs npm and pip";
}
