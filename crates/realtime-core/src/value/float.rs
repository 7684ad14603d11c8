//! `float4` and `float8`: read to the nearest value, ordered as PostgreSQL orders them, with NaN
//! equal to itself and above infinity, and -0 equal to 0.
//!
//! Must never be used for a decimal type.

use super::ValueError;

/// Reads a `float8` and appends its key.
pub fn encode8(text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let value: f64 = text.parse().map_err(|_| MALFORMED)?;
    // Too large, or so small that it vanished: PostgreSQL refuses both.
    if (value.is_infinite() || value == 0.0) && is_finite_nonzero(text) {
        return Err(ValueError::OutOfRange { type_name: "float8" });
    }
    let bits = if value.is_nan() {
        u64::MAX
    } else {
        ordered8(value + 0.0)
    };
    out.extend(bits.to_be_bytes());
    Ok(())
}

/// Reads a `float4`, rounding once to single precision, and appends its key.
pub fn encode4(text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let value: f32 = text.parse().map_err(|_| MALFORMED)?;
    if (value.is_infinite() || value == 0.0) && is_finite_nonzero(text) {
        return Err(ValueError::OutOfRange { type_name: "float4" });
    }
    let bits = if value.is_nan() {
        u32::MAX
    } else {
        ordered4(value + 0.0)
    };
    out.extend(bits.to_be_bytes());
    Ok(())
}

const MALFORMED: ValueError = ValueError::Malformed { expected: "a number" };

/// Whether a text that parses as a float writes a number other than zero and infinity.
fn is_finite_nonzero(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

/// Adding 0.0 before has turned -0 into 0.
fn ordered8(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn ordered4(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}
