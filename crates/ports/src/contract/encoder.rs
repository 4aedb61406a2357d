//! The clauses of [`Encoder`].

use futures_util::future::{join, join_all};

use crate::encoder::{Encoder, TextRole};

// The allowed deviation of the length of a vector from 1.
const LENGTH_TOLERANCE: f64 = 1e-3;
// The allowed difference between components of vectors of the same text.
const COMPONENT_TOLERANCE: f32 = 1e-4;

const TEXTS: [&str; 5] = [
    "read a file",
    "Sends a message to a channel. Arguments: channel, text, thread.",
    "weather forecast",
    "SELECT name, count(*) FROM calls GROUP BY name HAVING count(*) > 10;",
    "a",
];

// Texts of several scripts, and unusual ones such as control characters.
const SCRIPTS: [&str; 10] = [
    "прочитать файл",
    "读取文件的内容",
    "ファイルを読み込む",
    "파일 읽기",
    "قراءة ملف",
    "קריאת קובץ",
    "फ़ाइल पढ़ें",
    "อ่านไฟล์",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u{0}\u{feff}\u{202e}\u{fffd}\n\t\u{301}",
];

async fn encode(encoder: &impl Encoder, texts: &[&str], role: TextRole) -> Vec<Vec<f32>> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    encoder.encode(texts, role).await.unwrap()
}

async fn encode_one(encoder: &impl Encoder, text: &str, role: TextRole) -> Vec<f32> {
    encode(encoder, &[text], role).await.remove(0)
}

fn inner_product(left: &[f32], right: &[f32]) -> f64 {
    left.iter()
        .zip(right)
        .map(|(left, right)| f64::from(*left) * f64::from(*right))
        .sum()
}

fn assert_unit(vector: &[f32], text: &str) {
    assert!(
        vector.iter().all(|value| value.is_finite()),
        "the vector of {text:?} has components that are no numbers"
    );
    let length = inner_product(vector, vector).sqrt();
    assert!(
        (length - 1.0).abs() <= LENGTH_TOLERANCE,
        "the vector of {text:?} has length {length}"
    );
}

fn assert_same(left: &[f32], right: &[f32], text: &str) {
    assert_eq!(left.len(), right.len(), "dimensions for {text:?}");
    let apart = left
        .iter()
        .zip(right)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max);
    assert!(
        apart <= COMPONENT_TOLERANCE,
        "vectors of {text:?} are {apart} apart"
    );
}

/// A text has a vector that is finite and has length 1, whatever its role.
pub async fn vectors_are_finite_and_have_length_one(encoder: &impl Encoder) {
    for role in [TextRole::Query, TextRole::Passage] {
        let vectors = encode(encoder, &TEXTS, role).await;
        for (vector, text) in vectors.iter().zip(TEXTS) {
            assert_unit(vector, text);
        }
    }
}

/// Vectors of all texts in both roles have the same dimension.
pub async fn all_vectors_have_the_same_dimension(encoder: &impl Encoder) {
    let queries = encode(encoder, &TEXTS, TextRole::Query).await;
    let passages = encode(encoder, &SCRIPTS, TextRole::Passage).await;
    let dimension = queries[0].len();
    assert!(dimension > 0);
    for vector in queries.iter().chain(&passages) {
        assert_eq!(vector.len(), dimension);
    }
}

/// There is one vector for each text, in the order of the texts, for the same text twice too.
pub async fn each_text_has_one_vector_in_order(encoder: &impl Encoder) {
    let texts = [TEXTS[0], TEXTS[2], TEXTS[0], TEXTS[1]];
    let vectors = encode(encoder, &texts, TextRole::Passage).await;
    assert_eq!(vectors.len(), texts.len());
    for (vector, text) in vectors.iter().zip(texts) {
        let alone = encode_one(encoder, text, TextRole::Passage).await;
        assert_same(vector, &alone, text);
    }
    assert!(inner_product(&vectors[0], &vectors[1]) < 0.999);
}

/// An empty request returns no vectors.
pub async fn no_texts_have_no_vectors(encoder: &impl Encoder) {
    let vectors = encode(encoder, &[], TextRole::Query).await;
    assert!(vectors.is_empty());
}

/// A text has the same vector alone and together with much longer and much shorter texts.
pub async fn a_text_has_the_same_vector_in_any_batch(encoder: &impl Encoder) {
    let long = TEXTS[1].repeat(40);
    for role in [TextRole::Query, TextRole::Passage] {
        for text in TEXTS {
            let alone = encode_one(encoder, text, role).await;
            let beside = encode(encoder, &[&long, text, "", "b"], role).await;
            assert_same(&alone, &beside[1], text);
        }
    }
}

/// The empty text has a vector, alone and together with others, and so have texts of white space.
pub async fn the_empty_text_has_a_vector(encoder: &impl Encoder) {
    for role in [TextRole::Query, TextRole::Passage] {
        let alone = encode_one(encoder, "", role).await;
        assert_unit(&alone, "");
        let beside = encode(encoder, &["read a file", "", " \n\t "], role).await;
        assert_same(&alone, &beside[1], "");
        assert_unit(&beside[2], "white space");
    }
}

/// A text of a megabyte has a vector, whether it has many words or a single one.
pub async fn a_text_of_a_megabyte_has_a_vector(encoder: &impl Encoder) {
    for part in ["read a file. ", "x", "é", "语", " "] {
        let text = part.repeat(1_000_000 / part.len() + 1);
        let vector = encode_one(encoder, &text, TextRole::Passage).await;
        assert_unit(&vector, part);
    }
}

/// A text is truncated to the length that the model reads: words a megabyte later have no effect.
pub async fn text_beyond_the_model_limit_has_no_effect(encoder: &impl Encoder) {
    let text = "read a file. ".repeat(80_000);
    let continued = format!("{text} weather forecast for tomorrow");
    let vector = encode_one(encoder, &text, TextRole::Passage).await;
    let other = encode_one(encoder, &continued, TextRole::Passage).await;
    assert_same(&vector, &other, "a text with another end");
}

/// Texts of any script have vectors.
pub async fn texts_of_any_script_have_vectors(encoder: &impl Encoder) {
    for role in [TextRole::Query, TextRole::Passage] {
        let vectors = encode(encoder, &SCRIPTS, role).await;
        for (vector, text) in vectors.iter().zip(SCRIPTS) {
            assert_unit(vector, text);
        }
    }
}

/// Concurrent calls return the same vectors as sequential calls.
pub async fn calls_at_the_same_time_get_their_own_vectors(encoder: &impl Encoder) {
    let queries = join_all(TEXTS.map(|text| encode_one(encoder, text, TextRole::Query)));
    let passages = join_all(TEXTS.map(|text| encode_one(encoder, text, TextRole::Passage)));
    let (queries, passages) = join(queries, passages).await;
    for (index, text) in TEXTS.into_iter().enumerate() {
        let query = encode_one(encoder, text, TextRole::Query).await;
        assert_same(&queries[index], &query, text);
        let passage = encode_one(encoder, text, TextRole::Passage).await;
        assert_same(&passages[index], &passage, text);
    }
}

/// A dropped call does not affect other calls.
pub async fn a_dropped_call_leaves_others_alone(encoder: &impl Encoder) {
    let expected = encode_one(encoder, TEXTS[0], TextRole::Query).await;
    let dropped = encode(encoder, &TEXTS, TextRole::Passage);
    let asked = encode_one(encoder, TEXTS[0], TextRole::Query);
    // Both calls run, and the first one is dropped as soon as the second one is answered.
    let both = futures_util::future::select(Box::pin(asked), Box::pin(dropped));
    drop(both.await);
    let vector = encode_one(encoder, TEXTS[0], TextRole::Query).await;
    assert_same(&vector, &expected, TEXTS[0]);
}

/// The inner product of related texts is larger than the one of unrelated texts.
pub async fn related_texts_are_nearer_than_unrelated_ones(encoder: &impl Encoder) {
    let query = encode_one(encoder, "read a file", TextRole::Query).await;
    let passages = ["get the content of a document", "weather forecast"];
    let passages = encode(encoder, &passages, TextRole::Passage).await;
    let related = inner_product(&query, &passages[0]);
    let unrelated = inner_product(&query, &passages[1]);
    assert!(
        related > unrelated,
        "related texts have {related}, unrelated ones {unrelated}"
    );
}

/// The name of an encoder is known before the first request, and does not change.
pub async fn an_encoder_keeps_its_name(encoder: &impl Encoder) {
    let before = encoder.model().to_owned();
    assert!(!before.is_empty());
    encode_one(encoder, TEXTS[0], TextRole::Query).await;
    assert_eq!(encoder.model(), before);
}
