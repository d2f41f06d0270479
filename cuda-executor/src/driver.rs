//! CUDA's driver as a device.
//!
//! All work goes through one stream, in order. Modules are made from the committed PTX when a kernel of theirs is
//! prepared or first launched, and kept. Bytes from and to the device pass through pinned memory, which the device reads by itself.
//!
//! | File | Holds |
//! |---|---|
//! | `driver.rs` | which GPU, its memory, launches and graphs |
//! | `driver/modules.rs` | from a launch's PTX to a function of the driver's |
//! | `driver/overlap.rs` | kernels that begin before the one before them has ended |
//! | `driver/pinned.rs` | pinned memory, a piece at a time |

mod modules;
mod overlap;
mod pinned;

use cuda_kernels::{
    Address, Argument, DeviceError, DeviceResult, Gpu, Launch, Recording, Rows, TensorMap,
};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError, result, sys};
use modules::{Modules, Ready};
use naive_decode::{Error, Result};
use pinned::Pinned;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// The driver that the PTX's version is read by, as CUDA numbers it: PTX ISA 8.4 came with CUDA 12.4 (r550).
const OLDEST_DRIVER: i32 = 12_040;

/// The oldest GPUs that have the kernels' instructions: bf16 in the tensor cores, asynchronous copies.
const OLDEST_CAPABILITY: (i32, i32) = (8, 0);

/// The first GPU of this machine.
pub struct Driver {
    // Dropped in this order: what needs the stream before the stream, and all before the context.
    graphs: Vec<CudaGraph>,
    modules: Modules,
    pinned: Pinned,
    /// Bytes of each piece of memory, by where it begins.
    memory: BTreeMap<Address, usize>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    /// Shared memory that a block may ask for.
    shared_bytes: u32,
}

// SAFETY: everything here may be used from any thread, one at a time, which `&mut self` sees to; graphs, which hold the
// driver's raw pointers, are the only part that does not say so itself. Each call binds the context to its thread first, and
// so does `drop`, since dropping a graph does not.
unsafe impl Send for Driver {}

impl Driver {
    /// The first GPU, if there are a driver and a GPU that the kernels are for.
    ///
    /// # Errors
    /// In one line, if there is no driver, it is too old, or there is no GPU of compute capability 8.0 or more.
    pub fn open() -> Result<Self> {
        // SAFETY: it looks for a library by name, and runs what loading it runs. Asked first, because every other call
        // panics without it.
        if !unsafe { sys::is_culib_present() } {
            let expected = "libcuda.so.1, which comes with NVIDIA's driver (r550 or newer)";
            return Err(Error::invalid("CUDA's driver", "not on this machine", expected));
        }
        let mut version = 0;
        // SAFETY: it writes one number to where it is told.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
        asked.map_err(|error| failed(said("ask for the driver's version")(error)))?;
        if version < OLDEST_DRIVER {
            let found = format!("for CUDA {}.{}", version / 1000, version % 1000 / 10);
            return Err(Error::invalid("CUDA's driver", found, "12.4 or newer (r550)"));
        }
        Driver::on_first().map_err(failed)
    }

    /// Whether there are a driver and a GPU at all, whatever they can do: if so and [`Driver::open`] fails, it is worth a word.
    pub fn is_there() -> bool {
        // SAFETY: as in `open`.
        if !unsafe { sys::is_culib_present() } {
            return false;
        }
        match result::init() {
            Ok(()) => result::device::get_count() != Ok(0),
            Err(error) => error.0 != sys::CUresult::CUDA_ERROR_NO_DEVICE,
        }
    }

    fn on_first() -> DeviceResult<Self> {
        let context = CudaContext::new(0).map_err(said("open the first GPU"))?;
        let capability = context.compute_capability().map_err(said("ask what the GPU can do"))?;
        if capability < OLDEST_CAPABILITY {
            let (major, minor) = capability;
            let problem = "the kernels are for 8.0 (A100) and newer";
            return Err(DeviceError(format!("compute capability {major}.{minor}; {problem}")));
        }
        let most = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared_bytes = context.attribute(most).map_err(said("ask for its shared memory"))?;
        // SAFETY: there is one stream, so no two can touch the same memory; nothing is freed before `drop`, which waits.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(said("make a stream"))?;
        Ok(Driver {
            graphs: Vec::new(),
            modules: Modules::new(context.clone(), capability),
            pinned: Pinned::new(&context).map_err(said("set pinned memory aside"))?,
            memory: BTreeMap::new(),
            stream,
            context,
            shared_bytes: shared_bytes as u32,
        })
    }

    /// The GPU's name.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn name(&self) -> Result<String> {
        self.context.name().map_err(|error| failed(said("ask for the GPU's name")(error)))
    }

    /// Its compute capability, major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.modules.capability()
    }

    /// Bytes of its memory that are free, and all of them.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.context.mem_get_info().map_err(|error| failed(said("ask for free memory")(error)))
    }

    /// Whether so many bytes lie within one piece of this device's memory.
    fn check(&self, what: &str, address: Address, bytes: usize) -> DeviceResult<()> {
        let piece = self.memory.range(..=address).next_back();
        let within = piece.is_some_and(|(&start, &length)| {
            usize::try_from(address - start).is_ok_and(|at| at + bytes <= length)
        });
        match within {
            true => Ok(()),
            false => Err(DeviceError(format!(
                "cannot {what}: {bytes} bytes at {address:#x} are not its"
            ))),
        }
    }

    /// Puts a launch on the stream, whose function is loaded already.
    fn submit(&mut self, launch: &Launch) -> DeviceResult<()> {
        let Ready { function, overlaps } = self.modules.function(launch)?;
        let maps: Vec<sys::CUtensorMap> = launch
            .arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::TensorMap(map) => Some(encode(map)),
                _ => None,
            })
            .collect::<DeviceResult<_>>()?;
        let mut maps = maps.iter();
        let place = |argument: &Argument| match argument {
            Argument::Pointer(address) => pointer(address),
            Argument::U32(number) => pointer(number),
            Argument::I32(number) => pointer(number),
            Argument::I64(number) => pointer(number),
            Argument::F32(number) => pointer(number),
            Argument::TensorMap(_) => pointer(maps.next().expect("one was made for each")),
        };
        let mut arguments: Vec<*mut c_void> = launch.arguments.iter().map(place).collect();
        let mut attributes = [sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        }];
        let [x, y, z] = launch.grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared_bytes,
            hStream: self.stream.cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: u32::from(overlaps),
        };
        // SAFETY: a `Launch` is made and checked by the crate that has the kernels, and nobody else can make or change one: as
        // many parameters as the kernel has, of its types, a grid that it takes. What its addresses point at is for whoever made it to say; the interpreter
        // runs the same launches in the tests, and ends at any access outside of what was allocated. The driver reads the
        // arguments and the one attribute, which is a kernel's that waits for earlier ones by itself, before it returns.
        let launched = unsafe {
            let function = function.cu_function();
            let arguments = arguments.as_mut_ptr();
            sys::cuLaunchKernelEx(&raw const config, function, arguments, std::ptr::null_mut())
        };
        launched.result().map_err(said(&format!("launch {}", launch.entry)))
    }
}

/// Where an argument of a kernel is, as the driver wants it: it reads there, and does not write.
fn pointer<T>(argument: &T) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

impl Gpu for Driver {
    fn is_hopper(&self) -> bool {
        self.capability() == (9, 0)
    }

    fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        self.context.bind_to_thread().map_err(said("use the GPU"))?;
        // SAFETY: the pointer is kept, handed out as a number, and freed once, in `drop`.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }
            .map_err(said(&format!("set {bytes} bytes of its memory aside")))?;
        self.memory.insert(address, bytes);
        Ok(address)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        self.check("write", to, bytes.len())?;
        self.pinned.write(&self.stream, to, bytes).map_err(said("write to its memory"))
    }

    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()> {
        self.check("read", from, bytes)?;
        self.pinned.read(&self.stream, from, bytes, to).map_err(said("read what was computed"))
    }

    fn copy(&mut self, rows: Rows) -> DeviceResult<()> {
        if rows.count == 0 || rows.bytes == 0 {
            return Ok(());
        }
        self.check("copy", rows.from, rows.extent())?;
        self.check("copy", rows.to, rows.extent())?;
        self.context.bind_to_thread().map_err(said("use the GPU"))?;
        let what = said("copy in its memory");
        if rows.count == 1 || rows.bytes == rows.stride {
            let (from, to, stream) = (rows.from, rows.to, self.stream.cu_stream());
            // SAFETY: both ranges were checked to be this device's, and the stream is its own.
            return unsafe { result::memcpy_dtod_async(to, from, rows.extent(), stream) }
                .map_err(what);
        }
        let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: device,
            srcHost: std::ptr::null(),
            srcDevice: rows.from,
            srcArray: std::ptr::null_mut(),
            srcPitch: rows.stride,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: device,
            dstHost: std::ptr::null_mut(),
            dstDevice: rows.to,
            dstArray: std::ptr::null_mut(),
            dstPitch: rows.stride,
            WidthInBytes: rows.bytes,
            Height: rows.count,
        };
        // SAFETY: the description is read before the call returns; both ranges were checked to be this device's.
        let copied =
            unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.stream.cu_stream()) }.result();
        match copied {
            // The driver need not take a distance that is not its own (`cuMemAllocPitch`).
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_INVALID_VALUE => {
                rows.one_by_one().try_for_each(|row| self.copy(row))
            }
            copied => copied.map_err(what),
        }
    }

    fn prepare(&mut self, launches: &[Launch]) -> DeviceResult<()> {
        launches.iter().try_for_each(|launch| self.modules.function(launch).map(|_| ()))
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.submit(launch)
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        // Modules are loaded before: loading waits for the device, which a capture does not allow.
        self.prepare(launches)?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(said("begin a graph"))?;
        let submitted = launches.iter().try_for_each(|launch| self.submit(launch));
        // Ended in any case: a stream that is left capturing runs nothing any more.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        submitted?;
        let graph = graph.map_err(said("make a graph"))?;
        let graph =
            graph.ok_or_else(|| DeviceError("cannot make a graph of no launches".into()))?;
        graph.upload().map_err(said("upload a graph"))?;
        self.graphs.push(graph);
        Ok(Recording(self.graphs.len() - 1))
    }

    fn replay(&mut self, Recording(number): Recording) -> DeviceResult<()> {
        let graph = self.graphs.get(number);
        let graph = graph.ok_or_else(|| DeviceError(format!("there is no graph {number}")))?;
        graph.launch().map_err(said("launch a graph"))
    }

    fn finish(&mut self) -> DeviceResult<()> {
        self.stream.synchronize().map_err(said("finish what was launched"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What fails here fails for a device that is gone. Bound first: graphs are destroyed in whichever context is.
        let _ = self.context.bind_to_thread();
        // Nothing may run any more that uses the memory.
        let _ = self.stream.synchronize();
        for &address in self.memory.keys() {
            // SAFETY: it was allocated by `alloc`, is freed here alone, and nothing runs that uses it.
            let _ = unsafe { result::free_sync(address) };
        }
    }
}

/// A tensor map for the memory accelerator: zeros outside, chunks of 16 bytes exchanged within 128.
fn encode(map: &TensorMap) -> DeviceResult<sys::CUtensorMap> {
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    let element_strides = [1u32; 3];
    // SAFETY: it reads three sizes, two strides, three box sizes and three element strides, as the rank says, and writes
    // the 128 bytes that it is given.
    let outcome = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut encoded,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            map.base as *mut _,
            map.sizes.as_ptr(),
            map.strides.as_ptr(),
            map.box_sizes.as_ptr(),
            element_strides.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    outcome.result().map(|()| encoded).map_err(said("encode a tensor map"))
}

/// What the driver says of a call, in one line.
fn said(what: &str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| {
        let text = |text: std::result::Result<&std::ffi::CStr, DriverError>| {
            text.map_or_else(|_| "unknown".into(), |text| text.to_string_lossy().into_owned())
        };
        let (name, reason) = (text(error.error_name()), text(error.error_string()));
        DeviceError(format!("cannot {what}: {reason} ({name})"))
    }
}

fn failed(error: DeviceError) -> Error {
    Error::file("CUDA", error)
}
