//! A device: its properties, its primary context, its pools.

use std::ffi::c_char;

use makeroom_core::Bytes;

use crate::abi::Location;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Code, Result};
use crate::pool::MemoryPool;

/// Buffer size for a device's name.
const LONGEST_NAME: i32 = 128;

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    driver: &'static Driver,
    number: i32,
}

/// Attributes of a device; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attribute {
    /// Major version of its compute capability.
    CapabilityMajor = 75,
    /// Minor version of its compute capability.
    CapabilityMinor = 76,
    /// Maximum shared memory per block in bytes, for kernels that opt in.
    SharedMemoryPerBlock = 97,
    /// Whether it supports the virtual memory API: addresses and memory managed separately.
    VirtualMemory = 102,
    /// Whether it supports stream-ordered memory.
    MemoryPools = 115,
    /// The nearest NUMA node of the host; negative if the host has no nodes.
    HostNode = 134,
    /// Whether memory of a host node can be mapped for the device.
    HostNodeVirtualMemory = 141,
}

impl Device {
    pub(crate) fn new(driver: &'static Driver, number: i32) -> Self {
        Self { driver, number }
    }

    /// Its index.
    pub fn number(self) -> i32 {
        self.number
    }

    /// Its memory as a location.
    pub fn location(self) -> Location {
        Location::device(self.number)
    }

    /// Its name.
    pub fn name(self) -> Result<String> {
        let mut name: [c_char; LONGEST_NAME as usize] = [0; LONGEST_NAME as usize];
        // SAFETY: the buffer has the stated size.
        unsafe { self.driver.device_name(name.as_mut_ptr(), LONGEST_NAME, self.number) }?;
        let letters = name.iter().take_while(|letter| **letter != 0);
        let letters: Vec<u8> = letters.map(|letter| letter.to_ne_bytes()[0]).collect();
        Ok(String::from_utf8_lossy(&letters).into_owned())
    }

    /// Its total memory.
    pub fn total_memory(self) -> Result<Bytes> {
        let mut bytes = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.device_total(&raw mut bytes, self.number) }?;
        Ok(Bytes::new(bytes as u64))
    }

    /// The value of an attribute.
    pub fn attribute(self, attribute: Attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.device_attribute(&raw mut value, attribute as u32, self.number) }?;
        Ok(value)
    }

    /// Fails if this device cannot access the memory of another.
    pub fn check_reach(self, other: i32) -> Result<()> {
        let mut possible = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.device_can_reach(&raw mut possible, self.number, other) }?;
        if possible == 0 {
            return Err(self.driver.refused("cuDeviceCanAccessPeer", Code::PEER_ACCESS_UNSUPPORTED));
        }
        Ok(())
    }

    /// Retains the primary context, which all libraries of a process share. Balance each retain with a release.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn retain_primary(self) -> Result<Context> {
        let mut context = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.primary_retain(&raw mut context, self.number) }?;
        Ok(Context::primary(self.driver, context, self.number))
    }

    /// Creates a separate context, current on this thread.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn create_context(self) -> Result<Context> {
        let mut context = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.context_create(&raw mut context, 0, self.number) }?;
        Ok(Context::created(self.driver, context))
    }

    /// The device's default pool.
    pub fn default_pool(self) -> Result<MemoryPool> {
        let mut pool = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.device_default_pool(&raw mut pool, self.number) }?;
        Ok(MemoryPool::of_device(self.driver, pool))
    }

    /// The pool for stream-ordered allocations that name none.
    pub fn current_pool(self) -> Result<MemoryPool> {
        let mut pool = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver.device_pool(&raw mut pool, self.number) }?;
        Ok(MemoryPool::of_device(self.driver, pool))
    }

    /// Changes the current pool.
    pub fn set_current_pool(self, pool: &MemoryPool) -> Result<()> {
        // SAFETY: the pool is live; when it is destroyed the driver goes back to the default one.
        unsafe { self.driver.device_set_pool(self.number, pool.handle()) }
    }
}
