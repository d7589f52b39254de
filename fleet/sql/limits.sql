-- How small may the memory limit of each service be? By service.
-- {objective_ppm}: how much of the resident memory of a service may come back from swap in a minute, in parts per
-- million, on average over each day.
-- {skipped_days}: for each control group, this number of its worst days does not count: after a restart, all memory
-- was touched a short time ago.
-- For each service the smallest minimum age of page-out that keeps the objective on every day; the limit is the memory
-- that the largest control group of the service required in its worst minute: the resident memory that was idle for
-- less. A service that keeps the objective at no age has no row.
-- limit_bytes: the highest limit of its control groups on the last day of the service, or later. The last day is the last
-- one with 5 % of the hosts that the service had on its busiest day, and with two hosts at least if that had three: the
-- clock of one host may be ahead.
WITH daily AS (
  SELECT
    day,
    service,
    host,
    cgroup,
    sum(resident_bytes) AS resident,
    max(limit_bytes) AS limit_now,
    max(resident_bytes) AS peak,
    sum(returned_10s) AS returned_10s,
    sum(returned_15s) AS returned_15s,
    sum(returned_30s) AS returned_30s,
    sum(returned_1m) AS returned_1m,
    sum(returned_2m) AS returned_2m,
    sum(returned_5m) AS returned_5m,
    sum(returned_10m) AS returned_10m,
    sum(returned_15m) AS returned_15m,
    sum(returned_30m) AS returned_30m,
    sum(returned_1h) AS returned_1h,
    sum(returned_2h) AS returned_2h,
    sum(returned_4h) AS returned_4h,
    sum(returned_8h) AS returned_8h,
    sum(returned_12h) AS returned_12h,
    sum(returned_1d) AS returned_1d,
    sum(returned_2d) AS returned_2d,
    sum(returned_4d) AS returned_4d,
    sum(returned_7d) AS returned_7d,
    sum(returned_14d) AS returned_14d,
    max(resident_bytes - idle_10s) AS needed_10s,
    max(resident_bytes - idle_15s) AS needed_15s,
    max(resident_bytes - idle_30s) AS needed_30s,
    max(resident_bytes - idle_1m) AS needed_1m,
    max(resident_bytes - idle_2m) AS needed_2m,
    max(resident_bytes - idle_5m) AS needed_5m,
    max(resident_bytes - idle_10m) AS needed_10m,
    max(resident_bytes - idle_15m) AS needed_15m,
    max(resident_bytes - idle_30m) AS needed_30m,
    max(resident_bytes - idle_1h) AS needed_1h,
    max(resident_bytes - idle_2h) AS needed_2h,
    max(resident_bytes - idle_4h) AS needed_4h,
    max(resident_bytes - idle_8h) AS needed_8h,
    max(resident_bytes - idle_12h) AS needed_12h,
    max(resident_bytes - idle_1d) AS needed_1d,
    max(resident_bytes - idle_2d) AS needed_2d,
    max(resident_bytes - idle_4d) AS needed_4d,
    max(resident_bytes - idle_7d) AS needed_7d,
    max(resident_bytes - idle_14d) AS needed_14d
  FROM lake
  WHERE snapshots > 0
  GROUP BY day, service, host, cgroup
),
present AS (
  SELECT service, day, count(DISTINCT host) AS n
  FROM daily
  GROUP BY service, day
),
busiest AS (
  SELECT *, max(n) OVER (PARTITION BY service) AS most
  FROM present
),
marked AS (
  SELECT service, max(day) AS last_day
  FROM busiest
  WHERE 20 * n >= most AND (n > 1 OR most < 3)
  GROUP BY service
),
ages AS (
  SELECT age_s, age
  FROM (
    VALUES
      (10, '10s'),
      (15, '15s'),
      (30, '30s'),
      (60, '1m'),
      (120, '2m'),
      (300, '5m'),
      (600, '10m'),
      (900, '15m'),
      (1800, '30m'),
      (3600, '1h'),
      (7200, '2h'),
      (14400, '4h'),
      (28800, '8h'),
      (43200, '12h'),
      (86400, '1d'),
      (172800, '2d'),
      (345600, '4d'),
      (604800, '7d'),
      (1209600, '14d')
  ) AS listed (age_s, age)
),
unpivoted AS (
  SELECT
    d.day,
    d.service,
    d.host,
    d.cgroup,
    age_s,
    age,
    CASE WHEN d.day >= m.last_day THEN limit_now END AS limit_now,
    peak,
    CAST(floor(d.resident / o.minutes) AS BIGINT) AS resident,
    CAST(floor(CASE age_s
      WHEN 10 THEN returned_10s
      WHEN 15 THEN returned_15s
      WHEN 30 THEN returned_30s
      WHEN 60 THEN returned_1m
      WHEN 120 THEN returned_2m
      WHEN 300 THEN returned_5m
      WHEN 600 THEN returned_10m
      WHEN 900 THEN returned_15m
      WHEN 1800 THEN returned_30m
      WHEN 3600 THEN returned_1h
      WHEN 7200 THEN returned_2h
      WHEN 14400 THEN returned_4h
      WHEN 28800 THEN returned_8h
      WHEN 43200 THEN returned_12h
      WHEN 86400 THEN returned_1d
      WHEN 172800 THEN returned_2d
      WHEN 345600 THEN returned_4d
      WHEN 604800 THEN returned_7d
      WHEN 1209600 THEN returned_14d
    END / o.minutes) AS BIGINT) AS returned,
    CASE age_s
      WHEN 10 THEN needed_10s
      WHEN 15 THEN needed_15s
      WHEN 30 THEN needed_30s
      WHEN 60 THEN needed_1m
      WHEN 120 THEN needed_2m
      WHEN 300 THEN needed_5m
      WHEN 600 THEN needed_10m
      WHEN 900 THEN needed_15m
      WHEN 1800 THEN needed_30m
      WHEN 3600 THEN needed_1h
      WHEN 7200 THEN needed_2h
      WHEN 14400 THEN needed_4h
      WHEN 28800 THEN needed_8h
      WHEN 43200 THEN needed_12h
      WHEN 86400 THEN needed_1d
      WHEN 172800 THEN needed_2d
      WHEN 345600 THEN needed_4d
      WHEN 604800 THEN needed_7d
      WHEN 1209600 THEN needed_14d
    END AS needed
  FROM daily AS d
  INNER JOIN marked AS m ON m.service = d.service
  INNER JOIN observed AS o ON o.day = d.day AND o.host = d.host
  CROSS JOIN ages
),
by_day AS (
  SELECT
    service,
    age_s,
    day,
    CAST(sum(resident) AS BIGINT) AS resident,
    CAST(sum(returned) AS BIGINT) AS returned,
    max(limit_now) AS limit_now
  FROM unpivoted
  GROUP BY service, age_s, day
),
refaults AS (
  SELECT
    service,
    age_s,
    max(limit_now) AS limit_now,
    max(CASE WHEN resident > 0 THEN floor(1000000 * (returned / resident)) ELSE 0 END) AS refault_ppm
  FROM by_day
  GROUP BY service, age_s
),
ordered_days AS (
  SELECT
    service,
    host,
    cgroup,
    age_s,
    age,
    peak,
    needed,
    row_number() OVER (PARTITION BY service, host, cgroup, age_s ORDER BY needed DESC, day) AS place,
    count(*) OVER (PARTITION BY service, host, cgroup, age_s) AS days
  FROM unpivoted
),
needs AS (
  SELECT
    service,
    age_s,
    age,
    max(peak) AS peak,
    max(CASE WHEN place > {skipped_days} OR days <= {skipped_days} THEN needed END) AS needed
  FROM ordered_days
  GROUP BY service, age_s, age
),
ranked AS (
  SELECT
    n.service,
    n.age_s,
    n.age,
    r.limit_now,
    n.peak,
    n.needed,
    r.refault_ppm,
    row_number() OVER (PARTITION BY n.service ORDER BY n.age_s) AS place
  FROM needs AS n
  INNER JOIN refaults AS r ON r.service = n.service AND r.age_s = n.age_s
  WHERE r.refault_ppm <= {objective_ppm}
)
SELECT
  service,
  age AS minimum_age,
  CAST(age_s AS BIGINT) AS minimum_age_s,
  CAST(refault_ppm AS BIGINT) AS worst_day_refault_ppm,
  CAST(limit_now AS BIGINT) AS limit_bytes,
  CAST(peak AS BIGINT) AS peak_bytes,
  -- Ages are a sample, and may be older than sizes.
  CAST(CASE WHEN needed > 0 THEN needed ELSE 0 END AS BIGINT) AS smallest_limit_bytes
FROM ranked
WHERE place = 1
ORDER BY service
