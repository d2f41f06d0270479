//! From a launch's PTX to a function of the driver's.

use super::overlap::overlapping;
use super::said;
use cuda_kernels::{DeviceError, DeviceResult, Launch};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, sys};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Shared memory that every block may have without asking.
const SHARED_UNASKED: u32 = 48 << 10;

/// Modules and functions that were loaded already, compiled and on the device.
pub(super) struct Modules {
    context: Arc<CudaContext>,
    capability: (i32, i32),
    /// By where a text is: there are few, and all are part of the program.
    modules: HashMap<usize, Module>,
    functions: HashMap<(usize, &'static str), Function>,
}

struct Module {
    module: Arc<CudaModule>,
    /// Whether its kernels wait for earlier ones by themselves.
    overlaps: bool,
}

struct Function {
    ready: Ready,
    /// Dynamic shared memory that it may have.
    shared_bytes: u32,
}

/// A function that can be launched.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) function: CudaFunction,
    /// Whether it may begin before what was launched earlier has ended.
    pub(super) overlaps: bool,
}

impl Modules {
    pub(super) fn new(context: Arc<CudaContext>, capability: (i32, i32)) -> Self {
        Modules { context, capability, modules: HashMap::new(), functions: HashMap::new() }
    }

    pub(super) fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// The function of a launch, which may have the shared memory that the launch wants.
    pub(super) fn function(&mut self, launch: &Launch) -> DeviceResult<Ready> {
        // Whichever thread this is: functions are looked up in the current context.
        self.context.bind_to_thread().map_err(said("use the GPU"))?;
        let key = (launch.ptx.as_ptr() as usize, launch.entry);
        if !self.functions.contains_key(&key) {
            let &Module { ref module, overlaps } = self.module(launch)?;
            let function = module.load_function(launch.entry);
            let function =
                function.map_err(said(&format!("find {} in its module", launch.entry)))?;
            // SAFETY: it is a function of a module that is there. Without this the driver brings its code to the device when
            // it is first launched.
            unsafe { sys::cuFuncLoad(function.cu_function()) }
                .result()
                .map_err(said(&format!("bring {} to the GPU", launch.entry)))?;
            let ready = Ready { function, overlaps };
            self.functions.insert(key, Function { ready, shared_bytes: SHARED_UNASKED });
        }
        let entry = self.functions.get_mut(&key).expect("it is there now");
        if launch.shared_bytes > entry.shared_bytes {
            let attribute =
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = launch.shared_bytes;
            let set = entry.ready.function.set_attribute(attribute, bytes as i32);
            set.map_err(said(&format!("give {} {bytes} bytes of shared memory", launch.entry)))?;
            entry.shared_bytes = bytes;
        }
        Ok(entry.ready.clone())
    }

    /// What the driver's compiler says of a text that it has refused: the line, and what is wrong there.
    fn compiler_log(&self, ptx: &str) -> Option<String> {
        let text = CString::new(ptx).ok()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The size is passed by value, in a pointer's place.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
        let mut module = std::ptr::null_mut();
        self.context.bind_to_thread().ok()?;
        // SAFETY: the text ends with a zero; two options have two values, of which the first is a buffer of as many bytes as
        // the second says. All of them outlive the call. What it may have loaded after all is used by nobody and unloaded.
        unsafe {
            let text = text.as_ptr().cast();
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            let loaded = sys::cuModuleLoadDataEx(&raw mut module, text, 2, options, values);
            if loaded.result().is_ok() {
                let _ = sys::cuModuleUnload(module);
            }
        }
        first_line(&log)
    }

    fn module(&mut self, launch: &Launch) -> DeviceResult<&Module> {
        let place = launch.ptx.as_ptr() as usize;
        if !self.modules.contains_key(&place) {
            check(launch.entry, launch.ptx, self.capability)?;
            let edited = overlapping(launch.ptx, self.capability);
            let ptx = edited.as_deref().unwrap_or(launch.ptx);
            let module = self.context.load_module(Ptx::from_src(ptx)).map_err(|error| {
                let what = format!("load the module of {}", launch.entry);
                let DeviceError(problem) = said(&what)(error);
                let log = self.compiler_log(ptx);
                DeviceError(log.map_or(problem.clone(), |line| format!("{problem}: {line}")))
            })?;
            self.modules.insert(place, Module { module, overlaps: edited.is_some() });
        }
        Ok(&self.modules[&place])
    }
}

/// Bytes of what the driver's compiler says.
const LOG_BYTES: usize = 8 << 10;

/// The first line of a log that says something.
fn first_line(log: &[u8]) -> Option<String> {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// PTX for an architecture runs on all newer ones too, unless it is for one alone: `sm_90a` is for 9.0 and no other.
fn check(entry: &str, ptx: &str, capability: (i32, i32)) -> DeviceResult<()> {
    let target = ptx.lines().find_map(|line| line.trim().strip_prefix(".target "));
    let target = target.map_or("", |target| target.split(',').next().unwrap_or("").trim());
    let number = target.strip_prefix("sm_").unwrap_or("");
    let is_alone = number.ends_with('a');
    let number: i32 = number.trim_end_matches('a').parse().map_err(|_| {
        DeviceError(format!("{entry}: its PTX names no architecture (.target sm_80, say)"))
    })?;
    let (major, minor) = (number / 10, number % 10);
    let fits = match is_alone {
        true => capability == (major, minor),
        false => capability >= (major, minor),
    };
    if fits {
        return Ok(());
    }
    let which = if is_alone { "and for no other" } else { "and newer" };
    let (has, has_minor) = capability;
    Err(DeviceError(format!(
        "{entry} is for compute capability {major}.{minor} {which}; this GPU has {has}.{has_minor}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_kernels::rows::SwiGlu;
    use cuda_kernels::steps::HopperAttention;

    #[test]
    fn a_log_is_its_first_line_that_says_something() {
        let log = b"\n  ptxas application ptx input, line 7; fatal : Parsing error\nmore\0\0stale";
        let line = "ptxas application ptx input, line 7; fatal : Parsing error";
        assert_eq!(first_line(log).as_deref(), Some(line));
        assert_eq!(first_line(&[0; 8]), None);
    }

    #[test]
    fn ptx_of_one_architecture_is_not_given_to_another() {
        let swiglu = SwiGlu { out: 0, x: 0, rows: 1, width: 8 }.launch().unwrap();
        for capability in [(8, 0), (8, 9), (9, 0), (12, 0)] {
            check(swiglu.entry, swiglu.ptx, capability).unwrap();
        }
        let refused = check(swiglu.entry, swiglu.ptx, (7, 5)).unwrap_err().to_string();
        assert_eq!(refused, "swiglu is for compute capability 8.0 and newer; this GPU has 7.5");

        let hopper = HopperAttention {
            out: 0,
            queries: 0,
            keys: 0,
            values: 0,
            tokens: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 64,
            is_causal: true,
            scale: 0.1,
        };
        let hopper = hopper.launch().unwrap();
        check(hopper.entry, hopper.ptx, (9, 0)).unwrap();
        for capability in [(8, 0), (10, 0)] {
            let refused = check(hopper.entry, hopper.ptx, capability).unwrap_err().to_string();
            assert!(refused.contains("9.0 and for no other"), "{refused}");
        }
        let nameless = check("swiglu", ".version 8.4", (9, 0)).unwrap_err().to_string();
        assert!(nameless.contains("names no architecture"), "{nameless}");
    }
}
