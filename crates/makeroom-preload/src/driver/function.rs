//! The hooked functions of the driver, by exact name.
//!
//! Only their names: `hooks/table.rs` has a row for each, with its parameters and its handling, and the compiler checks
//! that none is missing. The order is that of the rows.

use std::ffi::CStr;

macro_rules! functions {
    ($($name:ident,)*) => {
        /// A hooked function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "the driver's own names")]
        pub(crate) enum Function {
            $($name,)*
        }

        /// Number of hooked functions.
        pub(crate) const COUNT: usize = Function::ALL.len();

        impl Function {
            /// All hooked functions.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            const NAMES: &[&CStr] = &[$(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            ),*];
        }
    };
}

functions! {
    cuInit,
    cuGetProcAddress,
    cuGetProcAddress_v2,
    cuMemAlloc,
    cuMemAlloc_v2,
    cuMemAllocPitch,
    cuMemAllocPitch_v2,
    cuMemAllocManaged,
    cuMemFree,
    cuMemFree_v2,
    cuMemAllocHost,
    cuMemAllocHost_v2,
    cuMemHostAlloc,
    cuMemFreeHost,
    cuMemHostRegister,
    cuMemHostRegister_v2,
    cuMemHostUnregister,
    cuMemAllocAsync,
    cuMemAllocAsync_ptsz,
    cuMemAllocFromPoolAsync,
    cuMemAllocFromPoolAsync_ptsz,
    cuMemFreeAsync,
    cuMemFreeAsync_ptsz,
    cuMemPoolCreate,
    cuMemPoolDestroy,
    cuMemPoolTrimTo,
    cuMemPoolSetAttribute,
    cuMemPoolImportFromShareableHandle,
    cuMemPoolImportPointer,
    cuMemPoolGetAttribute,
    cuStreamDestroy,
    cuStreamDestroy_v2,
    cuCtxEnablePeerAccess,
    cuMemPoolSetAccess,
    cuIpcGetMemHandle,
    cuMemExportToShareableHandle,
    cuMemGetAddressRange_v2,
    cuPointerGetAttribute,
    cuPointerGetAttributes,
    cuPointerSetAttribute,
    cuMemGetAllocationPropertiesFromHandle,
    cuMemGetAccess,
    cuMemGetHandleForAddressRange,
    cuStreamSynchronize,
    cuStreamSynchronize_ptsz,
    cuStreamQuery,
    cuStreamQuery_ptsz,
    cuCtxSynchronize,
    cuCtxSynchronize_v2,
    cuEventSynchronize,
    cuEventQuery,
    cuEventRecord,
    cuEventRecord_ptsz,
    cuEventRecordWithFlags,
    cuEventRecordWithFlags_ptsz,
    cuEventDestroy,
    cuEventDestroy_v2,
    cuIpcGetEventHandle,
    cuGraphAddEventRecordNode,
    cuMemAddressReserve,
    cuMemAddressFree,
    cuMemCreate,
    cuMemRetainAllocationHandle,
    cuMemRelease,
    cuMemMap,
    cuMemUnmap,
    cuMemSetAccess,
    cuMemImportFromShareableHandle,
    cuMulticastCreate,
    cuMulticastAddDevice,
    cuMulticastBindMem,
    cuMulticastBindAddr,
    cuMulticastUnbind,
    cuArrayCreate,
    cuArrayCreate_v2,
    cuArray3DCreate,
    cuArray3DCreate_v2,
    cuArrayDestroy,
    cuMipmappedArrayCreate,
    cuMipmappedArrayDestroy,
    cuIpcOpenMemHandle,
    cuIpcOpenMemHandle_v2,
    cuIpcCloseMemHandle,
    cuImportExternalMemory,
    cuExternalMemoryGetMappedBuffer,
    cuExternalMemoryGetMappedMipmappedArray,
    cuDestroyExternalMemory,
    cuGraphAddMemAllocNode,
    cuGraphAddMemFreeNode,
    cuGraphAddNode,
    cuGraphAddNode_v2,
    cuGraphInstantiate,
    cuGraphInstantiate_v2,
    cuGraphInstantiateWithFlags,
    cuGraphInstantiateWithParams,
    cuGraphInstantiateWithParams_ptsz,
    cuGraphUpload,
    cuGraphUpload_ptsz,
    cuDeviceGraphMemTrim,
    cuGraphLaunch,
    cuGraphLaunch_ptsz,
    cuStreamBeginCapture,
    cuStreamBeginCapture_ptsz,
    cuStreamBeginCapture_v2,
    cuStreamBeginCapture_v2_ptsz,
    cuStreamBeginCaptureToGraph,
    cuStreamBeginCaptureToGraph_ptsz,
    cuStreamEndCapture,
    cuStreamEndCapture_ptsz,
    cuCtxCreate,
    cuCtxCreate_v2,
    cuCtxCreate_v3,
    cuCtxCreate_v4,
    cuGLCtxCreate,
    cuGLCtxCreate_v2,
    cuGreenCtxCreate,
    cuCtxDestroy,
    cuCtxDestroy_v2,
    cuGreenCtxDestroy,
    cuDevicePrimaryCtxRetain,
    cuDevicePrimaryCtxRelease,
    cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxReset,
    cuDevicePrimaryCtxReset_v2,
    cuCtxSetLimit,
    cuModuleLoad,
    cuModuleLoadData,
    cuModuleLoadDataEx,
    cuModuleLoadFatBinary,
    cuModuleUnload,
    cuLibraryLoadData,
    cuLibraryLoadFromFile,
    cuLibraryUnload,
    cuLaunch,
    cuLaunchGrid,
    cuLaunchGridAsync,
    cuLaunchKernel,
    cuLaunchKernel_ptsz,
    cuLaunchKernelEx,
    cuLaunchKernelEx_ptsz,
    cuLaunchCooperativeKernel,
    cuLaunchCooperativeKernel_ptsz,
    cuLaunchCooperativeKernelMultiDevice,
    cuMemGetInfo,
    cuMemGetInfo_v2,
    cuDeviceTotalMem,
    cuDeviceTotalMem_v2,
}

impl Function {
    /// The exact name.
    pub(crate) fn name(self) -> &'static CStr {
        Self::NAMES.get(self as usize).copied().unwrap_or_default()
    }

    /// The function with exactly this name.
    pub(crate) fn named(name: &CStr) -> Option<Self> {
        let bytes = name.to_bytes();
        // Nearly all lookups are for other names; two bytes suffice to reject them.
        if !bytes.starts_with(b"cu") {
            return None;
        }
        let index = Self::NAMES.iter().position(|known| known.to_bytes() == bytes)?;
        Self::ALL.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_whole() {
        assert_eq!(Function::named(c"cuMemAlloc_v2"), Some(Function::cuMemAlloc_v2));
        assert_eq!(Function::named(c"cuMemAlloc"), Some(Function::cuMemAlloc));
        for other in [c"cuMemAlloc_v", c"cuMemAlloc_v22", c"cudnnCreate", c"cublasCreate_v2", c"cu", c""] {
            assert_eq!(Function::named(other), None);
        }
    }

    #[test]
    fn every_name_leads_back_to_its_function() {
        for &function in Function::ALL {
            assert_eq!(Function::named(function.name()), Some(function));
        }
    }
}
