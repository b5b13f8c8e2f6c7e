//! The original 32-bit versions of functions. Current drivers still export them and return 201, because they belong
//! to contexts that can no longer be created; the function that created those returns 2.

use crate::abi::{In, Out};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::status::{Result, Status};

fn refuse() -> Result<()> {
    Session::open()?;
    Err(Status::INVALID_CONTEXT)
}

driver_functions! {
    fn cuMemAlloc(_address: Out<u32>, _bytes: u32) |_| { refuse() }

    fn cuMemAllocPitch(_address: Out<u32>, _pitch: Out<u32>, _width: u32, _height: u32, _element: u32) |_| {
        refuse()
    }

    fn cuMemFree(_address: u32) |_| { refuse() }

    fn cuMemGetInfo(_free: Out<u32>, _total: Out<u32>) |_| { refuse() }

    fn cuMemAllocHost(_address: Out<u64>, _bytes: u32) |_| { refuse() }

    fn cuMemcpyHtoD(_to: u32, _from: In<u8>, _bytes: u32) |_| { refuse() }

    fn cuMemcpyDtoH(_to: Out<u8>, _from: u32, _bytes: u32) |_| { refuse() }

    fn cuMemcpyDtoD(_to: u32, _from: u32, _bytes: u32) |_| { refuse() }

    fn cuMemsetD8(_address: u32, _value: u8, _count: u32) |_| { refuse() }

    fn cuMemsetD16(_address: u32, _value: u16, _count: u32) |_| { refuse() }

    fn cuMemsetD32(_address: u32, _value: u32, _count: u32) |_| { refuse() }

    fn cuCtxCreate(_context: Out<u64>, _flags: u32, device: i32) |_| {
        Session::open()?.machine.device(device)?;
        Err(Status::OUT_OF_MEMORY)
    }

    /// The only one that works. Sizes that exceed 32 bits are clamped.
    fn cuDeviceTotalMem(bytes: Out<u32>, device: i32) |_| {
        let session = Session::open()?;
        let device = session.machine.device(device)?;
        bytes.set(u32::try_from(session.machine.memory(device).1).unwrap_or(u32::MAX))
    }

    fn cuMemGetAddressRange(_start: Out<u32>, _bytes: Out<u32>, _address: u32) |_| { refuse() }
}
