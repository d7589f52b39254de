-- How much memory is cold, and whose is it? By day and service.
-- Bytes are means over the minutes of each control group and day, summed over the groups.
WITH daily AS (
  SELECT
    day,
    service,
    host,
    cgroup,
    CAST(floor(sum(resident_bytes) / count(*)) AS BIGINT) AS resident,
    CAST(floor(sum(hot_bytes) / count(*)) AS BIGINT) AS hot,
    CAST(floor(sum(warm_bytes) / count(*)) AS BIGINT) AS warm,
    CAST(floor(sum(cold_bytes) / count(*)) AS BIGINT) AS cold,
    CAST(floor(sum(unknown_bytes) / count(*)) AS BIGINT) AS unknown,
    CAST(floor(sum(swapped_bytes) / count(*)) AS BIGINT) AS swapped
  FROM lake
  WHERE snapshots > 0
  GROUP BY day, service, host, cgroup
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
