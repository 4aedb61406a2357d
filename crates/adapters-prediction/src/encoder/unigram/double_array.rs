//! A double-array trie, which returns the value of each key that is a prefix of a text.
//!
//! The layout is the one of the `darts-clone` library, which `SentencePiece` uses, so the table of
//! replacements can be written in its format. A unit of the array has the following fields, from
//! the lowest bit on: the label of the edge that leads to it (8 bits), whether a key ends here (1),
//! the scale of the offset (1), and the offset (21). The number of the unit XOR the offset is the
//! base of its children. The unit at the base itself has the value of the key, with the highest bit
//! set.

/// Units are allocated in groups of this size.
const GROUP: usize = 256;
/// The number of groups at the end of the array that are searched for free units.
const MAX_SEARCHED_GROUPS: usize = 16;
/// Upper bound of offsets.
const MAX_UNITS: usize = 1 << 21;

const ENDS_HERE: u32 = 1 << 8;
const IS_VALUE: u32 = 1 << 31;
const OFFSET_SHIFT: u32 = 10;

/// The reason why no trie can be built.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TrieError {
    /// A key is empty or has a zero byte.
    #[error("entry {0} is empty or has a zero byte")]
    Key(u32),
    /// A value is too large.
    #[error("the value {0} is too large")]
    Value(u32),
    /// Two keys are the same.
    #[error("entries {0} and {1} are the same")]
    SameKeys(u32, u32),
    /// The array would be too large.
    #[error("too many entries")]
    TooMany,
}

#[derive(Clone, Debug)]
pub(crate) struct DoubleArray {
    units: Vec<u32>,
}

impl DoubleArray {
    /// Builds a trie of keys with values below 2³¹. Sorts the keys.
    ///
    /// # Errors
    ///
    /// Returns the problem with the keys: one is empty, occurs twice, or has a zero byte, or there
    /// are too many.
    pub(crate) fn build(entries: &mut [(&[u8], u32)]) -> Result<Self, TrieError> {
        entries.sort_by_cached_key(|(key, _)| (first_bytes(key), *key));
        for (key, value) in &*entries {
            if key.is_empty() || key.contains(&0) {
                return Err(TrieError::Key(*value));
            }
            if *value >= IS_VALUE {
                return Err(TrieError::Value(*value));
            }
        }
        if let Some(twice) = entries.array_windows().find(|[one, next]| one.0 == next.0) {
            return Err(TrieError::SameKeys(twice[0].1, twice[1].1));
        }
        let mut builder = Builder::default();
        // Unit 0 is the root.
        builder.claim(0);
        let mut pending = vec![KeyRange {
            start: 0,
            end: entries.len(),
            depth: 0,
            unit: 0,
        }];
        while let Some(range) = pending.pop() {
            builder.place(entries, &range, &mut pending)?;
        }
        builder.units.shrink_to_fit();
        Ok(Self {
            units: builder.units,
        })
    }

    /// Returns the units, for export.
    pub(crate) fn units(&self) -> &[u32] {
        &self.units
    }

    /// Returns the length and the value of each key that is a prefix of the text, the shortest
    /// first.
    pub(crate) fn prefixes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut at = self.units.first().map_or(0, |root| offset_of(*root));
        text.iter()
            .zip(1..)
            .map_while(move |(label, length)| {
                // No key has a zero byte, but free units look like edges with that label.
                if *label == 0 {
                    return None;
                }
                let index = at ^ usize::from(*label);
                let unit = *self.units.get(index)?;
                if unit & (IS_VALUE | 0xff) != u32::from(*label) {
                    return None;
                }
                at = index ^ offset_of(unit);
                let value = (unit & ENDS_HERE != 0).then(|| self.units.get(at).copied());
                Some((length, value.flatten()))
            })
            .filter_map(|(length, value)| Some((length, value? & !IS_VALUE)))
    }
}

/// Returns the first eight bytes as a number. It speeds up sorting, because most keys differ in
/// them.
fn first_bytes(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    for (byte, target) in key.iter().zip(&mut first) {
        *target = *byte;
    }
    u64::from_be_bytes(first)
}

fn offset_of(unit: u32) -> usize {
    (unit >> OFFSET_SHIFT) as usize
}

/// Keys with a common prefix, and the unit of this prefix.
struct KeyRange {
    start: usize,
    end: usize,
    depth: usize,
    unit: usize,
}

#[derive(Default)]
struct Builder {
    units: Vec<u32>,
    /// Free units of each group, one bit per unit.
    free: Vec<GroupBits>,
    /// Units of each group that are not yet the base of any children.
    unused: Vec<GroupBits>,
}

impl Builder {
    fn claim(&mut self, index: usize) {
        while index >= self.units.len() {
            self.units.resize(self.units.len() + GROUP, 0);
            self.free.push(GroupBits::ALL);
            self.unused.push(GroupBits::ALL);
        }
        self.free[index / GROUP].remove(index % GROUP);
    }

    /// Allocates the children of a unit.
    fn place(
        &mut self,
        entries: &[(&[u8], u32)],
        range: &KeyRange,
        pending: &mut Vec<KeyRange>,
    ) -> Result<(), TrieError> {
        let mut children = Vec::<(u8, usize)>::new();
        for (index, (key, _)) in (range.start..).zip(&entries[range.start..range.end]) {
            let label = key.get(range.depth).copied().unwrap_or(0);
            if children.last().is_none_or(|(last, _)| *last != label) {
                children.push((label, index));
            }
        }
        if children.is_empty() {
            return Ok(());
        }
        let base = self.base_for(&children);
        if base >= MAX_UNITS {
            return Err(TrieError::TooMany);
        }
        for (label, _) in &children {
            self.claim(base ^ usize::from(*label));
        }
        self.unused[base / GROUP].remove(base % GROUP);
        let offset = u32::try_from(range.unit ^ base).map_err(|_| TrieError::TooMany)?;
        self.units[range.unit] |= offset << OFFSET_SHIFT;
        let ends = children.iter().skip(1).map(|(_, start)| *start);
        for ((label, start), end) in children.iter().zip(ends.chain([range.end])) {
            let unit = base ^ usize::from(*label);
            if *label == 0 {
                self.units[range.unit] |= ENDS_HERE;
                self.units[unit] = entries[*start].1 | IS_VALUE;
            } else {
                self.units[unit] = u32::from(*label);
                pending.push(KeyRange {
                    start: *start,
                    end,
                    depth: range.depth + 1,
                    unit,
                });
            }
        }
        Ok(())
    }

    /// Returns a base at which the units of all children are free.
    fn base_for(&self, children: &[(u8, usize)]) -> usize {
        let first = self.free.len().saturating_sub(MAX_SEARCHED_GROUPS);
        let groups = self.free.iter().zip(&self.unused).enumerate().skip(first);
        for (group, (free, unused)) in groups {
            let mut fitting = *unused;
            for (label, _) in children {
                fitting = fitting.and(free.xor_positions(usize::from(*label)));
            }
            if let Some(place) = fitting.first() {
                return group * GROUP + place;
            }
        }
        self.units.len()
    }
}

/// One bit per unit of a group.
#[derive(Clone, Copy)]
struct GroupBits([u64; GROUP / 64]);

impl GroupBits {
    const ALL: Self = Self([u64::MAX; GROUP / 64]);

    fn remove(&mut self, place: usize) {
        self.0[place / 64] &= !(1 << (place % 64));
    }

    fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn first(self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }

    /// Moves each bit to its position XOR `label`.
    fn xor_positions(self, label: usize) -> Self {
        const HALVES: [u64; 6] = [
            0x5555_5555_5555_5555,
            0x3333_3333_3333_3333,
            0x0f0f_0f0f_0f0f_0f0f,
            0x00ff_00ff_00ff_00ff,
            0x0000_ffff_0000_ffff,
            0x0000_0000_ffff_ffff,
        ];
        Self(std::array::from_fn(|word| {
            let mut bits = self.0[word ^ (label / 64)];
            for (step, low) in HALVES.iter().enumerate() {
                let by = 1 << step;
                if label & by != 0 {
                    bits = (bits & low) << by | (bits >> by) & low;
                }
            }
            bits
        }))
    }
}
