//! Lays the vocabulary of `o200k_base` out as a table that is read where it lies in the program.
//!
//! Nothing of it is built or held in memory when the program runs. The layout is that of
//! `src/tokens/layout.rs`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

#[path = "src/tokens/layout.rs"]
mod layout;

use layout::{N_SLOTS, first_slot, hash, next_slot, tag};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/tokens/layout.rs");
    let tokens = tokens()?;
    // A search ends at an empty slot, so there has to be one.
    if tokens.len() >= N_SLOTS {
        return Err("the vocabulary has too many tokens".into());
    }
    let mut slots = vec![0_u32; N_SLOTS];
    let mut ends = vec![0_u32];
    let mut bytes = Vec::new();
    for (number, token) in (1..).zip(&tokens) {
        let hash = hash(token);
        let mut slot = first_slot(hash);
        while slots[slot] != 0 {
            slot = next_slot(slot);
        }
        slots[slot] = tag(hash) | number;
        bytes.extend_from_slice(token);
        ends.push(u32::try_from(bytes.len())?);
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("o200k_base.slots"), words(&slots))?;
    fs::write(out.join("o200k_base.ends"), words(&ends))?;
    fs::write(out.join("o200k_base.bytes"), bytes)?;
    Ok(())
}

/// Returns the tokens in the order of their ranks, which have no gap.
fn tokens() -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
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
