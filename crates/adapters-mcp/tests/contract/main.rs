//! The upstream transports, the shared connections and the bridge between the eras fulfil the
//! contract of connectors, over real processes and real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scene;
mod servers;

use riglm_domain::mcp::protocol::Era::{Legacy, Modern};

use scene::{Peers, http, http_of_detected, process, sse, sse_of_detected};

const BOTH_LEGACY: Peers = Peers {
    client: Legacy,
    server: Legacy,
};
const BOTH_MODERN: Peers = Peers {
    client: Modern,
    server: Modern,
};
const MODERN_CLIENT: Peers = Peers {
    client: Modern,
    server: Legacy,
};
const LEGACY_CLIENT: Peers = Peers {
    client: Legacy,
    server: Modern,
};

riglm_ports::upstream_contract!(stdio, process(BOTH_LEGACY));
riglm_ports::upstream_contract!(stdio_modern, process(BOTH_MODERN));
riglm_ports::upstream_contract!(streamable_http, http_of_detected(BOTH_LEGACY));
riglm_ports::upstream_contract!(streamable_http_modern, http_of_detected(BOTH_MODERN));
riglm_ports::upstream_contract!(streamable_http_while_detecting, http(BOTH_LEGACY));
riglm_ports::upstream_contract!(http_with_sse, sse());
riglm_ports::upstream_contract!(http_with_sse_of_detected, sse_of_detected());
riglm_ports::upstream_contract!(shared_stdio, async { process(BOTH_LEGACY).await.shared() });
riglm_ports::upstream_contract!(shared_stdio_modern, async {
    process(BOTH_MODERN).await.shared()
});
riglm_ports::upstream_contract!(shared_http, async { http(BOTH_LEGACY).await.shared() });
riglm_ports::upstream_contract!(shared_sse, async { sse().await.shared() });
riglm_ports::upstream_contract!(legacy_through_bridge, async {
    process(BOTH_LEGACY).await.bridged()
});
riglm_ports::upstream_contract!(modern_through_bridge, async {
    http(BOTH_MODERN).await.bridged()
});
riglm_ports::upstream_contract!(bridge_for_modern_clients, async {
    process(MODERN_CLIENT).await.bridged()
});
riglm_ports::upstream_contract!(bridge_for_modern_clients_over_http, async {
    http(MODERN_CLIENT).await.bridged()
});
riglm_ports::upstream_contract!(bridge_for_legacy_clients, async {
    process(LEGACY_CLIENT).await.bridged()
});
riglm_ports::upstream_contract!(bridge_for_legacy_clients_over_http, async {
    http(LEGACY_CLIENT).await.bridged()
});
riglm_ports::upstream_contract!(bridge_of_shared, async {
    process(MODERN_CLIENT).await.shared().bridged()
});
riglm_ports::upstream_contract!(pooled_stdio, async { process(BOTH_LEGACY).await.pooled() });
riglm_ports::upstream_contract!(pooled_stdio_modern, async {
    process(BOTH_MODERN).await.pooled()
});
riglm_ports::upstream_contract!(bridge_of_pooled, async {
    process(MODERN_CLIENT).await.pooled().bridged()
});
riglm_ports::upstream_contract!(bridge_of_pooled_for_legacy_clients, async {
    process(LEGACY_CLIENT).await.pooled().bridged()
});
