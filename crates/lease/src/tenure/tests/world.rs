//! A store, a network and some keepers, in simulated time.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_core::Name;

use super::super::{Order, Outcome, Request, Tenure};
use super::{ms, unreachable};
use crate::observation::Observation;
use crate::store::{AcquireError, Claim, Holder, StoreFailure, TenureError, Token};
use crate::{LeaseSettings, LeaseStats, Owner, Role};

/// Milliseconds of a step.
pub(super) const TICK: u64 = 5;

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// The longest way of a request or an answer, in ms.
    pub(super) delay: u64,
    /// Of 100 requests so many are lost, and as many answers.
    pub(super) loss: u64,
    /// Of 10,000 steps of a keeper, so many begin a pause.
    pub(super) pauses: u64,
}

/// What the store has written down.
#[derive(Debug, Clone)]
struct Record {
    owner: Owner,
    token: Token,
    renewals: u64,
    expires: Duration,
}

/// A request on its way to the store, which takes effect whether or not anyone still waits.
#[derive(Debug)]
struct Letter {
    from: usize,
    number: u64,
    request: Request,
    arrives: u64,
}

/// An answer on its way back.
#[derive(Debug)]
struct Reply {
    to: usize,
    number: u64,
    outcome: Outcome,
    arrives: u64,
}

#[derive(Debug)]
struct Instance {
    tenure: Tenure,
    claim: Claim,
    seen: Observation<(Token, u64)>,
    /// Its clock: where it began, and how many ms it makes of a million.
    offset: Duration,
    pace: u64,
    paused_until: u64,
    waiting: Option<(u64, Duration)>,
}

impl Instance {
    fn clock(&self, now: u64) -> Duration {
        self.offset + Duration::from_micros(now * self.pace / 1_000)
    }
}

#[derive(Debug)]
pub(super) struct World {
    now: u64,
    chance: u64,
    numbers: u64,
    by_database: bool,
    faults: Faults,
    record: Option<Record>,
    letters: Vec<Letter>,
    replies: Vec<Reply>,
    instances: Vec<Instance>,
    /// The latest token that wrote, and which instances ever did.
    wrote: Token,
    writers: BTreeSet<usize>,
}

impl World {
    pub(super) fn new(
        seed: u64,
        keepers: usize,
        by_database: bool,
        faults: Faults,
        settings: LeaseSettings,
        name: &Name,
    ) -> Self {
        let mut world = Self {
            now: 0,
            chance: seed | 1,
            numbers: 0,
            by_database,
            faults,
            record: None,
            letters: Vec::new(),
            replies: Vec::new(),
            instances: Vec::new(),
            wrote: 0,
            writers: BTreeSet::new(),
        };
        for _ in 0..keepers {
            let offset = ms(world.below(1_000_000));
            // A thousandth to either side: far worse than any clock.
            let pace = 999_000 + world.below(2_000);
            world.instances.push(Instance {
                tenure: Tenure::new(settings, offset),
                claim: Claim {
                    name: name.clone(),
                    owner: Owner::new("copied").unwrap(),
                    ttl: settings.lease_ttl(),
                },
                seen: Observation::new(),
                offset,
                pace,
                paused_until: 0,
                waiting: None,
            });
        }
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.chance ^= self.chance >> 12;
        self.chance ^= self.chance << 25;
        self.chance ^= self.chance >> 27;
        (self.chance.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound
    }

    /// How long a letter is under way: most are quick, so that the slow ones are a surprise.
    fn way(&mut self) -> u64 {
        if self.below(3) > 0 {
            self.below(2)
        } else {
            self.below(self.faults.delay)
        }
    }

    /// Nothing goes wrong from now on.
    pub(super) fn mend(&mut self) {
        self.faults = Faults {
            delay: 2,
            loss: 0,
            pauses: 0,
        };
        for instance in &mut self.instances {
            instance.paused_until = self.now;
        }
    }

    pub(super) fn step(&mut self) {
        self.now += TICK;
        self.deliver();
        for at in 0..self.instances.len() {
            self.run(at);
        }
        self.check();
    }

    /// One process gets to run, unless it is stopped.
    fn run(&mut self, at: usize) {
        if self.below(10_000) < self.faults.pauses {
            self.instances[at].paused_until = self.now + self.below(3_000);
        }
        if self.now < self.instances[at].paused_until {
            return;
        }
        self.answer(at);
        let instance = &mut self.instances[at];
        let local = instance.clock(self.now);
        let Some(Order { request, timeout }) = instance.tenure.next(local) else {
            return;
        };
        self.numbers += 1;
        instance.waiting = Some((self.numbers, local + timeout));
        let letter = Letter {
            from: at,
            number: self.numbers,
            request,
            arrives: self.now + self.way(),
        };
        if self.below(100) >= self.faults.loss {
            self.letters.push(letter);
        }
    }

    /// Hands in the answer that has come, or that none has come in time.
    fn answer(&mut self, at: usize) {
        let Some((number, deadline)) = self.instances[at].waiting else {
            return;
        };
        let now = self.now;
        let local = self.instances[at].clock(now);
        let arrived = self
            .replies
            .iter()
            .position(|reply| reply.to == at && reply.number == number && reply.arrives <= now);
        let outcome = match arrived {
            Some(index) => self.replies.swap_remove(index).outcome,
            None if local >= deadline => match self.instances[at].tenure.token() {
                Some(_) => Outcome::Renewed(Err(unreachable().into())),
                None => Outcome::Acquired(Err(unreachable().into())),
            },
            None => return,
        };
        let spread = 0.9 + f64::from(u32::try_from(self.below(200)).unwrap()) / 1_000.0;
        let instance = &mut self.instances[at];
        instance.waiting = None;
        instance.tenure.answered(outcome, local, spread);
    }

    fn deliver(&mut self) {
        let now = self.now;
        while let Some(index) = self.letters.iter().position(|letter| letter.arrives <= now) {
            let letter = self.letters.swap_remove(index);
            let outcome = match letter.request {
                Request::Acquire => Outcome::Acquired(self.acquire(letter.from)),
                Request::Renew(token) => Outcome::Renewed(self.renew(letter.from, token)),
            };
            if self.below(100) >= self.faults.loss {
                let arrives = now + self.way();
                self.replies.push(Reply {
                    to: letter.from,
                    number: letter.number,
                    outcome,
                    arrives,
                });
            }
        }
    }

    fn acquire(&mut self, from: usize) -> Result<Token, AcquireError> {
        let now = ms(self.now);
        let instance = &mut self.instances[from];
        let claim = &instance.claim;
        if let Some(record) = &self.record
            && record.owner != claim.owner
        {
            let local = instance.offset + Duration::from_micros(self.now * instance.pace / 1_000);
            let version = (record.token, record.renewals);
            let remaining = if self.by_database {
                record.expires.saturating_sub(now)
            } else {
                claim
                    .ttl
                    .saturating_sub(instance.seen.unchanged_for(version, local))
            };
            if !remaining.is_zero() {
                return Err(AcquireError::Held(Holder {
                    owner: record.owner.clone(),
                    token: record.token,
                    remaining,
                }));
            }
        }
        let token = self.record.as_ref().map_or(1, |record| record.token + 1);
        self.record = Some(Record {
            owner: claim.owner.clone(),
            token,
            renewals: 0,
            expires: now + claim.ttl,
        });
        Ok(token)
    }

    fn renew(&mut self, from: usize, token: Token) -> Result<(), TenureError> {
        let claim = &self.instances[from].claim;
        match &mut self.record {
            Some(record) if record.owner == claim.owner && record.token == token => {
                record.renewals += 1;
                record.expires = ms(self.now) + claim.ttl;
                Ok(())
            }
            Some(_) => Err(TenureError::Lost),
            None => Err(StoreFailure::Unreachable {
                store: "a store".to_owned(),
                why: "it is empty".to_owned(),
            }
            .into()),
        }
    }

    /// A stopped process too may be stopped in front of a write: what counts is what it is
    /// permitted, by its own clock.
    fn check(&mut self) {
        let now = self.now;
        let may_write = |instance: &Instance| {
            let token = instance.tenure.token()?;
            let permission = instance.tenure.permission();
            permission
                .may_write(token, instance.clock(now))
                .then_some(token)
        };
        let writing: Vec<_> = self.instances.iter().map(may_write).collect();
        let tokens: Vec<_> = writing.iter().flatten().copied().collect();
        assert!(tokens.len() < 2, "at {now} ms two may write: {writing:?}");
        if let Some(at) = writing.iter().position(Option::is_some) {
            self.writers.insert(at);
        }
        for token in tokens {
            assert!(token >= self.wrote, "at {now} ms an earlier token writes");
            self.wrote = token;
        }
    }

    pub(super) fn active(&self) -> usize {
        let roles = self.instances.iter().map(|instance| instance.tenure.role());
        roles
            .filter(|role| matches!(role, Role::Active { .. }))
            .count()
    }

    /// How many instances ever wrote.
    pub(super) fn holders(&self) -> usize {
        self.writers.len()
    }

    pub(super) fn stats(&self) -> LeaseStats {
        let all = self
            .instances
            .iter()
            .map(|instance| instance.tenure.stats());
        all.reduce(|a, b| LeaseStats {
            acquired: a.acquired + b.acquired,
            lost: a.lost + b.lost,
            renew_failures: a.renew_failures + b.renew_failures,
            store_errors: a.store_errors + b.store_errors,
        })
        .unwrap_or_default()
    }
}
