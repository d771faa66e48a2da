//! The lease in PostgreSQL.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{Clock, SystemClock};
use bridge_lease::{
    AcquireError, DatabasePassword, LeaseStore, PostgresLease, PostgresSettings, StoreFailure,
};
use bridge_testkit::{Authority, Postgres, wait_for};

use super::contract::{self, Party, Place, TTL, requirements};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Database<'a> {
    pub(crate) url: String,
    pub(crate) server: &'a Postgres,
}

impl<'a> Database<'a> {
    pub(crate) fn of(server: &'a Postgres) -> Self {
        Self {
            url: server.url(),
            server,
        }
    }

    fn settings(&self) -> PostgresSettings {
        let password = DatabasePassword::File(self.server.password_file());
        PostgresSettings::parse(&self.url)
            .unwrap()
            .with_password(password)
    }
}

impl Place for Database<'_> {
    fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn LeaseStore> {
        Arc::new(PostgresLease::new(self.settings(), clock))
    }
}

fn with(settings: PostgresSettings) -> Party {
    struct Nowhere(PostgresSettings);
    impl Place for Nowhere {
        fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn LeaseStore> {
            Arc::new(PostgresLease::new(self.0.clone(), clock))
        }
    }
    Party::new(&Nowhere(settings), "plant-7")
}

/// One server for all of it: each requirement has a table of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_what_every_store_has_to() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    macro_rules! conforms {
        ($($requirement:ident),* $(,)?) => {
            $(println!("{}", stringify!($requirement));
            server.sql("DROP TABLE IF EXISTS bridge_lease").await;
            contract::$requirement(&place, stringify!($requirement)).await;)*
        };
    }
    requirements!(conforms);
}

fn store_failure(error: AcquireError) -> StoreFailure {
    match error {
        AcquireError::Store(failure) => failure,
        AcquireError::Held(holder) => panic!("{holder}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_start_at_once_on_an_empty_database_make_one_table() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    for round in 0..5 {
        server.sql("DROP TABLE IF EXISTS bridge_lease").await;
        let asking: Vec<_> = (0..8)
            .map(|_| {
                let party = Party::for_long(&place, "plant-7");
                tokio::spawn(async move { party.acquire().await })
            })
            .collect();
        let mut won = 0;
        for asked in asking {
            match asked.await.unwrap() {
                Ok(_) => won += 1,
                Err(AcquireError::Held(_)) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(won, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_create_nothing_needs_the_table_and_three_rights() {
    let server = Postgres::start().await;
    server
        .sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        .await;
    server.sql("CREATE USER least").await;
    let settings = PostgresSettings::parse(&server.socket_url("least")).unwrap();
    let least = with(settings);
    let failure = store_failure(least.acquire().await.unwrap_err());
    let StoreFailure::Unusable { remedy, .. } = &failure else {
        panic!("{failure:?}");
    };
    // What the remedy says is what helps.
    let (_, table) = remedy.split_once("beforehand: ").unwrap();
    server.sql(table).await;
    let failure = store_failure(least.acquire().await.unwrap_err());
    assert!(
        matches!(failure, StoreFailure::Unusable { .. }),
        "{failure}"
    );
    server
        .sql("GRANT SELECT, INSERT, UPDATE ON bridge_lease TO least")
        .await;
    // The table was made by another, who may have deleted a row of it: that takes a ttl.
    let token = written_in_time(&least).await;
    least.store.renew(&least.claim, token).await.unwrap();
    least.store.release(&least.claim, token).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_database_whose_clock_jumps_takes_the_lease_from_nobody_who_was_seen_renewing() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    let (mut a, b) = (
        Party::for_long(&place, "plant-7"),
        Party::new(&place, "plant-7"),
    );
    let token = a.acquire().await.unwrap();
    b.refused().await;
    a.claim.ttl = TTL;
    a.store.renew(&a.claim, token).await.unwrap();
    // As a clock that jumps ahead by an hour would have it.
    server
        .sql("UPDATE bridge_lease SET expires_at = expires_at - interval '1 hour'")
        .await;
    assert_eq!(b.refused().await.remaining, TTL);
    // And one that is set back keeps it from nobody for longer than a ttl.
    server
        .sql("UPDATE bridge_lease SET expires_at = expires_at + interval '9 hours'")
        .await;
    assert!(b.acquire_in_time().await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ran_out_while_nobody_looked_is_had_at_the_first_look() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    let first = Party::new(&place, "plant-7").acquire().await.unwrap();
    server
        .sql("UPDATE bridge_lease SET expires_at = clock_timestamp()")
        .await;
    assert!(Party::new(&place, "plant-7").acquire().await.unwrap() > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_row_is_not_written_again_under_its_holder() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    let (a, b) = (
        Party::for_long(&place, "plant-7"),
        Party::new(&place, "plant-7"),
    );
    let token = a.acquire().await.unwrap();
    b.refused().await;
    server.sql("DELETE FROM bridge_lease").await;
    let failure = store_failure(b.acquire().await.unwrap_err());
    assert!(failure.to_string().contains("was deleted"), "{failure}");
    assert!(a.store.renew(&a.claim, token).await.is_err());
    let failure = store_failure(a.acquire().await.unwrap_err());
    assert!(failure.to_string().contains("was deleted"), "{failure}");
    assert!(written_in_time(&b).await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_deleted_row_is_not_written_at_once_by_who_looks_for_the_first_time() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    let a = Party::new(&place, "plant-7");
    let token = a.acquire().await.unwrap();
    let deleted = Instant::now();
    server.sql("DELETE FROM bridge_lease").await;
    let late = Party::new(&place, "plant-7");
    let failure = store_failure(late.acquire().await.unwrap_err());
    assert!(failure.to_string().contains("was deleted"), "{failure}");
    assert!(written_in_time(&late).await > token);
    assert!(deleted.elapsed() >= TTL, "{:?}", deleted.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_dropped_table_is_made_without_a_lease_by_who_has_looked_before() {
    let server = Postgres::start().await;
    let place = Database::of(&server);
    let (a, b) = (
        Party::for_long(&place, "plant-7"),
        Party::new(&place, "plant-7"),
    );
    let token = a.acquire().await.unwrap();
    b.refused().await;
    server.sql("DROP TABLE bridge_lease").await;
    // Its statement fails, and the next connection makes the table.
    let failures = [b.acquire().await, b.acquire().await].map(|r| store_failure(r.unwrap_err()));
    assert!(
        failures[1].to_string().contains("was deleted"),
        "{failures:?}"
    );
    assert!(written_in_time(&b).await > token);
}

/// Asks until the row of a lease that has none is written.
async fn written_in_time(party: &Party) -> u64 {
    wait_for("a ttl has passed", PATIENCE, async || {
        party.acquire().await.ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_after_the_database_was_away_crashed_or_silent() {
    let mut server = Postgres::start().await;
    let a = Party::new(&Database::of(&server), "plant-7");
    let token = a.acquire().await.unwrap();
    for round in 0..3 {
        match round {
            0 => server.stop().await,
            1 => server.kill().await,
            _ => server.pause(),
        }
        let patience = Duration::from_millis(500);
        let renewed = tokio::time::timeout(patience, a.store.renew(&a.claim, token)).await;
        assert!(!matches!(renewed, Ok(Ok(()))), "{renewed:?}");
        match round {
            2 => server.resume(),
            _ => server.restart().await,
        }
        // The tokens are still there.
        let again = wait_for("the database answers", PATIENCE, async || {
            a.store.renew(&a.claim, token).await.ok()
        });
        again.await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_what_the_synchronous_standby_does_not_have_is_never_said_to_be_done() {
    for weak in ["off", "local"] {
        waits_for_the_synchronous_standby(weak).await;
    }
}

/// Though the database does not demand it of every session.
async fn waits_for_the_synchronous_standby(weak: &str) {
    let server = Postgres::start().await;
    server
        .sql(&format!(
            "ALTER DATABASE bridge SET synchronous_commit = {weak}"
        ))
        .await;
    let mut a = Party::new(&Database::of(&server), "plant-7");
    a.claim.ttl = Duration::from_secs(2);
    let token = a.acquire().await.unwrap();
    server
        .sql("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        .await;
    server.sql("SELECT pg_reload_conf()").await;
    let setting = "SHOW synchronous_standby_names";
    wait_for("it waits for a standby", PATIENCE, async || {
        (server.sql(setting).await == "away").then_some(())
    })
    .await;
    // Longer than any request of a keeper waits: that is less than half of the ttl.
    let renewed = a.store.renew(&a.claim, token);
    let renewed = tokio::time::timeout(a.claim.ttl * 3 / 4, renewed).await;
    assert!(renewed.is_err(), "{weak}: {renewed:?}");
    server
        .sql("ALTER SYSTEM RESET synchronous_standby_names")
        .await;
    server.sql("SELECT pg_reload_conf()").await;
    wait_for("it goes on", PATIENCE, async || {
        a.store.renew(&a.claim, token).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_of_several_hosts_a_silent_one_costs_its_share_and_one_that_cannot_be_written_is_passed_by()
 {
    let server = Postgres::start().await;
    // It accepts, as a kernel does for a process that hangs, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = (silent.local_addr().unwrap().port(), server.port());
    let url = format!(
        "postgres://{}@127.0.0.1:{},127.0.0.1:{}/{}",
        Postgres::USER,
        ports.0,
        ports.1,
        Postgres::DATABASE
    );
    let settings = PostgresSettings::parse(&url).unwrap();
    let settings = settings.with_password(DatabasePassword::File(server.password_file()));
    let mut a = with(settings);
    a.claim.ttl = Duration::from_secs(30);
    let asked = Instant::now();
    let token = a.acquire().await.unwrap();
    assert!(asked.elapsed() < a.claim.ttl / 2, "{:?}", asked.elapsed());
    a.store.renew(&a.claim, token).await.unwrap();

    server
        .sql("ALTER DATABASE bridge SET default_transaction_read_only = on")
        .await;
    let settings = PostgresSettings::parse(&server.url()).unwrap();
    let settings = settings.with_password(DatabasePassword::File(server.password_file()));
    let failure = store_failure(with(settings).acquire().await.unwrap_err());
    assert!(failure.to_string().contains("writ"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_an_attempt_that_was_given_up_at_a_silent_host_is_made_anew_at_the_next() {
    let server = Postgres::start().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "postgres://{}@127.0.0.1:{},127.0.0.1:{}/{}",
        Postgres::USER,
        silent.local_addr().unwrap().port(),
        server.port(),
        Postgres::DATABASE
    );
    let settings = PostgresSettings::parse(&url).unwrap();
    let settings = settings.with_password(DatabasePassword::File(server.password_file()));
    let mut a = with(settings);
    // So that the share of the silent host is longer than anybody waits here.
    a.claim.ttl = Duration::from_secs(300);
    let given_up = tokio::time::timeout(Duration::from_millis(500), a.acquire()).await;
    assert!(given_up.is_err(), "{given_up:?}");
    let again = tokio::time::timeout(PATIENCE, a.acquire()).await;
    assert!(matches!(again, Ok(Ok(_))), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_is_read_for_each_connection_and_a_wrong_one_is_said_but_not_shown() {
    let mut server = Postgres::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "wr0ng-s3cr3t\n").unwrap();
    let settings = PostgresSettings::parse(&server.url()).unwrap();
    let a = with(settings.with_password(DatabasePassword::File(file.clone())));
    let failure = store_failure(a.acquire().await.unwrap_err());
    assert!(
        matches!(failure, StoreFailure::Unusable { .. }),
        "{failure}"
    );
    let shown = format!("{failure} {failure:?} {:?} {}", a.store, a.store);
    assert!(!shown.contains("s3cr3t"), "{shown}");
    fs::write(&file, format!("{}\n", Postgres::PASSWORD)).unwrap();
    let token = a.acquire().await.unwrap();

    server.sql("ALTER USER bridge PASSWORD 'another'").await;
    fs::write(&file, "another").unwrap();
    server.restart().await;
    wait_for("the new password is used", PATIENCE, async || {
        a.store.renew(&a.claim, token).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_the_server_has_to_be_the_one_that_the_url_names() {
    let authority = Authority::new();
    let server = Postgres::start_with_tls(&authority.server()).await;
    let url = format!("{}?sslmode=require", server.url());
    let settings = |url: &str, authority: &Authority| {
        PostgresSettings::parse(url)
            .unwrap()
            .with_password(DatabasePassword::Text(Postgres::PASSWORD.to_owned()))
            .with_ca_file(authority.certificate())
    };
    let token = with(settings(&url, &authority)).acquire().await.unwrap();
    assert!(token > 0);
    let encrypted = "SELECT count(*) FROM pg_stat_ssl WHERE ssl";
    assert_ne!(server.sql(encrypted).await, "", "the server knows of TLS");

    let other = Authority::new();
    let failure = store_failure(with(settings(&url, &other)).acquire().await.unwrap_err());
    assert!(failure.to_string().contains("certificate"), "{failure}");

    let stranger = Postgres::start_with_tls(&authority.server_named(&["db.example.com"])).await;
    let url = format!("{}?sslmode=require", stranger.url());
    let failure = store_failure(
        with(settings(&url, &authority))
            .acquire()
            .await
            .unwrap_err(),
    );
    assert!(failure.to_string().contains("certificate"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_never_gets_the_password_of_a_url_that_asks_for_it() {
    let server = Postgres::start().await;
    let url = format!("{}?sslmode=require", server.url());
    let settings = PostgresSettings::parse(&url).unwrap();
    let password = DatabasePassword::Text(Postgres::PASSWORD.to_owned());
    let clock = Arc::new(SystemClock::new());
    let store = PostgresLease::new(settings.with_password(password), clock);
    let claim = Party::new(&Database::of(&server), "plant-7").claim;
    let failure = store_failure(store.acquire(&claim).await.unwrap_err());
    assert!(failure.to_string().contains("TLS"), "{failure}");
}
