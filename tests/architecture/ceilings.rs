//! Counts that may only fall.

use std::cmp::Ordering;

/// A count over the product sources, and the most that it may be.
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) number: usize,
    pub(crate) ceiling: usize,
    /// The places to mend, one line each.
    pub(crate) offenders: Vec<String>,
}

impl Count {
    /// Returns the fault of a count: above its ceiling, or below it, since the ceiling follows.
    fn fault(&self) -> Option<String> {
        let Self {
            name,
            number,
            ceiling,
            offenders,
        } = self;
        match number.cmp(ceiling) {
            Ordering::Greater => {
                let places = offenders.join("\n  ");
                Some(format!(
                    "{name}: {number} in place of at most {ceiling}:\n  {places}"
                ))
            }
            Ordering::Less => Some(format!(
                "{name}: {number} are left; lower the ceiling from {ceiling}"
            )),
            Ordering::Equal => None,
        }
    }
}

/// Fails with all counts that differ from their ceilings.
pub(crate) fn assert_at_ceilings(counts: &[Count]) {
    let faults: Vec<String> = counts.iter().filter_map(Count::fault).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_count_beside_its_ceiling_is_a_fault_in_both_directions() {
    let fault = |ceiling| {
        let count = Count {
            name: "habits".into(),
            number: 2,
            ceiling,
            offenders: vec!["a.rs:1".into(), "b.rs:2".into()],
        };
        count.fault()
    };
    assert_eq!(
        fault(1).unwrap(),
        "habits: 2 in place of at most 1:\n  a.rs:1\n  b.rs:2"
    );
    assert_eq!(fault(2), None);
    assert_eq!(
        fault(3).unwrap(),
        "habits: 2 are left; lower the ceiling from 3"
    );
}
