//! mbarriers, the tensor memory accelerator, and products of warp groups.

use half::bf16;
use ptx_interpreter::{
    Arg, Buffer, Counts, Device, ElementType, Error, Fault, FaultKind, Launch, Module, Swizzle,
    TensorMap, run,
};

use crate::kernel::{assert_fault, run_words, store};

const BARRIER: &str =
    "setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [smem+16376], 64; bar.sync 0;\n";

#[test]
fn arrivals_complete_a_phase() {
    // 64 threads write, arrive and wait; then each reads what the other warp wrote.
    let body = |arrive: &str| {
        format!(
            "{BARRIER} mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %tid;\n\
             {arrive} W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra W;\n\
             xor.b32 %r3, %tid, 32; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4]; {}",
            store("%r5")
        )
    };
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [smem+16376];";
    let (found, counts) = run_words(&body(arrive), 64, &[0], 64).unwrap();
    assert!(found.iter().enumerate().all(|(thread, value)| *value as usize == thread ^ 32));
    assert_eq!(counts.mbarrier_phases, 1);
    // One arrival missing.
    let one_less = format!("@!%p1 {arrive}");
    let part = "wait for the phase of parity 0 of the mbarrier at 0x3ff8, which is in phase 0 with 1 of 64 arrivals";
    assert_fault(&body(&one_less), 64, FaultKind::Deadlock, part);
    // One too many.
    let too_many = "mbarrier.arrive.shared::cta.b64 _, [smem+16376], 65;";
    assert_fault(&body(too_many), 64, FaultKind::Invalid, "whose phase waits for 64 more of 64");
}

#[test]
fn a_token_waits_for_the_phase_that_it_saw() {
    let body = format!(
        "{BARRIER} mbarrier.arrive.shared::cta.b64 %rd1, [smem+16376];\n\
         W: mbarrier.test_wait.shared::cta.b64 %p2, [smem+16376], %rd1; @!%p2 bra W;\n\
         mbarrier.arrive.shared::cta.b64 %rd2, [smem+16376]; sub.u64 %rd3, %rd2, %rd1; cvt.u32.u64 %r5, %rd3; {}",
        store("%r5")
    );
    let (found, counts) = run_words(&body, 64, &[0], 64).unwrap();
    assert_eq!(found, [1; 64]);
    assert_eq!(counts.mbarrier_phases, 2);
}

#[test]
fn an_mbarrier_has_to_be_there_and_known_to_be() {
    assert_fault(
        "mbarrier.arrive.shared::cta.b64 _, [smem];",
        32,
        FaultKind::Invalid,
        "no mbarrier was initialised",
    );
    let unordered =
        BARRIER.replace("bar.sync 0;", "mbarrier.arrive.shared::cta.b64 _, [smem+16376];");
    assert_fault(&unordered, 64, FaultKind::Race, "uses the mbarrier at");
    assert_fault(
        "mbarrier.init.shared::cta.b64 [smem], 0;",
        1,
        FaultKind::Invalid,
        "for 0 arrivals",
    );
    assert_fault(
        "mbarrier.init.shared::cta.b64 [smem+4], 1;",
        1,
        FaultKind::Misaligned,
        "multiple of 8",
    );
}

#[test]
fn bytes_in_a_row() {
    let body = |expect: u32| {
        format!(
            "setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [smem+16376], 1; bar.sync 0; @!%p1 bra W;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16376], {expect};\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%in], 128, [smem+16376];\n\
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra W;\n\
             mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 4, %r1; ld.shared.u32 %r5, [%r2]; {}",
            store("%r5")
        )
    };
    let input: Vec<u32> = (100..132).collect();
    let (found, _) = run_words(&body(128), 32, &input, 32).unwrap();
    assert_eq!(found, input);
    // The wrong number of bytes: the phase never completes.
    assert_fault(&body(256), 32, FaultKind::Deadlock, "with 0 of 1 arrivals and 128 bytes to come");
    assert_fault(&body(64), 32, FaultKind::Deadlock, "and -64 bytes to come");
    let early = body(128).replace(
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra W;",
        "W:",
    );
    assert_fault(&early, 32, FaultKind::InFlight, "has not landed yet");
}

#[test]
fn waiting_for_one_copy_says_nothing_of_another() {
    let body = |wait: &str| {
        format!(
            "setp.eq.u32 %p1, %tid, 0; @!%p1 bra W; mbarrier.init.shared::cta.b64 [smem+16376], 1;\n\
             mbarrier.init.shared::cta.b64 [smem+16368], 1;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16376], 16;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%in], 16, [smem+16376];\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16368], 16;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+16], [%in], 16, [smem+16368];\n\
             W: bar.sync 0; {wait} V: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16368], 0; @!%p2 bra V;\n\
             ld.shared.u32 %r1, [smem];"
        )
    };
    let first = "U: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra U;";
    run_words(&body(first), 64, &[0; 8], 1).unwrap();
    assert_fault(&body(""), 64, FaultKind::InFlight, "byte 0x0");
}

#[test]
fn bytes_on_the_way_out_are_held_until_the_wait() {
    let body = |wait: &str| {
        format!(
            "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 4, %r1; st.shared.u32 [%r2], %lane; fence.proxy.async.shared::cta;\n\
             bar.warp.sync -1; setp.eq.u32 %p1, %lane, 0; @!%p1 bra L;\n\
             cp.async.bulk.global.shared::cta.bulk_group [%out], [smem], 128; cp.async.bulk.commit_group; {wait}\n\
             L: st.shared.u32 [%r2], 0;"
        )
    };
    let (found, counts) =
        run_words(&body("cp.async.bulk.wait_group.read 0;"), 32, &[0], 32).unwrap();
    assert_eq!(found, (0..32).collect::<Vec<u32>>());
    assert_eq!((counts.global_store_sectors, counts.global_store_bytes), (4, 128));
    assert_fault(&body(""), 32, FaultKind::InFlight, "still reads");
}

/// A kernel with tensor maps `a` and `b`, an output, and dynamic shared memory.
struct Tensors<'t> {
    body: &'t str,
    threads: u32,
    maps: [TensorMap; 2],
}

impl Tensors<'_> {
    fn run(&self, device: &mut Device, out: Buffer<u32>) -> Result<Counts, Error> {
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

    fn fault(&self, device: &mut Device, out: Buffer<u32>) -> Fault {
        match self.run(device, out) {
            Err(Error::Fault(fault)) => *fault,
            other => panic!("expected a fault and got {other:?}"),
        }
    }
}

/// Waits for the phase `parity`, under a label of its own.
fn wait(label: &str, parity: u32) -> String {
    format!(
        "{label}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+65528], {parity}; @!%p2 bra {label};\n"
    )
}

#[test]
fn a_box_of_a_tensor_arrives_swizzled_with_zeros_outside() {
    for (swizzle, columns) in [
        (Swizzle::None, 16),
        (Swizzle::Bytes32, 16),
        (Swizzle::Bytes64, 32),
        (Swizzle::Bytes128, 64),
    ] {
        let mut device = Device::new();
        // [40][72]: element (row, column) is 100 * row + column.
        let data: Vec<u16> = (0..40 * 72).map(|at| (at / 72 * 100 + at % 72) as u16).collect();
        let tensor = device.upload(&data);
        let map =
            TensorMap::dense(tensor, ElementType::BFloat16, &[72, 40], &[columns, 16], swizzle);
        let bytes = map.box_bytes() as u32;
        assert_eq!(bytes, columns * 16 * 2);
        // From row 30 and column 56 on: the last rows and columns are outside; rows before 0 in the second run.
        for (x, y) in [(56i32, 30i32), (-8, -3)] {
            let out = device.upload(&vec![0u32; bytes as usize / 4]);
            let body = format!(
                "@!%p1 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+65528], {bytes}; mov.u32 %r1, {x}; mov.u32 %r2, {y};\n\
                 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%a, {{%r1, %r2}}], [smem+65528];\n\
                 {} mov.u32 %r3, smem; mad.lo.u32 %r3, %tid, 4, %r3; mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %rd1, %out; mov.u32 %r4, %tid;\n\
                 C: setp.ge.u32 %p3, %r4, {}; @%p3 ret; ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd1], %r5;\n\
                 add.u32 %r3, %r3, 128; add.s64 %rd1, %rd1, 128; add.u32 %r4, %r4, 32; bra C;",
                wait("W", 0),
                bytes / 4
            );
            let maps = [map.clone(), map.clone()];
            let counts = Tensors { body: &body, threads: 32, maps }.run(&mut device, out).unwrap();
            let found: Vec<u16> = device
                .download(out)
                .unwrap()
                .iter()
                .flat_map(|word| [*word as u16, (*word >> 16) as u16])
                .collect();
            let mut inside = 0;
            for row in 0..16usize {
                for column in 0..columns as usize {
                    let (i, j) = (y + row as i32, x + column as i32);
                    let is_inside = (0..40).contains(&i) && (0..72).contains(&j);
                    inside += u64::from(is_inside);
                    let right = if is_inside { (100 * i + j) as u16 } else { 0 };
                    let at = place(swizzle, columns as usize, row, column);
                    assert_eq!(
                        found[at], right,
                        "{swizzle:?} row {row} column {column} of ({x}, {y})"
                    );
                }
            }
            assert_eq!(counts.global_load_bytes, 2 * inside);
        }
    }
}

/// Element (`row`, `column`) of a box, in elements from its start: rows one after another, and in each window of 128 bytes
/// and eight of them the chunks exchanged.
fn place(swizzle: Swizzle, columns: usize, row: usize, column: usize) -> usize {
    let byte = (row * columns + column) * 2;
    let (line, chunk) = (byte / 128, byte % 128 / 16);
    let mask = match swizzle {
        Swizzle::None => 0,
        Swizzle::Bytes32 => 1,
        Swizzle::Bytes64 => 3,
        Swizzle::Bytes128 => 7,
    };
    (line * 128 + (chunk ^ (line & mask)) * 16 + byte % 16) / 2
}

#[test]
fn a_box_goes_back_to_where_it_came_from() {
    let mut device = Device::new();
    let data: Vec<f32> = (0..4 * 6 * 20).map(|at| at as f32).collect();
    let (from, to) = (device.upload(&data), device.upload(&vec![-1f32; data.len()]));
    let map = |buffer| {
        TensorMap::dense(buffer, ElementType::Float32, &[20, 6, 4], &[8, 2, 3], Swizzle::Bytes32)
    };
    let body = format!(
        "@!%p1 ret; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+65528], 192; mov.u32 %r1, 16; mov.u32 %r2, 3; mov.u32 %r3, 1;\n\
         cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%a, {{%r1, %r2, %r3}}], [smem+65528];\n\
         {} cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%b, {{%r1, %r2, %r3}}], [smem];\n\
         cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%b, {{%r1, %r2, %r3}}], [smem];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        wait("W", 0)
    );
    let out = device.alloc::<u32>(1);
    Tensors { body: &body, threads: 32, maps: [map(from), map(to)] }.run(&mut device, out).unwrap();
    for (at, value) in device.download(to).unwrap().into_iter().enumerate() {
        let (x, y, z) = (at % 20, at / 20 % 6, at / 120);
        let inside = (16..20).contains(&x) && (3..5).contains(&y) && (1..4).contains(&z);
        assert_eq!(value, if inside { 2.0 * data[at] } else { -1.0 }, "({x}, {y}, {z})");
    }
}

#[test]
fn tensor_maps_that_no_driver_would_encode() {
    let mut device = Device::new();
    let tensor = device.upload(&[0u16; 1024]);
    let out = device.alloc::<u32>(1);
    let good =
        TensorMap::dense(tensor, ElementType::BFloat16, &[64, 16], &[64, 8], Swizzle::Bytes128);
    let body = "@!%p1 ret; mov.u32 %r1, 0;\n\
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%a, {%r1, %r1}], [smem+65528];";
    let fault = |map: TensorMap, body: &str, device: &mut Device| {
        Tensors { body, threads: 32, maps: [map, good.clone()] }.fault(device, out)
    };
    let wide = TensorMap { box_dims: vec![128, 8], ..good.clone() };
    assert!(fault(wide, body, &mut device).problem.contains("within the swizzle's span"));
    let odd = TensorMap { strides: vec![100], ..good.clone() };
    assert!(fault(odd, body, &mut device).problem.contains("multiples of 16 bytes"));
    let flat = TensorMap { dims: vec![1024], strides: vec![], box_dims: vec![64], ..good.clone() };
    assert!(
        fault(flat, body, &mut device)
            .problem
            .contains("2 coordinates for a tensor map of 1 dimensions")
    );
    let shifted = body.replace("[smem],", "[smem+128],");
    assert_eq!(fault(good.clone(), &shifted, &mut device).kind, FaultKind::Misaligned);
    let not_a_map = body.replace("[%a,", "[%out,");
    let out_bytes = fault(good.clone(), &not_a_map, &mut device);
    assert_eq!(out_bytes.kind, FaultKind::OutOfBounds, "{out_bytes}");
}

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
