//! The clauses of [`EmbeddingRepository`](crate::analytics::EmbeddingRepository).

use std::collections::BTreeMap;

use riglm_domain::retrieval::embedding::Embedding;

use super::UsageStore;
use super::scene::{embedding, odd_texts};

/// Vectors are read bit for bit, by any content hash.
pub async fn a_vector_is_read_as_it_was_stored(store: &impl UsageStore) {
    let vector = embedding("m");
    let longest = vec![0.1; Embedding::MAX_DIMENSION];
    let longest = Embedding::new("m", longest).unwrap();
    let mut rows: Vec<_> = (odd_texts().into_iter())
        .map(|hash| (hash, vector.clone()))
        .collect();
    rows.push(("longest".into(), longest));
    store.put_embeddings(&rows).await.unwrap();
    let hashes: Vec<_> = rows.iter().map(|(hash, _)| hash.clone()).collect();
    let read = store.embeddings("m", &hashes).await.unwrap();
    let bits = |vector: &Embedding| -> Vec<u32> {
        let components = vector.vector().iter();
        components.map(|component| component.to_bits()).collect()
    };
    for (hash, vector) in &rows {
        assert_eq!(bits(&read[hash]), bits(vector), "{hash:?}");
        assert_eq!(read[hash].model(), "m");
    }
    assert_eq!(read.len(), rows.len());
}

/// A later vector of the same model and hash replaces the earlier one, also in one batch.
pub async fn a_later_vector_replaces_the_earlier_one(store: &impl UsageStore) {
    let [one, two, three] = [1.0, 2.0, 3.0].map(|x| vector("m", x));
    let hash = || String::from("h");
    store.put_embeddings(&[(hash(), one)]).await.unwrap();
    let both = [(hash(), two), (hash(), three.clone())];
    store.put_embeddings(&both).await.unwrap();
    let read = store.embeddings("m", &[hash()]).await.unwrap();
    assert_eq!(read, BTreeMap::from([(hash(), three)]));
}

/// Vectors of different models are kept apart.
pub async fn vectors_of_different_models_are_kept_apart(store: &impl UsageStore) {
    let models = ["m", "M", "m\u{0}", "\u{241b}0", "ä"];
    let rows: Vec<_> = (models.iter().zip([1.0, 2.0, 3.0, 4.0, 5.0]))
        .map(|(model, x)| (String::from("h"), vector(model, x)))
        .collect();
    store.put_embeddings(&rows).await.unwrap();
    for (model, (_, vector)) in models.iter().zip(&rows) {
        let read = store.embeddings(model, &["h".into()]).await.unwrap();
        assert_eq!(read, BTreeMap::from([("h".into(), vector.clone())]));
    }
}

/// Hashes without a vector are omitted.
pub async fn vectors_that_are_not_there_are_left_out(store: &impl UsageStore) {
    store.put_embeddings(&[]).await.unwrap();
    let row = (String::from("h"), vector("m", 1.0));
    store.put_embeddings(&[row]).await.unwrap();
    let hashes = ["x", "h", "h", "H"].map(String::from);
    let read = store.embeddings("m", &hashes).await.unwrap();
    assert_eq!(read.keys().collect::<Vec<_>>(), ["h"]);
    assert_eq!(store.embeddings("m", &[]).await.unwrap(), BTreeMap::new());
    let other = store.embeddings("other", &hashes).await.unwrap();
    assert_eq!(other, BTreeMap::new());
}

/// All vectors of a forgotten model are gone, and no others; their number is returned.
pub async fn a_forgotten_model_has_no_vectors(store: &impl UsageStore) {
    let rows = [("one", "m"), ("two", "m"), ("one", "n")]
        .map(|(hash, model)| (String::from(hash), vector(model, 1.0)));
    store.put_embeddings(&rows).await.unwrap();
    assert_eq!(store.forget_model("m").await.unwrap(), 2);
    assert_eq!(store.forget_model("m").await.unwrap(), 0);
    let hashes = ["one", "two"].map(String::from);
    let gone = store.embeddings("m", &hashes).await.unwrap();
    assert_eq!(gone, BTreeMap::new());
    let kept = store.embeddings("n", &hashes).await.unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["one"]);
}

fn vector(model: &str, x: f32) -> Embedding {
    Embedding::new(model, vec![x, 0.5]).unwrap()
}
