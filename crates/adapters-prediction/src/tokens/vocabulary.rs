//! The vocabulary of `o200k_base`.

use crate::token_table::TokenTable;
use crate::token_table::layout::Layout;

static TABLE: TokenTable = TokenTable {
    layout: Layout::O200K,
    slots: include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.slots")),
    ends: include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.ends")),
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.bytes")),
};

/// Returns the rank of a token, or `None` if it is not in the vocabulary. Tokens with a lower rank
/// are merged first.
pub(super) fn rank_of(token: &[u8]) -> Option<u32> {
    TABLE.number_of(token)
}
