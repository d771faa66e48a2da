//! One connection to the database, ready for requests.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket, tls::TlsStream};
use tracing::debug;

use super::settings::{DatabasePassword, PostgresSettings, cause};
use super::statements;
use super::{millis, tls};
use crate::store::{Claim, StoreFailure};

/// A connection; closed on drop, with whatever was in flight on it.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether it can still be used, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Connects to the first host that answers as it should, and makes the table where it is missing.
    /// Of several hosts none takes longer than its share of a third of the `ttl`; for how long one alone
    /// is waited for is the caller's affair. It starts at the host of number `begin_with`: that of
    /// the last success, or of the host after one that did not answer in time.
    ///
    /// With a table that is made, the `first` lease is made, and is free.
    pub(super) async fn open(
        settings: &PostgresSettings,
        ttl: Duration,
        first: Option<&Claim>,
        begin_with: &AtomicUsize,
    ) -> Result<Self, StoreFailure> {
        let store = settings.to_string();
        let (mut hosts, tls) = keys(settings, &store).await?;
        let count = hosts.len();
        let begin = begin_with.load(Ordering::Relaxed) % count.max(1);
        hosts.rotate_left(begin);
        let share = match u32::try_from(hosts.len()) {
            Ok(several @ 2..) => ttl / 3 / several,
            _ => Duration::MAX,
        };
        let mut failed = None;
        for (step, host) in hosts.into_iter().enumerate() {
            // Before it is waited for: whoever gives up does not come back here.
            begin_with.store((begin + step + 1) % count, Ordering::Relaxed);
            let opening = Self::open_at(host, tls.clone(), &store, ttl, first);
            match tokio::time::timeout(share, opening).await {
                Ok(Ok(session)) => {
                    begin_with.store((begin + step) % count, Ordering::Relaxed);
                    return Ok(session);
                }
                // What a person has to mend is worth more than that another host is silent.
                Ok(Err(failure)) if !matches!(failed, Some(StoreFailure::Unusable { .. })) => {
                    failed = Some(failure);
                }
                Ok(Err(_)) => {}
                Err(_) => {
                    failed.get_or_insert(StoreFailure::TimedOut {
                        store: store.clone(),
                        after: share,
                    });
                }
            }
        }
        Err(failed.unwrap_or(StoreFailure::Unreachable {
            store,
            why: "it has no host".to_owned(),
        }))
    }

    async fn open_at(
        mut config: Config,
        tls: Option<tls::Tls>,
        store: &str,
        ttl: Duration,
        first: Option<&Claim>,
    ) -> Result<Self, StoreFailure> {
        if config.get_connect_timeout().is_none() {
            // Of each address that the host's name stands for.
            config.connect_timeout(ttl / 3);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ttl / 3);
        }
        let failed = |error: tokio_postgres::Error| failure(store, &error);
        let session = match tls {
            None => drive(config.connect(NoTls).await.map_err(failed)?),
            Some(tls) => drive(config.connect(tls).await.map_err(failed)?),
        };
        // So that what was given up does not wait in the server for ever. A statement that is cancelled
        // while it waits for a synchronous standby is reported as done, though the standby may not have
        // it: so not before nobody is waiting for its answer any more.
        let prepare = format!(
            "SET lock_timeout = {}; SET statement_timeout = {}; {}",
            (ttl / 3).as_millis().max(1),
            ttl.as_millis().max(1),
            statements::PREPARE_SESSION
        );
        session
            .client
            .batch_execute(&prepare)
            .await
            .map_err(failed)?;
        session.make_table(first).await.map_err(failed)?;
        Ok(session)
    }

    /// Of those that make it at the same moment one does, and the others find it with what is in it.
    /// What fails or is given up ends the connection, and with it the transaction and the lock.
    async fn make_table(&self, first: Option<&Claim>) -> Result<(), tokio_postgres::Error> {
        if self.has_table().await? {
            return Ok(());
        }
        // Not in the transaction: that would not look anew whether there is a table.
        self.client.batch_execute(statements::LOCK_MAKING).await?;
        if !self.has_table().await? {
            self.client.batch_execute("BEGIN").await?;
            self.client.batch_execute(statements::MAKE_TABLE).await?;
            if let Some(claim) = first {
                self.make_free(claim).await?;
            }
            self.client.batch_execute("COMMIT").await?;
        }
        self.client.batch_execute(statements::UNLOCK_MAKING).await
    }

    async fn has_table(&self) -> Result<bool, tokio_postgres::Error> {
        let rows = self
            .client
            .query_typed(statements::TABLE_EXISTS, &[])
            .await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0))
    }

    async fn make_free(&self, claim: &Claim) -> Result<(), tokio_postgres::Error> {
        let (name, boot) = (claim.name.as_str(), claim.owner.boot().to_string());
        let (instance, ttl_ms) = (claim.owner.instance(), millis(claim.ttl));
        self.client
            .query_typed(
                statements::MAKE_FREE,
                &[
                    (&name, Type::TEXT),
                    (&instance, Type::TEXT),
                    (&boot, Type::TEXT),
                    (&ttl_ms, Type::INT8),
                ],
            )
            .await?;
        Ok(())
    }
}

fn drive<T>((client, connection): (Client, Connection<Socket, T>)) -> Session
where
    T: TlsStream + Unpin + Send + 'static,
{
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(
                error = cause(&error),
                "the connection to the database ended"
            );
        }
    });
    Session { client, driver }
}

/// Reads what is in files, on a thread where that may take its time.
async fn keys(
    settings: &PostgresSettings,
    store: &str,
) -> Result<(Vec<Config>, Option<tls::Tls>), StoreFailure> {
    let (settings, store) = (settings.clone(), store.to_owned());
    let name = store.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let unusable = |why: String, remedy: &str| StoreFailure::Unusable {
            store: store.clone(),
            why,
            remedy: remedy.to_owned(),
        };
        let password = match &settings.password {
            DatabasePassword::None => None,
            DatabasePassword::Text(password) => Some(password.clone()),
            DatabasePassword::File(path) => {
                let remedy = "make it readable for the bridge's user, with the password in it";
                Some(read_password(path).map_err(|why| unusable(why, remedy))?)
            }
        };
        let mut hosts = settings.each_host();
        for (host, password) in hosts.iter_mut().zip(password.iter().cycle()) {
            host.password(password);
        }
        let tls = settings.is_encrypted().then(|| {
            let connector = tls::connector(settings.ca_file.as_deref());
            connector.map_err(|error| unusable(error.to_string(), "correct ca_file"))
        });
        Ok((hosts, tls.transpose()?))
    });
    let ended = |why: String| StoreFailure::Unreachable { store: name, why };
    reading.await.map_err(|error| ended(error.to_string()))?
}

fn read_password(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read the password in {shown}: {error}"))?;
    // One newline, as an editor puts it there: what is before it may be a part of the password.
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(format!("{shown} holds no password: it is empty"));
    }
    Ok(password.to_owned())
}

/// What an error of the database means for whoever runs the bridge.
pub(super) fn failure(store: &str, error: &tokio_postgres::Error) -> StoreFailure {
    let store = store.to_owned();
    let why = cause(error);
    let remedy = match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => format!(
            "let the bridge's user SELECT, INSERT and UPDATE on the table bridge_lease; \
             where it may not create it, make it beforehand: {}",
            statements::MAKE_TABLE
        ),
        Some(code)
            if *code == SqlState::INVALID_PASSWORD
                || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            "correct the user and the password, or pg_hba.conf".to_owned()
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            "create the database, or correct its name".to_owned()
        }
        Some(code)
            if *code == SqlState::UNDEFINED_COLUMN || *code == SqlState::DATATYPE_MISMATCH =>
        {
            "the table bridge_lease is not ours: give the bridge a schema of its own".to_owned()
        }
        _ => return StoreFailure::Unreachable { store, why },
    };
    StoreFailure::Unusable { store, why, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_of_a_file_is_no_part_of_the_password() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            fs::write(file.path(), text).unwrap();
            read_password(file.path())
        };
        for text in ["pass word", "pass word\n", "pass word\r\n"] {
            assert_eq!(read(text).unwrap(), "pass word", "{text:?}");
        }
        assert_eq!(read("pass\n\n").unwrap(), "pass\n");
        for text in ["", "\n", "\r\n"] {
            assert!(read(text).unwrap_err().contains("is empty"), "{text:?}");
        }
    }
}
