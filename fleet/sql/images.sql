-- How many control groups have an image? One row.
-- The question about new images leaves the others out. Units of systemd have no image. A container without one means
-- that the agent could not read the state of its runtime.
SELECT
  CAST(count(*) AS BIGINT) AS control_groups,
  CAST(coalesce(sum(1 - has_image), 0) AS BIGINT) AS without_image,
  CAST(coalesce(sum((1 - has_image) * is_container), 0) AS BIGINT) AS containers_without_image
FROM (
  SELECT
    host,
    cgroup,
    max(CASE WHEN container IS NULL THEN 0 ELSE 1 END) AS is_container,
    max(CASE WHEN image IS NULL THEN 0 ELSE 1 END) AS has_image
  FROM lake
  WHERE snapshots > 0
  GROUP BY host, cgroup
) AS named
