//! Has the crate built anew when a migration is added: the macro that embeds them sees only the
//! files that were there.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/sqlite");
}
