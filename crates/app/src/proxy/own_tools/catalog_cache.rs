//! The cache of catalogs, shared by all sessions with equal lists.

use std::sync::Arc;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::{member, meta};
use riglm_domain::mcp::meta::SERVER_INFO;
use riglm_domain::mcp::scan::unescape;
use sha2::{Digest, Sha256};

use crate::proxy::recent_cache::RecentCache;
use riglm_discovery::search::{Catalog, ServerText};

/// The maximum number of cached catalogs.
const MAX_OFFERS: usize = 32;
/// The maximum size of all their definitions in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The cache of recent catalogs. The key covers their complete content, so that no session gets a
/// list of another session unless both have equal lists.
#[derive(Debug)]
pub(in crate::proxy) struct CatalogCache(RecentCache<CachedCatalog>);

#[derive(Debug)]
struct CachedCatalog {
    key: [u8; 32],
    catalog: Arc<Catalog>,
}

impl Default for CatalogCache {
    fn default() -> Self {
        Self(RecentCache::new(MAX_OFFERS, MAX_BYTES))
    }
}

impl CatalogCache {
    /// Returns the catalog with this content and creates it with `make` if it is not cached.
    /// `lists` identifies the lists and their hidden tools.
    pub(in crate::proxy) fn get(
        &self,
        lists: &[&[u8]],
        servers: Vec<(UpstreamName, ServerText)>,
        make: impl FnOnce(Vec<(UpstreamName, ServerText)>) -> Catalog,
    ) -> Arc<Catalog> {
        let key = key_of(lists, &servers);
        if let Some(known) = self.0.find(|known| known.key == key) {
            return Arc::clone(&known.catalog);
        }
        let catalog = Arc::new(make(servers));
        let tools = catalog.tools().iter();
        let n_bytes = tools.map(|tool| tool.definition.len()).sum();
        let known = CachedCatalog {
            key,
            catalog: Arc::clone(&catalog),
        };
        self.0.insert(&Arc::new(known), n_bytes);
        catalog
    }
}

fn key_of(lists: &[&[u8]], servers: &[(UpstreamName, ServerText)]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        // The lengths separate the parts.
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    for (upstream, server) in servers {
        for text in [upstream.as_str(), &server.title, &server.instructions] {
            add(text.as_bytes());
        }
    }
    for list in lists {
        add(list);
    }
    digest.finalize().into()
}

/// Returns the name and instructions of a server from its handshake or discovery result.
pub(in crate::proxy) fn server_text(upstream: &UpstreamName, hello: Option<&str>) -> ServerText {
    let hello = hello.unwrap_or("{}");
    let info = member(hello, "serverInfo").or_else(|| meta(hello, SERVER_INFO));
    let text = |object: &str, key: &str| {
        let text = member(object, key).and_then(unescape);
        text.unwrap_or_default().into_owned()
    };
    let title = info.map(|info| text(info, "title")).unwrap_or_default();
    ServerText {
        name: upstream.as_str().to_owned(),
        title: if title.is_empty() {
            info.map(|info| text(info, "name")).unwrap_or_default()
        } else {
            title
        },
        instructions: text(hello, "instructions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> UpstreamName {
        UpstreamName::parse("u").unwrap()
    }

    #[test]
    fn server_titles_default_to_the_name() {
        let text = |hello| server_text(&upstream(), Some(hello));
        let titled = text(r#"{"serverInfo":{"name":"n","title":"T"},"instructions":"Do."}"#);
        assert_eq!((&*titled.name, &*titled.title), ("u", "T"));
        assert_eq!(titled.instructions, "Do.");
        assert_eq!(text(r#"{"serverInfo":{"name":"n"}}"#).title, "n");
        let discovered = format!(r#"{{"_meta":{{"{SERVER_INFO}":{{"name":"m"}}}}}}"#);
        assert_eq!(server_text(&upstream(), Some(&discovered)).title, "m");
        assert_eq!(server_text(&upstream(), None).title, "");
    }

    #[test]
    fn equal_lists_share_a_catalog() {
        let catalogs = CatalogCache::default();
        let servers = |title: &str| {
            let hello = format!(r#"{{"serverInfo":{{"title":"{title}"}}}}"#);
            vec![(upstream(), server_text(&upstream(), Some(&hello)))]
        };
        let get = |list: &[u8], title| {
            catalogs.get(&[list], servers(title), |servers| {
                Catalog::new(Vec::new(), servers)
            })
        };
        let one = get(b"a", "t");
        assert!(Arc::ptr_eq(&one, &get(b"a", "t")));
        assert!(!Arc::ptr_eq(&one, &get(b"b", "t")));
        assert!(!Arc::ptr_eq(&one, &get(b"a", "u")));
    }
}
