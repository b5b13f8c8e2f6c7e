//! The pool on a card that detects every mistake: random programs, failed calls, invalid frees, steady loops.

use std::collections::BTreeMap;

use makeroom_core::{Address, StreamId};
use makeroom_place::pool::{
    Allocated, BlockState, Cause, Counters, EVERY_STREAM, FreeError, PAGE, Policy, Settings, Timeout,
};
use proptest::prelude::*;

use crate::support::Card;

const MIB: u64 = 1 << 20;

/// A block as the program knows it.
#[derive(Clone, Debug)]
struct LiveBlock {
    address: Address,
    requested: u64,
    stream: StreamId,
    /// Other streams that use it.
    others: Vec<StreamId>,
}

/// A program on a pool, with its own records.
struct Program {
    pool: Policy,
    card: Card,
    held: Vec<LiveBlock>,
    /// Memory that was freed and is known to wait for streams may still count as live.
    refused: u64,
}

impl Program {
    fn new(card: Card, settings: Settings) -> Self {
        Self { pool: Policy::new(settings), card, held: Vec::new(), refused: 0 }
    }

    fn allocate(&mut self, size: u64, stream: StreamId) {
        match self.pool.allocate_block(&mut self.card, size, stream) {
            Ok(block) => self.hold(block, size, stream),
            Err(shortage) => {
                assert_eq!(shortage.requested, size);
                self.refused += 1;
            }
        }
    }

    /// The same, but only from free memory; returns whether it succeeded.
    fn allocate_at_once(&mut self, size: u64, stream: StreamId) -> bool {
        let done = self.pool.stats().done;
        let found = self.pool.allocate_at_once(&mut self.card, size, stream);
        let counters = |done: Counters| (done.created, done.mapped, done.unmapped, done.waits, done.refusals);
        assert_eq!(
            counters(self.pool.stats().done),
            counters(done),
            "neither moved, grown, waited nor failed"
        );
        if let Some(block) = found {
            self.hold(block, size, stream);
        }
        found.is_some()
    }

    fn hold(&mut self, block: Allocated, size: u64, stream: StreamId) {
        assert!(block.size >= size.max(1) && block.size < size + 512);
        self.card.handed_out(block.address, block.size, stream);
        self.card.submit(stream);
        let held = LiveBlock { address: block.address, requested: size, stream, others: Vec::new() };
        assert_eq!(self.pool.block_at(block.address), Some((block.block, size)));
        self.held.push(held);
    }

    fn share(&mut self, index: usize, stream: StreamId) {
        let held = &mut self.held[index];
        self.pool.record_stream(held.address, stream).expect("a block in use");
        self.card.submit(stream);
        if !held.others.contains(&stream) {
            held.others.push(stream);
        }
    }

    fn free(&mut self, index: usize) {
        let held = self.held.swap_remove(index);
        // The card must know first: the pool may reuse or unmap the memory in the same call.
        let streams: Vec<StreamId> = held.others.iter().copied().chain([held.stream]).collect();
        let freed = if held.stream == EVERY_STREAM {
            self.card.finish();
            self.card.given_back(held.address, &streams);
            self.pool.free_idle(held.address)
        } else {
            self.card.given_back(held.address, &streams);
            self.pool.free(&mut self.card, held.address, held.stream)
        };
        assert_eq!(freed.expect("a block in use").requested, held.requested);
    }

    /// Compares the pool's statistics with the program's records and the card's.
    fn check(&self) {
        let stats = self.pool.stats();
        let snapshot = self.pool.snapshot();
        assert_eq!(stats.reserved, self.card.taken(), "{stats:?}");
        assert_eq!(stats.reserved, stats.live + stats.rounding + stats.cached);
        let held: u64 = self.held.iter().map(|held| held.requested).sum();
        assert_eq!(stats.live, held + stats.pending);
        assert!(stats.peak_live >= stats.live && stats.peak_reserved >= stats.reserved);
        let mut mapped = BTreeMap::new();
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut pending, mut free) = (0, 0);
        for segment in &snapshot.segments {
            let mut at = segment.address.0;
            for &piece in &segment.pieces {
                mapped.insert(at, piece);
                at += piece.size;
            }
            assert_eq!(at, segment.address.0 + segment.size, "pieces fill their segment");
            at = segment.address.0;
            for block in &segment.blocks {
                assert_eq!(block.address.0, at, "blocks fill their segment");
                at += block.size;
                match block.state {
                    BlockState::Live { requested, .. } => {
                        blocks.insert(block.address.0, requested);
                    }
                    BlockState::Pending { requested, .. } => pending += requested,
                    BlockState::Free => free += block.size,
                }
            }
            assert_eq!(at, segment.address.0 + segment.size);
        }
        assert_eq!(mapped, self.card.mapped);
        let held: BTreeMap<u64, u64> =
            self.held.iter().map(|held| (held.address.0, held.requested)).collect();
        assert_eq!(blocks, held);
        assert_eq!(pending, stats.pending);
        let spare: u64 = snapshot.unmapped.iter().map(|piece| piece.size).sum();
        assert_eq!(free + spare, stats.cached);
        let count = (mapped.len() + snapshot.unmapped.len()) as u64;
        assert_eq!(count, stats.handles);
        assert_eq!(stats.done.created - stats.done.released, stats.handles);
    }

    /// Frees everything and trims: nothing may be left on the card.
    fn end(mut self) {
        self.card.refused_call = None;
        self.card.refused_multiple = None;
        while let Some(last) = self.held.len().checked_sub(1) {
            self.free(last);
        }
        self.card.finish();
        self.pool.trim(&mut self.card, 0, Timeout::Wait);
        self.check();
        assert_eq!((self.card.taken(), self.pool.stats().live), (0, 0), "{:?}", self.pool.stats());
        assert!(self.card.mapped.is_empty());
    }
}

/// A deterministic random generator without a dependency.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Small and large sizes are equally likely.
    fn size(&mut self, largest: u64) -> u64 {
        let scale = self.below(u64::from(largest.ilog2()));
        (1 + self.below(2 << scale)).min(largest)
    }
}

/// One random step of a program on some streams.
fn step(program: &mut Program, random: &mut Random, streams: u64, live: u64, largest: u64) {
    let stream = StreamId(random.below(streams));
    match random.below(32) {
        0 => program.card.advance(stream, random.below(50)),
        1 if streams > 1 && !program.held.is_empty() => {
            let index = random.below(program.held.len() as u64) as usize;
            program.share(index, stream);
        }
        2 if random.below(40) == 0 => {
            let keep = random.below(2) * program.pool.stats().reserved / 2;
            let timeout = [Timeout::Wait, Timeout::DoNotWait][random.below(2) as usize];
            program.pool.trim(&mut program.card, keep, timeout);
        }
        3 if random.below(200) == 0 => {
            program.pool.collect(&mut program.card, Timeout::DoNotWait);
        }
        _ if program.held.len() as u64 > random.below(2 * live) => {
            let index = random.below(program.held.len() as u64) as usize;
            program.free(index);
        }
        choice => {
            let stream = if choice == 31 { EVERY_STREAM } else { stream };
            program.allocate(random.size(largest), stream);
        }
    }
}

#[test]
fn random_programs_on_several_streams_keep_all_rules() {
    for seed in 0..24 {
        let mut random = Random(seed);
        let streams = 1 + random.below(4);
        let mut program = Program::new(Card::new(None), Settings::default());
        for number in 0..3000 {
            step(&mut program, &mut random, streams, 40, 64 * MIB);
            if number % 50 == 0 {
                program.check();
            }
        }
        program.end();
    }
}

#[test]
fn what_lies_free_is_handed_out_at_once_and_nothing_else_is_done_for_it() {
    let (first, second) = (StreamId(1), StreamId(2));
    let mut program = Program::new(Card::new(None), Settings::default());
    assert!(!program.allocate_at_once(MIB, first), "there is nothing");
    assert!(!program.allocate_at_once(u64::MAX, first), "no size");
    program.allocate(8 * MIB, first);
    program.free(0);
    assert!(!program.allocate_at_once(16 * MIB, first), "not so much");
    assert!(!program.allocate_at_once(8 * MIB, second), "the GPU is not done with it");
    program.card.finish();
    assert!(program.allocate_at_once(3 * MIB, second), "now it is");
    assert!(program.allocate_at_once(5 * MIB, first), "the rest is still its stream's");
    program.check();
    program.end();
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut program = Program::new(Card::new(None), Settings::default());
        let mut at_once = 0;
        for number in 0..2000 {
            let (size, stream) = (random.size(8 * MIB), StreamId(random.below(3)));
            at_once += u32::from(program.allocate_at_once(size, stream));
            step(&mut program, &mut random, 3, 40, 8 * MIB);
            if program.held.len() > 60 {
                program.free(random.below(60) as usize);
            }
            if number % 50 == 0 {
                program.check();
            }
        }
        assert!(at_once > 200, "{at_once}");
        program.end();
    }
}

#[test]
fn a_full_card_refuses_and_the_books_stay_right() {
    for seed in 0..12 {
        let mut random = Random(100 + seed);
        let limit = [None, Some(200 * MIB)][(seed % 2) as usize];
        let mut program = Program::new(Card::new(Some(256 * MIB)), Settings { limit });
        for number in 0..2000 {
            step(&mut program, &mut random, 2, 60, 64 * MIB);
            if number % 50 == 0 {
                program.check();
            }
            assert!(program.pool.stats().peak_reserved <= limit.unwrap_or(256 * MIB));
        }
        assert!(program.refused > 0);
        program.end();
    }
}

#[test]
fn the_books_are_exact_after_two_million_operations() {
    let mut random = Random(7);
    let mut program = Program::new(Card::new(None), Settings::default());
    for number in 0..2_000_000_u64 {
        step(&mut program, &mut random, 1, 200, 8 * MIB);
        if number % 100_000 == 0 {
            program.check();
        }
    }
    program.end();
}

/// A short program that grows, moves pages, shares, waits and trims.
fn busy(program: &mut Program) {
    let mut random = Random(42);
    for _ in 0..1500 {
        step(program, &mut random, 3, 12, 64 * MIB);
    }
}

#[test]
fn every_call_may_be_refused_once() {
    let mut all = Program::new(Card::new(Some(200 * MIB)), Settings::default());
    busy(&mut all);
    let calls = all.card.calls;
    assert!(calls > 300, "{calls} calls are too few to tell");
    all.end();
    for call in 0..calls {
        let mut program = Program::new(Card::new(Some(200 * MIB)), Settings::default());
        program.card.refused_call = Some(call);
        busy(&mut program);
        program.check();
        program.end();
    }
}

#[test]
fn many_calls_may_be_refused() {
    for multiple in [2, 3, 5, 7] {
        let mut program = Program::new(Card::new(Some(200 * MIB)), Settings::default());
        program.card.refused_multiple = Some(multiple);
        busy(&mut program);
        program.check();
        program.end();
    }
}

#[test]
fn wrong_frees_are_errors_and_change_nothing() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let stream = StreamId(0);
    let block = pool.allocate_block(&mut card, 4 * MIB, stream).expect("memory");
    let before = pool.stats();
    let inside = Address(block.address.0 + 512);
    assert_eq!(pool.free(&mut card, inside, stream), Err(FreeError::NotInUse(inside)));
    assert_eq!(pool.free(&mut card, Address(64), stream), Err(FreeError::Foreign(Address(64))));
    assert_eq!(pool.record_stream(inside, stream), Err(FreeError::NotInUse(inside)));
    assert_eq!(pool.stats(), before);
    pool.free(&mut card, block.address, stream).expect("a block in use");
    assert_eq!(pool.free(&mut card, block.address, stream), Err(FreeError::NotInUse(block.address)));
    assert_eq!(pool.free_idle(block.address), Err(FreeError::NotInUse(block.address)));
}

#[test]
fn a_block_that_waits_cannot_be_freed_again() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let block = pool.allocate_block(&mut card, 4 * MIB, StreamId(0)).expect("memory");
    card.submit(StreamId(1));
    pool.record_stream(block.address, StreamId(1)).expect("a block in use");
    pool.free(&mut card, block.address, StreamId(0)).expect("a block in use");
    assert_eq!(pool.stats().pending, 4 * MIB);
    assert_eq!(pool.free(&mut card, block.address, StreamId(0)), Err(FreeError::NotInUse(block.address)));
    assert_eq!(pool.collect(&mut card, Timeout::DoNotWait), 0);
    card.advance(StreamId(1), 1);
    assert_eq!(pool.collect(&mut card, Timeout::DoNotWait), 4 * MIB);
    assert_eq!((pool.stats().pending, pool.stats().live), (0, 0));
}

#[test]
fn a_loop_reaches_a_state_without_calls() {
    for (unit, every) in [(700_001, 3), (3_000_001, 2), (1_500_001, 4)] {
        let mut program = Program::new(Card::new(None), Settings::default());
        let mut quiet = 0;
        for _ in 0..400 {
            let calls = program.card.calls;
            for index in 1..40 {
                program.allocate(index * unit, StreamId(0));
                if index % every == every - 1 {
                    let middle = program.held.len() / 2;
                    program.free(middle);
                }
            }
            while !program.held.is_empty() {
                program.free(0);
            }
            quiet = if program.card.calls == calls { quiet + 1 } else { 0 };
        }
        assert!(quiet > 100, "the last {quiet} rounds made no calls: {:?}", program.pool.stats());
        program.end();
    }
}

/// Memory that the program itself returns does not count as a loop that fails to settle.
#[test]
fn a_loop_that_gives_its_memory_back_now_and_then_stays_small() {
    let (mut card, mut pool) = (Card::new(None), Policy::new(Settings::default()));
    let mut random = Random(7);
    // Every step has a different length, as in training, and the size of every block depends on it.
    for step in 0..1200 {
        let length = 16 + random.below(48);
        let sizes = [1, 3, 2, 4, 1, 2, 6, 1, 4, 3].map(|width| width * length * MIB / 8);
        let mut blocks = Vec::new();
        for (index, size) in sizes.into_iter().cycle().take(40).enumerate() {
            blocks.push(pool.allocate_block(&mut card, size, StreamId(0)).expect("memory").address);
            if index % 3 == 2 {
                let address = blocks.swap_remove(index % blocks.len());
                pool.free(&mut card, address, StreamId(0)).expect("a block in use");
            }
        }
        for address in blocks {
            pool.free(&mut card, address, StreamId(0)).expect("a block in use");
        }
        if step % 100 == 99 {
            pool.trim(&mut card, 0, Timeout::Wait);
        }
    }
    let stats = pool.stats();
    let ratio = stats.peak_reserved as f64 / stats.peak_live as f64;
    assert!(ratio < 1.015, "{ratio}, after {} handles went back", stats.done.released);
}

#[test]
fn a_block_is_found_from_any_address_inside_of_it() {
    let (mut card, mut pool) = (Card::new(None), Policy::new(Settings::default()));
    let sizes = [40_u64, 5000, 3 << 20, 40];
    let blocks = sizes.map(|size| pool.allocate_block(&mut card, size, StreamId(1)).expect("memory").address);
    for (address, size) in blocks.into_iter().zip(sizes) {
        for offset in [0, 1, size / 2, size - 1] {
            assert_eq!(
                pool.block_around(Address(address.0 + offset)),
                Some((address, size)),
                "{offset} of {size}"
            );
        }
    }
    assert_eq!(pool.block_around(Address(blocks[0].0 + 40)), None, "rounding is nobody's");
    assert_eq!(pool.block_around(Address(1)), None);
    pool.free(&mut card, blocks[1], StreamId(1)).expect("in use");
    assert_eq!(pool.block_around(Address(blocks[1].0 + 1)), None);
    assert_eq!(pool.block_around(blocks[1]), None);
}

#[test]
fn what_was_freed_last_is_free_whoever_asks() {
    const BYTES: u64 = 40_000;
    let (first, second) = (StreamId(1), StreamId(2));
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings::default());
    let kept = pool.allocate_block(&mut card, BYTES, first).expect("memory");
    let block = pool.allocate_block(&mut card, BYTES, first).expect("memory");
    let free = |pool: &mut Policy, card: &mut Card| pool.free(card, block.address, first);
    free(&mut pool, &mut card).expect("in use");
    assert_eq!((pool.stats().blocks, pool.stats().live), (1, BYTES));
    assert_eq!(pool.block_at(block.address), None);
    assert_eq!(free(&mut pool, &mut card), Err(FreeError::NotInUse(block.address)), "a second free");
    let again = pool.allocate_block(&mut card, BYTES, first).expect("memory");
    assert_eq!(again.address, block.address);

    free(&mut pool, &mut card).expect("in use");
    let segments = pool.snapshot().segments;
    let states = segments.iter().flat_map(|segment| &segment.blocks).map(|block| block.state);
    assert_eq!(states.filter(|state| matches!(state, BlockState::Live { .. })).count(), 1);
    let recorded = pool.record_stream(block.address, second);
    assert_eq!(recorded, Err(FreeError::NotInUse(block.address)), "it is free");
    let again = pool.allocate_block(&mut card, BYTES, first).expect("memory");
    assert_eq!(again.address, block.address, "still the best place");

    card.submit(first);
    free(&mut pool, &mut card).expect("in use");
    let other = pool.allocate_block(&mut card, BYTES, second).expect("memory");
    assert_ne!(other.address, block.address, "the GPU may still use it on its stream");
    free(&mut pool, &mut card).expect_err("freed before");
    pool.free(&mut card, kept.address, first).expect("in use");
    pool.free(&mut card, other.address, second).expect("in use");
    card.finish();
    pool.trim(&mut card, 0, Timeout::Wait);
    assert_eq!(pool.stats().reserved, 0, "what rests keeps no page");
}

#[test]
fn pages_move_instead_of_growing() {
    let mut program = Program::new(Card::new(None), Settings::default());
    for _ in 0..16 {
        program.allocate(32 * MIB, StreamId(0));
    }
    for index in (0..8).rev() {
        program.free(2 * index);
    }
    let before = program.pool.stats().reserved;
    program.card.finish();
    program.allocate(250 * MIB, StreamId(0));
    assert_eq!(program.pool.stats().reserved, before);
    assert!(program.pool.stats().done.unmapped > 0);
    program.check();
    program.end();
}

#[test]
fn a_refusal_carries_the_account() {
    let mut card = Card::new(None);
    let mut pool = Policy::new(Settings { limit: Some(64 * MIB) });
    let held = pool.allocate_block(&mut card, 40 * MIB, StreamId(0)).expect("memory");
    pool.free(&mut card, held.address, StreamId(0)).expect("a block in use");
    pool.allocate_block(&mut card, 30 * MIB, StreamId(0)).expect("memory");
    let shortage = pool.allocate_block(&mut card, 60 * MIB, StreamId(0)).expect_err("too much");
    assert_eq!(shortage.cause, Cause::Limit);
    assert_eq!((shortage.stats.live, shortage.limit), (30 * MIB, Some(64 * MIB)));
    assert_eq!(shortage.largest, 10 * MIB);
    let text = shortage.to_string();
    assert!(text.contains("60.00 MiB failed: the pool's limit was reached; 30.00 MiB live"), "{text}");
    let shortage = pool.allocate_block(&mut card, u64::MAX, StreamId(0)).expect_err("absurd");
    assert_eq!(shortage.cause, Cause::TooLarge);
}

#[test]
fn trimming_gives_back_what_no_block_shares() {
    let mut program = Program::new(Card::new(None), Settings::default());
    for _ in 0..8 {
        program.allocate(16 * MIB, StreamId(0));
    }
    for _ in 0..4 {
        program.free(4);
    }
    assert_eq!(program.pool.trim(&mut program.card, 0, Timeout::DoNotWait), 0, "the GPU is not done");
    program.card.finish();
    assert_eq!(program.pool.trim(&mut program.card, 96 * MIB, Timeout::DoNotWait), 32 * MIB);
    assert_eq!(program.pool.snapshot().unmapped, [], "what is kept stays where it is");
    program.check();
    assert_eq!(program.pool.trim(&mut program.card, 0, Timeout::Wait), 32 * MIB);
    program.check();
    program.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever the program does and whichever calls fail, the invariants hold after every step.
    #[test]
    fn the_rules_hold_after_every_step(
        steps in prop::collection::vec((0..6_u8, 0..3_u64, 0..1000_usize, 1..48 * MIB), 1..120),
        capacity in prop::option::of(32 * MIB..400 * MIB),
        refused in prop::option::of(2..30_u64),
    ) {
        let mut card = Card::new(capacity.map(|bytes| bytes / PAGE * PAGE));
        card.refused_multiple = refused;
        let mut program = Program::new(card, Settings::default());
        for (what, stream, index, size) in steps {
            let stream = StreamId(stream);
            match what {
                0 => program.card.advance(stream, index as u64 % 8),
                1 | 2 if !program.held.is_empty() => program.free(index % program.held.len()),
                3 if !program.held.is_empty() => program.share(index % program.held.len(), stream),
                4 => program.allocate(size % MIB + 1, stream),
                _ => program.allocate(size, stream),
            }
            program.check();
        }
        program.end();
    }
}

#[test]
fn a_refused_request_leaves_nothing_behind() {
    let mut program = Program::new(Card::new(Some(256 * MIB)), Settings::default());
    program.allocate(32 * MIB, StreamId(0));
    program.allocate(1024 * MIB, StreamId(0));
    assert_eq!(program.refused, 1);
    let stats = program.pool.stats();
    assert_eq!((stats.reserved, stats.peak_reserved), (32 * MIB, 32 * MIB));
    assert_eq!(program.card.taken(), 32 * MIB);
    program.check();
    program.end();
}
