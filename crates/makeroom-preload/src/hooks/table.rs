//! The table of hooked functions: the rows, in the grammar of `grammar.rs`.
//!
//! Functions have several variants: without a suffix those of the first CUDA versions, some with 32-bit sizes; `_v2`
//! and later with other parameters; `_ptsz` with a per-thread default stream. Each variant is a function of its own
//! with exactly its parameters, and names are compared whole: `cudnn…` and `cublas…` also start with `cu`.

use std::ffi::{c_char, c_void};

use makeroom_trace::room::EventKind as Kind;

use super::waits::{self, Awaited, Wait};
use super::{code, resolve};
use crate::call::{Call, Role};
use crate::driver::array::{array_bytes, mipmapped_bytes};
use crate::driver::done::Done;
use crate::driver::function::Function;
use crate::driver::types::{
    CuResult, Device, DevicePointer, Handle, IpcHandle, NO_DRIVER, OUT_OF_MEMORY, SUCCESS, ShortPointer,
};
use crate::driver::{capture, real};
use crate::event::{Moment, record};
use crate::fields::field;
use crate::limit::contexts::{self, Making};
use crate::record::event::{RawEvent, Word as _};
use crate::{clock, limit, pages, pool, sample, startup, state};

fn event(kind: Kind) -> RawEvent {
    RawEvent::new(kind)
}

/// The result of pages for `cuMemCreate`. Growth that they reject is recorded as if the driver had failed: an explanation needs
/// the free memory at that time.
///
/// # Safety
///
/// `properties` is the program's parameter.
unsafe fn created(served: Option<CuResult>, bytes: usize, properties: *const c_void) -> Option<CuResult> {
    if served == Some(OUT_OF_MEMORY) {
        // SAFETY: guaranteed by the caller; pages serve only calls with properties.
        let (_, device) = unsafe { Done(OUT_OF_MEMORY).location(properties, CREATE_LOCATION) };
        let event = event(Kind::PhysicalCreate).size(bytes).on_device(device);
        Call::aside(|| record(event, OUT_OF_MEMORY, Moment::After));
    }
    served
}

/// Whether an address is that of a hook.
pub(crate) fn is_hook(address: *mut c_void) -> bool {
    Function::ALL.iter().any(|&function| hook(function) == address)
}

hooks! {
    // Initialization, and function lookup.
    cuInit(flags: u32) { then |done| if done.is_ok() { startup::start(); } }
    cuGetProcAddress(symbol: *const c_char, place: *mut *mut c_void, version: i32, flags: u64) {
        then |done| resolve::replace(symbol, place, done)
    }
    cuGetProcAddress_v2(
        symbol: *const c_char, place: *mut *mut c_void, version: i32, flags: u64, status: *mut i32
    ) {
        then |done| resolve::replace(symbol, place, done)
    }

    // Linear device memory.
    cuMemAlloc(pointer: *mut ShortPointer, bytes: u32) {
        limited limit::reserve(bytes.word(), None), took |done| event(Kind::DeviceAlloc).at(done.out(pointer)).size(bytes)
    }
    cuMemAlloc_v2(pointer: *mut DevicePointer, bytes: usize) {
        served pool::allocate_everywhere(pointer, bytes as u64), limited limit::reserve(bytes.word(), None), took |done| event(Kind::DeviceAlloc).at(done.out(pointer)).size(bytes)
    }
    cuMemAllocPitch(pointer: *mut ShortPointer, pitch: *mut u32, width: u32, height: u32, element: u32) {
        limited limit::reserve(width.saturating_mul(height).word(), None), took |done| event(Kind::PitchedAlloc)
            .at(done.out(pointer))
            .size(u64::from(done.out(pitch).max(width)).saturating_mul(height.into()))
            .extra(done.out(pitch))
    }
    cuMemAllocPitch_v2(
        pointer: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize, element: u32
    ) {
        limited limit::reserve(width.saturating_mul(height).word(), None), took |done| event(Kind::PitchedAlloc)
            .at(done.out(pointer))
            .size(done.out(pitch).max(width).saturating_mul(height))
            .extra(done.out(pitch))
    }
    cuMemAllocManaged(pointer: *mut DevicePointer, bytes: usize, flags: u32) {
        took |done| event(Kind::ManagedAlloc).at(done.out(pointer)).size(bytes).extra(flags)
    }
    cuMemFree(pointer: ShortPointer) { gave |_done| event(Kind::DeviceFree).at(pointer) }
    cuMemFree_v2(pointer: DevicePointer) { served pool::free(pointer), gave |_done| event(Kind::DeviceFree).at(pointer) }

    // Pinned host memory.
    cuMemAllocHost(pointer: *mut Handle, bytes: u32) {
        took |done| event(Kind::PinnedAlloc).at(done.handle(pointer)).size(bytes)
    }
    cuMemAllocHost_v2(pointer: *mut Handle, bytes: usize) {
        took |done| event(Kind::PinnedAlloc).at(done.handle(pointer)).size(bytes)
    }
    cuMemHostAlloc(pointer: *mut Handle, bytes: usize, flags: u32) {
        took |done| event(Kind::PinnedAlloc).at(done.handle(pointer)).size(bytes).extra(flags)
    }
    cuMemFreeHost(pointer: *mut c_void) { gave |_done| event(Kind::PinnedFree).at(pointer) }
    cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: u32) {
        took |_done| event(Kind::HostRegister).at(pointer).size(bytes).extra(flags)
    }
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32) {
        took |_done| event(Kind::HostRegister).at(pointer).size(bytes).extra(flags)
    }
    cuMemHostUnregister(pointer: *mut c_void) { gave |_done| event(Kind::HostUnregister).at(pointer) }

    // Stream-ordered memory and its pools.
    cuMemAllocAsync(pointer: *mut DevicePointer, bytes: usize, stream: Handle) {
        served pool::allocate_on_stream(pointer, bytes, stream), limited limit::reserve(bytes.word(), None), took |done| event(Kind::StreamAlloc).at(done.out(pointer)).size(bytes).on(stream)
    }
    cuMemAllocAsync_ptsz(pointer: *mut DevicePointer, bytes: usize, stream: Handle) {
        served pool::allocate_on_stream(pointer, bytes, per_thread(stream)), limited limit::reserve(bytes.word(), None), took |done| event(Kind::StreamAlloc)
            .at(done.out(pointer)).size(bytes).on(per_thread(stream))
    }
    cuMemAllocFromPoolAsync(pointer: *mut DevicePointer, bytes: usize, pool: Handle, stream: Handle) {
        served pool::allocate_from(pointer, bytes, pool, stream), limited limit::reserve(bytes.word(), None), took |done| event(Kind::StreamAlloc)
            .at(done.out(pointer)).size(bytes).from(pool).on(stream)
    }
    cuMemAllocFromPoolAsync_ptsz(pointer: *mut DevicePointer, bytes: usize, pool: Handle, stream: Handle) {
        served pool::allocate_from(pointer, bytes, pool, per_thread(stream)), limited limit::reserve(bytes.word(), None), took |done| event(Kind::StreamAlloc)
            .at(done.out(pointer)).size(bytes).from(pool).on(per_thread(stream))
    }
    cuMemFreeAsync(pointer: DevicePointer, stream: Handle) {
        served pool::free_on(pointer, stream), released stream, |_done| event(Kind::StreamFree).at(pointer).on(stream)
    }
    cuMemFreeAsync_ptsz(pointer: DevicePointer, stream: Handle) {
        served pool::free_on(pointer, per_thread(stream)), released per_thread(stream), |_done| event(Kind::StreamFree)
            .at(pointer).on(per_thread(stream))
    }
    cuMemPoolCreate(pool: *mut Handle, properties: *const c_void) {
        took |done| pool::created(
            event(Kind::PoolCreate)
                .from(done.handle(pool))
                .on_device(done.location(properties, POOL_LOCATION).1)
                .size(field::<u64>(done.given(properties), POOL_LARGEST)),
            pool,
            properties,
            done,
        )
    }
    cuMemPoolDestroy(pool: Handle) { served pool::destroyed(pool), gave |_done| event(Kind::PoolDestroy).from(pool) }
    cuMemPoolTrimTo(pool: Handle, keep: usize) { served pool::trim(pool, keep), gave |_done| event(Kind::PoolTrim).from(pool).size(keep) }
    cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: *mut c_void) {
        served pool::set_attribute(pool, attribute, value), took |done| event(Kind::PoolSetAttribute)
            .from(pool).extra(attribute).size(pool_value(done.given(value), attribute))
    }
    cuMemPoolImportFromShareableHandle(pool: *mut Handle, exported: *mut c_void, kind: i32, flags: u64) {
        took |done| event(Kind::PoolCreate).from(done.handle(pool)).extra(IS_IMPORTED)
    }
    cuMemPoolImportPointer(pointer: *mut DevicePointer, pool: Handle, exported: *mut c_void) {
        took |done| event(Kind::IpcOpen).at(done.out(pointer)).from(pool)
    }
    cuMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut c_void) {
        served pool::attribute(pool, attribute, value)
    }

    // Calls that the pool must know about.
    cuStreamDestroy(stream: Handle) { first waits::end_stream(stream), served pool::retire_stream(stream) }
    cuStreamDestroy_v2(stream: Handle) { first waits::end_stream(stream), served pool::retire_stream(stream) }
    cuCtxEnablePeerAccess(context: Handle, flags: u32) { followed pool::peer_enabled(context) }
    cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize) {
        followed pool::pool_opened(pool, access, count)
    }
    cuIpcGetMemHandle(handle: *mut IpcHandle, pointer: DevicePointer) { served pool::exported(pointer) }
    cuMemExportToShareableHandle(place: *mut c_void, handle: u64, kind: i32, flags: u64) {
        paged pages::export(place, handle, kind, flags), served pool::exports(kind)
    }
    cuMemGetAddressRange_v2(start: *mut DevicePointer, bytes: *mut usize, pointer: DevicePointer) {
        paged pages::address_range(start, bytes, pointer), served pool::address_range(start, bytes, pointer)
    }
    cuPointerGetAttribute(value: *mut c_void, attribute: i32, pointer: DevicePointer) {
        paged pages::range_attribute(value, attribute, pointer), served pool::range_attribute(value, attribute, pointer)
    }
    cuPointerGetAttributes(
        count: u32, attributes: *const i32, values: *const *mut c_void, pointer: DevicePointer
    ) {
        corrected pages::range_attributes(count, attributes, values, pointer)
            .or_else(|| pool::range_attributes(count, attributes, values, pointer))
    }

    // Calls after which other code knows physical memory by more than its address.
    cuPointerSetAttribute(value: *const c_void, attribute: i32, pointer: DevicePointer) {
        first if attribute == SYNC_MEMOPS { pages::pin(pointer, 1) }
    }
    cuMemGetAllocationPropertiesFromHandle(properties: *mut c_void, handle: u64) {
        paged pages::properties(properties, handle)
    }
    cuMemGetAccess(flags: *mut u64, location: *const c_void, pointer: DevicePointer) {
        paged pages::access(flags, location, pointer)
    }
    cuMemGetHandleForAddressRange(
        handle: *mut c_void, pointer: DevicePointer, bytes: usize, kind: i32, flags: u64
    ) {
        first pages::pin(pointer, bytes)
    }

    // Waits for streams. In `_ptsz` variants stream 0 is the per-thread default stream.
    cuStreamSynchronize(stream: Handle) { waits Awaited::Stream(stream) }
    cuStreamSynchronize_ptsz(stream: Handle) { waits Awaited::Stream(per_thread(stream)) }
    cuStreamQuery(stream: Handle) { waits Awaited::Stream(stream) }
    cuStreamQuery_ptsz(stream: Handle) { waits Awaited::Stream(per_thread(stream)) }
    cuCtxSynchronize() { waits Awaited::Context(std::ptr::null_mut()) }
    cuCtxSynchronize_v2(context: Handle) { waits Awaited::Context(context) }
    cuEventSynchronize(mark: Handle) { waits Awaited::Event(mark) }
    cuEventQuery(mark: Handle) { waits Awaited::Event(mark) }
    cuEventRecord(mark: Handle, stream: Handle) { marks mark on stream }
    cuEventRecord_ptsz(mark: Handle, stream: Handle) { marks mark on per_thread(stream) }
    cuEventRecordWithFlags(mark: Handle, stream: Handle, flags: u32) {
        first if capture::is_open() { waits::distrust_events() }, marks mark on stream
    }
    cuEventRecordWithFlags_ptsz(mark: Handle, stream: Handle, flags: u32) {
        first if capture::is_open() { waits::distrust_events() }, marks mark on per_thread(stream)
    }
    cuEventDestroy(mark: Handle) { first waits::unmark(mark) }
    cuEventDestroy_v2(mark: Handle) { first waits::unmark(mark) }
    cuIpcGetEventHandle(handle: *mut IpcHandle, mark: Handle) { first waits::distrust_events() }
    cuGraphAddEventRecordNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, mark: Handle
    ) {
        first waits::distrust_events()
    }

    // Virtual memory.
    cuMemAddressReserve(
        pointer: *mut DevicePointer, bytes: usize, alignment: usize, wanted: DevicePointer, flags: u64
    ) {
        took |done| pages::reserved(
            event(Kind::AddressReserve).at(done.out(pointer)).size(bytes), done.out(pointer), bytes as u64, done,
        )
    }
    cuMemAddressFree(pointer: DevicePointer, bytes: usize) {
        paged pages::free_range(pointer), gave |_done| event(Kind::AddressRelease).at(pointer).size(bytes)
    }
    cuMemCreate(handle: *mut u64, bytes: usize, properties: *const c_void, flags: u64) {
        paged created(pages::create(handle, bytes, properties, flags), bytes, properties), limited limit::reserve_physical(bytes, properties), took |done| event(Kind::PhysicalCreate)
            .at(done.out(handle))
            .size(bytes)
            .on_device(done.location(properties, CREATE_LOCATION).1)
            .extra(u32::from(!done.location(properties, CREATE_LOCATION).0))
    }
    cuMemRetainAllocationHandle(handle: *mut u64, pointer: *mut c_void) {
        paged pages::retain(pointer as u64), took |done| event(Kind::PhysicalRetain).at(done.out(handle)).extra(pointer)
    }
    cuMemRelease(handle: u64) { paged pages::release(handle), gave |_done| event(Kind::PhysicalRelease).at(handle) }
    cuMemMap(pointer: DevicePointer, bytes: usize, offset: usize, handle: u64, flags: u64) {
        paged pages::map(pointer, bytes, offset, handle), took |_done| event(Kind::Map).at(pointer).size(bytes).extra(handle)
    }
    cuMemUnmap(pointer: DevicePointer, bytes: usize) {
        paged pages::unmap(pointer, bytes), gave |_done| event(Kind::Unmap).at(pointer).size(bytes)
    }
    cuMemSetAccess(pointer: DevicePointer, bytes: usize, access: *const c_void, count: usize) {
        paged pages::set_access(pointer, bytes, access, count), took |done| event(Kind::SetAccess)
            .at(pointer).size(bytes).extra(field::<u32>(done.given(access), ACCESS_FLAGS))
    }
    cuMemImportFromShareableHandle(handle: *mut u64, exported: *mut c_void, kind: i32) {
        took |done| event(Kind::ExternalImport).at(done.out(handle))
    }

    // Multicast objects: views of memory on several devices.
    cuMulticastCreate(handle: *mut u64, properties: *const c_void) {
        took |done| event(Kind::MulticastCreate)
            .at(done.out(handle))
            .size(field::<u64>(done.given(properties), MULTICAST_SIZE))
            .extra(field::<u32>(done.given(properties), 0))
    }
    cuMulticastAddDevice(handle: u64, device: Device) {
        took |_done| event(Kind::MulticastAdd).at(handle).on_device(device)
    }
    cuMulticastBindMem(
        handle: u64, offset: usize, memory: u64, memory_offset: usize, bytes: usize, flags: u64
    ) {
        paged pages::bind(handle, offset, memory, memory_offset, bytes, flags), took |_done| event(Kind::MulticastBind).at(handle).size(bytes).extra(memory)
    }
    cuMulticastBindAddr(handle: u64, offset: usize, pointer: DevicePointer, bytes: usize, flags: u64) {
        first pages::pin(pointer, bytes), took |_done| event(Kind::MulticastBind).at(handle).size(bytes).extra(pointer)
    }
    cuMulticastUnbind(handle: u64, device: Device, offset: usize, bytes: usize) {
        gave |_done| event(Kind::MulticastUnbind).at(handle).size(bytes).on_device(device)
    }

    // Arrays.
    cuArrayCreate(array: *mut Handle, shape: *const c_void) {
        limited limit::reserve_array(|| array_bytes::<4>(shape, false)), took |done| event(Kind::ArrayAlloc)
            .at(done.handle(array)).size(array_bytes::<4>(done.given(shape), false))
    }
    cuArrayCreate_v2(array: *mut Handle, shape: *const c_void) {
        limited limit::reserve_array(|| array_bytes::<8>(shape, false)), took |done| event(Kind::ArrayAlloc)
            .at(done.handle(array)).size(array_bytes::<8>(done.given(shape), false))
    }
    cuArray3DCreate(array: *mut Handle, shape: *const c_void) {
        limited limit::reserve_array(|| array_bytes::<4>(shape, true)), took |done| event(Kind::ArrayAlloc)
            .at(done.handle(array)).size(array_bytes::<4>(done.given(shape), true))
    }
    cuArray3DCreate_v2(array: *mut Handle, shape: *const c_void) {
        limited limit::reserve_array(|| array_bytes::<8>(shape, true)), took |done| event(Kind::ArrayAlloc)
            .at(done.handle(array)).size(array_bytes::<8>(done.given(shape), true))
    }
    cuArrayDestroy(array: Handle) { gave |_done| event(Kind::ArrayFree).at(array) }
    cuMipmappedArrayCreate(array: *mut Handle, shape: *const c_void, levels: u32) {
        limited limit::reserve_array(|| mipmapped_bytes(shape, levels)), took |done| event(Kind::MipmappedAlloc)
            .at(done.handle(array)).size(mipmapped_bytes(done.given(shape), levels))
    }
    cuMipmappedArrayDestroy(array: Handle) { gave |_done| event(Kind::MipmappedFree).at(array) }

    // Other processes and other APIs.
    cuIpcOpenMemHandle(pointer: *mut DevicePointer, handle: IpcHandle, flags: u32) {
        took |done| event(Kind::IpcOpen).at(done.out(pointer))
    }
    cuIpcOpenMemHandle_v2(pointer: *mut DevicePointer, handle: IpcHandle, flags: u32) {
        took |done| event(Kind::IpcOpen).at(done.out(pointer))
    }
    cuIpcCloseMemHandle(pointer: DevicePointer) { gave |_done| event(Kind::IpcClose).at(pointer) }
    cuImportExternalMemory(memory: *mut Handle, description: *const c_void) {
        took |done| event(Kind::ExternalImport)
            .at(done.handle(memory)).size(field::<u64>(done.given(description), EXTERNAL_SIZE))
    }
    cuExternalMemoryGetMappedBuffer(pointer: *mut DevicePointer, memory: Handle, buffer: *const c_void) {
        took |done| event(Kind::ExternalMap)
            .at(done.out(pointer)).size(field::<u64>(done.given(buffer), BUFFER_SIZE)).extra(memory)
    }
    cuExternalMemoryGetMappedMipmappedArray(array: *mut Handle, memory: Handle, shape: *const c_void) {
        took |done| event(Kind::ExternalMap).at(done.handle(array)).extra(memory)
    }
    cuDestroyExternalMemory(memory: Handle) { gave |_done| event(Kind::ExternalDestroy).at(memory) }

    // Graphs.
    cuGraphAddMemAllocNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, parameters: *mut c_void
    ) {
        took |done| event(Kind::GraphAlloc)
            .at(field::<u64>(done.given(parameters), NODE_ADDRESS))
            .size(field::<u64>(done.given(parameters), NODE_BYTES))
            .extra(graph)
    }
    cuGraphAddMemFreeNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, pointer: DevicePointer
    ) {
        took |_done| event(Kind::GraphFree).at(pointer).extra(graph)
    }
    cuGraphAddNode(
        node: *mut Handle, graph: Handle, after: *const Handle, count: usize, parameters: *mut c_void
    ) {
        then |done| graph_node(graph, done.given(parameters), done)
    }
    cuGraphAddNode_v2(
        node: *mut Handle, graph: Handle, after: *const Handle, edges: *const c_void, count: usize,
        parameters: *mut c_void
    ) {
        then |done| graph_node(graph, done.given(parameters), done)
    }
    cuGraphInstantiate(
        executable: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, size: usize
    ) {
        failed |_done| event(Kind::LaunchFailed).at(graph)
    }
    cuGraphInstantiate_v2(
        executable: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, size: usize
    ) {
        failed |_done| event(Kind::LaunchFailed).at(graph)
    }
    cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64) {
        failed |_done| event(Kind::LaunchFailed).at(graph)
    }
    cuGraphInstantiateWithParams(executable: *mut Handle, graph: Handle, parameters: *mut c_void) {
        failed |_done| event(Kind::LaunchFailed).at(graph)
    }
    cuGraphInstantiateWithParams_ptsz(executable: *mut Handle, graph: Handle, parameters: *mut c_void) {
        failed |_done| event(Kind::LaunchFailed).at(graph)
    }
    cuGraphUpload(graph: Handle, stream: Handle) { failed |_done| event(Kind::LaunchFailed).at(graph).on(stream) }
    cuGraphUpload_ptsz(graph: Handle, stream: Handle) {
        failed |_done| event(Kind::LaunchFailed).at(graph).on(per_thread(stream))
    }
    cuDeviceGraphMemTrim(device: Device) { took |_done| event(Kind::GraphTrim).on_device(device) }
    cuGraphLaunch(graph: Handle, stream: Handle) { launched |_done| event(Kind::LaunchFailed).at(graph).on(stream) }
    cuGraphLaunch_ptsz(graph: Handle, stream: Handle) {
        launched |_done| event(Kind::LaunchFailed).at(graph).on(per_thread(stream))
    }
    cuStreamBeginCapture(stream: Handle) { captures }
    cuStreamBeginCapture_ptsz(stream: Handle) { captures }
    cuStreamBeginCapture_v2(stream: Handle, mode: i32) { captures }
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: i32) { captures }
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, after: *const Handle, edges: *const c_void, count: usize, mode: i32
    ) {
        captures
    }
    cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, after: *const Handle, edges: *const c_void, count: usize, mode: i32
    ) {
        captures
    }
    cuStreamEndCapture(stream: Handle, graph: *mut Handle) { always |done| capture::ended(done) }
    cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) { always |done| capture::ended(done) }

    // Contexts.
    cuCtxCreate(context: *mut Handle, flags: u32, device: Device) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuCtxCreate_v2(context: *mut Handle, flags: u32, device: Device) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuCtxCreate_v3(
        context: *mut Handle, affinity: *mut c_void, count: i32, flags: u32, device: Device
    ) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuCtxCreate_v4(context: *mut Handle, parameters: *mut c_void, flags: u32, device: Device) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuGLCtxCreate(context: *mut Handle, flags: u32, device: Device) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuGLCtxCreate_v2(context: *mut Handle, flags: u32, device: Device) {
        context Own on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuGreenCtxCreate(context: *mut Handle, resources: Handle, device: Device, flags: u32) {
        context Green on device at context, took |done| event(Kind::ContextCreate)
            .in_context(done.handle(context)).on_device(device).extra(flags)
    }
    cuCtxDestroy(context: Handle) { gave |_done| event(Kind::ContextDestroy).in_context(context) }
    cuCtxDestroy_v2(context: Handle) { gave |_done| event(Kind::ContextDestroy).in_context(context) }
    cuGreenCtxDestroy(context: Handle) { gave |_done| event(Kind::ContextDestroy).in_context(context) }
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: Device) {
        context Primary on device at context, took |done| pool::retained(
            event(Kind::PrimaryRetain).in_context(done.handle(context)).on_device(device), device, done,
        )
    }
    cuDevicePrimaryCtxRelease(device: Device) {
        gave |done| pool::released(event(Kind::PrimaryRelease).on_device(device), device, done)
    }
    cuDevicePrimaryCtxRelease_v2(device: Device) {
        gave |done| pool::released(event(Kind::PrimaryRelease).on_device(device), device, done)
    }
    cuDevicePrimaryCtxReset(device: Device) { first pages::abandon(device), served pool::abandon(device), gave |_done| event(Kind::PrimaryReset).on_device(device) }
    cuDevicePrimaryCtxReset_v2(device: Device) { first pages::abandon(device), served pool::abandon(device), gave |_done| event(Kind::PrimaryReset).on_device(device) }
    cuCtxSetLimit(limit: i32, value: usize) { took |_done| event(Kind::LimitSet).extra(limit).size(value) }

    // Code: modules and libraries.
    cuModuleLoad(module: *mut Handle, path: *const c_char) {
        took |done| event(Kind::ModuleLoad).at(done.handle(module))
    }
    cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        took |done| code::describe(event(Kind::ModuleLoad).at(done.handle(module)), image, done)
    }
    cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_void, count: u32, options: *mut i32, values: *mut *mut c_void
    ) {
        took |done| code::describe(event(Kind::ModuleLoad).at(done.handle(module)), image, done)
    }
    cuModuleLoadFatBinary(module: *mut Handle, image: *const c_void) {
        took |done| code::describe(event(Kind::ModuleLoad).at(done.handle(module)), image, done)
    }
    cuModuleUnload(module: Handle) { gave |_done| event(Kind::ModuleUnload).at(module) }
    cuLibraryLoadData(
        library: *mut Handle, image: *const c_void, compiler: *mut i32, compiler_values: *mut *mut c_void,
        compiler_count: u32, options: *mut i32, values: *mut *mut c_void, count: u32
    ) {
        took |done| code::describe(event(Kind::LibraryLoad).at(done.handle(library)), image, done)
    }
    cuLibraryLoadFromFile(
        library: *mut Handle, path: *const c_char, compiler: *mut i32, compiler_values: *mut *mut c_void,
        compiler_count: u32, options: *mut i32, values: *mut *mut c_void, count: u32
    ) {
        took |done| event(Kind::LibraryLoad).at(done.handle(library))
    }
    cuLibraryUnload(library: Handle) { gave |_done| event(Kind::LibraryUnload).at(library) }

    // Launches.
    cuLaunch(function: Handle) { failed |_done| code::launch(function, 0, std::ptr::null_mut()) }
    cuLaunchGrid(function: Handle, width: i32, height: i32) {
        failed |_done| code::launch(function, 0, std::ptr::null_mut())
    }
    cuLaunchGridAsync(function: Handle, width: i32, height: i32, stream: Handle) {
        failed |_done| code::launch(function, 0, stream)
    }
    cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        failed |_done| code::launch(function, shared, stream)
    }
    cuLaunchKernel_ptsz(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        failed |_done| code::launch(function, shared, per_thread(stream))
    }
    cuLaunchKernelEx(
        config: *const c_void, function: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        failed |done| code::launch(function, field(done.launched(config), CONFIG_SHARED), std::ptr::null_mut())
    }
    cuLaunchKernelEx_ptsz(
        config: *const c_void, function: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        failed |done| code::launch(function, field(done.launched(config), CONFIG_SHARED), std::ptr::null_mut())
    }
    cuLaunchCooperativeKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut *mut c_void
    ) {
        failed |_done| code::launch(function, shared, stream)
    }
    cuLaunchCooperativeKernel_ptsz(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut *mut c_void
    ) {
        failed |_done| code::launch(function, shared, per_thread(stream))
    }

    cuLaunchCooperativeKernelMultiDevice(launches: *mut c_void, count: u32, flags: u32) {
        failed |done| code::launch(
            field::<u64>(done.first_launched(launches, count), 0) as Handle,
            field(done.first_launched(launches, count), LAUNCH_SHARED),
            std::ptr::null_mut()
        )
    }

    // Memory queries, adjusted to the limit and to the pool.
    cuMemGetInfo(free: *mut u32, total: *mut u32) { then |done| limit::shrink(free, total, pool::cached, done) }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { then |done| limit::shrink(free, total, pool::cached, done) }
    cuDeviceTotalMem(total: *mut u32, device: Device) {
        then |done| limit::shrink(std::ptr::null_mut(), total, pool::cached, done)
    }
    cuDeviceTotalMem_v2(total: *mut usize, device: Device) {
        then |done| limit::shrink(std::ptr::null_mut(), total, pool::cached, done)
    }
}

/// `CUmemPoolProps`: allocType, handleTypes, **location**, a pointer, **maxSize**.
const POOL_LOCATION: usize = 8;
const POOL_LARGEST: usize = 24;
/// `CUmemAllocationProp`: type, requestedHandleTypes, **location**.
const CREATE_LOCATION: usize = 8;
/// `CUmemAccessDesc`: location, **flags**.
const ACCESS_FLAGS: usize = 8;
/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`: type, handle, **size**.
const EXTERNAL_SIZE: usize = 24;
/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`: offset, **size**.
const BUFFER_SIZE: usize = 8;
/// `CUmulticastObjectProp`: **numDevices**, **size**.
const MULTICAST_SIZE: usize = 8;
/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: the driver keeps a note of it with the allocation.
const SYNC_MEMOPS: i32 = 6;
/// Value of `extra` for a pool imported from another process.
const IS_IMPORTED: u32 = 1;
/// `CUDA_LAUNCH_PARAMS`: **function**, grid, block, **sharedMemBytes**.
const LAUNCH_SHARED: usize = 32;
/// `CUDA_MEM_ALLOC_NODE_PARAMS`: poolProps (88 bytes), accessDescs, accessDescCount, **bytesize**, **dptr**.
const NODE_BYTES: usize = 104;
const NODE_ADDRESS: usize = 112;
/// `CUgraphNodeParams`: type and three reserved words, then the parameters of that type.
const NODE_PARAMETERS: usize = 16;
const NODE_IS_RECORD: i32 = 7;
const NODE_IS_ALLOC: i32 = 10;
const NODE_IS_FREE: i32 = 11;
/// `CUlaunchConfig`: grid, block, **sharedMemBytes**.
const CONFIG_SHARED: usize = 24;
/// `CU_STREAM_PER_THREAD`: the meaning of stream 0 in `_ptsz` functions.
const STREAM_PER_THREAD: usize = 2;

/// The stream that a `_ptsz` function uses.
fn per_thread(stream: Handle) -> Handle {
    if stream.is_null() { STREAM_PER_THREAD as Handle } else { stream }
}

/// The value of a pool attribute: the first three are 4-byte flags, the others sizes.
///
/// # Safety
///
/// `value` is null, or the driver accepted it for this attribute.
unsafe fn pool_value(value: *const c_void, attribute: i32) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { if attribute <= 3 { u64::from(field::<u32>(value, 0)) } else { field::<u64>(value, 0) } }
}

/// Records a graph node if it allocates or frees memory.
///
/// # Safety
///
/// `parameters` is null, or the driver accepted it.
unsafe fn graph_node(graph: Handle, parameters: *const c_void, done: Done) {
    // SAFETY: the caller guarantees that the structure has these fields.
    let node = unsafe {
        match field::<i32>(parameters, 0) {
            NODE_IS_ALLOC => event(Kind::GraphAlloc)
                .at(field::<u64>(parameters, NODE_PARAMETERS + NODE_ADDRESS))
                .size(field::<u64>(parameters, NODE_PARAMETERS + NODE_BYTES)),
            NODE_IS_FREE => event(Kind::GraphFree).at(field::<u64>(parameters, NODE_PARAMETERS)),
            NODE_IS_RECORD => return waits::distrust_events(),
            _ => return,
        }
    };
    record(node.extra(graph), done.0, Moment::After);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_known_and_no_other_address() {
        for &function in Function::ALL {
            assert!(is_hook(hook(function)), "{function:?}");
        }
        assert!(!is_hook(std::ptr::null_mut()));
    }
}
