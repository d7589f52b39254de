-- What would page-out at a minimum age save, and how much would come back? By service, at {age}.
-- {age}: an age of the lake's columns, such as 2m.
-- saved_bytes: memory that was idle for {age} or longer: a mean over the minutes in which a host was observed on a day,
-- summed over the control groups, then a mean over the days. A group saves nothing while it does not exist.
-- returned_bytes_per_minute: memory that was touched after {age} idle, and would have come back from swap.
WITH sums AS (
  SELECT
    day,
    service,
    host,
    cgroup,
    CAST(sum(resident_bytes) AS BIGINT) AS resident,
    CAST(sum(aged_bytes) AS BIGINT) AS aged,
    CAST(sum(idle_{age}) AS BIGINT) AS idle,
    CAST(sum(returned_{age}) AS BIGINT) AS returned
  FROM lake
  WHERE snapshots > 0
  GROUP BY day, service, host, cgroup
),
daily AS (
  SELECT
    s.day,
    s.service,
    s.host,
    CAST(floor(s.resident / o.minutes) AS BIGINT) AS resident,
    CAST(floor(s.aged / o.minutes) AS BIGINT) AS aged,
    CAST(floor(s.idle / o.minutes) AS BIGINT) AS idle,
    CAST(floor(s.returned / o.minutes) AS BIGINT) AS returned
  FROM sums AS s
  INNER JOIN observed AS o ON o.day = s.day AND o.host = s.host
),
days AS (
  SELECT CAST(count(DISTINCT day) AS BIGINT) AS days FROM daily
),
services AS (
  SELECT
    service,
    CAST(count(DISTINCT host) AS BIGINT) AS hosts,
    CAST(sum(resident) AS BIGINT) AS resident,
    CAST(sum(aged) AS BIGINT) AS aged,
    CAST(sum(idle) AS BIGINT) AS idle,
    CAST(sum(returned) AS BIGINT) AS returned
  FROM daily
  GROUP BY service
)
SELECT
  service,
  hosts,
  CAST(floor(resident / days) AS BIGINT) AS resident_bytes,
  CAST(floor(aged / days) AS BIGINT) AS aged_bytes,
  CAST(floor(idle / days) AS BIGINT) AS saved_bytes,
  CAST(floor(returned / days) AS BIGINT) AS returned_bytes_per_minute,
  -- Parts per million of the resident memory that would come back in a minute: as of `refault 0.1%`.
  CAST(CASE WHEN resident > 0 THEN floor(1000000 * (returned / resident)) ELSE 0 END AS BIGINT) AS refault_ppm
FROM services
CROSS JOIN days
ORDER BY saved_bytes DESC, service
