//! Amounts as Kubernetes writes them: a worker that ran out of memory gets more, and a job stays within its cap.

/// Memory grows by this part, so that few attempts reach what is needed.
const GROWTH: (u64, u64) = (3, 2);
const MEBIBYTE: u64 = 1 << 20;

/// Reads an amount of bytes: `4Gi`, `512M`, `1e9`, `123456`; parts of a byte count as one. What is no amount is none.
///
/// ```
/// use salamander_kube::quantity::bytes;
/// assert_eq!(bytes("1.5Ki"), Some(1_536));
/// assert_eq!(bytes("much"), None);
/// ```
pub fn bytes(text: &str) -> Option<u64> {
    let value = value(text)?;
    (value <= u64::MAX as f64).then(|| value.ceil() as u64)
}

/// Reads an amount of anything: `500m` of a core is 0.5. What is no amount is none.
pub fn value(text: &str) -> Option<f64> {
    let suffixes: [(&str, f64); 14] = [
        ("Ki", 1024.0),
        ("Mi", 1024.0f64.powi(2)),
        ("Gi", 1024.0f64.powi(3)),
        ("Ti", 1024.0f64.powi(4)),
        ("Pi", 1024.0f64.powi(5)),
        ("Ei", 1024.0f64.powi(6)),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let suffix = suffixes.iter().find(|(suffix, _)| text.ends_with(suffix));
    let (number, factor) = match suffix {
        Some((suffix, factor)) => (&text[..text.len() - suffix.len()], *factor),
        None => (text, 1.0),
    };
    // Rust also reads "inf" and "nan", which are no amounts.
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
        return None;
    }
    let value = number.parse::<f64>().ok()? * factor;
    (value >= 0.0 && value.is_finite()).then_some(value)
}

/// Writes an amount of bytes, rounded up to whole mebibytes.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(MEBIBYTE))
}

/// The next amount to try after `now` was not enough; none if the limit is reached.
pub fn more(now: u64, most: u64) -> Option<u64> {
    let next = (now / GROWTH.1).saturating_mul(GROWTH.0).min(most);
    (next > now).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_kubernetes_reads_them() {
        let cases = [
            ("0", 0),
            ("128974848", 128_974_848),
            ("129e6", 129_000_000),
            ("129M", 129_000_000),
            ("123Mi", 123 << 20),
            ("1Ti", 1 << 40),
            ("500m", 1),
            ("0.5Gi", 1 << 29),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for wrong in ["", "Gi", "-1", "1 Gi", "4GB", "inf", "NaN", "1e400"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_grows_up_to_the_limit_and_no_further() {
        let (mut now, mut tried) = (1 << 30, Vec::new());
        while let Some(next) = more(now, 3 << 30) {
            tried.push(mebibytes(next));
            now = next;
        }
        assert_eq!(tried, ["1536Mi", "2304Mi", "3072Mi"]);
        assert_eq!(more(4 << 30, 3 << 30), None);
        assert_eq!(more(u64::MAX, u64::MAX), None);
    }
}
