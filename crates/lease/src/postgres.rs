//! A lease in a table of PostgreSQL: for instances that share nothing else.
//!
//! A lease has run out when the database's clock says so, to whoever looks for the first time.
//! Whoever has looked before trusts its own monotonic clock more: a lease that it has seen renewed is
//! held for a `ttl` from then, and one that has not been renewed for a `ttl` is free, whatever
//! somebody has done to the database's clock.
//!
//! A lease that has no row may have been deleted under a holder that does not know yet, so that is
//! looked at for a `ttl` before a row is written. Only who makes the table knows better, and makes the
//! lease with it.

mod session;
mod settings;
mod statements;
mod tls;

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{BoxFuture, Clock};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use self::session::Session;
pub use self::settings::{DatabasePassword, InvalidPostgresUrl, PostgresSettings};
use crate::Owner;
use crate::observation::Observation;
use crate::store::{AcquireError, Claim, Holder, LeaseStore, StoreFailure, TenureError, Token};

/// The leases in one database, in its table `bridge_lease`, which is made where it is missing.
///
/// One connection is kept; it is made anew when it is broken or a request on it was given up.
pub struct PostgresLease {
    settings: PostgresSettings,
    clock: Arc<dyn Clock>,
    session: Mutex<Option<Session>>,
    /// The number of the host that the next connection is tried to first.
    begin_with: AtomicUsize,
    seen: Mutex<Seen>,
}

/// The row as it was seen.
#[derive(Debug)]
struct Seen {
    /// Token and renewals, which name a version of it; `None` when it was not there.
    version: Observation<Option<(i64, i64)>>,
    /// How long that version has to stand before the lease is free.
    needed: Duration,
}

/// What the last look at the row has shown.
struct Look {
    /// There was none.
    first: bool,
    version: Option<(i64, i64)>,
    /// Whether that has stood for as long as is needed.
    quiet: bool,
}

impl PostgresLease {
    /// Nothing is connected yet.
    pub fn new(settings: PostgresSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            session: Mutex::new(None),
            begin_with: AtomicUsize::new(0),
            seen: Mutex::new(Seen {
                version: Observation::new(),
                needed: Duration::ZERO,
            }),
        }
    }

    /// The connection, taken out: it is put back after a request that was answered, and closed with
    /// one that was not.
    async fn session(&self, ttl: Duration, first: Option<&Claim>) -> Result<Session, StoreFailure> {
        let kept = {
            let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take().filter(Session::is_open)
        };
        match kept {
            Some(session) => Ok(session),
            None => Session::open(&self.settings, ttl, first, &self.begin_with).await,
        }
    }

    fn keep(&self, session: Session) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    async fn rows(
        &self,
        ttl: Duration,
        first: Option<&Claim>,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StoreFailure> {
        let session = self.session(ttl, first).await?;
        let rows = session.client().query_typed(statement, parameters).await;
        // After an error the connection is made anew: it may be to a server that is no longer
        // the one to write to.
        let rows = rows.map_err(|error| self.failure(&error))?;
        self.keep(session);
        Ok(rows)
    }

    /// Does a statement that changes one row, or none because the tenure is over.
    async fn change(
        &self,
        claim: &Claim,
        statement: &str,
        token: Token,
        with_ttl: bool,
    ) -> Result<(), TenureError> {
        let (boot, ttl_ms) = (claim.owner.boot().to_string(), millis(claim.ttl));
        let Ok(token) = i64::try_from(token) else {
            return Err(TenureError::Lost);
        };
        let name = claim.name.as_str();
        let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&name, Type::TEXT),
            (&boot, Type::TEXT),
            (&token, Type::INT8),
        ];
        if with_ttl {
            parameters.push((&ttl_ms, Type::INT8));
        }
        let statement = format!("{statement} RETURNING token");
        let rows = self.rows(claim.ttl, None, &statement, &parameters).await?;
        if rows.is_empty() {
            return Err(TenureError::Lost);
        }
        Ok(())
    }

    async fn take(&self, claim: &Claim) -> Result<Token, AcquireError> {
        loop {
            if let Some(token) = self.try_take(claim).await? {
                return Ok(token);
            }
        }
    }

    /// `None` where another has made the row in this moment: the next look sees it.
    async fn try_take(&self, claim: &Claim) -> Result<Option<Token>, AcquireError> {
        let Look {
            first,
            version,
            quiet,
        } = self.last_look();
        let may_make = version.is_none() && quiet;
        let (token, renewals) = version.unzip();
        // A version that no row has, where the row was not there at the last look.
        let token = token.or((!first).then_some(-1));
        let (name, boot) = (claim.name.as_str(), claim.owner.boot().to_string());
        let (instance, ttl_ms) = (claim.owner.instance(), millis(claim.ttl));
        let parameters: [(&(dyn ToSql + Sync), Type); 8] = [
            (&name, Type::TEXT),
            (&instance, Type::TEXT),
            (&boot, Type::TEXT),
            (&ttl_ms, Type::INT8),
            (&token, Type::INT8),
            (&renewals, Type::INT8),
            (&quiet, Type::BOOL),
            (&may_make, Type::BOOL),
        ];
        let rows = self
            .rows(
                claim.ttl,
                first.then_some(claim),
                statements::ACQUIRE,
                &parameters,
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| self.odd("it answered nothing"))?;
        let acquired: Option<i64> = self.column(row, "acquired")?;
        if let Some(token) = acquired {
            self.note(Some((token, 0)), claim.ttl);
            let token = u64::try_from(token).map_err(|_| self.odd("its token is negative"))?;
            return Ok(Some(token));
        }
        let seen: Option<i64> = self.column(row, "token")?;
        if seen.is_none() && may_make {
            return Ok(None);
        }
        Err(self.held(claim, row)?)
    }

    /// What was seen before this look, and whether that has stood for long enough.
    fn last_look(&self) -> Look {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let last = seen.version.last(self.clock.monotonic());
        Look {
            first: last.is_none(),
            version: last.and_then(|(version, _)| *version),
            quiet: last.is_some_and(|(_, unchanged)| unchanged >= seen.needed),
        }
    }

    /// Takes note of a version that is new and has to stand for so long.
    fn note(&self, version: Option<(i64, i64)>, needed: Duration) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.version.unchanged_for(version, self.clock.monotonic());
        seen.needed = needed;
    }

    /// Who has the lease, by a row that was not for us; takes note of it.
    fn held(&self, claim: &Claim, row: &Row) -> Result<AcquireError, StoreFailure> {
        let token: Option<i64> = self.column(row, "token")?;
        let now = self.clock.monotonic();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first_look = seen.version.last(now).is_none();
        let Some(token) = token else {
            if !seen.version.is(&None) {
                seen.needed = claim.ttl;
            }
            let unchanged = seen.version.unchanged_for(None, now);
            return Ok(AcquireError::Store(StoreFailure::Unreachable {
                store: self.to_string(),
                why: format!(
                    "the lease has no row; it is written in {:.1} s, when whoever held one that \
                     was deleted has let it go",
                    seen.needed.saturating_sub(unchanged).as_secs_f64()
                ),
            }));
        };
        let renewals: i64 = self.column(row, "renewals")?;
        let ttl = from_millis(self.column(row, "ttl_ms")?);
        let version = Some((token, renewals));
        if !seen.version.is(&version) {
            // By the database's clock where there is nothing else to go by.
            seen.needed = if first_look {
                from_millis(self.column(row, "remaining_ms")?).min(ttl)
            } else {
                ttl
            };
        }
        let unchanged = seen.version.unchanged_for(version, now);
        let remaining = seen.needed.saturating_sub(unchanged);
        let boot: String = self.column(row, "boot")?;
        let boot = Uuid::try_parse(&boot).map_err(|_| self.odd("its boot is no UUID"))?;
        let owner = Owner::of(self.column(row, "owner")?, boot);
        Ok(AcquireError::Held(Holder {
            owner: owner.map_err(|error| self.odd(&error.to_string()))?,
            token: u64::try_from(token).map_err(|_| self.odd("its token is negative"))?,
            remaining,
        }))
    }

    fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
        &self,
        row: &'a Row,
        name: &str,
    ) -> Result<T, StoreFailure> {
        row.try_get(name).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &tokio_postgres::Error) -> StoreFailure {
        session::failure(&self.to_string(), error)
    }

    fn odd(&self, why: &str) -> StoreFailure {
        StoreFailure::Unusable {
            store: self.to_string(),
            why: format!("the row of the lease is damaged: {why}"),
            remedy: "delete the row, and the lease is given again after lease_ttl".to_owned(),
        }
    }
}

impl fmt::Display for PostgresLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.settings, f)
    }
}

impl fmt::Debug for PostgresLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLease")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl LeaseStore for PostgresLease {
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Token, AcquireError>> {
        Box::pin(self.take(claim))
    }

    fn renew<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(self.change(claim, statements::RENEW, token, true))
    }

    fn release<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(self.change(claim, statements::RELEASE, token, false))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
