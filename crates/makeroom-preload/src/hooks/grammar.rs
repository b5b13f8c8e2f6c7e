//! The grammar of the hook table: macros that expand a row to a function around the driver's.
//!
//! A row is a function with its parameters and the way to handle it:
//!
//! - `took |done| EVENT`: the call allocates; the event is stamped after it, with place and stack;
//! - `limited RESERVATION, took …`: the same, and it counts against `MAKEROOM_LIMIT` (`limit::reserve` and its variants);
//! - `context MAKING on DEVICE at PLACE, took …`: the same for contexts, which are counted once they exist;
//! - `gave |done| EVENT`: the call releases; the event is stamped before it, and its result added after it;
//! - `failed |done| EVENT`: only a failure is an event (launches: success costs one comparison);
//! - `launched |done| EVENT`: the same for graphs, which may take memory when they are launched;
//! - `then |done| WORK`: runs after the call; `always`: also when nothing is recorded anymore;
//! - `followed BY`: notifies the pool after the driver has succeeded;
//! - `corrected BY`: the pool corrects the driver's results for its own memory;
//! - `captures`: the call begins a capture;
//! - `paged SERVE, …`: a call of PyTorch's segments comes to the pages first; if they serve it, nothing is recorded,
//!   because only their own memory is real;
//! - `first WORK`: runs before the call, in addition to the rest of the row;
//! - `released STREAM, EVENT`: `gave` for stream-ordered frees, which are not complete when they return;
//! - `waits AWAITED`: earlier frees may be complete after it; `marks EVENT on STREAM`: or after a wait for the event;
//! - `served BY, …`: the pool comes first, and serves the call or leaves it to the driver.
//!
//! `done` (`driver/done.rs`) reads out-parameters, which are valid only after success. `record/event.rs` has the methods
//! that set the fields of an event.
//!
//! If an allocation by the program fails for lack of memory, it is retried once if the pool had memory to release
//! (`retried!`).

/// The program's own call, retried once if memory ran out and the pool could release some.
macro_rules! retried {
    ($role:ident, $real:ident ($($argument:ident),*)) => {{
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if result == OUT_OF_MEMORY && $role == Role::Outermost && pool::gives_back() {
            // SAFETY: as above; the failed call has changed nothing.
            unsafe { $real($($argument),*) }
        } else {
            result
        }
    }};
}

/// Reserves memory under the limit. Memory cached by the pool must not make that fail.
macro_rules! reserved {
    ($is_counted:ident, $reservation:expr) => {{
        // SAFETY: a row reads only parameters that the driver is about to read.
        let reserve = || if $is_counted { unsafe { $reservation } } else { limit::uncounted() };
        reserve().or_else(|| pool::gives_back().then(reserve).flatten())
    }};
}

/// Expands a row to code around the call.
macro_rules! body {
    ($real:ident ($($argument:ident),*) took |$done:ident| $event:expr) => {{
        let call = Call::new();
        let role = call.enter();
        let result = retried!(role, $real($($argument),*));
        if role == Role::Outermost {
            let $done = Done(result);
            // SAFETY: a row reads parameters only through `done`, which checks that the driver accepted them.
            Call::aside(|| record(unsafe { $event }, result, Moment::After));
        }
        result
    }};
    ($real:ident ($($argument:ident),*) gave |$done:ident| $event:expr) => {{
        let call = Call::new();
        let role = call.enter();
        let moment = Moment::Before(clock::monotonic_ns());
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if role == Role::Outermost {
            let $done = Done(result);
            // SAFETY: a row reads parameters only through `done`, which checks that the driver accepted them.
            Call::aside(|| record(unsafe { $event }, result, moment));
        }
        result
    }};
    ($real:ident ($($argument:ident),*) limited $reservation:expr, took |$done:ident| $event:expr) => {
        body!(@limited $real ($($argument),*) None, $reservation, |$done| $event)
    };
    (
        $real:ident ($($argument:ident),*)
        context $making:ident on $device:ident at $place:ident, took |$done:ident| $event:expr
    ) => {{
        let call = Call::new();
        let role = call.enter();
        let mut before = None;
        if role == Role::Outermost {
            Call::aside(|| before = contexts::before($device, Making::$making));
        }
        let mut result = retried!(role, $real($($argument),*));
        if role == Role::Outermost {
            Call::aside(|| {
                let mut bytes = 0;
                // SAFETY: an out-parameter of this call.
                let handle = unsafe { Done(result).handle($place) };
                if let Some(before) = before.filter(|_| result == SUCCESS)
                    && let Err(refused) = contexts::admit(before, handle, pool::gives_back)
                {
                    (result, bytes) = (OUT_OF_MEMORY, refused);
                    // SAFETY: the driver filled it, so it is valid; the context in it no longer exists.
                    unsafe { *$place = std::ptr::null_mut() };
                }
                let $done = Done(result);
                // SAFETY: a row reads parameters only through `done`, which checks that the driver accepted them.
                let event = unsafe { $event };
                record(if bytes > 0 { event.size(bytes) } else { event }, result, Moment::After);
            });
        }
        result
    }};
    (
        $real:ident ($($argument:ident),*)
        served $serve:expr, limited $reservation:expr, took |$done:ident| $event:expr
    ) => {
        // SAFETY: the pool uses the call's parameters as the driver would.
        body!(@limited $real ($($argument),*) pool::serve(|| unsafe { $serve }), $reservation, |$done| $event)
    };
    (@limited $real:ident ($($argument:ident),*) $served:expr, $reservation:expr, |$done:ident| $event:expr) => {{
        let call = Call::new();
        let role = call.enter();
        let served: Option<CuResult> = $served;
        let is_counted = served.is_none() && role == Role::Outermost;
        let reservation = reserved!(is_counted, $reservation);
        let result = match served {
            Some(result) => result,
            None if reservation.is_some() => retried!(role, $real($($argument),*)),
            None => OUT_OF_MEMORY,
        };
        if role == Role::Outermost {
            let $done = Done(result);
            Call::aside(|| {
                // SAFETY: a row reads parameters only through `done`, which checks that the driver accepted them.
                let event = unsafe { $event };
                match reservation {
                    Some(reservation) if result == SUCCESS => limit::keep(reservation, &event),
                    Some(reservation) => limit::cancel(reservation),
                    None => {}
                }
                record(event, result, Moment::After);
            });
        }
        result
    }};
    ($real:ident ($($argument:ident),*) served $serve:expr, took |$done:ident| $event:expr) => {
        body!(@served $real ($($argument),*) $serve, Moment::After, |$done| $event)
    };
    ($real:ident ($($argument:ident),*) served $serve:expr, gave |$done:ident| $event:expr) => {
        body!(@served $real ($($argument),*) $serve, Moment::Before(clock::monotonic_ns()), |$done| $event)
    };
    ($real:ident ($($argument:ident),*) served $serve:expr, released $stream:expr, |$done:ident| $event:expr) => {{
        // Before the event is stamped.
        let freeing = waits::begin_free();
        let result = body!(@served $real ($($argument),*) $serve, Moment::Before(clock::monotonic_ns()), |$done| $event);
        freeing.end($stream);
        result
    }};
    ($real:ident ($($argument:ident),*) captures) => {{
        let beginning = capture::begins();
        let result = body!($real ($($argument),*) always |done| capture::began(done));
        drop(beginning);
        result
    }};
    ($real:ident $arguments:tt paged $serve:expr, $($what:tt)*) => {{
        let call = Call::new();
        let mut served = None;
        if call.enter() == Role::Outermost {
            // SAFETY: the pages use the call's parameters as the driver would.
            served = pages::serve(|| unsafe { $serve });
        }
        drop(call);
        match served {
            Some(result) => result,
            None => body!($real $arguments $($what)*),
        }
    }};
    ($real:ident ($($argument:ident),*) paged $serve:expr) => {{
        let call = Call::new();
        let mut served = None;
        if call.enter() == Role::Outermost {
            // SAFETY: the pages use the call's parameters as the driver would.
            served = pages::serve(|| unsafe { $serve });
        }
        drop(call);
        // SAFETY: the program's own call, forwarded unchanged.
        served.unwrap_or_else(|| unsafe { $real($($argument),*) })
    }};
    ($real:ident ($($argument:ident),*) waits $awaited:expr) => {{
        let wait = Wait::begin($awaited);
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if let Some(wait) = wait {
            wait.end(result);
        }
        if result != SUCCESS {
            pages::failed(result);
        }
        result
    }};
    ($real:ident ($($argument:ident),*) marks $marked:ident on $stream:expr) => {{
        let marking = waits::mark($marked, $stream);
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if let Some(marking) = marking {
            marking.end(result);
        }
        result
    }};
    ($real:ident $arguments:tt first $work:expr, $($what:tt)*) => {{
        $work;
        body!($real $arguments $($what)*)
    }};
    ($real:ident ($($argument:ident),*) first $work:expr) => {{
        $work;
        // SAFETY: the program's own call, forwarded unchanged.
        unsafe { $real($($argument),*) }
    }};
    (@served $real:ident ($($argument:ident),*) $serve:expr, $moment:expr, |$done:ident| $event:expr) => {{
        let call = Call::new();
        let role = call.enter();
        let moment = $moment;
        // SAFETY: the pool uses the call's parameters as the driver would.
        let served = pool::serve(|| unsafe { $serve });
        // SAFETY: the program's own call, forwarded unchanged.
        let result = served.unwrap_or_else(|| unsafe { $real($($argument),*) });
        if role == Role::Outermost {
            let $done = Done(result);
            // SAFETY: a row reads parameters only through `done`, which checks that the driver accepted them.
            Call::aside(|| record(unsafe { $event }, result, moment));
        }
        result
    }};
    ($real:ident ($($argument:ident),*) served $serve:expr) => {{
        // SAFETY: the pool uses the call's parameters as the driver would.
        let served = pool::serve(|| unsafe { $serve });
        // SAFETY: the program's own call, forwarded unchanged.
        served.unwrap_or_else(|| unsafe { $real($($argument),*) })
    }};
    ($real:ident ($($argument:ident),*) failed |$done:ident| $event:expr) => {{
        // SAFETY: the program's own call, forwarded unchanged.
        let mut result = unsafe { $real($($argument),*) };
        if result != SUCCESS {
            let call = Call::new();
            let role = call.enter();
            pages::failed(result);
            if result == OUT_OF_MEMORY {
                result = retried!(role, $real($($argument),*));
            }
            if result != SUCCESS && role == Role::Outermost {
                let $done = Done(result);
                // SAFETY: as above; such a row uses numbers, handles, and launch structures that `Done::launched` passes.
                Call::aside(|| record(unsafe { $event }, result, Moment::After));
            }
        }
        result
    }};
    ($real:ident ($($argument:ident),*) launched |$done:ident| $event:expr) => {{
        let result = body!($real ($($argument),*) failed |$done| $event);
        if result == SUCCESS && sample::has_graph_memory() {
            let call = Call::new();
            if call.enter() == Role::Outermost {
                Call::aside(|| sample::if_due(clock::monotonic_ns()));
            }
        }
        result
    }};
    ($real:ident ($($argument:ident),*) followed $work:expr) => {{
        let call = Call::new();
        let role = call.enter();
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if role == Role::Outermost && result == SUCCESS {
            // SAFETY: the pool reads parameters that the driver has just accepted.
            pool::serve(|| unsafe { $work });
        }
        result
    }};
    ($real:ident ($($argument:ident),*) corrected $work:expr) => {{
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if result == SUCCESS {
            // SAFETY: the pool reads and writes memory that the driver has just read and written.
            pool::serve(|| unsafe { $work });
        }
        result
    }};
    ($real:ident ($($argument:ident),*) always |$done:ident| $work:expr) => {{
        let call = Call::new();
        let role = call.enter();
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if role == Role::Outermost || state::is_disabled() {
            let $done = Done(result);
            // SAFETY: such a row reads no memory of the program.
            Call::aside(|| unsafe { $work });
        }
        result
    }};
    ($real:ident ($($argument:ident),*) then |$done:ident| $work:expr) => {{
        let call = Call::new();
        let role = call.enter();
        // SAFETY: the program's own call, forwarded unchanged.
        let result = unsafe { $real($($argument),*) };
        if role == Role::Outermost {
            let $done = Done(result);
            // SAFETY: such a row checks through `done` that the driver filled the memory it reads and writes.
            Call::aside(|| unsafe { $work });
        }
        result
    }};
}

macro_rules! hooks {
    ($($name:ident($($argument:ident: $type:ty),*) { $($what:tt)* })*) => {
        /// The address that a program gets instead of the driver's function. Each function of `driver/function.rs` has
        /// exactly one row.
        pub(crate) fn hook(function: Function) -> *mut c_void {
            match function {
                $(Function::$name => exported::$name as *mut c_void,)*
            }
        }

        /// The functions that programs call.
        #[allow(non_snake_case, reason = "the driver's own names")]
        #[allow(unused_unsafe, reason = "some rows have no arguments to read")]
        mod exported {
            use super::*;

            $(
                #[cfg_attr(not(test), unsafe(no_mangle))]
                pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> CuResult {
                    type Real = unsafe extern "C-unwind" fn($($type),*) -> CuResult;
                    let Some(address) = real::address(Function::$name) else { return NO_DRIVER };
                    // SAFETY: the address is the driver's function of this name, which has this signature.
                    let real = unsafe { std::mem::transmute::<*mut c_void, Real>(address) };
                    body!(real ($($argument),*) $($what)*)
                }
            )*
        }
    };
}
