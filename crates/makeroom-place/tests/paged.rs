//! Pages under random programs: blocks keep their contents, no page moves too early, and the figures add up, also if any
//! device call fails.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use makeroom_place::paged::{Mark, PageBacking, Paged, Settings, Standing, Waiting};
use makeroom_place::pool::{Handle, Piece, Refused, Timeout};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;
const SLOTS: u64 = 24;
/// What writes of other threads leave.
const LATE: u64 = 1 << 32;

/// A device that checks every call.
#[derive(Default)]
struct Checked {
    capacity: u64,
    host: u64,
    used: u64,
    last_handle: u64,
    /// Sizes of the handles, and whether each is in host memory.
    handles: HashMap<u64, (u64, bool)>,
    /// The handle at each address.
    mapped: BTreeMap<u64, Piece>,
    marks: u64,
    passed: u64,
    /// The mark up to which the GPU may use the memory at an address.
    in_use_until: HashMap<u64, u64>,
    /// The blocks that wrote to each 2 MiB of a handle.
    contents: HashMap<(u64, u64), HashSet<u64>>,
    /// The call that fails; counts down.
    fails_after: Option<u64>,
    may_wait: bool,
    waits: Vec<Timeout>,
    moves: u64,
    /// Addresses whose memory must not move.
    kept: HashSet<u64>,
    /// How often a look finds that another thread has submitted a write to all mapped memory.
    late: u32,
    late_writes: u64,
}

impl Checked {
    fn call(&mut self) -> Result<(), Refused> {
        match &mut self.fails_after {
            Some(0) => {
                self.fails_after = None;
                Err(Refused)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn new_handle(&mut self, size: u64, is_on_host: bool) -> Handle {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, (size, is_on_host));
        Handle(self.last_handle)
    }

    /// The handle that is mapped over an address, and where its mapping begins.
    fn mapping(&self, address: u64) -> Option<(u64, Piece)> {
        let (&start, &piece) = self.mapped.range(..=address).next_back()?;
        (address - start < piece.size).then_some((start, piece))
    }
}

impl PageBacking for Checked {
    fn create(&mut self, size: u64) -> Result<Handle, Refused> {
        self.call()?;
        if self.used + size > self.capacity {
            return Err(Refused);
        }
        self.used += size;
        Ok(self.new_handle(size, false))
    }

    fn create_on_host(&mut self, size: u64) -> Result<Handle, Refused> {
        self.call()?;
        if size > self.host {
            return Err(Refused);
        }
        self.host -= size;
        Ok(self.new_handle(size, true))
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refused> {
        assert!(self.mapped.values().all(|other| other.handle != piece.handle), "released while mapped");
        let (size, is_on_host) = self.handles.remove(&piece.handle.0).expect("a known handle");
        assert_eq!(size, piece.size);
        if is_on_host {
            self.host += size;
        } else {
            self.used -= size;
        }
        Ok(())
    }

    fn map(&mut self, address: u64, piece: Piece) -> Result<(), Refused> {
        self.call()?;
        assert!(self.mapped.values().all(|other| other.handle != piece.handle), "mapped twice");
        let overlapping = self.mapped.range(..address + piece.size).next_back();
        assert!(
            overlapping.is_none_or(|(&start, other)| start + other.size <= address),
            "mapped over another"
        );
        self.mapped.insert(address, piece);
        self.moves += u64::from(self.contents.contains_key(&(piece.handle.0, 0)));
        Ok(())
    }

    fn unmap(&mut self, address: u64, piece: Piece) -> Result<(), Refused> {
        self.call()?;
        let until = self.in_use_until.get(&address).copied().unwrap_or(0);
        assert!(until <= self.passed, "unmapped while the GPU may use it");
        assert!(!self.kept.contains(&address), "unmapped although it is pinned");
        assert_eq!(self.mapped.remove(&address), Some(piece));
        Ok(())
    }

    fn begin_copy(&mut self, address: u64, whole: Piece, parts: &[(u64, Piece)]) -> Result<(), Refused> {
        self.call()?;
        for (at, part) in parts {
            assert_eq!(self.mapped.get(at), Some(part));
            for offset in (0..part.size).step_by(2 * MIB as usize) {
                let written = self.contents.get(&(part.handle.0, offset)).cloned().unwrap_or_default();
                self.contents.insert((whole.handle.0, at - address + offset), written);
            }
        }
        Ok(())
    }

    fn end_copy(&mut self, _whole: Piece, is_finished: bool) -> Result<(), Refused> {
        self.call()?;
        if is_finished { Ok(()) } else { Err(Refused) }
    }

    fn replace(&mut self, address: u64, whole: Piece, parts: &[(u64, Piece)]) -> Result<(), Refused> {
        self.call()?;
        for (at, part) in parts {
            assert_eq!(self.mapped.remove(at), Some(*part));
        }
        self.mapped.insert(address, whole);
        Ok(())
    }

    fn mark(&mut self) -> Mark {
        self.marks += 1;
        Mark(self.marks)
    }

    fn passed(&mut self) -> Mark {
        Mark(self.passed)
    }

    fn passes_within(&mut self, mark: Mark, _time: Duration) -> bool {
        if self.late > 0 {
            self.late -= 1;
            self.late_writes += 1;
            return self.passed >= mark.0;
        }
        if self.may_wait {
            self.passed = self.passed.max(mark.0);
        }
        self.passed >= mark.0
    }
}

impl Waiting for Checked {
    fn wait(&mut self, mark: Mark, timeout: Timeout) -> Result<(), Refused> {
        assert_ne!(timeout, Timeout::DoNotWait);
        self.waits.push(timeout);
        self.call()?;
        if !self.may_wait {
            return Err(Refused);
        }
        self.passed = self.passed.max(mark.0);
        for number in 0..std::mem::take(&mut self.late_writes) {
            for piece in self.mapped.values() {
                self.contents.entry((piece.handle.0, 0)).or_default().insert(LATE + number);
            }
        }
        Ok(())
    }
}

/// The allocator above: first fit in the mapped slots of one range.
struct Program {
    pages: Paged,
    device: Checked,
    slot: u64,
    is_mapped: Vec<bool>,
    /// Sizes of blocks by address.
    blocks: BTreeMap<u64, u64>,
    /// What each block wrote to its memory, if it has some.
    written: BTreeMap<u64, u64>,
    allocated: u64,
    /// Blocks that lost memory to a failed call; their contents are not checked.
    unbacked: u64,
    /// Whether all memory of the range stays where it is.
    is_exempt: bool,
}

impl Program {
    fn new(slot: u64, capacity: u64, quota: u64, fails_after: Option<u64>) -> Self {
        let device = Checked { capacity, host: 2 * quota, fails_after, may_wait: true, ..Checked::default() };
        let mut pages = Paged::new(Settings { host_quota: quota });
        pages.reserve(BASE, SLOTS * slot);
        Self {
            pages,
            device,
            slot,
            is_mapped: vec![false; SLOTS as usize],
            blocks: BTreeMap::new(),
            written: BTreeMap::new(),
            allocated: 0,
            unbacked: 0,
            // Small slots keep their memory.
            is_exempt: slot == 2 * MIB,
        }
    }

    fn exempt(&mut self) {
        self.pages.exempt(&mut self.device, BASE);
        self.is_exempt = true;
    }

    fn is_free(&self, address: u64, size: u64) -> bool {
        let before = self.blocks.range(..address + size).next_back();
        before.is_none_or(|(&start, &length)| start + length <= address)
    }

    fn is_usable(&self, address: u64, size: u64) -> bool {
        let first = (address - BASE) / self.slot;
        let last = (address + size - 1 - BASE) / self.slot;
        last < SLOTS && (first..=last).all(|index| self.is_mapped[index as usize])
    }

    fn allocate(&mut self, size: u64) {
        let starts = std::iter::once(BASE)
            .chain((0..SLOTS).map(|index| BASE + index * self.slot))
            .chain(self.blocks.iter().map(|(&start, &length)| start + length));
        let found = starts.filter(|&at| self.is_usable(at, size) && self.is_free(at, size)).min();
        let Some(address) = found else { return };
        let result = self.pages.take(&mut self.device, address, size);
        self.allocated += 1;
        self.blocks.insert(address, size);
        if let Err(unbacked) = result {
            assert!(unbacked.bytes > 0);
            self.unbacked += 1;
        } else {
            for cell in self.cells(address, size) {
                self.device.contents.entry(cell).or_default().insert(self.allocated);
            }
            self.written.insert(address, self.allocated);
        }
    }

    /// The memory under each 2 MiB of a block: a handle, and the offset in it.
    fn cells(&self, address: u64, size: u64) -> Vec<(u64, u64)> {
        let first = address / (2 * MIB) * (2 * MIB);
        let parts = (first..address + size).step_by(2 * MIB as usize);
        let cell = |at: u64| {
            let (start, piece) = self.device.mapping(at).expect("a block has memory");
            (piece.handle.0, at - start)
        };
        parts.map(cell).collect()
    }

    fn free(&mut self, number: usize) {
        let Some((&address, &size)) = self.blocks.iter().nth(number % self.blocks.len().max(1)) else {
            return;
        };
        self.blocks.remove(&address);
        self.written.remove(&address);
        self.pages.give(&mut self.device, address, size);
        // The GPU may use everything under the block until the work submitted so far is done.
        let marks = self.device.marks;
        let starts: Vec<u64> = self.device.mapped.range(..address + size).map(|(&start, _)| start).collect();
        for start in starts {
            if start + self.device.mapped[&start].size > address {
                self.device.in_use_until.insert(start, marks);
            }
        }
    }

    /// The memory of mapped slots in a range must not move from now on.
    fn keep(&mut self, address: u64, size: u64) {
        let before = self.device.mapped.range(..address + size);
        let inside = before.filter(|&(&start, piece)| {
            start + piece.size > address && self.is_mapped[((start - BASE) / self.slot) as usize]
        });
        self.device.kept.extend(inside.map(|(&start, _)| start));
    }

    fn map(&mut self, index: u64) {
        let index = index % SLOTS;
        let free = self.device.capacity - self.device.used;
        if !self.is_mapped[index as usize] && self.pages.may_map(self.slot, free) {
            assert!(self.pages.map(&mut self.device, BASE + index * self.slot, self.slot));
            self.is_mapped[index as usize] = true;
        }
    }

    fn unmap(&mut self, index: u64) {
        let index = index % SLOTS;
        let address = BASE + index * self.slot;
        if self.is_mapped[index as usize] && self.is_free(address, self.slot) {
            // Who gives a slot up ends its pins.
            self.device.kept.retain(|&page| page < address || page >= address + self.slot);
            assert!(self.pages.unmap(&mut self.device, address));
            self.is_mapped[index as usize] = false;
        }
    }

    fn check(&self) {
        let stats = self.pages.stats();
        assert_eq!(stats.live, self.blocks.values().sum::<u64>());
        let sizes = |on_host| -> u64 {
            let found = self.device.handles.values().filter(|&&(_, is_on_host)| is_on_host == on_host);
            found.map(|&(size, _)| size).sum()
        };
        assert_eq!((stats.physical, stats.on_host), (sizes(false), sizes(true)));
        assert!(stats.peak_physical >= stats.physical && stats.peak_live >= stats.live);
        let mapped = self.is_mapped.iter().filter(|&&is_mapped| is_mapped).count() as u64;
        assert_eq!(stats.mapped, mapped * self.slot);
        for index in (0..SLOTS).filter(|&index| self.is_mapped[index as usize]) {
            let address = BASE + index * self.slot;
            let inside = self.device.mapped.range(address..address + self.slot);
            let is_whole = inside.map(|(_, piece)| piece.size).sum::<u64>() == self.slot;
            let standing = self.pages.standing(address, self.slot);
            assert_eq!(standing != Standing::Missing, is_whole, "{standing:?}");
            assert_eq!(standing == Standing::Kept, is_whole && self.is_exempt);
        }
        for (&address, written) in &self.written {
            for cell in self.cells(address, self.blocks[&address]) {
                assert!(self.device.contents[&cell].contains(written), "a block lost its contents");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Allocate(u64),
    Free(usize),
    Map(u64),
    Unmap(u64),
    Pass(u64),
    Pin(usize),
    Exempt,
    MayWait(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (1_u64..50_000).prop_map(|grains| Operation::Allocate(grains * 512)),
        8 => any::<usize>().prop_map(Operation::Free),
        4 => (0..SLOTS).prop_map(Operation::Map),
        2 => (0..SLOTS).prop_map(Operation::Unmap),
        2 => (0_u64..20).prop_map(Operation::Pass),
        1 => any::<usize>().prop_map(Operation::Pin),
        1 => Just(Operation::Exempt),
        1 => any::<bool>().prop_map(Operation::MayWait),
    ]
}

fn run(program: &mut Program, operations: &[Operation]) {
    for operation in operations {
        match *operation {
            Operation::Allocate(size) => program.allocate(size),
            Operation::Free(number) => program.free(number),
            Operation::Map(index) => program.map(index),
            Operation::Unmap(index) => program.unmap(index),
            Operation::Pass(back) => {
                let marks = program.device.marks.saturating_sub(back);
                program.device.passed = program.device.passed.max(marks);
            }
            Operation::Pin(number) => {
                if let Some((&address, &size)) =
                    program.blocks.iter().nth(number % program.blocks.len().max(1))
                {
                    program.pages.pin(&mut program.device, address, size);
                    program.keep(address, size);
                }
            }
            Operation::Exempt => {
                // Rarely: afterwards nothing moves.
                if program.allocated % 16 == 15 {
                    program.exempt();
                    program.keep(BASE, SLOTS * program.slot);
                }
            }
            Operation::MayWait(may) => program.device.may_wait = may,
        }
        program.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn blocks_have_memory_of_their_own(
        operations in proptest::collection::vec(operation(), 1..300),
        slot in prop_oneof![Just(2 * MIB), Just(20 * MIB), Just(12 * MIB)],
        capacity in 1_u64..500,
        host in prop_oneof![Just(0_u64), Just(100 * MIB)],
        fails_after in proptest::option::of(0_u64..200),
    ) {
        let mut program = Program::new(slot, capacity * MIB, host, fails_after);
        run(&mut program, &operations);
    }
}

#[test]
fn memory_of_a_slot_that_was_given_up_is_used_for_the_slots_of_an_exempt_range() {
    let mut program = Program::new(2 * MIB, 8 * MIB, 0, None);
    program.map(0);
    program.allocate(MIB);
    program.free(0);
    // The work of the block has not finished, so the memory stays where it is.
    program.device.may_wait = false;
    program.unmap(0);
    assert_eq!(program.pages.stats().physical, 2 * MIB);
    program.exempt();
    program.device.may_wait = true;
    for index in 1..5 {
        program.map(index);
        program.keep(BASE, SLOTS * program.slot);
        program.check();
    }
    let stats = program.pages.stats();
    assert_eq!((stats.physical, stats.moved), (8 * MIB, 1));
}

/// Blocks of two sizes, alternately freed, so that free space is scattered.
fn scatter(program: &mut Program) {
    for index in 0..SLOTS {
        program.map(index);
    }
    for _ in 0..12 {
        program.allocate(16 * MIB);
        program.allocate(4 * MIB);
    }
    // Every other block.
    for number in 0..12 {
        program.free(number);
    }
    program.device.passed = program.device.marks;
    for _ in 0..4 {
        program.allocate(40 * MIB);
    }
    program.check();
}

/// A slot of 20 MiB can become one handle while a block is placed in it, so its blocks are always looked at.
#[test]
fn only_ranges_of_small_slots_are_kept() {
    for (slot, count) in [(2 * MIB, 1), (20 * MIB, 0)] {
        let mut program = Program::new(slot, 1 << 40, 0, None);
        program.map(0);
        program.allocate(slot);
        program.exempt();
        assert_eq!(program.pages.kept_ranges().count(), count);
    }
}

#[test]
fn memory_moves_from_idle_pages_to_new_blocks() {
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    scatter(&mut program);
    let stats = program.pages.stats();
    assert!(stats.moved > 0 && program.device.moves > 0, "no page moved: {stats:?}");
    assert!(stats.peak_physical <= stats.peak_live + stats.peak_live / 8, "{stats:?}");
    assert!(stats.mapped > stats.peak_physical, "slots are virtual: {stats:?}");
}

/// A program that keeps moving memory may hold more over time, but never all mapped memory.
#[test]
fn the_allowance_of_a_long_run_is_bounded() {
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    for index in 0..SLOTS {
        program.map(index);
    }
    let half = SLOTS / 2 * program.slot;
    for round in 0..2000 {
        let address = BASE + round % 2 * half;
        program.pages.take(&mut program.device, address, half).unwrap();
        program.pages.give(&mut program.device, address, half);
        program.device.passed = program.device.marks;
    }
    let stats = program.pages.stats();
    assert!(stats.moved > 100_000, "{stats:?}");
    assert!(stats.peak_physical <= stats.peak_live + stats.peak_live / 6, "{stats:?}");
    assert!(stats.peak_physical > stats.peak_live + stats.peak_live / 8, "{stats:?}");
}

#[test]
fn each_call_can_fail() {
    let mut calls = 0;
    loop {
        let mut program = Program::new(20 * MIB, 1 << 40, 1 << 40, Some(calls));
        scatter(&mut program);
        if program.device.fails_after.is_some() {
            break;
        }
        calls += 1;
    }
    assert!(calls > 30, "{calls}");
}

#[test]
fn an_invalid_slot_changes_nothing() {
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    for (address, size) in [(BASE, 0), (BASE + MIB, 20 * MIB), (BASE, 1000 * MIB), (1, 2 * MIB)] {
        assert!(!program.pages.map(&mut program.device, address, size), "{address:#x} {size}");
    }
    program.map(0);
    program.allocate(20 * MIB);
    assert!(!program.pages.map(&mut program.device, BASE, 20 * MIB), "mapped already");
    assert!(!program.pages.map(&mut program.device, BASE + 20 * MIB, 2 * MIB), "another size");
    program.check();
    assert_eq!(program.pages.stats().physical, 20 * MIB);
}

#[test]
fn the_commit_rule_counts_what_is_held_and_what_is_free() {
    let mut program = Program::new(20 * MIB, 100 * MIB, 0, None);
    for index in 0..SLOTS {
        program.map(index);
    }
    assert_eq!(program.pages.stats().mapped, 100 * MIB);
    for _ in 0..5 {
        program.allocate(20 * MIB);
    }
    assert_eq!((program.pages.stats().physical, program.unbacked), (100 * MIB, 0));
    assert!(!program.pages.may_map(20 * MIB, 0));
}

#[test]
fn a_full_device_uses_idle_pages_and_then_host_memory() {
    let mut program = Program::new(20 * MIB, 60 * MIB, 40 * MIB, None);
    for index in 0..5 {
        program.map(index);
    }
    for _ in 0..3 {
        program.allocate(20 * MIB);
    }
    program.allocate(20 * MIB);
    assert_eq!((program.pages.stats().on_host, program.unbacked), (20 * MIB, 0));
    program.free(0);
    program.allocate(20 * MIB);
    assert_eq!(program.pages.stats().on_host, 20 * MIB);
}

/// Another process takes memory that the commit rule counted on: host memory serves what is mapped, and nothing more is mapped.
#[test]
fn a_debt_on_the_host_stops_growth() {
    let mut program = Program::new(20 * MIB, 60 * MIB, 20 * MIB, None);
    for index in 0..4 {
        program.map(index);
    }
    program.device.capacity = 20 * MIB;
    for _ in 0..3 {
        program.allocate(20 * MIB);
    }
    assert_eq!((program.pages.stats().on_host, program.unbacked), (40 * MIB, 0));
    assert!(!program.pages.may_map(20 * MIB, 1 << 40), "the debt is more than the quota");
    program.free(2);
    program.device.passed = program.device.marks;
    program.unmap(2);
    assert!(program.pages.may_map(20 * MIB, 1 << 40));
}

/// A slot whose memory could not be released is released with its range.
#[test]
fn a_range_that_is_given_back_keeps_no_memory() {
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    program.map(0);
    program.allocate(20 * MIB);
    program.free(0);
    program.device.may_wait = false;
    program.unmap(0);
    assert_eq!((program.pages.stats().mapped, program.pages.stats().physical), (0, 20 * MIB));
    assert!(!program.pages.unreserve(&mut program.device, BASE), "the GPU may still use it");
    program.device.passed = program.device.marks;
    assert!(program.pages.unreserve(&mut program.device, BASE));
    assert_eq!((program.pages.stats().physical, program.pages.contains(BASE)), (0, false));
}

/// A GPU that does not come to an end delays a block of many pages once, not once per page.
#[test]
fn a_wait_that_timed_out_is_not_repeated_for_the_same_block() {
    let mut program = Program::new(20 * MIB, 200 * MIB, 0, None);
    for index in 0..10 {
        program.map(index);
    }
    program.allocate(80 * MIB);
    program.allocate(20 * MIB);
    program.free(0);
    program.device.may_wait = false;
    // All of it is new memory, although the policy prefers idle pages.
    program.blocks.insert(BASE, 80 * MIB);
    program.allocate(100 * MIB);
    program.blocks.remove(&BASE);
    assert_eq!((program.unbacked, &program.device.waits[..]), (0, &[Timeout::WaitBriefly][..]));
}

/// Memory that others know by its handle is one handle with the same contents.
#[test]
fn a_slot_becomes_one_handle() {
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    program.map(0);
    program.map(1);
    program.allocate(6 * MIB);
    program.allocate(20 * MIB);
    let before = program.device.handles.len();
    assert!(before > 2, "{before} handles");
    let handle = program.pages.make_whole_now(&mut program.device, BASE + 7 * MIB).unwrap();
    assert_eq!(program.device.mapped[&BASE], Piece { handle, size: 20 * MIB });
    assert_eq!(program.pages.make_whole_now(&mut program.device, BASE), Some(handle), "once");
    program.check();
    program.keep(BASE, 20 * MIB);
    program.free(0);
    program.free(0);
    program.allocate(39 * MIB);
    program.check();
    program.free(0);
    program.unmap(0);
    program.unmap(1);
    assert_eq!((program.device.handles.len(), program.pages.stats().physical), (0, 0));
    // It fails if the device does not come to an end.
    program.map(0);
    program.allocate(6 * MIB);
    program.device.may_wait = false;
    assert_eq!(program.pages.make_whole_now(&mut program.device, BASE), None);
    program.check();
}

/// Other threads write while a slot waits to become one handle.
#[test]
fn a_slot_becomes_one_handle_only_on_an_idle_device() {
    for late in [1, 3, 8] {
        let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
        program.map(0);
        program.allocate(20 * MIB);
        program.device.late = late;
        let handle = program.pages.make_whole_now(&mut program.device, BASE).unwrap();
        program.check();
        assert!(program.device.contents[&(handle.0, 0)].contains(&LATE), "a write was lost");
    }
    // A device that is never idle.
    let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
    program.map(0);
    program.allocate(20 * MIB);
    program.device.late = u32::MAX;
    let before = program.pages.stats().physical;
    assert_eq!(program.pages.make_whole_now(&mut program.device, BASE), None);
    assert_eq!((program.pages.stats().physical, program.device.waits.len()), (before, 8));
    program.check();
}

/// A device may have the memory of a freed block registered.
#[test]
fn memory_that_large_blocks_had_does_not_move_once_it_may_be_registered() {
    let moved = |is_registered: bool| {
        let mut program = Program::new(20 * MIB, 1 << 40, 0, None);
        program.map(0);
        program.map(1);
        program.allocate(20 * MIB);
        program.free(0);
        program.device.passed = program.device.marks;
        if is_registered {
            program.pages.keep_large();
            program.keep(BASE, 20 * MIB);
        }
        // The first slot is taken, for the test's own search only.
        program.blocks.insert(BASE, 20 * MIB);
        program.allocate(20 * MIB);
        program.blocks.remove(&BASE);
        program.check();
        program.pages.stats().moved
    };
    assert!(moved(false) > 0);
    assert_eq!(moved(true), 0);
}
