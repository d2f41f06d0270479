//! What somebody who steps through a kernel is told.

use ptx_interpreter::{Device, Launch, Module, Pending, SharedAccess, Step, Trace, run_traced};

#[derive(Default)]
struct Seen {
    steps: Vec<(u32, String, u32, u32)>,
    written: Vec<(String, u64)>,
    predicates: Vec<(String, u32)>,
    shared: Vec<SharedAccess>,
}

impl Trace for Seen {
    fn step(&mut self, step: &Step<'_>) {
        self.steps.push((step.warp, step.text.to_string(), step.active, step.executing));
        self.written.extend(step.written.iter().map(|(name, lanes)| (name.to_string(), lanes[5])));
        self.predicates
            .extend(step.predicates.iter().map(|(name, lanes)| (name.to_string(), *lanes)));
        self.shared.extend(step.shared.iter().cloned());
    }
}

#[test]
fn every_instruction_is_told_of() {
    let text = crate::kernel::module(
        "setp.lt.u32 %p1, %lane, 4; @%p1 mov.u32 %r1, 9;\n\
         mov.u32 %r2, smem; mad.lo.u32 %r2, %lane, 8, %r2; st.shared.u32 [%r2], %lane; bar.sync 0;",
    );
    let module = Module::parse(&text).unwrap();
    let mut device = Device::new();
    let args = vec![0u64.into(), 0u64.into()];
    let launch = Launch { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0, args };
    let mut seen = Seen::default();
    let report = run_traced(module.kernel("k").unwrap(), &mut device, &launch, &mut seen).unwrap();
    assert_eq!(seen.steps.len() as u64, report.counts.warp_instructions);
    let guarded = seen.steps.iter().find(|step| step.1.starts_with("@%p1")).unwrap();
    assert_eq!(guarded, &(0, "@%p1 mov.u32 %r1, 9;".into(), u32::MAX, 0xf));
    assert!(seen.written.contains(&("%lane".into(), 5)));
    assert_eq!(seen.predicates, [("%p1".into(), 0xf)]);
    let [access] = &seen.shared[..] else { panic!("{:?}", seen.shared) };
    assert!(access.writes);
    assert_eq!((access.bytes, access.requests, access.wavefronts), (4, 1, 2));
    assert_eq!(access.addresses[3], (3, 24));
    // Every second word: lanes 0 and 16 both want bank 0, and nobody wants bank 1.
    let [wavefronts] = &access.by_bank()[..] else { panic!("{:?}", access.by_bank()) };
    assert_eq!(wavefronts.len(), 2);
    assert_eq!([wavefronts[0][0], wavefronts[1][0], wavefronts[0][1]], [Some(0), Some(16), None]);
}

/// What is under way after each instruction of a block.
struct Under(Vec<(u32, String, Pending)>);

impl Trace for Under {
    fn step(&mut self, step: &Step<'_>) {
        self.0.push((step.warp, step.text.to_string(), step.pending.clone()));
    }
}

fn under_way(body: &str, threads: u32) -> Under {
    let module = Module::parse(&crate::kernel::module(body)).unwrap();
    let mut device = Device::new();
    let input = device.upload(&[0u32; 64]);
    let args = vec![input.into(), input.into()];
    let launch = Launch { grid: [1, 1, 1], block: [threads, 1, 1], shared_bytes: 0, args };
    let mut seen = Under(Vec::new());
    run_traced(module.kernel("k").unwrap(), &mut device, &launch, &mut seen).unwrap();
    seen
}

impl Under {
    /// After the warp's instruction that begins so.
    fn after(&self, warp: u32, text: &str) -> &Pending {
        let found = self.0.iter().find(|(who, what, _)| *who == warp && what.starts_with(text));
        &found.unwrap_or_else(|| panic!("{text} of warp {warp}")).2
    }
}

#[test]
fn barriers_and_copies_under_way_are_told_of() {
    let seen = under_way(
        "mov.u32 %r1, smem; mad.lo.u32 %r1, %tid, 4, %r1;\n\
         mul.wide.u32 %rd1, %lane, 4; add.s64 %rd1, %in, %rd1;\n\
         cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group;\n\
         cp.async.wait_group 0; bar.sync 0;",
        64,
    );
    assert_eq!(seen.after(0, "cp.async.ca").copies, [128]);
    assert_eq!(seen.after(0, "cp.async.commit").copies, [128, 0]);
    assert_eq!(seen.after(0, "cp.async.wait"), &Pending::default());
    let [barrier] = &seen.after(0, "bar.sync").barriers[..] else { panic!("one barrier") };
    assert_eq!((barrier.id, barrier.arrived, barrier.expected), (0, 32, 64));
    assert_eq!(barrier.waiting, [0]);
    assert_eq!(seen.after(1, "bar.sync"), &Pending::default(), "complete, so nobody waits");
}

#[test]
fn mbarriers_and_bulk_copies_under_way_are_told_of() {
    let seen = under_way(
        "mov.u32 %r1, smem; add.u32 %r2, %r1, 1024;\n\
         setp.ne.u32 %p1, %lane, 0; @%p1 bra END;\n\
         mbarrier.init.shared.b64 [%r2], 1;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 64, [%r2];\n\
         WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT; END:",
        32,
    );
    let phase = |text: &str| {
        let [found] = &seen.after(0, text).mbarriers[..] else { panic!("one mbarrier") };
        (found.address, found.phase, found.arrivals, found.bytes)
    };
    assert_eq!(phase("mbarrier.init"), (1024, 0, 1, 0));
    assert_eq!(phase("mbarrier.arrive"), (1024, 0, 0, 64));
    assert_eq!(seen.after(0, "cp.async.bulk").bulk_bytes, 64);
    assert_eq!(phase("mbarrier.try_wait"), (1024, 1, 1, 0));
    assert_eq!(seen.after(0, "mbarrier.try_wait").bulk_bytes, 0);
}
