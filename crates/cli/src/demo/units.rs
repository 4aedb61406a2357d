//! Conversion between units of length, mass and temperature.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Length,
    Mass,
    Temperature,
}

/// A unit: `factor * value + offset` is the value in metres, kilograms or kelvins.
struct Unit {
    name: &'static str,
    quantity: Quantity,
    factor: f64,
    offset: f64,
}

const fn unit(name: &'static str, quantity: Quantity, factor: f64, offset: f64) -> Unit {
    Unit {
        name,
        quantity,
        factor,
        offset,
    }
}

/// The units; the imperial ones as defined by the international agreement of 1959.
const UNITS: [Unit; 12] = [
    unit("m", Quantity::Length, 1.0, 0.0),
    unit("km", Quantity::Length, 1_000.0, 0.0),
    unit("cm", Quantity::Length, 0.01, 0.0),
    unit("in", Quantity::Length, 0.0254, 0.0),
    unit("ft", Quantity::Length, 0.3048, 0.0),
    unit("mi", Quantity::Length, 1_609.344, 0.0),
    unit("kg", Quantity::Mass, 1.0, 0.0),
    unit("g", Quantity::Mass, 0.001, 0.0),
    unit("lb", Quantity::Mass, 0.453_592_37, 0.0),
    unit("K", Quantity::Temperature, 1.0, 0.0),
    unit("C", Quantity::Temperature, 1.0, 273.15),
    unit("F", Quantity::Temperature, 5.0 / 9.0, 459.67 * 5.0 / 9.0),
];

/// The reason why a value cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnitError {
    /// No unit has this name.
    #[error("unknown unit; known are {}", UNITS.map(|unit| unit.name).join(", "))]
    Unknown,
    /// The units are of different quantities.
    #[error("{from} and {to} do not measure the same thing")]
    Quantities {
        /// The unit of the value.
        from: &'static str,
        /// The target unit.
        to: &'static str,
    },
}

/// Converts `value` from the unit `from` to the unit `to`.
///
/// # Errors
///
/// Returns [`UnitError`] for an unknown unit, and for two units of different quantities.
pub(super) fn convert(value: f64, from: &str, to: &str) -> Result<f64, UnitError> {
    let (from, to) = (find(from)?, find(to)?);
    if from.quantity != to.quantity {
        return Err(UnitError::Quantities {
            from: from.name,
            to: to.name,
        });
    }
    Ok((value * from.factor + from.offset - to.offset) / to.factor)
}

fn find(name: &str) -> Result<&'static Unit, UnitError> {
    let found = UNITS.iter().find(|unit| unit.name == name);
    found.ok_or(UnitError::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(value: f64, from: &str, to: &str, expected: f64) -> bool {
        (convert(value, from, to).unwrap() - expected).abs() < 1e-9
    }

    #[test]
    fn units_of_one_quantity_convert() {
        assert!(is_close(1.0, "mi", "km", 1.609_344));
        assert!(is_close(12.0, "in", "ft", 1.0));
        assert!(is_close(212.0, "F", "C", 100.0));
        assert!(is_close(-40.0, "C", "F", -40.0));
        for (from, message) in [
            ("kg", "kg and m do not measure the same thing"),
            (
                "parsec",
                "unknown unit; known are m, km, cm, in, ft, mi, kg, g, lb, K, C, F",
            ),
        ] {
            let error = convert(1.0, from, "m").unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
