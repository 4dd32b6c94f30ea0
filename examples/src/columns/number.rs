//! Numbers as C's printf and nccl-tests write them; which column they stand in is [`super::print`]'s.

/// Fits a value into `width` characters with as many of two decimals as there is room for, as nccl-tests does.
///
/// A value too large even without decimals is written with an exponent, which may still be wider.
pub fn fit(value: f64, width: usize) -> String {
    for decimals in [2, 1, 0] {
        let text = format!("{value:width$.decimals$}");
        if text.len() <= width {
            return text;
        }
    }
    let text = exponent(value, usize::from(width >= 7));
    format!("{text:>width$}")
}

/// C's `%g`: six significant digits, without trailing zeros, with an exponent when it is below -4 or above 5.
pub fn general(value: f64) -> String {
    const SIGNIFICANT: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string().to_lowercase() };
    }
    let rounded = format!("{value:.*e}", SIGNIFICANT as usize - 1);
    let power: i32 = rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    if (-4..SIGNIFICANT).contains(&power) {
        return trim_zeros(&format!("{value:.*}", (SIGNIFICANT - 1 - power) as usize)).to_owned();
    }
    let mantissa = rounded.split('e').next().unwrap_or(&rounded);
    format!("{}{}", trim_zeros(mantissa), exponent_suffix(power))
}

/// C's `%.{decimals}e`: at least two digits of exponent, with its sign.
fn exponent(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => format!("{mantissa}{}", exponent_suffix(power.parse().unwrap_or(0))),
        None => text, // not finite
    }
}

fn exponent_suffix(power: i32) -> String {
    format!("e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_decimals_there_is_room_for() {
        for (value, text) in [
            (0.0, "   0.00"),
            (12.345, "  12.35"),
            (1234.567, "1234.57"),
            (12345.67, "12345.7"),
            (1_234_567.8, "1234568"),
            (123_456_789.0, "1.2e+08"),
        ] {
            assert_eq!(fit(value, 7), text);
        }
        assert_eq!(fit(1234.5, 6), "1234.5");
        assert_eq!(fit(99_999_999.0, 6), " 1e+08");
    }

    #[test]
    fn general_is_printf_g() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (2.345_678_912, "2.34568"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23457e+06"),
            (1_048_576.0, "1.04858e+06"),
            (0.0001, "0.0001"),
            (0.000_012_345, "1.2345e-05"),
            (999_999.5, "1e+06"),
            (100_000.0, "100000"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
