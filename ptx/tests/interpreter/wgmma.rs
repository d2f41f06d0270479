//! Products of warp groups, from tensor maps to registers.

use crate::tensors::{Tensors, wait};
use half::bf16;
use ptx_interpreter::{Device, ElementType, Error, FaultKind, Swizzle, TensorMap};

/// A product of one warp group: D `[64][n]` = A `[64][16]` x B `[16][n]`, through tensor maps and descriptors.
struct Product {
    n: usize,
    swizzle: Swizzle,
    a_in_registers: bool,
    b_transposed: bool,
}

fn a_value(row: usize, k: usize) -> f32 {
    ((row * 3 + k * 5) % 11) as f32 - 5.0
}

fn b_value(k: usize, column: usize) -> f32 {
    ((k * 7 + column * 2) % 9) as f32 - 4.0
}

fn bits(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

impl Product {
    fn span(&self) -> usize {
        match self.swizzle {
            Swizzle::None => 16,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    fn layout(&self) -> u64 {
        match self.swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes128 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes32 => 3,
        }
    }

    /// A descriptor's upper words: everything but the address.
    fn descriptor(&self, leading: usize, stride: usize) -> u64 {
        (leading as u64 / 16) << 16 | (stride as u64 / 16) << 32 | self.layout() << 62
    }

    /// The tensor maps and the instructions that bring A to `smem` and B to `smem + 32768`, and the two descriptors.
    ///
    /// Along k a box has the swizzle's span, of which the product takes the first 32 bytes; without a swizzle the matrices
    /// are two columns of 16 bytes, one box each.
    fn kernel(
        &self,
        device: &mut Device,
        after_start: &str,
        before_wait: &str,
    ) -> (String, [TensorMap; 2]) {
        let columns = (self.span() / 2).max(16);
        let boxed = if self.swizzle == Swizzle::None { 8 } else { columns };
        let a: Vec<u16> =
            (0..64 * columns).map(|at| bits(a_value(at / columns, at % columns))).collect();
        let a = device.upload(&a);
        let dense = |buffer, dims: [usize; 2], of: [usize; 2]| {
            let (dims, of) = (dims.map(|d| d as u64), of.map(|d| d as u32));
            TensorMap::dense(buffer, ElementType::BFloat16, &dims, &of, self.swizzle)
        };
        let a_map = dense(a, [columns, 64], [boxed, 64]);
        let (b_map, b_boxes, b_descriptor);
        if self.b_transposed {
            // [16][n], rows along n: boxes of `span` bytes, eight k in a group.
            let b: Vec<u16> =
                (0..16 * self.n).map(|at| bits(b_value(at / self.n, at % self.n))).collect();
            let per = self.span() / 2;
            b_map = dense(device.upload(&b), [self.n, 16], [per, 16]);
            b_boxes = (0..self.n / per)
                .map(|index| (index * per, 0, index * 16 * self.span()))
                .collect::<Vec<_>>();
            b_descriptor = match self.swizzle {
                // n in steps of 8: one box after another; k in steps of 8: 128 bytes.
                Swizzle::None => self.descriptor(128, 256),
                _ => self.descriptor(16 * self.span(), 8 * self.span()),
            };
        } else {
            let b: Vec<u16> =
                (0..self.n * columns).map(|at| bits(b_value(at % columns, at / columns))).collect();
            b_map = dense(device.upload(&b), [columns, self.n], [boxed, self.n]);
            b_boxes =
                if boxed == 8 { vec![(0, 0, 0), (8, 0, 16 * self.n)] } else { vec![(0, 0, 0)] };
            b_descriptor = match self.swizzle {
                Swizzle::None => self.descriptor(16 * self.n, 128),
                _ => self.descriptor(0, 8 * self.span()),
            };
        }
        let a_boxes = if boxed == 8 { vec![(0, 0, 0), (8, 0, 1024)] } else { vec![(0, 0, 0)] };
        let a_descriptor = match self.swizzle {
            Swizzle::None => self.descriptor(1024, 128),
            _ => self.descriptor(0, 8 * self.span()),
        };
        let bytes =
            a_map.box_bytes() as usize * a_boxes.len() + b_map.box_bytes() as usize * b_boxes.len();
        let mut body = format!(
            "@!%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+65528], {bytes};\n"
        );
        for (map, start, boxes) in [("%a", 0, &a_boxes), ("%b", 32768, &b_boxes)] {
            for (x, y, offset) in boxes {
                body += &format!(
                    "mov.u32 %r1, {x}; mov.u32 %r2, {y};\n\
                     cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [smem+{}], [{map}, {{%r1, %r2}}], [smem+65528];\n",
                    start + offset
                );
            }
        }
        body += &wait("W", 0);
        body += &format!(
            "mov.u32 %r3, smem; cvt.u64.u32 %rd1, %r3; shr.u64 %rd1, %rd1, 4; or.b64 %rd2, %rd1, {a_descriptor};\n\
             add.s64 %rd3, %rd1, 2048; or.b64 %rd3, %rd3, {b_descriptor};\n"
        );
        let mut left = "%rd2".to_string();
        if self.a_in_registers {
            // Row `tid / 4 % 8 + 16 * warp` and so on, computed by ldmatrix from the box (only with a swizzle of 32 bytes).
            left = "{%r20, %r21, %r22, %r23}".into();
            body += "shr.u32 %r5, %tid, 5; and.b32 %r6, %lane, 15; mad.lo.u32 %r6, %r5, 16, %r6; shr.u32 %r7, %lane, 4;\n\
                shr.u32 %r8, %r6, 2; and.b32 %r8, %r8, 1; xor.b32 %r7, %r7, %r8; mul.lo.u32 %r9, %r6, 32; mad.lo.u32 %r9, %r7, 16, %r9;\n\
                add.u32 %r9, %r9, %r3; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r9];\n";
        }
        let registers =
            |n: usize| (0..n / 2).map(|at| format!("%f{at}")).collect::<Vec<_>>().join(",");
        for at in 0..self.n / 2 {
            body += &format!("mov.f32 %f{at}, 0f40000000;\n");
        }
        let flags = format!(
            "{}{}",
            if self.a_in_registers { "" } else { "0, " },
            u8::from(self.b_transposed)
        );
        let mma = format!(
            "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16 {{{}}}, {left}, %rd3,",
            self.n,
            registers(self.n)
        );
        // First without what D held, then minus the same product, then once more: D = P - P + P.
        body += &format!(
            "setp.ne.u32 %p5, 0, 0; setp.eq.u32 %p6, 0, 0; wgmma.fence.sync.aligned;\n\
             {mma} %p5, 1, 1, {flags};\n{mma} %p6, -1, 1, {flags};\n{mma} %p6, 1, 1, {flags};\n{after_start}\n\
             wgmma.commit_group.sync.aligned;\n{before_wait}\nwgmma.wait_group.sync.aligned 0;\n\
             shr.u32 %r10, %tid, 5; shr.u32 %r11, %lane, 2; mad.lo.u32 %r10, %r10, 16, %r11; and.b32 %r12, %lane, 3; shl.b32 %r12, %r12, 1;\n\
             mad.lo.u32 %r10, %r10, {}, %r12; mul.wide.u32 %rd5, %r10, 4; add.s64 %rd5, %rd5, %out;\n",
            self.n
        );
        for index in 0..self.n / 2 {
            let (row, column) = (8 * (index >> 1 & 1), index / 4 * 8 + (index & 1));
            body += &format!("st.global.f32 [%rd5+{}], %f{index};\n", 4 * (row * self.n + column));
        }
        (body, [a_map, b_map])
    }

    fn check(&self) {
        let mut device = Device::new();
        let (body, maps) = self.kernel(&mut device, "", "");
        let out = device.alloc::<u32>(64 * self.n);
        let counts = Tensors { body: &body, threads: 128, maps }.run(&mut device, out);
        let counts = counts.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(counts.tensor_flops, 3 * 2 * 64 * 16 * self.n as u64);
        for (at, value) in device.download(out).unwrap().into_iter().enumerate() {
            let (row, column) = (at / self.n, at % self.n);
            let right: f32 = (0..16).map(|k| a_value(row, k) * b_value(k, column)).sum();
            let case = (self.swizzle, self.a_in_registers, self.b_transposed);
            assert_eq!(f32::from_bits(value), right, "{case:?}: row {row}, column {column}");
        }
    }
}

const SWIZZLES: [Swizzle; 4] =
    [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

#[test]
fn products_of_matrices_with_every_swizzle() {
    for swizzle in SWIZZLES {
        for b_transposed in [false, true] {
            Product { n: 64, swizzle, a_in_registers: false, b_transposed }.check();
        }
    }
    Product { n: 128, swizzle: Swizzle::Bytes128, a_in_registers: false, b_transposed: true }
        .check();
    Product { n: 8, swizzle: Swizzle::Bytes32, a_in_registers: false, b_transposed: false }.check();
}

#[test]
fn products_with_a_from_registers() {
    Product { n: 32, swizzle: Swizzle::Bytes32, a_in_registers: true, b_transposed: false }.check();
}

#[test]
fn what_a_product_has_hold_of_is_left_alone() {
    let product =
        Product { n: 32, swizzle: Swizzle::Bytes32, a_in_registers: true, b_transposed: false };
    let fault = |after: &str, before: &str| {
        let mut device = Device::new();
        let (body, maps) = product.kernel(&mut device, after, before);
        let out = device.alloc::<u32>(64 * 32);
        Tensors { body: &body, threads: 128, maps }.fault(&mut device, out)
    };
    for (after, before, part) in [
        ("", "mov.f32 %f98, %f3;", "reads %f3, which a wgmma under way will write"),
        ("mov.f32 %f3, 0f00000000;", "", "writes %f3, which a wgmma under way will write"),
        ("", "mov.u32 %r21, 0;", "writes %r21, which a wgmma under way still reads"),
        (
            "",
            "st.shared.u32 [smem+32768], %r1;",
            "which an asynchronous operation under way still reads",
        ),
    ] {
        let fault = fault(after, before);
        assert_eq!(fault.kind, FaultKind::InFlight, "{fault}");
        assert!(fault.problem.contains(part), "{fault}");
    }
}

#[test]
fn nobody_returns_before_its_products() {
    let product =
        Product { n: 8, swizzle: Swizzle::Bytes32, a_in_registers: false, b_transposed: false };
    for left in ["ret;", "wgmma.commit_group.sync.aligned; ret;"] {
        let mut device = Device::new();
        let (body, maps) = product.kernel(&mut device, left, "");
        let out = device.alloc::<u32>(64 * 8);
        let fault = Tensors { body: &body, threads: 128, maps }.fault(&mut device, out);
        assert_eq!(fault.kind, FaultKind::InFlight, "{fault}");
        assert!(fault.problem.contains("returns with `wgmma` products under way"), "{fault}");
    }
}

#[test]
fn a_warp_group_needs_all_four_of_its_warps() {
    let product =
        Product { n: 8, swizzle: Swizzle::Bytes32, a_in_registers: false, b_transposed: false };
    let mut device = Device::new();
    let (body, maps) = product.kernel(&mut device, "", "");
    let out = device.alloc::<u32>(64 * 8);
    let fault = Tensors { body: &body, threads: 96, maps: maps.clone() }.fault(&mut device, out);
    assert!(fault.problem.contains("a warp group is four warps"), "{fault}");
    // One warp leaves: the others wait for it.
    let body = body.replace("wgmma.fence", "setp.ge.u32 %p7, %tid, 96; @%p7 ret; wgmma.fence");
    let fault = Tensors { body: &body, threads: 128, maps }.fault(&mut device, out);
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert!(
        fault.problem.contains("for the rest of their warp group to start its wgmma number 3"),
        "{fault}"
    );
}

#[test]
fn a_warp_s_lanes_start_and_commit_products_together() {
    let product =
        Product { n: 8, swizzle: Swizzle::Bytes32, a_in_registers: false, b_transposed: false };
    let mut device = Device::new();
    let (body, maps) = product.kernel(&mut device, "", "");
    let out = device.alloc::<u32>(64 * 8);
    for (instruction, what) in [
        ("wgmma.fence.sync.aligned;", "a fence before products needs all 32 lanes"),
        ("wgmma.commit_group.sync.aligned;", "a group of products needs all 32 lanes"),
    ] {
        let alone = format!("setp.ne.u32 %p7, %lane, 0; @%p7 {instruction}");
        let body = body.replace(instruction, &alone);
        let maps = maps.clone();
        let fault = Tensors { body: &body, threads: 128, maps }.fault(&mut device, out);
        assert_eq!(fault.kind, FaultKind::Divergence, "{fault}");
        assert!(fault.problem.contains(what), "{fault}");
    }
}

/// One thread of the group tells the producer that a buffer is free, as kernels do.
#[test]
fn one_thread_speaks_for_its_warp_group() {
    let product =
        Product { n: 8, swizzle: Swizzle::Bytes32, a_in_registers: false, b_transposed: false };
    let overwrite = |order: [&str; 2]| {
        let mut device = Device::new();
        let (body, maps) = product.kernel(&mut device, "", "");
        let (before, after) = body.split_once("wgmma.wait_group.sync.aligned 0;").unwrap();
        // Warp 4 is the producer: it fills B's place again once barrier 1 says that it may.
        let body = format!(
            "setp.ge.u32 %p8, %tid, 128; @%p8 bra PRODUCE; {before} {} {} {after} ret;\n\
             PRODUCE: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+65520], 0; @!%p2 bra PRODUCE;\n\
             st.shared.u32 [smem+32768], 0;",
            order[0], order[1]
        );
        let body =
            format!("@%p1 mbarrier.init.shared::cta.b64 [smem+65520], 1; bar.sync 0;\n{body}");
        let out = device.alloc::<u32>(64 * 8);
        Tensors { body: &body, threads: 160, maps }.run(&mut device, out)
    };
    let wait = "wgmma.wait_group.sync.aligned 0;";
    let tell = "@%p1 mbarrier.arrive.shared::cta.b64 _, [smem+65520];";
    overwrite([wait, tell]).unwrap();
    // Told too early: whether the product is over by then is luck.
    match overwrite([tell, wait]) {
        Err(Error::Fault(fault)) => {
            assert!(matches!(fault.kind, FaultKind::Race | FaultKind::InFlight), "{fault}")
        }
        other => panic!("{other:?}"),
    }
}
