//! The table of all functions, from which `cuGetProcAddress` looks them up.
//!
//! A row is: the requested name, the CUDA version from which on it resolves to this symbol, the symbol, and the
//! symbol for per-thread default streams. The versions were read from driver 580.

use std::ffi::c_void;

#[allow(clippy::wildcard_imports, reason = "the table names every function of these files")]
use super::{
    arrays::*, capture::*, context::*, copies::*, device::*, events::*, exchange::*, fills::*,
    first_forms::*, graphs::*, host::*, interop::*, launch::*, limits::*, memory::*, modules::*, pointers::*,
    pools::*, primary::*, start::*, streams::*, virtual_memory::*,
};
use crate::abi::{Out, Text};
use crate::call::driver_functions;
use crate::status::{Result, Status};

/// The first version with per-thread default streams.
const PER_THREAD_SINCE: i32 = 7000;

/// One version of a function.
struct FunctionVersion {
    name: &'static str,
    since: i32,
    symbol: Symbol,
    per_thread: Option<Symbol>,
}

/// The address of a function.
#[derive(Clone, Copy)]
struct Symbol(*const c_void);

// SAFETY: the address of code is the same for all threads, and it is never written through.
unsafe impl Sync for Symbol {}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Symbol(Symbol),
    NotThere,
    NewerOnly,
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Symbol {}

impl Found {
    fn address(self) -> *const c_void {
        if let Self::Symbol(symbol) = self { symbol.0 } else { std::ptr::null() }
    }

    fn number(self) -> u32 {
        match self {
            Self::Symbol(_) => 0,
            Self::NotThere => 1,
            Self::NewerOnly => 2,
        }
    }
}

fn find(name: Text, version: i32, flags: u64) -> Result<Found> {
    const PER_THREAD: u64 = 2;
    let name = name.bytes()?;
    if flags > PER_THREAD || version > VERSION {
        return Err(Status::INVALID_VALUE);
    }
    let rows = TABLE.iter().filter(|row| row.name.as_bytes() == name);
    let mut found = Found::NotThere;
    for row in rows {
        let (symbol, since) = match row.per_thread {
            Some(symbol) if flags == PER_THREAD => (symbol, row.since.max(PER_THREAD_SINCE)),
            _ => (row.symbol, row.since),
        };
        if since <= version {
            found = Found::Symbol(symbol);
        } else if found == Found::NotThere {
            found = Found::NewerOnly;
        }
    }
    Ok(found)
}

driver_functions! {
    fn cuGetProcAddress(name: Text, place: Out<*const c_void>, version: i32, flags: u64) |_| {
        let found = find(name, version, flags)?;
        place.set(found.address())?;
        if matches!(found, Found::Symbol(_)) { Ok(()) } else { Err(Status::NOT_FOUND) }
    }

    fn cuGetProcAddress_v2(
        name: Text, place: Out<*const c_void>, version: i32, flags: u64, status: Out<u32>,
    ) |_| {
        place.required()?;
        let found = find(name, version, flags)?;
        status.set_if_wanted(found.number());
        place.set(found.address())
    }
}

macro_rules! table {
    ($($name:ident $since:literal $symbol:ident $(/ $per_thread:ident)?;)*) => {
        /// All versions; those of one name are in ascending order.
        static TABLE: &[FunctionVersion] = &[$(FunctionVersion {
            name: stringify!($name),
            since: $since,
            symbol: Symbol($symbol as *const c_void),
            per_thread: table!(@per_thread $($per_thread)?),
        },)*];

        #[cfg(test)]
        const SYMBOLS: &[&str] = &[$(stringify!($symbol), $(stringify!($per_thread),)?)*];
    };
    (@per_thread) => { None };
    (@per_thread $symbol:ident) => { Some(Symbol($symbol as *const c_void)) };
}

table! {
    cuArray3DCreate 3020 cuArray3DCreate_v2;
    cuArray3DGetDescriptor 3020 cuArray3DGetDescriptor_v2;
    cuArrayCreate 3020 cuArrayCreate_v2;
    cuArrayDestroy 2000 cuArrayDestroy;
    cuArrayGetDescriptor 3020 cuArrayGetDescriptor_v2;
    cuCtxCreate 2000 cuCtxCreate;
    cuCtxCreate 3020 cuCtxCreate_v2;
    cuCtxCreate 11040 cuCtxCreate_v3;
    cuCtxCreate 12050 cuCtxCreate_v4;
    cuCtxDestroy 2000 cuCtxDestroy;
    cuCtxDestroy 4000 cuCtxDestroy_v2;
    cuCtxDisablePeerAccess 4000 cuCtxDisablePeerAccess;
    cuCtxEnablePeerAccess 4000 cuCtxEnablePeerAccess;
    cuCtxFromGreenCtx 12040 cuCtxFromGreenCtx;
    cuCtxGetApiVersion 3020 cuCtxGetApiVersion;
    cuCtxGetCacheConfig 3020 cuCtxGetCacheConfig;
    cuCtxGetCurrent 4000 cuCtxGetCurrent;
    cuCtxGetDevice 2000 cuCtxGetDevice;
    cuCtxGetDevice 13000 cuCtxGetDevice_v2;
    cuCtxGetFlags 7000 cuCtxGetFlags;
    cuCtxGetId 12000 cuCtxGetId;
    cuCtxGetLimit 3010 cuCtxGetLimit;
    cuCtxGetStreamPriorityRange 5050 cuCtxGetStreamPriorityRange;
    cuCtxPopCurrent 2000 cuCtxPopCurrent;
    cuCtxPopCurrent 4000 cuCtxPopCurrent_v2;
    cuCtxPushCurrent 2000 cuCtxPushCurrent;
    cuCtxPushCurrent 4000 cuCtxPushCurrent_v2;
    cuCtxRecordEvent 12050 cuCtxRecordEvent;
    cuCtxSetCacheConfig 3020 cuCtxSetCacheConfig;
    cuCtxSetCurrent 4000 cuCtxSetCurrent;
    cuCtxSetFlags 12010 cuCtxSetFlags;
    cuCtxSetLimit 3010 cuCtxSetLimit;
    cuCtxSynchronize 2000 cuCtxSynchronize;
    cuCtxSynchronize 13000 cuCtxSynchronize_v2;
    cuDestroyExternalMemory 10000 cuDestroyExternalMemory;
    cuDevResourceGenerateDesc 12040 cuDevResourceGenerateDesc;
    cuDeviceCanAccessPeer 4000 cuDeviceCanAccessPeer;
    cuDeviceComputeCapability 2000 cuDeviceComputeCapability;
    cuDeviceGet 2000 cuDeviceGet;
    cuDeviceGetAttribute 2000 cuDeviceGetAttribute;
    cuDeviceGetByPCIBusId 4010 cuDeviceGetByPCIBusId;
    cuDeviceGetCount 2000 cuDeviceGetCount;
    cuDeviceGetDefaultMemPool 11020 cuDeviceGetDefaultMemPool;
    cuDeviceGetDevResource 12040 cuDeviceGetDevResource;
    cuDeviceGetGraphMemAttribute 11040 cuDeviceGetGraphMemAttribute;
    cuDeviceGetMemPool 11020 cuDeviceGetMemPool;
    cuDeviceGetName 2000 cuDeviceGetName;
    cuDeviceGetP2PAttribute 8000 cuDeviceGetP2PAttribute;
    cuDeviceGetPCIBusId 4010 cuDeviceGetPCIBusId;
    cuDeviceGetUuid 10000 cuDeviceGetUuid;
    cuDeviceGetUuid 11040 cuDeviceGetUuid_v2;
    cuDeviceGraphMemTrim 11040 cuDeviceGraphMemTrim;
    cuDevicePrimaryCtxGetState 7000 cuDevicePrimaryCtxGetState;
    cuDevicePrimaryCtxRelease 7000 cuDevicePrimaryCtxRelease;
    cuDevicePrimaryCtxRelease 11000 cuDevicePrimaryCtxRelease_v2;
    cuDevicePrimaryCtxReset 7000 cuDevicePrimaryCtxReset;
    cuDevicePrimaryCtxReset 11000 cuDevicePrimaryCtxReset_v2;
    cuDevicePrimaryCtxRetain 7000 cuDevicePrimaryCtxRetain;
    cuDevicePrimaryCtxSetFlags 7000 cuDevicePrimaryCtxSetFlags;
    cuDevicePrimaryCtxSetFlags 11000 cuDevicePrimaryCtxSetFlags_v2;
    cuDeviceSetGraphMemAttribute 11040 cuDeviceSetGraphMemAttribute;
    cuDeviceSetMemPool 11020 cuDeviceSetMemPool;
    cuDeviceTotalMem 2000 cuDeviceTotalMem;
    cuDeviceTotalMem 3020 cuDeviceTotalMem_v2;
    cuDriverGetVersion 2020 cuDriverGetVersion;
    cuEventCreate 2000 cuEventCreate;
    cuEventDestroy 2000 cuEventDestroy;
    cuEventDestroy 4000 cuEventDestroy_v2;
    cuEventElapsedTime 2000 cuEventElapsedTime;
    cuEventElapsedTime 12080 cuEventElapsedTime_v2;
    cuEventQuery 2000 cuEventQuery;
    cuEventRecord 2000 cuEventRecord / cuEventRecord_ptsz;
    cuEventRecordWithFlags 11010 cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz;
    cuEventSynchronize 2000 cuEventSynchronize;
    cuExternalMemoryGetMappedBuffer 10000 cuExternalMemoryGetMappedBuffer;
    cuFuncGetAttribute 2020 cuFuncGetAttribute;
    cuFuncGetModule 11000 cuFuncGetModule;
    cuFuncGetName 12030 cuFuncGetName;
    cuFuncIsLoaded 12040 cuFuncIsLoaded;
    cuFuncLoad 12040 cuFuncLoad;
    cuFuncSetAttribute 9000 cuFuncSetAttribute;
    cuFuncSetCacheConfig 3000 cuFuncSetCacheConfig;
    cuGetErrorName 6000 cuGetErrorName;
    cuGetErrorString 6000 cuGetErrorString;
    cuGetExportTable 3000 cuGetExportTable;
    cuGetProcAddress 11030 cuGetProcAddress;
    cuGetProcAddress 12000 cuGetProcAddress_v2;
    cuGraphAddEmptyNode 10000 cuGraphAddEmptyNode;
    cuGraphAddMemAllocNode 11040 cuGraphAddMemAllocNode;
    cuGraphAddMemFreeNode 11040 cuGraphAddMemFreeNode;
    cuGraphAddNode 12020 cuGraphAddNode;
    cuGraphAddNode 12030 cuGraphAddNode_v2;
    cuGraphCreate 10000 cuGraphCreate;
    cuGraphDestroy 10000 cuGraphDestroy;
    cuGraphExecDestroy 10000 cuGraphExecDestroy;
    cuGraphGetNodes 10000 cuGraphGetNodes;
    cuGraphInstantiate 10000 cuGraphInstantiate;
    cuGraphInstantiate 11000 cuGraphInstantiate_v2;
    cuGraphInstantiateWithFlags 11040 cuGraphInstantiateWithFlags;
    cuGraphInstantiateWithParams 12000 cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz;
    cuGraphLaunch 10000 cuGraphLaunch / cuGraphLaunch_ptsz;
    cuGraphUpload 11010 cuGraphUpload / cuGraphUpload_ptsz;
    cuGreenCtxCreate 12040 cuGreenCtxCreate;
    cuGreenCtxDestroy 12040 cuGreenCtxDestroy;
    cuImportExternalMemory 10000 cuImportExternalMemory;
    cuInit 2000 cuInit;
    cuIpcCloseMemHandle 4010 cuIpcCloseMemHandle;
    cuIpcGetMemHandle 4010 cuIpcGetMemHandle;
    cuIpcOpenMemHandle 4010 cuIpcOpenMemHandle;
    cuIpcOpenMemHandle 11000 cuIpcOpenMemHandle_v2;
    cuKernelGetAttribute 12000 cuKernelGetAttribute;
    cuKernelGetFunction 12000 cuKernelGetFunction;
    cuKernelGetName 12030 cuKernelGetName;
    cuKernelSetAttribute 12000 cuKernelSetAttribute;
    cuLaunchCooperativeKernel 9000 cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz;
    cuLaunchKernel 4000 cuLaunchKernel / cuLaunchKernel_ptsz;
    cuLaunchKernelEx 11060 cuLaunchKernelEx / cuLaunchKernelEx_ptsz;
    cuLibraryGetGlobal 12000 cuLibraryGetGlobal;
    cuLibraryGetKernel 12000 cuLibraryGetKernel;
    cuLibraryGetModule 12000 cuLibraryGetModule;
    cuLibraryLoadData 12000 cuLibraryLoadData;
    cuLibraryLoadFromFile 12000 cuLibraryLoadFromFile;
    cuLibraryUnload 12000 cuLibraryUnload;
    cuMemAddressFree 11000 cuMemAddressFree;
    cuMemAddressReserve 11000 cuMemAddressReserve;
    cuMemAlloc 2000 cuMemAlloc;
    cuMemAlloc 3020 cuMemAlloc_v2;
    cuMemAllocAsync 11020 cuMemAllocAsync / cuMemAllocAsync_ptsz;
    cuMemAllocFromPoolAsync 11020 cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz;
    cuMemAllocHost 2000 cuMemAllocHost;
    cuMemAllocHost 3020 cuMemAllocHost_v2;
    cuMemAllocManaged 6000 cuMemAllocManaged;
    cuMemAllocPitch 2000 cuMemAllocPitch;
    cuMemAllocPitch 3020 cuMemAllocPitch_v2;
    cuMemCreate 11000 cuMemCreate;
    cuMemExportToShareableHandle 10020 cuMemExportToShareableHandle;
    cuMemFree 2000 cuMemFree;
    cuMemFree 3020 cuMemFree_v2;
    cuMemFreeAsync 11020 cuMemFreeAsync / cuMemFreeAsync_ptsz;
    cuMemFreeHost 2000 cuMemFreeHost;
    cuMemGetAccess 11000 cuMemGetAccess;
    cuMemGetAddressRange 2000 cuMemGetAddressRange;
    cuMemGetAddressRange 3020 cuMemGetAddressRange_v2;
    cuMemGetAllocationGranularity 11000 cuMemGetAllocationGranularity;
    cuMemGetAllocationPropertiesFromHandle 11000 cuMemGetAllocationPropertiesFromHandle;
    cuMemGetInfo 2000 cuMemGetInfo;
    cuMemGetInfo 3020 cuMemGetInfo_v2;
    cuMemHostAlloc 2020 cuMemHostAlloc;
    cuMemHostGetDevicePointer 3020 cuMemHostGetDevicePointer_v2;
    cuMemHostGetFlags 2030 cuMemHostGetFlags;
    cuMemHostRegister 4000 cuMemHostRegister;
    cuMemHostRegister 6050 cuMemHostRegister_v2;
    cuMemHostUnregister 4000 cuMemHostUnregister;
    cuMemImportFromShareableHandle 10020 cuMemImportFromShareableHandle;
    cuMemMap 11000 cuMemMap;
    cuMemPoolCreate 11020 cuMemPoolCreate;
    cuMemPoolDestroy 11020 cuMemPoolDestroy;
    cuMemPoolExportPointer 11020 cuMemPoolExportPointer;
    cuMemPoolExportToShareableHandle 11020 cuMemPoolExportToShareableHandle;
    cuMemPoolGetAccess 11020 cuMemPoolGetAccess;
    cuMemPoolGetAttribute 11020 cuMemPoolGetAttribute;
    cuMemPoolImportFromShareableHandle 11020 cuMemPoolImportFromShareableHandle;
    cuMemPoolImportPointer 11020 cuMemPoolImportPointer;
    cuMemPoolSetAccess 11020 cuMemPoolSetAccess;
    cuMemPoolSetAttribute 11020 cuMemPoolSetAttribute;
    cuMemPoolTrimTo 11020 cuMemPoolTrimTo;
    cuMemRelease 11000 cuMemRelease;
    cuMemRetainAllocationHandle 11000 cuMemRetainAllocationHandle;
    cuMemSetAccess 11000 cuMemSetAccess;
    cuMemUnmap 11000 cuMemUnmap;
    cuMemcpy 4000 cuMemcpy / cuMemcpy_ptds;
    cuMemcpy2D 3020 cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds;
    cuMemcpy2DAsync 3020 cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz;
    cuMemcpy2DUnaligned 3020 cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds;
    cuMemcpy3D 3020 cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds;
    cuMemcpy3DAsync 3020 cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz;
    cuMemcpyAsync 4000 cuMemcpyAsync / cuMemcpyAsync_ptsz;
    cuMemcpyDtoD 2000 cuMemcpyDtoD;
    cuMemcpyDtoD 3020 cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds;
    cuMemcpyDtoDAsync 3020 cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz;
    cuMemcpyDtoH 2000 cuMemcpyDtoH;
    cuMemcpyDtoH 3020 cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds;
    cuMemcpyDtoHAsync 3020 cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz;
    cuMemcpyHtoD 2000 cuMemcpyHtoD;
    cuMemcpyHtoD 3020 cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds;
    cuMemcpyHtoDAsync 3020 cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz;
    cuMemcpyPeer 4000 cuMemcpyPeer / cuMemcpyPeer_ptds;
    cuMemcpyPeerAsync 4000 cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz;
    cuMemsetD16 2000 cuMemsetD16;
    cuMemsetD16 3020 cuMemsetD16_v2 / cuMemsetD16_v2_ptds;
    cuMemsetD16Async 3020 cuMemsetD16Async / cuMemsetD16Async_ptsz;
    cuMemsetD2D16 3020 cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds;
    cuMemsetD2D16Async 3020 cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz;
    cuMemsetD2D32 3020 cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds;
    cuMemsetD2D32Async 3020 cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz;
    cuMemsetD2D8 3020 cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds;
    cuMemsetD2D8Async 3020 cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz;
    cuMemsetD32 2000 cuMemsetD32;
    cuMemsetD32 3020 cuMemsetD32_v2 / cuMemsetD32_v2_ptds;
    cuMemsetD32Async 3020 cuMemsetD32Async / cuMemsetD32Async_ptsz;
    cuMemsetD8 2000 cuMemsetD8;
    cuMemsetD8 3020 cuMemsetD8_v2 / cuMemsetD8_v2_ptds;
    cuMemsetD8Async 3020 cuMemsetD8Async / cuMemsetD8Async_ptsz;
    cuMipmappedArrayCreate 5000 cuMipmappedArrayCreate;
    cuMipmappedArrayDestroy 5000 cuMipmappedArrayDestroy;
    cuMipmappedArrayGetLevel 5000 cuMipmappedArrayGetLevel;
    cuModuleGetFunction 2000 cuModuleGetFunction;
    cuModuleGetGlobal 3020 cuModuleGetGlobal_v2;
    cuModuleGetLoadingMode 11070 cuModuleGetLoadingMode;
    cuModuleLoad 2000 cuModuleLoad;
    cuModuleLoadData 2000 cuModuleLoadData;
    cuModuleLoadDataEx 2010 cuModuleLoadDataEx;
    cuModuleLoadFatBinary 2000 cuModuleLoadFatBinary;
    cuModuleUnload 2000 cuModuleUnload;
    cuMulticastAddDevice 12010 cuMulticastAddDevice;
    cuMulticastBindAddr 12010 cuMulticastBindAddr;
    cuMulticastBindMem 12010 cuMulticastBindMem;
    cuMulticastCreate 12010 cuMulticastCreate;
    cuMulticastGetGranularity 12010 cuMulticastGetGranularity;
    cuMulticastUnbind 12010 cuMulticastUnbind;
    cuOccupancyMaxActiveBlocksPerMultiprocessor 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
    cuPointerGetAttribute 4000 cuPointerGetAttribute;
    cuPointerGetAttributes 7000 cuPointerGetAttributes;
    cuPointerSetAttribute 6000 cuPointerSetAttribute;
    cuProfilerStart 4000 cuProfilerStart;
    cuProfilerStop 4000 cuProfilerStop;
    cuStreamBeginCapture 10000 cuStreamBeginCapture / cuStreamBeginCapture_ptsz;
    cuStreamBeginCapture 10010 cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz;
    cuStreamCreate 2000 cuStreamCreate;
    cuStreamCreateWithPriority 5050 cuStreamCreateWithPriority;
    cuStreamDestroy 2000 cuStreamDestroy;
    cuStreamDestroy 4000 cuStreamDestroy_v2;
    cuStreamEndCapture 10000 cuStreamEndCapture / cuStreamEndCapture_ptsz;
    cuStreamGetCaptureInfo 10010 cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz;
    cuStreamGetCaptureInfo 11030 cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz;
    cuStreamGetCaptureInfo 12030 cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz;
    cuStreamGetCtx 10000 cuStreamGetCtx / cuStreamGetCtx_ptsz;
    cuStreamGetDevice 12080 cuStreamGetDevice / cuStreamGetDevice_ptsz;
    cuStreamGetFlags 5050 cuStreamGetFlags / cuStreamGetFlags_ptsz;
    cuStreamGetId 12000 cuStreamGetId / cuStreamGetId_ptsz;
    cuStreamGetPriority 5050 cuStreamGetPriority / cuStreamGetPriority_ptsz;
    cuStreamIsCapturing 10000 cuStreamIsCapturing / cuStreamIsCapturing_ptsz;
    cuStreamQuery 2000 cuStreamQuery / cuStreamQuery_ptsz;
    cuStreamSynchronize 2000 cuStreamSynchronize / cuStreamSynchronize_ptsz;
    cuStreamWaitEvent 3020 cuStreamWaitEvent / cuStreamWaitEvent_ptsz;
    cuThreadExchangeStreamCaptureMode 10010 cuThreadExchangeStreamCaptureMode;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_name_stand_together_in_order() {
        assert!(TABLE.windows(2).all(|pair| {
            pair[0].name < pair[1].name || (pair[0].name == pair[1].name && pair[0].since < pair[1].since)
        }));
    }

    #[test]
    fn every_form_is_a_function_of_its_own() {
        let mut symbols = SYMBOLS.to_vec();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), SYMBOLS.len());
    }
}
