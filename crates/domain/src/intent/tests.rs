use jiff::SignedDuration;
use proptest::prelude::*;

use validator::Validate;

use super::*;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn after(minutes: i64) -> Timestamp {
    START + SignedDuration::from_mins(minutes)
}

fn note(memory: &mut IntentMemory, source: IntentSource, text: &str, minutes: i64) {
    memory.add_text(source, text, &IntentWeights::default(), after(minutes));
}

fn text(memory: &IntentMemory, minutes: i64) -> String {
    let known = memory.current_intent(after(minutes));
    known.map_or_else(String::new, |known| known.text)
}

#[test]
fn texts_are_ordered_by_weight_and_then_by_recency() {
    let mut memory = IntentMemory::default();
    note(&mut memory, IntentSource::Resource, "resource", 0);
    note(&mut memory, IntentSource::Search, "first", 0);
    note(&mut memory, IntentSource::Search, "second", 0);
    note(&mut memory, IntentSource::SetContext, "said", 0);
    assert_eq!(text(&memory, 0), "said\nsecond\nfirst\nresource");
    assert!((memory.current_intent(START).unwrap().weight - 1.0).abs() < 1e-9);
}

#[test]
fn text_weight_halves_after_ten_minutes_or_calls() {
    let mut memory = IntentMemory::default();
    note(&mut memory, IntentSource::SetContext, "said", 0);
    let weight =
        |memory: &IntentMemory, minutes| memory.current_intent(after(minutes)).unwrap().weight;
    assert!((weight(&memory, 10) - 0.5).abs() < 1e-9);
    for _ in 0..10 {
        note(&mut memory, IntentSource::Arguments, "", 0);
    }
    assert!((weight(&memory, 10) - 0.25).abs() < 1e-9);
    assert_eq!(memory.current_intent(after(120)), None);
}

#[test]
fn a_declared_context_replaces_the_previous_one() {
    let mut memory = IntentMemory::default();
    note(&mut memory, IntentSource::SetContext, "one task", 0);
    note(&mut memory, IntentSource::SetContext, "another", 1);
    assert_eq!(text(&memory, 1), "another");
    for number in 0..9 {
        note(&mut memory, IntentSource::Search, &number.to_string(), 2);
    }
    assert_eq!(text(&memory, 2), "another\n8\n7\n6");
    note(&mut memory, IntentSource::Search, "7", 3);
    assert_eq!(
        text(&memory, 3).lines().filter(|line| *line == "7").count(),
        1
    );
}

#[test]
fn a_source_with_weight_zero_is_ignored() {
    let weights = IntentWeights {
        search: 0.0,
        ..IntentWeights::default()
    };
    let mut memory = IntentMemory::default();
    memory.add_text(IntentSource::Search, "x", &weights, START);
    assert_eq!(memory.current_intent(START), None);
    assert!(weights.validate().is_ok() && !weights.is_off());
    let odd = IntentWeights {
        prompts: f64::NAN,
        ..weights
    };
    let error = odd.validate().unwrap_err().to_string();
    assert_eq!(error, "prompts: expected a number from 0 to 1");
}

fn source() -> impl Strategy<Value = IntentSource> {
    proptest::sample::select(IntentSource::ALL.to_vec())
}

proptest! {
    #[test]
    fn memory_and_intent_are_bounded_for_any_texts(
        notes in proptest::collection::vec((source(), ".{0,40}", 0_usize..120, 0_i64..60), 0..60),
        at in 0_i64..120,
    ) {
        let mut memory = IntentMemory::default();
        for (source, text, n_times, minutes) in &notes {
            note(&mut memory, *source, &text.repeat(*n_times), *minutes);
        }
        let n_chars: usize = memory.notes.iter().map(|note| note.text.chars().count()).sum();
        prop_assert!(n_chars <= MAX_CHARS);
        let most: usize = IntentSource::ALL.iter().map(|source| max_texts(*source)).sum();
        prop_assert!(memory.notes.len() <= most);
        if let Some(known) = memory.current_intent(after(at)) {
            prop_assert!(known.text.chars().count() <= MAX_INTENT_CHARS);
            prop_assert!(!known.text.is_empty());
            prop_assert!(known.weight > 0.0 && known.weight <= 1.0);
        }
    }

    #[test]
    fn the_weight_of_an_intent_never_grows_with_time(
        notes in proptest::collection::vec((source(), "[a-z]{1,9}", 0_i64..60), 1..30),
        (first, later) in (60_i64..90, 0_i64..90),
    ) {
        let mut memory = IntentMemory::default();
        for (source, text, minutes) in &notes {
            note(&mut memory, *source, text, *minutes);
        }
        let weight = |at| memory.current_intent(after(at)).map_or(0.0, |known| known.weight);
        prop_assert!(weight(first + later) <= weight(first) + 1e-12);
    }

    #[test]
    fn the_last_declared_context_comes_first(
        notes in proptest::collection::vec((source(), "[a-z]{1,9}"), 0..30),
    ) {
        let mut memory = IntentMemory::default();
        for (source, text) in &notes {
            note(&mut memory, *source, text, 0);
        }
        note(&mut memory, IntentSource::SetContext, "LAST", 0);
        let text = text(&memory, 0);
        prop_assert_eq!(text.lines().next(), Some("LAST"));
    }
}
