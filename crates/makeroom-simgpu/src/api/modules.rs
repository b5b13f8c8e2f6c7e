//! Modules and libraries, their functions and kernels. Images are not parsed.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

use crate::abi::{In, Out, Text};
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{FunctionId, KernelId, LibraryId, ModuleId};
use crate::status::{Result, Status};

fn load(call: Call<'_>, module: Out<u64>, image: In<u8>) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    module.required()?;
    if image.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    module.set(session.machine.load_module(context)?.0)
}

/// Returns an error if a file to load does not exist.
fn existing(file: Text) -> Result<()> {
    let name = OsStr::from_bytes(file.bytes()?);
    if std::path::Path::new(name).is_file() { Ok(()) } else { Err(Status::FILE_NOT_FOUND) }
}

driver_functions! {
    fn cuModuleLoad(module: Out<u64>, file: Text) |call| {
        let (mut session, context) = call.in_context()?;
        module.required()?;
        existing(file)?;
        module.set(session.machine.load_module(context)?.0)
    }

    fn cuModuleLoadData(module: Out<u64>, image: In<u8>) |call| { load(call, module, image) }

    fn cuModuleLoadDataEx(
        module: Out<u64>, image: In<u8>, _count: u32, _options: In<u32>, _values: In<u64>,
    ) |call| {
        load(call, module, image)
    }

    fn cuModuleLoadFatBinary(module: Out<u64>, image: In<u8>) |call| { load(call, module, image) }

    fn cuModuleUnload(module: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.unload_module(ModuleId(module))
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) |call| {
        let (mut session, _) = call.in_context()?;
        function.required()?;
        function.set(session.machine.module_function(ModuleId(module), name.bytes()?)?.0)
    }

    /// Modules are loaded when they are first used.
    fn cuModuleGetLoadingMode(mode: Out<u32>) |_| {
        const LAZY: u32 = 2;
        Session::open()?;
        mode.set(LAZY)
    }

    fn cuLibraryLoadData(
        library: Out<u64>, image: In<u8>, _options: In<u32>, _values: In<u64>, _count: u32,
        _library_options: In<u32>, _library_values: In<u64>, _library_count: u32,
    ) |_| {
        let mut session = Session::open()?;
        library.required()?;
        if image.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        library.set(session.machine.load_library().0)
    }

    fn cuLibraryLoadFromFile(
        library: Out<u64>, file: Text, _options: In<u32>, _values: In<u64>, _count: u32,
        _library_options: In<u32>, _library_values: In<u64>, _library_count: u32,
    ) |_| {
        let mut session = Session::open()?;
        library.required()?;
        existing(file)?;
        library.set(session.machine.load_library().0)
    }

    fn cuLibraryUnload(library: u64) |_| { Session::open()?.machine.unload_library(LibraryId(library)) }

    fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: Text) |_| {
        let mut session = Session::open()?;
        kernel.required()?;
        kernel.set(session.machine.library_kernel(LibraryId(library), name.bytes()?)?.0)
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) |call| {
        let (mut session, context) = call.in_context()?;
        module.required()?;
        module.set(session.machine.library_module(LibraryId(library), context)?.0)
    }

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) |call| {
        let (mut session, context) = call.in_context()?;
        function.required()?;
        function.set(session.machine.kernel_function(KernelId(kernel), context)?.0)
    }

    fn cuFuncGetModule(module: Out<u64>, function: u64) |_| {
        let session = Session::open()?;
        module.set(session.machine.function_module(FunctionId(function))?.0)
    }

    fn cuFuncGetName(name: Out<*const c_char>, function: u64) |_| {
        let session = Session::open()?;
        name.set(session.machine.function_name(FunctionId(function))?.as_ptr())
    }

    fn cuKernelGetName(name: Out<*const c_char>, kernel: u64) |_| {
        let session = Session::open()?;
        name.set(session.machine.kernel_name(KernelId(kernel))?.as_ptr())
    }

    /// Every function that exists is loaded.
    fn cuFuncIsLoaded(state: Out<u32>, function: u64) |_| {
        let session = Session::open()?;
        session.machine.function_module(FunctionId(function))?;
        state.set(1)
    }

    fn cuFuncLoad(function: u64) |_| {
        Session::open()?.machine.function_module(FunctionId(function)).map(|_| ())
    }

    /// Module variables are not simulated.
    fn cuModuleGetGlobal_v2(_address: Out<u64>, _bytes: Out<u64>, _module: u64, _name: Text) |call| {
        call.in_context().and(Err(Status::NOT_FOUND))
    }

    fn cuLibraryGetGlobal(_address: Out<u64>, _bytes: Out<u64>, _library: u64, _name: Text) |call| {
        call.in_context().and(Err(Status::NOT_FOUND))
    }
}
