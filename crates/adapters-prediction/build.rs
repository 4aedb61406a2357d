//! Writes vocabularies as lookup tables into the binary: the vocabulary of `o200k_base`, and the
//! one of the static embedding in `data/floor`.
//!
//! The tables are used in place, so nothing is built or loaded at run time. The layout is defined
//! in `src/token_table/layout.rs`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest, Sha256};

#[path = "src/token_table/layout.rs"]
mod layout;

use layout::{Layout, hash};

/// Size of a row in `data/floor/rows.bin` in bytes.
const ROW_BYTES: usize = 130;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/token_table/layout.rs");
    println!("cargo::rerun-if-changed=data/floor/vocab.txt");
    println!("cargo::rerun-if-changed=data/floor/rows.bin");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    write_table(&out.join("o200k_base"), Layout::O200K, &o200k_tokens()?)?;

    let vocabulary = fs::read_to_string("data/floor/vocab.txt")?;
    let rows = fs::read("data/floor/rows.bin")?;
    let tokens: Vec<Vec<u8>> = vocabulary.lines().map(Into::into).collect();
    if rows.len() != tokens.len() * ROW_BYTES {
        return Err("data/floor: the tokens do not number the rows".into());
    }
    write_table(&out.join("floor"), Layout::FLOOR, &tokens)?;
    let digest = Sha256::new()
        .chain_update(&vocabulary)
        .chain_update(&rows)
        .finalize();
    println!(
        "cargo::rustc-env=FLOOR_DIGEST={}",
        hex::encode(&digest[..4])
    );
    Ok(())
}

/// Writes the three files of a table. Their names begin with `path`.
fn write_table(path: &Path, layout: Layout, tokens: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    // A lookup ends at an empty slot, so there must be at least one.
    if tokens.len() >= layout.n_slots() {
        return Err(format!("{}: the vocabulary has too many tokens", path.display()).into());
    }
    let mut slots = vec![0_u32; layout.n_slots()];
    let mut ends = vec![0_u32];
    let mut bytes = Vec::new();
    for (number, token) in (1..).zip(tokens) {
        let hash = hash(token);
        let mut slot = layout.first_slot(hash);
        while slots[slot] != 0 {
            slot = layout.next_slot(slot);
        }
        slots[slot] = layout.tag(hash) | number;
        bytes.extend_from_slice(token);
        ends.push(u32::try_from(bytes.len())?);
    }
    fs::write(path.with_extension("slots"), words(&slots))?;
    fs::write(path.with_extension("ends"), words(&ends))?;
    fs::write(path.with_extension("bytes"), bytes)?;
    Ok(())
}

/// Returns the tokens of `o200k_base` in the order of their ranks, which have no gaps.
fn o200k_tokens() -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let vocabulary = tiktoken_rs::o200k_base()?;
    let token = |rank| vocabulary.decode_bytes(&[rank]).ok();
    let tokens: Vec<Vec<u8>> = (0..).map_while(token).collect();
    Ok(tokens)
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
