//! The pool on several streams: which stream owns memory, which streams it waits for and how long, and what retired
//! streams leave behind.

use makeroom_core::{Address, StreamId};
use makeroom_place::pool::{BlockState, Cause, EVERY_STREAM, PAGE, Policy, Settings, Timeout};

use crate::support::Card;

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_another_stream_is_used_only_after_a_mark() {
    let mut card = Card::new(Some(64 * MIB));
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("memory");
    card.handed_out(block.address, block.size, StreamId(1));
    card.submit(StreamId(1));
    card.given_back(block.address, &[StreamId(1)]);
    pool.free(&mut card, block.address, StreamId(1)).expect("a block in use");
    assert_eq!(pool.stats().done.fences, 0, "a free costs no fence");
    let other = pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect("the same memory");
    card.handed_out(other.address, other.size, StreamId(2));
    assert_eq!((pool.stats().done.fences, pool.stats().done.waits), (1, 1));
    assert_eq!(pool.stats().reserved, 60 * MIB);
}

#[test]
fn a_retired_stream_leaves_its_memory_to_all() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 8 * MIB, StreamId(5)).expect("memory");
    card.submit(StreamId(5));
    pool.free(&mut card, block.address, StreamId(5)).expect("a block in use");
    pool.retire_stream(&mut card, StreamId(5), Timeout::WaitBriefly);
    let fences = pool.stats().done.fences;
    // A new stream with the same ID is not the old one.
    pool.allocate_block(&mut card, 8 * MIB, StreamId(5)).expect("the same memory");
    assert_eq!((pool.stats().reserved, pool.stats().done.fences), (8 * MIB, fences));
}

#[test]
fn the_fences_of_a_stream_that_is_gone_say_nothing_of_another_with_its_handle() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    for _ in 0..3 {
        let block = pool.allocate_block(&mut card, 60 * MIB, StreamId(5)).expect("memory");
        card.handed_out(block.address, block.size, StreamId(5));
        card.submit(StreamId(5));
        card.given_back(block.address, &[StreamId(5)]);
        pool.free(&mut card, block.address, StreamId(5)).expect("a block in use");
        let other = pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect("memory");
        card.handed_out(other.address, other.size, StreamId(2));
        card.given_back(other.address, &[StreamId(2)]);
        pool.free(&mut card, other.address, StreamId(2)).expect("a block in use");
        pool.retire_stream(&mut card, StreamId(5), Timeout::WaitBriefly);
    }
}

#[test]
fn a_block_that_a_gone_stream_used_comes_back() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 8 * MIB, StreamId(1)).expect("memory");
    pool.record_stream(block.address, StreamId(7)).expect("a block in use");
    card.submit(StreamId(7));
    pool.retire_stream(&mut card, StreamId(7), Timeout::WaitBriefly);
    pool.free(&mut card, block.address, StreamId(1)).expect("a block in use");
    pool.collect(&mut card, Timeout::Wait);
    assert_eq!((pool.stats().live, pool.stats().pending), (0, 0));
}

/// The stream may be waiting for the very thread that requests memory, as with `cuStreamWaitValue`.
#[test]
fn another_stream_is_waited_for_only_when_new_memory_was_refused() {
    let mut card = Card::new(Some(128 * MIB));
    card.stuck.insert(StreamId(1));
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("memory");
    card.submit(StreamId(1));
    pool.free(&mut card, block.address, StreamId(1)).expect("a block in use");
    pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect("new memory");
    assert_eq!(card.waited, []);
    assert_eq!(pool.stats().reserved, 120 * MIB);
    let shortage = pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect_err("no memory");
    assert_eq!(shortage.cause, Cause::Device);
    assert!(card.waited.contains(&(StreamId(1), Timeout::Wait)), "{:?}", card.waited);
    // The pool waited for it once; from now on, it only checks whether the stream has made progress.
    let waits = card.waited.len();
    pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect_err("still no memory");
    assert_eq!(card.waited.len(), waits);
    card.finish();
    pool.allocate_block(&mut card, 60 * MIB, StreamId(2)).expect("the other stream's memory");
    assert_eq!(pool.stats().reserved, 120 * MIB);
}

/// A library allocates in the middle of a framework's step and gets memory that the framework's stream has freed but
/// not yet passed.
#[test]
fn memory_for_every_stream_is_worth_a_moment() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("memory");
    card.handed_out(block.address, block.size, StreamId(1));
    card.submit(StreamId(1));
    card.given_back(block.address, &[StreamId(1)]);
    pool.free(&mut card, block.address, StreamId(1)).expect("a block in use");
    let found = pool.allocate_block(&mut card, 30 * MIB, EVERY_STREAM).expect("the stream's memory");
    card.handed_out(found.address, found.size, EVERY_STREAM);
    assert_eq!(card.waited, [(StreamId(1), Timeout::WaitBriefly)]);
    assert_eq!((found.address, pool.stats().reserved), (block.address, 60 * MIB));
    // After a wait that timed out, the next request does not wait.
    card.submit(StreamId(1));
    pool.allocate_block(&mut card, 30 * MIB, StreamId(1))
        .map(|rest| pool.free(&mut card, rest.address, StreamId(1)))
        .expect("memory")
        .expect("a block in use");
    card.stuck.insert(StreamId(1));
    for reserved in [80 * MIB, 100 * MIB] {
        pool.allocate_block(&mut card, 20 * MIB, EVERY_STREAM).expect("new memory");
        assert_eq!((card.waited.len(), pool.stats().reserved), (2, reserved));
    }
}

#[test]
fn nobody_is_waited_for_where_another_stream_is_idle() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let blocks =
        [1, 2].map(|stream| pool.allocate_block(&mut card, 60 * MIB, StreamId(stream)).expect("memory"));
    for (stream, block) in [1, 2].into_iter().zip(blocks) {
        card.submit(StreamId(stream));
        pool.free(&mut card, block.address, StreamId(stream)).expect("a block in use");
    }
    card.stuck.insert(StreamId(1));
    card.advance(StreamId(2), 1);
    let found = pool.allocate_block(&mut card, 30 * MIB, EVERY_STREAM).expect("the idle stream's memory");
    assert_eq!((found.address, pool.stats().reserved), (blocks[1].address, 120 * MIB));
    assert_eq!(card.waited, []);
}

#[test]
fn a_late_stream_of_its_own_is_waited_for_once_and_then_the_pool_grows() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let blocks: Vec<Address> = (0..4)
        .map(|_| pool.allocate_block(&mut card, 32 * MIB, StreamId(1)).expect("memory").address)
        .collect();
    card.submit(StreamId(1));
    for &block in [&blocks[0], &blocks[2]] {
        pool.free(&mut card, block, StreamId(1)).expect("a block in use");
    }
    card.stuck.insert(StreamId(1));
    pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("new memory");
    pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("new memory");
    assert_eq!(card.waited, [(StreamId(1), Timeout::WaitBriefly)]);
    // Once the GPU makes progress, pages move again.
    card.stuck.clear();
    card.finish();
    let before = pool.stats().reserved;
    pool.allocate_block(&mut card, 60 * MIB, StreamId(1)).expect("what was free");
    assert_eq!(pool.stats().reserved, before);
}

#[test]
fn the_places_of_streams_that_are_gone_are_used_again() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let mut kept = Vec::new();
    for number in 1..2000 {
        let stream = StreamId(number);
        let block = pool.allocate_block(&mut card, 8 * MIB, stream).expect("memory");
        card.handed_out(block.address, block.size, stream);
        card.submit(stream);
        card.given_back(block.address, &[stream]);
        pool.free(&mut card, block.address, stream).expect("a block in use");
        if number % 500 == 0 {
            let block = pool.allocate_block(&mut card, 4096, stream).expect("memory");
            kept.push((block.address, stream));
        }
        pool.retire_stream(&mut card, stream, Timeout::WaitBriefly);
    }
    assert!(pool.streams() < 100, "{} places", pool.streams());
    assert_eq!(pool.stats().reserved, 10 * MIB);
    let snapshot = pool.snapshot();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let streams: Vec<_> = blocks
        .filter(|block| matches!(block.state, BlockState::Live { .. }))
        .map(|block| (block.address, block.stream.expect("a stream")))
        .collect();
    assert_eq!(streams, kept, "a block keeps the name of its stream");
}

/// Streams with varying requests take what they need from each other, and leave the rest.
#[test]
fn a_stream_borrows_what_it_needs_and_no_more() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let (one, two) = (StreamId(1), StreamId(2));
    let block = pool.allocate_block(&mut card, MIB, one).expect("memory");
    pool.free(&mut card, block.address, one).expect("a block in use");
    card.finish();
    let borrowed = pool.allocate_block(&mut card, 256 << 10, two).expect("memory");
    assert_eq!((pool.stats().reserved, card.waited.len()), (PAGE, 0));
    let calls = card.calls;
    // The rest still belongs to the first stream, immediately and without a check.
    pool.allocate_block(&mut card, 512 << 10, one).expect("memory");
    assert_eq!(card.calls, calls);
    pool.free(&mut card, borrowed.address, two).expect("a block in use");
}
