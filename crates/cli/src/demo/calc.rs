//! A server for calculations: arithmetic, units, dates.

use jiff::civil::Date;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{schemars, tool, tool_router};
use serde::Deserialize;

use super::{ToolFailure, arithmetic, units};

const MAX_EXPRESSION_BYTES: usize = 10_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Calc;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Evaluate {
    /// Numbers, + - * / ^, signs and parentheses.
    expression: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Convert {
    /// The value to convert.
    value: f64,
    /// The unit of the value: m, km, cm, in, ft, mi, kg, g, lb, K, C or F.
    from: String,
    /// The target unit.
    to: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct DaysBetween {
    /// The first day, as YYYY-MM-DD.
    from: String,
    /// The last day, as YYYY-MM-DD.
    to: String,
}

/// A problem with the arguments of a calculation.
#[derive(Debug, thiserror::Error)]
enum CalcError {
    /// The expression is too long.
    #[error("an expression may have {MAX_EXPRESSION_BYTES} bytes at most")]
    LongExpression,
    /// A text is not a date.
    #[error("expected a date as YYYY-MM-DD")]
    Date,
}

#[tool_router(server_handler)]
impl Calc {
    #[tool(
        description = "Evaluate an arithmetic expression",
        annotations(read_only_hint = true)
    )]
    fn evaluate(
        Parameters(Evaluate { expression }): Parameters<Evaluate>,
    ) -> Result<String, ToolFailure> {
        if expression.len() > MAX_EXPRESSION_BYTES {
            return Err(CalcError::LongExpression.into());
        }
        Ok(arithmetic::evaluate(&expression)?.to_string())
    }

    #[tool(
        description = "Convert a value from one unit to another",
        annotations(read_only_hint = true)
    )]
    fn convert(
        Parameters(Convert { value, from, to }): Parameters<Convert>,
    ) -> Result<String, ToolFailure> {
        let converted = units::convert(value, &from, &to)?;
        Ok(format!("{value} {from} = {converted:.4} {to}"))
    }

    #[tool(
        description = "Count the days from one date to another",
        annotations(read_only_hint = true)
    )]
    fn days_between(
        Parameters(DaysBetween { from, to }): Parameters<DaysBetween>,
    ) -> Result<String, ToolFailure> {
        let days = date(&to)?.duration_since(date(&from)?).as_hours() / 24;
        Ok(format!("{days} days"))
    }
}

fn date(text: &str) -> Result<Date, CalcError> {
    text.parse().map_err(|_| CalcError::Date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_across_leap_years() {
        let days = |from: &str, to: &str| {
            Calc::days_between(Parameters(DaysBetween {
                from: from.into(),
                to: to.into(),
            }))
        };
        assert_eq!(days("2024-02-28", "2024-03-01"), Ok("2 days".into()));
        assert_eq!(days("2024-03-01", "2024-02-28"), Ok("-2 days".into()));
        assert!(days("2023-02-29", "2024-01-01").is_err());
    }

    #[test]
    fn calculator_results_are_text() {
        let evaluate = |expression: &str| {
            Calc::evaluate(Parameters(Evaluate {
                expression: expression.into(),
            }))
        };
        assert_eq!(evaluate("(2 + 3) * 4"), Ok("20".into()));
        assert_eq!(
            evaluate("1 / 0"),
            Err(ToolFailure("division by zero".into()))
        );
        assert!(evaluate(&"1+".repeat(6_000)).is_err());
        let converted = Calc::convert(Parameters(Convert {
            value: 10.0,
            from: "km".into(),
            to: "mi".into(),
        }));
        assert_eq!(converted, Ok("10 km = 6.2137 mi".into()));
    }
}
