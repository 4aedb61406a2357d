//! Comparison of the model with a straightforward computation in 64-bit floats.

use std::collections::HashMap;

use super::*;
use crate::models::convert::sample::{HEADS, HIDDEN, INNER, LAYERS, POSITIONS, sample};

type Rows = Vec<Vec<f64>>;
type Weights = HashMap<String, Vec<f64>>;

fn linear(weights: &Weights, name: &str, rows: &Rows) -> Rows {
    let (matrix, bias) = (
        &weights[&format!("{name}.w")],
        &weights[&format!("{name}.b")],
    );
    let columns = matrix.len() / bias.len();
    let row = |x: &Vec<f64>| {
        let parts = matrix.chunks(columns).zip(bias);
        parts.map(|(w, b)| b + dot(w, x)).collect()
    };
    rows.iter().map(row).collect()
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(x, y)| x * y).sum()
}

fn norm(weights: &Weights, name: &str, rows: &Rows) -> Rows {
    let (scale, shift) = (
        &weights[&format!("{name}.w")],
        &weights[&format!("{name}.b")],
    );
    let row = |x: &Vec<f64>| {
        let count = f64::from(u32::try_from(x.len()).unwrap());
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let root = (variance + 1e-12).sqrt();
        let parts = x.iter().zip(scale).zip(shift);
        parts.map(|((x, w), b)| (x - mean) / root * w + b).collect()
    };
    rows.iter().map(row).collect()
}

fn sum(one: &Rows, other: &Rows) -> Rows {
    let row = |(x, y): (&Vec<f64>, &Vec<f64>)| x.iter().zip(y).map(|(x, y)| x + y).collect();
    one.iter().zip(other).map(row).collect()
}

/// The distribution function of the normal distribution, by its series.
fn gelu(x: f64) -> f64 {
    let z = x / 2.0_f64.sqrt();
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -z * z / n;
        sum += term / (2.0 * n + 1.0);
    }
    0.5 * x * (1.0 + sum * 2.0 / std::f64::consts::PI.sqrt())
}

fn attention(weights: &Weights, layer: usize, rows: &Rows) -> Rows {
    let part = |name: &str| linear(weights, &format!("l{layer}.{name}"), rows);
    let (queries, keys, values) = (part("q"), part("k"), part("v"));
    let size = HIDDEN / HEADS;
    let mut mixed = vec![vec![0.0; HIDDEN]; rows.len()];
    for head in 0..HEADS {
        let own = head * size..(head + 1) * size;
        for (query, mixed) in queries.iter().zip(&mut mixed) {
            let scores = keys.iter().map(|key| {
                let score = dot(&query[own.clone()], &key[own.clone()]);
                (score / f64::from(u32::try_from(size).unwrap()).sqrt()).exp()
            });
            let scores = scores.collect::<Vec<_>>();
            let sum = scores.iter().sum::<f64>();
            for (score, value) in scores.iter().zip(&values) {
                for index in own.clone() {
                    mixed[index] += score / sum * value[index];
                }
            }
        }
    }
    linear(weights, &format!("l{layer}.ao"), &mixed)
}

fn reference_vector(weights: &Weights, tokens: &[u32]) -> Vec<f64> {
    let row =
        |name: &str, index: usize| weights[name][index * HIDDEN..(index + 1) * HIDDEN].to_vec();
    let places = tokens.iter().enumerate();
    let words = tokens
        .iter()
        .map(|t| row("emb.word", *t as usize))
        .collect();
    let positions = places.map(|(p, _)| row("emb.pos", p)).collect();
    let types = tokens.iter().map(|_| row("emb.type", 0)).collect();
    let mut rows = norm(weights, "emb.ln", &sum(&sum(&words, &positions), &types));
    for layer in 0..LAYERS {
        let attended = sum(&rows, &attention(weights, layer, &rows));
        rows = norm(weights, &format!("l{layer}.aln"), &attended);
        let mut inner = linear(weights, &format!("l{layer}.fi"), &rows);
        assert_eq!(inner[0].len(), INNER);
        inner.iter_mut().flatten().for_each(|x| *x = gelu(*x));
        let out = linear(weights, &format!("l{layer}.fo"), &inner);
        rows = norm(weights, &format!("l{layer}.oln"), &sum(&rows, &out));
    }
    let mut total = vec![0.0; HIDDEN];
    for row in &rows {
        total = sum(&vec![total], &vec![row.clone()]).remove(0);
    }
    let length = dot(&total, &total).sqrt();
    total.iter().map(|x| x / length).collect()
}

#[test]
fn vectors_are_those_of_the_same_model_computed_plainly() {
    let sample = sample();
    let directory = directory_of(&sample.bytes);
    let mut model = load(directory.path(), &manifest(HIDDEN)).unwrap();
    for (text, tokens) in [
        ("", vec![0, 2]),
        ("hello", vec![0, 5, 2]),
        ("hello  日本\t", vec![0, 5, 15, 16, 2]),
        ("\u{ff48}e he\u{301} xyz", vec![0, 6, 4, 8, 12, 4, 3, 2]),
    ] {
        let vector = model.encode(text).unwrap();
        for (one, other) in vector
            .iter()
            .zip(reference_vector(&sample.weights, &tokens))
        {
            assert!((f64::from(*one) - other).abs() < 1e-5, "{text:?}");
        }
    }
}

#[test]
fn texts_are_truncated_to_the_position_limit() {
    let sample = sample();
    let directory = directory_of(&sample.bytes);
    let mut model = load(directory.path(), &manifest(HIDDEN)).unwrap();
    let vector = model.encode(&"hello ".repeat(100_000)).unwrap();
    let mut tokens = vec![5; POSITIONS];
    tokens[0] = 0;
    tokens[POSITIONS - 1] = 2;
    for (one, other) in vector
        .iter()
        .zip(reference_vector(&sample.weights, &tokens))
    {
        assert!((f64::from(*one) - other).abs() < 1e-5);
    }
}
