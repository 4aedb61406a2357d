//! Copying of small slices out of large buffers.
//!
//! A slice keeps its whole buffer in memory. Messages that wait for a client are counted by their
//! own length, so a message that is kept for long must not be a small part of a large buffer.

use bytes::Bytes;

// Slices up to this many bytes are always copied: libraries return parts of read buffers whose size
// they do not reveal.
const SHORT_BYTES: usize = 16 * 1024;

/// Returns `part`, a slice of a buffer of `n_buffer` bytes. Copies it if it is short or less than
/// half of the buffer.
#[must_use]
pub fn compact(part: Bytes, n_buffer: usize) -> Bytes {
    if part.len() <= SHORT_BYTES || part.len() < n_buffer / 2 {
        Bytes::copy_from_slice(&part)
    } else {
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_part_keeps_its_buffer() {
        let buffer = Bytes::from(vec![b'x'; 1 << 20]);
        let is_kept = |n_bytes: usize| {
            let part = compact(buffer.slice(..n_bytes), buffer.len());
            assert_eq!(part, buffer.slice(..n_bytes));
            part.as_ptr() == buffer.as_ptr()
        };
        assert!(!is_kept(100));
        assert!(!is_kept(500_000));
        assert!(is_kept(600_000));
        let short = buffer.slice(..100);
        assert_ne!(compact(short.clone(), 100).as_ptr(), short.as_ptr());
    }
}
