-- Which hosts could be emptied, if memory that is idle for {age} were paged out? By host.
-- {age}: an age of the lake's columns, such as 2m.
-- {headroom}: the part of each host's memory that stays free, in percent.
-- The last hour of the lake is the last one with 5 % of the hosts of the busiest hour, and with two hosts at least if that
-- had three: the clock of one host may be ahead. Hosts without a row in this hour, in the hour before it, or later, no longer exist:
-- they have no row here, and gone_hosts is their number.
-- A host requires what it required in its worst hour (needed_bytes): the sum over the control groups of that hour, each
-- in its worst minute, of the resident memory that was idle for less than {age}. Hosts are emptied in the order of this
-- figure, until the other hosts have no room for all that was emptied, or none of them for one of the groups.
WITH peaks AS (
  SELECT
    host,
    floor(minute_s / 3600) AS hour,
    cgroup,
    max(host_bytes) AS host_bytes,
    max(resident_bytes) AS resident,
    -- Ages are a sample, and may be older than sizes.
    max(CASE WHEN resident_bytes > idle_{age} THEN resident_bytes - idle_{age} ELSE 0 END) AS needed
  FROM lake
  WHERE snapshots > 0
  GROUP BY host, floor(minute_s / 3600), cgroup
),
hours AS (
  SELECT
    host,
    hour,
    max(host_bytes) AS host_bytes,
    sum(resident) AS resident,
    sum(needed) AS needed,
    max(needed) AS largest_group
  FROM peaks
  GROUP BY host, hour
),
hosts AS (
  SELECT
    host,
    max(hour) AS last_hour,
    CAST(max(host_bytes) AS BIGINT) AS host_bytes,
    CAST(max(resident) AS BIGINT) AS resident_bytes,
    CAST(max(needed) AS BIGINT) AS needed_bytes,
    CAST(max(largest_group) AS BIGINT) AS largest_group_bytes,
    CAST(floor(max(host_bytes) * (100 - {headroom}) / 100) - max(needed) AS BIGINT) AS room_bytes
  FROM hours
  GROUP BY host
),
present AS (
  SELECT hour, count(*) AS n
  FROM hours
  GROUP BY hour
),
busiest AS (
  SELECT *, max(n) OVER () AS most
  FROM present
),
marked AS (
  SELECT max(hour) AS lake_hour
  FROM busiest
  WHERE 20 * n >= most AND (n > 1 OR most < 3)
),
counted AS (
  SELECT
    *,
    CAST(sum(CASE WHEN last_hour < lake_hour - 1 THEN 1 ELSE 0 END) OVER () AS BIGINT) AS gone_hosts
  FROM hosts
  CROSS JOIN marked
),
ordered AS (
  SELECT
    host,
    host_bytes,
    resident_bytes,
    needed_bytes,
    room_bytes,
    gone_hosts,
    -- Of all hosts that are emptied before this one, too.
    max(largest_group_bytes) OVER (
      ORDER BY needed_bytes, host ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS largest_moved_bytes,
    row_number() OVER (ORDER BY needed_bytes, host) AS place,
    CAST(sum(needed_bytes) OVER (
      ORDER BY needed_bytes, host ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS moved_bytes,
    CAST(coalesce(sum(CASE WHEN room_bytes > 0 THEN room_bytes ELSE 0 END) OVER (
      ORDER BY needed_bytes, host ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ), 0) AS BIGINT) AS room_elsewhere_bytes,
    coalesce(max(room_bytes) OVER (
      ORDER BY needed_bytes, host ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ), 0) AS largest_room_bytes
  FROM counted
  WHERE last_hour >= lake_hour - 1
),
fitting AS (
  SELECT
    *,
    CASE
      WHEN moved_bytes <= room_elsewhere_bytes AND largest_moved_bytes <= largest_room_bytes THEN 1 ELSE 0
    END AS fits
  FROM ordered
)
SELECT
  host,
  place,
  host_bytes,
  resident_bytes,
  needed_bytes,
  room_bytes,
  moved_bytes,
  room_elsewhere_bytes,
  min(fits) OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS can_be_emptied,
  gone_hosts
FROM fitting
ORDER BY place
