//! Index files: rows survive, bytes are the same each time, and damaged files are errors.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

mod support;

use std::io::Cursor;
use std::path::Path;

use makeroom_gather::read_object;
use makeroom_index::{
    Column, Entry, IndexError, IndexFile, IndexWriter, Object, decode, encode, index_bytes, index_file,
};
use makeroom_job::answer;
use proptest::prelude::*;
use support::Random;

fn made_up(seed: u64, count: usize) -> Vec<Entry> {
    let mut random = Random(seed);
    (0..count).map(|number| random.entry(number)).collect()
}

fn object(source: &str) -> Object {
    Object {
        source: source.to_owned(),
        size: 7,
        etag: "e".to_owned(),
        modified_us: Some(1_750_000_000_000_000),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_survive(seed: u64, count in 0_usize..6) {
        let entries = made_up(seed, count);
        let bytes = encode(&entries).unwrap();
        prop_assert_eq!(&bytes, &encode(&entries).unwrap());
        prop_assert_eq!(decode(bytes).unwrap(), entries);
    }

    #[test]
    fn damaged_files_do_not_crash(seed: u64, flips in prop::collection::vec((any::<u64>(), any::<u8>()), 1..6)) {
        let mut bytes = encode(&made_up(seed % 8, 3)).unwrap();
        for (position, byte) in flips {
            let position = (position % bytes.len() as u64) as usize;
            bytes[position] = byte;
        }
        // Either an error, or rows: flipped bits of a number cannot be noticed.
        let _ = decode(bytes);
    }

    #[test]
    fn torn_files_are_errors(seed: u64, cut: u64) {
        let bytes = encode(&made_up(seed % 8, 3)).unwrap();
        let length = (cut % bytes.len() as u64) as usize;
        prop_assert!(decode(bytes[..length].to_vec()).is_err());
    }
}

#[test]
fn many_row_groups_are_one_table() {
    let entries = made_up(1, 40);
    let mut writer = IndexWriter::new(Vec::new()).unwrap();
    for part in entries.chunks(7) {
        writer.push(part).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let file = IndexFile::from_bytes(bytes.clone()).unwrap();
    assert_eq!(file.groups(), 6);
    let columns = file.columns(&["source", "object_bytes", "rank", "is_incomplete"]).unwrap();
    let [Column::Texts(sources), Column::Numbers(sizes), Column::Numbers(ranks), Column::Truths(incomplete)] =
        columns.as_slice()
    else {
        panic!("{columns:?}")
    };
    let rows: usize = entries.iter().map(|entry| entry.rows.recordings.len().max(1)).sum();
    assert_eq!((sources.len(), sizes.len(), ranks.len(), file.rows()), (rows, rows, rows, rows as u64));
    let recordings = entries.iter().flat_map(|entry| &entry.rows.recordings);
    let expected: Vec<Option<u64>> = recordings.map(|row| row.rank.map(u64::from)).collect();
    let written: Vec<Option<u64>> =
        ranks.iter().zip(incomplete).filter(|(_, known)| known.is_some()).map(|(rank, _)| *rank).collect();
    assert_eq!(written, expected);
    assert_eq!(decode(bytes).unwrap(), entries);
    assert!(matches!(file.columns(&["devices"]), Err(IndexError::Column { .. })));
    assert!(matches!(file.columns(&["nothing"]), Err(IndexError::Column { .. })));
}

#[test]
fn numbers_above_the_largest_signed_one_become_the_largest() {
    let mut entry = Random(3).entry(0);
    entry.object.size = u64::MAX;
    let read = decode(encode(&[entry]).unwrap()).unwrap();
    assert_eq!(read[0].object.size, i64::MAX as u64);
}

#[test]
fn foreign_files_are_named() {
    assert!(matches!(decode(b"not Parquet at all".to_vec()), Err(IndexError::Parquet(_))));
    let schema =
        parquet::schema::parser::parse_message_type("message other { required int64 rows; }").unwrap();
    let writer = parquet::file::writer::SerializedFileWriter::new(
        Vec::new(),
        schema.into(),
        std::sync::Arc::default(),
    );
    let error = decode(writer.unwrap().into_inner().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "this Parquet file is not part of a makeroom index");
}

/// A real log, whose answer is the same from the index.
#[test]
fn a_log_gives_the_same_answer_from_its_index_file() {
    let log = "Traceback (most recent call last):\n  File \"train.py\", line 25, in <module>\n    x = layer(x)\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 144.00 MiB. GPU 0 has a total capacity of 8.00 \
        GiB of which 61.00 MiB is free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the \
        allocated memory 7.00 GiB is allocated by PyTorch, and 684.00 MiB is reserved by PyTorch but unallocated.\n";
    let bytes = index_bytes(object("s3://bucket/job-77/rank3.log"), log.as_bytes()).unwrap();
    let path = std::env::temp_dir().join(format!("makeroom-index-{}.log", std::process::id()));
    std::fs::write(&path, log).unwrap();
    assert_eq!(bytes, index_file(object("s3://bucket/job-77/rank3.log"), &path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let entries = decode(bytes.clone()).unwrap();
    let rows = read_object("s3://bucket/job-77/rank3.log", Cursor::new(log.as_bytes()));
    assert_eq!(rows.recordings[0].rank, Some(3), "{rows:?}");
    assert_eq!(entries[0].rows, rows);
    assert_eq!(format!("{:?}", answer(&entries[0].rows)), format!("{:?}", answer(&rows)));
    let file = IndexFile::from_bytes(bytes).unwrap();
    let columns = file.columns(&["ran_out", "failed_bytes", "job_name"]).unwrap();
    assert_eq!(columns[0], Column::Truths(vec![Some(true)]));
    assert_eq!(columns[1], Column::Numbers(vec![Some(144 << 20)]));
}

/// Rows of a program that was recorded: devices, lines, steps and waste are there.
#[test]
fn a_recording_of_the_repository_survives() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut found = 0;
    for file in std::fs::read_dir(traces).unwrap().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if !file.path().is_file() || file.metadata().unwrap().len() > 2 << 20 {
            continue;
        }
        let object = object(&format!("/data/{name}"));
        let entry = makeroom_index::summarize_file(object, &file.path()).unwrap();
        found += entry.rows.recordings.len();
        assert_eq!(decode(encode(std::slice::from_ref(&entry)).unwrap()).unwrap(), [entry], "{name}");
    }
    assert!(found > 0);
}

#[test]
fn an_unreadable_object_is_a_row_with_the_reason() {
    let bytes = index_bytes(object("s3://bucket/model.pickle"), b"\x80\x04cos\nsystem\n.").unwrap();
    let file = IndexFile::from_bytes(bytes).unwrap();
    let Column::Texts(reasons) = &file.columns(&["unreadable"]).unwrap()[0] else { panic!() };
    assert!(reasons[0].as_ref().is_some_and(|reason| !reason.is_empty()), "{reasons:?}");
    let empty = index_bytes(object("s3://bucket/empty.room"), b"").unwrap();
    assert_eq!(decode(empty).unwrap()[0].rows.recordings, []);
}
