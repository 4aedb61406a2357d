//! A recursive descent evaluator for `+ - * / ^`, signs and parentheses.
//!
//! `^` binds tightest and to the right, signs come next, then `*` and `/`, then `+` and `-`.

/// The deepest nesting of parentheses, signs and powers. It bounds the recursion.
const MAX_DEPTH: usize = 64;

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArithmeticError {
    /// The divisor is zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The value is not finite.
    #[error("the value is too large")]
    TooLarge,
    /// The nesting is too deep.
    #[error("the expression is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A character is in the wrong place.
    #[error("unexpected {character:?} at position {position}")]
    Unexpected {
        /// The character.
        character: char,
        /// Its position, in characters from 1.
        position: usize,
    },
    /// A number or a parenthesis is missing at the end.
    #[error("the expression ends too early")]
    EndsEarly,
}

/// Returns the value of an expression.
///
/// # Errors
///
/// Returns the problem with the expression.
pub(super) fn evaluate(expression: &str) -> Result<f64, ArithmeticError> {
    let mut parser = Parser {
        text: expression,
        at: 0,
        depth: 0,
    };
    let value = parser.sum()?;
    if parser.peek().is_some() {
        return Err(parser.unexpected_error());
    }
    if value.is_finite() {
        Ok(value)
    } else {
        Err(ArithmeticError::TooLarge)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<f64, ArithmeticError> {
        let mut value = self.product()?;
        loop {
            if self.eat('+') {
                value += self.product()?;
            } else if self.eat('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, ArithmeticError> {
        let mut value = self.unary()?;
        loop {
            if self.eat('*') {
                value *= self.unary()?;
            } else if self.eat('/') {
                let divisor = self.unary()?;
                if divisor == 0.0 {
                    return Err(ArithmeticError::DivisionByZero);
                }
                value /= divisor;
            } else {
                return Ok(value);
            }
        }
    }

    fn unary(&mut self) -> Result<f64, ArithmeticError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ArithmeticError::TooDeep);
        }
        let value = if self.eat('-') {
            -self.unary()?
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, ArithmeticError> {
        let base = self.operand()?;
        if self.eat('^') {
            return Ok(base.powf(self.unary()?));
        }
        Ok(base)
    }

    fn operand(&mut self) -> Result<f64, ArithmeticError> {
        if self.eat('(') {
            let value = self.sum()?;
            return if self.eat(')') {
                Ok(value)
            } else {
                Err(self.unexpected_error())
            };
        }
        let rest = &self.text[self.at..];
        let rest = rest.trim_start();
        let end = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let Ok(value) = rest[..end].parse() else {
            return Err(self.unexpected_error());
        };
        self.at = self.text.len() - rest.len() + end;
        Ok(value)
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].trim_start().chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        if self.peek() != Some(wanted) {
            return false;
        }
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len() + wanted.len_utf8();
        true
    }

    fn unexpected_error(&self) -> ArithmeticError {
        let rest = self.text[self.at..].trim_start();
        let position = self.text[..self.text.len() - rest.len()].chars().count() + 1;
        match rest.chars().next() {
            Some(character) => ArithmeticError::Unexpected {
                character,
                position,
            },
            None => ArithmeticError::EndsEarly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_mathematics() {
        for (expression, value) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("-2 ^ 2", -4.0),
            ("2 ^ -1", 0.5),
            ("8 / 4 / 2", 1.0),
            ("1 - 2 - 3", -4.0),
            (" .5 * --4 ", 2.0),
        ] {
            assert_eq!(evaluate(expression), Ok(value), "{expression}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused_with_the_position() {
        for (expression, message) in [
            ("1 / 0", "division by zero"),
            ("1 + ", "the expression ends too early"),
            ("2 * é", "unexpected 'é' at position 5"),
            ("(1", "the expression ends too early"),
            ("1 2", "unexpected '2' at position 3"),
            ("1.2.3", "unexpected '1' at position 1"),
            ("9 ^ 9 ^ 9", "the value is too large"),
        ] {
            let error = evaluate(expression).unwrap_err();
            assert_eq!(error.to_string(), message, "{expression}");
        }
        for deep in ["(", "-", "2^"] {
            let error = evaluate(&deep.repeat(100_000)).unwrap_err();
            assert_eq!(error, ArithmeticError::TooDeep);
        }
    }
}
