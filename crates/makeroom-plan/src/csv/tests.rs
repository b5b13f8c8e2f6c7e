//! Tests of the CSV files: columns, errors with their lines, bounds, and reading back what was written.

use std::io::{self, BufReader, Read};

use proptest::prelude::*;

use super::read::read_at_most;
use super::*;

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn columns_in_any_order_with_aliases() {
    let table = parse("\u{feff}size,buffer_id,begin,end,hint,alignment\r\n7,x, 1 ,4,-1,8\r\n\r\n").unwrap();
    assert_eq!(table.names, ["x"]);
    assert_eq!(table.buffers, [Buffer::new(1, 5, 7).aligned(8)]);
    assert_eq!(table.offsets, None);
}

#[test]
fn solutions_have_offsets() {
    let table = parse("id,lower,upper,size,offset\na,0,1,2,3").unwrap();
    assert_eq!(table.offsets, Some(vec![3]));
}

#[test]
fn errors_name_the_line() {
    assert_eq!(error(""), "file is empty");
    assert_eq!(error("\n\n"), "file is empty");
    assert_eq!(error("id,lower,size\n"), "line 1: column `upper` is missing");
    assert_eq!(error("id,lower,upper,end,size\n"), "line 1: duplicate column `end`");
    assert_eq!(error("id,start,lower,upper,size\n"), "line 1: duplicate column `lower`");
    assert_eq!(error("id,lower,upper,size,color\n"), "line 1: unknown column `color`");
    let header = "id,lower,upper,size\n";
    assert_eq!(error(&format!("{header}0,0,1\n")), "line 2: 3 fields, but the header has 4");
    assert_eq!(
        error(&format!("{header}0,0,1,5\n1,0,1,-5\n")),
        "line 3: `size` is not a whole number below 2^64: `-5`"
    );
    assert_eq!(error(&format!("{header}0,3,1,5\n")), "line 2: lifetime ends at 1, before it begins at 3");
    assert_eq!(error(&format!("{header}0,0,1,5\n\n1,0,1,5\n")), "line 4: text after an empty line");
    let gaps = "id,lower,upper,size,gaps\n0,0,9,5,\n1,0,9,5,2-3\n";
    assert_eq!(error(gaps), "line 3: `gaps` are not supported");
    let alignment = "id,lower,upper,size,alignment\n0,0,9,5,\n1,0,9,5,12\n";
    assert_eq!(error(alignment), "line 3: alignment is not a power of two: 12");
}

#[test]
fn an_inclusive_end_cannot_overflow() {
    let text = format!("id,lower,end,size\n0,0,{},1\n", u64::MAX);
    assert!(matches!(parse(&text), Err(CsvError::Number { line: 2, column: "end", .. })));
}

#[test]
fn endless_and_binary_input_ends_early() {
    let endless = BufReader::new(io::repeat(b'x'));
    assert_eq!(read(endless), Err(CsvError::LongLine { line: 1 }));
    let lines = &b"id,lower,upper,size\n"[..];
    assert_eq!(read(BufReader::new(lines.chain(io::repeat(b'7')))), Err(CsvError::LongLine { line: 2 }));
    assert_eq!(read(&b"id,lower,upper,size\n\xff,0,1,2\n"[..]), Err(CsvError::NotText { line: 2 }));
    let long_id = format!("id,lower,upper,size\n{},0,1,2\n", "x".repeat(MAX_ID + 1));
    assert_eq!(parse(&long_id), Err(CsvError::LongId { line: 2 }));
    let three = "id,lower,upper,size\na,0,1,2\nb,0,1,2\nc,0,1,2\n";
    assert_eq!(read_at_most(three.as_bytes(), 3).map(|table| table.buffers.len()), Ok(3));
    assert_eq!(read_at_most(three.as_bytes(), 2), Err(CsvError::TooManyBuffers { line: 4 }));
}

#[test]
fn values_in_messages_are_short_and_printable() {
    let long = "9".repeat(300);
    let text = error(&format!("id,lower,upper,size\nx,0,1,\u{1b}[2J{long}\n"));
    assert!(text.chars().count() < 120 && !text.contains('\u{1b}') && text.contains('…'), "{text}");
}

proptest! {
    #[test]
    fn a_written_table_reads_back(
        rows in prop::collection::vec(("[a-z0-9_./-]{0,12}", any::<u64>(), any::<u64>(), any::<u64>(), 0..64_u32, any::<u64>()), 0..20),
    ) {
        let buffers = rows.iter().map(|row| {
            Buffer::new(row.1.min(row.2), row.1.max(row.2), row.3).aligned(1 << row.4)
        });
        let table = Table {
            names: rows.iter().map(|row| row.0.clone()).collect(),
            buffers: buffers.collect(),
            offsets: Some(rows.iter().map(|row| row.5).collect()),
        };
        let mut text = Vec::new();
        table.write(table.offsets.as_deref().unwrap(), &mut text).unwrap();
        prop_assert_eq!(read(&text[..]), Ok(table));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), header: bool) {
        let mut text = if header { b"id,lower,upper,size\n".to_vec() } else { Vec::new() };
        text.extend(bytes);
        let _ = read(&text[..]);
    }

    #[test]
    fn any_fields_are_read_or_refused(text in "[0-9a-z,\n-]{0,80}", header: bool) {
        let text = if header { format!("id,lower,upper,size\n{text}") } else { text };
        if let Ok(table) = parse(&text) {
            prop_assert_eq!(table.names.len(), table.buffers.len());
        }
    }
}
