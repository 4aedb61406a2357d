//! Parts of larger buffers, without the buffers.
//!
//! Bytes that are a part of a buffer keep all of it in memory. What waits for a client is counted by
//! its own length, so what is kept for long must not be a small part of something large.

use bytes::Bytes;

/// Slices up to this many bytes are copied in any case: libraries hand out parts of their read
/// buffers, whose size they do not tell.
const SHORT_BYTES: usize = 16 * 1024;

/// Returns `part`, which lies in a buffer of `n_buffer` bytes, in memory of its own where it is short
/// or less than half of the buffer.
pub(crate) fn compact(part: Bytes, n_buffer: usize) -> Bytes {
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
