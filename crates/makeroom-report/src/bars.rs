//! Bars of block characters, with a resolution of 1/8 column.

/// Partial columns, in eighths.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of `share` of `columns`. Any share above zero shows at least a sliver.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (share * columns as f64 * 8.0).round() as usize;
    if share > 0.0 {
        eighths = eighths.max(1);
    }
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.0001, 10), "▏");
        assert_eq!(bar(0.55, 10), "█████▌");
        assert_eq!(bar(1.0, 10), "██████████");
        assert_eq!(bar(7.0, 3), "███");
        assert_eq!(bar(f64::NAN, 3), "");
    }
}
