//! Kernels that are given tensors.

use ptx_interpreter::{Arg, Buffer, Counts, Device, Error, Fault, Launch, Module, TensorMap, run};

/// A kernel with tensor maps `a` and `b`, an output, and dynamic shared memory.
pub(crate) struct Tensors<'t> {
    pub(crate) body: &'t str,
    pub(crate) threads: u32,
    pub(crate) maps: [TensorMap; 2],
}

impl Tensors<'_> {
    pub(crate) fn run(&self, device: &mut Device, out: Buffer<u32>) -> Result<Counts, Error> {
        let text = format!(
            ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n\
             .visible .entry k(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 p_out) {{\n\
             .reg .pred %p<9>; .reg .b32 %r<99>; .reg .f32 %f<99>; .reg .b64 %rd<40>; .reg .b32 %tid, %lane; .reg .b64 %out, %a, %b;\n\
             mov.b64 %a, a; cvta.param.u64 %a, %a; mov.b64 %b, b; cvta.param.u64 %b, %b;\n\
             ld.param.u64 %out, [p_out]; mov.u32 %tid, %tid.x; mov.u32 %lane, %laneid;\n\
             setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [smem+65528], 1; bar.sync 0;\n{}\nret;\n}}\n",
            self.body
        );
        let module = Module::parse(&text)?;
        let args: Vec<Arg> = vec![(&self.maps[0]).into(), (&self.maps[1]).into(), out.into()];
        let launch =
            Launch { grid: [1, 1, 1], block: [self.threads, 1, 1], shared_bytes: 65536, args };
        Ok(run(module.kernel("k")?, device, &launch)?.counts)
    }

    pub(crate) fn fault(&self, device: &mut Device, out: Buffer<u32>) -> Fault {
        match self.run(device, out) {
            Err(Error::Fault(fault)) => *fault,
            other => panic!("expected a fault and got {other:?}"),
        }
    }
}

/// Waits for the phase `parity`, under a label of its own.
pub(crate) fn wait(label: &str, parity: u32) -> String {
    format!(
        "{label}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+65528], {parity}; @!%p2 bra {label};\n"
    )
}
