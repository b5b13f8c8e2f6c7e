//! A kernel that calls `malloc`: it allocates from a heap of 8 MiB, and does not check for a null pointer.

use std::ffi::c_void;
use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Launch, Limit, Module, Stream};

use crate::card::Card;
use crate::situation::Outcome;

/// Allocates memory inside the kernel and stores the result: an address, or 0. Written as `nvcc` generates it.
const KERNEL: &std::ffi::CStr = c"
.version 6.0
.target sm_50
.address_size 64
.extern .func  (.param .b64 func_retval0) malloc
(
.param .b64 malloc_param_0
)
;
.visible .entry allocate_inside(.param .u64 bytes, .param .u64 answer)
{
    .reg .u64 %bytes, %answer, %found;
    ld.param.u64 %bytes, [bytes];
    ld.param.u64 %answer, [answer];
    cvta.to.global.u64 %answer, %answer;
    {
        .param .b64 wanted;
        .param .b64 got;
        st.param.b64 [wanted], %bytes;
        call.uni (got), malloc, (wanted);
        ld.param.b64 %found, [got];
    }
    st.global.u64 [%answer], %found;
    ret;
}
";

/// The value of the result before the kernel has run.
const UNTOUCHED: u64 = u64::MAX;

#[inline(never)]
#[unsafe(export_name = "kernel_heap::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let heap = card.driver.limit(Limit::Heap)?;
    let wanted = Bytes::mib(64);
    let module = module_that_allocates(card)?;
    let answer = answer_of_the_kernel(card)?;
    answer.region().write(&UNTOUCHED.to_ne_bytes())?;
    launch(card, &module, wanted, answer.address().0)?;
    card.driver.synchronize()?;
    let mut bytes = [0; 8];
    answer.region().read(&mut bytes)?;
    match u64::from_ne_bytes(bytes) {
        0 => writeln!(output, "malloc of {wanted} in the kernel returned NULL; the heap has {heap}")?,
        UNTOUCHED => writeln!(
            output,
            "a kernel requested {wanted} from a heap of {heap} (the software GPU does not run kernels, only records the launch)"
        )?,
        address => writeln!(output, "malloc in the kernel returned {address:#x}")?,
    }
    answer.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "kernel_heap::module_that_allocates")]
fn module_that_allocates(card: &Card) -> makeroom_cuda::Result<Module> {
    Module::load_text(card.driver, KERNEL)
}

#[inline(never)]
#[unsafe(export_name = "kernel_heap::answer_of_the_kernel")]
fn answer_of_the_kernel(card: &Card) -> makeroom_cuda::Result<DeviceMemory> {
    card.allocate(Bytes::kib(4))
}

#[inline(never)]
#[unsafe(export_name = "kernel_heap::launch")]
fn launch(card: &Card, module: &Module, wanted: Bytes, answer: u64) -> makeroom_cuda::Result<()> {
    let (mut wanted, mut answer) = (wanted.get(), answer);
    let mut parameters: [*mut c_void; 2] = [(&raw mut wanted).cast(), (&raw mut answer).cast()];
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    let stream = Stream::default_of(card.driver);
    // SAFETY: the kernel takes two eight-byte numbers and writes eight bytes to the second, which is live memory.
    unsafe { module.function(c"allocate_inside")?.launch(launch, &stream, &mut parameters) }
}
