//! What can be searched, made once for all sessions to which the same is listed.

use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::edit::{member, meta};
use riglm_domain::id::UpstreamName;
use riglm_domain::meta::SERVER_INFO;
use riglm_domain::scan::unescaped;
use sha2::{Digest, Sha256};

use crate::search::{Offer, ServerText};

/// How many offers are kept.
const MAX_OFFERS: usize = 32;
/// How many bytes their definitions may have in all.
const MAX_BYTES: usize = 64 << 20;

/// The offers that were made lately. They are found by their whole content, so that nobody gets what
/// was listed to somebody else, unless the same was listed to both.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Offers {
    known: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    key: [u8; 32],
    offer: Arc<Offer>,
    n_bytes: usize,
}

impl Offers {
    /// Returns the offer of this content, which `make` makes if it is a new one. `lists` identifies
    /// the lists and what of them is hidden.
    pub(in crate::proxy) fn get(
        &self,
        lists: &[&[u8]],
        servers: Vec<(UpstreamName, ServerText)>,
        make: impl FnOnce(Vec<(UpstreamName, ServerText)>) -> Offer,
    ) -> Arc<Offer> {
        let key = key_of(lists, &servers);
        if let Some(known) = self.find(&key) {
            return known;
        }
        let offer = Arc::new(make(servers));
        let tools = offer.tools().iter();
        let known = Known {
            key,
            n_bytes: tools.map(|tool| tool.definition.len()).sum(),
            offer: Arc::clone(&offer),
        };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(0, known);
        all.truncate(MAX_OFFERS);
        let mut n_bytes = 0;
        all.retain(|known| {
            n_bytes += known.n_bytes;
            n_bytes <= MAX_BYTES
        });
        offer
    }

    fn find(&self, key: &[u8; 32]) -> Option<Arc<Offer>> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.key == *key)?;
        all[..=at].rotate_right(1);
        all.first().map(|known| Arc::clone(&known.offer))
    }
}

fn key_of(lists: &[&[u8]], servers: &[(UpstreamName, ServerText)]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
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

/// Returns what a server says of itself in its answer to a handshake, or to `server/discover`.
pub(in crate::proxy) fn server_text(upstream: &UpstreamName, hello: Option<&str>) -> ServerText {
    let hello = hello.unwrap_or("{}");
    let info = member(hello, "serverInfo").or_else(|| meta(hello, SERVER_INFO));
    let text = |object: &str, key: &str| {
        let text = member(object, key).and_then(unescaped);
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
    fn a_server_is_known_by_its_title_or_else_by_its_name() {
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
    fn equal_lists_make_one_offer_and_others_another() {
        let offers = Offers::default();
        let servers = |title: &str| {
            let hello = format!(r#"{{"serverInfo":{{"title":"{title}"}}}}"#);
            vec![(upstream(), server_text(&upstream(), Some(&hello)))]
        };
        let get = |list: &[u8], title| {
            offers.get(&[list], servers(title), |servers| {
                Offer::new(Vec::new(), servers)
            })
        };
        let one = get(b"a", "t");
        assert!(Arc::ptr_eq(&one, &get(b"a", "t")));
        assert!(!Arc::ptr_eq(&one, &get(b"b", "t")));
        assert!(!Arc::ptr_eq(&one, &get(b"a", "u")));
    }
}
