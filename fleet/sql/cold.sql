-- How much memory is cold, and whose is it? By day and service.
-- Bytes are means over the minutes in which a host was observed on a day, summed over the control groups: a group that
-- existed for an hour of the day counts for a 24th.
WITH sums AS (
  SELECT
    day,
    service,
    host,
    cgroup,
    CAST(sum(resident_bytes) AS BIGINT) AS resident,
    CAST(sum(hot_bytes) AS BIGINT) AS hot,
    CAST(sum(warm_bytes) AS BIGINT) AS warm,
    CAST(sum(cold_bytes) AS BIGINT) AS cold,
    CAST(sum(unknown_bytes) AS BIGINT) AS unknown,
    CAST(sum(swapped_bytes) AS BIGINT) AS swapped
  FROM lake
  WHERE snapshots > 0
  GROUP BY day, service, host, cgroup
),
daily AS (
  SELECT
    s.day,
    s.service,
    CAST(floor(s.resident / o.minutes) AS BIGINT) AS resident,
    CAST(floor(s.hot / o.minutes) AS BIGINT) AS hot,
    CAST(floor(s.warm / o.minutes) AS BIGINT) AS warm,
    CAST(floor(s.cold / o.minutes) AS BIGINT) AS cold,
    CAST(floor(s.unknown / o.minutes) AS BIGINT) AS unknown,
    CAST(floor(s.swapped / o.minutes) AS BIGINT) AS swapped
  FROM sums AS s
  INNER JOIN observed AS o ON o.day = s.day AND o.host = s.host
)
SELECT
  day,
  service,
  count(*) AS control_groups,
  CAST(sum(resident) AS BIGINT) AS resident_bytes,
  CAST(sum(hot) AS BIGINT) AS hot_bytes,
  CAST(sum(warm) AS BIGINT) AS warm_bytes,
  CAST(sum(cold) AS BIGINT) AS cold_bytes,
  CAST(sum(unknown) AS BIGINT) AS unknown_bytes,
  CAST(sum(swapped) AS BIGINT) AS swapped_bytes
FROM daily
GROUP BY day, service
ORDER BY day, service
