//! A server for calculations: arithmetic, units, dates, columns of tables.

use serde_json::Value;

use super::sandbox::Sandbox;
use super::text::csv_rows;
use super::tool::Kind::{Integer, Number, Numbers, Text};
use super::tool::{Answer, ArgumentError, Arguments, DemoTool, Effect, mandatory, optional};
use super::{arithmetic, units};

const MAX_EXPRESSION_BYTES: usize = 10_000;

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "evaluate",
        effect: Effect::Reads,
        description: "Evaluate an arithmetic expression and return its value. It may have numbers, the operators + - * / and ^ for powers, signs and parentheses, with the usual order of operations. Use this for every calculation with more than one step or with large numbers, instead of calculating in your head. An expression may have ten thousand bytes at most.",
        parameters: &[mandatory(
            "expression",
            Text,
            "Numbers, + - * / ^, signs and parentheses, for example (1200 + 950) * 1.19.",
        )],
        run: evaluate,
    },
    DemoTool {
        name: "convert",
        effect: Effect::Reads,
        description: "Convert a value from one unit to another unit of the same quantity: lengths (m, km, cm, in, ft, mi), masses (kg, g, lb) and temperatures (K, C, F). The result has four decimal places. Units of different quantities cannot be converted, and names of units are case sensitive.",
        parameters: &[
            mandatory("value", Number, "The value to convert."),
            mandatory(
                "from",
                Text,
                "The unit of the value: m, km, cm, in, ft, mi, kg, g, lb, K, C or F.",
            ),
            mandatory("to", Text, "The target unit, of the same quantity."),
        ],
        run: convert,
    },
    DemoTool {
        name: "days_between",
        effect: Effect::Reads,
        description: "Count the days from one date to another. The first day does not count, the last one does, so the result for the same date twice is 0. It is negative if the second date is earlier. Leap years are taken into account. Use this for deadlines, ages of issues and lengths of projects.",
        parameters: &[
            mandatory("from", Text, "The first day, as YYYY-MM-DD."),
            mandatory("to", Text, "The last day, as YYYY-MM-DD."),
        ],
        run: days_between,
    },
    DemoTool {
        name: "add_days",
        effect: Effect::Reads,
        description: "Find the date that is a number of days after a date, or before it if the number is negative. The answer also has the day of the week, which helps to avoid deadlines at a weekend. Leap years and the lengths of months are taken into account.",
        parameters: &[
            mandatory("date", Text, "The date to start from, as YYYY-MM-DD."),
            mandatory(
                "days",
                Integer,
                "How many days later; negative for earlier.",
            ),
        ],
        run: add_days,
    },
    DemoTool {
        name: "weekday",
        effect: Effect::Reads,
        description: "Find the day of the week of a date, from Monday to Sunday, and the number of its week in the year by ISO 8601. Use this to name files of weekly reports, and to check dates that the user gives together with a day of the week.",
        parameters: &[mandatory("date", Text, "The date, as YYYY-MM-DD.")],
        run: weekday,
    },
    DemoTool {
        name: "statistics",
        effect: Effect::Reads,
        description: "Describe a list of numbers: how many there are, their sum, mean, median, smallest and largest value, and the standard deviation of the whole list. Use this for figures of surveys and measurements. For a column of a table in CSV use sum_column instead.",
        parameters: &[mandatory(
            "numbers",
            Numbers,
            "The numbers, at least one, for example [4, 5, 3].",
        )],
        run: statistics,
    },
    DemoTool {
        name: "percent_change",
        effect: Effect::Reads,
        description: "Calculate by how many percent a value has changed, relative to the old value: positive for growth, negative for decline, with two decimal places. The old value must not be 0. Use this when you compare figures of two months or two versions in a report.",
        parameters: &[
            mandatory("before", Number, "The old value, not 0."),
            mandatory("after", Number, "The new value."),
        ],
        run: percent_change,
    },
    DemoTool {
        name: "round_number",
        effect: Effect::Reads,
        description: "Round a number to a number of decimal places, halves away from zero, as it is usual in reports. Without decimal places the result is a whole number. Use this at the end of a calculation only, because rounded intermediate results lead to wrong sums.",
        parameters: &[
            mandatory("value", Number, "The number to round."),
            optional(
                "places",
                Integer,
                "Decimal places, 0 to 12. The default is 0.",
            ),
        ],
        run: round_number,
    },
    DemoTool {
        name: "sum_column",
        effect: Effect::Reads,
        description: "Add up one column of a table in CSV, and count its rows. With group_by the answer has one sum for each value of another column, for example the sales of each region, in alphabetical order. The first line of the table has the names of the columns. Fields of the summed column must be numbers.",
        parameters: &[
            mandatory(
                "csv",
                Text,
                "The table, with the names of the columns in the first line.",
            ),
            mandatory("column", Text, "Name of the column to add up."),
            optional(
                "group_by",
                Text,
                "Name of the column whose values form the groups.",
            ),
        ],
        run: sum_column,
    },
    DemoTool {
        name: "compound_interest",
        effect: Effect::Reads,
        description: "Calculate what an amount of money grows to with compound interest, paid once a year. The answer has the final amount and the interest, with two decimal places. Rates are in percent per year and may be negative. Taxes and fees are not taken into account.",
        parameters: &[
            mandatory("amount", Number, "The amount at the beginning."),
            mandatory(
                "rate",
                Number,
                "Percent per year, for example 3.5; above -100.",
            ),
            mandatory("years", Integer, "Number of years, 0 to 100."),
        ],
        run: compound_interest,
    },
];

/// A problem with the arguments of a calculation.
#[derive(Debug, thiserror::Error)]
enum CalcError {
    /// The expression is too long.
    #[error("argument expression: an expression may have {MAX_EXPRESSION_BYTES} bytes at most")]
    LongExpression,
    /// The table has no such column, or a field of it is no number.
    #[error("argument {argument}: {name:?} is not a column of the table, or not of numbers")]
    Column {
        argument: &'static str,
        name: String,
    },
}

fn evaluate(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let expression = arguments.text("expression");
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(CalcError::LongExpression.into());
    }
    Ok(arithmetic::evaluate(expression)?.to_string())
}

fn convert(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (value, from, to) = (
        arguments.number("value"),
        arguments.text("from"),
        arguments.text("to"),
    );
    let converted = units::convert(value, from, to)?;
    Ok(format!("{value} {from} = {converted:.4} {to}"))
}

fn days_between(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (from, to) = (arguments.date("from")?, arguments.date("to")?);
    Ok(format!("{} days", to.duration_since(from).as_hours() / 24))
}

fn add_days(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let far = || ArgumentError::Value("days", "fewer: there is no such date");
    let days = i32::try_from(arguments.integer("days").unwrap_or(0)).map_err(|_| far())?;
    let span = jiff::Span::new().try_days(days).map_err(|_| far())?;
    let date = arguments
        .date("date")?
        .checked_add(span)
        .map_err(|_| far())?;
    Ok(format!("{date}, {:?}", date.weekday()))
}

fn weekday(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let date = arguments.date("date")?;
    let week = date.iso_week_date().week();
    Ok(format!("{:?}, week {week}", date.weekday()))
}

fn statistics(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let mut numbers = arguments.numbers("numbers")?;
    numbers.sort_by(f64::total_cmp);
    let n = numbers.iter().map(|_| 1.0).sum::<f64>();
    let sum: f64 = numbers.iter().sum();
    let mean = sum / n;
    let deviation = (numbers.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / n).sqrt();
    let middle = numbers.len() / 2;
    let median = if numbers.len() % 2 == 0 {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    } else {
        numbers[middle]
    };
    let (least, most) = (numbers[0], numbers[numbers.len() - 1]);
    Ok(format!(
        "count {n}, sum {sum}, mean {mean:.4}, median {median}, smallest {least}, largest {most}, \
         standard deviation {deviation:.4}"
    ))
}

fn percent_change(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (before, after) = (arguments.number("before"), arguments.number("after"));
    if before == 0.0 {
        return Err(ArgumentError::Value("before", "a number other than 0").into());
    }
    Ok(format!("{:+.2} %", (after - before) / before.abs() * 100.0))
}

fn round_number(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let places = arguments.integer("places").unwrap_or(0);
    let places = i32::try_from(places)
        .ok()
        .filter(|it| (0..=12).contains(it));
    let places = places.ok_or(ArgumentError::Value("places", "0 to 12"))?;
    let factor = 10_f64.powi(places);
    let rounded = (arguments.number("value") * factor).round() / factor;
    Ok(rounded.to_string())
}

fn sum_column(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let rows = csv_rows(arguments.text("csv"))?;
    let (column, group_by) = (
        arguments.text("column"),
        arguments.optional_text("group_by"),
    );
    let wrong = |argument, name: &str| CalcError::Column {
        argument,
        name: name.into(),
    };
    let mut sums = std::collections::BTreeMap::<String, f64>::new();
    for row in &rows {
        let number = row.get(column).and_then(Value::as_f64);
        let number = number.ok_or_else(|| wrong("column", column))?;
        let group = match group_by {
            None => "sum".into(),
            Some(name) => {
                let value = row.get(name).ok_or_else(|| wrong("group_by", name))?;
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            }
        };
        *sums.entry(group).or_default() += number;
    }
    let lines: Vec<String> = sums
        .iter()
        .map(|(group, sum)| format!("{group}: {sum}"))
        .collect();
    Ok(format!("{} rows\n{}", rows.len(), lines.join("\n")))
}

fn compound_interest(_: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let years = arguments.integer("years").unwrap_or(0);
    let years = i32::try_from(years)
        .ok()
        .filter(|it| (0..=100).contains(it));
    let years = years.ok_or(ArgumentError::Value("years", "0 to 100"))?;
    let (amount, rate) = (arguments.number("amount"), arguments.number("rate"));
    if rate <= -100.0 {
        return Err(ArgumentError::Value("rate", "above -100").into());
    }
    let total = amount * (1.0 + rate / 100.0).powi(years);
    Ok(format!(
        "{total:.2}, of which {:.2} is interest",
        total - amount
    ))
}
