//! Modules, libraries and kernels. Code is neither parsed nor run: any image is a module, and any name a function. A
//! launch is checked against the GPU's limits and keeps its stream busy for the time in the machine's description.

use std::ffi::{CStr, CString};

use makeroom_ordered::OrderedMap;

use super::{
    BlockKind, ContextId, FunctionId, KernelId, LibraryId, Machine, ModuleId, Operation, StreamId, Submitted,
};
use crate::status::{Result, Status};

/// Dynamic shared memory that a launch may request by default, in bytes.
const SHARED: i32 = 48 << 10;
/// The maximum that a function can be configured for.
const SHARED_MOST: i32 = 232_448;
/// Shared memory of a multiprocessor, and the overhead of each block.
const SHARED_OF_MULTIPROCESSOR: u64 = 233_472;
const SHARED_OVERHEAD: u64 = 1 << 10;
/// Maximum threads and blocks per multiprocessor.
const THREADS_OF_MULTIPROCESSOR: u64 = 2048;
const BLOCKS_OF_MULTIPROCESSOR: u64 = 32;
/// Maximum threads per block, and the maximum of its third dimension.
const BLOCK_THREADS: u64 = 1024;
const BLOCK_DEPTH: u32 = 64;
/// Maximum blocks in a grid's first dimension, and in the others.
const GRID_WIDTH: u32 = i32::MAX as u32;
const GRID_SIDE: u32 = 65_535;

/// A module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) context: ContextId,
    address: u64,
    functions: OrderedMap<Vec<u8>, FunctionId>,
}

/// A function of a module.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) context: ContextId,
    module: ModuleId,
    name: CString,
    shared: i32,
    carveout: i32,
}

/// A library: a module for each context that uses it.
#[derive(Debug, Default)]
pub(super) struct Library {
    kernels: OrderedMap<Vec<u8>, KernelId>,
    loaded: OrderedMap<ContextId, ModuleId>,
}

impl Library {
    pub(super) fn forget(&mut self, context: ContextId) {
        self.loaded.remove(&context);
    }
}

/// A kernel of a library.
#[derive(Debug)]
pub(super) struct Kernel {
    library: LibraryId,
    name: CString,
    functions: OrderedMap<ContextId, FunctionId>,
}

impl Kernel {
    pub(super) fn forget(&mut self, context: ContextId) {
        self.functions.remove(&context);
    }
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Launch {
    fn check(&self, shared: i32) -> Result<()> {
        let threads: u64 = self.block.iter().map(|side| u64::from(*side)).product();
        let empty = self.grid.iter().chain(&self.block).any(|side| *side == 0);
        let large = self.grid[0] > GRID_WIDTH || self.grid[1] > GRID_SIDE || self.grid[2] > GRID_SIDE;
        let wide = threads > BLOCK_THREADS || self.block[2] > BLOCK_DEPTH;
        if empty || large || wide || i64::from(self.shared) > i64::from(shared) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(())
    }
}

impl Machine {
    /// `cuModuleLoadData`.
    pub fn load_module(&mut self, context: ContextId) -> Result<ModuleId> {
        let address = match self.description.module {
            0 => 0,
            bytes => self.allocate_as(context, bytes, BlockKind::Code)?,
        };
        let module = self.identities.fresh();
        self.modules.insert(module, Module { context, address, functions: OrderedMap::new() });
        Ok(module)
    }

    /// `cuModuleUnload`.
    pub fn unload_module(&mut self, module: ModuleId) -> Result<()> {
        let gone = self.modules.remove(&module).ok_or(Status::INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        if let Some(block) = self.blocks.remove(&gone.address) {
            self.free_linear(gone.address, block);
        }
        Ok(())
    }

    /// `cuModuleGetFunction`.
    pub fn module_function(&mut self, module: ModuleId, name: &[u8]) -> Result<FunctionId> {
        let found = self.modules.get_mut(&module).ok_or(Status::INVALID_HANDLE)?;
        if name.is_empty() {
            return Err(Status::NOT_FOUND);
        }
        if let Some(function) = found.functions.get(name) {
            return Ok(*function);
        }
        let text = CString::new(name).map_err(|_| Status::NOT_FOUND)?;
        let function = self.identities.fresh();
        found.functions.insert(name.to_vec(), function);
        let context = found.context;
        self.functions
            .insert(function, Function { context, module, name: text, shared: SHARED, carveout: -1 });
        Ok(function)
    }

    /// The module of a function.
    pub fn function_module(&self, function: FunctionId) -> Result<ModuleId> {
        Ok(self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?.module)
    }

    /// The name of a function. Its address does not change until the module is unloaded.
    pub fn function_name(&self, function: FunctionId) -> Result<&CStr> {
        Ok(&self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?.name)
    }

    /// The name of a kernel. Its address does not change until the library is unloaded.
    pub fn kernel_name(&self, kernel: KernelId) -> Result<&CStr> {
        Ok(&self.kernels.get(&kernel).ok_or(Status::INVALID_HANDLE)?.name)
    }

    /// `cuLibraryLoadData`: allocates no memory until a context uses it.
    pub fn load_library(&mut self) -> LibraryId {
        let library = self.identities.fresh();
        self.libraries.insert(library, Library::default());
        library
    }

    /// `cuLibraryUnload`.
    pub fn unload_library(&mut self, library: LibraryId) -> Result<()> {
        let gone = self.libraries.remove(&library).ok_or(Status::INVALID_HANDLE)?;
        self.kernels.retain(|_, kernel| kernel.library != library);
        gone.loaded.into_values().try_for_each(|module| self.unload_module(module))
    }

    /// `cuLibraryGetKernel`.
    pub fn library_kernel(&mut self, library: LibraryId, name: &[u8]) -> Result<KernelId> {
        let found = self.libraries.get_mut(&library).ok_or(Status::INVALID_HANDLE)?;
        if name.is_empty() {
            return Err(Status::NOT_FOUND);
        }
        if let Some(kernel) = found.kernels.get(name) {
            return Ok(*kernel);
        }
        let text = CString::new(name).map_err(|_| Status::NOT_FOUND)?;
        let kernel = self.identities.fresh();
        found.kernels.insert(name.to_vec(), kernel);
        self.kernels.insert(kernel, Kernel { library, name: text, functions: OrderedMap::new() });
        Ok(kernel)
    }

    /// `cuLibraryGetModule`: loads the library into a context.
    pub fn library_module(&mut self, library: LibraryId, context: ContextId) -> Result<ModuleId> {
        let found = self.libraries.get(&library).ok_or(Status::INVALID_HANDLE)?;
        if let Some(module) = found.loaded.get(&context) {
            return Ok(*module);
        }
        let module = self.load_module(context)?;
        self.libraries.get_mut(&library).ok_or(Status::INVALID_HANDLE)?.loaded.insert(context, module);
        Ok(module)
    }

    /// `cuKernelGetFunction`.
    pub fn kernel_function(&mut self, kernel: KernelId, context: ContextId) -> Result<FunctionId> {
        let found = self.kernels.get(&kernel).ok_or(Status::INVALID_HANDLE)?;
        if let Some(function) = found.functions.get(&context) {
            return Ok(*function);
        }
        let (library, name) = (found.library, found.name.clone());
        let module = self.library_module(library, context)?;
        let function = self.module_function(module, name.to_bytes())?;
        self.kernels.get_mut(&kernel).ok_or(Status::INVALID_HANDLE)?.functions.insert(context, function);
        Ok(function)
    }

    /// The function of a handle, which may be that of a function or of a kernel.
    pub fn function(&mut self, handle: u64, context: ContextId) -> Result<FunctionId> {
        if self.functions.contains_key(&FunctionId(handle)) {
            return Ok(FunctionId(handle));
        }
        self.kernel_function(KernelId(handle), context)
    }

    /// `cuFuncGetAttribute`.
    pub fn function_attribute(&self, function: FunctionId, attribute: u32) -> Result<i32> {
        let function = self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?;
        Ok(match attribute {
            0 => BLOCK_THREADS as i32,
            1..=3 | 7 | 10..=15 => 0,
            4 => 16,
            5 | 6 => 90,
            8 => function.shared,
            9 => function.carveout,
            _ => return Err(Status::INVALID_VALUE),
        })
    }

    /// `cuFuncSetAttribute`: only dynamic shared memory and its preferred carveout can be set.
    pub fn set_function_attribute(&mut self, function: FunctionId, attribute: u32, value: i32) -> Result<()> {
        let function = self.functions.get_mut(&function).ok_or(Status::INVALID_HANDLE)?;
        match attribute {
            8 if (0..=SHARED_MOST).contains(&value) => function.shared = value,
            9 if (-1..=100).contains(&value) => function.carveout = value,
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    }

    /// `cuLaunchKernel`.
    pub fn launch(&mut self, function: FunctionId, launch: &Launch, stream: StreamId) -> Result<()> {
        let found = self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?;
        let (context, shared) = (found.context, found.shared);
        if self.stream_ref(stream)?.context != context {
            return Err(Status::INVALID_HANDLE);
        }
        launch.check(shared)?;
        let submitted = self.submit(stream, Operation::Kernel(function), self.description.kernel)?;
        if submitted == Submitted::Now { self.commit_limits(context) } else { Ok(()) }
    }

    /// `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    pub fn occupancy(&self, function: FunctionId, threads: i32, shared: u64) -> Result<i32> {
        const WARP: u64 = 32;
        self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?;
        let threads =
            u64::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(Status::INVALID_VALUE)?;
        if threads > BLOCK_THREADS {
            return Ok(0);
        }
        let by_threads = THREADS_OF_MULTIPROCESSOR / threads.next_multiple_of(WARP);
        let by_shared = SHARED_OF_MULTIPROCESSOR / shared.saturating_add(SHARED_OVERHEAD);
        Ok(by_threads.min(by_shared).min(BLOCKS_OF_MULTIPROCESSOR) as i32)
    }
}
