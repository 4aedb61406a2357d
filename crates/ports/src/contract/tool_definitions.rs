//! The clauses of [`ToolDefinitionRepository`](crate::analytics::ToolDefinitionRepository).

use riglm_domain::catalog::tool::{ToolDefinition, ToolListing, ToolRef, ToolSighting};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, moment, odd_texts, page};

/// A definition is read with every value that was recorded, of any name, hash and text.
pub async fn a_definition_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let mut sightings: Vec<_> = (odd_texts().into_iter())
        .map(|text| ToolSighting {
            name: ToolName::from(text.as_str()),
            content_hash: text.clone(),
            definition: text.repeat(5),
        })
        .collect();
    let listing = ToolListing {
        tools: sightings.clone(),
        ..page("all", &[])
    };
    see(store, &listing, 3).await;
    sightings.sort_by(|a, b| a.name.cmp(&b.name));
    let expected: Vec<_> = (sightings.into_iter())
        .map(|sighting| ToolDefinition {
            upstream: listing.upstream.clone(),
            sighting,
            first_seen: moment(3),
            last_seen: moment(3),
        })
        .collect();
    assert_eq!(store.tool_definitions(None).await.unwrap(), expected);
}

/// A definition that was seen again has one row, with the first and the last moment, in whichever
/// order and on whichever page it was seen.
pub async fn a_definition_seen_again_has_one_row(store: &impl UsageStore) {
    for (id, tools, seen_at) in [
        ("one", &["a"][..], 5),
        ("two", &["b", "a"], 3),
        ("one", &["a"], 9),
        ("one", &["a"], 7),
    ] {
        see(store, &page(id, tools), seen_at).await;
    }
    let definitions = store.tool_definitions(None).await.unwrap();
    let moments: Vec<_> = (definitions.iter())
        .map(|row| (row.sighting.name.as_str(), row.first_seen, row.last_seen))
        .collect();
    let expected = [("a", 3, 9), ("b", 3, 3)];
    assert_eq!(
        moments,
        expected.map(|(name, first, last)| (name, moment(first), moment(last)))
    );
}

/// A changed definition has another row, even if the tool changes back later.
pub async fn a_definition_that_changed_has_another_row(store: &impl UsageStore) {
    for (hash, seen_at) in [("new", 3), ("old", 2), ("new", 5), ("old", 9)] {
        see(store, &page_with_definition(hash, ""), seen_at).await;
    }
    let definitions = store.tool_definitions(None).await.unwrap();
    let hashes: Vec<_> = (definitions.iter())
        .map(|row| row.sighting.content_hash.as_str())
        .collect();
    assert_eq!(hashes, ["old", "new"]);
    assert_eq!(definitions[0].last_seen, moment(9));
}

/// A tool with several definitions is seen once, in the order of upstreams and names.
pub async fn a_tool_is_seen_once(store: &impl UsageStore) {
    assert_eq!(store.tools_seen().await.unwrap(), []);
    for (hash, seen_at) in [("new", 3), ("old", 2)] {
        see(store, &page_with_definition(hash, ""), seen_at).await;
    }
    see(store, &page("one", &["zebra", "Ant", "ant"]), 4).await;
    let mut expected: Vec<ToolRef> = (store.tool_definitions(None).await.unwrap().into_iter())
        .map(|row| ToolRef {
            upstream: row.upstream,
            tool: row.sighting.name,
        })
        .collect();
    assert_eq!(expected.len(), 5);
    expected.dedup();
    assert_eq!(store.tools_seen().await.unwrap(), expected);
    assert_eq!(expected.len(), 4);
}

/// The first text of a definition that is not empty stays.
pub async fn the_first_text_of_a_definition_stays(store: &impl UsageStore) {
    for (text, expected) in [("", ""), ("one", "one"), ("two", "one"), ("", "one")] {
        see(store, &page_with_definition("hash", text), 2).await;
        let definitions = store.tool_definitions(None).await.unwrap();
        assert_eq!(definitions.len(), 1);
        assert_eq!(definitions[0].sighting.definition, expected);
    }
}

/// Definitions are ordered by upstream, name, first sighting and content hash.
pub async fn definitions_are_ordered(store: &impl UsageStore) {
    let mut expected = Vec::new();
    for (upstream, name, hash, seen_at) in [
        ("UP", "b", "x", 9),
        ("up", "a", "z", 2),
        ("up", "a", "x", 3),
        ("up", "a", "y", 3),
        ("up", "a\u{0}", "x", 1),
        ("up", "\u{241b}", "x", 1),
    ] {
        let mut listing = page_with_definition(hash, "");
        listing.id = format!("{upstream} {name} {hash}");
        listing.upstream = UpstreamName::parse(upstream).unwrap();
        listing.tools[0].name = ToolName::from(name);
        expected.push((listing, seen_at));
    }
    for (listing, seen_at) in expected.iter().rev() {
        see(store, listing, *seen_at).await;
    }
    let definitions = store.tool_definitions(None).await.unwrap();
    let read: Vec<_> = (definitions.into_iter())
        .map(|row| (row.upstream, vec![row.sighting]))
        .collect();
    let expected: Vec<_> = (expected.into_iter())
        .map(|(listing, _)| (listing.upstream, listing.tools))
        .collect();
    assert_eq!(read, expected);
}

/// Only the definitions of the requested upstream are read.
pub async fn only_definitions_of_the_upstream_are_read(store: &impl UsageStore) {
    let (here, mut there) = (page("here", &["a"]), page("there", &["b"]));
    there.upstream = UpstreamName::parse("UP-1.X").unwrap();
    see(store, &here, 2).await;
    see(store, &there, 2).await;
    let nobody = UpstreamName::parse("nobody").unwrap();
    for (upstream, expected) in [
        (&here.upstream, &["a"][..]),
        (&there.upstream, &["b"]),
        (&nobody, &[]),
    ] {
        let definitions = store.tool_definitions(Some(upstream)).await.unwrap();
        let names: Vec<_> = (definitions.iter())
            .map(|row| row.sighting.name.as_str())
            .collect();
        assert_eq!(names, expected, "{upstream}");
    }
}

fn page_with_definition(hash: &str, definition: &str) -> ToolListing {
    let mut listing = page(hash, &["a"]);
    listing.tools[0].content_hash = hash.into();
    listing.tools[0].definition = definition.into();
    listing
}

async fn see(store: &impl UsageStore, listing: &ToolListing, millis: i64) {
    let seen = Record::ToolsSeen {
        listing: listing.clone(),
        seen_at: moment(millis),
    };
    apply(store, &[seen]).await;
}
