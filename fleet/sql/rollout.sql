-- Has a new image changed how much memory is cold? By service and new image.
-- {age}: memory that is idle for this time is cold: an age of the lake's columns, such as 30m. {age_s}: its seconds.
-- Whole days with the old image are compared with whole days with the new one, host by host, by the mean of the control
-- groups of the service on the host: a new image often comes with new groups. Days on which the new image was younger
-- than {age} do not count, because no memory was idle for so long. The change on hosts that kept the old image in the
-- same time is subtracted: it is no effect of the image. The standard error is that of the difference of the two means.
-- change_bytes: change of the cold memory of a control group by the new image; error_bytes: its standard error.
WITH daily AS (
  SELECT
    day,
    service,
    host,
    cgroup,
    image,
    min(minute_s) AS first_s,
    CAST(floor(sum(resident_bytes) / count(*)) AS BIGINT) AS resident,
    CAST(floor(sum(idle_{age}) / count(*)) AS BIGINT) AS cold
  FROM lake
  WHERE snapshots > 0 AND image IS NOT NULL
  GROUP BY day, service, host, cgroup, image
),
by_host AS (
  SELECT
    day,
    service,
    host,
    image,
    min(first_s) AS first_s,
    CAST(floor(sum(resident) / count(*)) AS BIGINT) AS resident,
    CAST(floor(sum(cold) / count(*)) AS BIGINT) AS cold
  FROM daily
  GROUP BY day, service, host, image
),
marked AS (
  SELECT
    day,
    service,
    host,
    image,
    resident,
    cold,
    first_s - min(first_s) OVER (PARTITION BY service, host, image) AS lived_s,
    count(*) OVER (PARTITION BY day, service, host) AS images
  FROM by_host
),
whole_days AS (
  SELECT day, service, host, image, resident, cold, lived_s
  FROM marked
  WHERE images = 1
),
-- The first whole day of each image; the first image of a service is not new.
begins AS (
  SELECT service, image, min(day) AS first_day
  FROM whole_days
  GROUP BY service, image
),
rollouts AS (
  SELECT service, image, first_day, before_image
  FROM (
    SELECT
      service,
      image,
      first_day,
      lag(image) OVER (PARTITION BY service ORDER BY first_day, image) AS before_image
    FROM begins
  ) AS numbered
  WHERE before_image IS NOT NULL
),
compared AS (
  SELECT
    r.service,
    r.image AS new_image,
    r.before_image,
    d.host,
    d.resident,
    d.cold,
    CASE WHEN d.image = r.image THEN 1 ELSE 0 END AS is_new,
    CASE WHEN d.day < r.first_day AND d.image = r.before_image THEN 1 ELSE 0 END AS is_before,
    CASE
      WHEN d.day >= r.first_day AND (d.image = r.before_image OR d.lived_s >= {age_s}) THEN 1 ELSE 0
    END AS is_after
  FROM rollouts AS r
  INNER JOIN whole_days AS d ON d.service = r.service AND (d.image = r.image OR d.image = r.before_image)
),
sides AS (
  SELECT
    service,
    new_image,
    before_image,
    host,
    max(is_new) AS is_new,
    sum(is_before) AS days_before,
    sum(is_before * cold) AS cold_before,
    sum(is_before * resident) AS resident_before,
    -- A host that changed late has days with the old image after the first change: they are no days of the new one.
    sum(CASE WHEN is_new = own_new THEN is_after ELSE 0 END) AS days_after,
    sum(CASE WHEN is_new = own_new THEN is_after * cold ELSE 0 END) AS cold_after,
    sum(CASE WHEN is_new = own_new THEN is_after * resident ELSE 0 END) AS resident_after
  FROM (
    SELECT
      service,
      new_image,
      before_image,
      host,
      resident,
      cold,
      is_new,
      is_before,
      is_after,
      max(is_new) OVER (PARTITION BY service, new_image, host) AS own_new
    FROM compared
  ) AS with_own
  GROUP BY service, new_image, before_image, host
),
changes AS (
  SELECT
    service,
    new_image,
    before_image,
    is_new,
    CAST(floor((cold_after / days_after - cold_before / days_before) / 1024) AS BIGINT) AS cold,
    CAST(floor((resident_after / days_after - resident_before / days_before) / 1024) AS BIGINT) AS resident,
    CAST(floor(cold_before / days_before / 1024) AS BIGINT) AS cold_before
  FROM sides
  WHERE days_before > 0 AND days_after > 0
),
-- Sums of squares exceed 64 bits. Sums of fractions would depend on their order.
sums AS (
  SELECT
    service,
    new_image,
    before_image,
    CAST(sum(is_new) AS BIGINT) AS n1,
    CAST(sum(1 - is_new) AS BIGINT) AS n0,
    CAST(sum(is_new * cold) AS BIGINT) AS x1,
    CAST(sum((1 - is_new) * cold) AS BIGINT) AS x0,
    CAST(sum(CASE WHEN is_new = 1 THEN square END) AS DOUBLE) AS xx1,
    CAST(sum(CASE WHEN is_new = 0 THEN square END) AS DOUBLE) AS xx0,
    CAST(sum(is_new * resident) AS BIGINT) AS r1,
    CAST(sum((1 - is_new) * resident) AS BIGINT) AS r0,
    CAST(sum(is_new * cold_before) AS BIGINT) AS b1
  FROM (SELECT *, CAST(cold AS DECIMAL(19, 0)) * CAST(cold AS DECIMAL(19, 0)) AS square FROM changes) AS squares
  GROUP BY service, new_image, before_image
),
-- Variances of the means.
means AS (
  SELECT
    service,
    new_image,
    before_image,
    n1,
    n0,
    b1 / n1 AS cold_before,
    x1 / n1 - x0 / n0 AS cold,
    r1 / n1 - r0 / n0 AS resident,
    (xx1 - (x1 / n1) * x1) / n1 / (n1 - 1) AS v1,
    (xx0 - (x0 / n0) * x0) / n0 / (n0 - 1) AS v0
  FROM sums
  WHERE n1 > 1 AND n0 > 1
)
SELECT
  service,
  before_image,
  new_image,
  n1 AS hosts_new,
  n0 AS hosts_kept,
  CAST(floor(cold_before) AS BIGINT) * 1024 AS cold_before_bytes,
  CAST(floor(cold) AS BIGINT) * 1024 AS change_bytes,
  CAST(floor(sqrt(CASE WHEN v1 + v0 > 0 THEN v1 + v0 ELSE 0 END)) AS BIGINT) * 1024 AS error_bytes,
  CAST(floor(resident) AS BIGINT) * 1024 AS resident_change_bytes,
  CASE
    WHEN cold * cold > 9 * (v1 + v0) AND (cold >= 1024 OR cold <= -1024) THEN 1 ELSE 0
  END AS is_significant
FROM means
ORDER BY service, new_image
