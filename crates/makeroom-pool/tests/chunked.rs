//! Data larger than the free memory, in pieces: everything arrives, errors name the piece, nothing leaks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{self, Read};

use common::Gpu;
use makeroom_core::Bytes;
use makeroom_pool::{
    Allocator as _, Chunk, ChunkedMap, ChunkedUpload, DeviceBuffer, Options, PieceCause, Pool, PoolError,
    Result,
};

const LEN: usize = 3_000_001;

fn pool(gpu: &Gpu) -> Pool {
    let pool =
        Pool::new(gpu.driver, 0, Options { limit: Some(Bytes::mib(8)), ..Options::default() }).unwrap();
    pool.make_current().unwrap();
    pool
}

fn values() -> Vec<u32> {
    (0..LEN as u32).map(|number| number.wrapping_mul(2_654_435_761)).collect()
}

/// Work that takes a while on its stream and copies the values to the results.
fn pass_on(gpu: &Gpu, mut chunk: Chunk<'_, u32, u32>) -> Result<()> {
    gpu.keep_busy(chunk.stream.id().0, 1000);
    chunk.output.copy_from(&chunk.input)
}

#[test]
fn data_larger_than_the_room_goes_through_in_pieces() {
    let gpu = common::gpu("chunked");
    let before = gpu.driver.memory().unwrap().free;
    let pool = pool(&gpu);
    let (input, mut output) = (values(), vec![0; LEN]);
    let chunked = ChunkedMap::new(&pool).unwrap();
    for map in
        [chunked.clone(), chunked.clone().with_piece(Bytes::kib(700)), chunked.with_piece(Bytes::gib(1))]
    {
        output.fill(0);
        let done = map.map(&input, &mut output, |chunk| pass_on(&gpu, chunk)).unwrap();
        assert!(output == input);
        assert_eq!(done.values, LEN as u64);
        assert!(done.piece <= Bytes::mib(2), "two pieces in, two out, in 8 MiB: {done:?}");
        assert_eq!(done.pieces, (LEN as u64 * 4).div_ceil(done.piece.get()));
        let mut sizes = Vec::new();
        map.for_each(&input, |chunk| {
            assert!(chunk.output.is_empty());
            sizes.push((chunk.number, chunk.input.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!(sizes.iter().map(|(_, len)| len).sum::<usize>(), LEN);
        assert!(sizes.iter().map(|(number, _)| *number).eq(0..sizes.len() as u64));
    }
    let map = ChunkedMap::new(&pool).unwrap();
    let none: Vec<u32> = Vec::new();
    assert_eq!(map.map(&none, &mut Vec::<u32>::new(), |chunk| pass_on(&gpu, chunk)).unwrap().pieces, 0);
    assert!(map.map(&input, &mut [0_u32; 3], |chunk| pass_on(&gpu, chunk)).is_err());
    assert_eq!(pool.stats().live, pool.stats().pending);
    drop((map, pool));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}

/// Returns this many bytes, then fails.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(to.len()).ok_or(io::Error::other("unplugged"))?;
        Ok(to.len())
    }
}

#[test]
fn a_reader_is_a_source() {
    let gpu = common::gpu("chunked");
    let pool = pool(&gpu);
    let map = ChunkedMap::new(&pool).unwrap().with_piece(Bytes::kib(512));
    let (input, mut output) = (values(), Vec::new());
    let bytes: &[u8] = bytemuck::cast_slice(&input);
    // Readers may return short reads.
    let reader = bytes.chain(io::empty()).take(bytes.len() as u64);
    let take = |results: &[u32]| {
        output.extend_from_slice(results);
        Ok(())
    };
    map.map_reader(reader, |chunk| pass_on(&gpu, chunk), take).unwrap();
    assert!(output == input);

    let torn = map.map_reader(&bytes[..10], |chunk| pass_on(&gpu, chunk), |_| Ok(())).unwrap_err();
    assert!(torn.to_string().starts_with("piece 0"), "{torn}");
    assert!(torn.to_string().contains("the source ends 2 bytes into a value of 4"), "{torn}");

    let broken = map.map_reader(Broken(1_200_000), |chunk| pass_on(&gpu, chunk), |_| Ok(())).unwrap_err();
    let PoolError::Piece(piece) = broken else { panic!("{broken}") };
    assert_eq!((piece.number, piece.start, piece.bytes), (2, 1 << 20, Bytes::kib(512)));
    assert!(matches!(piece.cause, PieceCause::Read(_)));
}

#[test]
fn work_that_fails_is_named_and_everything_is_freed() {
    let gpu = common::gpu("chunked");
    let pool = pool(&gpu);
    let map = ChunkedMap::new(&pool).unwrap().with_piece(Bytes::kib(512));
    let (input, mut output) = (values(), vec![0_u32; LEN]);
    let error = map
        .map(&input, &mut output, |chunk| {
            if chunk.number == 3 {
                return DeviceBuffer::<u8>::uninitialized(chunk.stream, 1 << 30).map(drop);
            }
            pass_on(&gpu, chunk)
        })
        .unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(
        error.to_string().starts_with("piece 3 (512.00 KiB at byte 1572864 of the source): out of memory")
    );
    gpu.advance(1_000_000);
    pool.collect();
    assert_eq!(pool.stats().live, 0);
    assert!(map.map(&input, &mut output, |chunk| pass_on(&gpu, chunk)).is_ok(), "it works again");
    assert!(output == input);
}

#[test]
fn uploads_arrive_whole() {
    let gpu = common::gpu("chunked");
    let pool = Pool::new(gpu.driver, 0, Options::default()).unwrap();
    pool.make_current().unwrap();
    let stream = pool.stream().unwrap();
    let upload = ChunkedUpload::new(&pool).unwrap().with_piece(Bytes::kib(300));
    let input = values();
    gpu.keep_busy(stream.id().0, 10_000);
    assert!(upload.from_slice(&stream, &input).unwrap().to_host().unwrap() == input);
    let bytes: &[u8] = bytemuck::cast_slice(&input);
    assert!(upload.from_reader::<u32>(&stream, bytes, LEN).unwrap().to_host().unwrap() == input);
    let error = upload.from_reader::<u32>(&stream, &bytes[..4000], LEN).unwrap_err();
    assert!(error.to_string().contains("piece 0"), "{error}");
    assert!(upload.from_slice::<u32>(&stream, &[]).unwrap().is_empty());
}

/// Every driver call of a chunked transfer fails in turn: an error or the right results, and no leak.
#[test]
fn every_driver_call_may_fail() {
    let gpu = common::gpu("chunked");
    let input: Vec<u32> = (0..600_000).collect();
    let transfer = || {
        let pool = Pool::new(gpu.driver, 0, Options { limit: Some(Bytes::mib(8)), ..Options::default() })?;
        pool.make_current()?;
        let map = ChunkedMap::new(&pool)?.with_piece(Bytes::kib(512));
        let mut output = vec![0; input.len()];
        map.map(&input, &mut output, |chunk| pass_on(&gpu, chunk))?;
        let stream = pool.stream()?;
        let buffer = ChunkedUpload::new(&pool)?.with_piece(Bytes::kib(512)).from_slice(&stream, &input)?;
        assert!(output == input && buffer.to_host()? == input);
        Ok::<(), PoolError>(())
    };
    transfer().unwrap();
    for function in makeroom_cuda::raw::NAMES {
        for number in 1.. {
            let before = gpu.driver.memory().unwrap().free;
            gpu.fail_nth(function, number, 2);
            let answer = transfer();
            let was_hit = gpu.forget_faults() == 0;
            gpu.make_current();
            gpu.driver.synchronize().unwrap();
            assert_eq!(gpu.driver.memory().unwrap().free, before, "call {number} of {function}: {answer:?}");
            if !was_hit {
                answer.unwrap();
                break;
            }
        }
    }
}
