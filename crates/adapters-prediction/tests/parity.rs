//! Comparison of vectors with another engine, for texts of many kinds.
#![expect(
    clippy::unwrap_used,
    reason = "an encoder that fails does so in its test"
)]

#[path = "place/model.rs"]
mod model;
#[path = "place/reference.rs"]
mod reference;

use riglm_ports::encoder::{Encoder as _, TextRole};

const CLOSE: f64 = 0.999;

const TEXTS: [&str; 38] = [
    "",
    " \t\n",
    "a",
    "?",
    "read a file",
    "get the content of a document",
    "weather forecast",
    "Find the open issues that were assigned to me last week.",
    "WHAT IS THE CAPITAL OF FRANCE",
    "Ünïcödé àccénts, naïve café — “quotes” … and dashes – too",
    "don't can't won't it's o'clock",
    "3.14159 + 2,718 = 1e-9 * 10% of $5,000.00",
    "!!! ??? ... ,,, ;;; ((( ))) [[[ ]]]",
    "fn main() { println!(\"{}\", x.iter().map(|y| y * 2).sum::<u64>()); }",
    "SELECT name, count(*) FROM calls GROUP BY name HAVING count(*) > 10;",
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}},\"required\":[\"path\"]}",
    "https://example.com/a/b?c=d&e=%20f#g",
    "/usr/local/lib/python3.11/site-packages/numpy/core/_multiarray_umath.so",
    "search_issues: Searches issues and pull requests by text, state, label and author.",
    "create_pull_request createPullRequest CREATE-PULL-REQUEST",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "прочитать файл и показать его содержимое",
    "读取文件的内容并返回文本",
    "ファイルを読み込んで内容を返す",
    "파일을 읽고 내용을 반환합니다",
    "اقرأ الملف وأعد محتواه",
    "קרא את הקובץ והחזר את תוכנו",
    "फ़ाइल पढ़ें और उसकी सामग्री लौटाएँ",
    "อ่านไฟล์และส่งคืนเนื้อหา",
    "διάβασε το αρχείο",
    "đọc tệp và trả về nội dung",
    "mixed 混合 смешанный 혼합 text",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🚀 emoji",
    "ﬁ ligature, ① circled, ２ fullwidth, Å composed, Å decomposed",
    "zero\u{200b}width\u{feff} and \u{0} control \u{7f} characters \u{202e}",
    "[CLS] special [SEP] tokens [MASK] <s> </s> <pad>",
    "line one\nline two\r\nline three\ttabbed",
    "x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x",
];

/// Returns the texts above, and some that exceed the maximum length of the model.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    texts.push(TEXTS.join(" ").repeat(3));
    texts.push("The quick brown fox jumps over the lazy dog. ".repeat(80));
    texts.push("语言模型".repeat(200));
    texts
}

fn cosine(left: &[f32], right: &[f64]) -> f64 {
    let product: f64 = left
        .iter()
        .zip(right)
        .map(|(left, right)| f64::from(*left) * right)
        .sum();
    let length: f64 = left.iter().map(|value| f64::from(*value).powi(2)).sum();
    product / length.sqrt()
}

async fn assert_agrees(name: &str) {
    let texts = texts();
    let manifest = model::manifest(name);
    let expected = reference::vectors(&model::directory(name), manifest.max_tokens, &texts);
    let vectors = model::encoder(name)
        .encode(texts.clone(), TextRole::Passage)
        .await
        .unwrap();
    assert_eq!(vectors.len(), expected.len());
    for ((vector, expected), text) in vectors.iter().zip(&expected).zip(&texts) {
        assert_eq!(vector.len(), expected.len());
        let cosine = cosine(vector, expected);
        assert!(cosine >= CLOSE, "vectors of {text:?} have cosine {cosine}");
    }
}

#[tokio::test]
#[ignore = "needs a model and pip"]
async fn minilm_agrees_with_another_engine() {
    assert_agrees("all-MiniLM-L6-v2").await;
}
