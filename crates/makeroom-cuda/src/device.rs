//! A device: what it is, its primary context, its pools.

use std::ffi::c_char;

use makeroom_core::Bytes;

use crate::abi::Location;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Code, Result};
use crate::pool::MemoryPool;

/// The longest name that is asked for.
const LONGEST_NAME: i32 = 128;

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    driver: &'static Driver,
    number: i32,
}

/// What can be asked of a device; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attribute {
    /// The first number of its compute capability.
    CapabilityMajor = 75,
    /// The second.
    CapabilityMinor = 76,
    /// Bytes of shared memory that a block may have if it asks.
    SharedMemoryPerBlock = 97,
    /// Whether addresses and memory can be had apart.
    VirtualMemory = 102,
    /// Whether there is stream-ordered memory.
    MemoryPools = 115,
    /// The host's node that is nearest to it; negative where the host has no nodes.
    HostNode = 134,
    /// Whether memory of a host node can be mapped for the device.
    HostNodeVirtualMemory = 141,
}

impl Device {
    pub(crate) fn new(driver: &'static Driver, number: i32) -> Self {
        Self { driver, number }
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self.number
    }

    /// Its memory as a place.
    pub fn location(self) -> Location {
        Location::device(self.number)
    }

    /// Its name.
    pub fn name(self) -> Result<String> {
        let mut name: [c_char; LONGEST_NAME as usize] = [0; LONGEST_NAME as usize];
        // SAFETY: the name has a place of the size that is said.
        unsafe { self.driver.device_name(name.as_mut_ptr(), LONGEST_NAME, self.number) }?;
        let letters = name.iter().take_while(|letter| **letter != 0);
        let letters: Vec<u8> = letters.map(|letter| letter.to_ne_bytes()[0]).collect();
        Ok(String::from_utf8_lossy(&letters).into_owned())
    }

    /// All its memory.
    pub fn total_memory(self) -> Result<Bytes> {
        let mut bytes = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.device_total(&raw mut bytes, self.number) }?;
        Ok(Bytes::new(bytes as u64))
    }

    /// What the device can do, as a number.
    pub fn attribute(self, attribute: Attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.device_attribute(&raw mut value, attribute as u32, self.number) }?;
        Ok(value)
    }

    /// An error where this device cannot reach the memory of another.
    pub fn check_reach(self, other: i32) -> Result<()> {
        let mut possible = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.device_can_reach(&raw mut possible, self.number, other) }?;
        if possible == 0 {
            return Err(self.driver.refused("cuDeviceCanAccessPeer", Code::PEER_ACCESS_UNSUPPORTED));
        }
        Ok(())
    }

    /// The context that all libraries of a process share. Retain it as often as you release it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn retain_primary(self) -> Result<Context> {
        let mut context = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.primary_retain(&raw mut context, self.number) }?;
        Ok(Context::primary(self.driver, context, self.number))
    }

    /// A context of its own, current on this thread.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn create_context(self) -> Result<Context> {
        let mut context = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.context_create(&raw mut context, 0, self.number) }?;
        Ok(Context::created(self.driver, context))
    }

    /// The pool that was there from the start.
    pub fn default_pool(self) -> Result<MemoryPool> {
        let mut pool = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.device_default_pool(&raw mut pool, self.number) }?;
        Ok(MemoryPool::of_device(self.driver, pool))
    }

    /// The pool that stream-ordered memory comes from where none is named.
    pub fn current_pool(self) -> Result<MemoryPool> {
        let mut pool = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver.device_pool(&raw mut pool, self.number) }?;
        Ok(MemoryPool::of_device(self.driver, pool))
    }

    /// Changes that pool.
    pub fn set_current_pool(self, pool: &MemoryPool) -> Result<()> {
        // SAFETY: the pool is live; when it is destroyed the driver goes back to the first one.
        unsafe { self.driver.device_set_pool(self.number, pool.handle()) }
    }
}
