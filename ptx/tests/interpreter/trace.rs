//! What somebody who steps through a kernel is told.

use ptx_interpreter::{Device, Launch, Module, SharedAccess, Step, Trace, run_traced};

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
}
