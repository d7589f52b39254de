-- The number of minutes in which a host was observed, by day. The report makes the view `observed` of it.
WITH hours AS (
  -- A bit for each minute: engines count bits faster than distinct values.
  SELECT day, host, bit_or(CAST(power(2, floor((minute_s % 3600) / 60)) AS BIGINT)) AS minutes
  FROM lake
  WHERE snapshots > 0
  GROUP BY day, host, floor(minute_s / 3600)
)
SELECT day, host, CAST(sum(bit_count(minutes)) AS BIGINT) AS minutes
FROM hours
GROUP BY day, host
