//! The tensor memory accelerator: bytes in a row, and boxes of tensors.

use crate::kernel::{assert_fault, run_words, store};
use crate::tensors::{Tensors, wait};
use ptx_interpreter::{Device, ElementType, FaultKind, Swizzle, TensorMap};

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
fn that_a_copy_has_begun_does_not_make_what_it_brings_known() {
    let copy = |to: u32, barrier: u32| {
        format!(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+{barrier}], 16;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+{to}], [%in], 16, [smem+{barrier}];\n"
        )
    };
    let wait = |barrier: u32, label: &str| {
        format!(
            "{label}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+{barrier}], 0; @!%p2 bra {label};\n"
        )
    };
    // Warp 0 copies to byte 16, for mbarrier B, and to byte 0, for mbarrier A. Warp 1 waits at A, so that the copy lands;
    // warp 2 looks at byte 0, and has heard of that copy by `bar.sync` alone unless it waits at A as well.
    let (a, b) = (16376, 16368);
    let body = |of_warp_2: &str| {
        format!(
            "setp.eq.u32 %p1, %tid, 0; @!%p1 bra W; mbarrier.init.shared::cta.b64 [smem+{a}], 1;\n\
             mbarrier.init.shared::cta.b64 [smem+{b}], 1; {} {}\n\
             W: bar.sync 0; setp.lt.u32 %p3, %tid, 32; @%p3 ret; setp.lt.u32 %p3, %tid, 64; @!%p3 bra X;\n\
             {} ret;\n\
             X: {of_warp_2} ld.shared.u32 %r1, [smem];",
            copy(16, b),
            copy(0, a),
            wait(a, "U"),
        )
    };
    let (at_a, at_b) = (wait(a, "V"), wait(b, "Y"));
    run_words(&body(&format!("{at_b}{at_a}")), 96, &[0; 8], 1).unwrap();
    let part = "reads byte 0x0 of shared memory, which an asynchronous copy wrote";
    assert_fault(&body(&at_b), 96, FaultKind::Race, part);
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

/// 128 bytes of shared memory written, and a copy of them out by lane 0, behind which comes what is given.
fn store_of_lane_0(rest: &str) -> String {
    format!(
        "mov.u32 %r1, smem; mad.lo.u32 %r2, %lane, 4, %r1; st.shared.u32 [%r2], %lane; bar.warp.sync -1;\n\
         setp.eq.u32 %p1, %lane, 0; setp.eq.u32 %p2, %lane, 1;\n\
         @%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [smem], 128; {rest}"
    )
}

#[test]
fn nobody_returns_before_its_bulk_copies_out_of_shared_memory() {
    let (commit, wait) = ("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;");
    run_words(&store_of_lane_0(&format!("{commit} {wait}")), 32, &[0], 32).unwrap();
    let part =
        |right: &str| format!("copies out of shared memory under way; right would be {right}");
    let open = part("to commit them to a group, and to wait for it before");
    // What is in no group is not waited for.
    for rest in ["", wait] {
        assert_fault(&store_of_lane_0(rest), 32, FaultKind::InFlight, &open);
    }
    let committed = part("to wait for their group before");
    // Lane 0 returns alone; the others have nothing to wait for.
    for rest in [commit.into(), format!("{commit} @%p1 ret; {wait}")] {
        assert_fault(&store_of_lane_0(&rest), 32, FaultKind::InFlight, &committed);
    }
    run_words(&store_of_lane_0(&format!("{commit} @!%p1 ret; {wait}")), 32, &[0], 32).unwrap();
}

#[test]
fn a_wait_is_for_the_own_lane_s_bulk_copies_alone() {
    let body = |waits: &str| {
        store_of_lane_0(&format!(
            "@%p1 cp.async.bulk.commit_group; {waits} cp.async.bulk.wait_group.read 0; bar.warp.sync -1;\n\
             st.shared.u32 [%r2], 0; cp.async.bulk.wait_group 0;"
        ))
    };
    let (found, _) = run_words(&body("@%p1"), 32, &[0], 32).unwrap();
    assert_eq!(found, (0..32).collect::<Vec<u32>>());
    assert_fault(&body("@%p2"), 32, FaultKind::InFlight, "still reads");
    // Groups are counted for each lane: lane 0 has two, an empty one last, and lane 1 none.
    let one_more = |most: u32| {
        store_of_lane_0(&format!(
            "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.commit_group;\n\
             cp.async.bulk.wait_group.read {most}; bar.warp.sync -1; st.shared.u32 [%r2], 0; cp.async.bulk.wait_group 0;"
        ))
    };
    run_words(&one_more(1), 32, &[0], 32).unwrap();
    assert_fault(&one_more(2), 32, FaultKind::InFlight, "still reads");
}

#[test]
fn a_block_does_not_end_before_what_it_fetches_has_landed() {
    let body = |wait: &str| {
        format!(
            "setp.eq.u32 %p1, %tid, 0; @!%p1 bra W; mbarrier.init.shared::cta.b64 [smem+16376], 1;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16376], 16;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%in], 16, [smem+16376];\n\
             W: bar.sync 0; {wait}"
        )
    };
    // Whoever waits need not be who has begun it.
    let wait =
        "@%p1 ret; V: mbarrier.try_wait.parity.shared::cta.b64 %p2, [smem+16376], 0; @!%p2 bra V;";
    run_words(&body(wait), 64, &[0; 8], 1).unwrap();
    let part = "before 16 bytes from here have landed, of which the mbarrier at 0x3ff8 would hear";
    let fault = crate::kernel::fault_of(&body(""), 64);
    assert_eq!((fault.kind, fault.warp), (FaultKind::InFlight, 0), "{fault}");
    assert!(
        fault.text.starts_with("cp.async.bulk.shared") && fault.problem.contains(part),
        "{fault}"
    );
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
