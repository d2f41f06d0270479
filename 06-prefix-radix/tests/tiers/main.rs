//! Blocks that leave the pool come back as they were, or not at all.

mod fake;
mod server;

use fake::Fake;
use paged_cache::BlockId;
use paged_cache::offload::Key;
use prefix_radix::{
    BlockHash, Chain, HashedBlocks, Policy, Prefix, PrefixCache, RadixTree, Salt, SavePoint, Tiered,
};
use proptest::prelude::*;
use server::Server;

const SIZE: usize = 4;
const BYTES: usize = 32;

fn chain() -> Chain {
    Chain::new(b"a model")
}

fn caches() -> Vec<Box<dyn PrefixCache>> {
    let hashed = |policy| HashedBlocks::new(SIZE, chain(), policy).unwrap();
    vec![
        Box::new(RadixTree::new(SIZE, chain()).unwrap()),
        Box::new(hashed(Policy::LeafFirst)),
        Box::new(hashed(Policy::Lru)),
    ]
}

fn text(from: u32, length: u32) -> Vec<u32> {
    (from..from + length).collect()
}

#[test]
fn what_was_evicted_comes_back() {
    for cache in caches() {
        let tier = Fake::default();
        let mut server = Server::new(cache, 8, std::slice::from_ref(&tier));
        let prompt = text(0, 14);
        assert_eq!(server.read(Salt::NONE, &prompt), 0);
        server.evict_all();
        assert_eq!(tier.inside().kept.len(), 3);
        assert_eq!(server.read(Salt::NONE, &prompt), 12);
        let statistics = server.cache.tier_statistics()[0];
        assert_eq!((statistics.put, statistics.got, statistics.failed), (3, 3, 0));
        // Back in the pool, it is found there.
        assert_eq!(server.read(Salt::NONE, &prompt), 12);
        assert_eq!(server.cache.tier_statistics()[0].got, 3);
        // It is there already when it goes again.
        server.evict_all();
        assert_eq!(server.cache.tier_statistics()[0].put, 3);
    }
}

#[test]
fn of_a_whole_prompt_all_but_the_last_token_comes_back() {
    for cache in caches() {
        let mut server = Server::new(cache, 8, &[Fake::default()]);
        server.read(Salt::NONE, &text(0, 12));
        server.evict_all();
        let prefix = server.find(Salt::NONE, &text(0, 12));
        assert_eq!((prefix.tokens, prefix.blocks.len()), (11, 3));
        prefix.release(&mut server.blocks);
        server.check();
        // The pool keeps what came back, whatever became of the request.
        server.find(Salt::NONE, &text(0, 12)).release(&mut server.blocks);
        assert_eq!((server.blocks.used(), server.got()), (3, vec![3]));
    }
}

#[test]
fn what_a_device_that_failed_had_is_in_no_tier_and_nothing_comes_back_to_it() {
    for cache in caches() {
        let tier = Fake::default();
        let mut server = Server::new(cache, 8, std::slice::from_ref(&tier));
        server.read(Salt::NONE, &text(0, 14));
        server.memory.is_broken = true;
        server.evict_all();
        assert!(tier.inside().kept.is_empty());
        assert!(server.cache.last_failure().unwrap().to_string().contains("a device"));
        // What is in the tier from before stays there, and the blocks that were to hold it are free.
        server.memory.is_broken = false;
        server.read(Salt::NONE, &text(0, 14));
        server.evict_all();
        server.memory.is_broken = true;
        let prefix = server.find(Salt::NONE, &text(0, 14));
        assert_eq!((prefix.tokens, server.blocks.used()), (0, 0));
    }
}

#[test]
fn a_restart_loses_the_pool_and_keeps_the_file() {
    let file = Fake::default();
    let prompt = text(0, 20);
    for (cache, again) in caches().into_iter().zip(caches()) {
        let mut server = Server::new(cache, 8, &[Fake::default(), file.clone()]);
        server.read(Salt::of(b"ada"), &prompt);
        server.evict_all();
        drop(server);
        let mut server = Server::new(again, 8, &[Fake::default(), file.clone()]);
        assert_eq!(server.read(Salt::of(b"bob"), &prompt), 0, "another salt");
        assert_eq!(server.read(Salt::of(b"ada"), &prompt), 19);
        assert_eq!(server.got(), [0, 5]);
        file.inside().kept.clear();
    }
    // Other weights: other names.
    let mut server = Server::new(caches().remove(0), 8, std::slice::from_ref(&file));
    server.read(Salt::NONE, &prompt);
    server.evict_all();
    let other = Chain::new(b"another model");
    let cache: Box<dyn PrefixCache> = Box::new(RadixTree::new(SIZE, other).unwrap());
    server.cache = Tiered::new(cache, other, vec![Box::new(file)]);
    assert_eq!(server.read(Salt::NONE, &prompt), 0);
}

#[test]
fn what_is_saved_stays_in_the_pool_and_goes_only_where_it_outlives_the_process() {
    for cache in caches() {
        let (host, file) = (Fake::default(), Fake::default());
        let mut server = Server::new(cache, 16, &[host.clone(), file.clone()]);
        assert!(!server.cache.outlives_process());
        file.inside().outlives = true;
        assert!(server.cache.outlives_process());
        let prompt = text(0, 22);
        server.read(Salt::NONE, &prompt);
        let used = server.blocks.used();
        // Two at a time, from the end; a text that the pool knows in part is saved in part.
        let names: Vec<Key> = chain().names(Salt::NONE, &prompt, SIZE).collect();
        let left = |blocks: usize| Some(SavePoint { names: names[..blocks].to_vec() });
        let three = server.save(Salt::NONE, &prompt, None, 2);
        assert_eq!(three, left(3));
        let one = server.save(Salt::NONE, &prompt, three, 2);
        assert_eq!(one, left(1));
        assert!(!file.inside().kept.contains_key(&names[0]));
        assert_eq!(server.save(Salt::NONE, &prompt, one, 2), None);
        assert_eq!((host.inside().kept.len(), file.inside().kept.len()), (0, 5));
        assert_eq!(server.save(Salt::NONE, &[&prompt[..8], &text(60, 8)].concat(), None, 9), None);
        assert_eq!(server.save(Salt::of(b"ada"), &prompt, None, 9), None);
        assert_eq!((file.inside().kept.len(), server.blocks.used()), (5, used));
        // What is there already costs none of the two.
        assert_eq!(server.save(Salt::NONE, &prompt, None, 2), None);
        let mut next = Server::new(caches().remove(0), 16, std::slice::from_ref(&file));
        assert_eq!(next.read(Salt::NONE, &prompt), 20);
        // One that fails is gone on without, and the text comes to its end.
        file.inside().kept.clear();
        file.inside().broken = true;
        assert_eq!(server.save(Salt::NONE, &prompt, None, 4), left(1));
        assert_eq!(server.save(Salt::NONE, &prompt, left(1), 4), None);
        assert!(server.cache.last_failure().is_some());
    }
}

#[test]
fn a_tier_that_is_behind_with_its_writing_is_waited_for_by_nobody() {
    for cache in caches() {
        let (host, file) = (Fake::default(), Fake::default());
        (file.inside().outlives, file.inside().full) = (true, true);
        let mut server = Server::new(cache, 16, &[host.clone(), file.clone()]);
        let prompt = text(0, 13);
        server.read(Salt::NONE, &prompt);
        // What is saved stays in the pool, so it can wait.
        let point = server.save(Salt::NONE, &prompt, None, 9);
        assert_eq!((point.as_ref().unwrap().names.len(), file.inside().kept.len()), (3, 0));
        file.inside().full = false;
        let point = server.save(Salt::NONE, &prompt, point, 1);
        assert_eq!((point.unwrap().names.len(), file.inside().kept.len()), (2, 1));
        // What is to leave the pool cannot.
        file.inside().full = true;
        server.evict_all();
        let [of_host, of_file] = server.cache.tier_statistics()[..] else { unreachable!() };
        assert_eq!((of_host.put, of_host.late), (3, 0));
        assert_eq!((of_file.put, of_file.late, of_file.failed), (1, 2, 0));
        assert_eq!(server.read(Salt::NONE, &prompt), 12, "from the host's memory");
    }
}

#[test]
fn what_is_read_aside_is_found_when_it_has_come() {
    for cache in caches() {
        let (host, file) = (Fake::default(), Fake::default());
        (file.inside().outlives, file.inside().aside) = (true, true);
        let mut server = Server::new(cache, 16, &[host.clone(), file.clone()]);
        let prompt = text(0, 22);
        let names = server.cache.names(Salt::NONE, &prompt);
        server.read(Salt::NONE, &prompt);
        assert_eq!(server.cache.at_hand(Salt::NONE, &prompt, &names), 5);
        assert!(server.read_aside(&prompt, 9).is_none(), "all is in the pool");
        server.evict_all();
        assert!(!server.cache.is_aside(Salt::NONE, &prompt, &names), "the host has it at hand");
        assert!(server.read_aside(&prompt, 9).is_none());
        // The host loses the third block and the last of five: these alone are read.
        host.inside().kept.retain(|key, _| *key != names[2] && *key != names[4]);
        assert!(server.cache.is_aside(Salt::NONE, &prompt, &names));
        assert_eq!(server.cache.at_hand(Salt::NONE, &prompt, &names), 2);
        // Whoever does not ask finds what is at hand.
        let prefix = server.find(Salt::NONE, &prompt);
        assert_eq!(prefix.tokens, 8);
        prefix.release(&mut server.blocks);
        for (most, tokens) in [(1, 16), (9, 20)] {
            let (aside, known) = server.read_aside(&prompt, most).unwrap();
            assert!(aside.is_over());
            let read = server.cache.take_read(aside);
            assert_eq!((known, read.len()), (8, most.min(2)));
            assert!(read.contains_key(&names[2]));
            server.cache.bring(read);
            let prefix = server.find(Salt::NONE, &prompt);
            assert_eq!(prefix.tokens, tokens);
            prefix.release(&mut server.blocks);
            server.evict_all();
            host.inside().kept.retain(|key, _| *key != names[2] && *key != names[4]);
        }
    }
}

#[test]
fn what_turns_out_not_to_be_written_is_put_again() {
    for cache in caches() {
        let file = Fake::default();
        file.inside().outlives = true;
        let mut server = Server::new(cache, 16, std::slice::from_ref(&file));
        let prompt = text(0, 13);
        server.read(Salt::NONE, &prompt);
        assert_eq!(server.save(Salt::NONE, &prompt, None, 9), None);
        let names: Vec<Key> = chain().names(Salt::NONE, &prompt, SIZE).collect();
        file.inside().unwritten = names[1..].to_vec();
        server.evict_all();
        assert_eq!(file.inside().kept.len(), 3, "those that were not there have come once more");
        let of_file = server.cache.tier_statistics()[0];
        assert_eq!((of_file.put, of_file.failed), (5, 2));
        assert!(server.cache.last_failure().unwrap().to_string().contains("full of holes"));
        // Nor is one taken for damaged.
        file.inside().unwritten = names[..1].to_vec();
        assert_eq!(server.read(Salt::NONE, &prompt), 0);
        assert!(server.cache.last_failure().unwrap().to_string().contains("full of holes"));
    }
}

#[test]
fn saving_goes_on_with_the_names_that_it_had() {
    for cache in caches() {
        let file = Fake::default();
        file.inside().outlives = true;
        let mut server = Server::new(cache, 16, std::slice::from_ref(&file));
        let prompt = text(0, 20);
        server.read(Salt::NONE, &prompt);
        // Names that no block has: whoever made them anew would not have these.
        let names: Vec<Key> = (0..3).map(|number| Key([number; 32])).collect();
        let rest = server.save(Salt::NONE, &prompt, Some(SavePoint { names: names.clone() }), 1);
        assert_eq!(rest, Some(SavePoint { names: names[..2].to_vec() }));
        assert_eq!(file.inside().kept.keys().collect::<Vec<_>>(), [&names[2]]);
    }
}

#[test]
fn of_a_text_that_a_file_has_no_room_for_it_has_the_beginning() {
    for (cache, again) in caches().into_iter().zip(caches()) {
        let file = Fake::default();
        (file.inside().outlives, file.inside().most) = (true, Some(3));
        let mut server = Server::new(cache, 16, std::slice::from_ref(&file));
        let prompt = text(0, 22);
        server.read(Salt::NONE, &prompt);
        let mut point = server.save(Salt::NONE, &prompt, None, 1);
        while point.is_some() {
            point = server.save(Salt::NONE, &prompt, point, 1);
        }
        let mut next = Server::new(again, 16, std::slice::from_ref(&file));
        assert_eq!(next.read(Salt::NONE, &prompt), 3 * SIZE);
    }
}

#[test]
fn what_is_put_away_at_the_end_is_what_was_used_last() {
    let texts = [text(0, 13), text(50, 13), text(100, 13)];
    for steps in 1..12 {
        for (cache, again) in caches().into_iter().zip(caches()) {
            let (host, file) = (Fake::default(), Fake::default());
            (file.inside().outlives, file.inside().most) = (true, Some(4));
            let mut server = Server::new(cache, 16, &[host.clone(), file.clone()]);
            texts.iter().for_each(|text| _ = server.read(Salt::NONE, text));
            server.save(Salt::NONE, &texts[2], None, 9);
            // The process may have to go at any moment.
            for _ in 0..steps {
                server.put_away(1);
            }
            assert!(host.inside().kept.is_empty(), "it is lost with the process");
            let mut next = Server::new(again, 16, std::slice::from_ref(&file));
            assert_eq!(next.read(Salt::NONE, &texts[2]), 12, "{steps} steps");
        }
    }
}

#[test]
fn what_is_in_use_at_the_end_takes_up_no_room_in_the_file() {
    for (cache, again) in caches().into_iter().zip(caches()) {
        let file = Fake::default();
        (file.inside().outlives, file.inside().most) = (true, Some(3));
        let mut server = Server::new(cache, 16, std::slice::from_ref(&file));
        let (idle, busy) = (text(0, 13), text(50, 13));
        server.read(Salt::NONE, &idle);
        server.read(Salt::NONE, &busy);
        let held = server.cache.find(Salt::NONE, &busy, &mut server.blocks, &mut server.memory);
        assert_eq!(server.cache.put_away(1, &mut server.blocks, &server.memory), 1);
        while server.cache.put_away(1, &mut server.blocks, &server.memory) > 0 {}
        held.release(&mut server.blocks);
        server.check();
        let mut next = Server::new(again, 16, std::slice::from_ref(&file));
        assert_eq!(next.read(Salt::NONE, &idle), 12);
    }
}

#[test]
fn what_is_brought_back_does_not_push_its_own_rest_out_of_the_tier() {
    let mut brought = 0;
    for most in 4..14 {
        for cache in caches() {
            let tier = Fake::default();
            tier.inside().most = Some(most);
            let mut server = Server::new(cache, 6, std::slice::from_ref(&tier));
            let texts = [text(0, 25), text(50, 25), text(100, 25)];
            texts.iter().for_each(|text| _ = server.read(Salt::NONE, text));
            let in_reach = server.cache.within_reach(Salt::NONE, &texts[0]);
            assert_eq!(server.read(Salt::NONE, &texts[0]), in_reach * SIZE, "a tier of {most}");
            brought = brought.max(in_reach);
        }
    }
    assert_eq!(brought, 6);
}

#[test]
fn what_a_tier_has_lost_or_damaged_is_read_again() {
    for cache in caches() {
        let (host, file) = (Fake::default(), Fake::default());
        let mut server = Server::new(cache, 8, &[host.clone(), file.clone()]);
        let prompt = text(0, 13);
        server.read(Salt::NONE, &prompt);
        server.evict_all();
        let root = chain().root(Salt::NONE);
        let keys: Vec<Key> = prompt
            .chunks_exact(SIZE)
            .scan(root, |key, tokens| {
                *key = chain().next(*key, tokens);
                Some(*key)
            })
            .collect();
        // The first is damaged in one tier, the third in both.
        host.inside().damaged.extend([keys[0], keys[2]]);
        file.inside().damaged.push(keys[2]);
        assert_eq!(server.read(Salt::NONE, &prompt), 8);
        assert_eq!(server.got(), [1, 1]);
        let failure = server.cache.last_failure().unwrap().to_string();
        assert!(failure.starts_with("a block of tier 2 is damaged, expected"), "{failure}");
        let failed =
            server.cache.tier_statistics().iter().map(|tier| tier.failed).collect::<Vec<_>>();
        assert_eq!(failed, [2, 1]);
        // Forgotten where they were damaged, they are put there again.
        server.evict_all();
        assert_eq!((host.inside().kept.len(), file.inside().kept.len()), (3, 3));
        assert_eq!(server.read(Salt::NONE, &prompt), 12);
        server.evict_all();
        // Cut short.
        file.inside().kept.clear();
        host.inside().kept.get_mut(&keys[1]).unwrap().pop();
        assert_eq!(server.read(Salt::NONE, &prompt), 4);
        let failure = server.cache.last_failure().unwrap().to_string();
        assert_eq!(failure, "number of bytes that a tier gave is 31, expected the 32 of a block");
    }
}

#[test]
fn a_tier_that_fails_stops_nobody() {
    for cache in caches() {
        let (host, file) = (Fake::default(), Fake::default());
        host.inside().broken = true;
        let mut server = Server::new(cache, 8, &[host.clone(), file]);
        let prompt = text(0, 13);
        server.read(Salt::NONE, &prompt);
        server.evict_all();
        assert_eq!(server.read(Salt::NONE, &prompt), 12, "from the file");
        assert!(server.cache.last_failure().unwrap().to_string().contains("full of holes"));
        let [host, file] = server.cache.tier_statistics()[..] else { unreachable!() };
        // Three blocks to put, three to get.
        assert_eq!((host.put, host.got, host.failed), (0, 0, 6));
        assert_eq!((file.put, file.got, file.failed), (3, 3, 0));
    }
}

#[test]
fn a_tier_has_the_whole_block_where_the_pool_has_a_part() {
    let mut server =
        Server::new(Box::new(RadixTree::new(SIZE, chain()).unwrap()), 8, &[Fake::default()]);
    let (mine, other) = (text(0, 9), [&text(0, 6)[..], &[90, 91, 92]].concat());
    server.read(Salt::NONE, &mine);
    server.evict_all();
    server.read(Salt::NONE, &other);
    // Six tokens agree with what is in the pool; the tier has eight.
    assert_eq!(server.read(Salt::NONE, &mine), 8);
    // And where it has none, six it is.
    assert_eq!(server.read(Salt::NONE, &[&text(0, 6)[..], &[70, 71]].concat()), 6);
}

#[test]
fn bringing_back_makes_room_by_letting_others_go() {
    for cache in caches() {
        let mut server = Server::new(cache, 4, &[Fake::default()]);
        let (one, two) = (text(0, 17), text(50, 17));
        server.read(Salt::NONE, &one);
        server.read(Salt::NONE, &two);
        assert_eq!(server.read(Salt::NONE, &one), 16);
        assert_eq!(server.read(Salt::NONE, &two), 16);
        assert_eq!(server.blocks.free(), 0);
        // With every block in use, what can be brought back is, and no more.
        let held: Vec<BlockId> = server.find(Salt::NONE, &two).blocks;
        assert_eq!(server.find(Salt::NONE, &one).tokens, 0);
        Prefix { tokens: 0, blocks: held }.release(&mut server.blocks);
        server.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Any prompts in any order, tiers that lose and damage what they like: what is found is right.
    #[test]
    fn whatever_tiers_lose_what_is_found_is_right(
        steps in prop::collection::vec(
            (0..2u8, prop::collection::vec(0..2u32, 1..22), 0..8u8, any::<prop::sample::Index>()),
            40,
        ),
    ) {
        for cache in caches() {
            let tiers = [Fake::default(), Fake::default()];
            let mut server = Server::new(cache, 9, &tiers);
            for (salt, prompt, event, which) in &steps {
                server.read(Salt([*salt; 32]), prompt);
                let mut inside = tiers[usize::from(event % 2)].inside();
                let mut keys: Vec<Key> = inside.kept.keys().copied().collect();
                keys.sort_unstable();
                match event {
                    0 | 1 if !keys.is_empty() => {
                        inside.kept.remove(which.get(&keys));
                    }
                    2 | 3 if !keys.is_empty() => inside.damaged.push(*which.get(&keys)),
                    4 | 5 => inside.broken ^= true,
                    _ => {}
                }
            }
        }
    }
}
