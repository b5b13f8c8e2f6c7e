//! Memory of other APIs, shareable handles, multicast objects, green contexts.
//!
//! A shareable handle is a file whose content identifies the process and the object. In another process, importing it
//! is an error.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};

use makeroom_simcard::PAGE;

use crate::abi::{ExternalBuffer, ExternalMemory, In, MulticastProperties, Out};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::machine::{ExternalId, GreenId, HandleId, Location, MulticastId, PoolAttribute, PoolId};
use crate::status::{Result, Status};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, and its equivalent for external memory.
pub(super) const FILE_DESCRIPTOR: i32 = 1;
/// Streams of a green context do not synchronize with the default stream.
const GREEN_DEFAULT_STREAM: u32 = 1;

/// A pointer exported to another process.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SharedPointer {
    process: u64,
    address: u64,
    unused: [u64; 6],
}

/// The content of a resource descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Resource {
    kind: i32,
    padding: [u8; 92],
    rest: [u64; 6],
}

/// Creates a file that identifies an object of this process.
fn hand_over(name: u64) -> Result<i32> {
    // SAFETY: the name is NUL-terminated; the result is checked.
    let descriptor = unsafe { libc::memfd_create(c"makeroom-simgpu".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Status::OUT_OF_MEMORY);
    }
    // SAFETY: the descriptor is new and has no other owner.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    let content = [u64::from(std::process::id()).to_le_bytes(), name.to_le_bytes()].concat();
    file.write_all(&content).map_err(|_| Status::OUT_OF_MEMORY)?;
    Ok(file.into_raw_fd())
}

/// Reads such a file.
fn taken_over(descriptor: u64) -> Result<u64> {
    let content = std::fs::read(format!("/proc/self/fd/{descriptor}")).map_err(|_| Status::INVALID_VALUE)?;
    let words: Vec<u64> =
        content.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?))).collect();
    match *words {
        [process, name] if process == u64::from(std::process::id()) => Ok(name),
        [_, _] => Err(Status::NOT_SUPPORTED),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn of_files(kind: i32, flags: u64) -> Result<()> {
    match (kind, flags) {
        (FILE_DESCRIPTOR, 0) => Ok(()),
        (FILE_DESCRIPTOR, _) => Err(Status::INVALID_VALUE),
        _ => Err(Status::NOT_SUPPORTED),
    }
}

driver_functions! {
    fn cuImportExternalMemory(memory: Out<u64>, description: In<ExternalMemory>) |_| {
        let mut session = Session::open()?;
        memory.required()?;
        let description = description.get()?;
        of_files(description.kind, 0)?;
        memory.set(session.machine.import_external(description.bytes)?.0)
    }

    fn cuDestroyExternalMemory(memory: u64) |_| {
        Session::open()?.machine.destroy_external(ExternalId(memory))
    }

    fn cuExternalMemoryGetMappedBuffer(address: Out<u64>, memory: u64, buffer: In<ExternalBuffer>) |call| {
        let (mut session, _) = call.in_context()?;
        address.required()?;
        let buffer = buffer.get()?;
        address.set(session.machine.map_external(ExternalId(memory), buffer.offset, buffer.bytes)?)
    }

    fn cuMemExportToShareableHandle(descriptor: Out<i32>, handle: u64, kind: i32, flags: u64) |_| {
        let session = Session::open()?;
        descriptor.required()?;
        of_files(kind, flags)?;
        session.machine.handle_location(HandleId(handle))?;
        descriptor.set(hand_over(handle)?)
    }

    fn cuMemImportFromShareableHandle(handle: Out<u64>, descriptor: u64, kind: i32) |_| {
        let mut session = Session::open()?;
        handle.required()?;
        of_files(kind, 0)?;
        let name = taken_over(descriptor)?;
        session.machine.share_handle(HandleId(name))?;
        handle.set(name)
    }

    fn cuMemPoolExportToShareableHandle(descriptor: Out<i32>, pool: u64, kind: i32, flags: u64) |_| {
        let session = Session::open()?;
        descriptor.required()?;
        of_files(kind, flags)?;
        session.machine.pool_attribute(PoolId(pool), PoolAttribute::Reserved)?;
        descriptor.set(hand_over(pool)?)
    }

    fn cuMemPoolImportFromShareableHandle(pool: Out<u64>, descriptor: u64, kind: i32, flags: u64) |_| {
        let mut session = Session::open()?;
        pool.required()?;
        of_files(kind, flags)?;
        pool.set(session.machine.import_pool(PoolId(taken_over(descriptor)?))?.0)
    }

    fn cuMemPoolExportPointer(exported: Out<SharedPointer>, address: u64) |_| {
        let session = Session::open()?;
        let address = session.machine.ordered_block(address)?;
        exported.set(SharedPointer { process: u64::from(std::process::id()), address, unused: [0; 6] })
    }

    fn cuMemPoolImportPointer(address: Out<u64>, pool: u64, exported: In<SharedPointer>) |call| {
        let (mut session, context) = call.in_context()?;
        address.required()?;
        let exported = exported.get()?;
        if exported.process != u64::from(std::process::id()) {
            return Err(Status::NOT_SUPPORTED);
        }
        address.set(session.machine.import_ordered(context, PoolId(pool), exported.address)?)
    }

    fn cuMulticastGetGranularity(bytes: Out<u64>, _properties: In<MulticastProperties>, _option: u32) |_| {
        Session::open()?;
        bytes.set(PAGE)
    }

    fn cuMulticastCreate(handle: Out<u64>, properties: In<MulticastProperties>) |_| {
        let mut session = Session::open()?;
        handle.required()?;
        let wanted = properties.get()?;
        handle.set(session.machine.create_multicast(wanted.devices as usize, wanted.bytes)?.0)
    }

    fn cuMulticastAddDevice(handle: u64, device: i32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.add_to_multicast(MulticastId(handle), device)
    }

    fn cuMulticastBindMem(
        handle: u64, offset: u64, memory: u64, _memory_offset: u64, bytes: u64, _flags: u64,
    ) |_| {
        let mut session = Session::open()?;
        let Location::Device(device) = session.machine.handle_location(HandleId(memory))? else {
            return Err(Status::INVALID_VALUE);
        };
        session.machine.bind_multicast(MulticastId(handle), offset, device, bytes)
    }

    fn cuMulticastBindAddr(handle: u64, offset: u64, address: u64, bytes: u64, _flags: u64) |_| {
        let mut session = Session::open()?;
        let found = session.machine.pointed(address).filter(|found| !found.on_host);
        let device = found.ok_or(Status::INVALID_VALUE)?.device;
        session.machine.bind_multicast(MulticastId(handle), offset, device, bytes)
    }

    fn cuMulticastUnbind(handle: u64, device: i32, offset: u64, bytes: u64) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.unbind_multicast(MulticastId(handle), device, offset, bytes)
    }

    /// All multiprocessors of the GPU: they are not divided here.
    fn cuDeviceGetDevResource(device: i32, resource: Out<Resource>, kind: i32) |_| {
        let session = Session::open()?;
        session.machine.device(device)?;
        resource.set(Resource { kind, padding: [0; 92], rest: [0; 6] })
    }

    fn cuDevResourceGenerateDesc(description: Out<u64>, resources: In<Resource>, count: u32) |_| {
        Session::open()?;
        if count == 0 || resources.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        description.set(1)
    }

    fn cuGreenCtxCreate(context: Out<u64>, description: u64, device: i32, flags: u32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        context.required()?;
        if description == 0 || flags != GREEN_DEFAULT_STREAM {
            return Err(Status::INVALID_VALUE);
        }
        context.set(session.machine.create_green(device)?.0)
    }

    fn cuGreenCtxDestroy(context: u64) |_| { Session::open()?.machine.destroy_green(GreenId(context)) }

    fn cuCtxFromGreenCtx(context: Out<u64>, green: u64) |_| {
        let mut session = Session::open()?;
        context.required()?;
        context.set(session.machine.green_context(GreenId(green))?.0)
    }
}
