-- Which hosts could be emptied, if memory that is idle for {age} were paged out? By host.
-- {age}: an age of the lake's columns, such as 2m.
-- {headroom}: the part of each host's memory that stays free, in percent.
-- A host requires the sum of what its control groups required in their worst minutes (needed_bytes): the resident
-- memory that was idle for less than {age}. Hosts are emptied in the order of this figure, for as long as the other
-- hosts have room for all that was emptied, and one of them for each group.
WITH peaks AS (
  SELECT
    host,
    cgroup,
    max(host_bytes) AS host_bytes,
    max(resident_bytes) AS resident,
    max(resident_bytes - idle_{age}) AS needed
  FROM lake
  WHERE snapshots > 0
  GROUP BY host, cgroup
),
hosts AS (
  SELECT
    host,
    CAST(max(host_bytes) AS BIGINT) AS host_bytes,
    CAST(sum(resident) AS BIGINT) AS resident_bytes,
    CAST(sum(needed) AS BIGINT) AS needed_bytes,
    CAST(max(needed) AS BIGINT) AS largest_group_bytes,
    CAST(floor(max(host_bytes) * (100 - {headroom}) / 100) - sum(needed) AS BIGINT) AS room_bytes
  FROM peaks
  GROUP BY host
),
ordered AS (
  SELECT
    host,
    host_bytes,
    resident_bytes,
    needed_bytes,
    largest_group_bytes,
    room_bytes,
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
  FROM hosts
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
  CASE
    WHEN moved_bytes <= room_elsewhere_bytes AND largest_group_bytes <= largest_room_bytes THEN 1 ELSE 0
  END AS can_be_emptied
FROM ordered
ORDER BY place
