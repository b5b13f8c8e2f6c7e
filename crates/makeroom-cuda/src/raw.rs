//! The driver functions that this crate calls, in one table: exported name and arguments.
//!
//! Names are exact: `cuMemAlloc_v2` is one function with one signature in every driver that has it. The driver's own
//! lookup (`cuGetProcAddress`) resolves a bare name to the newest variant up to a version, so the signature would
//! depend on a number; it is not used. A missing function is an error when it is called, not at load time.
//!
//! Handles are plain integers here: they are the driver's, are passed back unchanged, and belong to no thread.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use makeroom_core::Bytes;

use crate::abi::{AccessDescription, AllocationProperties, Location, PoolProperties};
use crate::error::{Code, Error, Refusal, Result};

macro_rules! functions {
    ($($(#[$description:meta])* $name:ident = $symbol:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        /// The driver's functions, as far as the driver has them.
        ///
        /// Each does what NVIDIA's reference documents for the function of that name, and is unsafe because the
        /// driver trusts its arguments.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Functions {
            $($name: Option<unsafe extern "C" fn($($kind),*) -> u32>,)*
        }

        /// The exported names of all functions.
        pub const NAMES: &[&str] = &[$(stringify!($symbol)),*];

        impl Functions {
            /// Looks up every function once.
            ///
            /// # Safety
            ///
            /// `find` returns the address of the driver's function with that name, which stays valid.
            pub unsafe fn resolve(mut find: impl FnMut(&CStr) -> Option<NonNull<c_void>>) -> Self {
                Self {
                    $($name: find(name_of(concat!(stringify!($symbol), "\0"))).map(|address| {
                        // SAFETY: the caller guarantees that this is the function of that name, which has this
                        // signature.
                        unsafe {
                            std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($kind),*) -> u32>(address)
                        }
                    }),)*
                }
            }

            /// Whether the driver has the function with this exported name.
            pub fn has(&self, symbol: &str) -> bool {
                match symbol {
                    $(stringify!($symbol) => self.$name.is_some(),)*
                    _ => false,
                }
            }

            $(
                $(#[$description])*
                ///
                /// # Safety
                ///
                /// Pointers are valid for what the function does with them, and handles are live.
                #[inline(always)]
                #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
                #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
                pub unsafe fn $name(&self, $($argument: $kind),*) -> Result<()> {
                    let Some(function) = self.$name else {
                        return Err(Error::Missing { function: stringify!($symbol) });
                    };
                    // SAFETY: the caller guarantees the arguments, and `resolve`'s caller the function.
                    match unsafe { function($($argument),*) } {
                        0 => Ok(()),
                        code => Err(self.refused(stringify!($symbol), Code(code))),
                    }
                }
            )*
        }
    };
}

/// The NUL-terminated name as a `CStr`.
fn name_of(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

functions! {
    /// Initializes the driver.
    init = cuInit(flags: u32);
    /// The CUDA version that the driver supports, 12040 for 12.4.
    driver_version = cuDriverGetVersion(version: *mut i32);
    /// Name of an error code.
    error_name = cuGetErrorName(code: u32, name: *mut *const c_char);
    /// Description of an error code.
    error_words = cuGetErrorString(code: u32, words: *mut *const c_char);

    /// The number of devices.
    device_count = cuDeviceGetCount(count: *mut i32);
    /// The device with an ordinal.
    device_get = cuDeviceGet(device: *mut i32, ordinal: i32);
    /// A device's name.
    device_name = cuDeviceGetName(name: *mut c_char, size: i32, device: i32);
    /// Total memory of a device.
    device_total = cuDeviceTotalMem_v2(bytes: *mut usize, device: i32);
    /// A device's attribute.
    device_attribute = cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32);
    /// Whether a device can access another's memory.
    device_can_reach = cuDeviceCanAccessPeer(possible: *mut i32, device: i32, other: i32);
    /// A device's default pool.
    device_default_pool = cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32);
    /// The pool for stream-ordered allocations.
    device_pool = cuDeviceGetMemPool(pool: *mut u64, device: i32);
    /// Changes the pool for stream-ordered allocations.
    device_set_pool = cuDeviceSetMemPool(device: i32, pool: u64);

    /// Retains a device's primary context.
    primary_retain = cuDevicePrimaryCtxRetain(context: *mut u64, device: i32);
    /// Releases a device's primary context.
    primary_release = cuDevicePrimaryCtxRelease_v2(device: i32);
    /// Creates a context and makes it current.
    context_create = cuCtxCreate_v2(context: *mut u64, flags: u32, device: i32);
    /// Destroys a context and everything in it.
    context_destroy = cuCtxDestroy_v2(context: u64);
    /// Makes a context current.
    context_set = cuCtxSetCurrent(context: u64);
    /// The current context.
    context_get = cuCtxGetCurrent(context: *mut u64);
    /// Pushes a context onto the thread's stack.
    context_push = cuCtxPushCurrent_v2(context: u64);
    /// Pops the topmost context.
    context_pop = cuCtxPopCurrent_v2(context: *mut u64);
    /// The current context's device.
    context_device = cuCtxGetDevice(device: *mut i32);
    /// Waits for all work in the current context.
    context_synchronize = cuCtxSynchronize();
    /// Reads a limit.
    limit_get = cuCtxGetLimit(value: *mut usize, limit: u32);
    /// Changes a limit.
    limit_set = cuCtxSetLimit(limit: u32, value: usize);

    /// Creates a stream.
    stream_create = cuStreamCreate(stream: *mut u64, flags: u32);
    /// Destroys a stream, after its work is done.
    stream_destroy = cuStreamDestroy_v2(stream: u64);
    /// Waits for a stream.
    stream_synchronize = cuStreamSynchronize(stream: u64);
    /// Whether a stream's work is done.
    stream_query = cuStreamQuery(stream: u64);
    /// Makes a stream wait for an event.
    stream_wait = cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    /// Begins a capture.
    capture_begin = cuStreamBeginCapture_v2(stream: u64, mode: u32);
    /// Ends a capture.
    capture_end = cuStreamEndCapture(stream: u64, graph: *mut u64);
    /// Whether a stream is being captured.
    capture_status = cuStreamIsCapturing(stream: u64, status: *mut u32);
    /// Capture status and capture id of a stream.
    capture_info = cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut u32, capture: *mut u64, graph: *mut u64, nodes: *mut u64, count: *mut usize,
    );
    /// Exchanges this thread's capture mode, which controls how captures elsewhere affect its calls.
    capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    /// Destroys a graph.
    graph_destroy = cuGraphDestroy(graph: u64);

    /// Creates an event.
    event_create = cuEventCreate(event: *mut u64, flags: u32);
    /// Destroys an event.
    event_destroy = cuEventDestroy_v2(event: u64);
    /// Records an event on a stream.
    event_record = cuEventRecord(event: u64, stream: u64);
    /// Records an event after all work of a context, on any of its streams. Drivers before CUDA 12.5 do not have it.
    context_record = cuCtxRecordEvent(context: u64, event: u64);
    /// Whether an event has completed.
    event_query = cuEventQuery(event: u64);
    /// Waits for an event.
    event_synchronize = cuEventSynchronize(event: u64);
    /// The time between two events.
    event_elapsed = cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64);

    /// Free and total memory of the current device.
    memory_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Allocates memory.
    allocate = cuMemAlloc_v2(address: *mut u64, bytes: usize);
    /// Frees memory, after waiting for the device.
    free = cuMemFree_v2(address: u64);
    /// Allocates in stream order.
    allocate_async = cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64);
    /// Allocates in stream order, from a pool.
    allocate_from_pool = cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64);
    /// Frees in stream order.
    free_async = cuMemFreeAsync(address: u64, stream: u64);

    /// Creates a pool.
    pool_create = cuMemPoolCreate(pool: *mut u64, properties: *const PoolProperties);
    /// Destroys a pool.
    pool_destroy = cuMemPoolDestroy(pool: u64);
    /// Releases unused memory of a pool.
    pool_trim = cuMemPoolTrimTo(pool: u64, keep: usize);
    /// Reads a pool's attribute.
    pool_get = cuMemPoolGetAttribute(pool: u64, attribute: u32, value: *mut c_void);
    /// Changes a pool's attribute.
    pool_set = cuMemPoolSetAttribute(pool: u64, attribute: u32, value: *mut c_void);

    /// Granularity of physical memory.
    granularity = cuMemGetAllocationGranularity(bytes: *mut usize, wanted: *const AllocationProperties, option: u32);
    /// Reserves addresses.
    reserve = cuMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
    /// Frees reserved addresses.
    unreserve = cuMemAddressFree(address: u64, bytes: usize);
    /// Creates physical memory.
    create = cuMemCreate(handle: *mut u64, bytes: usize, wanted: *const AllocationProperties, flags: u64);
    /// Releases physical memory.
    release = cuMemRelease(handle: u64);
    /// Maps physical memory at addresses.
    map = cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    /// Unmaps physical memory.
    unmap = cuMemUnmap(address: u64, bytes: usize);
    /// Sets the access rights of addresses.
    set_access = cuMemSetAccess(address: u64, bytes: usize, who: *const AccessDescription, count: usize);
    /// Reads the access rights of an address.
    get_access = cuMemGetAccess(flags: *mut u64, location: *const Location, address: u64);

    /// Allocates pinned host memory.
    host_allocate = cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32);
    /// Frees pinned host memory.
    host_free = cuMemFreeHost(address: *mut c_void);
    /// Pins the program's own memory.
    host_register = cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32);
    /// Unpins the program's own memory.
    host_unregister = cuMemHostUnregister(address: *mut c_void);
    /// A device's address of pinned memory.
    host_device_address = cuMemHostGetDevicePointer_v2(address: *mut u64, host: *mut c_void, flags: u32);

    /// Copies to the device and waits.
    copy_to_device = cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    /// Copies to the host and waits.
    copy_to_host = cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    /// Copies on the device.
    copy_on_device = cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
    /// Copies to the device in stream order.
    copy_to_device_async = cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64);
    /// Copies to the host in stream order.
    copy_to_host_async = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64);
    /// Copies on the device in stream order.
    copy_on_device_async = cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    /// Fills with a byte.
    fill = cuMemsetD8_v2(address: u64, value: u8, count: usize);
    /// Fills with a byte in stream order.
    fill_async = cuMemsetD8Async(address: u64, value: u8, count: usize, stream: u64);

    /// Loads a module.
    module_load = cuModuleLoadData(module: *mut u64, image: *const c_void);
    /// Unloads a module.
    module_unload = cuModuleUnload(module: u64);
    /// A function of a module.
    module_function = cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char);
    /// Launches a kernel.
    launch = cuLaunchKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
}

impl Functions {
    /// Whether these are a driver's functions at all.
    pub(crate) fn is_driver(&self) -> bool {
        self.init.is_some()
    }

    /// The driver's name and description of a code.
    pub fn describe(&self, code: Code) -> (Option<&'static str>, Option<&'static str>) {
        (text(self.error_name, code), text(self.error_words, code))
    }

    #[cold]
    pub(crate) fn refused(&self, function: &'static str, code: Code) -> Error {
        let name = text(self.error_name, code);
        Error::Refused(Refusal { function, code, name, requested: None, free: None, total: None })
    }

    /// Adds the requested size to a failed allocation and, if memory ran out, the device's free and total memory.
    #[cold]
    pub(crate) fn explain(&self, error: Error, requested: Bytes) -> Error {
        let mut refusal = match error.about(requested) {
            Error::Refused(refusal) => refusal,
            other => return other,
        };
        if refusal.code == Code::OUT_OF_MEMORY {
            let (mut free, mut total) = (0, 0);
            // SAFETY: both out-parameters are valid.
            if unsafe { self.memory_info(&raw mut free, &raw mut total) }.is_ok() {
                refusal.free = Some(Bytes::new(free as u64));
                refusal.total = Some(Bytes::new(total as u64));
            }
        }
        Error::Refused(refusal)
    }
}

/// One of the driver's two texts for a code. They are constants in a library that is never unloaded.
fn text(
    function: Option<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>,
    code: Code,
) -> Option<&'static str> {
    let mut found = std::ptr::null();
    // SAFETY: the out-parameter is valid.
    let answer = unsafe { function?(code.0, &raw mut found) };
    if answer != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the driver returned a NUL-terminated constant.
    unsafe { CStr::from_ptr(found) }.to_str().ok()
}
