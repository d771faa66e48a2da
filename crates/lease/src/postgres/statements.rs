//! What is said to the database: one statement for each request, so that each is atomic.

/// One lock for all who make the table at once, of the number that `bridge` has as text.
pub(super) const LOCK_MAKING: &str = "SELECT pg_advisory_lock(x'627269646765'::bigint)";

/// Lets go of it.
pub(super) const UNLOCK_MAKING: &str = "SELECT pg_advisory_unlock(x'627269646765'::bigint)";

/// Of every session, after it has connected. What the server's operator has made stricter stays.
pub(super) const PREPARE_SESSION: &str = "\
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') IN ('off', 'local')";

pub(super) const TABLE_EXISTS: &str = "SELECT to_regclass('bridge_lease') IS NOT NULL";

/// The table, as anybody with the right to may make it beforehand. After that the bridge's user
/// needs SELECT, INSERT and UPDATE on it, and no right to create anything.
pub(super) const MAKE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS bridge_lease (
    name       text        PRIMARY KEY,
    held       boolean     NOT NULL,
    owner      text        NOT NULL,
    boot       text        NOT NULL,
    token      bigint      NOT NULL,
    renewals   bigint      NOT NULL,
    ttl_ms     bigint      NOT NULL,
    expires_at timestamptz NOT NULL
)";

/// With the table, in the same transaction: a lease that nobody has had. `$1` name, `$2` owner, `$3` boot,
/// `$4` ttl in ms.
pub(super) const MAKE_FREE: &str = "\
INSERT INTO bridge_lease (name, held, owner, boot, token, renewals, ttl_ms, expires_at)
VALUES ($1, false, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 0, $4,
        clock_timestamp())";

/// `$1` name, `$2` owner, `$3` boot, `$4` ttl in ms; `$5`, `$6` token and renewals as seen before,
/// or null when this is the first look; `$7` whether they have been so for long enough, and `$8`
/// whether a lease may be made that is not there.
///
/// A plain UPDATE that finds nothing locks nothing and writes nothing, unlike ON CONFLICT DO UPDATE.
/// The first token is the time in milliseconds, so that it is greater than those of a row that was deleted.
pub(super) const ACQUIRE: &str = "\
WITH taken AS (
    UPDATE bridge_lease
       SET held = true, owner = $2, boot = $3, token = token + 1, renewals = 0, ttl_ms = $4,
           expires_at = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE name = $1
       AND (NOT held OR boot = $3 OR
            CASE WHEN $5::bigint IS NULL THEN expires_at <= clock_timestamp()
                 ELSE $7 AND token = $5 AND renewals = $6 END)
    RETURNING token
), made AS (
    INSERT INTO bridge_lease (name, held, owner, boot, token, renewals, ttl_ms, expires_at)
    SELECT $1, true, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 0, $4,
           clock_timestamp() + $4 * interval '1 millisecond'
     WHERE $8 AND NOT EXISTS (SELECT FROM bridge_lease WHERE name = $1)
    ON CONFLICT (name) DO NOTHING
    RETURNING token
)
SELECT coalesce((SELECT token FROM taken), (SELECT token FROM made)) AS acquired,
       seen.owner, seen.boot, seen.token, seen.renewals, seen.ttl_ms,
       (extract(epoch FROM seen.expires_at - clock_timestamp()) * 1000)::bigint AS remaining_ms
  FROM (VALUES (1)) AS one
  LEFT JOIN bridge_lease AS seen ON seen.name = $1";

/// `$1` name, `$2` boot, `$3` token, `$4` ttl in ms.
pub(super) const RENEW: &str = "\
UPDATE bridge_lease
   SET renewals = renewals + 1, ttl_ms = $4,
       expires_at = clock_timestamp() + $4 * interval '1 millisecond'
 WHERE name = $1 AND boot = $2 AND token = $3 AND held";

/// `$1` name, `$2` boot, `$3` token.
pub(super) const RELEASE: &str = "\
UPDATE bridge_lease
   SET held = false, expires_at = clock_timestamp()
 WHERE name = $1 AND boot = $2 AND token = $3 AND held";
